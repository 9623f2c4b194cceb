"""The layouts that inference can hold, as arrays: what each is without one placement, and what fits beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from executor.mig import GpuModel, Layout, Placement, Profile


@dataclass(frozen=True)
class LayoutTable:
    """All layouts of some profiles of a GPU, by number of placements.

    Attributes:
        layouts: The layouts, the empty one first.
        index: Where a layout stands in ``layouts``.
        without: By layout and entry, the index of the layout without that entry.
        memory: Occupied memory slices as a bit mask, ``(n_layouts,)``.
        compute: Occupied compute slices, ``(n_layouts,)``.
    """

    layouts: tuple[Layout, ...]
    index: Mapping[Layout, int]
    without: tuple[tuple[int, ...], ...]
    memory: NDArray[np.int64]
    compute: NDArray[np.int64]

    def counts(self, profile_names: Sequence[str]) -> NDArray[np.int64]:
        """How often each layout holds each profile, ``(n_layouts, n_profiles)``."""
        rows = [layout.multiset(profile_names) for layout in self.layouts]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(profile_names))

    def fits_beside(self, gpu: GpuModel, busy: Sequence[Placement]) -> NDArray[np.bool_]:
        """Whether each layout is still one with the ``busy`` placements added, ``(n_layouts,)``."""
        if not gpu.fits(busy):
            return np.zeros(len(self.layouts), dtype=np.bool_)
        memory = 0
        for placement in busy:
            memory |= memory_mask(placement)
        compute = sum(placement.profile.compute_slices for placement in busy)
        fits = ((self.memory & memory) == 0) & (self.compute + compute <= gpu.compute_slices)
        profiles: set[Profile] = {placement.profile for placement in busy}
        for profile in profiles:
            n_busy = sum(placement.profile == profile for placement in busy)
            fits &= self.counts([profile.name])[:, 0] + n_busy <= profile.max_instances
        return np.asarray(fits, dtype=np.bool_)


def memory_mask(placement: Placement) -> int:
    """The memory slices that a placement occupies, one bit each."""
    return ((1 << placement.profile.memory_slices) - 1) << placement.start


def layout_table(gpu: GpuModel, profile_names: tuple[str, ...]) -> LayoutTable:
    """The table of all layouts of ``profile_names``; kept for the next problem on the same GPU."""
    geometry = tuple((name, gpu.profile(name).starts, gpu.profile(name).max_instances) for name in profile_names)
    return _layout_table(gpu, profile_names, geometry)


@lru_cache(maxsize=16)
def _layout_table(
    gpu: GpuModel,
    profile_names: tuple[str, ...],
    geometry: tuple[tuple[str, tuple[int, ...], int], ...],  # noqa: ARG001 (profiles compare without it: part of the key)
) -> LayoutTable:
    layouts = gpu.layouts(profile_names)
    index = {layout: number for number, layout in enumerate(layouts)}
    without = tuple(
        tuple(index[Layout(layout.placements[:entry] + layout.placements[entry + 1 :])] for entry in range(len(layout)))
        for layout in layouts
    )
    memory = [sum(memory_mask(placement) for placement in layout) for layout in layouts]
    compute = [sum(placement.profile.compute_slices for placement in layout) for layout in layouts]
    return LayoutTable(layouts, index, without, np.array(memory, dtype=np.int64), np.array(compute, dtype=np.int64))
