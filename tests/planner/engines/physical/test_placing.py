"""Paths on counts put on placements: what they hold is valid, and worth what counts promise where it can be."""

from __future__ import annotations

import numpy as np
import pytest
from problems import physical_problem, with_unavailable

from benchmarks.speed.problems import random_problem
from planner.engines.physical.nodes import nodes_of, on_counts
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.placing import Placer
from planner.engines.physical.plan import with_held
from planner.engines.schedule import WindowFacts, earliest_schedule
from planner.feasibility import infeasibility
from planner.problem import Problem
from planner.verify import verify


def random_window(seed: int, n_tenants: int) -> Problem:
    return random_problem(seed, n_tenants=n_tenants, n_steps=60, model="physical")


def placed_plans(problem: Problem):
    """The earliest schedule's best path on counts, and its first placements as plans."""
    facts, schedule = WindowFacts.of(problem), earliest_schedule(problem)
    nodes = nodes_of(facts, is_counted=True)
    path = HeldSetPath(facts, nodes).path(on_counts(facts, schedule))
    placer = Placer(facts, nodes)
    ways = [] if np.isneginf(path.value) else list(placer.ways(path, schedule))[:3]
    found = [(placed, placer.held(path, placed)) for placed in ways]
    return path, [with_held(facts, held, placed, path.value, "hand", 0.0) for placed, held in found if held]


@pytest.mark.parametrize("n_tenants", [1, 2, 3])
def test_hardly_more_sets_are_counted_than_there_are_placed_nodes(n_tenants: int) -> None:
    facts = WindowFacts.of(random_window(0, n_tenants))
    n_nodes = len(nodes_of(facts))
    assert n_nodes <= Placer(facts, nodes_of(facts, is_counted=True)).n_sets() <= 1.1 * n_nodes


@pytest.mark.parametrize("seed", range(6))
def test_placed_paths_keep_every_rule(seed: int) -> None:
    problem = random_window(seed, 2 + seed % 2)
    _, plans = placed_plans(problem)
    assert plans
    assert all(not verify(problem, plan).violations for plan in plans)


@pytest.mark.parametrize("seed", range(40))
def test_paths_are_placed_from_any_initial_state(seed: int) -> None:
    problem = physical_problem(seed, 6)
    if infeasibility(problem) is None:
        assert all(not verify(problem, plan).violations for plan in placed_plans(problem)[1])


def test_paths_are_placed_on_slices_that_are_ours() -> None:
    n_plans = 0
    for seed in range(60):
        problem = with_unavailable(physical_problem(seed, 6), seed)
        if infeasibility(problem) is None and earliest_schedule(problem) is not None:
            plans = placed_plans(problem)[1]
            n_plans += len(plans)
            assert all(not verify(problem, plan).violations for plan in plans), seed
    assert n_plans > 10


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_placed_paths_are_worth_what_counts_promise(seed: int) -> None:
    path, plans = placed_plans(random_window(seed, 3))
    assert max(plan.objective for plan in plans) == pytest.approx(path.value, rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_placed_paths_are_never_worth_more(seed: int) -> None:
    path, plans = placed_plans(random_window(seed, 2))
    assert all(plan.objective <= path.value * (1 + 1e-9) for plan in plans)
