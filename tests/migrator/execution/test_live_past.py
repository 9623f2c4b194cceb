"""What forecasts know of clients: each second once, over kills and restarts, and the same when they are made again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.config.reading import config_yaml, validate_config
from migrator.config.sections import LogConfig
from migrator.execution.loop import Loop, View
from migrator.execution.parts import parts_on_instances
from migrator.execution.real import joining
from migrator.execution.reposing import CheckedPlan, RunCheck
from migrator.execution.simulated import simulated_backend
from migrator.inputs import arrival_store, arrivals
from migrator.inputs.arrival_store import ARRIVALS, UNKNOWN, ArrivalStore
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log.line import Entry, entry_in
from migrator.log.records import PlanRevised, Record, WindowFinished, WindowStarted
from migrator.log.report import report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import ReadLog, RunLog, arrival_sums, read_log, segments_in
from migrator.log.segments import older_segments
from migrator.views.as_json import report_to_json
from migrator.views.report import alarms
from planner.policies.ours import Migrator
from tests.migrator.conftest import SMALL, changed
from workloads.arrays import IntArray

WINDOW_S, WINDOWS = 20, 4

CONFIG = {
    "gpu.backend": "nvml",  # by its log; the GPU is simulated, and so is time
    "window_s": WINDOW_S,
    "windows": WINDOWS,
    "forecast.history_s": 30,
    "planner": {"max_schedules": 8, "planning_s": 2, "replan_every_s": 5},
    "tenants.0.retraining": None,
    "tenants.0.arrivals.rate_rps": 500.0,
    "tenants.1.accuracy": 0.5,
}


class KilledError(Exception):
    """The process is gone, with whatever it was about to do."""


@dataclass
class Door(View):
    """Stands in for front door and dispatcher: what is recorded is what clients offer; it is told when it pleases."""

    traffic: LiveTraffic
    counts: IntArray
    opens_s: float
    killed_s: float = math.inf
    lags: Sequence[int] = (0,)

    def reached(self, now_s: float, *_: object) -> None:
        if now_s >= self.killed_s:
            raise KilledError
        if now_s >= self.opens_s:
            self.traffic.has_door(max(1, math.ceil(self.opens_s)))
        self.tell(math.floor(now_s) - 1 - self.lags[round(now_s) % len(self.lags)])

    def tell(self, before_s: int) -> None:
        for second in range(max(self.traffic.closed_s, 0), min(before_s, len(self.counts))):
            for name, n in zip(("vision", "language"), self.counts[second].tolist(), strict=True):
                self.traffic.take(name, second, n // 2)
                self.traffic.take(name, second, n)
        self.traffic.close(before_s)


@pytest.fixture(scope="module")
def assembled() -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, CONFIG), "small"), "small")


def counts_of(recorded: RecordedTraffic) -> IntArray:
    """What comes in each second, ``(n_seconds, 2)``."""
    return np.stack([recorded.rate_in(second) for second in range(WINDOWS * WINDOW_S)]).astype(np.int64)


def stored(folder: Path, setting: Setting) -> ArrivalStore:
    def damaged(said: str) -> None:
        raise AssertionError(said)

    return ArrivalStore(folder / ARRIVALS, [tenant.name for tenant in setting.tenants], damaged)


def live(folder: Path, setting: Setting, recorded: RecordedTraffic) -> LiveTraffic:
    past = [np.full(30, 5), np.full(30, 90)]
    own = LiveTraffic([tenant.name for tenant in setting.tenants], recorded.origins, past)
    own.keep_in(stored(folder, setting))
    return own


def life(
    folder: Path,
    assembled: tuple[Setting, RecordedTraffic],
    killed_s: float = math.inf,
    door_after_s: float = 0.0,
    lags: Sequence[int] = (0,),
    *,
    is_whole: bool = True,
) -> ReadLog:
    """One process of the run in the folder: the first one, or one that goes on, from the newest segment or all."""
    setting, recorded = assembled
    is_new = not folder.exists()
    with (
        RunLog(folder, config_yaml(setting.config, folder)) if is_new else ResumedLog(folder, is_whole=is_whole)
    ) as log:
        joins = None
        if isinstance(log, ResumedLog):
            joins = joining(log.stands, setting)
            log.take_up()
            if joins.window >= WINDOWS:
                return log.stands
        traffic = live(folder, setting, recorded)
        begins_s = 0.0 if joins is None else joins.window * WINDOW_S - 3.0
        door = Door(traffic, counts_of(recorded), begins_s + door_after_s, killed_s, lags)
        traffic.keep_in(stored(folder, setting), door.tell)
        parts = parts_on_instances(setting, recorded, Migrator(), simulated_backend(setting), joins=joins)
        with suppress(KilledError):
            Loop(setting, replace(parts, traffic=traffic), door).carry_out(log)
    return read_log(folder)


def forecasts_again(folder: Path, assembled: tuple[Setting, RecordedTraffic]) -> list[CheckedPlan]:
    """What a check says that makes each forecast again from what is stored."""
    setting, recorded = assembled
    traffic, log = live(folder, setting, recorded), read_log(folder)
    store = stored(folder, setting)
    store.hold_against(arrival_sums(log))
    traffic.keep_in(store)
    return list(RunCheck(log, setting, traffic).plans())


@pytest.mark.slow
def test_forecasts_are_made_again_from_what_was_stored(tmp_path: Path, assembled) -> None:
    log = life(tmp_path / "run", assembled, lags=(0, 5, 1, 9, 0))
    found = forecasts_again(tmp_path / "run", assembled)
    assert [item.reason for item in found] == [""] * len(found)
    assert len(found) == WINDOWS + len(log.of(PlanRevised)) > WINDOWS
    told = [started.forecast for started in log.of(WindowStarted)]
    assert [(one.unknown_s, one.expected_s, one.known_s) for one in told[:3]] == [
        (0, 30, None),
        (1, 12, None),
        (0, 0, None),
    ]
    assert all(len(closing.arrival_sums) == 2 for closing in log.settled.values())


def test_a_run_that_goes_on_knows_the_past_but_for_the_outage(tmp_path: Path, assembled) -> None:
    life(tmp_path / "run", assembled, killed_s=27.0)
    log = life(tmp_path / "run", assembled)
    told = log.of(WindowStarted)[2]
    assert (told.window, told.forecast.known_s, told.forecast.unknown_s) == (2, 25, 13)
    again = [item.reason for item in forecasts_again(tmp_path / "run", assembled)]
    assert again == [""] * len(again)
    report = report_of(log)
    assert report_to_json(report)["unknown_s"] == {1: 1, 2: 13, 3: 9}
    (said,) = (line for line in alarms(report) if "nobody counted" in line)
    assert "which were filled in forecasts of 3 windows, at most 13 s (window 2)" in said


@contextmanager
def short_days() -> Iterator[None]:
    """As if a day had 25 seconds, so that runs have some, and outages a day before."""
    with patch.object(arrival_store, "DAY_S", 25), patch.object(arrivals, "DAY_S", 25):
        yield


def every_segment_is_enough(folder: Path, assembled: tuple[Setting, RecordedTraffic], whole: list[CheckedPlan]) -> None:
    """What is counted and checked of the windows from a segment on is what the ``whole`` log says of them."""
    log = read_log(folder)
    windows = report_of(log).windows
    settled = [
        sorted({entry.record.window for entry in log_in_lines(raw) if isinstance(entry.record, WindowFinished)})
        for raw in segments_in(folder).values()
    ]
    assert [window for own in settled for window in own] == sorted(log.settled)  # each in one of them
    for path in [*older_segments(folder).values()]:
        path.unlink()
        rest = read_log(folder)
        assert list(report_of(rest).windows) == [one for one in windows if one.window >= rest.first_window]
        assert forecasts_again(folder, assembled) == [one for one in whole if one.window >= rest.first_window]


def log_in_lines(raw: bytes) -> list[Entry[Record]]:
    return [entry_in(line) for line in raw.splitlines()]


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    kills=st.lists(st.floats(1.0, 70.0), max_size=2).map(sorted),
    door_after_s=st.floats(0.0, 5.0),
    lags=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    roll_windows=st.integers(1, WINDOWS),
    is_whole=st.booleans(),
)
def test_each_second_is_stored_once_and_each_forecast_can_be_made_again(
    tmp_path_factory: pytest.TempPathFactory,
    assembled,
    kills: list[float],
    door_after_s: float,
    lags: list[int],
    roll_windows: int,
    is_whole: bool,
) -> None:
    folder = tmp_path_factory.mktemp("live") / "run"
    setting, recorded = assembled
    config = setting.config.model_copy(update={"log": LogConfig(roll_windows=roll_windows)})
    assembled = replace(setting, config=config), recorded
    with short_days():
        for killed_s in (*kills, math.inf):
            life(folder, assembled, killed_s, door_after_s, lags, is_whole=is_whole)
        again = forecasts_again(folder, assembled)
        assert [item.reason for item in again if item.is_planned] == [""] * sum(item.is_planned for item in again)
        every_segment_is_enough(folder, assembled, again)
        seconds = stored(folder, setting).read(0, WINDOWS * WINDOW_S)
    known = seconds[:, 0] != UNKNOWN
    assert (seconds[known] == counts_of(recorded)[known]).all()
    assert ((seconds[:, 0] == UNKNOWN) == (seconds[:, 1] == UNKNOWN)).all()
    files = (folder / ARRIVALS).glob("[0-9]*-vision")
    assert sum(np.fromfile(file, np.int64).astype(bool).sum() for file in files) == known.sum()
