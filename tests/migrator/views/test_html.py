"""Pages made of scores and outcomes by hand: marks are the tables' figures, and nothing unknown is drawn."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from migrator.comparison.matches import Fairness, MatchScore, standings
from migrator.errors import MigratorError
from migrator.log.account import Account, SecondAccounts
from migrator.log.records import Assumed
from migrator.log.surprise import Surprise
from migrator.views import html as compare_plot
from migrator.views.html import comparison_to_html, sweep_to_html
from migrator.views.palette import LOSSES
from migrator.whatif.confirm import Confirmed, KeptShare, Trial
from migrator.whatif.search import UNMEASURED, Found, GoalSearch, Verdict, read_conditions, verdict_of
from migrator.whatif.sweep import PointOutcome, Sweep
from tests.migrator.views.pages import looks_of_lines, plot
from tests.migrator.views.sweeps import sweep
from workloads.serving.tally import Totals

CLASSES = tuple(item.name for item in fields(Account))
NOTE = ("trace", "bert: made <up>")


def score(
    policy: str, goodput: int, workload: str = "w1", segment: int = 0, notes: Sequence[tuple[str, str]] = ()
) -> MatchScore:
    """Of 1,000 arrivals so many in time and right, 100 wrong, 20 lost to changes, 10 to queues, others to capacity."""
    named = {"goodput": goodput, "wrong_old": 60, "wrong_new": 40, "reconfiguration": 20, "queueing": 10, "forecast": 0}
    counts = {"arrivals": 1000, "in_time": goodput + 100, "capacity": 870 - goodput, **named}
    account = SecondAccounts(**{name: np.array([float(value)]) for name, value in counts.items()})
    totals = Totals(arrivals=1000, in_time=goodput + 100, dropped=900 - goodput, correct=goodput)
    return MatchScore(policy, workload, segment, (totals,), {"bert": account}, 2, 0, tuple(notes))


SCORES = (
    *(score(policy, goodput) for policy, goodput in (("migrator", 650), ("static", 600), ("oracle", 700))),
    *(score(policy, goodput, "w2") for policy, goodput in (("migrator", 500), ("static", 500), ("oracle", 500))),
)


def page(scores: Sequence[MatchScore], fairness: Fairness = Fairness.POLICY_ONLY) -> str:
    return comparison_to_html(scores, fairness)


def marks(scores: Sequence[MatchScore], name: str) -> list[dict[str, Any]]:
    return plot(page(scores), name)[0]


# --- where the arrivals go


def test_every_class_of_an_account_has_a_colour_and_a_meaning() -> None:
    assert tuple(compare_plot._CLASSES) == tuple(LOSSES) == CLASSES


def test_there_is_a_panel_for_all_workloads_then_one_for_each() -> None:
    panels = [mark["yaxis"] for mark in marks(SCORES, "account")]
    assert panels == [axis for axis in ("y", "y2", "y3") for _ in CLASSES]
    places = [page(SCORES).index(f'"text":"{title}"') for title in ("all 2 workloads", "w1", "w2")]
    assert places == sorted(places)


@pytest.mark.parametrize("scores", [SCORES, SCORES[:3]])
def test_every_bar_adds_up_to_100(scores: Sequence[MatchScore]) -> None:
    found = marks(scores, "account")
    for panel in {mark["yaxis"] for mark in found}:
        widths = np.array([mark["x"] for mark in found if mark["yaxis"] == panel])
        assert widths.sum(axis=0) == pytest.approx([100.0] * 3)


def test_bars_are_the_shares_of_the_standings() -> None:
    found = marks(SCORES[:3], "account")
    for mark, name in zip(found, CLASSES, strict=True):
        assert mark["y"] == ["migrator", "static", "arrivals known"]
        assert mark["x"] == pytest.approx([100 * item.account.shares[name] for item in standings(SCORES[:3])])


def test_a_class_has_one_colour_in_all_panels_and_one_place_in_the_legend() -> None:
    found = [mark for mark in marks(SCORES, "account") if mark["name"] == "wrong old"]
    assert {mark["marker"]["color"] for mark in found} == {LOSSES["wrong_old"]}
    assert [mark["showlegend"] for mark in found] == [True, False, False]


def test_a_legend_of_four_rows_leaves_room_for_the_first_panel_s_title() -> None:
    _, layout = plot(page(SCORES), "account")
    row_px, title_px = 19, 30
    assert layout["margin"]["t"] >= 4 * row_px + title_px


# --- goodput


def test_goodput_has_a_row_for_each_policy_with_its_figure_and_a_mark_for_each_group() -> None:
    found = marks(SCORES, "goodput")
    assert [mark["name"] for mark in found] == [name for name in ("migrator", "static", "arrivals known") for _ in "ab"]
    each, overall = found[:2]
    assert (overall["x"], each["x"]) == (pytest.approx([57.5]), pytest.approx([65.0, 50.0]))
    assert (overall["y"], each["y"]) == (["migrator"], ["migrator"] * 2)
    assert each["marker"]["symbol"] == overall["marker"]["symbol"] + "-open"
    assert '"ticktext":["migrator  57.5","static  55.0","arrivals known  60.0"]' in page(SCORES)


def test_the_goodput_axis_holds_all_marks_and_little_more() -> None:
    (low, high), *_ = (json.loads(found) for found in re.findall(r'"range":(\[4[^\]]*\])', page(SCORES)))
    assert 45 < low < 50
    assert 70 < high < 75


def test_policies_beyond_the_colours_differ_by_their_marks() -> None:
    found = marks([score(f"p{n}", 500) for n in range(20)], "goodput")
    looks = [(mark["marker"]["color"], mark["marker"]["symbol"]) for mark in found if mark["x"]]
    assert len(set(looks)) == len(looks) == 20


def test_an_interval_is_told_where_there_is_one() -> None:
    few = [score(policy, 500 + 10 * k, segment=k) for policy in ("a", "b") for k in range(4)]
    many = [score(policy, 500 + 10 * k, segment=k) for policy in ("a", "b") for k in range(5)]
    assert [marks(scores, "goodput")[-1]["hovertext"][0].split("<br>")[-1] for scores in (few, many)] == [
        "ahead of a +0.00 points",
        "ahead of a +0.00 points [+0.00, +0.00]",
    ]


def test_without_arrivals_there_is_no_goodput() -> None:
    silent = MatchScore("migrator", "w", 0, (Totals(),), {}, 0, 0)
    assert [mark["x"] for mark in marks([silent], "goodput")] == [[], []]
    assert '"ticktext":["migrator  \\u2013"]' in page([silent])


# --- the gap


def test_the_gap_closed_is_drawn_over_all_and_for_each_workload_that_has_one() -> None:
    overall, each = marks(SCORES, "gap")
    assert (overall["y"], overall["x"]) == (["migrator", "static", "arrivals known"], pytest.approx([50.0, 0.0, 100.0]))
    assert (each["y"], each["x"]) == (["migrator", "static", "arrivals known"], pytest.approx([50.0, 0.0, 100.0]))
    assert "w2" not in str(each["hovertext"])
    assert looks_of_lines(plot(page(SCORES), "gap")[1]) == [(1, 1), (1, 1)]


def test_texts_name_a_policy_as_bars_do() -> None:
    text = page(SCORES)
    assert "<b>forecast</b>: missed, but answered with the arrivals known;" in text
    assert "arrivals known (100: policy oracle)" in text


def test_a_gap_that_is_not_there_is_not_drawn() -> None:
    found = page([score("migrator", 650), score("static", 600)])
    assert ('id="goodput"' in found, 'id="gap"' in found) == (True, False)
    assert "needs both static and oracle" in found


def test_far_below_the_floor_is_told_beside_the_name() -> None:
    found = page([score("equal", 100), score("static", 600), score("oracle", 700)])
    assert '"ticktext":["equal  -500","static  0","arrivals known  100"]' in found
    assert '"range":[-105.0,105.0]' in found


# --- the page


def test_the_page_says_that_it_was_simulated_and_on_what_terms() -> None:
    found = [page(SCORES[:3], fairness) for fairness in Fairness]
    assert all("<b>Simulated</b>" in one for one in found)
    assert ["Policy only:" in one for one in found] == [True, False]


def test_the_page_says_what_was_not_measured_once_with_its_workloads() -> None:
    scores = [score(policy, 500, workload, notes=[NOTE]) for workload in ("w1", "w2") for policy in ("a", "b")]
    assert page(scores).count("<li>w1, w2: trace: bert: made &lt;up&gt;</li>") == 1


def test_the_page_says_how_much_was_simulated() -> None:
    found = page([score(policy, 500, segment=k) for k in range(3) for policy in ("a", "b")])
    assert "<b>w1</b>: 3 segments of 1 window, 3,000 requests" in found


def test_the_page_names_files_and_not_where_they_lie_on_this_machine() -> None:
    noted = score("migrator", 500, notes=[("trace", "bert: /home/me/my traces/a.csv is made up, 3/4 of it")])
    text = page([replace(noted, setup=(("profiles", "/srv/data/mine.csv; A100"),))])
    assert "trace: bert: " in text
    assert "profiles: mine.csv; A100" in text
    assert "/srv/data" not in text
    assert "3/4 of it" in text


def test_names_are_told_as_they_are_written() -> None:
    found = page([score("<b>mine</b>", 500, "<i>w</i>")])
    assert "<i>w</i>" not in found
    assert "<b>&lt;i&gt;w&lt;/i&gt;</b>" in found


def test_the_page_needs_no_network_and_is_the_same_again() -> None:
    found = page(SCORES)
    assert re.findall(r"<(?:script|link)[^>]*(?:src|href)=", found) == []
    assert found == page(SCORES)


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MigratorError, match=r"pip install '.*\[plot\]'"):
        page(SCORES)


# --- a grid of plans


def figure(found: Sweep) -> list[dict[str, Any]]:
    return plot(sweep_to_html(found), "grid")[0]


def test_the_page_has_the_first_key_along_x_and_a_line_for_each_of_the_seconds() -> None:
    marks = figure(sweep("load=0.7,0.5", "slo_ms=x1,x2"))
    lines = [mark for mark in marks if mark["name"] != "no plan"]
    assert [(mark["name"], mark["mode"]) for mark in lines] == [("x1", "lines+markers")] * 4 + [
        ("x2", "lines+markers")
    ] * 4
    assert {tuple(mark["x"]) for mark in lines} == {(0.5, 0.7)}
    assert lines[0]["y"] == [50.5, None]  # goodput, %
    assert lines[1]["y"] == [61.5, None]  # planned in time, %
    assert lines[2]["y"] == [20.0, None]  # gap, %
    assert lines[3]["y"] == [1.5, None]  # solve time


def test_the_page_marks_where_there_is_no_plan_and_says_why() -> None:
    (cross,) = [mark for mark in figure(sweep("engine=greedy,physical")) if mark["name"] == "no plan"]
    assert cross["x"] == ["greedy"]
    assert "no profile &lt;meets&gt; [it]" in str(cross["hovertext"])


def test_what_was_not_measured_is_no_failure_and_is_told() -> None:
    found = sweep("gpu=a100-80gb,h100-80gb,a30-24gb")
    unmeasured = PointOutcome(found.outcomes[2].point, UNMEASURED, "physical", "", reason="no rows <there>")
    text = sweep_to_html(replace(found, outcomes=(*found.outcomes[:2], unmeasured)))
    assert [mark["x"] for mark in plot(text, "grid")[0] if mark["name"] == "no plan"] == [["a100-80gb"]]
    assert "Not measured, and not drawn: gpu=a30-24gb: no rows &lt;there&gt;" in text
    assert "Not measured" not in sweep_to_html(found)


def searched(*keep: str) -> tuple[Sweep, Found]:
    """A grid, and what was found on it."""
    grid, conditions = sweep("load=1,2"), read_conditions(keep, ["a", "b"])
    search = GoalSearch("max", grid.grid.variations[0].choices)
    verdicts = tuple(verdict_of(conditions, outcome) for outcome in grid.outcomes)
    return grid, Found(search, conditions, grid.outcomes, verdicts)


def test_a_share_that_is_to_be_kept_is_a_line_in_its_panel_which_is_told_above_it() -> None:
    _, layout = plot(sweep_to_html(*searched("slo_attainment>=0.6", "slo_attainment<=0.9", "goodput:a>=0.5")), "grid")
    assert [(line["y0"], line["y1"], line["yref"]) for line in layout["shapes"]] == [(60, 60, "y2"), (90, 90, "y2")]
    assert looks_of_lines(layout) == [(1, 1), (1, 1)]
    (label,) = (note for note in layout["annotations"] if "dashed" in note["text"])
    assert label["text"] == "dashed: slo_attainment&gt;=0.6 and slo_attainment&lt;=0.9"
    assert (label["yref"], label["y"], label["yanchor"]) == ("y2 domain", 1, "bottom")


def test_the_page_of_a_search_says_what_was_asked_and_found() -> None:
    grid, found = searched("slo_attainment>=0.6", "goodput:a>=0.5")
    kept = "slo_attainment&gt;=0.6 and goodput:a&gt;=0.5"
    promised = f"Plans promise {kept} at no load"
    text = sweep_to_html(grid, found)
    assert (promised in text, "nothing was run" in text) == (True, True)
    trial = Trial(found.choices[0], (1, 2, 3), (KeptShare(0.7, 0.01), KeptShare(0.6, 0.01)), Verdict.HOLDS)
    text = sweep_to_html(grid, found, Confirmed(found.choices[0], (trial,), (1, 2, 3), trial, None))
    simulated = f"The largest load that keeps {kept}, simulated: 1"
    assert (simulated in text, promised in text, "nothing was run" in text) == (True, True, False)


def test_a_third_key_makes_columns_and_keys_with_one_value_none() -> None:
    page = sweep_to_html(sweep("window=0", "load=1,2", "slo_ms=x1,x2", "tenants=1,2,3"))
    assert all(f'"text":"tenants={n}"' in page for n in (1, 2, 3))
    assert "window=0" in page  # in the text above
    assert (plot(page, "grid")[1]["width"], '<div class="wide"><div ' in page) == (1260, True)  # it scrolls in its box


def test_a_grid_of_one_point_and_no_plan_makes_a_page() -> None:
    assert "no plan" in sweep_to_html(sweep("load=1"))


def test_a_grid_s_page_needs_no_network_and_is_the_same_again() -> None:
    page = sweep_to_html(sweep("load=1,2"))
    assert re.findall(r"<(?:script|link)[^>]*(?:src|href)=", page) == []
    assert page == sweep_to_html(sweep("load=1,2"))


# --- what was assumed, and what came out far from its plan


def test_both_pages_list_what_was_assumed() -> None:
    item = Assumed("bert", "worker <start>", {"1g": 1.5}, "s", "them")
    assumed_by_score = page([replace(SCORES[0], assumed=(item,)), *SCORES[1:]])
    grid = sweep("load=0.5,0.7")
    outcomes = (replace(grid.outcomes[0], assumed=(item,)), *grid.outcomes[1:])
    for text in (assumed_by_score, sweep_to_html(replace(grid, outcomes=outcomes))):
        assert "bert: worker &lt;start&gt;" in text
        assert "1g 1.5" in text


def test_pages_say_nothing_where_nothing_was_assumed() -> None:
    assert "Assumed, neither" not in page(SCORES) + sweep_to_html(sweep("load=0.5,0.7"))


def test_a_page_says_which_policy_came_out_far_from_its_plans() -> None:
    found = Surprise(1, None, 65.0, 50.0, "more requests than the forecast said", 12.0)
    text = page([replace(SCORES[0], surprises=(found, found)), *SCORES[1:]])
    assert "Far from their plans" in text
    assert "migrator: w1, segment 0, window 1: goodput 50.0 %, expected 65.0 %: 15.0 points less" in text
    assert "(and 1 more)" in text
    assert "Far from their plans" not in page(SCORES)
