"""Plan files: the answer format, round trips, and one line for each thing that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plans import paper_case, physical_case

from planner.errors import PlanFileError
from planner.files.plan_file import plan_of, plan_to_json, read_plan
from planner.plan import Certificate, Infeasibility, MigPlan, Status, StatusCertificate, statuses_of
from planner.problem import AttainmentFloor, Problem

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


def floored(problem: Problem, plan: MigPlan) -> tuple[Problem, MigPlan]:
    """The case with a floor per window for its first tenant, and a certificate with that one's multiplier."""
    first = replace(problem.tenants[0], min_slo_attainment=AttainmentFloor(0.5))
    prices = np.zeros((problem.n_steps, 1))
    certificate = Certificate(problem.profile_names[:1], prices, ((first.name, 0.25),))
    changed = replace(problem, tenants=(first, *problem.tenants[1:]))
    return changed, replace(plan, certificate=certificate, missed=("a: too few",), floor_costs=0.02, keeping_costs=0.1)


@pytest.mark.parametrize(("problem", "plan"), CASES)
def test_multipliers_and_missed_floors_survive_writing_and_reading(problem: Problem, plan: MigPlan) -> None:
    problem, plan = floored(problem, plan)
    again = plan_of(json.loads(json.dumps(plan_to_json(plan))), problem, "plan.json")
    assert (again.certificate.multipliers, again.missed) == (plan.certificate.multipliers, plan.missed)
    assert (again.floor_costs, again.keeping_costs) == (0.02, 0.1)


def test_a_multiplier_for_a_tenant_without_a_floor_is_refused() -> None:
    problem, plan = paper_case()[:2]
    document = json.loads(json.dumps(plan_to_json(floored(problem, plan)[1])))
    assert "which is no tenant with a floor per window" in refused(document, problem)


def test_a_negative_multiplier_is_refused() -> None:
    problem, plan = floored(*paper_case()[:2])
    document = json.loads(json.dumps(plan_to_json(plan)))
    document["certificate"]["multipliers"] = {problem.tenants[0].name: -1.0}
    assert "a number from 0 to" in refused(document, problem)


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
    nothing = replace(
        plan, status=Status.INFEASIBLE, objective=None, claimed_bound=None, schedules=(), infeasibility=reason
    )
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


def test_a_gap_may_be_off_by_rounding() -> None:
    problem, document = paper()
    assert (document["gap"], document["claimed_gap"]) == (None, 0.0)
    assert plan_of({**document, "claimed_gap": 1e-12}, problem, "plan.json") == paper_case()[1]


def test_schedules_come_in_the_problems_order() -> None:
    problem, document = paper()
    document["tenants"].reverse()  # type: ignore[attr-defined]
    assert plan_of(document, problem, "plan.json") == paper_case()[1]


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("status", "best", "status is 'best'; 'optimal', 'feasible', 'timeout' or 'infeasible' is needed"),
        ("reconfiguration", "physical", "reconfiguration is 'physical'; the problem's is paper"),
        ("objective", float("nan"), "objective is nan; a finite number is needed"),
        ("n_steps", "3", "n_steps is '3'; a whole number is needed"),
        ("tenants", None, "tenants is missing; a"),
        ("gap", 0.5, "gap is 0.5; objective and bound make it None"),
        ("claimed_gap", 0.5, "claimed_gap is 0.5; objective and claimed_bound make it"),
        ("objectve", 1.0, "unknown key objectve (did you mean objective?)"),
        (
            "reason",
            {"tenant": None, "rle": "x"},
            "unknown key reason.rle (did you mean rule?); known: tenant, rule, message",
        ),
        ("engine", "\ud800", "text with half a character, at the end of "),
    ],
)
def test_a_wrong_value_is_told_in_one_line(key: str, value: object, part: str) -> None:
    problem, document = paper()
    assert part in refused({**document, key: value}, problem)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "nobody"}, "tenants[0].name: 'nobody' is no tenant of the problem; those are"),
        ({"inference": [[0, 1, ["9g"]]]}, "tenants[0].inference[0][2][0]: a100-40gb has no MIG profile '9g'; it has"),
        ({"inference": [[0, 1.5, []]]}, "tenants[0].inference[0][1] is 1.5"),
        (
            {"retraining": {"profile": "9g", "start_step": 0, "end_step": 1}},
            "retraining.profile: a100-40gb has no MIG profile '9g'",
        ),
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
        ({"placement": "1g.6gb@9"}, "lifetimes[0].placement: 1g.6gb cannot start at memory slice 9"),
        ({"task": "sleep"}, "lifetimes[0].task is 'sleep'; 'inference' or 'retraining' is needed"),
        ({"tenant": "nobody"}, "lifetimes[0].tenant: 'nobody' is no tenant of the problem"),
        ({"placement": 3}, "lifetimes[0].placement is 3; text is needed"),
        ({"ends": 3}, "unknown key lifetimes[0].ends (did you mean end_step?)"),
    ],
)
def test_a_wrong_lifetime_is_told(change: dict[str, object], part: str) -> None:
    problem, document = physical()
    document["lifetimes"][0] |= change  # type: ignore[index]
    assert part in refused(document, problem)


def test_a_certificate_survives_writing_and_reading(tmp_path: Path) -> None:
    problem, plan = paper_case()
    prices = np.random.default_rng(0).normal(size=(4, 2))
    path = tmp_path / "plan.json"
    written = replace(plan, certificate=Certificate(("3g.20gb", "1g.5gb"), prices))
    path.write_text(json.dumps(plan_to_json(written)))
    certificate = read_plan(path, problem).certificate
    assert isinstance(certificate, Certificate)
    assert certificate.profile_names == ("3g.20gb", "1g.5gb")
    assert np.array_equal(certificate.prices, prices)


def test_prices_of_statuses_survive_writing_and_reading(tmp_path: Path) -> None:
    problem, plan = paper_case()
    tenant = next(tenant for tenant in problem.tenants if tenant.options)
    statuses, path = statuses_of(tenant), tmp_path / "plan.json"
    prices = np.random.default_rng(0).normal(size=(4, len(statuses)))
    path.write_text(json.dumps(plan_to_json(replace(plan, certificate=StatusCertificate(statuses, prices)))))
    certificate = read_plan(path, problem).certificate
    assert isinstance(certificate, StatusCertificate)
    assert certificate.statuses == statuses
    assert np.array_equal(certificate.prices, prices)


def test_a_certificate_is_optional() -> None:
    problem, document = paper()
    assert "certificate" not in document
    assert plan_of(document, problem, "plan.json").certificate is None


def test_a_certificate_may_price_nothing() -> None:
    problem, document = paper()
    certificate = plan_of({**document, "certificate": {"profiles": [], "prices": [[]] * 4}}, problem, "").certificate
    assert certificate is not None
    assert certificate.prices.shape == (4, 0)


@pytest.mark.parametrize(
    ("certificate", "part"),
    [
        ({"profiles": ["1g.5gb"]}, "certificate.prices is missing"),
        ({"prices": [[]] * 4}, "certificate needs profiles or statuses"),
        ({"profiles": [], "statuses": [], "prices": [[]] * 4}, "certificate needs profiles or statuses"),
        ({"statuses": [["a", "runs"]], "prices": [[0.0]] * 4}, "certificate.statuses[0][2] is missing"),
        ({"statuses": [["a", "runs", "9g"]], "prices": [[0.0]] * 4}, "prices a runs 9g; different ones of these"),
        ({"statuses": [["a", "runs", "1g.5gb"]], "prices": [[]] * 4}, "prices[0] has 0 numbers; statuses has 1"),
        ({"profiles": ["1g.5gb"], "prices": [[0.0], [1.0], [float("inf")], [0.0]]}, "certificate.prices[2][0] is inf"),
        (
            {"profiles": ["1g.5gb"], "prices": [[0.0], [1.0, 2.0]]},
            "certificate.prices[1] has 2 numbers; profiles has 1",
        ),
        ({"profiles": ["1g.5gb"], "prices": [[0.0]] * 3}, "prices have shape (3, 1); (4, 1) is needed"),
        ({"profiles": ["1g.5gb"], "prices": []}, "prices have shape (0, 1); (4, 1) is needed"),
        ({"profiles": ["9g"], "prices": [[0.0]] * 4}, "prices 9g; different ones of 1g.5gb"),
        ({"profiles": ["1g.5gb"], "prices": [[1e200]] * 4}, "from -1e+100 to 1e+100"),
    ],
)
def test_a_wrong_certificate_is_told_in_one_line(certificate: dict[str, object], part: str) -> None:
    problem, document = paper()
    assert part in refused({**document, "certificate": certificate}, problem)
