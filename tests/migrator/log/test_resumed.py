"""A log that is gone on with: what stands is compared, what is new is appended, and nothing is written before that."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import LogError, RunFolderError
from migrator.log.records import Interrupted
from migrator.log.resumed import ResumedLog, first_difference
from migrator.log.runlog import EVENTS_FILE, RunLog, read_log
from tests.migrator.log import records


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the tiny log, finished."""
    records.write(tmp_path / "run", *records.tiny())
    return tmp_path / "run"


def cut(run: Path, n_records: int, tail: bytes = b"") -> bytes:
    """The log cut after its first records, and ``tail`` behind them; what it then holds."""
    path = run / EVENTS_FILE
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:n_records]) + tail)
    return path.read_bytes()


@pytest.mark.parametrize("tail", [b"", b'{"n":7,"kin', b"\0\0\0"])
def test_what_stands_is_compared_and_the_rest_appended(run: Path, tail: bytes) -> None:
    whole = (run / EVENTS_FILE).read_bytes()
    cut(run, 7, tail)
    with ResumedLog(run) as log:
        records.append(log, *records.tiny())
    assert (run / EVENTS_FILE).read_bytes() == whole


def test_nothing_is_written_before_the_log_s_end(run: Path) -> None:
    before = cut(run, 7, b'{"n":7,"kin')
    with ResumedLog(run) as log:
        records.append(log, *records.tiny()[:7])
        log.sync()
    assert (run / EVENTS_FILE).read_bytes() == before


def test_facts_of_the_wall_clock_stay_as_they_are_and_are_not_compared(run: Path) -> None:
    before = cut(run, 7)
    with ResumedLog(run) as log:
        records.append(log, *[{**record, "wall": {"solve_s": 99.0}} for record in records.tiny()[:8]])
    assert (run / EVENTS_FILE).read_bytes().startswith(before)


def test_an_interrupt_while_what_stands_is_compared_is_not_noted(run: Path) -> None:
    before = cut(run, 7)
    with ResumedLog(run) as log:
        records.append(log, *records.tiny()[:3])
        log.append(Interrupted(), 0.0)
    assert (run / EVENTS_FILE).read_bytes() == before


def test_an_interrupt_after_that_is_noted(run: Path) -> None:
    cut(run, 7)
    with ResumedLog(run) as log:
        records.append(log, *records.tiny()[:8])
        log.append(Interrupted(), 0.0)
    assert [entry.record.kind for entry in read_log(run).entries][-2:] == ["ready", "interrupted"]


def test_a_log_that_was_interrupted_goes_on_without_the_record_of_it(run: Path) -> None:
    whole = (run / EVENTS_FILE).read_bytes()
    cut(run, 7)
    with ResumedLog(run) as log:
        records.append(log, *[*records.tiny()[:7], {"kind": "interrupted"}])
    with ResumedLog(run) as log:
        left_out = log.left_out
        records.append(log, *records.tiny())
    assert left_out == "that it was interrupted"
    assert (run / EVENTS_FILE).read_bytes() == whole


@pytest.mark.parametrize(
    ("number", "changed", "message"),
    [
        (0, {"seed": 2}, "record 0, run_started: seed is 1, and 2 when the run is carried out again"),
        (0, {"planning_s": 1.0}, "record 0, run_started: planning_s is only made"),
        (7, {"tenant": "b"}, 'record 7, ready: tenant is "a", and "b" when'),
        (6, {"started": []}, r"record 6, change: started is something else, and \[\] when"),
        (7, {"at_s": -5.75}, r"record 7, ready: at_s is -6\.0, and -5\.75 when"),
        (7, records.failed(0, "1g.10gb@0#1", -6.0), "record 7 is ready, but failed comes here"),
    ],
)
def test_a_record_that_differs_is_refused_and_named(
    run: Path, number: int, changed: dict[str, Any], message: str
) -> None:
    before = cut(run, 12, b"{")
    made = records.tiny()
    made[number] |= changed
    with ResumedLog(run) as log, pytest.raises(LogError, match=rf"events\.jsonl: {message}.*another version wrote it"):
        records.append(log, *made)
    assert (run / EVENTS_FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("made", "there", "difference"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1] is 3, and 2 when the run is carried out again"),
        ({"a": {"b": 1}}, {"a": {}}, "a.b is only made"),
        ({}, {"a": 1}, "a is only in the log"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "the keys of the record are in another order"),
        ({"a": [1]}, {"a": [1, 2]}, "a is [1, 2], and [1] when the run is carried out again"),
        ({"a": "x" * 99}, {"a": None}, "a is null, and something else when the run is carried out again"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, ""),
    ],
)
def test_the_first_difference_is_named(made: Any, there: Any, difference: str) -> None:
    assert first_difference(made, there) == difference


def test_a_finished_log_says_so(run: Path) -> None:
    with ResumedLog(run) as log:
        assert log.is_finished


@pytest.mark.parametrize("name", ["nothing", "file", "pipe"])
def test_a_folder_without_a_log_is_refused(tmp_path: Path, name: str) -> None:
    import os

    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / EVENTS_FILE)
    folder = tmp_path if name == "pipe" else tmp_path / name
    with pytest.raises(LogError, match=r"is no run|cannot be read"):
        ResumedLog(folder)


def test_a_damaged_log_is_refused_and_free_for_others(run: Path) -> None:
    cut(run, 3, b"damage\n")
    for _ in range(2):
        with pytest.raises(LogError, match="line 4: it is no JSON"):
            ResumedLog(run)


def _is_refused(run: Path) -> bool:
    try:
        ResumedLog(run).close()
    except RunFolderError as error:
        return "another process still writes it" in str(error)
    return False


def test_a_log_that_another_process_writes_is_refused(run: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as other:
        cut(run, 7)
        with ResumedLog(run):
            assert other.apply(_is_refused, [run])
        with RunLog(tmp_path / "new", ""):
            assert other.apply(_is_refused, [tmp_path / "new"])
        assert not other.apply(_is_refused, [run])
