"""The control side of the stand-in for NVIDIA's MPS daemon: what tests see of it, and do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from executor.processes import born, process

PATIENCE_S = 20.0


class MpsStandIn:
    """The daemons that belong to a state folder; every GPU there has its own.

    Attributes:
        state: The folder, whose name is short: the names of sockets have to be.
        gpu_uuid: Of the GPU.
    """

    def __init__(self, state: Path, gpu_uuid: str) -> None:
        self.state, self.gpu_uuid = state, gpu_uuid

    @property
    def pipe(self) -> Path:
        """The folder of pipes of the only daemon."""
        (pipe,) = self.state.glob("mps-*/pipe")
        return pipe

    @property
    def pid(self) -> int | None:
        """The only daemon's process; ``None`` if it was never started, or has ended as it should."""
        for file in self.state.glob("mps-*/pipe/nvidia-cuda-mps-control.pid"):
            return int(file.read_text())
        return None

    def kill(self) -> None:
        """The daemons die, and can do nothing about it."""
        for file in self.state.glob("**/nvidia-cuda-mps-control.pid"):
            pid = int(file.read_text())
            if "nvidia-cuda-mps-control" not in (process(pid).command or ""):
                continue  # it has died before
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until_s = time.monotonic() + PATIENCE_S
            while born(pid) is not None and time.monotonic() < until_s:
                time.sleep(0.001)

    def refuse(self, text: str) -> None:
        """Whatever the daemon is asked, it refuses, in these words; from now on."""
        (self.pipe / "refuses").write_text(f"{text}\n")

    def hinder(self, text: str) -> None:
        """No daemon starts any more, for this reason."""
        (self.pipe / "will-not-start").write_text(f"{text}\n")

    def serve(self, server: int, *pids: int) -> None:
        """A server of the daemon has these clients."""
        (self.pipe / "clients").mkdir(exist_ok=True)
        (self.pipe / "clients" / str(server)).write_text("".join(f"{pid}\n" for pid in pids))


@contextmanager
def running(environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """A process that does nothing, and began with this in its environment."""
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **(environment or {})}) as sleeper:
        try:
            until_s = time.monotonic() + PATIENCE_S
            # While a program is being loaded, its process shows no environment.
            while not Path(f"/proc/{sleeper.pid}/environ").read_bytes() and time.monotonic() < until_s:
                time.sleep(0.001)
            yield sleeper.pid
        finally:
            sleeper.kill()
