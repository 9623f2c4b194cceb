"""The cluster's problem and its answer: GPUs, tenants, who may go where, and who may not be beside whom.

Symbols of this folder: i a tenant, by name ascending; g a GPU; c a class of GPUs; S a set of tenants, ascending;
v_c(S) its *worth*, the objective of the plan of a GPU of class c with exactly these tenants, salvage included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from planner.arrays import Bools, Ints
from planner.errors import ProblemError
from planner.partition import Members
from planner.problem import Problem


class TenantSet(NamedTuple):
    """Tenants that share a GPU of a class: ``gpu_class`` indexes ``Fleet.classes``, ``members`` ``Fleet.tenants``."""

    gpu_class: int
    members: Members


Worths: TypeAlias = "Callable[[Sequence[TenantSet]], Sequence[float | None]]"
"""What each of these sets is worth, in their order; ``None``: a GPU of the class cannot serve it.

The sets are distinct, not empty, and were not asked for before: answers are kept by who asks. A set has the same worth
whenever it is asked for, and however many processes find it out.
"""


@dataclass(frozen=True, eq=False)
class GpuClass:
    """GPUs on which every set of tenants is worth the same: of one model, and shared in one way.

    Attributes:
        name: What people call it, such as the GPU's model.
        alone: By tenant its window's problem with such a GPU to itself, nothing held at the start; ``None`` if it has
            no operating point there. In a set it may earn less than alone, never more.
        most_tenants: Tenants that one GPU takes at most: without pools as many as it has compute slices.
    """

    name: str
    alone: tuple[Problem | None, ...]
    most_tenants: int


@dataclass(frozen=True, slots=True)
class FleetGpu:
    """One GPU.

    Attributes:
        name: Unique within the fleet. Nothing but the answer's order of equal GPUs depends on it.
        node: The machine that it is in.
        gpu_class: Index into ``Fleet.classes``.
        barred: Tenants by name that may not go there, whatever its class.
    """

    name: str
    node: str
    gpu_class: int
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Apart:
    """At most ``most`` of these tenants, by name, on one GPU, or with ``per_node`` on one node."""

    tenants: frozenset[str]
    per_node: bool = False
    most: int = 1


@dataclass(frozen=True, eq=False)
class Fleet:
    """What there is to assign.

    Attributes:
        tenants: Their names, ascending: what they are called decides nothing else.
        classes: The classes of GPUs.
        gpus: The GPUs, in the order in which people name them.
        apart: Who may not be beside whom.

    Raises:
        ProblemError: Naming value and what is allowed.
    """

    tenants: tuple[str, ...]
    classes: tuple[GpuClass, ...]
    gpus: tuple[FleetGpu, ...]
    apart: tuple[Apart, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def may_go(self) -> Bools:
        """Whether a tenant may be on a GPU, other tenants aside, ``(n_gpus, n_tenants)``."""
        serves = np.array([[one is not None for one in own.alone] for own in self.classes])
        barred = np.array([[name in gpu.barred for name in self.tenants] for gpu in self.gpus])
        may: Bools = serves[[gpu.gpu_class for gpu in self.gpus]] & ~barred
        return may

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """The GPUs that may change places in any answer, by index: one class, who may go, and the node where it counts.

        Groups are ordered by what they are, not by names of GPUs.
        """
        counts_nodes = any(own.per_node for own in self.apart)
        groups: dict[tuple[int, str, tuple[bool, ...]], list[int]] = {}
        for g, gpu in enumerate(self.gpus):
            key = (gpu.gpu_class, gpu.node if counts_nodes else "", tuple(self.may_go[g].tolist()))
            groups.setdefault(key, []).append(g)
        return tuple(tuple(groups[key]) for key in sorted(groups))

    @cached_property
    def limits(self) -> tuple[tuple[frozenset[int], bool, int], ...]:
        """(tenants by index, per node, most of them) of ``apart``."""
        index = {name: i for i, name in enumerate(self.tenants)}
        return tuple((frozenset(index[name] for name in own.tenants), own.per_node, own.most) for own in self.apart)

    @cached_property
    def nodes(self) -> Ints:
        """Of each GPU the number of its node, ``(n_gpus,)``."""
        names = sorted({gpu.node for gpu in self.gpus})
        return np.array([names.index(gpu.node) for gpu in self.gpus], dtype=np.int32)

    def may_hold(self, gpu: int, members: Members) -> bool:
        """Whether the GPU may have exactly these tenants, apart from what other GPUs have."""
        return (
            len(members) <= self.classes[self.gpus[gpu].gpu_class].most_tenants
            and bool(self.may_go[gpu, list(members)].all())
            and all(len(own.intersection(members)) <= most for own, _, most in self.limits)
        )

    def allows(self, sets: Sequence[Members], gpus: Iterable[int]) -> bool:
        """Whether the tenants of these GPUs may be there as tenants of all GPUs are; no tenant is on two."""
        return all(self.may_hold(g, sets[g]) and self._may_be_on_node(sets, int(self.nodes[g])) for g in gpus)

    def _may_be_on_node(self, sets: Sequence[Members], node: int) -> bool:
        limits = [(own, most) for own, per_node, most in self.limits if per_node]
        if not limits:
            return True
        there = [i for g, at in enumerate(self.nodes.tolist()) if at == node for i in sets[g]]
        return all(len(own.intersection(there)) <= most for own, most in limits)

    def breaches(self, sets: Sequence[Members]) -> Iterator[str]:
        """What is wrong with the tenants of each GPU, in words; nothing where every rule is kept."""
        for g, (gpu, members) in enumerate(zip(self.gpus, sets, strict=True)):
            most = self.classes[gpu.gpu_class].most_tenants
            if len(members) > most:
                yield f"GPU {gpu.name} has {len(members)} tenants; at most {most} are allowed"
            for i in members:
                if not self.may_go[g, i]:
                    yield f"tenant {self.tenants[i]} is on GPU {gpu.name}, where it may not be"
        found = Counter(i for members in sets for i in members)
        for i in sorted(found):
            if found[i] > 1:
                yield f"tenant {self.tenants[i]} is assigned {found[i]} times"
        for own, per_node, most in self.limits:
            for where, there in self._places(sets, per_node):
                beside = sorted(own.intersection(there))
                if len(beside) > most:
                    names = ", ".join(self.tenants[i] for i in beside)
                    yield f"tenants {names} are on one {where}; at most {most} of them may be"

    def _places(self, sets: Sequence[Members], per_node: bool) -> Iterable[tuple[str, list[int]]]:
        by_place: dict[str, list[int]] = {}
        for gpu, members in zip(self.gpus, sets, strict=True):
            by_place.setdefault(f"node, {gpu.node}" if per_node else f"GPU, {gpu.name}", []).extend(members)
        return by_place.items()


@dataclass(frozen=True, slots=True)
class Present:
    """Where tenants are now, and what it costs to move one.

    A move is made where the gain over ``horizon_windows`` exceeds its cost: worths count that often, the cost once.

    Attributes:
        gpu_of: GPU by tenant, both by name. Tenants that are new, and those of GPUs that are gone, are not in it.
        move_costs: By tenant what a move costs, in requests of the worth's kind; what is not in it moves for nothing.
        horizon_windows: Windows over which a gain counts, above 0.
    """

    gpu_of: Mapping[str, str]
    move_costs: Mapping[str, float]
    horizon_windows: float


@dataclass(frozen=True, slots=True)
class FleetBound:
    """No assignment's plans without pools are worth more than ``value``.

    Attributes:
        value: Σ_g (dearest layout at its class's prices) + Σ_i max(0, the most that i earns net of them).
        prices: By class, then by stretch of the window, what a memory and a compute slice cost in each step; any are
            valid.
    """

    value: float
    prices: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A tenant that no GPU has, and why."""

    tenant: str
    reason: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The answer.

    Attributes:
        sets: By GPU of the fleet its tenants, names ascending; every tenant is in one, or unplaced.
        worths: By GPU what its set is worth, as :data:`Worths` has it; 0.0 for an empty one.
        bound: What no assignment without pools exceeds.
        unplaced: Tenants that no GPU has.
        evaluations: Sets that were valued.
        columns: Sets between which the last choice was made.
        moved: Tenants that are on another GPU than at present.
    """

    sets: tuple[tuple[str, ...], ...]
    worths: tuple[float, ...]
    bound: FleetBound
    unplaced: tuple[Unplaced, ...] = ()
    evaluations: int = 0
    columns: int = 0
    moved: tuple[str, ...] = field(default=())

    @property
    def worth(self) -> float:
        """What all sets are worth together."""
        return sum(self.worths)


def _check(fleet: Fleet) -> None:
    if not fleet.gpus or not fleet.tenants:
        raise ProblemError("a fleet has at least one GPU and one tenant")
    if list(fleet.tenants) != sorted(set(fleet.tenants)):
        raise ProblemError(
            f"the fleet's tenants are {', '.join(fleet.tenants)}; different names, ascending, are needed"
        )
    names = [gpu.name for gpu in fleet.gpus]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ProblemError(f"the fleet has two GPUs {twice[0]!r}; names must differ")
    for own in fleet.classes:
        if len(own.alone) != len(fleet.tenants):
            raise ProblemError(f"class {own.name!r} has {len(own.alone)} problems for {len(fleet.tenants)} tenants")
        if own.most_tenants < 1:
            raise ProblemError(f"class {own.name!r} takes {own.most_tenants} tenants; at least 1 is needed")
        if any(one is not None and len(one.tenants) != 1 for one in own.alone):
            raise ProblemError(f"class {own.name!r}: a problem of a tenant alone has one tenant")
    for apart in fleet.apart:
        if unknown := sorted(apart.tenants.difference(fleet.tenants)):
            raise ProblemError(f"{unknown[0]!r}, which is to be kept apart, is no tenant of the fleet")
        if apart.most < 1:
            raise ProblemError(f"at most {apart.most} of {', '.join(sorted(apart.tenants))} is too few; at least 1")
