"""Shares of a CPU without control groups: their processes are stopped and continued, and so held to a share.

Coarse: a process that may run has a core to itself until it is stopped, for up to a tenth of a second. The folders are
as those of control groups, but in the state folder. A governor, a process of its own, does the stopping; it ends with
the process that started it, and continues all others as it goes. If it is killed, the next process that enters a
share brings another one, which does so, too. What a process has forked is lost sight of if that process ends first.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from executor.cpu.shares import NoSharesError, Shares
from executor.files import open_appended, read_input
from executor.folders import Files
from executor.processes import PROC, born, python_command

_LOOK_S = 0.01
"""The governor looks this often at what was used."""

_SCAN_S = 0.1
"""It looks this often for shares and processes that have come or gone."""

_BURST_S = 0.1
"""Processes that were idle may use up at once what they would have got in this time."""


def duty_shares(state: Path, name: str, proc: Path = PROC) -> DutyShares:
    """Shares called ``name`` in the state folder, apart from those of earlier boots, of which nothing runs.

    Raises:
        NoSharesError: The folder cannot be written, or ``/proc`` does not tell what processes use and fork.
    """
    try:
        boot = (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        used_s(os.getpid(), proc)
        _children(os.getpid(), proc)
    except OSError as error:
        raise NoSharesError(f"{error.filename}: {error.strerror}") from None
    base = state.resolve() / f"cpu-shares-{boot}"
    place = next(place for place in (base, *base.parents) if place.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        raise NoSharesError(f"{state} cannot be written")
    return DutyShares(base / name, Files())


class DutyShares(Shares):
    """Shares as plain folders, whose limits a governor keeps.

    Attributes:
        way: By a duty cycle, and how long it is.
        period_s: As long as a burst.
    """

    way = f"duty cycle, within {_BURST_S * 1000:g} ms"
    period_s = _BURST_S
    is_coarse = True

    def __init__(self, folder: Path, files: Files) -> None:
        super().__init__(folder, files)
        self._governor: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the folder; whatever an earlier boot has left goes."""
        if not self.folder.parent.is_dir():
            for old in self.folder.parent.parent.glob("cpu-shares-*"):
                shutil.rmtree(old, ignore_errors=True)
            self.folder.parent.mkdir(parents=True)
        with suppress(FileExistsError):
            self.files.make(self.folder)

    def limit(self, name: str, cores: float, weight: int) -> None:  # noqa: ARG002 - nothing presses here but the kernel
        """Write it down for the governor."""
        self.files.write(self.folder / name / "limit", f"{cores:.6f}")

    def limit_of(self, name: str) -> float | None:
        """What is written down."""
        try:
            return float(self.files.read(self.folder / name / "limit"))
        except (FileNotFoundError, ValueError):  # not written yet
            return None

    def enter(self, folder: Path, pid: int) -> None:
        """Write the process down, and take it out of where it was."""
        born_at = born(pid)
        if born_at is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        for other in self.folder.glob("*/*/processes"):
            if other.parent != folder:
                kept = [member for member in _members(other) if member[0] != pid]
                self.files.write(other, _as_text(kept))
        self.files.write(folder / "processes", _as_text([*_members(folder / "processes"), (pid, born_at)]))
        self._govern()

    def pids(self, folder: Path) -> tuple[int, ...]:
        """Those written down that live, and what they have forked since."""
        return _with_children(_members(folder / "processes"))

    def remove(self, folder: Path) -> None:
        """As a control group goes: only if no process is in it."""
        if self.pids(folder) or self.files.folders(folder):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))
        for name in ("limit", "processes"):
            (folder / name).unlink(missing_ok=True)
        self.files.remove(folder)

    def forget(self) -> None:
        """Nothing is left of this boot's shares, if none of any cut is."""
        self.close()
        (self.folder / "governor").unlink(missing_ok=True)
        super().forget()
        with suppress(OSError):
            self.files.remove(self.folder.parent)

    def close(self) -> None:
        """End the governor, which continues the processes that it has stopped."""
        if self._governor is not None:
            with self._governor:
                self._governor.terminate()
            self._governor = None

    def _govern(self) -> None:
        """Have a governor at work: ours, or another controller's."""
        if self._governor is None or self._governor.poll() is not None:
            self.close()
            self._governor = subprocess.Popen(  # noqa: S603 - this very file
                python_command(__name__, "govern", str(self.folder)), stdin=subprocess.PIPE, start_new_session=True
            )


def _as_text(members: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{pid} {born}\n" for pid, born in members)


def _members(file: Path) -> list[tuple[int, int]]:
    """The recorded processes that live, with when each was born."""
    try:
        lines = read_input(file, 2**24).decode().splitlines()
    except FileNotFoundError:
        return []
    written = [tuple(map(int, line.split())) for line in lines]  # the last may be half written yet
    return [(entry[0], entry[1]) for entry in written if len(entry) == 2 and born(entry[0]) == entry[1]]


def _with_children(members: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The processes, and what they have forked, and so on."""
    found = {pid for pid, _ in members}
    todo = list(found)
    while todo:
        with suppress(OSError):  # gone meanwhile
            children = {child for child in _children(todo.pop(), PROC) if born(child) is not None} - found
            found |= children
            todo.extend(children)
    return tuple(sorted(found))


def _children(pid: int, proc: Path) -> list[int]:
    """Processes that this one has started, and that have not been waited for.

    Raises:
        OSError: The process is gone, or the kernel does not tell.
    """
    threads = (proc / str(pid) / "task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def used_s(pid: int, proc: Path = PROC) -> float:
    """CPU seconds that the process's threads have had; without those of threads that ended.

    Raises:
        OSError: The process is gone, or the kernel does not tell.
    """
    threads = (proc / str(pid) / "task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@dataclass
class Bucket:
    """What a share may still use: filled at its rate, emptied by its processes, in debt when they had too much.

    Attributes:
        cores: Its rate, CPU seconds a second.
        left_s: CPU seconds that are left; never more than it gets in a burst.
        runs: Whether its processes may run.
        used_s: CPU seconds that each process had had when it was last looked at.
    """

    cores: float
    left_s: float = 0.0
    runs: bool = True
    used_s: dict[int, float] = field(default_factory=dict)

    def step(self, passed_s: float, used_s: float) -> bool:
        """Whether the processes may run from now on, after so much time in which they used so much."""
        self.left_s = min(self.left_s + self.cores * passed_s - used_s, self.cores * _BURST_S)
        # Stopped processes run again only once there is enough for a look or two: a signal costs more than it brings.
        self.runs = self.left_s > (0.0 if self.runs else min(self.cores, 1.0) * _LOOK_S)
        return self.runs


class Governor:
    """Stops and continues the processes of shares in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buckets: dict[str, Bucket] = {}

    def scan(self) -> None:
        """Look for shares and processes that have come or gone; those that came or left a share run."""
        buckets = {}
        shares = DutyShares(self._folder, Files())
        for name in shares.files.folders(self._folder):
            cores = shares.limit_of(name)
            if cores is None:
                continue
            share = self._folder / name
            pids = [pid for inner in shares.files.folders(share) for pid in shares.pids(share / inner)]
            bucket = self._buckets.pop(name, None) or Bucket(cores)
            bucket.cores = cores
            known = {pid: bucket.used_s[pid] if pid in bucket.used_s else _used_or_none(pid) for pid in pids}
            _signal(bucket.used_s.keys() - known.keys(), signal.SIGCONT)
            bucket.used_s = {pid: used for pid, used in known.items() if used is not None}
            _signal(bucket.used_s, signal.SIGCONT if bucket.runs else signal.SIGSTOP)
            buckets[name] = bucket
        self.release()  # what is left of the old ones: shares that are gone
        self._buckets = buckets

    def step(self, passed_s: float) -> None:
        """Stop processes that have used up their share, and continue those that may run again."""
        for bucket in self._buckets.values():
            now = {pid: _used_or_none(pid) for pid in bucket.used_s}
            used = {pid: was if (had := now[pid]) is None else had for pid, was in bucket.used_s.items()}
            ran = bucket.runs
            if bucket.step(passed_s, sum(max(0.0, used[pid] - bucket.used_s[pid]) for pid in used)) != ran:
                _signal(used, signal.SIGCONT if bucket.runs else signal.SIGSTOP)
            bucket.used_s = used

    def release(self) -> None:
        """Continue everybody."""
        for bucket in self._buckets.values():
            _signal(bucket.used_s, signal.SIGCONT)
        self._buckets = {}


def _used_or_none(pid: int) -> float | None:
    try:
        return used_s(pid)
    except OSError:
        return None


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def govern(name: str) -> None:
    """Keep to the limits in the folder until standard input ends; another governor that is there is waited for."""
    folder, poll = Path(name), select.poll()
    poll.register(sys.stdin, 0)  # 0: tells of nothing but its end
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        lock = open_appended(folder / "governor")
    except FileNotFoundError:
        return
    with lock:
        while not _is_locked(lock):
            if poll.poll(_SCAN_S * 1000):
                return
        governor, last_s, scanned_s = Governor(folder), time.monotonic(), -math.inf
        try:
            while not poll.poll(_LOOK_S * 1000) and folder.is_dir():
                now_s = time.monotonic()
                if now_s - scanned_s >= _SCAN_S:
                    governor.scan()
                    scanned_s = now_s
                governor.step(now_s - last_s)
                last_s = now_s
        finally:
            governor.release()


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
