"""Weights that are served before their retraining ends, in whole simulated runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from migrator.config.reading import config_yaml, validate_config
from migrator.execution.happenings import Failed, Happening
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.runlog import ReadLog, RunLog, read_log
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_seams import faulty

CHECKPOINTS: dict[str, Any] = {
    "windows": 1,
    "retraining.checkpoints": [0.25, 0.5],
    "retraining.curve": "linear",
    "tenants.0.retraining.samples": 8000,
    "tenants.0.worker_start_s": 5.0,  # no new server is ready while the others pause
}


@cache
def served(swap_s: float, checkpoint_s: float = 0.0, *, fails: bool = False) -> ReadLog:
    changes = CHECKPOINTS | {"retraining.swap_s": swap_s, "retraining.checkpoint_s": checkpoint_s}
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    backend = faulty(setting, dies_after_its_first_checkpoint) if fails else None
    with TemporaryDirectory() as folder:
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            Loop(setting, simulated_parts(setting, traffic, backend=backend)).carry_out(log)
        return read_log(Path(folder) / "run")


def dies_after_its_first_checkpoint(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del number
    if owner.task is Task.INFERENCE:
        return own
    return [*own[:2], Failed((own[1].at_s + own[2].at_s) / 2, own[0].instance_id, "killed")]


def trained_s(log: ReadLog) -> tuple[float, float]:
    """When the retraining began to train, and ended."""
    ready = next(item for item in log.of(recorded.Ready) if item.task == "retraining")
    return ready.ready_s, log.of(recorded.Finished)[0].finish_s


@pytest.mark.parametrize("checkpoint_s", [0.0, 1.5])
def test_each_part_of_a_retraining_is_served_when_it_is_done(checkpoint_s: float) -> None:
    log = served(0.0, checkpoint_s)
    begun_s, ended_s = trained_s(log)
    told = log.entries_of(recorded.Checkpoint)
    assert [item.record.part for item in told] == [0.25, 0.5]
    assert [item.record.accuracy for item in told] == pytest.approx([0.675, 0.75])  # from 0.6 to 0.9
    assert [item.at_s - begun_s for item in told] == pytest.approx([(ended_s - begun_s) * f for f in (0.25, 0.5)])


def test_writing_checkpoints_makes_the_retraining_longer() -> None:
    without, with_ = (trained_s(served(0.0, checkpoint_s)) for checkpoint_s in (0.0, 1.5))
    assert with_[1] - with_[0] == pytest.approx(without[1] - without[0] + 2 * 1.5)


def test_servers_pause_while_they_take_weights_over() -> None:
    log = served(3.0)
    (window,) = log.of(recorded.WindowFinished)
    in_time, arrivals = window.tenants["vision"].in_time, window.tenants["vision"].arrivals
    assert arrivals[0] > 0
    for item in (*log.entries_of(recorded.Checkpoint), *log.entries_of(recorded.Finished)):
        second = int(item.at_s) + 1  # the whole of it lies in the pause, which is longer than the SLO
        assert in_time[second] == 0
        assert arrivals[second] > 0
    assert sum(in_time) < sum(served(0.0).of(recorded.WindowFinished)[0].tenants["vision"].in_time)


def test_a_retraining_that_fails_leaves_its_last_checkpoint_in_service() -> None:
    log = served(0.0, fails=True)
    (told,) = log.entries_of(recorded.Checkpoint)
    (failed,) = (item for item in log.entries_of(recorded.Failed) if item.record.task == "retraining")
    assert (told.record.accuracy, failed.at_s > told.at_s, log.of(recorded.Finished)) == (0.675, True, ())
    (window,) = log.of(recorded.WindowFinished)
    counts, second = window.tenants["vision"], int(failed.at_s) + 1
    correct, in_time = counts.correct[second:], counts.in_time[second:]
    assert sum(correct) / sum(in_time) == pytest.approx(0.675, abs=0.03)  # 0.6 before, 0.75 by the second part
