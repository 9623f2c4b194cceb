"""A log that is read while it is written: what is new since the last look, and the run's state."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from zlib import crc32

from executor.files import LIMIT, open_input, read_input
from migrator.errors import LogError
from migrator.log.line import Entry
from migrator.log.progress import Progress, progress_in
from migrator.log.records import (
    Interrupted,
    Record,
    Resumed,
    RunFinished,
    RunStarted,
    ServiceStopped,
    Snapshot,
    WindowFinished,
)
from migrator.log.runlog import CUT, EVENTS_FILE, LOST, LogReading, bytes_of_log, identity_of, is_being_written
from migrator.log.segments import older_segments, segment_file

_PIECE = 2**20

OLD_S = 5.0
"""By so much what no window's end has told may be older than the log and, of a run in real time, than now."""


class RunState(StrEnum):
    """A run's state by its log."""

    RUNNING = "running"
    """A process writes the log."""
    LEFT = "cut off"
    """Nobody does, and nothing says that the run has ended."""
    INTERRUPTED = "interrupted"
    FINISHED = "finished"
    STOPPED = "stopped"
    """It is a service, which was stopped in order, and may go on."""
    DAMAGED = "damaged"
    """No more is read of it."""


@dataclass(frozen=True, slots=True)
class News:
    """What is new in a log.

    Attributes:
        entries: Records that were not there at the last look, in order.
        state: The run's state.
        is_resumed: Whether it goes on after it was cut off or interrupted; the end that was seen before is none.
        progress: What no window's end has told yet; ``None`` where nobody says it of this log as it is now.
    """

    entries: tuple[Entry[Record], ...]
    state: RunState
    is_resumed: bool = False
    progress: Progress | None = None


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
        self._segment: int | None = None  # the one that is read
        self._size = self._sum = 0  # of what was read of it: bytes, checksum
        self._file: tuple[int, int] | None = None
        self._changed_ns, self._at_s = 0, 0.0
        self._n_settled, self._is_paced = 0, False
        self._last: Record | None = None
        self._end: tuple[bytes, int, int, float] | None = None  # an `interrupted` at the end: line, and what is before

    def read(self) -> News:
        """What is new; where the log is damaged, what is new before that."""
        entries, n_before = list[Entry[Record]](), self._reading.n_records
        was_left, progress = False, progress_in(self.folder)  # before the log, which then has all that it counts on
        try:
            was_left = self._read(entries) if not self.damage else False
        except LogError as error:
            self.damage = str(error)
        except OSError as error:
            reason = LOST if isinstance(error, FileNotFoundError) else error.strerror or error
            self.damage = f"{self._path}: {reason}"
        is_resumed = was_left or any(isinstance(entry.record, Resumed) for entry in entries)
        state = self._state
        fits = progress is not None and state is RunState.RUNNING and self._fits(progress)
        return News(tuple(entries), state, is_resumed and n_before > 0, progress if fits else None)

    def _fits(self, progress: Progress) -> bool:
        """Whether this was said of the log as it is now, and not by a run that has stopped to say it."""
        newest_s = max(self.written_s, time.time() if self._is_paced else 0.0)
        is_of_it = progress.log == self.identity and self._n_settled <= progress.record < self._reading.n_records
        return is_of_it and newest_s - progress.wall_s <= OLD_S

    @property
    def _state(self) -> RunState:
        if self.damage:
            return RunState.DAMAGED
        if isinstance(self._last, RunFinished):
            return RunState.FINISHED
        if isinstance(self._last, ServiceStopped):
            return RunState.STOPPED
        if isinstance(self._last, Interrupted):
            return RunState.INTERRUPTED
        return RunState.RUNNING if is_being_written(self.folder) else RunState.LEFT

    def _read(self, entries: list[Entry[Record]]) -> bool:
        """Add the new records; whether the ``interrupted`` that was the last one is not there any more."""
        if self._file is None and not self._path.is_file():
            bytes_of_log(self.folder)  # says what it is instead
        was_taken_back = False
        while True:
            while (older := self._older()) is not None:
                self._reading.path = older
                with open_input(older) as file:
                    was_taken_back |= self._read_file(file, entries)
                self._reading.begin_file(self._path)
                self._segment, self._file, self._end = (self._segment or 0) + 1, None, None
                self._size = self._sum = 0
            with open_input(self._path) as file:
                found = os.fstat(file.fileno())
                if self._file in (None, (found.st_dev, found.st_ino)):
                    self._file = found.st_dev, found.st_ino
                    return self._read_file(file, entries) or was_taken_back
            if self._older() is None:  # it was not that another segment began meanwhile
                raise LogError(f"{self._path}: {LOST}")

    def _older(self) -> Path | None:
        """The segment that is to be read, where it is not the newest one any more; at first, the oldest that is there.

        For a moment one is both, and has both names.
        """
        if self._segment is None:
            self._segment = next(iter(older_segments(self.folder)), None)
        if self._segment is None:
            return None
        try:
            with open_input(segment_file(self.folder, self._segment)) as older, open_input(self._path) as newest:
                return None if older.readline() == newest.readline() else Path(older.name)
        except FileNotFoundError:
            return None

    def _read_file(self, file: BufferedReader, entries: list[Entry[Record]]) -> bool:
        found, is_first = os.fstat(file.fileno()), self._size == 0
        if found.st_size > LIMIT.bytes:
            read_input(Path(file.name))  # says how much is read
        was_taken_back = self._take_back(file)
        if found.st_size < self._size:
            raise LogError(f"{file.name}: {CUT}")
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
            *before_it, entry = self._reading.take(line[:-1])
            before = line, self._size, self._sum, self._at_s
            self._end = before if isinstance(entry.record, Interrupted) else None
            self.identity = self.identity or identity_of(line)
            for header in (one.record for one in (*before_it, entry) if isinstance(one.record, RunStarted)):
                self._is_paced, self._segment = header.backend is not None, self._segment or 1
            if isinstance(entry.record, Snapshot):
                self._segment = entry.record.segment
            if isinstance(entry.record, WindowFinished | Resumed):
                self._n_settled = entry.n
            self._size, self._sum, self._at_s = self._size + len(line), crc32(line, self._sum), entry.at_s
            self._last = entry.record
            entries += [*before_it, entry]
        return self._size > size

    def _check_past(self, file: BufferedReader) -> None:
        """Raise where what was read is not as it was."""
        file.seek(0)
        left, found = self._size, 0
        while left and (piece := file.read(min(left, _PIECE))):
            left, found = left - len(piece), crc32(piece, found)
        if left or found != self._sum:
            raise LogError(f"{file.name}: was altered after it was read")
