"""Shares of a whole GPU by MPS as a ``Gpu``, for machines where MIG is absent or may not be changed.

The kernel knows no such instances: they are our records, and what they mean is the environment with which a process
starts in them. They limit SMs, and what each process may allocate; they isolate nothing.

The control daemon is of one GPU and one state folder: ours alone, with folders of its own. Without it CUDA does not
refuse to start: it runs unshared, on all of the GPU. So the way into a share is known only while the daemon answers.

A program begins in a share by its environment; a forked process has to enter at once, since it shows the environment of
the program that it was forked from::

    with MpsGpu(mps_cut("a100-80gb"), index=0, state=state) as gpu:
        instance = gpu.create(gpu.model.placement("2m@0"))
        worker = subprocess.Popen(command, env={**os.environ, **gpu.environment(instance.uuid)})
        gpu.enter(instance.uuid, worker.pid)  # before CUDA starts in it; needed for forked workers only
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from executor.catalogue import gpu_model, mps_cut
from executor.cuts import NO_ISOLATION, MpsCut, in_hundredths
from executor.discovery import card_name
from executor.driver import CardFacts
from executor.errors import (
    DriverError,
    GpuError,
    InvalidArgumentError,
    NoGpuError,
    OtherControllerError,
    PermanentGpuError,
)
from executor.folders import Files, FolderGpu
from executor.gpu import GpuInstance
from executor.mig import Profile
from executor.opening import card_facts
from executor.processes import MpsDaemon, born, mps_daemons, process, started_with

INSTANCE = "MIGRATOR_INSTANCE"
"""The variable by which a process says in which instance it is: CUDA has none."""

_BELOW_NORMAL = "1"
"""Of a client's two priorities the lower one."""

_LEAST_CAPABILITY = 7.0
"""Of Volta: GPUs before it know no thread percentage, and heed no limit."""

_MARK = re.compile(r"(\d+)\.(\d+)")
"""The name of a folder that says which process is in an instance, and when that was born."""


class MpsGpu(FolderGpu):
    """A whole GPU in shares; ``backend`` and ``label`` say so wherever it is reported. For one thread.

    Two of different state folders have daemons of their own, whose shares would compete: the second one is refused
    when it is about to make its first instance.

    Attributes:
        uuid: Of this cut of the GPU, so that its records are not those of MIG instances on it.
        files: Plain ones, which outlive a reboot, too.
        turns_by: Its daemon serves all processes.
        cut: How the GPU is cut.
        daemon: Through which the instances' processes compute.
    """

    backend = "mps"
    turns_by = "MPS"
    kept_as = "MPS shares"
    uuid_prefix = "MIG-MPS-"

    def __init__(
        self, cut: MpsCut, index: int, state: Path, *, beside_others: bool = False, in_parts: bool = False
    ) -> None:
        """The GPU, cut; nothing is changed, and no daemon started.

        ``in_parts`` it has instances of hundredths, which are apart from the cut's own.

        Raises:
            NoGpuError: No driver, no such GPU, it is no such card, or MPS cannot share it: its MIG mode is on, it is
                older than Volta, or no process may compute on it.
            UnknownGpuModelError: It cannot be cut so.
        """
        super().__init__(index)
        self.cut, self.model = cut, gpu_model(cut.name)
        facts = card_facts(index)
        if (card := _shareable(facts, index)) != cut.card:
            raise NoGpuError(f"GPU {index} ({facts.title}) is no {cut.card}, but {card}: name it {mps_cut(card).name}")
        self.uuid, self._memory_mib = f"{facts.uuid}-{cut.name}", facts.memory_mib
        own = hashlib.sha256(facts.uuid.encode()).hexdigest()[:12]
        base = state.resolve() / f"mps-{own}"
        self.folder, self.files = base / "shares", Files()
        if in_parts:
            self.uuid, self.folder = f"{self.uuid}-parts", base / "parts"
            self.model = in_hundredths(self.model)
        self.daemon = Daemon(base, facts.uuid, beside_others=beside_others)

    @property
    def label(self) -> str:
        """What this is, in a few words, for reports."""
        return f"{NO_ISOLATION}: {self.cut.slices} shares of the SMs of {self.cut.card}"

    def environment(self, gi_uuid: str) -> Mapping[str, str]:
        """What makes a process a client of our daemon, which answers now, with the instance's limits.

        The limits are each process's, and for its life: of several in an instance, each may use as much.

        Raises:
            InstanceNotFoundError: No instance has this UUID.
            GpuError: The daemon does not start. Without it, CUDA would take all of the GPU.
        """
        profile = self._with_uuid(gi_uuid, f"no process can be in {gi_uuid}").placement.profile
        self.daemon.ensure()
        return {**self.daemon.environment, **self._limits(profile), INSTANCE: gi_uuid}

    def aside(self, *, busy: bool) -> Mapping[str, str]:
        """A client of our daemon; with ``busy`` within the limits of the smallest instance, and after all others.

        It has to be a client, too: another process takes turns with all clients, and has the whole GPU in its own.
        Source: NVIDIA, *Multi-Process Service*, on time slices and ``CUDA_MPS_CLIENT_PRIORITY``.
        """
        self.daemon.ensure()
        smallest = min(self.model.profiles, key=lambda profile: profile.compute_slices)
        limits = {**self._limits(smallest), "CUDA_MPS_CLIENT_PRIORITY": _BELOW_NORMAL} if busy else {}
        return {**self.daemon.environment, **limits}

    def _limits(self, profile: Profile) -> Mapping[str, str]:
        percentage = 100 * profile.compute_slices // self.model.compute_slices
        limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
        if self._memory_mib is not None and profile.memory_slices < self.model.memory_slices:
            most_mib = self._memory_mib * profile.memory_slices // self.model.memory_slices
            limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={most_mib}M"  # device 0 of the one that it sees
        return limits

    def close(self) -> None:
        """Instances stay, and the daemon for them; if there is none, it ends."""
        with suppress(GpuError):
            if not self.instances():
                with suppress(OSError):
                    self.files.remove(self.folder)
                self.daemon.quit()

    def _prepare(self) -> None:
        self.daemon.ensure()
        with suppress(FileExistsError):
            self.files.make(self.folder)

    def _let_in(self, item: GpuInstance, pid: int) -> None:
        """Write down that it is there: its environment does not say so if it was set after the program began."""
        born_at = born(pid)
        if born_at is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), str(pid))
        other = next((other for other in self.instances() if other != item and pid in self._pids(other)), None)
        if other is not None:
            raise InvalidArgumentError(
                f"process {process(pid)} cannot enter {item.placement}: it is in {other.placement}, "
                "and MPS limits a process for life"
            )
        folder = self._folder(item) / item.uuid
        self._forget_dead(folder)
        with suppress(FileExistsError):
            self.files.make(folder / f"{pid}.{born_at}")

    def _pids(self, item: GpuInstance) -> tuple[int, ...]:
        """Processes that were written down, and those that began with the instance in their environment."""
        folder = self._folder(item)
        marks = [mark for inner in self._inner(folder.name) for mark in self.files.folders(folder / inner)]
        entered = {int(mark.partition(".")[0]) for mark in marks if _lives(mark)}
        return tuple(sorted({*entered, *(started_with(INSTANCE, item.uuid) if item.is_whole else ())}))

    def _remove(self, folder: Path) -> None:
        self._forget_dead(folder)
        super()._remove(folder)

    def _forget_dead(self, folder: Path) -> None:
        """Take away the marks of processes that are gone."""
        for mark in self.files.folders(folder):
            if _MARK.fullmatch(mark) and not _lives(mark):
                self.files.remove(folder / mark)


def _lives(mark: str) -> bool:
    found = _MARK.fullmatch(mark)
    return found is not None and born(int(found[1])) == int(found[2])


def cut_of(index: int) -> MpsCut:
    """How MPS would share the GPU, which is looked at only.

    Raises:
        NoGpuError: No driver, no such GPU, or MPS cannot share it, as for :class:`MpsGpu`.
    """
    return mps_cut(_shareable(card_facts(index), index))


def _shareable(facts: CardFacts, index: int) -> str:
    """The card's name; raises where MPS cannot share the GPU, or would not heed limits."""
    gpu = f"GPU {index} ({facts.title})"
    if facts.is_in_mig_mode:
        raise NoGpuError(
            f"{gpu} is in MIG mode, and MPS shares are of a whole GPU; take its MIG instances (nvml or smi), "
            f"or as root: nvidia-smi -i {index} -mig 0"
        )
    if facts.compute_capability is not None and facts.compute_capability < _LEAST_CAPABILITY:
        raise NoGpuError(f"{gpu} is older than Volta: MPS does not limit processes on it")
    if not facts.lets_compute:
        raise NoGpuError(f"{gpu} lets no process compute; as root: nvidia-smi -i {index} -c DEFAULT")
    return card_name(facts.title, None if facts.memory_mib is None else facts.memory_mib / 1024)


COMMAND = "nvidia-cuda-mps-control"

_ABSENT = "Cannot find MPS control daemon process"
"""What the command says where no daemon answers."""

_LONGEST_SOCKET = 107
"""Bytes in the name of a socket on Linux; beyond them the daemon starts, and cannot be found."""

_STARTS_WITHIN_S = 10.0
_LOOK_S = 0.05


class Daemon:
    """A daemon for one GPU, which starts when it is needed and outlives us; its processes are of one user.

    Attributes:
        pipe: The folder by which its clients find it.
        log: Its ``control.log`` and its server's ``server.log``.
    """

    def __init__(self, folder: Path, gpu_uuid: str, *, beside_others: bool = False, timeout_s: float = 30.0) -> None:
        """A daemon in the folder, which is not started yet.

        Raises:
            NoGpuError: The folder's name is too long for the daemon's sockets.
        """
        self.pipe, self.log = folder / "pipe", folder / "log"
        self._folder, self._gpu_uuid = folder, gpu_uuid
        self._beside_others, self._timeout_s = beside_others, timeout_s
        too_long = len(os.fsencode(self.pipe / "control_privileged")) - _LONGEST_SOCKET
        if too_long > 0:
            raise NoGpuError(
                f"{self.pipe}: the name is {too_long} bytes too long for the MPS daemon's sockets; "
                "choose a state folder with a shorter name"
            )

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to be a client."""
        return {"CUDA_VISIBLE_DEVICES": self._gpu_uuid, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}

    def ensure(self) -> None:
        """The daemon answers: it did, or is started anew, also after it has died.

        Raises:
            NoGpuError: There is no such command.
            OtherControllerError: Another daemon of this node may serve the GPU.
            PermanentGpuError: Its folders cannot be made.
            DriverError: It does not start, or refuses to answer; the message has its words.
        """
        if self.is_running():
            return
        if not self._beside_others:
            self._mind_others()
        self._make_folders()
        code, said = self._run("-d")
        until_s = time.monotonic() + _STARTS_WITHIN_S
        while not self.is_running():
            if code != 0 or time.monotonic() > until_s:
                raise DriverError(f"{COMMAND} -d: {said or 'it does not answer'}; see {self.log / 'control.log'}")
            time.sleep(_LOOK_S)

    def is_running(self) -> bool:
        """Whether the daemon answers.

        Raises:
            NoGpuError: There is no such command.
            DriverError: It refuses to answer.
        """
        return self.pipe.is_dir() and self._ask("get_server_list") is not None

    def clients(self) -> tuple[int, ...]:
        """The processes that compute through the daemon, sorted: those in which CUDA has started.

        Raises:
            NoGpuError: There is no such command.
            DriverError: It refuses to answer.
        """
        if not self.pipe.is_dir():
            return ()
        servers = _numbers(self._ask("get_server_list"))
        return tuple(sorted({pid for server in servers for pid in _numbers(self._ask(f"get_client_list {server}"))}))

    def quit(self) -> None:
        """Stop the daemon, if there is one; its logs stay.

        Raises:
            NoGpuError: There is no such command.
            DriverError: It refuses to go.
        """
        if self.pipe.is_dir():
            self._ask("quit")

    def _mind_others(self) -> None:
        rivals = [daemon for daemon in self.others() if daemon.may_serve(self._gpu_uuid)]
        if rivals:
            named = ", ".join(str(daemon.process) for daemon in rivals)
            raise OtherControllerError(
                f"another MPS daemon may serve this GPU, and shares of both would compete: process {named}; "
                f"end it (echo quit | {COMMAND}, with its CUDA_MPS_PIPE_DIRECTORY)"
            )

    def others(self) -> tuple[MpsDaemon, ...]:
        """MPS daemons on this node that are not this one."""
        return tuple(daemon for daemon in mps_daemons() if daemon.pipe != str(self.pipe))

    def _make_folders(self) -> None:
        try:
            for folder in (self._folder, self.pipe, self.log):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
        except OSError as error:
            raise PermanentGpuError(
                f"{error.filename}: the MPS daemon's folder cannot be made: {error.strerror}"
            ) from None

    def _ask(self, command: str) -> str | None:
        """What the daemon answers; ``None`` where there is none."""
        code, said = self._run(say=command)
        if _ABSENT in said:
            return None
        if code != 0:
            raise DriverError(f"{COMMAND}: {command}: {said or f'exit code {code}'}")
        return said

    def _run(self, *arguments: str, say: str = "") -> tuple[int, str]:
        """The command's exit code, and its words in one line."""
        # Settings of the process that started us would bind all clients, or make the daemon a process of an instance.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "MIGRATOR_"))}
        places = {"CUDA_MPS_LOG_DIRECTORY": str(self.log), "LC_ALL": "C"}
        # A file, not a pipe: the daemon keeps what it was given, and a pipe that it keeps has no end.
        with tempfile.TemporaryFile() as said:
            try:
                done = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
                    [COMMAND, *arguments],
                    env={**own, **self.environment, **places},
                    cwd="/",
                    input=f"{say}\n".encode() if say else b"",
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    timeout=self._timeout_s,
                    check=False,
                    start_new_session=True,  # Ctrl-C is for the controller
                )
            except (FileNotFoundError, PermissionError):
                raise NoGpuError(
                    f"there is no {COMMAND} on this machine; it comes with NVIDIA's driver, or a package beside it"
                ) from None
            except subprocess.TimeoutExpired:
                raise DriverError(
                    f"{COMMAND}: {say or ' '.join(arguments)}: no answer in {self._timeout_s:g} s"
                ) from None
            said.seek(0)
            return done.returncode, " ".join(said.read().decode("utf-8", "replace").split())


def _numbers(said: str | None) -> list[int]:
    return [int(word) for word in (said or "").split() if word.isdecimal()]
