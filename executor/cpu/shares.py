"""Where shares of a CPU live: a folder an instance, which is its limit, and a folder in that for its processes.

The folders are the truth: they outlive their maker. In a control group file system the kernel keeps to the limits: it
grants processes a quota each period, and no more. Elsewhere ``executor.cpu.duty`` does.

Control groups of version 1 and 2 differ in the names of files, and in who may have processes: in version 2 a group that
hands its controllers on has none itself. Which of them a machine has, and whether we may use it, is found by trying.
"""

from __future__ import annotations

import errno
import math
import os
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from executor.cuts import PERIOD_S
from executor.folders import Files
from executor.processes import PROC


class Shares(ABC):
    """Shares in one folder, and how their limits are kept.

    Attributes:
        folder: Where they are; ours alone.
        files: How it is changed.
        way: How limits are kept, for people.
        period_s: Length of one throttling period. An SLO should be at least 20 periods.
        is_coarse: Whether shares hold over seconds only, and not over each period.
    """

    way: ClassVar[str]
    period_s: ClassVar[float]
    is_coarse: ClassVar[bool] = False

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder, self.files = folder, files

    @abstractmethod
    def prepare(self) -> None:
        """The folder of all shares is there.

        Raises:
            OSError: It cannot be.
        """

    @abstractmethod
    def limit(self, name: str, cores: float, weight: int) -> None:
        """All processes in the share have ``cores`` at most; where others press, as much as ``weight`` says.

        Raises:
            OSError: It cannot be limited so.
        """

    @abstractmethod
    def limit_of(self, name: str) -> float | None:
        """The cores that the share has; ``None`` if it has no limit.

        Raises:
            OSError: There is no such share.
        """

    @abstractmethod
    def enter(self, folder: Path, pid: int) -> None:
        """The process is in the folder, and what it forks from now on.

        Raises:
            OSError: It cannot be: ``ProcessLookupError`` if there is no such process.
        """

    @abstractmethod
    def pids(self, folder: Path) -> tuple[int, ...]:
        """The living processes in the folder, by number; not in folders in it.

        Raises:
            OSError: The kernel does not say.
        """

    def remove(self, folder: Path) -> None:
        """The folder is gone.

        Raises:
            OSError: ``EBUSY`` if processes or folders are in it.
        """
        self.files.remove(folder)

    def forget(self) -> None:
        """The folder of all shares is gone, if none is left in it."""
        with suppress(OSError):
            self.files.remove(self.folder)

    def close(self) -> None:  # noqa: B027 - the kernel needs no help
        """End what keeps to the limits for us; the shares stay."""


_PERIOD_US = round(PERIOD_S * 1e6)
_QUOTA = f"a quota each {PERIOD_S * 1000:g} ms"
_GONE_WITHIN_S = 1.0
"""A process that was waited for may still be in its group for a moment."""


class CgroupShares(Shares):
    """Shares as control groups.

    Attributes:
        version: Of the control groups: 1 or 2.
        way: Which version, and how often its quota is counted anew.
        period_s: The quota's.
    """

    version: ClassVar[int]
    period_s = PERIOD_S

    def enter(self, folder: Path, pid: int) -> None:
        """Move the process, with all its threads."""
        self.files.write(folder / "cgroup.procs", str(pid))

    def pids(self, folder: Path) -> tuple[int, ...]:
        """Those that the kernel lists."""
        return tuple(sorted(set(map(int, self.files.read(folder / "cgroup.procs").split()))))


class SharesV1(CgroupShares):
    """Shares as groups of version 1's ``cpu`` controller."""

    version = 1
    way = f"control groups v1, {_QUOTA}"

    def prepare(self) -> None:
        """Make the group, and let it go before all others that press: its limits leave them the rest."""
        with suppress(FileExistsError):
            self.files.make(self.folder)
        self.files.write(self.folder / "cpu.shares", "262144")

    def limit(self, name: str, cores: float, weight: int) -> None:
        """Write period, quota and weight."""
        folder = self.folder / name
        self.files.write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
        self.files.write(folder / "cpu.cfs_quota_us", str(round(cores * _PERIOD_US)))
        self.files.write(folder / "cpu.shares", str(1024 * weight))

    def limit_of(self, name: str) -> float | None:
        """Quota over period; a quota of −1 is none."""
        quota = int(self.files.read(self.folder / name / "cpu.cfs_quota_us"))
        return None if quota < 0 else quota / int(self.files.read(self.folder / name / "cpu.cfs_period_us"))


class SharesV2(CgroupShares):
    """Shares as groups of version 2."""

    version = 2
    way = f"control groups v2, {_QUOTA}"

    def prepare(self) -> None:
        """Make the group, let it hand on the controller, and let it go before all others that press."""
        with suppress(FileExistsError):
            self.files.make(self.folder)
        self.files.write(self.folder / "cgroup.subtree_control", "+cpu")
        self.files.write(self.folder / "cpu.weight", "10000")

    def limit(self, name: str, cores: float, weight: int) -> None:
        """Write quota and period, and the weight."""
        folder = self.folder / name
        self.files.write(folder / "cpu.max", f"{round(cores * _PERIOD_US)} {_PERIOD_US}")
        self.files.write(folder / "cpu.weight", str(100 * weight))

    def limit_of(self, name: str) -> float | None:
        """Quota over period; ``max`` is none."""
        quota, period = self.files.read(self.folder / name / "cpu.max").split()
        return None if quota == "max" else int(quota) / int(period)


class NoSharesError(Exception):
    """Shares cannot be had in this way; the message says why not."""


def cgroup_shares(version: int, name: str, files: Files | None = None) -> CgroupShares:
    """Shares in a group called ``name``, at the outermost place where we may make one: tried with a process.

    Raises:
        NoSharesError: There is no such place.
    """
    files = files or Files()
    reasons = []
    for base in _bases(version):
        shares = (SharesV1 if version == 1 else SharesV2)(base / name, files)
        reason = _why_not(shares)
        if reason is None:
            return shares
        reasons.append(f"{base}: {reason}")
    absent = f"the cpu controller of control groups v{version} is mounted nowhere"
    raise NoSharesError("; ".join(reasons) or absent)


def _bases(version: int) -> Iterator[Path]:
    """Groups in which ours could be, the outermost first, so that every process of a user comes to the same one."""
    for line in _lines("mountinfo"):
        before, _, after = line.partition(" - ")
        (_, _, _, root, mount, *_), (kind, _, options) = before.split(), after.split(maxsplit=2)
        controllers = options.split(",")
        if kind == "cgroup2" if version == 2 else kind == "cgroup" and "cpu" in controllers:
            base = Path(mount.encode().decode("unicode_escape"))
            yield base
            for part in Path(_own_group(version, root)).parts:
                base /= part
                yield base


def _own_group(version: int, root: str) -> str:
    """The group of this process below ``root``, which is what a mount shows."""
    for line in _lines("cgroup"):
        number, controllers, group = line.split(":", 2)
        if number == "0" if version == 2 else "cpu" in controllers.split(","):
            path = Path(group)
            return str(path.relative_to(root)) if path.is_relative_to(root) else ""
    return ""


def _lines(name: str) -> list[str]:
    try:
        return (PROC / "self" / name).read_text().splitlines()
    except OSError:
        return []


def _why_not(shares: CgroupShares) -> str | None:
    """Why no share can be had beside the folder of ``shares``; ``None`` if one was had, with a process in it."""
    base, files = shares.folder.parent, shares.files
    probe = type(shares)(base / f"migrator-probe-{os.getpid()}", files)
    has_handed_on = False
    try:
        if shares.version == 2:
            if "cpu" not in files.read(base / "cgroup.controllers").split():
                return "it has no cpu controller to give"
            if "cpu" not in files.read(base / "cgroup.subtree_control").split():
                files.write(base / "cgroup.subtree_control", "+cpu")
                has_handed_on = True
        try:
            _try(probe)
        except BaseException:
            if has_handed_on:
                files.write(base / "cgroup.subtree_control", "-cpu")
            raise
    except OSError as error:
        if error.errno == errno.EBUSY and shares.version == 2 and not has_handed_on:
            return "it has processes of its own, so that it cannot hand the cpu controller on"
        return (error.strerror or str(error)).lower()
    return None


def _try(probe: CgroupShares) -> None:
    """Make a share, let a process enter it, and remove all of it.

    Raises:
        OSError: One of these is not for us.
    """
    share, inner = probe.folder / "share", probe.folder / "share" / "processes"
    made: list[Path] = []
    try:
        probe.prepare()
        made.append(probe.folder)
        for folder in (share, inner):
            probe.files.make(folder)
            made.append(folder)
        cores = 0.5
        probe.limit("share", cores, 1)
        if not math.isclose(probe.limit_of("share") or 0.0, cores, rel_tol=0.01):
            raise OSError(errno.EIO, "a quota that was written is not kept")
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # noqa: S607 - waits, and ends with its input
            probe.enter(inner, process.pid)
            if process.pid not in probe.pids(inner):
                raise OSError(errno.EIO, "a process that entered is not there")
    finally:
        for folder in reversed(made or [probe.folder]):
            _removed(probe, folder)


def _removed(probe: CgroupShares, folder: Path) -> None:
    until_s = time.monotonic() + _GONE_WITHIN_S
    while True:
        try:
            probe.files.remove(folder)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until_s:
                return
            time.sleep(0.001)
        else:
            return
