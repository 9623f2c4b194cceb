"""The page of a grid of plans: a curve a tenant, the figures of the table, and nothing unknown drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from migrator.log.records import Assumed
from migrator.views.page import INK
from migrator.views.palette import PAGE_TENANTS
from migrator.views.whatif_page import MOST_FACETS, sweep_to_html
from migrator.whatif.confirm import Confirmed, KeptShare, Trial
from migrator.whatif.search import UNMEASURED, Verdict
from migrator.whatif.sweep import PointOutcome, Sweep
from tests.migrator.views.pages import data_in, looks_of_lines, plot
from tests.migrator.views.sweeps import searched, sweep


def curves(found: Sweep, name: str) -> dict[str, dict[str, Any]]:
    """The traces of a panel by their names."""
    return {mark["name"]: mark for mark in plot(sweep_to_html(found), name)[0]}


def test_the_first_key_lies_along_x_and_every_tenant_has_a_curve_in_its_colour() -> None:
    found = sweep("load=0.7,0.5,0.6")
    in_time, right = (curves(found, f"{metric}-0") for metric in ("slo_attainment", "goodput"))
    assert list(in_time) == ["all", "a", "b", "no plan"]
    assert [in_time[name]["line"]["color"] for name in ("all", "a", "b")] == [INK, *PAGE_TENANTS[:2]]
    assert in_time["all"]["x"] == in_time["a"]["x"] == [0.5, 0.6]
    assert [in_time[name]["y"] for name in ("all", "a", "b")] == [[61.5] * 2, [71.0] * 2, [33.0] * 2]
    assert right["all"]["y"] == [50.0, 50.5]
    assert right["a"]["y"] == pytest.approx([100 * 90 / 150, 100 * 91 / 150])
    assert right["b"]["y"] == [20.0, 20.0]


def test_axes_have_their_zero() -> None:
    assert all(
        figure["layout"]["yaxis"]["range"][0] == 0 for figure in data_in(sweep_to_html(sweep("load=1,2"))).values()
    )


def test_gap_and_solve_time_stand_in_the_table_and_in_no_figure() -> None:
    text = sweep_to_html(sweep("load=0.7,0.5"))
    titles = [figure["title"] for figure in data_in(text).values()]
    assert titles == ["in time, % of arrivals", "in time and right, % of arrivals"]
    heads = re.findall(r"<th[^>]*>(.*?)</th>", text)
    assert {"gap %", "claimed gap %", "solve s", "a: in time %", "b: share %"} <= set(heads)
    assert "<td>20.000</td>" in text  # gap
    assert "<td>1.50</td>" in text  # solve time


def test_every_other_value_has_panels_of_its_own() -> None:
    text = sweep_to_html(sweep("window=0", "load=1,2", "slo_ms=x1,x2", "tenants=1,2"))
    titles = [figure["title"] for figure in data_in(text).values()]
    assert titles[::2] == [
        f"in time, % of arrivals; slo_ms=x{slo}, tenants={tenants}" for slo in (1, 2) for tenants in (1, 2)
    ]
    assert "window=0" in text  # in the text above
    assert "more combinations" not in text


def test_more_panels_than_can_be_looked_at_are_left_to_the_table() -> None:
    text = sweep_to_html(sweep("load=1,2", f"slo_ms={','.join(f'x{n}' for n in range(1, MOST_FACETS + 4))}"))
    assert len(data_in(text)) == 2 * MOST_FACETS
    assert "3 more combinations are not drawn; the table has them." in text


def test_the_page_marks_where_there_is_no_plan_and_says_why() -> None:
    cross = curves(sweep("engine=greedy,physical"), "goodput-0")["no plan"]
    assert (cross["x"], cross["y"]) == (["greedy"], [0.0])
    assert "no profile &lt;meets&gt; [it]" in str(cross["hovertext"])


def test_what_was_not_measured_is_no_failure_and_is_told() -> None:
    found = sweep("gpu=a100-80gb,h100-80gb,a30-24gb")
    unmeasured = PointOutcome(found.outcomes[2].point, UNMEASURED, "physical", "", reason="no rows <there>")
    text = sweep_to_html(replace(found, outcomes=(*found.outcomes[:2], unmeasured)))
    crosses = [mark for mark in plot(text, "goodput-0")[0] if mark["name"] == "no plan"]
    assert [mark["x"] for mark in crosses] == [["a100-80gb"]]
    assert "Not measured, and not drawn: gpu=a30-24gb: no rows &lt;there&gt;" in text
    assert "Not measured" not in sweep_to_html(found)


def test_a_goal_is_a_line_in_the_colour_of_whose_it_is_and_says_what_it_is() -> None:
    text = sweep_to_html(*searched("slo_attainment>=0.6", "slo_attainment:b<=0.95", "goodput:a>=0.5"))
    _, in_time = plot(text, "slo_attainment-0")
    assert [(line["y0"], line["y1"], line["line"]["color"]) for line in in_time["shapes"]] == [
        (60, 60, INK),
        (95, 95, PAGE_TENANTS[1]),
    ]
    assert looks_of_lines(in_time) == [(1.5, 1), (1.5, 1)]
    labels = [(label["text"], label["yanchor"]) for label in in_time["annotations"]]
    assert labels == [("goal: all ≥ 60 %", "bottom"), ("goal: b ≤ 95 %", "top")]
    assert [label["text"] for label in plot(text, "goodput-0")[1]["annotations"]] == ["goal: a ≥ 50 %"]


def test_goals_of_one_share_are_one_line() -> None:
    text = sweep_to_html(*searched("goodput:a>=0.5", "goodput:b>=0.5"))
    _, layout = plot(text, "goodput-0")
    assert [label["text"] for label in layout["annotations"]] == ["goal: a ≥ 50 % and b ≥ 50 %"]
    assert len(layout["shapes"]) == 1


def test_the_question_and_its_answer_stand_on_top() -> None:
    grid, found = searched("slo_attainment>=0.6", "goodput:a>=0.5")
    kept = "slo_attainment&gt;=0.6 and goodput:a&gt;=0.5"
    promised = f"Plans promise {kept} at no load"
    text = sweep_to_html(grid, found)
    assert f"Which is the largest load that keeps {kept}?" in text
    assert (promised in text, "nothing was run" in text) == (True, True)
    trial = Trial(found.choices[0], (1, 2, 3), (KeptShare(0.7, 0.01), KeptShare(0.6, 0.01)), Verdict.HOLDS)
    text = sweep_to_html(grid, found, Confirmed(found.choices[0], (trial,), (1, 2, 3), trial, None))
    simulated = f"The largest load that keeps {kept}, simulated: 1"
    assert (simulated in text, promised in text, "nothing was run" in text) == (True, True, False)


def test_without_a_goal_the_best_point_and_the_tenant_with_least_stand_on_top() -> None:
    text = sweep_to_html(sweep("load=1,2,3"))
    assert "What do plans promise at load=1,2,3?" in text
    assert "Plans promise the largest share in time and right at load=3: 50.50 %" in text
    assert "The least in time: b, 33.00 % at load=2" in text


def test_a_grid_of_one_point_and_no_plan_makes_a_page() -> None:
    text = sweep_to_html(sweep("load=1"))
    assert "No point has a plan." in text
    assert [mark["name"] for mark in plot(text, "goodput-0")[0]] == ["all", "no plan"]


def test_the_page_needs_no_network_and_is_the_same_again() -> None:
    page = sweep_to_html(sweep("load=1,2"))
    assert re.findall(r"<(?:script|link)[^>]*(?:src|href)=", page) == []
    assert page == sweep_to_html(sweep("load=1,2"))


def test_the_page_lists_what_was_assumed() -> None:
    item = Assumed("b", "worker <start>", {"1g": 1.5}, "s", "them")
    grid = sweep("load=0.5,0.7")
    text = sweep_to_html(replace(grid, outcomes=(replace(grid.outcomes[0], assumed=(item,)), *grid.outcomes[1:])))
    assert "b: worker &lt;start&gt;" in text
    assert "1g 1.5" in text
    assert "Assumed, neither" not in sweep_to_html(grid)
