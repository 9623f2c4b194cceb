"""Tables of the results page, from rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.paper.experiments import Experiment, Section, View
from benchmarks.paper.results import CLASSES, COUNTS
from benchmarks.paper.tables import common_workloads, gap_closed_pct, more_than, section_lines, shown_gap
from migrator.compare import Terms
from planner.policies.registry import MIG_POLICIES as POLICIES


def row(policy: str, workload: str, correct: int) -> dict[str, Any]:
    """Of 1000 requests, all in time."""
    counts = {**dict.fromkeys(COUNTS, 0), "arrivals": 1000, "in_time": 1000, "correct": correct}
    account = {**dict.fromkeys(CLASSES, 0.0), "goodput": float(correct), "wrong_old": 1000.0 - correct}
    places = {"policy": policy, "workload": workload, "segment": 0, "changes": 3, "windows_without_plan": 0}
    return {**counts, **account, **places, "windows": [[500, correct // 2], [500, correct - correct // 2]]}


def rows(**by_policy: tuple[int, int]) -> list[dict[str, Any]]:
    named = {name.replace("_", "-"): values for name, values in by_policy.items()}
    return [row(name, f"w{n}", value) for name, values in named.items() for n, value in enumerate(values, 1)]


MAIN_ROWS = rows(migrator=(800, 700), ekya=(500, 500), static=(700, 650), oracle=(850, 690))


def text(section: Section, results: dict[str, Any]) -> str:
    return "\n".join(section_lines(section, results))


def sweep(view: View, *experiments: Experiment) -> Section:
    return Section("name", "title", "text", experiments, view)


@pytest.mark.parametrize(("policy", "closed"), [("static", 0), ("oracle", 100), ("ours", 25)])
def test_the_gap_is_between_static_and_oracle(policy: str, closed: int) -> None:
    means = {"static": 70.0, "ours": 71.0, "oracle": 74.0}
    assert gap_closed_pct(means, policy) == pytest.approx(closed)
    assert shown_gap(means, policy) == str(closed)


def test_of_hardly_a_gap_nothing_is_closed() -> None:
    assert shown_gap({"static": 70.0, "ours": 71.0, "oracle": 70.05}, "ours") == ""


def test_who_gets_more_is_told_with_how_much() -> None:
    one = Experiment("one", "label")
    found, n_runs = more_than([one], {"one": MAIN_ROWS}, tuple(POLICIES), "oracle")
    assert [(item.policy, item.workload) for item in found] == [("migrator", "w2")]
    assert (found[0].points, found[0].relative_pct) == pytest.approx((1.0, 100 / 69))
    assert n_runs == 6  # migrator, static and oracle itself; ekya has no partitions


def test_gains_are_of_means_of_workloads() -> None:
    lines = text(sweep(View.TABLES, Experiment("one", "label")), {"one": MAIN_ROWS})
    assert "| `ekya` | 50.00 | 50.00 | 100.00 | 50.00 | -25.9 | -184 | +50.0 | 6 |" in lines


def test_published_terms_have_no_gap_to_close() -> None:
    lines = text(sweep(View.TABLES, Experiment("one", "label", terms=Terms.AS_PUBLISHED)), {"one": MAIN_ROWS})
    assert "gap closed" not in lines
    assert "over static" not in lines


def test_the_paper_s_figures_stand_beside_the_paper_s_own_method() -> None:
    found = text(
        sweep(View.TABLES, Experiment("one", "label")), {"one": [*MAIN_ROWS, *rows(migrator_paper=(600, 600))]}
    )
    assert "| `ekya` | 50.00 | 50.00 | 100.00 | 50.00 | -25.9 | -184 | +50.0 | +20.0 | +17 | 6 |" in found


def test_ties_are_of_the_mean_and_of_each_workload() -> None:
    experiments = (Experiment("low", "0", at=0.0), Experiment("high", "1", at=1.0))
    results = {"main": MAIN_ROWS, "low": rows(ekya=(900, 800)), "high": rows(ekya=(700, 750))}
    lines = text(sweep(View.TIES, *experiments), results)
    assert "| 0 | 85.00 (+10.00) |" in lines
    assert "| `ekya` | 0.80 | 0.50 | ahead |" in lines


def test_ties_are_of_the_workloads_that_all_have() -> None:
    experiments = (Experiment("low", "0", at=0.0), Experiment("high", "1", at=1.0))
    results = {"main": MAIN_ROWS, "low": rows(ekya=(900, 800)), "high": rows(ekya=(700, 750))[:1]}
    assert common_workloads(experiments, results) == ["w1"]
    assert "| `ekya` | 0.50 | 0.50 |" in text(sweep(View.TIES, *experiments), results)


def test_a_ranking_names_who_changes_places() -> None:
    one = Experiment("one", "draw 1")
    lines = text(
        sweep(View.RANKING, one),
        {"main": MAIN_ROWS, "one": rows(migrator=(800, 700), static=(400, 400), ekya=(500, 500), oracle=(850, 690))},
    )
    assert "Order in the first table: `oracle`, `migrator`, `static`, `ekya`." in lines
    assert "Draw 1: `ekya` before `static`." in lines


def test_differences_have_intervals() -> None:
    lines = text(sweep(View.WINDOWS, Experiment("one", "label")), {"one": MAIN_ROWS})
    assert "| `ekya` | -25.00 | [-25.00, -25.00] | 0 of 2 |" in lines


def test_an_experiment_that_was_not_run_is_left_out() -> None:
    experiments = (Experiment("one", "label"), Experiment("other", "other label"))
    assert "other label" not in text(sweep(View.SWEEP, *experiments), {"one": MAIN_ROWS})
