"""Outcomes counted by the second of arrival, and latencies as a histogram: all that reports need of requests.

A tally takes a run's pieces as they come, in any order: a run keeps numbers, not requests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Self

import numpy as np

from executor.compiled import compiled
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.serving.requests import Outcomes, Requests

_N_BINS = 1024
"""Latencies up to so many milliseconds are counted in an array; the few above it, one by one."""

COUNTED = ("arrivals", "in_time", "late", "dropped", "correct", "correct_late")
_ARRIVALS, _IN_TIME, _LATE, _DROPPED, _CORRECT, _CORRECT_LATE = range(6)
"""The counts' names, and their rows."""


@dataclass(frozen=True, slots=True)
class Added:
    """Figures that add up with ``+``, field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass(frozen=True, slots=True)
class Totals(Added):
    """Requests of one or more tenants over some span. Totals add up with ``+``.

    Of the ``unlabelled`` nobody knows what is right, so that neither is of how many answers; ``refused`` and ``failed``
    are among the dropped, and known only of live arrivals.
    """

    arrivals: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    correct: int = 0
    correct_late: int = 0
    unlabelled: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def goodput(self) -> int | None:
        """Correct and in time; None where it is not known what is right."""
        return None if self.unlabelled else self.correct

    @property
    def goodput_pct(self) -> float | None:
        """Correct and in time, of all arrivals; None without arrivals, and where it is not known what is right."""
        return None if self.unlabelled else _percent(self.correct, self.arrivals)

    @property
    def slo_attainment_pct(self) -> float | None:
        """In time, of all arrivals; None without arrivals."""
        return _percent(self.in_time, self.arrivals)

    @property
    def accuracy_pct(self) -> float | None:
        """Correct, of all answered, in time or late; None without answers, and where it is not known what is right."""
        return None if self.unlabelled else _percent(self.correct + self.correct_late, self.in_time + self.late)


@dataclass(frozen=True, eq=False)
class SecondCounts:
    """One tenant's resolved requests by the second in which they *arrived*. Arrays are ``(n_seconds,)``, read-only.

    In every second ``arrivals = in_time + late + dropped``, once all its requests are resolved.

    Attributes:
        tenant: The tenant's name.
        first_second: Requests in place 0 arrived in ``[first_second, first_second + 1)``.
        arrivals: Requests resolved.
        in_time: Answered within the SLO.
        late: Answered after it.
        dropped: Never answered.
        correct: In time and correct: goodput.
        correct_late: Late and correct.
        latency_ms: Histogram of the answered: milliseconds b → requests that took (b − 1, b] ms. Ascending.
        refused: Of the dropped, those that found no room; where it is known, it is not known what answers are right.
        failed: Of the dropped, those that workers could not answer; known likewise.
        judged: Of how many answers clients have said since, to any requests, which label was right; how many had it.
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
    refused: IntArray | None = None
    failed: IntArray | None = None
    judged: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in COUNTED:
            getattr(self, name).setflags(write=False)

    @property
    def n_seconds(self) -> int:
        """Seconds counted."""
        return len(self.arrivals)

    @property
    def totals(self) -> Totals:
        """Sums over all seconds."""
        totals = Totals(*(int(getattr(self, name).sum()) for name in COUNTED))
        if self.refused is None:
            return totals
        n_failed = 0 if self.failed is None else int(self.failed.sum())
        return replace(totals, unlabelled=totals.arrivals, refused=int(self.refused.sum()), failed=n_failed)


@dataclass(frozen=True)
class SettledWindow:
    """A window of which every request is resolved, with one tally a tenant.

    ``blind`` are its seconds, half-open, of unknown GPU state: nothing is counted in them.
    """

    window: int
    counts: tuple[SecondCounts, ...]
    blind: tuple[tuple[int, int], ...] = ()

    @property
    def totals(self) -> Totals:
        """All tenants together."""
        return sum((item.totals for item in self.counts), Totals())


class Tally:
    """One tenant's resolved requests that arrived in ``[first_second, first_second + n_seconds)``, piece by piece.

    Latencies are differences of run times: beyond a nanosecond they hold only rounding, so they are rounded to it.
    """

    def __init__(self, tenant: str, n_seconds: int, first_second: int = 0) -> None:
        self._tenant, self._first_second = tenant, first_second
        self._counts = np.zeros((len(COUNTED), n_seconds), dtype=np.int64)
        self._n_by_ms = np.zeros(_N_BINS, dtype=np.int64)
        self._beyond: Counter[int] = Counter()

    def add(self, requests: Requests, outcomes: Outcomes) -> None:
        """Count the outcomes that belong here; others are left out.

        So a piece that ends in one window and began in another is added once to the tally of each of them.
        """
        beyond_ms = np.empty(len(outcomes.index))
        n_beyond = _count(
            requests.arrival_s,
            outcomes.index - requests.first,
            outcomes.answer_s,
            outcomes.in_time,
            outcomes.correct,
            self._first_second,
            self._counts,
            self._n_by_ms,
            beyond_ms,
        )
        self._beyond.update(beyond_ms[:n_beyond].astype(np.int64).tolist())

    def lose(self, requests: Requests, outcomes: Outcomes) -> None:
        """Count requests as dropped that were added as answered: their server failed while it had them in service.

        As in :meth:`add`, requests that do not belong here are left out.
        """
        taken_back = Tally(self._tenant, self._counts.shape[1], self._first_second)
        taken_back.add(requests, outcomes)
        self._counts -= taken_back._counts
        self._n_by_ms -= taken_back._n_by_ms
        self._beyond -= taken_back._beyond
        self.add(requests, Outcomes.all_dropped(outcomes.index))

    @property
    def totals(self) -> Totals:
        """Sums over all seconds."""
        return Totals(*self._counts.sum(axis=1).tolist())

    @property
    def counts(self) -> SecondCounts:
        """What was counted; what is added later does not change it."""
        by_second = self._counts.copy()
        within = np.flatnonzero(self._n_by_ms)
        n_by_ms = dict(zip(within.tolist(), self._n_by_ms[within].tolist(), strict=True))
        return SecondCounts(
            tenant=self._tenant,
            first_second=self._first_second,
            latency_ms=merge_histograms([n_by_ms, self._beyond]),
            judged=None,
            **dict(zip(COUNTED, by_second, strict=True)),
        )


@compiled
def _count(
    arrival_s: FloatArray,
    index: IntArray,
    answer_s: FloatArray,
    in_time: BoolArray,
    correct: BoolArray,
    first_second: int,
    counts: IntArray,
    n_by_ms: IntArray,
    beyond_ms: FloatArray,
) -> int:
    """How many of the answered lie outside the bins of ``n_by_ms``; those that arrived in other seconds are left out.

    Latencies are rounded as ``numpy.round(…, 6)`` does it, to the last bit: scaled, rounded half to even, divided.

    What goes in, and out:
        arrival_s: Of the tenant's requests, ``(N,)``.
        index: Places in it, ``(k,)``, and so are ``answer_s`` (NaN: dropped), ``in_time`` and ``correct``.
        first_second: That of the first column of ``counts``.
        counts: Added to, ``(6, n_seconds)``: by the rows above.
        n_by_ms: Added to, ``(n_bins,)``: bin b has latencies in (b − 1, b] ms.
        beyond_ms: Out, ``(k,)``: the latencies outside, in whole milliseconds, rounded up; the rest as it was.
    """
    n_seconds, n_bins, n_beyond = counts.shape[1], len(n_by_ms), 0
    for place in range(len(index)):
        came_s = arrival_s[index[place]]
        second = math.floor(came_s) - first_second
        if 0 <= second < n_seconds:
            counts[_ARRIVALS, second] += 1
            if np.isnan(answer_s[place]):
                counts[_DROPPED, second] += 1
            else:
                if in_time[place]:
                    counts[_IN_TIME, second] += 1
                    counts[_CORRECT, second] += correct[place]
                else:
                    counts[_LATE, second] += 1
                    counts[_CORRECT_LATE, second] += correct[place]
                upper_ms = np.ceil(np.rint((answer_s[place] - came_s) * 1e3 * 1e6) / 1e6)
                if 0 <= upper_ms < n_bins:
                    n_by_ms[int(upper_ms)] += 1
                else:
                    beyond_ms[n_beyond] = upper_ms
                    n_beyond += 1
    return n_beyond


def merge_histograms(histograms: Sequence[Mapping[int, int]]) -> Mapping[int, int]:
    """The latency histogram of all together, ascending."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return MappingProxyType(dict(sorted(total.items())))


def latency_percentile_ms(histogram: Mapping[int, int], fraction: float, n_unanswered: int = 0) -> int | None:
    """The smallest millisecond within which at least ``fraction`` of the requests were answered.

    Requests are the answered, in ``histogram``, and ``n_unanswered`` that were dropped or lost, which are slower than
    all others. It is the upper edge of the bin that holds the percentile: at most 1 ms above the exact value, never
    below it, and never above an SLO of whole milliseconds that was met. None where the percentile falls on a request
    that was not answered, and without requests.

    Raises:
        ValueError: ``fraction`` is outside (0, 1].
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction {fraction}: must be above 0 and at most 1")
    needed = rank_of(fraction, sum(histogram.values()) + n_unanswered)
    n_answered = 0
    for upper_ms in sorted(histogram):
        n_answered += histogram[upper_ms]
        if n_answered >= needed:
            return upper_ms
    return None


def rank_of(fraction: float, n: int) -> int:
    """How many of ``n`` values are at least ``fraction`` of them: the percentile is the one of this rank."""
    return math.ceil(fraction * n - 1e-9)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
