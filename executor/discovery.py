"""A GPU model from what its driver says: names, sizes and starts are read, never looked up.

The shipped catalogue has only what a driver does not report, the times of its calls, and the name under which service
profiles know the card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from executor.catalogue import gpu_model, gpu_model_names
from executor.mig import GpuModel, Profile, Variant
from executor.names import chip_of, slug

_ALIKE = 0.1
"""Cards whose memory differs by a larger share are different ones."""


def discovered_model(title: str, profiles: Sequence[Profile]) -> GpuModel:
    """The GPU that its driver calls ``title`` and describes by ``profiles``, which say no variant and no times.

    It has the catalogue's name if the catalogue has a GPU of the same chip with the same standard profiles, whatever
    these are called, and as many SMs; else a name made of its title. Its profiles keep the driver's names.
    """
    known = _catalogued(title, profiles)
    times = {} if known is None else {item.name: known.like(item) or item for item in profiles}
    return GpuModel(
        name=known.name if known is not None else slug(title),
        title=title,
        compute_slices=max((item.compute_slices for item in profiles), default=0),
        memory_slices=max((start + item.memory_slices for item in profiles for start in item.starts), default=0),
        profiles=tuple(
            replace(
                item,
                variant=_variant(item, profiles),
                memory_gib=None if item.memory_gib is None else round(item.memory_gib, 2),
                create_s=times.get(item.name, item).create_s,
                destroy_s=times.get(item.name, item).destroy_s,
            )
            for item in sorted(profiles, key=lambda item: (item.compute_slices, item.memory_slices, item.name))
        ),
        notes=("discovered from the driver",),
    )


def card_name(title: str, memory_gib: float | None) -> str:
    """The catalogue's name of the whole GPU that its driver calls ``title``, else a name made of that.

    Where MIG is off a driver tells no profiles, but cards of one chip differ by their memory: that of an instance of
    the whole GPU is all but a little.
    """
    return next((m.name for m in map(gpu_model, gpu_model_names()) if _is_like(m, title, memory_gib)), slug(title))


def disagreements(model: GpuModel) -> tuple[str, ...]:
    """Where a discovered model differs from the catalogue's of its name, a line each; empty where nothing does.

    Names, memory, SMs and counts may differ by driver and card; profiles that only one of both knows are named, too.
    """
    if model.name not in gpu_model_names():
        return (f"{model.title} is not in the catalogue: the driver's word alone counts",)
    known = gpu_model(model.name)
    pairs = [(profile, known.like(profile)) for profile in model.profiles]
    lines = [f"{profile}: only the driver knows it" for profile, own in pairs if own is None]
    lines += [f"{own}: only the catalogue knows it" for own in known.profiles if model.like(own) is None]
    for profile, own in pairs:
        for field in ("name", "max_instances", "sm_count"):
            ours, theirs = getattr(own or profile, field), getattr(profile, field)
            if ours is not None and ours != theirs:
                lines.append(f"{profile}: {field} is {theirs} by the driver, {ours} in the catalogue")
    return tuple(lines)


def _catalogued(title: str, profiles: Sequence[Profile]) -> GpuModel | None:
    """The catalogue's GPU of this chip whose standard profiles the driver has, too; of several the most alike.

    Cards of different chips share placements and memory, and cards of one chip may have fewer SMs: an H100 PCIe has.
    """
    alike = [
        model
        for model in map(gpu_model, gpu_model_names())
        if chip_of(model.title) == chip_of(title)
        and all(
            any(item.is_like(own) and _has_as_many_sms(item, own) for item in profiles)
            for own in map(model.profile, model.standard_profile_names)
        )
    ]
    return max(alike, key=lambda model: len(_words(title) & _words(model.title)), default=None)


def _has_as_many_sms(one: Profile, other: Profile) -> bool:
    return None in (one.sm_count, other.sm_count) or one.sm_count == other.sm_count


def _is_like(model: GpuModel, title: str, memory_gib: float | None) -> bool:
    whole = max(model.profiles, key=lambda profile: profile.compute_slices).memory_gib
    is_as_large = whole is None or memory_gib is None or abs(memory_gib - whole) <= _ALIKE * whole
    return chip_of(model.title) == chip_of(title) and is_as_large


def _words(title: str) -> set[str]:
    """``NVIDIA A100-SXM4-80GB`` has a100, sxm4, 80gb."""
    return set(re.findall(r"[a-z]*\d+[a-z]*|[a-z]+", title.lower()))


def _variant(own: Profile, profiles: Sequence[Profile]) -> Variant:
    _, _, suffix = own.name.replace("-me", "+-me").partition("+")
    match suffix:
        case "":
            smaller = (p for p in profiles if p.compute_slices == own.compute_slices and not re.search("[+-]", p.name))
            is_standard = own.memory_slices == min(item.memory_slices for item in smaller)
            return Variant.STANDARD if is_standard else Variant.DOUBLE_MEMORY
        case "gfx":
            return Variant.GRAPHICS
        case "-me":
            return Variant.NO_MEDIA
        case _:
            return Variant.MEDIA
