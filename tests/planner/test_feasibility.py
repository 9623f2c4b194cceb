"""Infeasible problems are told at once, with tenant and rule; feasible ones pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from windows import tenant, window

from executor.catalogue import gpu_model
from planner.feasibility import (
    SearchLimitError,
    earliest_retrainings,
    infeasibility,
    required_tenants,
)
from planner.plan import Infeasibility, Rule
from planner.problem import HeldInstance, PhysicalState, Problem, Reconfiguration, RunningRetraining
from planner.unavailable import Unavailable

GPU = gpu_model("a100-40gb")
PHYSICAL = Reconfiguration.PHYSICAL


def told(problem: Problem) -> Infeasibility:
    reason = infeasibility(problem)
    assert reason is not None
    return reason


def test_a_plain_window_is_feasible() -> None:
    assert infeasibility(window()) is None


def test_a_tenant_without_a_large_enough_profile_is_named() -> None:
    reason = told(window(tenant("a"), tenant("b", capability_rps={"1g.5gb": 1.0}, min_profile="2g.10gb")))
    assert (reason.tenant, reason.rule) == ("b", Rule.MIN_PROFILE)


def test_the_first_tenant_whose_minimum_does_not_fit_beside_the_others_is_named() -> None:
    tenants = [tenant(name, min_profile="3g.20gb", retraining_s={}) for name in "abc"]
    assert infeasibility(window(*tenants[:2])) is None
    assert (told(window(*tenants)).tenant, told(window(*tenants)).rule) == ("c", Rule.MIN_PROFILE)


def test_a_retraining_longer_than_the_window_is_told_with_its_steps() -> None:
    reason = told(window(tenant(retraining_s={"1g.5gb": 9.5, "2g.10gb": 6.5})))
    assert (reason.tenant, reason.rule) == ("resnet50", Rule.RETRAINING)
    assert "10 on 1g.5gb, 7 on 2g.10gb steps, more than the window's 6" in reason.message


def test_in_physical_the_start_up_counts_too() -> None:
    terms = tenant(retraining_s={"2g.10gb": 5.0})
    assert infeasibility(window(terms)) is None
    assert "with its start-up" in told(window(terms, model=PHYSICAL, switch_s=1.0)).message


def test_an_optional_retraining_may_be_too_long() -> None:
    assert infeasibility(window(tenant(retraining_s={"2g.10gb": 60.0}, retraining_required=False))) is None


def test_a_retraining_that_fits_beside_no_minimum_is_told() -> None:
    reason = told(window(tenant(retraining_s={"7g.40gb": 1.0})))
    assert (reason.tenant, reason.rule) == ("resnet50", Rule.RETRAINING)


def test_three_retrainings_that_can_neither_overlap_nor_follow_each_other_are_told() -> None:
    tenants = [tenant(name, retraining_s={"4g.20gb": 3.0}) for name in "abc"]
    assert infeasibility(window(*tenants[:2])) is None
    assert (told(window(*tenants)).tenant, told(window(*tenants)).rule) == ("c", Rule.RETRAINING)


def test_retrainings_are_scheduled_as_early_as_they_fit() -> None:
    tenants = [tenant(name, retraining_s={"4g.20gb": 3.0}) for name in "ab"]
    found = earliest_retrainings(window(*tenants))
    assert found is not None
    assert [(item.tenant, item.start_step, item.end_step) for item in found] == [(0, 0, 3), (1, 3, 6)]


def test_the_search_says_so_when_it_reaches_its_limit() -> None:
    with pytest.raises(SearchLimitError):
        earliest_retrainings(window(*[tenant(name, retraining_s={"4g.20gb": 3.0}) for name in "abc"]), max_trials=2)


def test_a_running_retraining_is_the_one_that_was_required() -> None:
    state = PhysicalState(retrainings=(RunningRetraining(GPU.placement("2g.10gb@0"), "a", 3),))
    problem = window(tenant("a"), tenant("b"), model=PHYSICAL, initial=state, switch_s=0.0)
    assert [terms.name for terms in required_tenants(problem)] == ["b"]


def test_a_running_retraining_takes_room_until_it_ends() -> None:
    terms = tenant("b", retraining_s={"4g.20gb": 3.0}, overhead_s=0.0)
    state = PhysicalState(retrainings=(RunningRetraining(GPU.placement("3g.20gb@0"), "a", 2),))
    problem = window(tenant("a"), terms, model=PHYSICAL, initial=state, switch_s=0.0)
    found = earliest_retrainings(problem)
    assert found is not None
    assert found[0].start_step == 2


def test_a_held_set_below_min_profile_that_cannot_change_yet_is_told() -> None:
    state = PhysicalState((HeldInstance(GPU.placement("1g.5gb@0"), "resnet50", 0),), (), 2)
    problem = window(tenant(min_profile="2g.10gb", retraining_s={}), model=PHYSICAL, initial=state)
    assert (told(problem).tenant, told(problem).rule) == ("resnet50", Rule.MIN_PROFILE)
    assert infeasibility(replace(problem, initial=replace(state, next_epoch_step=0))) is None


def test_a_minimum_without_a_placement_beside_a_running_retraining_is_told_with_its_tenant() -> None:
    # 1g, 2g and 4g fit as counts, but the 2g runs where the 4g has its only place.
    state = PhysicalState(retrainings=(RunningRetraining(GPU.placement("2g.10gb@2"), "a", 2),))
    tenants = (tenant("a"), tenant("b", capability_rps={"1g.5gb": 1.0, "4g.20gb": 4.0}, min_profile="4g.20gb"))
    reason = told(window(*tenants, model=PHYSICAL, initial=state))
    assert (reason.tenant, reason.rule) == ("b", Rule.MIN_PROFILE)
    assert "beside those of the tenants before it and the retrainings in progress (2g.10gb@2)" in reason.message


# --- slices that are not ours

HALF = Unavailable((4, 5, 6, 7), 2, 4)


def test_a_minimum_that_others_leave_no_room_is_told_with_tenant_and_step() -> None:
    problem = replace(window(tenant(), tenant("b", min_profile="3g.20gb")), unavailable=(HALF,))
    assert str(told(problem)) == (
        "tenant b: no layout of a100-40gb gives it an instance as large as its min_profile 3g.20gb beside those of "
        "resnet50, as memory slices 4, 5, 6, 7 are not ours in step 2 (rule 4)"
    )


def test_what_is_held_cannot_be_dropped_in_time() -> None:
    held = (HeldInstance(GPU.placement("2g.10gb@4"), "resnet50", 0),)
    problem = window(tenant(), model=PHYSICAL, initial=PhysicalState(held, (), 3), switch_s=0.0)
    assert infeasibility(replace(problem, unavailable=(Unavailable((5, 6), 3),))) is None
    reason = told(replace(problem, unavailable=(Unavailable((5, 6), 2),)))
    assert str(reason) == (
        "tenant resnet50: it holds 2g.10gb@4 when the window opens, but memory slice 5 is not ours from step 2 on, "
        "and the held set cannot change before step 3 (rule 1)"
    )


def test_a_retraining_in_progress_cannot_move_away() -> None:
    state = PhysicalState(retrainings=(RunningRetraining(GPU.placement("2g.10gb@4"), "resnet50", 3),))
    problem = window(tenant(), model=PHYSICAL, initial=state, switch_s=0.0)
    assert infeasibility(replace(problem, unavailable=(Unavailable((4,), 3),))) is None
    reason = told(replace(problem, unavailable=(Unavailable((4,), 2),)))
    assert (reason.tenant, reason.rule) == ("resnet50", Rule.LAYOUT)
    assert "holds 2g.10gb@4 until step 3, but memory slice 4 is not ours from step 2 on" in reason.message


def test_a_retraining_waits_for_slices_that_become_ours() -> None:
    problem = replace(window(tenant(retraining_s={"4g.20gb": 2.0})), unavailable=(Unavailable((0,), 0, 3),))
    found = earliest_retrainings(problem)
    assert found is not None
    assert [item.start_step for item in found] == [3]
