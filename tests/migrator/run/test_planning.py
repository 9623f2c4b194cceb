from __future__ import annotations

from dataclasses import replace

import pytest

from executor.catalogue import gpu_model
from executor.mig import Placement
from migrator.config import validate_config
from migrator.run.planning import (
    Foresight,
    Solving,
    observe,
    plan_through,
    posed,
    shifted,
    state_after,
    state_of,
    with_begun,
    with_ended,
)
from migrator.setting import Setting, assemble
from migrator.traffic import RecordedTraffic
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import HeldInstance, Owner, PhysicalState, Reconfiguration, RunningRetraining, Task
from planner.replan import remaining_problem
from planner.unavailable import Unavailable
from tests.migrator.conftest import SMALL, changed
from workloads.drift import accuracy_at_start
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant, WindowAccuracy, WorkerStart

BEFORE = (0.6, 0.8, 0.5, 0.9, 0.7)


def tenant(n_retraining_windows: int | None = None) -> Tenant:
    return Tenant(
        name="a",
        model="m",
        slo_s=0.1,
        operating_points={"1g.5gb": OperatingPoint("1g.5gb", 1, 1, 10.0, 0.05, LatencyCurve((1,), (0.05,)))},
        retraining_time_s={"1g.5gb": 20.0},
        accuracy=tuple(WindowAccuracy(before, 0.95) for before in BEFORE),
        min_profile="1g.5gb",
        worker_start=WorkerStart(1.0),
        n_retraining_windows=n_retraining_windows,
    )


@pytest.mark.parametrize("window", range(5))
def test_a_model_retrained_in_the_last_window_starts_at_before(window: int) -> None:
    assert accuracy_at_start(tenant(), window, window - 1) == BEFORE[window]


@pytest.mark.parametrize(
    ("window", "last_retrained", "accuracy"),
    [(1, -1, 0.6), (2, -1, 0.5), (3, -1, 0.5), (4, -1, 0.5), (2, 0, 0.5), (3, 0, 0.5), (4, 2, 0.7), (3, 1, 0.5)],
)
def test_a_model_whose_retraining_is_missing_never_recovers(window: int, last_retrained: int, accuracy: float) -> None:
    assert accuracy_at_start(tenant(), window, last_retrained) == accuracy


def test_a_tenant_that_is_not_to_be_retrained_any_more_follows_before() -> None:
    assert [accuracy_at_start(tenant(1), window, 0) for window in range(1, 5)] == list(BEFORE[1:])


def test_a_skipped_last_retraining_is_missed_for_good() -> None:
    assert [accuracy_at_start(tenant(1), window, -1) for window in range(1, 5)] == [0.6, 0.5, 0.5, 0.5]


def test_a_tenant_that_is_never_retrained_follows_before() -> None:
    assert [accuracy_at_start(tenant(0), window, -1) for window in range(5)] == list(BEFORE)


def assembled() -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, {"window_s": 30}), "small.yaml"), "small.yaml")


PAPER = Solving(Reconfiguration.PAPER, "greedy")


def test_the_windows_before_the_last_are_planned_as_a_run_does_it() -> None:
    as_run = plan_through(*assembled(), 1)
    otherwise = plan_through(*assembled(), 1, Solving(engine="greedy"))
    assert [planned.plan.engine for planned in otherwise] == ["physical", "greedy"]
    assert otherwise[0].plan.lifetimes == as_run[0].plan.lifetimes
    assert otherwise[1].problem.initial == as_run[1].problem.initial


def test_only_the_window_that_is_asked_about_has_to_keep_its_floors() -> None:
    floor = {"tenants.0.arrivals.rate_rps": 30_000, "tenants.0.min_slo_attainment": {"share": 0.9, "per": "step"}}
    config = validate_config(changed(SMALL, {"window_s": 30, **floor}), "small.yaml")
    before, asked = plan_through(*assemble(config, "small.yaml"), 1, Solving())
    assert (before.is_planned, bool(before.plan.missed)) == (True, True)
    assert asked.plan.status is Status.INFEASIBLE


def test_a_paper_window_starts_from_the_profiles_held() -> None:
    first, second = plan_through(*assembled(), 1, PAPER)
    assert second.problem.paper_initial is not None
    held = {
        name: sorted(item.placement.profile.name for item in first.next_state.held if item.tenant == name)
        for name in ("vision", "language")
    }
    assert {name: sorted(names) for name, names in second.problem.paper_initial.held.items()} == held
    assert second.is_planned


def test_a_paper_retraining_takes_its_start_up_as_well() -> None:
    physical, paper = (plan_through(*assembled(), 0, how)[0].problem.tenants[0] for how in (None, PAPER))
    assert physical.retraining_start_s is not None
    with_start_s = {name: s + physical.retraining_start_s for name, s in physical.options[0].time_s.items()}
    assert dict(paper.options[0].time_s) == pytest.approx(with_start_s)


def test_slices_that_others_hold_count_from_when_the_plan_is_there() -> None:
    config = changed(SMALL, {"window_s": 30, "planner": {"planning_s": 4}})
    setting, traffic = assemble(validate_config(config, "small.yaml"), "small.yaml")
    opening = observe(setting, traffic, 1, (0.5, 0.5))
    forecast = Foresight(setting, traffic).forecast(opening)
    items = [Unavailable((4, 5), 0, 10), Unavailable((7,), 20, 45), Unavailable((0,), 2, 4)]
    problem = posed(setting, opening, PhysicalState(), forecast, unavailable=items)
    assert problem.n_steps == 26
    assert problem.unavailable == (Unavailable((4, 5), 0, 6), Unavailable((7,), 16))


# --- what one window leaves to the next

GPU = gpu_model("a100-80gb")
A, B = Owner("a", Task.INFERENCE), Owner("b", Task.INFERENCE)
TRAINING = Owner("a", Task.RETRAINING)


def at(text: str) -> Placement:
    return GPU.placement(text)


def plan_of(*lifetimes: Lifetime, next_epoch_step: int = 0) -> MigPlan:
    return MigPlan(
        status=Status.FEASIBLE,
        objective=1.0,
        bound=1.0,
        solve_s=0.0,
        engine="test",
        reconfiguration=Reconfiguration.PHYSICAL,
        n_steps=100,
        lifetimes=lifetimes,
        next_epoch_step=next_epoch_step,
    )


def test_what_outlives_the_window_is_held_in_the_next() -> None:
    plan = plan_of(
        Lifetime(at("2g.20gb@0"), A, 0, 0, 100),
        Lifetime(at("2g.20gb@2"), B, 0, 0, 95),
        Lifetime(at("1g.10gb@4"), TRAINING, 10, 15, 40, "full"),
        Lifetime(at("3g.40gb@4"), B, 93, 104, 100),
        next_epoch_step=104,
    )
    state = state_after(plan)
    assert state.held == (HeldInstance(at("2g.20gb@0"), "a", 0), HeldInstance(at("3g.40gb@4"), "b", 4))
    assert (state.next_epoch_step, state.retrainings) == (4, ())


def test_a_retraining_that_ends_with_the_window_is_not_running_in_the_next() -> None:
    plan = plan_of(Lifetime(at("1g.10gb@4"), TRAINING, 60, 70, 100, "full"))
    assert state_after(plan).held == ()


def test_a_shifted_state_tells_the_same_from_later_on() -> None:
    state = PhysicalState(
        held=(HeldInstance(at("2g.20gb@0"), "a", 7),),
        retrainings=(RunningRetraining(at("1g.10gb@4"), "a", 3), RunningRetraining(at("1g.10gb@5"), "b", 9)),
        next_epoch_step=8,
    )
    later = shifted(state, 5)
    assert later.held == (HeldInstance(at("2g.20gb@0"), "a", 2),)
    assert later.retrainings == (RunningRetraining(at("1g.10gb@5"), "b", 4),)
    assert later.next_epoch_step == 3


def test_what_really_stands_is_held_from_when_it_is_ready() -> None:
    standing = ((at("2g.20gb@0"), "a", 40.0), (at("3g.40gb@4"), "b", 103.5))
    state = state_of(standing, 100.0, 1.0)
    assert state.held == (HeldInstance(at("2g.20gb@0"), "a", 0), HeldInstance(at("3g.40gb@4"), "b", 4))
    assert state.next_epoch_step == 4


def test_an_empty_gpu_is_an_empty_state() -> None:
    assert state_of((), 100.0, 1.0) == PhysicalState()


def test_a_retraining_that_ended_early_is_over_for_the_plan() -> None:
    own = Owner("vision", Task.RETRAINING)
    plan = plan_of(Lifetime(at("1g.10gb@0"), own, 2, 5, 9, "full"))
    setting, traffic = assembled()
    (window, *_) = plan_through(setting, traffic, 0)
    (ended,) = with_ended(replace(window, plan=plan), {own}, 4).plan.lifetimes
    assert (ended.create_step, ended.serve_step, ended.end_step) == (2, 4, 4)


def test_a_retraining_that_began_before_its_step_is_under_way_and_not_offered_again() -> None:
    own, other = Owner("vision", Task.RETRAINING), Owner("language", Task.RETRAINING)
    plan = plan_of(Lifetime(at("1g.10gb@0"), own, 6, 8, 19, "full"), Lifetime(at("1g.10gb@1"), other, 6, 8, 19, "full"))
    setting, traffic = assembled()
    (window, *_) = plan_through(setting, traffic, 0)
    planned = replace(window, plan=plan)
    begun, kept = with_begun(planned, {own}, 4).plan.lifetimes
    assert (begun.create_step, begun.serve_step, begun.end_step) == (3, 5, 16)
    assert kept == plan.lifetimes[1]
    left = remaining_problem(window.problem, with_begun(planned, {own}, 4).plan, 4)
    assert [item.tenant for item in left.physical_initial.retrainings] == ["vision"]
    assert with_begun(planned, {own, other}, 7).plan == plan  # begun when it was to


def test_a_retraining_that_goes_on_is_not_over_for_the_plan() -> None:
    plan = plan_of(Lifetime(at("1g.10gb@0"), Owner("vision", Task.RETRAINING), 2, 5, 9, "full"))
    setting, traffic = assembled()
    (window, *_) = plan_through(setting, traffic, 0)
    assert with_ended(replace(window, plan=plan), set(), 4).plan == plan
