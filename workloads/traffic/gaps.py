"""Seconds of which a trace knows nothing: where they lie, and what stands for them.

In a file of counts a second without a row is missing. Request times have no rows for seconds without requests, so that
only a silence that is far longer than any other tells of a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from workloads.arrays import BoolArray, FloatArray, IntArray

LEAST_SILENCE_S = 10.0
"""Shorter silences are never named."""

FAR_FROM_USUAL = 5.0
"""A silence is far from usual if it lasts this many times as long as the longest that is not."""

_BESIDE_S = 60
"""Known seconds on either side of a gap from whose means it is interpolated."""


class Gaps(StrEnum):
    """What stands for seconds of which a trace knows nothing."""

    ZERO = "zero"
    INTERPOLATE = "interpolate"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class GapRuns:
    """Stretches without data; ``start`` and ``length`` in seconds (or rows), ``(n_gaps,)`` each, ascending."""

    start: IntArray
    length: IntArray

    @property
    def total(self) -> int:
        """All of them together."""
        return int(self.length.sum())

    @property
    def longest(self) -> int:
        """The place of the longest among them; the first if several are."""
        return int(self.length.argmax())

    def mask(self, n: int) -> BoolArray:
        """Whether each of ``n`` seconds lies in a gap, ``(n,)``."""
        edges = np.zeros(n + 1, dtype=np.int64)
        np.add.at(edges, self.start, 1)
        np.add.at(edges, self.start + self.length, -1)
        inside: BoolArray = np.cumsum(edges)[:n] > 0
        return inside


def missing_runs(missing: BoolArray) -> GapRuns:
    """The stretches in which ``missing`` (a second or a row each) is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(np.int8))).astype(np.int64)
    return GapRuns(edges[::2], edges[1::2] - edges[::2])


def unusual_silences(times_s: FloatArray) -> NDArray[np.int64]:
    """Places of the requests after which a silence far from usual begins; times ascend, ``(n_requests,)``.

    The longest silences, at most ten or one in a hundred, are far from usual if the shortest of them is
    ``FAR_FROM_USUAL`` times as long as the longest of the others.
    """
    silences_s = np.diff(times_s)
    if silences_s.size < 2:
        return np.zeros(0, dtype=np.int64)
    n_most = min(max(10, silences_s.size // 100), silences_s.size - 1)
    order = np.argsort(silences_s, kind="stable")[::-1][: n_most + 1]
    longest_s = silences_s[order]
    is_edge = (longest_s[:-1] >= FAR_FROM_USUAL * longest_s[1:]) & (longest_s[:-1] >= LEAST_SILENCE_S)
    edges = np.flatnonzero(is_edge)
    n_unusual = int(edges[-1]) + 1 if edges.size else 0
    return np.sort(order[:n_unusual])


def interpolated(counts: IntArray, missing: BoolArray, interval_s: int = 1) -> IntArray:
    """The counts with what is missing put on a straight line between the means on both sides of each gap.

    Whole numbers whose sum is that of the line, rounded. A gap at the begin or the end is filled with the mean on its
    one side. A count stands for ``interval_s`` seconds; each mean is of one at least. At least one count is known.
    """
    known = np.flatnonzero(~missing)
    sums = np.concatenate([[0], np.cumsum(counts[known])])
    filled, n_beside = counts.copy(), max(1, _BESIDE_S // interval_s)
    runs = missing_runs(missing)
    for start, length in zip(runs.start, runs.length, strict=True):
        place = int(np.searchsorted(known, start))
        low, high = max(0, place - n_beside), min(known.size, place + n_beside)
        before = (sums[place] - sums[low]) / max(1, place - low)
        after = (sums[high] - sums[place]) / max(1, high - place)
        before, after = (before if place > low else after), (after if high > place else before)
        line = before + (after - before) * (np.arange(length) + 0.5) / length
        filled[start : start + length] = np.diff(np.round(np.cumsum(line)), prepend=0.0).astype(np.int64)
    return filled


def described(runs: GapRuns, n_all: int, begin: Callable[[int], str]) -> str:
    """How much is missing and where, in words; ``begin`` says what it follows or begins with, by its place."""
    longest = runs.longest
    share = f"{runs.total:,} of {n_all:,} s have no data"
    where = f"{runs.length[longest]:,} s {begin(longest)}"
    if runs.length.size == 1:
        return f"{share}, {where}"
    return f"{share} in {runs.length.size:,} gaps, the longest {where}"
