"""A floor under bursts: what a plan loses against a layout that stays, and when that takes its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import physical_problem

from executor.catalogue import gpu_model
from planner.bursts import MOST_LOST, Scenarios, burst_loss, held_to_floor, still_plan
from planner.engines.physical.plan import retrainings_in
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan
from planner.problem import Problem, Reconfiguration, TenantTerms
from planner.solve import solve
from planner.verify import verify

SEEDS = (1, 16, 21, 25, 27, 39)
"""Problems that have a plan, and a layout that can stay beside its retrainings, worth less for some arrivals."""


def expected(problem: Problem, n: int) -> Scenarios:
    """The problem's own arrivals, ``n`` times, without queues: worth what the simple gain tables say."""
    rates = np.stack([np.stack([tenant.arrivals_rps for tenant in problem.tenants], axis=1)] * n)
    slacks = tuple(dict.fromkeys(tenant.capability_rps, 0.0) for tenant in problem.tenants)
    return Scenarios(rates, slacks)


def solved(seed: int) -> tuple[Problem, MigPlan, MigPlan]:
    """A problem, its best plan and the layout that stays beside the same retrainings."""
    problem = physical_problem(seed)
    plan = solve(problem, "physical")
    still = still_plan(problem, plan)
    assert still is not None
    return problem, plan, still


@pytest.mark.parametrize("seed", SEEDS)
def test_a_layout_that_stays_keeps_the_rules_and_the_retrainings(seed: int) -> None:
    problem, plan, still = solved(seed)
    assert not verify(problem, still).broken_rules
    assert retrainings_in(problem, still) == retrainings_in(problem, plan)
    assert still.objective is not None
    assert plan.objective is not None
    assert still.objective <= plan.objective + 1e-9
    first = WindowFacts.of(problem).first_step
    edges = {edge for item in still.lifetimes if item.is_inference for edge in (item.create_step, item.end_step)}
    assert edges <= {0, first, problem.n_steps}


@pytest.mark.parametrize("seed", SEEDS)
def test_on_the_expected_arrivals_the_loss_is_the_difference_of_what_is_expected(seed: int) -> None:
    problem, plan, still = solved(seed)
    scenarios = expected(problem, 3)
    requests = scenarios.rates_rps[0].sum() * problem.step_s
    assert plan.objective is not None
    assert still.objective is not None
    loss = (still.objective - plan.objective) / requests
    assert burst_loss(problem, plan, still, scenarios) == pytest.approx(loss, abs=1e-12)
    # Up to a step the scenarios count, and from then on what is expected; here both are the same.
    begun = replace(scenarios, rates_rps=scenarios.rates_rps[:, :2])
    share = requests / (begun.rates_rps[0].sum() * problem.step_s)
    assert burst_loss(problem, plan, still, begun) == pytest.approx(loss * share, abs=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_worst_tenth_counts(seed: int) -> None:
    problem, plan, still = solved(seed)
    mild, wild = expected(problem, 18), expected(problem, 2)
    wild = replace(wild, rates_rps=3 * wild.rates_rps)
    both = replace(mild, rates_rps=np.concatenate([mild.rates_rps, wild.rates_rps]))
    own = [burst_loss(problem, plan, still, one) for one in (mild, wild)]
    requests = [one.rates_rps[0].sum() for one in (mild, wild)]
    assert burst_loss(problem, plan, still, both) == pytest.approx(
        own[int(own[1] * requests[1] > own[0] * requests[0])]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_gives_way_where_it_may_lose_more_than_a_hundredth(seed: int) -> None:
    problem, plan, still = solved(seed)
    rng = np.random.default_rng([seed, 3])
    rates = expected(problem, 10).rates_rps[:, ::-1] * rng.uniform(0, 4, (10, problem.n_steps, len(problem.tenants)))
    scenarios = replace(expected(problem, 10), rates_rps=rates)
    loss, answer = burst_loss(problem, plan, still, scenarios), held_to_floor(problem, plan, None, scenarios)
    assert (loss > MOST_LOST) is (seed == 16)
    if seed == 16:
        assert answer.lifetimes == still.lifetimes
        assert answer.burst_loss == pytest.approx(loss)
    else:
        assert answer is plan


def swinging() -> Problem:
    """Two tenants: what the second brings in the second half, the first has brought in the first."""
    high, low = np.full(30, 400.0), np.full(30, 20.0)
    profiles = {"1g.5gb": 50.0, "2g.10gb": 100.0, "3g.20gb": 150.0, "4g.20gb": 200.0}
    return Problem(
        gpu=gpu_model("a100-40gb"),
        step_s=1.0,
        n_steps=60,
        reconfiguration=Reconfiguration.PHYSICAL,
        switch_s=0.5,
        tenants=tuple(
            TenantTerms(name, np.concatenate(rates), profiles, 0.8, 0.5, "1g.5gb")
            for name, rates in (("a", (high, low)), ("b", (low, high)))
        ),
    )


def test_a_plan_that_swings_gives_way_where_arrivals_may_swing_the_other_way() -> None:
    problem = swinging()
    plan = solve(problem, "physical")
    assert held_to_floor(problem, plan, None, expected(problem, 20)) is plan
    other = replace(expected(problem, 20), rates_rps=expected(problem, 20).rates_rps[:, ::-1])
    answer = held_to_floor(problem, plan, None, other)
    assert answer.burst_loss is not None
    assert answer.burst_loss > 0.1
    assert len({item.create_step for item in answer.lifetimes}) == 1
    # What goes on is judged where it is worth as much; as it stays, nothing takes its place.
    assert held_to_floor(problem, answer, answer, other) is answer
    assert held_to_floor(problem, replace(answer, burst_loss=None), plan, other).burst_loss == answer.burst_loss


def test_nothing_is_asked_without_scenarios() -> None:
    problem = physical_problem(0)
    plan = solve(problem, "physical")
    assert held_to_floor(problem, plan, None, None) is plan
