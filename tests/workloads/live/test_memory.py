"""What a process says of its own memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from workloads.live.memory import Memory, held

MIB = 2**20

PROGRAM = """
import dataclasses, json
from workloads.live.memory import held
found = [held("cpu"), held("cpu")][1:]
taken = b"x" * 2**25
found.append(held("cpu"))
del taken
found += [held("cpu"), held("cpu")]
print(json.dumps(list(map(dataclasses.astuple, found))))
"""
"""In a process of its own, in which nothing else comes and goes."""


def test_on_a_cpu_pages_written_count_while_they_are_held_and_in_the_peak_once() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, during, after, later = (Memory(*one) for one in json.loads(told.stdout))
    assert during.own_mib - before.own_mib == pytest.approx(32, abs=2)
    assert after.own_mib - before.own_mib == pytest.approx(0, abs=2)
    assert after.peak_mib - after.own_mib == pytest.approx(32, abs=2)
    assert later.peak_mib - later.own_mib == pytest.approx(0, abs=2)
    assert later.else_mib is not None
    assert later.else_mib >= 0


def test_nothing_is_told_that_nobody_asks_for_or_that_cannot_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert (held("nowhere"), held("cuda")) == (None, None)
    monkeypatch.setattr("workloads.live.memory._PROC", tmp_path)  # no Linux
    assert held("cpu") is None
    asleep = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", asleep)
    assert held("cuda") is None


@pytest.mark.parametrize(("used", "other"), [(1500 * MIB, 500.0), (None, None)])
def test_on_cuda_tensors_are_the_allocator_s_and_the_rest_the_driver_s(
    monkeypatch: pytest.MonkeyPatch, used: int | None, other: float | None
) -> None:
    resets: list[int] = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        memory_allocated=lambda: 600 * MIB,
        max_memory_allocated=lambda: 900 * MIB,
        memory_reserved=lambda: 1000 * MIB,
        reset_peak_memory_stats=lambda: resets.append(1),
    )
    driver = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=-1, usedGpuMemory=used)],
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    found = held("cuda")
    assert found is not None
    assert (found.own_mib, found.peak_mib, found.else_mib, resets) == (600.0, 900.0, other, [1])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    again = held("cuda")
    assert again is not None
    assert again.else_mib is None
