"""The log of a run that was cut off, while the run is carried out again: what is there is compared, the rest appended.

Until the first record that the log does not have, nothing is written. So a run that turns out to be another one, or is
interrupted on the way, leaves its folder as it was found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from migrator.errors import LogError
from migrator.log.line import line_of, without_wall
from migrator.log.records import Interrupted, Record, RunFinished, Wall
from migrator.log.runlog import (
    EVENTS_FILE,
    PROGRESS_FILE,
    TIME_DIGITS,
    RunLog,
    bytes_of_log,
    identity_of,
    log_of,
    segments_in,
)
from migrator.log.segments import Past

LONGEST_VALUE = 60
"""Characters of a value that a message shows."""


class ResumedLog(RunLog):
    """A log that is there already, to be gone on with.

    Attributes:
        stands: What it holds, without what the cutting-off left at its end: half a line, or ``interrupted``.
        left_out: That, in words; empty if there is none. It is taken off when the first new record is written.
    """

    def __init__(self, folder: Path, *, is_whole: bool = True) -> None:
        """Open the log in a run's folder, and keep other writers away; of some runs the newest segment is enough.

        Raises:
            LogError: There is no log, or a damaged one.
            RunFolderError: Another process writes it.
            OSError: It cannot be written.
        """
        if not (folder / EVENTS_FILE).is_file():
            bytes_of_log(folder)  # says what it is instead
        self._open(folder)
        with suppress(OSError):
            (folder / PROGRESS_FILE).unlink(missing_ok=True)  # what was counted when the run was killed
        try:
            self._take(segments_in(folder) if is_whole else {self._path: bytes_of_log(folder)})
        except BaseException:
            self.close()
            raise

    def _take(self, segments: Mapping[Path, bytes]) -> None:
        found = log_of(segments, self.folder)
        was_interrupted = isinstance(found.entries[-1].record, Interrupted)
        self.stands = replace(found, entries=found.entries[:-1] if was_interrupted else found.entries)
        self.left_out = "that it was interrupted" if was_interrupted else "a line that was cut off" * found.torn
        *older, newest = segments.values()
        lines = newest.split(b"\n")[: -1 - was_interrupted]
        self._size = sum(len(line) + 1 for line in lines)
        self._lines = [line for raw in older for line in raw.split(b"\n")[:-1]] + lines
        self._n_there = 1 + self.stands.entries[-1].n
        self._run = identity_of(self._lines[0] + b"\n")

    def take_up(self) -> None:
        """Go on behind what is there, as it is: what happened on a real GPU cannot be carried out again."""
        begins, entries = self.stands.begins, self.stands.entries
        n_repeated = 0 if begins is None else len(begins.entries)
        self._past = Past.of(begins, entries[:n_repeated])
        for entry in entries[n_repeated:]:
            self._written(entry)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be done."""
        return isinstance(self.stands.entries[-1].record, RunFinished)

    def append(self, record: Record, at_s: float, wall: Wall | None = None) -> int:
        """Compare the record with the one in its place, or write it where there is none.

        ``wall`` is not compared.

        Raises:
            LogError: Another one is there.
            OSError: The disk is full or gone; what was written before stays readable.
        """
        if self._n >= self._n_there:
            return super().append(record, at_s, wall)
        if isinstance(record, Interrupted):
            return self._n  # what is cut off now is the comparison, not the run
        at_s = round(at_s, TIME_DIGITS)
        made, there = line_of(self._n, at_s, record)[:-1], without_wall(self._lines[self._n])
        if made != there:
            raise LogError(self._difference(json.loads(made), json.loads(there)))
        self._written(self.stands.entries[self._n])
        return self._n - 1

    def begin_segment(self, window: int, at_s: float) -> None:
        """Compare, or begin one, likewise."""
        if self._n >= self._n_there:
            super().begin_segment(window, at_s)
        else:
            snapshot, _ = self._past.snapshot(window, self._segment + 1)
            self.append(snapshot, at_s)

    def _difference(self, made: dict[str, Any], there: dict[str, Any]) -> str:
        where = f"{self._path}: record {self._n}"
        if made["kind"] != there["kind"]:
            what = f"{where} is {there['kind']}, but {made['kind']} comes here when the run is carried out again"
        else:
            what = f"{where}, {there['kind']}: {first_difference(made, there)}"
        return f"{what}; another version wrote it, or the config, what it names or the log was changed"


def first_difference(made: Any, there: Any, where: str = "") -> str:
    """The first value in which two JSON values differ, in words; empty if they are the same."""
    if isinstance(made, dict) and isinstance(there, dict):
        for key in (*made, *(key for key in there if key not in made)):
            name = f"{where}.{key}" if where else str(key)
            if key not in made or key not in there:
                return f"{name} is only {'made' if key in made else 'in the log'}"
            if found := first_difference(made[key], there[key], name):
                return found
        return "" if list(made) == list(there) else f"the keys of {where or 'the record'} are in another order"
    if isinstance(made, list) and isinstance(there, list) and len(made) == len(there):
        pairs = enumerate(zip(made, there, strict=True))
        return next((found for i, pair in pairs if (found := first_difference(*pair, f"{where}[{i}]"))), "")
    shown = [text if len(text) <= LONGEST_VALUE else "something else" for text in map(json.dumps, (there, made))]
    if shown[0] == shown[1] and made == there:
        return ""
    return f"{where} is {shown[0]}, and {shown[1]} when the run is carried out again"
