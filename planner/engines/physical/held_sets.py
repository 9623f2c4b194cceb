"""What inference can hold, all of it at once as arrays: sets of (placement, tenant), or of (profile, tenant).

A *held set* has for every tenant an instance as large as its ``min_profile`` (rule 4). There are 3,782 for two
tenants on an A100 with five profiles. *Counted* ones have their placements forgotten: 146 of them, the joint
states. They are held sets of a GPU whose layouts are the multisets that fit it, with every instance ``ANYWHERE``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, repeat

import numpy as np

from executor.mig import GpuModel, Layout, Multiset, Placement, kept_by_geometry
from planner.arrays import Bools, Int64s
from planner.counts import COUNT_BITS, codes_fit, codes_of, feasible_multisets, large_enough_profiles
from planner.plan import ANYWHERE
from planner.problem import GainTable, Problem

Entry = tuple[Placement, int]
"""What is held, and the holder: a place in ``Problem.partition``; without pools that is the tenant's index."""

Entries = frozenset[Entry]
"""A set of (placement, holder)."""

Held = Sequence[tuple[int, Entries]]
"""(step, what is held from there on): the window's start, then every epoch."""


@dataclass(frozen=True, eq=False)
class LayoutTable:
    """All layouts of some profiles of a GPU, by number of placements.

    Attributes:
        layouts: The layouts, the empty one first.
    """

    layouts: tuple[Layout, ...]

    @cached_property
    def index(self) -> Mapping[Layout, int]:
        """A layout's place in ``layouts``."""
        return {layout: number for number, layout in enumerate(self.layouts)}

    @cached_property
    def without(self) -> tuple[tuple[int, ...], ...]:
        """By layout and entry, the index of the layout without that entry."""
        held = (layout.placements for layout in self.layouts)
        return tuple(tuple(self.index[Layout(own[:i] + own[i + 1 :])] for i in range(len(own))) for own in held)

    @cached_property
    def places(self) -> Mapping[Placement, int]:
        """Every placement of the layouts, numbered."""
        return {place: number for number, place in enumerate(dict.fromkeys(chain.from_iterable(self.layouts)))}

    @cached_property
    def place_of(self) -> Int64s:
        """By layout and entry, its number in ``places``, −1 beyond the layout's end, ``(n_layouts, most)``."""
        found = np.full((len(self.layouts), self.most), -1, dtype=np.int64)
        for own, layout in zip(found, self.layouts, strict=True):
            own[: len(layout)] = [self.places[place] for place in layout]
        return found

    @cached_property
    def memory(self) -> Int64s:
        """Occupied memory slices as a bit mask, ``(n_layouts,)``."""
        return np.array([layout.memory_mask for layout in self.layouts], dtype=np.int64)

    @cached_property
    def _compute(self) -> Int64s:
        """Occupied compute slices, ``(n_layouts,)``."""
        compute = [sum(placement.profile.compute_slices for placement in layout) for layout in self.layouts]
        return np.array(compute, dtype=np.int64)

    @property
    def most(self) -> int:
        """Placements of the largest layout."""
        return len(self.layouts[-1])

    def row(self, entries: Iterable[Entry]) -> tuple[int, tuple[int, ...]]:
        """The index of the layout that a set's placements are, and the tenant of each, −1 beyond its end, ``(most,)``.

        Raises:
            KeyError: They are no layout of the profiles.
        """
        ordered = sorted(entries, key=lambda entry: (entry[0].sort_key, entry[1]))
        number = self.index[Layout(tuple(placement for placement, _ in ordered))]
        return number, (*(tenant for _, tenant in ordered), *[-1] * (self.most - len(ordered)))

    def counts(self, profile_names: Sequence[str]) -> Int64s:
        """How often each layout holds each profile, ``(n_layouts, n_profiles)``."""
        return np.column_stack([self._n_of[name] for name in profile_names])

    @cached_property
    def _n_of(self) -> Mapping[str, Int64s]:
        """By profile, how often each layout holds it, ``(n_layouts,)``."""
        found: dict[str, Int64s] = defaultdict(lambda: np.zeros(len(self.layouts), dtype=np.int64))
        for number, layout in enumerate(self.layouts):
            for placement in layout:
                found[placement.profile.name][number] += 1
        return found

    def fits_beside(self, gpu: GpuModel, busy: Sequence[Placement], unavailable: int = 0) -> Bools:
        """Whether each layout is still one with the ``busy`` placements added, ``(n_layouts,)``.

        All of it leaves the memory slices in ``unavailable``, one bit each, free.
        """
        memory = Layout(tuple(busy)).memory_mask
        if not gpu.fits(busy) or memory & unavailable:
            return np.zeros(len(self.layouts), dtype=np.bool_)
        compute = sum(placement.profile.compute_slices for placement in busy)
        fits = ((self.memory & (memory | unavailable)) == 0) & (self._compute + compute <= gpu.compute_slices)
        for profile, n_busy in Counter(placement.profile for placement in busy).items():
            fits &= self._n_of[profile.name] + n_busy <= profile.max_instances
        return np.asarray(fits, dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class CountTable(LayoutTable):
    """All multisets of some profiles that fit a GPU, as layouts of instances ``ANYWHERE``.

    Attributes:
        counted: The profiles of all that may be held beside them, in catalogue order.
    """

    counted: tuple[str, ...]

    def fits_beside(self, gpu: GpuModel, busy: Sequence[Placement], unavailable: int = 0) -> Bools:
        """Whether each multiset still fits with the profiles of the ``busy`` placements added, ``(n_layouts,)``."""
        totals = self.counts(self.counted) + np.array(Layout(tuple(busy)).multiset(self.counted), dtype=np.int64)
        return codes_fit(gpu, self.counted, codes_of(totals), unavailable)


@kept_by_geometry(16)
def layout_table(gpu: GpuModel, profile_names: tuple[str, ...], counted: tuple[str, ...] = ()) -> LayoutTable:
    """The table of all layouts of ``profile_names``; kept for the next problem on the same GPU.

    With ``counted`` profiles, their placements are forgotten and these are all that may be held beside them.
    """
    if not counted:
        return LayoutTable(gpu.layouts(profile_names))
    places = [anywhere(gpu, name) for name in profile_names]
    slices = np.array([(1, place.profile.memory_slices, place.profile.compute_slices) for place in places])

    def frugality(counts: Multiset) -> list[int]:
        """Of plans of one value an engine takes the first: what takes least goes before what takes more."""
        return list((np.array(counts) @ slices).tolist())

    ordered = sorted(feasible_multisets(gpu, profile_names), key=frugality)
    held = (chain.from_iterable(map(repeat, places, counts)) for counts in ordered)
    return CountTable(tuple(Layout(tuple(sorted(own, key=lambda place: place.sort_key))) for own in held), counted)


def anywhere(gpu: GpuModel, profile_name: str) -> Placement:
    """An instance of which only its profile counts."""
    return Placement(gpu.profile(profile_name), ANYWHERE)


@dataclass(frozen=True)
class Holding:
    """All that decides which sets can be held while nothing else is on the GPU; problems that share it share those.

    Attributes:
        table: The layouts of the profiles that serve some tenant; the same for the same profiles.
        serves: By holder (``Problem.partition``), the profiles that serve its tenants.
        needs: (holder, profiles of which it has to hold one): those as large as the ``min_profile`` of a tenant.
    """

    table: LayoutTable
    serves: tuple[frozenset[str], ...]
    needs: tuple[tuple[int, frozenset[str]], ...]

    @classmethod
    def of(cls, problem: Problem, *, is_counted: bool = False) -> Holding:
        """The problem's, with placements or on counts alone."""
        firsts = (problem.tenants[members[0]] for members in problem.partition)
        serves = tuple(frozenset(problem.capability_rps(tenant)) for tenant in firsts)
        large = (large_enough_profiles(problem, tenant) for tenant in problem.tenants)
        needs = zip(problem.holder_of, (frozenset(profile.name for profile in own) for own in large), strict=True)
        names = tuple(name for name in problem.profile_names if any(name in own for own in serves))
        table = layout_table(problem.gpu, names, problem.profile_names if is_counted else ())
        return cls(table, serves, tuple(dict.fromkeys(needs)))


@dataclass(frozen=True)
class HeldSets:
    """Sets of (placement, tenant), by layout, then owners.

    Attributes:
        problem: What they are held for.
        table: The layouts of the serving profiles.
        layout: Index into the table's layouts, ``(n,)``.
        owners: Holder of each of the layout's placements, −1 beyond its end, ``(n, most)``.
    """

    problem: Problem
    table: LayoutTable
    layout: Int64s
    owners: Int64s

    @classmethod
    def of(cls, problem: Problem, *, is_counted: bool = False) -> HeldSets:
        """All held sets: those that keep rules 1, 2 and 4 when nothing else is on the GPU."""
        holding = Holding.of(problem, is_counted=is_counted)
        return cls(problem, holding.table, *held_rows(holding))

    def __len__(self) -> int:
        return len(self.layout)

    def only(self, is_in: Bools) -> HeldSets:
        """Some of the sets, ``(n,)``."""
        return replace(self, layout=self.layout[is_in], owners=self.owners[is_in])

    def entries(self, index: int) -> Entries:
        """The set numbered ``index``."""
        placements = self.table.layouts[self.layout[index]].placements
        return frozenset(zip(placements, map(int, self.owners[index]), strict=False))

    def index(self, entries: Iterable[Entry]) -> int | None:
        """The number of a set; ``None`` if it is none of them."""
        try:
            layout, owners = self.table.row(entries)
        except KeyError:
            return None
        found = np.flatnonzero((self.layout == layout) & np.all(self.owners == owners, axis=1))
        return int(found[0]) if len(found) else None

    def columns(self, tables: Sequence[GainTable], kept_from: Sequence[Entries] | None = None) -> Int64s:
        """Each tenant's column of its gain table, ``(n, n_tenants)``.

        Args:
            tables: The gain tables.
            kept_from: By tenant, count only what is also in this set; everything by default.
        """
        problem = self.problem
        names = problem.profile_names
        units = self._by_entry(lambda placement: 1 << (COUNT_BITS * names.index(placement.profile.name)))
        out = np.empty((len(self), len(tables)), dtype=np.int64)
        for m, table in enumerate(tables):
            is_own = self.owners == problem.holder_of[m]
            if kept_from is not None:
                is_own &= self._by_entry(partial(_holder_in, dict(kept_from[m]))) == self.owners
            codes = codes_of(np.array(table.multisets, dtype=np.int64))
            order, held = np.argsort(codes), np.where(is_own, units, 0).sum(axis=1)
            out[:, m] = order[np.searchsorted(codes[order], held)]
        return out

    def _by_entry(self, value: Callable[[Placement], int]) -> Int64s:
        """``value`` of each placement, 0 beyond a layout's end, ``(n, most)``."""
        values = np.array([*map(value, self.table.places), 0], dtype=np.int64)
        return np.asarray(values[self.table.place_of][self.layout], dtype=np.int64)


def _holder_in(held: Mapping[Placement, int], placement: Placement) -> int:
    return held.get(placement, -2)


@lru_cache(maxsize=8)
def held_rows(holding: Holding) -> tuple[Int64s, Int64s]:
    """Layout and owners of each held set; kept for the next problem, as one that plans anew has the same."""
    table = holding.table
    numbers, owners = [np.zeros(0, dtype=np.int64)], [np.zeros((0, table.most), dtype=np.int64)]
    owners_of = cache(partial(_owners, holding))
    for number, layout in enumerate(table.layouts):
        if len(layout) >= len(holding.serves):
            own = owners_of(tuple(placement.profile.name for placement in layout))
            numbers.append(np.full(len(own), number, dtype=np.int64))
            owners.append(np.pad(own, ((0, 0), (0, table.most - len(layout))), constant_values=-1))
    return np.concatenate(numbers), np.concatenate(owners)


def _owners(holding: Holding, names: Sequence[str]) -> Int64s:
    """Every way to give instances of these profiles to holders that keeps rules 2 and 4, ``(n, len(names))``.

    Where placements are forgotten, instances of one profile go to their holders in ascending order.
    """
    n_holders, needs = len(holding.serves), holding.needs
    owners = np.zeros((1, 0), dtype=np.int64)
    is_met = np.zeros((1, len(needs)), dtype=np.bool_)
    for entry, name in enumerate(names):
        may_hold = [m for m in range(n_holders) if name in holding.serves[m]]
        owners = np.column_stack([np.repeat(owners, len(may_hold), axis=0), np.tile(may_hold, len(owners))])
        meets = np.array([[m == holder and name in enough for holder, enough in needs] for m in may_hold])
        is_met = np.repeat(is_met, len(may_hold), axis=0) | np.tile(meets, (len(is_met), 1))
        waiting = [(~is_met[:, [holder == m for holder, _ in needs]]).any(axis=1) for m in range(n_holders)]
        is_kept = np.sum(waiting, axis=0) < len(names) - entry
        if isinstance(holding.table, CountTable) and name in names[:entry]:
            is_kept &= owners[:, -2] <= owners[:, -1]
        owners, is_met = owners[is_kept], is_met[is_kept]
    return owners
