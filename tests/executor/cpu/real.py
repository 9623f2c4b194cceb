"""Shares of this very machine's CPU, where it lets us have them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.cpu.gpu import CpuGpu, Ways, ways
from executor.cpu.shares import NoSharesError
from executor.gpu import GpuInstance

PATIENCE_S = 20.0


def real_way(way: str, state: Path) -> Ways:
    """This way to have shares alone; the test is left out, and says so aloud, where it does not work here."""
    attempt = ways(state)[way]
    try:
        attempt("migrator-tried")
    except NoSharesError as error:
        pytest.skip(f"NOT TESTED on this machine: CPU shares by {way}: {error}")
    return {way: attempt}


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def in_share(gpu: CpuGpu, gpu_instance: GpuInstance) -> Iterator[None]:
    """Meanwhile a process is in the instance."""
    with sleeper() as process:
        gpu.enter(gpu_instance.uuid, process.pid)
        yield
    until_s = time.monotonic() + PATIENCE_S
    while gpu.processes() and time.monotonic() < until_s:
        time.sleep(0.001)
