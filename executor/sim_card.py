"""A simulated card that remembers: ``migrator gpu`` can be learned on it, and layouts be tried, without a GPU."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from executor.catalogue import gpu_model, gpu_model_names
from executor.errors import UnknownGpuModelError
from executor.folders import Files, FolderGpu
from executor.gpu import GpuInstance
from executor.processes import started_with


class SimCard(FolderGpu):
    """A catalogued card whose instances are folders, in which nothing computes; for one thread.

    It refuses what the real card has no room for. Its calls take no time. As with the real one, a process is in the
    instance whose UUID ``CUDA_VISIBLE_DEVICES`` had when its program began.

    Attributes:
        uuid: The same in every state folder, where it names what is the card's.
        files: Plain ones, which outlive a reboot, too.
    """

    backend = "sim"
    kept_as = "simulated instances"
    uuid_prefix = "MIG-SIM-"

    def __init__(self, model_name: str, state: Path) -> None:
        """The card of this model and state folder; nothing is made.

        Raises:
            UnknownGpuModelError: The catalogue has no such card.
        """
        super().__init__(0)
        model = gpu_model(model_name)
        if model.name not in gpu_model_names():
            raise UnknownGpuModelError(f"{model.name} is no card that MIG cuts; known: {', '.join(gpu_model_names())}")
        self.model = replace(model, title=f"{model.title}, simulated")
        self.uuid = f"SIM-{model.name}"
        self.folder, self.files = state / self.uuid, Files()
        self._random = random.Random(0)  # noqa: S311 - the same calls give the same ids, as docs/gpu.md shows them

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def _let_in(self, item: GpuInstance, pid: int) -> None:
        """Nothing: a process's environment says where it is."""

    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        return started_with("CUDA_VISIBLE_DEVICES", item.uuid) if item.is_whole else ()
