"""A run's folder and its log: ``config.yaml`` and ``events.jsonl``.

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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast
from zlib import crc32

from executor.catalogue import gpu_model
from executor.described import model_of
from executor.files import (
    UNFINISHED,
    alike_to,
    is_torn,
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
from migrator.log.line import ALTERED, Entry, entry_in, line_of
from migrator.log.records import Record, RunStarted, TenantsChanged, Wall, WindowFinished

RecordT = TypeVar("RecordT", bound=Record)

SCHEMA = 4
"""Version of the log's format, in its first record."""

TIME_DIGITS = 6
"""``at_s`` is logged to the microsecond."""

EVENTS_FILE = "events.jsonl"
CONFIG_FILE = "config.yaml"

LOST = "deleted, moved or replaced while the run wrote it"
"""What becomes of a log that is not found under its name again: whatever is written to it then is lost at the end."""

CUT = "emptied or cut short while the run wrote it; does logrotate have it, with copytruncate?"
"""What becomes of a log that holds less than was written to it: what would follow has no begin."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What is no fault of whoever named the folder."""


class RunLog:
    """The log of a run in progress; every record is in the file when :meth:`append` returns."""

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
        if not _locked(self._file):
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
        # A write that was cut short, by Ctrl-C or a full disk, must not stand in the middle of the log.
        with _naming(self._path):
            self._require_whole()
            self._file.truncate(self._size)
            n, size = self._n, self._size + len(line)
            try:
                write_all(self._file, line)
            finally:
                if os.fstat(self._file.fileno()).st_size == size:  # also where Ctrl-C came with the last part
                    self._size, self._n, self._at_s = size, n + 1, at_s
        return n

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


_LEFT = re.compile(rf"{re.escape(EVENTS_FILE)}|{re.escape(CONFIG_FILE)}|{UNFINISHED}|live(-\d+)?")
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
        entries: Its records, in the order written.
        torn: Whether the last line was cut off, by a kill or a full disk, and left out.
    """

    folder: Path
    entries: tuple[Entry[Record], ...]
    torn: bool

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

    @cached_property
    def settled(self) -> dict[int, WindowFinished]:
        """What became of each window that is finished; a run that was joined again may have gaps."""
        return {closing.window: closing for closing in self.of(WindowFinished)}

    def of(self, kind: type[RecordT]) -> tuple[RecordT, ...]:
        """The records of one kind, in order."""
        return tuple(entry.record for entry in self.entries_of(kind))

    def entries_of(self, kind: type[RecordT]) -> tuple[Entry[RecordT], ...]:
        """The same with their numbers, times and facts of the wall clock."""
        return tuple(cast("Entry[RecordT]", entry) for entry in self.entries if type(entry.record) is kind)


def read_log(folder: Path) -> ReadLog:
    """The log in a run's folder, up to its last whole line.

    Raises:
        LogError: No run folder, no record yet, another schema, or damage; one line names the file, the line and what
            is wrong. Or tenants came or went in it.
    """
    log = log_in(bytes_of_log(folder), folder)
    if changed := log.of(TenantsChanged):
        where = f"window {changed[0].window}"
        raise LogError(f"{folder / EVENTS_FILE}: tenants came or went in {where}; reports and checks need one set")
    return log


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


def log_in(raw: bytes, folder: Path) -> ReadLog:
    """The log in the bytes of an ``events.jsonl``; ``folder`` names it in messages.

    Raises:
        LogError: No whole record, another schema, or damage.
    """
    *lines, tail = raw.split(b"\n")
    if not lines:
        begin = f"`run CONFIG --out {folder}` begins it"
        raise LogError(f"{folder / EVENTS_FILE}: holds no whole record: nothing was begun; {begin}")
    reading = LogReading(folder)
    entries = [reading.take(line) for line in lines]
    reading.check_tail(tail)
    return ReadLog(folder, tuple(entries), torn=bool(tail))


class LogReading:
    """A log that is read line after line: each is a whole record of this schema, and stands where it can.

    Attributes:
        folder: That of the run.
        n_lines: How many were taken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.n_lines, self._at_s = folder, 0, -math.inf
        self._so_far: SoFar | None = None

    def take(self, line: bytes) -> Entry[Record]:
        """The record in the next line, which is given without its newline.

        Raises:
            LogError: It is damaged, or cannot stand here.
        """
        with self._naming_line():
            entry = entry_in(line)
            _check_place(entry, self.n_lines, self._at_s)
        if self._so_far is None and not (isinstance(entry.record, RunStarted) and entry.record.schema == SCHEMA):
            raise LogError(f"{self._path}: does not start with a run_started record of schema {SCHEMA}")
        with self._naming_line():
            if self._so_far is None:
                assert isinstance(entry.record, RunStarted)
                self._so_far = SoFar(entry.record)
            else:
                self._so_far.take(entry.n, entry.record)
        self.n_lines, self._at_s = self.n_lines + 1, entry.at_s
        return entry

    def take_back(self, at_s: float) -> None:
        """Forget the last record, an ``interrupted``; the one before was written at ``at_s``."""
        assert self._so_far is not None
        self._so_far.take_back()
        self.n_lines, self._at_s = self.n_lines - 1, at_s

    def check_tail(self, tail: bytes) -> None:
        """Raise unless what stands behind the last newline can be the begin of a record.

        Raises:
            LogError: It is more than one.
        """
        with self._naming_line():
            if not is_torn(tail):
                raise LogError(f"more than a record stands on it; {ALTERED}")

    @property
    def _path(self) -> Path:
        return self.folder / EVENTS_FILE

    @contextmanager
    def _naming_line(self) -> Iterator[None]:
        """Name file and line in what is wrong."""
        try:
            yield
        except LogError as error:
            raise LogError(f"{self._path}: line {self.n_lines + 1}: {error}") from None


def _check_place(entry: Entry[Record], expected: int, not_before_s: float) -> None:
    n, at_s = entry.n, entry.at_s
    if n < expected:
        raise LogError(f"record {n} stands after record {expected - 1}; lines were doubled or swapped")
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
