"""Sets of (placement, tenant) as nodes: every held set, and every part of one.

The ``physical`` model moves between *held sets*; what survives an epoch, the kept core, is a subset
of both. So the nodes are closed under taking an instance away, and every node knows its subsets of
one instance less (``removal``). Two kinds share that shape and so the same compiled loop:

* :class:`PlacedNodes`: sets of (placement, tenant), exact.
* :class:`CountedNodes`: the multisets of profiles by tenant that those sets amount to, without
  placements; far fewer (146 that serve every tenant instead of 3,782 for two tenants). Whatever
  placements allow, counts allow too, so a path over them is an upper bound.

A node's index grows with its number of instances. Two tenants on an A100 with five profiles have at most
4,377 nodes, three 28,996; what no held set contains is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from executor.mig import Multiset, Placement
from planner.counts import CountSpace, feasible_multisets
from planner.engines.arrays import Bools, Int64s, Ints
from planner.engines.physical.held_sets import HeldSets, LayoutTable
from planner.engines.schedule import Token, WindowFacts


@dataclass(frozen=True)
class Graph:
    """What the compiled loop needs of the nodes, placed or counted.

    Attributes:
        removal: The node without one of its instances, ``(n_nodes, most)``; −1 fills the row's end.
        column: Each tenant's column of its gain table, ``(n_tenants, n_nodes)``.
        is_held: Whether every tenant holds an instance as large as its ``min_profile`` (rule 4), ``(n_nodes,)``.
    """

    removal: Ints
    column: Ints
    is_held: Bools

    def __len__(self) -> int:
        return len(self.is_held)


class Nodes(Protocol[Token]):
    """Nodes of either kind."""

    @property
    def graph(self) -> Graph:
        """Subsets, columns and rule 4."""
        ...

    @property
    def initial(self) -> int:
        """The node of the initial held set; −1 without an initial state."""
        ...

    def token(self, placement: Placement) -> Token:
        """What a retraining at this placement occupies."""
        ...

    def compatible(self, busy: Sequence[Token], unavailable: int = 0) -> Bools:
        """Which nodes can be held beside what retrainings occupy, ``(n_nodes,)``.

        The memory slices in ``unavailable``, one bit each, stay free of both.
        """
        ...


@dataclass(frozen=True)
class PlacedNodes:
    """Sets of (placement, tenant index) on one GPU.

    Attributes:
        sets: The nodes, one a set.
        graph: Subsets, columns and rule 4.
        initial: The node of the initial held set; −1 without an initial state.
    """

    sets: HeldSets
    graph: Graph
    initial: int

    def token(self, placement: Placement) -> Placement:
        """The placement itself."""
        return placement

    def compatible(self, busy: Sequence[Placement], unavailable: int = 0) -> Bools:
        """Whether each node forms a layout with the ``busy`` placements, off these slices, ``(n_nodes,)``."""
        return self.sets.table.fits_beside(self.sets.problem.gpu, busy, unavailable)[self.sets.layout]


@dataclass(frozen=True)
class CountedNodes:
    """Multisets of profiles by tenant; the placed nodes with their placements forgotten.

    Attributes:
        graph: Subsets, columns and rule 4.
        initial: The node of the initial held set; −1 without an initial state.
        space: Which sums of two feasible multisets fit.
        feasible: The feasible multisets.
        codes: The node's multiset over all tenants as coded by ``space``, ``(n_nodes,)``.
        profile_names: What multisets count.
        from_placed: The counted node of every placed node, ``(n_placed_nodes,)``.
    """

    graph: Graph
    initial: int
    space: CountSpace
    feasible: frozenset[Multiset]
    codes: Int64s
    profile_names: tuple[str, ...]
    from_placed: Ints

    def token(self, placement: Placement) -> str:
        """The placement's profile."""
        return placement.profile.name

    def compatible(self, busy: Sequence[str], unavailable: int = 0) -> Bools:
        """Whether each node's profiles fit those slices of the GPU together with the ``busy`` ones, ``(n_nodes,)``."""
        counts = tuple(busy.count(name) for name in self.profile_names)
        if counts not in self.feasible:
            return np.zeros(len(self.graph), dtype=np.bool_)
        beside = self.space.codes(np.array([counts], dtype=np.int64))[0]
        return np.asarray(self.space.fits(self.codes + beside, unavailable), dtype=np.bool_)


def placed_nodes(facts: WindowFacts) -> PlacedNodes:
    """The nodes that a plan can use: the held sets and the initial one, with all their subsets."""
    held_sets, initial, n_tenants = HeldSets.of(facts.problem), facts.initial_held, len(facts.gains)
    table = held_sets.table
    # A set is numbered by its layout, then by its owners as digits in base n_tenants, first entry first.
    first_number = np.cumsum([0, *(n_tenants ** len(layout) for layout in table.layouts)])
    is_held = np.zeros(first_number[-1], dtype=np.bool_)
    is_held[first_number[held_sets.layout] + _codes(held_sets.owners, n_tenants)] = True
    kept = is_held.copy()
    if initial is not None:
        layout, owners = held_sets.row(initial)
        kept[first_number[layout] + _codes(owners[None, :], n_tenants)] = True
    _add_subsets(table, first_number, n_tenants, kept)
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    most = held_sets.owners.shape[1]
    layouts, owners_by_layout, removal = [], [], []
    for number, layout_of in enumerate(table.layouts):
        codes = np.flatnonzero(kept[first_number[number] : first_number[number + 1]])
        rows = np.full((len(codes), most), -1, dtype=np.int32)
        for entry, without in enumerate(table.without[number]):
            rows[:, entry] = new_index[first_number[without] + _drop_digit(codes, entry, len(layout_of), n_tenants)]
        layouts.append(np.full(len(codes), number, dtype=np.int64))
        owners_by_layout.append(_digits(codes, len(layout_of), most, n_tenants))
        removal.append(rows)
    sets = HeldSets(facts.problem, table, np.concatenate(layouts), np.concatenate(owners_by_layout))
    column = np.ascontiguousarray(sets.columns(facts.gains).T.astype(np.int32))
    initial_node = None if initial is None else sets.index(initial)
    graph = Graph(np.concatenate(removal), column, is_held[kept])
    return PlacedNodes(sets, graph, -1 if initial_node is None else initial_node)


def counted_nodes(nodes: PlacedNodes) -> CountedNodes:
    """The placed nodes with their placements forgotten, in an order that still grows with their size."""
    graph, problem = nodes.graph, nodes.sets.problem
    size = (graph.removal >= 0).sum(axis=1)
    # The size comes first in the key, so that sorting by key sorts by size.
    keys = size.astype(np.int64)
    for column in graph.column:
        keys = keys * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    counted_of: Ints = inverse.reshape(-1).astype(np.int32)
    removal = np.where(graph.removal[first] >= 0, counted_of[graph.removal[first]], -1).astype(np.int32)
    space = CountSpace(problem.gpu, problem.profile_names)
    counts = nodes.sets.table.counts(problem.profile_names)
    return CountedNodes(
        graph=Graph(removal, np.ascontiguousarray(graph.column[:, first]), graph.is_held[first]),
        initial=-1 if nodes.initial < 0 else int(counted_of[nodes.initial]),
        space=space,
        feasible=frozenset(feasible_multisets(problem.gpu, problem.profile_names)),
        codes=space.codes(counts)[nodes.sets.layout[first]],
        profile_names=problem.profile_names,
        from_placed=counted_of,
    )


def _add_subsets(table: LayoutTable, first_number: Int64s, n_tenants: int, kept: Bools) -> None:
    """Mark all subsets of the marked sets too, the empty one in any case."""
    kept[0] = True
    for number in range(len(table.layouts) - 1, 0, -1):
        codes = np.flatnonzero(kept[first_number[number] : first_number[number + 1]])
        for entry, without in enumerate(table.without[number]):
            codes_left = _drop_digit(codes, entry, len(table.layouts[number]), n_tenants)
            kept[first_number[without] + codes_left] = True


def _codes(owners: Int64s, base: int) -> Int64s:
    """Owners as the digits of one number, ``(n, most) → (n,)``; −1 beyond a layout's end is no digit."""
    codes = np.zeros(len(owners), dtype=np.int64)
    for column in owners.T:
        codes = np.where(column >= 0, codes * base + column, codes)
    return codes


def _digits(codes: Int64s, n_entries: int, most: int, base: int) -> Int64s:
    """The owners that ``_codes`` made a number of, ``(n,) → (n, most)``."""
    factors = base ** np.arange(n_entries - 1, -1, -1, dtype=np.int64)
    owners = codes[:, None] // factors % base
    return np.pad(owners, ((0, 0), (0, most - n_entries)), constant_values=-1)


def _drop_digit(codes: Int64s, entry: int, n_entries: int, base: int) -> Int64s:
    """The codes without the digit of ``entry``."""
    below = base ** (n_entries - 1 - entry)
    return np.asarray(codes // (below * base) * below + codes % below, dtype=np.int64)
