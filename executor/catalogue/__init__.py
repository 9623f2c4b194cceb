"""The GPU models that MIG can cut, one data file each; facts from NVIDIA's MIG User Guide and driver dumps.

Names, memory and counts depend on the driver: a real GPU is asked at run time, these tables serve
the simulator, the offline planner and the tests.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from msgspec import toml

from executor.cuts import DEFAULT_CARD, CpuCut, MpsCut
from executor.described import SUFFIX, read_model
from executor.errors import InvalidCutError, UnknownGpuModelError
from executor.files import read_shipped
from executor.mig import GpuModel, Profile
from executor.names import chip_of, did_you_mean, spelled_as


@cache
def gpu_model_names() -> tuple[str, ...]:
    """The names of all catalogued GPU models, sorted."""
    entries = files(__package__).iterdir()
    return tuple(sorted(e.name.removesuffix(SUFFIX) for e in entries if e.name.endswith(SUFFIX)))


def gpu_model(name: str) -> GpuModel:
    """The catalogued GPU model called ``name``, e.g. ``a100-80gb``, whatever the case of its letters.

    The name of a file that ends with ``.toml`` stands for what the file describes.

    Two kinds of names are no entries of the catalogue, but cuts: ``cpu-1.6-in-7``, a machine's CPU, 1.6 cores in 7
    slices; and ``mps-a100-80gb-in-7``, a whole GPU in 7 shares by MPS.

    Raises:
        UnknownGpuModelError: With the names that are known, after the nearest one of the same chip; or a CPU or GPU
            cannot be cut so, or the file describes no GPU model.
    """
    try:
        cut = CpuCut.named(name) or MpsCut.named(name)
        if cut is not None:
            return _of(cut)
    except InvalidCutError as error:
        raise UnknownGpuModelError(f"unknown GPU model {name!r}: {error}") from None
    if name.endswith(SUFFIX):
        return read_model(Path(name))
    known = gpu_model_names()
    spelled = spelled_as(name, known)
    if spelled not in known:
        hint = did_you_mean(name, [other for other in known if chip_of(other) == chip_of(name)])
        others = f"known: {', '.join(known)}, and files of migrator gpu describe"
        raise UnknownGpuModelError(f"unknown GPU model {name!r}{hint}; {others}")
    return _read(spelled)


def is_cut(name: str) -> bool:
    """Whether the name is that of shares of a CPU, or of a GPU by MPS, and of no card that MIG cuts."""
    try:
        return (CpuCut.named(name) or MpsCut.named(name)) is not None
    except InvalidCutError:
        return False


def is_catalogued(model: GpuModel) -> bool:
    """Whether :func:`gpu_model` finds under the model's name each of its profiles, cut just so.

    A driver may lack some of the catalogue's, name them otherwise, or have a card that the catalogue does not know.
    """
    try:
        known = {profile.name: profile for profile in gpu_model(model.name).profiles}
    except UnknownGpuModelError:
        return False
    return all(item.name in known and _is_same(item, known[item.name]) for item in model.profiles)


def _is_same(one: Profile, other: Profile) -> bool:
    has_as_many_sms = None in (one.sm_count, other.sm_count) or one.sm_count == other.sm_count
    return one.is_like(other) and one.max_instances == other.max_instances and has_as_many_sms


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
    text = read_shipped(__package__, f"{name}{SUFFIX}").decode()
    return toml.decode(text, type=GpuModel)
