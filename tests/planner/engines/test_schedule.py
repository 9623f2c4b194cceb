"""Placed schedules: retrainings that overlap in time form a layout with each other and with those in progress."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from problems import physical_problem

from planner.engines.schedule import Schedule, WindowFacts


def some_schedule(facts: WindowFacts, seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    ways = [own[int(rng.integers(len(own)))] for own in facts.choices if own]
    return tuple(way.at(int(rng.integers(facts.n_steps - way.n_steps + 1))) for way in ways if way is not None)


@pytest.mark.parametrize("seed", range(60))
def test_retrainings_can_stand_where_every_step_holds_a_layout(seed: int) -> None:
    facts = WindowFacts.of(physical_problem(seed, n_tenants=1 + seed % 4))
    schedule = some_schedule(facts, seed)

    def fits(places) -> bool:
        spans = [*zip(schedule, places, strict=True), *facts.running]
        return all(
            facts.problem.gpu.fits(place for run, place in spans if run.start_step <= step < run.end_step)
            for step in range(facts.n_steps)
        )

    ways = list(product(*map(facts.placements, schedule)))
    stand = [facts.can_stand(tuple(zip(schedule, places, strict=True))) for places in ways]
    assert stand == list(map(fits, ways))
