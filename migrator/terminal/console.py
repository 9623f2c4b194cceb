"""Where text leaves the program: results to standard output, progress and complaints to standard error.

Texts of files, logs and policies are not ours. What a terminal would act on in them is shown instead.
"""

from __future__ import annotations

import codecs
import io
import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unicodedata import normalize

import typer
from rich import markup
from rich.console import Console
from rich.text import Text

from executor.errors import brief


def printable(text: str) -> str:
    """The text in one line: a control character is shown by its code, as ``ascii`` writes it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """A text that is not ours, for a console: no markup, one line, nothing that a terminal acts on."""
    return markup.escape(printable(text))


class _Console(Console):
    """A console that shows control characters, however they came, and leaves a closed pipe to the command line."""

    def render_str(self, text: str, **options: Any) -> Text:
        """The text, with its line breaks, but without other control characters."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def output() -> Console:
    """The console for results. In a pipe it is wide enough that no table row breaks."""
    console = _Console(highlight=False, emoji=False)
    return console if console.is_terminal else _Console(highlight=False, emoji=False, width=max(console.width, 140))


def progress() -> Console:
    """The console for progress and everything else that is not a result."""
    return _Console(stderr=True, highlight=False, emoji=False)


_PLAINER = {"≥": ">=", "≤": "<=", "→": "->", "✓": "ok:", "✗": "NOT:"} | dict(
    zip("–×·█│░▁▂▃▄▅▆▇─━╸╺", "-x.#|~.:-=+*%----", strict=True),  # one for one, so that charts keep their columns
)
"""What stands for a character of ours where the encoding lacks it."""


def _plainer(error: UnicodeError) -> tuple[str, int]:
    """For encodings with few characters: a like one, a letter without its accent, or the code in words."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = []
    for char in error.object[error.start : error.end]:
        like = _PLAINER.get(char, normalize("NFKD", char))
        found.append(like.encode("ascii", "ignore").decode() or ascii(char)[1:-1])
    return "".join(found), error.end


def let_streams_take_any_text() -> None:
    """Let standard output and error show every character, whatever their encoding (``PYTHONIOENCODING=ascii``)."""
    codecs.register_error("migrator-plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="migrator-plainer")


def complain(message: str) -> None:
    """Print one line on standard error for an error that ends the program."""
    _print_line("[bold red]error:[/]", message)


def warn(message: str) -> None:
    """Print one line on standard error that the user should know; the program goes on."""
    _print_line("[bold yellow]warning:[/]", message)


def warn_of(messages: Iterable[str]) -> None:
    """Warn of each."""
    for message in messages:
        warn(message)


def note(message: str) -> None:
    """Print one line on standard error that explains what the user is waiting for."""
    _print_line("[bold]note:[/]", message)


def _print_line(heading: str, message: str) -> None:
    """Print the message in one line: line breaks become spaces, control characters their escape sequences."""
    shown = brief(printable(" ".join(message.split())))
    console = _Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    with suppress(OSError):  # where standard error is full or gone, there is nowhere to tell it
        with console.capture() as line:
            console.print(f"{heading} {markup.escape(shown)}")
        if sys.stderr is not None:
            sys.stderr.write(line.get())  # rich has a stream there that keeps off a line that moves
            sys.stderr.flush()


def counted(number: int, noun: str) -> str:
    """The number with its noun, ``1 GPU`` or ``2 GPUs``."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def print_json(value: Mapping[str, object]) -> None:
    """Print ``value`` as indented JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


_NAME = "migrator"


def program() -> str:
    """The command that starts this program again: its name if that is on the PATH, else the path it was started by.

    From a Python program, whatever that is called, it is ours all the same.
    """
    started = Path(next(iter(sys.argv), ""))
    if started.name == "__main__.py" or (started.name != _NAME and shutil.which(_NAME) is None):
        return "python -m migrator"
    if started.name != _NAME:
        return _NAME
    if started.parent == Path():
        return started.name
    found = shutil.which(started.name)
    return started.name if found is not None and Path(found).samefile(started) else str(started)
