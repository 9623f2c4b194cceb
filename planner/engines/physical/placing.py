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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats, Int64s
from planner.engines.physical.held_sets import Held, HeldSets, layout_table
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path import Path
from planner.engines.remembered import remembered
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts, schedule_of
from planner.problem import GainTable, Retraining

_MOST_PAIRS = 20_000
"""Candidates of one layer × those kept of the layer before."""

_LEAST_KEPT = 8
"""Candidates of a layer that are kept in any case, best first."""

_MOST_WAYS = 64
"""Ways to place one schedule's retrainings that are looked at."""


class _Stretches(NamedTuple):
    """What a path on counts holds, one stretch after the other.

    Attributes:
        begin: First steps, ``(n,)``.
        end: End steps, ``(n,)``.
        sets: Every way to place what is held; the initial set alone for that one.
        room: Which layouts these are, on slices that are ours and beside some retrainings, ``(n, n_layouts)``.
    """

    begin: Int64s
    end: Int64s
    sets: list[HeldSets]
    room: Bools


class Placer:
    """Puts the paths of one problem on placements.

    Args:
        facts: The problem.
        nodes: Its counted nodes.
    """

    def __init__(self, facts: WindowFacts, nodes: Nodes) -> None:
        self._facts, self._nodes, problem = facts, nodes, facts.problem
        serving = {name for tenant in problem.tenants for name in problem.capability_rps(tenant)}
        names = tuple(name for name in problem.profile_names if name in serving)
        self._table = layout_table(problem.gpu, names)
        self._counts = self._table.counts(problem.profile_names)
        self._candidates = remembered(self._dealt)
        self._fits = cache(partial(self._table.fits_beside, problem.gpu))
        self._places = problem.gpu.placements(names)
        profile = [problem.profile_names.index(place.profile.name) for place in self._places]
        self._columns = [(units[profile], column) for units, column in map(_dense_columns, facts.gains)]
        number = {place: n for n, place in enumerate(self._places)}
        held = [[number[place] for place in layout] for layout in self._table.layouts]
        # One more stands for none.
        self._place_of = np.array([own + [len(number)] * (self._table.most - len(own)) for own in held], dtype=np.int64)

    def n_sets(self) -> int:
        """How many placed sets the counted nodes stand for: the nodes of the program over them, or a few more."""
        of_total = Counter(map(tuple, self._counts.tolist()))
        gains, firsts = self._facts.gains, [members[0] for members in self._facts.problem.partition]
        held = np.array([np.array(gains[m].multisets, dtype=np.int64)[self._nodes.column[m]] for m in firsts])
        factorial = np.array([math.factorial(n) for n in range(self._table.most + 1)], dtype=np.int64)
        totals = held.sum(axis=0)
        deals = (factorial[totals] // factorial[held].prod(axis=0)).prod(axis=1)
        return sum(deal * of_total[tuple(total)] for deal, total in zip(deals.tolist(), totals.tolist(), strict=True))

    def ways(self, path: Path, schedule: Schedule) -> Iterator[PlacedSchedule[Placement]]:
        """Where the schedule's retrainings can sit beside the path, what leaves most layouts first."""
        # What is large is placed first: it has the fewest places.
        runs = sorted(schedule, key=lambda run: (len(self._facts.placements(run)), run))
        found = [*islice(self._extended((), runs, self._stretches(path)), _MOST_WAYS)]
        found.sort(key=lambda item: (-sum(self._fits((place,), 0).sum() for _, place in item[0]), -item[1]))
        return (tuple(sorted(placed)) for placed, _ in found)

    def _extended(
        self, placed: PlacedSchedule[Placement], waiting: Sequence[Retraining], stretches: _Stretches
    ) -> Iterator[tuple[PlacedSchedule[Placement], float]]:
        """The placed retrainings with those that wait in every place that leaves room, and how much it leaves."""
        n_left = stretches.room.sum(axis=1)
        if not n_left.all():
            return
        if not waiting:
            yield placed, float(np.log(n_left).sum())
            return
        run = waiting[0]
        taken = [
            place
            for other, place in (*placed, *self._facts.running)
            if run.start_step < other.end_step and other.start_step < run.end_step
        ]
        for place in self._facts.placements(run):
            if not any(map(place.overlaps, taken)):
                left = self._beside(stretches, run, place)
                yield from self._extended((*placed, (run, place)), waiting[1:], left)

    def _beside(self, stretches: _Stretches, run: Retraining, place: Placement) -> _Stretches:
        """The same with the layouts that also leave this retraining alone."""
        is_apart = (run.end_step <= stretches.begin) | (stretches.end <= run.start_step)
        return stretches._replace(room=stretches.room & (is_apart[:, None] | self._fits((place,), 0)))

    def _stretches(self, path: Path) -> _Stretches:
        """Those of a path, beside the retrainings in progress."""
        facts, steps = self._facts, [*(step for step, _ in path.held), self._facts.n_steps]
        firsts = [members[0] for members in facts.problem.partition]
        sets = [self._candidates(tuple(map(int, self._nodes.column[firsts, node]))) for _, node in path.held]
        if facts.initial_held is not None:
            layout, owners = self._table.row(facts.initial_held)
            sets[0] = replace(sets[0], layout=np.array([layout]), owners=np.array([owners]))
        room = np.zeros((len(sets), len(self._counts)), dtype=np.bool_)
        for number, (own, (begin, end)) in enumerate(zip(sets, pairwise(steps), strict=True)):
            room[number, own.layout] = True
            room[number] &= self._fits((), facts.problem.unavailable_in(begin, end))
        found = _Stretches(np.array(steps[:-1]), np.array(steps[1:]), sets, room)
        for run, place in facts.running:
            found = self._beside(found, run, place)
        return found

    def _dealt(self, columns: tuple[int, ...]) -> HeldSets:
        """Every way to give the placements of every layout of these columns' counts to their holders."""
        problem = self._facts.problem
        firsts = (self._facts.gains[members[0]] for members in problem.partition)
        held = np.array([table.multisets[column] for table, column in zip(firsts, columns, strict=True)])
        layouts, owners = [], []
        for number in np.flatnonzero((self._counts == held.sum(axis=0)).all(axis=1)):
            names = [placement.profile.name for placement in self._table.layouts[number]]
            own = _deals([problem.profile_names.index(name) for name in names], held)
            layouts.append(np.full(len(own), number, dtype=np.int64))
            owners.append(np.pad(own, ((0, 0), (0, self._table.most - own.shape[1])), constant_values=-1))
        return HeldSets(problem, self._table, np.concatenate(layouts), np.concatenate(owners))

    def held(self, path: Path, placed: PlacedSchedule[Placement]) -> Held | None:
        """The sets that the path holds, placed beside these retrainings; ``None`` if one of them has no place."""
        facts, earned, stretches = self._facts, self._facts.earned(schedule_of(placed)), self._stretches(path)
        for run, place in placed:
            stretches = self._beside(stretches, run, place)
        layers = [own.only(row[own.layout]) for own, row in zip(stretches.sets, stretches.room, strict=True)]
        if not all(map(len, layers)):
            return None
        sources, value = list[Int64s](), np.zeros(len(layers[0]))
        for begin, before, after in zip(stretches.begin[1:], layers, layers[1:], strict=False):
            # What each tenant earns by column while it warms up.
            until = np.minimum(begin + facts.warm_steps, facts.n_steps)
            gains = earned[np.arange(len(earned)), until] - earned[:, begin]
            is_forced = facts.problem.is_repartitioned and begin == facts.first_step
            value, source = self._best_before(before, value, after, gains, self._has_process if is_forced else None)
            sources.append(source)
        rows = [int(value.argmax())]
        for source in reversed(sources):
            rows.append(int(source[rows[-1]]))
        sets = (layer.entries(row) for layer, row in zip(layers, reversed(rows), strict=True))
        return tuple(zip(stretches.begin.tolist(), sets, strict=True))

    @property
    def _has_process(self) -> Bools:
        """Where each tenant has a process when the window opens, ``(n_tenants, n_places)``."""
        kept = ({place for place, _ in own} for own in self._facts.kept_by_tenant)
        return np.array([[place in own for place in self._places] for own in kept])

    def _best_before(
        self, before: HeldSets, value: Floats, after: HeldSets, core_gains: Floats, has_process: Bools | None = None
    ) -> tuple[Floats, Int64s]:
        """The best value of each candidate ``after`` an epoch, and which one ``before`` it that comes from.

        What is kept serves a tenant meanwhile where it ``has_process``; everywhere by default.
        """
        holder_of, n_kept = self._facts.problem.holder_of, max(_LEAST_KEPT, _MOST_PAIRS // len(after))
        kept = np.sort(np.argsort(-value, kind="stable")[:n_kept])
        ahead, behind = self._by_place(before)[kept], self._by_place(after)
        total = np.repeat(value[kept][:, None], len(after), axis=1)
        for m, ((units, column), gains) in enumerate(zip(self._columns, core_gains, strict=True)):
            kept_by = ahead == holder_of[m] if has_process is None else (ahead == holder_of[m]) & has_process[m]
            both = (kept_by * units) @ (behind == holder_of[m]).T.astype(np.float64)
            total += gains[column[both.astype(np.int64)]]
        best = total.argmax(axis=0)
        return total[best, np.arange(len(after))], kept[best]

    def _by_place(self, sets: HeldSets) -> Int64s:
        """The holder of each placement in these sets, −1 for none, ``(n, n_places)``."""
        out = np.full((len(sets), len(self._places) + 1), -1, dtype=np.int64)
        np.put_along_axis(out, self._place_of[sets.layout], sets.owners, axis=1)
        return out[:, :-1]


def _deals(profiles: Sequence[int], held: Int64s) -> Int64s:
    """Every way to deal instances of these profiles to tenants that are to have ``held``, ``(n, len(profiles))``."""
    owners = np.zeros((1, 0), dtype=np.int64)
    left = held[None, :, :]
    for profile in profiles:
        row, tenant = np.nonzero(left[:, :, profile])
        owners, left = np.column_stack([owners[row], tenant]), left[row].copy()
        left[np.arange(len(row)), tenant, profile] -= 1
    return owners


def _dense_columns(table: GainTable) -> tuple[Floats, Int64s]:
    """What an instance of each profile adds to a sum, ``(n_profiles,)``, and the table's column by such sums."""
    counts = np.array(table.multisets, dtype=np.int64)
    units = np.cumprod([1, *counts.max(axis=0)[:-1] + 1])
    dense = np.zeros(units @ counts.max(axis=0) + 1, dtype=np.int64)
    dense[counts @ units] = np.arange(len(counts))
    return units.astype(np.float64), dense
