"""Plans that were there later than a run had it, from its log alone."""

from __future__ import annotations

import math

from migrator.log.records import Resumed, WindowStarted
from migrator.log.runlog import ReadLog

LATE_S = 0.5
"""Seconds by which a plan, or a change, may come late on a clock that runs by itself, without having been held up."""

_SEEN_S = 0.05
"""Seconds above what was charged from which on a digit shows it."""


def slow_plans(log: ReadLog) -> str | None:
    """Which plans took longer than they were charged, in a sentence; ``None`` where none did.

    The first plan of a run, or of its rest, is charged nothing. Neither is any where planning is to take no time on a
    simulated GPU.
    """
    if not log.header.simulated:
        return _late_plans(log)
    charged_s, is_real = log.header.planning_s or 0.0, log.header.backend is not None
    took_s = {entry.record.window: entry.wall.solve_s or 0.0 for entry in log.entries_of(WindowStarted)}
    ahead = {0, *(joined.window for joined in log.of(Resumed))}  # planned while the run's clock stands still
    slow_s = [took_s[window] for window in took_s if window not in ahead and took_s[window] >= charged_s + _SEEN_S]
    if not slow_s or not (charged_s or is_real):
        return None
    return (
        f"{_plans(len(slow_s))} took up to {max(slow_s):,.1f} s, {charged_s:g} s were charged: set "
        f"planner.planning_s: {math.ceil(max(slow_s))}"
    )


def _late_plans(log: ReadLog) -> str | None:
    """Of a live run: plans that were there later than they were to begin, profilers and all."""
    late_s = {}
    for entry in log.entries_of(WindowStarted):
        started = entry.record
        due_s = started.start_s + started.plan_from_step * log.header.step_s
        if entry.at_s > due_s + LATE_S:
            late_s[started.window] = entry.at_s - due_s
    if not late_s:
        return None
    worst = max(late_s, key=lambda window: late_s[window])
    plans = f"{_plans(len(late_s))} {'was' if len(late_s) == 1 else 'were'}"
    return (
        f"{plans} there later than estimates.delay_s and planner.planning_s say, up to {late_s[worst]:,.1f} s in "
        f"window {worst}: what they change before that comes late"
    )


def _plans(number: int) -> str:
    return "1 plan" if number == 1 else f"{number:,} plans"
