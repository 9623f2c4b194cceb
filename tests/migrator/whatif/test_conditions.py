from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.errors import GridError
from migrator.whatif.conditions import Condition, Verdict, read_conditions, verdict_of
from migrator.whatif.grid import Choice
from migrator.whatif.sweep import Outcome, TenantOutcome

POINT = (Choice("load", None, 0.5),)

OPTIMAL = Outcome(
    point=POINT,
    status="optimal",
    model="physical",
    engine="physical",
    arrivals=1000.0,
    goodput=800.0,
    bound=800.0,
    gap=0.0,
    tenants=(
        TenantOutcome("vision", 600.0, 540.0, 90.0, None, 99.0),
        TenantOutcome("my.text", 400.0, 260.0, 65.0, None, None),
    ),
    slo_attainment_pct=95.0,
)
FEASIBLE = replace(OPTIMAL, status="feasible", bound=850.0, gap=50 / 850)
NOTHING = Outcome(POINT, "timeout", "physical", "physical", arrivals=1000.0, reason="no plan within the budget")


def read(text: str) -> Condition:
    (condition,) = read_conditions([text], ["vision", "my.text"])
    return condition


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("goodput>=0.8", Condition("goodput", None, ">=", 0.8)),
        (" slo_attainment >= 99% ", Condition("slo_attainment", None, ">=", 0.99)),
        ("goodput:vision<=1", Condition("goodput", "vision", "<=", 1.0)),
        ("slo_attainment:my.text>=.5", Condition("slo_attainment", "my.text", ">=", 0.5)),
    ],
)
def test_a_condition_names_a_metric_perhaps_a_tenant_and_a_share(text: str, condition: Condition) -> None:
    assert read(text) == condition
    assert read(str(condition)) == condition


BAD = [
    ("goodput", "METRIC>=SHARE or METRIC<=SHARE is needed"),
    ("goodput>0.8", "METRIC>=SHARE or METRIC<=SHARE is needed"),
    ("goodput=0.8", "METRIC>=SHARE"),
    ("goodput>=", "METRIC>=SHARE"),
    ("goodput>=nan", "METRIC>=SHARE"),
    ("accuracy>=0.8", "accuracy is no metric; those are goodput, slo_attainment"),
    ("goodput:visoin>=0.8", "visoin is no tenant; those are vision, my.text"),
    ("goodput>=80", "a share from 0 to 1 is needed, such as 0.8 or 80%"),
    ("goodput>=101%", "a share from 0 to 1"),
    ("goodput>=-0.1", "a share from 0 to 1"),
    ("goodput>=1.2.3", "a share from 0 to 1"),
    ("goodput>=" + "9" * 5000, "--keep goodput>=99"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text[:20] for text, _ in BAD])
def test_what_is_no_condition_is_one_line(text: str, message: str) -> None:
    with pytest.raises(GridError) as refusal:
        read(text)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("--keep ")
    assert len(str(refusal.value)) < 250


def test_nothing_to_keep_is_refused() -> None:
    with pytest.raises(GridError, match="--find needs at least one --keep"):
        read_conditions([], ["vision"])


@pytest.mark.parametrize(
    ("text", "outcome", "verdict"),
    [
        ("goodput>=0.8", OPTIMAL, Verdict.HOLDS),
        ("goodput>=0.81", OPTIMAL, Verdict.FAILS),
        ("goodput>=0.8", FEASIBLE, Verdict.HOLDS),
        ("goodput>=0.84", FEASIBLE, Verdict.NOT_SHOWN),
        ("goodput>=0.86", FEASIBLE, Verdict.FAILS),
        ("goodput<=0.8", OPTIMAL, Verdict.HOLDS),
        ("goodput<=0.79", FEASIBLE, Verdict.FAILS),
        ("goodput<=0.82", FEASIBLE, Verdict.NOT_SHOWN),
        ("goodput<=0.85", FEASIBLE, Verdict.HOLDS),
        ("slo_attainment>=0.95", FEASIBLE, Verdict.HOLDS),
        ("slo_attainment>=0.96", OPTIMAL, Verdict.FAILS),
        ("slo_attainment>=0.96", FEASIBLE, Verdict.NOT_SHOWN),
        ("slo_attainment:vision<=0.99", FEASIBLE, Verdict.HOLDS),
        ("goodput:my.text>=0.7", OPTIMAL, Verdict.FAILS),
        ("goodput:my.text>=0.7", FEASIBLE, Verdict.NOT_SHOWN),
        ("slo_attainment:my.text>=0.1", OPTIMAL, Verdict.NOT_SHOWN),
        ("goodput>=0", NOTHING, Verdict.NOT_SHOWN),
        ("goodput>=0", replace(NOTHING, status="infeasible"), Verdict.FAILS),
        ("goodput>=0", replace(NOTHING, status="failed"), Verdict.NOT_SHOWN),
    ],
)
def test_a_condition_fails_only_where_that_is_shown(text: str, outcome: Outcome, verdict: Verdict) -> None:
    assert read(text).verdict(outcome) is verdict


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        (["goodput>=0.8", "slo_attainment>=0.9"], Verdict.HOLDS),
        (["goodput>=0.84", "slo_attainment>=0.9"], Verdict.NOT_SHOWN),
        (["goodput>=0.84", "goodput>=0.86"], Verdict.FAILS),
    ],
)
def test_all_conditions_have_to_be_kept(texts: list[str], verdict: Verdict) -> None:
    assert verdict_of(read_conditions(texts, ["vision"]), FEASIBLE) is verdict
