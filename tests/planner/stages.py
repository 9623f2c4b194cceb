"""What a step is to a tenant, for the oracles of both models: straight from the definitions, step by step.

Shares no code with `planner` beyond the `Problem` value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.problem import Problem, RetrainingOption, TenantTerms


def not_ours(problem: Problem, s: int) -> frozenset[int]:
    """The memory slices that others hold in step s."""
    return frozenset(
        number
        for item in problem.unavailable
        for number in item.memory_slices
        if item.from_step <= s < (problem.n_steps if item.to_step is None else item.to_step)
    )


def arrived(problem: Problem, m: int, s: int) -> float:
    """Requests that tenant m brings in step s; where it has a gain table, those on the table's paths."""
    table = problem.gains[m] if problem.gains else None
    if table is None or table.arrived is None:
        return float(problem.tenants[m].arrivals_rps[s]) * problem.step_s
    return float(table.arrived[s])


def in_time(problem: Problem, m: int, s: int, names: Sequence[str], *, changed: bool = False) -> float:
    """Requests of tenant m in time in step s on these instances: min(a, C), or what its gain table says.

    ``changed`` (`paper`): the instances are other ones than in the step before, which costs C − (Ψ/step/N)·C.
    """
    tenant = problem.tenants[m]
    capacity = problem.step_s * sum(tenant.capability_rps[name] for name in names)
    if changed:
        capacity -= tenant.overhead_s / problem.step_s / len(names) * capacity
    served = min(float(tenant.arrivals_rps[s]) * problem.step_s, capacity)
    table = problem.gains[m] if problem.gains else None
    if table is None or table.in_time is None:
        return served
    column = table.column[tuple(map(list(names).count, problem.profile_names))]
    settled = float(table.in_time[s, column])
    if not changed:
        return settled
    return min(settled, served if table.in_time_changed is None else float(table.in_time_changed[s, column]))


def floor_per_window(problem: Problem, m: int) -> float | None:
    """Requests in time that tenant m's floor asks for over the window; ``None`` without such a floor."""
    floor = problem.tenants[m].min_slo_attainment
    if floor is None or floor.per != "window":
        return None
    return floor.share * sum(arrived(problem, m, s) for s in range(problem.n_steps)) + floor.due


def floor_per_step(problem: Problem, m: int, s: int) -> float | None:
    """Requests in time that tenant m's floor asks for in step s; ``None`` without such a floor."""
    floor = problem.tenants[m].min_slo_attainment
    return None if floor is None or floor.per != "step" else floor.share * arrived(problem, m, s) - 1e-9


def is_kept(got: float, asked: float) -> bool:
    """Whether a floor per window is kept, but for rounding."""
    return got >= asked - 1e-9 * max(1.0, asked)


def training_steps(problem: Problem, option: RetrainingOption, profile: str) -> int:
    """d: each checkpoint adds its seconds, served or not."""
    seconds = option.time_s[profile] + len(option.checkpoints) * option.checkpoint_s
    return max(1, math.ceil(seconds / problem.step_s - 1e-9))


def is_staged(tenant: TenantTerms) -> bool:
    """Whether more than the end of a retraining matters."""
    return tenant.swap_s > 0 or any(option.checkpoints for option in tenant.options)


def stage(
    problem: Problem, tenant: TenantTerms, number: int, profile: str, end: int, s: int, *, in_progress: bool = False
) -> tuple[float, float]:
    """Accuracy in step s and the share of the step's gains that swaps leave; `in_progress` when the window opened."""
    option, comes = tenant.options[number], {}
    best: float | None = None
    if profile in option.time_s:
        d = training_steps(problem, option, profile)
        for checkpoint in option.checkpoints:
            if checkpoint.accuracy > max(tenant.accuracy_before, best or 0.0):
                best = checkpoint.accuracy
                comes[end - d + max(1, math.ceil(checkpoint.fraction * d - 1e-9))] = best
        if best is None and in_progress and option.checkpoints:
            best = tenant.accuracy_before
    if best is None or option.accuracy_after > best:
        comes[end] = option.accuracy_after
    accuracy, share = tenant.accuracy_before, 1.0
    for e in sorted(comes):
        if 0 <= e <= s:
            accuracy = comes[e]
            share *= 1.0 - min(1.0, max(0.0, tenant.swap_s / problem.step_s - (s - e)))
    return accuracy, share
