"""Held sets as nodes: every set of (placement, tenant) that fits the GPU, partial ones included.

The ``physical`` model moves between *held sets*; what survives an epoch, the kept core, is a subset
of both. So the nodes are closed under taking an instance away, and every node knows its subsets of
one instance less (``removal``). Two kinds share that shape and so the same compiled program:

* :class:`PlacedNodes`: sets of (placement, tenant), exact.
* :class:`CountedNodes`: the multisets of profiles by tenant that those sets amount to, without
  placements; far fewer (146 with everybody served instead of 3,782 for two tenants). Whatever
  placements allow, counts allow too, so a program on them is an upper bound.

A node's index grows with its number of instances. Two tenants on an A100 with five profiles have
4,377 nodes, three 28,996; what no held set contains is left out by :func:`placed_nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from executor.mig import GpuModel, Layout, Multiset, Placement
from planner.counts import COUNT_BITS, CountSpace, feasible_multisets, large_enough_profiles
from planner.engines.physical.layouts import LayoutTable, layout_table
from planner.problem import GainTable, Problem

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Graph:
    """What the compiled program needs of the nodes, placed or counted.

    Attributes:
        removal: The node without one of its instances, ``(n_nodes, most)``; −1 fills the row's end.
        column: Each tenant's column of its gain table, ``(n_tenants, n_nodes)``.
        is_held: Whether every tenant holds an instance as large as its ``min_profile`` (rule 4), ``(n_nodes,)``.
    """

    removal: Int32Array
    column: Int32Array
    is_held: BoolArray

    def __len__(self) -> int:
        return len(self.is_held)


@dataclass(frozen=True)
class PlacedNodes:
    """Sets of (placement, tenant index) on one GPU.

    Attributes:
        gpu: The GPU model.
        graph: Subsets, columns and rule 4.
        table: The layouts that the nodes give owners to.
        layout: The node's layout, an index into ``table``, ``(n_nodes,)``.
        owner_code: Owners of the layout's entries as digits in base ``n_tenants``, first entry first, ``(n_nodes,)``.
        n_tenants: How many tenants there are.
    """

    gpu: GpuModel
    graph: Graph
    table: LayoutTable
    layout: Int32Array
    owner_code: Int64Array
    n_tenants: int

    @cached_property
    def _index_by_code(self) -> dict[tuple[int, int], int]:
        pairs = zip(self.layout.tolist(), self.owner_code.tolist(), strict=True)
        return {pair: index for index, pair in enumerate(pairs)}

    def entries(self, node: int) -> tuple[tuple[Placement, int], ...]:
        """The (placement, tenant index) pairs of a node, by start."""
        placements = self.table.layouts[self.layout[node]].placements
        code, owners = int(self.owner_code[node]), []
        for _ in placements:
            code, owner = divmod(code, self.n_tenants)
            owners.append(owner)
        return tuple(zip(placements, reversed(owners), strict=True))

    def index(self, entries: Iterable[tuple[Placement, int]]) -> int:
        """The node of these (placement, tenant index) pairs.

        Raises:
            KeyError: It is none of the nodes.
        """
        ordered = sorted(entries, key=lambda entry: entry[0].sort_key)
        code = 0
        for _, owner in ordered:
            code = code * self.n_tenants + owner
        layout = Layout(tuple(placement for placement, _ in ordered))
        return self._index_by_code[self.table.index[layout], code]

    def compatible(self, busy: Sequence[Placement]) -> BoolArray:
        """Whether each node forms a layout together with the ``busy`` placements, ``(n_nodes,)``."""
        return self.table.fits_beside(self.gpu, busy)[self.layout]


@dataclass(frozen=True)
class CountedNodes:
    """Multisets of profiles by tenant; the placed nodes with their placements forgotten.

    Attributes:
        graph: Subsets, columns and rule 4.
        space: Which sums of two feasible multisets fit.
        feasible: The feasible multisets.
        codes: The node's multiset over all tenants as coded by ``space``, ``(n_nodes,)``.
        profile_names: What multisets count.
        from_placed: The counted node of every placed node, ``(n_placed_nodes,)``.
    """

    graph: Graph
    space: CountSpace
    feasible: frozenset[Multiset]
    codes: Int64Array
    profile_names: tuple[str, ...]
    from_placed: Int32Array

    def compatible(self, busy: Sequence[str]) -> BoolArray:
        """Whether each node's profiles fit the GPU together with the ``busy`` ones, ``(n_nodes,)``."""
        counts = tuple(busy.count(name) for name in self.profile_names)
        if counts not in self.feasible:
            return np.zeros(len(self.graph), dtype=np.bool_)
        beside = self.space.codes(np.array([counts], dtype=np.int64))[0]
        return np.asarray(self.space.fits(self.codes + beside), dtype=np.bool_)


def all_nodes(problem: Problem, gains: Sequence[GainTable]) -> PlacedNodes:
    """All sets of (placement, tenant) that fit the GPU, each on a profile that may serve its tenant."""
    return _build(problem, gains, keep_everything=True)


def placed_nodes(problem: Problem, gains: Sequence[GainTable]) -> PlacedNodes:
    """The nodes that a plan can use: held sets, all their subsets, and those of the initial state."""
    return _build(problem, gains, keep_everything=False)


def counted_nodes(problem: Problem, nodes: PlacedNodes) -> CountedNodes:
    """The placed nodes with their placements forgotten, in an order that still grows with their size."""
    graph = nodes.graph
    size = (graph.removal >= 0).sum(axis=1)
    # The size comes first in the key, so that sorting by key sorts by size.
    keys = size.astype(np.int64)
    for column in graph.column:
        keys = keys * (int(column.max()) + 1) + column
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    counted_of: Int32Array = inverse.reshape(-1).astype(np.int32)
    removal = np.where(graph.removal[first] >= 0, counted_of[graph.removal[first]], -1).astype(np.int32)
    space = CountSpace(problem.gpu, problem.profile_names)
    counts = nodes.table.counts(problem.profile_names)
    return CountedNodes(
        graph=Graph(removal, np.ascontiguousarray(graph.column[:, first]), graph.is_held[first]),
        space=space,
        feasible=frozenset(feasible_multisets(problem.gpu, problem.profile_names)),
        codes=space.codes(counts)[nodes.layout[first]],
        profile_names=problem.profile_names,
        from_placed=counted_of,
    )


def _build(problem: Problem, gains: Sequence[GainTable], *, keep_everything: bool) -> PlacedNodes:
    serving = {name for tenant in problem.tenants for name in tenant.capability_rps}
    table = layout_table(problem.gpu, tuple(name for name in problem.profile_names if name in serving))
    rules = _OwnerRules.of(problem, table)
    n_tenants = len(problem.tenants)
    first_index = np.cumsum([0, *(n_tenants ** len(layout) for layout in table.layouts)])
    allowed, is_held = _judge(table, rules, first_index)
    kept = allowed if keep_everything else _parts_of_plans(problem, table, first_index, allowed & is_held)
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    most = len(table.layouts[-1])
    layout, code, removal, key = [], [], [], []
    for number, entries in enumerate(table.layouts):
        codes = np.flatnonzero(kept[first_index[number] : first_index[number + 1]])
        rows = np.full((len(codes), most), -1, dtype=np.int32)
        for entry, without in enumerate(table.without[number]):
            rows[:, entry] = new_index[first_index[without] + _drop_digit(codes, entry, len(entries), n_tenants)]
        layout.append(np.full(len(codes), number, dtype=np.int32))
        code.append(codes)
        removal.append(rows)
        key.append(rules.multiset_keys(number, codes))
    column = _columns(problem, gains, np.concatenate(key, axis=1))
    graph = Graph(np.concatenate(removal), column, is_held[kept])
    return PlacedNodes(problem.gpu, graph, table, np.concatenate(layout), np.concatenate(code), n_tenants)


@dataclass(frozen=True)
class _OwnerRules:
    """Which tenant may hold which entry of a layout, on whole arrays of owner codes."""

    profile_of_entry: tuple[tuple[int, ...], ...]
    may_hold: BoolArray  # (n_profiles, n_tenants)
    is_enough: BoolArray  # (n_profiles, n_tenants)

    @classmethod
    def of(cls, problem: Problem, table: LayoutTable) -> _OwnerRules:
        names = problem.profile_names
        enough = [{profile.name for profile in large_enough_profiles(problem, tenant)} for tenant in problem.tenants]
        return cls(
            tuple(tuple(names.index(p.profile.name) for p in layout) for layout in table.layouts),
            np.array([[name in tenant.capability_rps for tenant in problem.tenants] for name in names]),
            np.array([[name in names_of for names_of in enough] for name in names]),
        )

    def owners(self, number: int, codes: Int64Array) -> Int64Array:
        """The tenant of every entry of layout ``number``: ``(n,) → (n_entries, n)``."""
        n_tenants, n_entries = self.may_hold.shape[1], len(self.profile_of_entry[number])
        factors = n_tenants ** np.arange(n_entries - 1, -1, -1, dtype=np.int64)
        return np.asarray(codes[None, :] // factors[:, None] % n_tenants, dtype=np.int64)

    def judge(self, number: int, codes: Int64Array) -> tuple[BoolArray, BoolArray]:
        """Whether every entry may serve its owner, and whether every tenant holds a large enough one."""
        profiles = np.array(self.profile_of_entry[number], dtype=np.int64)
        owners = self.owners(number, codes)
        allowed: BoolArray = np.all(self.may_hold[profiles[:, None], owners], axis=0)
        large = self.is_enough[profiles[:, None], owners]
        tenants = range(self.may_hold.shape[1])
        served: BoolArray = np.all([np.any(large & (owners == tenant), axis=0) for tenant in tenants], axis=0)
        return allowed, served

    def multiset_keys(self, number: int, codes: Int64Array) -> Int64Array:
        """Each tenant's multiset as one integer: ``(n,) → (n_tenants, n)``."""
        owners = self.owners(number, codes)
        keys = np.zeros((self.may_hold.shape[1], len(codes)), dtype=np.int64)
        for entry, profile in enumerate(self.profile_of_entry[number]):
            for tenant in range(len(keys)):
                keys[tenant] += (owners[entry] == tenant) * (1 << (COUNT_BITS * profile))
        return keys


def _judge(table: LayoutTable, rules: _OwnerRules, first_index: Int64Array) -> tuple[BoolArray, BoolArray]:
    allowed = np.zeros(first_index[-1], dtype=np.bool_)
    is_held = np.zeros(first_index[-1], dtype=np.bool_)
    for number in range(len(table.layouts)):
        span = slice(first_index[number], first_index[number + 1])
        codes = np.arange(first_index[number + 1] - first_index[number], dtype=np.int64)
        allowed[span], is_held[span] = rules.judge(number, codes)
    return allowed, is_held


def _parts_of_plans(problem: Problem, table: LayoutTable, first_index: Int64Array, held: BoolArray) -> BoolArray:
    """The held sets and the initial state's, with all their subsets."""
    kept = held.copy()
    kept[0] = True
    n_tenants = len(problem.tenants)
    if problem.physical_initial is not None:
        held_now = sorted(problem.physical_initial.held, key=lambda item: item.placement.sort_key)
        code = 0
        for item in held_now:
            code = code * n_tenants + problem.tenant_names.index(item.tenant)
        kept[first_index[table.index[Layout(tuple(item.placement for item in held_now))]] + code] = True
    for number in range(len(table.layouts) - 1, 0, -1):
        codes = np.flatnonzero(kept[first_index[number] : first_index[number + 1]])
        for entry, without in enumerate(table.without[number]):
            codes_left = _drop_digit(codes, entry, len(table.layouts[number]), n_tenants)
            kept[first_index[without] + codes_left] = True
    return kept


def _drop_digit(codes: Int64Array, entry: int, n_entries: int, base: int) -> Int64Array:
    """The codes without the digit of ``entry``."""
    below = base ** (n_entries - 1 - entry)
    return np.asarray(codes // (below * base) * below + codes % below, dtype=np.int64)


def _columns(problem: Problem, gains: Sequence[GainTable], keys: Int64Array) -> Int32Array:
    """The gain table's column of every tenant and node, ``(n_tenants, n_nodes)``."""
    shifts = COUNT_BITS * np.arange(len(problem.profile_names))
    columns = np.empty(keys.shape, dtype=np.int32)
    for tenant, table in enumerate(gains):
        distinct, inverse = np.unique(keys[tenant], return_inverse=True)
        counts = distinct[:, None] >> shifts & ((1 << COUNT_BITS) - 1)
        numbers = [table.column[tuple(map(int, row))] for row in counts]
        columns[tenant] = np.array(numbers, dtype=np.int32)[inverse.reshape(-1)]
    return columns
