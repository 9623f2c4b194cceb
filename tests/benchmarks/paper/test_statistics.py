"""What the results page computes from rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.paper.statistics import (
    ahead_of_ours,
    comparable,
    gap_closed_pct,
    interval,
    means_of,
    order_of,
    over_workloads,
    results_in,
    tie,
)
from tests.seeds import examples

COLUMNS = ["policy", "workload", "segment", "arrivals", "correct", "windows"]


def rows(*matches: tuple[str, str, list[list[int]] | None, int]) -> pd.DataFrame:
    found = []
    for policy, workload, windows, segment in matches:
        counts = [sum(one[place] for one in windows) if windows else None for place in (0, 1)]
        found.append([policy, workload, segment, *counts, windows])
    return results_in({"columns": COLUMNS, "experiments": [{"name": "one", "rows": found}]})["one"]


ROWS = rows(
    ("migrator", "w1", [[10, 5], [10, 10]], 0),
    ("migrator", "w2", [[100, 10]], 0),
    ("b", "w1", [[10, 6], [10, 8]], 0),
    ("b", "w2", [[100, 30]], 0),
)


def test_each_workload_counts_once() -> None:
    assert means_of(ROWS)["migrator"] == pytest.approx((75 + 10) / 2)


def test_differences_are_taken_window_by_window() -> None:
    found = ahead_of_ours(ROWS, "windows")["b"]
    assert found["w1"].tolist() == pytest.approx([10, -20])
    assert found["w2"].tolist() == pytest.approx([20, np.nan], nan_ok=True)
    assert found.mean(axis=1).tolist() == pytest.approx([(10 + 20) / 2, -20])


def test_differences_are_taken_segment_by_segment() -> None:
    own = [("migrator", "w1", [[10, 5]], 0), ("migrator", "w1", [[10, 4]], 1)]
    found = ahead_of_ours(rows(*own, ("b", "w1", [[10, 6]], 0), ("b", "w1", [[10, 1]], 1)), "segments")
    assert found["b"]["w1"].tolist() == pytest.approx([10, -30])


def test_rows_without_numbers_are_left_out() -> None:
    without = rows(("migrator", "w1", [[10, 5]], 0), ("migrator", "w2", None, 0), ("b", "w2", [[10, 5]], 0))
    assert means_of(without).tolist() == [50, 50]
    assert ahead_of_ours(without, "windows") == {}
    assert comparable(without)["workload"].tolist() == ["w1"]


@pytest.mark.parametrize(("policy", "closed"), [("static", 0), ("oracle", 100), ("ours", 25)])
def test_the_gap_is_between_static_and_oracle(policy: str, closed: int) -> None:
    means = pd.Series({"static": 70.0, "ours": 71.0, "oracle": 74.0})
    assert gap_closed_pct(means)[policy] == pytest.approx(closed)


def test_of_hardly_a_gap_nothing_is_closed() -> None:
    assert gap_closed_pct(pd.Series({"static": 70.0, "ours": 71.0, "oracle": 70.05})).isna().all()


def of_one(values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"w1": values})


@given(value=st.floats(-100, 100), n=st.integers(1, 20), block=st.integers(1, 30))
@settings(max_examples=examples(20))
def test_the_interval_of_equal_values_is_a_point(value: float, n: int, block: int) -> None:
    found = interval(of_one([value] * n), block)
    assert (found.mean, found.low, found.high) == pytest.approx((value,) * 3)


def test_each_workload_counts_once_however_many_windows_it_has() -> None:
    differences = pd.DataFrame({"w1": [1.0, 3.0], "w2": [10.0, np.nan]})
    assert interval(differences, 1).mean == pytest.approx((2 + 10) / 2)


def test_workloads_of_one_window_are_drawn_together() -> None:
    values = [1.0, 5.0, 2.0, 8.0, 3.0, 0.0]
    alike = pd.DataFrame(dict.fromkeys(("w1", "w2", "w3"), values))
    assert interval(alike, 1) == interval(of_one(values), 1)


def test_blocks_keep_neighbours_together() -> None:
    waves = [0.0, 1.0] * 10  # every two neighbours have the mean 1/2
    assert interval(of_one(waves), 2).high == pytest.approx(0.5)
    assert interval(of_one(waves), 1).high > 0.6


def test_sixteen_workloads_have_fifteen_degrees_of_freedom() -> None:
    found = over_workloads(pd.DataFrame([[-1.0, 1.0] * 8]))
    assert found.high == pytest.approx(2.131 / 15**0.5, rel=1e-3)


def test_over_workloads_each_is_one_observation() -> None:
    differences = pd.DataFrame({"w1": [1.0, 3.0], "w2": [4.0, np.nan], "w3": [6.0, 6.0]})
    found = over_workloads(differences)
    assert found.mean == pytest.approx(4.0)
    assert (found.high - found.mean, found.mean - found.low) == pytest.approx((4.303 * 2 / 3**0.5,) * 2, rel=1e-3)


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
    assert tie(*zip(*points, strict=True)) == (place if place is None else pytest.approx(place))


def test_orders_and_what_they_disagree_about() -> None:
    means, others = pd.Series({"a": 1.0, "b": 3.0, "c": 2.0}), pd.Series({"a": 2.0, "b": 3.0, "c": 1.0})
    assert (order_of(means), order_of(others)) == (["b", "c", "a"], ["b", "a", "c"])
