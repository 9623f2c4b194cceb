"""Slices that are not ours, as a value, and what a problem says of them step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from windows import window

from planner.errors import ProblemError
from planner.problem import Problem
from planner.unavailable import Unavailable, slices_text, unavailable_within


def over_six_steps(*items: Unavailable) -> Problem:
    return replace(window(), unavailable=items)


def test_without_any_the_window_is_one_stretch() -> None:
    assert window().unavailable_spans == ((0, 6, 0),)


def test_stretches_are_those_in_which_the_same_slices_are_missing() -> None:
    problem = over_six_steps(Unavailable((4, 5), 0, 3), Unavailable((5, 6), 2))
    assert problem.unavailable_spans == ((0, 2, 0b0110000), (2, 3, 0b1110000), (3, 6, 0b1100000))


def test_a_border_that_changes_nothing_is_none() -> None:
    assert over_six_steps(Unavailable((7,), 0, 3), Unavailable((7,), 3)).unavailable_spans == ((0, 6, 0b10000000),)


def test_a_stretch_of_steps_lacks_what_one_of_them_lacks() -> None:
    problem = over_six_steps(Unavailable((0,), 1, 2), Unavailable((7,), 4))
    assert [problem.unavailable_in(0, 1), problem.unavailable_in(0, 5)] == [0, 0b10000001]


def test_a_placement_is_ours_while_all_its_slices_are() -> None:
    problem = over_six_steps(Unavailable((3,), 2, 4))
    place = problem.gpu.placement("2g.10gb@2")
    assert [problem.is_ours(place, 0, 2), problem.is_ours(place, 1, 3), problem.is_ours(place, 4, 6)] == [1, 0, 1]


def test_what_is_left_of_a_window_counts_from_there() -> None:
    items = (Unavailable((0,), 0, 2), Unavailable((1,), 1, 4), Unavailable((2,), 3, 5), Unavailable((3,), 3))
    left = (Unavailable((1,), 0, 2), Unavailable((2,), 1), Unavailable((3,), 1))
    assert unavailable_within(items, 2, 3) == left


def test_what_begins_later_is_no_part_of_a_window() -> None:
    assert unavailable_within([Unavailable((0,), 5, 9)], 0, 5) == ()


def test_slices_are_named() -> None:
    assert [slices_text(0b110), slices_text(0b1)] == ["memory slices 1, 2", "memory slice 0"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (Unavailable(()), r"unavailable\[0\].memory_slices is empty; at least one"),
        (Unavailable((8,)), r"unavailable\[0\].memory_slices\[0\] is 8; a100-40gb has memory slices 0 to 7"),
        (Unavailable((-1,)), r"memory_slices\[0\] is -1; "),
        (Unavailable((1, 1)), r"memory_slices\[0\] is 1, which is given twice"),
        (Unavailable((1,), -1), r"unavailable\[0\].from_step is -1; 0 to n_steps - 1 \(5\) is allowed"),
        (Unavailable((1,), 6), r"unavailable\[0\].from_step is 6; "),
        (Unavailable((1,), 2, 2), r"unavailable\[0\].to_step is 2; 3 to n_steps \(6\) is allowed"),
        (Unavailable((1,), 0, 7), r"unavailable\[0\].to_step is 7; "),
    ],
)
def test_what_no_gpu_or_window_has_is_refused(item: Unavailable, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        over_six_steps(item)
