"""Which instances are ours: a small file a GPU, written before and after every change, and one controller at a time.

An instance is ours if its id, placement and UUID agree with what was written of it since the machine was booted: a
driver's ids come again, and after a boot its UUIDs do, too. Half an instance, one without a compute instance, has no
UUID: others may have made it where ours was, and may be about to finish it. So it is ours only to the controller that
remembers making it, as long as that lives and sees it. What is *perhaps ours*, and not proven, is neither used
nor taken away; it is reported until it is adopted or gone.

The file is appended to and synced, its folder, too, when it is made; one that has grown long is shortened when it is
opened. Each line has its number and a checksum; one that was cut short at the end is left out. The layout that was
last asked for is there, too, so that it can be brought back. To look takes no lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Literal, Self

from executor.errors import ExecutorError, OtherControllerError
from executor.files import fields_in, is_torn, open_appended, read_input, summed, sync_folder, write_all
from executor.gpu import GpuInstance
from executor.mig import Layout, Placement
from executor.processes import Process, born, holder_of_lock, user_name

Verb = Literal["create", "destroy", "repair"]

LARGEST_BYTES = 2**20
"""Size from which on a file is shortened when it is opened; a run writes some kilobytes a window."""

MOST_BYTES = 256 * 2**20
"""Size of the largest file that is read."""


class JournalError(ExecutorError):
    """The file of our instances cannot be used."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A driver call that was begun, and of which no outcome was written.

    Attributes:
        verb: What was to be done.
        placement: Where.
        gi_id: To which instance; ``None`` for a creation.
        others: Ids from before a creation; no instance with one of them is the new one.
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
    """What the records of one GPU add up to: which instances are ours, and the layout that was asked for.

    Attributes:
        path: The file of the records.
        boot: What the GPU's instances do not outlive, as :attr:`DriverGpu.boot` has it.
        begun: The call that was begun last, while its outcome is unknown.
        target: The placements of the layout that was last asked for, as text; ``None`` if none ever was.
    """

    def __init__(self, path: Path, boot: str | None = None) -> None:
        """Nothing yet."""
        self.path, self.boot = path, boot
        self._written_boot: str | None = None
        self._n_lines = 0
        self._made: dict[int, tuple[str, str]] = {}
        self._unproven: dict[int, tuple[str, str]] = {}
        self._vouched: set[int] = set()
        self.begun: Intent | None = None
        self.target: tuple[str, ...] | None = None

    @property
    def made(self) -> tuple[str, ...]:
        """The placements of our recorded instances, as text, in the order in which they were made."""
        return tuple(placement for placement, _ in self._made.values())

    def is_ours(self, instance: GpuInstance) -> bool:
        """Whether we made it: id, placement and UUID agree, or this controller has left it half."""
        is_recorded = self._made.get(instance.gi_id) == _place_and_uuid(instance)
        return is_recorded and (bool(instance.uuids) or instance.gi_id in self._vouched)

    def is_perhaps_ours(self, instance: GpuInstance) -> bool:
        """Whether it may be what we made, or were at work on when we were cut off, and is not proven to be."""
        if self.is_ours(instance):
            return False
        is_recorded = self._unproven.get(instance.gi_id) == _place_and_uuid(instance)
        return is_recorded or self._is_where_ours_was(instance) or self._is_of_call(instance)

    def _is_of_call(self, instance: GpuInstance) -> bool:
        """Whether the call that was begun last may have made it, or left it half."""
        begun = self.begun
        # Another UUID at the id of what was to be destroyed is another instance.
        return begun is not None and begun.concerns(instance) and (begun.verb != "destroy" or not instance.uuids)

    def _is_where_ours_was(self, instance: GpuInstance) -> bool:
        """Whether it has the id and place of ours, and no UUID tells that it is another: one of both has none."""
        place, own = str(instance.placement), self._made.get(instance.gi_id)
        return own is not None and own[0] == place and not (own[1] and instance.uuids)

    def _read(self, raw: bytes) -> int:
        """Take what was written, and return how many bytes of it are a line that was cut short."""
        *lines, tail = raw.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = fields_in(line)
                if record.pop("n") != number - 1:
                    raise ValueError("lines are missing, doubled or swapped")  # noqa: TRY301 - as any other damage
                self._take(record)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise self._damaged(number, str(error)) from None
        if not is_torn(tail):
            raise self._damaged(len(lines) + 1, "more than a record is on it")
        self._n_lines = len(lines)
        if None not in (self._written_boot, self.boot) and self._written_boot != self.boot:
            self._forget_all()
        return len(tail)

    def _damaged(self, line: int, what: str) -> JournalError:
        return JournalError(
            f"{self.path} line {line}: not a record of ours: {what}; see what is there (migrator gpu list), delete the "
            "file, then take over what is yours: migrator gpu apply LAYOUT --adopt, or migrator run … --adopt"
        )

    def _take(self, record: Mapping[str, Any]) -> None:
        if "target" in record:
            self.target = tuple(map(str, record["target"]))
        elif "boot" in record:
            self._written_boot = str(record["boot"])
            self._forget_all()
        elif "intent" in record:
            gi_id = None if record["gi_id"] is None else int(record["gi_id"])
            self.begun = Intent(record["intent"], str(record["placement"]), gi_id, tuple(map(int, record["others"])))
        elif "stands" in record:
            self._made[int(record["stands"])] = (str(record["placement"]), str(record["uuid"]))
            self._unproven.pop(int(record["stands"]), None)
            self.begun = None
        elif "unproven" in record:
            self._unproven[int(record["unproven"])] = (str(record["placement"]), str(record["uuid"]))
            self._made.pop(int(record["unproven"]), None)
            self.begun = None
        elif "gone" in record:
            self._made.pop(int(record["gone"]), None)
            self._unproven.pop(int(record["gone"]), None)
            self.begun = None
        elif record["nothing"]:
            self.begun = None

    def _forget_all(self) -> None:
        """After a boot nothing is ours, whatever was begun before it."""
        self._made, self._unproven, self.begun = {}, {}, None


def in_doubt(instance: GpuInstance) -> str:
    """What to say of an instance that is perhaps ours."""
    return (
        f"{instance.placement} (GPU instance ID {instance.gi_id}) may be ours, left by a call that was cut off, but "
        "nothing proves it: it stays, as others' instances do; --adopt takes it over, with all that others made"
    )


def _place_and_uuid(instance: GpuInstance) -> tuple[str, str]:
    return str(instance.placement), ",".join(instance.uuids)


def file_of(folder: Path, gpu_uuid: str) -> Path:
    """Where it is written which instances on a GPU are ours."""
    return folder / f"{gpu_uuid}.jsonl"


def recorded(path: Path, boot: str | None = None) -> Records:
    """The records in the file, whichever process holds it; nothing if there is none. The file stays as it is.

    Raises:
        JournalError: It cannot be read, or it is not ours.
    """
    records = Records(path, boot)
    with suppress(FileNotFoundError):
        records._read(_bytes_of(path))
    return records


def _bytes_of(path: Path) -> bytes:
    """What the file holds; raises FileNotFoundError where there is none, and JournalError where it cannot be read."""
    try:
        return read_input(path, MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror or error}") from None


class Journal(Records):
    """The instances of one controller on one GPU. A context that frees the file for another controller."""

    _named: int | None
    _in_doubt: tuple[GpuInstance, ...]
    _told: set[GpuInstance]

    def __init__(self, path: Path, boot: str | None = None) -> None:
        """Read the file, or begin it, and keep other controllers away; ``boot`` as in :class:`Records`.

        Raises:
            OtherControllerError: Another controller has it.
            JournalError: It cannot be read or written, or it is not ours.
        """
        super().__init__(path, boot)
        self._remember_nothing()
        is_new = not path.exists()
        self._file = _opened(path)
        try:
            raw = _bytes_of(path)
            torn = self._read(raw)
            size = len(raw) - torn
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
        if placements != self.target:
            self._write({"target": list(placements)})
            self.target = placements

    def begin(self, verb: Verb, placement: Placement, gi_id: int | None = None, others: Iterable[int] = ()) -> None:
        """Write that a call is about to be made."""
        self._named = None
        self._add(Intent(verb, str(placement), gi_id, tuple(others)).record)

    def named(self, gi_id: int | None) -> None:
        """Remember which instance the begun call made, where the driver has said that but does not list instances."""
        self._named = gi_id

    def disown(self, gi_id: int) -> None:
        """Half an instance of this id is ours no more: we may have destroyed ours, and others have made one since."""
        self._vouched.discard(gi_id)

    def named_in(self, standing: Iterable[GpuInstance]) -> GpuInstance | None:
        """Those of the instances that the begun call has made, by the driver's word."""
        return next((item for item in standing if item.gi_id == self._named and self._is_of_call(item)), None)

    def stands(self, instance: GpuInstance) -> None:
        """Record an instance of ours: made, repaired, adopted, or left half by a call that was refused."""
        self._vouched.add(instance.gi_id)
        self._add(_record_of("stands", instance.gi_id, *_place_and_uuid(instance)))

    def gone(self, gi_id: int) -> None:
        """Write that an instance of ours is there no more."""
        self._vouched.discard(gi_id)
        self._add({"gone": gi_id})

    def nothing_done(self) -> None:
        """Write that the call that was begun has changed nothing."""
        self._add({"nothing": True})

    def settle(self, standing: Iterable[GpuInstance]) -> None:
        """Make the journal agree with the GPU: after any change, a crash, a reboot, or another program's change.

        What a call of this controller made, by the driver's word, becomes ours. Whatever else may be what it made is
        written down as not proven. What is gone, or now another's, is forgotten.
        """
        instances = {item.gi_id: item for item in standing}
        for item in filter(self._is_of_call, instances.values()):  # at most one: no two have one place
            if item.gi_id == self._named:
                self.stands(item)
            elif not (self.is_ours(item) or self._is_where_ours_was(item)):  # our record of it tells more than a doubt
                self._doubt(item)
        if self.begun is not None:
            self.nothing_done()
        ids = {*self._made, *self._unproven}
        for gi_id in [g for g in ids if g not in instances or not self._is_known(instances[g])]:
            self.gone(gi_id)
        self._in_doubt = tuple(filter(self.is_perhaps_ours, instances.values()))

    def untold(self) -> list[str]:
        """What to say of each instance that was last seen to be perhaps ours, unless this was asked for before."""
        new = [item for item in self._in_doubt if item not in self._told]
        self._told.update(new)
        return list(map(in_doubt, new))

    def _remember_nothing(self) -> None:
        """What this controller alone knows, and never writes."""
        self._named, self._in_doubt, self._told = None, (), set()

    def _is_known(self, instance: GpuInstance) -> bool:
        return self.is_ours(instance) or self.is_perhaps_ours(instance)

    def _doubt(self, instance: GpuInstance) -> None:
        """Write that it may be ours, and is not proven to be."""
        self._vouched.discard(instance.gi_id)
        self._add(_record_of("unproven", instance.gi_id, *_place_and_uuid(instance)))

    def _shorten(self) -> None:
        """Begin a new file with what is so now, which takes the old one's place whole or not at all."""
        is_unsure = self.boot is None and self._written_boot is not None
        records: list[Mapping[str, Any]] = [{"boot": self._written_boot}] if is_unsure else []
        records += [] if self.target is None else [{"target": list(self.target)}]
        records += [_record_of("stands", gi_id, *of) for gi_id, of in self._made.items()]
        records += [_record_of("unproven", gi_id, *of) for gi_id, of in self._unproven.items()]
        records += [] if self.begun is None else [self.begun.record]
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        old, self._file = self._file, _opened(new)
        self._written_boot, self._n_lines = None, 0
        try:
            self._write(*records)
            new.replace(self.path)
            sync_folder(self.path.parent)
        except BaseException:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        finally:
            old.close()

    def _add(self, record: Mapping[str, Any]) -> None:
        """Take the record, and write it."""
        self._take(record)
        self._write(record)

    def _write(self, *records: Mapping[str, Any]) -> None:
        """Append the records and wait until they are on the disk.

        Raises:
            OSError: The disk is full or gone.
        """
        boot = [] if self.boot is None or self.boot == self._written_boot else [{"boot": self.boot}]
        numbered = enumerate([*boot, *records], start=self._n_lines)
        lines = b"".join(summed({"n": n, **record}) + b"\n" for n, record in numbered)
        size = os.fstat(self._file.fileno()).st_size
        try:
            write_all(self._file, lines)
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            error.filename = str(self.path)
            raise
        self._n_lines += len(boot) + len(records)
        self._written_boot = self.boot if boot else self._written_boot


class Remembered(Journal):
    """What is ours, where nothing is to be written: on a GPU that ends with this process, or to see what would be done.

    It begins with what ``known`` has.
    """

    def __init__(self, known: Records | None = None) -> None:
        Records.__init__(self, Path(os.devnull) if known is None else known.path)
        self._remember_nothing()
        if known is not None:
            self.boot, self.begun, self.target = known.boot, known.begun, known.target
            self._made, self._unproven = dict(known._made), dict(known._unproven)

    def close(self) -> None:
        """Do nothing: there is no file."""

    def _write(self, *records: Mapping[str, Any]) -> None:
        """Write nothing."""


def _record_of(what: str, gi_id: int, placement: str, uuid: str) -> Mapping[str, Any]:
    return {what: gi_id, "placement": placement, "uuid": uuid}


_OWN_FOLDER = "--state DIR keeps what is yours in a folder of your own"


def _remedy(holder: Process | None) -> str:
    """Who has the file, and what to do: another user's process is not ours to end."""
    if holder is None:
        return f"; {_OWN_FOLDER}"
    if born(holder.pid) is None:
        return f": process {holder} is gone; wait until what it has called ends, or {_OWN_FOLDER}"
    if holder.user in (None, user_name(os.geteuid())):
        return f": process {holder}; wait for it, or end it, or {_OWN_FOLDER}"
    return f": process {holder}, of another user; wait for it, or {_OWN_FOLDER}"


def _opened(path: Path) -> FileIO:
    """The file, which is made if there is none, while no other process has it.

    Raises:
        OtherControllerError: Another controller has it.
        JournalError: It cannot be read, written or locked.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open_appended(path)
        except OSError as error:
            whose = f"; {_OWN_FOLDER}" if isinstance(error, PermissionError) else ""
            raise JournalError(f"{path}: cannot be opened: {error.strerror or error}{whose}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            who = _remedy(holder_of_lock(path))
            raise OtherControllerError(f"{path}: another controller has this GPU; one at a time{who}") from None
        except OSError as error:
            file.close()
            raise JournalError(f"{path}: cannot be locked: {error.strerror or error}; take another folder") from None
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            os.set_inheritable(file.fileno(), True)  # by nvidia-smi, see executor.smi
            return file
        file.close()  # a shorter one has taken its place meanwhile
