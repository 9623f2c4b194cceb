"""Multisets that stand for a number of GPCs in the paper's motivation studies, and where they sit on the GPU.

The paper divides a GPU's seven GPCs into parts of one to six. MIG has no instance of five or six GPCs, so two
instances stand for one: of the multisets with the fewest instances that fit beside everything else, the one that
answers most requests a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

from executor.mig import GpuModel, Placement
from planner.counts import feasible_multisets

Names = tuple[str, ...]
"""Profiles of the instances that one task holds."""


def substitutes(gpu: GpuModel, gpcs: int, beside: Sequence[str]) -> tuple[Names, ...]:
    """Every multiset of ``gpcs`` compute slices with the fewest instances that fits the GPU together with ``beside``.

    A single one where MIG has an instance of that size.

    Raises:
        ValueError: There is none.
    """
    slices = {name: gpu.profile(name).compute_slices for name in gpu.standard_profile_names}
    for n_instances in range(1, gpcs + 1):
        chosen = combinations_with_replacement(slices, n_instances)
        found = [names for names in chosen if sum(slices[name] for name in names) == gpcs]
        fitting = tuple(names for names in found if fit_together(gpu, (*names, *beside)))
        if fitting:
            return fitting
    raise ValueError(f"{gpu.name}: nothing has {gpcs} compute slices beside {', '.join(beside) or 'nothing'}")


def best_substitute(gpu: GpuModel, gpcs: int, beside: Sequence[str], capability_rps: Mapping[str, float]) -> Names:
    """Of the ``substitutes``, the one of the highest capability, its larger instances first."""
    best = max(substitutes(gpu, gpcs, beside), key=lambda names: capability_of(names, capability_rps))
    return tuple(reversed(best))


def capability_of(names: Sequence[str], capability_rps: Mapping[str, float]) -> float:
    """Requests a second that these instances answer together."""
    return sum(capability_rps[name] for name in names)


def one_of(gpu: GpuModel, gpcs: int) -> str:
    """The standard profile of ``gpcs`` compute slices.

    Raises:
        ValueError: MIG has none.
    """
    for name in gpu.standard_profile_names:
        if gpu.profile(name).compute_slices == gpcs:
            return name
    raise ValueError(f"{gpu.name} has no instance of {gpcs} compute slices")


def fit_together(gpu: GpuModel, names: Sequence[str]) -> bool:
    """Whether some layout has exactly these instances."""
    standard = gpu.standard_profile_names
    return tuple(map(list(names).count, standard)) in feasible_multisets(gpu, standard)


def placed(gpu: GpuModel, parts: Sequence[Names]) -> list[list[Placement]]:
    """Where each part's instances sit, in the first layout that has exactly the instances of all parts.

    Raises:
        ValueError: No layout has them.
    """
    wanted = sorted(name for part in parts for name in part)
    for layout in gpu.layouts(sorted(set(wanted))):
        left = list(layout)
        if sorted(placement.profile.name for placement in left) == wanted:
            return [[left.pop(_first(left, name)) for name in part] for part in parts]
    raise ValueError(f"{gpu.name}: no layout has {', '.join(wanted)}")


def _first(placements: Sequence[Placement], name: str) -> int:
    return next(index for index, placement in enumerate(placements) if placement.profile.name == name)


def shown(names: Sequence[str]) -> str:
    """The instances as text: ``4g.40gb + 2g.20gb``."""
    return " + ".join(names)
