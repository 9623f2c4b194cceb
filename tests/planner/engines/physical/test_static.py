"""Greedy on placements: static's retrainings with the best held sets around them."""

from __future__ import annotations

from dataclasses import replace

import physical_oracle
import pytest
from problems import physical_problem
from windows import tenant, window

from planner.engines.physical.static import solve_greedy, solve_static
from planner.errors import EngineError
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration
from planner.verify import verify
from tests.seeds import daily


def runs(plan: MigPlan) -> list[tuple[str, int, int]]:
    return [(str(i.placement), i.create_step, i.end_step) for i in plan.lifetimes if not i.is_inference]


@pytest.mark.parametrize("seed", range(30))
def test_every_plan_keeps_the_rules(seed: int) -> None:
    problem = physical_problem(seed)
    plan = solve_greedy(problem)
    if plan.status.has_plan:
        assert verify(problem, plan).violations == ()


@pytest.mark.parametrize("seed", range(30))
def test_it_retrains_as_static_does_and_is_no_worse(seed: int) -> None:
    problem = physical_problem(seed)
    plan, static = solve_greedy(problem), solve_static(problem)
    if static.objective is not None:
        assert plan.objective is not None
        assert plan.objective >= static.objective - 1e-9
        assert runs(plan) == runs(static)


@pytest.mark.parametrize("seed", daily(range(12), {*range(12)} - {2, 8}))
def test_it_is_at_most_the_best_and_its_bound_at_least(seed: int) -> None:
    problem = physical_problem(seed, 3)
    plan, best = solve_greedy(problem), physical_oracle.best_objective(problem)
    if best is not None and plan.objective is not None:
        assert plan.objective <= best * (1 + 1e-9) + 1e-9
        assert plan.claimed_bound is not None
        assert plan.claimed_bound >= best * (1 - 1e-9)


def changing_loads() -> Problem:
    """The tenants' arrivals change places in the middle, so holding one set throughout wastes a lot."""
    loads = ([200.0] * 20 + [40.0] * 20, [40.0] * 20 + [200.0] * 20)
    terms = [tenant(name, own, retraining_s={}) for name, own in zip("ab", loads, strict=True)]
    return window(*terms, model=Reconfiguration.PHYSICAL, switch_s=0.0)


def test_it_changes_what_is_held_where_that_pays() -> None:
    plan, static = solve_greedy(changing_loads()), solve_static(changing_loads())
    assert plan.objective is not None
    assert static.objective is not None
    assert plan.objective > 1.1 * static.objective


def test_a_paper_problem_is_refused() -> None:
    with pytest.raises(EngineError, match="answers physical problems"):
        solve_greedy(window())


def test_infeasible_problems_are_told_as_such() -> None:
    problem = window(tenant(retraining_s={"2g.10gb": 60.0}), model=Reconfiguration.PHYSICAL)
    plan = solve_greedy(problem)
    assert plan.status is Status.INFEASIBLE
    assert plan.infeasibility is not None


def test_the_same_problem_gives_the_same_plan() -> None:
    plans = [replace(solve_greedy(changing_loads()), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]
