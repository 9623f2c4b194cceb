"""Files that a command is asked to write: checked before anything is solved, written whole or not at all after it."""

from __future__ import annotations

import os
import re
import sys
from enum import Enum
from pathlib import Path

from executor.files import open_in_place, open_input, write_whole
from migrator.errors import MigratorError, OutputError
from migrator.log.runlog import EVENTS_FILE
from migrator.log.segments import SEGMENT

_HEAD_BYTES = 4096
"""What shows of which kind an existing file is."""


class Kind(Enum):
    """What is written: in words, and how each begins. Lines of JSON, as logs and journals have them, are none."""

    PAGE = "an HTML page", re.compile(rb"\s*<!doctype html", re.IGNORECASE)
    DOCUMENT = "a JSON document", re.compile(rb"\{\n *\"")
    TABLE = "a CSV table with a header", re.compile(rb"[A-Za-z_][\w.:%-]*(,[\w.:%-]+)+\r?(\n|$)")


def require_writable(option: str, path: Path, kind: Kind, *others: Path) -> None:
    """Refuse a ``path`` that cannot be written, holds something of another kind, or is one of ``others``.

    The command reads or writes ``others`` as well.

    Raises:
        MigratorError: Names the option, the file and the reason.
    """
    reason = _obstacle(path, others) or _loss(path, kind)
    if reason is not None:
        raise MigratorError(f"{option} {path}: {reason}")


def write_output(option: str, path: Path, text: str, kind: Kind | None) -> None:
    """Write ``text``, ended by a line break. If that fails, an earlier file at ``path`` is as it was.

    A symbolic link is followed. Files that cannot be replaced by another are written in place: devices, pipes, a file
    that is open already (``/dev/stdout``), another user's. A file of another kind is not replaced, nor is a log;
    without a kind the file is known to be ours.

    Raises:
        OutputError: The file cannot be written; names the option, the file and the reason.
        MigratorError: What it holds would be lost.
    """
    reason = None if kind is None else _loss(path, kind)
    if reason is not None:
        raise MigratorError(f"{option} {path}: {reason}")
    content = text if text.endswith("\n") else text + "\n"
    try:
        if path.exists() and not _can_be_replaced(path):
            _overwrite(path, content)
        else:
            write_whole(Path(os.path.realpath(path)), content.encode())
    except OSError as error:
        raise OutputError(f"{option} {path}: cannot be written: {error.strerror or error}") from None


def _loss(path: Path, kind: Kind) -> str | None:
    """Why the file at ``path`` must not be replaced by an output of the kind; ``None`` if it may be."""
    name = Path(os.path.realpath(path)).name
    if name == EVENTS_FILE or SEGMENT.fullmatch(name):
        return "is the name of a run's log, which no output replaces; another name is needed"
    if not path.is_file() or _is_output_of_ours(path):
        return None
    try:
        with open_input(path) as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        return f"cannot be read, to see what would be replaced: {error.strerror or error}"
    what, begins = kind.value
    if head and begins.match(head) is None:
        return f"exists and does not begin like {what}, so that it is not replaced; another name is needed"
    return None


def _is_output_of_ours(path: Path) -> bool:
    """Whether a shell has opened the file as our standard output or standard error."""
    streams = (stream for stream in (sys.__stdout__, sys.__stderr__) if stream is not None and not stream.closed)
    return any(os.path.samestat(path.stat(), os.fstat(stream.fileno())) for stream in streams)


def _can_be_replaced(path: Path) -> bool:
    opened = (fd for fd in Path("/dev/fd").glob("*") if fd.exists())
    return (
        path.is_file()
        and path.stat().st_uid == os.geteuid()
        and os.access(path.resolve().parent, os.W_OK)
        and not any(path.samefile(fd) for fd in opened)
    )


def _overwrite(path: Path, content: str) -> None:
    """Write in place. A pipe that no process reads is an error and not waited for."""
    with open_in_place(path) as file:
        file.write(content.encode())


def _obstacle(path: Path, others: tuple[Path, ...]) -> str | None:
    if path.is_dir():
        return "is a folder; a file is needed"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "cannot be written: no permission"
    same = next((other for other in others if os.path.realpath(other) == os.path.realpath(path)), None)
    return None if same is None else f"is the same file as {same}; another name is needed"
