"""What every real GPU has in common, however its driver is called: half-done calls are undone, or told.

A driver may make the GPU instance and fail at the compute instance, or destroy the one and refuse the other, or
complain about what it has done. So after each failure the truth is read again, and only that decides.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from executor.errors import (
    DriverError,
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    MigModeOffError,
    NoGpuError,
)
from executor.gpu import GpuInstance, PartialChangeError, UnsureChangeError, own_placement
from executor.mig import GpuModel, Placement
from executor.processes import boot_id, gpu_process


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What a driver says of itself: its version, and how many GPUs it has."""

    version: str
    n_gpus: int


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the driver says of a whole GPU, cut by MIG or not.

    Attributes:
        title: The driver's name of it.
        uuid: Of the GPU itself.
        is_in_mig_mode: Whether it is now.
        memory_mib: All of its memory; ``None`` where the driver does not tell, as where it is the CPU's.
        lets_compute: Whether its compute mode lets processes compute at all.
        compute_capability: Such as 8.0; ``None`` where the driver does not tell.
    """

    title: str
    uuid: str
    is_in_mig_mode: bool
    memory_mib: int | None
    lets_compute: bool
    compute_capability: float | None


class DriverGpu(ABC):
    """A ``Gpu`` over a driver's calls; a context that lets go of the driver at its end.

    Attributes:
        index: The GPU's number, as in ``nvidia-smi -i``.
        backend: By what it is driven.
        uuid: Of the GPU itself: it stays the same when numbers change.
        model: What the driver says that the GPU can be cut into.
        keeps_mig_mode: Whether MIG mode is on, too, after the next reset: it is, unless that is asked for.
        is_entered_warm: Whether a process enters an instance once it has loaded everything, not as it starts.
    """

    backend: ClassVar[str]
    uuid: str
    model: GpuModel
    keeps_mig_mode = True
    is_entered_warm = False

    def __init__(self, index: int) -> None:
        self.index = index
        self._named: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def boot(self) -> str | None:
        """The machine's boot, which the GPU's instances do not outlive; empty if unknown."""
        return boot_id()

    @property
    def turns_by(self) -> str | None:
        """By what several processes in one instance take turns; ``None`` where it takes one process alone."""
        is_served = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
        return "MPS, as CUDA_MPS_PIPE_DIRECTORY is set" if is_served else "time slices of NVIDIA's driver"

    def environment(self, gi_uuid: str) -> Mapping[str, str]:
        """What a process needs in its environment, before CUDA starts in it, to compute in the instance.

        Raises:
            GpuError: There is no such instance, or what it needs does not start.
        """
        return {"CUDA_VISIBLE_DEVICES": gi_uuid}

    def aside(self, *, busy: bool) -> Mapping[str, str]:  # noqa: ARG002 - where all keep to the CPU anyway
        """What a process needs in its environment to compute outside the instances: on the CPU, as all is tenants'.

        With ``busy`` instances serve meanwhile, and it is to be in their way as little as can be.

        Raises:
            GpuError: What it needs does not start.
        """
        return {"CUDA_VISIBLE_DEVICES": ""}

    def enter(self, gi_uuid: str, pid: int) -> None:  # noqa: B027 - most need nothing
        """Have a running process compute in the instance from now on, where its environment does not say so.

        Raises:
            ExecutorError: There is no such instance or process, or it is not let in.
        """

    @abstractmethod
    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances on the GPU, ours or not, sorted by placement.

        Raises:
            GpuError: The driver does not answer.
        """

    def check(self) -> None:  # noqa: B027 - the system itself keeps some instances, and always answers
        """Return if the driver answers, and the GPU is in MIG mode.

        Raises:
            GpuError: It does not answer.
            MigModeOffError: Its MIG mode is off, so it has no instances.
        """

    @abstractmethod
    def processes(self) -> dict[int, tuple[int, ...]]:
        """The processes that compute, by the GPU instance's id.

        Raises:
            GpuError: The driver does not answer.
        """

    def create(self, placement: Placement) -> GpuInstance:
        """The GPU instance now standing at ``placement``, with its default compute instance.

        Raises:
            GpuError: As the driver says; no new instance exists.
            PartialChangeError: A part of it exists all the same.
            UnsureChangeError: The driver does not list instances, or lists one that it has not reported as made.
        """
        own, self._named = own_placement(self, placement), None
        before = {item.gi_id for item in self.instances()}
        try:
            self._create(own)
        except GpuError as error:
            self._undo_creation(own, before, error)
            raise
        standing = self._standing_after(f"{own} was to be made", made_id=self._named)
        made = next((item for item in standing if item.placement == own and item.gi_id not in before), None)
        if made is None or self._named not in (None, made.gi_id):
            raise DriverError(f"{own} was made, and is gone again: somebody else has destroyed it")
        return made

    def destroy(self, gi_id: int) -> None:
        """The GPU instance and its compute instances are gone.

        Raises:
            InUseError: A client is still there, or the driver says so; nothing has changed.
            DriverError: The driver says that it is gone, and still lists it.
            InstanceNotFoundError: There is no GPU instance of this id.
            PartialChangeError: It has lost its compute instance alone; destroying it again may succeed.
            UnsureChangeError: The driver does not list instances, or says that it is gone and lists half of it.
        """
        before, refused = self._standing(gi_id), None
        what = f"{before.placement} was to be destroyed"
        try:
            self._destroy(gi_id)
        except GpuError as error:
            what, refused = str(error), error
        left = self._found_after(what, gi_id)
        is_anothers = left is not None and bool(before.uuids) and not set(left.uuids) <= set(before.uuids)
        if left is None or left.placement != before.placement or is_anothers:
            return  # whatever the driver said of it; what has its id now is another's
        if refused is None and not left.uuids:
            raise UnsureChangeError(f"{what}, and is by the driver's word; nobody knows whose half is there now")
        failed = refused or DriverError(f"{what}, and exists, though the driver has not refused")
        if left.uuids != before.uuids != ():
            message = f"{failed}; {left.placement} is left without its compute instance"
            raise PartialChangeError(message, left, retry_after_s=failed.retry_after_s) from refused
        raise failed

    def make_whole(self, gi_id: int) -> GpuInstance:
        """The GPU instance with a compute instance made anew that takes all of it, where none did.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InUseError: It is split, and a process is in one of its parts; nothing has changed.
            GpuError: As the driver says; nothing has changed.
            PartialChangeError: It was split, and has fewer parts, or none.
            UnsureChangeError: The driver does not list instances.
        """
        before = self._standing(gi_id)
        if before.is_whole:
            return before
        what, refused = f"{before.placement} was to get its compute instance", None
        try:
            if before.parts:
                self._unsplit(before)
            self._create_compute(gi_id)
        except GpuError as error:
            what, refused = str(error), error
        made = self._found_after(what, gi_id, made_id=gi_id if refused is None else None)
        if made is not None and made.is_whole:
            return made  # whatever the driver said of it
        if made is not None and set(made.uuids) < set(before.uuids):
            raise PartialChangeError(f"{what}; {made.placement} has lost compute instances", made) from refused
        raise refused or InstanceNotFoundError(f"{what}, and is gone: somebody else has destroyed it")

    def changed(self) -> bool:
        """Whether the instances may differ from when this was last asked; true where the driver cannot tell."""
        return True

    def close(self) -> None:  # noqa: B027 - a driver that holds nothing has nothing to let go
        """Let go of the driver."""

    @abstractmethod
    def _create(self, placement: Placement) -> None:
        """Make the GPU instance, whose id goes into ``_named`` once the driver tells it, then its compute instance."""

    @abstractmethod
    def _destroy(self, gi_id: int) -> None:
        """Destroy the compute instances, then the GPU instance."""

    def _unsplit(self, instance: GpuInstance) -> None:
        """Destroy its parts, unless a process is in one: none goes then."""
        held = self.processes().get(instance.gi_id)
        if held:
            holders = ", ".join(str(gpu_process(pid)) for pid in held)
            raise InUseError(f"{instance.placement} ({instance.flaw}) is not made whole: held by process {holders}")
        self._destroy_compute(instance.gi_id)

    def _destroy_compute(self, gi_id: int) -> None:  # noqa: B027 - only a driver's instances are ever split
        """Destroy the compute instances of a GPU instance, and leave that."""

    @abstractmethod
    def _create_compute(self, gi_id: int) -> None:
        """Make the compute instance that takes the whole GPU instance."""

    def _standing_after(self, what: str, *, made_id: int | None = None) -> tuple[GpuInstance, ...]:
        """All GPU instances, after a change that may have been made; ``what`` says which."""
        try:
            return self.instances()
        except GpuError as error:
            told = f"{what}; the GPU's state is unknown: {error}"
            raise UnsureChangeError(told, made_id=made_id) from error

    def _found_after(self, what: str, gi_id: int, *, made_id: int | None = None) -> GpuInstance | None:
        return next((item for item in self._standing_after(what, made_id=made_id) if item.gi_id == gi_id), None)

    def _standing(self, gi_id: int) -> GpuInstance:
        found = next((item for item in self.instances() if item.gi_id == gi_id), None)
        if found is None:
            raise InstanceNotFoundError(f"there is no GPU instance ID {gi_id:>2} on GPU {self.index:>2}: Not Found")
        return found

    def _undo_creation(self, placement: Placement, before: set[int], error: GpuError) -> None:
        """Take away what a creation that failed has left behind.

        Raises:
            PartialChangeError: It would not go.
            UnsureChangeError: The driver did not name it: another program may have made it meanwhile.
        """
        if isinstance(error, InsufficientResourcesError):
            return  # without room nothing was made: another program was faster, and may not be done yet
        standing = self._standing_after(str(error), made_id=self._named)
        left = next((i for i in standing if i.gi_id not in before and i.placement == placement), None)
        if left is None:
            return
        if left.gi_id != self._named:
            raise UnsureChangeError(f"{error}; {placement} exists, and nobody knows whose it is") from error
        try:
            self.destroy(left.gi_id)
        except GpuError as second:
            still = self._found_after(str(error), left.gi_id, made_id=self._named)
            if still is not None:
                message = f"{error}; {placement} exists all the same, and cannot be taken away: {second}"
                raise PartialChangeError(message, still, retry_after_s=error.retry_after_s) from error


def no_such_gpu(index: int, n_gpus: int) -> NoGpuError:
    """What to say where the driver has no GPU of this number."""
    if n_gpus == 0:
        return NoGpuError("the driver sees no GPU; nvidia-smi -L lists them; a container has to be given one")
    return NoGpuError(f"there is no GPU {index}; the driver has {n_gpus}, counted from 0")


def not_in_mig_mode(index: int, title: str, *, is_pending: bool | None) -> NoGpuError:
    """What to say of a GPU whose MIG mode is not on, though it may be ``is_pending``; ``None``: it has none."""
    if is_pending is None:
        return NoGpuError(f"GPU {index} ({title}) cannot be cut by MIG")
    if is_pending:
        todo = f"once no process uses it, as root: nvidia-smi -i {index} --gpu-reset, or reboot"
        return MigModeOffError(f"GPU {index} ({title}) is not in MIG mode yet, only from its next reset on; {todo}")
    return MigModeOffError(f"GPU {index} ({title}) is not in MIG mode; as root: nvidia-smi -i {index} -mig 1")
