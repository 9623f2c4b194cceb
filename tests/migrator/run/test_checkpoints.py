"""Weights that are served before their retraining ends, in whole simulated runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from migrator.config import config_yaml, validate_config
from migrator.log.runlog import ReadLog, RunLog, read_log
from migrator.run.policy_run import PolicyRun
from migrator.run.seams import Failed, Happening
from migrator.setting import assemble
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.run.test_seams import faulty

CHECKPOINTS: dict[str, Any] = {
    "windows": 1,
    "retraining.checkpoints": [0.25, 0.5],
    "retraining.curve": "linear",
    "tenants.0.retraining.samples": 8000,
}


@cache
def served(swap_s: float, checkpoint_s: float = 0.0, *, fails: bool = False) -> ReadLog:
    changes = CHECKPOINTS | {"retraining.swap_s": swap_s, "retraining.checkpoint_s": checkpoint_s}
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    backend = faulty(setting, dies_after_its_first_checkpoint) if fails else None
    with TemporaryDirectory() as folder:
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            PolicyRun(setting, traffic, backend=backend).carry_out(log)
        return read_log(Path(folder) / "run")


def dies_after_its_first_checkpoint(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del number
    if owner.task is Task.INFERENCE:
        return own
    return [*own[:2], Failed((own[1].at_s + own[2].at_s) / 2, own[0].instance_id, "killed")]


def trained_s(log: ReadLog) -> tuple[float, float]:
    """When the retraining began to train, and ended."""
    ready = next(item for item in log.of_kind("ready") if item["task"] == "retraining")
    return ready["ready_s"], log.of_kind("finished")[0]["finish_s"]


@pytest.mark.parametrize("checkpoint_s", [0.0, 1.5])
def test_each_part_of_a_retraining_is_served_when_it_is_done(checkpoint_s: float) -> None:
    log = served(0.0, checkpoint_s)
    begun_s, ended_s = trained_s(log)
    told = log.of_kind("checkpoint")
    assert [item["part"] for item in told] == [0.25, 0.5]
    assert [item["accuracy"] for item in told] == pytest.approx([0.675, 0.75])  # from 0.6 to 0.9
    assert [item["at_s"] - begun_s for item in told] == pytest.approx([(ended_s - begun_s) * f for f in (0.25, 0.5)])


def test_writing_checkpoints_makes_the_retraining_longer() -> None:
    without, with_ = (trained_s(served(0.0, checkpoint_s)) for checkpoint_s in (0.0, 1.5))
    assert with_[1] - with_[0] == pytest.approx(without[1] - without[0] + 2 * 1.5)


def test_servers_pause_while_they_take_weights_over() -> None:
    log = served(3.0)
    (window,) = log.of_kind("window_finished")
    in_time, arrivals = (window["tenants"]["vision"][name] for name in ("in_time", "arrivals"))
    assert arrivals[0] > 0
    for item in (*log.of_kind("checkpoint"), *log.of_kind("finished")):
        second = int(item["at_s"]) + 1  # the whole of it lies in the pause, which is longer than the SLO
        assert in_time[second] == 0
        assert arrivals[second] > 0
    assert sum(in_time) < sum(served(0.0).of_kind("window_finished")[0]["tenants"]["vision"]["in_time"])


def test_a_retraining_that_fails_leaves_its_last_checkpoint_in_service() -> None:
    log = served(0.0, fails=True)
    (told,) = log.of_kind("checkpoint")
    (failed,) = (item for item in log.of_kind("failed") if item["task"] == "retraining")
    assert (told["accuracy"], failed["at_s"] > told["at_s"], log.of_kind("finished")) == (0.675, True, ())
    (window,) = log.of_kind("window_finished")
    correct, in_time = (window["tenants"]["vision"][name][int(failed["at_s"]) + 1 :] for name in ("correct", "in_time"))
    assert sum(correct) / sum(in_time) == pytest.approx(0.675, abs=0.03)  # 0.6 before, 0.75 by the second part
