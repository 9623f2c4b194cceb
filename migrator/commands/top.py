"""``migrator top``: a run in the terminal, while it goes on."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from migrator.commands.options import with_examples
from migrator.errors import LogError
from migrator.log.follow import FollowedLog, RunState
from migrator.terminal.console import escape, output
from migrator.terminal.parallel import interrupts_put_off
from migrator.terminal.signals import interruptible
from migrator.views.top import RunTop

EVERY_S = 2.0
"""How often the log is looked at."""


@with_examples("top runs/quickstart")
def top_command(run: Annotated[Path, typer.Argument(help="The run's folder.")]) -> None:
    """Show the run's layout, a line a tenant and what happened last, until q or Ctrl-C.

    Where the output is no terminal, or one that cannot go back, it prints a line a window until the run is over.

    Raises:
        LogError: There is no run in the folder, or its log is damaged.
    """
    followed = FollowedLog(run)
    top, console = RunTop(followed), output()
    lines = top.look()
    if followed.damage:
        raise LogError(followed.damage)
    with suppress(KeyboardInterrupt), interruptible():
        if console.is_terminal and not console.is_dumb_terminal:
            _show(top, console)
        else:
            _print(top, console, lines)


def _show(top: RunTop, console: Console) -> None:
    """Fill the terminal, anew every two seconds; it is as it was afterwards."""
    live = Live(top.screen(*console.size), console=console, screen=True, auto_refresh=False)
    with _keys() as asked_to_end:
        try:
            with interrupts_put_off():  # or the terminal could be left on a screen that nobody leaves again
                live.start(refresh=True)
            while not asked_to_end(EVERY_S):
                top.look()
                live.update(top.screen(*console.size), refresh=True)
        finally:
            with interrupts_put_off():
                live.stop()


def _print(top: RunTop, console: Console, lines: list[str]) -> None:
    """Print a line a window."""
    while True:
        for line in lines:
            console.print(escape(line), soft_wrap=True)
        if top.state is not RunState.RUNNING:
            console.print(escape(top.heading), soft_wrap=True)
            return
        time.sleep(EVERY_S)
        lines = top.look()


class _Keys:
    """The keys of the terminal that standard input is, if it is one."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def __call__(self, wait_s: float) -> bool:
        """Wait so long, or until ``q``; whether that was pressed, or the terminal is gone."""
        end_s = time.monotonic() + wait_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._fd is None:
                time.sleep(left_s)
            elif select.select([self._fd], [], [], left_s)[0] and os.read(self._fd, 1) in (b"q", b"Q", b""):
                return True
        return False


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Keys come one by one, and are not shown."""
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield _Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
