from __future__ import annotations

from typing import Any

import pytest

from migrator.log.records import Assumed
from migrator.views.sentences import MOST_LINES, assumed_lines, floors_in_words


def item(what: str, tenant: str | None = "a", value: Any = 1.5, unit: str = "s", source: str = "them") -> Assumed:
    return Assumed(tenant, what, value, unit, source)


def test_tenants_with_the_same_figure_and_source_share_a_line() -> None:
    lines = assumed_lines([item("start"), item("start", "b", 2.25), item("start", "c", source="others")])
    assert lines == ["start: a 1.5 s, b 2.25 s; them", "start: c 1.5 s; others"]


def test_figures_by_profile_are_told_as_a_range() -> None:
    assert assumed_lines([item("time", None, {"1g": 9.0, "2g": 4.5})]) == ["time: 4.5–9 s; them"]


def test_a_long_list_is_folded() -> None:
    lines = assumed_lines([item(f"figure {n}") for n in range(9)])
    assert len(lines) == MOST_LINES
    assert lines[-1] == "and figure 5, figure 6, figure 7, figure 8; --json has the values"


def test_what_weighs_most_is_told_whatever_else_there_is() -> None:
    others = [item(f"figure {n}") for n in range(9)]
    weighty = ["accuracy from window 1 on", "worker start", "retraining start", "retraining time"]
    sources = [item(what, source=source) for what in weighty for source in ("them", "others")]
    lines = assumed_lines([*others, *sources])
    assert [line.split(":")[0] for line in lines[:-1]] == [what for what in weighty for _ in range(2)]


def test_what_is_told_elsewhere_is_left_out() -> None:
    assert assumed_lines([item("capability"), item("start")], left_out=("capability",)) == ["start: a 1.5 s; them"]


MISSED = ("a: 90 % in time of 99 % asked for", "b: 80 % in time of 99 % asked for")
BOTH = "misses a: 90 % in time of 99 % asked for; b: 80 % in time of 99 % asked for"


@pytest.mark.parametrize(
    ("missed", "floor_costs", "keeping_costs", "told"),
    [
        ((), None, None, None),
        ((), 0.0, 0.0, None),
        ((), 0.0306, 0.0306, "pays 3.06 points of goodput for floors"),
        (MISSED, None, None, BOTH),
        (
            MISSED,
            0.01,
            None,
            f"{BOTH}; pays 1.00 points of goodput for floors, and no plan was found that keeps them all",
        ),
        (MISSED, 0.01, 0.36, f"{BOTH}; pays 1.00 points of goodput for floors, and would pay 36.00 to keep them all"),
    ],
)
def test_what_is_missed_paid_and_would_be_paid_stands_in_one_line(missed, floor_costs, keeping_costs, told) -> None:
    assert floors_in_words(missed, floor_costs, keeping_costs) == told
