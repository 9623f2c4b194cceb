"""A real GPU by the name of its backend. NVML reads every one of them, so its Python module has to be there."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import Literal

from executor.catalogue import gpu_model
from executor.driver import CardFacts, DriverFacts, DriverGpu
from executor.errors import GpuError, InvalidGpuModelError, NoGpuError, UnknownGpuModelError
from executor.extras import install
from executor.mig import GpuModel

BackendName = Literal["auto", "nvml", "smi"]


def open_gpu(backend: BackendName = "auto", index: int = 0) -> DriverGpu:
    """The GPU, changed by NVML (``auto``, ``nvml``) or by ``nvidia-smi mig`` (``smi``).

    Raises:
        NoGpuError: No driver, no such GPU, its MIG mode is off, or NVML's Python module or the command is absent.
        NoPermissionError: The driver does not tell placements to this user.
    """
    _require_nvml(f"backend {backend}")
    if backend == "smi":
        from executor.smi import SmiGpu  # noqa: PLC0415 - only one of both is needed

        return SmiGpu(index)
    from executor.nvml import NvmlGpu  # noqa: PLC0415 - its module is an extra

    return NvmlGpu(index)


def named_model(name: str) -> GpuModel:
    """The GPU model of this name: the catalogue's, that of a described card's file, or that of a card of this machine.

    A card of this machine is called as ``migrator gpu list`` prints it: by its driver's title, or by our name of it.

    Raises:
        UnknownGpuModelError: There is none, or the file describes none.
    """
    try:
        return gpu_model(name)
    except InvalidGpuModelError:
        raise
    except UnknownGpuModelError:
        for model in _models_here():
            if name.casefold() in (model.name, model.title.casefold()):
                return model
        raise


def _models_here() -> list[GpuModel]:
    """What the driver says of this machine's cards in MIG mode; nothing where there is no driver."""
    found = []
    with suppress(GpuError):
        for index in range(driver_facts().n_gpus):
            with suppress(GpuError), open_gpu("nvml", index) as gpu:
                found.append(gpu.model)
    return found


def driver_facts() -> DriverFacts:
    """What the driver says of itself.

    Raises:
        NoGpuError: No driver, or NVML's Python module is absent.
    """
    _require_nvml("the driver's version")
    from executor import nvml  # noqa: PLC0415 - its module is an extra

    return nvml.driver_facts()


def card_facts(index: int) -> CardFacts:
    """What the driver says of the whole GPU.

    Raises:
        GpuError: No driver, no such GPU, or NVML's Python module is absent; or the driver does not answer.
    """
    _require_nvml("backend mps")
    from executor import nvml  # noqa: PLC0415 - its module is an extra

    return nvml.card_facts(index)


def _require_nvml(what: str) -> None:
    if find_spec("pynvml") is None:
        raise NoGpuError(f"{what} needs pynvml: {install('nvml')}")
