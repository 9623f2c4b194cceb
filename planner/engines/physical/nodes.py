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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from executor.mig import Multiset, Placement
from planner.counts import CountSpace, feasible_multisets, joint_states, tenant_multisets
from planner.engines.arrays import Bools, Int64s, Ints
from planner.engines.physical.held_sets import Entries, HeldSets, Holding, LayoutTable, held_rows
from planner.engines.schedule import Token, WindowFacts
from planner.problem import GainTable, TenantTerms


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
    """

    graph: Graph
    initial: int
    space: CountSpace
    feasible: frozenset[Multiset]
    codes: Int64s
    profile_names: tuple[str, ...]

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
    held_sets, initial = HeldSets.of(facts.problem), facts.initial_held
    other: tuple[int, ...] | None = None
    if initial is not None and held_sets.index(initial) is None:
        layout, owners = held_sets.row(initial)
        other = (layout, *map(int, owners))
    layouts, owners, removal, is_held = _with_subsets(Holding.of(facts.problem), other)
    sets = HeldSets(facts.problem, held_sets.table, layouts, owners)
    column = np.ascontiguousarray(sets.columns(facts.gains).T.astype(np.int32))
    initial_node = None if initial is None else sets.index(initial)
    return PlacedNodes(sets, Graph(removal, column, is_held), -1 if initial_node is None else initial_node)


@lru_cache(maxsize=4)
def _with_subsets(holding: Holding, other: tuple[int, ...] | None) -> tuple[Int64s, Int64s, Ints, Bools]:
    """The held sets, and an ``other`` one, a layout and its owners, with all their subsets.

    They are kept for the next problem, as one that plans anew has the same.

    Returns:
        Layout and owners, as those of :class:`HeldSets`; and ``removal`` and ``is_held``, as those of :class:`Graph`.
    """
    table, n_tenants = holding.table, len(holding.serves)
    layout, owners = held_rows(holding)
    # A set is numbered by its layout, then by its owners as digits in base n_tenants, first entry first.
    first_number = np.cumsum([0, *(n_tenants ** len(layout) for layout in table.layouts)])
    is_held = np.zeros(first_number[-1], dtype=np.bool_)
    is_held[first_number[layout] + _codes(owners, n_tenants)] = True
    kept = is_held.copy()
    if other is not None:
        kept[first_number[other[0]] + _codes(np.array([other[1:]], dtype=np.int64), n_tenants)] = True
    _add_subsets(table, first_number, n_tenants, kept)
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    most = owners.shape[1]
    layouts, owners_by_layout, removal = [], [], []
    for number, layout_of in enumerate(table.layouts):
        codes = np.flatnonzero(kept[first_number[number] : first_number[number + 1]])
        rows = np.full((len(codes), most), -1, dtype=np.int32)
        for entry, without in enumerate(table.without[number]):
            rows[:, entry] = new_index[first_number[without] + _drop_digit(codes, entry, len(layout_of), n_tenants)]
        layouts.append(np.full(len(codes), number, dtype=np.int64))
        owners_by_layout.append(_digits(codes, len(layout_of), most, n_tenants))
        removal.append(rows)
    found = np.concatenate(layouts), np.concatenate(owners_by_layout)
    return *found, np.concatenate(removal), is_held[kept]


def counted_nodes(facts: WindowFacts) -> CountedNodes:
    """The placed nodes with their placements forgotten, but without listing those; the order still grows with size.

    Whatever fits the GPU as counts has a layout, so these are all parts of what tenants can hold by counts.
    """
    problem, initial = facts.problem, facts.initial_held
    own = [np.array(table.multisets, dtype=np.int64) for table in facts.gains]
    held = [[table.column[k] for k in tenant_multisets(problem, t)] for t, table in _by_tenant(facts)]
    joint = joint_states(problem)
    columns = np.column_stack([np.array(h, dtype=np.int64)[joint[:, m]] for m, h in enumerate(held)])
    opening = np.array([[] if initial is None else _columns_of(facts, initial)], dtype=np.int64)
    opening = opening.reshape(-1, len(own))
    less = [_without(table) for table in facts.gains]
    codes = _NodeCodes(own)
    nodes = _with_parts(np.concatenate([columns, opening]), less, codes)
    known = codes(nodes)
    removal = [
        np.where(part >= 0, np.searchsorted(known, codes(_replaced(nodes, m, np.maximum(part, 0)))), -1)
        for m, table in enumerate(less)
        for part in table[nodes[:, m]].T
    ]
    is_held = np.zeros(len(nodes), dtype=np.bool_)
    is_held[np.searchsorted(known, codes(columns))] = True
    space = CountSpace(problem.gpu, problem.profile_names)
    return CountedNodes(
        graph=Graph(_packed(np.column_stack(removal)), np.ascontiguousarray(nodes.T.astype(np.int32)), is_held),
        initial=-1 if initial is None else int(np.searchsorted(known, codes(opening))[0]),
        space=space,
        feasible=frozenset(feasible_multisets(problem.gpu, problem.profile_names)),
        codes=np.asarray(sum(space.codes(k)[nodes[:, m]] for m, k in enumerate(own)), dtype=np.int64),
        profile_names=problem.profile_names,
    )


def _by_tenant(facts: WindowFacts) -> Iterator[tuple[TenantTerms, GainTable]]:
    return zip(facts.problem.tenants, facts.gains, strict=True)


def _columns_of(facts: WindowFacts, entries: Entries) -> list[int]:
    """Each tenant's column of its gain table for what it holds of a set."""
    names = facts.problem.profile_names
    own = [[place.profile.name for place, tenant in entries if tenant == m] for m in range(len(facts.gains))]
    return [table.column[tuple(map(k.count, names))] for k, table in zip(own, facts.gains, strict=True)]


def _without(table: GainTable) -> Int64s:
    """By column and profile, the column with one instance of it less; −1 where it has none, ``(n_columns, P)``."""
    rows = [[table.column[(*k[:p], n - 1, *k[p + 1 :])] if n else -1 for p, n in enumerate(k)] for k in table.multisets]
    return np.array(rows, dtype=np.int64)


def _replaced(nodes: Int64s, m: int, column: Int64s) -> Int64s:
    """The nodes with another column of tenant m."""
    out = nodes.copy()
    out[:, m] = column
    return out


class _NodeCodes:
    """Numbers for rows of columns by tenant, which grow with the number of instances, then with the columns."""

    def __init__(self, own: Sequence[Int64s]) -> None:
        self._sizes = [multisets.sum(axis=1) for multisets in own]

    def __call__(self, nodes: Int64s) -> Int64s:
        codes = np.asarray(sum(size[nodes[:, m]] for m, size in enumerate(self._sizes)), dtype=np.int64)
        for m, size in enumerate(self._sizes):
            codes = codes * len(size) + nodes[:, m]
        return codes


def _with_parts(nodes: Int64s, less: Sequence[Int64s], codes: _NodeCodes) -> Int64s:
    """The nodes and all that is left of them when instances are taken away, in the order of their codes."""
    found = [nodes, np.zeros((1, len(less)), dtype=np.int64)]
    while len(nodes):
        parts = [_replaced(nodes, m, part) for m, table in enumerate(less) for part in table[nodes[:, m]].T]
        nodes = np.concatenate(parts)
        nodes = nodes[(nodes >= 0).all(axis=1)]
        nodes = nodes[np.unique(codes(nodes), return_index=True)[1]]
        found.append(nodes)
    everything = np.concatenate(found)
    return np.asarray(everything[np.unique(codes(everything), return_index=True)[1]], dtype=np.int64)


def _packed(removal: Int64s) -> Ints:
    """Rows with their −1 at the end, and no wider than the longest."""
    order = np.argsort(removal < 0, axis=1, kind="stable")
    width = max(1, int((removal >= 0).sum(axis=1).max(initial=0)))
    return np.ascontiguousarray(np.take_along_axis(removal, order, axis=1)[:, :width].astype(np.int32))


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
