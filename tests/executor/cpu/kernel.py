"""A kernel's control groups in a plain folder, as far as shares of a CPU need them; and calls that fail on demand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from executor.cpu.gpu import Ways
from executor.cpu.shares import SharesV1, SharesV2
from executor.folders import Files

V1_FILES = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1", "cpu.shares": "1024"}
V2_FILES = {"cpu.max": "max 100000", "cpu.weight": "100"}


def refusal(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


class Kernel(Files):
    """Control groups below ``base``; processes are numbers, which end by themselves if ``has_ended`` says so."""

    def __init__(
        self, base: Path, version: int, *, hands_on: str = "cpu", has_ended: Callable[[int], bool] = lambda _: False
    ) -> None:
        self.base, self.version, self.has_ended = base, version, has_ended
        base.mkdir(exist_ok=True)
        self._fill(base, has_cpu=version == 1)
        if version == 2:
            (base / "cgroup.controllers").write_text("cpuset cpu memory\n")
            (base / "cgroup.subtree_control").write_text(hands_on)

    def ways(self) -> Ways:
        kind = SharesV1 if self.version == 1 else SharesV2
        return {"fake": lambda name: kind(self.base / name, self)}

    def make(self, folder: Path) -> None:
        super().make(folder)
        parent = folder.parent
        handed_on = self.version == 1 or "cpu" in (parent / "cgroup.subtree_control").read_text().split()
        self._fill(folder, has_cpu=handed_on)

    def _fill(self, folder: Path, *, has_cpu: bool) -> None:
        files = {"cgroup.procs": ""}
        if self.version == 2:
            files |= {"cgroup.controllers": "cpu" if has_cpu else "", "cgroup.subtree_control": ""}
        if has_cpu:
            files |= V1_FILES if self.version == 1 else V2_FILES
        for name, text in files.items():
            (folder / name).write_text(text)

    def remove(self, folder: Path) -> None:
        if not folder.is_dir():
            raise refusal(errno.ENOENT, folder)
        pids = map(int, (folder / "cgroup.procs").read_text().split())
        if self.folders(folder) or not all(map(self.has_ended, pids)):
            raise refusal(errno.EBUSY, folder)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def write(self, file: Path, text: str) -> None:
        if not file.exists():
            raise refusal(errno.EACCES if file.parent.is_dir() else errno.ENOENT, file)
        if file.name == "cgroup.procs":
            if self.version == 2 and (file.parent / "cgroup.subtree_control").read_text():
                raise refusal(errno.EBUSY, file)
            self.end(int(text))
            text = f"{file.read_text()}{text}\n"
        elif file.name == "cgroup.subtree_control":
            if (file.parent / "cgroup.procs").read_text():
                raise refusal(errno.EBUSY, file)
            text = {"+cpu": "cpu", "-cpu": ""}[text]
        elif file.name in ("cpu.max", "cpu.cfs_quota_us") and int(text.split()[0]) < 1000:
            raise refusal(errno.EINVAL, file)
        super().write(file, text)

    def end(self, pid: int) -> None:
        """The process is in no group any more."""
        for file in self.base.rglob("cgroup.procs"):
            file.write_text("".join(line + "\n" for line in file.read_text().split() if line != str(pid)))


Refuses = Callable[[str, Path], int]
"""The number of the error that a call is refused with; 0 if it is not."""


def never(call: str, path: Path) -> int:  # noqa: ARG001
    return 0


class Faulty(Files):
    """Calls that fail, before or after they have had their effect, where ``refuses`` says so."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.refuses: Refuses = never
        self.refuses_after: Refuses = never

    def _around(self, call: str, path: Path, make: Callable[[], object]) -> None:
        if number := self.refuses(call, path):
            raise refusal(number, path)
        make()
        if number := self.refuses_after(call, path):
            raise refusal(number, path)

    def folders(self, folder: Path) -> list[str]:
        if number := self.refuses("folders", folder):
            raise refusal(number, folder)
        return self.inner.folders(folder)

    def make(self, folder: Path) -> None:
        self._around("make", folder, lambda: self.inner.make(folder))

    def remove(self, folder: Path) -> None:
        self._around("remove", folder, lambda: self.inner.remove(folder))

    def write(self, file: Path, text: str) -> None:
        self._around("write", file, lambda: self.inner.write(file, text))

    def read(self, file: Path) -> str:
        return self.inner.read(file)
