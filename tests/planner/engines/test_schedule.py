"""Placed schedules: retrainings that overlap in time form a layout with each other and with those in progress."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from problems import physical_problem

from planner.engines.schedule import Schedule, Terms


def some_schedule(terms: Terms, seed: int) -> Schedule:
    rng = np.random.default_rng(seed)
    ways = [own[int(rng.integers(len(own)))] for own in terms.choices if own]
    return tuple(way.at(int(rng.integers(terms.n_steps - way.n_steps + 1))) for way in ways if way is not None)


@pytest.mark.parametrize("seed", range(60))
def test_the_ways_to_place_a_schedule_are_those_in_which_every_step_holds_a_layout(seed: int) -> None:
    terms = Terms.of(physical_problem(seed, n_tenants=1 + seed % 4))
    schedule = some_schedule(terms, seed)

    def fits(places) -> bool:
        spans = [*zip(schedule, places, strict=True), *terms.running]
        return all(
            terms.problem.gpu.fits(place for run, place in spans if run.start_step <= step < run.end_step)
            for step in range(terms.n_steps)
        )

    ways = list(product(*map(terms.placements, schedule)))
    assert terms.placed(schedule) == tuple(places for places in ways if fits(places))
    assert [terms.can_stand(schedule, places) for places in ways] == list(map(fits, ways))
