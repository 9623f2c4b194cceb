"""The memory of this process, as a worker weighs itself for ``migrator profile``.

On a CPU the kernel says it (``/proc/self``), on CUDA torch's allocator and the driver. What other processes do changes
neither ``own_mib`` nor ``peak_mib``: pages that are shared with the process that forked this one are in ``else_mib``.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Where = Literal["nowhere", "cpu", "cuda"]
"""Whose memory is looked at."""

_PROC = Path("/proc/self")
_KIB_PER_MIB, _BYTES_PER_MIB = 1024, 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process holds, in MiB.

    Attributes:
        own_mib: Pages that it alone has written; on CUDA what its tensors take.
        peak_mib: The most that this was since it was last looked at.
        else_mib: Its part (``Pss``) of all other pages; on CUDA what the driver counts beside torch's cache; ``None``:
            the driver does not tell.
    """

    own_mib: float
    peak_mib: float
    else_mib: float | None


def held(where: Where) -> Memory | None:
    """What the process holds, and the most since the last call; ``None`` where the system does not say.

    On a CPU it takes 40 ms where torch is loaded: the kernel looks at every page.
    """
    if where == "cuda":
        torch = sys.modules.get("torch")
        return _on_cuda(torch) if torch is not None and torch.cuda.is_initialized() else None
    with suppress(OSError, KeyError):  # not Linux, or one that does not count so
        return _on_cpu() if where == "cpu" else None
    return None


def _on_cpu() -> Memory:
    """Source: proc(5); a 5 in ``clear_refs`` lets the peak of resident memory begin anew."""
    pages, status = _mib_of("smaps_rollup"), _mib_of("status")
    (_PROC / "clear_refs").write_text("5")
    own_mib = pages["Private_Dirty"]
    return Memory(own_mib, own_mib + status["VmHWM"] - status["VmRSS"], pages["Pss"] - own_mib)


def _mib_of(name: str) -> dict[str, float]:
    lines = (line.split() for line in (_PROC / name).read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) / _KIB_PER_MIB for words in lines if words[-1:] == ["kB"]}


def _on_cuda(torch: Any) -> Memory:
    own, peak, cached = (
        count() / _BYTES_PER_MIB
        for count in (torch.cuda.memory_allocated, torch.cuda.max_memory_allocated, torch.cuda.memory_reserved)
    )
    torch.cuda.reset_peak_memory_stats()
    used_mib = _used_mib()
    return Memory(own, peak, None if used_mib is None else used_mib - cached)


def _used_mib() -> float | None:
    """What the driver counts as this process's; in a container, where ids differ, that of the only one there.

    Source: ``nvmlDeviceGetComputeRunningProcesses`` of the instance that the process sees.
    """
    try:
        import pynvml  # noqa: PLC0415 - of the extra nvml
    except ImportError:
        return None
    with suppress(pynvml.NVMLError, KeyError):
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"])
        there = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        ours = [one for one in there if one.pid == os.getpid()] or there
        if len(ours) == 1 and ours[0].usedGpuMemory is not None:
            return float(ours[0].usedGpuMemory) / _BYTES_PER_MIB
    return None
