"""``physical``: every set of (placement, tenant) that inference can hold, as arrays over all of them at once.

Unlike :class:`planner.engines.physical.nodes.PlacedNodes` these are whole held sets only: each gives every
tenant an instance as large as its ``min_profile`` (rule 4). 3,782 for two tenants on an A100 with five profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from executor.mig import Layout, Placement
from planner.counts import COUNT_BITS, large_enough_profiles
from planner.engines.physical.layouts import layout_table
from planner.problem import GainTable, Problem

Entries = frozenset[tuple[Placement, int]]
"""A held set: (placement, tenant index)."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class HeldSets:
    """All held sets of a problem, by layout, then owners.

    Attributes:
        problem: What they are held for.
        layouts: The layouts of the serving profiles.
        layout: Index into ``layouts``, ``(n,)``.
        owners: Tenant index of each of the layout's placements, −1 beyond its end, ``(n, most)``.
    """

    problem: Problem
    layouts: tuple[Layout, ...]
    layout: IntArray
    owners: IntArray

    @classmethod
    def of(cls, problem: Problem) -> HeldSets:
        """All held sets that keep rules 1, 2 and 4 when nothing else is on the GPU."""
        serving = {name for tenant in problem.tenants for name in tenant.capability_rps}
        layouts = layout_table(problem.gpu, tuple(name for name in problem.profile_names if name in serving)).layouts
        most = max(map(len, layouts))
        numbers, owners = [np.zeros(0, dtype=np.int64)], [np.zeros((0, most), dtype=np.int64)]
        by_names: dict[tuple[str, ...], IntArray] = {}
        for number, layout in enumerate(layouts):
            if len(layout) >= len(problem.tenants):
                names = tuple(placement.profile.name for placement in layout.placements)
                own = by_names.get(names)
                if own is None:
                    own = by_names[names] = _owners(problem, names)
                numbers.append(np.full(len(own), number, dtype=np.int64))
                owners.append(np.pad(own, ((0, 0), (0, most - len(layout))), constant_values=-1))
        return cls(problem, layouts, np.concatenate(numbers), np.concatenate(owners))

    def __len__(self) -> int:
        return len(self.layout)

    def entries(self, index: int) -> Entries:
        """The held set numbered ``index``."""
        placements = self.layouts[self.layout[index]].placements
        return frozenset(zip(placements, map(int, self.owners[index]), strict=False))

    def index(self, entries: Entries) -> int | None:
        """The number of a held set; ``None`` if it is none of them."""
        ordered = sorted(entries, key=lambda entry: entry[0].sort_key)
        layout = Layout(tuple(placement for placement, _ in ordered))
        if layout not in self.layouts:
            return None
        owners = np.pad([tenant for _, tenant in ordered], (0, self.owners.shape[1] - len(layout)), constant_values=-1)
        same = (self.layout == self.layouts.index(layout)) & np.all(self.owners == owners, axis=1)
        found = np.flatnonzero(same)
        return int(found[0]) if len(found) else None

    def columns(self, tables: Sequence[GainTable], kept_from: Entries | None = None) -> IntArray:
        """Each tenant's column of its gain table, ``(n, n_tenants)``.

        Args:
            tables: The gain tables.
            kept_from: Count only what is also in this held set; everything by default.
        """
        counted = self.owners >= 0 if kept_from is None else self._is_in(kept_from)
        names = self.problem.profile_names
        units = self._by_entry(lambda placement: 1 << (COUNT_BITS * names.index(placement.profile.name)))
        out = np.empty((len(self), len(tables)), dtype=np.int64)
        for m, table in enumerate(tables):
            keys = np.where((self.owners == m) & counted, units, 0).sum(axis=1)
            distinct, inverse = np.unique(keys, return_inverse=True)
            columns = [table.column[self._multiset(int(key))] for key in distinct]
            out[:, m] = np.array(columns, dtype=np.int64)[inverse.reshape(-1)]
        return out

    def _multiset(self, key: int) -> tuple[int, ...]:
        return tuple(key >> (COUNT_BITS * p) & ((1 << COUNT_BITS) - 1) for p in range(len(self.problem.profile_names)))

    def _is_in(self, entries: Entries) -> NDArray[np.bool_]:
        """Whether each owned placement is one of ``entries``, ``(n, most)``."""
        tenant_of = dict(entries)
        wanted = self._by_entry(lambda placement: tenant_of.get(placement, -2))
        return np.asarray((wanted == self.owners) & (self.owners >= 0), dtype=np.bool_)

    def _by_entry(self, value: Callable[[Placement], int]) -> IntArray:
        """``value`` of each placement, 0 beyond a layout's end, ``(n, most)``."""
        by_layout = np.zeros((len(self.layouts), self.owners.shape[1]), dtype=np.int64)
        for number, layout in enumerate(self.layouts):
            by_layout[number, : len(layout)] = [value(placement) for placement in layout.placements]
        return np.asarray(by_layout[self.layout], dtype=np.int64)


def _owners(problem: Problem, names: Sequence[str]) -> IntArray:
    """Every way to give instances of these profiles to tenants that keeps rules 2 and 4, ``(n, len(names))``."""
    enough = [{profile.name for profile in large_enough_profiles(problem, tenant)} for tenant in problem.tenants]
    owners = np.zeros((1, 0), dtype=np.int64)
    served = np.zeros((1, len(problem.tenants)), dtype=np.bool_)
    for n_left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
        may_hold = [m for m, tenant in enumerate(problem.tenants) if name in tenant.capability_rps]
        owners = np.column_stack([np.repeat(owners, len(may_hold), axis=0), np.tile(may_hold, len(owners))])
        served = np.repeat(served, len(may_hold), axis=0)
        serves = np.array([name in enough[m] for m in may_hold], dtype=np.bool_)
        served[np.arange(len(owners)), owners[:, -1]] |= np.tile(serves, len(owners) // len(may_hold))
        is_kept = (~served).sum(axis=1) <= n_left
        owners, served = owners[is_kept], served[is_kept]
    return owners
