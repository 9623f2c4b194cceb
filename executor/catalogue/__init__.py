"""The GPU models that MIG can cut, one data file each; facts from NVIDIA's MIG User Guide and driver dumps.

Names, memory and counts depend on the driver: a real GPU is asked at run time, these tables serve
the simulator, the offline planner and the tests.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from msgspec import toml

from executor.cuts import DEFAULT_CARD, CpuCut, MpsCut
from executor.errors import InvalidCutError, UnknownGpuModelError
from executor.files import read_shipped
from executor.mig import GpuModel
from executor.names import did_you_mean, spelled_as

_SUFFIX = ".toml"


@cache
def gpu_model_names() -> tuple[str, ...]:
    """The names of all catalogued GPU models, sorted."""
    entries = files(__package__).iterdir()
    return tuple(sorted(e.name.removesuffix(_SUFFIX) for e in entries if e.name.endswith(_SUFFIX)))


def gpu_model(name: str) -> GpuModel:
    """The catalogued GPU model called ``name``, e.g. ``a100-80gb``, whatever the case of its letters.

    Two kinds of names are no entries of the catalogue, but cuts: ``cpu-1.6-in-7``, a machine's CPU, 1.6 cores in 7
    slices; and ``mps-a100-80gb-in-7``, a whole GPU in 7 shares by MPS.

    Raises:
        UnknownGpuModelError: With the names that are known, nearest first; or a CPU or GPU cannot be cut so.
    """
    try:
        cut = CpuCut.named(name) or MpsCut.named(name)
        if cut is not None:
            return _of(cut)
    except InvalidCutError as error:
        raise UnknownGpuModelError(f"unknown GPU model {name!r}: {error}") from None
    known = gpu_model_names()
    spelled = spelled_as(name, known)
    if spelled not in known:
        hint = did_you_mean(name, known)
        raise UnknownGpuModelError(f"unknown GPU model {name!r}{hint}; known: {', '.join(known)}")
    return _read(spelled)


def mps_cut(card: str) -> MpsCut:
    """How MPS cuts the card: into as many shares as MIG has compute slices there."""
    return MpsCut(card, _geometry(card).compute_slices)


def _geometry(card: str) -> GpuModel:
    return _read(card if card in gpu_model_names() else DEFAULT_CARD)


@cache
def _of(cut: CpuCut | MpsCut) -> GpuModel:
    return cut.model_on(_geometry(cut.geometry))


@cache
def _read(name: str) -> GpuModel:
    text = read_shipped(__package__, f"{name}{_SUFFIX}").decode()
    return toml.decode(text, type=GpuModel)
