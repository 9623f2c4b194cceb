"""A real card and its real driver, looked at only; whoever has one runs ``pytest -m gpu``."""

from __future__ import annotations

import shutil

import pytest

from executor.catalogue import gpu_model_names
from executor.discovery import disagreements
from executor.errors import GpuError, NoGpuError, NoPermissionError
from executor.nvml import NvmlGpu
from executor.opening import driver_facts
from executor.smi import SmiGpu

pytestmark = pytest.mark.gpu


@pytest.fixture
def index() -> int:
    """The first GPU in MIG mode."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    for number in range(driver_facts("smi").n_gpus):
        try:
            with SmiGpu(number):
                return number
        except GpuError:
            continue
    pytest.skip("no GPU here is in MIG mode, or its placements are not told to this user")


def test_both_doors_tell_the_same_of_the_driver() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    nvml, smi = driver_facts("nvml"), driver_facts("smi")
    assert (nvml.version, nvml.n_gpus) == (smi.version, smi.n_gpus)


def test_a_gpu_that_cannot_be_used_is_told_why() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    refused: list[GpuError] = []
    for number in range(driver_facts("smi").n_gpus):
        for kind in (NvmlGpu, SmiGpu):
            try:
                kind(number).close()
            except GpuError as error:
                refused.append(error)
    if not refused:
        pytest.skip("every GPU here can be used")
    assert all(isinstance(error, NoGpuError | NoPermissionError) for error in refused)


def test_both_doors_tell_the_same_of_the_card(index: int) -> None:
    with NvmlGpu(index) as by_nvml, SmiGpu(index) as by_smi:
        assert by_nvml.model == by_smi.model
        assert by_nvml.instances() == by_smi.instances()
        assert by_nvml.processes() == by_smi.processes()


def test_the_catalogue_agrees_with_the_driver(index: int) -> None:
    with NvmlGpu(index) as gpu:
        assert gpu.model.name in gpu_model_names()
        assert disagreements(gpu.model) == ()
