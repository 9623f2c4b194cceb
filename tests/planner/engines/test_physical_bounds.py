"""Bounds on all schedules at once are never below what the program on counts finds for one."""

from __future__ import annotations

import numpy as np
import pytest
from problems import physical_problem

from planner.budget import Budget
from planner.engines.physical_bounds import Bounds
from planner.engines.physical_schedule import Terms
from planner.engines.physical_search import Search
from planner.feasibility import infeasibility

SEEDS = [seed for seed in range(60) if infeasibility(physical_problem(seed, 6)) is None][:25]


def bounded(seed, *, is_tight):
    search = Search(Terms.of(physical_problem(seed, 6)), Budget())
    bounds = Bounds(search.terms, search.counted, is_tight=is_tight)
    for ways in bounds.of_pair(bounds.actors()):
        for index, bound in enumerate(ways.bounds):
            schedule = ways.schedule(index)
            yield bound, search.counted.value(schedule, [item.profile for item in schedule])


@pytest.mark.parametrize("is_tight", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_schedule_is_worth_more_than_its_bound(seed, is_tight):
    assert all(value <= bound + 1e-9 for bound, value in bounded(seed, is_tight=is_tight))


@pytest.mark.parametrize("seed", SEEDS)
def test_change_costs_only_tighten_a_bound(seed):
    pairs = zip(bounded(seed, is_tight=True), bounded(seed, is_tight=False), strict=True)
    assert all(tight <= rough + 1e-9 for (tight, _), (rough, _) in pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_relaxed_bound_is_above_every_schedule(seed):
    search = Search(Terms.of(physical_problem(seed, 6)), Budget())
    relaxed = Bounds(search.terms, search.counted, is_tight=False).relaxed()
    assert all(bound <= relaxed + 1e-9 for bound, _ in bounded(seed, is_tight=False))


def both_may_retrain(seed):
    return all(len(choices) > 1 for choices in Terms.of(physical_problem(seed, 6)).choices)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if both_may_retrain(seed)])
def test_bounds_by_start_are_those_of_the_pair(seed):
    search = Search(Terms.of(physical_problem(seed, 6)), Budget())
    bounds = Bounds(search.terms, search.counted, is_tight=False)
    for ways in bounds.of_pair(bounds.actors()):
        first, second = ways.trainings
        for start in np.unique(ways.starts[0]):
            others = () if first is None else (first.at(int(start)),)
            mine = bounds.of_starts(others, second, bounds.actors()[-1], ())
            assert mine == pytest.approx(ways.bounds[ways.starts[0] == start])
