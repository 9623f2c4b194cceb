"""What the planner knows of a retraining, as estimated before it runs; and of how long batches take.

The truth stays with the workers that carry plans out. Errors depend on (seed, tenant, window) alone, those of batches
on (seed, model, profile), so that every policy is misled alike, the clairvoyant one included: it knows arrivals, not
the outcome of a training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from executor.mig import GpuModel
from migrator.config.sections import EstimatesConfig
from workloads.tenants import Tenant
from workloads.traffic.luck import generator


@dataclass(frozen=True)
class Estimate:
    """One tenant's retraining in one window, as estimated.

    Attributes:
        accuracy_after: Share of correct answers once it has ended, in [0, 1].
        retraining_s: Seconds of training by profile name, start-up and profiling apart; empty where there is nothing to
            learn from.
        profiling_s: Seconds by profile name that making the estimate takes before the training; known, not estimated.
        source: Where the accuracies come from, if not from the config as it is.
        gains: By name of another option than the full one, what it gains of that, in [0, 1], where it was measured.
    """

    accuracy_after: float
    retraining_s: Mapping[str, float]
    profiling_s: Mapping[str, float]
    source: str = ""
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def occupation_s(self) -> Mapping[str, float]:
        """Seconds from the worker's readiness to the expected end, by profile name."""
        return _sum(self.retraining_s, self.profiling_s)


def estimate_of(errors: EstimatesConfig, seed: int, gpu: GpuModel, tenant: Tenant, window: int) -> Estimate:
    """The estimate of the tenant's retraining in ``window``; without errors the truth, bit by bit.

    The accuracy's error is normal, the time's factor lognormal with mean 1 + ``time_bias``, the same on all profiles:
    what is misjudged is how much work the training is.
    """
    drawn = generator(seed, tenant.name, f"estimate of window {window}")
    accuracy_z, time_z = drawn.standard_normal(2).tolist()
    accuracy = tenant.accuracy_in(window).after + (errors.accuracy_bias + errors.accuracy_sigma * accuracy_z)
    sigma = errors.time_sigma
    factor = (1 + errors.time_bias) * math.exp(sigma * time_z - sigma**2 / 2)
    return Estimate(
        accuracy_after=min(1.0, max(0.0, accuracy)),
        retraining_s=MappingProxyType({name: factor * true_s for name, true_s in tenant.retraining_time_s.items()}),
        profiling_s=profiling_times_s(errors, gpu, tenant),
    )


def service_factors(errors: EstimatesConfig, seed: int, gpu: GpuModel, model: str) -> Mapping[str, float]:
    """By profile name, what the model's latencies are taken for, as a factor on what they are; empty without errors.

    All batches and processes on a profile, in all windows, are misjudged by the same factor.
    """
    low, high = 1 - errors.service_spread, 1 + errors.service_spread
    if low == high:
        return MappingProxyType({})
    return MappingProxyType(
        {name: float(generator(seed, model, f"service on {name}").uniform(low, high)) for name in gpu.profile_names}
    )


def as_profiled(errors: EstimatesConfig, seed: int, gpu: GpuModel, tenant: Tenant) -> Tenant:
    """The tenant with the points and rows that planning takes its own for; without errors the tenant itself."""
    factors = service_factors(errors, seed, gpu, tenant.model)
    if not factors:
        return tenant
    points = {name: point.stretched(factors[name]) for name, point in tenant.operating_points.items()}
    rows = tuple(row.stretched(factors[row.profile]) for row in tenant.rows)
    return replace(tenant, operating_points=points, rows=rows)


def profiling_times_s(errors: EstimatesConfig, gpu: GpuModel, tenant: Tenant) -> Mapping[str, float]:
    """Seconds of profiling on an instance of each profile that can hold the tenant's retraining.

    ``cost_gpu_s`` is in seconds of the whole GPU; an instance has its share of the compute slices.
    """
    slices = {name: gpu.profile(name).compute_slices for name in tenant.retraining_time_s}
    return MappingProxyType({name: errors.cost_gpu_s * gpu.compute_slices / n for name, n in slices.items()})


def as_estimated(tenant: Tenant, estimate: Estimate) -> Tenant:
    """The tenant as the planner knows it: its retraining holds an instance for as long as estimated.

    Other options than the full one are misjudged as much as that, and profiled as long; what they gain is as measured,
    or as the config has it.
    """
    factor = {}
    if not estimate.retraining_s:
        return replace(tenant, retraining_time_s={}, other_options=())
    if tenant.other_options:
        factor = {name: estimate.retraining_s[name] / true_s for name, true_s in tenant.retraining_time_s.items()}
    known = _occupying(tenant, estimate.occupation_s, factor, estimate.profiling_s)
    others = (replace(one, gain=estimate.gains.get(one.name, one.gain)) for one in known.other_options)
    return replace(known, other_options=tuple(others))


def as_carried_out(errors: EstimatesConfig, gpu: GpuModel, tenant: Tenant) -> Tenant:
    """The tenant as it is: its retraining holds an instance for the profiling, then for its true time."""
    profiling_s = profiling_times_s(errors, gpu, tenant)
    full_s = _sum(tenant.retraining_time_s, profiling_s)
    return _occupying(tenant, full_s, dict.fromkeys(profiling_s, 1.0), profiling_s)


def _occupying(
    tenant: Tenant, full_s: Mapping[str, float], factor: Mapping[str, float], profiling_s: Mapping[str, float]
) -> Tenant:
    """The tenant with other times: of the full retraining, and of its other options by factor and what comes first."""
    others = tuple(
        replace(one, time_s={name: factor[name] * s + profiling_s[name] for name, s in one.time_s.items()})
        for one in tenant.other_options
    )
    return replace(tenant, retraining_time_s=full_s, other_options=others)


def _sum(first_s: Mapping[str, float], second_s: Mapping[str, float]) -> Mapping[str, float]:
    return MappingProxyType({name: seconds + second_s[name] for name, seconds in first_s.items()})
