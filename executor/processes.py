"""This machine's processes: which hold an instance, which others cut GPUs or hand them out, and which end with us."""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

PROC = Path("/proc")
"""Where Linux shows its processes, and NVIDIA's driver what may be done."""

_SHOWN = 60
"""Characters of a command in a message; programs get all of it."""


@dataclass(frozen=True, slots=True)
class Process:
    """What can be seen of a process.

    Attributes:
        pid: Its number, which is all that is known of one that is gone, or that another PID namespace hides.
        command: Its command line, or its name where it has none (a zombie, or the kernel's).
        user: Whose it is: a name, or a number that has none.
    """

    pid: int
    command: str | None = None
    user: str | None = None

    def __str__(self) -> str:
        if self.command is None:
            return str(self.pid)
        short = self.command if len(self.command) <= _SHOWN else f"{self.command[: _SHOWN - 1]}…"
        return f"{self.pid} ({short})" if self.user is None else f"{self.pid} ({short}, {self.user})"


def process(pid: int) -> Process:
    """The process of this number, by name where it can be seen."""
    folder = PROC / str(pid)
    words = _words(folder)
    command = " ".join(words) or _read(folder / "comm").strip()
    if not command:
        return Process(pid)
    return Process(pid, "".join(c if c.isprintable() else "?" for c in command), _user(folder))


def born(pid: int) -> int | None:
    """When the process was started, in ticks since boot: a number that comes again was started at another time.

    ``None`` if it is gone, or has ended and was not waited for yet.
    """
    # The name before the last bracket may hold anything.
    fields = _read(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def family_ticks(pid: int) -> int:
    """The CPU time of a process, its living descendants, and all that these have waited for, in ticks of the kernel."""
    stats = {one: _read(PROC / str(one) / "stat").rpartition(")")[2].split() for one in _pids()}
    parents = {one: int(fields[1]) for one, fields in stats.items() if fields}
    family = [pid]
    for member in family:
        family += [one for one, parent in parents.items() if parent == member]
    return sum(int(ticks) for one in family for ticks in stats.get(one, ())[11:15])


def started_with(name: str, value: str) -> tuple[int, ...]:
    """Living processes whose environment had the variable when their program began, if this user may see it."""
    wanted = f"{name}={value}"
    return tuple(pid for pid in _pids() if wanted in _variables(pid) and born(pid) is not None)


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """An MPS control daemon of this node; any user may have started it.

    Attributes:
        process: The daemon.
        pipe: Its folder of pipes; ``None`` where that is not ours to see.
        devices: The GPUs that it was started for, as ``CUDA_VISIBLE_DEVICES`` names them; ``None`` for all, or unknown.
    """

    process: Process
    pipe: str | None
    devices: tuple[str, ...] | None

    def may_serve(self, gpu_uuid: str) -> bool:
        """Whether the GPU may be one of its: numbers of GPUs say nothing, since they depend on who counts."""
        names = self.devices
        return names is None or any(not name.startswith("GPU-") or gpu_uuid.startswith(name) for name in names)


def mps_daemons() -> tuple[MpsDaemon, ...]:
    """The MPS control daemons that can be seen from here.

    ``ps -ef | grep mps``.
    """
    found = []
    for pid in _pids():
        words = _words(PROC / str(pid))
        # Without an option it is a client that speaks to a daemon.
        if _program(words) != "nvidia-cuda-mps-control" or not any(word.startswith("-") for word in words[1:]):
            continue
        named = dict(line.partition("=")[::2] for line in _variables(pid))
        if _words(PROC / str(pid)) != words:
            continue  # it is ending: its environment is gone, too
        devices = named.get("CUDA_VISIBLE_DEVICES")
        pipe = named.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps") if named else None  # noqa: S108 - theirs
        found.append(MpsDaemon(process(pid), pipe, tuple(devices.split(",")) if devices else None))
    return tuple(found)


def gpu_process(pid: int) -> Process:
    """The process to which a driver refers by this number, by name where it is seen to be that one.

    In a container a driver may give the numbers of another PID namespace, which other processes have here. A
    process that computes on a GPU has its device files open; of one that visibly has not, only the number is known.
    """
    return Process(pid) if _has_driver_open(pid) is False else process(pid)


def python_command(module: str, function: str, *arguments: str) -> list[str]:
    """The command that calls a function of ours, with text, in a Python that finds the modules this one does."""
    code = (
        "import sys, json, importlib; module, function, path, *arguments = sys.argv[1:]; "
        "sys.path[:] = json.loads(path); "
        "sys.exit(getattr(importlib.import_module(module), function)(*arguments))"
    )
    return [sys.executable, "-P", "-c", code, module, function, json.dumps(sys.path), *arguments]


def device_users() -> tuple[Process, ...]:
    """The processes that have device files of NVIDIA's driver open, but for this one, if this user may see them.

    ``lsof /dev/nvidia*``.
    """
    return tuple(process(pid) for pid in _pids() if pid != os.getpid() and _has_driver_open(pid))


def boot_id() -> str | None:
    """What tells one boot of this machine from another; ``None`` where the system has nothing that does."""
    return _read(PROC / "sys" / "kernel" / "random" / "boot_id").strip() or None


def holder_of_lock(path: Path) -> Process | None:
    """The process that has the ``flock`` on the file; ``None`` if none has, or it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in _read(PROC / "locks").splitlines():
        match line.split():
            case [_, "FLOCK", _, _, pid, where, *_] if where == name:
                return process(int(pid))
    return None


_PLUGINS = "device-plugins"
"""The kubelet's folder, below whatever root it has, in which every device plugin listens."""

_KUBELET = "kubelet.sock"
"""The socket there at which the kubelet itself listens."""

_LISTENS = 0x10000
"""The flag of a socket that takes connections (``__SO_ACCEPTCON``)."""

_CHANGE = "changes this node's layouts itself"

_MANAGERS = {
    "gpu-kubelet-plugin": "the DRA driver's kubelet plugin makes this node's instances, and hands them out to pods",
    "nvidia-mig-manager": f"NVIDIA's MIG manager {_CHANGE}",
    "nvidia-mig-parted": f"mig-parted {_CHANGE}",
    "gpu_partitioner": f"GKE's partitioner {_CHANGE}",
    "migagent": f"nos' MIG agent {_CHANGE}",
}
"""Programs that make and destroy instances, and listen nowhere."""

_HOLDERS = {
    "nv-hostengine": "DCGM can hold instances that no process is listed for; if one will not go, restart it",
    "dcgm-exporter": "DCGM's exporter can hold instances that no process is listed for; if one will not go, stop it",
    "nvsm*": "NVSM can hold instances that no process is listed for; if one will not go, stop it",
    "nvidia-persistenced": "the persistence daemon can be in the way of a change of MIG mode",
    "Xorg": "an X server can be in the way of a change of MIG mode",
    "nsys*": "the profiler can hold instances that no process is listed for",
}
"""Programs that hold a GPU although the driver lists no process of theirs, by bug reports of NVIDIA's projects."""


_INTERPRETER = re.compile(r"(?:ba|da|a|z)?sh|python[\d.]*")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A program beside us on this node, and what it does to us; ``process`` is ``None`` where it cannot be seen."""

    process: Process | None
    does: str

    def __str__(self) -> str:
        return self.does if self.process is None else f"{self.does} (process {self.process})"


def other_managers() -> tuple[Neighbour, ...]:
    """Programs on this node that would undo our layouts, or give our instances to others.

    A device plugin is recognised by what each has to do: it listens in the kubelet's folder.
    """
    return (*_neighbours(_MANAGERS), *_device_plugins())


def usual_holders() -> tuple[Neighbour, ...]:
    """Programs on this node that are known to hold GPUs unlisted."""
    return tuple(_neighbours(_HOLDERS))


def _neighbours(known: dict[str, str]) -> Iterator[Neighbour]:
    for pid in _pids():
        program = _program(_words(PROC / str(pid)))
        found = next((does for pattern, does in known.items() if fnmatchcase(program, pattern)), None)
        if found is not None:
            yield Neighbour(process(pid), found)


def _device_plugins() -> Iterator[Neighbour]:
    """Whoever listens in the kubelet's folder for device plugins, under the name that the folder has for it.

    ``ss -xlp``, in the network namespace of each process; its own mounts say which folder it listens in.
    """
    found: dict[str, tuple[str, Process | None]] = {}
    tables: dict[str, dict[str, str]] = {}
    for pid in _pids():
        folder = PROC / str(pid)
        namespace = _link(folder / "ns" / "net")
        sockets = tables.get(namespace) if namespace else None
        if sockets is None:
            sockets = _listening(folder)
            tables[namespace] = sockets
        if not sockets:
            continue
        mounts, opened = _mounts(folder), _open_files(pid)
        for inode, path in sockets.items():
            if opened is not None and f"socket:[{inode}]" not in opened:
                continue
            if PurePosixPath(_unmounted(path, mounts)).parent.name == _PLUGINS:
                owner = found.get(inode, (path, None))[1]
                found[inode] = (path, owner or (None if opened is None else process(pid)))
    for path, owner in found.values():
        yield Neighbour(owner, f"a device plugin hands out this node's devices to pods, at {path}")


def _listening(folder: Path) -> dict[str, str]:
    """By inode, the paths of the sockets that take connections in the process's network namespace."""
    found = {}
    for line in _read(folder / "net" / "unix").splitlines()[1:]:
        match line.split(maxsplit=7):
            case [_, _, _, flags, _, _, inode, path] if path.startswith("/") and int(flags, 16) & _LISTENS:
                if not path.endswith(f"/{_KUBELET}"):
                    found[inode] = path
    return found


def _mounts(folder: Path) -> list[tuple[str, str]]:
    """Where the process has something mounted, the innermost first, and which folder of its file system that is."""
    lines = (line.split() for line in _read(folder / "mountinfo").splitlines())
    return sorted(((fields[4], fields[3]) for fields in lines if len(fields) > 4), key=lambda one: -len(one[0]))


def _unmounted(path: str, mounts: list[tuple[str, str]]) -> str:
    """The path inside the file system that it lies on: a bind mount may give a folder another name."""
    for point, root in mounts:
        if path.startswith(f"{point.rstrip('/')}/"):
            return f"{root.rstrip('/')}/{path.removeprefix(point).lstrip('/')}"
    return path


def _program(words: list[str]) -> str:
    """What runs: the first word without its folder, or the second where the first is a shell or an interpreter."""
    names = [word.rpartition("/")[2] for word in words[:2]]
    return names[-1] if names and _INTERPRETER.fullmatch(names[0]) else "".join(names[:1])


def _pids() -> list[int]:
    try:
        return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())
    except OSError:
        return []


def _has_driver_open(pid: int) -> bool | None:
    """Whether the process has a device file of NVIDIA's driver open; ``None`` where that cannot be seen."""
    targets = _open_files(pid)
    return None if targets is None else any(target.startswith("/dev/nvidia") for target in targets)


def _open_files(pid: int) -> set[str] | None:
    """What the process has open, sockets among it; ``None`` where that cannot be seen."""
    try:
        links = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return None
    return {target for target in map(_link, links) if target}  # but for what was closed meanwhile


def _link(path: Path) -> str:
    """Where the link leads; nothing where it is gone or not ours to see."""
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _words(folder: Path) -> list[str]:
    return [word for word in _read(folder / "cmdline").split("\0") if word]


def _variables(pid: int) -> list[str]:
    """The environment that the process's program began with; nothing where it is not ours to see."""
    return [line for line in _read(PROC / str(pid) / "environ").split("\0") if line]


def _user(folder: Path) -> str | None:
    line = next((line for line in _read(folder / "status").splitlines() if line.startswith("Uid:")), None)
    if line is None:
        return None
    return user_name(int(line.split()[1]))


def user_name(uid: int) -> str:
    """What this system calls the user of the number; the number where it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read(path: Path) -> str:
    """What the file holds; nothing where it is gone or not ours to read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def signal_at_end_of_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process the signal when the *thread* that started it ends; nothing but on Linux.

    ``prctl(PR_SET_PDEATHSIG)``, which a fork does not hand on. A parent that has already ended is not noticed: look
    whether ``os.getppid()`` is still what it was.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
