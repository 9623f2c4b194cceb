"""Where shares of a CPU live: a folder an instance, which is its limit, and a folder in that for its processes.

The folders are the truth: they outlive their maker. In a control group file system the kernel keeps to the
limits; elsewhere ``executor.cpu.duty`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from executor.folders import Files


class Shares(ABC):
    """Shares in one folder, and how their limits are kept.

    Attributes:
        folder: Where they are; ours alone.
        files: How it is changed.
    """

    def __init__(self, folder: Path, files: Files) -> None:
        self.folder, self.files = folder, files

    @property
    @abstractmethod
    def way(self) -> str:
        """How limits are kept, for people."""

    @property
    @abstractmethod
    def period_s(self) -> float:
        """Who has used up its share waits for so long at most; no SLO makes sense below some twenty of these."""

    @property
    def is_coarse(self) -> bool:
        """Whether shares hold over seconds only, and not over each period."""
        return False

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
            OSError: It cannot be told.
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
