"""Where requests come from: a recorded trace, or a constant Poisson rate, and the part of it that is used.

Traces are per-second counts, with times inside the second where the source knows them. Files are
read in :mod:`workloads.traffic.trace_file`; :mod:`workloads.traffic.scaling` turns a source into arrivals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.arrays import FloatArray, IntArray
from workloads.errors import TraceError

MAX_RATE_RPS = 1_000_000
"""Most requests a second that a source may have: more is a slip, and would not fit into memory."""


@dataclass(frozen=True)
class Trace:
    """Recorded requests of consecutive seconds. Arrays are read-only.

    Attributes:
        name: Where it comes from, as messages and reports name it.
        counts: Requests that arrived in each second, ``(n_seconds,)``, ≥ 0.
        times_s: Ascending seconds from the trace's begin, ``(n_requests,)``, where the source knows
            them; ``None`` where it knows only the counts.
        notes: What was taken for granted or made up when it was read, in words.
        last_s: The Unix time of its last row, at the earliest; ``None`` where its times may count from any begin.
    """

    name: str
    counts: IntArray
    times_s: FloatArray | None = None
    notes: tuple[str, ...] = ()
    last_s: float | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != 1 or self.counts.size == 0 or self.counts.min() < 0:
            raise TraceError(f"{self.name}: a trace needs at least one second, and counts ≥ 0")
        if self.times_s is not None:
            binned = seconds_of_times(self.times_s, self.n_seconds)
            if not (np.all(np.diff(self.times_s) >= 0) and np.array_equal(binned, self.counts)):
                raise TraceError(f"{self.name}: times must ascend and agree with the per-second counts")
            self.times_s.setflags(write=False)
        self.counts.setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """How many seconds it covers."""
        return int(self.counts.size)


@dataclass(frozen=True, slots=True)
class PoissonSource:
    """Requests at a constant expected rate, independent of each other; it never ends.

    Attributes:
        rate_rps: Expected requests a second, > 0, at most ``MAX_RATE_RPS``.

    Raises:
        TraceError: The rate is anything else.
    """

    rate_rps: float

    def __post_init__(self) -> None:
        # Written so that NaN is refused too.
        if not 0 < self.rate_rps <= MAX_RATE_RPS:
            raise TraceError(f"poisson: the rate is {self.rate_rps}; a number > 0 and ≤ {MAX_RATE_RPS} is needed")

    @property
    def name(self) -> str:
        """As messages and reports name it."""
        return f"poisson {self.rate_rps:g}/s"


Source = Trace | PoissonSource


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a source that a run uses, in whole seconds.

    Attributes:
        offset_s: Second of the source at which window 0 begins.
        duration_s: Length of all windows together.
        history_s: Wanted before window 0, for the forecaster. Without ``loop`` a trace has no
            more than the ``offset_s`` seconds that it has.
        loop: Whether the trace goes on from its first second after its last one (and back).
    """

    offset_s: int
    duration_s: int
    history_s: int = 0
    loop: bool = False

    def __post_init__(self) -> None:
        if self.duration_s < 1 or self.offset_s < 0 or self.history_s < 0:
            raise TraceError(
                f"offset_s {self.offset_s}, duration_s {self.duration_s}, history_s {self.history_s}: "
                "whole seconds are needed, a duration ≥ 1, offset and history ≥ 0"
            )

    def available_history_s(self, source: Source) -> int:
        """Seconds of history that ``source`` can give; all of ``history_s`` when it loops or is Poisson."""
        endless = self.loop or isinstance(source, PoissonSource)
        return self.history_s if endless else min(self.history_s, self.offset_s)


def seconds_of_times(times_s: FloatArray, n_seconds: int) -> IntArray:
    """How many of the times (≥ 0) fall into each second; longer than ``n_seconds`` if a time lies behind."""
    return np.bincount(times_s.astype(np.int64), minlength=n_seconds).astype(np.int64)


def second_indices(trace: Trace, offset_s: int, duration_s: int, *, loop: bool) -> IntArray:
    """The trace's seconds that stand for ``[offset_s, offset_s + duration_s)``, ``(duration_s,)``.

    With ``loop`` the offset may be negative or lie behind the end.

    Raises:
        TraceError: Without ``loop`` the trace is too short, or the offset is negative.
    """
    if duration_s < 0 or (offset_s < 0 and not loop):
        raise TraceError(
            f"{trace.name}: {duration_s} s from second {offset_s} cannot be cut; both must be ≥ 0 without loop"
        )
    needed_s = offset_s + duration_s
    if needed_s > trace.n_seconds and not loop:
        raise TraceError(
            f"{trace.name}: {duration_s} s from second {offset_s} need a trace of {needed_s} s, but it has "
            f"{trace.n_seconds} s; set loop: true, or a smaller offset_s"
        )
    return (offset_s + np.arange(duration_s, dtype=np.int64)) % trace.n_seconds


def cut(trace: Trace, offset_s: int, duration_s: int, *, loop: bool = False) -> Trace:
    """The ``duration_s`` seconds of the trace from ``offset_s`` on, times counted from there.

    Raises:
        TraceError: As :func:`second_indices`, or ``duration_s`` is 0.
    """
    indices = second_indices(trace, offset_s, duration_s, loop=loop)
    return Trace(trace.name, trace.counts[indices], times_of(trace, indices, 0))


def times_of(trace: Trace, indices: IntArray, first_s: int) -> FloatArray | None:
    """Times of the requests in these seconds of the trace, numbered from ``first_s`` on; ``None`` where it has none.

    A request's time inside its second is kept.
    """
    if trace.times_s is None:
        return None
    counts = trace.counts[indices]
    first = np.concatenate([[0], np.cumsum(trace.counts)])[indices]
    ends = np.cumsum(counts)
    picked = np.repeat(first - (ends - counts), counts) + np.arange(int(counts.sum()))
    seconds = np.repeat(np.arange(first_s, first_s + len(indices), dtype=np.int64), counts)
    return times_in(seconds, trace.times_s[picked] % 1.0)


def times_in(seconds: IntArray, fraction: FloatArray) -> FloatArray:
    """``seconds + fraction``, never rounded up into the next second; fractions lie in [0, 1)."""
    times_s: FloatArray = np.minimum(seconds + fraction, np.nextafter(seconds + 1.0, 0.0))
    return times_s


def mean_rps(source: Source, span: Span) -> float:
    """Requests a second over the span's windows, before any scaling.

    Raises:
        TraceError: The trace is too short, see :func:`second_indices`.
    """
    if isinstance(source, PoissonSource):
        return source.rate_rps
    return float(source.counts[second_indices(source, span.offset_s, span.duration_s, loop=span.loop)].mean())
