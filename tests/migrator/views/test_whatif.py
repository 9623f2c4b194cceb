from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from migrator.views.whatif import print_sweep
from migrator.whatif.sweep import Sweep
from tests.migrator.views.sweeps import REASON, sweep


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
