"""A real GPU that NVML reads and the ``nvidia-smi mig`` command changes.

Placements are always explicit (``ID:START``). Errors are known by their texts: the command documents no exit code for
an instance in use. It may outlive this process, and keeps the journal's lock until it has ended.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from executor.errors import (
    DriverError,
    GpuError,
    GpuLostError,
    InstanceNotFoundError,
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    MigModeOffError,
    NoGpuError,
    NoPermissionError,
    NotSupportedError,
)
from executor.mig import Placement
from executor.nvml import NvmlGpu

COMMAND = "nvidia-smi"
TIMEOUT_S = 120.0
"""Seconds for which an answer of the command is waited for."""

_NOTHING_THERE = "No compute instances found"

_ERRORS: tuple[tuple[str, type[GpuError]], ...] = (
    ("In use by another client", InUseError),
    ("Insufficient Resources", InsufficientResourcesError),
    ("Insufficient Permissions", NoPermissionError),
    ("Invalid Argument", InvalidArgumentError),
    ("GPU is lost", GpuLostError),
    ("requires reset", GpuLostError),
    ("requires restart", GpuLostError),
    ("No MIG-enabled devices found", MigModeOffError),
    ("No devices were found", NoGpuError),
    ("couldn't communicate with the NVIDIA driver", NoGpuError),
    ("Not Found", InstanceNotFoundError),
    ("Not Supported", NotSupportedError),
)
"""Texts and what they mean, the most telling first; whatever else fails is a :class:`~executor.errors.DriverError`."""


_INFOROM_CORRUPTED = 14
"""The exit code of a command that has done its work on a GPU with a corrupted infoROM (man page of ``nvidia-smi``)."""

_WARNING = "WARNING:"
"""How a line begins that is no answer."""

_REFUSALS = ("Unable to", "Failed to", "Invalid ")
"""How a line of the command begins that says what was not done."""


@dataclass(frozen=True, slots=True)
class CommandFacts:
    """What ``nvidia-smi`` says of itself: the driver's version, and what it warns of."""

    driver_version: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    @property
    def is_done(self) -> bool:
        """Whether the exit code is none of a failure: a corrupted infoROM is reported after successes, too."""
        if self.code == _INFOROM_CORRUPTED:
            return not any(line.startswith(_REFUSALS) for line in self.lines)
        return self.code == 0


class SmiGpu(NvmlGpu):
    """One GPU in MIG mode, read by NVML and changed by ``nvidia-smi mig``.

    Attributes:
        backend: Always ``smi``.
    """

    backend = "smi"

    def __init__(self, index: int = 0) -> None:
        """Look at the GPU.

        Raises:
            NoGpuError: No command, no driver, no such GPU, or its MIG mode is off.
            NoPermissionError: The driver does not tell placements to this user.
        """
        if shutil.which(COMMAND) is None:
            raise _no_command()
        super().__init__(index)

    def check(self) -> None:
        """Return as NVML's does, if the GPU still has the number by which the command changes it.

        Raises:
            GpuError: It does not answer, or another GPU has its number now.
            MigModeOffError: Its MIG mode is off, so it has no instances.
        """
        super().check()
        self._require_number()

    def _create(self, placement: Placement) -> None:
        answer = self._asked("-cgi", f"{placement.profile.gi_profile_id}:{placement.start}", "-C")
        named = re.search(r"created GPU instance ID +(\d+)", answer.text)
        self._named = None if named is None else int(named[1])
        _check(answer)

    def _destroy(self, gi_id: int) -> None:
        self._destroy_compute(gi_id)
        _check(self._asked("-dgi", "-gi", str(gi_id)))

    def _destroy_compute(self, gi_id: int) -> None:
        emptied = self._asked("-dci", "-gi", str(gi_id))
        if _NOTHING_THERE not in emptied.text:
            _check(emptied)

    def _create_compute(self, gi_id: int) -> None:
        _check(self._asked("-cci", "-gi", str(gi_id)))

    def _asked(self, *arguments: str) -> _Answer:
        self._require_number()
        return self._run("mig", "-i", str(self.index), *arguments)

    def _run(self, *arguments: str) -> _Answer:
        return _run(*arguments)


def command_facts() -> CommandFacts:
    """What the command says of itself and of the driver that it speaks to.

    Raises:
        NoGpuError: There is no command, no driver, or no GPU: without one the command says nothing of the driver.
    """
    answer = _run("--query-gpu=driver_version", "--format=csv,noheader")
    _check(answer)
    warnings = tuple(line for line in answer.lines if line.startswith(_WARNING))
    versions = [line for line in answer.lines if line not in warnings]
    if not versions:
        raise NoGpuError(f"{COMMAND} sees no GPU")
    return CommandFacts(versions[0], warnings)


def _no_command() -> NoGpuError:
    return NoGpuError(f"there is no {COMMAND} on this machine; install NVIDIA's driver, which brings it")


def _run(*arguments: str) -> _Answer:
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            [COMMAND, *arguments],
            close_fds=False,  # but for the journal, every file of this process is closed all the same
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (FileNotFoundError, PermissionError):
        raise _no_command() from None
    except subprocess.TimeoutExpired:
        raise DriverError(f"{COMMAND} {' '.join(arguments)}: no answer in {TIMEOUT_S:g} s") from None
    return _Answer(done.returncode, done.stdout + done.stderr)


def _check(answer: _Answer) -> None:
    """Raise what the text says, whatever the exit code; its most telling line is the message."""
    lines = answer.lines or ["no word"]
    for text, kind in _ERRORS:
        telling = next((line for line in lines if text in line), None)
        if telling is not None:
            raise kind(telling)
    if not answer.is_done:
        raise DriverError(f"nvidia-smi failed with exit code {answer.code}: {lines[0]}")
