"""Pages made of scores and outcomes by hand: marks are the tables' figures, and nothing unknown is drawn."""

from __future__ import annotations

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
from migrator.log.timeline import HeldSpan, Holding
from migrator.views import compare_page as compare_plot
from migrator.views.compare_page import comparison_to_html
from migrator.views.palette import LOSSES
from tests.migrator.views.pages import data_in, looks_of_lines, plot
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
    found = data_in(page(SCORES))
    titles = [figure["title"] for name, figure in found.items() if name.startswith("account")]
    assert titles == ["all 2 workloads", "w1", "w2"]


@pytest.mark.parametrize("place", range(3))
def test_every_bar_adds_up_to_100(place: int) -> None:
    widths = np.array([mark["x"] for mark in marks(SCORES, f"account-{place}")])
    assert widths.sum(axis=0) == pytest.approx([100.0] * 3)


def test_bars_are_the_shares_of_the_standings() -> None:
    found = marks(SCORES[:3], "account-0")
    for mark, name in zip(found, CLASSES, strict=True):
        assert mark["y"] == ["migrator", "static", "arrivals known"]
        assert mark["x"] == pytest.approx([100 * item.account.shares[name] for item in standings(SCORES[:3])])


def test_a_class_has_one_colour_in_all_panels() -> None:
    found = [mark for place in range(3) for mark in marks(SCORES, f"account-{place}") if mark["name"] == "wrong old"]
    assert [mark["marker"]["color"] for mark in found] == [LOSSES["wrong_old"]] * 3


def test_a_legend_of_four_rows_leaves_room_above_the_panel() -> None:
    _, layout = plot(page(SCORES), "account-0")
    row_px = 19
    assert layout["margin"]["t"] >= 4 * row_px


# --- goodput


def test_goodput_has_a_row_for_each_policy_with_its_figure_and_a_mark_for_each_group() -> None:
    found = marks(SCORES, "goodput")
    assert [mark["name"] for mark in found] == [name for name in ("migrator", "static", "arrivals known") for _ in "ab"]
    each, overall = found[:2]
    assert (overall["x"], each["x"]) == (pytest.approx([57.5]), pytest.approx([65.0, 50.0]))
    assert (overall["y"], each["y"]) == (["migrator"], ["migrator"] * 2)
    assert each["marker"]["symbol"] == overall["marker"]["symbol"] + "-open"
    assert '"ticktext":["migrator  57.5","static  55.0","arrivals known  60.0"]' in page(SCORES)


def test_the_goodput_axis_holds_all_marks_and_little_more_and_is_broken_where_it_has_no_zero() -> None:
    figure = data_in(page(SCORES))["goodput"]
    low, high = figure["layout"]["xaxis"]["range"]
    assert 45 < low < 50
    assert 70 < high < 75
    assert figure["note"] == f"The axis is broken: it begins at {low:.1f} %, not at 0."
    strokes = figure["layout"]["shapes"]
    assert [(line["xref"], line["yref"], line["xsizemode"]) for line in strokes] == [("paper", "paper", "pixel")] * 2


def test_the_goodput_axis_begins_at_0_where_there_is_room_for_it() -> None:
    figure = data_in(page([score("migrator", 650), score("static", 50)]))["goodput"]
    assert figure["layout"]["xaxis"]["range"][0] == 0
    assert ("note" in figure, figure["layout"]["shapes"]) == (False, [])


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
    figure = data_in(found)["gap"]
    assert figure["layout"]["xaxis"]["range"] == [-105, 105]
    assert figure["note"] == "Broken bars go on beyond -100 %, where the axis ends."
    assert [line["yanchor"] for line in figure["layout"]["shapes"] if line["yref"] == "y"] == [0, 0]  # of equal alone


# --- layouts


def test_each_policy_has_its_layout_over_time_by_workload() -> None:
    spans = (
        HeldSpan(0, 4, 0.0, 20.0, "bert", "serving", "4g.40gb@0"),
        HeldSpan(4, 6, 5.0, 20.0, "bert", "retraining", "2g@4"),
    )
    held = Holding(True, 8, (("bert", "bert-large"),), spans)
    turns = replace(score("time-sharing", 600), holding=Holding(False, 20, (("bert", "bert-large"),), ()))
    text = page([replace(score("migrator", 650), holding=held), turns])
    assert "time-sharing: tenants take turns on the whole GPU." in text
    figure = data_in(text)["layout-0-0"]
    assert figure["title"] == "migrator"
    assert [(bar["name"], bar["base"], bar["x"]) for bar in figure["data"]] == [
        ("bert, serving", [0.0], [20.0]),
        ("bert, retraining", [5.0], [15.0]),
    ]
    assert (figure["layout"]["xaxis"]["range"], figure["layout"]["yaxis"]["range"]) == ([0, 20], [8, 0])


def test_scores_without_layouts_have_no_part_for_them() -> None:
    assert "<h2>Layouts</h2>" not in page(SCORES)


# --- the page


def test_the_best_stand_first() -> None:
    assert "In time and right of all arrivals: arrivals known 70.0 %, migrator 65.0 %, static 60.0 %" in page(
        SCORES[:3]
    )
    assert "No requests came." in page([MatchScore("migrator", "w", 0, (Totals(),), {}, 0, 0)])


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


# --- what was assumed, and what came out far from its plan


def test_the_page_lists_what_was_assumed() -> None:
    item = Assumed("bert", "worker <start>", {"1g": 1.5}, "s", "them")
    text = page([replace(SCORES[0], assumed=(item,)), *SCORES[1:]])
    assert "bert: worker &lt;start&gt;" in text
    assert "1g 1.5" in text
    assert "Assumed, neither" not in page(SCORES)


def test_a_page_says_which_policy_came_out_far_from_its_plans() -> None:
    found = Surprise(1, None, 65.0, 50.0, "more requests than the forecast said", 12.0)
    text = page([replace(SCORES[0], surprises=(found, found)), *SCORES[1:]])
    assert "Far from their plans" in text
    assert "migrator: w1, segment 0, window 1: goodput 50.0 %, expected 65.0 %: 15.0 points less" in text
    assert "(and 1 more)" in text
    assert "Far from their plans" not in page(SCORES)
