"""Which instances are ours: a small file a GPU, written before and after every change, and one controller at a time.

An instance is ours only if its id, placement and UUID agree with what was written of it: a driver's ids come again. One
without a compute instance has no UUID; it is ours if that was written, or if we were at work on it when we were cut
off. The file is appended to and synced, its folder, too, when it is made; one that has grown long is shortened when it
is opened. A line that was cut short is left out. The layout that was last asked for stands there, too, so that it can
be brought back. To look takes no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Literal, Self

from executor.errors import ExecutorError, OtherControllerError
from executor.gpu import GpuInstance
from executor.mig import Layout, Placement
from executor.processes import holder_of_lock
from executor.whole_file import sync_folder

Verb = Literal["create", "destroy", "repair"]

LARGEST_BYTES = 2**20
"""Size from which on a file is shortened when it is opened; a run writes some kilobytes a window."""


class JournalError(ExecutorError):
    """The file of our instances cannot be used."""


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

    @property
    def record(self) -> Mapping[str, Any]:
        """As it is written."""
        return {"intent": self.verb, "placement": self.placement, "gi_id": self.gi_id, "others": list(self.others)}

    def concerns(self, instance: GpuInstance) -> bool:
        """Whether the instance is what the call made, or was at work on."""
        if str(instance.placement) != self.placement:
            return False
        return instance.gi_id not in self.others if self.gi_id is None else instance.gi_id == self.gi_id


class Records:
    """What the records of one GPU add up to: which instances are ours, and the layout that was asked for."""

    def __init__(self, path: Path) -> None:
        """Nothing so far."""
        self.path = path
        self._made: dict[int, tuple[str, str]] = {}
        self._open: Intent | None = None
        self._target: tuple[str, ...] | None = None

    @property
    def open_intent(self) -> Intent | None:
        """The call that was begun last, while its outcome is unknown."""
        return self._open

    @property
    def target(self) -> tuple[str, ...] | None:
        """The placements of the layout that was last asked for, as text; ``None`` if none ever was."""
        return self._target

    def is_ours(self, instance: GpuInstance) -> bool:
        """Whether we made it: id, placement and UUID agree, or we were at work on it when we were cut off."""
        if self._made.get(instance.gi_id) == (str(instance.placement), instance.uuid):
            return True
        if self._open is None or not self._open.concerns(instance):
            return False
        # Of what was to be destroyed, the compute instance may be gone; another one means another instance.
        return self._open.verb != "destroy" or not instance.uuid

    def _read(self, raw: bytes) -> int:
        """Take what was written, and return how many bytes of it are a line that was cut short."""
        whole, _, torn = raw.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise JournalError(f"{self.path} line {number}: not a record of ours: {error}") from None
        return len(torn)

    def _take(self, record: Mapping[str, Any]) -> None:
        if "target" in record:
            self._target = tuple(map(str, record["target"]))
        elif "intent" in record:
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


def file_of(folder: Path, gpu_uuid: str) -> Path:
    """Where it is written which instances on a GPU are ours."""
    return folder / f"{gpu_uuid}.jsonl"


def recorded(path: Path) -> Records:
    """What is written in the file by now, whoever has it; nothing if there is none. It is not written to.

    Raises:
        JournalError: It cannot be read, or it is not ours.
    """
    records = Records(path)
    try:
        records._read(path.read_bytes())
    except FileNotFoundError:
        pass
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror or error}") from None
    return records


class Journal(Records):
    """The instances of one controller on one GPU. A context that frees the file for another controller."""

    def __init__(self, path: Path) -> None:
        """Read the file, or begin it, and keep other controllers away.

        Raises:
            OtherControllerError: Another controller has it.
            JournalError: It cannot be read or written, or it is not ours.
        """
        super().__init__(path)
        is_new = not path.exists()
        self._file = _opened(path)
        try:
            self._file.seek(0)
            torn = self._read(self._file.read())
            size = self._file.tell() - torn
            if torn:
                self._file.truncate(size)
            if size > LARGEST_BYTES:
                self._shorten()
        except BaseException:
            self._file.close()
            raise
        if is_new:
            sync_folder(path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the file."""
        self._file.close()

    def aim(self, target: Layout) -> None:
        """Write which layout is asked for, before anything is done for it."""
        placements = tuple(map(str, target))
        if placements != self._target:
            self._write({"target": list(placements)})
            self._target = placements

    def begin(self, verb: Verb, placement: Placement, gi_id: int | None = None, others: Iterable[int] = ()) -> None:
        """Write that a call is about to be made."""
        self._open = Intent(verb, str(placement), gi_id, tuple(others))
        self._write(self._open.record)

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
            concerned = (item for item in instances.values() if self._open.concerns(item))
            found = next(filter(self.is_ours, concerned), None)
            if found is not None:
                self.stands(found)
            else:
                self.nothing_done()
        for gi_id in [g for g in self._made if g not in instances or not self.is_ours(instances[g])]:
            self.gone(gi_id)

    def _shorten(self) -> None:
        """Begin a new file with what is so now, which takes the old one's place whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        old, self._file = self._file, _opened(new)
        made, begun, self._made, self._open = self._made, self._open, {}, None
        try:
            if self._target is not None:
                self._write({"target": list(self._target)})
            for gi_id, (placement, uuid) in made.items():
                self._write({"stands": gi_id, "placement": placement, "uuid": uuid})
            if begun is not None:
                self._write(begun.record)
            new.replace(self.path)
            sync_folder(self.path.parent)
        finally:
            self._made, self._open = made, begun
            old.close()

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
        except OSError as error:
            self._file.truncate(size)
            error.filename = str(self.path)
            raise


class Remembered(Journal):
    """What is ours, where nothing is to be written: on a GPU that ends with this process, or to see what would be done.

    It begins with what ``known`` has.
    """

    def __init__(self, known: Records | None = None) -> None:
        Records.__init__(self, Path(os.devnull) if known is None else known.path)
        if known is not None:
            self._made, self._open, self._target = dict(known._made), known._open, known._target

    def close(self) -> None:
        """Do nothing: there is no file."""

    def _write(self, record: Mapping[str, Any]) -> None:
        """Write nothing."""


def _opened(path: Path) -> FileIO:
    """The file, which is made if there is none, while nobody else has it.

    Raises:
        OtherControllerError: Another controller has it.
        JournalError: It cannot be read, written or locked.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = FileIO(path, "a+")
        except OSError as error:
            raise JournalError(f"{path}: cannot be opened: {error.strerror or error}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            holder = holder_of_lock(path)
            who = "" if holder is None else f": process {holder}; wait for it, or end it"
            raise OtherControllerError(f"{path}: another controller has this GPU; one at a time{who}") from None
        except OSError as error:
            file.close()
            raise JournalError(f"{path}: cannot be locked: {error.strerror or error}; take another folder") from None
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()  # a shorter one has taken its place meanwhile
