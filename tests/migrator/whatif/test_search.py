from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from executor.catalogue import gpu_model_names
from migrator.config.reading import validate_config
from migrator.config.sections import Config
from migrator.errors import GridError
from migrator.whatif.grid import Choice, Factor
from migrator.whatif.search import (
    N_HALVINGS,
    N_VALUES,
    UNMEASURED,
    Condition,
    Found,
    GoalSearch,
    Verdict,
    by_size,
    find,
    read_conditions,
    read_search,
    verdict_of,
)
from migrator.whatif.sweep import PointOutcome, TenantOutcome
from tests.migrator.conftest import SMALL, changed

CONDITIONS = read_conditions(["goodput>=0.5"], [])


def config(**changes: Any) -> Config:
    return validate_config(changed(SMALL, changes), "small.yaml")


def texts(search: GoalSearch) -> list[str]:
    return [choice.text for choice in search.choices]


def test_a_load_is_tried_from_a_tenth_to_above_one() -> None:
    assert texts(read_search("max:load", config(load=0.7))) == [f"{0.1 * k:.4g}" for k in range(1, 13)]


def test_without_a_load_in_the_config_factors_on_the_arrivals_are_tried() -> None:
    assert texts(read_search("max:load", config())) == [f"x{0.25 * k:g}" for k in range(1, 13)]


def test_where_every_tenant_has_a_factor_a_load_would_move_none_and_is_refused() -> None:
    fixed = {f"tenants.{index}.arrivals": {"rate_rps": 9, "scale": {"factor": 2.0}} for index in (0, 1)}
    found = validate_config(changed(SMALL, {"load": 0.7, **fixed}), "small.yaml")
    assert texts(read_search("max:load", found))[0] == "x0.25"
    with pytest.raises(GridError, match="no tenant's traffic follows a load here"):
        read_search("max:load=0.1..2", found)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("max:load=0.2..2.4", 0.2, 2.4),
        ("max:vision.load", Factor(0.25), Factor(3.0)),
        ("max:language.load=x1..x12", Factor(1.0), Factor(12.0)),
        ("min:slo_ms", Factor(1.2), Factor(0.1)),
        ("min:vision.slo_ms=50..160", 160.0, 50.0),
        ("max:overhead_s=0..11", 0.0, 11.0),
    ],
)
def test_a_range_may_be_given_and_goes_from_the_easy_end_to_the_hard_one(text: str, first: Any, last: Any) -> None:
    search = read_search(text, config(load=0.7))
    assert len(search.choices) == N_VALUES
    assert (search.choices[0].value, search.choices[-1].value) == (first, last)


def test_gpu_models_go_by_compute_slices_then_by_memory() -> None:
    sizes = [(model.compute_slices, int(model.name.split("-")[-1][:-2])) for model in by_size()]
    assert sizes == sorted(sizes)
    assert by_size()[0].name == "a30-24gb"
    assert {model.name for model in by_size()} == set(gpu_model_names())
    assert texts(read_search("min:gpu", config())) == [model.name for model in by_size()]


BAD = [
    ("load", "max:load, min:slo_ms"),
    ("max:loads", "--find max:loads (did you mean max:load?): max:load, min:slo_ms, "),
    ("max:vision.loads", "(did you mean max:load?)"),
    ("most:load", "can be found"),
    ("min:load", "can be found"),
    ("max:gpu", "(did you mean min:gpu?)"),
    ("min:gpu=1..2", "can be found"),
    ("max:batch", "can be found"),
    ("max:visoin.load", "visoin is no tenant; those are vision, language"),
    ("max:load=0.5", "a range LOW..HIGH is needed"),
    ("max:load=2..1", "LOW has to be below HIGH"),
    ("max:load=x1..2", "LOW has to be below HIGH, both values or both factors"),
    ("max:load=0..1", "--find load=0: a load > 0"),
    ("max:vision.load=0.1..1", "factors such as x0.5..x2 do"),
    ("max:load=a..b", "--find load=a: a load > 0"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text for text, _ in BAD])
def test_what_cannot_be_found_is_one_line(text: str, message: str) -> None:
    with pytest.raises(GridError, match="--find") as refusal:
        read_search(text, config(load=0.7))
    assert message in str(refusal.value)


def outcome(choice: Choice, goodput: float, *, proven: bool = True) -> PointOutcome:
    bound, gap = (goodput, 0.0) if proven else (1.0, 1.0 - goodput)
    status = "optimal" if proven else "feasible"
    return PointOutcome((choice,), status, "physical", "physical", 1.0, goodput, bound, gap)


def number(choice: Choice) -> float:
    return choice.value.by if isinstance(choice.value, Factor) else float(choice.value)


def searched(text: str, goodput: Callable[[float], float], proven: Callable[[float], bool] = lambda _: True) -> Found:
    """What is found where the plan of each value has this goodput; 0.5 is to be kept."""

    def planned(choices: Sequence[Choice]) -> list[PointOutcome]:
        return [outcome(one, goodput(number(one)), proven=proven(number(one))) for one in choices]

    return find(read_search(text, config(load=0.7)), CONDITIONS, planned)


def test_the_first_failing_interval_is_halved_to_both_its_ends() -> None:
    found = searched("max:load", lambda load: 1.0 if load <= 0.567 else 0.2)
    assert found.holds is not None
    assert found.breaks is not None
    low, high = number(found.holds), number(found.breaks)
    assert low <= 0.567 < high
    assert high - low == pytest.approx(0.1 / 2**N_HALVINGS, abs=2e-4)
    assert found.fails == found.breaks
    assert (len(found.outcomes), found.again, found.not_shown) == (N_VALUES + N_HALVINGS, (), ())
    assert [number(choice) for choice in found.choices] == sorted(number(choice) for choice in found.choices)


def test_for_a_minimum_the_hard_end_is_the_low_one() -> None:
    found = searched("min:slo_ms=10..120", lambda slo_ms: 1.0 if slo_ms >= 33 else 0.2)
    assert found.holds is not None
    assert found.breaks is not None
    assert number(found.breaks) < 33 <= number(found.holds)


def test_values_that_hold_again_are_told() -> None:
    found = searched("max:load", lambda load: 0.2 if 0.45 < load < 0.85 else 1.0)
    assert found.holds is not None
    assert number(found.holds) <= 0.45
    assert [choice.text for choice in found.again] == ["0.9", "1", "1.1", "1.2"]


def test_what_is_not_shown_is_no_failure() -> None:
    found = searched("max:load", lambda load: 1.0 if load <= 0.5 else 0.2, lambda load: load > 0.85)
    assert found.breaks is not None
    assert found.verdicts[found.choices.index(found.breaks)] is Verdict.NOT_SHOWN
    assert found.fails is not None
    assert found.fails.text == "0.9"
    assert set(found.not_shown) >= {found.breaks}


def test_where_all_hold_there_is_no_other_end() -> None:
    found = searched("max:load", lambda _: 1.0)
    assert (found.holds, found.breaks, len(found.outcomes)) == (found.choices[-1], None, N_VALUES)


def test_where_the_easiest_fails_nothing_is_halved() -> None:
    found = searched("max:load", lambda load: 1.0 if load > 1.15 else 0.2)
    assert (found.holds, found.breaks, len(found.outcomes)) == (None, found.choices[0], N_VALUES)
    assert [choice.text for choice in found.again] == ["1.2"]


def test_the_smallest_gpu_that_keeps_is_found_and_what_was_not_measured_is_no_failure() -> None:
    names = [model.name for model in by_size()]

    def planned(choices: Sequence[Choice]) -> list[PointOutcome]:
        unmeasured = PointOutcome((choices[0],), UNMEASURED, "physical", "", reason="no service profiles")
        return [unmeasured, *(outcome(one, 0.9 if one.text in names[3:] else 0.1) for one in choices[1:])]

    found = find(read_search("min:gpu", config()), CONDITIONS, planned)
    assert found.holds is not None
    assert found.holds.text == names[3]
    assert [choice.text for choice in found.unmeasured] == names[:1]
    assert found.not_shown == ()


POINT = (Choice("load", None, 0.5),)

PROVEN = PointOutcome(
    point=POINT,
    status="optimal",
    model="physical",
    engine="physical",
    arrivals=1000.0,
    goodput=800.0,
    bound=800.0,
    gap=0.0,
    claimed_bound=800.0,
    claimed_gap=0.0,
    tenants=(
        TenantOutcome("vision", 600.0, 540.0, 90.0, None, 99.0),
        TenantOutcome("my.text", 400.0, 260.0, 65.0, None, None),
    ),
    slo_attainment_pct=95.0,
)
CLAIMED = replace(PROVEN, bound=850.0, gap=50 / 850)
"""Its engine claims that it is the best; its certificate allows more."""

UNPROVEN = replace(PROVEN, bound=None, gap=None)
WITH_SALVAGE = replace(PROVEN, bound=1300.0, salvage=500.0, least_salvage=440.0)
NOTHING = PointOutcome(POINT, "timeout", "physical", "physical", arrivals=1000.0, reason="no plan within the budget")


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


UNREADABLE = [
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


@pytest.mark.parametrize(("text", "message"), UNREADABLE, ids=[text[:20] for text, _ in UNREADABLE])
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
        ("goodput>=0.8", PROVEN, Verdict.HOLDS),
        ("goodput>=0.81", PROVEN, Verdict.FAILS),
        ("goodput>=0.8", CLAIMED, Verdict.HOLDS),
        ("goodput>=0.84", CLAIMED, Verdict.NOT_SHOWN),
        ("goodput>=0.86", CLAIMED, Verdict.FAILS),
        ("goodput<=0.8", PROVEN, Verdict.HOLDS),
        ("goodput<=0.79", CLAIMED, Verdict.FAILS),
        ("goodput<=0.82", CLAIMED, Verdict.NOT_SHOWN),
        ("goodput<=0.85", CLAIMED, Verdict.HOLDS),
        ("slo_attainment>=0.95", CLAIMED, Verdict.HOLDS),
        ("slo_attainment>=0.96", PROVEN, Verdict.FAILS),
        ("slo_attainment>=0.96", CLAIMED, Verdict.NOT_SHOWN),
        ("slo_attainment:vision<=0.99", CLAIMED, Verdict.HOLDS),
        ("goodput:my.text>=0.7", PROVEN, Verdict.FAILS),
        ("goodput:my.text>=0.7", CLAIMED, Verdict.NOT_SHOWN),
        ("slo_attainment:my.text>=0.1", PROVEN, Verdict.NOT_SHOWN),
        ("goodput>=0.84", WITH_SALVAGE, Verdict.NOT_SHOWN),
        ("goodput>=0.87", WITH_SALVAGE, Verdict.FAILS),
        ("goodput<=0.82", WITH_SALVAGE, Verdict.NOT_SHOWN),
        ("goodput<=0.86", WITH_SALVAGE, Verdict.HOLDS),
        ("slo_attainment>=0.96", WITH_SALVAGE, Verdict.FAILS),
        ("goodput>=0.8", UNPROVEN, Verdict.HOLDS),
        ("goodput>=0.81", UNPROVEN, Verdict.NOT_SHOWN),
        ("goodput<=0.8", UNPROVEN, Verdict.NOT_SHOWN),
        ("goodput<=0.79", UNPROVEN, Verdict.FAILS),
        ("slo_attainment>=0.96", UNPROVEN, Verdict.NOT_SHOWN),
        ("goodput>=0", NOTHING, Verdict.NOT_SHOWN),
        ("goodput>=0", replace(NOTHING, status="infeasible"), Verdict.FAILS),
        ("goodput>=0", replace(NOTHING, status="failed"), Verdict.NOT_SHOWN),
    ],
)
def test_a_condition_fails_only_where_that_is_shown(text: str, outcome: PointOutcome, verdict: Verdict) -> None:
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
    assert verdict_of(read_conditions(texts, ["vision"]), CLAIMED) is verdict
