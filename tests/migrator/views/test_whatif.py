from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from migrator.config.reading import validate_config
from migrator.views.whatif import answer_lines, print_sweep
from migrator.whatif.grid import Grid, Variation
from migrator.whatif.search import Condition, Found, Verdict, by_size, read_search
from migrator.whatif.sweep import Sweep
from tests.migrator.conftest import SMALL
from tests.migrator.views.sweeps import REASON, planned, sweep


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
        "61.50",
        "20.000",
        "0.000",
        "1.50",
        "60.00",
        "71.00",
        "2g.10gb@2",
        "3–9",
        "20.00",
        "33.00",
        "–",
    ]


def test_salvage_has_a_column_where_plans_count_it() -> None:
    found = sweep("load=0.5,0.7")
    told = text(replace(found, outcomes=(found.outcomes[0], replace(found.outcomes[1], salvage=25.0))), 140)
    (row,) = [line for line in told.splitlines() if line.strip().startswith("0.7")]
    assert row.split()[2:5] == ["100", "50.00", "25"]
    assert (
        "gap: to what no plan exceeds by the certificate, salvage counted, claimed: by the engine's word"
        in " ".join(told.split())
    )


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
    assert ("retrains: where" in " ".join(told.split())) == has_retraining
    assert max(map(len, told.splitlines())) <= width
    assert ("2g.10gb@2" in told, "60.00" in told) == (has_retraining, has_tenants)
    assert all(figure in told for figure in ("0.7", "12", "50.00", "20.000", "1.50"))
    assert ("left out for want of width" in " ".join(told.split())) == (not has_retraining)


def test_tenants_that_some_points_lack_leave_cells_empty() -> None:
    found = sweep("tenants=1,2,3")
    fewer = replace(found.outcomes[1], tenants=found.outcomes[1].tenants[:1])
    row = next(
        line
        for line in text(replace(found, outcomes=(found.outcomes[0], fewer, found.outcomes[2])), 140).splitlines()
        if line.strip().startswith("2")
    )
    assert row.split()[-4:] == ["60.00", "71.00", "2g.10gb@2", "3–9"]


KEEP = (Condition("goodput", None, ">=", 0.5),)


def found(search: str, *verdicts: str, gap: float = 0.2) -> Found:
    """A search over as many values as there are verdicts, with plans that are not proven best."""
    config = validate_config({**SMALL, "load": 0.7}, "small.yaml")
    choices = read_search(search, config).choices[: len(verdicts)]
    outcomes = tuple(replace(planned((choice,), 100.0), gap=gap) for choice in choices)
    return Found(read_search(search, config), KEEP, outcomes, tuple(map(Verdict, verdicts)))


@pytest.mark.parametrize(
    ("verdicts", "lines"),
    [
        (
            ["holds", "holds", "fails"],
            [
                "Plans promise goodput>=0.5 up to load 0.2",
                "  the smallest where they do not: 0.3, fails",
            ],
        ),
        (
            ["holds", "not shown", "fails"],
            [
                "Plans promise goodput>=0.5 up to load 0.1",
                "  the smallest where they do not: 0.2, not shown to fail (proven within 20.00 % of the best)",
                "  the smallest that is shown to fail: 0.3",
                "  not shown: 0.2; a larger planner.max_schedules may show more",
            ],
        ),
        (
            ["holds", "fails", "holds"],
            [
                "Plans promise goodput>=0.5 up to load 0.1",
                "  the smallest where they do not: 0.2, fails",
                "  beyond that it holds again at 0.3: it is no simple limit",
            ],
        ),
        (
            ["holds", "not shown", "not shown", "not shown", "not shown"],
            [
                "Plans promise goodput>=0.5 up to load 0.1",
                "  the smallest where they do not: 0.2, not shown to fail (proven within 20.00 % of the best)",
                "  not shown: 4 values from 0.2 to 0.5; a larger planner.max_schedules may show more",
            ],
        ),
        (
            ["fails", "fails"],
            [
                "Plans promise goodput>=0.5 at no load up to the first where they do not, the smallest tried",
                "  the smallest where they do not: 0.1, fails",
            ],
        ),
        (
            ["holds", "holds"],
            [
                "Plans promise goodput>=0.5 up to load 0.2",
                "  at every value up to the largest tried, so that the limit lies beyond",
            ],
        ),
    ],
)
def test_an_answer_says_both_ends_and_what_is_not_shown(verdicts: list[str], lines: list[str]) -> None:
    assert list(answer_lines(found("max:load", *verdicts))) == lines


def test_the_answer_for_gpus_names_the_smaller_ones_that_do_not() -> None:
    names = [model.name for model in by_size()]
    first, *rest = answer_lines(found("min:gpu", "fails", "not shown", "holds"))
    assert first == f"Plans promise goodput>=0.5 on the smallest GPU: {names[2]}"
    assert rest == [f"  smaller ones: {names[0]} fails, {names[1]} not shown"]


def test_a_search_s_table_says_of_every_value_whether_it_keeps() -> None:
    answer = found("max:load", "holds", "fails")
    grid = Grid((Variation(answer.choices),))
    console = Console(file=io.StringIO(), width=140)
    print_sweep(Sweep("a name", "ewma", grid, answer.outcomes), console, answer)
    assert isinstance(console.file, io.StringIO)
    rows = [line.split()[:2] for line in console.file.getvalue().splitlines() if "feasible" in line]
    assert rows == [["0.1", "holds"], ["0.2", "fails"]]
