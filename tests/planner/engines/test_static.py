"""Static: what never changes, what it costs, that there may be no such plan; and best starts of two retrainings.

That no plan of its kind is better is told with all engines, in ``test_agreement``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from claims import Claims
from windows import tenant, window

from executor.catalogue import gpu_model
from planner.engines.static import best_starts, free_starts
from planner.plan import MigPlan, RetrainingSpan, Status
from planner.problem import (
    HeldInstance,
    PaperState,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.solve import solve
from planner.unavailable import Unavailable


def held_lengths(plan: MigPlan) -> set[int]:
    return {item.to_step - item.from_step for schedule in plan.schedules for item in schedule.inference}


def test_what_inference_holds_never_changes() -> None:
    plan = solve(window(tenant(), tenant("b", overhead_s=0.0)), "static")
    assert held_lengths(plan) == {6}


def test_a_retraining_holds_its_slices_only_while_it_runs() -> None:
    # Nothing arrives until step 2, so the retraining costs nothing there, and a 4g is free for it all along.
    problem = window(tenant(arrivals_rps=[0, 0, 400, 400, 400, 400]))
    assert solve(problem, "static").schedules[0].retraining == RetrainingSpan("2g.10gb", 0, 2, "full")


def test_retrainings_take_turns_where_there_is_room_for_one() -> None:
    terms = [tenant(name, retraining_s={"4g.20gb": 2.0}) for name in "abc"]
    plan = solve(window(*terms), "static")
    assert sorted(s.retraining.start_step for s in plan.schedules if s.retraining) == [0, 2, 4]


def test_the_first_change_from_an_initial_state_is_paid_for() -> None:
    terms = tenant(retraining_s={}, overhead_s=1.0, capability_rps={"7g.40gb": 100.0})
    kept, other = (window(terms, initial=PaperState({"resnet50": names})) for names in (("7g.40gb",), ()))
    assert solve(kept, "static").objective == solve(window(terms), "static").objective
    assert solve(other, "static").objective == pytest.approx(5 * 100 * 0.5)


def must_move() -> Problem:
    """While b's retraining holds 3g@4 inference lies in front of it; then a's needs 4g@0, so it has to move behind."""
    gpu = gpu_model("a100-40gb")
    options = [(RetrainingOption("full", {name: 3.0}, 0.9),) for name in ("4g.20gb", "3g.20gb")]
    tenants = (
        TenantTerms("a", np.full(20, 50.0), {"2g.10gb": 60.0}, 0.5, 0.0, "2g.10gb", options[0]),
        TenantTerms("b", np.full(20, 50.0), {"1g.5gb": 30.0}, 0.5, 0.0, "1g.5gb", options[1]),
    )
    held = (HeldInstance(gpu.placement("2g.10gb@0"), "a", 0), HeldInstance(gpu.placement("1g.5gb@2"), "b", 0))
    state = PhysicalState(held, (RunningRetraining(gpu.placement("3g.20gb@4"), "b", 5),), 0)
    return Problem(gpu, 1.0, 20, Reconfiguration.PHYSICAL, tenants, switch_s=0.0, initial=state)


def test_without_any_static_plan_the_status_is_timeout_with_a_bound() -> None:
    assert solve(must_move()).status.has_plan
    plan = solve(must_move(), "static")
    assert (plan.status, plan.objective, plan.lifetimes) == (Status.TIMEOUT, None, ())
    assert plan.claimed_bound is not None


@pytest.mark.parametrize("model", list(Reconfiguration))
def test_no_layout_stays_where_every_slice_is_not_ours_at_times(model: Reconfiguration) -> None:
    turns = (Unavailable((0, 1, 2, 3), 0, 3), Unavailable((4, 5, 6, 7), 3, 6))
    problem = replace(window(tenant(retraining_s={}), model=model, switch_s=0.0), unavailable=turns)
    assert solve(problem, "static").status is Status.TIMEOUT
    assert solve(problem, "greedy").status.has_plan


def test_where_the_held_set_may_not_change_the_initial_one_stays() -> None:
    held = HeldInstance(gpu_model("a100-40gb").placement("2g.10gb@2"), "resnet50", 0)
    problem = window(tenant(), model=Reconfiguration.PHYSICAL, switch_s=0.0, initial=PhysicalState((held,), (), 6))
    plan = solve(problem, "static")
    assert plan.objective == pytest.approx(physical_oracle.best_objective(problem, is_static=True))
    assert {str(item.placement) for item in plan.lifetimes if item.is_inference} == {"2g.10gb@2"}


def test_infeasible_problems_are_told_as_such() -> None:
    plan = solve(window(tenant(retraining_s={"2g.10gb": 60.0})), "static")
    assert plan.status is Status.INFEASIBLE
    assert plan.infeasibility is not None


def test_three_retrainings_are_as_good_as_can_be_when_all_pay() -> None:
    terms = [tenant(name, retraining_s={"1g.5gb": 2.0, "2g.10gb": 1.0}, arrivals_rps=[60.0] * 3) for name in "abc"]
    problem = window(*terms)
    assert solve(problem, "static").objective == pytest.approx(paper_oracle.best_objective(problem, is_static=True))


@pytest.mark.parametrize("model", list(Reconfiguration))
def test_the_same_problem_gives_the_same_plan(model: Reconfiguration) -> None:
    problem = window(tenant(), tenant("b"), model=model, switch_s=0.0)
    plans = [replace(solve(problem, "static"), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]


def every_pair(first: np.ndarray, second: np.ndarray, together: np.ndarray) -> float:
    best, ends = -np.inf, [len(together) + 1 - len(values) for values in (first, second)]
    for a, b in product(range(len(first)), range(len(second))):
        if all(together[step] for step in range(max(a, b), min(a + ends[0], b + ends[1]))):
            best = max(best, first[a] + second[b])
    return best


def test_no_pair_of_starts_is_better() -> None:
    with Claims("pairs of starts") as claim:
        for seed in range(200):
            rng = np.random.default_rng(seed)
            n_steps = int(rng.integers(1, 12))
            first, second = (rng.uniform(-9, 9, n_steps - n + 1) for n in rng.integers(1, n_steps + 1, size=2))
            for values in (first, second):
                values[rng.random(len(values)) < 0.2] = -np.inf
            together = rng.random(n_steps) < rng.choice([0.0, 0.5, 0.8, 1.0])
            value, a, b = best_starts(first, second, together)
            claim(value == every_pair(first, second, together), f"{seed}: {value} is not the most")
            if np.isfinite(value):
                both = [step for step in range(n_steps) if a <= step < a + n_steps + 1 - len(first)]
                beside = [step for step in both if b <= step < b + n_steps + 1 - len(second)]
                claim(bool(together[beside].all()), f"{seed}: they run together where they may not")
                claim(first[a] + second[b] == value, f"{seed}: {value} is not what these starts are worth")


def test_equal_values_start_as_early_as_they_can() -> None:
    assert best_starts(np.zeros(4), np.zeros(4), np.zeros(5, dtype=np.bool_)) == (0.0, 0, 2)


def test_starts_are_free_where_every_step_is_open() -> None:
    assert free_starts(np.array([True, True, False, True, True, True]), 2).tolist() == [True, False, False, True, True]
