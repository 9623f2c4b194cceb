"""Outcomes counted by the second of arrival, and latencies as a histogram: all that reports need of requests.

Counts add up: the tallies of two pieces merge into that of both, so a run keeps numbers, not requests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from workloads.serving import BoolArray, FloatArray, IntArray, Outcomes, Requests

_DIGITS_OF_MS = 6  # latencies are differences of run times: beyond a nanosecond they hold only rounding

_COUNTS = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")


@dataclass(frozen=True, slots=True)
class Totals:
    """Requests of one or more tenants over some span. Totals add up with ``+``."""

    arrivals: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    correct: int = 0
    correct_late: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, name) + getattr(other, name) for name in _COUNTS))

    @property
    def goodput_pct(self) -> float | None:
        """Correct and in time, of all arrivals; None without arrivals."""
        return _percent(self.correct, self.arrivals)

    @property
    def slo_attainment_pct(self) -> float | None:
        """In time, of all arrivals; None without arrivals."""
        return _percent(self.in_time, self.arrivals)

    @property
    def accuracy_pct(self) -> float | None:
        """Correct, of all answered, in time or late; None without answers."""
        return _percent(self.correct + self.correct_late, self.in_time + self.late)


@dataclass(frozen=True, eq=False)
class SecondCounts:
    """One tenant's resolved requests by the second in which they *arrived*. Arrays are ``(n_seconds,)``, read-only.

    In every second ``arrivals = in_time + late + dropped``, once all its requests are resolved.

    Attributes:
        tenant: The tenant's name.
        first_second: Requests in place 0 arrived in ``[first_second, first_second + 1)``.
        arrivals: Requests resolved so far.
        in_time: Answered within the SLO.
        late: Answered after it.
        dropped: Never answered.
        correct: In time and correct: goodput.
        correct_late: Late and correct.
        latency_ms: Histogram of the answered: milliseconds b → requests that took (b − 1, b] ms. Ascending.
    """

    tenant: str
    first_second: int
    arrivals: IntArray
    in_time: IntArray
    late: IntArray
    dropped: IntArray
    correct: IntArray
    correct_late: IntArray
    latency_ms: Mapping[int, int]

    def __post_init__(self) -> None:
        for name in _COUNTS:
            getattr(self, name).setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """Seconds counted."""
        return len(self.arrivals)

    @property
    def totals(self) -> Totals:
        """Sums over all seconds."""
        return Totals(*(int(getattr(self, name).sum()) for name in _COUNTS))


def tally(requests: Requests, outcomes: Outcomes, n_seconds: int, first_second: int = 0) -> SecondCounts:
    """The outcomes of requests that arrived in ``[first_second, first_second + n_seconds)``; others are left out.

    So a piece that ends in one window and began in another is tallied once for each of them.
    """
    arrival_s = requests.arrival_s[outcomes.index]
    second = np.floor(arrival_s).astype(np.int64) - first_second
    counted = (second >= 0) & (second < n_seconds)

    def per_second(which: BoolArray) -> IntArray:
        return np.bincount(second[which & counted], minlength=n_seconds).astype(np.int64)

    answered = counted & ~outcomes.dropped
    return SecondCounts(
        tenant=requests.tenant,
        first_second=first_second,
        arrivals=per_second(counted),
        in_time=per_second(outcomes.in_time),
        late=per_second(outcomes.late),
        dropped=per_second(outcomes.dropped),
        correct=per_second(outcomes.in_time & outcomes.correct),
        correct_late=per_second(outcomes.late & outcomes.correct),
        latency_ms=_histogram_ms(outcomes.answer_s[answered] - arrival_s[answered]),
    )


def merge(parts: Sequence[SecondCounts]) -> SecondCounts:
    """The tally of all parts' requests together.

    Raises:
        ValueError: There are no parts, or they differ in tenant or seconds.
    """
    spans = {(part.tenant, part.first_second, part.n_seconds) for part in parts}
    if len(spans) != 1:
        raise ValueError(f"only tallies of one tenant over the same seconds merge, got {sorted(spans)}")
    tenant, first_second, _ = spans.pop()
    counts = np.array([[getattr(part, name) for name in _COUNTS] for part in parts], dtype=np.int64).sum(axis=0)
    histogram = merge_histograms([part.latency_ms for part in parts])
    arrivals, in_time, late, dropped, correct, correct_late = counts
    return SecondCounts(tenant, first_second, arrivals, in_time, late, dropped, correct, correct_late, histogram)


def merge_histograms(histograms: Sequence[Mapping[int, int]]) -> Mapping[int, int]:
    """The latency histogram of all together, ascending."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return MappingProxyType(dict(sorted(total.items())))


def latency_percentile_ms(histogram: Mapping[int, int], fraction: float) -> int | None:
    """The smallest millisecond within which at least ``fraction`` of the answered were answered.

    It is the upper edge of the bin that holds the percentile: at most 1 ms above the exact value, never below
    it, and never above an SLO of whole milliseconds that was met. None when nothing was answered.

    Raises:
        ValueError: ``fraction`` is outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction {fraction}: must be above 0 and at most 1")
    needed = math.ceil(fraction * sum(histogram.values()) - 1e-9)
    n_answered = 0
    for upper_ms in sorted(histogram):
        n_answered += histogram[upper_ms]
        if n_answered >= needed:
            return upper_ms
    return None


def _histogram_ms(latency_s: FloatArray) -> Mapping[int, int]:
    """Counts by whole milliseconds, rounded up."""
    upper_ms = np.ceil(np.round(latency_s * 1e3, _DIGITS_OF_MS)).astype(np.int64)
    edges, n_answered = np.unique(upper_ms, return_counts=True)
    return MappingProxyType(dict(zip(edges.tolist(), n_answered.tolist(), strict=True)))


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
