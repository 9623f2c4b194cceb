"""A log that is followed gives what one gives that is read at once, however little of it comes at a time."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log.follow import FollowedLog, RunState
from migrator.log.progress import OpenCounts, Progress
from migrator.log.records import Interrupted, RunFinished
from migrator.log.report import report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import EVENTS_FILE, PROGRESS_FILE, RunLog, identity_of, log_in, read_log
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import SHORT
from tests.migrator.log import records

ROOT = Path(__file__).parents[3]

QUICK: dict[str, Any] = {
    "windows": 2,
    "step_s": 4,
    "planner.max_schedules": 20,
    "planner.replan_every_s": 50,
    "planner.replan_schedules": 4,
}
"""Of the quickstart: less to plan."""

FAULTS: dict[str, Any] = {**SHORT, "simulation.driver": {"error_share": 0.3, "half_share": 0.2}}


def log_of(config: Any, folder: Path) -> bytes:
    setting, traffic = assemble(config, "run")
    with RunLog(folder, config_yaml(setting.config)) as log:
        Loop(setting, simulated_parts(setting, traffic, policy_of("migrator"))).carry_out(log)
    return (folder / EVENTS_FILE).read_bytes()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("runs")
    quick = read_config(ROOT / "configs/quickstart.yaml", [f"{key}={value}" for key, value in QUICK.items()])
    return {
        "quickstart": log_of(quick, folder / "quickstart"),
        "faults": log_of(validate_config(changed(SMALL, FAULTS), "faults"), folder / "faults"),
        "live": (ROOT / "tests/golden/live" / EVENTS_FILE).read_bytes(),
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that is not begun."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def tiny(tmp_path: Path) -> bytes:
    return records.write(tmp_path / "tiny", *records.tiny())


@pytest.mark.parametrize("name", ["quickstart", "faults", "live"])
def test_every_prefix_of_a_log_followed_byte_by_byte_is_as_it_is_read(
    logs: dict[str, bytes], name: str, run: Path
) -> None:
    raw, rng = logs[name], random.Random(1)
    looked_at = {*rng.sample(range(len(raw)), 40), *(place + n for n in (0, 1) for place in ends(raw))}
    followed, entries = FollowedLog(run), []
    with (run / EVENTS_FILE).open("wb", buffering=0) as file:
        for size in range(1, len(raw) + 1):
            file.write(raw[size - 1 : size])
            news = followed.read()
            entries += news.entries
            assert (followed.damage, len(entries)) == ("", raw.count(b"\n", 0, size))
            if size in looked_at and entries:
                assert tuple(entries) == log_in(raw[:size], run).entries
                ending = report_of(log_in(raw[:size], run)).ending
                assert news.state is {"torn": RunState.LEFT, "finished": RunState.FINISHED}[ending]
    assert isinstance(entries[-1].record, RunFinished)


def ends(raw: bytes) -> list[int]:
    """Where lines end, from 1."""
    return [place + 1 for place, byte in enumerate(raw) if byte == ord("\n")]


def test_damage_of_any_line_is_named_as_it_is_where_all_is_read(tiny: bytes, run: Path) -> None:
    lines = tiny.splitlines(keepends=True)
    for number in range(1, len(lines)):
        altered = [*lines[:number], lines[number].replace(b'"', b"'", 1), *lines[number + 1 :]]
        (run / EVENTS_FILE).write_bytes(b"".join(lines[:1]))
        followed = FollowedLog(run)
        followed.read()
        (run / EVENTS_FILE).write_bytes(b"".join(altered))
        news = followed.read()
        assert (news.state, len(news.entries)) == (RunState.DAMAGED, number - 1)
        with pytest.raises(Exception, match=f"line {number + 1}:") as told:
            read_log(run)
        assert followed.damage == str(told.value)
        assert followed.read().entries == ()


@pytest.mark.parametrize("what", ["deleted", "replaced", "shortened"])
def test_a_log_that_is_not_there_any_more_is_damaged_for_good(tiny: bytes, run: Path, what: str) -> None:
    path = run / EVENTS_FILE
    path.write_bytes(tiny)
    followed = FollowedLog(run)
    assert followed.read().state is RunState.FINISHED
    match what:
        case "deleted":
            path.unlink()
        case "replaced":
            (run / "other").write_bytes(tiny)
            (run / "other").replace(path)
        case _:
            os.truncate(path, len(tiny) // 2)
    assert followed.read().state is RunState.DAMAGED
    assert str(path) in followed.damage
    path.write_bytes(tiny)
    assert followed.read().state is RunState.DAMAGED


def test_a_byte_of_the_past_that_changes_is_found(tiny: bytes, run: Path) -> None:
    path = run / EVENTS_FILE
    *before, window_finished, _ = tiny.splitlines(keepends=True)
    path.write_bytes(b"".join(before))
    followed = FollowedLog(run)
    followed.read()
    path.write_bytes(b"".join([before[0].replace(b"tiny", b"tony"), *before[1:], window_finished]))
    assert followed.read().state is RunState.DAMAGED
    assert "was altered after it was read" in followed.damage


def test_a_service_that_was_stopped_says_so(tmp_path: Path) -> None:
    header, *begun = records.tiny()[:17]
    records.write(tmp_path / "run", {**header, "service": True}, *begun, {"kind": "service_stopped", "at_s": 3.0})
    assert FollowedLog(tmp_path / "run").read().state is RunState.STOPPED


def test_an_interrupted_run_that_is_resumed_goes_on_without_its_end(tmp_path: Path) -> None:
    begun = records.tiny()[:17]
    raw = records.write(tmp_path / "run", *begun, {"kind": "interrupted"})
    followed = FollowedLog(tmp_path / "run")
    first = followed.read()
    assert (first.state, first.is_resumed) == (RunState.INTERRUPTED, False)
    assert isinstance(first.entries[-1].record, Interrupted)
    whole = records.write(tmp_path / "whole", *records.tiny())
    left = len(raw.splitlines(keepends=True)[-1])
    assert whole.startswith(raw[:-left])
    with (tmp_path / "run" / EVENTS_FILE).open("r+b") as file:  # as a resumed run does it
        file.truncate(len(raw) - left)
        file.seek(0, os.SEEK_END)
        file.write(whole[len(raw) - left :])
    news = followed.read()
    assert (news.state, news.is_resumed, followed.damage) == (RunState.FINISHED, True, "")
    assert first.entries[:-1] + news.entries == read_log(tmp_path / "run").entries


def test_a_log_that_a_process_writes_is_that_of_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    records.write(folder, *records.tiny()[:5])
    followed = FollowedLog(folder)
    assert followed.read().state is RunState.LEFT
    with ResumedLog(folder):
        assert followed.read().state is RunState.RUNNING
    assert followed.read().state is RunState.LEFT


def progress_of(folder: Path, **changes: Any) -> Progress:
    raw = (folder / EVENTS_FILE).read_bytes()
    lines = raw.splitlines(keepends=True)
    counts = OpenCounts(in_time=3, late=2, dropped=1, waiting=4, right=2)
    known = {"log": identity_of(lines[0]), "record": len(lines) - 1, "wall_s": time.time(), "served_s": 1.0}
    return Progress(**{**known, "tenants": {"a": counts}, **changes})


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("as it is", {}),
        ("of another run", {"log": "00000000"}),
        ("of more than the log has", {"record": 100}),
        ("before the last window was settled", {"record": 18}),
        ("older than the log", {"wall_s": 0.0}),
        ("half", {}),
        ("missing", {}),
        ("a list", {}),
    ],
)
def test_what_no_windows_end_has_told_is_given_only_where_it_is_of_the_log_as_it_is(
    tmp_path: Path, what: str, changes: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    records.write(folder, *records.tiny()[:-1])
    assert read_log(folder).entries[-1].record.kind == "window_finished"
    with ResumedLog(folder):
        progress = progress_of(folder, **changes)
        raw = {"half": progress.as_json[:-9], "a list": b"[" * 10**5}.get(what, progress.as_json)
        if what != "missing":
            (folder / PROGRESS_FILE).write_bytes(raw)
        assert FollowedLog(folder).read().progress == (progress if what == "as it is" else None)
    assert FollowedLog(folder).read().progress is None  # nobody writes it any more


def test_a_run_in_real_time_that_has_stopped_to_say_it_is_not_believed(tmp_path: Path) -> None:
    for backend in (None, "nvml"):
        folder = tmp_path / str(backend)
        records.write(folder, {**records.header(3.0), "backend": backend} if backend else records.header(3.0))
        os.utime(folder / EVENTS_FILE, (100.0, 100.0))
        with ResumedLog(folder):
            (folder / PROGRESS_FILE).write_bytes(progress_of(folder, wall_s=100.0).as_json)
            assert (FollowedLog(folder).read().progress is None) is (backend is not None)


def test_a_run_that_is_taken_up_forgets_what_was_counted_when_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    records.write(folder, *records.tiny()[:5])
    (folder / PROGRESS_FILE).write_bytes(progress_of(folder).as_json)
    with ResumedLog(folder):
        assert FollowedLog(folder).read().progress is None
