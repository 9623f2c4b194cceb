"""What MPS's limits do on a real card: ``MIGRATOR_TEST_MPS_GPU=0 pytest -m gpu tests/executor``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from executor.mps import MpsGpu
from executor.processes import python_command
from tests.executor.mps.card import real_mps_gpu

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> MpsGpu:
    return real_mps_gpu(request)


@contextmanager
def client(environment: Mapping[str, str], *mebibytes: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """A CUDA process, with what it says of itself; it goes by itself, as clients of MPS have to."""
    command = python_command("tests.executor.mps.client", "main", *map(str, mebibytes))
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, json.loads(process.stdout.readline())
    assert process.returncode == 0


def test_a_process_in_a_share_computes_through_our_daemon_within_its_limits(gpu: MpsGpu) -> None:
    with client({"CUDA_VISIBLE_DEVICES": gpu.daemon.environment["CUDA_VISIBLE_DEVICES"]}) as (_, alone):
        pass
    item = gpu.create(gpu.model.placements()[0])
    environment = gpu.environment(item.uuid)
    limit_mib = int(environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"].removeprefix("0=").removesuffix("M"))
    share = int(environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) / 100
    try:
        with client(environment, limit_mib // 4, limit_mib + 64) as (pid, found):
            assert pid in gpu.daemon.clients()
            assert share * alone["sms"] - 8 <= found["sms"] <= share * alone["sms"]
            assert found["given"] == [True, False]
        with client(gpu.aside(busy=True)) as (pid, beside):
            assert pid in gpu.daemon.clients()
            assert beside["sms"] == found["sms"]
    finally:
        gpu.destroy(item.gi_id)
