"""A log in segments: whoever begins to read at any of them finds what the whole log says of the windows from there."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from executor.files import summed
from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.errors import LogError
from migrator.execution.loop import Loop
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import runlog
from migrator.log.follow import FollowedLog, RunState
from migrator.log.line import entry_in, without_wall
from migrator.log.records import Change, Record, Snapshot, WindowFinished
from migrator.log.report import Report, report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, ReadLog, RunLog, bytes_of_log, read_log, segments_in
from migrator.log.segments import Past, forget_segments, older_segments, segment_file
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import SHORT, taken_up
from tests.migrator.log import records

CASES: dict[str, dict[str, Any]] = {
    "re-planned": {"planner.replan_every_s": 10, "planner.replan_schedules": 4},
    "pools": {"sharing.pools": "auto"},
    "refused": {"simulation.driver": {"error_share": 0.3, "half_share": 0.2}},
    "others": {"simulation.others": [{"placement": "1g.10gb@6", "from_s": 20, "to_s": 130}]},
    "drift": {
        "retraining": {"required": False, "drift": "compound"},
        "tenants.0.accuracy": [{"before": own, "after": 0.9} for own in (0.6, 0.7, 0.5, 0.8, 0.4, 0.6)],
    },
    "late": {"simulation.start_jitter": 0.9, "tenants.0.retraining.samples": 6000},
}


def run(folder: Path, policy: str = "migrator", **changes: Any) -> ReadLog:
    changes = {**SHORT, "windows": 6, **changes}
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    with RunLog(folder, config_yaml(setting.config, folder)) as log:
        Loop(setting, simulated_parts(setting, traffic, policy_of(policy))).carry_out(log)
    return read_log(folder)


@cache
def made(case: str, roll_windows: int = 432, policy: str = "migrator") -> ReadLog:
    """Copy its folder before you change it."""
    return run(Path(mkdtemp()) / "run", policy, **CASES.get(case, {}), **{"log.roll_windows": roll_windows})


def as_told(log: ReadLog) -> Report:
    """Its report without what plans took by the clock on the wall."""
    report = report_of(log)
    return replace(report, replans=report.replans and replace(report.replans, solve_s=None))


@pytest.mark.parametrize("case", CASES)
def test_a_report_of_segments_is_that_of_one_file(case: str) -> None:
    whole, segmented = made(case), made(case, 1)
    assert [*older_segments(segmented.folder)] == [1, 2, 3, 4, 5]
    assert as_told(segmented) == as_told(whole)
    assert [entry.n for entry in segmented.entries] == [*range(len(segmented.entries))]


@pytest.mark.parametrize(
    ("case", "policy"), [*((case, "migrator") for case in CASES), ("late", "ekya"), ("refused", "ekya")]
)
def test_what_begins_at_any_window_says_of_it_and_those_after_what_the_whole_says(case: str, policy: str) -> None:
    log = made(case, 432, policy)
    windows = report_of(log).windows
    for window in range(len(windows)):
        assert report_of(log.since(window)).windows == windows[window:]


@pytest.mark.parametrize("roll_windows", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_without_its_first_segments_a_log_says_of_its_windows_what_the_whole_says(
    case: str, roll_windows: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made(case, roll_windows).folder, folder)
    windows = report_of(read_log(folder)).windows
    setting, traffic = assemble(read_config(folder / CONFIG_FILE), "small")
    checked = [*RunCheck(read_log(folder), setting, traffic).plans()]
    for path in older_segments(folder).values():
        path.unlink()
        rest = read_log(folder)
        assert report_of(rest).windows == windows[rest.first_window :]
        assert [*RunCheck(rest, setting, traffic).plans()] == [
            plan for plan in checked if plan.window >= rest.first_window
        ]


def test_each_window_is_settled_in_one_segment() -> None:
    lines = (line for one in segments_in(made("re-planned", 2).folder).values() for line in one.splitlines())
    assert [window for line in lines if (window := _settled(line)) is not None] == [*range(6)]


def same(folder: Path) -> list[list[bytes]]:
    """The segments' lines without facts of the wall clock."""
    return [[without_wall(line) for line in raw.splitlines()] for raw in segments_in(folder).values()]


def _settled(line: bytes) -> int | None:
    record = entry_in(line).record
    return record.window if isinstance(record, WindowFinished) else None


def test_a_run_with_fewer_windows_has_one_file(tmp_path: Path) -> None:
    log = run(tmp_path / "run", **{"log.roll_windows": 6})
    assert not older_segments(log.folder)
    assert not log.of(Snapshot)


# --- what is damaged


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(made("re-planned", 2).folder, tmp_path / "run")
    return tmp_path / "run"


def test_a_segment_that_is_missing_between_others_is_told(folder: Path) -> None:
    segment_file(folder, 2).unlink()
    with pytest.raises(LogError, match=r"events.jsonl: line 1: a line is missing between \d+ and \d+"):
        read_log(folder)


def test_a_segment_that_ends_inside_a_line_is_told(folder: Path) -> None:
    path = segment_file(folder, 1)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(LogError, match=r"events-1.jsonl: its last line is not whole"):
        read_log(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told.update(n_instances=told["n_instances"] + 1), "does not follow from the records before it"),
        (lambda told: told["entries"].pop(), "does not follow from the records before it"),
        (lambda told: told["entries"][1].update(n=0), "record 0 has no place in it"),
        (lambda told: told["entries"][1].pop("at_s"), "repeats what is no record: 'at_s'"),
        (lambda told: told["entries"][1].update(kind="what"), "repeats what is no record: Invalid value 'what'"),
        (lambda told: told["entries"].clear(), "a line is missing before"),
    ],
)
def test_a_snapshot_that_does_not_follow_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = folder / EVENTS_FILE
    first, *others = path.read_bytes().splitlines(keepends=True)
    told = json.loads(first)
    told.pop("wall"), told.pop("sum")
    change(told)
    path.write_bytes(b"".join([summed(told) + b"\n", *others]))
    if "does not follow" not in said:
        for older in older_segments(folder).values():
            older.unlink()
    with pytest.raises(LogError, match=said):
        read_log(folder)


# --- kills and restarts


def _killed_at(folder: Path, moment: int) -> bool:
    """Carry the run on in a process that is killed at this call of the borders' file system; whether it was."""
    pid = os.fork()
    if not pid:
        calls = iter(range(10**6))

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*arguments: Any, **named: Any) -> Any:
                if next(calls) == moment:
                    os._exit(9)
                return call(*arguments, **named)

            return counting

        os.link, os.fsync = counted(os.link), counted(os.fsync)
        Path.replace, Path.unlink = counted(Path.replace), counted(Path.unlink)  # type: ignore[method-assign]
        runlog.write_all = counted(runlog.write_all)
        os._exit(0 if taken_up(folder, policy_of("migrator")) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_a_run_that_is_killed_at_any_moment_of_a_border_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    changes = {"windows": 2, "log.roll_windows": 1}
    whole = run(tmp_path / "whole", **changes)
    raw = same(whole.folder)
    moment, seen = 0, set[tuple[str, ...]]()
    folder = tmp_path / "run"
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole.folder, folder)
        older = segment_file(folder, 1)
        (folder / EVENTS_FILE).write_bytes(older.read_bytes())  # all of the first segment, and no second one
        older.unlink()
        if not _killed_at(folder, moment):
            break
        seen.add(tuple(sorted("tmp" if path.name.endswith(".tmp") else path.name for path in folder.iterdir())))
        log = read_log(folder)
        assert [entry.n for entry in log.entries] == [*range(len(log.entries))]
        followed = FollowedLog(folder)
        assert followed.read().entries == log.entries
        assert followed.damage == ""
        taken_up(folder, policy_of("migrator"))
        assert same(folder) == raw
        assert report_of(read_log(folder)) == report_of(whole)
        moment += 1
    assert moment > 8
    assert {("config.yaml", "events.jsonl"), ("config.yaml", "events-1.jsonl", "events.jsonl", "tmp")} <= seen


def test_a_file_system_without_links_has_segments_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    log = run(tmp_path / "run", **{"log.roll_windows": 1})
    assert report_of(log) == report_of(run(tmp_path / "other"))


def test_a_run_that_is_cut_anywhere_in_its_segments_is_carried_out_again_to_the_same_bytes(tmp_path: Path) -> None:
    whole, folder = made("re-planned", 2), tmp_path / "run"
    raw = same(whole.folder)
    rng = random.Random(1)
    for _ in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole.folder, folder)
        last = rng.choice([1, 2, 3])
        path = segment_file(folder, last) if last < 3 else folder / EVENTS_FILE
        held = path.read_bytes()
        for number in range(last, 3):
            segment_file(folder, number).unlink()
        (folder / EVENTS_FILE).write_bytes(held[: rng.randrange(len(held.splitlines()[0]) + 1, len(held))])
        taken_up(folder, policy_of("migrator"))
        assert same(folder) == raw


def test_the_newest_segment_is_enough_to_go_on(folder: Path) -> None:
    whole = read_log(folder)
    with ResumedLog(folder, is_whole=False) as log:
        stands = log.stands
        assert stands.n_instances == whole.n_instances
        assert stands.of(Change)[-1].layout == whole.of(Change)[-1].layout
        assert stands.header == whole.header
        log.take_up()
        assert (log.n_records, log.n_windows) == (1 + whole.entries[-1].n, 2)
    assert read_log(folder) == whole


# --- what is not kept


def test_segments_go_that_ended_before_a_second_and_the_rest_is_a_log(folder: Path) -> None:
    windows = report_of(read_log(folder)).windows
    for before_s, left in ((59.9, [1, 2]), (60.0, [2]), (119.9, [2]), (1e9, [])):
        forget_segments(folder, before_s)
        assert [*older_segments(folder)] == left
        rest = read_log(folder)
        assert report_of(rest).windows == windows[rest.first_window :]


def test_a_run_says_at_each_border_that_it_is_time_to_forget(tmp_path: Path) -> None:
    setting, traffic = assemble(validate_config(changed(SMALL, {**SHORT, "log.roll_windows": 1}), "small"), "small")
    said = list[float]()
    parts = replace(simulated_parts(setting, traffic, policy_of("equal")), forget=said.append)
    with RunLog(tmp_path / "run", config_yaml(setting.config)) as log:
        Loop(setting, parts).carry_out(log)
    assert said == [30.0, 60.0]


def test_the_newest_retrainings_are_repeated_and_the_one_that_is_served_is_among_them() -> None:
    past, header = Past(), records.header(60.0, "a")
    entries = records.log_of(header, *(finished(n, rejected=None if n == 3 else 0.5) for n in range(40))).entries
    for entry in entries:
        past.take(entry)
    snapshot, _ = past.snapshot(40, 2)
    assert [one["window"] for one in snapshot.entries[1:]] == [3, *range(21, 40)]
    assert snapshot.n_trained == {"a": 20}
    again = Past.of(snapshot, [*past.entries, *entries[41:]])
    assert again.snapshot(40, 2) == past.snapshot(40, 2)


def test_a_return_to_older_weights_is_repeated_until_a_retraining_serves() -> None:
    past, back = Past(), records.rolled_back(180.0)
    for entry in records.log_of(records.header(60.0, "a"), finished(1), finished(2), back).entries:
        past.take(entry)
    assert [one["kind"] for one in past.snapshot(4, 1)[0].entries] == ["run_started", *2 * ["finished"], "rolled_back"]
    for rejected, kinds in ((0.1, 1), (None, 0)):
        (entry,) = records.log_of(records.header(60.0, "a"), finished(4, rejected=rejected)).entries[1:]
        past.take(entry)
        assert [one["kind"] for one in past.snapshot(5, 2)[0].entries].count("rolled_back") == kinds


def finished(window: int, **fields: Any) -> records.Json:
    return {**records.finished(window, None, 60.0 * window, "a"), **fields}


# --- who follows it


@pytest.mark.parametrize("seed", range(5))
def test_who_follows_a_log_goes_on_over_its_borders(seed: int, tmp_path: Path) -> None:
    rng, folder = random.Random(seed), tmp_path / "run"
    followed, entries = FollowedLog(folder), list[Any]()
    setting, traffic = assemble(validate_config(changed(SMALL, {**SHORT, "log.roll_windows": 1}), "small"), "small")

    class Watched(RunLog):
        def append(self, record: Record, at_s: float, wall: Any = None) -> int:
            n = super().append(record, at_s, wall)
            if rng.random() < 0.1:
                entries.extend(followed.read().entries)
                assert followed.damage == ""
            return n

    with Watched(folder, config_yaml(setting.config, folder)) as log:
        Loop(setting, simulated_parts(setting, traffic, policy_of("migrator"))).carry_out(log)
    news = followed.read()
    entries += news.entries
    assert (followed.damage, news.state) == ("", RunState.FINISHED)
    assert tuple(entries) == read_log(folder).entries


def test_who_follows_later_begins_with_the_oldest_segment_that_is_there(folder: Path) -> None:
    segment_file(folder, 1).unlink()
    followed = FollowedLog(folder)
    assert followed.read().entries == read_log(folder).entries
    assert followed.read().entries == ()
    assert followed.damage == ""


def test_a_log_that_another_run_has_replaced_is_no_border(folder: Path, tmp_path: Path) -> None:
    followed = FollowedLog(folder)
    followed.read()
    other = tmp_path / "other"
    other.write_bytes(bytes_of_log(folder))
    other.replace(folder / EVENTS_FILE)
    followed.read()
    assert "deleted, moved or replaced" in followed.damage
