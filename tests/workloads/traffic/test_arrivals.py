import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.errors import TraceError
from workloads.traffic.arrivals import (
    PoissonSource,
    Span,
    Trace,
    cut,
    mean_rps,
    second_indices,
    seconds_of_times,
    times_in,
)

EXAMPLES = settings(derandomize=True, max_examples=examples(60))
counts_lists = st.lists(st.integers(0, 6), min_size=1, max_size=20)


def trace_of(counts: list[int], *, with_times: bool = False, seed: int = 0) -> Trace:
    array = np.array(counts, dtype=np.int64)
    if not with_times:
        return Trace("made", array)
    seconds = np.repeat(np.arange(array.size), array)
    return Trace("made", array, np.sort(times_in(seconds, np.random.default_rng(seed).random(seconds.size))))


@EXAMPLES
@given(counts_lists, st.data())
def test_a_cut_holds_the_seconds_asked_for(counts: list[int], data: st.DataObject) -> None:
    offset_s = data.draw(st.integers(0, len(counts) - 1))
    duration_s = data.draw(st.integers(1, len(counts) - offset_s))
    piece = cut(trace_of(counts), offset_s, duration_s)
    assert piece.counts.tolist() == counts[offset_s : offset_s + duration_s]


@EXAMPLES
@given(counts_lists, st.integers(-50, 50), st.integers(1, 60))
def test_a_looped_cut_goes_on_at_either_end(counts: list[int], offset_s: int, duration_s: int) -> None:
    piece = cut(trace_of(counts), offset_s, duration_s, loop=True)
    assert piece.counts.tolist() == [counts[(offset_s + second) % len(counts)] for second in range(duration_s)]


@EXAMPLES
@given(counts_lists, st.integers(-50, 50), st.integers(1, 60))
def test_a_looped_cut_keeps_each_requests_time_inside_its_second(counts: list[int], offset_s: int, n: int) -> None:
    trace = trace_of(counts, with_times=True)
    piece = cut(trace, offset_s, n, loop=True)
    assert trace.times_s is not None
    assert piece.times_s is not None
    by_second = [[time % 1 for time in trace.times_s if int(time) == second] for second in range(len(counts))]
    expected = [second + part for second in range(n) for part in by_second[(offset_s + second) % len(counts)]]
    assert piece.times_s == pytest.approx(np.array(expected), abs=1e-9)


def test_a_cut_of_the_whole_trace_is_the_trace() -> None:
    trace = trace_of([2, 0, 3], with_times=True)
    piece = cut(trace, 0, 3)
    assert trace.times_s is not None
    assert piece.times_s == pytest.approx(trace.times_s, abs=1e-12)


def test_a_trace_that_is_too_short_says_what_it_has_and_what_is_needed() -> None:
    with pytest.raises(TraceError, match=r"made: 5 s from second 1 need a trace of 6 s, but it has 4 s; set loop"):
        cut(trace_of([1, 1, 1, 1]), 1, 5)


def test_a_trace_of_just_the_right_length_is_long_enough() -> None:
    assert cut(trace_of([1, 1, 1, 1]), 1, 3).n_seconds == 3


def test_a_negative_offset_needs_loop() -> None:
    with pytest.raises(TraceError, match="without loop"):
        second_indices(trace_of([1, 2]), -1, 1, loop=False)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_a_poisson_rate_must_be_positive_and_finite(rate: float) -> None:
    with pytest.raises(TraceError, match="poisson: the rate is"):
        PoissonSource(rate)


@pytest.mark.parametrize(("offset_s", "duration_s", "history_s"), [(-1, 1, 0), (0, 0, 0), (0, 1, -1)])
def test_a_span_of_nothing_or_of_negative_seconds_is_refused(offset_s: int, duration_s: int, history_s: int) -> None:
    with pytest.raises(TraceError, match="whole seconds are needed"):
        Span(offset_s, duration_s, history_s)


@pytest.mark.parametrize(("loop", "expected_s"), [(False, 30), (True, 100)])
def test_a_trace_gives_the_history_that_lies_before_the_offset(loop: bool, expected_s: int) -> None:
    assert Span(30, 10, history_s=100, loop=loop).available_history_s(trace_of([1] * 50)) == expected_s


def test_a_poisson_source_has_any_history() -> None:
    assert Span(0, 10, history_s=100).available_history_s(PoissonSource(3.0)) == 100


@pytest.mark.parametrize(("offset_s", "loop", "expected"), [(1, False, 3.0), (2, True, 2.5)])
def test_the_mean_rate_is_that_of_the_windows_alone(offset_s: int, loop: bool, expected: float) -> None:
    assert mean_rps(trace_of([1, 2, 4]), Span(offset_s, 2, history_s=1, loop=loop)) == expected


def test_the_mean_rate_of_a_poisson_source_is_its_rate() -> None:
    assert mean_rps(PoissonSource(7.5), Span(0, 10)) == 7.5


def test_a_traces_arrays_are_read_only() -> None:
    trace = trace_of([1, 2], with_times=True)
    assert trace.times_s is not None
    assert not trace.counts.flags.writeable
    assert not trace.times_s.flags.writeable


@pytest.mark.parametrize("counts", [[], [1, -1]])
def test_a_trace_needs_a_second_and_no_negative_count(counts: list[int]) -> None:
    with pytest.raises(TraceError, match="at least one second"):
        Trace("made", np.array(counts, dtype=np.int64))


@pytest.mark.parametrize("times", [[1.5, 0.5], [0.5], [0.5, 0.7], [0.5, 2.5]])
def test_times_that_contradict_the_counts_are_refused(times: list[float]) -> None:
    with pytest.raises(TraceError, match="agree with the per-second counts"):
        Trace("made", np.array([1, 1]), np.array(times))


def test_a_time_is_never_rounded_into_the_next_second() -> None:
    seconds = np.array([0, 1_000_000, 31_000_000])
    times = times_in(seconds, np.full(3, 1 - 2.0**-53))
    assert np.flatnonzero(seconds_of_times(times, 1)).tolist() == seconds.tolist()
