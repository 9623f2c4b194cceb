"""From a source to the arrivals of one tenant: scaled, seeded, with the burstiness before and after.

How a trace is scaled changes what is tested: ``poisson`` smooths its bursts, ``copies`` sharpens
them, ``thin`` wears them off. So the method is named in every config and report, and the
dispersion (variance/mean of the per-second counts; 1 for a Poisson process) stands beside it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from workloads.arrays import FloatArray, IntArray
from workloads.errors import TraceError
from workloads.traffic.arrivals import (
    PoissonSource,
    Source,
    Span,
    Trace,
    cut,
    mean_rps,
    second_indices,
    seconds_of_times,
    times_in,
)

MAX_REQUESTS = 100_000_000
"""Of a tenant in a run; their times alone take 0.8 GB."""

# Part of every seed here, so that no other draw of the same (seed, tenant) repeats these numbers.
_SEED_TAG = 0x5CA1E


class ScaleMethod(StrEnum):
    """How a trace is brought to another rate."""

    POISSON = "poisson"
    COPIES = "copies"
    THIN = "thin"


@dataclass(frozen=True, slots=True)
class Scale:
    """A method, and the factor k by which the mean rate grows.

    Attributes:
        method: ``poisson``: each second's count is drawn around the smoothed rate times k.
            ``copies``: every request comes k times (with k = 2.3: twice, and a third time with
            probability 0.3), each copy at its own uniform time inside the second. ``thin``: each
            request stays with probability k, at its own time where the trace knows it.
        factor: k, > 0; for ``copies`` ≥ 1, for ``thin`` ≤ 1.
        smooth_s: Width in seconds of the moving average, for ``poisson`` only.

    Raises:
        TraceError: The factor or the width is not allowed.
    """

    method: ScaleMethod = ScaleMethod.POISSON
    factor: float = 1.0
    smooth_s: int = 10

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise TraceError(f"scale: factor is {self.factor}; a finite number > 0 is needed")
        if self.method is ScaleMethod.COPIES and self.factor < 1:
            raise TraceError(f"scale: factor is {self.factor}; copies needs ≥ 1 (thin is for less)")
        if self.method is ScaleMethod.THIN and self.factor > 1:
            raise TraceError(f"scale: factor is {self.factor}; thin needs ≤ 1 (copies or poisson are for more)")
        if self.smooth_s < 1:
            raise TraceError(f"scale: smooth_s is {self.smooth_s}; whole seconds ≥ 1 are needed")


def method_of(source: Source, factor: float) -> ScaleMethod:
    """The method where none is given: as recorded up to a factor of 1, thinned below it; more is drawn anew.

    A Poisson source has no record, so that it is always drawn.
    """
    return ScaleMethod.THIN if isinstance(source, Trace) and factor <= 1 else ScaleMethod.POISSON


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a trace holds before it is scaled.

    Attributes:
        n_requests: Of the whole trace.
        n_seconds: The trace's length.
        peak_rps: Most requests of a second.
        has_times: Whether the requests have times inside their second.
    """

    n_requests: int
    n_seconds: int
    peak_rps: int
    has_times: bool


@dataclass(frozen=True)
class Arrivals:
    """One tenant's requests over all windows of a run. Arrays are read-only.

    Attributes:
        tenant: The tenant's name.
        source: The source's name.
        scale: How the source was scaled.
        times_s: Ascending seconds from window 0's begin, ``(n_requests,)``.
        counts: Requests in each second, ``(duration_s,)``.
        history_counts: Requests in each second before window 0, ``(history_s,)``, oldest first;
            shorter than asked where the trace has no more.
        dispersion_before: Variance/mean of the source's per-second counts over the same seconds.
        dispersion_after: The same of ``counts``.
        recorded: What the source holds; ``None`` for a Poisson source, which holds nothing.
        notes: Of the trace, see :class:`Trace`.
    """

    tenant: str
    source: str
    scale: Scale
    times_s: FloatArray
    counts: IntArray
    history_counts: IntArray
    dispersion_before: float
    dispersion_after: float
    recorded: Recorded | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.times_s, self.counts, self.history_counts):
            array.setflags(write=False)


def scaled_arrivals(source: Source, scale: Scale, span: Span, *, seed: int, tenant: str) -> Arrivals:
    """The tenant's arrivals over the span; a function of (source, scale, span, seed, tenant) alone.

    What arrives in a second does not depend on how much history is asked for or how many seconds
    follow.

    Raises:
        TraceError: The trace is too short for the span and does not loop, or more than ``MAX_REQUESTS`` would come.
    """
    _check_number(source, scale, span)
    times_s = _draw(source, scale, span.offset_s, span.duration_s, span.loop, _streams(seed, tenant, "windows"))
    history_s = span.available_history_s(source)
    past_s = _draw(source, scale, span.offset_s - history_s, history_s, span.loop, _streams(seed, tenant, "history"))
    counts = seconds_of_times(times_s, span.duration_s)
    return Arrivals(
        tenant=tenant,
        source=source.name,
        scale=scale,
        times_s=times_s,
        counts=counts,
        history_counts=seconds_of_times(past_s, history_s),
        dispersion_before=_dispersion_before(source, span),
        dispersion_after=dispersion(counts),
        recorded=_recorded_in(source),
        notes=source.notes if isinstance(source, Trace) else (),
    )


def _check_number(source: Source, scale: Scale, span: Span) -> None:
    n_requests = mean_rps(source, span) * span.duration_s * scale.factor
    if n_requests > MAX_REQUESTS:
        raise TraceError(
            f"arrivals: {n_requests:.3g} requests would come, at a scale factor of {scale.factor:.4g}; "
            f"at most {MAX_REQUESTS} a tenant and run are simulated"
        )


def _recorded_in(source: Source) -> Recorded | None:
    if isinstance(source, PoissonSource):
        return None
    counts = source.counts
    return Recorded(int(counts.sum()), source.n_seconds, int(counts.max()), source.times_s is not None)


def dispersion(counts: IntArray) -> float:
    """Variance/mean of the per-second counts ``(n_seconds,)``; 0 where nothing arrives."""
    mean = float(counts.mean()) if counts.size else 0.0
    return float(counts.var()) / mean if mean > 0 else 0.0


def smoothed(counts: IntArray, smooth_s: int, *, loop: bool) -> FloatArray:
    """The centred moving average of the counts ``(n_seconds,)``; its sum is that of the counts.

    At the ends of a trace that does not loop, a second's requests are spread evenly over that part
    of its ``smooth_s`` seconds which lies in the trace, so none is lost or counted twice. An even
    width reaches one second further into the past.
    """
    n = counts.size
    width = min(smooth_s, n)
    before, after = (width - 1) // 2, width // 2
    kernel = np.ones(width)
    if loop:
        padded = np.concatenate([counts[n - after :], counts, counts[:before]])
        return np.convolve(padded, kernel / width, mode="valid")
    index = np.arange(n)
    reach = np.minimum(index + after, n - 1) - np.maximum(index - before, 0) + 1
    return np.convolve(counts / reach, kernel, mode="full")[before : before + n]


@dataclass(frozen=True, slots=True)
class _Streams:
    """Separate generators for counts and times, so that a longer span begins with the same arrivals."""

    counts: np.random.Generator
    places: np.random.Generator


def _streams(seed: int, tenant: str, part: str) -> _Streams:
    digest = hashlib.sha256(f"{part}/{tenant}".encode()).digest()
    sequence = np.random.SeedSequence([_SEED_TAG, seed, int.from_bytes(digest[:16], "big")])
    counts, places = sequence.spawn(2)
    return _Streams(np.random.default_rng(counts), np.random.default_rng(places))


def _draw(source: Source, scale: Scale, offset_s: int, duration_s: int, loop: bool, rng: _Streams) -> FloatArray:
    """Ascending arrival times in seconds from ``offset_s``, ``(n_requests,)``."""
    if duration_s == 0:
        return np.zeros(0)
    match scale.method:
        case ScaleMethod.POISSON:
            rates = _rates_rps(source, scale.smooth_s, offset_s, duration_s, loop)
            return _uniform_times(rng.counts.poisson(rates * scale.factor).astype(np.int64), rng)
        case ScaleMethod.COPIES:
            counts = _recorded(source, offset_s, duration_s, loop, rng).counts
            whole = math.floor(scale.factor)
            extra = rng.counts.binomial(counts, scale.factor - whole)
            return _uniform_times((counts * whole + extra).astype(np.int64), rng)
        case ScaleMethod.THIN:
            trace = _recorded(source, offset_s, duration_s, loop, rng)
            times_s = _uniform_times(trace.counts, rng) if trace.times_s is None else trace.times_s
            return times_s[rng.counts.random(times_s.size) < scale.factor]
        case _:
            assert_never(scale.method)


def _rates_rps(source: Source, smooth_s: int, offset_s: int, duration_s: int, loop: bool) -> FloatArray:
    """Expected requests of each second before scaling, ``(duration_s,)``; smoothed over the whole trace."""
    if isinstance(source, PoissonSource):
        return np.full(duration_s, source.rate_rps)
    indices = second_indices(source, offset_s, duration_s, loop=loop)
    return smoothed(source.counts, smooth_s, loop=loop)[indices]


def _recorded(source: Source, offset_s: int, duration_s: int, loop: bool, rng: _Streams) -> Trace:
    """The cut of a trace; of a Poisson source, one realisation."""
    if isinstance(source, PoissonSource):
        # Its own child: a longer span must not shift the draws that follow.
        (child,) = rng.counts.spawn(1)
        return Trace(source.name, child.poisson(source.rate_rps, duration_s).astype(np.int64))
    return cut(source, offset_s, duration_s, loop=loop)


def _uniform_times(counts: IntArray, rng: _Streams) -> FloatArray:
    seconds = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    return np.sort(times_in(seconds, rng.places.random(seconds.size)))


def _dispersion_before(source: Source, span: Span) -> float:
    if isinstance(source, PoissonSource):
        return 1.0
    return dispersion(source.counts[second_indices(source, span.offset_s, span.duration_s, loop=span.loop)])
