"""`physical` finds what trying everything finds on tiny problems, and keeps the rules and its bound on larger ones."""

from __future__ import annotations

from functools import cache

import physical_oracle
import pytest
from problems import physical_problem

from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.solve import solve
from planner.verify import verify

CROWDED = ((204, 3, None), (256, 3, None), (479, 5, None))
"""The GPU is full with a retraining in progress on slice 0, while another one has to run."""

PAIRS = tuple((seed, 3 + seed % 2, None) for seed in range(30))
TRIPLES = tuple((seed, 3, 3) for seed in (1, 2, 14, 24, 42, 46, 47, 51, 62, 70, 74, 85, 86, 89, 95, 105, 112, 113, 118))
TINY = PAIRS + TRIPLES
LARGER = tuple((seed, n_steps, None) for seed in range(100, 140) for n_steps in (6, 12))


@cache
def problem_of(seed: int, n_steps: int, n_tenants: int | None) -> Problem:
    return physical_problem(seed, n_steps, n_tenants)


@cache
def oracle(seed: int, n_steps: int, n_tenants: int | None) -> float | None:
    return physical_oracle.best_objective(problem_of(seed, n_steps, n_tenants))


@cache
def plan_of(seed: int, n_steps: int, n_tenants: int | None) -> MigPlan:
    return solve(problem_of(seed, n_steps, n_tenants), "physical")


@pytest.mark.parametrize(("seed", "n_steps", "n_tenants"), TINY)
def test_a_problem_is_infeasible_iff_nothing_keeps_the_rules(seed, n_steps, n_tenants):
    assert (plan_of(seed, n_steps, n_tenants).status is Status.INFEASIBLE) == (oracle(seed, n_steps, n_tenants) is None)


@pytest.mark.parametrize(("seed", "n_steps", "n_tenants"), TINY)
def test_no_plan_is_better_than_the_best_of_all(seed, n_steps, n_tenants):
    plan, best = plan_of(seed, n_steps, n_tenants), oracle(seed, n_steps, n_tenants)
    if best is not None:
        found = verify(problem_of(seed, n_steps, n_tenants), plan)
        assert found.objective <= best + 1e-6 * max(1.0, best)


@pytest.mark.parametrize(("seed", "n_steps", "n_tenants"), TINY)
def test_no_bound_is_below_the_best_plan(seed, n_steps, n_tenants):
    best = oracle(seed, n_steps, n_tenants)
    if best is not None:
        assert plan_of(seed, n_steps, n_tenants).bound >= best - 1e-6 * max(1.0, best)


@pytest.mark.parametrize(("seed", "n_steps", "n_tenants"), TINY)
def test_an_optimal_plan_is_the_best_of_all(seed, n_steps, n_tenants):
    plan, best = plan_of(seed, n_steps, n_tenants), oracle(seed, n_steps, n_tenants)
    if plan.status is Status.OPTIMAL:
        assert plan.objective == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("seed", "n_steps", "n_tenants"), TINY + LARGER + CROWDED)
def test_every_plan_keeps_the_rules(seed, n_steps, n_tenants):
    plan = plan_of(seed, n_steps, n_tenants)
    if plan.status.has_plan:
        assert verify(problem_of(seed, n_steps, n_tenants), plan).violations == ()


def has_running_retraining(problem: Problem) -> bool:
    return problem.physical_initial is not None and bool(problem.physical_initial.retrainings)


COVERED = {
    "an initial state": lambda p: p.initial is not None,
    "no initial state": lambda p: p.initial is None,
    "a retraining in progress": has_running_retraining,
    "an epoch that has to wait": lambda p: p.physical_initial is not None and p.physical_initial.next_epoch_step > 1,
    "a longer warm-up": lambda p: p.epoch_steps > 1,
    "one tenant": lambda p: len(p.tenants) == 1,
    "three tenants": lambda p: len(p.tenants) == 3,
    "three tenants, an initial state": lambda p: len(p.tenants) == 3 and p.initial is not None,
    "three tenants, a retraining in progress": lambda p: len(p.tenants) == 3 and has_running_retraining(p),
    "three tenants, all may retrain": lambda p: len(p.tenants) == 3 and all(t.options for t in p.tenants),
    "two ways to retrain": lambda p: any(len(tenant.options) == 2 for tenant in p.tenants),
    "a required retraining": lambda p: any(tenant.must_retrain for tenant in p.tenants),
    "an optional retraining": lambda p: any(t.options and not t.retraining_required for t in p.tenants),
}


@pytest.mark.parametrize("feature", COVERED)
def test_the_problems_with_a_plan_cover(feature):
    found = [key for key in TINY if COVERED[feature](problem_of(*key))]
    assert sum(oracle(*key) is not None for key in found) >= 3
