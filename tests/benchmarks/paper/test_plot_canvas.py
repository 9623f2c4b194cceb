"""What all plots have in common."""

from __future__ import annotations

from itertools import pairwise

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper.experiments import EXPERIMENTS
from benchmarks.paper.plot_canvas import STYLES, canvas, drawing, readable_on, spread, svg_of

PLACES = st.lists(st.floats(-100, 100), max_size=12)


def test_every_policy_has_a_colour_and_a_marker_of_its_own() -> None:
    assert {policy for one in EXPERIMENTS for policy in one.policies} <= set(STYLES)
    assert len({style.colour for style in STYLES.values()}) == len(STYLES)
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)


@given(PLACES)
def test_names_are_apart_and_in_the_order_of_their_lines(values: list[float]) -> None:
    found = spread(values, 5.0)
    order = sorted(range(len(values)), key=lambda place: values[place])
    assert all(found[above] - found[below] >= 5.0 - 1e-9 for below, above in pairwise(order))


@given(PLACES)
def test_names_stay_where_the_lines_are_on_the_whole(values: list[float]) -> None:
    assert sum(spread(values, 5.0)) == pytest.approx(sum(values), abs=1e-6)


def test_names_that_do_not_touch_stay_where_they_are() -> None:
    assert spread([20.0, 0.0, 10.0], 5.0) == [20.0, 0.0, 10.0]


def test_names_at_one_place_are_spread_around_it() -> None:
    assert spread([10.0, 10.0, 10.0], 5.0) == [5.0, 10.0, 15.0]


def test_text_stands_out_from_what_it_is_written_on() -> None:
    assert [readable_on(colour) for colour in ("#F0E442", "#0072B2")] == ["#222222", "white"]


def test_a_user_s_own_settings_change_nothing() -> None:
    found = []
    for settings in ({}, {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "black"}):
        with mpl.rc_context(settings), drawing():
            found.append(svg_of(canvas("a title", 2.0, left_in=1.0)[0], "a title"))
    assert found[0] == found[1]


def test_settings_are_as_before_after_drawing() -> None:
    before = dict(mpl.rcParams)
    with drawing():
        pass
    assert dict(mpl.rcParams) == before
