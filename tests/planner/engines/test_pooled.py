"""The bound of a pool where not all of its members' levels are told apart: it holds, and plans keep the rules."""

from __future__ import annotations

import numpy as np
import physical_oracle
import pytest
from answers import near
from claims import Claims
from problems import pooled_problem

from planner.engines import pooled
from planner.engines.prices import InstancePrices
from planner.engines.schedule import WindowFacts
from planner.plan import Certificate
from planner.problem import without_floors
from planner.solve import solve
from planner.verify import pooled as checked
from planner.verify import verify
from planner.verify.certificate import certified_bound
from tests.seeds import daily

SEEDS = daily(range(400, 520), range(401, 430, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_members_beyond_the_states_are_bounded_and_retrained_all_the_same(seed, monkeypatch):
    monkeypatch.setattr(pooled, "MOST_STATES", 2)
    monkeypatch.setattr(checked, "MOST_STATES", 2)
    problem = pooled_problem(seed)
    best, plan = physical_oracle.best_objective(problem), solve(problem)
    assert plan.status.has_plan == (best is not None)
    if best is not None:
        found, slack = verify(problem, plan), 1e-9 * max(1.0, abs(best))
        with Claims(f"seed {seed}") as claim:
            claim(not found.violations, f"{[str(one) for one in found.violations]}")
            claim(problem.has_floors or plan.objective == near(best), f"worth {plan.objective}, not {best}")
            claim(plan.claimed_bound >= best - slack, f"bound {plan.claimed_bound} below {best}")
            claim(found.bound is None or found.bound >= best - slack, f"proven {found.bound}")


@pytest.mark.parametrize("most_states", [2, 16])
def test_the_check_finds_the_same_bound_at_any_prices(most_states, monkeypatch):
    monkeypatch.setattr(pooled, "MOST_STATES", most_states)
    monkeypatch.setattr(checked, "MOST_STATES", most_states)
    with Claims(f"{most_states} states") as claim:
        for seed in range(16, 40):  # in 34 and 35 a level lowers what a member earns
            problem = without_floors(pooled_problem(seed))
            dual = InstancePrices(WindowFacts.of(problem))
            prices = 5.0 * np.random.default_rng(seed).normal(size=dual.shape)
            bound = certified_bound(problem, Certificate(problem.profile_names, prices))
            claim(bound == near(dual(prices)[0], 1e-6), f"seed {seed}: {bound}; the engine has {dual(prices)[0]}")
