"""Plans within a limit of seconds: valid, good, and bounded, however little time there is."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from problems import physical_problem

from benchmarks.speed.problems import random_problem
from planner.budget import Budget
from planner.engines.physical import quick
from planner.engines.physical.physical import solve_physical
from planner.engines.physical.plan import retrainings_in
from planner.engines.physical.quick import QuickSearch, refined_schedule
from planner.engines.physical.search import Search
from planner.engines.schedule import WindowFacts, earliest_schedule, schedule_of
from planner.problem import Problem, Retraining
from planner.verify import verify

LONG = Budget(time_limit_s=600.0)


def random_window(seed: int, n_tenants: int = 3, n_steps: int = 60) -> Problem:
    return random_problem(seed, n_tenants=n_tenants, n_steps=n_steps, model="physical")


def quick_search(problem: Problem) -> Search:
    search = Search(WindowFacts.of(problem), LONG)
    QuickSearch(search).run([seed for seed in [earliest_schedule(problem)] if seed is not None])
    return search


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the quick search can be afforded."""
    monkeypatch.setattr(QuickSearch, "can_afford", lambda *_: False)


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("seed", range(60))
def test_hurried_plans_are_valid_and_within_the_bounds_of_unhurried_ones(seed: int) -> None:
    problem = physical_problem(seed, 6)
    hurried, full = solve_physical(problem, Budget(time_limit_s=0.02)), solve_physical(problem)
    assert hurried.status.has_plan == full.status.has_plan
    if hurried.status.has_plan:
        assert not verify(problem, hurried).violations
        assert hurried.objective <= full.bound + 1e-6
        assert full.objective <= hurried.bound + 1e-6


@pytest.mark.usefixtures("in_haste")
@pytest.mark.parametrize("n_tenants", [2, 4])
def test_without_any_time_there_is_a_valid_plan_all_the_same(n_tenants: int) -> None:
    problem = random_window(0, n_tenants, 150)
    plan = solve_physical(problem, Budget(time_limit_s=0.0))
    assert (plan.status.has_plan, verify(problem, plan).violations) == (True, ())


@pytest.mark.parametrize("seed", range(3))
def test_a_quick_plan_is_nearly_as_good_as_the_full_searchs(seed: int) -> None:
    problem = random_window(seed)
    best = quick_search(problem).best
    assert best is not None
    assert best.value >= 0.99 * solve_physical(problem).objective


def test_long_windows_are_planned_on_coarser_steps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "COARSE_STEPS", 40)
    problem = random_window(1, 2, 160)
    best = quick_search(problem).best
    assert best is not None
    assert best.value >= 0.98 * solve_physical(problem).objective


def test_nothing_is_hurried_without_a_limit_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(QuickSearch, "run", fail)
    assert solve_physical(random_window(0, 2), Budget(max_nodes=20)).status.has_plan


def test_time_enough_goes_to_the_full_search_after_the_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    affords = chain([False], repeat(True))
    monkeypatch.setattr(QuickSearch, "can_afford", lambda *_: next(affords))
    plan = solve_physical(random_window(0, 2), Budget(time_limit_s=2.0))
    assert dict(plan.work)["placed_schedules"] > 0


@pytest.mark.usefixtures("in_haste")
def test_an_earlier_plans_retrainings_are_the_first_to_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_window(0, 2, 120)
    first = solve_physical(problem)
    monkeypatch.setattr(QuickSearch, "run", lambda *_: None)
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


def test_a_search_keeps_what_the_best_plan_holds() -> None:
    search = quick_search(random_window(0, 2))
    assert search.best is not None
    assert search.held is not None
    assert search.best_held() is search.held
    assert schedule_of(search.best.answer) in search.ranked()
