"""What a step is to a tenant, for the oracles of both models: straight from the definitions, step by step.

Shares no code with `planner` beyond the `Problem` value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from planner.problem import Pool, Problem, RetrainingOption, TenantTerms


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


def pool_of(problem: Problem, m: int) -> Pool | None:
    """The pool that tenant m is in."""
    return next((pool for pool in problem.pools if problem.tenants[m].name in pool.members), None)


def holders(problem: Problem) -> list[tuple[int, ...]]:
    """Who holds instances together: the tenants of each pool, and each other one alone, by their first one."""
    index = {tenant.name: m for m, tenant in enumerate(problem.tenants)}
    pools = [tuple(index[name] for name in pool.members) for pool in problem.pools]
    return sorted([*pools, *((m,) for m in index.values() if pool_of(problem, m) is None)])


def rates_rps(problem: Problem, m: int) -> Mapping[str, float]:
    """Requests of tenant m that an instance serves in a second while it serves no other one, by profile."""
    pool, tenant = pool_of(problem, m), problem.tenants[m]
    return tenant.capability_rps if pool is None else {p: c[tenant.name] for p, c in pool.capability_rps.items()}


def best_accuracy(tenant: TenantTerms) -> float:
    """The best that the tenant may have: now, after an option, or at a checkpoint."""
    pairs = [(option.accuracy_after, *(one.accuracy for one in option.checkpoints)) for option in tenant.options]
    return max((tenant.accuracy_before, *(accuracy for own in pairs for accuracy in own)))


def in_order_of_service(problem: Problem, pool: Pool) -> list[int]:
    """The pool's tenants by weight · mean of the present and the best accuracy · rate on the largest profile."""
    sizes = {name: problem.gpu.profile(name) for name in pool.capability_rps}
    largest = max(sizes, key=lambda name: (sizes[name].compute_slices, sizes[name].memory_slices))

    def worth(m: int) -> float:
        tenant = problem.tenants[m]
        mean = (tenant.accuracy_before + best_accuracy(tenant)) / 2
        return tenant.weight * mean * pool.capability_rps[largest][tenant.name]

    return sorted((m for m in range(len(problem.tenants)) if pool_of(problem, m) == pool), key=lambda m: (-worth(m), m))


def parts_of(names: Sequence[str]) -> Iterator[Counter[str]]:
    """Every multiset that is a part of this one, itself too."""
    counts = Counter(names)
    for some in product(*(range(n + 1) for n in counts.values())):
        yield Counter(dict(zip(counts, some, strict=True)))


def served_in_turn(problem: Problem, pool: Pool, m: int, s: int, names: Sequence[str]) -> float:
    """What tenant m is served in step s of what those before it leave of the pool's step: y = min(a, C·R)."""
    most = 0.0
    for part in parts_of(names):
        left = 1.0
        for i in in_order_of_service(problem, pool):
            capacity = problem.step_s * sum(n * rates_rps(problem, i)[name] for name, n in part.items())
            served = min(float(problem.tenants[i].arrivals_rps[s]) * problem.step_s, capacity * left)
            if i == m:
                most = max(most, served)
                break
            left = max(0.0, left - served / capacity) if capacity else left
    return most


def in_time(problem: Problem, m: int, s: int, names: Sequence[str], *, changed: bool = False) -> float:
    """Requests of tenant m in time in step s on these instances: min(a, C), or what its gain table says.

    In a pool C is what the members before it leave. ``changed`` (`paper`): the instances are other ones than in the
    step before, which costs C − (Ψ/step/N)·C.
    """
    tenant, pool = problem.tenants[m], pool_of(problem, m)
    if pool is None:
        capacity = problem.step_s * sum(tenant.capability_rps[name] for name in names)
        if changed:
            capacity -= tenant.overhead_s / problem.step_s / len(names) * capacity
        served = min(float(tenant.arrivals_rps[s]) * problem.step_s, capacity)
    else:
        served = served_in_turn(problem, pool, m, s, names)
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
