"""MIG geometry: profiles, placements, layouts, the GPU models that define them, and the way between two layouts.

Everything is derived from each profile's possible starts (``nvidia-smi mig -lgipp``); no list of
configurations is kept anywhere, because the published ones contradict each other. A layout is any
set of placements that do not overlap in memory slices, whose compute slices fit the GPU, and that holds no profile more
often than the driver allows. Idle slices are allowed.

From one layout to another, a GPU instance in both is never touched, so the processes in it run on. All
destructions come before all creations, which makes every state on the way a layout: first subsets of the old one, then
subsets of the new one. Creations run from large to small with explicit starts, because a driver left to choose puts
small ones where a large one has to go.

Pure Python on purpose: the command line imports it before anything heavy is needed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache, wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from executor.errors import InvalidPlacementError, UnknownProfileError

OwnerT = TypeVar("OwnerT")
_ResultT = TypeVar("_ResultT")
_MoreP = ParamSpec("_MoreP")

_SAME_MEMORY = 0.02
"""By which share of the larger one the memory of one profile differs between drivers."""

Multiset = tuple[int, ...]
"""How often each profile of an agreed, ordered list of profile names is held: counts ``(n_profiles,)``."""


class Variant(StrEnum):
    """What sets a profile apart from the standard one with as many compute slices."""

    STANDARD = "standard"
    DOUBLE_MEMORY = "double-memory"
    MEDIA = "media"
    GRAPHICS = "graphics"
    NO_MEDIA = "no-media"


@dataclass(frozen=True, slots=True)
class Profile:
    """A GPU instance profile as ``nvidia-smi mig -lgip`` and ``-lgipp`` describe it.

    Attributes:
        name: The driver's short name, e.g. ``2g.10gb``; it depends on driver and card.
        compute_slices: GPCs that an instance takes.
        memory_slices: Memory slices that an instance occupies, in the GPU's own units.
        starts: The memory slices at which an instance may start, ascending.
        gi_profile_id: The ID in ``-lgip``; IDs are reused with other meanings on other GPUs.
        max_instances: How many the driver allows at once on an otherwise empty GPU.
        variant: Standard, or how it differs from the standard profile of the same compute slices.
        memory_gib: Usable memory; ``None`` where no source states it.
        sm_count: Streaming multiprocessors; ``None`` where no source states it.
        create_s: Seconds to create a GPU instance with its default compute instance.
        destroy_s: Seconds to destroy both.
    """

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...] = field(compare=False)
    gi_profile_id: int = field(compare=False)
    max_instances: int = field(compare=False)
    variant: Variant = field(default=Variant.STANDARD, compare=False)
    memory_gib: float | None = field(default=None, compare=False)
    sm_count: int | None = field(default=None, compare=False)
    create_s: float = field(default=0.2, compare=False)
    destroy_s: float = field(default=0.2, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def is_like(self, other: Profile) -> bool:
        """Whether drivers may mean the same profile: id, slices, starts and memory decide, and never the name.

        Names are made of the memory, which differs by driver and card by a GiB.
        """
        is_cut_alike = (self.gi_profile_id, self.compute_slices, self.memory_slices, self.starts) == (
            other.gi_profile_id,
            other.compute_slices,
            other.memory_slices,
            other.starts,
        )
        if self.memory_gib is None or other.memory_gib is None:
            return is_cut_alike
        return is_cut_alike and math.isclose(self.memory_gib, other.memory_gib, rel_tol=_SAME_MEMORY)

    def is_at_least(self, other: Profile) -> bool:
        """Whether an instance is as large as ``other`` in compute *and* memory slices (rule 4)."""
        return self.compute_slices >= other.compute_slices and self.memory_slices >= other.memory_slices


@dataclass(frozen=True, slots=True)
class Placement:
    """A profile at a start memory slice, written ``2g.10gb@2``."""

    profile: Profile
    start: int

    def __str__(self) -> str:
        return f"{self.profile.name}@{self.start}"

    @property
    def end(self) -> int:
        """The first memory slice after the placement."""
        return self.start + self.profile.memory_slices

    def overlaps(self, other: Placement) -> bool:
        """Whether both claim a common memory slice."""
        return self.start < other.end and other.start < self.end

    @property
    def memory_mask(self) -> int:
        """The memory slices that it occupies, one bit each."""
        return ((1 << self.profile.memory_slices) - 1) << self.start

    @property
    def sort_key(self) -> tuple[int, str]:
        """Order of placements inside a layout: by start, then by name."""
        return (self.start, self.profile.name)


def memory_slices_in(mask: int) -> tuple[int, ...]:
    """The memory slices whose bit is set, ascending."""
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """Placements that do not overlap on one GPU, sorted by start; idle slices are allowed.

    Made by :meth:`GpuModel.layout` or :meth:`GpuModel.layouts`, which check it.
    """

    placements: tuple[Placement, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.placements)) or "(empty)"

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.placements)

    def __len__(self) -> int:
        return len(self.placements)

    def __contains__(self, placement: Placement) -> bool:
        return placement in self.placements

    @property
    def memory_mask(self) -> int:
        """The memory slices that its placements occupy, one bit each."""
        return sum(placement.memory_mask for placement in self.placements)

    def multiset(self, profile_names: Sequence[str]) -> Multiset:
        """Counts of each of ``profile_names`` in the layout, ``(n_profiles,)``."""
        counts = Counter(placement.profile.name for placement in self.placements)
        return tuple(counts[name] for name in profile_names)


@dataclass(frozen=True)  # with slots, OwnedLayout[Owner]() raises TypeError on Python 3.11
class OwnedLayout(Generic[OwnerT]):
    """A layout in which every placement has one owner; sorted by start.

    The owner is opaque here. Above, it is a task; later it may be a group of tasks.
    """

    entries: tuple[tuple[Placement, OwnerT], ...] = ()

    @classmethod
    def of(cls, entries: Iterable[tuple[Placement, OwnerT]]) -> OwnedLayout[OwnerT]:
        """The owned layout of these (placement, owner) pairs, sorted; geometry is not checked."""
        return cls(tuple(sorted(entries, key=lambda entry: entry[0].sort_key)))

    @property
    def layout(self) -> Layout:
        """The placements without their owners."""
        return Layout(tuple(placement for placement, _ in self.entries))

    def owner(self, placement: Placement) -> OwnerT | None:
        """The owner of ``placement``; ``None`` where it has none."""
        return dict(self.entries).get(placement)


@dataclass(frozen=True)
class GpuModel:
    """A GPU that can be cut by MIG: its slices and its profiles.

    Attributes:
        name: The catalogue's name, e.g. ``a100-80gb``.
        title: The name that people use.
        compute_slices: GPCs available to GPU instances.
        memory_slices: Memory slices, the unit of placements (8, 4 or 12: never assume 8).
        profiles: In the order of the catalogue file, smallest first.
        sm_total: SMs usable in MIG mode; ``None`` where unknown.
        notes: What the catalogue says of doubtful or missing values.
        sources: Where the figures are from.
    """

    name: str
    title: str
    compute_slices: int
    memory_slices: int
    profiles: tuple[Profile, ...]
    sm_total: int | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, Profile]:
        return {profile.name: profile for profile in self.profiles}

    @cached_property
    def _every_placement(self) -> frozenset[Placement]:
        return frozenset(self.placements(self.profile_names))

    @property
    def profile_names(self) -> tuple[str, ...]:
        """Every profile's name, in catalogue order."""
        return tuple(self._by_name)

    @property
    def standard_profile_names(self) -> tuple[str, ...]:
        """Names of the standard profiles: neither double memory nor media nor graphics."""
        return tuple(p.name for p in self.profiles if p.variant is Variant.STANDARD)

    def profile(self, name: str) -> Profile:
        """The profile called ``name``.

        Raises:
            UnknownProfileError: With the names that the GPU model has.
        """
        try:
            return self._by_name[name]
        except KeyError:
            allowed = ", ".join(self.profile_names)
            raise UnknownProfileError(f"{self.name} has no MIG profile {name!r}; it has {allowed}") from None

    def like(self, profile: Profile) -> Profile | None:
        """The GPU's own profile that is like that of another driver or card; ``None`` where it has none."""
        return next((own for own in self.profiles if own.is_like(profile)), None)

    def placement(self, text: str) -> Placement:
        """The placement written as ``profile@start``.

        Raises:
            UnknownProfileError: No such profile on this GPU model.
            InvalidPlacementError: Malformed text, or a start that the profile does not have.
        """
        name, separator, start_text = text.rpartition("@")
        if not separator or not (start_text.isascii() and start_text.isdecimal()):
            raise InvalidPlacementError(f"{text!r} is no placement; write profile@start, e.g. {self.profiles[0]}@0")
        profile = self.profile(name)
        starts = {str(start): start for start in profile.starts}
        if start_text not in starts:
            raise InvalidPlacementError(
                f"{name} cannot start at memory slice {start_text} on {self.name}; allowed: {', '.join(starts)}"
            )
        return Placement(profile, starts[start_text])

    def placements(self, profile_names: Iterable[str] | None = None) -> tuple[Placement, ...]:
        """Every placement of ``profile_names`` (default: the standard profiles), by profile, then start."""
        names = self.standard_profile_names if profile_names is None else profile_names
        return tuple(Placement(profile, start) for profile in map(self.profile, names) for start in profile.starts)

    def fits(self, placements: Iterable[Placement]) -> bool:
        """Whether the placements form a layout.

        True iff the GPU offers each of them, no two overlap in memory slices, their compute slices are
        at most the GPU's, and no profile is held more often than its ``max_instances``.
        """
        taken = n_compute = 0
        counts: Counter[str] = Counter()
        for placement in placements:
            profile, slices = placement.profile, placement.memory_mask
            counts[profile.name] += 1
            if taken & slices or counts[profile.name] > profile.max_instances or placement not in self._every_placement:
                return False
            taken |= slices
            n_compute += profile.compute_slices
        return n_compute <= self.compute_slices

    def layout(self, placements: Iterable[Placement]) -> Layout:
        """The checked layout of these placements.

        Raises:
            InvalidPlacementError: They overlap, exceed the GPU, or are not all offered by it.
        """
        ordered = tuple(sorted(placements, key=lambda placement: placement.sort_key))
        if not self.fits(ordered):
            raise InvalidPlacementError(
                f"{' '.join(map(str, ordered))} is no layout of {self.name}: placements overlap, need more than "
                f"{self.compute_slices} compute slices, hold a profile too often, or are not the GPU's own"
            )
        return Layout(ordered)

    def layouts(self, profile_names: Iterable[str] | None = None) -> tuple[Layout, ...]:
        """All layouts made of ``profile_names`` (default: the standard profiles), the empty one first.

        An A100 has 298 with its five standard profiles. Order: by number of instances, then by start and name.
        """
        names = self.standard_profile_names if profile_names is None else profile_names
        return _layouts(self, tuple(dict.fromkeys(names)))

    def maximal_layouts(self, profile_names: Iterable[str] | None = None) -> tuple[Layout, ...]:
        """The layouts to which no placement of ``profile_names`` can be added (19 on an A100)."""
        candidates = self.placements(profile_names)
        return tuple(
            layout
            for layout in self.layouts(placement.profile.name for placement in candidates)
            if not any(candidate not in layout and self.fits((*layout, candidate)) for candidate in candidates)
        )

    def multisets(self, profile_names: Sequence[str], unavailable: int = 0) -> tuple[Multiset, ...]:
        """The distinct multisets of all layouts of ``profile_names``, the empty one first, sorted.

        Every multiset ``(n_profiles,)`` counts instances in the order of ``profile_names``. Layouts touch none of
        the memory slices in ``unavailable``, one bit each.
        """
        return _multisets(self, profile_names, unavailable)


def placed(
    model: GpuModel, counts: Mapping[str, int], at: Iterable[Placement], standing: Iterable[Placement], avoided: int = 0
) -> Layout | None:
    """The layout with the placements ``at``, and each profile as often as ``counts`` says wherever there is room.

    It touches none of the memory slices in ``avoided``, one bit each, but for those of ``at``. Of all such layouts it
    keeps the most of what is ``standing``, then leaves room for the most further placements, then has the lowest
    starts. ``None`` where there is none.
    """
    fixed, stays = frozenset(at), frozenset(standing)
    wanted = Counter(counts) + Counter(placement.profile.name for placement in fixed)
    names = tuple(name for name in model.profile_names if name in wanted)

    def worth(layout: Layout) -> tuple[int, int]:
        more = sum(model.fits((*layout, other)) for other in model.placements() if other not in layout)
        return (sum(placement in stays for placement in layout), more)

    fitting = (
        layout
        for layout in model.layouts(names)
        if layout.multiset(names) == tuple(wanted[name] for name in names)
        and fixed <= set(layout)
        and not any(placement.memory_mask & avoided for placement in layout if placement not in fixed)
    )
    return max(fitting, key=worth, default=None)


def kept_by_geometry(
    most: int,
) -> Callable[
    [Callable[Concatenate[GpuModel, tuple[str, ...], _MoreP], _ResultT]],
    Callable[Concatenate[GpuModel, Sequence[str], _MoreP], _ResultT],
]:
    """Decorate a function of a GPU model, some of its profiles and more: the ``most`` last results are kept.

    Profiles compare by size alone; where they may start and how often are part of what results are kept by.
    """

    def decorate(
        function: Callable[Concatenate[GpuModel, tuple[str, ...], _MoreP], _ResultT],
    ) -> Callable[Concatenate[GpuModel, Sequence[str], _MoreP], _ResultT]:
        kept: Callable[..., _ResultT] = lru_cache(maxsize=most)(
            lambda gpu, names, _, *more, **named: function(gpu, names, *more, **named)
        )

        @wraps(function)
        def of(gpu: GpuModel, profile_names: Sequence[str], /, *more: _MoreP.args, **named: _MoreP.kwargs) -> _ResultT:
            names = tuple(profile_names)
            geometry = tuple((profile.starts, profile.max_instances) for profile in map(gpu.profile, names))
            return kept(gpu, names, geometry, *more, **named)

        return of

    return decorate


# Few models and sets of profiles occur in a process, each a thousand times: at every plan that is made or checked.
@kept_by_geometry(64)
def _layouts(gpu: GpuModel, profile_names: tuple[str, ...]) -> tuple[Layout, ...]:
    candidates = sorted(gpu.placements(profile_names), key=lambda placement: placement.sort_key)
    found: list[tuple[Placement, ...]] = []

    def extend(chosen: tuple[Placement, ...], from_index: int) -> None:
        found.append(chosen)
        for index in range(from_index, len(candidates)):
            if gpu.fits((*chosen, candidates[index])):
                extend((*chosen, candidates[index]), index + 1)

    extend((), 0)
    found.sort(key=lambda chosen: (len(chosen), [placement.sort_key for placement in chosen]))
    return tuple(map(Layout, found))


@kept_by_geometry(256)
def _multisets(gpu: GpuModel, profile_names: tuple[str, ...], unavailable: int) -> tuple[Multiset, ...]:
    layouts = gpu.layouts(profile_names)
    counted = {layout.multiset(profile_names) for layout in layouts if not layout.memory_mask & unavailable}
    return tuple(sorted(counted, key=lambda multiset: (sum(multiset), multiset)))


@dataclass(frozen=True, slots=True)
class Transition:
    """How a GPU gets from one layout to another; made by :func:`transition`. It destroys first, then creates.

    Attributes:
        kept: In both layouts, by start; never touched.
        destroyed: Only in the old one, by start.
        created: Only in the new one, from large to small.
    """

    kept: tuple[Placement, ...]
    destroyed: tuple[Placement, ...]
    created: tuple[Placement, ...]


def transition(before: Layout, after: Layout) -> Transition:
    """The transition that leaves every placement of both layouts untouched."""
    old, new = frozenset(before), frozenset(after)
    return Transition(
        kept=tuple(placement for placement in before if placement in new),
        destroyed=tuple(placement for placement in before if placement not in new),
        created=_large_to_small(placement for placement in after if placement not in old),
    )


@dataclass(frozen=True)  # with slots, HandOver[Owner](…) raises TypeError on Python 3.11
class HandOver(Generic[OwnerT]):
    """The GPU instance at ``placement`` stays, but the worker in it makes way for another owner's."""

    placement: Placement
    from_owner: OwnerT
    to_owner: OwnerT


@dataclass(frozen=True)  # with slots, OwnedTransition[Owner](…) raises TypeError on Python 3.11
class OwnedTransition(Generic[OwnerT]):
    """How a GPU and the owners on it get from one owned layout to another; made by :func:`owned_transition`.

    Attributes:
        kept: Same placement, same owner, by start: the worker runs on.
        handed_over: Same placement, other owner, by start: no driver call, but a new worker starts.
        destroyed: With the owner that loses it, by start.
        created: With the owner that gets it, from large to small.
    """

    kept: tuple[tuple[Placement, OwnerT], ...]
    handed_over: tuple[HandOver[OwnerT], ...]
    destroyed: tuple[tuple[Placement, OwnerT], ...]
    created: tuple[tuple[Placement, OwnerT], ...]


def owned_transition(before: OwnedLayout[OwnerT], after: OwnedLayout[OwnerT]) -> OwnedTransition[OwnerT]:
    """The transition that leaves every placement of both layouts standing, whatever its owner."""
    old, new = dict(before.entries), dict(after.entries)
    geometry = transition(before.layout, after.layout)
    return OwnedTransition(
        kept=tuple((p, new[p]) for p in geometry.kept if old[p] == new[p]),
        handed_over=tuple(HandOver(p, old[p], new[p]) for p in geometry.kept if old[p] != new[p]),
        destroyed=tuple((p, old[p]) for p in geometry.destroyed),
        created=tuple((p, new[p]) for p in geometry.created),
    )


def _large_to_small(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    def size_then_start(placement: Placement) -> tuple[int, int, int]:
        return (-placement.profile.memory_slices, -placement.profile.compute_slices, placement.start)

    return tuple(sorted(placements, key=size_then_start))
