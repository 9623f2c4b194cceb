import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.errors import TraceError
from workloads.traffic.arrivals import PoissonSource, Source, Span, Trace, cut
from workloads.traffic.scaling import (
    Arrivals,
    Recorded,
    Scale,
    ScaleMethod,
    dispersion,
    method_of,
    scaled_arrivals,
    smoothed,
)
from workloads.traffic.trace_file import shipped_trace

EXAMPLES = settings(derandomize=True, max_examples=examples(60))
METHODS = [Scale(ScaleMethod.POISSON, 3.0), Scale(ScaleMethod.COPIES, 2.4), Scale(ScaleMethod.THIN, 0.4)]
SOURCES = [shipped_trace("azure-conv"), Trace("counts", shipped_trace("azure-code").counts.copy()), PoissonSource(6.0)]
SPAN = Span(1200, 400, history_s=300)
both = pytest.mark.parametrize(("scale", "source"), [(scale, source) for scale in METHODS for source in SOURCES])
counts_arrays = st.lists(st.integers(0, 50), min_size=1, max_size=40).map(lambda c: np.array(c, dtype=np.int64))


def arrivals(source: Source, scale: Scale, span: Span = SPAN, seed: int = 1, tenant: str = "a") -> Arrivals:
    return scaled_arrivals(source, scale, span, seed=seed, tenant=tenant)


@both
def test_the_mean_grows_by_the_factor(scale: Scale, source: Source) -> None:
    made = [arrivals(source, scale, seed=seed).counts.mean() for seed in range(20)]
    whole = source.rate_rps if isinstance(source, PoissonSource) else cut(source, 1200, 400).counts.mean()
    # Smoothing lets up to a few seconds' requests cross the ends of the cut: 2 % here, 20 draws about 1.5 %.
    assert np.mean(made) == pytest.approx(whole * scale.factor, rel=0.06)


@both
def test_the_same_seed_and_name_give_the_same_arrivals(scale: Scale, source: Source) -> None:
    assert np.array_equal(arrivals(source, scale).times_s, arrivals(source, scale).times_s)


@both
@pytest.mark.parametrize(("seed", "tenant"), [(2, "a"), (1, "b")])
def test_another_seed_or_name_gives_other_arrivals(scale: Scale, source: Source, seed: int, tenant: str) -> None:
    other = arrivals(source, scale, seed=seed, tenant=tenant)
    assert not np.array_equal(arrivals(source, scale).times_s, other.times_s)


@both
def test_a_longer_run_begins_with_the_same_arrivals(scale: Scale, source: Source) -> None:
    longer = arrivals(source, scale, Span(1200, 900, history_s=300)).times_s
    assert np.array_equal(longer[longer < 400], arrivals(source, scale).times_s)


@both
def test_arrivals_do_not_depend_on_how_much_history_is_asked_for(scale: Scale, source: Source) -> None:
    assert np.array_equal(arrivals(source, scale, Span(1200, 400)).times_s, arrivals(source, scale).times_s)


@both
def test_times_ascend_and_agree_with_the_counts(scale: Scale, source: Source) -> None:
    made = arrivals(source, scale)
    assert np.all(np.diff(made.times_s) >= 0)
    assert np.array_equal(np.histogram(made.times_s, bins=np.arange(401))[0], made.counts)


@both
@pytest.mark.parametrize("loop", [False, True])
def test_times_of_some_seconds_are_those_of_the_whole(scale: Scale, source: Source, *, loop: bool) -> None:
    made = arrivals(source, scale, Span(1200, 2300 if loop else 800, history_s=300, loop=loop))
    for first_s, end_s in [(0, 1), (399, 777), (20, 20), (2299, 2300), (777, 2300), (-5, 3), (2290, 9999)]:
        is_in = (made.times_s >= first_s) & (made.times_s < end_s)
        assert np.array_equal(made.times_between(first_s, end_s), made.times_s[is_in])


@pytest.mark.parametrize("factor", [0.4, 1.0])
def test_requests_are_counted_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    whole = [arrivals(source, Scale(ScaleMethod.THIN, factor)).counts for source in SOURCES]
    monkeypatch.setattr("workloads.traffic.scaling._AT_ONCE", 50)
    pieces = [arrivals(source, Scale(ScaleMethod.THIN, factor)).counts for source in SOURCES]
    assert all(np.array_equal(one, other) for one, other in zip(whole, pieces, strict=True))


@both
def test_history_ends_where_window_0_begins(scale: Scale, source: Source) -> None:
    assert arrivals(source, scale).history_counts.shape == (300,)


def test_thinned_history_is_a_subset_of_the_seconds_before_the_offset() -> None:
    made = arrivals(SOURCES[0], Scale(ScaleMethod.THIN, 1.0))
    assert np.array_equal(made.history_counts, shipped_trace("azure-conv").counts[900:1200])


def test_history_wraps_when_the_trace_loops() -> None:
    source = Trace("made", np.arange(10, dtype=np.int64))
    made = arrivals(source, Scale(ScaleMethod.COPIES, 2.0), Span(2, 5, history_s=4, loop=True))
    assert made.history_counts.tolist() == [16, 18, 0, 2]


def test_without_loop_history_is_what_the_trace_has() -> None:
    source = Trace("made", np.arange(10, dtype=np.int64))
    assert arrivals(source, Scale(), Span(2, 5, history_s=4)).history_counts.shape == (2,)


@pytest.mark.parametrize("scale", METHODS)
def test_a_trace_too_short_for_the_windows_is_refused(scale: Scale) -> None:
    with pytest.raises(TraceError, match="need a trace of 3600 s, but it has 3502 s"):
        arrivals(SOURCES[0], scale, Span(3400, 200))


def test_thinning_keeps_a_subset_of_the_requests_at_their_times() -> None:
    recorded = cut(shipped_trace("azure-conv"), 1200, 400).times_s
    assert recorded is not None
    kept = Counter(arrivals(SOURCES[0], Scale(ScaleMethod.THIN, 0.5)).times_s.tolist())
    assert kept <= Counter(recorded.tolist())


@EXAMPLES
@given(counts_arrays, st.floats(0.01, 1.0), st.integers(0, 9))
def test_thinning_counts_never_adds_a_request(counts: np.ndarray, factor: float, seed: int) -> None:
    made = arrivals(Trace("made", counts), Scale(ScaleMethod.THIN, factor), Span(0, counts.size), seed)
    assert np.all(made.counts <= counts)


@EXAMPLES
@given(counts_arrays, st.integers(1, 5), st.integers(0, 9))
def test_whole_copies_multiply_every_second(counts: np.ndarray, factor: int, seed: int) -> None:
    made = arrivals(Trace("made", counts), Scale(ScaleMethod.COPIES, float(factor)), Span(0, counts.size), seed)
    assert np.array_equal(made.counts, counts * factor)


@EXAMPLES
@given(counts_arrays, st.floats(1.0, 6.0), st.integers(0, 9))
def test_broken_copies_stand_between_the_whole_ones(counts: np.ndarray, factor: float, seed: int) -> None:
    made = arrivals(Trace("made", counts), Scale(ScaleMethod.COPIES, factor), Span(0, counts.size), seed).counts
    assert np.all(made >= counts * math.floor(factor))
    assert np.all(made <= counts * math.ceil(factor))


@EXAMPLES
@given(counts_arrays, st.integers(1, 60), st.booleans())
def test_smoothing_keeps_the_sum_and_the_sign(counts: np.ndarray, smooth_s: int, loop: bool) -> None:
    made = smoothed(counts, smooth_s, loop=loop)
    assert made.shape == counts.shape
    assert np.all(made >= 0)
    assert made.sum() == pytest.approx(counts.sum(), rel=1e-12)


@EXAMPLES
@given(counts_arrays, st.integers(1, 20))
def test_smoothing_is_the_centred_mean_where_all_its_seconds_lie_inside(counts: np.ndarray, smooth_s: int) -> None:
    made = smoothed(counts, smooth_s, loop=False)
    before, after = smooth_s // 2, (smooth_s - 1) // 2
    # A neighbour's share is 1/smooth_s only if the neighbour's own window lies inside too.
    for second in range(before + after, counts.size - before - after):
        assert made[second] == pytest.approx(counts[second - before : second + after + 1].mean())


@EXAMPLES
@given(counts_arrays, st.integers(1, 20))
def test_smoothing_a_loop_is_the_mean_around_the_seam(counts: np.ndarray, smooth_s: int) -> None:
    width = min(smooth_s, counts.size)
    shifts = range(-((width - 1) // 2), width // 2 + 1)
    expected = np.mean([np.roll(counts, shift) for shift in shifts], axis=0)
    assert smoothed(counts, smooth_s, loop=True) == pytest.approx(expected)


def test_one_second_wide_smoothing_changes_nothing() -> None:
    counts = shipped_trace("azure-code").counts
    assert np.array_equal(smoothed(counts, 1, loop=False), counts)


@EXAMPLES
@given(counts_arrays.filter(lambda counts: bool(counts.sum())))
def test_dispersion_is_variance_over_mean(counts: np.ndarray) -> None:
    assert dispersion(counts) == pytest.approx(np.var(counts) / np.mean(counts))


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_dispersion_of_nothing_is_zero(counts: list[int]) -> None:
    assert dispersion(np.array(counts, dtype=np.int64)) == 0.0


def test_dispersion_is_given_before_and_after() -> None:
    made = arrivals(SOURCES[1], Scale(ScaleMethod.COPIES, 4.0))
    recorded = shipped_trace("azure-code").counts[1200:1600]
    assert made.dispersion_before == pytest.approx(np.var(recorded) / np.mean(recorded))
    assert made.dispersion_after == pytest.approx(4 * made.dispersion_before)


def test_a_poisson_source_is_poisson_before_and_after() -> None:
    made = arrivals(PoissonSource(100.0), Scale(), Span(0, 5000))
    assert made.dispersion_before == 1.0
    assert made.dispersion_after == pytest.approx(1.0, abs=0.1)


def test_times_are_uniform_inside_their_second() -> None:
    inside = arrivals(SOURCES[1], Scale(ScaleMethod.COPIES, 9.0)).times_s % 1
    assert np.histogram(inside, bins=4, range=(0, 1))[0] / inside.size == pytest.approx(np.full(4, 0.25), abs=0.02)


def test_which_requests_stay_does_not_depend_on_their_times() -> None:
    inside = (
        arrivals(Trace("even", np.ones(9000, dtype=np.int64)), Scale(ScaleMethod.THIN, 0.4), Span(0, 9000)).times_s % 1
    )
    assert np.histogram(inside, bins=4, range=(0, 1))[0] / inside.size == pytest.approx(np.full(4, 0.25), abs=0.02)


def test_history_is_drawn_apart_from_the_windows() -> None:
    made = arrivals(PoissonSource(20.0), Scale(), Span(0, 300, history_s=300))
    assert not np.array_equal(made.history_counts, made.counts)


def test_arrays_are_read_only() -> None:
    made = arrivals(SOURCES[0], Scale())
    assert not any(array.flags.writeable for array in (made.counts, made.history_counts))


@pytest.mark.parametrize(
    ("method", "factor", "smooth_s", "message"),
    [
        (ScaleMethod.POISSON, 0.0, 10, "factor is 0.0; a finite number > 0"),
        (ScaleMethod.POISSON, math.nan, 10, "factor is nan"),
        (ScaleMethod.POISSON, math.inf, 10, "factor is inf"),
        (ScaleMethod.COPIES, 0.5, 10, "copies needs ≥ 1"),
        (ScaleMethod.THIN, 1.5, 10, "thin needs ≤ 1"),
        (ScaleMethod.POISSON, 1.0, 0, "smooth_s is 0"),
    ],
)
def test_a_scale_out_of_range_is_refused(method: ScaleMethod, factor: float, smooth_s: int, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Scale(method, factor, smooth_s)


@pytest.mark.parametrize("method", [ScaleMethod.POISSON, ScaleMethod.COPIES])
def test_more_requests_than_memory_holds_are_refused_before_they_are_drawn(method: ScaleMethod) -> None:
    with pytest.raises(TraceError, match=r"2.4e\+12 requests would come in 400 s, at a scale factor of 1e\+09"):
        arrivals(PoissonSource(6.0), Scale(method, 1e9))


@pytest.mark.parametrize(
    ("factor", "method"), [(0.3, ScaleMethod.THIN), (1.0, ScaleMethod.THIN), (1.001, ScaleMethod.POISSON)]
)
def test_without_a_method_a_trace_is_replayed_thinned_or_redrawn(factor: float, method: ScaleMethod) -> None:
    assert method_of(Trace("a", np.ones(3, dtype=np.int64)), factor) is method


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_without_a_method_a_poisson_source_is_drawn(factor: float) -> None:
    assert method_of(PoissonSource(5.0), factor) is ScaleMethod.POISSON


def test_a_replay_of_counts_keeps_every_second() -> None:
    counts = np.random.default_rng(3).poisson(4, 200)
    made = arrivals(Trace("a", counts), Scale(ScaleMethod.THIN, 1.0), Span(20, 100, history_s=20))
    assert made.counts.tolist() == counts[20:120].tolist()
    assert made.history_counts.tolist() == counts[:20].tolist()


def test_arrivals_tell_what_their_trace_holds_and_what_was_noted_of_it() -> None:
    made = arrivals(Trace("a", np.array([1, 5, 3]), notes=("a gap",)), Scale(), Span(0, 2))
    assert (made.recorded, made.notes) == (Recorded(9, 3, 5, has_times=False), ("a gap",))


def test_arrivals_of_a_poisson_source_have_nothing_recorded() -> None:
    assert arrivals(PoissonSource(5.0), Scale(), Span(0, 2)).recorded is None
