"""Counts by second of arrival, and percentiles from the histogram."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.latency import LatencyCurve
from workloads.serving import (
    AccuracyTimeline,
    Outcomes,
    QueueState,
    Requests,
    Server,
    ServiceJitter,
    advance,
    requests_of,
)
from workloads.tally import SecondCounts, Totals, latency_percentile_ms, merge, merge_histograms, tally

COUNTS = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")
DROPPED = math.nan


def resolved(
    arrival_s: list[float], answer_s: list[float], correct: list[bool], first_index: int = 0
) -> tuple[Requests, Outcomes]:
    """Requests with an SLO of 0.25 s, and outcomes for those from ``first_index`` on."""
    requests = Requests("bert", 0.25, np.array(arrival_s), np.zeros(len(arrival_s)))
    index = np.arange(first_index, first_index + len(answer_s))
    answers = np.array(answer_s)
    return requests, Outcomes(index, answers, answers <= requests.deadline_s[index], np.array(correct, dtype=bool))


# second 0: in time and right, dropped; second 1: late and right, in time and wrong; second 2: nothing; second 3: late
ARRIVALS_S = [0.0, 0.999, 1.0, 1.5, 3.0]
ANSWERS_S = [0.125, DROPPED, 2.0, 1.75, 4.0]
CORRECT = [True, False, True, False, False]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arrivals", [2, 2, 0, 1]),
        ("in_time", [1, 1, 0, 0]),
        ("late", [0, 1, 0, 1]),
        ("dropped", [1, 0, 0, 0]),
        ("correct", [1, 0, 0, 0]),
        ("correct_late", [0, 1, 0, 0]),
    ],
)
def test_counts_belong_to_the_second_of_arrival(name: str, expected: list[int]) -> None:
    counts = tally(*resolved(ARRIVALS_S, ANSWERS_S, CORRECT), n_seconds=4)
    assert getattr(counts, name).tolist() == expected


def test_histogram_rounds_up_to_whole_milliseconds() -> None:
    answers_s = [0.0001, 0.001, 0.0011, 0.25, DROPPED]
    counts = tally(*resolved([0.0] * 5, answers_s, [True] * 4 + [False]), n_seconds=1)
    assert dict(counts.latency_ms) == {1: 2, 2: 1, 250: 1}


def test_rounding_of_times_does_not_lift_a_latency_over_its_slo() -> None:
    arrival_s = 511.95
    answer_s = arrival_s + 0.15
    assert (answer_s - arrival_s) * 1e3 > 150.0
    counts = tally(*resolved([arrival_s], [answer_s], [True]), n_seconds=800)
    assert dict(counts.latency_ms) == {150: 1}


def test_requests_outside_the_span_are_left_out() -> None:
    counts = tally(*resolved(ARRIVALS_S, ANSWERS_S, CORRECT), n_seconds=2, first_second=1)
    assert (counts.arrivals.tolist(), dict(counts.latency_ms)) == ([2, 0], {250: 1, 1000: 1})


def test_outcomes_keep_their_own_arrivals() -> None:
    counts = tally(*resolved(ARRIVALS_S, ANSWERS_S[2:], CORRECT[2:], first_index=2), n_seconds=4)
    assert counts.arrivals.tolist() == [0, 2, 0, 1]


def test_no_outcomes_count_nothing() -> None:
    counts = tally(*resolved(ARRIVALS_S, [], []), n_seconds=3)
    assert (counts.totals, counts.n_seconds, dict(counts.latency_ms)) == (Totals(), 3, {})


def test_counts_are_read_only() -> None:
    counts = tally(*resolved(ARRIVALS_S, ANSWERS_S, CORRECT), n_seconds=4)
    assert not any(getattr(counts, name).flags.writeable for name in COUNTS)


# --- sums


def test_totals_sum_the_seconds() -> None:
    counts = tally(*resolved(ARRIVALS_S, ANSWERS_S, CORRECT), n_seconds=4)
    assert counts.totals == Totals(arrivals=5, in_time=2, late=2, dropped=1, correct=1, correct_late=1)


def test_totals_add_up() -> None:
    assert Totals(6, 1, 2, 3, 1, 1) + Totals(1, 1, 0, 0, 0, 0) == Totals(7, 2, 2, 3, 1, 1)


def test_percentages_have_the_design_s_denominators() -> None:
    totals = Totals(arrivals=10, in_time=6, late=2, dropped=2, correct=3, correct_late=1)
    assert (totals.goodput_pct, totals.slo_attainment_pct, totals.accuracy_pct) == (30.0, 60.0, 50.0)


def test_percentages_of_nothing_are_none() -> None:
    assert (Totals().goodput_pct, Totals().slo_attainment_pct, Totals().accuracy_pct) == (None, None, None)


def assert_same(one: SecondCounts, other: SecondCounts) -> None:
    for name in COUNTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert list(one.latency_ms.items()) == list(other.latency_ms.items())


@pytest.mark.parametrize("cut", range(6))
def test_parts_merge_to_the_whole(cut: int) -> None:
    whole = tally(*resolved(ARRIVALS_S, ANSWERS_S, CORRECT), n_seconds=4)
    early = tally(*resolved(ARRIVALS_S, ANSWERS_S[:cut], CORRECT[:cut]), n_seconds=4)
    late = tally(*resolved(ARRIVALS_S, ANSWERS_S[cut:], CORRECT[cut:], first_index=cut), n_seconds=4)
    assert_same(merge([late, early]), whole)


@pytest.mark.parametrize("span", [(3, 0), (4, 1)])
def test_tallies_of_other_seconds_do_not_merge(span: tuple[int, int]) -> None:
    case = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    with pytest.raises(ValueError, match="same seconds"):
        merge([tally(*case, 4), tally(*case, *span)])


def test_nothing_does_not_merge() -> None:
    with pytest.raises(ValueError, match="same seconds"):
        merge([])


def test_merged_histograms_ascend() -> None:
    assert list(merge_histograms([{7: 1, 9: 2}, {3: 1, 9: 1}]).items()) == [(3, 1), (7, 1), (9, 3)]


# --- percentiles


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.01, 10), (0.5, 10), (0.51, 20), (0.99, 20), (0.991, 30), (1.0, 30)]
)
def test_percentile_is_the_first_edge_that_holds_the_fraction(fraction: float, expected: int) -> None:
    assert latency_percentile_ms({30: 1, 10: 50, 20: 49}, fraction) == expected


def test_percentile_is_not_pushed_up_by_rounding() -> None:
    assert 0.07 * 100 > 7
    assert latency_percentile_ms({10: 7, 20: 93}, 0.07) == 10


def test_percentile_of_nothing_is_none() -> None:
    assert latency_percentile_ms({}, 0.5) is None


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, 99, math.nan])
def test_percentile_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        latency_percentile_ms({10: 1}, fraction)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.integers(1, 900_000), min_size=1, max_size=60), st.integers(1, 100))
def test_percentile_lies_within_a_millisecond_above_the_exact_one(latencies_us: list[int], percent: int) -> None:
    answers_s = [latency_us / 1e6 for latency_us in latencies_us]
    counts = tally(*resolved([0.0] * len(answers_s), answers_s, [True] * len(answers_s)), n_seconds=1)
    exact_ms = sorted(latencies_us)[-(-percent * len(latencies_us) // 100) - 1] / 1e3
    percentile_ms = latency_percentile_ms(counts.latency_ms, percent / 100)
    assert percentile_ms is not None
    assert exact_ms <= percentile_ms < exact_ms + 1


# --- with the simulation


def simulated(edges_s: list[float]) -> tuple[Requests, SecondCounts]:
    """Ten overloaded seconds with jitter, so that some are late and some dropped, tallied piece by piece."""
    times_s = np.sort(np.random.default_rng(3).uniform(0, 10, 900))
    requests = requests_of("bert", 0.1, times_s, seed=3)
    servers = [Server("bert", "a", 0.5, math.inf, LatencyCurve((1, 4), (0.02, 0.05)), 4)]
    accuracy, jitter = AccuracyTimeline((0.0, 5.0), (0.5, 0.9)), ServiceJitter(3, 0.3)
    state, parts = QueueState(), []
    for until_s in [*edges_s, math.inf]:
        state, outcomes = advance(requests, state, servers, accuracy, until_s, jitter)
        parts.append(tally(requests, outcomes, n_seconds=10))
    return requests, merge(parts)


def test_every_second_s_arrivals_are_conserved() -> None:
    requests, counts = simulated([1.0, 2.5, 9.99])
    arrived = np.histogram(requests.arrival_s, bins=np.arange(11))[0]
    np.testing.assert_array_equal(arrived, counts.in_time + counts.late + counts.dropped)


def test_the_simulated_case_has_every_kind_of_outcome() -> None:
    _, counts = simulated([])
    assert min(getattr(counts.totals, name) for name in COUNTS) > 0


def test_pieces_do_not_change_the_counts() -> None:
    assert_same(simulated([0.3, 4.0, 7.7])[1], simulated([])[1])
