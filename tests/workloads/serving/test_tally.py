"""Counts by second of arrival, and percentiles from the histogram; the compiled pass against its definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.profiles.latency import LatencyCurve
from workloads.serving.advance import advance
from workloads.serving.requests import Outcomes, QueueState, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import SecondCounts, Tally, Totals, latency_percentile_ms, merge_histograms
from workloads.traffic.luck import ServiceJitter

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


def tally(requests: Requests, outcomes: Outcomes, n_seconds: int, first_second: int = 0) -> SecondCounts:
    return tallied(requests, [outcomes], n_seconds, first_second)


def tallied(requests: Requests, pieces: Sequence[Outcomes], n_seconds: int, first_second: int = 0) -> SecondCounts:
    kept = Tally(requests.tenant, n_seconds, first_second)
    for outcomes in pieces:
        kept.add(requests, outcomes)
    return kept.counts


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


def test_a_tally_s_totals_are_those_of_its_counts() -> None:
    requests, outcomes = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    kept = Tally("bert", 2, first_second=1)
    kept.add(requests, outcomes)
    assert kept.totals == kept.counts.totals == Totals(arrivals=2, in_time=1, late=1, correct_late=1)


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("order", [1, -1])
def test_pieces_add_up_to_the_whole_in_any_order(cut: int, order: int) -> None:
    requests, whole = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    _, early = resolved(ARRIVALS_S, ANSWERS_S[:cut], CORRECT[:cut])
    _, late = resolved(ARRIVALS_S, ANSWERS_S[cut:], CORRECT[cut:], first_index=cut)
    assert_same(tallied(requests, [early, late][::order], n_seconds=4), tally(requests, whole, n_seconds=4))


def test_what_is_added_later_does_not_change_counts_given_before() -> None:
    requests, outcomes = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    kept = Tally("bert", 4)
    before = kept.counts
    kept.add(requests, outcomes)
    assert (before.totals, dict(before.latency_ms)) == (Totals(), {})


# --- answers that are lost


def some(outcomes: Outcomes, places: Sequence[int]) -> Outcomes:
    return outcomes.of(outcomes.index[list(places)])


@pytest.mark.parametrize("places", [[], [0], [2, 3, 4], [0, 2, 3, 4]])
def test_lost_answers_count_as_drops_from_the_start(places: list[int]) -> None:
    requests, outcomes = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    kept = Tally("bert", 4)
    kept.add(requests, outcomes)
    kept.lose(requests, some(outcomes, places))
    answers_s = [DROPPED if place in places else answer_s for place, answer_s in enumerate(ANSWERS_S)]
    correct = [place not in places and is_right for place, is_right in enumerate(CORRECT)]
    assert_same(kept.counts, tally(*resolved(ARRIVALS_S, answers_s, correct), n_seconds=4))


def test_lost_answers_of_other_seconds_are_left_out() -> None:
    requests, outcomes = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    kept = Tally("bert", 2)
    kept.add(requests, outcomes)
    kept.lose(requests, some(outcomes, [3, 4]))
    assert kept.totals == Totals(arrivals=4, in_time=1, late=1, dropped=2, correct=1, correct_late=1)


def test_a_lost_answer_beyond_the_bins_leaves_the_histogram() -> None:
    requests, outcomes = resolved([0.0, 0.0], [5.0, 5.0], [True, True])
    kept = Tally("bert", 1)
    kept.add(requests, outcomes)
    kept.lose(requests, some(outcomes, [0]))
    assert dict(kept.counts.latency_ms) == {5000: 1}
    kept.lose(requests, some(outcomes, [1]))
    assert dict(kept.counts.latency_ms) == {}


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


@pytest.mark.parametrize(("fraction", "expected"), [(0.4, 10), (0.41, 20), (0.8, 20), (0.81, None), (1.0, None)])
def test_what_was_not_answered_is_slower_than_all_that_was(fraction: float, expected: int | None) -> None:
    assert latency_percentile_ms({10: 40, 20: 40}, fraction, 20) == expected


def test_percentile_of_nothing_is_none() -> None:
    assert latency_percentile_ms({}, 0.5, 3) is None
    assert latency_percentile_ms({}, 0.5) is None


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, 99, math.nan])
def test_percentile_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        latency_percentile_ms({10: 1}, fraction)


@settings(derandomize=True, max_examples=examples(200))
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
    state, counts = QueueState(), Tally("bert", n_seconds=10)
    for until_s in [*edges_s, math.inf]:
        state, outcomes = advance(requests, state, servers, accuracy, until_s, jitter)
        counts.add(requests, outcomes)
    return requests, counts.counts


def test_every_second_s_arrivals_are_conserved() -> None:
    requests, counts = simulated([1.0, 2.5, 9.99])
    arrived = np.histogram(requests.arrival_s, bins=np.arange(11))[0]
    np.testing.assert_array_equal(arrived, counts.in_time + counts.late + counts.dropped)


def test_the_simulated_case_has_every_kind_of_outcome() -> None:
    _, counts = simulated([])
    assert min(getattr(counts.totals, name) for name in COUNTS) > 0


def test_pieces_do_not_change_the_counts() -> None:
    assert_same(simulated([0.3, 4.0, 7.7])[1], simulated([])[1])


# --- against the definition


def defined(requests: Requests, outcomes: Outcomes, n_seconds: int, first_second: int) -> SecondCounts:
    """What a tally of one piece is, pass by pass; the compiled pass must give the same."""
    arrival_s = requests.arrival_s[outcomes.index]
    second = np.floor(arrival_s).astype(np.int64) - first_second
    counted = (second >= 0) & (second < n_seconds)

    def per_second(which: np.ndarray) -> np.ndarray:
        return np.bincount(second[which & counted], minlength=n_seconds).astype(np.int64)

    answered = counted & ~outcomes.dropped
    latency_ms = (outcomes.answer_s[answered] - arrival_s[answered]) * 1e3
    upper_ms = np.ceil(np.round(latency_ms, 6)).astype(np.int64)
    edges, n_answered = np.unique(upper_ms, return_counts=True)
    return SecondCounts(
        tenant=requests.tenant,
        first_second=first_second,
        arrivals=per_second(counted),
        in_time=per_second(outcomes.in_time),
        late=per_second(outcomes.late),
        dropped=per_second(outcomes.dropped),
        correct=per_second(outcomes.in_time & outcomes.correct),
        correct_late=per_second(outcomes.late & outcomes.correct),
        latency_ms=dict(zip(edges.tolist(), n_answered.tolist(), strict=True)),
    )


def beside(ms: float, ulps: int) -> float:
    """That many milliseconds in seconds, or a float near it."""
    found = ms / 1e3
    for _ in range(abs(ulps)):
        found = math.nextafter(found, math.copysign(math.inf, ulps))
    return abs(found)


# Where rounding decides: whole milliseconds, and half a nanosecond above them. And anything.
LATENCIES_S = st.one_of(
    st.builds(beside, st.integers(0, 5000), st.integers(-2, 2)),
    st.builds(beside, st.integers(0, 5000).map(lambda ms: ms + 5e-7), st.integers(-2, 2)),
    st.floats(0, 1e4),
)
REQUESTS = st.tuples(st.floats(0, 12), st.one_of(st.just(DROPPED), LATENCIES_S), st.booleans())


@settings(derandomize=True, max_examples=examples(500))
@given(st.lists(REQUESTS, max_size=60), st.integers(0, 5), st.integers(1, 8))
def test_a_tally_is_what_its_definition_says(
    cases: list[tuple[float, float, bool]], first_second: int, n_seconds: int
) -> None:
    cases.sort()
    arrival_s = [case[0] for case in cases]
    answer_s = [came_s + latency_s for came_s, latency_s, _ in cases]
    correct = [is_right and not math.isnan(latency_s) for _, latency_s, is_right in cases]
    requests, outcomes = resolved(arrival_s, answer_s, correct)
    expected = defined(requests, outcomes, n_seconds, first_second)
    assert_same(tally(requests, outcomes, n_seconds, first_second), expected)


@settings(derandomize=True, max_examples=examples(300))
@given(st.lists(LATENCIES_S, min_size=1, max_size=200))
def test_latencies_are_rounded_as_numpy_does(latencies_s: list[float]) -> None:
    case = resolved([0.0] * len(latencies_s), latencies_s, [False] * len(latencies_s))
    assert_same(tally(*case, n_seconds=1), defined(*case, n_seconds=1, first_second=0))


@pytest.mark.parametrize("first_second", [0, 3])
def test_outcomes_with_gaps_are_what_the_definition_says(first_second: int) -> None:
    requests, whole = resolved(ARRIVALS_S, ANSWERS_S, CORRECT)
    kept = np.array([0, 1, 4])
    outcomes = Outcomes(kept, whole.answer_s[kept], whole.in_time[kept], whole.correct[kept])
    expected = defined(requests, outcomes, 2, first_second)
    assert_same(tally(requests, outcomes, 2, first_second), expected)
