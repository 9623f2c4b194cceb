from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.errors import LogError, RunFolderError
from migrator.log.runlog import EVENTS_FILE, RunLog, free_run_folder, read_log


def write_log(folder: Path, n_events: int = 3) -> bytes:
    with RunLog(folder, "seed: 1\n") as log:
        log.append("run_started", {"schema": 1})
        for number in range(n_events):
            log.append("change", {"number": number}, wall={"took_s": 0.5})
    return (folder / EVENTS_FILE).read_bytes()


def test_events_read_back_in_order(tmp_path: Path) -> None:
    write_log(tmp_path / "run")
    log = read_log(tmp_path / "run")
    assert [event["number"] for event in log.of_kind("change")] == [0, 1, 2]
    assert not log.torn


def test_wall_clock_facts_stand_under_one_key(tmp_path: Path) -> None:
    last = json.loads(write_log(tmp_path / "run").splitlines()[-1])
    assert last == {"kind": "change", "number": 2, "wall": {"took_s": 0.5}}


def test_existing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="exists already"):
        RunLog(tmp_path, "")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be created"):
        RunLog(tmp_path / "file" / "run", "")


def test_log_cut_at_any_byte_reads_its_whole_lines(tmp_path: Path) -> None:
    content = write_log(tmp_path / "run")
    path = tmp_path / "run" / EVENTS_FILE
    first_line = content.index(b"\n") + 1
    for size in range(first_line, len(content) + 1):
        path.write_bytes(content[:size])
        log = read_log(tmp_path / "run")
        assert len(log.events) == content[:size].count(b"\n")
        assert log.torn == (not content[:size].endswith(b"\n"))


def test_log_without_a_whole_event_is_told(tmp_path: Path) -> None:
    content = write_log(tmp_path / "run")
    (tmp_path / "run" / EVENTS_FILE).write_bytes(content[:5])
    with pytest.raises(LogError, match="no whole event"):
        read_log(tmp_path / "run")


def test_a_write_cut_short_does_not_stay_in_the_middle(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log:
        log.append("run_started", {"schema": 1})
        with (tmp_path / "run" / EVENTS_FILE).open("ab") as stray:
            stray.write(b'{"kind":"cha')
        log.append("run_finished", {})
    assert [event["kind"] for event in read_log(tmp_path / "run").events] == ["run_started", "run_finished"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"kind":"run_started","schema":1}\nnot json\n', "line 2 is no JSON"),
        (b'{"kind":"run_started","schema":1}\n[1]\n', "line 2 is no event"),
        (b'{"kind":"run_started","schema":99}\n', "schema 1"),
        (b'{"kind":"change"}\n', "run_started"),
        (b'{"kind":"run_started","schema":1}\n' * 2, "more than one run_started"),
        (b'{"kind":"run_started","schema":1}\n{"kind":["x"]}\n', "line 2 is no event"),
        (b'{"kind":"run_started","schema":1}\n' + b"[" * 100_000 + b"\n", "line 2 is no JSON"),
    ],
)
def test_an_altered_log_is_refused(tmp_path: Path, lines: bytes, message: str) -> None:
    (tmp_path / EVENTS_FILE).write_bytes(lines)
    with pytest.raises(LogError, match=message):
        read_log(tmp_path)


def test_a_folder_without_a_log_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no run"):
        read_log(tmp_path)


def test_numbers_that_json_lacks_are_never_written(tmp_path: Path) -> None:
    with RunLog(tmp_path / "run", "") as log, pytest.raises(ValueError, match="Out of range float"):
        log.append("run_started", {"value": float("nan")})


def test_free_folder_counts_up(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert free_run_folder(tmp_path, "demo") == tmp_path / "demo-3"
