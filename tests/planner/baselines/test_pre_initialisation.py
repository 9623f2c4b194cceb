"""Instances created ahead on idle slices, and the warm-up that this hides."""

from __future__ import annotations

import time

from windows import tenant, window

from planner.baselines.pre_initialisation import (
    WarmUps,
    fed_back_overhead_s,
    hidden_share,
    pre_initialised,
    warm_ups,
)
from planner.baselines.realised import Held, Occupied
from planner.engines.held_sets import Entries
from planner.engines.physical_floor import with_held
from planner.engines.physical_schedule import Terms, Training
from planner.initial import PhysicalState
from planner.plan import MigPlan
from planner.problem import Reconfiguration

N_STEPS = 30
OMEGA = 3

PROBLEM = window(
    *(tenant(name, [90.0] * N_STEPS, overhead_s=0.5) for name in "ab"), model=Reconfiguration.PHYSICAL, switch_s=2.5
)
TERMS = Terms.of(PROBLEM)
A, B = 0, 1


def entries(**owned: str) -> Entries:
    """What a and b hold, such as ``a="2g.10gb@4"``."""
    return frozenset((PROBLEM.gpu.placement(one), "ab".index(m)) for m, text in owned.items() for one in text.split())


BEFORE = entries(a="2g.10gb@4", b="1g.5gb@6")
AFTER = entries(a="4g.20gb@0", b="2g.10gb@4 1g.5gb@6")
"""As in the paper's Figure 6: the 4g has room before the change, the 2g has not."""


def plan_of(held: Held, occupied: Occupied = ()) -> MigPlan:
    return with_held(TERMS, held, occupied, 1e9, "by hand", time.perf_counter())


def test_what_fits_on_idle_slices_is_created_ahead() -> None:
    ahead = BEFORE | entries(a="4g.20gb@0")
    held = ((0, BEFORE), (10, AFTER))
    assert pre_initialised(TERMS, held, ()) == ((0, BEFORE), (10 - OMEGA, ahead), (10, AFTER))


def test_nothing_is_created_ahead_too_soon_after_the_change_before() -> None:
    held = ((0, BEFORE), (10, entries(a="2g.10gb@4", b="1g.5gb@0")), (10 + 2 * OMEGA - 1, BEFORE))
    found = pre_initialised(TERMS, held, ())
    assert [step for step, _ in found] == [0, 10 - OMEGA, 10, 10 + 2 * OMEGA - 1]


def test_nothing_is_created_ahead_where_something_retrains() -> None:
    run = Training(A, 1, "2g.10gb", 10 - OMEGA + 1, 10)
    held = ((0, BEFORE), (10, AFTER))
    assert pre_initialised(TERMS, held, ((run, PROBLEM.gpu.placement("2g.10gb@0")),)) == held


def test_a_change_that_only_adds_comes_earlier() -> None:
    more = BEFORE | entries(a="4g.20gb@0")
    assert pre_initialised(TERMS, ((0, BEFORE), (10, more)), ()) == ((0, BEFORE), (10 - OMEGA, more))


def test_the_most_capable_part_is_created_ahead() -> None:
    before, after = entries(a="2g.10gb@4", b="1g.5gb@6"), entries(a="1g.5gb@0", b="3g.20gb@4 2g.10gb@2")
    found = pre_initialised(TERMS, ((0, before), (10, after)), ())
    assert found[1][1] - before == entries(a="1g.5gb@0", b="2g.10gb@2")


def test_instances_that_are_ready_hide_their_start() -> None:
    cold = ((0, BEFORE), (10, AFTER))
    plans = [plan_of(held) for held in (cold, pre_initialised(TERMS, cold, ()))]
    assert [warm_ups(plan) for plan in plans] == [WarmUps(0, 2 * OMEGA), WarmUps(OMEGA, OMEGA)]
    assert [hidden_share(plan) for plan in plans] == [0.0, 0.5]


def test_a_first_layout_warms_nothing_up() -> None:
    assert warm_ups(plan_of(((0, BEFORE),))) == WarmUps()
    assert hidden_share(plan_of(((0, BEFORE),))) == 0.0


def test_what_the_window_before_has_left_is_not_started_again() -> None:
    first = plan_of(((0, BEFORE), (N_STEPS - 1, AFTER)))
    assert warm_ups(first) == WarmUps(0, 2)
    assert warm_ups(plan_of(((0, AFTER),)), first) == WarmUps()


def test_a_change_at_the_first_step_is_seen_by_what_was_held_before() -> None:
    problem = window(*PROBLEM.tenants, model=Reconfiguration.PHYSICAL, switch_s=2.5, initial=PhysicalState())
    plan = with_held(Terms.of(problem), ((0, frozenset()), (0, AFTER)), (), 1e9, "by hand", time.perf_counter())
    assert warm_ups(plan, plan_of(((0, BEFORE),))) == WarmUps(0, 2 * OMEGA)


def test_growing_into_what_a_retraining_has_left_is_not_hidden() -> None:
    run, place = Training(A, 1, "2g.10gb", 10 - OMEGA - 2, 10), PROBLEM.gpu.placement("2g.10gb@0")
    held = ((0, BEFORE), (10, BEFORE | entries(a="2g.10gb@0")))
    assert warm_ups(plan_of(held, ((run, place),))) == WarmUps(0, OMEGA)


def test_overhead_is_fed_back_by_what_was_hidden_in_the_last_window_that_started_any() -> None:
    hidden, nothing = plan_of(pre_initialised(TERMS, ((0, BEFORE), (10, AFTER)), ())), plan_of(((0, AFTER),))
    assert fed_back_overhead_s(PROBLEM, ()) == (0.5, 0.5)
    assert fed_back_overhead_s(PROBLEM, (hidden,)) == (0.0, 0.5)
    assert fed_back_overhead_s(PROBLEM, (hidden, nothing)) == (0.0, 0.5)
