"""What ``migrator top`` shows, and that the terminal is afterwards as it was."""

from __future__ import annotations

import fcntl
import io
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from migrator.commands.top import _show
from migrator.log.follow import FollowedLog, RunState
from migrator.log.progress import OpenCounts, Progress
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import EVENTS_FILE, PROGRESS_FILE, identity_of
from migrator.terminal.signals import interruptible
from migrator.views.top import RunTop
from tests.migrator.log import records

Call = Callable[..., Any]

OPEN = {
    "a": OpenCounts(in_time=60, late=20, dropped=20, waiting=7, right=30),
    "b": OpenCounts(in_time=0, late=0, dropped=0, waiting=0),
}


def write_progress(folder: Path, tenants: dict[str, OpenCounts], *layout: tuple[str, Any, str]) -> None:
    lines = (folder / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    known: Any = {"log": identity_of(lines[0]), "record": len(lines) - 1, "wall_s": time.time(), "served_s": 5.0}
    (folder / PROGRESS_FILE).write_bytes(Progress(**known, tenants=tenants, layout=layout).as_json)


def shown(top: RunTop, width: int, height: int = 30) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as text:
        console.print(top.screen(width, height))
    return [line.rstrip() for line in text.get().rstrip("\n").split("\n")]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that goes on: its second window is not settled."""
    folder = tmp_path / "run"
    records.write(folder, *records.tiny()[:-2])
    with ResumedLog(folder):
        write_progress(folder, OPEN, ("1g.10gb@0", "a", "inference"), ("2g.20gb@2", ["b", "a"], "inference"))
        yield folder


@pytest.mark.parametrize("width", [40, 80, 200])
def test_open_windows_are_shown_while_the_run_says_them(run: Path, width: int) -> None:
    top = RunTop(FollowedLog(run))
    top.look()
    lines = shown(top, width)
    assert lines[0] == "tiny: window 1, second 5, running"
    assert lines[1] == "│A·│BA│····"
    assert lines[2].startswith("requests of windows that are not")
    assert lines[4].split() == ["A", "a", "100", "7", "60.0", "30.0", "–"]
    assert lines[5].split() == ["B", "b", "0", "0", "–", "–", "–"]
    assert all(len(line) <= width for line in lines)


def test_the_last_settled_window_is_shown_where_nobody_says_more(tmp_path: Path) -> None:
    records.write(tmp_path / "run", *records.tiny())
    top = RunTop(FollowedLog(tmp_path / "run"))
    lines = top.look()
    assert [line.split(":")[0] for line in lines] == ["window 0", "window 1"]
    assert lines[1] == (
        "window 1: a 9 requests, 100.0 % in time, 77.8 % right; b 2 requests, 100.0 % in time, 50.0 % right"
    )
    assert (top.state, top.heading) == (RunState.FINISHED, "tiny: window 1, second 6, finished")
    assert shown(top, 80)[1] == "requests of window 1; shares in %"
    assert shown(top, 80)[3].split() == ["A", "a", "9", "–", "100.0", "77.8", "–"]
    assert shown(top, 80)[-2:] == ["       6 s  window 1 is settled", "       6 s  finished"]


def test_as_many_happenings_as_there_is_room_for_are_shown(run: Path) -> None:
    top = RunTop(FollowedLog(run))
    top.look()
    assert [len(shown(top, 80, height)) for height in (8, 9, 3)] == [8, 9, 6]
    assert shown(top, 80, 8)[-1] == "       4 s  the driver refused: the driver is busy"


def test_hostile_names_and_reasons_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    name = "\x1b]0;owned\x07[bold]\n"
    ended = {"kind": "interrupted", "reason": "\x1b[2J[/]"}
    records.write(tmp_path / "run", records.header(3.0, name), records.window_started(0, 3.0, name), ended)
    top = RunTop(FollowedLog(tmp_path / "run"))
    top.look()
    text = "\n".join(shown(top, 200))
    assert "\x1b" not in text
    assert "\\x1b]0;owned" in text
    assert "interrupted: \\x1b[2J[/]" in text


def test_a_gpu_that_is_unknown_here_has_no_strip(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = RunTop(FollowedLog(run))
    top.look()
    write_progress(run, OPEN, ("9g.1gb@77", "a", "inference"))
    top.look()
    assert shown(top, 80)[1].startswith("requests of")
    monkeypatch.setattr(RunTop, "_gpu", None)
    assert shown(top, 80)[1].startswith("requests of")


def test_where_there_is_no_terminal_it_prints_a_line_a_window_until_the_run_is_over(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    raw = records.write(folder, *records.tiny())
    lines = raw.splitlines(keepends=True)
    (folder / EVENTS_FILE).write_bytes(b"".join(lines[:-2]))
    with closing(ResumedLog(folder)) as log:

        def wait(_: float) -> None:
            (folder / EVENTS_FILE).write_bytes(raw)
            log.close()

        monkeypatch.setattr("migrator.commands.top.time.sleep", wait)
        code, out, _ = call("top", folder)
    told = [line.partition(":")[0] for line in out.splitlines()]
    assert (code, told) == (0, ["window 0", "window 1", "tiny"])
    assert call("top", tmp_path / "none")[0] == 2


class Signalling(io.StringIO):
    """A terminal at which somebody presses Ctrl-C just as something is written to it."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def write(self, text: str) -> int:
        if self._at in text and self._at not in self.getvalue():
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


@pytest.mark.parametrize("at", ["\x1b[?1049h", "\x1b[?25l", "refused"])
def test_a_signal_at_any_moment_leaves_the_screen_that_was_there_before(run: Path, at: str) -> None:
    terminal, top = Signalling(at), RunTop(FollowedLog(run))
    top.look()
    with suppress(KeyboardInterrupt), interruptible():
        _show(top, Console(file=terminal, width=80, height=24, force_terminal=True))
    text = terminal.getvalue()
    for begin, end in (("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")):
        assert text.count(begin) == text.count(end) == 1
    assert text.rstrip().endswith("\x1b[?1049l")


def read(terminal: int) -> bytes:
    assert select.select([terminal], [], [], 120)[0]
    return os.read(terminal, 2**16)


@pytest.mark.parametrize(
    ("end", "columns"), [("q", 40), ("q", 200), ("\x03", 40), ("\x03", 80), ("TERM", 80), ("TERM", 200)]
)
def test_the_terminal_is_afterwards_as_it_was(run: Path, end: str, columns: int) -> None:
    terminal, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    before = termios.tcgetattr(inside)
    command = 'exec "$0" -m migrator top "$1" <"$2" >"$2" 2>&1'  # opened so, it controls the new session
    top = subprocess.Popen(
        ["sh", "-c", command, sys.executable, str(run), os.ttyname(inside)],
        start_new_session=True,
        env={key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        | {"TERM": "xterm-256color"},
    )
    text = b""
    while b"refused" not in text:
        text += read(terminal)
    assert not termios.tcgetattr(inside)[3] & (termios.ICANON | termios.ECHO)
    if end == "TERM":
        top.send_signal(signal.SIGTERM)
    else:
        os.write(terminal, end.encode())
    while b"\x1b[?1049l" not in text:  # the screen that was there before is back
        text += read(terminal)
    assert top.wait() == 0
    assert termios.tcgetattr(inside) == before
    assert text.count(b"\x1b[?25l") == text.count(b"\x1b[?25h") == 1  # so is the cursor
    screens = text.decode().replace("\x1b[H", "\n")  # on a busy machine there is more than one
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screens)
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= columns
    os.close(terminal)
    os.close(inside)
