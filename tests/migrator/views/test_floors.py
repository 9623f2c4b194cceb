from __future__ import annotations

import pytest

from migrator.views.floors import floors_in_words

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
