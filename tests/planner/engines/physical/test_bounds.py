"""Bounds on all schedules at once are never below what the program on counts finds for one."""

from __future__ import annotations

import numpy as np
import pytest
from problems import physical_problem, with_unavailable

from planner.budget import Budget
from planner.engines.physical.bounds import Bounds
from planner.engines.physical.nodes import on_counts
from planner.engines.physical.search import Search
from planner.engines.schedule import WindowFacts
from planner.feasibility import infeasibility

SEEDS = sorted({*range(28)} - {10, 11, 16})
BOTH = [3, 5, 6, 9, 17, 18, 21, 25]
"""Of problems that nothing is known to leave without a plan; and those of them in which both tenants may retrain."""


def search_of(seed):
    return Search(WindowFacts.of(physical_problem(seed, 6)), Budget())


def counted(search, schedule):
    return search.counted_paths.value(on_counts(search.facts, schedule))


def bounded(bounds):
    for ways in bounds.of_pair():
        for index, bound in enumerate(ways.bounds):
            yield ways.schedule(index), bound


@pytest.mark.parametrize("seed", SEEDS)
def test_no_schedule_is_worth_more_than_its_bound(seed):
    search = search_of(seed)
    bounds = Bounds(search.facts, search.counted_paths)
    assert all(counted(search, schedule) <= bound + 1e-9 for schedule, bound in bounded(bounds))


@pytest.mark.parametrize("seed", [143, 209, 276])
def test_what_has_to_change_at_once_may_be_changing_when_a_stretch_ends(seed):
    # The initial set leaves a retraining no room, or breaks rule 4; another retraining starts or ends a step later.
    search = Search(WindowFacts.of(physical_problem(seed, 6, 2)), Budget())
    bounds = Bounds(search.facts, search.counted_paths)
    assert all(counted(search, schedule) <= bound + 1e-9 for schedule, bound in bounded(bounds))


def shared_search_of(seed):
    return Search(WindowFacts.of(with_unavailable(physical_problem(seed, 6, 2), seed)), Budget())


# fmt: off
SHARED = [
    143, 178, 276, 0, 2, 6, 13, 14, 15, 17, 18, 21, 24, 26, 28, 29, 30, 35, 37, 41, 43,
    45, 48, 49, 50, 51, 54, 56, 58, 59, 64, 65, 66, 69, 71, 73, 74, 75, 76, 77,
]
# fmt: on
"""Slices become others', or ours, inside the window."""


def test_the_seeds_are_of_such_problems():
    problems = [physical_problem(seed, 6) for seed in SEEDS]
    shared = [with_unavailable(physical_problem(seed, 6, 2), seed) for seed in SHARED]
    assert [infeasibility(problem) for problem in (*problems, *shared)] == [None] * (len(SEEDS) + len(SHARED))
    assert all(len(problem.unavailable_spans) > 1 for problem in shared)
    assert [seed for seed in SEEDS if both_may_retrain(seed)] == BOTH


@pytest.mark.parametrize("seed", SHARED)
def test_no_schedule_is_worth_more_than_its_bound_where_slices_change_hands(seed):
    search = shared_search_of(seed)
    bounds = Bounds(search.facts, search.counted_paths)
    assert all(counted(search, schedule) <= bound + 1e-9 for schedule, bound in bounded(bounds))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_relaxed_bound_is_above_every_schedule(seed):
    search = search_of(seed)
    bounds = Bounds(search.facts, search.counted_paths)
    assert all(bound <= bounds.relaxed() + 1e-9 for _, bound in bounded(bounds))


def both_may_retrain(seed):
    return all(len(choices) > 1 for choices in WindowFacts.of(physical_problem(seed, 6)).choices)


@pytest.mark.parametrize("seed", BOTH)
def test_bounds_by_start_leave_change_costs_out(seed):
    search = search_of(seed)
    bounds = Bounds(search.facts, search.counted_paths)
    for ways in bounds.of_pair():
        first, second = ways.retrainings
        for start in np.unique(ways.starts[0]):
            others = () if first is None else (first.at(int(start)),)
            rough = bounds.of_starts(others, second, search.facts.actors[-1], ())
            assert np.all(rough >= ways.bounds[ways.starts[0] == start] - 1e-9)
