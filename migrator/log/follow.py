"""A log that is read while it is written: what is new since the last look, and how the run stands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from zlib import crc32

from executor.files import LIMIT, open_input, read_input
from migrator.errors import LogError
from migrator.log.line import Entry
from migrator.log.records import Interrupted, Record, Resumed, RunFinished, WindowFinished
from migrator.log.runlog import CUT, EVENTS_FILE, LOST, LogReading, bytes_of_log, is_being_written

_PIECE = 2**20


class RunState(StrEnum):
    """How a run stands by its log."""

    RUNNING = "running"
    """A process writes the log."""
    LEFT = "cut off"
    """Nobody does, and nothing says that the run has ended."""
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    DAMAGED = "damaged"
    """No more is read of it."""


@dataclass(frozen=True, slots=True)
class News:
    """What is new in a log.

    Attributes:
        entries: Records that were not there at the last look, in order.
        state: How the run stands.
        is_resumed: Whether it goes on after it was cut off or interrupted; the end that was seen before is none.
    """

    entries: tuple[Entry[Record], ...]
    state: RunState
    is_resumed: bool = False


class FollowedLog:
    """The log of the run in ``folder``, whole records only, each of which is given once.

    What was read is not kept, but for its checksum: once a window, and when the file changed without growing, it is
    read again to see that it is as it was.

    Attributes:
        identity: Of the log: no other run has it. Empty before the first record.
        damage: What is wrong with it, in a line; empty while nothing is.
        written_s: When the file was last written, as the time of the day in seconds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.identity, self.damage, self.written_s = folder, "", "", 0.0
        self._reading, self._path = LogReading(folder), folder / EVENTS_FILE
        self._size = self._sum = 0  # of what was read: bytes, checksum
        self._file: tuple[int, int] | None = None
        self._changed_ns, self._at_s = 0, 0.0
        self._last: Record | None = None
        self._end: tuple[bytes, int, int, float] | None = None  # an `interrupted` at the end: line, and what is before

    def read(self) -> News:
        """What is new; where the log is damaged, what is new before that."""
        entries, n_before = list[Entry[Record]](), self._reading.n_lines
        was_left = False
        try:
            was_left = self._read(entries) if not self.damage else False
        except LogError as error:
            self.damage = str(error)
        except OSError as error:
            reason = LOST if isinstance(error, FileNotFoundError) else error.strerror or error
            self.damage = f"{self._path}: {reason}"
        is_resumed = was_left or any(isinstance(entry.record, Resumed) for entry in entries)
        return News(tuple(entries), self._state, is_resumed and n_before > 0)

    @property
    def _state(self) -> RunState:
        if self.damage:
            return RunState.DAMAGED
        if isinstance(self._last, RunFinished):
            return RunState.FINISHED
        if isinstance(self._last, Interrupted):
            return RunState.INTERRUPTED
        return RunState.RUNNING if is_being_written(self.folder) else RunState.LEFT

    def _read(self, entries: list[Entry[Record]]) -> bool:
        """Add the new records; whether the ``interrupted`` that was the last one is not there any more."""
        if self._file is None and not self._path.is_file():
            bytes_of_log(self.folder)  # says what it is instead
        with open_input(self._path) as file:
            found = os.fstat(file.fileno())
            if self._file not in (None, (found.st_dev, found.st_ino)):
                raise LogError(f"{self._path}: {LOST}")
            is_first, self._file = self._file is None, (found.st_dev, found.st_ino)
            if found.st_size > LIMIT.bytes:
                read_input(self._path)  # says how much is read
            was_taken_back = self._take_back(file)
            if found.st_size < self._size:
                raise LogError(f"{self._path}: {CUT}")
            has_grown = self._take_lines(file, entries)
            is_changed, self._changed_ns = found.st_mtime_ns != self._changed_ns, found.st_mtime_ns
            self.written_s = found.st_mtime
            settles = any(isinstance(entry.record, WindowFinished) for entry in entries)
            if not is_first and (settles or (is_changed and not has_grown)):
                self._check_past(file)
        return was_taken_back

    def _take_back(self, file: BufferedReader) -> bool:
        """Forget an ``interrupted`` at the end that is not there any more: the run is resumed."""
        if self._end is None:
            return False
        line, size, sum_, at_s = self._end
        file.seek(size)
        if file.read(len(line)) == line:
            return False
        self._size, self._sum, self._end, self._last = size, sum_, None, None
        self._reading.take_back(at_s)
        return True

    def _take_lines(self, file: BufferedReader, entries: list[Entry[Record]]) -> bool:
        """Take all whole lines behind what was read; whether there were any."""
        size = self._size
        file.seek(size)
        for line in file:
            if not line.endswith(b"\n"):
                self._reading.check_tail(line)
                break
            entry = self._reading.take(line[:-1])
            before = line, self._size, self._sum, self._at_s
            self._end = before if isinstance(entry.record, Interrupted) else None
            self.identity = self.identity or f"{crc32(line):08x}"
            self._size, self._sum, self._at_s = self._size + len(line), crc32(line, self._sum), entry.at_s
            self._last = entry.record
            entries.append(entry)
        return self._size > size

    def _check_past(self, file: BufferedReader) -> None:
        """Raise where what was read is not as it was."""
        file.seek(0)
        left, found = self._size, 0
        while left and (piece := file.read(min(left, _PIECE))):
            left, found = left - len(piece), crc32(piece, found)
        if left or found != self._sum:
            raise LogError(f"{self._path}: was altered after it was read")
