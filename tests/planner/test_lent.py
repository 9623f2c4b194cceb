"""Retrainings on loans beside one layout: the engine against an oracle, its bound, and plans that were altered."""

from __future__ import annotations

import math
from dataclasses import replace

import lent_oracle
import numpy as np
import pytest
from altered import altered
from claims import Claims
from lent_problems import lent_problem

from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_of, problem_to_json
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import Problem
from planner.solve import solve
from planner.verify import Rule, verify
from tests.seeds import daily

N_PROBLEMS = 240

SEEDS = daily(range(N_PROBLEMS), {0, 1, 2})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_engine_finds_what_an_oracle_finds_and_the_check_proves_it(seed: int) -> None:
    problem = lent_problem(seed)
    with Claims(f"problem {seed}") as claim:
        plan, best = solve(problem), lent_oracle.best(problem)
        size = 1e-7 * max(1.0, abs(best) if math.isfinite(best) else 1.0)
        if not plan.status.has_plan:
            # Floors per window are kept by multipliers, which may leave a gap; then no plan need be found.
            has_gap = problem.has_floors and plan.status is Status.TIMEOUT
            claim(math.isinf(best) or has_gap, f"{plan.status}: {plan.infeasibility}; the oracle has {best}")
            return
        assert plan.objective is not None
        found = verify(problem, plan)
        claim(not found.violations, f"{[str(one) for one in found.violations]}")
        claim(plan.objective <= best + size, f"{plan.objective} is more than the oracle's {best}")
        if not problem.has_floors:
            claim(abs(plan.objective - best) <= size, f"{plan.objective}, the oracle has {best}")
        claim(found.bound is not None and found.bound >= best - size, f"the bound {found.bound} is below {best}")
        claim(plan.claimed_bound is not None and plan.claimed_bound >= best - size, f"claimed {plan.claimed_bound}")
        read = problem_of(problem_to_json(problem, with_gains=True), "file")
        told = problem_to_json(read, with_gains=True)
        claim(told == problem_to_json(problem, with_gains=True), "the problem's file says something else")
        claim(plan_of(plan_to_json(plan), read, "file").lifetimes == plan.lifetimes, "the plan's file does")


def _planned(seed: int) -> tuple[Problem, MigPlan]:
    """The first problem from this one on that has a plan, and the plan."""
    found = ((one, solve(one)) for one in map(lent_problem, range(seed, seed + 20)))
    return next((problem, plan) for problem, plan in found if plan.status.has_plan)


def _valued(problem: Problem, plan: MigPlan) -> MigPlan:
    """The plan as if it claimed what it is worth."""
    found = verify(problem, replace(plan, objective=0.0, claimed_bound=None, status=Status.FEASIBLE, bound=None))
    return replace(
        plan,
        objective=found.objective,
        salvage=found.salvage,
        claimed_bound=None,
        status=Status.FEASIBLE,
        bound=None,
    )


def _lent_otherwise(rng: np.random.Generator, plan: MigPlan) -> MigPlan:
    """A loan is none, or another placement's, or another lifetime is lent."""
    at = int(rng.integers(len(plan.lifetimes)))
    item = plan.lifetimes[at]
    other: Lifetime = replace(item, lent=not item.lent)
    if rng.random() < 0.4:
        places = [own.placement for own in plan.lifetimes]
        other = replace(item, placement=places[int(rng.integers(len(places)))])
    return replace(plan, lifetimes=(*plan.lifetimes[:at], other, *plan.lifetimes[at + 1 :]))


@pytest.mark.parametrize("seed", daily(range(500), {0, 1, 2, 3}))
def test_an_altered_plan_is_refused_or_worth_no_more_than_the_best(seed: int) -> None:
    rng = np.random.default_rng([seed, 64])
    problem, plan = _planned(seed)
    other = _lent_otherwise(rng, plan) if rng.random() < 0.35 else altered(rng, problem, plan)
    found = verify(problem, replace(other, claimed_bound=None, status=Status.FEASIBLE, bound=None))
    if found.broken_rules and any(one.rule is not Rule.OBJECTIVE for one in found.violations):
        return
    other = _valued(problem, other)
    best = lent_oracle.best(problem)
    assert other.objective is not None
    assert other.objective <= best + 1e-7 * max(1.0, abs(best)), f"{seed}: {other.objective} passes, {best} is the best"
