"""Instances created ahead on idle slices, and the warm-up that this hides."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from windows import tenant, window

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries, Held
from planner.engines.physical.plan import with_held
from planner.engines.schedule import PlacedSchedule, WindowFacts
from planner.plan import MigPlan
from planner.policies.paper.pre_initialisation import (
    StartSteps,
    fed_back_overhead_s,
    pre_initialised,
    warm_ups,
)
from planner.problem import PhysicalState, Reconfiguration, Retraining

N_STEPS = 30
OMEGA = 3

PROBLEM = window(
    *(tenant(name, [90.0] * N_STEPS, overhead_s=0.5) for name in "ab"), model=Reconfiguration.PHYSICAL, switch_s=2.5
)
FACTS = WindowFacts.of(PROBLEM)
A, B = 0, 1


def entries(**owned: str) -> Entries:
    """What a and b hold, such as ``a="2g.10gb@4"``."""
    return frozenset((PROBLEM.gpu.placement(one), "ab".index(m)) for m, text in owned.items() for one in text.split())


BEFORE = entries(a="2g.10gb@4", b="1g.5gb@6")
AFTER = entries(a="4g.20gb@0", b="2g.10gb@4 1g.5gb@6")
"""As in the paper's Figure 6: the 4g has room before the change, the 2g has not."""


def plan_of(held: Held, placed: PlacedSchedule[Placement] = ()) -> MigPlan:
    return with_held(FACTS, held, placed, 1e9, "by hand", time.perf_counter())


def test_what_fits_on_idle_slices_is_created_ahead() -> None:
    ahead = BEFORE | entries(a="4g.20gb@0")
    held = ((0, BEFORE), (10, AFTER))
    assert pre_initialised(FACTS, held, ()) == ((0, BEFORE), (10 - OMEGA, ahead), (10, AFTER))


def test_too_soon_after_the_change_before_it_starts_at_the_epoch_and_the_rest_waits() -> None:
    held, soon = ((0, BEFORE), (10, entries(a="2g.10gb@4", b="1g.5gb@0"))), 10 + 2 * OMEGA - 1
    found = pre_initialised(FACTS, (*held, (soon, BEFORE)), ())
    assert [step for step, _ in found] == [0, 10 - OMEGA, 10, soon, soon + OMEGA]


def test_nothing_is_created_ahead_where_something_retrains() -> None:
    run = Retraining(A, 1, "2g.10gb", 10 - OMEGA + 1, 10)
    found = pre_initialised(FACTS, ((0, BEFORE), (10, AFTER)), ((run, PROBLEM.gpu.placement("2g.10gb@0")),))
    assert found[1] == (10, BEFORE | entries(a="4g.20gb@0"))


def test_a_change_that_only_adds_comes_earlier() -> None:
    more = BEFORE | entries(a="4g.20gb@0")
    assert pre_initialised(FACTS, ((0, BEFORE), (10, more)), ()) == ((0, BEFORE), (10 - OMEGA, more))


def test_the_most_capable_part_is_created_ahead() -> None:
    before, after = entries(a="2g.10gb@4", b="1g.5gb@6"), entries(a="1g.5gb@0", b="3g.20gb@4 2g.10gb@2")
    found = pre_initialised(FACTS, ((0, before), (10, after)), ())
    assert found[1][1] - before == entries(a="1g.5gb@0", b="2g.10gb@2")


RUN = Retraining(A, 1, "2g.10gb", 10 - OMEGA - 2, 10)
LEFT = ((RUN, PROBLEM.gpu.placement("2g.10gb@2")),)
"""A retraining that ends when the epoch of the next two tests comes."""

SMALL, LARGE = entries(a="1g.5gb@0", b="2g.10gb@4"), entries(a="2g.10gb@2", b="2g.10gb@4")


def test_what_has_room_where_a_retraining_was_starts_before_what_it_replaces_ends() -> None:
    both = SMALL | LARGE
    assert pre_initialised(FACTS, ((0, SMALL), (10, LARGE)), LEFT) == ((0, SMALL), (10, both), (10 + OMEGA, LARGE))


def test_it_does_not_put_off_the_next_epoch() -> None:
    held = ((0, SMALL), (10, LARGE), (10 + 2 * OMEGA - 1, SMALL))
    assert pre_initialised(FACTS, held, LEFT)[:2] == held[:2]


def test_nothing_is_created_ahead_too_soon_after_a_change_in_two_steps() -> None:
    more = LARGE | entries(b="1g.5gb@6")
    found = pre_initialised(FACTS, ((0, SMALL), (10, LARGE), (10 + 2 * OMEGA, more)), LEFT)
    assert [step for step, _ in found] == [0, 10, 10 + OMEGA, 10 + 2 * OMEGA]


def test_it_does_not_put_off_the_next_window_s_first_epoch() -> None:
    run = Retraining(A, 1, "2g.10gb", N_STEPS - 2 * OMEGA - 4, N_STEPS - 2 * OMEGA + 1)
    held = ((0, SMALL), (run.end_step, LARGE))
    assert pre_initialised(FACTS, held, ((run, LEFT[0][1]),)) == held


def test_a_change_in_two_steps_must_pay() -> None:
    # Kept 1g aside, a serves with its 2g Ω later if the 1g goes on that long: with hardly any requests neither pays.
    tenants = [replace(one, arrivals_rps=np.full(N_STEPS, 1.0)) for one in PROBLEM.tenants]
    facts = WindowFacts.of(replace(PROBLEM, tenants=tuple(tenants)))
    more = LARGE | entries(a="1g.5gb@6")
    held = ((0, SMALL | entries(a="1g.5gb@6")), (10, more))
    assert pre_initialised(facts, held, LEFT) == held


def test_instances_that_are_ready_hide_their_start() -> None:
    cold = ((0, BEFORE), (10, AFTER))
    plans = [plan_of(held) for held in (cold, pre_initialised(FACTS, cold, ()))]
    found = [warm_ups(plan) for plan in plans]
    assert found == [StartSteps(exposed_steps=2 * OMEGA), StartSteps(idle_steps=OMEGA, exposed_steps=OMEGA)]


def test_a_first_layout_warms_nothing_up() -> None:
    assert warm_ups(plan_of(((0, BEFORE),))) == StartSteps()


def test_what_the_window_before_has_left_is_not_started_again() -> None:
    first = plan_of(((0, BEFORE), (N_STEPS - 1, AFTER)))
    assert warm_ups(first) == StartSteps(exposed_steps=2)
    assert warm_ups(plan_of(((0, AFTER),)), first) == StartSteps()


def test_a_change_at_the_first_step_is_seen_by_what_was_held_before() -> None:
    problem = window(*PROBLEM.tenants, model=Reconfiguration.PHYSICAL, switch_s=2.5, initial=PhysicalState())
    plan = with_held(WindowFacts.of(problem), ((0, frozenset()), (0, AFTER)), (), 1e9, "by hand", time.perf_counter())
    assert warm_ups(plan, plan_of(((0, BEFORE),))) == StartSteps(exposed_steps=2 * OMEGA)


def test_growing_into_what_a_retraining_has_left_takes_nothing_from_anybody() -> None:
    found = warm_ups(plan_of(((0, SMALL), (10, SMALL | LARGE)), LEFT))
    assert found == StartSteps(left_steps=OMEGA)


def test_who_gives_something_up_beside_it_is_exposed() -> None:
    assert warm_ups(plan_of(((0, SMALL), (10, LARGE)), LEFT)) == StartSteps(exposed_steps=OMEGA)


def test_a_retraining_of_the_window_before_leaves_its_slices_at_the_first_step() -> None:
    run = Retraining(A, 1, "2g.10gb", N_STEPS - OMEGA - 2, N_STEPS)
    first = plan_of(((0, BEFORE),), ((run, PROBLEM.gpu.placement("2g.10gb@0")),))
    problem = replace(PROBLEM, initial=PhysicalState())
    held = ((0, BEFORE), (0, BEFORE | entries(a="2g.10gb@0")))
    second = with_held(WindowFacts.of(problem), held, (), 1e9, "by hand", time.perf_counter())
    assert warm_ups(second, first) == StartSteps(left_steps=OMEGA)


def test_overhead_is_fed_back_by_what_was_hidden_in_the_last_window_that_started_any() -> None:
    hidden, nothing = plan_of(pre_initialised(FACTS, ((0, BEFORE), (10, AFTER)), ())), plan_of(((0, AFTER),))
    assert fed_back_overhead_s(PROBLEM, ()) == (0.5, 0.5)
    assert fed_back_overhead_s(PROBLEM, (hidden,)) == (0.0, 0.5)
    assert fed_back_overhead_s(PROBLEM, (hidden, nothing)) == (0.0, 0.5)


def test_what_a_retraining_leaves_lowers_no_overhead() -> None:
    assert fed_back_overhead_s(PROBLEM, (plan_of(((0, SMALL), (10, SMALL | LARGE)), LEFT),)) == (0.5, 0.5)
