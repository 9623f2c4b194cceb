"""``physical``: a path on counts put on placements, without listing all that placements allow.

A path on counts says how many instances of which profiles each tenant holds from when to when. What is left to
choose is where they sit, and all that depends on it is what survives each epoch. So layers of candidates, the ways
to place one stretch's counts beside the retrainings, follow each other, and a step between two layers is worth what
the kept instances earn while the new ones warm up. That takes a few milliseconds, however many steps there are,
where the program over all placed sets takes seconds. It is the best placing of its path but for the candidates that
``_MOST_PAIRS`` leaves out, and never worth more than the path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from executor.mig import Multiset, Placement
from planner.engines.arrays import Bools, Floats, Int64s
from planner.engines.physical.held_sets import Held, HeldSets, layout_table
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path import Path
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts, schedule_of
from planner.problem import Retraining

_MOST_PAIRS = 20_000
"""Candidates of one layer × those kept of the layer before."""

_LEAST_KEPT = 8
"""Candidates of a layer that are kept in any case, best first."""

_MOST_WAYS = 64
"""Ways to place one schedule's retrainings that are looked at."""


@dataclass(frozen=True)
class _Stretch:
    """What a path on counts holds from ``begin`` to ``end``: each tenant's column, and all of it as counts.

    ``layout`` is that of the initial set, which is where it is; −1 for what is to be placed.
    """

    begin: int
    end: int
    columns: tuple[int, ...]
    total: Multiset
    layout: int = -1


class Placer:
    """Puts the paths of one problem on placements.

    Args:
        facts: The problem.
        nodes: Its counted nodes.
    """

    def __init__(self, facts: WindowFacts, nodes: Nodes) -> None:
        self._facts, self._nodes, problem = facts, nodes, facts.problem
        serving = {name for tenant in problem.tenants for name in tenant.capability_rps}
        names = tuple(name for name in problem.profile_names if name in serving)
        self._table = layout_table(problem.gpu, names)
        self._most = len(self._table.layouts[-1])
        self._counts = self._table.counts(problem.profile_names)
        self._placed: dict[tuple[int, ...], HeldSets] = {}
        self._fits: dict[Placement, int] = {}
        self._of_total: dict[Multiset, int] = {}
        self._leaving: dict[int, int] = {}
        self._column = _dense_columns(facts)
        self._places = problem.gpu.placements(names)
        number = {place: n for n, place in enumerate(self._places)}
        held = [[number[place] for place in layout.placements] for layout in self._table.layouts]
        # One more stands for none.
        self._place_of = np.array([[*own, *[len(number)] * (self._most - len(own))] for own in held], dtype=np.int64)

    def n_sets(self) -> int:
        """How many placed sets the counted nodes stand for: the nodes of the program over them, or a few more."""
        totals, n_layouts = np.unique(self._counts, axis=0, return_counts=True)
        of_total = {tuple(total): int(n) for total, n in zip(totals.tolist(), n_layouts, strict=True)}
        factorial = np.array([math.factorial(n) for n in range(self._most + 1)], dtype=np.float64)
        own = [
            np.array(table.multisets, dtype=np.int64)[column]
            for table, column in zip(self._facts.gains, self._nodes.column, strict=True)
        ]
        total = sum(own)
        deals = np.prod(factorial[total], axis=1) / np.prod([np.prod(factorial[k], axis=1) for k in own], axis=0)
        return int(sum(deal * of_total[tuple(t)] for deal, t in zip(deals, total.tolist(), strict=True)))

    def ways(self, path: Path, schedule: Schedule) -> Iterator[PlacedSchedule[Placement]]:
        """Where the schedule's retrainings can sit beside the path, what leaves most layouts first."""
        stretches = self._stretches(path)
        room = [self._layouts_of(stretch) for stretch in stretches]
        for run, place in self._facts.running:
            room = self._room_beside(room, stretches, run, place)
        # What is large is placed first: it has the fewest places.
        runs = sorted(schedule, key=lambda run: (len(self._facts.placements(run)), run))
        found = islice(self._extended((), runs, stretches, room), _MOST_WAYS)
        ranked = [(self._room(placed), sum(map(math.log, map(int.bit_count, own))), placed) for placed, own in found]
        ranked.sort(key=lambda item: (-item[0], -item[1]))
        return (tuple(sorted(placed)) for _, _, placed in ranked)

    def _room(self, placed: PlacedSchedule[Placement]) -> int:
        """How many layouts these retrainings leave alone, each by itself."""
        return sum(self._beside(place).bit_count() for _, place in placed)

    def _extended(
        self,
        placed: PlacedSchedule[Placement],
        waiting: Sequence[Retraining],
        stretches: Sequence[_Stretch],
        room: list[int],
    ) -> Iterator[tuple[PlacedSchedule[Placement], list[int]]]:
        """The placed retrainings with those that wait in every place that leaves room, and the room left."""
        if not all(room):
            return
        if not waiting:
            yield placed, room
            return
        run = waiting[0]
        for place in self._facts.placements(run):
            if not self._facts.problem.is_ours(place, run.start_step, run.end_step):
                continue
            others = (*placed, *self._facts.running)
            if not any(place.overlaps(other) and _overlap(run, own) for own, other in others):
                left = self._room_beside(room, stretches, run, place)
                yield from self._extended((*placed, (run, place)), waiting[1:], stretches, left)

    def _room_beside(
        self, room: Sequence[int], stretches: Sequence[_Stretch], run: Retraining, place: Placement
    ) -> list[int]:
        """The layouts of each stretch that also leave this retraining alone."""
        own = self._beside(place)
        return [
            layouts & own if run.start_step < stretch.end and stretch.begin < run.end_step else layouts
            for layouts, stretch in zip(room, stretches, strict=True)
        ]

    def _beside(self, place: Placement) -> int:
        """The layouts that leave a placement alone, a bit each."""
        if place not in self._fits:
            self._fits[place] = _bits(self._table.fits_beside(self._facts.problem.gpu, [place]))
        return self._fits[place]

    def _layouts_of(self, stretch: _Stretch) -> int:
        """The layouts of the stretch's counts on slices that are ours throughout, a bit each."""
        ours = self._ours(self._facts.problem.unavailable_in(stretch.begin, stretch.end))
        if stretch.layout >= 0:
            return 1 << stretch.layout & ours
        if stretch.total not in self._of_total:
            self._of_total[stretch.total] = _bits((self._counts == np.array(stretch.total)).all(axis=1))
        return self._of_total[stretch.total] & ours

    def _ours(self, not_ours: int) -> int:
        """The layouts that touch none of these memory slices, a bit each."""
        if not_ours not in self._leaving:
            free = [not layout.memory_mask & not_ours for layout in self._table.layouts]
            self._leaving[not_ours] = _bits(np.array(free))
        return self._leaving[not_ours]

    def held(self, path: Path, placed: PlacedSchedule[Placement]) -> Held | None:
        """The sets that the path holds, placed beside these retrainings; ``None`` if one of them has no place."""
        earned = self._facts.earned(schedule_of(placed))
        stretches = self._stretches(path)
        layers: list[HeldSets] = []
        sources: list[Int64s] = []
        value = np.zeros(0)
        for stretch in stretches:
            layer = self._layer(stretch, placed)
            if not len(layer):
                return None
            if layers:
                value, source = self._best_before(layers[-1], value, layer, self._core_gains(earned, stretch.begin))
                sources.append(source)
            else:
                value = np.zeros(len(layer))
            layers.append(layer)
        rows = [int(value.argmax())]
        for source in reversed(sources):
            rows.append(int(source[rows[-1]]))
        return tuple(
            (stretch.begin, layer.entries(row))
            for stretch, layer, row in zip(stretches, layers, reversed(rows), strict=True)
        )

    def _stretches(self, path: Path) -> list[_Stretch]:
        begins, ends = path.held, [*(step for step, _ in path.held[1:]), self._facts.n_steps]
        found = []
        for (begin, node), end in zip(begins, ends, strict=True):
            columns = tuple(map(int, self._nodes.column[:, node]))
            held = [table.multisets[column] for table, column in zip(self._facts.gains, columns, strict=True)]
            found.append(_Stretch(begin, end, columns, tuple(map(sum, zip(*held, strict=True)))))
        initial = self._facts.initial_held
        if initial is not None:
            layout, _ = self._table.row(initial)
            found[0] = _Stretch(0, found[0].end, found[0].columns, found[0].total, layout)
        return found

    def _nothing(self) -> tuple[Int64s, Int64s]:
        return np.zeros(0, dtype=np.int64), np.zeros((0, self._most), dtype=np.int64)

    def _layer(self, stretch: _Stretch, placed: PlacedSchedule[Placement]) -> HeldSets:
        """The candidates of a stretch; the initial set alone for that one."""
        initial = self._facts.initial_held
        if stretch.layout >= 0 and initial is not None:
            layout, owners = self._table.row(initial)
            sets = HeldSets(self._facts.problem, self._table, np.array([layout]), np.array([owners]))
        else:
            sets = self._candidates(stretch)
        room = self._layouts_of(stretch)
        for run, place in (*placed, *self._facts.running):
            (room,) = self._room_beside([room], [stretch], run, place)
        fits = np.array([room >> number & 1 for number in range(len(self._counts))], dtype=np.bool_)[sets.layout]
        return HeldSets(sets.problem, sets.table, sets.layout[fits], sets.owners[fits])

    def _candidates(self, stretch: _Stretch) -> HeldSets:
        """Every way to give the placements of every layout of the stretch's counts to their tenants."""
        if stretch.columns not in self._placed:
            pairs = zip(self._facts.gains, stretch.columns, strict=True)
            held = np.array([table.multisets[column] for table, column in pairs])
            layouts, owners = [], []
            for number in np.flatnonzero((self._counts == held.sum(axis=0)).all(axis=1)):
                names = [placement.profile.name for placement in self._table.layouts[number].placements]
                own = _deals([self._facts.problem.profile_names.index(name) for name in names], held)
                layouts.append(np.full(len(own), number, dtype=np.int64))
                owners.append(np.pad(own, ((0, 0), (0, self._most - own.shape[1])), constant_values=-1))
            self._placed[stretch.columns] = HeldSets(
                self._facts.problem, self._table, np.concatenate(layouts), np.concatenate(owners)
            )
        return self._placed[stretch.columns]

    def _core_gains(self, earned: Floats, step: int) -> Floats:
        """What each tenant earns by column while it warms up after an epoch at ``step``, ``(M, n_columns)``."""
        until = np.minimum(step + self._facts.warm_steps, self._facts.n_steps)
        return np.asarray(earned[np.arange(len(earned)), until] - earned[:, step])

    def _best_before(
        self, before: HeldSets, value: Floats, after: HeldSets, core_gains: Floats
    ) -> tuple[Floats, Int64s]:
        """The best value of each candidate ``after`` an epoch, and which one ``before`` it that comes from."""
        n_kept = max(_LEAST_KEPT, _MOST_PAIRS // len(after))
        kept = np.sort(np.argsort(-value, kind="stable")[:n_kept])
        ahead, behind = self._by_place(before)[kept], self._by_place(after)
        profiles = self._facts.problem.profile_names
        total = np.repeat(value[kept][:, None], len(after), axis=1)
        for m, (column, gains) in enumerate(zip(self._column, core_gains, strict=True)):
            index = np.zeros(total.shape, dtype=np.int64)
            for name in profiles:
                own = [n for n, place in enumerate(self._places) if place.profile.name == name]
                both = (ahead[:, own] == m).astype(np.float32) @ (behind[:, own] == m).T.astype(np.float32)
                index = index * column.shape[profiles.index(name)] + both.astype(np.int64)
            total += gains[column.reshape(-1)[index]]
        best = total.argmax(axis=0)
        return total[best, np.arange(len(after))], kept[best]

    def _by_place(self, sets: HeldSets) -> Int64s:
        """Who holds each placement in these sets, −1 for nobody, ``(n, n_places)``."""
        out = np.full((len(sets), len(self._places) + 1), -1, dtype=np.int64)
        np.put_along_axis(out, self._place_of[sets.layout], sets.owners, axis=1)
        return out[:, :-1]


def _overlap(one: Retraining, other: Retraining) -> bool:
    return one.start_step < other.end_step and other.start_step < one.end_step


def _bits(flags: Bools) -> int:
    return sum(1 << int(number) for number in np.flatnonzero(flags))


def _deals(profiles: Sequence[int], held: Int64s) -> Int64s:
    """Every way to deal instances of these profiles to tenants that are to have ``held``, ``(n, len(profiles))``."""
    owners = np.zeros((1, 0), dtype=np.int64)
    left = held[None, :, :]
    for profile in profiles:
        row, tenant = np.nonzero(left[:, :, profile])
        owners, left = np.column_stack([owners[row], tenant]), left[row].copy()
        left[np.arange(len(row)), tenant, profile] -= 1
    return owners


def _dense_columns(facts: WindowFacts) -> list[Int64s]:
    """By tenant, the column of its gain table by how often each profile is held."""
    found = []
    for table in facts.gains:
        counts = np.array(table.multisets, dtype=np.int64)
        dense = np.zeros(counts.max(axis=0) + 1, dtype=np.int64)
        dense[tuple(counts.T)] = np.arange(len(counts))
        found.append(dense)
    return found
