"""Where a window's goodput is far from what its plan promised, and which cause weighs most; from the log alone.

Both are shares of requests: promised goodput of the requests expected, achieved goodput of those that came, over the
seconds that the plan covers. The difference has two exact parts, answers that were not in time and wrong ones. What was
not in time more than promised is laid to the classes of the account (:mod:`migrator.log.account`): requests beyond the
capability count as the forecast's to the extent that more came than it said. What is left is what instances
served less than planned: workers that failed, or were late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrator.log.account import SecondAccounts, accounts
from migrator.log.records import PlanRevised, Promise, RunStarted, WindowStarted
from migrator.log.runlog import ReadLog
from workloads.arrays import FloatArray
from workloads.serving.tally import Added

POINTS = 10.0
"""Difference in points of the arrivals from which on it is reported."""

LUCK = 3.0
"""Standard deviations that luck alone may make up: few requests differ from what was expected without any reason."""


@dataclass(frozen=True, slots=True)
class Surprise:
    """A window in which achieved and promised goodput are far apart.

    Attributes:
        window: Its number.
        tenant: Whose goodput; ``None`` for all tenants together.
        expected_goodput_pct: By the plan, of the requests expected.
        achieved_goodput_pct: Of those that came.
        cause: What explains most of the difference.
        cause_points: How much of it, in points.
    """

    window: int
    tenant: str | None
    expected_goodput_pct: float
    achieved_goodput_pct: float
    cause: str
    cause_points: float

    @property
    def points(self) -> float:
        """Achieved less expected."""
        return self.achieved_goodput_pct - self.expected_goodput_pct

    def __str__(self) -> str:
        whose = "" if self.tenant is None else f" of {self.tenant}"
        side = "less" if self.points < 0 else "more"
        return (
            f"window {self.window}: goodput{whose} {self.achieved_goodput_pct:.1f} %, expected "
            f"{self.expected_goodput_pct:.1f} %: {abs(self.points):.1f} points {side}; largest cause: {self.cause} "
            f"({self.cause_points:.1f})"
        )


@dataclass(frozen=True, slots=True)
class _Sums(Added):
    """Requests of the seconds that a plan covers: promised, and their outcomes; they add up over tenants."""

    expected: float = 0.0
    promised_in_time: float = 0.0
    promised: float = 0.0
    arrivals: float = 0.0
    in_time: float = 0.0
    goodput: float = 0.0
    above_forecast: float = 0.0
    below_forecast: float = 0.0
    reconfiguration: float = 0.0
    queueing: float = 0.0


def surprises(log: ReadLog) -> tuple[Surprise, ...]:
    """Of every settled window with a plan of its own, in order; all tenants first, then those far off themselves."""
    revised = {record.window for record in log.of(PlanRevised)}
    # Of blind seconds nothing was counted, and no plan says what it promised of the others alone.
    whole = {window for window, one in log.settled.items() if one.is_labelled and not one.blind} - revised
    told = [started for started in log.of(WindowStarted) if started.expected and started.window in whole]
    if not told:
        return ()
    known = accounts(log)
    return tuple(found for started in told for found in _of_window(log.header, started, known))


def _of_window(header: RunStarted, started: WindowStarted, known: Mapping[str, SecondAccounts]) -> Iterator[Surprise]:
    sums = {
        name: _sums(header, started, name, promise, known[name])
        for name, promise in (started.expected or {}).items()
        if None not in (promise.goodput, promise.in_time)
    }
    total = sum(sums.values(), _Sums())
    everybody = _surprise(started.window, None, total)
    alone = [_surprise(started.window, name, own) for name, own in sums.items()] if len(sums) > 1 else []
    whole = _while_planned(header, started, total, [known[name] for name in sums])
    yield from (found for found in (whole, everybody, *alone) if found is not None)


def _while_planned(
    header: RunStarted, started: WindowStarted, covered: _Sums, own: Sequence[SecondAccounts]
) -> Surprise | None:
    """The window as a whole, where that is far from the promise because its plan was late; ``None`` elsewhere."""
    window, window_s = started.window, round(header.window_s)
    seconds = slice(window * window_s, (window + 1) * window_s)
    arrivals = sum(float(account.arrivals[seconds].sum()) for account in own)
    if not started.plan_from_step or covered.expected <= 0 or covered.arrivals <= 0 or not arrivals:
        return None
    expected_pct = 100 * covered.promised / covered.expected
    achieved_pct = 100 * sum(float(account.goodput[seconds].sum()) for account in own) / arrivals
    by_planning = achieved_pct - 100 * covered.goodput / covered.arrivals
    points = achieved_pct - expected_pct
    is_cause = abs(by_planning) > abs(points - by_planning) or points * (points - by_planning) < 0
    if abs(points) <= max(POINTS, _luck_points(arrivals)) or not is_cause:
        return None
    cause = f"its plan was there {started.plan_from_step * header.step_s:g} s after it began"
    return Surprise(window, None, expected_pct, achieved_pct, cause, abs(by_planning))


def first_second(header: RunStarted, started: WindowStarted) -> int:
    """The first whole second of a window, from its ``window_started``, that its first plan covers."""
    return math.ceil(started.plan_from_step * header.step_s - 1e-9)


def _sums(header: RunStarted, started: WindowStarted, name: str, promise: Promise, account: SecondAccounts) -> _Sums:
    window_s = round(header.window_s)
    first = first_second(header, started)
    covered = slice(started.window * window_s + first, (started.window + 1) * window_s)
    arrivals, capacity = account.arrivals[covered], account.capacity[covered]
    forecast = by_second(started.forecast.tenants[name].mean_rps, header.step_s, window_s)[first:]
    return _Sums(
        expected=promise.arrivals,
        promised_in_time=promise.in_time or 0.0,
        promised=promise.goodput or 0.0,
        arrivals=float(arrivals.sum()),
        in_time=float(account.in_time[covered].sum()),
        goodput=float(account.goodput[covered].sum()),
        above_forecast=float(np.minimum(capacity, np.maximum(0.0, arrivals - forecast)).sum()),
        below_forecast=float(np.maximum(0.0, forecast - arrivals).sum()),
        reconfiguration=float(account.reconfiguration[covered].sum()),
        queueing=float(account.queueing[covered].sum()),
    )


def by_second(mean_rps: Sequence[float], step_s: float, window_s: int) -> FloatArray:
    """Requests of each second, ``(window_s,)``; a step's are spread evenly over it."""
    until = np.concatenate([[0.0], np.cumsum(np.array(mean_rps) * step_s)])
    found: FloatArray = np.diff(np.interp(np.arange(window_s + 1), np.arange(len(until)) * step_s, until))
    return found


def _surprise(window: int, tenant: str | None, sums: _Sums) -> Surprise | None:
    if sums.arrivals <= 0 or sums.expected <= 0:
        return None
    expected_pct, achieved_pct = 100 * sums.promised / sums.expected, 100 * sums.goodput / sums.arrivals
    points = achieved_pct - expected_pct
    if abs(points) <= max(POINTS, _luck_points(sums.arrivals)):
        return None
    causes = _shortfall(sums) if points < 0 else _excess(sums)
    cause = max(causes, key=lambda name: causes[name])
    return Surprise(window, tenant, expected_pct, achieved_pct, cause, causes[cause])


def _luck_points(arrivals: float) -> float:
    """Points of goodput that luck alone may make up among so many requests."""
    return LUCK * 100 * 0.5 / math.sqrt(arrivals)


def _missed_and_wrong(sums: _Sums) -> tuple[float, float]:
    """By how many points more was missed, and answered wrong, than promised; together the shortfall."""
    missed = (sums.arrivals - sums.in_time) / sums.arrivals - (sums.expected - sums.promised_in_time) / sums.expected
    wrong = (sums.in_time - sums.goodput) / sums.arrivals - (sums.promised_in_time - sums.promised) / sums.expected
    return 100 * missed, 100 * wrong


def _shortfall(sums: _Sums) -> dict[str, float]:
    missed, wrong = _missed_and_wrong(sums)
    left = max(0.0, missed)
    causes = {"more wrong answers than the plan expected": wrong}
    for name, requests in (
        ("more requests than the forecast said", sums.above_forecast),
        ("instances that started or stopped", sums.reconfiguration),
        ("bursts and waits for a batch", sums.queueing),
    ):
        causes[name] = min(max(0.0, missed), 100 * requests / sums.arrivals)
        left -= causes[name]
    return {**causes, "instances that served less than planned: failed or late workers": max(0.0, left)}


def _excess(sums: _Sums) -> dict[str, float]:
    missed, wrong = _missed_and_wrong(sums)
    fewer = min(max(0.0, -missed), 100 * sums.below_forecast / sums.arrivals)
    return {
        "fewer wrong answers than the plan expected": -wrong,
        "fewer requests than the forecast said": fewer,
        "instances that served more than the cautious plan says": -missed - fewer,
    }
