"""From tenants and a forecast to the Problem of one window: the only place where the planner meets workloads.

Gain tables are expected goodput over the forecast's sample paths, with queues carried over
(``planner.gains``), never min(a, C) at the forecast's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from executor.mig import GpuModel
from forecaster.forecast import Forecast
from planner.gains import carry_over_gains
from planner.problem import (
    DRAIN_S,
    FloatArray,
    InitialState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
    default_switch_s,
)
from planner.unavailable import Unavailable
from workloads.tenants import Tenant


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """What changes from window to window for one tenant.

    Attributes:
        accuracy_before: Share of correct answers at the window's start.
        accuracy_after: The same once this window's retraining has ended.
        retrains: Whether the window asks for a retraining at all.
    """

    accuracy_before: float
    accuracy_after: float
    retrains: bool


def window_problem(
    gpu: GpuModel,
    tenants: Sequence[Tenant],
    terms: Sequence[WindowTerms],
    forecast: Forecast,
    *,
    step_s: float,
    initial: InitialState | None,
    switch_s: float | None,
    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL,
    unavailable: Sequence[Unavailable] = (),
) -> Problem:
    """The problem of one window.

    In ``paper`` a retraining's time includes its worker's start, and ``switch_s`` has no meaning.

    Shapes: ``terms`` has one entry a tenant; ``forecast`` covers ``(n_steps, n_tenants)``.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    problem = Problem(
        gpu=gpu,
        step_s=step_s,
        n_steps=forecast.mean_rps.shape[0],
        reconfiguration=reconfiguration,
        tenants=tuple(
            _tenant_terms(gpu, tenant, window, forecast.mean_rps[:, index], reconfiguration)
            for index, (tenant, window) in enumerate(zip(tenants, terms, strict=True))
        ),
        switch_s=window_switch_s(gpu, tenants, terms) if switch_s is None else switch_s,
        initial=initial,
        unavailable=tuple(unavailable),
    )
    return _with_gains(problem, tenants, forecast)


def with_forecast(problem: Problem, tenants: Sequence[Tenant], forecast: Forecast) -> Problem:
    """The problem with the arrivals and gain tables of another forecast of its steps, ``(n_steps, n_tenants)``."""
    expected = tuple(
        replace(terms, arrivals_rps=forecast.mean_rps[:, index]) for index, terms in enumerate(problem.tenants)
    )
    return _with_gains(replace(problem, tenants=expected, gains=None), tenants, forecast)


def _with_gains(problem: Problem, tenants: Sequence[Tenant], forecast: Forecast) -> Problem:
    paths_rps = [forecast.paths_rps[:, :, index] for index in range(len(tenants))]
    slack_s = [
        {name: tenant.slo_s - point.batch_latency_s for name, point in tenant.operating_points.items()}
        for tenant in tenants
    ]
    return replace(problem, gains=carry_over_gains(problem, paths_rps, slack_s))


def window_switch_s(gpu: GpuModel, tenants: Sequence[Tenant], terms: Sequence[WindowTerms]) -> float:
    """The default ``switch_s`` with the drain allowance replaced by the longest batch that may be in service."""
    longest_s = max(point.batch_latency_s for tenant in tenants for point in tenant.operating_points.values())
    n_retraining = sum(window.retrains for window in terms)
    return default_switch_s(gpu, n_retraining) - DRAIN_S + longest_s


def _tenant_terms(
    gpu: GpuModel, tenant: Tenant, window: WindowTerms, arrivals_rps: FloatArray, reconfiguration: Reconfiguration
) -> TenantTerms:
    options: tuple[RetrainingOption, ...] = ()
    if window.retrains:
        start_s = tenant.retraining_overhead_s(gpu) if reconfiguration is Reconfiguration.PAPER else 0.0
        time_s = {name: seconds + start_s for name, seconds in tenant.retraining_time_s.items()}
        options = (RetrainingOption("full", time_s, window.accuracy_after),)
    return TenantTerms(
        name=tenant.name,
        arrivals_rps=arrivals_rps,
        capability_rps={name: point.rate_rps for name, point in tenant.operating_points.items()},
        accuracy_before=window.accuracy_before,
        overhead_s=tenant.overhead_s(gpu),
        min_profile=tenant.min_profile,
        options=options,
        weight=tenant.weight,
        retraining_start_s=tenant.retraining_overhead_s(gpu),
    )
