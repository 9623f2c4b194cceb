"""Sets of (placement, tenant) as nodes: every held set, and every part of one.

The ``physical`` model moves between *held sets*; what survives an epoch, the kept core, is a subset
of both. So the nodes are closed under taking an instance away, and every node knows its subsets of
one instance less (``removal``). Two kinds share that shape, how they are listed and the compiled loop:

* *Placed* ones: sets of (placement, tenant), exact.
* *Counted* ones: the multisets of profiles by tenant that those sets amount to, without
  placements; far fewer (146 that serve every tenant instead of 3,782 for two tenants). Whatever
  placements allow, counts allow too, so a path over them is an upper bound.

A node's index grows with its number of instances. Two tenants on an A100 with five profiles have at most
4,377 nodes, three 28,996; what no held set contains is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Int64s, Ints
from planner.counts import multiset_of
from planner.engines.physical.held_sets import CountTable, HeldSets, Holding, anywhere, held_rows
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts


@dataclass(frozen=True)
class Nodes:
    """Nodes of either kind, and what the compiled loop needs of them.

    Attributes:
        sets: The nodes, one a set.
        removal: The node without one of its instances, ``(n_nodes, most)``; −1 fills the row's end.
        column: Each tenant's column of its gain table, ``(n_tenants, n_nodes)``.
        first_column: The same of what has its process already, where a part of the initial set is kept.
        is_held: Whether every tenant holds an instance as large as its ``min_profile`` (rule 4), ``(n_nodes,)``.
        initial: The node of the initial held set; −1 without an initial state.
    """

    sets: HeldSets
    removal: Ints
    column: Ints
    first_column: Ints
    is_held: Bools
    initial: int

    def __len__(self) -> int:
        return len(self.is_held)

    def compatible(self, busy: Sequence[Placement], unavailable: int = 0) -> Bools:
        """Which nodes can be held beside what retrainings occupy, ``(n_nodes,)``.

        The memory slices in ``unavailable``, one bit each, stay free of both. Of counted nodes it is the profiles that
        fit those slices together with the ``busy`` ones, wherever these are.
        """
        return self.sets.table.fits_beside(self.sets.problem.gpu, busy, unavailable)[self.sets.layout]


def on_counts(facts: WindowFacts, schedule: Schedule) -> PlacedSchedule[Placement]:
    """The schedule placed anywhere: beside counted nodes only profiles count."""
    return tuple((run, anywhere(facts.problem.gpu, run.profile)) for run in schedule)


def nodes_of(facts: WindowFacts, *, is_counted: bool = False) -> Nodes:
    """The nodes that a plan can use: the held sets and the initial one, with all their subsets.

    Counted ones are the placed ones with their placements forgotten, but without listing those; the order still grows
    with size. Whatever fits the GPU as counts has a layout, so these are all parts of what tenants can hold by counts.
    """
    problem, initial = facts.problem, list(facts.initial_held or ())
    holding = Holding.of(problem, is_counted=is_counted)
    if is_counted:
        initial = [(anywhere(problem.gpu, place.profile.name), tenant) for place, tenant in initial]
    is_other = not facts.is_free and HeldSets.of(problem, is_counted=is_counted).index(initial) is None
    other = holding.table.row(initial) if is_other else None
    layouts, owners, removal, is_held = _with_subsets(holding, other)
    sets = HeldSets(problem, holding.table, layouts, owners)
    column = np.ascontiguousarray(sets.columns(facts.gains).T.astype(np.int32))
    number = None if facts.is_free else sets.index(initial)
    first_column = _first_columns(facts, sets, column) if facts.problem.is_repartitioned else column
    return Nodes(sets, removal, column, first_column, is_held, -1 if number is None else number)


def _first_columns(facts: WindowFacts, sets: HeldSets, column: Ints) -> Ints:
    """Columns of what is also in the part of the initial set in which each tenant has a process."""
    if not isinstance(sets.table, CountTable):
        return np.ascontiguousarray(sets.columns(facts.gains, facts.kept_by_tenant).T.astype(np.int32))
    out = np.empty_like(column)
    for m, (table, kept) in enumerate(zip(facts.gains, facts.kept_by_tenant, strict=True)):
        most = multiset_of(facts.problem, [place.profile.name for place, _ in kept])
        common = [table.column[tuple(map(min, multiset, most))] for multiset in table.multisets]
        out[m] = np.array(common, dtype=np.int32)[column[m]]
    return out


@lru_cache(maxsize=8)
def _with_subsets(holding: Holding, other: tuple[int, tuple[int, ...]] | None) -> tuple[Int64s, Int64s, Ints, Bools]:
    """The held sets, and an ``other`` one, a layout and its owners, with all their subsets.

    They are kept for the next problem, as one that plans anew has the same.

    Returns:
        Layout and owners, as those of :class:`HeldSets`; and ``removal`` and ``is_held``, as those of :class:`Nodes`.
    """
    table, base = holding.table, len(holding.serves)
    n_entries = np.array([len(layout) for layout in table.layouts])
    # A set is numbered by its layout, then by its owners as digits, first entry first; −1 beyond its end is no digit.
    first_number = np.cumsum([0, *base**n_entries])
    places = n_entries[:, None] - 1 - np.arange(table.most)
    factors = np.where(places >= 0, base ** np.maximum(places, 0), 0)
    layout, owners = held_rows(holding)
    is_held = np.zeros(first_number[-1], dtype=np.bool_)
    is_held[first_number[layout] + (owners * factors[layout]).sum(axis=1)] = True
    kept = is_held.copy()
    kept[0] = True
    if other is not None:
        kept[first_number[other[0]] + factors[other[0]] @ other[1]] = True
    found = []
    for number in reversed(range(len(table.layouts))):
        n, codes = n_entries[number], np.flatnonzero(kept[slice(*first_number[number : number + 2])])
        owners, parts = np.full((2, len(codes), table.most), -1, dtype=np.int64)
        owners[:, :n] = codes[:, None] // factors[number, :n] % base
        for entry, (without, below) in enumerate(zip(table.without[number], factors[number], strict=False)):
            parts[:, entry] = first_number[without] + codes // (below * base) * below + codes % below
            kept[parts[:, entry]] = True
        found.append((np.full(len(codes), number, dtype=np.int64), owners, parts))
    layouts, owners, removal = map(np.concatenate, zip(*reversed(found), strict=True))
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    removal = np.where(removal >= 0, new_index[removal], np.int32(-1))
    return layouts, owners, _distinct(removal) if isinstance(table, CountTable) else removal, is_held[kept]


def _distinct(removal: Ints) -> Ints:
    """Rows that name each part once, with their −1 at the end, and no wider than the longest.

    Of two instances of one profile that a tenant holds, it does not matter which goes.
    """
    removal[:, 1:][removal[:, 1:] == removal[:, :-1]] = -1
    order = np.argsort(removal < 0, axis=1, kind="stable")
    width = max(1, int((removal >= 0).sum(axis=1).max(initial=0)))
    return np.ascontiguousarray(np.take_along_axis(removal, order, axis=1)[:, :width])
