"""A real card and its real driver, looked at only; whoever has one runs ``pytest -m gpu``."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from executor import smi
from executor.catalogue import gpu_model_names
from executor.discovery import disagreements
from executor.driver import CardFacts
from executor.errors import GpuError, NoGpuError, NoPermissionError
from executor.nvml import NvmlGpu
from executor.opening import card_facts, driver_facts
from executor.smi import SmiGpu

pytestmark = pytest.mark.gpu


@pytest.fixture
def index() -> int:
    """The first GPU in MIG mode."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    for number in range(driver_facts().n_gpus):
        try:
            with NvmlGpu(number):
                return number
        except GpuError:
            continue
    pytest.skip("no GPU here is in MIG mode, or its placements are not told to this user")


def test_both_doors_tell_the_same_of_the_driver() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    assert driver_facts().version == smi.command_facts().driver_version


def test_a_gpu_that_cannot_be_used_is_told_why() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    refused: list[GpuError] = []
    for number in range(driver_facts().n_gpus):
        for kind in (NvmlGpu, SmiGpu):
            try:
                kind(number).close()
            except GpuError as error:
                refused.append(error)
    if not refused:
        pytest.skip("every GPU here can be used")
    assert all(isinstance(error, NoGpuError | NoPermissionError) for error in refused)


def test_a_whole_card_is_told_as_the_command_tells_it() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    fields = "uuid,mig.mode.current,memory.total,compute_mode,compute_cap,name"
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    uuid, mig, memory, mode, capability, title = done.stdout.strip().split(", ", 5)
    assert card_facts(0) == CardFacts(
        title, uuid, mig == "Enabled", int(memory), mode != "Prohibited", float(capability)
    )


def test_the_catalogue_agrees_with_the_driver(index: int) -> None:
    with NvmlGpu(index) as gpu:
        assert gpu.model.name in gpu_model_names()
        assert disagreements(gpu.model) == ()
