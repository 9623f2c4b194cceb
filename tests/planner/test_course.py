"""Courses: what a plan means step by step adds up to what the plan promises."""

from __future__ import annotations

import numpy as np
import pytest
from plans import continued_case, paper_case, physical_case
from problems import case_name, paper_problem, physical_problem

from planner.budget import Budget
from planner.course import courses
from planner.solve import solve

CASES = [(paper_problem, seed) for seed in range(20)] + [(physical_problem, seed) for seed in range(20)]


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_goodput_adds_up_to_the_objective(case) -> None:
    problem = case[0](case[1])
    plan = solve(problem, "greedy")
    if plan.objective is not None:
        total = sum(float(course.goodput.sum()) for course in courses(problem, plan))
        assert total == pytest.approx(plan.objective, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", [paper_case, physical_case, continued_case])
def test_goodput_of_plans_made_by_hand(case) -> None:
    problem, plan = case()
    assert sum(float(course.goodput.sum()) for course in courses(problem, plan)) == pytest.approx(plan.objective)


def test_paper_capability_is_lower_in_a_step_that_pays_for_a_change() -> None:
    a, b = courses(*paper_case())
    assert a.capability_rps.tolist() == [90.0, 90.0, 97.5, 130.0]
    assert a.has_changed.tolist() == [False, False, True, False]
    assert b.capability_rps.tolist() == [60.0] * 4


def test_physical_capability_is_that_of_what_serves() -> None:
    problem, plan = physical_case()
    a = courses(problem, plan)[0]
    assert a.capability_rps.tolist() == [25.0] * 5 + [35.0]
    assert a.held.sum(axis=1).tolist() == [1, 1, 1, 2, 2, 2]


def test_a_retraining_is_told_with_its_start_up() -> None:
    run = courses(*physical_case())[0].retraining
    assert run is not None
    assert (run.where, run.from_step, run.train_step, run.to_step) == ("1g.6gb@3", 0, 1, 3)
    assert courses(*physical_case())[0].level.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_retraining_in_progress_is_the_first_option() -> None:
    a = courses(*continued_case())[0]
    assert a.retraining is not None
    assert a.retraining.option.name == "full"
    assert a.level.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(12))
def test_no_tenant_is_worth_more_than_all_its_requests(seed: int) -> None:
    problem = physical_problem(seed)
    plan = solve(problem, "physical", Budget(max_nodes=20))
    for course in courses(problem, plan) if plan.status.has_plan else ():
        terms = course.tenant
        most = max(terms.accuracies) * terms.weight * terms.arrivals_rps * problem.step_s
        assert (course.goodput <= most + 1e-9).all()


def test_share_is_of_arrivals_and_none_without_any() -> None:
    problem, plan = paper_case()
    assert courses(problem, plan)[1].share(problem.step_s) == pytest.approx(0.6)
    course = courses(problem, plan)[1]
    object.__setattr__(course.tenant, "arrivals_rps", np.zeros(4))
    assert course.share(1.0) is None
