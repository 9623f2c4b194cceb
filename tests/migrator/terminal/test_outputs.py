"""Output files: whole or not at all, whatever the name leads to."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.errors import MigratorError, OutputError
from migrator.log.runlog import EVENTS_FILE
from migrator.terminal.outputs import Kind, require_writable, write_output

OLD = '{\n "old": 1}'
"""What stands already, of the kind that is written."""


def refuse(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The disk takes nothing, or the user interrupts, while the file is written."""

    def fails(_: int) -> None:
        raise error

    monkeypatch.setattr("os.fsync", fails)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(OLD)
    return path


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_output("--out", tmp_path / "plan.json", "{}", Kind.DOCUMENT)
    assert (tmp_path / "plan.json").read_text() == "{}\n"
    assert (tmp_path / "plan.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_full_disk_leaves_the_old_file_and_nothing_else(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(OutputError, match=r"--out .*plan.json: cannot be written: No space left on device"):
        write_output("--out", old, "new", Kind.DOCUMENT)
    assert [(path.name, path.read_text()) for path in old.parent.iterdir()] == [("plan.json", OLD)]


def test_an_interrupt_leaves_the_old_file_and_nothing_else(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_output("--out", old, "new", Kind.DOCUMENT)
    assert [(path.name, path.read_text()) for path in old.parent.iterdir()] == [("plan.json", OLD)]


def test_an_old_file_keeps_its_permissions(old: Path) -> None:
    old.chmod(0o640)
    write_output("--out", old, "new", Kind.DOCUMENT)
    assert (old.read_text(), oct(old.stat().st_mode & 0o777)) == ("new\n", "0o640")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_file_is_written(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "plan.json", tmp_path / "link.json"
    link.symlink_to(target)
    if exists:
        target.write_text(OLD)
    write_output("--out", link, "new", Kind.DOCUMENT)
    assert (link.is_symlink(), target.read_text()) == (True, "new\n")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link.json", "plan.json", "there"]


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output("--out", tmp_path / "pipe", "new", Kind.DOCUMENT)
    assert os.read(reading, 10) == b"new\n"
    os.close(reading)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_device_is_told() -> None:
    with pytest.raises(OutputError, match="--out /dev/full: cannot be written: No space left on device"):
        write_output("--out", Path("/dev/full"), "new", Kind.DOCUMENT)


def test_standard_output_in_a_file_is_written_where_the_shell_has_it_open(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from migrator.terminal.outputs import Kind, write_output as w; "
        "w('--out', Path('/dev/stdout'), 'x', Kind.PAGE)"
    )
    with (tmp_path / "all.txt").open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        n_open = os.fstat(file.fileno()).st_size
    assert (n_open, [path.name for path in tmp_path.iterdir()]) == (2, ["all.txt"])


def test_a_pipe_that_nobody_reads_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match=r"--out .*pipe: cannot be written: No such device or address"):
        write_output("--out", tmp_path / "pipe", "new", Kind.DOCUMENT)


@pytest.mark.parametrize("path", ["table.csv", "trace.csv", "model/model.json"])
@pytest.mark.parametrize(
    "words",
    [
        "plan CONFIG --out",
        "plan CONFIG --problem-out",
        "compare CONFIG --out",
        "compare CONFIG --plot",
        "whatif CONFIG --vary load=x1 --out",
        "whatif CONFIG --vary load=x1 --plot",
        "forecast show CONFIG --plot",
        "run CONFIG --html",
    ],
)
def test_what_a_config_names_is_not_written_over(call, write_config, tmp_path: Path, words: str, path: str) -> None:
    names = {
        "profiles": "table.csv",
        "forecast.method": "nhits",
        "forecast.model": "model",
        "tenants.1.arrivals.trace": "trace.csv",
    }
    config = write_config(names)
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("old")
    code, _, err = call(*(config if word == "CONFIG" else word for word in words.split()), file)
    assert (code, file.read_text()) == (2, "old")
    assert f" {file}: is the same file as {file}; another name is needed" in err


def test_what_is_named_beside_a_config_is_not_written_over(call, write_config, tmp_path: Path) -> None:
    table, trace = tmp_path / "table.csv", tmp_path / "trace.csv"
    table.write_text("old")
    trace.write_text("5\n" * 120)
    assert "is the same file" in call("compare", write_config(), "--profiles", table, "--out", table)[2]
    traced = write_config({"windows": 1, "tenants.1.arrivals": {"trace": "trace.csv", "format": "plain-counts"}})
    assert call("run", traced, "--policy", "equal", "--out", "past")[0] == 0
    assert "does not begin like an HTML page" in call("run", "--resume", "past", "--html", trace)[2]
    for words in (("forecast", "eval", "past", "--plot"), ("plan", "past/config.yaml", "--out")):
        assert "is the same file" in call(*words, "past/events.jsonl")[2]
    assert Path("past/events.jsonl").read_bytes().startswith(b'{"n":0')


def test_a_link_that_leads_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    require_writable("--out", tmp_path / "loop", Kind.DOCUMENT, tmp_path / "other")
    write_output("--out", tmp_path / "loop", "new", Kind.DOCUMENT)
    assert (tmp_path / "loop").read_text() == "new\n"


HEADS = {Kind.PAGE: " <!doctype HTML>", Kind.DOCUMENT: '{\n  "schema": 1', Kind.TABLE: "model,gpu,batch\nx,a,1\n"}
OTHERS = (
    '{"n":0,"kind":"run_started"}\n',
    "tenants:\n- name: a\n",
    "221, 246\n",
    "second;count\n",
    "notes",
    "\0\0",
    "[]",
)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("old", ["", *HEADS.values(), *OTHERS])
def test_only_a_file_of_the_same_kind_is_replaced(tmp_path: Path, kind: Kind, old: str) -> None:
    path = tmp_path / "file"
    path.write_text(old)
    if old in ("", HEADS[kind]):
        require_writable("--out", path, kind)
        write_output("--out", path, HEADS[kind], kind)
        assert path.read_text().startswith(HEADS[kind])
        return
    for refuses in (lambda: require_writable("--out", path, kind), lambda: write_output("--out", path, "new", kind)):
        with pytest.raises(MigratorError, match=f"--out {path}: exists and does not begin like {kind.value[0]}"):
            refuses()
    assert path.read_text() == old


def test_a_log_is_never_written_over_whatever_it_holds_and_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to(tmp_path / EVENTS_FILE)
    for path in (tmp_path / EVENTS_FILE, tmp_path / "page.html", tmp_path / "events-12.jsonl"):
        with pytest.raises(MigratorError, match="is the name of a run's log"):
            require_writable("--html", path, Kind.PAGE)
        with pytest.raises(MigratorError, match="is the name of a run's log"):
            write_output("--html", path, "<!doctype html>", Kind.PAGE)
    assert not (tmp_path / EVENTS_FILE).exists()


def test_the_log_of_the_rival_that_a_report_reads_as_well_stands(call, write_config) -> None:
    config = write_config({"windows": 1})
    assert call("run", config, "--policy", "equal", "--against", "static", "--out", "past")[0] == 0
    for name in ("past/against/events.jsonl", "past/against/config.yaml", str(config)):
        before = Path(name).read_bytes()
        code, _, err = call("report", "past", "--html", name)
        assert (code, err.count("\n"), Path(name).read_bytes()) == (2, 1, before)


@pytest.mark.parametrize(
    "words",
    [
        "plan CONFIG --out a.json --problem-out b.json",
        "compare CONFIG --policies equal --jobs 1 --out a.json --plot b.html",
        "whatif CONFIG --vary load=x1 --jobs 1 --out a.csv --plot b.html",
    ],
)
def test_what_a_command_has_written_it_writes_again(call, write_config, words: str) -> None:
    config = write_config({"windows": 1})
    typed = [config if word == "CONFIG" else word for word in words.split()]
    assert [call(*typed)[0] for _ in range(2)] == [0, 0]
