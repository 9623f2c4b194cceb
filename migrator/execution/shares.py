"""Shares of one GPU's processors without partitions, as MPS cuts them.

Time goes from event to event: whole seconds, shares that come into force, retrainings that end. Processes and trainers
are simulated here. Interference is that of :mod:`workloads.profiles.shares`, second by second, from the
neighbours' own load; batch sizes follow it at once, and at a change of shares a process still ends its batch while its
successor serves: both are kind to the policies. While processes take turns there is no interference: each has the whole
GPU for its share of the time. Changing between the two starts all processes anew. A retraining has no effect before its
end. Where estimates misjudge latencies, policies decide by the wrong ones, while processes go by their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from zlib import crc32

import numpy as np

from forecaster.forecast import FloatArray, Forecast
from migrator.execution import events
from migrator.execution.happenings import Trained
from migrator.execution.posing import estimates_in, salvages_in
from migrator.execution.seams import Accounts, Note, WithoutInstances
from migrator.execution.windows import Opening, PlannedWindow
from migrator.inputs.estimates import as_carried_out, service_factors
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from planner.errors import EngineError
from planner.policies.shares import (
    QUANTA,
    Answer,
    Batches,
    Moment,
    RetrainingStage,
    ShareOption,
    SharePolicy,
    ShareTenant,
    Switching,
    speed_in_turns,
    violation,
)
from planner.problem import Owner, Task
from workloads.profiles.shares import Sensitivity, SharePoint, ShareProfile, slowdown, training_rates
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.tenants import Tenant
from workloads.training import FULL, reached

_STARTS_STREAM = 3
"""Second word of the seed of start-up times; :mod:`migrator.execution.simulated` and ``foresight`` have others."""

_EPS_S = 1e-9


class _Points:
    """How a model is served on shares; each point is looked up once.

    Attributes:
        batches: Sizes in which a policy may have it served.
    """

    def __init__(self, profile: ShareProfile) -> None:
        self._beside = cache(lambda quanta, factor, most: profile.point(quanta / QUANTA, factor, most))
        self.batches = tuple(Batches(most, processes, speed) for (processes, most), speed in profile.batches.items())
        self._in_turns = cache(lambda quanta, most: profile.point_in_turns(quanta / QUANTA, most))

    def beside(self, quanta: int, factor: float, batches: Batches | None = None) -> SharePoint:
        """On so many twentieths, beside neighbours that slow it down so much; slowdowns are taken to a hundredth.

        With ``batches`` it is served in those, or in smaller ones where these do not meet the SLO.
        """
        return self._beside(quanta, round(factor, 2), None if batches is None else batches.kind)

    def in_turns(self, quanta: int, batches: Batches | None = None) -> SharePoint:
        """The same with the whole GPU for so many twentieths of the time."""
        return self._in_turns(quanta, None if batches is None else batches.kind)


@dataclass(eq=False)
class _Part:
    """One tenant during the run: what it holds, how far its retraining is, and what it could have served.

    Attributes:
        points: How it is served.
        known: How planning takes it to be served.
    """

    index: int
    tenant: Tenant
    points: _Points
    known: _Points
    sensitivity: Sensitivity
    training_rates: Mapping[str, FloatArray]
    could_serve: dict[int, FloatArray] = field(default_factory=dict)
    was_changing: dict[int, FloatArray] = field(default_factory=dict)
    stage: RetrainingStage = RetrainingStage.NONE
    is_due: bool = False
    done: float = 0.0
    serves_from_s: float = 0.0
    trains_from_s: float = math.inf
    n_starts: int = 0
    option: str = FULL
    salvages: Mapping[str, float] = field(default_factory=dict)
    salvage_untrained: float = 0.0


class Shares(WithoutInstances):
    """Sharing by MPS: the policy decides as a window begins, when a retraining ends, and as often as it asks.

    A retraining that is unfinished at its window's end is given up: the next one has newer data.
    """

    kind = "shares"
    promised: Mapping[str, str] | None = None

    def __init__(
        self,
        setting: Setting,
        traffic: RecordedTraffic,
        policy: SharePolicy,
        accounts: Accounts,
        *,
        as_published: bool,
    ) -> None:
        self._setting, self._traffic, self._policy, self._accounts = setting, traffic, policy, accounts
        self._as_published = as_published
        self._switching = policy.switching
        if policy.switching is Switching.RESTART and not as_published:
            self._switching = Switching.SHADOW
        self._strength = setting.config.simulation.interference
        self._n_starts: Counter[tuple[int, str]] = Counter()
        self._parts = _parts(setting)
        self._may_take_turns = self._strength > 0 and not as_published
        self._shares: dict[Owner, int] = {}
        self._in_turns = False
        self._batches: Mapping[str, Batches] = {}
        self._decided: Moment | None = None
        self._next: tuple[float, Answer] | None = None
        self._window = 0
        self._piece_s = 0.0  # where the piece in progress began
        self._ends_s: dict[int, float] = {}
        self._accuracies: tuple[float, ...] = ()
        self._ahead_rps = np.empty((0, len(self._parts)))

    def plan_ahead(self, opening: Opening, forecast: Forecast) -> None:
        """Never: there is no plan."""

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:  # noqa: ARG002
        """Set the window's retrainings, and decide.

        Raises:
            EngineError: The policy's shares cannot be.
        """
        self._window, self._accuracies, self._ahead_rps = opening.window, opening.accuracies, forecast.mean_rps
        window_s = round(self._setting.config.window_s)
        for part, last, accuracy in zip(self._parts, opening.trained_last, opening.accuracies, strict=True):
            part.done, part.trains_from_s, part.option = 0.0, math.inf, FULL
            part.could_serve[opening.window], part.was_changing[opening.window] = np.zeros((2, window_s))
            is_offered = part.tenant.is_offered(opening.window, accuracy)
            part.is_due = is_offered and part.tenant.must_retrain_in(opening.window, last)
            part.stage = RetrainingStage.WAITING if is_offered else RetrainingStage.NONE
        self._shares = {owner: quanta for owner, quanta in self._shares.items() if owner.task is Task.INFERENCE}
        self._next = None
        self._look_beyond(opening, forecast)
        self._decide(note)

    def _look_beyond(self, opening: Opening, forecast: Forecast) -> None:
        """What models are worth beyond the window, as plans on MIG count it."""
        estimates = estimates_in(self._setting, opening.window)
        for part, worth in zip(self._parts, salvages_in(self._setting, opening, estimates, forecast), strict=True):
            part.salvage_untrained, part.salvages = 0.0, {}
            if worth:
                part.salvage_untrained, *after = worth
                part.salvages = dict(zip((option.name for option in part.tenant.options), after, strict=True))

    def wait(self, until_s: float) -> float:
        """The next whole second, change of shares, or end of a retraining; the run's end is followed by nothing."""
        config, now_s = self._setting.config, self._accounts.now_s
        self._piece_s, self._ends_s = now_s, {}
        if now_s >= config.windows * config.window_s:
            return until_s
        until_s = min(until_s, math.floor(now_s + _EPS_S) + 1.0)
        if self._next is not None:
            until_s = min(until_s, self._next[0])
        self._ends_s = {part.index: self._finish_s(part) for part in self._parts}
        until_s = max(min(until_s, *self._ends_s.values()), now_s)
        self._count_service(now_s, until_s)
        return until_s

    def serve(self, accounts: Accounts, accuracies: Mapping[str, AccuracyTimeline], until_s: float) -> float:
        """Serve with every tenant's processes as they are now."""
        accounts.serve({part.tenant.name: self._servers(part) for part in self._parts}, accuracies, until_s)
        return until_s

    def act(self, now_s: float, note: Note) -> Sequence[Trained]:
        """Train up to now; let shares come into force, and decide anew, where that is due."""
        if not self._ends_s:  # after the run's end
            return ()
        ended = []
        for part in self._parts:
            part.done += self._training_rate(part) * max(0.0, now_s - max(self._piece_s, part.trains_from_s))
            if self._ends_s[part.index] <= now_s:
                ended.append(self._end_retraining(part, now_s))
        if self._next is not None and self._next[0] <= now_s:
            self._put_in_force(self._next[1], note)
        at_window_end = now_s >= (self._window + 1) * self._setting.config.window_s
        is_due = self._policy.period_s is not None and now_s % self._policy.period_s == 0
        if not at_window_end and ended:
            self._decide(note)
        elif not at_window_end and is_due and self._next is None:
            self._decide(note, must=False)
        return ended

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:
        """What each tenant's processes could have served in the window's seconds, and missed while they restarted."""
        return {
            part.tenant.name: {
                "could_serve": part.could_serve.pop(window).tolist(),
                "changing": part.was_changing.pop(window).tolist(),
            }
            for part in self._parts
        }

    def _decide(self, note: Note, *, must: bool = True) -> None:
        """Ask the policy, and begin to bring its shares about; unless it ``must``, it may leave things as they are."""
        moment = self._moment()
        if not must and not self._policy.reconsiders(moment):
            return
        self._decided = replace(moment, decided=None)
        answer = self._policy.answer(moment)
        wrong = violation(answer.shares, moment)
        if wrong is not None:
            raise EngineError(f"{self._policy.name}: {wrong}")
        wanted = {owner: quanta for owner, quanta in answer.shares.items() if quanta > 0}
        answer = replace(answer, shares=wanted)
        starts_all = answer.in_turns != self._in_turns
        changed = [owner for owner in wanted if starts_all or wanted[owner] != self._shares.get(owner)]
        if not changed and set(wanted) == set(self._shares):
            self._next = None
            if answer.batches != self._batches:  # processes take other batches as they are
                self._put_in_force(answer, note)
            return
        now_s = self._accounts.now_s
        if not self._shares:  # before the run everything is started, as instances are
            self._put_in_force(answer, note)
            return
        started_s = {owner: self._start_s(owner, len(changed)) for owner in changed}
        match self._switching:
            case Switching.POOL:
                self._put_in_force(answer, note)
            case Switching.RESTART:
                self._put_in_force(answer, note)
                for owner in changed:
                    self._delay(owner, now_s + started_s[owner])
            case Switching.SHADOW:
                self._next = (now_s + max(started_s.values(), default=0.0), answer)

    def _start_s(self, owner: Owner, n_at_once: int) -> float:
        tenant = self._part(owner).tenant
        start = tenant.worker_start if owner.task is Task.INFERENCE else tenant.trainer_start
        key = (self._window, str(owner))
        self._n_starts[key] += 1
        stream = [
            self._setting.config.seed,
            _STARTS_STREAM,
            self._window,
            crc32(str(owner).encode()),
            self._n_starts[key],
        ]
        return start.start_s(n_at_once, np.random.default_rng(stream))

    def _delay(self, owner: Owner, ready_s: float) -> None:
        """The task's processes are away until then."""
        part = self._part(owner)
        if owner.task is Task.INFERENCE:
            part.serves_from_s = ready_s
        else:
            part.trains_from_s = ready_s

    def _put_in_force(self, answer: Answer, note: Note) -> None:
        """From now on these shares hold; a retraining that begins starts up first, unless that was waited for."""
        now_s = self._accounts.now_s
        waited = self._next is not None
        starts_all = answer.in_turns != self._in_turns
        for owner, quanta in answer.shares.items():
            part = self._part(owner)
            if owner.task is Task.RETRAINING:
                if part.stage is RetrainingStage.WAITING:
                    part.stage, part.option = RetrainingStage.RUNNING, answer.options.get(owner.tenant, FULL)
                    part.trains_from_s = now_s if waited else now_s + self._start_s(owner, 1)
            elif starts_all or quanta != self._shares.get(owner):
                part.n_starts += 1
        self._shares, self._in_turns, self._next = dict(answer.shares), answer.in_turns, None
        self._batches = answer.batches
        note(events.shares(self._window, answer))

    def _part(self, owner: Owner) -> _Part:
        return next(part for part in self._parts if part.tenant.name == owner.tenant)

    def _moment(self) -> Moment:
        config, now_s = self._setting.config, self._accounts.now_s
        past_rps = self._traffic.rates_before(now_s, 1.0)
        into_s = now_s - self._window * config.window_s
        return Moment(
            left_s=config.window_s - into_s,
            tenants=tuple(self._share_tenant(part, past_rps) for part in self._parts),
            ahead_rps=self._ahead_rps[min(int(into_s / config.step_s), len(self._ahead_rps) - 1) :],
            past_rps=past_rps,
            shares=dict(self._shares),
            as_published=self._as_published,
            window=self._window,
            decided=self._decided,
        )

    def _share_tenant(self, part: _Part, past_rps: FloatArray) -> ShareTenant:
        """What the policy knows; the interference is that of the last minute's load and all retrainings to come.

        A retraining that waits counts as the full one.
        """
        load_rps = past_rps[-60:].mean(axis=0)
        equal = max(1, QUANTA // len(self._parts))
        busy = [
            _busy(float(load_rps[other.index]), other.known.beside(equal, 1.0))
            for other in self._parts
            if other is not part
        ]
        n_retraining = sum(other.stage in (RetrainingStage.WAITING, RetrainingStage.RUNNING) for other in self._parts)
        # Expectations, so a twentieth is exact enough, and rounding lets points be found again.
        slowdowns = tuple(
            round(20 * slowdown(part.sensitivity, self._strength, busy, n)) / 20 for n in range(n_retraining + 1)
        )
        beside = tuple(self._expected_rates(part, factor) for factor in slowdowns)
        after = estimates_in(self._setting, self._window)[part.index].accuracy_after
        options = {} if part.stage is RetrainingStage.NONE else self._options(part, after)
        own = options.get(part.option)
        return ShareTenant(
            name=part.tenant.name,
            weight=part.tenant.weight,
            accuracy_before=self._accuracies[part.index],
            accuracy_after=after if own is None else own.accuracy_after,
            rate_rps=beside[-1],
            training_rate=np.zeros(QUANTA + 1) if own is None else own.training_rate,
            done=part.done,
            stage=part.stage,
            rate_beside=beside,
            turns_rps=self._rates_in_turns(part) if self._may_take_turns else None,
            options=tuple(options.values()) if part.stage is RetrainingStage.WAITING else (),
            salvage=(part.salvage_untrained, 0.0 if own is None else own.salvage),
            is_due=part.is_due,
            start_s=self._trains_in_s(part),
            slo_s=part.tenant.slo_s,
            batches=part.known.batches,
            slowdowns=slowdowns,
        )

    def _trains_in_s(self, part: _Part) -> float:
        """Seconds until its retraining trains, as planned where it does not run yet."""
        if part.stage is RetrainingStage.RUNNING:
            return max(0.0, part.trains_from_s - self._accounts.now_s)
        return part.tenant.trainer_start.planned_s(1)

    def _options(self, part: _Part, after: float) -> Mapping[str, ShareOption]:
        """The ways to do its retraining of the window by name, ``full`` first, after which accuracy is ``after``."""
        return {
            option.name: ShareOption(
                option.name,
                reached(self._accuracies[part.index], after, option.gain),
                part.training_rates[option.name],
                part.salvages.get(option.name, 0.0),
            )
            for option in part.tenant.options
        }

    @staticmethod
    def _rates_in_turns(part: _Part) -> FloatArray:
        """Requests a second by twentieths of the time, as planning knows it."""
        return np.array([0.0, *(part.known.in_turns(quanta).rate_rps for quanta in range(1, QUANTA + 1))])

    @staticmethod
    def _expected_rates(part: _Part, factor: float) -> FloatArray:
        """Requests a second by twentieths, beside neighbours that slow it down so much."""
        return np.array([0.0, *(part.known.beside(quanta, factor).rate_rps for quanta in range(1, QUANTA + 1))])

    def _training_rate(self, part: _Part) -> float:
        """Part of its retraining, as it is being done, that a second does."""
        if part.stage is not RetrainingStage.RUNNING:
            return 0.0
        rates = part.training_rates[part.option]
        rates = speed_in_turns(rates) if self._in_turns else rates
        return float(rates[self._shares.get(Owner(part.tenant.name, Task.RETRAINING), 0)])

    def _finish_s(self, part: _Part) -> float:
        rate = self._training_rate(part)
        if rate <= 0:
            return math.inf
        return max(self._accounts.now_s, part.trains_from_s) + (1 - part.done) / rate

    def _end_retraining(self, part: _Part, at_s: float) -> Trained:
        part.stage, part.done = RetrainingStage.DONE, 1.0
        self._shares.pop(Owner(part.tenant.name, Task.RETRAINING), None)
        return Trained(at_s, part.tenant.name, self._window, option=part.option)

    def _factor(self, part: _Part, second: int) -> float:
        """The slowdown of the tenant's inference in this second."""
        now_rps = self._traffic.rate_in(second)
        busy = [
            _busy(float(now_rps[other.index]), self._point(other, 1.0)) for other in self._parts if other is not part
        ]
        training = [
            other.tenant.model
            for other in self._parts
            if self._training_rate(other) > 0 and other.trains_from_s <= self._piece_s
        ]
        return slowdown(part.sensitivity, self._strength, busy, len(training), training)

    def _now_point(self, part: _Part) -> SharePoint:
        if self._in_turns:
            return part.points.in_turns(self._serving_on(part), self._batches.get(part.tenant.name))
        return self._point(part, self._factor(part, math.floor(self._piece_s + _EPS_S)))

    def _point(self, part: _Part, factor: float) -> SharePoint:
        """How its inference serves side by side, beside neighbours that slow it down so much."""
        return part.points.beside(self._serving_on(part), factor, self._batches.get(part.tenant.name))

    def _serving_on(self, part: _Part) -> int:
        """The twentieths that its inference holds."""
        return self._shares[Owner(part.tenant.name, Task.INFERENCE)]

    def _servers(self, part: _Part) -> tuple[Server, ...]:
        """The tenant's processes as they are now."""
        point, name = self._now_point(part), part.tenant.name
        return tuple(
            Server(name, f"share#{part.n_starts}/{k}", part.serves_from_s, math.inf, point.latency, point.batch)
            for k in range(point.processes)
        )

    def _count_service(self, from_s: float, until_s: float) -> None:
        """Add what could be served in this piece to its second."""
        second = math.floor(from_s + _EPS_S) - self._window * round(self._setting.config.window_s)
        for part in self._parts:
            rate_rps = self._now_point(part).rate_rps
            serving_s = max(0.0, until_s - max(from_s, part.serves_from_s))
            part.could_serve[self._window][second] += rate_rps * serving_s
            part.was_changing[self._window][second] += rate_rps * (until_s - from_s - serving_s)


def _busy(load_rps: float, point: SharePoint) -> float:
    """How busy processes are with these requests, 0 to 1."""
    return min(1.0, load_rps / max(point.rate_rps, _EPS_S))


def _parts(setting: Setting) -> list[_Part]:
    config, gpu = setting.config, setting.gpu
    profiles = setting.profiles
    shares = [quanta / QUANTA for quanta in range(QUANTA + 1)]
    parts = []
    for index, (tenant, entry) in enumerate(zip(setting.tenants, config.tenants, strict=True)):
        options = as_carried_out(config.estimates, gpu, tenant).options
        chosen = (entry.batch, entry.processes, entry.max_batch, setting.knees(entry.model))
        profile = ShareProfile.of(profiles, gpu, entry.model, tenant.slo_s, *chosen)
        factors = service_factors(config.estimates, config.seed, gpu, entry.model)
        points = _Points(profile)
        parts.append(
            _Part(
                index=index,
                tenant=tenant,
                points=points,
                known=_Points(profile.misjudged(factors)) if factors else points,
                sensitivity=setting.sensitivity(entry.model),
                training_rates={one.name: training_rates(gpu, one.time_s, shares) for one in options}
                or {FULL: np.zeros(QUANTA + 1)},
            )
        )
    return parts
