"""A run in which tenants divide one GPU's processors without partitions, as MPS does.

The counterpart of :mod:`migrator.run.loop` for policies that give shares, not instances: the same requests, luck and
accuracies, the same request simulation. Time goes from event to event: whole seconds, shares that come into force,
retrainings that end. Interference is that of :mod:`workloads.profiles.shares`, second by second, from the
neighbours' own load; batch sizes follow it at once, which is kind to the policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from migrator.estimates import as_carried_out
from migrator.log.account import FloatArray, SecondAccounts, second_accounts
from migrator.run.models_in_service import ModelsInService
from migrator.run.planning import estimates_in
from migrator.run.requests import ServingRun
from migrator.setting import Setting, service_profiles
from planner.errors import EngineError
from planner.policies.shares import (
    QUANTA,
    Moment,
    SharePolicy,
    Shares,
    ShareTenant,
    Stage,
    Switching,
    violation,
)
from planner.problem import Owner, Task
from workloads.profiles.shares import Sensitivity, SharePoint, ShareProfile, sensitivity_of, slowdown, training_rates
from workloads.serving.requests import Server
from workloads.serving.tally import Totals
from workloads.tenants import Tenant

_STARTS_STREAM = 3
"""Second word of the seed of start-up times; migrator.setting has the others."""

_EPS_S = 1e-9


@dataclass(frozen=True)
class ShareRun:
    """What came of a run.

    Attributes:
        totals: Requests of all tenants by window.
        accounts: Where each tenant's requests went; ``reconfiguration`` is what was missed while processes restarted.
        n_changes: Times at which somebody's share changed, the first excepted.
    """

    totals: tuple[Totals, ...]
    accounts: Mapping[str, SecondAccounts]
    n_changes: int


def share_run(setting: Setting, policy: SharePolicy, *, as_published: bool = False) -> ShareRun:
    """All windows of the setting under the policy; same arguments, same run.

    A retraining that its window's end meets unfinished is given up: the next one has newer data.

    Raises:
        EngineError: The policy gives shares that cannot be.
    """
    return _Run(setting, policy, as_published).all_windows()


@dataclass(eq=False)
class _Part:
    """One tenant during the run: what it holds, how far its retraining is, and what it could have served."""

    index: int
    tenant: Tenant
    profile: ShareProfile
    sensitivity: Sensitivity
    training_rate: FloatArray
    could_serve: FloatArray
    was_changing: FloatArray
    is_new: FloatArray
    stage: Stage = Stage.NONE
    done: float = 0.0
    serves_from_s: float = 0.0
    trains_from_s: float = math.inf
    n_starts: int = 0
    points: dict[tuple[int, float], SharePoint] = field(default_factory=dict)

    def point(self, quanta: int, factor: float) -> SharePoint:
        """How it is served on the share; slowdowns are taken to a hundredth."""
        key = (quanta, round(factor, 2))
        if key not in self.points:
            self.points[key] = self.profile.point(quanta / QUANTA, key[1])
        return self.points[key]


class _Run:
    def __init__(self, setting: Setting, policy: SharePolicy, as_published: bool) -> None:
        self._setting, self._policy, self._as_published = setting, policy, as_published
        self._switching = policy.switching
        if policy.switching is Switching.RESTART and not as_published:
            self._switching = Switching.SHADOW
        self._strength = setting.config.simulation.interference
        self._serving = ServingRun(setting)
        self._models = ModelsInService(setting.tenants, setting.config.window_s)
        self._counts_rps = np.stack([np.concatenate([a.history_counts, a.counts]) for a in setting.arrivals], axis=1)
        self._n_past = len(self._counts_rps) - len(setting.arrivals[0].counts)
        self._rng = np.random.default_rng([setting.config.seed, _STARTS_STREAM])
        self._parts = _parts(setting)
        self._shares: dict[Owner, int] = {}
        self._next: tuple[float, Shares] | None = None
        self._n_changes = 0
        self._window = 0
        self._now_s = 0.0  # of the piece in progress: while it is advanced, tenants stand at different times
        self._ahead_rps = np.empty((0, len(self._parts)))

    def all_windows(self) -> ShareRun:
        """The run, from its first second to the last answer."""
        n_windows, window_s = self._setting.config.windows, self._setting.config.window_s
        totals: list[Totals] = []
        counts = []
        for window in range(n_windows):
            self._open(window)
            while self._serving.now_s < (window + 1) * window_s:
                self._to_next_event()
            self._now_s = self._serving.now_s
            if window == n_windows - 1:
                self._serving.advance(math.inf, self._servers)
            for settled in self._serving.settled(window):
                totals.append(sum((item.totals for item in settled.counts), Totals()))
                counts.append(settled.counts)
        by_tenant: dict[str, SecondAccounts] = {}
        for part in self._parts:
            own = [window[part.index] for window in counts]
            arrivals, in_time, correct = (
                np.concatenate([np.asarray(getattr(item, key), dtype=np.float64) for item in own])
                for key in ("arrivals", "in_time", "correct")
            )
            by_tenant[part.tenant.name] = second_accounts(
                arrivals, in_time, correct, part.could_serve, part.was_changing, part.is_new > 0
            )
        return ShareRun(tuple(totals), by_tenant, self._n_changes)

    def _open(self, window: int) -> None:
        """Set accuracies and retrainings for the window, and decide."""
        start_s = window * self._setting.config.window_s
        self._window = window
        self._ahead_rps = self._setting.forecast(window).mean_rps
        for part, accuracy in zip(self._parts, self._models.at_start(window), strict=True):
            self._serving.set_accuracy(part.index, start_s, accuracy)
            part.done, part.trains_from_s = 0.0, math.inf
            part.stage = Stage.WAITING if part.tenant.retrains_in(window) else Stage.NONE
        self._shares = {owner: quanta for owner, quanta in self._shares.items() if owner.task is Task.INFERENCE}
        self._next = None
        self._decide()

    def _decide(self) -> None:
        """Ask the policy, and begin to bring its shares about."""
        moment = self._moment()
        wanted = dict(self._policy.shares(moment))
        wrong = violation(wanted, moment)
        if wrong is not None:
            raise EngineError(f"{self._policy.name}: {wrong}")
        wanted = {owner: quanta for owner, quanta in wanted.items() if quanta > 0}
        changed = [owner for owner in wanted if wanted[owner] != self._shares.get(owner)]
        if not changed and set(wanted) == set(self._shares):
            self._next = None
            return
        now_s = self._serving.now_s
        if not self._shares:  # before the run everything is started, as instances are
            self._put_in_force(wanted)
            return
        started_s = {owner: self._start_s(owner, len(changed)) for owner in changed}
        match self._switching:
            case Switching.POOL:
                self._put_in_force(wanted)
            case Switching.RESTART:
                self._put_in_force(wanted)
                for owner in changed:
                    self._delay(owner, now_s + started_s[owner])
            case Switching.SHADOW:
                self._next = (now_s + max(started_s.values(), default=0.0), wanted)

    def _start_s(self, owner: Owner, n_at_once: int) -> float:
        tenant = self._part(owner).tenant
        start = tenant.worker_start if owner.task is Task.INFERENCE else tenant.trainer_start
        return start.start_s(n_at_once, self._rng)

    def _delay(self, owner: Owner, ready_s: float) -> None:
        """The task's processes are away until then."""
        part = self._part(owner)
        if owner.task is Task.INFERENCE:
            part.serves_from_s = ready_s
        else:
            part.trains_from_s = ready_s

    def _put_in_force(self, wanted: Shares) -> None:
        """From now on these shares hold; a retraining that begins starts up first, unless that was waited for."""
        now_s = self._serving.now_s
        waited = self._next is not None
        self._n_changes += bool(self._shares)
        for owner, quanta in wanted.items():
            part = self._part(owner)
            if owner.task is Task.RETRAINING:
                if part.stage is Stage.WAITING:
                    part.stage = Stage.RUNNING
                    part.trains_from_s = now_s if waited else now_s + self._start_s(owner, 1)
            elif quanta != self._shares.get(owner):
                part.n_starts += 1
        self._shares, self._next = dict(wanted), None

    def _part(self, owner: Owner) -> _Part:
        return next(part for part in self._parts if part.tenant.name == owner.tenant)

    def _moment(self) -> Moment:
        config, now_s = self._setting.config, self._serving.now_s
        second = self._n_past + math.floor(now_s + _EPS_S)
        past_rps = self._counts_rps[:second].astype(np.float64)
        into_s = now_s - self._window * config.window_s
        return Moment(
            left_s=config.window_s - into_s,
            tenants=tuple(self._share_tenant(part, past_rps) for part in self._parts),
            ahead_rps=self._ahead_rps[min(int(into_s / config.step_s), len(self._ahead_rps) - 1) :],
            past_rps=past_rps,
            shares=dict(self._shares),
            as_published=self._as_published,
        )

    def _share_tenant(self, part: _Part, past_rps: FloatArray) -> ShareTenant:
        """What the policy is told; the interference is that of the last minute's load and all retrainings to come."""
        load_rps = past_rps[-60:].mean(axis=0)
        equal = max(1, QUANTA // len(self._parts))
        busy = [
            min(1.0, float(load_rps[other.index]) / max(other.point(equal, 1.0).rate_rps, _EPS_S))
            for other in self._parts
            if other is not part
        ]
        n_retraining = sum(other.stage in (Stage.WAITING, Stage.RUNNING) for other in self._parts)
        # To a twentieth, as it is an expectation: so that points are found again.
        factor = round(20 * slowdown(part.sensitivity, self._strength, busy, n_retraining)) / 20
        estimate = estimates_in(self._setting, self._window)[part.index]
        return ShareTenant(
            name=part.tenant.name,
            weight=part.tenant.weight,
            accuracy_before=self._models.at_start(self._window)[part.index],
            accuracy_after=estimate.accuracy_after,
            rate_rps=np.array([0.0, *(part.point(quanta, factor).rate_rps for quanta in range(1, QUANTA + 1))]),
            training_rate=part.training_rate if part.stage is not Stage.NONE else np.zeros(QUANTA + 1),
            done=part.done,
            stage=part.stage,
        )

    def _to_next_event(self) -> None:
        """Serve and train up to the next whole second, change of shares, or end of a retraining."""
        now_s = self._now_s = self._serving.now_s
        until_s = math.floor(now_s + _EPS_S) + 1.0
        if self._next is not None:
            until_s = min(until_s, self._next[0])
        ends_s = {part.index: self._finish_s(part) for part in self._parts}
        until_s = max(min(until_s, *ends_s.values()), now_s)
        self._note(now_s, until_s)
        self._serving.advance(until_s, self._servers)
        has_ended = False
        for part in self._parts:
            part.done += self._training_rate(part) * max(0.0, until_s - max(now_s, part.trains_from_s))
            if ends_s[part.index] <= until_s:
                self._end_retraining(part, until_s)
                has_ended = True
        if self._next is not None and self._next[0] <= until_s:
            self._put_in_force(self._next[1])
        at_window_end = until_s >= (self._window + 1) * self._setting.config.window_s
        is_due = self._policy.period_s is not None and until_s % self._policy.period_s == 0
        if not at_window_end and (has_ended or (is_due and self._next is None)):
            self._decide()

    def _training_rate(self, part: _Part) -> float:
        if part.stage is not Stage.RUNNING:
            return 0.0
        return float(part.training_rate[self._shares.get(Owner(part.tenant.name, Task.RETRAINING), 0)])

    def _finish_s(self, part: _Part) -> float:
        rate = self._training_rate(part)
        if rate <= 0:
            return math.inf
        return max(self._serving.now_s, part.trains_from_s) + (1 - part.done) / rate

    def _end_retraining(self, part: _Part, at_s: float) -> None:
        part.stage, part.done = Stage.DONE, 1.0
        self._serving.set_accuracy(part.index, at_s, self._models.retrained(part.index, self._window, at_s))
        window_s = round(self._setting.config.window_s)
        part.is_new[math.ceil(at_s) : (self._window + 1) * window_s] = 1.0
        self._shares.pop(Owner(part.tenant.name, Task.RETRAINING), None)

    def _factor(self, part: _Part, second: int) -> float:
        """The slowdown of the tenant's inference in this second."""
        now_rps = self._counts_rps[min(self._n_past + second, len(self._counts_rps) - 1)]
        busy = []
        for other in self._parts:
            if other is not part:
                quanta = self._shares[Owner(other.tenant.name, Task.INFERENCE)]
                busy.append(min(1.0, float(now_rps[other.index]) / max(other.point(quanta, 1.0).rate_rps, _EPS_S)))
        training = sum(self._training_rate(o) > 0 and o.trains_from_s <= self._now_s for o in self._parts)
        return slowdown(part.sensitivity, self._strength, busy, training)

    def _now_point(self, part: _Part) -> SharePoint:
        second = math.floor(self._now_s + _EPS_S)
        return part.point(self._shares[Owner(part.tenant.name, Task.INFERENCE)], self._factor(part, second))

    def _servers(self, tenant: str) -> tuple[Server, ...]:
        """The tenant's processes as they are now."""
        part = self._part(Owner(tenant, Task.INFERENCE))
        point = self._now_point(part)
        return tuple(
            Server(tenant, f"share#{part.n_starts}/{k}", part.serves_from_s, math.inf, point.latency, point.batch)
            for k in range(point.processes)
        )

    def _note(self, from_s: float, until_s: float) -> None:
        """Add what could be served in this piece to its second."""
        second = math.floor(from_s + _EPS_S)
        for part in self._parts:
            rate_rps = self._now_point(part).rate_rps
            serving_s = max(0.0, until_s - max(from_s, part.serves_from_s))
            part.could_serve[second] += rate_rps * serving_s
            part.was_changing[second] += rate_rps * (until_s - from_s - serving_s)


def _parts(setting: Setting) -> list[_Part]:
    config, gpu = setting.config, setting.gpu
    profiles = service_profiles(config)
    n_seconds = round(config.windows * config.window_s)
    shares = [quanta / QUANTA for quanta in range(QUANTA + 1)]
    parts = []
    for index, (tenant, entry) in enumerate(zip(setting.tenants, config.tenants, strict=True)):
        time_s = as_carried_out(config.estimates, gpu, tenant).retraining_time_s
        parts.append(
            _Part(
                index=index,
                tenant=tenant,
                profile=ShareProfile.of(
                    profiles, gpu, entry.model, tenant.slo_s, entry.batch, entry.processes, entry.max_batch
                ),
                sensitivity=sensitivity_of(entry.model),
                training_rate=training_rates(gpu, time_s, shares) if time_s else np.zeros(QUANTA + 1),
                could_serve=np.zeros(n_seconds),
                was_changing=np.zeros(n_seconds),
                is_new=np.zeros(n_seconds),
            )
        )
    return parts
