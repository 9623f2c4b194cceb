"""``physical``: other places for a retraining, judged by per-step maxima before they are valued."""

from __future__ import annotations

import numpy as np

from planner.engines.physical.bounds import Bounds
from planner.engines.schedule import Schedule, Terms, Training

SHIFTS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
"""Starts near the present one that are looked at in any case."""


def inserted(
    terms: Terms, bounds: Bounds, others: Schedule, order: tuple[int, ...], first: Training | None
) -> list[Schedule]:
    """``others`` and, one after the other, the tenants' retrainings where their bounds are highest.

    The first tenant retrains the ``first`` way. Empty if one of them does not fit.
    """
    schedule = others
    for number, tenant in enumerate(order):
        waiting = order[number + 1 :]
        options: list[tuple[float, Training | None]] = []
        for way in (first,) if number == 0 else terms.choices[tenant]:
            by_start = bounds.of_starts(schedule, way, tenant, waiting)
            start = int(np.argmax(by_start))
            options.append((float(by_start[start]), way.at(start) if way is not None else None))
        value, training = max(options, key=lambda option: option[0], default=(-np.inf, None))
        if np.isneginf(value):
            return []
        schedule = with_training(schedule, training)
    return [schedule]


def promising(terms: Terms, bounds: Bounds, schedule: Schedule, tenant: int, to_beat: float) -> list[Training | None]:
    """Other retrainings of the tenant whose bound beats ``to_beat``: the best of each way, and near the present one."""
    others = tuple(training for training in schedule if training.tenant != tenant)
    now = next((training for training in schedule if training.tenant == tenant), None)
    found: list[tuple[float, int, Training | None]] = []
    for way in terms.choices[tenant]:
        by_start = bounds.of_starts(others, way, tenant, ())
        picked = [int(np.argmax(by_start))] if len(by_start) else []
        if now is not None and way is not None and now.at(0) == way:
            picked += [now.start_step + shift for shift in SHIFTS if 0 <= now.start_step + shift < len(by_start)]
        elif now is not None and now.start_step < len(by_start):
            picked.append(now.start_step)
        for start in dict.fromkeys(picked):
            if by_start[start] > to_beat:
                found.append((float(by_start[start]), len(found), way.at(start) if way is not None else None))
    return [training for _, _, training in sorted(found, key=lambda item: (-item[0], item[1]))]


def with_training(schedule: Schedule, training: Training | None) -> Schedule:
    """The schedule with one retraining more; itself for none."""
    return schedule if training is None else tuple(sorted((*schedule, training)))
