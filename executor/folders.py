"""GPUs whose instances no driver keeps: each is a folder, which outlives its maker.

An instance is a folder named ``PLACEMENT.ID``; what stands for its compute instance is a folder in that, named by
the UUID, for its processes. Both are read from the system at every look, and nothing else is the truth.
"""

from __future__ import annotations

import errno
import os
import random
import re
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from executor.driver import DriverGpu
from executor.errors import (
    DriverError,
    ExecutorError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    PermanentGpuError,
)
from executor.files import open_emptied, read_input
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.processes import process

_INSTANCE = re.compile(r"(.+)\.(\d+)")

_RETRY_S = 0.1
"""A process that has ended is out of its instance within this."""


class Files:
    """The calls that are made on folders of instances; tests put a kernel of their own in their place."""

    def folders(self, folder: Path) -> list[str]:
        """Names of the folders in one, sorted; none if it is not there."""
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def make(self, folder: Path) -> None:
        """The folder is there, and was not before."""
        folder.mkdir()

    def remove(self, folder: Path) -> None:
        """The folder is gone."""
        folder.rmdir()

    def write(self, file: Path, text: str) -> None:
        """The file has taken the text, in one call."""
        with open_emptied(file) as opened:
            opened.write(text.encode())

    def read(self, file: Path) -> str:
        """What the file holds."""
        return read_input(file, 2**24).decode("ascii")


class FolderGpu(DriverGpu):
    """A ``Gpu`` whose instances are folders; for one thread.

    Attributes:
        kept_as: What its instances are, for messages.
        uuid_prefix: UUIDs begin with this: like those of MIG devices, but not to be taken for one.
        folder: Where the instances are.
        files: How they are changed.
    """

    kept_as: ClassVar[str]
    uuid_prefix: ClassVar[str]
    folder: Path
    files: Files

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._random = random.Random()  # noqa: S311 - ids, no secrets

    @property
    def boot(self) -> str | None:
        """Always the same: folders on a disk outlive every boot."""
        return "any"

    def instances(self) -> tuple[GpuInstance, ...]:
        """All instances of this cut, sorted by placement; folders named otherwise are no instances.

        Raises:
            DriverError: The system does not tell.
        """
        found = []
        with self._system("the instances cannot be listed"):
            for name in self.files.folders(self.folder):
                match = _INSTANCE.fullmatch(name)
                placement = None if match is None else self._placement(match[1])
                if match is not None and placement is not None:
                    gi_uuid = next(iter(self._inner(name)), "")
                    found.append(GpuInstance(int(match[2]), placement, gi_uuid))
        return tuple(sorted(found, key=lambda item: item.placement.sort_key))

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The processes in instances, by the instance's id.

        Raises:
            DriverError: The system does not tell.
        """
        found = {}
        for item in self.instances():
            with self._system(f"the processes in {item.placement} cannot be listed"):
                pids = self._pids(item)
            if pids:
                found[item.gi_id] = pids
        return found

    def enter(self, gi_uuid: str, pid: int) -> None:
        """The process is in the instance from now on.

        Raises:
            InstanceNotFoundError: No instance has this UUID.
            InvalidArgumentError: There is no such process, or it cannot come here.
            GpuError: The system does not let it.
        """
        item = self._with_uuid(gi_uuid, f"process {pid} cannot enter {gi_uuid}")
        what = f"process {pid} cannot enter {item.placement}"
        with self._system(what):
            try:
                self._let_in(item, pid)
            except ProcessLookupError:
                raise InvalidArgumentError(f"{what}: there is no such process") from None
            except FileNotFoundError:
                raise InstanceNotFoundError(f"{what}: it is gone") from None

    @abstractmethod
    def _prepare(self) -> None:
        """The folder of all instances is there, and what has to be at work for them is.

        Raises:
            OSError: It cannot be made.
        """

    def _limit(self, name: str, placement: Placement) -> None:
        """Processes in the instance of this folder will be limited; here nothing is done for that.

        Raises:
            OSError: That cannot be.
        """

    @abstractmethod
    def _let_in(self, item: GpuInstance, pid: int) -> None:
        """The process is in the whole instance.

        Raises:
            OSError: It cannot be: ``ProcessLookupError`` if there is no such process.
        """

    @abstractmethod
    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        """The living processes in the instance, sorted, whole or not.

        Raises:
            OSError: The system does not say.
        """

    def _remove(self, folder: Path) -> None:
        """The folder of an instance, or the one in it, is gone.

        Raises:
            OSError: ``EBUSY`` if processes or folders are in it.
        """
        self.files.remove(folder)

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
        with self._system(what):
            self._prepare()
            self.files.make(self.folder / name)
            self._named = gi_id
            self._finish(name, placement)

    def _create_compute(self, gi_id: int) -> None:
        item = self._standing(gi_id)
        with self._system(f"Unable to make {item.placement} whole"):
            self._finish(f"{item.placement}.{gi_id}", item.placement)

    def _finish(self, name: str, placement: Placement) -> None:
        """Limit the instance, and only then make the folder in which processes can be."""
        self._limit(name, placement)
        self.files.make(self.folder / name / f"{self.uuid_prefix}{uuid.uuid4()}")

    def _destroy(self, gi_id: int) -> None:
        item = self._standing(gi_id)
        folder, what = self._folder(item), f"Unable to destroy {item.placement} (GPU instance ID {gi_id})"
        with self._system(what):
            pids = self._pids(item)
            if pids:
                holders = ", ".join(str(process(pid)) for pid in pids)
                raise InUseError(f"{what}: In use by process {holders}", retry_after_s=_RETRY_S)
            for inner in self._inner(folder.name):
                self._remove(folder / inner)
            self._remove(folder)

    def _obstacle(self, placement: Placement, standing: tuple[GpuInstance, ...]) -> str | None:
        """Why there is no room for the placement; ``None`` if there is."""
        for item in standing:
            if item.placement.overlaps(placement):
                return f"{item.placement} (GPU instance ID {item.gi_id}) is in its way"
        if not self.model.fits((*(item.placement for item in standing), placement)):
            return "too few compute slices are left, or none of the profile"
        return None

    def _with_uuid(self, gi_uuid: str, what: str) -> GpuInstance:
        """The whole instance of this UUID.

        Raises:
            InstanceNotFoundError: There is none, so ``what``.
        """
        item = next((item for item in self.instances() if item.is_whole and item.uuid == gi_uuid), None)
        if item is None:
            raise InstanceNotFoundError(f"{what}: there is no such instance")
        return item

    def _placement(self, text: str) -> Placement | None:
        with suppress(ExecutorError):
            return self.model.placement(text)
        return None

    def _folder(self, item: GpuInstance) -> Path:
        return self.folder / f"{item.placement}.{item.gi_id}"

    def _inner(self, name: str) -> list[str]:
        return [inner for inner in self.files.folders(self.folder / name) if inner.startswith(self.uuid_prefix)]

    @contextmanager
    def _system(self, what: str) -> Iterator[None]:
        """The system's refusals are a driver's, in one line that says what was tried."""
        try:
            yield
        except OSError as error:
            said = f"{what}: {error.strerror or error}"
            match error.errno:
                case errno.EBUSY:
                    raise InUseError(said, retry_after_s=_RETRY_S) from error
                case errno.EACCES | errno.EPERM | errno.EROFS:
                    need = f"{self.kept_as} need write access to {error.filename}"
                    raise PermanentGpuError(f"{said}; {need}") from error
                case _:
                    raise DriverError(said) from error
