"""The results page is what its figures write, and its figures are what simulating gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.paper import reproduce
from benchmarks.paper.experiments import EXPERIMENTS, MAIN
from benchmarks.paper.matches import CLASSES, matches_of, result_of, rows_of
from benchmarks.paper.statistics import results_in

DOCUMENT = json.loads(reproduce.RESULTS.read_text("utf-8"))
RESULTS = pd.concat(results_in(DOCUMENT).values()).dropna(subset="arrivals")
POLICIES = ("paris", "whole", "static")
MATCH = matches_of(MAIN)[0]


def test_the_figures_are_written_as_they_are_read() -> None:
    assert reproduce.RESULTS.read_text("utf-8") == reproduce.as_text(DOCUMENT)


def test_a_small_part_simulated_anew_gives_the_same_goodput() -> None:
    small = replace(MAIN, workloads=("w8",), policies=POLICIES)
    anew = json.loads(json.dumps(rows_of([result_of(match) for match in matches_of(small)])))
    (rows,) = (one["rows"] for one in DOCUMENT["experiments"] if one["name"] == "main")
    known = [row for policy in POLICIES for row in rows if row[:2] == [policy, "w8"]]
    columns = [DOCUMENT["columns"].index(name) for name in ("policy", "workload", "segment", "arrivals")]
    assert [[row[at] for at in columns] for row in anew] == [[row[at] for at in columns] for row in known]
    # Plans of the same worth may be others than when the page was made.
    goodput, arrivals = (DOCUMENT["columns"].index(name) for name in ("goodput", "arrivals"))
    lost = [100 * (one[goodput] - other[goodput]) / one[arrivals] for one, other in zip(known, anew, strict=True)]
    assert max(lost) <= 0.3
    assert sum(lost) / len(lost) <= 0.05


def test_every_account_adds_up_to_the_arrivals() -> None:
    assert RESULTS[list(CLASSES)].sum(axis=1).tolist() == pytest.approx(RESULTS["arrivals"].tolist(), abs=0.1)


def test_every_row_s_windows_add_up() -> None:
    arrivals = [sum(window[0] for window in windows) for windows in RESULTS["windows"]]
    assert arrivals == RESULTS["arrivals"].tolist()


def test_a_short_run_has_no_long_experiment_and_without_traces_none_that_needs_them() -> None:
    assert all(not one.is_long for one in reproduce.chosen(is_full=False, traces=None))
    assert not any(one.n_segments for one in reproduce.chosen(is_full=True, traces=None))
    assert any(one.n_segments for one in reproduce.chosen(is_full=False, traces=Path("counts.csv")))
    assert reproduce.chosen(is_full=True, traces=Path("counts.csv")) == list(EXPERIMENTS)


def test_some_sections_are_run_in_full_beside_the_first_table() -> None:
    names = [one.name for one in reproduce.chosen(is_full=False, traces=None, sections=["load", "foresight"])]
    assert [name for name in names if not name.startswith("load-")] == ["main", "foresight", "foresight-once"]
    assert len(names) > 3
    known = r"^lode: sections and studies are headline, bursts, twenty, retraining, main, .*, pre-initialisation$"
    with pytest.raises(ValueError, match=known):
        reproduce.chosen(is_full=True, traces=None, sections=["lode"])
