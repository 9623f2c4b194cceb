"""What the results page and its plots compute from rows: goodput, differences with intervals, gaps, ties, orders.

Rows are a data frame with a row a match and the columns of ``docs/results.json``. A policy that had no plan for its
first window has NaN for all numbers. Policies and workloads keep the order in which they first appear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from benchmarks.paper.experiments import EXPERIMENTS
from migrator.comparison.matches import CEILING, FLOOR
from workloads.arrays import FloatArray

Results = Mapping[str, pd.DataFrame]
"""Rows by experiment."""

OURS, PAPERS = "migrator", "migrator-paper"

BLOCK = {"windows": 2, "segments": 4}
"""How many windows or segments are resampled together."""

LEAST_GAP_POINTS = 1.0
"""A gap between ``static`` and ``oracle`` below this is none that could be closed."""

_N_RESAMPLES = 10_000

_JOINING = {one.name: (one.joins, one.label) for one in EXPERIMENTS if one.joins}


Shown = TypeVar("Shown", pd.DataFrame, "pd.Series[float]")


def results_in(document: Mapping[str, Any]) -> Results:
    """The document's rows by experiment; rows that join another experiment's are there, their policies labelled."""
    columns = document["columns"]
    numbers = dict.fromkeys(columns[columns.index("arrivals") : columns.index("windows")], float)
    found: dict[str, pd.DataFrame] = {}
    for one in document["experiments"]:
        rows = pd.DataFrame(one["rows"], columns=columns).astype(numbers)
        joining = _JOINING.get(one["name"])
        if joining is None:
            found[one["name"]] = rows
        else:
            host, label = joining
            found[host] = pd.concat([found[host], rows.assign(policy=rows["policy"] + f", {label}")], ignore_index=True)
    return found


def shown(values: Shown, spec: str) -> Shown:
    """The numbers as text; NaN is empty."""
    return values.map(lambda value: "" if math.isnan(value) else format(value, spec))


def comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of those workloads and segments of which every policy has numbers."""
    return rows[rows["arrivals"].notna().groupby([rows["workload"], rows["segment"]]).transform("all")]


def goodput_pct(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
    """Right and in time, of all arrivals: a row a workload, or for each value of ``by``; a column a policy."""
    sums = rows.groupby([*(by or ("workload",)), "policy"], sort=False)[["correct", "arrivals"]].sum(min_count=1)
    return (100.0 * sums["correct"] / sums["arrivals"]).unstack(sort=False)


def means_of(rows: pd.DataFrame) -> pd.Series[float]:
    """Goodput % by policy, each workload counted once."""
    return goodput_pct(rows).mean()


def gap_closed_pct(means: pd.Series[float]) -> pd.Series[float]:
    """By policy, which part of the gap between ``static`` and ``oracle`` it closes, %; NaN if there is hardly a gap."""
    gap = means[CEILING] - means[FLOOR]
    return 100 * (means - means[FLOOR]) / (gap if gap >= LEAST_GAP_POINTS else np.nan)


def ahead_of_ours(rows: pd.DataFrame, of: str) -> dict[str, pd.DataFrame]:
    """By policy, the points of goodput % by which it is ahead of ours: a row a window or segment, a column a workload.

    NaN where one of the two has no numbers; a policy that has none beside ours is left out.

    Args:
        rows: Where ``of`` is ``windows``, of one segment.
        of: ``windows`` or ``segments``.
    """
    rows = rows.dropna(subset="arrivals")
    if of == "windows":
        rows = rows.explode("windows", ignore_index=True)
        known = pd.DataFrame(rows["windows"].tolist(), columns=["arrivals", "correct"], index=rows.index)
        number = rows.groupby(["policy", "workload"]).cumcount()
        rows = rows.assign(segment=number, arrivals=known["arrivals"].clip(lower=1), correct=known["correct"])
    goodput = goodput_pct(rows, "segment", "workload")
    if OURS not in goodput:
        return {}
    ahead = goodput.drop(columns=OURS).sub(goodput[OURS], axis=0).dropna(axis=1, how="all")
    by_policy = {str(name): ahead[name].unstack(sort=False) for name in ahead}
    return {name: own.sort_index().dropna(how="all").dropna(axis=1, how="all") for name, own in by_policy.items()}


class Interval(NamedTuple):
    """A mean in which each workload counts once, however many windows it has, and its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(differences: pd.DataFrame, block: int) -> Interval:
    """The mean over workloads of each one's mean, with an interval from resampled windows or segments.

    A window or segment is drawn with all its workloads, which share traces. They are drawn in blocks that follow each
    other, the last before the first again. The interval is symmetric: the spread of the resampled means times
    Student's t of as many degrees of freedom as there are blocks, less one, since few blocks show less than the true
    spread.

    Args:
        differences: A row a window or segment, a column a workload; NaN where a workload has none.
        block: How many are drawn together.
    """
    known = differences.to_numpy(dtype=np.float64).T
    n = known.shape[1]
    mean = float(_mean(known, np.ones((1, n)))[0])
    freedom = max(1, -(-n // block) - 1)
    spread = float(_mean(known, _resamples(n, block)).std()) * float(stdtrit(freedom, 0.975))
    return Interval(mean, mean - spread, mean + spread)


def over_workloads(differences: pd.DataFrame) -> Interval:
    """The same mean, with an interval from how far workloads are apart, each one's mean being one observation.

    Workloads share traces: they are not independent, and the interval is of these sixteen and others like them.
    """
    each = differences.mean().dropna()
    freedom = max(1, len(each) - 1)
    mean, spread = float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5) if len(each) > 1 else float("nan")
    width = spread * float(stdtrit(freedom, 0.975))
    return Interval(mean, mean - width, mean + width)


def without_largest(differences: pd.DataFrame) -> tuple[pd.DataFrame, Any, float]:
    """The differences without the row that makes most of their mean, that row's name, and its part of the mean.

    Args:
        differences: As in :func:`interval`; a row more than one.
    """
    mean = differences.mean().mean()
    rests = {name: differences.drop(index=name) for name in differences.index}
    name = min(rests, key=lambda one: rests[one].mean().mean() / mean)
    n = len(differences)
    return rests[name], name, float(1 - rests[name].mean().mean() * (n - 1) / n / mean)


@cache
def _resamples(n: int, block: int) -> FloatArray:
    """How often each of ``n`` windows or segments is drawn, ``(_N_RESAMPLES, n)``."""
    starts = np.random.default_rng(0).integers(0, n, (_N_RESAMPLES, -(-n // block)))
    drawn = ((starts[:, :, None] + np.arange(block)) % n).reshape(_N_RESAMPLES, -1)[:, :n]
    places = drawn + n * np.arange(_N_RESAMPLES)[:, None]
    return np.bincount(places.ravel(), minlength=_N_RESAMPLES * n).reshape(_N_RESAMPLES, n).astype(np.float64)


def _mean(known: FloatArray, n_drawn: FloatArray) -> FloatArray:
    """Means over workloads of means over what each has, ``(n_resamples,)``.

    Args:
        known: ``(n_workloads, n)`` with gaps.
        n_drawn: How often each is drawn, ``(n_resamples, n)``.
    """
    is_known = ~np.isnan(known)
    counts = n_drawn @ is_known.T
    means = n_drawn @ np.where(is_known, known, 0.0).T / np.maximum(counts, 1)
    found: FloatArray = (means * (counts > 0)).sum(axis=1) / np.maximum((counts > 0).sum(axis=1), 1)
    return found


def tie(places: Iterable[float], ahead: Iterable[float]) -> float | None:
    """Where a difference first falls through 0, on straight lines between its places; ``None`` if it does not."""
    for (here, above), (there, below) in pairwise(zip(places, ahead, strict=True)):
        if above >= 0 > below:
            return here + (there - here) * above / (above - below)
    return None


def order_of(means: pd.Series[float]) -> list[str]:
    """Policies, the best first."""
    return list(map(str, means.sort_values(ascending=False, kind="stable").index))
