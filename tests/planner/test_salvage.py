"""What a level is worth beyond the window: in plans, their checks, and in files."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf

import pytest
from problems import physical_problem, with_salvage

from planner.errors import PlanFileError, ProblemError
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_of, problem_to_json
from planner.plan import MigPlan
from planner.problem import Problem
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from planner.verify import Rule, verify, with_proof

RELATIVE = 1e-9


def same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and abs(a - b) <= RELATIVE * max(1.0, abs(a)))


def salvaged(seed: int = 3) -> tuple[Problem, MigPlan]:
    """A plan with salvage above nothing."""
    for number in range(seed, 200):
        problem = with_salvage(physical_problem(number), number)
        plan = solve(problem)
        if plan.salvage > 0:
            return problem, plan
    raise AssertionError


@pytest.mark.parametrize("change", [1.0, -1.0, inf])
def test_verify_refuses_another_salvage(change: float) -> None:
    problem, plan = salvaged()
    found = verify(problem, replace(plan, salvage=plan.salvage + change))
    assert [item.rule for item in found.violations] == [Rule.OBJECTIVE]


def test_verify_refuses_an_objective_without_its_salvage() -> None:
    problem, plan = salvaged()
    found = verify(problem, replace(plan, objective=plan.expected_goodput, salvage=0.0))
    assert Rule.OBJECTIVE in [item.rule for item in found.violations]


def test_goodput_and_salvage_stand_apart_in_a_file() -> None:
    problem, plan = salvaged()
    plan = with_proof(plan, verify(problem, plan))
    document = json.loads(json.dumps(plan_to_json(plan)))
    assert same(document["expected_goodput"] + document["salvage"], plan.objective)
    assert document["goodput_gap"] >= document["gap"]
    assert plan_of(document, problem, "plan.json").salvage == plan.salvage


def test_a_plan_file_that_contradicts_itself_is_refused() -> None:
    problem, plan = salvaged()
    with pytest.raises(PlanFileError, match=r"expected_goodput is 1\.0; objective and salvage make it"):
        plan_of({**plan_to_json(plan), "expected_goodput": 1.0}, problem, "plan.json")


def test_a_problem_file_keeps_salvage_by_option() -> None:
    problem, _ = salvaged()
    again = problem_of(json.loads(json.dumps(problem_to_json(problem))), "problem.json")
    assert [tenant.salvage for tenant in again.tenants] == [tenant.salvage for tenant in problem.tenants]


@pytest.mark.parametrize(
    ("salvage", "message"),
    [
        ({"none": 1.0, "other": 2.0}, "has none, other; exactly none, option-0"),
        ({"none": 1.0, "option-0": -2.0}, "salvage.option-0 is -2.0; a finite number ≥ 0"),
    ],
)
def test_a_wrong_salvage_is_one_clear_line(salvage: dict[str, float], message: str) -> None:
    problem = next(p for p in map(physical_problem, range(99)) if len(p.tenants[0].options) == 1)
    document = problem_to_json(problem)
    tenants = document["tenants"]
    assert isinstance(tenants, list)
    tenants[0]["salvage"] = salvage
    with pytest.raises(ProblemError, match=message):
        problem_of(document, "problem.json")


def test_salvage_needs_a_number_for_each_level() -> None:
    problem = physical_problem(0)
    tenant = replace(problem.tenants[0], salvage=(1.0,) * (2 + len(problem.tenants[0].options)))
    with pytest.raises(ProblemError, match=r"salvage has \d numbers; one for each of none"):
        replace(problem, tenants=(tenant, *problem.tenants[1:]))


def test_a_plan_followed_midway_keeps_its_salvage() -> None:
    """What is left of a plan is worth what the plan is worth without the goodput of the steps before."""
    n_told = 0
    for seed in range(40):
        problem = with_salvage(physical_problem(seed), seed)
        plan = solve(problem)
        for step in range(1, problem.n_steps if plan.status.has_plan else 1):
            left = remaining_problem(problem, plan, step)
            rest = verify(left, replace(remaining_plan(plan, step), objective=0.0))
            assert [item.rule for item in rest.violations if "salvage" in item.message] == []
            n_told += any(tenant.salvage for tenant in left.tenants)
    assert n_told > 20


def test_salvage_alone_can_make_a_retraining_worth_while() -> None:
    problem = next(
        p for p in (physical_problem(seed, n_tenants=1) for seed in range(99)) if p.tenants[0].options and not p.initial
    )

    def retrains(salvage: tuple[float, ...]) -> bool:
        tenant = problem.tenants[0]
        worse = replace(tenant.options[0], accuracy_after=0.0)
        terms = replace(tenant, options=(worse,), retraining_required=False, salvage=salvage, weight=1.0)
        plan = solve(replace(problem, tenants=(terms,)))
        return any(not item.is_inference for item in plan.lifetimes)

    assert not retrains(())
    assert retrains((0.0, 1e6))
