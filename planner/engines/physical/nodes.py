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
from planner.engines.arrays import Bools, Int64s, Ints
from planner.engines.physical.held_sets import CountTable, HeldSets, Holding, anywhere, held_rows
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts


@dataclass(frozen=True)
class Nodes:
    """Nodes of either kind, and what the compiled loop needs of them.

    Attributes:
        sets: The nodes, one a set.
        removal: The node without one of its instances, ``(n_nodes, most)``; −1 fills the row's end.
        column: Each tenant's column of its gain table, ``(n_tenants, n_nodes)``.
        is_held: Whether every tenant holds an instance as large as its ``min_profile`` (rule 4), ``(n_nodes,)``.
        initial: The node of the initial held set; −1 without an initial state.
    """

    sets: HeldSets
    removal: Ints
    column: Ints
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


def placed_nodes(facts: WindowFacts) -> Nodes:
    """The nodes that a plan can use: the held sets and the initial one, with all their subsets."""
    return _nodes(facts, is_counted=False)


def counted_nodes(facts: WindowFacts) -> Nodes:
    """The placed nodes with their placements forgotten, but without listing those; the order still grows with size.

    Whatever fits the GPU as counts has a layout, so these are all parts of what tenants can hold by counts.
    """
    return _nodes(facts, is_counted=True)


def on_counts(facts: WindowFacts, schedule: Schedule) -> PlacedSchedule[Placement]:
    """The schedule placed anywhere: beside counted nodes only profiles count."""
    return tuple((run, anywhere(facts.problem.gpu, run.profile)) for run in schedule)


def _nodes(facts: WindowFacts, *, is_counted: bool) -> Nodes:
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
    return Nodes(sets, removal, column, is_held, -1 if number is None else number)


@lru_cache(maxsize=8)
def _with_subsets(holding: Holding, other: tuple[int, tuple[int, ...]] | None) -> tuple[Int64s, Int64s, Ints, Bools]:
    """The held sets, and an ``other`` one, a layout and its owners, with all their subsets.

    They are kept for the next problem, as one that plans anew has the same.

    Returns:
        Layout and owners, as those of :class:`HeldSets`; and ``removal`` and ``is_held``, as those of :class:`Nodes`.
    """
    table, n_tenants = holding.table, len(holding.serves)
    layout, owners = held_rows(holding)
    # A set is numbered by its layout, then by its owners as digits in base n_tenants, first entry first.
    first_number = np.cumsum([0, *(n_tenants ** len(layout) for layout in table.layouts)])
    is_held = np.zeros(first_number[-1], dtype=np.bool_)
    is_held[first_number[layout] + _codes(owners, n_tenants)] = True
    kept = is_held.copy()
    kept[0] = True
    if other is not None:
        kept[first_number[other[0]] + _codes(np.array([other[1]], dtype=np.int64), n_tenants)] = True
    most, found = owners.shape[1], []
    for number in reversed(range(len(table.layouts))):
        codes, n_entries = np.flatnonzero(kept[slice(*first_number[number : number + 2])]), len(table.layouts[number])
        parts = np.full((len(codes), most), -1, dtype=np.int64)
        for entry, without in enumerate(table.without[number]):
            parts[:, entry] = first_number[without] + _drop_digit(codes, entry, n_entries, n_tenants)
            kept[parts[:, entry]] = True
        found.append((np.full(len(codes), number, dtype=np.int64), _digits(codes, n_entries, most, n_tenants), parts))
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
