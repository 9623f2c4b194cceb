"""A run's folder and its log: ``config.yaml`` and ``events.jsonl``, with older segments beside it.

The log is append-only, one record a line; :mod:`migrator.log.records` has the kinds and their fields. Wall-clock facts
live under the key ``wall`` and nowhere else, so that two runs of one seed are equal byte for byte without it. A line is
written whole or torn at the end of the file. A reader drops a torn last line, and refuses a log with any other damage.
One process writes a log: it holds a lock on the file.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast
from zlib import crc32

from msgspec import structs

from executor.catalogue import gpu_model
from executor.described import model_of
from executor.files import (
    UNFINISHED,
    alike_to,
    canonical,
    is_torn,
    make_new,
    open_appended,
    open_input,
    read_input,
    sync_folder,
    write_all,
    write_whole,
)
from executor.mig import GpuModel
from migrator.errors import LogError, RunFolderError
from migrator.log.integrity import SoFar
from migrator.log.line import ALTERED, Entry, as_json, entry_in, line_of
from migrator.log.records import (
    Outside,
    Record,
    Resumed,
    RunStarted,
    Snapshot,
    Wall,
    WindowFinished,
    WindowStarted,
)
from migrator.log.segments import Past, older_segments, repeated, segment_file
from migrator.log.sets import Spans, with_everybody

RecordT = TypeVar("RecordT", bound=Record)

SCHEMA = 4
"""Version of the log's format, in its first record."""

TIME_DIGITS = 6
"""``at_s`` is logged to the microsecond."""

EVENTS_FILE = "events.jsonl"
CONFIG_FILE = "config.yaml"
PROGRESS_FILE = "progress.json"
"""What no window's end has told yet (:mod:`migrator.log.progress`); no part of the log, and there only while it is
written."""

LOST = "deleted, moved or replaced while the run wrote it"
"""What happens to a log that is not found under its name again: whatever is written to it then is lost at the end."""

CUT = "emptied or cut short while the run wrote it; does logrotate have it, with copytruncate?"
"""What happens to a log that holds less than was written to it: what would follow has no begin."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What is no fault of whoever named the folder."""


class RunLog:
    """The log of a run in progress; every record is in the file when :meth:`append` returns.

    Attributes:
        n_windows: How many windows its newest segment has.
    """

    def __init__(self, folder: Path, config_yaml: str) -> None:
        """Create ``folder`` with the resolved config and an empty log; a power cut leaves both, or nothing begun.

        Raises:
            RunFolderError: A run was begun in the folder, it holds something else, or it cannot be made.
            OSError: The disk is full or gone.
        """
        require_unbegun(folder)
        try:
            stands = next(parent for parent in folder.absolute().parents if parent.exists())
            folder.mkdir(parents=True, exist_ok=folder.is_dir())
        except OSError as error:
            if error.errno in _DISK:
                raise
            raise RunFolderError(f"{folder} cannot be created: {error.strerror or error}") from None
        self._open(folder)
        try:
            require_unbegun(folder)  # now no other process can begin one in it
        except RunFolderError:
            self.close()
            raise
        # The log's first record comes when the config is whole and on the disk.
        with _naming(folder / CONFIG_FILE) as path:
            write_whole(path, config_yaml.encode())
        with _naming(folder):
            _sync_folders(folder.absolute().parent, stands)  # the folder itself was, with the config

    def _open(self, folder: Path) -> None:
        """Open the folder's log, which no other process writes, at its beginning.

        Raises:
            RunFolderError: Another process writes it.
            OSError: It cannot be written, or the disk is full or gone.
        """
        self.folder = folder
        self._path = folder / EVENTS_FILE
        with _naming(self._path):
            self._file = open_appended(self._path)
        self._size = 0
        self._n = 0
        self._at_s = -math.inf
        self._past, self._segment, self._run = Past(), 1, ""
        self.n_windows = 0
        # It may have been locked by one that has begun another segment meanwhile.
        if not (_locked(self._file) and os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())):
            self._file.close()
            raise RunFolderError(f"{self._path}: another process still writes it; one at a time")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return self._size == 0

    @property
    def n_records(self) -> int:
        """How many records there are; the next one has this number."""
        return self._n

    @property
    def at_s(self) -> float:
        """The time of the last record; −∞ before the first."""
        return self._at_s

    def append(self, record: Record, at_s: float, wall: Wall | None = None) -> int:
        """Write one record whole, and return its number.

        ``at_s`` is what the run's clock shows now.

        Raises:
            OSError: The disk is full or gone, and what was written before stays readable; or the log is deleted or cut.
            ValueError: ``at_s`` lies before the last record, or a field is not of its type; nothing is written.
        """
        at_s = round(at_s, TIME_DIGITS)
        if at_s < self._at_s:
            before = f"the last record was written at {self._at_s} s, and time never falls"
            raise ValueError(f"{record.kind} at {at_s} s: {before}")
        line = line_of(self._n, at_s, record, wall)
        # A write that was cut short, by Ctrl-C or a full disk, must not be in the middle of the log.
        with _naming(self._path):
            self._require_whole()
            self._file.truncate(self._size)
            n, size = self._n, self._size + len(line)
            try:
                write_all(self._file, line)
            finally:
                if os.fstat(self._file.fileno()).st_size == size:  # also where Ctrl-C came with the last part
                    self._run = self._run or identity_of(line)
                    self._size = size
                    self._written(Entry(n, at_s, record, wall or Wall()))
        return n

    def _written(self, entry: Entry[Record]) -> None:
        """The log has the record."""
        self._n, self._at_s = entry.n + 1, entry.at_s
        self._past.take(entry)
        if isinstance(entry.record, Snapshot):
            self._segment, self.n_windows = entry.record.segment, 0
        self.n_windows += isinstance(entry.record, WindowStarted)

    def begin_segment(self, window: int, at_s: float) -> None:
        """What is appended from now on, as this window begins, goes into a new segment.

        A kill at any moment leaves the old one, or both.

        Raises:
            OSError: The disk is full or gone; or the log is deleted or cut.
        """
        at_s, older = round(at_s, TIME_DIGITS), segment_file(self.folder, self._segment)
        snapshot, wall = self._past.snapshot(window, self._segment + 1, self._run)
        line = line_of(self._n, at_s, snapshot, wall)
        beside = self.folder / f".migrator-{secrets.token_hex(8)}.tmp"
        with _naming(self._path):
            self._require_whole()
            self._file.truncate(self._size)
            os.fsync(self._file.fileno())
            new = open_appended(beside)
            try:
                assert _locked(new)  # nobody else knows its name
                write_all(new, line)
                os.fsync(new.fileno())
                older.unlink(missing_ok=True)  # of a process that was killed here
                try:
                    os.link(self._path, older)
                except OSError:  # a file system without links
                    make_new(older, read_input(self._path))
                beside.replace(self._path)
            finally:
                if os.path.samestat(os.fstat(new.fileno()), self._path.stat()):  # also where Ctrl-C came then
                    self._file, old = new, self._file
                    old.close()
                    self._size = len(line)
                    self._written(Entry(self._n, at_s, snapshot, wall))
                else:
                    new.close()
                    beside.unlink(missing_ok=True)
        sync_folder(self.folder)

    def sync(self) -> None:
        """Wait until the log is on the disk, so that it also survives a power cut.

        Raises:
            OSError: The disk is full or gone.
        """
        with _naming(self._path):
            os.fsync(self._file.fileno())

    def _require_whole(self) -> None:
        """Raise unless the file still has its name and holds all that was written to it.

        Without its name it can be written, and is lost as soon as it is closed.

        Raises:
            OSError: The folder was deleted, moved or replaced, or the file cut.
        """
        own = os.fstat(self._file.fileno())
        if not (self._path.exists() and os.path.samestat(own, self._path.stat())):
            raise OSError(errno.ENOENT, LOST)
        if own.st_size < self._size:
            raise OSError(errno.ESTALE, CUT)

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._file.close()


def _locked(file: FileIO) -> bool:
    """Whether the file is this process's to write now; always on a file system without locks.

    Who looks whether somebody writes it holds the lock for microseconds, so that it is asked for more than once.
    """
    for wait_s in (0, 0.002, 0.02, 0.1):
        time.sleep(wait_s)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError:
            pass  # a file system without locks
        return True
    return False


_LEFT = re.compile(
    rf"{re.escape(EVENTS_FILE)}|{re.escape(CONFIG_FILE)}|{re.escape(PROGRESS_FILE)}|{UNFINISHED}|live(-\d+)?|orders"
)
"""What a run leaves in its folder that was killed before it began."""


def require_unbegun(folder: Path) -> None:
    """Refuse a folder in which no run can begin: it holds one, or what is not a run's.

    A run whose log holds no whole record has not begun, and its folder is free again; so is an empty one.

    Raises:
        RunFolderError: Says what is in the way.
        OSError: The disk is gone.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names alone
        is_free = not names or (all(map(_LEFT.fullmatch, names)) and _holds_no_record(folder / EVENTS_FILE))
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno in _DISK:
            raise
        raise RunFolderError(f"{folder} cannot be created: {error.strerror or error}") from None
    if not is_free:
        raise RunFolderError(f"{folder} exists already; give --out another folder, runs are never overwritten")


def has_begun(folder: Path) -> bool:
    """Whether a run was begun in the folder: its log holds a record."""
    path = folder / EVENTS_FILE
    return path.is_file() and not _holds_no_record(path)


def _holds_no_record(path: Path) -> bool:
    """Whether the log is there, and not one line of it whole."""
    if not path.is_file():
        return False
    with open_input(path) as file:
        return not file.readline().endswith(b"\n")


def _sync_folders(folder: Path, last: Path) -> None:
    """Wait until a new folder and those above it, up to ``last``, are on the disk with the names in them."""
    for one in (folder, *folder.parents):
        sync_folder(one)
        if one == last:
            return


def identity_of(first_line: bytes) -> str:
    """What distinguishes a log from all others, whose first lines say another moment: the CRC-32 of its first one.

    A later segment's first line repeats it.
    """
    with suppress(LogError):
        if b'"kind":"snapshot"' in first_line[:60] and (run := entry_in(first_line[:-1]).wall.run) is not None:
            return run
    return f"{crc32(first_line):08x}"


def config_sum(config_yaml: str) -> str:
    """The CRC-32, in 8 hex digits, by which a run's header tells whether its config is the one that it began with."""
    return f"{crc32(config_yaml.encode()):08x}"


@contextmanager
def _naming(path: Path) -> Iterator[Path]:
    """Names the file in what the disk refuses: writing itself knows no name."""
    try:
        yield path
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def new_run_log(root: Path, name: str, config_yaml: str) -> RunLog:
    """A new log in ``root/name``, or, if runs that started meanwhile took that, in the next one that is free.

    Raises:
        RunFolderError: The folder cannot be made.
        OSError: The disk is full or gone.
    """
    while True:
        folder = free_run_folder(root, name)
        try:
            return RunLog(folder, config_yaml)
        except RunFolderError:
            if not folder.exists():
                raise


@dataclass(frozen=True)
class ReadLog:
    """What a log holds.

    Attributes:
        folder: Where it lies.
        entries: Its records, in the order written; before them those that its first segment repeats.
        torn: Whether the last line was cut off, by a kill or a full disk, and left out.
        begins: The snapshot in place of records that are not there; ``None``: all are.
        absent: By tenant, from when to when it was not there, in order; only of those that came or went.
    """

    folder: Path
    entries: tuple[Entry[Record], ...]
    torn: bool
    begins: Snapshot | None = None
    absent: Mapping[str, Spans] = field(default_factory=dict)

    @cached_property
    def header(self) -> RunStarted:
        """What the run is about."""
        return self.of(RunStarted)[0]

    @cached_property
    def gpu(self) -> GpuModel:
        """What the run's GPU can be cut into.

        Raises:
            UnknownGpuModelError: The log describes no GPU that there can be, or names one that is not known here.
        """
        return gpu_model(self.header.gpu) if self.header.card is None else model_of(self.header.card)

    @property
    def first_window(self) -> int:
        """Of the windows before this one it holds nothing."""
        return 0 if self.begins is None else self.begins.first_window

    @cached_property
    def n_instances(self) -> int:
        """How many instances the run has started, loans included."""
        return Past.of(self.begins, self.entries).n_instances

    def last(self, seconds: float) -> ReadLog:
        """The same with the windows alone that began in the last seconds before the end of the last settled one.

        That one is always there.
        """
        cut = self.cut(seconds)
        begun = [started.window for started in self.of(WindowStarted)]
        first = next((window for window in begun if window >= cut), None)
        return self if first is None or first == begun[0] else self.since(first)

    def cut(self, seconds: float) -> float:
        """Windows from this number on began in the last seconds before the end of the last settled one, or are it."""
        end = 1 + max(self.settled, default=self.first_window - 1)
        return min(end - seconds / self.header.window_s, end - 1) - 1e-9

    def since(self, window: int) -> ReadLog:
        """The same as if it began with this window, which it holds, and held nothing of those before."""
        start = next(e.n for e in self.entries if isinstance(e.record, WindowStarted) and e.record.window == window)
        n_before = sum(entry.n < start for entry in self.entries)
        past = Past.of(self.begins, self.entries[:n_before])
        past.close(window)
        begins, _ = past.snapshot(window, 1)
        late = (
            e for e in self.entries[n_before:] if not isinstance(e.record, WindowFinished) or e.record.window >= window
        )
        return replace(self, entries=(*past.entries, *late), begins=begins)

    @cached_property
    def settled(self) -> dict[int, WindowFinished]:
        """The outcome of each window that is finished; a run that was joined again may have gaps."""
        return {closing.window: closing for closing in self.of(WindowFinished)}

    def of(self, kind: type[RecordT]) -> tuple[RecordT, ...]:
        """The records of one kind, in order."""
        return tuple(entry.record for entry in self.entries_of(kind))

    def entries_of(self, kind: type[RecordT]) -> tuple[Entry[RecordT], ...]:
        """The same with their numbers, times and facts of the wall clock."""
        return tuple(cast("Entry[RecordT]", entry) for entry in self.entries if type(entry.record) is kind)


def read_log(folder: Path, last_s: float | None = None) -> ReadLog:
    """The log in a run's folder, up to its last whole line; where tenants came or went, its header has all of them.

    With ``last_s`` only the windows of so many last seconds, as :meth:`ReadLog.last` has them; of the segments only
    those are read that hold them.

    Raises:
        LogError: No run folder, no record yet, another schema, or damage; one line names the file, the line and what
            is wrong.
    """
    log = whole_log(folder) if last_s is None else log_of(last_segments(folder, last_s), folder).last(last_s)
    entries, absent = with_everybody(log.entries)
    return replace(log, entries=entries, absent=absent)


def arrival_sums(log: ReadLog) -> Iterator[tuple[int, int, str, str]]:
    """What the log says of the run's ``arrivals`` folder: of each window first second, end, tenant and sum."""
    window_s = round(log.header.window_s)
    for closing in log.of(WindowFinished):
        for tenant, told in closing.arrival_sums.items():
            yield closing.window * window_s, (closing.window + 1) * window_s, tenant, told


def counted_until(log: ReadLog) -> float:
    """Requests of a live run from this second on are in no record, not even as of unknown outcome."""
    until_s = 0.0
    for entry in log.entries:
        match entry.record:
            case Resumed():
                until_s = entry.at_s
            case Outside(window=window):
                until_s = window * log.header.window_s
            case WindowFinished(window=window):
                until_s = (window + 1) * log.header.window_s
            case _:
                pass
    return until_s


def is_being_written(folder: Path) -> bool:
    """Whether a process has the log of the run in the folder open to write it; never on a file system without locks."""
    try:
        with open_input(folder / EVENTS_FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def bytes_of_log(folder: Path) -> bytes:
    """What the log in a run's folder holds, whatever that is.

    Raises:
        LogError: No run folder, or the file cannot be read.
    """
    path = folder / EVENTS_FILE
    try:
        return read_input(path)
    except FileNotFoundError:
        raise LogError(f"{folder} is no run: it holds no {EVENTS_FILE}{alike_to(folder)}") from None
    except NotADirectoryError:
        raise LogError(f"{folder} is no run but a file; a run's folder is needed, such as runs/quickstart") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None


def segments_in(folder: Path) -> dict[Path, bytes]:
    """What the segments of the log in a run's folder hold, in order; the newest one is the last.

    Raises:
        LogError: No run folder, or a file cannot be read.
    """
    newest, found = bytes_of_log(folder), dict[Path, bytes]()  # first: another may be begun meanwhile
    for path in older_segments(folder).values():
        raw = _segment(path)
        if raw is not None and not raw.startswith(newest.partition(b"\n")[0]):  # else it is read already, as the newest
            found[path] = raw
    return {**found, folder / EVENTS_FILE: newest}


def last_segments(folder: Path, seconds: float) -> dict[Path, bytes]:
    """As :func:`segments_in`, those that hold the windows of so many last seconds.

    Raises:
        LogError: As :func:`read_log`; of older segments, a file cannot be read.
    """
    newest = bytes_of_log(folder)
    found = {folder / EVENTS_FILE: newest}
    log = log_of(found, folder)
    first, cut = log.first_window, log.cut(seconds)
    for path in reversed(older_segments(folder).values()):
        if first <= cut:
            break
        raw = _segment(path)
        if raw is None:
            break
        if raw.startswith(newest.partition(b"\n")[0]):  # another was begun meanwhile
            continue
        found = {path: raw, **found}
        first = _first_window(raw, path)
    return found


def _first_window(raw: bytes, path: Path) -> int:
    """The first window that a segment has, by its first line."""
    try:
        record = entry_in(raw.partition(b"\n")[0]).record
    except LogError as error:
        raise LogError(f"{path}: line 1: {error}") from None
    return record.first_window if isinstance(record, Snapshot) else 0


def _segment(path: Path) -> bytes | None:
    """What an older segment holds; ``None`` where it was too old to be kept."""
    try:
        return read_input(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None


def whole_log(folder: Path) -> ReadLog:
    """The log in a run's folder, all segments that are there, whoever its tenants are.

    Raises:
        LogError: As :func:`read_log`.
    """
    return log_of(segments_in(folder), folder)


def log_in(raw: bytes, folder: Path) -> ReadLog:
    """The log in the bytes of an ``events.jsonl``; ``folder`` names it in messages.

    Raises:
        LogError: No whole record, another schema, or damage.
    """
    return log_of({folder / EVENTS_FILE: raw}, folder)


def log_of(segments: Mapping[Path, bytes], folder: Path) -> ReadLog:
    """The log in the bytes of these files, one behind the other.

    Raises:
        LogError: No whole record, another schema, or damage.
    """
    reading, entries, tail = LogReading(folder), list[Entry[Record]](), b""
    for path, raw in segments.items():
        if tail:
            raise LogError(f"{reading.path}: its last line is not whole; {ALTERED}")
        reading.begin_file(path)
        *lines, tail = raw.split(b"\n")
        if not lines:
            begin = f"`run CONFIG --out {folder}` begins it"
            raise LogError(f"{path}: holds no whole record: nothing was begun; {begin}")
        for line in lines:
            entries += reading.take(line)
        reading.check_tail(tail)
    return ReadLog(folder, tuple(entries), bool(tail), reading.begins)


class LogReading:
    """A log that is read line after line: each is a whole record of this schema, and is where it can be.

    Attributes:
        path: The file that is read.
        n_records: The number of the next record.
        begins: As of :class:`ReadLog`.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.n_records, self._n_lines, self._at_s = folder / EVENTS_FILE, 0, 0, -math.inf
        self.begins: Snapshot | None = None
        self._so_far: SoFar | None = None
        self._past = Past()

    def begin_file(self, path: Path) -> None:
        """The next line is the first one of this file."""
        self.path, self._n_lines = path, 0

    def take(self, line: bytes) -> tuple[Entry[Record], ...]:
        """The record in the next line, given without its newline, after the earlier records that it repeats.

        Raises:
            LogError: It is damaged, or cannot be here.
        """
        with self._naming_line():
            entry = entry_in(line)
            found = (entry,) if self._so_far is not None else (*repeated(entry), entry)
            if self._so_far is not None or len(found) == 1:
                _check_place(entry, self.n_records, self._at_s)
        first = found[0].record
        if self._so_far is None and not (isinstance(first, RunStarted) and first.schema == SCHEMA):
            raise LogError(f"{self.path}: does not start with a run_started record of schema {SCHEMA}")
        with self._naming_line():
            if self._so_far is None:
                assert isinstance(first, RunStarted)
                self.begins = entry.record if isinstance(entry.record, Snapshot) else None
                self._so_far = SoFar(first, self.begins)
                for one in found[1:]:
                    self._so_far.take(one.n, one.record)
                self._past = Past.of(self.begins, found)
            else:
                self._check_snapshot(entry)
                self._so_far.take(entry.n, entry.record)
                self._past.take(entry)
        self._n_lines, self.n_records, self._at_s = self._n_lines + 1, entry.n + 1, entry.at_s
        return found

    def _check_snapshot(self, entry: Entry[Record]) -> None:
        """Refuse a segment that begins otherwise than the one before has ended."""
        if not isinstance(told := entry.record, Snapshot):
            return
        made, _ = self._past.snapshot(told.window, told.segment)
        if not told.accuracies:  # a version that had none wrote it
            made = structs.replace(made, accuracies={})
        if canonical(as_json(made)) != canonical(as_json(told)):
            raise LogError(f"snapshot: does not follow from the records before it; {ALTERED}")

    def take_back(self, at_s: float) -> None:
        """Forget the last record, an ``interrupted``; the one before was written at ``at_s``."""
        assert self._so_far is not None
        self._so_far.take_back()
        self._n_lines, self.n_records, self._at_s = self._n_lines - 1, self.n_records - 1, at_s

    def check_tail(self, tail: bytes) -> None:
        """Raise unless what is behind the last newline can be the begin of a record.

        Raises:
            LogError: It is more than one.
        """
        with self._naming_line():
            if not is_torn(tail):
                raise LogError(f"more than a record is on it; {ALTERED}")

    @contextmanager
    def _naming_line(self) -> Iterator[None]:
        """Name file and line in what is wrong."""
        try:
            yield
        except LogError as error:
            raise LogError(f"{self.path}: line {self._n_lines + 1}: {error}") from None


def _check_place(entry: Entry[Record], expected: int, not_before_s: float) -> None:
    n, at_s = entry.n, entry.at_s
    if n < expected:
        raise LogError(f"record {n} is after record {expected - 1}; lines were doubled or swapped")
    if n > expected:
        where = f"between {expected - 1} and {n}" if expected else f"before {n}"
        raise LogError(f"a line is missing {where}; {ALTERED}")
    if at_s < not_before_s:
        raise LogError(f"its time, {at_s} s, lies before that of the line above, {not_before_s} s; {ALTERED}")


def free_run_folder(root: Path, name: str) -> Path:
    """``root/name``, or ``root/name-2``, ``-3`` … : the first that does not exist."""
    candidate, number = root / name, 1
    while candidate.exists():
        number += 1
        candidate = root / f"{name}-{number}"
    return candidate
