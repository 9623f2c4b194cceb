"""Each `physical` rule, broken once in a plan made by hand, is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import broken_rules, continued_case, lifetime, physical_case, with_lifetime

from executor.catalogue import gpu_model
from planner.plan import MigPlan
from planner.problem import HeldInstance, PhysicalState, Problem, RunningRetraining, Task
from planner.unavailable import Unavailable
from planner.verify import Rule, verify
from planner.verify.rules import _fits


@pytest.mark.parametrize(
    ("index", "changes", "rule"),
    [
        (2, {"end_step": 4, "create_step": 1, "serve_step": 2}, Rule.LAYOUT),  # still there when a's new 1g comes
        (1, {"end_step": 5}, Rule.MIN_PROFILE),  # b is left without any
        (3, {"create_step": 3, "serve_step": 3}, Rule.WARM_UP),
        (3, {"serve_step": 4}, Rule.WARM_UP),
        (0, {"serve_step": 1}, Rule.WARM_UP),
        (2, {"serve_step": 0}, Rule.WARM_UP),
        (3, {"end_step": 4}, Rule.EPOCHS),  # a second epoch one step after that at 3
        (2, {"end_step": 2}, Rule.RETRAINING),
        (2, {"option": "half"}, Rule.RETRAINING),
        (2, {"option": None}, Rule.RETRAINING),
        (3, {"end_step": 7}, Rule.SHAPE),
        (3, {"end_step": 3}, Rule.SHAPE),
        (3, {"serve_step": 2}, Rule.SHAPE),
        (3, {"create_step": -1}, Rule.SHAPE),
    ],
)
def test_a_wrong_lifetime_is_a_violation(index, changes, rule):
    problem, plan = physical_case()
    plan = replace(plan, next_epoch_step=8)
    assert broken_rules(problem, with_lifetime(plan, index, **changes)) == {rule}


@pytest.mark.parametrize("gpu_name", ["a30-24gb", "rtx-pro-6000-96gb"])
def test_layouts_are_those_of_the_geometry(gpu_name):
    gpu = gpu_model(gpu_name)
    extras = gpu.placements(gpu.profile_names)
    pairs = [[*layout, extra] for layout in gpu.layouts(gpu.profile_names) for extra in extras]
    one_more = [sorted(some, key=lambda placement: placement.sort_key) for some in pairs]
    assert [_fits(gpu, some) for some in one_more] == [gpu.fits(some) for some in one_more]


def test_slow_switching_lengthens_every_warm_up():
    problem, plan = physical_case()
    assert broken_rules(replace(problem, switch_s=1.0), plan) == {Rule.WARM_UP, Rule.RETRAINING, Rule.EPOCHS}


def test_a_retraining_that_holds_on_too_long_breaks_rule_3():
    problem, plan = physical_case()
    plan = replace(plan, lifetimes=plan.lifetimes[:3])
    assert broken_rules(problem, with_lifetime(plan, 2, end_step=4)) == {Rule.RETRAINING}


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_missing_lifetime_is_a_violation(dropped):
    problem, plan = physical_case()
    missing = plan.lifetimes[:dropped] + plan.lifetimes[dropped + 1 :]
    rule = Rule.RETRAINING if dropped == 2 else Rule.MIN_PROFILE
    assert broken_rules(problem, replace(plan, lifetimes=missing)) == {rule}


@pytest.mark.parametrize(
    ("where", "tenant", "rule"),
    [("2g.12gb@2", "b", Rule.PROFILE), ("1g.6gb@1", "b", Rule.LAYOUT), ("1g.6gb@2", "c", Rule.SHAPE)],
)
def test_a_wrong_owner_or_place_is_a_violation(where, tenant, rule):
    problem, plan = physical_case()
    added = lifetime(problem, where, tenant, 3, 4 if tenant == "b" else 5, 6)
    assert rule in broken_rules(problem, replace(plan, lifetimes=(*plan.lifetimes, added)))


def test_a_start_that_the_profile_does_not_have_breaks_rule_1():
    problem, plan = physical_case()
    starts = (1, 3, 0, 0)  # in no other way wrong: nothing overlaps
    moved = [
        replace(item, placement=replace(item.placement, start=s))
        for item, s in zip(plan.lifetimes, starts, strict=True)
    ]
    assert broken_rules(problem, replace(plan, lifetimes=tuple(moved))) == {Rule.LAYOUT}


def test_a_profile_that_is_not_the_gpus_own_breaks_rule_1():
    problem, plan = physical_case()
    placement = plan.lifetimes[0].placement
    smaller = replace(placement, profile=replace(placement.profile, memory_slices=1))
    assert broken_rules(problem, with_lifetime(plan, 0, placement=smaller)) == {Rule.LAYOUT}


def test_a_second_retraining_breaks_rule_3():
    problem, plan = physical_case()
    retraining = plan.lifetimes[2]
    second = replace(retraining, create_step=3, serve_step=4, end_step=6)
    assert broken_rules(problem, replace(plan, lifetimes=(*plan.lifetimes[:3], second))) == {Rule.RETRAINING}


def test_a_next_epoch_before_the_last_one_has_warmed_up_is_a_violation():
    problem, plan = physical_case()
    assert broken_rules(problem, replace(plan, next_epoch_step=4)) == {Rule.EPOCHS}


def test_a_kept_instance_is_one_lifetime():
    problem, plan = physical_case()
    first, second = replace(plan.lifetimes[1], end_step=3), lifetime(problem, "1g.6gb@2", "b", 3, 4, 6)
    split = replace(plan, lifetimes=(plan.lifetimes[0], first, *plan.lifetimes[2:], second))
    assert broken_rules(problem, split) == {Rule.EPOCHS}


def test_without_an_initial_state_the_first_epoch_may_be_at_step_1():
    problem, plan = physical_case()
    plan = with_lifetime(plan, 2, create_step=3, serve_step=4, end_step=6)
    assert not broken_rules(problem, with_lifetime(plan, 3, create_step=1, serve_step=3, end_step=3))


def test_what_a_window_starts_with_serves_from_its_own_step():
    problem, plan = continued_case()
    assert broken_rules(problem, with_lifetime(plan, 0, serve_step=0)) == {Rule.WARM_UP}


def test_a_running_retraining_goes_on_to_its_end():
    problem, plan = continued_case()
    assert Rule.RETRAINING in broken_rules(problem, with_lifetime(plan, 2, end_step=3))


def test_a_running_retraining_does_not_begin_again():
    problem, plan = continued_case()
    assert Rule.RETRAINING in broken_rules(problem, with_lifetime(plan, 2, create_step=1, serve_step=1))


def test_a_running_retraining_trains_before_it_ends():
    problem, plan = continued_case()
    assert Rule.RETRAINING in broken_rules(problem, with_lifetime(plan, 2, serve_step=10**30))
    assert not broken_rules(problem, with_lifetime(plan, 2, serve_step=plan.lifetimes[2].end_step))


def test_a_running_retraining_keeps_its_instance():
    problem, plan = continued_case()
    assert broken_rules(problem, replace(plan, lifetimes=plan.lifetimes[:2])) == {Rule.RETRAINING}


def test_without_an_epoch_the_next_one_is_when_the_initial_state_allows_it():
    problem, plan = continued_case()
    plan = replace(plan, lifetimes=plan.lifetimes[:3], next_epoch_step=1)
    assert broken_rules(problem, plan) == {Rule.EPOCHS}


def test_a_running_retraining_counts_as_the_windows_one():
    problem, plan = continued_case()
    place = problem.gpu.placement("1g.6gb@3")
    problem = replace(
        problem, initial=replace(problem.physical_initial, retrainings=(RunningRetraining(place, "a", 3),))
    )
    running = replace(plan.lifetimes[2], end_step=3)
    second = replace(running, create_step=3, serve_step=4, end_step=6, option="full")
    plan = replace(plan, lifetimes=(*plan.lifetimes[:2], running, second))
    assert broken_rules(problem, plan) == {Rule.RETRAINING}


def test_an_epoch_before_the_initial_state_allows_one_is_a_violation():
    problem, plan = continued_case()
    problem = replace(problem, initial=replace(problem.physical_initial, next_epoch_step=5))
    assert broken_rules(problem, plan) == {Rule.EPOCHS}


def dropped_at_once(next_epoch_step: int) -> tuple[Problem, MigPlan]:
    """The physical case, begun with b on slice 3, which step 0 gives up for slice 2 and the retraining."""
    problem, plan = physical_case()
    place = problem.gpu.placement
    held = (HeldInstance(place("2g.12gb@0"), "a", 0), HeldInstance(place("1g.6gb@3"), "b", 0))
    problem = replace(problem, initial=PhysicalState(held, (), next_epoch_step))
    return problem, with_lifetime(plan, 1, serve_step=1)


@pytest.mark.parametrize(("next_epoch_step", "rules"), [(0, set()), (1, {Rule.EPOCHS})])
def test_an_epoch_at_step_0_needs_an_initial_state_that_allows_it(next_epoch_step, rules):
    assert broken_rules(*dropped_at_once(next_epoch_step)) == rules


def test_what_step_0_drops_may_be_listed_with_an_empty_lifetime():
    problem, plan = dropped_at_once(0)
    listed = (lifetime(problem, "1g.6gb@3", "b", 0, 0, 0), *plan.lifetimes)
    assert not broken_rules(problem, replace(plan, lifetimes=listed))


def test_an_instance_made_at_step_0_warms_up_when_there_is_an_initial_state():
    problem, plan = dropped_at_once(0)
    assert broken_rules(problem, with_lifetime(plan, 1, serve_step=0)) == {Rule.WARM_UP}


def test_a_retraining_earns_nothing_for_the_inference_of_its_instance():
    problem, plan = physical_case()
    without = replace(plan, lifetimes=plan.lifetimes[:3])
    assert verify(problem, without).objective == pytest.approx(37.5 + 75 + 120)
    assert plan.lifetimes[2].owner.task is Task.RETRAINING


@pytest.mark.parametrize(("from_step", "to_step"), [(0, 1), (2, None), (5, 6)])
def test_a_plan_that_touches_what_is_not_ours_breaks_rule_1(from_step, to_step):
    problem, plan = physical_case()
    assert broken_rules(replace(problem, unavailable=(Unavailable((1,), from_step, to_step),)), plan) == {Rule.LAYOUT}


def test_what_is_not_ours_may_be_used_from_the_step_on_in_which_it_is_again():
    problem, plan = physical_case()
    plan = replace(plan, lifetimes=plan.lifetimes[:3])
    assert broken_rules(replace(problem, unavailable=(Unavailable((3,), 2),)), plan) == {Rule.LAYOUT}
    assert broken_rules(replace(problem, unavailable=(Unavailable((3,), 3),)), plan) == set()


def test_a_message_names_the_slices_that_are_not_ours():
    problem, plan = physical_case()
    found = verify(replace(problem, unavailable=(Unavailable((1,), 4),)), plan).violations[0]
    assert found.step == 4
    assert found.message.endswith("2g.12gb@0, 1g.6gb@2, 1g.6gb@3 beside memory slices 1, which are not ours")
