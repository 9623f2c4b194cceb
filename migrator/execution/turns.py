"""Turns on one GPU without partitions: one tenant's batch at a time, and training in the gaps.

The policy settles a course when a window begins: batch limits, and the retrainings to be done. Where it does all of
them, one goes on after a window's end: a newer one of its tenant replaces one that has not begun, else waits behind it.
Where it may leave some out, a newer one replaces any. A retraining keeps the training batch with which it was set up.
Trainers that start together slow each other down as planned, without jitter. What estimating costs is trained through
first, and estimates are waited for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from executor.mig import Profile
from forecaster.forecast import FloatArray, Forecast
from migrator.errors import ConfigError
from migrator.execution.happenings import AsPromised, PlannedAhead, Trained
from migrator.execution.posing import estimates_of, salvages_in
from migrator.execution.seams import Accounts, Note, WithoutInstances
from migrator.execution.windows import Opening, PlannedWindow
from migrator.inputs.estimates import as_carried_out, as_estimated, service_factors
from migrator.inputs.setting import Setting
from planner.policies.policy import Knows
from planner.policies.turns import MemoryRule, TurnOption, TurnPolicy, TurnRetraining, TurnSchedule, TurnTenant
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.pool_points import MIB_PER_GIB, memory_mib
from workloads.profiles.share_table import rows_on
from workloads.profiles.shares import TWENTIETHS, ShareProfile, slowdown, training_rates
from workloads.profiles.table import ServiceRow
from workloads.serving.pool import (
    Batches,
    Beside,
    Lane,
    LaneMemory,
    PoolState,
    TrainingJob,
    advance,
    busy_shares,
    give_way,
)
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.tenants import RETRAINING_TO_INFERENCE, Tenant
from workloads.traffic.luck import ServiceJitter
from workloads.training import reached

_GPU = "gpu"
"""The whole GPU as a lane, and a server."""


@dataclass(frozen=True)
class _Measured:
    """One tenant's model on the whole GPU.

    Attributes:
        latency_s: Seconds of a turn by requests.
        serving_s: Those of them up to whose size it may be served,
        known_s: and what planning takes them for.
        step_s: Seconds of a training step by batch size, one process,
        rate_rps: and samples a second, up to a factor.
        training_s: A retraining at the best batch by option, profiling included; empty without one.
    """

    latency_s: Mapping[int, float]
    serving_s: Mapping[int, float]
    known_s: Mapping[int, float]
    step_s: Mapping[int, float]
    rate_rps: Mapping[int, float]
    training_s: Mapping[str, float]


class Turns(WithoutInstances):
    """Sharing by turns: the tenant with the earliest deadline next, its batch as large as the policy allows.

    It is the run's clock as well: one simulation serves all tenants, batch after batch.
    """

    kind = "turns"

    def __init__(self, setting: Setting, policy: TurnPolicy, jitter: ServiceJitter | None) -> None:
        """Look up what was measured on the whole GPU.

        Raises:
            ConfigError: Nothing was measured of a tenant's model with one process and a batch that it may use, or
                retrainings leave too late.
        """
        self._setting, self._policy, self._jitter = setting, policy, jitter
        self._whole = _largest(setting).name
        self._measured = _measured(setting, self._whole, joint=policy.has_joint_turns)
        self._beside = None if policy.gives_way is None else _beside(setting, self._measured, policy)
        self._state = PoolState.at_start(len(setting.tenants), others=[_GPU])
        self._course: TurnSchedule | None = None
        self._lane = Lane(_GPU, ())
        self._worths: list[float] = []
        self._batches: list[Batches] = []
        self._before_s = [0.0] * len(setting.tenants)  # of batches that are forgotten
        self._alone_rps: dict[int, FloatArray] = {}  # by window, of each tenant had it the GPU alone
        self._ending: deque[Trained] = deque()
        self._begun: set[tuple[int, int]] = set()  # tenant and window of retrainings of which a part is done

    @property
    def now_s(self) -> float:
        """The run's clock."""
        return self._state.now_s

    @property
    def promised(self) -> Mapping[str, str] | None:
        """The retrainings of the course that have a pace; a policy that goes by the past plans nothing ahead."""
        if self._course is None or self._policy.knows is not Knows.FORECAST:
            return None
        names = [tenant.name for tenant in self._setting.tenants]
        return {names[one.tenant_index]: one.option.name for one in self._course.retrainings if one.pace > 0}

    def plan_ahead(self, opening: Opening, forecast: Forecast) -> PlannedAhead:
        """Nothing is done before the window: its course is settled as it begins, from what is known now."""
        del opening, forecast
        return AsPromised

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:  # noqa: ARG002
        """Set batch limits and retrainings for the window."""
        config, slowdown = self._setting.config, self._policy.slowdown
        tenants = self._tenants(opening, forecast)
        course = self._policy.course(tenants, config.window_s)
        self._course = course
        names = [tenant.name for tenant in self._setting.tenants]
        served = zip(names, self._measured, course.limits, strict=True)
        self._lane = Lane(_GPU, tuple(_server(name, own, limit, slowdown) for name, own, limit in served))
        self._worths = [worth for worth, *_ in course.worth]
        full_s = [own.serving_s[limit] * slowdown for own, limit in zip(self._measured, course.limits, strict=True)]
        self._alone_rps[opening.window] = np.array(course.limits) / full_s
        self._add_jobs(opening.window, tenants, course)

    def wait(self, until_s: float) -> float:
        """The end of a retraining whose last step is under way, if that comes first."""
        return min(until_s, self._ending[0].at_s) if self._ending else until_s

    def serve(self, accounts: Accounts, accuracies: Mapping[str, AccuracyTimeline], until_s: float) -> float:
        """Serve and train by turns, until then or until the last step of a retraining begins."""
        rule, cost = partial(advance, trains_in_slack=self._policy.trains_in_slack), self._policy.turn_cost
        if self._beside is not None:
            rule = partial(give_way, beside=self._beside)
        kernel = partial(rule, lanes=[self._lane], service_jitter=self._jitter, worths=self._worths, turn_cost=cost)
        self._state, piece = accounts.serve_by(kernel, self._state, accuracies, until_s)
        self._batches.append(piece.batches)
        if piece.finished is not None and not piece.finished.is_last:
            self._begun.add((piece.finished.tenant_index, piece.finished.window))
        elif piece.finished is not None:
            tenant = self._setting.tenants[piece.finished.tenant_index].name
            done = piece.finished
            at_s = piece.finished_s
            self._ending.append(Trained(at_s, tenant, done.window, option=done.option, checkpoint=done.checkpoint))
        return self._state.now_s

    def act(self, now_s: float, note: Note) -> Sequence[Trained]:  # noqa: ARG002
        """Let the retrainings that have ended take effect."""
        ended = []
        while self._ending and self._ending[0].at_s <= now_s:
            ended.append(self._ending.popleft())
            self._revalue(ended[-1])
        return ended

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:
        """What the GPU could have served of each tenant in the part of a second that other tenants' batches left.

        So what training took counts as queueing.
        """
        window_s = round(self._setting.config.window_s)
        first, last = window * window_s, (window + 1) * window_s
        busy = np.stack(
            [_busy_share(self._batches, index, first, last, before_s) for index, before_s in enumerate(self._before_s)]
        )
        beside_others = np.maximum(0.0, 1.0 - (busy.sum(axis=0) - busy))
        serving = self._alone_rps.pop(window)[:, None] * beside_others
        self._forget(last)
        return {
            tenant.name: {"could_serve": serving[index].tolist(), "changing": [0.0] * window_s}
            for index, tenant in enumerate(self._setting.tenants)
        }

    def _forget(self, before_s: int) -> None:
        """Keep of pieces whose batches all ended before only how long they took, by tenant."""
        over = [own for own in self._batches if own.end_s.max(initial=-math.inf) <= before_s]
        self._batches = [own for own in self._batches if own.end_s.max(initial=-math.inf) > before_s]
        for index, so_far_s in enumerate(self._before_s):
            begin_s, end_s = _batches_of(over, index)
            self._before_s[index] = float(np.cumsum(np.concatenate([[so_far_s], end_s - begin_s]))[-1])

    def _tenants(self, opening: Opening, forecast: Forecast) -> list[TurnTenant]:
        """What the policy sees."""
        setting, config = self._setting, self._setting.config
        expects = self._policy.knows is Knows.FORECAST
        rates_rps = (forecast.mean_rps if expects else opening.past_rps).mean(axis=0).tolist()
        estimates = estimates_of(setting, opening)
        # Whether retrainings are required, and what models are worth later, is as MIG's policies see it.
        is_told = self._policy.chooses or any(tenant.other_options for tenant in setting.tenants)
        worths = salvages_in(setting, opening, estimates, forecast) if is_told else [()] * len(setting.tenants)
        # A window that was not planned ahead, but could have been, waits for its course as for a plan.
        late_s = config.planning_s if expects and opening.window and not opening.ahead_steps else 0.0
        offered = [
            tenant.is_offered(opening.window, own)
            for tenant, own in zip(setting.tenants, opening.accuracies, strict=True)
        ]
        found = []
        for index, (tenant, measured) in enumerate(zip(setting.tenants, self._measured, strict=True)):
            retraining, salvages = None, worths[index] or (0.0,) * (1 + len(tenant.options))
            if offered[index]:
                ready_s = config.estimates.delay_s + late_s + tenant.trainer_start.planned_s(sum(offered))
                is_required = not is_told or tenant.must_retrain_in(opening.window, opening.trained_last[index])
                before, after = opening.accuracies[index], estimates[index].accuracy_after
                options = tuple(
                    TurnOption(
                        option.name,
                        option.time_s[self._whole] + self._writing_s(tenant),
                        reached(before, after, option.gain),
                        salvage,
                        tuple(
                            (part, reached(before, after, option.gain * gain))
                            for part, gain in self._checkpoints(tenant)
                        ),
                    )
                    for option, salvage in zip(
                        as_estimated(tenant, estimates[index]).options, salvages[1:], strict=True
                    )
                )
                retraining = TurnRetraining(options, measured.step_s, measured.rate_rps, ready_s, is_required)
            found.append(
                TurnTenant(
                    rate_rps=rates_rps[index],
                    slo_s=tenant.slo_s,
                    serving_s=measured.known_s if self._beside is None else self._beside_s(index),
                    weight=tenant.weight,
                    accuracy_before=opening.accuracies[index],
                    salvage=salvages[0],
                    retraining=retraining,
                    paths_rps=forecast.paths_rps[:, :, index] if expects else None,
                )
            )
        return found

    def _beside_s(self, index: int) -> Mapping[int, float]:
        """What planning takes turns for that a retraining may slow down."""
        assert self._beside is not None
        longer = self._beside.slowdowns[index]
        return {size: seconds * longer[size] for size, seconds in self._measured[index].known_s.items()}

    def _checkpoints(self, tenant: Tenant) -> tuple[tuple[float, float], ...]:
        """Parts of its retrainings after which weights are served, and their gains; none where the policy has none."""
        return tenant.checkpoints if self._policy.serves_checkpoints else ()

    def _writing_s(self, tenant: Tenant) -> float:
        """Seconds that all checkpoints of one of its retrainings take."""
        return len(self._checkpoints(tenant)) * tenant.checkpoint_s

    def _add_jobs(self, window: int, tenants: Sequence[TurnTenant], course: TurnSchedule) -> None:
        """Put the window's retrainings behind those that have begun; before all else where the policy chooses."""
        start_s = window * self._setting.config.window_s
        due = [index for index, tenant in enumerate(tenants) if tenant.retraining is not None]
        jobs = []
        for one in course.retrainings:
            asked = tenants[one.tenant_index].retraining
            assert asked is not None  # a course has none that is not asked for
            takes_s = self._measured[one.tenant_index].training_s[one.option.name]
            takes_s += self._writing_s(self._setting.tenants[one.tenant_index])
            jobs.append(
                TrainingJob(
                    tenant_index=one.tenant_index,
                    window=window,
                    left_s=one.work_s * takes_s / one.option.work_s,
                    piece_s=one.piece_s,
                    ready_s=start_s + asked.ready_s,
                    pace=one.pace,
                    due_s=start_s + one.due_s,
                    worth=one.worth,
                    option=one.option.name,
                    checkpoint=one.checkpoint,
                    is_last=one.is_last,
                )
            )
        if self._policy.chooses:
            jobs += [replace(job, pace=0.0) for job in self._state.jobs if job.tenant_index not in due]
        else:
            begun = self._begun | {(job.tenant_index, job.window) for job in self._state.jobs if job.has_begun}
            kept = [
                job
                for job in self._state.jobs
                if (job.tenant_index, job.window) in begun or job.tenant_index not in due
            ]
            jobs = kept + jobs
            self._begun = begun & {(job.tenant_index, job.window) for job in kept}
        if self._policy.shortest_first:
            jobs.sort(key=lambda job: job.left_s)
        self._state = replace(self._state, jobs=tuple(jobs))

    def _revalue(self, trained: Trained) -> None:
        """From now on a turn of the tenant is worth what the new model makes of it."""
        window = math.floor(self._state.now_s / self._setting.config.window_s)
        if self._course is not None and trained.window == window:
            index = [tenant.name for tenant in self._setting.tenants].index(trained.tenant)
            ends = [one.checkpoint for one in self._course.retrainings if one.tenant_index == index]
            _, *worths = self._course.worth[index]
            self._worths[index] = worths[ends.index(trained.checkpoint)]


def _measured(setting: Setting, whole: str, *, joint: bool) -> list[_Measured]:
    """What was measured of every tenant on the whole GPU; with ``joint`` turns all its processes serve in one.

    Raises:
        ConfigError: Nothing that a tenant may use was measured.
    """
    config, gpu, profiles = setting.config, setting.gpu, setting.profiles
    found = []
    for tenant, entry in zip(setting.tenants, config.tenants, strict=True):
        knees = setting.knees(tenant.model)
        rows = [row for row in profiles.of(gpu.name, tenant.model) if row.profile == whole]
        if knees and rows:
            rows = rows_on(rows, 1.0, knees, 1.0, "share curve")
        alone = sorted((row for row in rows if row.processes == 1), key=lambda row: row.batch)
        most = math.inf if entry.max_batch is None else entry.max_batch
        servable = [row for row in alone if entry.batch in ("auto", row.batch) and row.batch <= most]
        if not servable:
            raise ConfigError(
                f"tenants.{tenant.name}: {profiles.name} has no row of {tenant.model} on {whole} with one process and "
                f"batch {entry.batch}{'' if entry.max_batch is None else f' (at most {entry.max_batch})'}; "
                "sharing the whole GPU needs one"
            )
        latency_s: Mapping[int, float] = {row.batch: row.latency_s for row in alone}
        serving_s: Mapping[int, float] = {row.batch: row.latency_s for row in servable}
        if joint:
            together = [row for row in rows if row.batch <= most and entry.processes in ("auto", row.processes)]
            fitting = [row for row in together if entry.batch in ("auto", row.batch)]
            if fitting:
                latency_s, serving_s = _turns_s(together), _turns_s(fitting)
        options = as_carried_out(config.estimates, gpu, tenant).options
        factors = service_factors(config.estimates, config.seed, gpu, tenant.model)
        found.append(
            _Measured(
                latency_s=latency_s,
                serving_s=serving_s,
                known_s={n: seconds * factors.get(whole, 1.0) for n, seconds in serving_s.items()},
                step_s={row.batch: RETRAINING_TO_INFERENCE * row.latency_s for row in alone},
                rate_rps={row.batch: row.throughput_rps for row in alone},
                training_s={option.name: option.time_s[whole] for option in options if whole in option.time_s},
            )
        )
    return found


def _beside(setting: Setting, measured: Sequence[_Measured], policy: TurnPolicy) -> Beside:
    """How the policy's retrainings give way, and what batches leave of the GPU.

    Raises:
        ConfigError: They leave later than half the least slack of any tenant, or a model does not fit.
    """
    own, gpu = policy.gives_way, setting.gpu
    assert own is not None
    if own.memory is not None:
        _require_memory(setting, policy)
    floors: list[tuple[int, ...]] = []
    speeds, longers = [], []
    for tenant, entry, alone in zip(setting.tenants, setting.config.tenants, measured, strict=True):
        most_s = max(0.0, tenant.slo_s - min(alone.serving_s.values())) / 2
        if own.give_way_s > most_s:
            raise ConfigError(
                f"policy {policy.name}: give_way_s {own.give_way_s:g}: at most half of the least slack, "
                f"{most_s:g} s, is allowed (tenants.{tenant.name}: slo_ms less its shortest batch)"
            )
        knees = setting.knees(entry.model)
        profile = ShareProfile.of(setting.profiles, gpu, entry.model, tenant.slo_s, processes=1, knees=knees)
        by_batch = profile.floors(own.slowdown)
        # A batch between two that were measured needs what the larger one needs.
        needs = [min(batch for batch in by_batch if batch >= size) for size in range(1, max(alone.latency_s) + 1)]
        floors.append((0, *(by_batch[batch] for batch in needs)))
        longer = own.slowdown * slowdown(
            setting.sensitivity(entry.model),
            setting.config.simulation.interference if own.has_interference else 0.0,
            (),
            1.0,
        )
        times_s = next((option.time_s for option in tenant.options if option.time_s), {})
        shares = [units / TWENTIETHS for units in range(TWENTIETHS + 1)]
        rates = training_rates(gpu, times_s, shares) if times_s else np.array(shares)
        speeds.append(tuple(np.minimum(1.0, rates / rates[-1]).tolist()))
        longers.append(longer)
    # Beside batches at which no training would gain as much as it slows them down, none trains.
    best = np.max(speeds, axis=0)
    slowdowns = []
    for member, longer in enumerate(longers):
        pays = [bool(best[TWENTIETHS - units] > longer - 1.0) for units in floors[member]]
        floors[member] = tuple(u if one else TWENTIETHS for u, one in zip(floors[member], pays, strict=True))
        slowdowns.append(tuple(longer if one else 1.0 for one in pays))
    times = (own.give_way_s, own.discard_s, own.window_s)
    return Beside(tuple(floors), tuple(speeds), *times, tuple(slowdowns), own.slack_s, _memory(setting, own.memory))


def _memory(setting: Setting, rule: MemoryRule | None) -> LaneMemory | None:
    """How the whole GPU's memory changes hands; ``None`` without a rule, or where not all weights are known."""
    memory_gib, weights_mib = _largest(setting).memory_gib, setting.weights_mib
    if rule is None or weights_mib is None:
        return None
    return LaneMemory(
        weights_mib=weights_mib,
        load_s=tuple(own_mib / rule.load_mib_s for own_mib in weights_mib),
        capacity_mib=math.inf if memory_gib is None else memory_gib * MIB_PER_GIB,
        idle_s=rule.idle_s,
        watermark_mib=rule.watermark_mib,
        discard_s=rule.discard_s,
    )


def _largest(setting: Setting) -> Profile:
    """The MIG profile that is the whole GPU."""
    return max(setting.gpu.profiles, key=lambda one: (one.compute_slices, one.memory_slices))


def _require_memory(setting: Setting, policy: TurnPolicy) -> None:
    """Refuse a model that does not fit into the GPU with a batch of one, by its profiles.

    Raises:
        ConfigError: Names it, what it takes and what there is.
    """
    largest = _largest(setting)
    if largest.memory_gib is None:
        return
    for tenant in setting.tenants:
        rows = setting.profiles.with_memory(setting.gpu.name, tenant.model)
        own = min((row for row in rows if row.profile == largest.name), key=lambda row: (row.processes, row.batch))
        needed_mib = memory_mib([own])
        if needed_mib > largest.memory_gib * MIB_PER_GIB:
            raise ConfigError(
                f"policy {policy.name}: tenants.{tenant.name}: {tenant.model} takes {needed_mib:,.0f} MiB with its "
                f"smallest batch; {setting.gpu.name} has {largest.memory_gib * MIB_PER_GIB:,.0f} MiB"
            )


def _turns_s(rows: Sequence[ServiceRow]) -> Mapping[int, float]:
    """Seconds of a turn by its requests: every process takes a batch at once; only turns that no larger one beats."""
    found: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: (-row.batch * row.processes, row.latency_s)):
        if not found or row.latency_s < min(found.values()):
            found[row.batch * row.processes] = row.latency_s
    return dict(sorted(found.items()))


def _server(name: str, measured: _Measured, limit: int, slowdown: float) -> Server:
    """Turns of up to ``limit`` requests, as long as measured times ``slowdown``."""
    points = {batch: seconds * slowdown for batch, seconds in measured.latency_s.items() if batch <= limit}
    return Server(name, _GPU, 0.0, math.inf, LatencyCurve(tuple(points), tuple(points.values())), limit)


def _busy_share(pieces: Sequence[Batches], tenant_index: int, first: int, last: int, before_s: float) -> FloatArray:
    """Which share of each second from ``first`` to ``last`` the GPU spends on the tenant's batches."""
    return busy_shares(*_batches_of(pieces, tenant_index), first, last, before_s)


def _batches_of(pieces: Sequence[Batches], tenant_index: int) -> tuple[FloatArray, FloatArray]:
    """When the tenant's batches begin and end."""
    own = [piece.tenant_index == tenant_index for piece in pieces]
    begin_s = np.concatenate([[], *(piece.begin_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    end_s = np.concatenate([[], *(piece.end_s[mask] for piece, mask in zip(pieces, own, strict=True))])
    return begin_s, end_s
