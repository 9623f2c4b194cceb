"""From one layout to another: what stays, what goes, what comes, and in which order.

A GPU instance that stands in both layouts is never touched, so the processes in it run on. All
destructions come before all creations, which makes every state on the way a layout: first subsets of
the old one, then subsets of the new one. Creations run from large to small with explicit starts,
because a driver left to choose puts small ones where a large one has to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from executor.mig import Layout, OwnedLayout, OwnerT, Placement


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy the GPU instance at ``placement``."""

    placement: Placement

    def __str__(self) -> str:
        return f"destroy {self.placement}"


@dataclass(frozen=True, slots=True)
class Create:
    """Create a GPU instance at ``placement``."""

    placement: Placement

    def __str__(self) -> str:
        return f"create {self.placement}"


@dataclass(frozen=True, slots=True)
class Transition:
    """How a GPU gets from one layout to another; made by :func:`transition`.

    Attributes:
        kept: In both layouts, by start; never touched.
        destroyed: Only in the old one, by start.
        created: Only in the new one, from large to small.
    """

    kept: tuple[Placement, ...]
    destroyed: tuple[Placement, ...]
    created: tuple[Placement, ...]

    @property
    def steps(self) -> tuple[Destroy | Create, ...]:
        """The driver calls in order; empty where the layouts are equal."""
        return (*map(Destroy, self.destroyed), *map(Create, self.created))


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

    @property
    def steps(self) -> tuple[Destroy | Create, ...]:
        """The driver calls in order; a hand-over needs none."""
        destroys = (Destroy(placement) for placement, _ in self.destroyed)
        return (*destroys, *(Create(placement) for placement, _ in self.created))


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
