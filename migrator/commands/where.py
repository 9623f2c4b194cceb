"""Which GPU of this machine is meant, where what is ours on it is written down, and who else may change it."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from executor.driver import DriverGpu
from executor.errors import OtherControllerError
from executor.journal import Records, file_of, recorded
from executor.opening import BackendName, open_gpu
from executor.processes import other_managers
from executor.sim_card import SimCard
from migrator.errors import MigratorError
from migrator.terminal.console import warn


@dataclass(frozen=True, slots=True)
class Where:
    """Which GPU, how to speak to it, and where what is ours is written down; ``card`` is a simulated one."""

    index: int = 0
    backend: BackendName = "auto"
    state: Path | None = None
    card: str | None = None

    def opened(self) -> DriverGpu:
        """The GPU, a context that lets go of it.

        Raises:
            MigratorError: ``card`` is no ``sim:MODEL``, or is beside a real GPU's number or backend.
            UnknownGpuModelError: The catalogue has no such card.
            GpuError: The real one cannot be opened.
        """
        if self.card is None:
            return open_gpu(self.backend, self.index)
        kind, _, model = self.card.partition(":")
        if kind.casefold() != "sim" or not model:
            raise MigratorError(f"--gpu {self.card}: sim:MODEL is needed, such as sim:a100-80gb; -i chooses a real GPU")
        if self.index or self.backend != "auto":
            raise MigratorError(f"--gpu {self.card}: --index and --backend are of real GPUs; leave them out")
        return SimCard(model, self.state or state_folder())

    def mind_other_managers(self, *, may_refuse: bool) -> None:
        """As :func:`mind_other_managers`; a simulated card is nothing to them."""
        if self.card is None:
            mind_other_managers(may_refuse=may_refuse)

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
    """Where what is ours is written down, unless it is said: ``$XDG_STATE_HOME/migrator``, else in the user's home."""
    return Path(os.environ.get("XDG_STATE_HOME") or _home() / ".local" / "state") / "migrator"


def _home() -> Path:
    """``$HOME``; where ``sudo`` left another user's there, the home that the system has of this one."""
    home = Path.home()
    with suppress(KeyError, OSError):
        if home.stat().st_uid != os.geteuid():
            own = Path(pwd.getpwuid(os.geteuid()).pw_dir)
            return own if own.is_dir() and own.stat().st_uid == os.geteuid() else home
    return home


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
