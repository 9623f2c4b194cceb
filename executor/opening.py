"""A real GPU by the name of its backend."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from executor.driver import DriverGpu

Backend = Literal["auto", "nvml", "smi"]


def open_gpu(backend: Backend = "auto", index: int = 0) -> DriverGpu:
    """The GPU, through NVML where its Python module is at hand, else through ``nvidia-smi``.

    Raises:
        NoGpuError: No driver, no such GPU, its MIG mode is off, or the module that was asked for is absent.
        NoPermissionError: The driver does not tell placements to this user.
    """
    if backend == "smi" or (backend == "auto" and find_spec("pynvml") is None):
        from executor.smi import SmiGpu  # noqa: PLC0415 - only one of both is needed

        return SmiGpu(index)
    if find_spec("pynvml") is None:
        from executor.errors import NoGpuError  # noqa: PLC0415

        raise NoGpuError("backend nvml: the Python module nvidia-ml-py is absent; install it, or take --backend smi")
    from executor.nvml import NvmlGpu  # noqa: PLC0415 - its module is an extra

    return NvmlGpu(index)
