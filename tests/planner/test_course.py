"""Courses: what a plan means step by step adds up to what the plan promises."""

from __future__ import annotations

import numpy as np
import pytest
from claims import Claims
from plans import continued_case, paper_case, physical_case
from problems import physical_problem

from planner.budget import Budget
from planner.course import courses
from planner.solve import solve


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
    assert (run.where, run.create_step, run.serve_step, run.end_step) == ("1g.6gb@3", 0, 1, 3)
    assert courses(*physical_case())[0].level.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_retraining_of_paper_is_on_a_profile_that_may_sit_anywhere() -> None:
    problem, plan = paper_case()
    runs = [course.retraining for course in courses(problem, plan)]
    asked = [schedule.retraining for schedule in plan.schedules]
    assert [run and run.where for run in runs] == [run and run.profile for run in asked]
    assert any(runs)


def test_a_retraining_in_progress_is_the_first_option() -> None:
    a = courses(*continued_case())[0]
    assert a.retraining is not None
    assert a.retraining.option is None
    assert a.level.tolist() == [0, 0, 0, 0, 1, 1]


def test_no_tenant_is_worth_more_than_all_its_requests() -> None:
    with Claims("step by step") as claim:
        for seed in range(12):
            problem = physical_problem(seed)
            plan = solve(problem, "physical", Budget(max_nodes=20))
            for course in courses(problem, plan) if plan.status.has_plan else ():
                terms = course.tenant
                most = max(terms.accuracies) * terms.weight * terms.arrivals_rps * problem.step_s
                claim((course.goodput <= most + 1e-9).all(), f"seed {seed}: {course.goodput} above {most}")


def test_share_is_of_arrivals_and_none_without_any() -> None:
    problem, plan = paper_case()
    assert courses(problem, plan)[1].share == pytest.approx(0.6)
    course = courses(problem, plan)[1]
    object.__setattr__(course.tenant, "arrivals_rps", np.zeros(4))
    assert course.share is None
