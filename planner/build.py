"""From tenants and a forecast to the Problem of one window: the only place where the planner meets workloads.

Gain tables are expected goodput over the forecast's sample paths, with queues carried over
(``planner.gains``), never min(a, C) at the forecast's mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from executor.mig import GpuModel, Placement, Variant
from forecaster.forecast import Forecast
from planner.arrays import Floats
from planner.gains import carry_over_gains
from planner.problem import (
    DRAIN_S,
    AttainmentFloor,
    Checkpoint,
    InitialState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
    default_switch_s,
    with_arrivals,
)
from planner.unavailable import Unavailable
from workloads.tenants import Tenant, most_instances
from workloads.training import reached

TYPICAL_INSTANCES = 2
"""Instances that a change is taken to end, and to start, before a run has made any: most start one to three."""


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """What changes from window to window for one tenant.

    Attributes:
        accuracy_before: Share of correct answers at the window's start.
        accuracy_after: The same once this window's retraining has ended.
        retrains: Whether the window asks for a retraining at all.
        floor: Of in-time answers, over the steps that the plan covers.
        required: Whether it has to end one.
        salvage: What the model that it leaves is worth later, in requests by level; empty where that does not count.
    """

    accuracy_before: float
    accuracy_after: float
    retrains: bool
    floor: AttainmentFloor | None = None
    required: bool = True
    salvage: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class WarmUps:
    """Seconds from the beginning of a change until what it starts serves, as a window is planned with.

    Attributes:
        switch_s: Until a new instance exists: the last batch drained, the driver's calls made one after the other.
        start_s: By tenant, from then until its worker serves,
        training_start_s: or trains.
        pool_start_s: By the names of a pool's members, until all their workers serve, where that is known.
    """

    switch_s: float
    start_s: tuple[float, ...]
    training_start_s: tuple[float, ...]
    pool_start_s: Mapping[tuple[str, ...], float] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Those of a problem."""
        starts_s = [(one.overhead_s, one.retraining_start_s) for one in problem.tenants]
        training_start_s = tuple(own if training is None else training for own, training in starts_s)
        pool_start_s = {pool.members: pool.overhead_s for pool in problem.pools}
        return cls(problem.switching_s, tuple(own for own, _ in starts_s), training_start_s, pool_start_s)


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """Tenants that share instances in a window, with their rates and overhead.

    Attributes:
        members: Their names, in the tenants' order; two or more.
        planned_rps: By profile that serves the pool, then by member: requests a second, a turn's cost taken off.
        slack_s: By member, then by profile: seconds that a request may wait and still be answered in time.
        start_s: From a created instance until all members' workers serve in it.
    """

    members: tuple[str, ...]
    planned_rps: Mapping[str, Mapping[str, float]]
    slack_s: Mapping[str, Mapping[str, float]]
    start_s: float


def pool_start_s(tenants: Sequence[Tenant], warm_ups: WarmUps, members: Sequence[int]) -> float:
    """Seconds until all members' workers serve in a new instance.

    Where that is not known it is as for each alone, and longer as more start at once. ``members`` are indices of the
    tenants, which ``warm_ups`` are of.
    """
    known_s = warm_ups.pool_start_s.get(tuple(tenants[m].name for m in members))
    if known_s is not None:
        return known_s
    n_alone, n_together = TYPICAL_INSTANCES, TYPICAL_INSTANCES * len(members)
    starts = ((warm_ups.start_s[m], tenants[m].worker_start) for m in members)
    return max(own_s + start.planned_s(n_together) - start.planned_s(n_alone) for own_s, start in starts)


def documented_warm_ups(gpu: GpuModel, tenants: Sequence[Tenant], n_instances: int = TYPICAL_INSTANCES) -> WarmUps:
    """What a change takes that ends ``n_instances`` ≥ 1 and starts as many, by documented times.

    The batch drained is the longest of any tenant, and the instances are of the profile that takes the driver longest.
    """
    profiles = [profile for profile in gpu.profiles if profile.variant is Variant.STANDARD]
    calls_s = n_instances * (max(p.destroy_s for p in profiles) + max(p.create_s for p in profiles))
    return WarmUps(
        switch_s=longest_batch_s(tenants) + calls_s,
        start_s=tuple(tenant.worker_start.planned_s(n_instances) for tenant in tenants),
        training_start_s=tuple(tenant.trainer_start.planned_s(n_instances) for tenant in tenants),
    )


def largest_warm_up_s(
    gpu: GpuModel, tenants: Sequence[Tenant], switch_s: float | None = None, n_sharing: int = 1
) -> float:
    """What the largest change takes, by documented times, with as many starts at once as the GPU can hold instances.

    ``switch_s``, if given, stands for the drain and the driver's calls. ``n_sharing`` tenants start in each instance.
    """
    if switch_s is None:
        switch_s = default_switch_s(gpu) - DRAIN_S + longest_batch_s(tenants)
    n_at_once = most_instances(gpu) * n_sharing
    return switch_s + max(tenant.worker_start.planned_s(n_at_once) for tenant in tenants)


def longest_batch_s(tenants: Sequence[Tenant]) -> float:
    """The longest batch that may be in service."""
    return max(point.batch_latency_s for tenant in tenants for point in tenant.operating_points.values())


def window_problem(
    gpu: GpuModel,
    tenants: Sequence[Tenant],
    terms: Sequence[WindowTerms],
    forecast: Forecast,
    *,
    step_s: float,
    initial: InitialState | None,
    warm_ups: WarmUps | None = None,
    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL,
    unavailable: Sequence[Unavailable] = (),
    risk: float = 0.0,
    pools: Sequence[PoolTerms] = (),
    layout: Sequence[Placement] = (),
) -> Problem:
    """The problem of one window in which the tenants of each of ``pools`` hold instances together.

    ``warm_ups`` are by default those of a typical change. In ``paper`` a retraining's time includes its worker's start,
    and driver calls have no meaning. ``risk`` is as :func:`planner.gains.carry_over_gains` has it.

    Shapes: ``terms`` has one entry a tenant; ``forecast`` covers ``(n_steps, n_tenants)``.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    warm_ups = warm_ups or documented_warm_ups(gpu, tenants)
    own = zip(tenants, terms, forecast.mean_rps.T, warm_ups.start_s, warm_ups.training_start_s, strict=True)
    problem = Problem(
        gpu=gpu,
        step_s=step_s,
        n_steps=forecast.mean_rps.shape[0],
        reconfiguration=reconfiguration,
        tenants=tuple(_tenant_terms(reconfiguration, *one) for one in own),
        switch_s=warm_ups.switch_s,
        initial=initial,
        unavailable=tuple(unavailable),
        pools=tuple(Pool(pool.members, pool.planned_rps, pool.start_s) for pool in pools),
        layout=tuple(layout),
    )
    return _with_gains(problem, tenants, forecast, risk, pools)


def with_forecast(
    problem: Problem,
    tenants: Sequence[Tenant],
    forecast: Forecast,
    risk: float = 0.0,
    pools: Sequence[PoolTerms] = (),
) -> Problem:
    """The problem with the arrivals and gain tables of another forecast of its steps, ``(n_steps, n_tenants)``.

    ``pools`` are those that it was made with.
    """
    return _with_gains(with_arrivals(problem, forecast.mean_rps), tenants, forecast, risk, pools)


def _with_gains(
    problem: Problem, tenants: Sequence[Tenant], forecast: Forecast, risk: float, pools: Sequence[PoolTerms]
) -> Problem:
    paths_rps = [forecast.paths_rps[:, :, index] for index in range(len(tenants))]
    return replace(problem, gains=carry_over_gains(problem, paths_rps, slacks_s(tenants, pools), risk))


def slacks_s(tenants: Sequence[Tenant], pools: Sequence[PoolTerms] = ()) -> tuple[Mapping[str, float], ...]:
    """SLO − batch latency in seconds, by tenant and profile; of a pool's members as the pool has it."""
    pooled = {name: own for pool in pools for name, own in pool.slack_s.items()}
    return tuple(
        pooled.get(tenant.name)
        or {name: tenant.slo_s - point.batch_latency_s for name, point in tenant.operating_points.items()}
        for tenant in tenants
    )


def _tenant_terms(
    reconfiguration: Reconfiguration,
    tenant: Tenant,
    window: WindowTerms,
    arrivals_rps: Floats,
    start_s: float,
    training_start_s: float,
) -> TenantTerms:
    before, after = window.accuracy_before, window.accuracy_after
    included_s = training_start_s if reconfiguration is Reconfiguration.PAPER else 0.0
    options = tuple(
        RetrainingOption(
            option.name,
            {name: seconds + included_s for name, seconds in option.time_s.items()},
            reached(before, after, option.gain),
            tuple(Checkpoint(part, reached(before, after, option.gain * gain)) for part, gain in tenant.checkpoints),
            tenant.checkpoint_s,
        )
        for option in (tenant.options if window.retrains else ())
    )
    return TenantTerms(
        name=tenant.name,
        arrivals_rps=arrivals_rps,
        capability_rps={name: point.rate_rps for name, point in tenant.operating_points.items()},
        accuracy_before=before,
        overhead_s=start_s,
        min_profile=tenant.min_profile,
        options=options,
        retraining_required=window.required or not options,
        weight=tenant.weight,
        retraining_start_s=training_start_s,
        min_slo_attainment=window.floor,
        salvage=window.salvage,
        swap_s=tenant.swap_s,
    )
