"""A stand-in for NVIDIA's driver: a C library and an ``nvidia-smi`` over one shared state file, and its control side.

The control side is what a test holds: it makes the state, puts others' instances and processes on the GPU, lets calls
fail, reboots, and tells what really stands, past every door that the product uses. ``README.md`` says what is modelled.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.standin.cards import ENGINES, Card

HERE = Path(__file__).parent
MPS_CONTROL = HERE / "nvidia-cuda-mps-control"

MAX_GPUS, MAX_PROFILES, MAX_STARTS, MAX_GIS, MAX_CIS, MAX_PIDS, MAX_FAULTS = 4, 20, 16, 16, 8, 8, 32
_MAGIC, _VERSION = 0x4D494753, 1

CREATE_GI, DESTROY_GI, CREATE_CI, DESTROY_CI, READ, PROCESSES = range(6)
"""What a fault can hit."""

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TIMEOUT = 3, 4, 6, 10
INFOROM_CORRUPTED, GPU_IS_LOST, RESET_REQUIRED = 14, 15, 16
IN_USE, INSUFFICIENT_RESOURCES, UNKNOWN = 19, 23, 999
"""NVML's codes that tests inject or expect."""

_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


class _Profile(ctypes.Structure):
    _fields_ = (
        *((name, _U32) for name in ("id", "enumerator", "compute_slices", "memory_slices", "max_instances", "sms")),
        *((name, _U32) for name in ("n_starts", "ci_profile", "ci_span")),
        ("starts", _U32 * MAX_STARTS),
        *(
            (name, _U32)
            for name in ("copy_engines", "decoders", "encoders", "jpegs", "ofas", "create_us", "destroy_us")
        ),
        ("memory_mib", _U64),
        ("name", ctypes.c_char * 32),
    )


class _Ci(ctypes.Structure):
    _fields_ = (
        *((name, _U32) for name in ("used", "id", "slices", "start", "span", "profile")),
        ("pids", _U32 * MAX_PIDS),
        ("uuid", ctypes.c_char * 48),
    )


class _Gi(ctypes.Structure):
    _fields_ = (*((name, _U32) for name in ("used", "id", "profile", "start", "stuck")), ("cis", _Ci * MAX_CIS))


class _Gpu(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 48),
        ("bus_id", ctypes.c_char * 32),
        *((name, _U32) for name in ("compute_slices", "memory_slices", "n_profiles")),
        *((name, _U32) for name in ("mig_current", "mig_pending", "lost")),
        *((name, _U32) for name in ("compute_mode", "compute_capability", "inforom_corrupted")),
        ("memory_mib", _U64),
        ("profiles", _Profile * MAX_PROFILES),
        ("gis", _Gi * MAX_GIS),
        ("n_changes", _U64),
    )


class _Fault(ctypes.Structure):
    _fields_ = tuple((name, _U32) for name in ("op", "code", "count", "per_mille", "after_effect"))


class State(ctypes.Structure):
    """The state file, as ``state.h`` lays it out."""

    _fields_ = (
        *((name, _U32) for name in ("magic", "version", "size", "n_gpus")),
        *((name, _U32) for name in ("permitted", "driver_loaded", "n_faults")),
        ("driver_version", ctypes.c_char * 32),
        *((name, _U64) for name in ("clock_us", "random", "n_calls")),
        *((name, _U32) for name in ("sleep_per_mille", "n_boots")),
        ("faults", _Fault * MAX_FAULTS),
        ("gpus", _Gpu * MAX_GPUS),
    )


@dataclass(frozen=True)
class Programs:
    """What gcc made: the folder with ``libnvidia-ml.so.1``, ``nvidia-smi``, and the latter once more as a library."""

    folder: Path

    @property
    def library(self) -> Path:
        """The C library."""
        return self.folder / "libnvidia-ml.so.1"

    @property
    def nvidia_smi(self) -> Path:
        """The command."""
        return self.folder / "nvidia-smi"

    @property
    def near_smi(self) -> Path:
        """The command as a library."""
        return self.folder / "libnearsmi.so"


def build(folder: Path, nvml_module: Path) -> Programs:
    """The library and the command, compiled into ``folder``; every other symbol of ``nvml_module`` is a stub.

    Raises:
        RuntimeError: gcc is absent, or refuses the sources.
    """
    gcc = shutil.which("gcc")
    if gcc is None:
        raise RuntimeError("gcc is absent: the stand-in of NVIDIA's library cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    written = re.findall(r"^(?:int|const char \*) ?(nvml\w+)\(", (HERE / "nvml.c").read_text(), re.MULTILINE)
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', nvml_module.read_text()))
    stubs = [f"int {name}(void) {{ return 3; }}" for name in sorted(known - set(written))]
    (folder / "stubs.c").write_text("/* Calls that the stand-in does not know: not supported. */\n" + "\n".join(stubs))
    programs = Programs(folder)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]
    shared = ["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(programs.library)]
    own = [str(HERE / "driver.c")]
    for arguments in (
        [*shared, *own, str(HERE / "nvml.c"), str(folder / "stubs.c")],
        ["-o", str(programs.nvidia_smi), *own, str(HERE / "nvidia_smi.c")],
        ["-shared", "-fPIC", "-o", str(programs.near_smi), *own, str(HERE / "nvidia_smi.c")],
    ):
        done = subprocess.run([gcc, *flags, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"gcc refuses the stand-in: {done.stderr}")
    (folder / MPS_CONTROL.name).symlink_to(MPS_CONTROL)
    return programs


@dataclass(frozen=True, order=True)
class Standing:
    """One GPU instance that really stands, with the UUIDs of its compute instances."""

    start: int
    profile: str
    gi_id: int
    uuids: tuple[str, ...]


class StandIn:
    """A driver with its GPUs; every process that finds the state file by the environment sees the same ones."""

    def __init__(self, path: Path, programs: Programs, *cards: Card, seed: int = 1) -> None:
        """A new driver in the file, or the one that is there."""
        self.path, self.programs, self.cards = path, programs, cards
        is_new = not path.exists()
        if is_new:
            path.write_bytes(bytes(ctypes.sizeof(State)))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)
        self.state = State.from_buffer(self._map)
        if not is_new:
            return
        self.state.magic, self.state.version, self.state.size = _MAGIC, _VERSION, ctypes.sizeof(State)
        self.state.driver_version = b"580.65.06"
        self.state.random, self.state.permitted, self.state.driver_loaded = seed, 1, 1
        self.state.n_gpus = len(cards)
        for number, card in enumerate(cards):
            _describe(self.state.gpus[number], number, card)

    def close(self) -> None:
        """Let go of the file; harmless when done twice."""
        if not self._map.closed:
            del self.state
            self._map.close()
            self._file.close()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to meet this driver."""
        folder = str(self.programs.folder)
        return {
            "MIGRATOR_STANDIN": str(self.path),
            "LD_LIBRARY_PATH": folder,
            "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")]),
        }

    @contextmanager
    def locked(self) -> Iterator[State]:
        """The state while nobody else changes it."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield self.state
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @property
    def now_s(self) -> float:
        """The driver's own clock: what its calls have taken so far, and what it was moved on by."""
        return float(self.state.clock_us) / 1e6

    def standing(self, gpu: int = 0) -> tuple[Standing, ...]:
        """Every GPU instance, by start."""
        with self.locked() as state:
            own = state.gpus[gpu]
            return tuple(
                sorted(
                    Standing(
                        item.start,
                        own.profiles[item.profile].name.decode(),
                        item.id,
                        tuple(ci.uuid.decode() for ci in item.cis if ci.used),
                    )
                    for item in own.gis
                    if item.used
                )
            )

    def fail(self, op: int, code: int, *, count: int = 0, per_mille: int = 0, after_effect: bool = False) -> None:
        """Let calls of a kind fail: the next ``count``, or each with a chance; ``after_effect``: done all the same."""
        with self.locked() as state:
            state.faults[state.n_faults] = (op, code, count, per_mille, after_effect)
            state.n_faults += 1

    def heal(self) -> None:
        """No call fails any more."""
        with self.locked() as state:
            state.n_faults = 0

    def put(
        self,
        profile: str,
        start: int,
        *,
        pids: Sequence[int] = (),
        gpu: int = 0,
        with_ci: bool = True,
        gi_id: int | None = None,
    ) -> Standing:
        """Somebody else's instance, made past every door, with processes in it; with an id that comes again, if given.

        Raises:
            ValueError: It does not fit.
        """
        self._changed_by_others(gpu, "-cgi", f"{profile}:{start}", *(["-C"] if with_ci else []))
        (made,) = (item for item in self.standing(gpu) if item.start == start)
        if gi_id is not None:
            with self.locked() as state:
                _gi(state.gpus[gpu], made.gi_id).id = gi_id
            made = replace(made, gi_id=gi_id)
        for pid in pids:
            self.attach(made.gi_id, pid, gpu)
        return made

    def finish(self, gi_id: int, gpu: int = 0) -> None:
        """Somebody else's GPU instance without a compute instance gets one."""
        self._changed_by_others(gpu, "-cci", "-gi", str(gi_id))

    def split(self, gi_id: int, ci_profiles: str = "0,0", gpu: int = 0) -> Standing:
        """Somebody else gives a GPU instance compute instances of these profiles in place of those that it has."""
        with self.locked() as state:
            for ci in _gi(state.gpus[gpu], gi_id).cis:
                ci.used = 0
        self._changed_by_others(gpu, "-cci", ci_profiles, "-gi", str(gi_id))
        (made,) = (item for item in self.standing(gpu) if item.gi_id == gi_id)
        return made

    def _changed_by_others(self, gpu: int, *arguments: str) -> None:
        with self.locked() as state:
            permitted, state.permitted = state.permitted, 1
            n_faults, state.n_faults = state.n_faults, 0
        done = subprocess.run(
            [str(self.programs.nvidia_smi), "mig", "-i", str(gpu), *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        with self.locked() as state:
            state.permitted, state.n_faults = permitted, n_faults
        if done.returncode != 0:
            raise ValueError(done.stdout)

    def attach(self, gi_id: int, pid: int, gpu: int = 0) -> None:
        """A process runs in every compute instance of the GPU instance."""
        with self.locked() as state:
            for ci in _gi(state.gpus[gpu], gi_id).cis:
                if ci.used:
                    ci.pids[next(n for n in range(MAX_PIDS) if ci.pids[n] == 0)] = pid

    def detach(self, gi_id: int, pid: int, gpu: int = 0) -> None:
        """The process has left."""
        with self.locked() as state:
            for ci in _gi(state.gpus[gpu], gi_id).cis:
                for n in range(MAX_PIDS):
                    if ci.pids[n] == pid:
                        ci.pids[n] = 0

    def take_away(self, gi_id: int, gpu: int = 0) -> None:
        """Somebody else destroys the GPU instance, with all that is in it."""
        with self.locked() as state:
            ctypes.memset(ctypes.addressof(_gi(state.gpus[gpu], gi_id)), 0, ctypes.sizeof(_Gi))
            state.gpus[gpu].n_changes += 1

    def make_stubborn(self, gi_id: int, times: int, gpu: int = 0) -> None:
        """The next destructions are refused as in use, though nobody is there: a neighbour is busy."""
        with self.locked() as state:
            _gi(state.gpus[gpu], gi_id).stuck = times

    def lose(self, gpu: int = 0) -> None:
        """The GPU has fallen off the bus; what stood on it stands again if it is found before it is reset."""
        with self.locked() as state:
            state.gpus[gpu].lost = 1

    def find(self, gpu: int = 0) -> None:
        """The GPU is back on the bus."""
        with self.locked() as state:
            state.gpus[gpu].lost = 0

    def renumber(self, gpu: int, other: int) -> None:
        """Two GPUs, with all that stands on them, change their numbers, as after one was lost and found."""
        with self.locked() as state:
            size = ctypes.sizeof(_Gpu)
            first, second = (bytes(memoryview(state.gpus[one]).cast("B")) for one in (gpu, other))
            ctypes.memmove(ctypes.addressof(state.gpus[gpu]), second, size)
            ctypes.memmove(ctypes.addressof(state.gpus[other]), first, size)

    def turn_mig_mode(self, *, on: bool, gpu: int = 0) -> None:
        """MIG mode is on, or off, at once; nothing outlives the latter, and no event tells of either."""
        with self.locked() as state:
            own = state.gpus[gpu]
            own.mig_current = own.mig_pending = int(on)
            if not on:
                ctypes.memset(ctypes.addressof(own.gis), 0, ctypes.sizeof(own.gis))

    def reset(self, gpu: int = 0, *, is_told: bool = True) -> None:
        """The GPU is reset: every instance is gone, MIG mode stays, and an event tells of it, or not."""
        with self.locked() as state:
            own = state.gpus[gpu]
            ctypes.memset(ctypes.addressof(own.gis), 0, ctypes.sizeof(own.gis))
            own.lost = 0
            own.n_changes += is_told

    def reboot(self) -> None:
        """Every instance is gone; MIG mode stays where the card keeps it."""
        with self.locked() as state:
            for own, card in zip(state.gpus, self.cards, strict=False):
                ctypes.memset(ctypes.addressof(own.gis), 0, ctypes.sizeof(own.gis))
                own.lost = 0
                own.n_changes += 1
                if not card.keeps_mig_mode:
                    own.mig_current = own.mig_pending = 0
            state.n_boots += 1


class DriverClock:
    """A run's clock that is the stand-in's own: driver calls move it on by what they take, and so does who waits."""

    runs_by_itself = False

    def __init__(self, standin: StandIn, start_s: float) -> None:
        self._standin, self._zero_s = standin, standin.now_s - start_s

    @property
    def now_s(self) -> float:
        """Seconds, to the microsecond."""
        return self._standin.now_s - self._zero_s

    def sleep_until(self, time_s: float) -> None:
        """Move the clock on to then; leave it where that is past."""
        with self._standin.locked() as state:
            state.clock_us = max(state.clock_us, math.ceil((time_s + self._zero_s) * 1e6))
            while self.now_s < time_s:  # rounding
                state.clock_us += 1

    wait = sleep_until

    def wake(self) -> None:
        """Do nothing: nobody waits."""


def _gi(gpu: _Gpu, gi_id: int) -> _Gi:
    found: _Gi = next(item for item in gpu.gis if item.used and item.id == gi_id)
    return found


def _describe(gpu: _Gpu, number: int, card: Card) -> None:
    gpu.name = card.name.encode()
    gpu.uuid = f"GPU-00000000-0000-4000-8000-{number:012d}".encode()
    gpu.bus_id = f"00000000:{number + 1:02X}:00.0".encode()
    gpu.compute_slices, gpu.memory_slices, gpu.memory_mib = card.compute_slices, card.memory_slices, card.memory_mib
    gpu.mig_current = gpu.mig_pending = 1
    gpu.compute_capability = 80
    gpu.n_profiles = len(card.profiles)
    for own, facts in zip(gpu.profiles, card.profiles, strict=False):
        for name in ("id", "enumerator", "compute_slices", "memory_slices", "max_instances", "sms"):
            setattr(own, name, getattr(facts, name))
        own.n_starts, own.ci_profile, own.ci_span = len(facts.starts), facts.ci_profile, facts.ci_span
        own.starts[: len(facts.starts)] = facts.starts
        own.copy_engines, own.decoders, own.encoders, own.jpegs, own.ofas = ENGINES
        own.create_us, own.destroy_us = round(facts.create_s * 1e6), round(facts.destroy_s * 1e6)
        own.memory_mib = round(facts.memory_gib * 1024)
        own.name = facts.name.encode()
