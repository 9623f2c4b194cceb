"""From a source to the arrivals of one tenant: scaled, seeded, with the burstiness before and after.

How a trace is scaled changes what is tested: ``poisson`` smooths its bursts, ``copies`` sharpens
them, ``thin`` wears them off. So the method is named in every config and report, and the
dispersion (variance/mean of the per-second counts; 1 for a Poisson process) is beside it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import assert_never

import numpy as np

from workloads.arrays import FloatArray, IntArray
from workloads.errors import TraceError
from workloads.traffic.arrivals import (
    PoissonSource,
    Source,
    Span,
    Trace,
    mean_rps,
    second_indices,
    seconds_of_times,
    times_in,
    times_of,
)
from workloads.traffic.luck import at_draw

MAX_REQUESTS = 100_000_000
"""Of a tenant in a window, on average; their times alone take 0.8 GB."""

_AT_ONCE = 2**20
"""About so many requests are drawn at once to count them."""

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
    """One tenant's requests over all windows of a run: counts of all seconds, times of those asked for.

    Arrays are read-only.

    Attributes:
        tenant: The tenant's name.
        source: The source's name.
        scale: How the source was scaled.
        times_between: Times of the seconds from one up to another, ascending, from window 0's begin; asked again, the
            same.
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
    times_between: Callable[[int, int], FloatArray]
    counts: IntArray
    history_counts: IntArray
    dispersion_before: float
    dispersion_after: float
    recorded: Recorded | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.counts, self.history_counts):
            array.setflags(write=False)

    @property
    def times_s(self) -> FloatArray:
        """All times, drawn at once, ``(n_requests,)``."""
        return self.times_between(0, self.counts.size)


def scaled_arrivals(
    source: Source, scale: Scale, span: Span, *, seed: int, tenant: str, window_s: int | None = None
) -> Arrivals:
    """The tenant's arrivals over the span; a function of (source, scale, span, seed, tenant) alone.

    What arrives in a second does not depend on how much history is asked for or how many seconds follow. ``window_s``
    is how much of it is drawn at once; by default all.

    Raises:
        TraceError: The trace is too short for the span and does not loop, or more than ``MAX_REQUESTS`` would come in
            a window.
    """
    _check_number(source, scale, span, min(window_s or span.duration_s, span.duration_s))
    history_s = span.available_history_s(source)
    drawn = _Draws(source, scale, span.offset_s, span.duration_s, span.loop, (seed, tenant, "windows"))
    past = _Draws(source, scale, span.offset_s - history_s, history_s, span.loop, (seed, tenant, "history"))
    return Arrivals(
        tenant=tenant,
        source=source.name,
        scale=scale,
        times_between=drawn.times_s,
        counts=drawn.counts,
        history_counts=past.counts,
        dispersion_before=_dispersion_before(source, span),
        dispersion_after=dispersion(drawn.counts),
        recorded=_recorded_in(source),
        notes=source.notes if isinstance(source, Trace) else (),
    )


def _check_number(source: Source, scale: Scale, span: Span, window_s: int) -> None:
    n_requests = mean_rps(source, span) * window_s * scale.factor
    if n_requests > MAX_REQUESTS:
        raise TraceError(
            f"arrivals: {n_requests:.3g} requests would come in {window_s} s, at a scale factor of "
            f"{scale.factor:,.4g}; at most {MAX_REQUESTS:,} a tenant and window are simulated"
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


@dataclass(frozen=True, eq=False)
class _Draws:
    """A tenant's arrivals over consecutive seconds; chance is fixed by ``stream``, for :func:`_streams`.

    Counts of all seconds are drawn first. Times have a generator of their own, which goes to any second at no cost.
    """

    source: Source
    scale: Scale
    offset_s: int
    duration_s: int
    loop: bool
    stream: tuple[int, str, str]

    @property
    def _thins(self) -> bool:
        return self.scale.method is ScaleMethod.THIN

    @cached_property
    def _candidates(self) -> IntArray:
        """Requests of each second before any is thinned out, ``(duration_s,)``."""
        if self.duration_s == 0:
            return np.zeros(0, np.int64)
        rng, where = _streams(*self.stream), (self.offset_s, self.duration_s, self.loop)
        factor = self.scale.factor
        match self.scale.method:
            case ScaleMethod.POISSON:
                rates = _rates_rps(self.source, self.scale.smooth_s, *where)
                return rng.counts.poisson(rates * factor).astype(np.int64)
            case ScaleMethod.COPIES:
                counts, whole = _recorded(self.source, *where, rng), math.floor(factor)
                extra = rng.counts.binomial(counts, factor - whole)
                return (counts * whole + extra).astype(np.int64)
            case ScaleMethod.THIN:
                return _recorded(self.source, *where, rng)
            case _:
                assert_never(self.scale.method)

    @cached_property
    def _so_far(self) -> IntArray:
        """Candidates before each second, and all of them, ``(duration_s + 1,)``."""
        return np.concatenate([[0], np.cumsum(self._candidates)]).astype(np.int64)

    @cached_property
    def counts(self) -> IntArray:
        """Requests of each second, ``(duration_s,)``."""
        if not self._thins or self.scale.factor == 1:
            return self._candidates
        edges = np.searchsorted(self._so_far, np.arange(0, self._so_far[-1], _AT_ONCE)).tolist()
        seconds = sorted({0, *edges, self.duration_s})
        pieces = (seconds_of_times(self.times_s(a, b) - a, b - a) for a, b in pairwise(seconds))
        return np.concatenate([np.zeros(0, np.int64), *pieces])

    def times_s(self, first_s: int, end_s: int) -> FloatArray:
        """Times of the seconds from ``first_s`` up to ``end_s``, ascending; there are none outside the span."""
        first_s, end_s = (min(max(second, 0), self.duration_s) for second in (first_s, end_s))
        rng, n_before = _streams(*self.stream), int(self._so_far[first_s])
        times_s = self._recorded_times_s(first_s, end_s)
        if times_s is None:
            times_s = _uniform_times(self._candidates[first_s:end_s], first_s, at_draw(rng.places, n_before))
        if not self._thins:
            return times_s
        return times_s[at_draw(rng.counts, n_before).random(times_s.size) < self.scale.factor]

    def _recorded_times_s(self, first_s: int, end_s: int) -> FloatArray | None:
        if not self._thins or isinstance(self.source, PoissonSource) or first_s >= end_s:
            return None
        indices = second_indices(self.source, self.offset_s + first_s, end_s - first_s, loop=self.loop)
        return times_of(self.source, indices, first_s)


def _rates_rps(source: Source, smooth_s: int, offset_s: int, duration_s: int, loop: bool) -> FloatArray:
    """Expected requests of each second before scaling, ``(duration_s,)``; smoothed over the whole trace."""
    if isinstance(source, PoissonSource):
        return np.full(duration_s, source.rate_rps)
    indices = second_indices(source, offset_s, duration_s, loop=loop)
    return smoothed(source.counts, smooth_s, loop=loop)[indices]


def _recorded(source: Source, offset_s: int, duration_s: int, loop: bool, rng: _Streams) -> IntArray:
    """Requests of each second of the trace, ``(duration_s,)``; of a Poisson source, of one realisation."""
    if isinstance(source, PoissonSource):
        # Its own child: a longer span must not shift the draws that follow.
        (child,) = rng.counts.spawn(1)
        return child.poisson(source.rate_rps, duration_s).astype(np.int64)
    return source.counts[second_indices(source, offset_s, duration_s, loop=loop)]


def _uniform_times(counts: IntArray, first_s: int, places: np.random.Generator) -> FloatArray:
    """Uniform times in seconds from ``first_s`` on with so many requests each, ascending."""
    seconds = np.repeat(np.arange(first_s, first_s + counts.size, dtype=np.int64), counts)
    return np.sort(times_in(seconds, places.random(seconds.size)))


def _dispersion_before(source: Source, span: Span) -> float:
    if isinstance(source, PoissonSource):
        return 1.0
    return dispersion(source.counts[second_indices(source, span.offset_s, span.duration_s, loop=span.loop)])
