"""Nothing more can be held at a plan's worth: slices that it leaves idle would cost something, or serve nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problems import physical_problem
from windows import tenant, window

from planner.budget import Budget
from planner.by_hand import inference, plan_of
from planner.course import courses
from planner.engines.physical.fullest import _stretches
from planner.engines.physical.held_sets import HeldSets
from planner.plan import MigPlan
from planner.problem import Problem, Reconfiguration
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from planner.verify import verify

QUIET = 0.3
"""Share of the arrivals that leaves most problems room for more than they need."""


def quiet(seed: int, n_steps: int) -> Problem:
    problem = physical_problem(seed, n_steps)
    tenants = (replace(own, arrivals_rps=QUIET * own.arrivals_rps) for own in problem.tenants)
    return replace(problem, tenants=tuple(tenants))


def reserve(problem: Problem, plan: MigPlan) -> float:
    """What the plan has in reserve, by the definition alone."""
    total = 0.0
    for course in courses(problem, plan):
        own, requests = course.tenant, max(1.0, problem.step_s * float(np.mean(course.tenant.arrivals_rps)))
        capacity = problem.step_s * course.capability_rps
        total += float((own.weight * own.accuracy_before * requests * capacity / (requests + capacity)).sum())
    return total


def fuller(problem: Problem, plan: MigPlan) -> Iterator[MigPlan]:
    """The plans that hold one instance more for some steps, or one that they hold earlier or longer."""
    places = problem.gpu.placements(problem.profile_names)
    for place, own, begin in product(places, problem.tenants, range(problem.n_steps)):
        if place.profile.name not in problem.capability_rps(own):
            continue
        for end in range(begin + 1, problem.n_steps + 1):
            busy = [item for item in plan.lifetimes if item.create_step < end and begin < item.end_step]
            if any(item.placement.memory_mask & place.memory_mask for item in busy):
                break  # nor for longer
            yield plan_of(problem, [*plan.lifetimes, inference(problem, own, place, begin, end)], "by hand")


def is_as_good(problem: Problem, other: MigPlan, plan: MigPlan) -> bool:
    """Whether the other one is a plan of the problem, and worth as much."""
    assert plan.objective is not None
    assert other.objective is not None
    return other.objective >= plan.objective - 1e-9 * abs(plan.objective) and not verify(problem, other).broken_rules


@pytest.mark.parametrize("seed", range(24))
def test_no_plan_leaves_slices_idle_that_could_serve_at_the_same_objective(seed: int) -> None:
    problem = quiet(seed, 6)
    plan = solve(problem)
    if not plan.status.has_plan:
        return
    most = reserve(problem, plan) * (1 + 1e-9)
    better = [o for o in fuller(problem, plan) if reserve(problem, o) > most and is_as_good(problem, o, plan)]
    assert [item.lifetimes for item in better] == []


@pytest.mark.parametrize(
    ("n_steps", "epoch_steps", "found"), [(9, 4, []), (9, 3, [(2, 5)]), (5, 4, [(2, 5)])], ids=["near", "apart", "end"]
)
def test_two_new_epochs_lie_apart_but_what_is_held_to_the_end_needs_one(
    n_steps: int, epoch_steps: int, found: list[tuple[int, int]]
) -> None:
    is_free = (np.arange(n_steps) >= 2) & (np.arange(n_steps) < 5)
    assert [*_stretches(is_free, [0, 2, 5], epoch_steps)] == found


def exchanged(problem: Problem, plan: MigPlan) -> Iterator[MigPlan]:
    """The plans with the same retrainings that hold one set until a step and another one from there on."""
    sets, others = HeldSets.of(problem), [item for item in plan.lifetimes if not item.is_inference]
    held = [sets.entries(number) for number in range(len(sets))]
    firsts = [problem.tenants[members[0]] for members in problem.partition]
    for first, last, step in product(held, held, (1, problem.n_steps - 1)):
        lifetimes = [inference(problem, firsts[m], place) for place, m in first & last]
        lifetimes += [inference(problem, firsts[m], place, 0, step) for place, m in first - last]
        lifetimes += [inference(problem, firsts[m], place, step) for place, m in last - first]
        yield plan_of(problem, [*lifetimes, *others], "by hand")


@pytest.mark.parametrize("retraining_s", [{}, {"1g.6gb": 1.0}])
def test_no_other_sets_hold_more_at_the_same_objective(retraining_s: dict[str, float]) -> None:
    rates = {"1g.6gb": 30.0, "2g.12gb": 55.0}
    a = tenant("a", [5.0] * 4, rates, retraining_s, min_profile="1g.6gb", overhead_s=0.25)
    b = tenant("b", [50.0] * 4, {"2g.12gb": 55.0}, {}, min_profile="1g.6gb", overhead_s=0.25)
    problem = window(a, b, gpu="a30-24gb", model=Reconfiguration.PHYSICAL, switch_s=0.25)
    plan = solve(problem)
    most = reserve(problem, plan) * (1 + 1e-9)
    better = [o for o in exchanged(problem, plan) if reserve(problem, o) > most and is_as_good(problem, o, plan)]
    assert [item.lifetimes for item in better] == []


@pytest.mark.parametrize("n_tenants", [2, 4])
def test_what_is_left_of_a_window_is_filled_again(n_tenants: int) -> None:
    """Slices that a plan left idle serve once the rest is planned anew, with the little work of a re-plan."""
    tenants = [tenant(name, [20.0] * 30, retraining_s={}) for name in "abcd"[:n_tenants]]
    problem = window(*tenants, model=Reconfiguration.PHYSICAL)
    places = problem.gpu.placements(["1g.5gb"])
    sparse = plan_of(problem, [inference(problem, *pair) for pair in zip(tenants, places, strict=False)], "by hand")
    rest = remaining_problem(problem, sparse, 5)
    plan = solve(rest, budget=Budget(max_nodes=100, proves=False), initial=remaining_plan(sparse, 5))
    assert [o.lifetimes for o in fuller(rest, plan) if is_as_good(rest, o, plan)] == []
    assert reserve(rest, plan) > reserve(rest, remaining_plan(sparse, 5))
    steps = {item.create_step for item in plan.lifetimes} | {item.end_step for item in plan.lifetimes}
    assert steps == {0, rest.n_steps}  # in one change
