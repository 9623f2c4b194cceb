"""A real GPU through the ``nvidia-smi mig`` command, where NVML's Python module is not at hand.

Placements are always explicit (``ID:START``). Every line is read, since a list of profiles succeeds in part, and errors
are known by their texts: the command documents no exit code for an instance in use.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from executor.discovery import DriverProfile, discovered_model
from executor.driver import DriverFacts, DriverGpu, no_such_gpu, not_in_mig_mode
from executor.errors import (
    DriverError,
    ExecutorError,
    GpuError,
    GpuLostError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    MigModeOffError,
    NoGpuError,
    NoPermissionError,
)
from executor.gpu import GpuInstance
from executor.mig import GpuModel, Placement

_NOTHING_THERE = re.compile(r"No (?:GPU|compute) instances found")

_ERRORS: tuple[tuple[str, type[GpuError]], ...] = (
    ("In use by another client", InUseError),
    ("Insufficient Resources", InsufficientResourcesError),
    ("Insufficient Permissions", NoPermissionError),
    ("Invalid Argument", InvalidArgumentError),
    ("GPU is lost", GpuLostError),
    ("No MIG-enabled devices found", MigModeOffError),
    ("No devices were found", NoGpuError),
    ("couldn't communicate with the NVIDIA driver", NoGpuError),
    ("Not Found", InstanceNotFoundError),
)
"""Texts and what they mean, the most telling first; whatever else fails is a :class:`~executor.errors.DriverError`."""

_PROFILE = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+MIG\s+(?P<name>\S+)\s+(?P<id>\d+)\s+\d+/(?P<most>\d+)\s+(?P<gib>[\d.]+)\s+\S+\s+(?P<sms>\d+)\s"
)
"""The first of a profile's two lines in ``-lgip``."""

_PLACEMENTS = re.compile(
    r"^GPU\s+(?P<gpu>\d+)\s+Profile ID\s+(?P<id>\d+)\s+Placements?\s*:\s*\{(?P<starts>[\d,\s]*)\}\s*:\s*(?P<size>\d+)"
)
"""A line of ``-lgipp``: ``Placements:``, or ``Placement :`` where there is one start."""

_INSTANCE = re.compile(
    r"^\|\s*(?P<gpu>\d+)\s+MIG\s+(?P<name>\S+)\s+(?P<profile>\d+)\s+(?P<gi>\d+)\s+(?P<start>\d+):(?P<size>\d+)\s"
)
"""A row of ``-lgi``, of older and newer drivers."""

_MIG_DEVICE = re.compile(r"^\s+MIG\s+\S+\s+Device\s+(?P<number>\d+):\s+\(UUID:\s+(?P<uuid>\S+?)\)")
_GPU_LINE = re.compile(r"^GPU (?P<gpu>\d+):")
"""Lines of ``-L``."""

_SLICES = re.compile(r"^(\d+)g\.")


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    text: str


class SmiGpu(DriverGpu):
    """One GPU in MIG mode, driven by ``nvidia-smi``.

    Attributes:
        backend: Always ``smi``.
    """

    backend = "smi"

    def __init__(self, index: int = 0, *, command: str = "nvidia-smi", timeout_s: float = 120.0) -> None:
        """Look at the GPU.

        Raises:
            NoGpuError: No command, no driver, no such GPU, or its MIG mode is off.
            NoPermissionError: The driver does not tell placements to this user.
        """
        super().__init__(index)
        self._command = command
        self._timeout_s = timeout_s
        self._title, self._uuid = self._identity()
        self._model = self._read_model()

    @property
    def uuid(self) -> str:
        """Of the GPU itself."""
        return self._uuid

    @property
    def model(self) -> GpuModel:
        """What the driver says that the GPU can be cut into, read once; ``-lgip`` and ``-lgipp``."""
        return self._model

    def _read_model(self) -> GpuModel:
        placements = {
            int(found["id"]): (tuple(sorted(map(int, found["starts"].split(",")))), int(found["size"]))
            for found in _matches(_PLACEMENTS, self._mig("-lgipp").text)
            if found["starts"].strip()
        }
        profiles = []
        for found in _matches(_PROFILE, self._mig("-lgip").text):
            slices, placed = _SLICES.match(found["name"]), placements.get(int(found["id"]))
            if slices is None or placed is None:
                continue  # a profile that cannot be placed, or of which the name tells no size, is none for us
            profiles.append(
                DriverProfile(
                    name=found["name"],
                    gi_profile_id=int(found["id"]),
                    compute_slices=int(slices[1]),
                    max_instances=int(found["most"]),
                    sm_count=int(found["sms"]),
                    memory_gib=float(found["gib"]),
                    starts=placed[0],
                    memory_slices=placed[1],
                )
            )
        return discovered_model(self._title, profiles)

    def instances(self) -> tuple[GpuInstance, ...]:
        """All GPU instances that stand on the GPU, ours or not, sorted by placement.

        Raises:
            GpuError: The driver does not answer, or an instance has a profile that it does not list.
        """
        listed = self._mig("-lgi", may_be_empty=True)
        rows = list(_matches(_INSTANCE, listed.text))
        uuids = self._uuids() if rows else {}
        found = []
        for row in rows:
            try:
                placement = self.model.placement(f"{row['name']}@{row['start']}")
            except ExecutorError as error:
                raise DriverError(f"{self._command} -lgi lists what -lgipp does not: {error}") from None
            found.append(GpuInstance(int(row["gi"]), placement, uuids.get(int(row["gi"]), "")))
        return tuple(sorted(found, key=lambda item: item.placement.sort_key))

    def check(self) -> None:
        """Return if the driver answers, the GPU is the same one as before, and it is in MIG mode.

        Raises:
            GpuError: It does not answer, or another GPU has its number now.
            MigModeOffError: Its MIG mode is off, so that nothing stands.
        """
        _, uuid = self._identity("-i", str(self._index))  # a neighbour that is lost is none of ours
        if uuid != self._uuid:
            raise NoGpuError(f"GPU {self._index} is another one now: {uuid} where {self._uuid} was")

    def processes(self) -> dict[int, tuple[int, ...]]:
        """The processes that compute, by the GPU instance's id; ``-q -x``."""
        found: dict[int, tuple[int, ...]] = {}
        for item in self._xml().iterfind("gpu/processes/process_info"):
            gi, pid = item.findtext("gpu_instance_id", ""), item.findtext("pid", "")
            if gi.isdecimal() and pid.isdecimal():
                found[int(gi)] = (*found.get(int(gi), ()), int(pid))
        return found

    def _create(self, placement: Placement) -> None:
        self._mig("-cgi", f"{placement.profile.gi_profile_id}:{placement.start}", "-C")

    def _destroy(self, gi_id: int) -> None:
        self._mig("-dci", "-gi", str(gi_id), may_be_empty=True)
        self._mig("-dgi", "-gi", str(gi_id))

    def _create_compute(self, gi_id: int) -> None:
        self._mig("-cci", "-gi", str(gi_id))

    def _identity(self, *among: str) -> tuple[str, str]:
        """The GPU's name and UUID, looked for ``among`` all GPUs, or those that options name."""
        answer = self._run(*among, "--query-gpu=index,uuid,mig.mode.current,mig.mode.pending,name", _CSV)
        rows = {row[0]: row for row in _rows(answer, 5)}
        if str(self._index) not in rows:
            raise no_such_gpu(self._index, len(rows))
        _, uuid, current, pending, title = rows[str(self._index)]
        is_pending = pending == "Enabled"
        if current != "Enabled":
            raise not_in_mig_mode(self._index, title, is_pending=is_pending if current == "Disabled" else None)
        self.keeps_mig_mode = is_pending
        return title, uuid

    def _uuids(self) -> dict[int, str]:
        """By GPU instance, the UUID of its first MIG device: ``-q -x`` has its number, ``-L`` its UUID."""
        gi_of = {
            item.findtext("index", ""): int(item.findtext("gpu_instance_id", "-1"))
            for item in self._xml().iterfind("gpu/mig_devices/mig_device")
        }
        found: dict[int, str] = {}
        at_gpu = -1
        answer = self._run("-L")
        _check(answer)
        for line in answer.text.splitlines():
            if (header := _GPU_LINE.match(line)) is not None:
                at_gpu = int(header["gpu"])
            elif (
                at_gpu == self._index and (device := _MIG_DEVICE.match(line)) is not None and device["number"] in gi_of
            ):
                found.setdefault(gi_of[device["number"]], device["uuid"])
        return found

    def _xml(self) -> ET.Element:
        answer = self._run("-i", str(self._index), "-q", "-x")
        _check(answer)
        try:
            return ET.fromstring(answer.text)  # noqa: S314 - the driver's own words
        except ET.ParseError as error:
            raise DriverError(f"{self._command} -q -x: not XML: {error}") from None

    def _mig(self, *arguments: str, may_be_empty: bool = False) -> _Answer:
        answer = self._run("mig", "-i", str(self._index), *arguments)
        if may_be_empty and _NOTHING_THERE.search(answer.text):
            return answer
        _check(answer)
        return answer

    def _run(self, *arguments: str) -> _Answer:
        return _run(self._command, *arguments, timeout_s=self._timeout_s)


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the driver says of a whole GPU, cut by MIG or not.

    Attributes:
        title: The driver's name of it.
        uuid: Of the GPU itself.
        is_in_mig_mode: Whether it is now.
        memory_mib: All of its memory; ``None`` where the driver does not tell, as where it is the CPU's.
        compute_mode: ``Default``, ``Exclusive_Process`` or ``Prohibited``.
        compute_capability: Such as 8.0; ``None`` where the driver is too old to tell.
    """

    title: str
    uuid: str
    is_in_mig_mode: bool
    memory_mib: int | None
    compute_mode: str
    compute_capability: float | None


def card_facts(index: int, command: str = "nvidia-smi") -> CardFacts:
    """What the driver says of the whole GPU.

    Raises:
        NoGpuError: There is no command, no driver, or no such GPU.
    """
    answer = _run(command, "--query-gpu=index,uuid,mig.mode.current,memory.total,compute_mode,name", _CSV)
    rows = {row[0]: row for row in _rows(answer, 6)}
    if str(index) not in rows:
        raise no_such_gpu(index, len(rows))
    _, uuid, mig, memory, compute_mode, title = rows[str(index)]
    size = memory.removesuffix(" MiB")
    # A field of its own: drivers before R510 do not know it, and answer nothing then.
    capability = _run(command, "-i", str(index), "--query-gpu=compute_cap", _CSV)
    known = re.fullmatch(r"\d+\.\d+", capability.text.strip())
    return CardFacts(
        title=title,
        uuid=uuid,
        is_in_mig_mode=mig == "Enabled",
        memory_mib=int(size) if size.isdecimal() else None,
        compute_mode=compute_mode,
        compute_capability=None if known is None else float(known[0]),
    )


def driver_facts(command: str = "nvidia-smi") -> DriverFacts:
    """What the driver says of itself.

    Raises:
        NoGpuError: There is no command, no driver, or no GPU: without one the command says nothing of the driver.
    """
    answer = _run(command, "--query-gpu=index,driver_version", _CSV)
    rows = _rows(answer, 2)
    if not rows:
        raise no_such_gpu(0, 0)
    return DriverFacts(rows[0][1], len(rows))


_CSV = "--format=csv,noheader"


def _rows(answer: _Answer, n_fields: int) -> list[list[str]]:
    _check(answer)
    return [
        row for row in (line.split(", ", n_fields - 1) for line in answer.text.splitlines()) if len(row) == n_fields
    ]


def _run(command: str, *arguments: str, timeout_s: float = 120.0) -> _Answer:
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            [command, *arguments],
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (FileNotFoundError, PermissionError):
        raise NoGpuError(f"there is no {command} on this machine; install NVIDIA's driver, which brings it") from None
    except subprocess.TimeoutExpired:
        raise DriverError(f"{command} {' '.join(arguments)}: no answer in {timeout_s:g} s") from None
    return _Answer(done.returncode, done.stdout + done.stderr)


def _check(answer: _Answer) -> None:
    """Raise what the text says, if the command failed; its most telling line is the message."""
    if answer.code == 0:
        return
    lines = [line.strip() for line in answer.text.splitlines() if line.strip()] or ["no word"]
    for text, kind in _ERRORS:
        telling = next((line for line in lines if text in line), None)
        if telling is not None:
            raise kind(telling)
    raise DriverError(f"nvidia-smi failed with exit code {answer.code}: {lines[0]}")


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[dict[str, str]]:
    lines: Sequence[str] = text.splitlines()
    return (found.groupdict() for found in map(pattern.match, lines) if found is not None)
