"""Rows of the comparison of forecasters in runs, from results that are made up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.online import HISTORY, KNOWN, LOSSES, REFERENCE, STATIC, arms, rows_of, tables_of
from benchmarks.paper.matches import key_of, matches_of
from forecaster.neural import Learned, Recipe
from tests.fitted import fitted_folder


def result(workload: str, *pct: float, segment: int = 0) -> dict[str, Any]:
    windows = [[1000, round(10 * one)] for one in pct]
    correct = sum(right for _, right in windows)
    return {
        "workload": workload,
        "segment": segment,
        "windows": windows,
        "arrivals": 1000 * len(pct),
        "correct": correct,
        "changes": 3,
        "seconds": {"one": {name: [10.0 * place, 0.0] for place, name in enumerate(LOSSES)}},
    }


RESULTS = {
    STATIC: [result("w1", 70, 70), result("w2", 60, 60)],
    REFERENCE: [result("w1", 72, 68), result("w2", 64, 64)],
    "window, every 5 s": [result("w1", 72, 72), result("w2", 58, 56)],
    f"{KNOWN}, once": [result("w1", 76, 76), result("w2", 66, 66)],
}


def rows() -> dict[str, Any]:
    return {row.label: row for row in rows_of(RESULTS, block=1)}


def test_workloads_count_alike() -> None:
    assert {label: row.goodput_pct for label, row in rows().items()} == {
        STATIC: pytest.approx(65.0),
        REFERENCE: pytest.approx(67.0),
        "window, every 5 s": pytest.approx(64.5),
        f"{KNOWN}, once": pytest.approx(71.0),
    }


def test_the_gap_is_from_the_better_reference_to_plans_that_know_the_arrivals() -> None:
    closed = {label: row.gap_closed_pct for label, row in rows().items()}
    assert closed[REFERENCE] == pytest.approx(0.0)
    assert closed[f"{KNOWN}, once"] == pytest.approx(100.0)
    assert closed["window, every 5 s"] == pytest.approx(-62.5)


def test_of_a_small_gap_no_share_is_told() -> None:
    near = {**RESULTS, f"{KNOWN}, once": [result("w1", 71, 71), result("w2", 64, 64)]}
    assert {row.gap_closed_pct for row in rows_of(near, block=1)} == {None}


def test_a_few_windows_show_no_interval() -> None:
    assert math.isnan(rows()["window, every 5 s"].against[STATIC].points.low)
    many = {label: [result("w1", *(7 * [50.0 + k]), 51.0)] for k, label in enumerate((STATIC, REFERENCE))}
    ahead = rows_of(many, block=2)[1].against[STATIC].points
    assert ahead.mean == pytest.approx(0.875)
    assert ahead.low < ahead.mean < ahead.high


def test_runs_far_below_static_are_counted_and_the_worst_is_told() -> None:
    found = rows()["window, every 5 s"]
    assert (found.against[STATIC].n_below, found.n_runs) == (1, 2)
    assert (found.against[STATIC].worst, found.against[STATIC].points.mean) == pytest.approx((-3.0, -0.5))
    assert not rows()[STATIC].against


def test_every_rival_that_was_run_is_told_and_where_requests_went() -> None:
    with_history = {**RESULTS, HISTORY: [result("w1", 73, 73), result("w2", 56, 56)]}
    found = {row.label: row for row in rows_of(with_history, block=1)}["window, every 5 s"]
    assert {name: (one.n_below, one.worst) for name, one in found.against.items()} == {
        STATIC: (1, pytest.approx(-3.0)),
        HISTORY: (0, pytest.approx(-1.0)),
    }
    assert list(found.losses_pct.values()) == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert [table.row_count for table in tables_of(rows_of(with_history, block=1))] == [5, 5, 5]


def test_a_run_that_one_arm_has_no_plan_for_counts_for_none() -> None:
    failing = {**RESULTS, REFERENCE: [RESULTS[REFERENCE][0], {"workload": "w2", "segment": 0, "error": "none"}]}
    assert {row.n_runs for row in rows_of(failing, block=1)} == {1}


def test_each_forecaster_plans_once_and_anew_from_the_same_requests() -> None:
    compared = arms(["ewma"], 10.0)
    assert [arm.label for arm in compared][3:5] == [REFERENCE, "ewma, every 10 s"]
    matches = [match for arm in compared for match in matches_of(arm.experiment(["w8"], 1, 0, 0))]
    assert len({str(match.config.tenants) for match in matches}) == 1
    assert [match.config.planner.replan_every_s for match in matches] == ["never"] * 4 + [10.0, "never", 10.0]
    assert [match.config.forecast.method for match in matches] == ["ewma"] * 5 + [KNOWN] * 2


def test_a_fitted_network_plans_once_and_is_named_by_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fitted_folder(tmp_path / name, Recipe("informer"), (), monkeypatch) for name in ("a", "b")]
    (*_, arm, _, _) = arms([], 10.0, [Learned(folders[0])])
    assert (arm.label, arm.policy, arm.every_s) == ("informer, once", "migrator", None)
    assert dict(arm.forecast) == {"method": "informer", "model": str(folders[0])}
    both = arms([], 10.0, [Learned(folder) for folder in folders])
    assert [one.label for one in both][3:5] == [f"informer ({folder}), once" for folder in folders]


def test_the_kept_result_of_a_fitted_network_is_of_its_fit_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fitted_folder(tmp_path / name, Recipe("informer"), (), monkeypatch) for name in ("a", "b")]

    def keys() -> list[str]:
        compared = arms([], 10.0, [Learned(folder) for folder in folders])[3:5]
        return [key_of(match) for arm in compared for match in matches_of(arm.experiment(["w8"], 1, 0, 0))]

    before = keys()
    assert before[0] == before[1]
    facts = json.loads((folders[0] / "model.json").read_text())
    (folders[0] / "model.json").write_text(json.dumps({**facts, "n_updates": 2}))
    after = keys()
    assert after[0] != before[0]
    assert after[1] == before[1]
