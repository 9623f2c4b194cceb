"""Warm-ups as long as a run's starts have been, and documented ones before there were any."""

from __future__ import annotations

import pytest

from migrator.config import validate_config
from migrator.execution.starts import N_REMEMBERED, Starts
from migrator.inputs import assemble
from migrator.log import records as recorded
from migrator.log.changes import changes_in
from migrator.log.runlog import ReadLog
from migrator.setting import Setting
from planner.build import WarmUps, documented_warm_ups
from planner.policies.registry import policy_of
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.simulation import run_of

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
