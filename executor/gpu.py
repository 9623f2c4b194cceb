"""What every GPU offers, simulated or real: list, create and destroy GPU instances.

The loop is handed one ``Gpu`` where it is put together and never asks which kind it is. Every method
names the command and the driver call that it stands for; failures are the error tree of
``executor.errors``, whose types say whether to try again. ``tests/executor/test_gpu_contract.py``
is what an implementation has to pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from executor.errors import InvalidArgumentError, RetryableGpuError
from executor.mig import GpuModel, Placement, Profile

LOOK_EVERY_S = 1.0
"""Seconds from one question to a driver whether anything has changed to the next, for those who watch a GPU."""

BELIEVE_FOR_S = 10.0
"""Seconds for which a driver is believed that nothing has changed; then all is read anyway."""

SILENT_S = 30.0
"""Seconds for which a driver that does not answer is waited for, by default."""


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    """A compute instance that does not take the whole of its GPU instance.

    Attributes:
        name: Its compute slices and the GPU instance's profile: ``1c.7g.80gb``.
        uuid: Of the MIG device.
    """

    name: str
    uuid: str


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance on a GPU, with its compute instance if it has one.

    Attributes:
        gi_id: The driver's id, unique on the GPU while the instance lives and free for others after
            that. It says nothing of the placement.
        placement: Where it sits.
        uuid: Of the MIG device, for ``CUDA_VISIBLE_DEVICES``; read again after every creation. Empty where no compute
            instance takes all of it: something that was never finished, is half gone, or was split.
        parts: The compute instances where it is split: none of them takes all of it.
    """

    gi_id: int
    placement: Placement
    uuid: str
    parts: tuple[ComputeInstance, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether a process can run in all of it."""
        return bool(self.uuid)

    @property
    def uuids(self) -> tuple[str, ...]:
        """Of all MIG devices in it: what tells it from another with its id and place."""
        return (self.uuid,) if self.uuid else tuple(part.uuid for part in self.parts)

    @property
    def flaw(self) -> str:
        """Why it is not whole, in words; empty where it is."""
        if self.is_whole:
            return ""
        parts = Counter(part.name for part in self.parts)
        names = " + ".join(name if n == 1 else f"{n} × {name}" for name, n in parts.items())
        return f"split: {names}" if names else "no compute instance"


class PartialChangeError(RetryableGpuError):
    """A call failed half way, and what it had done could not be undone.

    Attributes:
        standing: The GPU instance that exists although it should not, or without its compute instance.
    """

    def __init__(self, message: str, standing: GpuInstance, *, retry_after_s: float | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.standing = standing


class UnsureChangeError(RetryableGpuError):
    """A call may have changed something, and which instances are ours is unknown until the next look.

    Attributes:
        made_id: The GPU instance that the driver said this call has made, or made whole; ``None`` if it named none.
    """

    def __init__(self, message: str, *, made_id: int | None = None) -> None:
        super().__init__(message)
        self.made_id = made_id


class Gpu(Protocol):
    """One GPU in MIG mode.

    A call blocks until the driver has finished. A call that raises has changed nothing, or has undone what it did;
    where that failed, too, it raises :class:`~PartialChangeError`, which names what is left, or
    :class:`~UnsureChangeError` where that is not known, or may be another program's.
    """

    @property
    def backend(self) -> str:
        """What carries the calls out, for logs and reports: ``sim`` for the simulated GPU."""

    @property
    def model(self) -> GpuModel:
        """What the GPU can be cut into. ``nvidia-smi mig -lgip -lgipp``; ``nvmlDeviceGetGpuInstanceProfileInfo``."""

    @property
    def index(self) -> int:
        """The GPU's number, as in ``nvidia-smi -i``; ``nvmlDeviceGetIndex``."""

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances on the GPU, sorted by placement.

        ``nvidia-smi mig -lgi`` and ``nvidia-smi -L``; ``nvmlDeviceGetGpuInstances``, ``nvmlGpuInstanceGetInfo``
        and ``nvmlDeviceGetUUID`` of the MIG devices.
        """

    def check(self) -> None:
        """Return if the driver answers, and the GPU is in MIG mode; a cheap question, asked every second.

        ``nvidia-smi --query-gpu=mig.mode.current``; ``nvmlDeviceGetMigMode``.

        Raises:
            GpuError: The driver does not answer.
            MigModeOffError: MIG mode is off, so there are no instances.
        """

    def create(self, placement: Placement) -> GpuInstance:
        """The GPU instance now standing at ``placement``, with its default compute instance.

        ``nvidia-smi mig -cgi ID:START -C``; ``nvmlDeviceCreateGpuInstanceWithPlacement``, then
        ``nvmlGpuInstanceCreateComputeInstance``.

        Raises:
            InsufficientResourcesError: There is no room for it.
            InvalidArgumentError: The GPU has no such profile or start.
        """

    def destroy(self, gi_id: int) -> None:
        """The GPU instance and its compute instance are gone and their slices are free.

        ``nvidia-smi mig -dci -gi ID``, then ``-dgi -gi ID``; ``nvmlComputeInstanceDestroy``, then
        ``nvmlGpuInstanceDestroy``.

        Raises:
            InUseError: A client is still there, or the driver says so; try again later.
            InstanceNotFoundError: There is no GPU instance of this id.
        """

    def make_whole(self, gi_id: int) -> GpuInstance:
        """The GPU instance with a compute instance made anew that takes all of it, where none did.

        ``nvidia-smi mig -cci -gi ID``, after ``-dci -gi ID`` where it is split; ``nvmlComputeInstanceDestroy``,
        ``nvmlGpuInstanceCreateComputeInstance``.

        Raises:
            InstanceNotFoundError: There is no GPU instance of this id.
            InUseError: It is split, and a process is in one of its parts.
        """

    def changed(self) -> bool:
        """Whether the instances may differ from when this was last asked; takes no time. True where that is not known.

        ``nvmlEventMigConfigChange``; ``nvidia-smi`` has nothing like it.
        """

    def processes(self) -> Mapping[int, tuple[int, ...]]:
        """The ids of the processes that compute, by the GPU instance's id; none where they are not real.

        ``nvidia-smi -q -x``; ``nvmlDeviceGetComputeRunningProcesses``.
        """


def unable_to_create(gpu: Gpu, profile: Profile) -> str:
    """How a driver's refusal of a creation begins."""
    return f"Unable to create a GPU instance on GPU {gpu.index:>2} using profile {profile.gi_profile_id}"


def own_placement(gpu: Gpu, placement: Placement) -> Placement:
    """With the GPU model's own profile: one of the same name on another model has other times and starts.

    Raises:
        InvalidArgumentError: The GPU model has no such placement.
    """
    for own in gpu.model.profiles:
        if own == placement.profile and placement.start in own.starts:
            return Placement(own, placement.start)
    what = unable_to_create(gpu, placement.profile)
    raise InvalidArgumentError(f"{what}: Invalid Argument ({gpu.model.name} has no placement {placement})")
