"""The MPS control daemon of one GPU and one state folder: ours alone, with folders of its own.

Without it CUDA does not refuse to start: it runs unshared, on all of the GPU. So whoever is told how to get into a
share is told so only while the daemon answers.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from executor.errors import DriverError, NoGpuError, OtherControllerError, PermanentGpuError
from executor.processes import MpsDaemon, mps_daemons

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
        """The daemon was told to go, if there is one; its logs stay.

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
        # Settings of whoever started us would bind all clients, or make the daemon a process of an instance.
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
