"""Which instances are ours: a small file a GPU, written before and after every change, and one controller at a time.

An instance is ours only if its id, placement and UUID agree with what was written of it: a driver's ids come again. One
without a compute instance has no UUID; it is ours if that was written, or if we were at work on it when we were cut
off. The file is appended to and synced, its folder, too, when it is made. A line that was cut short is left out.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from executor.errors import ExecutorError
from executor.gpu import GpuInstance
from executor.mig import Placement

Verb = Literal["create", "destroy", "repair"]


class JournalError(ExecutorError):
    """The file of our instances cannot be used, or another controller uses it."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A driver call that was begun, and of which no outcome was written.

    Attributes:
        verb: What was to be done.
        placement: Where.
        gi_id: To which instance; ``None`` for a creation.
        others: Ids that stood before a creation: whatever has one of them is not what was made.
    """

    verb: Verb
    placement: str
    gi_id: int | None
    others: tuple[int, ...] = ()

    def concerns(self, instance: GpuInstance) -> bool:
        """Whether the instance is what the call made, or was at work on."""
        if str(instance.placement) != self.placement:
            return False
        return instance.gi_id not in self.others if self.gi_id is None else instance.gi_id == self.gi_id


class Journal:
    """The instances of one controller on one GPU. A context that frees the file for another controller."""

    def __init__(self, path: Path) -> None:
        """Read the file, or begin it, and keep other controllers away.

        Raises:
            JournalError: Another controller has it, it cannot be read or written, or it is not ours.
        """
        self.path = path
        self._made: dict[int, tuple[str, str]] = {}
        self._open: Intent | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not path.exists()
            self._file = path.open("a+b", buffering=0)
        except OSError as error:
            raise JournalError(f"{path}: cannot be opened: {error.strerror or error}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise JournalError(f"{path}: another controller has this GPU; one at a time") from None
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        if is_new:
            _sync_folder(path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the file."""
        self._file.close()

    @property
    def open_intent(self) -> Intent | None:
        """The call that was begun last, while its outcome is unknown."""
        return self._open

    def is_ours(self, instance: GpuInstance) -> bool:
        """Whether we made it: id, placement and UUID agree, or we were at work on it when we were cut off."""
        if self._open is not None and self._open.concerns(instance):
            return True
        return self._made.get(instance.gi_id) == (str(instance.placement), instance.uuid)

    def begin(self, verb: Verb, placement: Placement, gi_id: int | None = None, others: Iterable[int] = ()) -> None:
        """Write that a call is about to be made."""
        self._open = Intent(verb, str(placement), gi_id, tuple(others))
        self._write({"intent": verb, "placement": str(placement), "gi_id": gi_id, "others": list(self._open.others)})

    def stands(self, instance: GpuInstance) -> None:
        """Write that an instance of ours stands: made, repaired, adopted, or left half by a call that was refused."""
        self._made[instance.gi_id] = (str(instance.placement), instance.uuid)
        self._open = None
        self._write({"stands": instance.gi_id, "placement": str(instance.placement), "uuid": instance.uuid})

    def gone(self, gi_id: int) -> None:
        """Write that an instance of ours is there no more."""
        self._made.pop(gi_id, None)
        self._open = None
        self._write({"gone": gi_id})

    def nothing_done(self) -> None:
        """Write that the call that was begun has changed nothing."""
        self._open = None
        self._write({"nothing": True})

    def settle(self, standing: Iterable[GpuInstance]) -> None:
        """Make the journal agree with what stands: after a crash, a reboot, or somebody else's deed.

        What an open intent concerns becomes ours, whole or not; what is gone, or is another's by now, is forgotten.
        """
        instances = {item.gi_id: item for item in standing}
        if self._open is not None:
            found = next((item for item in instances.values() if self._open.concerns(item)), None)
            if found is not None:
                self.stands(found)
            else:
                self.nothing_done()
        for gi_id in [g for g in self._made if g not in instances or not self.is_ours(instances[g])]:
            self.gone(gi_id)

    def _read(self) -> None:
        self._file.seek(0)
        raw = self._file.read()
        whole, _, torn = raw.rpartition(b"\n")
        if torn:
            self._file.truncate(len(raw) - len(torn))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise JournalError(f"{self.path} line {number}: not a record of ours: {error}") from None

    def _take(self, record: Mapping[str, Any]) -> None:
        if "intent" in record:
            gi_id = None if record["gi_id"] is None else int(record["gi_id"])
            self._open = Intent(record["intent"], str(record["placement"]), gi_id, tuple(map(int, record["others"])))
        elif "stands" in record:
            self._made[int(record["stands"])] = (str(record["placement"]), str(record["uuid"]))
            self._open = None
        elif "gone" in record:
            self._made.pop(int(record["gone"]), None)
            self._open = None
        elif record["nothing"]:
            self._open = None

    def _write(self, record: Mapping[str, Any]) -> None:
        """Append the record and wait until it is on the disk.

        Raises:
            OSError: The disk is full or gone.
        """
        line = json.dumps(record).encode() + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
