"""`exact`, and the integer program where it is quick, find what the plain oracle finds; all keep rules and bounds.

The problems are the same for a seed every time; the last tests check that they are the awkward ones that we want.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import paper_oracle
import pytest
from problems import paper_problem

from planner.budget import EngineOptions
from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import Problem, TenantTerms
from planner.solve import solve
from planner.verify import Verification, verify

SEEDS = range(200)
QUICK = (0, 20, 44, 48, 52, 68, 76, 22, 101, 118, 55)
"""Those that the integer program proves within a second, on CBC, too."""
PROVERS = [("exact", seed) for seed in SEEDS]
PROVERS += [(f"paper-ilp {solver}", seed) for solver in ("highs", "cbc") for seed in QUICK]
"""Engine, with its solver, and seed."""
ENGINES = [*PROVERS, *(("greedy", seed) for seed in SEEDS)]


problem_of = cache(paper_problem)


@cache
def oracle(seed: int) -> float | None:
    return paper_oracle.best_objective(problem_of(seed))


@cache
def plan_of(seed: int, engine: str) -> MigPlan:
    name, *solver = engine.split()
    return solve(problem_of(seed), name, options=EngineOptions(*solver))


@cache
def checked(seed: int, engine: str) -> Verification:
    return verify(problem_of(seed), plan_of(seed, engine))


@pytest.mark.parametrize(("engine", "seed"), PROVERS)
def test_engines_that_prove_equal_the_oracle(engine, seed):
    best = oracle(seed)
    if best is None:
        assert plan_of(seed, engine).status is Status.INFEASIBLE
    else:
        # Recomputed by the checker from the decoded plan; near zero, 1e-6 requests.
        assert checked(seed, engine).objective == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("engine", "seed"), PROVERS)
def test_engines_that_prove_do_so(engine, seed):
    assert plan_of(seed, engine).status is (Status.INFEASIBLE if oracle(seed) is None else Status.OPTIMAL)


@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_plans_what_has_a_plan(seed):
    # Greedy promises this of no problem in general; on small ones it should not give up.
    allowed = {Status.INFEASIBLE} if oracle(seed) is None else {Status.OPTIMAL, Status.FEASIBLE}
    assert plan_of(seed, "greedy").status in allowed


@pytest.mark.parametrize(("engine", "seed"), ENGINES)
def test_every_plan_keeps_the_rules(engine, seed):
    if plan_of(seed, engine).status.has_plan:
        assert checked(seed, engine).violations == ()


@pytest.mark.parametrize(("engine", "seed"), ENGINES)
def test_no_bound_is_below_the_best_plan(engine, seed):
    best, bound = oracle(seed), plan_of(seed, engine).bound
    if best is not None:
        assert bound >= best - 1e-6 * max(1.0, abs(best))


@pytest.mark.parametrize(("engine", "seed"), PROVERS)
def test_engines_that_prove_are_never_worse_than_greedy(engine, seed):
    floor = plan_of(seed, "greedy").objective
    if floor is not None:
        assert plan_of(seed, engine).objective >= floor - 1e-9 * abs(floor)


@pytest.mark.parametrize("seed", SEEDS)
def test_gain_tables_say_what_the_checker_works_out(seed):
    problem, plan = problem_of(seed), plan_of(seed, "exact")
    if not plan.status.has_plan:
        return
    tabled = verify(replace(problem, gains=gain_tables(problem)), plan)
    assert tabled.objective == pytest.approx(verify(problem, plan).objective)


def durations(problem: Problem, tenant: TenantTerms) -> set[int]:
    return {problem.training_steps(option, name) for option in tenant.options for name in option.time_s}


def keys(tenant: TenantTerms) -> list[set[str]]:
    return [set(option.time_s) for option in tenant.options]


# What the random problems have to cover, each a predicate on a problem and one of its tenants.
COVERED = {
    "one tenant": lambda p, _: len(p.tenants) == 1,
    "two tenants": lambda p, _: len(p.tenants) == 2,
    "three tenants": lambda p, _: len(p.tenants) == 3,
    "tenants with other profiles": lambda p, t: any(set(o.capability_rps) != set(t.capability_rps) for o in p.tenants),
    "retraining on other profiles": lambda _, t: any(names != set(t.capability_rps) for names in keys(t)),
    "retraining where it cannot serve": lambda _, t: any(names - set(t.capability_rps) for names in keys(t)),
    "no retraining": lambda _, t: not t.options,
    "two options": lambda _, t: len(t.options) == 2,
    "required": lambda _, t: t.must_retrain,
    "not required": lambda _, t: t.options and not t.retraining_required,
    "does not pay": lambda _, t: t.must_retrain and max(t.accuracies[1:]) < t.accuracy_before,
    "2.1 s in steps of 0.3 s": lambda p, t: p.step_s == 0.3 and 7 in durations(p, t),
    "as long as the window": lambda p, t: p.n_steps in durations(p, t),
    "a30": lambda p, _: p.gpu.name == "a30-24gb",
    "a100": lambda p, _: p.gpu.name == "a100-40gb",
    "h100 with the double-memory 1g": lambda p, t: p.gpu.name == "h100-80gb" and "1g.20gb" in t.capability_rps,
    "an initial state": lambda p, _: p.initial is not None,
    "a smallest profile above 1g": lambda p, t: p.gpu.profile(t.min_profile).compute_slices > 1,
    "no arrivals": lambda _, t: not t.arrivals_rps.any(),
    "debt of a change": lambda p, t: t.overhead_s > p.step_s,
    "weights": lambda _, t: t.weight not in (0.0, 1.0),
}


@pytest.mark.parametrize("feature", COVERED)
def test_the_problems_with_a_plan_cover(feature):
    found = [s for s in SEEDS if any(COVERED[feature](problem_of(s), t) for t in problem_of(s).tenants)]
    assert sum(oracle(seed) is not None for seed in found) >= 3


def test_at_least_ten_problems_have_no_plan_and_most_have_one():
    n_infeasible = sum(oracle(seed) is None for seed in SEEDS)
    assert 10 <= n_infeasible <= len(SEEDS) / 3
