"""What a plan holds, in one form for both models, and what that earns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from operator import le

import numpy as np

from executor.mig import Multiset, Placement
from planner.arrays import Bools, Floats, Int64s, sums_before
from planner.errors import ProblemError
from planner.levels import (
    LevelChange,
    changes_by,
    changes_until,
    levels_of,
    lowered,
    running_changes,
    shares_of,
    swap_shares,
)
from planner.plan import ANYWHERE, Lifetime, MigPlan
from planner.problem import Owner, Pool, Problem, Reconfiguration, Task, TenantTerms


def lifetimes_of(problem: Problem, plan: MigPlan) -> Iterator[Lifetime]:
    """All that a readable plan of either model holds for a step or longer."""
    if problem.reconfiguration is Reconfiguration.PHYSICAL:
        yield from (item for item in plan.lifetimes if item.create_step < item.end_step)
        return
    for schedule in plan.schedules:
        held = [(Task.INFERENCE, n, i.from_step, i.to_step, "") for i in schedule.inference for n in i.profiles]
        if (run := schedule.retraining) is not None:
            held.append((Task.RETRAINING, run.profile, run.start_step, run.end_step, run.option))
        for task, name, start, end, option in held:
            placement = Placement(problem.gpu.profile(name), ANYWHERE)
            yield Lifetime(placement, Owner(schedule.name, task), start, start, end, option)


def continues(problem: Problem, item: Lifetime) -> bool:
    """Whether the lifetime is what is left of a retraining that was running when the window opened."""
    runs = problem.opening.retrainings
    known = (item.placement, item.owner, item.create_step, item.end_step)
    return item.serve_step <= item.end_step and any(
        known == (run.placement, Owner(run.tenant, Task.RETRAINING), 0, run.end_step)
        and item.lent == (run.lent_from is not None)
        and run.lent_from in {None, item.serve_step}
        for run in runs
    )


def counts_of(problem: Problem, profile_names: Iterable[str]) -> Multiset:
    """How often each of the problem's profiles is named."""
    names = list(profile_names)
    return tuple(map(names.count, problem.profile_names))


def fits_gpu(problem: Problem, counts: Int64s, mask: int = 0) -> Bools:
    """Which counts fit the GPU without the mask's memory slices, ``(…, n_profiles) → (…)``."""
    fitting = np.array(problem.gpu.multisets(problem.profile_names, mask))
    digits = (1 + max(fitting.max(), counts.max(initial=0))) ** np.arange(counts.shape[-1])
    return np.isin(counts @ digits, fitting @ digits)


def that_serve(problem: Problem, tenant: TenantTerms, counts: Int64s) -> Int64s:
    """Those of the counts that hold nothing but what may serve the tenant, ``(n, n_profiles)``."""
    rates = problem.capability_rps(tenant)
    return counts[~counts[:, [name not in rates for name in problem.profile_names]].any(axis=1)]


def are_enough(problem: Problem, tenant: TenantTerms, counts: Int64s) -> Bools:
    """Whether each of the counts has an instance as large as the tenant's ``min_profile``, ``(n,)``."""
    least = problem.gpu.profile(tenant.min_profile)
    return np.asarray(counts[:, [profile.is_at_least(least) for profile in problem.profiles]].any(axis=1))


def in_common(counts: Int64s) -> Int64s:
    """The row of what each two rows have in common; each part of a row is a row, ``(n, n_profiles) → (n, n)``."""
    digits = (1 + counts.max(initial=0)) ** np.arange(counts.shape[1])
    codes = counts @ digits
    order = np.argsort(codes)
    return np.asarray(order[np.searchsorted(codes[order], np.minimum(counts[:, None], counts) @ digits)])


def counts_at_start(problem: Problem, tenant: TenantTerms, step: int, *, of_all: bool = False) -> Multiset | None:
    """What inference holds when the window opens and serves the tenant in ``step``; ``None``: that is free.

    With ``of_all`` what serves any of the tenant's pool.
    """
    names = () if problem.paper_initial is None else problem.paper_initial.held.get(tenant.name, ())
    for (place, owner), item in problem.kept_at_start.items():
        is_own = tenant.name in owner.members and place.profile.name in problem.capability_rps(tenant)
        if is_own and (of_all or tenant.name in item.members) and item.serve_step <= step:
            names += (place.profile.name,)
    return None if problem.initial is None else counts_of(problem, names)


def gains_of(problem: Problem, m: int, multisets: Sequence[Multiset]) -> tuple[Floats, Floats]:
    """Goodput of tenant m in a step by what serves it: settled, and just changed (in ``physical`` the same).

    Weight · accuracy · min(a, C) in requests, or what the problem's table says: ``(n_levels, n_steps, n_multisets)``
    each, NaN where there is none.
    """
    tenant, is_paper = problem.tenants[m], problem.reconfiguration is Reconfiguration.PAPER
    if problem.gains is not None:
        table = problem.gains[m]
        changed = table.changed if is_paper else table.steady
        if changed is None:
            raise ProblemError(f"gains of {tenant.name}: a paper problem needs the table `changed`")
        columns = [table.column.get(multiset, -1) for multiset in multisets]
        lacking = np.where(np.array(columns) < 0, math.nan, 0.0)
        return table.steady[..., columns] + lacking, changed[..., columns] + lacking
    worth = tenant.weight * np.array(tenant.accuracies)[:, None, None]
    settled, just_changed = served_of(problem, m, multisets)
    return worth * settled, worth * just_changed


def served_of(problem: Problem, m: int, multisets: Sequence[Multiset]) -> tuple[Floats, Floats]:
    """min(a, C) of tenant m in requests, settled and just changed: ``(n_steps, n_multisets)`` each.

    In a pool C is what the members before it leave, in the order of their worth on the largest profile that serves.
    """
    tenant, step_s, is_paper = problem.tenants[m], problem.step_s, problem.reconfiguration is Reconfiguration.PAPER
    counts, capacity = np.array(multisets), _capacity(problem, tenant, multisets)
    if (pool := problem.pool_of(tenant.name)) is not None:
        settled = _served_in_turn(problem, pool, tenant.name, multisets)
        return settled, settled
    # The N instances change one after the other, and each is away for Ψ seconds: Ψ/step/N of the capacity.
    lost = is_paper * tenant.overhead_s / step_s / np.maximum(counts.sum(axis=1), 1) * capacity
    arrivals = step_s * tenant.arrivals_rps[:, None]
    return np.minimum(arrivals, capacity), np.minimum(arrivals, capacity - lost)


def _capacity(problem: Problem, tenant: TenantTerms, multisets: Sequence[Multiset]) -> Floats:
    """Requests that a tenant alone can be served in a step, by multiset; NaN where it may not be served by it."""
    counts, own = np.array(multisets), problem.capability_rps(tenant)
    rates = [own.get(name, math.nan) for name in problem.profile_names]
    capacity: Floats = problem.step_s * np.where(counts, counts * rates, 0.0).sum(axis=1)
    return capacity


def _served_in_turn(problem: Problem, pool: Pool, name: str, multisets: Sequence[Multiset]) -> Floats:
    """What a member is served of each step, ``(n_steps, n_multisets)``; no less than by a part of the multiset."""
    profiles = [problem.gpu.profile(profile) for profile in pool.capability_rps]
    largest = max(profiles, key=lambda profile: (profile.compute_slices, profile.memory_slices)).name

    def worth(member: str) -> float:
        terms = problem.tenant(member)
        accuracy = (terms.accuracy_before + max(terms.accuracies)) / 2
        return terms.weight * accuracy * pool.capability_rps[largest][member]

    # Parts of the multisets, too: with less, those before a member may be served less, and it more.
    parts = sorted({part for own in multisets for part in product(*(range(count + 1) for count in own))})
    left: Floats = np.ones((problem.n_steps, len(parts)))
    for member in sorted(pool.members, key=lambda member: -worth(member)):
        terms = problem.tenant(member)
        capacity = _capacity(problem, terms, parts)
        served = np.minimum(problem.step_s * terms.arrivals_rps[:, None], capacity * left)
        if member == name:
            most = [[k for k, part in enumerate(parts) if all(map(le, part, own))] for own in multisets]
            return np.stack([served[:, own].max(axis=1) for own in most], axis=1)
        left = np.maximum(left - np.divide(served, capacity, out=np.zeros_like(served), where=capacity > 0), 0.0)
    raise AssertionError(f"{name} is no member of its pool")


def serving(problem: Problem, m: int, lifetimes: Sequence[Lifetime]) -> tuple[list[Multiset], Int64s, Bools]:
    """What serves tenant m: the multisets, which of them does in each step, and where what it holds has just changed.

    What is given by step has shape ``(n_steps,)``.
    """
    tenant, names = problem.tenants[m], problem.profile_names
    held = np.zeros((problem.n_steps, len(names)), dtype=np.int64)
    serves = np.zeros_like(held)
    for item in lifetimes:
        name = item.placement.profile.name
        if item.is_inference and tenant.name in item.owner.members and name in names:
            # A member that has no process yet in what its pool keeps joins later.
            since = max(item.serve_step, 0 if item.create_step else problem.joins_at(item.placement, tenant))
            held[item.create_step : item.end_step, names.index(name)] += 1
            serves[since : item.end_step, names.index(name)] += 1
    for item in lifetimes:
        # All hold one layout where there are loans, so a loan is taken from every member.
        if item.lent and item.placement.profile.name in names:
            serves[item.serve_step : item.end_step, names.index(item.placement.profile.name)] -= 1
    serves = np.maximum(serves, 0)
    start = counts_at_start(problem, tenant, 0)
    before = np.vstack([held[0] if start is None else start, held[:-1]])
    multisets, kind = np.unique(serves, axis=0, return_inverse=True)
    return [tuple(row) for row in multisets.tolist()], kind.reshape(-1), (held != before).any(axis=1)


def objective_of(problem: Problem, lifetimes: Sequence[Lifetime]) -> float | None:
    """Rule 5: the sum of all tenants' goodput and salvage in requests; ``None`` when some of it is undefined."""
    terms = [term for m in range(len(problem.tenants)) for term in _goodput(problem, m, lifetimes).tolist()]
    terms.append(salvage_of(problem, lifetimes))
    return None if math.isnan(total := math.fsum(terms)) else total


def salvage_of(problem: Problem, lifetimes: Sequence[Lifetime]) -> float:
    """What the level of each tenant at the window's end is worth beyond it, in requests."""
    total = []
    for tenant in problem.tenants:
        by_name = dict(zip((None, *(option.name for option in tenant.options)), tenant.salvage, strict=False))
        runs = [item for item in lifetimes if item.owner == Owner(tenant.name, Task.RETRAINING)]
        ended = [run for run in runs if run.end_step <= problem.n_steps]
        names = [tenant.options[0].name if continues(problem, run) else run.option for run in ended]
        total.append(by_name.get(names[-1] if names else None, 0.0))
    return math.fsum(total)


def more_by_checkpoints(
    problem: Problem,
    tenant: TenantTerms,
    level: int,
    profile_name: str,
    gains: tuple[Floats, Floats],
    counts: Int64s,
    ends: Int64s,
    *,
    is_running: bool = False,
) -> Floats:
    """What a retraining's checkpoints add at most to the old level before its end and its own after it, by end.

    In each step with what gains most by them: until its end of what fits beside it.

    Args:
        problem: The problem.
        tenant: Whose.
        level: What it leads to.
        profile_name: What it runs on.
        gains: What the tenant earns, settled and just changed, ``(n_levels, n_steps, n_multisets)`` each.
        counts: What may serve it, ``(n_multisets, n_profiles)``.
        ends: The steps before which it may end.
        is_running: Whether it was running when the window opened; then it has one end.
    """
    found, option = np.zeros(len(ends)), tenant.options[level - 1]
    if not option.checkpoints or not len(ends):
        return found
    first = int(ends[0])
    if is_running:
        changes = running_changes(problem, tenant, profile_name, first)
    else:
        changes = changes_until(problem, tenant, level, profile_name, first)
    fits = fits_gpu(problem, counts + counts_of(problem, [profile_name]))

    def ahead(now: int, base: int, columns: Bools | slice) -> Floats:
        """What level ``now`` earns more than the base at most in the steps before each."""
        more = [(own[now] - own[base])[:, columns].max(axis=1, initial=0.0) for own in gains]
        return sums_before(np.max(more, axis=0))

    for (begin, now), (until, _) in pairwise([*changes, (first, 0)]):
        sums = ahead(now, 0, fits)
        found += sums[ends - first + until] - sums[ends - first + begin]
    sums = ahead(changes[-1][1] if changes else 0, level, slice(None))
    found += sums[-1] - sums[ends]
    return found


def retraining_costs(
    problem: Problem,
    tenant: TenantTerms,
    prices: Floats,
    gains: tuple[Floats, Floats],
    counts: Int64s,
) -> Floats:
    """The least price of a retraining by option and end step, less what it adds; inf where it cannot end.

    It adds to salvage, and by checkpoints at most what the multiset gains by them that gains most, step by step. What
    taking weights over costs is left out. ``(n_options, n_steps + 1)``.
    """
    n_steps, (none, *salvage) = problem.n_steps, tenant.salvages
    costs = np.full((len(tenant.options), n_steps + 1), np.inf)
    paid = dict(zip(problem.profile_names, sums_before(prices).T, strict=True))
    running = [run for run in problem.opening.retrainings if run.tenant == tenant.name]
    for run in running:
        name = run.placement.profile.name
        more = more_by_checkpoints(problem, tenant, 1, name, gains, counts, np.array([run.end_step]), is_running=True)
        costs[0, run.end_step] = paid[name][run.end_step] - more[0]
    for number, option in enumerate(() if running else tenant.options):
        for name in option.time_s:
            steps = problem.occupied_steps(tenant, option, name)
            ends = np.arange(steps, n_steps + 1)
            more = more_by_checkpoints(problem, tenant, 1 + number, name, gains, counts, ends)
            price = paid[name][steps:] - paid[name][:-steps] if len(ends) else more
            costs[number, steps:] = np.minimum(costs[number, steps:], price - more)
    less: Floats = costs - (np.array(salvage) - none)[:, None]
    return less


def most_goodput(problem: Problem) -> float:
    """More than goodput can be, also by given gain tables."""
    tables = [values for table in problem.gains or () for values in (table.steady, table.changed) if values is not None]
    return problem.most_goodput + sum(float(np.abs(values).max(axis=(0, 2)).sum()) for values in tables)


def rounding(problem: Problem, size: float) -> float:
    """More than rounding takes from sums along a path whose terms make up ``size`` at most."""
    return float(np.finfo(np.float64).eps * problem.n_steps**2 * size)


def _goodput(problem: Problem, m: int, lifetimes: Sequence[Lifetime]) -> Floats:
    """Of tenant m in each step, ``(n_steps,)``."""
    tenant, n_steps = problem.tenants[m], problem.n_steps
    runs = [item for item in lifetimes if item.owner == Owner(tenant.name, Task.RETRAINING)]
    changes: list[LevelChange] = []
    for run in sorted(runs, key=lambda item: item.end_step):
        if continues(problem, run):
            changes += running_changes(problem, tenant, run.placement.profile.name, run.end_step)
        elif run.option in tenant.ending_names[1:]:
            changes += changes_by(problem, tenant, run)
    levels, left = levels_of(changes, n_steps), shares_of(changes, swap_shares(problem, tenant), n_steps)
    multisets, kind, has_changed = serving(problem, m, lifetimes)
    settled, changed = (gains[levels, np.arange(n_steps), kind] for gains in gains_of(problem, m, multisets))
    return lowered(np.where(has_changed, changed, settled), left)
