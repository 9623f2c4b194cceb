import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.traffic.gaps import GapRuns, described, interpolated, missing_runs, unusual_silences


def test_missing_runs_are_the_stretches_that_are_missing() -> None:
    runs = missing_runs(np.array([1, 0, 1, 1, 0, 0, 1], dtype=bool))
    assert (runs.start.tolist(), runs.length.tolist()) == ([0, 2, 6], [1, 2, 1])


def test_the_mask_of_runs_is_true_inside_them() -> None:
    runs = GapRuns(np.array([1, 4]), np.array([2, 1]))
    assert runs.mask(6).tolist() == [False, True, True, False, True, False]


def test_the_longest_gap_is_described_and_all_are_summed() -> None:
    runs = GapRuns(np.array([1, 4]), np.array([2, 5]))
    words = described(runs, 3600, lambda gap: f"after row {runs.start[gap]}")
    assert words == "7 of 3,600 s have no data in 2 gaps, the longest 5 s after row 4"


@pytest.mark.parametrize(
    ("silences_s", "expected"),
    [
        ([1.0] * 20 + [60.0] + [1.0] * 20, [20]),
        ([60.0] + [1.0] * 20 + [45.0], [0, 21]),
        ([1.0] * 20 + [4.0] + [1.0] * 20, []),
        ([0.1] * 20 + [9.0] + [0.1] * 20, []),
        ([60.0], []),
    ],
    ids=["one", "two of like length", "not far from usual", "too short to be named", "nothing to compare with"],
)
def test_a_silence_is_unusual_if_it_is_far_longer_than_all_others(silences_s: list[float], expected: list[int]) -> None:
    assert unusual_silences(np.concatenate([[0.0], np.cumsum(silences_s)])).tolist() == expected


def test_silences_that_grow_little_by_little_are_usual() -> None:
    assert not unusual_silences(np.cumsum(1.5 ** np.arange(30))).size


def test_a_gap_is_filled_on_the_line_between_the_means_beside_it() -> None:
    counts = np.array([10] * 60 + [0] * 4 + [50] * 60)
    filled = interpolated(counts, GapRuns(np.array([60]), np.array([4])).mask(124))
    assert filled[60:64].tolist() == [15, 25, 35, 45]


def test_a_gap_at_an_end_is_filled_with_the_mean_beside_it() -> None:
    counts = np.array([0, 0, 4, 6, 0])
    assert interpolated(counts, np.array([1, 1, 0, 0, 1], dtype=bool)).tolist() == [5, 5, 4, 6, 5]


@settings(derandomize=True, max_examples=examples(80))
@given(st.integers(0, 2**32 - 1))
def test_filling_a_gap_leaves_all_that_is_known(seed: int) -> None:
    rng = np.random.default_rng(seed)
    missing = rng.random(200) < rng.random()
    missing[rng.integers(200)] = False
    counts = np.where(missing, 0, rng.poisson(5, 200))
    filled = interpolated(counts, missing)
    assert filled.min() >= 0
    assert filled[~missing].tolist() == counts[~missing].tolist()
