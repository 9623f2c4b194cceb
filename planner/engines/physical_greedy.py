"""``physical``: a plan in a few program runs: retrainings one after the other in one place, nothing else moves.

One placement is set aside; the required retrainings run in it back to back, as soon as the held set
may change. Inference holds one set beside it all window long (with an initial state, after one
epoch at most). The floor under :mod:`planner.engines.physical`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from executor.mig import Placement
from planner.engines.physical_program import Program
from planner.engines.physical_schedule import Schedule, Terms, Training


@dataclass(frozen=True)
class PlacedSchedule:
    """When, on which profile and where every retraining runs, and what the best plan with them is worth.

    Attributes:
        value: Goodput in requests.
        schedule: The retrainings that start in the window.
        places: Their placements, in the same order.
    """

    value: float
    schedule: Schedule
    places: tuple[Placement, ...]


def greedy_schedule(terms: Terms, program: Program[Placement]) -> PlacedSchedule | None:
    """The best schedule of the kind, by what steady held sets earn; ``None`` if none fits the window."""
    best: PlacedSchedule | None = None
    for schedule, places in _candidates(terms):
        value = program.value(schedule, places, is_steady=True)
        if not np.isneginf(value) and (best is None or value > best.value):
            best = PlacedSchedule(value, schedule, places)
    return best


def _candidates(terms: Terms) -> Iterator[tuple[Schedule, tuple[Placement, ...]]]:
    required = [choices for choices in terms.choices if None not in choices]
    if not required:
        yield (), ()
        return
    names = [name for name in terms.problem.profile_names if all(_on(name, choices) for choices in required)]
    for placement in terms.problem.gpu.placements(names):
        ways = [min(_on(placement.profile.name, choices), key=_shortness) for choices in required]
        start, schedule = terms.first_step, []
        for way in ways:
            schedule.append(way.at(start))
            start += way.n_steps
        if start <= terms.n_steps:
            yield tuple(schedule), (placement,) * len(schedule)


def _on(name: str, choices: tuple[Training | None, ...]) -> list[Training]:
    return [training for training in choices if training is not None and training.profile == name]


def _shortness(training: Training) -> tuple[int, int]:
    return training.n_steps, training.level
