"""A process that dies at a chosen moment: before, in the middle of, or after any journal write or driver call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest

from executor.files import summed
from executor.folders import FolderGpu
from executor.gpu import Gpu
from executor.journal import Journal
from executor.nvml import NvmlGpu
from executor.smi import SmiGpu

_NVML_CALLS = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
)
"""Calls that change something; between any others nothing does, so that dying there is like dying beside these."""


class Crash(BaseException):
    """The process dies here: nothing that follows is run."""


class Fate:
    """Counts the moments at which a process can die, and lets it live through so many of them."""

    def __init__(self, n_survived: int) -> None:
        self.n_met, self._n_survived = 0, n_survived

    @property
    def has_come(self) -> bool:
        """Whether the process dies at this moment, the next one."""
        self.n_met += 1
        return self.n_met > self._n_survived

    def meet(self) -> None:
        if self.has_come:
            raise Crash


def _around(call: Callable[..., Any], fate: Fate) -> Callable[..., Any]:
    def mortal_call(*arguments: Any, **named: Any) -> Any:
        fate.meet()
        answer = call(*arguments, **named)
        fate.meet()
        return answer

    return mortal_call


def _command(run: Callable[..., Any], fate: Fate) -> Callable[..., Any]:
    """``nvidia-smi``; killed along with us, it may have made the GPU instance and not the compute instance."""

    def mortal_command(*arguments: str) -> Any:
        if "-C" in arguments and fate.has_come:
            run(*(word for word in arguments if word != "-C"))
            raise Crash
        return _around(run, fate)(*arguments)

    return mortal_command


def _writes(fate: Fate) -> Callable[..., Any]:
    """Writes to a journal; one may be cut short."""
    write = Journal._write

    def mortal_write(journal: Journal, *records: dict[str, object]) -> None:
        if fate.has_come:
            journal._file.write(summed({"n": journal._n_lines, **records[0]})[:-5])
            raise Crash
        _around(write, fate)(journal, *records)

    return mortal_write


@contextmanager
def mortal(gpu: Gpu | None, fate: Fate) -> Iterator[None]:
    """Meanwhile, whoever uses the GPU (``None``: one by NVML) and a journal dies when ``fate`` says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_write", _writes(fate))
        if isinstance(gpu, SmiGpu):
            patch.setattr(gpu, "_run", _command(gpu._run, fate))
        elif gpu is None or isinstance(gpu, NvmlGpu):
            for name in _NVML_CALLS:
                patch.setattr(pynvml, name, _around(getattr(pynvml, name), fate))
        elif isinstance(gpu, FolderGpu):
            for name in ("make", "remove", "write"):
                patch.setattr(gpu.files, name, _around(getattr(gpu.files, name), fate))
        else:
            for name in ("create", "destroy", "make_whole"):
                patch.setattr(gpu, name, _around(getattr(gpu, name), fate))
        yield
