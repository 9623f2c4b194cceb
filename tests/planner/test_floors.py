"""Floors of in-time answers: engines against trying everything, and what a floor may and may not do to a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from answers import check_answer, check_plan
from claims import Claims
from engine_table import ENGINES
from problems import physical_problem, short_paper_problem, with_floors, with_gain_tables

from executor.catalogue import gpu_model
from planner.attainment import attainments
from planner.budget import Budget
from planner.engines.physical.physical import solve_physical
from planner.floors import solve_with_floors
from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import (
    AttainmentFloor,
    HeldInstance,
    Per,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
    without_floors,
)
from planner.replan import remaining_problem
from planner.solve import solve
from planner.verify import Rule, verify

STEP = [(model, "step", seed) for model in ("paper", "physical") for seed in range(60 if model == "paper" else 30)]
WINDOW = [("paper", per, seed) for per in ("window", "mixed") for seed in range(60, 100)]
WINDOW += [("physical", per, seed) for per in ("window", "mixed") for seed in range(30, 50)]
FLOORED = STEP + WINDOW
QUICK = FLOORED[::3]
EVERY = [pytest.param(key, id=str(key), marks=() if key in QUICK else pytest.mark.long) for key in FLOORED]


def problem_of(model: str, per: str, seed: int) -> Problem:
    bare = short_paper_problem(seed) if model == "paper" else physical_problem(seed, 3 + seed % 2)
    return with_floors(bare, seed, per)


@cache
def oracle(model: str, per: str, seed: int) -> float | None:
    judge = paper_oracle if model == "paper" else physical_oracle
    return judge.best_objective(problem_of(model, per, seed))


def near(value: float) -> float:
    return 1e-6 * max(1.0, abs(value))


@pytest.mark.parametrize("key", EVERY)
def test_answers_under_floors_are_what_the_oracle_says(key):
    problem, best = problem_of(*key), oracle(*key)
    with Claims(key) as claim:
        for engine in ENGINES:
            if engine.answers(problem) and engine.solver != "cbc":
                plan = engine.plan(problem)
                check_answer(claim, engine, problem, plan, best, is_proven=True)
                if plan.status.has_plan:
                    check_plan(claim, engine, problem, plan)
        check_on_paths(claim, with_gain_tables(problem, key[-1]))


def check_on_paths(claim, problem):
    """On sample paths floors are kept, and none is out of reach that a plan without it keeps."""
    plan, free = solve(problem), solve(without_floors(problem))
    if plan.status.has_plan:
        found = verify(problem, plan)
        claim(found.violations == (), f"on paths: {found.violations}")
        claim(found.proven_bound >= plan.objective - near(plan.objective), f"on paths: proven {found.proven_bound}")
    elif free.status.has_plan:
        kept = all(one.is_met for one in attainments(problem, free))
        claim(not kept, f"on paths: {plan.status}, though a plan without floors keeps them")


def test_the_random_problems_are_both_feasible_and_not():
    n_infeasible = sum(oracle(*key) is None for key in QUICK)
    assert len(QUICK) / 4 <= n_infeasible <= 3 * len(QUICK) / 4


def test_some_floors_cost_goodput():
    def free(key: tuple[str, str, int]) -> float:
        return solve(without_floors(problem_of(*key))).objective or 0.0

    found = [key for key in QUICK if oracle(*key) is not None]
    assert sum(free(key) > oracle(*key) + near(oracle(*key)) for key in found) >= 4


def two_tenants(
    *floors: AttainmentFloor | None,
    model: Reconfiguration = Reconfiguration.PHYSICAL,
    n_steps: int = 12,
    initial: PhysicalState | None = None,
) -> Problem:
    """Vision is worth ten times what speech is, and both would use up most of an A30."""
    rates = {"1g.6gb": 30.0, "2g.12gb": 60.0}
    tenants = tuple(
        TenantTerms(
            name=name,
            arrivals_rps=np.full(n_steps, 100.0),
            capability_rps=rates,
            accuracy_before=0.8,
            overhead_s=0.5,
            min_profile="1g.6gb",
            weight=weight,
            min_slo_attainment=floor,
        )
        for name, weight, floor in zip(("vision", "speech"), (10.0, 1.0), floors, strict=True)
    )
    return Problem(gpu_model("a30-24gb"), 1.0, n_steps, model, tenants, switch_s=0.5, initial=initial)


def shares(problem: Problem) -> list[float]:
    return [one.share for one in attainments(problem, solve(problem))]


def test_without_a_floor_the_cheaper_tenant_gets_what_is_left():
    assert shares(two_tenants(None, None)) == pytest.approx([0.9, 0.3])


def test_a_floor_per_step_gives_the_cheaper_tenant_its_share_in_each_step():
    assert shares(two_tenants(None, AttainmentFloor(0.5, Per.STEP))) == pytest.approx([0.6, 0.6])


def test_a_floor_per_window_is_kept_over_the_window():
    assert shares(two_tenants(None, AttainmentFloor(0.4)))[1] >= 0.4 - 1e-9


@pytest.mark.parametrize("model", Reconfiguration)
def test_a_floor_per_window_may_be_kept_by_some_steps_alone(model):
    # Loads that never change leave nothing between two layouts but to change from one to the other on the way.
    problem = two_tenants(None, AttainmentFloor(0.4), model=model)
    assert 0.4 - 1e-9 <= shares(problem)[1] < 0.55


def test_a_step_that_cannot_be_kept_is_named_with_the_share_that_can():
    plan = solve(two_tenants(None, AttainmentFloor(0.95, Per.STEP)))
    assert "step 0; its best reachable share is 90 %" in str(plan.infeasibility)


def test_a_window_that_cannot_be_kept_is_told_with_the_share_that_can():
    plan = solve(two_tenants(None, AttainmentFloor(0.95)))
    assert str(plan.infeasibility).startswith("tenant speech: ")
    assert "its best reachable share is 90 %" in str(plan.infeasibility)


def test_floors_that_exclude_each_other_are_proven_to():
    plan = solve(two_tenants(AttainmentFloor(0.8), AttainmentFloor(0.8)))
    assert plan.status is Status.INFEASIBLE


def test_a_floor_that_others_exclude_is_told_with_the_nearest_plan():
    plan = solve(two_tenants(AttainmentFloor(0.8), AttainmentFloor(0.8)))
    expected = "no plan keeps its floor beside the other floors and rules; the nearest: "
    assert expected in str(plan.infeasibility)
    assert "60 % in time of 80 % asked for" in str(plan.infeasibility)


def test_requests_that_are_due_and_none_that_arrive_are_out_of_reach():
    problem = two_tenants(None, AttainmentFloor(0.4, due=10.0))
    silent = replace(problem.tenants[1], arrivals_rps=np.zeros(problem.n_steps))
    plan = solve(replace(problem, tenants=(problem.tenants[0], silent)))
    assert "speech: none in time of 40 % asked for, with +10 requests due from before" in str(plan.infeasibility)


def budgets_of(problem: Problem, budget: Budget, *, costs_at_most: float | None = None) -> list[Budget]:
    """What each solve of ``physical`` under the problem's floors might spend, in order."""
    given: list[Budget] = []

    def engine(posed: Problem, own: Budget, initial: MigPlan | None) -> MigPlan:
        given.append(own)
        return solve_physical(posed, own, initial)

    solve_with_floors(problem, engine, budget, name="physical", costs_at_most=costs_at_most)
    return given


@pytest.mark.parametrize("floor", [0.4, 0.95])
@pytest.mark.parametrize("costs_at_most", [None, 5.0, 100.0])
def test_only_the_last_solve_proves(floor, costs_at_most):
    proves = [
        own.proves
        for own in budgets_of(two_tenants(None, AttainmentFloor(floor)), Budget(), costs_at_most=costs_at_most)
    ]
    assert proves == [False] * (len(proves) - 1) + [True]


def test_a_budget_without_proofs_gets_none():
    given = budgets_of(two_tenants(None, AttainmentFloor(0.4)), Budget(proves=False))
    assert len(given) > 1
    assert not any(own.proves for own in given)


def test_all_solves_together_stay_within_the_work_and_the_proof_has_a_quarter():
    works = [own.max_nodes for own in budgets_of(two_tenants(None, AttainmentFloor(0.4)), Budget(max_nodes=4000))]
    assert sum(works) <= 4000
    assert works[-1] >= 1000


@pytest.mark.parametrize("per", Per)
def test_a_plan_that_need_not_keep_its_floors_lacks_as_little_as_possible(per):
    problem = two_tenants(None, AttainmentFloor(0.95, per))
    plan = solve(problem, floor_costs_at_most=100.0)
    assert [one.share for one in attainments(problem, plan)] == pytest.approx([0.3, 0.9])


@pytest.mark.parametrize("model", Reconfiguration)
def test_more_than_a_floor_asks_for_makes_up_for_nothing_that_lacks_elsewhere(model):
    problem = two_tenants(AttainmentFloor(0.2), AttainmentFloor(0.95), model=model)
    plan = solve(problem, floor_costs_at_most=100.0)
    alone = two_tenants(None, AttainmentFloor(0.95), model=model)
    lacks = [one.shortfall for one in attainments(problem, plan)]
    assert lacks == pytest.approx(
        [one.shortfall for one in attainments(alone, solve(alone, floor_costs_at_most=100.0))]
    )


def test_loading_counts_no_more_than_without_floors(monkeypatch):
    monkeypatch.setattr("planner.floors.working_s", lambda: 7.0)  # the clock that stands still while loops are loaded
    assert solve(two_tenants(None, AttainmentFloor(0.4))).solve_s == 0


def test_a_plan_that_misses_a_floor_says_so():
    plan = solve(two_tenants(None, AttainmentFloor(0.95)), floor_costs_at_most=100.0)
    assert plan.missed == ("speech: 90 % in time of 95 % asked for",)


def test_a_plan_that_misses_a_floor_is_never_called_optimal():
    plan = solve(two_tenants(None, AttainmentFloor(0.95, Per.STEP)), floor_costs_at_most=100.0)
    assert (plan.status, plan.bound) == (Status.FEASIBLE, None)


def test_a_plan_that_misses_a_floor_per_window_is_bounded_as_all_plans_are():
    problem = two_tenants(None, AttainmentFloor(0.95))
    plan, free = solve(problem, floor_costs_at_most=100.0), solve(without_floors(problem))
    assert plan.bound == pytest.approx(free.bound)
    found = verify(problem, plan)
    assert [item.rule for item in found.violations] == [Rule.FLOOR]
    assert found.proven_bound >= free.objective - near(free.objective)


@pytest.mark.parametrize("floor", [AttainmentFloor(0.5, Per.STEP), AttainmentFloor(0.5)])
def test_what_need_not_be_kept_is_kept_where_it_can_be(floor):
    problem = two_tenants(None, floor)
    assert solve(problem, floor_costs_at_most=100.0).lifetimes == solve(problem).lifetimes


def test_the_same_problem_and_budget_give_the_same_plan():
    problem = two_tenants(AttainmentFloor(0.5), AttainmentFloor(0.4))
    first, second = (solve(problem, budget=Budget(max_nodes=400)) for _ in range(2))
    assert replace(first, solve_s=0.0) == replace(second, solve_s=0.0)


def held_by_vision(next_epoch_step: int) -> PhysicalState:
    """Vision has three quarters of the GPU, speech the rest."""
    gpu = gpu_model("a30-24gb")
    held = [("2g.12gb@0", "vision"), ("1g.6gb@2", "vision"), ("1g.6gb@3", "speech")]
    items = tuple(HeldInstance(gpu.placement(place), name, 0) for place, name in held)
    return PhysicalState(items, (), next_epoch_step)


def test_a_floor_per_step_does_not_bind_before_a_decision_can_keep_it():
    # Speech has 30 % until the first epoch's instances serve.
    problem = two_tenants(None, AttainmentFloor(0.6, Per.STEP), initial=held_by_vision(2))
    assert solve(problem).status is Status.OPTIMAL


def test_what_keeps_a_floor_when_the_window_opens_is_not_given_up_for_a_warm_up():
    # Vision's 2g serves 60 %, which is enough: nothing may take it away while something else warms up.
    problem = two_tenants(AttainmentFloor(0.6, Per.STEP), AttainmentFloor(0.6, Per.STEP), initial=held_by_vision(0))
    assert attainments(problem, solve(problem))[0].is_met


def test_a_retraining_cannot_take_what_a_floor_needs():
    problem = two_tenants(AttainmentFloor(0.9, Per.STEP), None)
    retrained = replace(
        problem.tenants[1], options=(RetrainingOption("full", {"1g.6gb": 4.0}, 0.9),), retraining_required=True
    )
    plan = solve(replace(problem, tenants=(problem.tenants[0], retrained)))
    assert plan.status is Status.INFEASIBLE


def test_a_given_gain_table_without_in_time_is_refused_under_a_floor():
    problem = two_tenants(None, AttainmentFloor(0.5))
    bare = tuple(replace(table, in_time=None) for table in gain_tables(problem))
    with pytest.raises(ValueError, match=r"tenants\.speech: gains lack in_time"):
        gain_tables(replace(problem, gains=bare))


def test_in_time_that_falls_with_more_instances_is_refused_under_a_floor():
    problem = two_tenants(None, AttainmentFloor(0.5))
    tables = gain_tables(problem)
    wrong = replace(tables[1], in_time=tables[1].in_time[:, ::-1].copy())
    with pytest.raises(ValueError, match="lower for a multiset than for a part of it"):
        gain_tables(replace(problem, gains=(tables[0], wrong)))


def test_what_is_left_of_a_window_owes_what_its_beginning_lacked():
    problem = two_tenants(None, AttainmentFloor(0.5))
    plan = solve(without_floors(problem))
    rest = remaining_problem(problem, plan, 4)
    assert rest.tenants[1].min_slo_attainment.due == pytest.approx(4 * (50.0 - 30.0))


def test_a_plan_for_the_rest_makes_up_for_what_is_due():
    problem = two_tenants(None, AttainmentFloor(0.5))
    rest = remaining_problem(problem, solve(without_floors(problem)), 4)
    # 30 % of four steps are served: the other eight have to bring 480 of their 800.
    assert attainments(rest, solve(rest))[1].in_time >= 480 - 1e-6


def test_a_forged_multiplier_for_a_tenant_without_a_floor_is_refused():
    problem = two_tenants(None, AttainmentFloor(0.4))
    plan = solve(problem)
    forged = replace(plan, certificate=replace(plan.certificate, multipliers=(("vision", 1.0),)))
    assert [item.rule for item in verify(problem, forged).violations] == [Rule.CERTIFICATE]


@pytest.mark.parametrize("multiplier", [0.0, 0.3, 5.0, 1e4])
def test_any_multiplier_gives_a_bound(multiplier):
    problem = two_tenants(None, AttainmentFloor(0.4))
    plan = solve(problem)
    changed = replace(plan, certificate=replace(plan.certificate, multipliers=(("speech", multiplier),)))
    assert verify(problem, changed).proven_bound >= plan.objective - near(plan.objective)


def test_the_checker_names_tenant_step_and_share_of_a_missed_floor():
    problem = two_tenants(None, AttainmentFloor(0.5, Per.STEP))
    plan = solve(without_floors(problem))
    found = [str(item) for item in verify(problem, plan).violations]
    missed = "min_slo_attainment: speech, step 0: 30 % of its requests are in time; 50 % is the floor of each step"
    assert missed in found


def test_a_floor_that_does_not_bind_leaves_the_plan_as_it_is():
    problem = two_tenants(None, AttainmentFloor(0.2, Per.STEP))
    assert solve(problem).lifetimes == solve(without_floors(problem)).lifetimes
