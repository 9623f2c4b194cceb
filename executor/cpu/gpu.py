"""A machine's CPU as a ``Gpu``: its instances are real shares of CPU time, so that all else is as on a real GPU.

An instance is a folder named ``PLACEMENT.ID`` that limits what is in it; what stands for its compute instance is
a folder in that, named by the UUID, for its processes. Both are read from the system at every look, and outlive us.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from executor.cpu.cgroups import NoSharesError, cgroup_shares
from executor.cpu.cut import Cut
from executor.cpu.duty import duty_shares
from executor.cpu.shares import Shares
from executor.driver import DriverGpu
from executor.errors import (
    DriverError,
    ExecutorError,
    GpuError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    NoGpuError,
    PermanentGpuError,
)
from executor.gpu import GpuInstance
from executor.mig import GpuModel, Placement
from executor.processes import process

_INSTANCE = re.compile(r"(\d+c@\d+)\.(\d+)")
_UUID = "MIG-CPU-"
"""UUIDs begin with this: as those of MIG devices do, and yet nobody takes them for one."""

_RETRY_S = 0.1
"""A process that has ended is out of its share within this."""

Ways = dict[str, Callable[[str], Shares]]


def ways(state: Path) -> Ways:
    """How shares could be had, the best first; each is tried with the name of the shares' folder."""
    return {
        "control groups v2": lambda name: cgroup_shares(2, name),
        "control groups v1": lambda name: cgroup_shares(1, name),
        "duty cycle": lambda name: duty_shares(state, name),
    }


def find_shares(found: Ways, name: str) -> tuple[Shares, tuple[str, ...]]:
    """The shares called ``name`` in the first way that works here, and why the ways before it do not.

    Raises:
        NoGpuError: None does.
    """
    reasons: list[str] = []
    for way, attempt in found.items():
        try:
            return attempt(name), tuple(reasons)
        except NoSharesError as error:
            reasons.append(f"no {way}: {error}")
    raise NoGpuError(f"no shares of this machine's CPU can be had: {'; '.join(reasons)}")


def standing_cuts(state: Path, found: Ways | None = None) -> tuple[Cut, ...]:
    """The cuts of which something stands for this state folder, by name: those of a controller that was killed, too.

    Raises:
        NoGpuError: No shares can be had here.
    """
    prefix = f"{_own_name(state)}-"
    shares, _ = find_shares(found or ways(state), prefix.removesuffix("-"))
    names = shares.files.folders(shares.folder.parent)
    cuts = (Cut.named(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
    return tuple(cut for cut in cuts if cut is not None)


class CpuGpu(DriverGpu):
    """A machine's CPU, cut; ``backend`` says so wherever it is reported. For one thread.

    Two of different state folders do not meet. Those of one state folder and another cut do not, either:
    :func:`standing_cuts` tells of them.

    Attributes:
        cut: How the CPU is cut.
        shares: Where the shares are.
        why_not: Why better ways to have shares do not work here.
    """

    backend = "cpu"

    def __init__(self, cut: Cut, state: Path, found: Ways | None = None) -> None:
        """The CPU, cut; nothing is changed.

        Raises:
            NoGpuError: The machine has fewer cores, or no shares can be had here.
        """
        super().__init__(0)
        n_cores = len(os.sched_getaffinity(0))
        if cut.cores > n_cores:
            raise NoGpuError(f"{cut.cores:g} cores are asked for; this machine gives us {n_cores}")
        self.cut = cut
        name = f"{_own_name(state)}-{cut.name}"
        self._uuid = f"CPU-{name.removeprefix('migrator-')}"
        self.shares, self.why_not = find_shares(found or ways(state), name)
        self._random = random.Random()  # noqa: S311 - ids, no secrets

    @property
    def uuid(self) -> str:
        """Of this cut of the CPU, for this state folder; not of the machine."""
        return self._uuid

    @property
    def model(self) -> GpuModel:
        """What the CPU is cut into."""
        return self.cut.model

    @property
    def label(self) -> str:
        """What this is, in a few words, for reports."""
        coarse = ", coarse" if self.shares.is_coarse else ""
        return f"emulated{coarse}: {self.cut.cores:g} CPU cores in {self.cut.slices} slices by {self.shares.way}"

    def instances(self) -> tuple[GpuInstance, ...]:
        """All instances of this cut that stand, sorted by placement; folders named otherwise are no instances.

        Raises:
            DriverError: The system does not tell.
        """
        found = []
        try:
            for name in self.shares.files.folders(self.shares.folder):
                match = _INSTANCE.fullmatch(name)
                placement = None if match is None else self._placement(match[1])
                if match is not None and placement is not None:
                    gi_uuid = next(iter(self._inner(name)), "")
                    found.append(GpuInstance(int(match[2]), placement, gi_uuid))
        except OSError as error:
            raise _told(error, "the instances cannot be listed") from error
        return tuple(sorted(found, key=lambda item: item.placement.sort_key))

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The processes in instances, by the instance's id.

        Raises:
            DriverError: The system does not tell.
        """
        found = {}
        for item in self.instances():
            try:
                pids = self._pids(item)
            except OSError as error:
                raise _told(error, f"the processes in {item.placement} cannot be listed") from error
            if pids:
                found[item.gi_id] = pids
        return found

    def environment(self, gi_uuid: str) -> Mapping[str, str]:  # noqa: ARG002
        """Nothing: see :meth:`enter`."""
        return {}

    def enter(self, gi_uuid: str, pid: int) -> None:
        """The process runs in the instance from now on, and so does what it forks; it may come from another one.

        Raises:
            InstanceNotFoundError: No instance has this UUID.
            InvalidArgumentError: There is no such process.
            GpuError: The system does not let it.
        """
        item = next((item for item in self.instances() if item.is_whole and item.uuid == gi_uuid), None)
        if item is None:
            raise InstanceNotFoundError(f"process {pid} cannot enter {gi_uuid}: there is no such instance")
        try:
            self.shares.enter(self._folder(item) / gi_uuid, pid)
        except ProcessLookupError:
            raise InvalidArgumentError(
                f"process {pid} cannot enter {item.placement}: there is no such process"
            ) from None
        except FileNotFoundError:
            raise InstanceNotFoundError(f"process {pid} cannot enter {item.placement}: it is gone") from None
        except OSError as error:
            raise _told(error, f"process {pid} cannot enter {item.placement}") from error

    def close(self) -> None:
        """End whoever keeps to the limits for us, if anybody; shares stay, but no folder without any."""
        self.shares.close()
        with suppress(GpuError):
            if not self.instances():
                self.shares.forget()

    def _create(self, placement: Placement) -> None:
        standing = self.instances()
        what = f"Unable to create {placement}"
        obstacle = self._obstacle(placement, standing)
        if obstacle is not None:
            raise InsufficientResourcesError(f"{what}: Insufficient Resources ({obstacle})")
        taken = {item.gi_id for item in standing}
        # Small numbers that recur, as a driver's do: a stale id soon names another instance.
        gi_id = self._random.choice([n for n in range(2 * self.model.memory_slices) if n not in taken])
        name = f"{placement}.{gi_id}"
        try:
            self.shares.prepare()
            self.shares.files.make(self.shares.folder / name)
            self._finish(name, placement)
        except OSError as error:
            raise _told(error, what) from error

    def _create_compute(self, gi_id: int) -> None:
        item = self._standing(gi_id)
        try:
            self._finish(f"{item.placement}.{gi_id}", item.placement)
        except OSError as error:
            raise _told(error, f"Unable to make {item.placement} whole") from error

    def _finish(self, name: str, placement: Placement) -> None:
        """Limit the instance, and only then make the folder in which processes can be."""
        profile = placement.profile
        self.shares.limit(name, self.cut.cores_of(profile), profile.compute_slices)
        self.shares.files.make(self.shares.folder / name / f"{_UUID}{uuid.uuid4()}")

    def _destroy(self, gi_id: int) -> None:
        item = self._standing(gi_id)
        folder, what = self._folder(item), f"Unable to destroy {item.placement} (GPU instance ID {gi_id})"
        try:
            pids = self._pids(item)
            if pids:
                holders = ", ".join(str(process(pid)) for pid in pids)
                raise InUseError(f"{what}: In use by process {holders}", retry_after_s=_RETRY_S)
            for inner in self._inner(folder.name):
                self.shares.remove(folder / inner)
            self.shares.remove(folder)
        except OSError as error:
            raise _told(error, what) from error
        if not self.instances():
            self.shares.forget()

    def _obstacle(self, placement: Placement, standing: tuple[GpuInstance, ...]) -> str | None:
        """Why there is no room for the placement; ``None`` if there is."""
        for item in standing:
            if item.placement.overlaps(placement):
                return f"{item.placement} (GPU instance ID {item.gi_id}) is in its way"
        if not self.model.fits((*(item.placement for item in standing), placement)):
            return "too few compute slices are left, or none of the profile"
        return None

    def _placement(self, text: str) -> Placement | None:
        try:
            return self.model.placement(text)
        except ExecutorError:
            return None

    def _folder(self, item: GpuInstance) -> Path:
        return self.shares.folder / f"{item.placement}.{item.gi_id}"

    def _inner(self, name: str) -> list[str]:
        return [inner for inner in self.shares.files.folders(self.shares.folder / name) if inner.startswith(_UUID)]

    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        """Processes in the instance, those that somebody put past its compute instance, too."""
        folder = self._folder(item)
        inner = (pid for name in self._inner(folder.name) for pid in self.shares.pids(folder / name))
        return tuple(sorted({*self.shares.pids(folder), *inner}))


def _own_name(state: Path) -> str:
    """What begins the name of all shares of a state folder: the same for every process of this machine."""
    return f"migrator-{hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]}"


def _told(error: OSError, what: str) -> GpuError:
    """The system's refusal, as a driver's."""
    said = f"{what}: {error.strerror or error}"
    match error.errno:
        case errno.EBUSY:
            return InUseError(said, retry_after_s=_RETRY_S)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return PermanentGpuError(f"{said}; shares of the CPU need write access to {error.filename}")
        case _:
            return DriverError(said)
