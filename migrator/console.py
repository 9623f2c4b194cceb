"""Where text leaves the program: results to standard output, progress and complaints to standard error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape


class _Console(Console):
    """A console that leaves a closed pipe to the command line instead of ending the program itself."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def output() -> Console:
    """The console for results. In a pipe it is wide enough that no table row breaks."""
    console = _Console(highlight=False)
    return console if console.is_terminal else _Console(highlight=False, width=max(console.width, 140))


def progress() -> Console:
    """The console for progress and everything else that is not a result."""
    return Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """Print one line on standard error for an error that ends the program."""
    _print_line("[bold red]error:[/]", message)


def warn(message: str) -> None:
    """Print one line on standard error that the user should know; the program goes on."""
    _print_line("[bold yellow]warning:[/]", message)


def note(message: str) -> None:
    """Print one line on standard error that explains what the user is waiting for."""
    _print_line("[bold]note:[/]", message)


def _print_line(heading: str, message: str) -> None:
    """Print the message in one line: line breaks become spaces, control characters their escape sequences."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(message.split()))
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(f"{heading} {escape(line)}")


def print_json(value: Mapping[str, object]) -> None:
    """Print ``value`` as indented JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def program() -> str:
    """The command that starts this program again: its name if that is on the PATH, else the path it was started by."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return "python -m migrator"
    if started.parent == Path():
        return started.name
    found = shutil.which(started.name)
    return started.name if found is not None and Path(found).samefile(started) else str(started)
