"""Every plan of short `paper` problems on an A30, one by one: the engines and the oracle find the best of them.

Nothing is remembered from step to step: for each choice of retrainings the value of every sequence of joint states is
worked out, and the largest is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

import numpy as np
import paper_oracle
import pytest
from numpy.typing import NDArray
from problems import short_paper_problem

from planner.plan import MigPlan, Status
from planner.problem import Problem, TenantTerms
from planner.solve import solve

Names = tuple[str, ...]
Joint = tuple[Names, ...]
"""The profiles that each tenant's inference holds, sorted."""

Retraining = tuple[int, str, int, int] | None
"""Option, profile, first step, end step; ``None``: no retraining."""

SEEDS = range(120)
TOLERANCE = 1e-6


def best_of_all(problem: Problem) -> float | None:
    """The largest value of all plans; ``None`` if there is none."""
    holdings = _holdings(problem)
    ways = [list(_retrainings(problem, tenant)) for tenant in problem.tenants]
    values = [
        value for retrainings in product(*ways) if (value := _best_with(problem, holdings, retrainings)) is not None
    ]
    return max(values, default=None)


def n_plans(problem: Problem) -> int:
    """How many plans there are."""
    holdings = _holdings(problem)
    ways = [list(_retrainings(problem, tenant)) for tenant in problem.tenants]
    return sum(
        math.prod(len(states) for states in _states(problem, holdings, retrainings)) for retrainings in product(*ways)
    )


def _holdings(problem: Problem) -> set[tuple[Joint, Names]]:
    """What can be held together: each tenant's inference, and sorted profiles of retrainings."""
    gpu, tenants = problem.gpu, range(len(problem.tenants))
    places = [(name, start) for name in problem.profile_names for start in gpu.profile(name).starts]
    found = set()
    for size in range(len(places) + 1):
        for layout in combinations(places, size):
            profiles = [gpu.profile(name) for name, _ in layout]
            slices = [
                s for p, (_, start) in zip(profiles, layout, strict=True) for s in range(start, start + p.memory_slices)
            ]
            if len(set(slices)) < len(slices) or sum(p.compute_slices for p in profiles) > gpu.compute_slices:
                continue
            for owners in product(["idle", "retraining", *tenants], repeat=size):
                owned = list(zip(layout, owners, strict=True))
                joint = tuple(tuple(sorted(name for (name, _), owner in owned if owner == m)) for m in tenants)
                found.add((joint, tuple(sorted(name for (name, _), owner in owned if owner == "retraining"))))
    return {(joint, retraining) for joint, retraining in found if _may_hold(problem, joint)}


def _may_hold(problem: Problem, joint: Joint) -> bool:
    """Rules 2 and 4: only profiles that serve the tenant, one of them as large as its smallest."""
    for tenant, names in zip(problem.tenants, joint, strict=True):
        least = problem.gpu.profile(tenant.min_profile)
        held = [problem.gpu.profile(name) for name in names]
        large = [p for p in held if p.compute_slices >= least.compute_slices and p.memory_slices >= least.memory_slices]
        if not large or not set(names) <= set(tenant.capability_rps):
            return False
    return True


def _retrainings(problem: Problem, tenant: TenantTerms) -> Iterator[Retraining]:
    """Rule 3: every option, profile and start, and none where none is required."""
    if not (tenant.options and tenant.retraining_required):
        yield None
    for index, option in enumerate(tenant.options):
        for name, time_s in option.time_s.items():
            steps = max(1, math.ceil(time_s / problem.step_s - 1e-9))
            yield from ((index, name, start, start + steps) for start in range(problem.n_steps - steps + 1))


def _states(
    problem: Problem, holdings: set[tuple[Joint, Names]], retrainings: tuple[Retraining, ...]
) -> list[list[Joint]]:
    """The joint states that are possible in each step beside the retrainings."""
    running = [
        tuple(sorted(one[1] for one in retrainings if one is not None and one[2] <= s < one[3]))
        for s in range(problem.n_steps)
    ]
    return [[joint for joint, retraining in sorted(holdings) if retraining == busy] for busy in running]


def _best_with(
    problem: Problem, holdings: set[tuple[Joint, Names]], retrainings: tuple[Retraining, ...]
) -> float | None:
    """The best value of all sequences of joint states: an axis a step, each cell a plan."""
    states = _states(problem, holdings, retrainings)
    if not all(states):
        return None
    values = np.zeros([len(found) for found in states])
    for s, found in enumerate(states):
        before = states[s - 1] if s > 0 else [_initial(problem)]
        gains = np.array([[_goodput(problem, retrainings, s, was, now) for now in found] for was in before])
        values += _on_axes(gains if s > 0 else gains[0], s, problem.n_steps)
    return float(values.max())


def _on_axes(gains: NDArray[np.float64], s: int, n_steps: int) -> NDArray[np.float64]:
    """``gains`` along the axes of steps s − 1 and s, or along that of step 0 alone."""
    shape = [1] * n_steps
    shape[s + 1 - gains.ndim : s + 1] = gains.shape
    return gains.reshape(shape)


def _initial(problem: Problem) -> Joint | None:
    if problem.paper_initial is None:
        return None
    return tuple(tuple(sorted(problem.paper_initial.held.get(name, ()))) for name in problem.tenant_names)


def _goodput(problem: Problem, retrainings: tuple[Retraining, ...], s: int, was: Joint | None, now: Joint) -> float:
    """Rule 5 of the ``paper`` model for step s."""
    total = 0.0
    for m, tenant in enumerate(problem.tenants):
        capacity = problem.step_s * sum(tenant.capability_rps[name] for name in now[m])
        if was is not None and was[m] != now[m]:
            capacity -= tenant.overhead_s / problem.step_s / len(now[m]) * capacity
        retraining = retrainings[m]
        is_done = retraining is not None and retraining[3] <= s
        accuracy = tenant.options[retraining[0]].accuracy_after if retraining and is_done else tenant.accuracy_before
        total += tenant.weight * accuracy * min(float(tenant.arrivals_rps[s]) * problem.step_s, capacity)
    return total


@cache
def best(seed: int) -> float | None:
    return best_of_all(short_paper_problem(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_finds_the_best_of_all_plans(seed: int) -> None:
    assert paper_oracle.best_objective(short_paper_problem(seed)) == (
        None if best(seed) is None else pytest.approx(best(seed), rel=TOLERANCE, abs=TOLERANCE)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_finds_the_best_of_all_plans(seed: int) -> None:
    plan = solve(short_paper_problem(seed))
    if best(seed) is None:
        assert plan.status is Status.INFEASIBLE
    else:
        assert (plan.status, plan.objective) == (
            Status.OPTIMAL,
            pytest.approx(best(seed), rel=TOLERANCE, abs=TOLERANCE),
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", ["greedy", "static"])
def test_floors_lie_below_the_best_of_all_plans_and_their_bounds_above(engine: str, seed: int) -> None:
    plan: MigPlan = solve(short_paper_problem(seed), engine)
    top = best(seed)
    if top is None:
        assert plan.status is Status.INFEASIBLE
    elif plan.status.has_plan:
        assert plan.objective - TOLERANCE <= top <= plan.bound + TOLERANCE


def test_one_tenant_on_one_profile_has_as_many_plans_as_can_be_counted_by_hand() -> None:
    # On an A30 a tenant on 1g alone holds one to four of them: four states a step, nothing to retrain.
    seed = next(s for s in range(1000) if _is_plain(short_paper_problem(s)))
    problem = short_paper_problem(seed)
    assert n_plans(problem) == 4**problem.n_steps


def _is_plain(problem: Problem) -> bool:
    tenant = problem.tenants[0]
    alone = len(problem.tenants) == 1 and not tenant.options
    return alone and (problem.profile_names, tenant.min_profile) == (("1g.6gb",), "1g.6gb")


def test_there_are_problems_with_many_plans_and_with_none() -> None:
    assert 10 <= sum(best(seed) is None for seed in SEEDS) <= len(SEEDS) / 2
    assert sum(n_plans(short_paper_problem(seed)) > 1_000 for seed in SEEDS) >= 15
