"""Controllers that are killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from executor.cpu.duty import DutyShares
from executor.cpu.gpu import CpuGpu, ways
from executor.cuts import CpuCut


def makes_one_and_hangs(state: str, way: str) -> None:
    gpu = CpuGpu(CpuCut(0.8), Path(state), {way: ways(Path(state))[way]})
    sys.stdout.write(f"{gpu.create(gpu.model.placement('3c@0')).uuid}\n")
    sys.stdout.flush()
    signal.pause()


def governs_and_hangs(state: str, pid: str) -> None:
    gpu = CpuGpu(CpuCut(0.8), Path(state), {"duty cycle": ways(Path(state))["duty cycle"]})
    gpu.enter(gpu.create(gpu.model.placement("1c@0")).uuid, int(pid))
    assert isinstance(gpu.shares, DutyShares)
    assert gpu.shares._governor is not None
    sys.stdout.write(f"{gpu.shares._governor.pid}\n")
    sys.stdout.flush()
    signal.pause()
