"""A run's folder and its log: ``config.yaml`` and ``events.jsonl``, nothing else.

The log is append-only, one JSON object a line, each with a ``kind``; the kinds and their fields
stand in ``docs/log.md``. Wall-clock facts live under the key ``wall`` and nowhere else, so that two
runs of one seed are equal byte for byte without it. A line is written whole or torn at the end of
the file; a reader drops a torn last line and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from migrator.errors import LogError, RunFolderError

SCHEMA = 1
"""Version of the log's format, in its first event."""

EVENTS_FILE = "events.jsonl"
CONFIG_FILE = "config.yaml"

Event = Mapping[str, Any]


class RunLog:
    """The log of a run in progress; every event is in the file when :meth:`append` returns."""

    def __init__(self, folder: Path, config_yaml: str) -> None:
        """Create ``folder`` with the resolved config and an empty log.

        Raises:
            RunFolderError: The folder exists already or cannot be made.
        """
        self.folder = folder
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise RunFolderError(
                f"{folder} exists already; give --out another folder, runs are never overwritten"
            ) from None
        except OSError as error:
            raise RunFolderError(f"{folder} cannot be created: {error.strerror or error}") from None
        (folder / CONFIG_FILE).write_text(config_yaml, "utf-8")
        self._file = (folder / EVENTS_FILE).open("ab", buffering=0)
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, kind: str, fields: Mapping[str, object], wall: Mapping[str, object] | None = None) -> None:
        """Write one event whole.

        Raises:
            OSError: The disk is full or gone; what was written before stays readable.
        """
        event: dict[str, object] = {"kind": kind, **fields}
        if wall is not None:
            event["wall"] = wall
        line = json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        # A write that was cut short, by Ctrl-C or a full disk, must not stand in the middle of the log.
        self._file.truncate(self._size)
        view = memoryview(line)
        while view:  # an unbuffered write may take only a part
            view = view[self._file.write(view) :]
        self._size += len(line)

    def sync(self) -> None:
        """Wait until the log is on the disk, so that it also survives a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._file.close()


@dataclass(frozen=True)
class ReadLog:
    """What a log holds.

    Attributes:
        folder: Where it lies.
        events: In the order written.
        torn: Whether the last line was cut off, by a kill or a full disk, and left out.
    """

    folder: Path
    events: tuple[Event, ...]
    torn: bool

    @property
    def header(self) -> Event:
        """The ``run_started`` event."""
        return self.events[0]

    def of_kind(self, kind: str) -> tuple[Event, ...]:
        """The events of one kind, in order."""
        return tuple(event for event in self.events if event["kind"] == kind)


def read_log(folder: Path) -> ReadLog:
    """The log in a run's folder, up to its last whole line.

    Raises:
        LogError: No run folder, no event yet, another schema, or a line in the middle that is no event.
    """
    path = folder / EVENTS_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"{folder} is no run: it holds no {EVENTS_FILE}") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    *lines, tail = raw.split(b"\n")
    events = [_parse(path, number, line) for number, line in enumerate(lines, start=1)]
    if not events:
        raise LogError(f"{path}: holds no whole event; the run ended before it began")
    if events[0]["kind"] != "run_started" or events[0].get("schema") != SCHEMA:
        raise LogError(f"{path}: does not start with a run_started event of schema {SCHEMA}")
    if sum(event["kind"] == "run_started" for event in events) > 1:
        raise LogError(f"{path}: holds more than one run_started event; the file was altered after it was written")
    return ReadLog(folder, tuple(events), torn=bool(tail))


def _parse(path: Path, number: int, line: bytes) -> Event:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise LogError(f"{path}: line {number} is no JSON; the file was altered after it was written") from None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise LogError(f"{path}: line {number} is no event: it has no 'kind'")
    return event


def free_run_folder(root: Path, name: str) -> Path:
    """``root/name``, or ``root/name-2``, ``-3`` … : the first that does not exist."""
    candidate, number = root / name, 1
    while candidate.exists():
        number += 1
        candidate = root / f"{name}-{number}"
    return candidate
