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
from planner.problem import HeldInstance, Owner, PhysicalState, Problem, Reconfiguration, RunningRetraining, Task
from planner.replan import remaining_problem
from planner.unavailable import Unavailable
from tests.migrator.conftest import SMALL, changed


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
    config = changed(SMALL, {"tenants.1.retraining": {"samples": 100}})
    setting, traffic = assemble(validate_config(config, "small.yaml"), "small.yaml")
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


FREE = {"retraining": {"required": False, "drift": "compound"}}


def problem_of(changes: dict[str, object], window: int = 0, last_trained: tuple[int, ...] | None = None) -> Problem:
    """The problem of a window of the small config, whose models give 0.6 and 0.5."""
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small.yaml"), "small.yaml")
    opening = replace(observe(setting, traffic, window, (0.6, 0.5)), last_trained=last_trained)
    return posed(setting, opening, None, Foresight(setting, traffic).forecast(opening))


def test_who_must_retrain_has_a_problem_without_salvage() -> None:
    vision, language = problem_of({}).tenants
    assert (vision.must_retrain, vision.salvage) == (True, ())
    assert (language.options, language.salvage) == ((), ())


def test_a_retraining_that_is_a_decision_comes_with_what_its_levels_are_worth_later() -> None:
    (vision, _) = problem_of(FREE).tenants
    n_requests = float(vision.arrivals_rps.mean()) * 60
    lasting = 1 + 0.4 + 0.16  # half of the windows pass without a retraining, and leave 0.8 each
    assert not vision.must_retrain
    assert vision.salvage == pytest.approx([n_requests * 0.8 * accuracy * lasting for accuracy in (0.6, 0.9)])


def test_a_last_retraining_is_worth_all_windows_ahead_in_full() -> None:
    changes = {**FREE, "tenants.0.retraining.windows": 2}
    first, last = (problem_of(changes, window).tenants[0] for window in (0, 1))
    n_first, n_last = (float(own.arrivals_rps.mean()) * 60 for own in (first, last))
    assert first.salvage == pytest.approx([n_first * accuracy * (0.8 + 0.4 + 0.4) for accuracy in (0.6, 0.9)])
    assert last.salvage == pytest.approx([n_last * accuracy * 3 for accuracy in (0.6, 0.9)])
    assert problem_of(changes, 2).tenants[0].salvage == ()


@pytest.mark.parametrize(("max_skipped", "last_trained", "must"), [(0, 0, True), (1, 0, False), (1, -1, True)])
def test_who_has_skipped_as_many_windows_as_it_may_must_retrain(
    max_skipped: int, last_trained: int, must: bool
) -> None:
    changes = {**FREE, "tenants.0.retraining.max_skipped": max_skipped}
    assert problem_of(changes, 1, (last_trained, -1)).tenants[0].must_retrain == must


def test_options_take_their_part_of_the_time_and_reach_their_part_of_the_gain() -> None:
    options = [{"name": "quarter", "samples": 250}, {"name": "poor", "samples": 500, "gain": 0.1}]
    (vision, _) = problem_of({"tenants.0.retraining.options": options, "retraining.drift": "as_given"}).tenants
    full, quarter, poor = vision.options
    assert [one.name for one in vision.options] == ["full", "quarter", "poor"]
    assert [one.accuracy_after for one in vision.options] == pytest.approx([0.9, 0.75, 0.63])
    assert [quarter.time_s[n] / s for n, s in full.time_s.items()] == pytest.approx([0.25] * len(full.time_s))
    assert [poor.time_s[n] / s for n, s in full.time_s.items()] == pytest.approx([0.5] * len(full.time_s))


def test_plans_one_after_the_other_skip_and_fall_behind() -> None:
    changes = {"retraining.required": False, "retraining.drift": "compound", "retraining.salvage": False}
    changes |= {"tenants.0.retraining.samples": 200_000}
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small.yaml"), "small.yaml")
    first, second = plan_through(setting, traffic, 1)
    assert first.retrained == frozenset()
    assert second.problem.tenants[0].accuracy_before == pytest.approx(0.6 * 0.6 / 0.9)
