"""A grid of plans as a table, JSON, CSV and a page, from outcomes made by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from migrator.views.as_json import sweep_to_csv, sweep_to_json
from migrator.views.whatif import print_sweep
from migrator.views.whatif_live import GridView
from migrator.views.whatif_plot import sweep_to_html
from migrator.whatif.grid import Point, read_grid
from migrator.whatif.sweep import Outcome, PlannedRetraining, Sweep, TenantOutcome

REASON = "tenants.b: no profile <meets> [it]"


def planned(point: Point, goodput: float) -> Outcome:
    retraining = PlannedRetraining("full", "2g.10gb@2", 3, 9)
    return Outcome(
        point=point,
        status="feasible",
        model="physical",
        engine="physical",
        arrivals=200.0,
        goodput=goodput,
        bound=goodput * 1.25,
        gap=0.2,
        solve_s=1.5,
        tenants=(
            TenantOutcome("a", 150.0, goodput - 10.0, 100 * (goodput - 10) / 150, retraining),
            TenantOutcome("b", 50.0, 10.0, 20.0, None),
        ),
    )


def sweep(*vary: str) -> Sweep:
    """Every point planned, a little better each, except for the first, which has no plan."""
    grid = read_grid(vary)
    first, *others = grid.points
    planless = Outcome(first, "infeasible", "physical", "physical", reason=REASON)
    outcomes = [planned(point, 100.0 + n) for n, point in enumerate(others)]
    return Sweep("a name", "ewma", grid, (planless, *outcomes))


def text(found: Sweep, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_sweep(found, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_every_figure() -> None:
    lines = text(sweep("load=0.5,0.7", "engine=physical"), 140).splitlines()
    (row,) = [line for line in lines if line.strip().startswith("0.7")]
    assert row.split() == [
        "0.7",
        "physical",
        "feasible",
        "100",
        "50.00",
        "20.000",
        "1.50",
        "60.00",
        "2g.10gb@2",
        "3–9",
        "20.00",
        "–",
    ]


def test_the_table_says_why_there_is_no_plan_once() -> None:
    found = sweep("load=0.5,0.6,0.7")
    planless = [replace(found.outcomes[0], point=item.point) for item in found.outcomes[:2]]
    told = text(replace(found, outcomes=(*planless, found.outcomes[2])), 140)
    assert f"load=0.5 and 1 more: infeasible: {REASON}" in told
    assert told.count("tenants.b") == 1


@pytest.mark.parametrize(
    ("width", "has_retraining", "has_tenants"), [(140, True, True), (80, False, True), (60, False, False)]
)
def test_a_narrow_table_leaves_out_tenants_but_no_figure(width: int, has_retraining: bool, has_tenants: bool) -> None:
    told = text(sweep("load=0.5,0.7", "vision.slo_ms=12"), width)
    assert max(map(len, told.splitlines())) <= width
    assert ("2g.10gb@2" in told, "60.00" in told) == (has_retraining, has_tenants)
    assert all(figure in told for figure in ("0.7", "12", "50.00", "20.000", "1.50"))
    assert ("left out for want of width" in told) == (not has_retraining)


def test_tenants_that_some_points_lack_leave_cells_empty() -> None:
    found = sweep("tenants=1,2,3")
    fewer = replace(found.outcomes[1], tenants=found.outcomes[1].tenants[:1])
    row = next(
        line
        for line in text(replace(found, outcomes=(found.outcomes[0], fewer, found.outcomes[2])), 140).splitlines()
        if line.strip().startswith("2")
    )
    assert row.split()[-3:] == ["60.00", "2g.10gb@2", "3–9"]


def test_json_holds_numbers_as_numbers_and_factors_as_typed() -> None:
    found = json.loads(json.dumps(sweep_to_json(sweep("load=0.5,x2", "window=1", "engine=greedy"))))
    assert found["vary"] == [
        {"key": "load", "values": [0.5, "x2"]},
        {"key": "window", "values": [1]},
        {"key": "engine", "values": ["greedy"]},
    ]
    planless, some = found["results"]
    assert (planless["goodput"], planless["reason"], planless["tenants"]) == (None, REASON, {})
    assert some["values"] == {"load": "x2", "window": 1, "engine": "greedy"}
    assert (some["goodput"], some["goodput_pct"], some["gap"], some["bound"]) == (100.0, 50.0, 0.2, 125.0)
    assert some["tenants"]["a"]["retraining"] == {
        "option": "full",
        "where": "2g.10gb@2",
        "start_step": 3,
        "end_step": 9,
    }
    assert some["tenants"]["b"]["retraining"] is None


def test_csv_has_a_line_a_point_with_its_values_first() -> None:
    lines = sweep_to_csv(sweep("load=0.5,x2", "a.slo_ms=x1")).splitlines()
    assert lines[0].startswith(
        "load,a.slo_ms,status,model,engine,arrivals,goodput,goodput_pct,bound,gap,solve_s,reason,"
    )
    planless, some = csv.DictReader(lines)
    assert (planless["load"], planless["goodput"], planless["a.retraining"]) == ("0.5", "", "")
    assert (some["load"], some["a.slo_ms"], some["a.retraining"]) == ("x2", "x1", "2g.10gb@2 3-9")


def figure(found: Sweep) -> list[dict[str, object]]:
    """The marks of the page, as it hands them to its script."""
    data = re.search(r'Plotly\.newPlot\(\s*"whatif",\s*(\[.*?\]),\s*\{"', sweep_to_html(found), re.DOTALL)
    assert data is not None
    marks: list[dict[str, object]] = json.loads(data.group(1))
    return marks


def test_the_page_has_the_first_key_along_x_and_a_line_for_each_of_the_seconds() -> None:
    marks = figure(sweep("load=0.7,0.5", "slo_ms=x1,x2"))
    lines = [mark for mark in marks if mark["name"] != "no plan"]
    assert [(mark["name"], mark["mode"]) for mark in lines] == [("x1", "lines+markers")] * 3 + [
        ("x2", "lines+markers")
    ] * 3
    assert {tuple(mark["x"]) for mark in lines} == {(0.5, 0.7)}  # type: ignore[arg-type]
    assert lines[0]["y"] == [50.5, None]  # goodput, %
    assert lines[1]["y"] == [20.0, None]  # gap, %
    assert lines[2]["y"] == [1.5, None]  # solve time


def test_the_page_marks_where_there_is_no_plan_and_says_why() -> None:
    (cross,) = [mark for mark in figure(sweep("engine=greedy,physical")) if mark["name"] == "no plan"]
    assert cross["x"] == ["greedy"]
    assert "no profile &lt;meets&gt; [it]" in str(cross["hovertext"])


def test_a_third_key_makes_columns_and_keys_with_one_value_none() -> None:
    page = sweep_to_html(sweep("window=0", "load=1,2", "slo_ms=x1,x2", "tenants=1,2,3"))
    assert all(f'"text":"tenants={n}"' in page for n in (1, 2, 3))
    assert "window=0" in page  # in the title


def test_a_grid_of_one_point_and_no_plan_makes_a_page() -> None:
    assert "no plan" in sweep_to_html(sweep("load=1"))


def test_the_page_needs_no_network() -> None:
    page = sweep_to_html(sweep("load=1,2"))
    assert re.findall(r"<(?:script|link)[^>]*(?:src|href)=", page) == []
    assert page == sweep_to_html(sweep("load=1,2"))


def test_the_bar_counts_points_after_the_configs_and_keeps_the_best() -> None:
    console = Console(file=io.StringIO(), width=140, force_terminal=True)
    outcomes = sweep("load=1,2,3").outcomes
    with GridView(3, 2, console) as view:
        for n_done in (1, 2, 3):
            view.checking(n_done, 3)
        view.checked()
        (task,) = view._progress.tasks
        assert (task.completed, task.total, task.finished) == (0, 3, False)
        for outcome in (outcomes[2], outcomes[0], outcomes[1]):
            view.planned(outcome)
    assert (task.completed, task.finished) == (3, True)
    assert task.fields["best"] == "best 50.50 % at load=3"


def test_where_there_is_no_terminal_planning_is_announced_in_one_line() -> None:
    console = Console(file=io.StringIO(), width=80)
    with GridView(1, 1, console) as view:
        view.checking(1, 1)
        view.checked()
        view.planned(sweep("load=1,2").outcomes[1])
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "planning 1 point in one process\n"
