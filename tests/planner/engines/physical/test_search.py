"""Plans within a limit of seconds: valid, good, and bounded, however little time there is; and what work is for."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product, repeat

import numpy as np
import pytest
from problems import physical_problem

from benchmarks.speed.problems import random_problem
from planner.budget import Budget
from planner.engines.physical import search as physical_search
from planner.engines.physical.coarse import refined_schedule
from planner.engines.physical.physical import solve_physical
from planner.engines.physical.plan import retrainings_in
from planner.engines.physical.search import Search
from planner.engines.schedule import WindowFacts, earliest_schedule, schedule_of
from planner.problem import Problem, Retraining
from planner.replan import remaining_plan, remaining_problem
from planner.verify import verify
from tests.seeds import daily

LONG = Budget(time_limit_s=600.0)


def random_window(seed: int, n_tenants: int = 3, n_steps: int = 60) -> Problem:
    return random_problem(seed, n_tenants=n_tenants, n_steps=n_steps, model="physical")


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program over all placed sets cannot be afforded."""
    monkeypatch.setattr(Search, "_affords", lambda *_: False)


def hurried_search(problem: Problem) -> Search:
    """What is found on counts and by placing alone."""
    search = Search(WindowFacts.of(problem), replace(LONG, proves=False))
    search.run([seed for seed in [earliest_schedule(problem)] if seed is not None])
    return search


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("seed", daily(range(60), range(0, 60, 3)))
def test_hurried_plans_are_valid_and_within_the_bounds_of_unhurried_ones(seed: int) -> None:
    problem = physical_problem(seed, 6)
    hurried, full = solve_physical(problem, Budget(time_limit_s=0.02)), solve_physical(problem)
    assert hurried.status.has_plan == full.status.has_plan
    if hurried.status.has_plan:
        assert not verify(problem, hurried).violations
        assert hurried.objective <= full.claimed_bound + 1e-6
        assert full.objective <= hurried.claimed_bound + 1e-6


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("n_tenants", [2, 4])
def test_without_any_time_there_is_a_valid_plan_all_the_same(n_tenants: int) -> None:
    problem = random_window(0, n_tenants, 150)
    plan = solve_physical(problem, Budget(time_limit_s=0.0))
    assert (plan.status.has_plan, verify(problem, plan).violations) == (True, ())


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("seed", daily(range(3), range(1)))
def test_a_hurried_plan_is_nearly_as_good_as_the_full_searchs(seed: int) -> None:
    problem = random_window(seed)
    best = hurried_search(problem).best
    assert best is not None
    assert best.value >= 0.99 * solve_physical(problem).objective


@pytest.mark.long
@pytest.mark.usefixtures("in_haste")
def test_long_windows_are_planned_on_coarser_steps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physical_search, "COARSE_STEPS", 40)
    problem = random_window(1, 2, 160)
    best = hurried_search(problem).best
    assert best is not None
    assert best.value >= 0.98 * solve_physical(problem).objective


def test_nothing_is_hurried_without_a_limit_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(physical_search, "coarse_facts", fail)
    monkeypatch.setattr(physical_search, "COARSE_STEPS", 10)
    assert solve_physical(random_window(0, 2), Budget(max_nodes=20)).status.has_plan


def test_time_enough_goes_to_all_placed_sets_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    affords = chain([False], repeat(True))
    monkeypatch.setattr(Search, "_affords", lambda *_: next(affords))
    plan = solve_physical(random_window(0, 2), Budget(time_limit_s=2.0))
    assert dict(plan.work)["placed_schedules"] > 0


@pytest.mark.usefixtures("in_haste")
def test_an_earlier_plans_retrainings_are_the_first_to_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_window(0, 2, 120)
    first = solve_physical(problem)
    monkeypatch.setattr(Search, "_explore", lambda *_, **__: None)
    again = solve_physical(problem, Budget(time_limit_s=0.0), first)
    assert retrainings_in(problem, again) == retrainings_in(problem, first)


@pytest.mark.usefixtures("in_haste")
def test_a_hurried_plan_starts_from_an_earlier_ones_retrainings() -> None:
    problem = random_window(2, 2)
    first = solve_physical(problem)
    again = solve_physical(problem, Budget(time_limit_s=0.0), first)
    assert again.objective >= 0.99 * first.objective


def test_a_coarse_schedule_is_moved_to_where_it_ends_in_the_window() -> None:
    facts = WindowFacts.of(random_window(0, 2, 120))
    way = facts.ways(0)[0]
    coarse: Retraining = way.at(0)
    (found,) = refined_schedule(facts, (coarse.at(60),), 2) or ()
    assert (found.end_step, found.n_steps) == (120, way.n_steps)


@pytest.mark.usefixtures("in_haste")
def test_a_search_keeps_what_the_best_plan_holds() -> None:
    search = hurried_search(random_window(0, 2))
    assert search.best is not None
    assert search.held
    assert schedule_of(search.best.answer) in search._ranked()


WORKS = [(0, 2), (8, 3), (20, 2), (100, 3), (1_000, 2), (1_000, 3)]
"""Schedules, and tenants."""


@pytest.mark.parametrize("work", daily(WORKS, WORKS[:3]))
def test_prices_have_their_share_of_any_work(work: tuple[int, int]) -> None:
    max_nodes, n_tenants = work
    problem = random_window(0, n_tenants, 120)
    plan = solve_physical(problem, Budget(max_nodes=max_nodes))
    found = verify(problem, plan)
    assert found.violations == ()
    assert found.gap is not None
    assert found.gap < (0.03 if max_nodes == 1_000 else 0.2)


def test_larger_graphs_cost_more_units(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    for unit_nodes in (physical_search.UNIT_NODES, 10):
        monkeypatch.setattr(physical_search, "UNIT_NODES", unit_nodes)
        search = Search(WindowFacts.of(random_window(0, 2)), Budget(max_nodes=50))
        search.run()
        spent.append(search.meter.n_counted)
    assert spent[1] < spent[0]


def test_what_is_left_of_a_certificate_bounds_the_rest_of_a_window() -> None:
    problem = random_window(1, 2)
    whole = solve_physical(problem)
    rest, left = remaining_problem(problem, whole, 20), remaining_plan(whole, 20)
    again = solve_physical(rest, Budget(max_nodes=50, proves=False), left)
    assert again.certificate is not None
    assert left.certificate is not None
    assert np.array_equal(again.certificate.prices, left.certificate.prices)
    found = verify(rest, again)
    assert found.violations == ()
    assert solve_physical(rest).objective <= found.bound
    assert again.claimed_bound <= found.bound * (1 + 1e-9)


def test_prices_of_other_steps_are_not_carried() -> None:
    problem = random_window(1, 2)
    whole = solve_physical(problem)
    rest = remaining_problem(problem, whole, 20)
    again = solve_physical(
        rest, Budget(max_nodes=50, proves=False), replace(remaining_plan(whole, 20), certificate=whole.certificate)
    )
    assert again.certificate is None


@pytest.mark.parametrize("seed", range(4))
def test_a_schedules_places_are_all_in_which_it_can_stand_in_order(seed: int) -> None:
    problem = random_window(seed)
    search = Search(WindowFacts.of(problem), LONG)
    schedule = earliest_schedule(problem)
    assert schedule is not None
    every = product(*([(run, place) for place in search.facts.placements(run)] for run in schedule))
    assert [*search._fitting((), schedule)] == [placed for placed in every if search.facts.can_stand(placed)]


def test_where_a_retraining_has_no_place_beside_the_first_ones_no_later_ones_are_tried() -> None:
    problem = random_window(0)
    search = Search(WindowFacts.of(problem), LONG)
    whole = Retraining(0, 1, problem.gpu.profiles[-1].name, 0, 10)
    small = Retraining(1, 1, problem.gpu.profiles[0].name, 0, 10)
    # Seven at once beside the whole GPU: 7 ** 12 ways would take for ever.
    assert [*search._fitting((), (whole, *([small] * 12)))] == []
