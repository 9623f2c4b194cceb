"""Which GPU of this machine is meant, where what is ours on it is written down, and who else may change it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from executor.driver import DriverGpu
from executor.errors import OtherControllerError
from executor.journal import Records, file_of, recorded
from executor.opening import BackendName
from executor.processes import other_managers
from migrator.console import warn


@dataclass(frozen=True, slots=True)
class Where:
    """Which GPU, how to speak to it, and where what is ours is written down."""

    index: int = 0
    backend: BackendName = "auto"
    state: Path | None = None

    def journal_of(self, gpu: DriverGpu) -> Path:
        """The file of our instances on the GPU."""
        return file_of(self.state or state_folder(), gpu.uuid)

    def records_of(self, gpu: DriverGpu) -> Records:
        """What is written of our instances on the GPU.

        Raises:
            JournalError: The file cannot be read, or it is not ours.
        """
        return recorded(self.journal_of(gpu), gpu.boot)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a GPU is changed.

    Attributes:
        dry_run: Print the commands, and change nothing.
        adopt: Take over what others made.
        beside_others: Go on although another manager of this node may undo it.
    """

    dry_run: bool = False
    adopt: bool = False
    beside_others: bool = False


def state_folder() -> Path:
    """Where what is ours is written down, unless it is said: ``$XDG_STATE_HOME/migrator``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "migrator"


def mind_other_managers(*, may_refuse: bool) -> None:
    """Tell of other managers of MIG on this node, or refuse to work beside them.

    Raises:
        OtherControllerError: There is one, and it ``may_refuse``.
    """
    found = "; ".join(map(str, other_managers()))
    if found and may_refuse:
        raise OtherControllerError(f"{found}; stop it, or go on all the same with --beside-other-managers")
    if found:
        warn(f"{found}: layouts made here may be undone, and instances given away")
