"""Retrainings on loans beside one layout: the engine against an oracle, its bound, and plans that were altered."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import lent_oracle
import numpy as np
import pytest
from altered import altered
from claims import Claims
from lent_problems import lent_problem
from plans import lent_case, with_terms

from planner.by_hand import plan_of as plan_of_lifetimes
from planner.engines import lent
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_of, problem_to_json
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import HeldInstance, Owner, PhysicalState, Problem, Task
from planner.replan import remaining_plan, remaining_problem
from planner.solve import engine_names, solve
from planner.verify import Rule, loans, verify
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
        floors = [tenant.min_slo_attainment for tenant in problem.tenants]
        if not any(own.swap_s for own in problem.tenants) and not any(own and own.per == "window" for own in floors):
            claim(found.bound is not None and found.bound <= best + 1e-6 * max(1.0, best), f"{found.bound} is loose")
            claim(plan.status is Status.OPTIMAL, f"{plan.status}, though nothing is left to find")
        claim(plan.claimed_bound is not None and plan.claimed_bound >= best - size, f"claimed {plan.claimed_bound}")
        read = problem_of(problem_to_json(problem, with_gains=True), "file")
        told = problem_to_json(read, with_gains=True)
        claim(told == problem_to_json(problem, with_gains=True), "the problem's file says something else")
        claim(plan_of(plan_to_json(plan), read, "file").lifetimes == plan.lifetimes, "the plan's file does")


@pytest.mark.parametrize("seed", daily(range(N_PROBLEMS), {0, 1, 2}))
def test_bounds_hold_where_not_all_levels_are_told_apart(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "MOST_ACTORS", 1)
    monkeypatch.setattr(loans, "MOST_TOLD", 1)
    problem = lent_problem(seed)
    plan, best = solve(problem), lent_oracle.best(problem)
    if not plan.status.has_plan:
        assert plan.status is Status.TIMEOUT or math.isinf(best)
        return
    assert plan.objective is not None
    found, size = verify(problem, plan), 1e-7 * max(1.0, abs(best))
    assert found.violations == ()
    assert found.bound is not None
    assert plan.claimed_bound is not None
    assert plan.objective - size <= best <= min(found.bound, plan.claimed_bound) + size


@pytest.mark.parametrize("seed", daily(range(N_PROBLEMS), {0, 1, 2}))
def test_what_is_left_of_a_plan_is_a_plan_of_what_is_left(seed: int) -> None:
    problem = lent_problem(seed)
    plan = solve(problem)
    for step in range(1, problem.n_steps) if plan.status.has_plan else ():
        rest, left = remaining_problem(problem, plan, step), remaining_plan(plan, step)
        found = verify(rest, left)
        assert {one.rule for one in found.violations} <= {Rule.OBJECTIVE}
        again = solve(rest)
        assert found.objective is not None
        if not problem.has_floors:
            assert again.objective is not None
            assert again.objective >= found.objective - 1e-7 * max(1.0, abs(found.objective))


def test_a_loan_worked_out_by_hand_is_found_and_valid() -> None:
    problem, plan = lent_case()
    assert verify(problem, plan).violations == ()
    found = [solve(problem, engine) for engine in engine_names(problem.reconfiguration)]
    assert {(one.lifetimes, one.objective, one.status) for one in found} == {(plan.lifetimes, 345.0, Status.OPTIMAL)}


def _refusals(problem: Problem, lifetimes: Iterable[Lifetime]) -> str:
    found = verify(problem, plan_of_lifetimes(problem, lifetimes, "hand"))
    return "; ".join(f"{one.rule}: {one.message}" for one in found.violations)


def test_each_rule_of_loans_refuses_what_breaks_it() -> None:
    problem, plan = lent_case()
    large, small, run = plan.lifetimes
    free = problem.gpu.placement("1g.6gb@3")
    other = replace(run, owner=Owner("b", Task.RETRAINING), create_step=2, serve_step=3, end_step=5)
    refused: dict[str, tuple[Lifetime, ...]] = {
        "loan: 1g.6gb@3 is not of the layout": (large, small, run, replace(small, placement=free)),
        "loan: 1g.6gb@2 of the layout is not held from step 0 to the end": (large, replace(small, end_step=7), run),
        "loan: 1g.6gb@3 is not lent": (large, small, replace(run, placement=free, lent=False)),
        "loan: 1g.6gb@2 is lent, which only a layout's is": (large, replace(small, lent=True), run),
        "loan: the loan of 1g.6gb@2 begins before the last one ends, at step 3": (large, small, run, other),
        "loan: 1g.6gb@3 is lent, and its tenant's pool": (large, small, replace(run, placement=free)),
    }
    for message, lifetimes in refused.items():
        assert message in _refusals(problem, lifetimes)


def test_nothing_is_lent_before_all_serves_or_that_a_tenant_cannot_spare_or_without_a_layout() -> None:
    problem, plan = lent_case()
    large, small, run = plan.lifetimes
    held = tuple(HeldInstance(item.placement, "a", 2, ("b",)) for item in (large, small))
    warming = replace(problem, initial=PhysicalState(held, next_epoch_step=2))
    late = [replace(item, serve_step=2) for item in (large, small)]
    assert "before the layout serves all, at step 2" in _refusals(warming, (*late, run))
    needy = with_terms(problem, 1, min_profile="2g.12gb")
    on_large = replace(run, placement=large.placement)
    assert "without 2g.12gb@0 a tenant has nothing as large" in _refusals(needy, (large, small, on_large))
    assert "is lent, which only a layout's is" in _refusals(replace(problem, layout=()), plan.lifetimes)


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
