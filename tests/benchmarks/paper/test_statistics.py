"""What the results page computes from rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.paper.statistics import (
    by_number,
    interval,
    mean_of_workloads,
    of_policy,
    order_of,
    segment_differences,
    swapped,
    tie,
    window_differences,
)


def row(policy: str, workload: str, windows: list[list[int]], segment: int = 0) -> dict[str, object]:
    arrivals, correct = (sum(one[place] for one in windows) for place in (0, 1))
    return {
        "policy": policy,
        "workload": workload,
        "segment": segment,
        "arrivals": arrivals,
        "correct": correct,
        "windows": windows,
    }


ROWS = [
    row("a", "w1", [[10, 5], [10, 10]]),
    row("a", "w2", [[100, 10]]),
    row("b", "w1", [[10, 6], [10, 8]]),
    row("b", "w2", [[100, 30]]),
]


def test_each_workload_counts_once() -> None:
    assert mean_of_workloads(of_policy(ROWS, "a")) == pytest.approx((75 + 10) / 2)


def test_differences_are_taken_window_by_window() -> None:
    found = window_differences(ROWS, "b", "a")
    assert found == {0: pytest.approx({"w1": 10, "w2": 20}), 1: pytest.approx({"w1": -20})}
    assert by_number(found) == pytest.approx([(10 + 20) / 2, -20])


def test_differences_are_taken_segment_by_segment() -> None:
    rows = [row("a", "w1", [[10, 5]], 0), row("a", "w1", [[10, 4]], 1)]
    rows += [row("b", "w1", [[10, 6]], 0), row("b", "w1", [[10, 1]], 1)]
    assert segment_differences(rows, "b", "a") == {0: pytest.approx({"w1": 10}), 1: pytest.approx({"w1": -30})}


def test_rows_without_numbers_are_left_out() -> None:
    assert of_policy([{"policy": "a", "arrivals": None}, *ROWS], "a") == ROWS[:2]


def of_one(values: list[float]) -> dict[int, dict[str, float]]:
    return {number: {"w1": value} for number, value in enumerate(values)}


@given(value=st.floats(-100, 100), n=st.integers(1, 20), block=st.integers(1, 30))
@settings(deadline=None, max_examples=20)
def test_the_interval_of_equal_values_is_a_point(value: float, n: int, block: int) -> None:
    found = interval(of_one([value] * n), block)
    assert (found.mean, found.low, found.high) == pytest.approx((value,) * 3)


def test_each_workload_counts_once_however_many_windows_it_has() -> None:
    differences = {0: {"w1": 1.0, "w2": 10.0}, 1: {"w1": 3.0}}
    assert interval(differences, 1).mean == pytest.approx((2 + 10) / 2)


def test_workloads_of_one_window_are_drawn_together() -> None:
    values = [1.0, 5.0, 2.0, 8.0, 3.0, 0.0]
    alike = {number: {"w1": value, "w2": value, "w3": value} for number, value in enumerate(values)}
    assert interval(alike, 1) == interval(of_one(values), 1)


def test_blocks_keep_neighbours_together() -> None:
    waves = [0.0, 1.0] * 10  # every two neighbours have the mean 1/2
    assert interval(of_one(waves), 2).high == pytest.approx(0.5)
    assert interval(of_one(waves), 1).high > 0.6


@pytest.mark.parametrize(("n", "block"), [(9, 2), (28, 4)])
def test_about_95_of_100_intervals_hold_the_mean_of_independent_values(n: int, block: int) -> None:
    rng = np.random.default_rng(1)
    found = [interval(of_one(rng.normal(size=n).tolist()), block) for _ in range(200)]
    assert 0.9 <= np.mean([one.low <= 0 <= one.high for one in found]) <= 0.99


@pytest.mark.parametrize(
    ("points", "place"),
    [
        ([(0.0, 2.0), (1.0, -2.0)], 0.5),
        ([(0.0, 2.0), (1.0, 1.0), (3.0, -1.0)], 2.0),
        ([(0.0, 2.0), (1.0, 1.0)], None),
        ([(0.0, -2.0), (1.0, -3.0)], None),
        ([(0.0, -2.0), (1.0, 3.0), (2.0, -3.0)], 1.5),
    ],
)
def test_a_tie_is_where_the_difference_falls_through_0(points: list[tuple[float, float]], place: float | None) -> None:
    assert tie(points) == (place if place is None else pytest.approx(place))


def test_orders_and_what_they_disagree_about() -> None:
    order = order_of({"a": 1.0, "b": 3.0, "c": 2.0})
    assert order == ("b", "c", "a")
    assert swapped(order, ("b", "a", "c")) == [("c", "a")]
    assert swapped(order, order) == []
