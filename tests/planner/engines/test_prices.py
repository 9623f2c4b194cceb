"""Prices of instances bound every plan of either model, and their slopes are slopes."""

from __future__ import annotations

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from problems import paper_problem, physical_problem

from planner.engines.paper import alone as paper_alone
from planner.engines.physical import alone as physical_alone
from planner.engines.physical.coarse import coarse_facts
from planner.engines.physical.prices import PhysicalPrices
from planner.engines.prices import Descent, InstancePrices, Subgradient, certificate
from planner.engines.schedule import WindowFacts, on_profiles
from planner.feasibility import infeasibility

PAPER_SEEDS = [seed for seed in range(60) if infeasibility(paper_problem(seed)) is None][:30]
PHYSICAL_SEEDS = [seed for seed in range(60) if infeasibility(physical_problem(seed, 4)) is None][:25]


def paper_dual(problem):
    facts = WindowFacts.of(problem)
    return InstancePrices(problem, [paper_alone.TenantSubproblem.of(facts, m) for m in range(len(facts.gains))])


def physical_dual(problem):
    facts = WindowFacts.of(problem)
    return InstancePrices(problem, [physical_alone.TenantSubproblem(facts, m) for m in range(len(problem.tenants))])


def some_prices(seed, shape):
    rng = np.random.default_rng(seed)
    yield np.zeros(shape)
    for scale in (1.0, 20.0):
        yield scale * rng.normal(size=shape)
        yield scale * rng.random(size=shape)


def is_at_least(bound, best):
    return best is None or bound >= best - 1e-9 * max(1.0, abs(best))


@pytest.mark.parametrize("seed", PAPER_SEEDS)
def test_no_paper_plan_exceeds_the_bound_of_any_prices(seed):
    problem = paper_problem(seed)
    dual, best = paper_dual(problem), paper_oracle.best_objective(problem)
    assert all(is_at_least(dual(prices)[0], best) for prices in some_prices(seed, dual.shape))


@pytest.mark.parametrize("seed", PHYSICAL_SEEDS)
def test_no_physical_plan_exceeds_the_bound_of_any_prices(seed):
    problem = physical_problem(seed, 4)
    dual, best = physical_dual(problem), physical_oracle.best_objective(problem)
    assert all(is_at_least(dual(prices)[0], best) for prices in some_prices(seed, dual.shape))


@pytest.mark.parametrize("make", ["paper", "physical"])
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_convex_with_the_slopes_that_it_gives(seed, make):
    problem = paper_problem(PAPER_SEEDS[seed]) if make == "paper" else physical_problem(PHYSICAL_SEEDS[seed], 4)
    dual = paper_dual(problem) if make == "paper" else physical_dual(problem)
    points = list(some_prices(seed, dual.shape))
    for one in points:
        bound, slope = dual(one)
        for other in points:
            assert dual(other)[0] >= bound + float((slope * (other - one)).sum()) - 1e-6


def test_one_tenant_alone_without_prices_is_its_best_plan():
    found = [seed for seed in PAPER_SEEDS if len(paper_problem(seed).tenants) == 1]
    for seed in found:
        dual, best = paper_dual(paper_problem(seed)), paper_oracle.best_objective(paper_problem(seed))
        # Two instances at once may not fit beside a retraining: prices of 0 do not see that.
        assert dual(np.zeros(dual.shape))[0] >= best - 1e-9
    assert found


@pytest.mark.parametrize("seed", PAPER_SEEDS[:10])
def test_a_descent_keeps_the_lowest_bound_it_met(seed):
    dual, best = paper_dual(paper_problem(seed)), paper_oracle.best_objective(paper_problem(seed))
    subgradient = Subgradient(dual, np.zeros(dual.shape), Descent())
    if best is None:
        return
    before = dual(np.zeros(dual.shape))[0]
    subgradient.run(best, 60, lambda: False)
    assert subgradient.bound == dual(subgradient.prices)[0]
    assert best - 1e-9 * max(1.0, abs(best)) <= subgradient.bound <= before


def test_a_descent_stops_when_told():
    dual = paper_dual(paper_problem(PAPER_SEEDS[0]))
    subgradient = Subgradient(dual, np.zeros(dual.shape), Descent())
    subgradient.run(0.0, 60, lambda: True)
    assert subgradient.n_rounds == 1


@pytest.mark.parametrize("seed", PHYSICAL_SEEDS[:12])
def test_a_schedule_is_worth_at_most_the_bound_less_its_slacks(seed):
    problem = physical_problem(seed, 6)
    if infeasibility(problem) is not None:
        return
    from planner.budget import Budget
    from planner.engines.physical.bounds import Bounds
    from planner.engines.physical.search import Search

    search = Search(WindowFacts.of(problem), Budget())
    search.prices.lower(0.0, 20)
    slacks = search.prices.slacks()
    bounds = Bounds(search.facts, search.counted_paths)
    for ways in bounds.of_pair():
        for index in range(len(ways.bounds)):
            schedule = ways.schedule(index)
            by_tenant = {retraining.tenant: retraining for retraining in schedule}
            bound = search.prices.bound
            for tenant, by_way in enumerate(slacks):
                retraining = by_tenant.get(tenant)
                if retraining is not None:
                    bound -= by_way[retraining.at(0)][retraining.start_step]
                elif None in by_way:
                    bound -= by_way[None][0]
            assert search.counted_paths.value(on_profiles(schedule)) <= bound + 1e-6


@pytest.mark.parametrize("seed", PHYSICAL_SEEDS[:10])
def test_coarse_steps_keep_the_window_and_the_arrivals(seed):
    facts = WindowFacts.of(physical_problem(seed, 6))
    coarse = coarse_facts(facts, 3)
    assert coarse.n_steps == 2
    for fine, summed in zip(facts.gains, coarse.gains, strict=True):
        assert summed.steady.sum() == pytest.approx(fine.steady.sum())


@pytest.mark.parametrize("seed", PHYSICAL_SEEDS[:10])
def test_prices_that_begin_on_coarse_steps_bound_the_fine_problem(seed, monkeypatch):
    monkeypatch.setattr("planner.engines.physical.prices._LEAST_STEPS", 2)
    problem = physical_problem(seed, 5)
    if infeasibility(problem) is None:
        best = physical_oracle.best_objective(problem)
        prices = PhysicalPrices(WindowFacts.of(problem), lambda: False)
        prices.lower(best or 0.0, 5)
        assert is_at_least(prices.bound, best)


def test_a_certificate_has_a_few_digits_of_every_price():
    problem = paper_problem(PAPER_SEEDS[0])
    prices = np.full((problem.n_steps, len(problem.profile_names)), 1.0 / 3.0)
    prices[0] = 0.0
    found = certificate(problem, prices)
    assert found.profile_names == problem.profile_names
    assert found.prices[1, 0] == 0.333333
    assert found.prices[0, 0] == 0.0
