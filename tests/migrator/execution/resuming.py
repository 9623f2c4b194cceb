"""Runs that are cut off and taken up again, and whether anybody can tell afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.execution.loop import Loop
from migrator.execution.replay import replayed
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log.records import Wall
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, RunLog
from planner.policies.policy import AnyPolicy
from tests.migrator.conftest import SMALL, changed

SHORT: dict[str, Any] = {
    "window_s": 30,
    "windows": 3,
    "tenants.0.retraining.samples": 300,
    "planner.max_schedules": 2,
    "simulation": {"start_jitter": 0.3, "service_jitter": 0.2},
}
"""Changes of the small config after which a run takes some tenths of a second, and depends on what chance decides."""


def begun(
    folder: Path, policy: AnyPolicy, *, changes: dict[str, Any] | None = None, limit_s: float | None = None
) -> bytes:
    """A whole run in ``folder``; its log."""
    setting, traffic = assemble(validate_config(changed(SMALL, SHORT | (changes or {})), "small"), "small")
    run = Loop(setting, simulated_parts(setting, traffic, policy, time_limit_s=limit_s))
    with RunLog(folder, config_yaml(setting.config, folder)) as log:
        run.carry_out(log, Wall(version="1"))
    return (folder / EVENTS_FILE).read_bytes()


def resumed(
    log: ResumedLog, setting: Setting, traffic: RecordedTraffic, policy: AnyPolicy, *, is_own: bool = False
) -> Loop:
    """The run of the log, to be carried out into it again."""
    policy = replayed(log.stands, policy, is_own=is_own)
    return Loop(setting, simulated_parts(setting, traffic, policy, time_limit_s=log.stands.header.time_limit_s))


def taken_up(folder: Path, policy: AnyPolicy, *, is_own: bool = False) -> bytes:
    """The run in ``folder`` resumed, to its end; its log."""
    with ResumedLog(folder) as log:
        setting, traffic = assemble(read_config(folder / CONFIG_FILE), "small")
        resumed(log, setting, traffic, policy, is_own=is_own).carry_out(log, Wall(version="2"))
    return (folder / EVENTS_FILE).read_bytes()


def cuts(whole: bytes) -> Iterator[bytes]:
    """The log cut after each of its records but the last, and inside each line but the first."""
    lines = whole.splitlines(keepends=True)
    for n in range(1, len(lines)):
        before = b"".join(lines[:n])
        yield from (before, before + lines[n][: 1 + n * 7 % (len(lines[n]) - 1)])


def same(log: bytes) -> bytes:
    """The log without facts of the wall clock."""
    return re.sub(rb',"wall":\{[^}]*\}', b"", log)
