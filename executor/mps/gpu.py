"""Shares of a whole GPU by MPS as a ``Gpu``, for machines where MIG is absent or may not be changed.

The kernel knows no such instances: they are our records, and what they mean is the environment with which a process
starts in them. They limit SMs, and what each process may allocate; they isolate nothing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from executor.catalogue import gpu_model, mps_cut
from executor.catalogue.mps import NO_ISOLATION, MpsCut
from executor.discovery import card_name
from executor.driver import CardFacts
from executor.errors import GpuError, InvalidArgumentError, NoGpuError
from executor.folders import Files, FolderGpu
from executor.gpu import GpuInstance
from executor.mig import GpuModel
from executor.mps.daemon import Daemon
from executor.opening import card_facts
from executor.processes import born, process, started_with

INSTANCE = "MIGRATOR_INSTANCE"
"""The variable by which a process says in which instance it is: CUDA has none."""

_LEAST_CAPABILITY = 7.0
"""Of Volta: GPUs before it know no thread percentage, and heed no limit."""

_MARK = re.compile(r"(\d+)\.(\d+)")
"""The name of a folder that says which process is in an instance, and when that was born."""


class MpsGpu(FolderGpu):
    """A whole GPU in shares; ``backend`` and ``label`` say so wherever it is reported. For one thread.

    Two of different state folders have daemons of their own, whose shares would compete: the second one is refused
    when it is about to make its first instance.

    Attributes:
        cut: How the GPU is cut.
        daemon: Through which the instances' processes compute.
    """

    backend = "mps"
    kept_as = "MPS shares"
    uuid_prefix = "MIG-MPS-"

    def __init__(self, cut: MpsCut, index: int, state: Path, *, beside_others: bool = False) -> None:
        """The GPU, cut; nothing is changed, and no daemon started.

        Raises:
            NoGpuError: No driver, no such GPU, it is no such card, or MPS cannot share it: its MIG mode is on, it is
                older than Volta, or nobody may compute on it.
            UnknownGpuModelError: It cannot be cut so.
        """
        super().__init__(index)
        self.cut, self._model = cut, gpu_model(cut.name)
        facts = card_facts(index)
        _require_shareable(facts, index)
        _require_card(facts, index, cut)
        self._card_uuid, self._memory_mib = facts.uuid, facts.memory_mib
        own = hashlib.sha256(facts.uuid.encode()).hexdigest()[:12]
        base = state.resolve() / f"mps-{own}"
        self._folder_of_all, self._files = base / "shares", Files()
        self.daemon = Daemon(base, facts.uuid, beside_others=beside_others)

    @property
    def uuid(self) -> str:
        """Of this cut of the GPU, so that its records are not those of MIG instances on it."""
        return f"{self._card_uuid}-{self.cut.name}"

    @property
    def model(self) -> GpuModel:
        """What the GPU is cut into."""
        return self._model

    @property
    def label(self) -> str:
        """What this is, in a few words, for reports."""
        return f"{NO_ISOLATION}: {self.cut.slices} shares of the SMs of {self.cut.card}"

    @property
    def folder(self) -> Path:
        """Beside those of the daemon."""
        return self._folder_of_all

    @property
    def files(self) -> Files:
        """Plain ones, which outlive a reboot, too."""
        return self._files

    def environment(self, gi_uuid: str) -> Mapping[str, str]:
        """What makes a process a client of our daemon, which answers now, with the instance's limits.

        The limits are each process's, and for its life: of several in an instance, each may use as much.

        Raises:
            InstanceNotFoundError: No instance has this UUID.
            GpuError: The daemon does not start. Without it, CUDA would take all of the GPU.
        """
        profile = self._with_uuid(gi_uuid, f"no process can be in {gi_uuid}").placement.profile
        self.daemon.ensure()
        limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(self.cut.percentage_of(profile)), INSTANCE: gi_uuid}
        if self._memory_mib is not None and profile.memory_slices < self.model.memory_slices:
            most_mib = self._memory_mib * profile.memory_slices // self.model.memory_slices
            limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={most_mib}M"  # device 0 of the one that it sees
        return {**self.daemon.environment, **limits}

    def close(self) -> None:
        """Instances stay, and the daemon for them; if there is none, it ends."""
        with suppress(GpuError):
            if not self.instances():
                with suppress(OSError):
                    self.files.remove(self.folder)
                self.daemon.quit()

    def _prepare(self) -> None:
        self.daemon.ensure()
        with suppress(FileExistsError):
            self.files.make(self.folder)

    def _let_in(self, item: GpuInstance, pid: int) -> None:
        """Write down that it is there: its environment does not say so if it was set after the program began."""
        born_at = born(pid)
        if born_at is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        other = next((other for other in self.instances() if other != item and pid in self._pids(other)), None)
        if other is not None:
            raise InvalidArgumentError(
                f"process {process(pid)} cannot enter {item.placement}: it is in {other.placement}, "
                "and MPS limits a process for life"
            )
        folder = self._folder(item) / item.uuid
        self._forget_dead(folder)
        with suppress(FileExistsError):
            self.files.make(folder / f"{pid}.{born_at}")

    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        """Processes that were written down, and those that began with the instance in their environment."""
        folder = self._folder(item)
        marks = [mark for inner in self._inner(folder.name) for mark in self.files.folders(folder / inner)]
        entered = {int(mark.partition(".")[0]) for mark in marks if _lives(mark)}
        return tuple(sorted({*entered, *(started_with(INSTANCE, item.uuid) if item.is_whole else ())}))

    def _remove(self, folder: Path) -> None:
        self._forget_dead(folder)
        super()._remove(folder)

    def _forget_dead(self, folder: Path) -> None:
        """Take away the marks of processes that are gone."""
        for mark in self.files.folders(folder):
            if _MARK.fullmatch(mark) and not _lives(mark):
                self.files.remove(folder / mark)


def _lives(mark: str) -> bool:
    found = _MARK.fullmatch(mark)
    return found is not None and born(int(found[1])) == int(found[2])


def _require_shareable(facts: CardFacts, index: int) -> None:
    """Raise where MPS cannot share the GPU, or would not heed limits."""
    gpu = f"GPU {index} ({facts.title})"
    if facts.is_in_mig_mode:
        raise NoGpuError(
            f"{gpu} is in MIG mode, and MPS shares are of a whole GPU; take its MIG instances (nvml or smi), "
            f"or as root: nvidia-smi -i {index} -mig 0"
        )
    if facts.compute_capability is not None and facts.compute_capability < _LEAST_CAPABILITY:
        raise NoGpuError(f"{gpu} is older than Volta: MPS does not limit processes on it")
    if not facts.lets_compute:
        raise NoGpuError(f"{gpu} lets nobody compute; as root: nvidia-smi -i {index} -c DEFAULT")


def _require_card(facts: CardFacts, index: int, cut: MpsCut) -> None:
    card = card_name(facts.title, None if facts.memory_mib is None else facts.memory_mib / 1024)
    if card != cut.card:
        raise NoGpuError(f"GPU {index} ({facts.title}) is no {cut.card}, but {card}: name it {mps_cut(card).name}")
