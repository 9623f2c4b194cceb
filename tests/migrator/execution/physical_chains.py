"""Random `physical` problems that follow one another on a GPU, and tenants whose workers keep the plan's times exactly.

After a window comes the next one, or, from a step in its middle, the rest of it planned anew.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.mig import GpuModel, Profile
from planner.plan import MigPlan
from planner.problem import (
    DRAIN_S,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
)
from planner.replan import state_at
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant, WindowAccuracy, WorkerStart, most_instances
from workloads.training import TrainingOption

SLOWDOWN = 0.16
"""Share of its start-up that each other worker starting at the same time adds to one's own."""


def problem_of(rng: np.random.Generator, gpu: GpuModel) -> Problem:
    """One to three tenants with up to two ways to retrain, in steps of half a second to two."""
    step_s = float(rng.choice([0.5, 1.0, 2.0]))
    n_steps = int(rng.integers(16, 28) / step_s**0.5)
    n_tenants = int(rng.choice([1, 2, 3], p=[0.2, 0.6, 0.2]))
    profiles = [gpu.profile(name) for name in gpu.standard_profile_names]
    tenants = tuple(tenant_terms(rng, f"t{i}", profiles, n_tenants, n_steps, step_s) for i in range(n_tenants))
    return Problem(gpu, step_s, n_steps, Reconfiguration.PHYSICAL, tenants)


def tenant_terms(
    rng: np.random.Generator, name: str, profiles: list[Profile], n_tenants: int, n_steps: int, step_s: float
) -> TenantTerms:
    n_profiles = 2 if n_tenants == 3 else 3
    serving = [
        profiles[0],
        *rng.choice(np.array(profiles[1:], dtype=object), min(n_profiles, len(profiles)) - 1, False),
    ]
    trained_on = rng.choice(np.array(profiles[:3], dtype=object), 2, replace=False)
    options = tuple(
        RetrainingOption(
            f"option-{index}",
            {p.name: float(rng.uniform(0.05, 0.3)) * n_steps * step_s / p.compute_slices**0.85 for p in trained_on},
            accuracy_after,
        )
        for index, accuracy_after in enumerate(
            rng.choice([0.4, 0.7, 0.9], int(rng.choice([0, 1, 2], p=[0.2, 0.4, 0.4])))
        )
    )
    return TenantTerms(
        name=name,
        arrivals_rps=arrivals_rps(rng, n_steps, profiles, n_tenants),
        capability_rps={p.name: 50.0 * p.compute_slices**0.9 for p in serving},
        accuracy_before=0.5,
        overhead_s=float(rng.uniform(0.1, 2.5)),
        min_profile=profiles[0].name,
        options=options,
        retraining_required=bool(rng.random() < 0.5),
        retraining_start_s=None if rng.random() < 0.5 else float(rng.uniform(0.1, 4.0)),
    )


def arrivals_rps(rng: np.random.Generator, n_steps: int, profiles: list[Profile], n_tenants: int) -> np.ndarray:
    """Levels that hold for a quarter of the window each, so that layouts are worth changing."""
    levels = rng.gamma(2, 0.5, 4) * 50.0 * profiles[-1].compute_slices / n_tenants
    return levels.repeat(-(-n_steps // 4))[:n_steps]


def tenant_of(terms: TenantTerms, gpu: GpuModel, plan: MigPlan) -> Tenant:
    """A tenant whose workers start in exactly the planned time when all start at once, with the plan's retrainings."""
    chosen = {item.option for item in plan.lifetimes if item.owner.tenant == terms.name and item.option is not None}
    time_s = next((option.time_s for option in terms.options if option.name in chosen), {})
    alone = 1 / (1 + SLOWDOWN * (most_instances(gpu) - 1))
    latency = LatencyCurve((1,), (DRAIN_S,))
    points = {name: OperatingPoint(name, 1, 1, rate, DRAIN_S, latency) for name, rate in terms.capability_rps.items()}
    training_start_s = terms.overhead_s if terms.retraining_start_s is None else terms.retraining_start_s
    return Tenant(
        name=terms.name,
        model="m",
        slo_s=2 * DRAIN_S,
        operating_points=points,
        retraining_time_s=time_s,
        other_options=tuple(TrainingOption(option.name, option.time_s) for option in terms.options),
        accuracy=(WindowAccuracy(0.5, 0.8),),
        min_profile=terms.min_profile,
        worker_start=WorkerStart(terms.overhead_s * alone, SLOWDOWN),
        retraining_start=WorkerStart(training_start_s * alone, SLOWDOWN),
    )


def rest_of(rng: np.random.Generator, problem: Problem, plan: MigPlan, step: int) -> Problem:
    """The problem of the steps from ``step`` on, with other arrivals; what is retrained stays so."""
    n_left = problem.n_steps - step
    begun = {item.owner.tenant: item for item in plan.lifetimes if not item.is_inference and item.create_step < step}
    tenants = []
    for terms in problem.tenants:
        rates = terms.arrivals_rps[step:] * rng.uniform(0.3, 2.0)
        item = begun.get(terms.name)
        options = {option.name: option for option in terms.options}
        own = terms.options[:1] if item is None or item.option is None else (options[item.option],)
        if item is None:
            tenants.append(replace(terms, arrivals_rps=rates))
        elif item.end_step > step:
            tenants.append(replace(terms, arrivals_rps=rates, options=own))
        else:
            tenants.append(replace(terms, arrivals_rps=rates, options=(), accuracy_before=own[0].accuracy_after))
    initial = state_at(problem, plan, step)
    return replace(problem, n_steps=n_left, tenants=tuple(tenants), switch_s=problem.switching_s, initial=initial)


def window_after(rng: np.random.Generator, problem: Problem, plan: MigPlan, fresh: Problem) -> Problem:
    """A whole window with the retrainings of ``fresh`` and other arrivals, from what the plan leaves."""
    tenants = tuple(
        replace(terms, arrivals_rps=terms.arrivals_rps[rng.permutation(fresh.n_steps)]) for terms in fresh.tenants
    )
    return replace(fresh, tenants=tenants, initial=state_at(problem, plan, plan.n_steps))
