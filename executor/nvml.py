"""A real GPU through NVML (``nvidia-ml-py``).

One session a process, opened once and used by one caller at a time: opening one and walking MIG devices takes seconds
on a node where others do it, too. GPU instances are enumerated first, because one without a compute instance shows no
MIG device. The UUIDs are then read by walking the MIG devices: they are never predicted, and ids come again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import pynvml

from executor.discovery import discovered_model
from executor.driver import CardFacts, DriverFacts, DriverGpu, no_such_gpu, not_in_mig_mode
from executor.errors import (
    DriverError,
    GpuError,
    GpuLostError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    NoGpuError,
    NoPermissionError,
    NotSupportedError,
)
from executor.gpu import ComputeInstance, GpuInstance, unable_to_create
from executor.mig import Placement, Profile

_Told = TypeVar("_Told")

_SESSION = RLock()
"""NVML calls of this process, one at a time."""

_HANGS_S = 1.0
"""How long the end of a session waits for another thread's call; a driver that hangs may never give it back."""

_ERRORS: dict[int, type[GpuError]] = {
    pynvml.NVML_ERROR_INVALID_ARGUMENT: InvalidArgumentError,
    pynvml.NVML_ERROR_NO_PERMISSION: NoPermissionError,
    pynvml.NVML_ERROR_NOT_SUPPORTED: NotSupportedError,
    pynvml.NVML_ERROR_NOT_FOUND: InstanceNotFoundError,
    pynvml.NVML_ERROR_GPU_IS_LOST: GpuLostError,
    pynvml.NVML_ERROR_RESET_REQUIRED: GpuLostError,
    pynvml.NVML_ERROR_IN_USE: InUseError,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: InsufficientResourcesError,
}
"""What is none of these may succeed at another attempt: :class:`~executor.errors.DriverError`."""


class NvmlGpu(DriverGpu):
    """One GPU in MIG mode, driven by NVML; a context that ends the session when it ends.

    Attributes:
        backend: Always ``nvml``.
        uuid: Read once, when the GPU is opened; and so is ``model``.
    """

    backend = "nvml"

    def __init__(self, index: int = 0) -> None:
        """Open the session and look at the GPU.

        Raises:
            NoGpuError: No driver, no such GPU, or its MIG mode is off.
            NoPermissionError: The driver does not tell placements to this user.
        """
        super().__init__(index)
        self._events: Any = None
        self._is_lost = False
        _open_session()
        try:
            with _driver(f"Unable to open GPU {self.index:>2}"):
                self._device = _device(self.index)
                self._require_mig_mode()
            with _driver("Unable to read the GPU's UUID"):
                self.uuid = str(pynvml.nvmlDeviceGetUUID(self._device))
            with _driver(f"Unable to read the profiles of GPU {self.index:>2}"):
                title = pynvml.nvmlDeviceGetName(self._device)
                self.model = discovered_model(title, tuple(self._profiles()))
        except BaseException:
            self.close()
            raise

    @property
    def turns_by(self) -> str | None:
        """As for every driver; ``None`` in compute mode EXCLUSIVE_PROCESS.

        Raises:
            GpuError: The driver does not answer.
        """
        with _driver(f"Unable to read the compute mode of GPU {self.index:>2}"):
            mode = _unless_unknown(lambda: pynvml.nvmlDeviceGetComputeMode(self._device))
        return None if mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS else super().turns_by

    def close(self) -> None:
        """End the session; leave it where another thread's call has not come back for a while."""
        if not _SESSION.acquire(timeout=_HANGS_S):
            return
        try:
            with suppress(pynvml.NVMLError):
                if self._events is not None:
                    pynvml.nvmlEventSetFree(self._events)
            self._events = None
            _end_session()
        finally:
            _SESSION.release()

    def check(self) -> None:
        """Return if the driver answers, and the GPU is in MIG mode.

        After a reset, or when the driver was loaded anew, handles are void: a GPU that did not answer is opened again,
        by its UUID.

        Raises:
            GpuError: It does not answer.
            MigModeOffError: Its MIG mode is off, so it has no instances.
        """
        with _SESSION:
            if self._is_lost:
                self.close()
                _open_session()
            was_lost, self._is_lost = self._is_lost, True
            if was_lost:
                with _driver(f"Unable to open GPU {self.index:>2} again"):
                    self._device = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
            with _driver(f"Unable to read the MIG mode of GPU {self.index:>2}"):
                self._require_mig_mode()
            self._is_lost = False

    def changed(self) -> bool:
        """Whether the driver has told of a change of its MIG configuration, by us or others, since this was last asked.

        True at first, and always where the driver tells of no such changes.
        """
        with _SESSION:
            try:
                if self._events is None:
                    self._events = self._registered_events()
                    return True
                return self._take_events()
            except pynvml.NVMLError:
                return True  # the look that follows tells what is wrong

    def _registered_events(self) -> Any:
        events = pynvml.nvmlEventSetCreate()
        try:
            pynvml.nvmlDeviceRegisterEvents(self._device, pynvml.nvmlEventMigConfigChange, events)
        except pynvml.NVMLError:
            pynvml.nvmlEventSetFree(events)
            raise
        return events

    def _take_events(self) -> bool:
        """Whether any event waited; all of them are taken."""
        has_any = False
        while True:
            try:
                pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                return has_any
            has_any = True

    def _require_number(self) -> None:
        """Refuse where another GPU now has this one's number, as after a reset of both, or one that is gone.

        Raises:
            NoGpuError: It has.
            GpuError: The driver does not answer.
        """
        with _driver(f"Unable to read the UUID of GPU {self.index:>2}"):
            uuid = str(pynvml.nvmlDeviceGetUUID(_device(self.index)))
        if uuid != self.uuid:
            raise NoGpuError(f"GPU {self.index} is another one now: {uuid} where {self.uuid} was")

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances on the GPU, ours or not, sorted by placement.

        Raises:
            GpuError: The driver does not answer.
        """
        with _driver(f"Unable to list the GPU instances of GPU {self.index:>2}"):
            self._require_mig_mode()
            devices = self._devices()
            found = [
                _as_found(info.id, Placement(profile, info.placement.start), devices.get(info.id, []))
                for profile in self.model.profiles
                for info in self._infos(profile)
            ]
        return tuple(sorted(found, key=lambda item: item.placement.sort_key))

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The processes that compute, by the GPU instance's id."""
        with _driver(f"Unable to list the processes of GPU {self.index:>2}"):
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(self._device)
        found: dict[int, tuple[int, ...]] = {}
        for process in running:
            found[process.gpuInstanceId] = (*found.get(process.gpuInstanceId, ()), process.pid)
        return found

    def _create(self, placement: Placement) -> None:
        profile = placement.profile
        where = ctypes.byref(pynvml.c_nvmlGpuInstancePlacement_t(placement.start, profile.memory_slices))
        with _driver(f"{unable_to_create(self, profile)} ({placement})"):
            gi = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(self._device, profile.gi_profile_id, where)
            self._named = pynvml.nvmlGpuInstanceGetInfo(gi).id
            pynvml.nvmlGpuInstanceCreateComputeInstance(gi, _whole_profile(gi, profile))

    def _destroy(self, gi_id: int) -> None:
        with _driver(f"Unable to destroy GPU instance ID {gi_id:>2} from GPU {self.index:>2}"):
            self._destroy_compute(gi_id)
            pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(self._device, gi_id))

    def _destroy_compute(self, gi_id: int) -> None:
        with _driver(f"Unable to destroy the compute instances of GPU instance ID {gi_id:>2} from GPU {self.index:>2}"):
            for ci in _compute_instances(pynvml.nvmlDeviceGetGpuInstanceById(self._device, gi_id)):
                pynvml.nvmlComputeInstanceDestroy(ci)

    def _create_compute(self, gi_id: int) -> None:
        with _driver(f"Unable to create a compute instance in GPU instance ID {gi_id:>2}"):
            gi = pynvml.nvmlDeviceGetGpuInstanceById(self._device, gi_id)
            profile = self._standing(gi_id).placement.profile
            pynvml.nvmlGpuInstanceCreateComputeInstance(gi, _whole_profile(gi, profile))

    def _require_mig_mode(self) -> None:
        try:
            modes = pynvml.nvmlDeviceGetMigMode(self._device)
            is_on, is_pending = (mode == pynvml.NVML_DEVICE_MIG_ENABLE for mode in modes)
        except pynvml.NVMLError_NotSupported:
            is_on, is_pending = False, None
        if not is_on:
            raise not_in_mig_mode(self.index, pynvml.nvmlDeviceGetName(self._device), is_pending=is_pending)
        self.keeps_mig_mode = bool(is_pending)

    def _profiles(self) -> Iterator[Profile]:
        """Every profile that the driver knows; the loop runs to the module's own count, which grows."""
        for enumerator in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(self._device, enumerator, version=2)
            except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
                continue
            name = _text(info.name).removeprefix("MIG ")
            starts, size = self._placements(info.id)
            if not starts:
                continue  # a profile that cannot be placed is none for us
            yield Profile(
                name=name,
                gi_profile_id=info.id,
                compute_slices=info.sliceCount,
                max_instances=info.instanceCount,
                sm_count=info.multiprocessorCount,
                memory_gib=info.memorySizeMB / 1024,
                starts=starts,
                memory_slices=size,
            )

    def _placements(self, profile_id: int) -> tuple[tuple[int, ...], int]:
        count = ctypes.c_uint(0)
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(self._device, profile_id, None, ctypes.byref(count))
        found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(self._device, profile_id, found, ctypes.byref(count))
        return tuple(sorted(item.start for item in found)), max((item.size for item in found), default=0)

    def _infos(self, profile: Profile) -> Iterator[Any]:
        """What the driver knows of each GPU instance of the profile."""
        room = (pynvml.c_nvmlGpuInstance_t * max(1, profile.max_instances))()
        count = ctypes.c_uint(0)
        pynvml.nvmlDeviceGetGpuInstances(self._device, profile.gi_profile_id, room, ctypes.byref(count))
        for k in range(count.value):
            try:
                yield pynvml.nvmlGpuInstanceGetInfo(room[k])
            except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                continue  # another program has destroyed it while we look

    def _devices(self) -> dict[int, list[_MigDevice]]:
        """By GPU instance its MIG devices."""
        found: dict[int, list[_MigDevice]] = {}
        for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(self._device)):
            try:
                device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self._device, number)
                told = _unless_unknown(partial(pynvml.nvmlDeviceGetAttributes, device))
                shares = None if told is None else (told.computeInstanceSliceCount, told.gpuInstanceSliceCount)
                uuid, ci_id = str(pynvml.nvmlDeviceGetUUID(device)), pynvml.nvmlDeviceGetComputeInstanceId(device)
                one = _MigDevice(ci_id, uuid, shares)
                found.setdefault(pynvml.nvmlDeviceGetGpuInstanceId(device), []).append(one)
            except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
                continue  # numbers have gaps, and a device may go while we look
        return found


@dataclass(frozen=True, slots=True)
class _MigDevice:
    """A compute instance in a GPU instance: its id there, the UUID, and both's compute slices where NVML has them."""

    ci_id: int
    uuid: str
    shares: tuple[int, int] | None

    @property
    def takes_all(self) -> bool:
        return self.shares is None or self.shares[0] >= self.shares[1]

    def named(self, profile: Profile) -> ComputeInstance:
        return ComputeInstance(f"{'?' if self.shares is None else self.shares[0]}c.{profile}", self.uuid)


def _as_found(gi_id: int, placement: Placement, devices: Sequence[_MigDevice]) -> GpuInstance:
    """The GPU instance with its MIG devices: whole if there is one and it takes all of it, else split."""
    if len(devices) == 1 and devices[0].takes_all:
        return GpuInstance(gi_id, placement, devices[0].uuid)
    parts = (device.named(placement.profile) for device in sorted(devices, key=lambda device: device.ci_id))
    return GpuInstance(gi_id, placement, "", tuple(parts))


def driver_facts() -> DriverFacts:
    """What the driver says of itself.

    Raises:
        NoGpuError: There is no library, or no driver.
    """
    _open_session()
    try:
        with _driver("Unable to ask the driver"):
            return DriverFacts(str(pynvml.nvmlSystemGetDriverVersion()), pynvml.nvmlDeviceGetCount())
    finally:
        _end_session()


def card_facts(index: int) -> CardFacts:
    """What the driver says of a whole GPU.

    Raises:
        NoGpuError: There is no library, no driver, or no such GPU.
        GpuError: The driver does not answer.
    """
    _open_session()
    try:
        with _driver(f"Unable to look at GPU {index:>2}"):
            device = _device(index)
            mig_mode = _unless_unknown(lambda: pynvml.nvmlDeviceGetMigMode(device)[0])
            memory_bytes = _unless_unknown(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(device).total))
            compute_mode = _unless_unknown(lambda: pynvml.nvmlDeviceGetComputeMode(device))
            capability = _unless_unknown(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(device))
            return CardFacts(
                title=pynvml.nvmlDeviceGetName(device),
                uuid=str(pynvml.nvmlDeviceGetUUID(device)),
                is_in_mig_mode=mig_mode == pynvml.NVML_DEVICE_MIG_ENABLE,
                memory_mib=None if memory_bytes is None else memory_bytes >> 20,
                lets_compute=compute_mode != pynvml.NVML_COMPUTEMODE_PROHIBITED,
                compute_capability=None if capability is None else capability[0] + capability[1] / 10,
            )
    finally:
        _end_session()


def _unless_unknown(told: Callable[[], _Told]) -> _Told | None:
    """What the driver tells of the GPU; ``None`` where this driver, or this GPU, knows no such thing."""
    try:
        return told()
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None


def _device(index: int) -> Any:
    n_gpus = pynvml.nvmlDeviceGetCount()
    if not 0 <= index < n_gpus:
        raise no_such_gpu(index, n_gpus)
    return pynvml.nvmlDeviceGetHandleByIndex(index)


_CANNOT_OPEN = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install NVIDIA's driver, which brings libnvidia-ml.so.1",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the driver, as root: modprobe nvidia; or install it",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "library and driver differ, as after an update: reboot",
}
"""What to do where no session can be opened."""


def _open_session() -> None:
    with _driver("Unable to open NVML"):
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value not in _CANNOT_OPEN:
                raise
            raise NoGpuError(f"NVML cannot be opened: {error}; {_CANNOT_OPEN[error.value]}") from None


def _end_session() -> None:
    with _SESSION, suppress(pynvml.NVMLError):  # a driver that is gone has nothing to free
        pynvml.nvmlShutdown()


def _whole_profile(gi: Any, profile: Profile) -> int:
    """The id of the compute-instance profile that takes the whole GPU instance.

    Of those with all its slices, the one with the most SMs: on Hopper a double-memory 1g has one of its own.
    """
    told = (info for info in _compute_profiles(gi) if info.sliceCount == profile.compute_slices)
    found: list[tuple[int, int]] = [(info.multiprocessorCount, info.id) for info in told]
    if not found:
        raise DriverError(f"the driver offers no compute instance for the whole of a {profile}")
    return max(found)[1]


def _compute_instances(gi: Any) -> list[Any]:
    found = []
    for info in _compute_profiles(gi):
        room = (pynvml.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        count = ctypes.c_uint(0)
        pynvml.nvmlGpuInstanceGetComputeInstances(gi, info.id, room, ctypes.byref(count))
        found += [room[k] for k in range(count.value)]
    return found


def _compute_profiles(gi: Any) -> Iterator[Any]:
    """What the driver says of each compute-instance profile that the GPU instance has."""
    for enumerator in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                gi, enumerator, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=2
            )


@contextmanager
def _driver(what: str) -> Iterator[None]:
    """The session is ours alone, and NVML's errors are the executor's, in one line that says what was tried."""
    with _SESSION:
        try:
            yield
        except pynvml.NVMLError as error:
            raise _ERRORS.get(error.value, DriverError)(f"{what}: {error}") from error


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
