"""A synthetic trace of an Alibaba service, from the rates and the burstiness that ServeGen publishes of it.

ServeGen (Alibaba Cloud) publishes, for each client of a production LLM service and each 600 s, the mean
rate and the coefficient of variation (cv) of the gaps between its requests; request times are not
public. Here each client's gaps are drawn from a gamma distribution with that mean and cv, so the trace
is true at the scale of minutes and made up at the scale of seconds. Its name says *synthetic*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from executor.files import gunzipped, read_shipped
from workloads.arrays import FloatArray
from workloads.errors import TraceError
from workloads.traffic.arrivals import Span, Trace, seconds_of_times

SERVEGEN_TRACE = "alibaba-servegen"
"""What a config calls it."""

SERVEGEN_LABEL = f"{SERVEGEN_TRACE} (synthetic at second scale)"
"""What logs and reports call it."""

RATE_WINDOW_S = 600
"""How long a published rate holds."""

MAX_CV = 4.0
"""Larger published cvs are lowered to this one. Values up to 149 stand for a client that was silent through a
part of the 600 s; gaps drawn with such a cv would heap its requests into single instants instead."""

_SHIPPED = "servegen_m_large_clients.csv.gz"
# First words of the seeds, so that no other draw repeats these numbers.
_SEED_TAG = 0x5E47E


@dataclass(frozen=True)
class ClientRates:
    """What is published of a service's clients. Arrays are read-only.

    Attributes:
        rate_rps: Mean requests a second of each 600 s, ``(n_rate_windows, n_clients)``, ≥ 0.
        cv: Standard deviation of the gaps over their mean, likewise; 0 where nothing arrived.
    """

    rate_rps: FloatArray
    cv: FloatArray

    def __post_init__(self) -> None:
        self.rate_rps.setflags(write=False)
        self.cv.setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """How long the rates are known."""
        return RATE_WINDOW_S * len(self.rate_rps)


@cache
def shipped_rates() -> ClientRates:
    """Service m-large, 14 days: the 20 clients with most requests, which send 78 % of the total."""
    text = gunzipped(read_shipped("workloads.data", _SHIPPED), 2**24).decode("ascii")
    cells = np.array([line.split(",") for line in text.splitlines()[1:]], dtype=np.float64)
    client, window = cells[:, 0], (cells[:, 1] / RATE_WINDOW_S).astype(np.int64)
    column = np.unique(client, return_inverse=True)[1]
    rate_rps, cv = np.zeros((2, int(window.max()) + 1, int(column.max()) + 1))
    rate_rps[window, column] = cells[:, 2]
    cv[window, column] = cells[:, 3]
    return ClientRates(rate_rps, cv)


def servegen_piece(span: Span, seed: int, margin_s: int = RATE_WINDOW_S) -> tuple[Trace, Span]:
    """The part of the synthetic trace that a span needs, and the span as counted from that part's begin.

    At least ``margin_s`` are before and after what is needed, where the trace has them, so that
    smoothing does not see the cut. A second holds the same requests in every part of the same seed.

    Raises:
        TraceError: The span does not lie within the published rates, or asks to loop.
    """
    rates = shipped_rates()
    if span.loop:
        raise TraceError(f"{SERVEGEN_LABEL}: loop is true; it must be false, because the trace lasts 14 days")
    end_s = span.offset_s + span.duration_s
    if end_s > rates.n_seconds:
        raise TraceError(
            f"{SERVEGEN_LABEL}: {span.duration_s} s from second {span.offset_s} need a trace of {end_s} s, but it has "
            f"{rates.n_seconds} s; set a smaller offset_s"
        )
    first = max(0, span.offset_s - span.history_s - margin_s) // RATE_WINDOW_S
    last = min(len(rates.rate_rps), math.ceil((end_s + margin_s) / RATE_WINDOW_S))
    begin_s = first * RATE_WINDOW_S
    trace = synthetic_trace(rates, first, last, seed)
    return trace, Span(span.offset_s - begin_s, span.duration_s, min(span.history_s, span.offset_s))


def synthetic_trace(rates: ClientRates, first: int, last: int, seed: int) -> Trace:
    """Requests of the rate windows ``first`` ≤ w < ``last``, times counted from the first one's begin.

    Every client and rate window has its own generator, and a renewal process of gamma gaps in equilibrium:
    its expected count is the published one.
    """
    times = [
        (window - first) * RATE_WINDOW_S
        + _renewals(rate_rps, cv, np.random.default_rng([_SEED_TAG, seed, window, client]))
        for window in range(first, last)
        for client, (rate_rps, cv) in enumerate(zip(rates.rate_rps[window], rates.cv[window], strict=True))
        if rate_rps > 0
    ]
    n_seconds = (last - first) * RATE_WINDOW_S
    times_s = np.sort(np.concatenate([np.zeros(0), *times]))
    times_s = np.minimum(times_s, np.nextafter(float(n_seconds), 0.0))
    return Trace(SERVEGEN_LABEL, seconds_of_times(times_s, n_seconds), times_s)


def _renewals(rate_rps: float, cv: float, rng: np.random.Generator) -> FloatArray:
    """Ascending times in ``[0, RATE_WINDOW_S)``, gaps gamma with mean 1/rate and this cv (at most ``MAX_CV``)."""
    # A cv of 0 would be a metronome; no published one is below 0.01.
    shape = 1.0 / min(max(cv, 0.01), MAX_CV) ** 2
    scale_s = 1.0 / (rate_rps * shape)
    n_expected = rate_rps * RATE_WINDOW_S
    # In equilibrium the gap under way at second 0 is length-biased, and second 0 lies anywhere in it.
    times_s = np.array([rng.random() * rng.gamma(shape + 1.0, scale_s)])
    while times_s[-1] < RATE_WINDOW_S:
        n_more = int(n_expected + 4 * math.sqrt(n_expected / shape)) + 16
        times_s = np.concatenate([times_s, times_s[-1] + np.cumsum(rng.gamma(shape, scale_s, n_more))])
    return times_s[times_s < RATE_WINDOW_S]
