import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workloads.errors import TraceError
from workloads.traffic.arrivals import Span, cut
from workloads.traffic.servegen import MAX_CV, ClientRates, servegen_piece, shipped_rates, synthetic_trace

SPAN = Span(offset_s=648_000, duration_s=700, history_s=600)
SOURCE = Path(__file__).parents[4] / "shared" / "data" / "traces" / "servegen_rates" / "m-large_top20_clients.csv.gz"


def rates(rate_rps: float, cv: float, n_windows: int = 1) -> ClientRates:
    return ClientRates(np.full((n_windows, 1), rate_rps), np.full((n_windows, 1), cv))


def needed(span: Span, seed: int = 5) -> np.ndarray:
    trace, own = servegen_piece(span, seed)
    return cut(trace, own.offset_s - own.history_s, own.history_s + own.duration_s).counts


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = (servegen_piece(SPAN, 5)[0] for _ in range(2))
    assert np.array_equal(first.times_s, second.times_s)
    assert not np.array_equal(first.counts, servegen_piece(SPAN, 6)[0].counts)


def test_a_second_is_the_same_in_every_piece() -> None:
    later = replace(SPAN, offset_s=SPAN.offset_s + 250, duration_s=300, history_s=0)
    assert np.array_equal(needed(SPAN)[850:1150], needed(later))


def test_the_name_says_that_it_is_synthetic() -> None:
    assert "synthetic at second scale" in servegen_piece(SPAN, 5)[0].name


def test_a_margin_stands_on_both_sides_of_what_is_needed() -> None:
    trace, own = servegen_piece(SPAN, 5, margin_s=1000)
    assert own.offset_s - own.history_s >= 1000
    assert trace.n_seconds >= own.offset_s + own.duration_s + 1000


def test_the_begin_of_the_trace_has_nothing_before_it() -> None:
    _, own = servegen_piece(Span(offset_s=100, duration_s=50, history_s=600), 5)
    assert (own.offset_s, own.history_s) == (100, 100)


def test_the_mean_rate_is_the_published_one() -> None:
    trace = synthetic_trace(shipped_rates(), 1000, 1030, 5)
    published_rps = float(shipped_rates().rate_rps[1000:1030].sum(axis=1).mean())
    assert trace.counts.mean() == pytest.approx(published_rps, rel=0.02)


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0, MAX_CV])
def test_the_gaps_have_the_published_burstiness(cv: float) -> None:
    times_s = synthetic_trace(rates(50.0, cv), 0, 1, 5).times_s
    gaps_s = np.diff(times_s)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.05)


def test_a_larger_burstiness_is_taken_as_the_largest_allowed() -> None:
    times_s = [synthetic_trace(rates(20.0, cv), 0, 1, 5).times_s for cv in (MAX_CV, 100.0)]
    assert np.array_equal(*times_s)


@pytest.mark.parametrize("cv", [0.3, MAX_CV])
def test_a_process_in_equilibrium_has_the_expected_count(cv: float) -> None:
    counts = [synthetic_trace(rates(1.0, cv), 0, 1, seed).counts.sum() for seed in range(150)]
    assert np.mean(counts) == pytest.approx(600, rel=0.03)


def test_silent_clients_send_nothing() -> None:
    assert synthetic_trace(rates(0.0, 0.0, 2), 0, 2, 5).counts.tolist() == [0] * 1200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loop": True}, "loop is true; it must be false"),
        ({"offset_s": 14 * 86_400 - 10}, "need a trace of 1210290 s, but it has 1209600 s; set a smaller offset_s"),
    ],
)
def test_a_span_beyond_the_published_rates_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        servegen_piece(replace(SPAN, **change), 5)


@pytest.mark.skipif(not SOURCE.is_file(), reason="the project's measured data is not beside this checkout")
def test_the_shipped_rates_are_the_sources() -> None:
    rows = list(csv.DictReader(gzip.decompress(SOURCE.read_bytes()).decode().splitlines()))
    assert shipped_rates().rate_rps.sum() == pytest.approx(sum(float(row["rate"]) for row in rows))
    assert shipped_rates().cv.max() == max(float(row["cv"]) for row in rows)
