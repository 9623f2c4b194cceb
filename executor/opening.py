"""A real GPU by the name of its backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from executor.driver import DriverFacts, DriverGpu
from executor.errors import NoGpuError

BackendName = Literal["auto", "nvml", "smi"]


def open_gpu(backend: BackendName = "auto", index: int = 0) -> DriverGpu:
    """The GPU, through NVML where its Python module is at hand, else through ``nvidia-smi``.

    Raises:
        NoGpuError: No driver, no such GPU, its MIG mode is off, or the module that was asked for is absent.
        NoPermissionError: The driver does not tell placements to this user.
    """
    if _door(backend) == "smi":
        from executor.smi import SmiGpu  # noqa: PLC0415 - only one of both is needed

        return SmiGpu(index)
    from executor.nvml import NvmlGpu  # noqa: PLC0415 - its module is an extra

    return NvmlGpu(index)


def driver_facts(backend: BackendName = "auto") -> DriverFacts:
    """What the driver says of itself, through the same door as :func:`open_gpu`.

    Raises:
        NoGpuError: No driver, or the module that was asked for is absent.
    """
    if _door(backend) == "smi":
        from executor import smi  # noqa: PLC0415

        return smi.driver_facts()
    from executor import nvml  # noqa: PLC0415

    return nvml.driver_facts()


def _door(backend: BackendName) -> Literal["nvml", "smi"]:
    is_there = find_spec("pynvml") is not None
    if backend == "nvml" and not is_there:
        raise NoGpuError("backend nvml: the Python module nvidia-ml-py is absent; install it, or take smi")
    return "smi" if backend == "smi" or not is_there else "nvml"
