"""The planner benchmark's table, and the best values that it keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.speed import planner
from benchmarks.speed.planner import COLUMNS, BestKnown, Result, read_best_known, row, store
from benchmarks.speed.problems import Case, Target

RESULT = Result("random-0", "abc", 1.0, "optimal", 100.0, 100.0, 0.0, 0.01, (), 200.0)
KNOWN = {"random-0": BestKnown(value=100.0, bound=100.0, engine="exact", seconds=1.0, problem="abc")}


def cells(*results: Result, target: Target | None = None, known: dict[str, BestKnown] = KNOWN) -> list[str]:
    case = Case("name", "exact", "paper", 2, target or Target())
    return [cell.strip() for cell in row(case, results, known).strip("|").split("|")]


def verdict(*results: Result, target: Target) -> str:
    return cells(*results, target=target)[-1]


def test_a_row_has_the_headers_columns() -> None:
    assert len(cells(RESULT)) == len(COLUMNS)


def test_median_and_worst_stand_side_by_side() -> None:
    results = [replace(RESULT, seconds=s, claimed_gap=s / 100, objective=100.0 - s) for s in (1.0, 2.0, 6.0)]
    assert cells(*results)[4:9] == ["2.00 / 6.00", "98.00 / 94.00", "100.00", "2.000 / 6.000", "1.000 / 1.000"]


def test_a_value_known_of_another_problem_is_not_used() -> None:
    assert cells(replace(RESULT, fingerprint="def"))[5:7] == ["–", "–"]


def test_without_a_plan_there_is_no_figure() -> None:
    without = replace(RESULT, status="timeout", objective=None, claimed_bound=None, claimed_gap=None, gap=None)
    assert cells(without)[3:10] == ["0/1", "1.00 / 1.00", "–", "–", "–", "–", "0/1"]


def test_a_met_target_is_told() -> None:
    assert verdict(RESULT, target=Target(median_s=1.0, is_optimal=True)) == "claimed optimal, median ≤ 1 s; met"


def test_every_missed_target_is_told() -> None:
    target = Target(0.5, 0.5, is_optimal=True, median_gap=0.01, worst_gap=0.01, least_value=0.995, most_mib=100)
    result = replace(RESULT, status="feasible", objective=99.0, claimed_gap=0.02)
    missed = verdict(result, target=target).partition("missed: ")[2]
    assert missed == "median s, worst s, median claimed gap, worst claimed gap, MiB, value, claimed optimal"


def test_a_problem_without_a_plan_misses_gap_and_value() -> None:
    without = replace(RESULT, status="timeout", objective=None, claimed_bound=None, claimed_gap=None, gap=None)
    assert verdict(RESULT, RESULT, without, target=Target(worst_gap=0.5, least_value=0.5)).endswith(
        "missed: worst claimed gap, value"
    )


def test_plans_that_break_rules_are_told() -> None:
    broken = replace(RESULT, violations=("rule 1: overlap",))
    assert verdict(broken, target=Target()).endswith("1 plans break rules")


def test_without_a_target_the_time_is_compared() -> None:
    reference = ("fast", [replace(RESULT, seconds=0.5), replace(RESULT, label="random-1", seconds=9.0)])
    assert row(Case("slow", "paper-ilp", "paper", 2, Target()), [RESULT], KNOWN, reference).endswith(
        "| 2 × the time of fast |"
    )


STORED = BestKnown(value=100.0, bound=102.0, engine="physical", seconds=20.0, problem="abc")


@pytest.fixture
def _empty_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(planner, "BEST_KNOWN", tmp_path / "best_known.json")


@pytest.mark.usefixtures("_empty_file")
def test_without_a_file_nothing_is_known() -> None:
    assert read_best_known() == {}


@pytest.mark.usefixtures("_empty_file")
def test_what_is_stored_is_read_back() -> None:
    store("set", "random-10", STORED)
    store("set", "random-9", replace(STORED, value=90.0))
    store("set", "w1-0-90", STORED)
    store("set", "w1-0-10", STORED)
    store("other × 2", "trace-0", STORED)
    values = read_best_known()
    assert list(values["set"]) == ["random-9", "random-10", "w1-0-10", "w1-0-90"]
    assert values["set"]["random-9"] == replace(STORED, value=90.0)
    assert values["other × 2"] == {"trace-0": STORED}


@pytest.mark.usefixtures("_empty_file")
def test_a_worse_plan_can_still_lower_the_bound() -> None:
    store("set", "trace-0", STORED)
    store("set", "trace-0", replace(STORED, value=99.0, bound=101.0, engine="greedy"))
    assert read_best_known()["set"]["trace-0"] == replace(STORED, bound=101.0)


def test_a_better_plan_replaces_the_value_and_how_it_was_found() -> None:
    found = BestKnown(value=101.0, bound=110.0, engine="exact", seconds=3.0, problem="abc")
    assert STORED.with_found(found) == replace(found, bound=102.0)


def test_the_bound_is_never_below_the_value() -> None:
    found = replace(STORED, value=102.0 + 1e-9, bound=103.0)
    assert STORED.with_found(found).bound == found.value


def test_a_changed_problem_voids_what_was_known() -> None:
    found = BestKnown(value=1.0, bound=2.0, engine="exact", seconds=3.0, problem="def")
    assert STORED.with_found(found) == found


def test_a_time_beyond_the_limit_that_was_given_is_told_as_its_multiple() -> None:
    case = Case("hurried", "exact", "paper", 2, Target(worst_of_limit=1.2), time_limit_s=RESULT.seconds / 2)
    assert "missed: 2.00 × the limit" in row(case, [RESULT], KNOWN)


def test_without_a_best_known_value_the_runs_own_reference_is_the_measure() -> None:
    case = Case("hurried", "exact", "paper", 2, Target(least_value=0.95))
    reference = ("long", [replace(RESULT, objective=2 * (RESULT.objective or 1.0))])
    assert "missed: value" in row(case, [RESULT], {}, reference)
