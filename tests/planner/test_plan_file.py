"""Plan files: the answer format, round trips, and one line for each thing that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plans import paper_case, physical_case

from planner.errors import PlanFileError
from planner.plan import Infeasibility, MigPlan, Status
from planner.plan_file import plan_of, plan_to_json, read_plan
from planner.problem import Problem

CASES = [pytest.param(*case()[:2], id=case.__name__) for case in (paper_case, physical_case)]


def paper() -> tuple[Problem, dict[str, object]]:
    problem, plan = paper_case()[:2]
    return problem, json.loads(json.dumps(plan_to_json(plan)))


def physical() -> tuple[Problem, dict[str, object]]:
    problem, plan = physical_case()[:2]
    return problem, json.loads(json.dumps(plan_to_json(plan)))


def refused(document: dict[str, object], problem: Problem) -> str:
    with pytest.raises(PlanFileError) as caught:
        plan_of(document, problem, "plan.json")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("problem", "plan"), CASES)
def test_a_plan_survives_writing_and_reading(tmp_path: Path, problem: Problem, plan: MigPlan) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_to_json(plan)))
    assert read_plan(path, problem) == plan


def test_a_paper_answer_names_spans_and_a_retraining() -> None:
    _, document = paper()
    first = document["tenants"][0]  # type: ignore[index]
    assert set(first) == {"name", "inference", "retraining"}
    assert all(isinstance(first_step, int) and isinstance(names, list) for first_step, _, names in first["inference"])
    assert set(first["retraining"]) == {"profile", "start_step", "end_step", "option"}


def test_a_physical_answer_names_lifetimes() -> None:
    _, document = physical()
    keys = {"placement", "tenant", "task", "create_step", "serve_step", "end_step"}
    assert all(keys <= set(item) <= keys | {"option"} for item in document["lifetimes"])  # type: ignore[attr-defined]


def test_an_infeasible_answer_names_tenant_and_rule_and_no_plan() -> None:
    problem, plan = paper_case()[:2]
    reason = Infeasibility("resnet50", "rule 4", "it does not fit")
    nothing = replace(plan, status=Status.INFEASIBLE, objective=None, bound=None, schedules=(), infeasibility=reason)
    document = plan_to_json(nothing)
    assert document["reason"] == {"tenant": "resnet50", "rule": "rule 4", "message": "it does not fit"}
    assert (document["objective"], document["gap"], "tenants" in document) == (None, None, False)
    assert plan_of(document, problem, "plan.json") == nothing


def test_a_retraining_without_option_is_that_of_the_only_option() -> None:
    problem, document = paper()
    for item in document["tenants"]:  # type: ignore[attr-defined]
        if item["retraining"] is not None:
            del item["retraining"]["option"]
    assert plan_of(document, problem, "plan.json") == paper_case()[1]


def test_schedules_come_in_the_problems_order() -> None:
    problem, document = paper()
    document["tenants"].reverse()  # type: ignore[attr-defined]
    assert plan_of(document, problem, "plan.json") == paper_case()[1]


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("status", "best", "status is 'best'; optimal, feasible, timeout, infeasible are allowed"),
        ("reconfiguration", "physical", "reconfiguration is 'physical'; the problem's is paper"),
        ("objective", float("nan"), "objective is nan; a finite number is needed"),
        ("n_steps", "3", "n_steps is '3'; a valid integer is needed"),
        ("tenants", None, "tenants is missing; a"),
        ("gap", 0.5, "gap is 0.5; objective and bound make it"),
        ("objectve", 1.0, "unknown key objectve (did you mean objective?)"),
    ],
)
def test_a_wrong_value_is_told_in_one_line(key: str, value: object, part: str) -> None:
    problem, document = paper()
    assert part in refused({**document, key: value}, problem)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "nobody"}, "tenants[0].name is 'nobody'; the problem's tenants are"),
        ({"inference": [[0, 1, ["9g"]]]}, "tenants[0].inference names '9g'"),
        ({"inference": [[0, 1.5, []]]}, "tenants[0].inference[0][1] is 1.5"),
        ({"retraining": {"profile": "9g", "start_step": 0, "end_step": 1}}, "tenants[0].retraining.profile names '9g'"),
        (
            {"retraining": {"profile": "1g.5gb", "start_step": 0, "end_step": 1, "option": "x"}},
            "tenants[0].retraining.option is 'x'; allowed: ",
        ),
    ],
)
def test_a_wrong_schedule_is_told(change: dict[str, object], part: str) -> None:
    problem, document = paper()
    document["tenants"][0] |= change  # type: ignore[index]
    assert part in refused(document, problem)


def test_a_tenant_given_twice_is_refused() -> None:
    problem, document = paper()
    document["tenants"] = [document["tenants"][0]] * 2  # type: ignore[index]
    assert "which is given twice" in refused(document, problem)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"placement": "1g.6gb@9"}, "1g.6gb cannot start at memory slice 9"),
        ({"task": "sleep"}, "lifetimes[0].task is 'sleep'; inference or retraining is needed"),
        ({"tenant": "nobody"}, "lifetimes[0].tenant is 'nobody'"),
    ],
)
def test_a_wrong_lifetime_is_told(change: dict[str, object], part: str) -> None:
    problem, document = physical()
    document["lifetimes"][0] |= change  # type: ignore[index]
    assert part in refused(document, problem)
