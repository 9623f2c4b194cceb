from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import convert, structs

from executor.files import UNFINISHED
from migrator.errors import LogError, RunFolderError
from migrator.log.records import Intent, Interrupted, Record, RunStarted, Wall, WindowStarted
from migrator.log.runlog import EVENTS_FILE, RunLog, free_run_folder, is_being_written, new_run_log, read_log
from tests.migrator.log import records


def test_records_read_back_in_order(tmp_path: Path) -> None:
    written = records.tiny()
    records.write(tmp_path / "run", *written)
    log = read_log(tmp_path / "run")
    assert [entry.n for entry in log.entries] == list(range(len(written)))
    assert [entry.record for entry in log.entries] == [records.record_of(record) for record in written]
    assert [entry.wall.solve_s for entry in log.entries_of(WindowStarted)] == [0.25, 0.5]
    assert not log.torn


INTENT = Intent(window=1, call="create", placement="1g.10gb@0", gi_id=None)


def test_a_record_has_its_number_its_time_and_the_checksum_of_both(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log:
        numbers = [log.append(INTENT, -1.23456789), log.append(Interrupted(), 0.0, Wall(solve_s=0.5))]
    first, second = (tmp_path / "run" / EVENTS_FILE).read_bytes().splitlines()
    body = b'{"n":0,"kind":"intent","at_s":-1.234568,"window":1,"call":"create","placement":"1g.10gb@0","gi_id":null'
    assert numbers == [0, 1]
    assert first == body + b',"sum":"%08x"}' % zlib.crc32(body + b"}")
    wall_sum = b"%08x" % zlib.crc32(b'{"solve_s":0.5}')
    assert json.loads(second)["wall"] == {"solve_s": 0.5, "sum": wall_sum.decode()}


def test_wall_clock_facts_change_nothing_else(tmp_path: Path) -> None:
    for name, took_s in (("one", 0.5), ("two", 0.75)):
        with RunLog(tmp_path / name, "") as log:
            log.append(INTENT, 0.0, Wall(solve_s=took_s))
    one, two = (json.loads((tmp_path / name / EVENTS_FILE).read_text()) for name in ("one", "two"))
    assert one.pop("wall") != two.pop("wall")
    assert one == two


def test_time_never_falls(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log:
        log.append(INTENT, 2.0)
        with pytest.raises(ValueError, match=r"intent at 1\.0 s: .* time never falls"):
            log.append(INTENT, 1.0)


def test_a_log_in_which_time_falls_is_refused(tmp_path: Path) -> None:
    records.write(tmp_path / "run", {**records.header(3.0), "at_s": 2.0})
    path = tmp_path / "run" / EVENTS_FILE
    with RunLog(tmp_path / "other", "") as log:
        log.append(Interrupted(), 1.0)
        log.append(Interrupted(), 1.0)
    path.write_bytes(path.read_bytes() + (tmp_path / "other" / EVENTS_FILE).read_bytes().splitlines(keepends=True)[1])
    with pytest.raises(LogError, match=r"line 2: its time, 1\.0 s, lies before that of the line above, 2\.0 s"):
        read_log(tmp_path / "run")


def test_a_new_run_is_on_the_disk_with_its_config_before_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, run = os.fsync, tmp_path / "runs" / "run"

    def seen(fd: int) -> None:
        synced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path))
        assert (run / EVENTS_FILE).read_bytes() == b""
        fsync(fd)

    monkeypatch.setattr("os.fsync", seen)
    with RunLog(run, "seed: 1\n"):
        first, *others = synced
        assert re.fullmatch(f"runs/run/{UNFINISHED}", first)  # in the config's place before its folder is synced
        assert others == ["runs/run", "runs", "."]


def test_a_folder_that_may_be_written_but_not_read_takes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drop").mkdir()
    opens = os.open

    def refused(path: Path, flags: int, *rest: int) -> int:
        if path == tmp_path / "drop":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opens(path, flags, *rest)

    monkeypatch.setattr("os.open", refused)
    RunLog(tmp_path / "drop" / "run", "seed: 1\n").close()
    assert (tmp_path / "drop" / "run" / EVENTS_FILE).exists()


BEGUN_OR_NOT_OURS = [
    {EVENTS_FILE: b'{"n":0,"kind":"run_started"}\n', "config.yaml": b"seed: 1\n"},
    {"config.yaml": b"seed: 1\n"},
    {EVENTS_FILE: b"", "notes.txt": b"mine"},
    {"live/weights": b"x"},
]
UNBEGUN = [
    {},
    {EVENTS_FILE: b""},
    {EVENTS_FILE: b"", "config.yaml": b"seed: 2\n"},
    {EVENTS_FILE: b'{"n":0,"kind":"run_st', "config.yaml": b"seed: 2\n", "live/weights": b"x", "live-2/door": b"x"},
    {EVENTS_FILE: b"", ".migrator-0123456789abcdef.tmp": b"seed"},
    {EVENTS_FILE: b"", "progress.json": b"{}"},
]


def left_in(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


@pytest.mark.parametrize("files", BEGUN_OR_NOT_OURS)
def test_a_folder_in_which_a_run_was_begun_or_that_is_not_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    folder = left_in(tmp_path / "run", files)
    with pytest.raises(RunFolderError, match="exists already"):
        RunLog(folder, "")
    left = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert left == files


@pytest.mark.parametrize("files", UNBEGUN)
def test_a_run_begins_where_none_was_begun(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = left_in(tmp_path / "run", files)
    with RunLog(folder, "seed: 1\n") as log:
        records.append(log, records.header(3.0))
    assert [entry.record.kind for entry in read_log(folder).entries] == ["run_started"]
    assert (folder / "config.yaml").read_text() == "seed: 1\n"


def test_whoever_looks_whether_a_log_is_written_does_not_keep_a_run_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in(tmp_path / "run", {EVENTS_FILE: b""})
    with (tmp_path / "run" / EVENTS_FILE).open("rb") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        waited: list[float] = []

        def wait(wait_s: float) -> None:
            waited.append(wait_s)
            if len(waited) == 3:
                fcntl.flock(looker, fcntl.LOCK_UN)

        monkeypatch.setattr("migrator.log.runlog.time.sleep", wait)
        RunLog(tmp_path / "run", "").close()
    assert len(waited) == 3


def test_a_run_that_is_being_prepared_keeps_its_folder(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "first"), pytest.raises(RunFolderError, match="another process still writes it"):
        RunLog(tmp_path / "run", "second")
    assert (tmp_path / "run" / "config.yaml").read_text() == "first"


def test_a_run_that_was_begun_meanwhile_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens = RunLog._open

    def begun_meanwhile(self: RunLog, folder: Path) -> None:
        (folder / EVENTS_FILE).write_bytes(b"{}\n")
        opens(self, folder)

    monkeypatch.setattr(RunLog, "_open", begun_meanwhile)
    with pytest.raises(RunFolderError, match="exists already"):
        RunLog(tmp_path / "run", "seed: 1\n")
    assert not (tmp_path / "run" / "config.yaml").exists()


def deleted(folder: Path) -> None:
    shutil.rmtree(folder)


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replaced(folder: Path) -> None:
    (folder / EVENTS_FILE).unlink()
    (folder / EVENTS_FILE).write_bytes(b"")


@pytest.mark.parametrize("loss", [deleted, moved, replaced])
def test_a_log_without_its_name_takes_no_more_records(tmp_path: Path, loss: Callable[[Path], None]) -> None:
    with RunLog(tmp_path / "run", "") as log:
        log.append(INTENT, 0.0)
        loss(tmp_path / "run")
        with pytest.raises(OSError, match="deleted, moved or replaced while the run wrote it") as caught:
            log.append(INTENT, 0.0)
    assert caught.value.filename == str(tmp_path / "run" / EVENTS_FILE)


@pytest.mark.parametrize("n_left", [0, 10])
def test_a_log_that_was_cut_takes_no_more_records(tmp_path: Path, n_left: int) -> None:
    path = tmp_path / "run" / EVENTS_FILE
    with RunLog(tmp_path / "run", "") as log:
        log.append(INTENT, 0.0)
        os.truncate(path, n_left)
        for _ in range(2):
            with pytest.raises(OSError, match="emptied or cut short while the run wrote it") as caught:
                log.append(INTENT, 0.0)
    assert (caught.value.filename, path.stat().st_size) == (str(path), n_left)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be created"):
        RunLog(tmp_path / "file" / "run", "")


def test_a_write_cut_short_does_not_stay_in_the_middle(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log:
        records.append(log, records.header(3.0))
        with (tmp_path / "run" / EVENTS_FILE).open("ab") as stray:
            stray.write(b'{"kind":"cha')
        assert log.append(Interrupted(), 0.0) == 1
    assert [entry.record.kind for entry in read_log(tmp_path / "run").entries] == ["run_started", "interrupted"]


class LastPart(bytes):
    """A line; Ctrl-C comes when it has been written and its rest is asked for."""

    def __getitem__(self, rest: Any) -> Any:
        raise KeyboardInterrupt


def test_what_was_whole_as_ctrl_c_came_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunLog(tmp_path / "run", "") as log:
        monkeypatch.setattr("executor.files.memoryview", LastPart, raising=False)
        with pytest.raises(KeyboardInterrupt):
            records.append(log, records.header(3.0))
        monkeypatch.undo()
        assert not log.is_empty
        assert log.append(Interrupted(), 0.0) == 1
    assert [entry.record.kind for entry in read_log(tmp_path / "run").entries] == ["run_started", "interrupted"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"not json\n", "line 1: it is no JSON"),
        (b"[1]\n", "line 1: it is no record"),
        (b'{"kind":["x"]}\n', "line 1: it is no record"),
        (b'{"kind":"run_started","schema":1}\n', "line 1: it is no whole record of this program"),
        (records.lines_of({"kind": "interrupted"}), "does not start with a run_started record of schema 4"),
        (b"[" * 100_000 + b"\n", "line 1: it is no JSON"),
        (b'{"n":0,"kind":"x","at_s":NaN,"sum":"0"}\n', "line 1: checksum does not match"),
        (b'{"n":0,"kind":"x","at_s":0,"sum":"0","wall":1}\n', "line 1: checksum does not match"),
        (b'{"n":0,"kind":"x","at_s":0,"sum":"0","wall":{}}\n', "line 1: checksum does not match"),
        (b"x", "no whole record"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, lines: bytes, message: str) -> None:
    (tmp_path / EVENTS_FILE).write_bytes(lines)
    with pytest.raises(LogError, match=message):
        read_log(tmp_path)


@pytest.mark.parametrize("schema", [3, 5])
def test_a_log_of_another_schema_is_refused(tmp_path: Path, schema: int) -> None:
    records.write(tmp_path / "run", records.header(3.0, schema=schema))
    with pytest.raises(LogError, match="does not start with a run_started record of schema 4"):
        read_log(tmp_path / "run")


def test_a_folder_without_a_log_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no run"):
        read_log(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_never_written(tmp_path: Path, value: float) -> None:
    with RunLog(tmp_path / "run", "") as log:
        with pytest.raises(ValueError, match="Out of range float"):
            log.append(Interrupted(reason="none", blind_from_s=value), 0.0)
        with pytest.raises(ValueError, match="Out of range float"):
            log.append(INTENT, 0.0, Wall(solve_s=value))
    assert (tmp_path / "run" / EVENTS_FILE).read_bytes() == b""


HEADER = convert(records.header(3.0), RunStarted)


@pytest.mark.parametrize(
    ("record", "wall", "told"),
    [
        (structs.replace(HEADER, time_limit_s=True), None, r"run_started\.time_limit_s: expected `float . null`"),
        (structs.replace(HEADER, name="\ud800"), None, "run_started is no JSON"),
        (structs.replace(INTENT, window=-1), None, r"intent\.window: expected `int` >= 0"),
        (INTENT, Wall(solve_s=-1.0), r"intent\.wall\.solve_s: expected `float` >= 0"),
    ],
)
def test_what_no_reader_takes_is_never_written(tmp_path: Path, record: Record, wall: Wall | None, told: str) -> None:
    with RunLog(tmp_path / "run", "") as log, pytest.raises(ValueError, match=told):
        log.append(record, 0.0, wall)
    assert (tmp_path / "run" / EVENTS_FILE).read_bytes() == b""


def test_a_number_of_numpy_s_is_written_as_any_other(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log:
        log.append(Interrupted(reason="none", blind_from_s=np.float64(0.1)), 0.0)
    assert b'"blind_from_s":0.1,' in (tmp_path / "run" / EVENTS_FILE).read_bytes()


def test_free_folder_counts_up(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_run_folder(tmp_path, "demo") == tmp_path / "demo-3"


def test_a_pipe_in_the_place_of_a_log_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / EVENTS_FILE)
    with pytest.raises(LogError, match="cannot be read: it is a pipe; a file is needed"):
        read_log(tmp_path)
    assert not is_being_written(tmp_path)


def test_a_run_whose_folder_another_has_just_taken_gets_the_next(tmp_path: Path, monkeypatch) -> None:
    others: list[RunLog] = []

    def taken_meanwhile(root: Path, name: str) -> Path:
        free = free_run_folder(root, name)
        if not others:
            others.append(RunLog(free, "other"))
        return free

    monkeypatch.setattr("migrator.log.runlog.free_run_folder", taken_meanwhile)
    with new_run_log(tmp_path, "demo", "own") as log, others[0]:
        assert log.folder == tmp_path / "demo-2"
    assert [(tmp_path / name / "config.yaml").read_text() for name in ("demo", "demo-2")] == ["other", "own"]


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunFolderError, match="cannot be created"):
        new_run_log(tmp_path / "runs", "demo", "")


def test_what_the_disk_refuses_names_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunLog(tmp_path / "run", "") as log:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            log.sync()
    assert caught.value.filename == str(tmp_path / "run" / EVENTS_FILE)


def test_a_full_disk_is_no_fault_of_the_folder_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OSError, match="No space left"):
        RunLog(tmp_path / "run", "")
