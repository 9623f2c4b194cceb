"""Greedy: valid plans with a valid bound, exact where no retraining is to be placed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_oracle import best_objective
from problems import paper_problem
from windows import tenant, window

from planner.engines.paper.plan import broken_rule, decisions_of
from planner.engines.paper.static import solve_greedy
from planner.errors import EngineError
from planner.plan import MigPlan, RetrainingSpan, Status
from planner.problem import PaperState, Problem, Reconfiguration

SEEDS = range(40)


def value_of(plan: MigPlan) -> float:
    assert plan.objective is not None
    return plan.objective


@pytest.mark.parametrize("seed", SEEDS)
def test_objective_is_at_most_the_best_and_the_bound_at_least(seed: int) -> None:
    problem = paper_problem(seed)
    plan, best = solve_greedy(problem), best_objective(problem)
    if best is None:
        assert plan.status is Status.INFEASIBLE
    else:
        assert plan.claimed_bound is not None
        assert value_of(plan) <= best + 1e-6 * abs(best)
        assert plan.claimed_bound >= best - 1e-6 * abs(best)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_inference_holds_is_the_best_when_there_is_no_retraining(seed: int) -> None:
    problem = paper_problem(seed)
    without = replace(problem, tenants=tuple(replace(terms, options=()) for terms in problem.tenants))
    best = best_objective(without)
    if best is not None:
        assert value_of(solve_greedy(without)) == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_plan_keeps_the_rules(seed: int) -> None:
    problem = paper_problem(seed)
    plan = solve_greedy(problem)
    if plan.status.has_plan:
        decisions = decisions_of(problem, plan)
        assert decisions is not None
        assert broken_rule(problem, decisions) is None


def test_a_retraining_that_does_not_pay_is_skipped_if_it_may_be() -> None:
    worse = window(tenant(accuracy_before=0.9, retraining_required=False))
    assert solve_greedy(worse).schedules[0].retraining is None


def test_a_retraining_that_does_not_pay_runs_as_late_as_it_may_if_it_must() -> None:
    worse = window(tenant(accuracy_before=0.9))
    assert solve_greedy(worse).schedules[0].retraining == RetrainingSpan("2g.10gb", 4, 6, "full")


def test_a_retraining_that_pays_starts_when_little_is_lost() -> None:
    problem = window(tenant(arrivals_rps=[0, 0, 400, 400, 400, 400]))
    assert solve_greedy(problem).schedules[0].retraining == RetrainingSpan("2g.10gb", 0, 2, "full")


def test_retrainings_that_must_follow_each_other_are_all_placed() -> None:
    plan = solve_greedy(window(*[tenant(name, retraining_s={"4g.20gb": 2.0}) for name in "abc"]))
    starts = sorted(schedule.retraining.start_step for schedule in plan.schedules if schedule.retraining is not None)
    assert starts == [0, 2, 4]


def test_an_initial_state_that_is_kept_costs_nothing() -> None:
    terms = tenant(retraining_s={}, overhead_s=5.0)
    kept, other = (window(terms, initial=PaperState({"resnet50": (name,)})) for name in ("7g.40gb", "1g.5gb"))
    free = value_of(solve_greedy(window(terms)))
    assert value_of(solve_greedy(kept)) == free
    assert value_of(solve_greedy(other)) < free


def test_an_earlier_plan_that_is_better_is_returned() -> None:
    problem = window(tenant(arrivals_rps=[100.0] * 6), tenant("b"))
    best = replace(solve_greedy(problem), objective=None)
    easy = replace(problem, tenants=tuple(replace(terms, overhead_s=0.0) for terms in problem.tenants))
    assert value_of(solve_greedy(problem, initial=best)) >= value_of(solve_greedy(problem))
    assert value_of(solve_greedy(easy, initial=best)) >= value_of(solve_greedy(easy))


def test_an_earlier_plan_of_other_tenants_is_passed_over() -> None:
    other = solve_greedy(window(tenant("somebody")))
    assert value_of(solve_greedy(window(), initial=other)) == value_of(solve_greedy(window()))


def test_a_physical_problem_is_refused() -> None:
    physical: Problem = window(model=Reconfiguration.PHYSICAL)
    with pytest.raises(EngineError, match="'greedy' answers paper problems"):
        solve_greedy(physical)


def test_the_same_problem_gives_the_same_plan() -> None:
    plans = [replace(solve_greedy(paper_problem(3)), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]
