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
from planner.course import courses
from planner.engines.physical.physical import solve_physical
from planner.floors import is_better, solve_with_floors, without_multipliers
from planner.gains import gain_tables
from planner.plan import MigPlan, Status, salvage_of
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
from tests.seeds import daily

STEP = [(model, "step", seed) for model in ("paper", "physical") for seed in range(60 if model == "paper" else 30)]
WINDOW = [("paper", per, seed) for per in ("window", "mixed") for seed in range(60, 100)]
WINDOW += [("physical", per, seed) for per in ("window", "mixed") for seed in range(30, 50)]
FLOORED = STEP + WINDOW
QUICK = FLOORED[1::10]
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
        claim(found.bound >= plan.objective - near(plan.objective), f"on paths: proven {found.bound}")
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


@pytest.mark.parametrize("weight", [10.0, 1e4])
def test_a_floor_per_window_is_kept_over_the_window_whatever_a_request_of_others_is_worth(weight):
    vision, speech = two_tenants(None, AttainmentFloor(0.4)).tenants
    problem = replace(two_tenants(None, None), tenants=(replace(vision, weight=weight), speech))
    others, own = shares(problem)
    assert own >= 0.4 - 1e-9
    assert others >= 0.6


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


def test_a_plan_that_misses_a_floor_per_step_is_bounded_as_all_plans_are_and_has_no_certificate():
    problem = two_tenants(None, AttainmentFloor(0.95, Per.STEP))
    plan, free = solve(problem, floor_costs_at_most=100.0), solve(without_floors(problem))
    assert (plan.status, plan.claimed_bound, plan.certificate) == (
        Status.FEASIBLE,
        pytest.approx(free.claimed_bound),
        None,
    )


def test_a_plan_that_misses_a_floor_per_window_is_bounded_as_all_plans_are():
    problem = two_tenants(None, AttainmentFloor(0.95))
    plan, free = solve(problem, floor_costs_at_most=100.0), solve(without_floors(problem))
    assert plan.claimed_bound == pytest.approx(free.claimed_bound)
    found = verify(problem, plan)
    assert [item.rule for item in found.violations] == [Rule.FLOOR]
    assert found.bound >= free.objective - near(free.objective)


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
    assert verify(problem, changed).bound >= plan.objective - near(plan.objective)


def test_the_checker_names_tenant_step_and_share_of_a_missed_floor():
    problem = two_tenants(None, AttainmentFloor(0.5, Per.STEP))
    plan = solve(without_floors(problem))
    found = [str(item) for item in verify(problem, plan).violations]
    missed = "min_slo_attainment: speech, step 0: 30 % of its requests are in time; 50 % is the floor of each step"
    assert missed in found


def test_a_floor_that_does_not_bind_leaves_the_plan_as_it_is():
    problem = two_tenants(None, AttainmentFloor(0.2, Per.STEP))
    assert solve(problem).lifetimes == solve(without_floors(problem)).lifetimes


COSTS = (0.0, 2.0, 20.0, 100.0)
BETWEEN = 8.0
"""Hundredths at which single instances, for a step or two, decide what can be had."""

CONTESTED = range(24)
QUICKLY = CONTESTED[::6]


def contested(seed: int) -> Problem:
    """Two tenants, worth unlike much, whose floors ask for more than the better plans give one of them."""
    rng = np.random.default_rng([seed, 12])
    n_steps = int(rng.integers(4, 6))
    asked = [float(rng.uniform(0.2, 0.7)) if rng.random() < 0.4 else None, float(rng.uniform(0.4, 1.0))]
    per = [Per.STEP if rng.random() < 0.35 else Per.WINDOW for _ in asked]
    floors = [None if share is None else AttainmentFloor(share, kind) for share, kind in zip(asked, per, strict=True)]
    initial = held_by_vision(int(rng.integers(0, 3))) if rng.random() < 0.5 else None
    problem = two_tenants(*floors, n_steps=n_steps, initial=initial)
    weights = (float(rng.uniform(1.5, 10.0)), 1.0)
    tenants = [
        replace(tenant, arrivals_rps=rng.uniform(60, 150, n_steps), weight=weight)
        for tenant, weight in zip(problem.tenants, weights, strict=True)
    ]
    return replace(problem, tenants=tuple(tenants))


def chosen(problem: Problem, costs_at_most: float) -> tuple[MigPlan, list[MigPlan]]:
    """The plan that is taken, and all those from which it was."""
    found: list[MigPlan] = []

    def engine(posed: Problem, budget: Budget, initial: MigPlan | None) -> MigPlan:
        found.append(solve_physical(posed, budget, initial))
        return found[-1]

    return solve_with_floors(problem, engine, Budget(), name="physical", costs_at_most=costs_at_most), found


def worth(problem: Problem, plan: MigPlan) -> tuple[float, float]:
    """Requests that a plan lacks of all floors, and what it is worth."""
    lacks = sum(one.shortfall for one in attainments(problem, plan))
    goodput = sum(float(course.goodput.sum()) for course in courses(problem, plan))
    return lacks, goodput + salvage_of(problem, plan.schedules, plan.lifetimes)


@cache
def trades(seed: int) -> list[tuple[float, float]]:
    return physical_oracle.outcomes(contested(seed))


@pytest.mark.parametrize("seed", daily(CONTESTED, QUICKLY[1:2]))
def test_floors_cost_no_more_than_they_may_and_no_plan_found_lacks_fewer(seed):
    problem, plans = contested(seed), trades(seed)
    with Claims(seed) as claim:
        for costs in (*COSTS, BETWEEN):
            lacks, fewest = check_choice(claim, problem, plans, costs)
            claim(costs == BETWEEN or lacks <= fewest + 1e-6, f"at {costs} % it lacks {lacks}, one plan {fewest}")


@pytest.mark.long
def test_most_choices_lack_as_few_as_any_plan_that_costs_no_more():
    nearest = [check_choice(Claims(seed), contested(seed), trades(seed), BETWEEN) for seed in QUICKLY]
    assert sum(lacks <= fewest + 1e-6 for lacks, fewest in nearest) >= 2 / 3 * len(QUICKLY)


def test_what_floors_may_cost_decides_what_the_random_problems_lack():
    def lacks(seed: int, costs: float) -> float:
        return worth(contested(seed), chosen(contested(seed), costs)[0])[0]

    assert all(lacks(seed, 0.0) > lacks(seed, 20.0) for seed in QUICKLY)


def check_choice(
    claim: Claims, problem: Problem, plans: list[tuple[float, float]], costs: float
) -> tuple[float, float]:
    """The plan taken beside the oracle's plans, and beside those from which it was taken.

    Returned is what it lacks, and what that of the oracle's plans lacks that cost no more which lacks fewest.
    """
    plan, found = chosen(problem, costs)
    free, keeping = max(plans)[0], max((value for value, lacks in plans if lacks == 0), default=None)
    least = free - costs / 100 * problem.most_goodput - near(free)
    lacks, value = worth(problem, plan)
    told = f"at {costs} % worth {value} of {free}, at least {least}, and lacks {lacks}"
    claim(value >= least, f"{told}: it costs more than floors may")
    fewest = min(lacking for other, lacking in plans if other >= least)
    claim(lacks >= fewest - near(free), f"{told}: too few")
    others = [worth(problem, one) for one in found if one.status.has_plan]
    better = [one for one in others if one[1] >= least + 2 * near(free) and one < (lacks - near(free), 0.0)]
    claim(not better, f"{told}, but {better} were found")
    equal = max(value for lacking, value in others if abs(lacking - lacks) <= near(free))
    claim(value >= equal - near(free), f"{told}, but one as near is worth {equal}")
    if costs == 100.0 and keeping is not None and solve(problem).status.has_plan:
        claim(lacks == 0, f"{told}: some plan keeps all floors")
    claim(bool(plan.missed) == (lacks > 0), f"{told}: {plan.missed}")
    claim(plan.floor_costs == pytest.approx((free - value) / (problem.most_goodput or 1.0), abs=1e-6), f"{told}: costs")
    bounded = keeping if lacks == 0 else free
    claim(
        plan.claimed_bound is None or plan.claimed_bound >= bounded - near(free), f"{told}, bound {plan.claimed_bound}"
    )
    checked = verify(problem, plan)
    claim(checked.broken_rules == (), f"{told}: {checked.broken_rules}")
    claim(checked.bound is None or checked.bound >= bounded - near(free), f"{told}: {checked.bound}")
    return lacks, fewest


def test_a_floor_that_costs_too_much_is_missed_and_what_it_costs_is_told():
    problem = two_tenants(None, AttainmentFloor(0.8))
    kept, plan = (solve(problem, floor_costs_at_most=costs) for costs in (100.0, 20.0))
    assert (kept.missed, kept.floor_costs) == ((), kept.keeping_costs)
    assert plan.missed
    assert plan.floor_costs <= 0.2 < plan.keeping_costs == pytest.approx(kept.floor_costs)


def test_a_floor_that_costs_nothing_is_kept_where_nothing_may_be_paid():
    plan = solve(two_tenants(AttainmentFloor(0.9), None), floor_costs_at_most=0.0)
    assert (plan.missed, plan.floor_costs) == ((), pytest.approx(0.0))


def test_a_plan_that_has_to_keep_its_floors_does_not_say_what_they_cost():
    plan = solve(two_tenants(None, AttainmentFloor(0.4)))
    assert (plan.missed, plan.floor_costs, plan.keeping_costs) == ((), None, None)


def test_where_no_plan_keeps_all_floors_none_says_what_that_would_cost():
    plan = solve(two_tenants(None, AttainmentFloor(0.95)), floor_costs_at_most=5.0)
    assert (bool(plan.missed), plan.keeping_costs) == (True, None)


@pytest.mark.parametrize(("costs", "is_followed"), [(5.0, True), (100.0, False)])
def test_a_plan_that_costs_too_much_gives_way_to_one_that_lacks_more(costs, is_followed):
    problem = two_tenants(None, AttainmentFloor(0.8))
    strict, cheap = solve(problem), solve(problem, floor_costs_at_most=5.0)
    assert is_better(problem, cheap, strict, costs) is is_followed


def test_of_plans_that_cost_no_more_than_they_may_the_one_that_lacks_fewer_is_followed():
    problem = two_tenants(None, AttainmentFloor(0.8))
    strict, cheap = solve(problem, floor_costs_at_most=100.0), solve(problem, floor_costs_at_most=5.0)
    assert is_better(problem, strict, cheap, 100.0)


def test_no_plan_is_followed_in_the_place_of_its_like():
    problem = two_tenants(None, AttainmentFloor(0.8))
    plan = solve(problem, floor_costs_at_most=5.0)
    assert not is_better(problem, plan, plan, 5.0)


def test_a_certificate_without_multipliers_bounds_plans_that_miss_floors_as_well():
    problem = two_tenants(None, AttainmentFloor(0.5))
    kept, free = solve(problem), solve(without_floors(problem))
    assert verify(problem, replace(free, certificate=kept.certificate)).bound < free.objective
    of_all = replace(free, certificate=without_multipliers(problem, kept.certificate))
    assert verify(problem, of_all).bound >= free.objective - near(free.objective)


def test_under_floors_per_step_a_certificate_proves_nothing_of_plans_that_miss_them():
    problem = two_tenants(None, AttainmentFloor(0.5, Per.STEP))
    assert without_multipliers(problem, solve(problem).certificate) is None
