"""Retrainings on loans beside one layout: the engine against an oracle, its bound, and plans that were altered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import lent_oracle
import numpy as np
import pytest
from altered import altered
from claims import Claims
from lent_problems import lent_problem
from plans import lent_case, with_terms

from planner.by_hand import plan_of as plan_of_lifetimes
from planner.engines import lent
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_of, problem_to_json
from planner.lending import loan
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import HeldInstance, Owner, PhysicalState, Problem, Task
from planner.replan import remaining_plan, remaining_problem
from planner.solve import engine_names, solve
from planner.verify import Rule, loans, verify
from tests.seeds import daily

N_PROBLEMS = 240

SEEDS = daily(range(N_PROBLEMS), {0, 1, 2})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_engine_finds_what_an_oracle_finds_and_the_check_proves_it(seed: int) -> None:
    problem = lent_problem(seed)
    with Claims(f"problem {seed}") as claim:
        plan, best = solve(problem), lent_oracle.best(problem)
        size = 1e-7 * max(1.0, abs(best) if math.isfinite(best) else 1.0)
        if not plan.status.has_plan:
            # Floors per window are kept by multipliers, which may leave a gap; then no plan need be found.
            has_gap = problem.has_floors and plan.status is Status.TIMEOUT
            claim(math.isinf(best) or has_gap, f"{plan.status}: {plan.infeasibility}; the oracle has {best}")
            return
        assert plan.objective is not None
        found = verify(problem, plan)
        claim(not found.violations, f"{[str(one) for one in found.violations]}")
        claim(plan.objective <= best + size, f"{plan.objective} is more than the oracle's {best}")
        if not problem.has_floors:
            claim(abs(plan.objective - best) <= size, f"{plan.objective}, the oracle has {best}")
        claim(found.bound is not None and found.bound >= best - size, f"the bound {found.bound} is below {best}")
        floors = [tenant.min_slo_attainment for tenant in problem.tenants]
        if not any(own.swap_s for own in problem.tenants) and not any(own and own.per == "window" for own in floors):
            claim(found.bound is not None and found.bound <= best + 1e-6 * max(1.0, best), f"{found.bound} is loose")
            claim(plan.status is Status.OPTIMAL, f"{plan.status}, though nothing is left to find")
        claim(plan.claimed_bound is not None and plan.claimed_bound >= best - size, f"claimed {plan.claimed_bound}")
        read = problem_of(problem_to_json(problem, with_gains=True), "file")
        told = problem_to_json(read, with_gains=True)
        claim(told == problem_to_json(problem, with_gains=True), "the problem's file says something else")
        claim(plan_of(plan_to_json(plan), read, "file").lifetimes == plan.lifetimes, "the plan's file does")


@pytest.mark.parametrize("seed", daily(range(N_PROBLEMS), {0, 1, 2}))
def test_bounds_hold_where_not_all_levels_are_told_apart(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "MOST_ACTORS", 1)
    monkeypatch.setattr(loans, "MOST_TOLD", 1)
    problem = lent_problem(seed)
    plan, best = solve(problem), lent_oracle.best(problem)
    if not plan.status.has_plan:
        assert plan.status is Status.TIMEOUT or math.isinf(best)
        return
    assert plan.objective is not None
    found, size = verify(problem, plan), 1e-7 * max(1.0, abs(best))
    assert found.violations == ()
    assert found.bound is not None
    assert plan.claimed_bound is not None
    assert plan.objective - size <= best <= min(found.bound, plan.claimed_bound) + size


@pytest.mark.parametrize("seed", daily(range(N_PROBLEMS), {0, 1, 2}))
def test_what_is_left_of_a_plan_is_a_plan_of_what_is_left(seed: int) -> None:
    problem = lent_problem(seed)
    plan = solve(problem)
    for step in range(1, problem.n_steps) if plan.status.has_plan else ():
        rest, left = remaining_problem(problem, plan, step), remaining_plan(plan, step)
        found = verify(rest, left)
        assert {one.rule for one in found.violations} <= {Rule.OBJECTIVE}
        again = solve(rest)
        assert found.objective is not None
        if not problem.has_floors:
            assert again.objective is not None
            assert again.objective >= found.objective - 1e-7 * max(1.0, abs(found.objective))


def test_a_loan_worked_out_by_hand_is_found_and_valid() -> None:
    problem, plan = lent_case()
    assert verify(problem, plan).violations == ()
    found = [solve(problem, engine) for engine in engine_names(problem.reconfiguration)]
    assert {(one.lifetimes, one.objective, one.status) for one in found} == {(plan.lifetimes, 345.0, Status.OPTIMAL)}


def _refusals(problem: Problem, lifetimes: Iterable[Lifetime]) -> str:
    found = verify(problem, plan_of_lifetimes(problem, lifetimes, "hand"))
    return "; ".join(f"{one.rule}: {one.message}" for one in found.violations)


def test_each_rule_of_loans_refuses_what_breaks_it() -> None:
    problem, plan = lent_case()
    large, small, run = plan.lifetimes
    free = problem.gpu.placement("1g.6gb@3")
    other = replace(run, owner=Owner("b", Task.RETRAINING), create_step=2, serve_step=3, end_step=5)
    refused: dict[str, tuple[Lifetime, ...]] = {
        "loan: 1g.6gb@3 is not of the layout": (large, small, run, replace(small, placement=free)),
        "loan: 1g.6gb@2 of the layout is not held from step 0 to the end": (large, replace(small, end_step=7), run),
        "loan: 1g.6gb@3 is not lent": (large, small, replace(run, placement=free, lent=False)),
        "loan: 1g.6gb@2 is lent, which only a layout's is": (large, replace(small, lent=True), run),
        "loan: the loan of 1g.6gb@2 begins before the last one ends, at step 3": (large, small, run, other),
        "loan: 1g.6gb@3 is lent, and its tenant's pool": (large, small, replace(run, placement=free)),
    }
    for message, lifetimes in refused.items():
        assert message in _refusals(problem, lifetimes)


def test_nothing_is_lent_before_all_serves_or_that_a_tenant_cannot_spare_or_without_a_layout() -> None:
    problem, plan = lent_case()
    large, small, run = plan.lifetimes
    held = tuple(HeldInstance(item.placement, "a", 2, ("b",)) for item in (large, small))
    warming = replace(problem, initial=PhysicalState(held, next_epoch_step=2))
    late = [replace(item, serve_step=2) for item in (large, small)]
    assert "before the layout serves all, at step 2" in _refusals(warming, (*late, run))
    needy = with_terms(problem, 1, min_profile="2g.12gb")
    on_large = replace(run, placement=large.placement)
    assert "without 2g.12gb@0 a tenant has nothing as large" in _refusals(needy, (large, small, on_large))
    assert "is lent, which only a layout's is" in _refusals(replace(problem, layout=()), plan.lifetimes)


def _planned(seed: int, is_wanted: Callable[[MigPlan], bool] = lambda _: True) -> tuple[Problem, MigPlan]:
    """The first problem from this one on that has such a plan, and the plan."""
    found = ((one, solve(one)) for one in map(lent_problem, range(seed, seed + 20)))
    return next((problem, plan) for problem, plan in found if plan.status.has_plan and is_wanted(plan))


def _valued(problem: Problem, plan: MigPlan) -> MigPlan:
    """The plan as if it claimed what it is worth."""
    found = verify(problem, replace(plan, objective=0.0, claimed_bound=None, status=Status.FEASIBLE, bound=None))
    return replace(
        plan,
        objective=found.objective,
        salvage=found.salvage,
        claimed_bound=None,
        status=Status.FEASIBLE,
        bound=None,
    )


N_MUTANTS = 25
"""Of each seed; 20 seeds make 500."""


@pytest.mark.parametrize("seed", range(20))
def test_plans_whose_loans_were_altered_are_refused_or_worth_what_an_oracle_says(seed: int) -> None:
    rng = np.random.default_rng([seed, 65])
    for number in range(N_MUTANTS):
        problem, plan = _planned(N_MUTANTS * seed + number, lambda plan: any(item.lent for item in plan.lifetimes))
        mutant = replace(plan, lifetimes=_loans_altered(rng, problem, plan.lifetimes))
        worth = _worth(problem, plan, mutant)
        found = verify(problem, valued := _valued(problem, mutant))
        assert found.is_valid == (worth > -np.inf), f"{found.violations}, and the oracle says {worth}: {mutant}"
        if found.is_valid:
            assert valued.objective == pytest.approx(worth, rel=1e-9, abs=1e-7)


def _worth(problem: Problem, plan: MigPlan, mutant: MigPlan) -> float:
    """By the oracle, which knows loans alone: beside one layout all that is held has to be as it was."""
    held = [[item for item in one.lifetimes if item.is_inference] for one in (plan, mutant)]
    others = [item for item in mutant.lifetimes if not item.is_inference and not item.lent]
    if others or Counter(held[0]) != Counter(held[1]):
        return -np.inf
    names, loans = problem.tenant_names, [item for item in mutant.lifetimes if not item.is_inference]
    told = Counter(_lending(problem, names.index(item.owner.tenant), item) for item in loans)
    return lent_oracle.worth(problem, frozenset(told)) if max(told.values(), default=1) == 1 else -np.inf


def _lending(problem: Problem, m: int, item: Lifetime) -> lent_oracle.Lending:
    options = [option.name for option in problem.tenants[m].options]
    number = options.index(item.option) if item.option in options else -1
    steps = (item.create_step, item.serve_step, item.end_step)
    for one in lent_oracle.running(problem):
        if (one.m, one.place, one.begin, one.end) == (m, item.placement, *steps[::2]):
            return one._replace(serve=item.serve_step)
    return lent_oracle.Lending(m, number, item.placement, *steps)


def _loans_altered(rng: np.random.Generator, problem: Problem, items: tuple[Lifetime, ...]) -> tuple[Lifetime, ...]:
    """One to three alterations, mostly of loans; not what it was."""
    other = items
    for _ in range(int(rng.integers(1, 4))):
        other = _loan_altered(rng, problem, other)
    return other if Counter(other) != Counter(items) else _loans_altered(rng, problem, items)


def _loan_altered(rng: np.random.Generator, problem: Problem, items: tuple[Lifetime, ...]) -> tuple[Lifetime, ...]:
    """A loan moves, lasts longer, is another's, for another, of another option, is dropped, or there is one more."""
    of_loans = [at for at, item in enumerate(items) if not item.is_inference]
    if not of_loans or rng.random() < 0.25:
        return (*items, *_another_loan(rng, problem))
    at = int(rng.choice(of_loans if rng.random() < 0.9 else range(len(items))))
    item, kind, by = items[at], int(rng.integers(8)), int(rng.choice([-2, -1, 1, 2]))
    create, serve, end = item.create_step, item.serve_step, item.end_step
    places = [*problem.layout, *problem.gpu.placements(problem.profile_names)]
    shifts = [(by, by, by), (by, by, by), (by, 0, 0), (0, by, 0), (0, 0, by)]
    new: list[Lifetime] = []
    if kind < len(shifts):
        moved = [step + more for step, more in zip((create, serve, end), shifts[kind], strict=True)]
        new = [replace(item, create_step=moved[0], serve_step=moved[1], end_step=moved[2])]
    elif kind == 5:
        among = problem.layout if rng.random() < 0.8 else places
        new = [replace(item, placement=among[int(rng.integers(len(among)))])]
    elif kind == 6:
        own = problem.tenants[int(rng.integers(len(problem.tenants)))]
        names = [item.option, *(one.name for one in own.options)]
        tenant = item.owner.tenant if rng.random() < 0.5 else own.name
        owner = replace(item.owner, tenant=tenant, others=() if tenant != item.owner.tenant else item.owner.others)
        new = [replace(item, owner=owner, option=names[int(rng.integers(len(names)))], lent=rng.random() < 0.8)]
    return (*items[:at], *new, *items[at + 1 :])


def _another_loan(rng: np.random.Generator, problem: Problem) -> list[Lifetime]:
    """As long as it has to be, in any step: where a retraining is offered on what may be lent or not."""
    tenant = problem.tenants[int(rng.integers(len(problem.tenants)))]
    ways = [(one, place) for one in tenant.options for place in problem.layout if place.profile.name in one.time_s]
    if not ways:
        return []
    option, place = ways[int(rng.integers(len(ways)))]
    return [loan(problem, tenant.name, option.name, place, int(rng.integers(problem.n_steps)))]


def _lent_otherwise(rng: np.random.Generator, plan: MigPlan) -> MigPlan:
    """A loan is none, or another placement's, or another lifetime is lent."""
    at = int(rng.integers(len(plan.lifetimes)))
    item = plan.lifetimes[at]
    other: Lifetime = replace(item, lent=not item.lent)
    if rng.random() < 0.4:
        places = [own.placement for own in plan.lifetimes]
        other = replace(item, placement=places[int(rng.integers(len(places)))])
    return replace(plan, lifetimes=(*plan.lifetimes[:at], other, *plan.lifetimes[at + 1 :]))


@pytest.mark.parametrize("seed", daily(range(500), {0, 1, 2, 3}))
def test_an_altered_plan_is_refused_or_worth_no_more_than_the_best(seed: int) -> None:
    rng = np.random.default_rng([seed, 64])
    problem, plan = _planned(seed)
    other = _lent_otherwise(rng, plan) if rng.random() < 0.35 else altered(rng, problem, plan)
    found = verify(problem, replace(other, claimed_bound=None, status=Status.FEASIBLE, bound=None))
    if found.broken_rules and any(one.rule is not Rule.OBJECTIVE for one in found.violations):
        return
    other = _valued(problem, other)
    best = lent_oracle.best(problem)
    assert other.objective is not None
    assert other.objective <= best + 1e-7 * max(1.0, abs(best)), f"{seed}: {other.objective} passes, {best} is the best"
