"""The physical engine: pre-initialisation, ways out of tight states, chained windows, budgets, floors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physical_oracle import best_objective
from problems import physical_problem

from executor.catalogue import gpu_model
from planner.budget import Budget
from planner.engines.physical import path
from planner.engines.physical import search as physical_search
from planner.engines.physical.physical import solve_physical
from planner.engines.physical.plan import objective
from planner.engines.physical.search import Search
from planner.engines.physical.static import greedy_schedule
from planner.engines.schedule import WindowFacts
from planner.errors import EngineError
from planner.plan import Rule, Status
from planner.problem import (
    HeldInstance,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.unavailable import Unavailable
from planner.verify import verify
from tests.seeds import examples

A100 = gpu_model("a100-40gb")
G1, G2, G3, G4 = "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"


def tenant(name, arrivals, rates, overhead_s=3.0, times=None, **facts):
    options = (RetrainingOption("full", times, 0.9),) if times else ()
    return TenantTerms(name, np.array(arrivals, float), rates, 0.6, overhead_s, G1, options, **facts)


def window(*tenants, state=None, gpu=A100):
    n_steps = len(tenants[0].arrivals_rps)
    return Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=1.0, initial=state)


def state_of(*held, running=(), next_epoch_step=0):
    instances = tuple(HeldInstance(A100.placement(text), name, serve) for text, name, serve in held)
    retrainings = tuple(RunningRetraining(A100.placement(text), name, end) for text, name, end in running)
    return PhysicalState(instances, retrainings, next_epoch_step)


def lives(plan, name, task="inference"):
    found = [item for item in plan.lifetimes if (item.owner.tenant, item.owner.task) == (name, task)]
    return {(str(item.placement), item.create_step, item.serve_step, item.end_step) for item in found}


def figure_6():
    """Task 1 on 2g@4, task 2 on 1g@6, slots 0 to 3 idle; from step 10 on task 1 needs the 4g, from 24 task 2 the 2g."""
    one = tenant("one", [40] * 10 + [190] * 10 + [150] * 12, {G2: 50, G4: 150})
    two = tenant("two", [20] * 24 + [60] * 8, {G1: 25, G2: 50})
    return window(one, two, state=state_of(("2g.10gb@4", "one", 0), ("1g.5gb@6", "two", 0)))


def test_the_4g_warms_on_idle_slots_while_the_2g_beside_it_serves():
    plan = solve_physical(figure_6())
    create, serve = next((c, s) for text, c, s, _ in lives(plan, "one") if text == "4g.20gb@0")
    old_end = next(end for text, *_, end in lives(plan, "one") if text == "2g.10gb@4")
    assert create + 4 == serve <= 10 <= old_end


def test_pre_initialisation_costs_no_request():
    problem = figure_6()
    one, two = problem.tenants
    assert solve_physical(problem).objective == pytest.approx(0.6 * (one.arrivals_rps.sum() + two.arrivals_rps.sum()))


def locked(**facts):
    rates = {G1: 20, G3: 60, G4: 80}
    pair = [tenant(name, [50] * 30, rates, times={G1: 6, G2: 3}, **facts) for name in ("one", "two")]
    return window(*pair, state=state_of(("4g.20gb@0", "one", 0), ("3g.20gb@4", "two", 0)))


def test_two_tenants_that_fill_the_gpu_find_room_to_retrain():
    plan = solve_physical(locked())
    assert plan.status is Status.OPTIMAL
    assert len(lives(plan, "one", "retraining")) == len(lives(plan, "two", "retraining")) == 1


def test_the_way_out_of_a_full_gpu_keeps_the_rules():
    problem = locked()
    assert verify(problem, solve_physical(problem)).violations == ()


def test_a_retraining_that_does_not_pay_is_skipped_if_it_may_be():
    problem = locked(retraining_required=False)
    worse = tuple(replace(t, options=(RetrainingOption("full", {G1: 6}, 0.5),)) for t in problem.tenants)
    assert not lives(solve_physical(replace(problem, tenants=worse)), "one", "retraining")


def test_a_retraining_that_pays_runs_though_it_need_not():
    problem = locked(retraining_required=False)
    assert lives(solve_physical(problem), "one", "retraining")


def warming():
    state = state_of(
        ("3g.20gb@0", "one", 3), ("1g.5gb@4", "two", 0), running=[("1g.5gb@6", "two", 5)], next_epoch_step=4
    )
    one = tenant("one", [55] * 12, {G3: 60, G4: 80}, times={G1: 2})
    return window(one, tenant("two", [30] * 12, {G1: 20, G2: 40}, times={G1: 4}), state=state)


def test_what_warms_when_the_window_opens_serves_when_the_state_says():
    assert ("3g.20gb@0", 0, 3) in {life[:3] for life in lives(solve_physical(warming()), "one")}


def test_a_retraining_in_progress_goes_on_and_no_other_starts():
    assert lives(solve_physical(warming()), "two", "retraining") == {("1g.5gb@6", 0, 0, 5)}


def test_the_level_rises_when_the_retraining_in_progress_ends():
    problem = warming()
    assert verify(problem, solve_physical(problem)).objective == pytest.approx(solve_physical(problem).objective)


def test_nothing_is_created_before_the_first_epoch_is_allowed():
    plan = solve_physical(warming())
    assert all(item.create_step in {0, *range(4, 12)} for item in plan.lifetimes if item.is_inference)


def test_a_window_that_is_fixed_throughout_is_valued_as_it_is():
    state = state_of(("3g.20gb@0", "one", 3), ("2g.10gb@4", "two", 0), next_epoch_step=9)
    problem = window(tenant("one", [50] * 6, {G3: 60}), tenant("two", [30] * 6, {G2: 40}), state=state)
    plan = solve_physical(problem)
    assert (plan.objective, plan.next_epoch_step) == (pytest.approx(0.6 * (50 * 3 + 30 * 6)), 9)


def state_after(plan):
    held = [item for item in plan.lifetimes if item.is_inference and item.end_step == plan.n_steps]
    instances = (HeldInstance(i.placement, i.owner.tenant, max(0, i.serve_step - plan.n_steps)) for i in held)
    return PhysicalState(tuple(instances), (), max(0, plan.next_epoch_step - plan.n_steps))


def test_windows_chain():
    first = window(*(tenant(name, load, {G1: 20, G2: 45, G3: 60}, times={G1: 3}) for name, load in LOADS.items()))
    for _ in range(3):
        plan = solve_physical(first)
        assert verify(first, plan).violations == ()
        turned = tuple(replace(t, arrivals_rps=t.arrivals_rps[::-1]) for t in first.tenants)
        first = replace(first, tenants=turned, initial=state_after(plan))


LOADS = {"one": [20] * 10 + [120] * 12, "two": [110] * 12 + [20] * 10}


def test_the_last_epoch_may_still_warm_when_the_window_ends():
    state = state_of(("7g.40gb@0", "one", 0))
    one = tenant("one", [50] * 3, {"7g.40gb": 60, G1: 20})
    problem = window(one, tenant("two", [50] * 3, {G1: 20}), state=state)
    assert solve_physical(problem).next_epoch_step == 4 > problem.n_steps


def random_window(draw_seed, n_tenants=2, n_steps=14):
    rng = np.random.default_rng(draw_seed)
    return window(
        *(
            tenant(
                f"t{i}",
                rng.uniform(0, 120, n_steps),
                {G1: 18, G2: 40, G3: 55, G4: 75},
                overhead_s=float(rng.integers(0, 4)),
                times={G1: float(rng.integers(1, 5)), G3: 1.0},
            )
            for i in range(n_tenants)
        )
    )


@settings(derandomize=True, max_examples=examples(12))
@given(seed=st.integers(0, 10_000), n_tenants=st.integers(1, 3))
def test_plans_keep_the_rules_and_their_objective_is_what_they_earn(seed, n_tenants):
    problem = random_window(seed, n_tenants)
    found = verify(problem, solve_physical(problem))
    assert found.violations == ()


@settings(derandomize=True, max_examples=examples(8))
@given(seed=st.integers(0, 10_000))
def test_what_the_program_promises_is_what_the_lifetimes_earn(seed):
    problem = random_window(seed)
    search, plan = Search(WindowFacts.of(problem), Budget()), solve_physical(problem)
    search.run()
    assert objective(search.facts, plan.lifetimes) == pytest.approx(search.best.value, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_never_worse_than_greedy_even_with_no_budget(seed):
    problem = random_window(seed)
    search = Search(WindowFacts.of(problem), Budget(max_nodes=0))
    floor = greedy_schedule(search.facts, search.placed_paths)
    assert solve_physical(problem, Budget(max_nodes=0)).objective >= floor.value * (1 - 1e-12)


@pytest.mark.parametrize("max_nodes", [0, 20, 60])
def test_a_spent_budget_leaves_a_valid_bound(max_nodes):
    problem = random_window(3)
    hurried = solve_physical(problem, Budget(max_nodes=max_nodes))
    assert hurried.claimed_bound >= solve_physical(problem).objective * (1 - 1e-12)


def test_the_same_problem_gives_the_same_plan():
    plans = [replace(solve_physical(random_window(5), Budget(max_nodes=60)), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]


def test_a_plan_to_start_from_is_never_made_worse():
    problem = random_window(7)
    best = solve_physical(problem)
    assert solve_physical(problem, Budget(max_nodes=0), best).objective == pytest.approx(best.objective)


@pytest.mark.parametrize("seed", [1, 2, 8, 11, 13, 14, 15])
def test_the_local_search_finds_plans_wherever_there_are_any(seed, monkeypatch):
    monkeypatch.setattr(physical_search, "MAX_BEST_FIRST", 0)
    problem = physical_problem(seed, 3)
    assert solve_physical(problem).objective >= 0.97 * best_objective(problem)


def test_epochs_on_a_grid_still_make_valid_plans(monkeypatch):
    monkeypatch.setattr("planner.engines.physical.path.MAX_NODE_EPOCHS", 8_000)
    problem = random_window(11)
    assert verify(problem, solve_physical(problem)).violations == ()


def test_six_tenants_share_a_gpu():
    six = [
        tenant(f"t{i}", np.linspace(10, 40, 20), {G1: 18, G2: 40}, times={G1: 3} if i < 2 else None) for i in range(6)
    ]
    problem = window(*six)
    assert verify(problem, solve_physical(problem)).violations == ()


def test_seven_tenants_share_a_gpu_with_an_instance_each():
    seven = window(*(tenant(f"t{i}", np.linspace(10, 40, 20), {G1: 18, G2: 40}) for i in range(7)))
    plan = solve_physical(seven)
    assert (plan.status, len(plan.lifetimes)) == (Status.OPTIMAL, 7)


def test_seven_tenants_leave_no_room_to_retrain():
    terms = [tenant(f"t{i}", [10] * 20, {G1: 18}, times={G1: 3} if i == 4 else None) for i in range(7)]
    plan = solve_physical(window(*terms))
    assert (plan.status, plan.infeasibility.tenant) == (Status.INFEASIBLE, "t4")


def test_a_retraining_longer_than_the_window_is_named():
    plan = solve_physical(window(tenant("one", [50] * 8, {G1: 20}, times={G1: 9})))
    assert (plan.status, plan.infeasibility.tenant) == (Status.INFEASIBLE, "one")


def test_a_window_that_the_initial_state_blocks_is_infeasible():
    state = state_of(("7g.40gb@0", "one", 0), next_epoch_step=8)
    one = tenant("one", [50] * 12, {"7g.40gb": 60, G1: 20}, times={G1: 3})
    plan = solve_physical(window(one, state=state))
    assert (plan.status, plan.lifetimes) == (Status.INFEASIBLE, ())


def test_a_paper_problem_is_refused():
    problem = replace(random_window(0), reconfiguration=Reconfiguration.PAPER)
    with pytest.raises(EngineError, match="physical"):
        solve_physical(problem)


# --- slices that are not ours

SWAPPED = (Unavailable((0, 1, 2, 3), 0, 3), Unavailable((4, 5, 6, 7), 3))


def swapped(*, overhead_s: float = 0.5, items: tuple[Unavailable, ...] = SWAPPED) -> Problem:
    """Two tenants over six steps on the halves of a GPU, one half after the other."""
    terms = (tenant(name, [100] * 6, {G1: 40.0, G2: 80.0}, overhead_s) for name in "ab")
    return replace(window(*terms), switch_s=0.0, unavailable=items)


def test_epochs_are_considered_where_slices_change_hands_on_a_coarse_grid_too(monkeypatch) -> None:
    monkeypatch.setattr(path, "MAX_NODE_EPOCHS", 1)
    plan = solve_physical(swapped())
    assert plan.status.has_plan
    assert {item.create_step for item in plan.lifetimes} == {0, 3}


def test_slices_that_change_hands_faster_than_layouts_can_are_told_with_tenant_and_rule() -> None:
    items = (*SWAPPED[:1], Unavailable((4, 5, 6, 7), 3, 4), Unavailable((0, 1, 2, 3), 4))
    assert solve_physical(swapped(items=items)).status.has_plan
    reason = solve_physical(swapped(items=items, overhead_s=2.0)).infeasibility
    assert (reason.tenant, reason.rule) == ("a", Rule.MIN_PROFILE)
    assert "and which memory slices are not ours" in reason.message


def test_a_start_that_takes_a_day_takes_no_more_memory_than_one_that_outlasts_the_window(monkeypatch) -> None:
    sizes = []

    def noted(*arguments):
        sizes.append(arguments[11])  # the rows that the compiled loop keeps of earlier epochs
        return longest_path(*arguments)

    longest_path = path.longest_path
    monkeypatch.setattr(path, "longest_path", noted)
    problem = physical_problem(3, 6)
    tenants = tuple(replace(tenant, overhead_s=86_400.0) for tenant in problem.tenants)
    solve_physical(replace(problem, tenants=tenants, initial=None))
    assert set(sizes) == {problem.n_steps + 1}
