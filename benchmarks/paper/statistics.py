"""What the results page computes from rows: means of workloads, differences, intervals, ties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = Mapping[str, Any]
Rows = Sequence[Row]
FloatArray = NDArray[np.float64]

_N_RESAMPLES = 10_000


def of_policy(rows: Rows, policy: str) -> list[Row]:
    """The policy's rows that have numbers."""
    return [row for row in rows if row["policy"] == policy and row["arrivals"] is not None]


def comparable(rows: Rows) -> list[Row]:
    """The rows of those workloads and segments of which every policy has numbers."""
    without = {(row["workload"], row["segment"]) for row in rows if row["arrivals"] is None}
    return [row for row in rows if (row["workload"], row["segment"]) not in without]


def policies_of(rows: Rows) -> list[str]:
    """In the order in which they first appear."""
    return list(dict.fromkeys(row["policy"] for row in rows))


def goodput_pct(rows: Rows) -> float:
    """Right and in time, of all arrivals of the rows together."""
    correct, arrivals = (sum(int(row[key]) for row in rows) for key in ("correct", "arrivals"))
    return 100.0 * correct / arrivals


def by_workload(rows: Rows) -> dict[str, float]:
    """Goodput % of each workload, all its segments together."""
    own: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        own[row["workload"]].append(row)
    return {workload: goodput_pct(found) for workload, found in own.items()}


def mean_of_workloads(rows: Rows) -> float:
    """Goodput %, each workload counted once."""
    return fmean(by_workload(rows).values())


Differences = Mapping[int, Mapping[str, float]]
"""By number of the window or segment and by workload, points of goodput % ahead of the reference."""


def window_differences(rows: Rows, policy: str, reference: str) -> Differences:
    """The policy's goodput % less the reference's in the same window of the same workload; of one segment."""
    theirs = {row["workload"]: row["windows"] for row in of_policy(rows, reference)}
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in of_policy(rows, policy):
        pairs = zip(row["windows"], theirs[row["workload"]], strict=True)
        for number, (own, other) in enumerate(pairs):
            found[number][row["workload"]] = _pct(own) - _pct(other)
    return found


def segment_differences(rows: Rows, policy: str, reference: str) -> Differences:
    """The policy's goodput % less the reference's in the same segment of the same workload."""
    theirs = {(row["workload"], row["segment"]): row for row in of_policy(rows, reference)}
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in of_policy(rows, policy):
        other = theirs[row["workload"], row["segment"]]
        found[row["segment"]][row["workload"]] = goodput_pct([row]) - goodput_pct([other])
    return found


def by_number(differences: Differences) -> list[float]:
    """The mean over workloads of each window or segment, in order."""
    return [fmean(differences[number].values()) for number in sorted(differences)]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval.

    Attributes:
        mean: Each workload counts once, whatever it has of windows.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t at 97.5 % for 1, 2, … degrees of freedom."""


def interval(differences: Differences, block: int) -> Interval:
    """The mean over workloads of each one's mean, with an interval from resampled numbers.

    Numbers are drawn with all their workloads, which share traces, in blocks that follow each other, the last before
    the first again. The interval is symmetric: the spread of the resampled means times Student's t of as many degrees
    of freedom as there are blocks, less one, since few blocks show less than the true spread.
    """
    numbers = sorted(differences)
    workloads = list(dict.fromkeys(name for number in numbers for name in differences[number]))
    known = np.array([[differences[number].get(name, np.nan) for number in numbers] for name in workloads])
    n_blocks = -(-len(numbers) // block)
    starts = np.random.default_rng(0).integers(0, len(numbers), (_N_RESAMPLES, n_blocks))
    drawn = ((starts[:, :, None] + np.arange(block)) % len(numbers)).reshape(_N_RESAMPLES, -1)[:, : len(numbers)]
    mean = float(_mean(known[:, None, :])[0])
    freedom = max(1, n_blocks - 1)
    spread = float(_mean(known[:, drawn]).std()) * _T_975[min(freedom, len(_T_975)) - 1]
    return Interval(mean, mean - spread, mean + spread)


def _mean(known: FloatArray) -> FloatArray:
    """Means over workloads of means over what each has, ``(n,)``, of ``(n_workloads, n, n_drawn)`` with gaps."""
    is_known = ~np.isnan(known)
    counts = is_known.sum(axis=2)
    means = np.where(is_known, known, 0.0).sum(axis=2) / np.maximum(counts, 1)
    found: FloatArray = (means * (counts > 0)).sum(axis=0) / np.maximum((counts > 0).sum(axis=0), 1)
    return found


def _pct(window: Sequence[int]) -> float:
    arrivals, correct = window
    return 100.0 * correct / arrivals if arrivals else 0.0


def tie(points: Iterable[tuple[float, float]]) -> float | None:
    """Where a difference that falls with its place first crosses 0, on straight lines between the points.

    Args:
        points: (place, difference), by place.

    Returns:
        The place; ``None`` if the difference has the same sign at all of them.
    """
    known = list(points)
    for (here, above), (there, below) in pairwise(known):
        if above >= 0 > below:
            return here + (there - here) * above / (above - below)
    return None


def order_of(means: Mapping[str, float]) -> tuple[str, ...]:
    """Policies, the best first."""
    return tuple(sorted(means, key=lambda name: -means[name]))


def swapped(order: Sequence[str], other: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs (better in ``order``, better in ``other``) that the two disagree about."""
    place = {name: number for number, name in enumerate(other)}
    return [
        (first, second)
        for number, first in enumerate(order)
        for second in order[number + 1 :]
        if place[second] < place[first]
    ]
