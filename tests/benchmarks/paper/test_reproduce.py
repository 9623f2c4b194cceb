"""The results page is what its figures write, and its figures are what simulating gives."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.paper import reproduce
from benchmarks.paper.experiments import EXPERIMENTS, MAIN
from benchmarks.paper.matches import CLASSES, COLUMNS, matches_of, result_of, rows_of, versions
from benchmarks.paper.page import with_headline
from benchmarks.paper.statistics import results_in
from migrator.comparison.matches import CEILING, Match
from migrator.log.account import SecondAccounts

Json = dict[str, Any]

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


def test_rows_that_join_a_table_are_beside_its_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(match: Match) -> Json:
        in_time = 10.0 if match.policy == CEILING else 6.0
        counts = dict.fromkeys(COLUMNS, 0) | {"windows": [], "has_partitions": True}
        second = {item.name: [0.0] for item in fields(SecondAccounts)}
        seconds = {"tenant": second | {"in_time": [in_time], "capacity": [10.0 - in_time]}}
        return {**counts, "policy": match.policy, "workload": match.config.name, "segment": 0, "seconds": seconds}

    monkeypatch.setattr(reproduce, "results_of", lambda matches: map(result, matches))
    host = replace(MAIN, workloads=("w8",), policies=("migrator", CEILING))
    joining = replace(host, name="joining", joins=host.name, policies=("migrator",))
    found = reproduce.document([host, joining], None, "make", [])
    losses = [COLUMNS.index(name) for name in ("capacity", "forecast")]
    shown = [[[row[0], *(row[at] for at in losses)] for row in one["rows"]] for one in found["experiments"]]
    assert shown == [[["migrator", 0.0, 4.0], [CEILING, 0.0, 0.0]], [["migrator", 0.0, 4.0]]]
    (made,) = found["made"]  # type: ignore[misc]
    assert made["versions"] == f"{versions()}, on {reproduce.processor()}"
    assert made["of"] == [host.name, joining.name]


def test_what_a_run_does_not_draw_stays_with_what_drew_it() -> None:
    names = ["main", "load-0.3"]
    drawn = {
        **DOCUMENT,
        "made": [{"command": "make", "commit": "c0ffee", "versions": "", "of": [*names, "planning"]}],
        "studies": {"planning": []},
        "experiments": [{"name": name, "rows": []} for name in names],
    }
    found = reproduce.merged(drawn, DOCUMENT)
    of = [name for one in found["made"] for name in one["of"]]
    every = [name for one in DOCUMENT["made"] for name in one["of"]]
    assert (found["made"][0], sorted(of)) == (drawn["made"][0], sorted(every))
    assert [one["name"] for one in found["experiments"]] == [one["name"] for one in DOCUMENT["experiments"]]
    assert [one["name"] for one in found["experiments"] if not one["rows"]] == names
    assert found["studies"] == {**DOCUMENT["studies"], "planning": []}
    assert reproduce.merged(drawn, {**DOCUMENT, "columns": []}) == drawn
    assert reproduce.merged(drawn, {}) == drawn


def test_every_figure_is_of_one_command() -> None:
    of = [name for one in DOCUMENT["made"] for name in one["of"]]
    assert sorted(of) == sorted([*(one["name"] for one in DOCUMENT["experiments"]), *DOCUMENT["studies"]])


@pytest.mark.parametrize("path", reproduce.SHOWING, ids=lambda path: path.name)
def test_the_first_table_is_what_was_drawn_wherever_it_is_shown(path: Path) -> None:
    text = path.read_text("utf-8")
    assert with_headline(text, DOCUMENT) == text


def test_a_short_run_has_fewer_windows_of_the_first_table() -> None:
    short = {one.name: one.windows for one in reproduce.chosen(is_full=False, traces=None)}
    full = {one.name: one.windows for one in reproduce.chosen(is_full=True, traces=None)}
    assert {name for name in short if short[name] != full[name]} == {name for name in full if "shipped" in name}


def test_nothing_is_written_where_a_page_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("RESULTS", "results.json"), ("PAGES", ""), ("PLOTS", "plots")):
        monkeypatch.setattr(reproduce, name, tmp_path / file)
    monkeypatch.setattr(reproduce, "document", lambda *_: DOCUMENT)
    monkeypatch.setattr(reproduce, "plots", lambda _: {"a.svg": "<a/>"})
    monkeypatch.setattr(reproduce, "pages", lambda _: {}["no such page"])
    with pytest.raises(KeyError):
        reproduce.main()
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_has_no_long_experiment_and_without_traces_none_that_needs_them() -> None:
    assert all(not one.is_long for one in reproduce.chosen(is_full=False, traces=None))
    assert not any(one.n_segments for one in reproduce.chosen(is_full=True, traces=None))
    assert any(one.n_segments for one in reproduce.chosen(is_full=False, traces=Path("counts.csv")))
    assert reproduce.chosen(is_full=True, traces=Path("counts.csv")) == list(EXPERIMENTS)


def test_some_sections_are_run_in_full_beside_the_first_table() -> None:
    names = [one.name for one in reproduce.chosen(is_full=False, traces=None, sections=["load", "foresight"])]
    others = ["retraining-given", "main", "foresight", "foresight-once"]
    assert [name for name in names if not name.startswith("load-")] == others
    assert len(names) > 3
    known = reproduce.chosen(is_full=False, traces=None, sections=["foresight"], known=["main", "retraining-given"])
    assert [one.name for one in known] == ["foresight", "foresight-once"]
    told = r"^lode: sections and studies are shipped, headline, bursts, twenty, .*, clusters, nine-systems$"
    with pytest.raises(ValueError, match=told):
        reproduce.chosen(is_full=True, traces=None, sections=["lode"])
