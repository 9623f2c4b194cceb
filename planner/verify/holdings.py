"""What a plan holds, in one form for both models, and what that earns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from executor.mig import Multiset, Placement
from planner.errors import ProblemError
from planner.plan import ANYWHERE, Lifetime, MigPlan
from planner.problem import (
    Checkpoint,
    FloatArray,
    Owner,
    Problem,
    Reconfiguration,
    RetrainingOption,
    Task,
    TenantTerms,
)


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
    left = [(run.placement, Owner(run.tenant, Task.RETRAINING), 0, run.end_step) for run in runs]
    return (item.placement, item.owner, item.create_step, item.end_step) in left and item.serve_step <= item.end_step


def counts_of(problem: Problem, profile_names: Iterable[str]) -> Multiset:
    """How often each of the problem's profiles is named."""
    names = list(profile_names)
    return tuple(map(names.count, problem.profile_names))


def counts_at_start(problem: Problem, tenant: TenantTerms, step: int) -> Multiset | None:
    """What inference holds when the window opens, as far as it serves in ``step``; ``None`` where that is free."""
    held = [item for item in problem.opening.held if item.tenant == tenant.name and item.serve_step <= step]
    names = () if problem.paper_initial is None else problem.paper_initial.held.get(tenant.name, ())
    names += tuple(item.placement.profile.name for item in held)
    return None if problem.initial is None else counts_of(problem, names)


def gains_of(problem: Problem, m: int, multisets: Sequence[Multiset]) -> tuple[FloatArray, FloatArray]:
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


def served_of(problem: Problem, m: int, multisets: Sequence[Multiset]) -> tuple[FloatArray, FloatArray]:
    """min(a, C) of tenant m in requests, settled and just changed: ``(n_steps, n_multisets)`` each."""
    tenant, step_s, is_paper = problem.tenants[m], problem.step_s, problem.reconfiguration is Reconfiguration.PAPER
    counts, rates = np.array(multisets), [tenant.capability_rps.get(name, math.nan) for name in problem.profile_names]
    capacity = step_s * np.where(counts, counts * rates, 0.0).sum(axis=1)
    # The N instances change one after the other, and each is away for Ψ seconds: Ψ/step/N of the capacity.
    lost = is_paper * tenant.overhead_s / step_s / np.maximum(counts.sum(axis=1), 1) * capacity
    arrivals = step_s * tenant.arrivals_rps[:, None]
    return np.minimum(arrivals, capacity), np.minimum(arrivals, capacity - lost)


def serving(
    problem: Problem, m: int, lifetimes: Sequence[Lifetime]
) -> tuple[list[Multiset], NDArray[np.int64], NDArray[np.bool_]]:
    """What serves tenant m: the multisets, which of them does in each step, and where what it holds has just changed.

    What is given by step has shape ``(n_steps,)``.
    """
    tenant, names = problem.tenants[m], problem.profile_names
    held = np.zeros((problem.n_steps, len(names)), dtype=np.int64)
    serves = np.zeros_like(held)
    for item in lifetimes:
        name = item.placement.profile.name
        if item.owner == Owner(tenant.name, Task.INFERENCE) and name in names:
            held[item.create_step : item.end_step, names.index(name)] += 1
            serves[item.serve_step : item.end_step, names.index(name)] += 1
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


def kept_checkpoints(tenant: TenantTerms, option: RetrainingOption) -> list[Checkpoint]:
    """Those better than the model in service and than all before them."""
    found = option.checkpoints
    before = [max((tenant.accuracy_before, *(one.accuracy for one in found[:n]))) for n in range(len(found))]
    return [one for one, best in zip(found, before, strict=True) if one.accuracy > best]


def level_steps(
    problem: Problem,
    tenant: TenantTerms,
    option: RetrainingOption,
    profile_name: str,
    end_step: int,
    *,
    is_running: bool,
) -> dict[int, int]:
    """Level by the step from which it holds, of a retraining that ends before ``end_step``; ascending.

    Levels are counted as in gain tables: none, the options, then the kept checkpoints, option by option. What serves
    may be a checkpoint of one that is in progress: its end counts only if it is better than what serves by then.
    """
    number, level = tenant.options.index(option), 1 + len(tenant.options)
    level += sum(len(kept_checkpoints(tenant, other)) for other in tenant.options[:number])
    if profile_name not in option.time_s:
        return {end_step: 1 + number}
    n_steps, kept, found = problem.training_steps(option, profile_name), kept_checkpoints(tenant, option), {}
    for n, one in enumerate(kept):
        found[end_step - n_steps + max(1, math.ceil(one.fraction * n_steps - 1e-9))] = level + n
    served = [tenant.accuracy_before] * (is_running and bool(option.checkpoints)) + [one.accuracy for one in kept]
    if not served or option.accuracy_after > served[-1]:
        found[end_step] = 1 + number
    return {step: found[step] for step in sorted(found) if step >= 0}


def more_by_checkpoints(
    problem: Problem,
    tenant: TenantTerms,
    number: int,
    profile_name: str,
    gains: tuple[FloatArray, FloatArray],
    counts: NDArray[np.int64],
    ends: Sequence[int],
    *,
    is_running: bool = False,
) -> FloatArray:
    """What a retraining's checkpoints add at most to the old level before its end and its own after it, by end.

    In each step with what gains most by them: until its end of what fits beside it.

    Args:
        problem: The problem.
        tenant: Whose.
        number: Of its options.
        profile_name: What it runs on.
        gains: What the tenant earns, settled and just changed, ``(n_levels, n_steps, n_multisets)`` each.
        counts: What may serve it, ``(n_multisets, n_profiles)``.
        ends: The steps before which it may end.
        is_running: Whether it was running when the window opened.
    """
    found, option = np.zeros(len(ends)), tenant.options[number]
    if not option.checkpoints:
        return found
    fitting = set(problem.gpu.multisets(problem.profile_names))
    beside = (counts + np.array(counts_of(problem, [profile_name]))).tolist()
    fits = {0: np.array([tuple(held) in fitting for held in beside]), 1 + number: np.ones(len(counts), dtype=np.bool_)}
    ahead: dict[tuple[int, int], FloatArray] = {}
    for index, end in enumerate(ends):
        steps = [(0, 0), *level_steps(problem, tenant, option, profile_name, end, is_running=is_running).items()]
        for (first, level), (last, _) in pairwise([*steps, (problem.n_steps, 0)]):
            for base, begin, until in ((0, first, min(last, end)), (1 + number, max(first, end), last)):
                if begin < until:
                    if (level, base) not in ahead:
                        kinds = [(own[level] - own[base])[:, fits[base]] for own in gains]
                        most = np.max([kind.max(axis=1, initial=0.0) for kind in kinds], axis=0)
                        ahead[level, base] = np.insert(np.cumsum(most), 0, 0.0)
                    found[index] += ahead[level, base][until] - ahead[level, base][begin]
    return found


def most_goodput(problem: Problem) -> float:
    """More than goodput can be, also by given gain tables."""
    tables = [values for table in problem.gains or () for values in (table.steady, table.changed) if values is not None]
    return problem.most_goodput + sum(float(np.abs(values).max(axis=(0, 2)).sum()) for values in tables)


def rounding(problem: Problem, size: float) -> float:
    """More than rounding takes from sums along a path whose terms make up ``size`` at most."""
    return float(np.finfo(np.float64).eps * problem.n_steps**2 * size)


def _levels_and_shares(
    problem: Problem, tenant: TenantTerms, runs: Iterable[Lifetime]
) -> tuple[NDArray[np.int64], FloatArray]:
    """The tenant's level in each step, and what taking weights over leaves of its gains, ``(n_steps,)`` each."""
    levels, left = np.zeros(problem.n_steps, dtype=np.int64), np.ones(problem.n_steps)
    n_lost = tenant.swap_s / problem.step_s
    for run in sorted(runs, key=lambda item: item.end_step):
        # A retraining that was already running is always on option 0.
        is_running, profile_name = continues(problem, run), run.placement.profile.name
        name = tenant.options[0].name if is_running else run.option
        option = next((one for one in tenant.options if one.name == name), None)
        if option is None:
            continue
        steps = level_steps(problem, tenant, option, profile_name, run.end_step, is_running=is_running)
        for step, level in steps.items():
            levels[step:] = level
            for s in range(step, min(problem.n_steps, step + math.ceil(n_lost - 1e-9))):
                left[s] *= max(0.0, 1.0 - (n_lost - (s - step)))
    return levels, left


def _goodput(problem: Problem, m: int, lifetimes: Sequence[Lifetime]) -> FloatArray:
    """Of tenant m in each step, ``(n_steps,)``."""
    runs = [item for item in lifetimes if item.owner == Owner(problem.tenants[m].name, Task.RETRAINING)]
    levels, left = _levels_and_shares(problem, problem.tenants[m], runs)
    multisets, kind, has_changed = serving(problem, m, lifetimes)
    settled, changed = (gains[levels, np.arange(problem.n_steps), kind] for gains in gains_of(problem, m, multisets))
    gains = np.where(has_changed, changed, settled)
    return np.where(gains > 0, left * gains, gains)
