"""Shares of a real card by a real MPS daemon, where somebody says that one may be started for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from executor.mps import MpsGpu, cut_of

MAY_SHARE = "MIGRATOR_TEST_MPS_GPU"
"""The variable of the environment that names the GPU for the tests: one with MIG off, and that nobody else uses."""


def real_mps_gpu(request: pytest.FixtureRequest) -> MpsGpu:
    """The card, uncut; whatever stands on it in the end is the caller's to take away."""
    index = os.environ.get(MAY_SHARE)
    if index is None:
        pytest.skip(f"NOT TESTED: MPS on a real card: {MAY_SHARE} names no GPU, as in nvidia-smi -i, to share by MPS")
    state = tempfile.TemporaryDirectory(prefix="mps-")
    request.addfinalizer(state.cleanup)
    gpu = MpsGpu(cut_of(int(index)), int(index), Path(state.name))
    request.addfinalizer(gpu.close)
    return gpu
