from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.mig import Placement
from migrator.config.reading import validate_config
from migrator.execution.foresight import Foresight, observe
from migrator.execution.posing import N_REMEMBERED, Starts, pools_terms, posed, shifted, state_of
from migrator.execution.windows import state_after
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.log import records as recorded
from migrator.log.changes import changes_in
from migrator.log.runlog import ReadLog
from planner.build import WarmUps, documented_warm_ups
from planner.plan import Lifetime, MigPlan, Status
from planner.policies.registry import policy_of
from planner.problem import HeldInstance, Owner, PhysicalState, Problem, Reconfiguration, RunningRetraining, Task
from planner.unavailable import Unavailable
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.simulation import run_of


def test_slices_that_others_hold_count_from_when_the_plan_is_there() -> None:
    config = changed(SMALL, {"window_s": 30, "planner": {"planning_s": 4}})
    setting, traffic = assemble(validate_config(config, "small.yaml"), "small.yaml")
    opening = observe(setting, traffic, 1, (0.5, 0.5))
    forecast = Foresight(setting, traffic).forecast(opening)
    items = [Unavailable((4, 5), 0, 10), Unavailable((7,), 20, 45), Unavailable((0,), 2, 4)]
    problem = posed(setting, opening, PhysicalState(), forecast, unavailable=items)
    assert problem.n_steps == 26
    assert problem.unavailable == (Unavailable((4, 5), 0, 6), Unavailable((7,), 16))


def test_a_turn_is_planned_to_cost_as_often_as_it_follows_another_members() -> None:
    both, sharing = ("vision", "language"), {"pools": [["vision", "language"]], "turn_cost": 0.25}
    setting = assemble(validate_config(changed(SMALL, {"sharing": sharing}), "small.yaml"), "small.yaml")[0]
    points = setting.joint_points.of(both).by_member["3g.40gb"]
    full = np.array([points[name].batch * points[name].processes for name in both])

    def slower(*turns: float) -> list[float]:
        """By what full turns are slower than if they followed each other, where members ask for so many a second."""
        pool_of = pools_terms(setting, documented_warm_ups(setting.gpu, setting.known_tenants), full * turns)
        pool = pool_of((0, 1))
        assert pool is not None
        return [points[name].rate_rps / rps - 1 for name, rps in pool.planned_rps["3g.40gb"].items()]

    assert slower(1000, 1000) == pytest.approx([0.125, 0.125])
    assert slower(3000, 1000) == pytest.approx([0.0625, 0.1875])
    assert slower(0, 1000)[1] == pytest.approx(0.0)


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
        claimed_bound=1.0,
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
    standing = ((at("2g.20gb@0"), A, 40.0), (at("3g.40gb@4"), B, 103.5))
    state = state_of(standing, 100.0, 1.0)
    assert state.held == (HeldInstance(at("2g.20gb@0"), "a", 0), HeldInstance(at("3g.40gb@4"), "b", 4))
    assert state.next_epoch_step == 4


def test_an_empty_gpu_is_an_empty_state() -> None:
    assert state_of((), 100.0, 1.0) == PhysicalState()


FREE = {"retraining": {"required": False, "drift": "compound", "drift_prior": 0.8}}


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
    lasting = 0.625 * (1 + 0.2 + 0.04)  # in a quarter of the windows it stays; half of the others it answers
    assert not vision.must_retrain
    assert vision.salvage == pytest.approx([n_requests * 0.8 * accuracy * lasting for accuracy in (0.6, 0.9)])


def test_a_last_retraining_is_worth_all_windows_ahead_in_full() -> None:
    changes = {**FREE, "tenants.0.retraining.windows": 2}
    first, last = (problem_of(changes, window).tenants[0] for window in (0, 1))
    n_first, n_last = (float(own.arrivals_rps.mean()) * 60 for own in (first, last))
    assert first.salvage == pytest.approx([n_first * accuracy * (0.8 * 0.625 + 0.2 + 0.2) for accuracy in (0.6, 0.9)])
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


VISION = Owner("vision", Task.INFERENCE)


def setting(**changes: object) -> Setting:
    return assemble(validate_config(changed(SMALL, changes), "small"), "small")[0]


def after(*starts: tuple[Owner, float, float], **changes: object) -> Starts:
    of = setting(**changes)
    found = Starts(of.config, of.gpu, of.tenants)
    for owner, calls_s, start_s in starts:
        found.add(owner, calls_s, start_s)
    return found


def test_at_first_a_change_takes_what_is_documented_of_a_typical_one() -> None:
    planned, documented = after().warm_ups, documented_warm_ups(setting().gpu, setting().tenants)
    assert planned.switch_s == pytest.approx(documented.switch_s)
    assert planned.training_start_s == pytest.approx(documented.training_start_s)
    assert planned.start_s == pytest.approx(documented.start_s, abs=0.5)


def test_a_plan_has_workers_ready_at_the_nearest_step_and_trainers_at_the_next() -> None:
    many = [(owner, 0.4, 2.0) for owner in (VISION, Owner("vision", Task.RETRAINING)) for _ in range(9)]
    planned = after(*many).warm_ups
    assert planned.switch_s + planned.start_s[0] == pytest.approx(2.0)
    assert planned.switch_s + planned.training_start_s[0] == pytest.approx(2.4)


def test_many_starts_outweigh_what_is_documented() -> None:
    planned = after(*[(VISION, 0.5, 9.5)] * 8).warm_ups
    assert planned.switch_s + planned.start_s[0] == pytest.approx(10.0)


def test_a_single_start_does_not_decide() -> None:
    assert _vision_s(after((VISION, 0.5, 99.5)).warm_ups) < 5.0


def test_old_starts_are_forgotten() -> None:
    planned = after(*[(VISION, 0.5, 99.5)] * 30, *[(VISION, 0.5, 9.5)] * N_REMEMBERED)
    assert _vision_s(planned.warm_ups) == pytest.approx(10.0)


def test_what_others_and_trainers_take_is_told_apart() -> None:
    before, now = after().warm_ups, after(*[(VISION, 1.5, 9.0)] * 8).warm_ups
    assert now.switch_s > before.switch_s
    assert now.switch_s + now.start_s[1] == pytest.approx(before.switch_s + before.start_s[1])
    assert now.switch_s + now.training_start_s[0] == pytest.approx(before.switch_s + before.training_start_s[0])


def test_a_given_switching_time_stands_and_start_ups_alone_are_fed_back() -> None:
    planned = after(*[(VISION, 7.0, 9.5)] * 8, **{"planner.switch_s": 1.5}).warm_ups
    assert (planned.switch_s, planned.start_s[0]) == (1.5, 9.5)


@pytest.fixture(scope="module")
def log() -> ReadLog:
    changes = {"windows": 3, "tenants.1.arrivals.scale.factor": 12.0}
    return run_of(assemble(validate_config(changed(SMALL, changes), "small"), "small"), policy_of("migrator")).log


@pytest.mark.parametrize("window", [0, 1, 2])
def test_a_window_is_planned_with_what_was_ready_before_it(log: ReadLog, window: int) -> None:
    entry = log.entries_of(recorded.WindowStarted)[window]
    started, before = entry.record, [one.record for one in log.entries[: entry.n]]
    known = after()
    for change in changes_in(log):
        for item in () if change.is_bring_up else change.started:
            if item.ready is not None and item.ready in before:
                start_s = item.ready.library_s + item.ready.model_s
                calls_s = item.ready.ready_s - start_s - change.begin_s
                known.add(Owner(item.tenant, Task(item.task)), calls_s, start_s)
    planned = known.warm_ups
    assert started.warm_up.switch_s == pytest.approx(planned.switch_s, abs=1e-5)
    assert list(started.warm_up.start_s.values()) == pytest.approx(planned.start_s, abs=1e-5)
    assert list(started.warm_up.training_start_s.values()) == pytest.approx(planned.training_start_s, abs=1e-5)


def test_what_was_seen_changes_what_is_planned(log: ReadLog) -> None:
    first, *_, last = (record.warm_up for record in log.of(recorded.WindowStarted))
    assert first != last


def _vision_s(planned: WarmUps) -> float:
    return planned.switch_s + planned.start_s[0]
