"""``physical``: the search over schedules of retrainings, best bound first or by local moves.

Schedules are valued on counts first, which is cheap and an upper bound, then on every placement of
their retrainings. Work is counted, so that the same problem gives the same plan: one unit is a
schedule valued on counts; on placements it takes as many as there are placed nodes to a counted one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice

import numpy as np

from executor.mig import Placement
from planner.budget import Budget
from planner.engines.physical_bounds import MAX_STEPS, BoundedSchedules, Bounds
from planner.engines.physical_greedy import PlacedSchedule, greedy_schedule
from planner.engines.physical_program import Program
from planner.engines.physical_schedule import Schedule, Terms, Training
from planner.engines.placed import CountedNodes, PlacedNodes, counted_nodes, placed_nodes

DEFAULT_WORK = 40_000
"""Units when a budget names neither work nor time: half a minute at most; two tenants seldom take one in ten."""

MAX_BEST_FIRST = 2
"""Tenants that retrain up to which every schedule is bounded and the search can prove its plan best."""

TOLERANCE = 1e-12
"""Relative; values this close are the same one summed in another order."""

_MOVES = 12
"""Schedules valued for one tenant's turn in the local search, best bound first."""

_SHIFTS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
"""Starts near the present one that are looked at in any case."""

_TO_PLACE = 30
"""Schedules that the local search places, best first; one is usually enough."""


@dataclass
class Meter:
    """What has been spent of a budget.

    Attributes:
        limit: Units of work; ``None`` for no limit.
        deadline_s: ``time.perf_counter`` at which to stop; ``None`` for no limit.
        n_counted: Schedules valued on counts.
        n_placed: Placed schedules valued on placements.
        spent: Units of work.
    """

    limit: int | None
    deadline_s: float | None
    n_counted: int = 0
    n_placed: int = 0
    spent: int = 0

    @classmethod
    def of(cls, budget: Budget) -> Meter:
        """A meter for ``budget``, started now."""
        limit = budget.max_nodes
        if limit is None and budget.time_limit_s is None:
            limit = DEFAULT_WORK
        deadline_s = None if budget.time_limit_s is None else time.perf_counter() + budget.time_limit_s
        return cls(limit, deadline_s)

    @property
    def is_spent(self) -> bool:
        """Whether to stop."""
        if self.limit is not None and self.spent >= self.limit:
            return True
        return self.deadline_s is not None and time.perf_counter() >= self.deadline_s


@dataclass
class Search:
    """One search: the programs, what has been valued, and the best placed schedule so far.

    Attributes:
        terms: The problem.
        budget: What may be spent.
    """

    terms: Terms
    budget: Budget
    best: PlacedSchedule | None = field(default=None, init=False)
    bound: float = field(default=np.inf, init=False)
    is_exhausted: bool = field(default=False, init=False)
    meter: Meter = field(init=False)
    _valued: dict[Schedule, float] = field(default_factory=dict, init=False)
    _n_beside: dict[Placement, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.meter = Meter.of(self.budget)

    @cached_property
    def nodes(self) -> PlacedNodes:
        """The placed nodes."""
        return placed_nodes(self.terms.problem, self.terms.gains)

    @cached_property
    def counted_nodes(self) -> CountedNodes:
        """The counted nodes."""
        return counted_nodes(self.terms.problem, self.nodes)

    @cached_property
    def initial_node(self) -> int:
        """The placed node of the initial held set; −1 where there is none."""
        names, held = self.terms.problem.tenant_names, self.terms.state.held
        if self.terms.is_free:
            return -1
        return self.nodes.index((item.placement, names.index(item.tenant)) for item in held)

    @cached_property
    def placed(self) -> Program[Placement]:
        """The program on placements."""
        running = [placement for _, placement in self.terms.running]
        return Program(self.terms, self.nodes.graph, self.nodes.compatible, running, self.initial_node)

    @cached_property
    def counted(self) -> Program[str]:
        """The program on counts."""
        nodes, running = self.counted_nodes, [training.profile for training, _ in self.terms.running]
        initial = -1 if self.terms.is_free else int(nodes.from_placed[self.initial_node])
        return Program(self.terms, nodes.graph, nodes.compatible, running, initial)

    def run(self, seeds: Iterable[Schedule]) -> None:
        """Search from ``seeds``; never ends worse than greedy."""
        floor = greedy_schedule(self.terms, self.placed)
        if floor is not None:
            self._try(floor.schedule, floor.places)
        bounds = Bounds(self.terms, self.counted, is_tight=True)
        actors = bounds.actors()
        if len(actors) <= MAX_BEST_FIRST and self.terms.n_steps <= MAX_STEPS:
            for schedule in seeds:
                self._place(schedule)
            self._best_first(bounds.of_pair(actors))
        else:
            self._local(Bounds(self.terms, self.counted, is_tight=False), tuple(seeds))

    def _best_first(self, ways: Iterator[BoundedSchedules]) -> None:
        kept: list[tuple[BoundedSchedules, np.ndarray[tuple[int], np.dtype[np.int64]]]] = []
        for bounded in ways:
            kept.append((bounded, np.flatnonzero(bounded.bounds > self._to_beat)))
        bounds = np.concatenate([bounded.bounds[index] for bounded, index in kept])
        first = np.cumsum([0, *(len(index) for _, index in kept)])
        for number in np.argsort(-bounds, kind="stable"):
            self.bound = float(bounds[number])
            if self.bound <= self._good_enough or (self.meter.is_spent and self.best is not None):
                return
            way = int(np.searchsorted(first, number, side="right")) - 1
            bounded, index = kept[way]
            self._place(bounded.schedule(int(index[number - first[way]])))
            if self.meter.is_spent:
                return
        self.bound, self.is_exhausted = -np.inf, True

    def _local(self, bounds: Bounds, seeds: tuple[Schedule, ...]) -> None:
        actors = bounds.actors()
        self.bound = bounds.relaxed()
        if self.terms.n_steps <= MAX_STEPS:
            for pair in islice(combinations(actors, 2), 3):
                most = max(float(bounded.bounds.max(initial=-np.inf)) for bounded in bounds.of_pair(pair))
                self.bound = min(self.bound, most)
        movers = tuple(tenant for tenant in actors if self.terms.choices[tenant] != (None,))
        found = list(seeds)
        for shift in range(len(movers)):
            found += _inserted(self.terms, bounds, (*movers[shift:], *movers[:shift]))
        found += [self.best.schedule] if self.best is not None else []
        starts = sorted(dict.fromkeys(found), key=lambda schedule: -self._value(schedule))
        for schedule in starts[:3]:
            self._descend(bounds, schedule, movers)
        ranked = sorted(self._valued.items(), key=lambda pair: -pair[1])
        for schedule, value in ranked[:_TO_PLACE]:
            if value <= self._to_beat or (self.meter.is_spent and self.best is not None):
                return
            self._place(schedule)

    def _descend(self, bounds: Bounds, schedule: Schedule, movers: tuple[int, ...]) -> None:
        """Move one tenant's retraining at a time to the best of a few promising others until none improves."""
        value, n_stuck = self._value(schedule), 0
        while n_stuck < len(movers):
            for tenant in movers:
                others = tuple(training for training in schedule if training.tenant != tenant)
                moved = [
                    _with(others, training)
                    for training in _promising(self.terms, bounds, schedule, tenant, value)[:_MOVES]
                ]
                if self.meter.is_spent:
                    return
                best = max(moved, key=self._value, default=schedule)
                n_stuck += 1
                if self._value(best) > value * (1 + TOLERANCE):
                    schedule, value, n_stuck = best, self._value(best), 0

    def _value(self, schedule: Schedule) -> float:
        if schedule not in self._valued:
            self.meter.n_counted += 1
            self.meter.spent += 1
            self._valued[schedule] = self.counted.value(schedule, [training.profile for training in schedule])
        return self._valued[schedule]

    def _place(self, schedule: Schedule) -> None:
        """Value the schedule on counts, and on its placements until one is as good as the counts or none is left."""
        most = self._value(schedule)
        if most <= self._to_beat:
            return
        # What leaves the others most room comes first.
        ordered = sorted(self.terms.placed(schedule), key=lambda places: -sum(map(self._room_beside, places)))
        for places in ordered:
            value = self._try(schedule, places)
            if value >= most * (1 - TOLERANCE) or (self.meter.is_spent and self.best is not None):
                return

    def _room_beside(self, placement: Placement) -> int:
        if placement not in self._n_beside:
            self._n_beside[placement] = int(self.nodes.compatible([placement]).sum())
        return self._n_beside[placement]

    def _try(self, schedule: Schedule, places: tuple[Placement, ...]) -> float:
        self.meter.n_placed += 1
        self.meter.spent += -(-len(self.placed) // len(self.counted))
        value = self.placed.value(schedule, places)
        if value > (-np.inf if self.best is None else self.best.value):
            self.best = PlacedSchedule(value, schedule, places)
        return value

    @property
    def _to_beat(self) -> float:
        return -np.inf if self.best is None else self.best.value * (1 + TOLERANCE)

    @property
    def _good_enough(self) -> float:
        return -np.inf if self.best is None else self.best.value * (1 + max(self.budget.rel_gap, TOLERANCE))


def _inserted(terms: Terms, bounds: Bounds, order: tuple[int, ...]) -> list[Schedule]:
    """The tenants' retrainings one after the other, each where its bound is highest; none if one does not fit."""
    schedule: Schedule = ()
    for number, tenant in enumerate(order):
        waiting = order[number + 1 :]
        options: list[tuple[float, Training | None]] = []
        for way in terms.choices[tenant]:
            by_start = bounds.of_starts(schedule, way, tenant, waiting)
            start = int(np.argmax(by_start))
            options.append((float(by_start[start]), way.at(start) if way is not None else None))
        value, training = max(options, key=lambda option: option[0], default=(-np.inf, None))
        if np.isneginf(value):
            return []
        schedule = _with(schedule, training)
    return [schedule]


def _promising(terms: Terms, bounds: Bounds, schedule: Schedule, tenant: int, to_beat: float) -> list[Training | None]:
    """Other retrainings of the tenant whose bound beats ``to_beat``: the best of each way, and near the present one."""
    others = tuple(training for training in schedule if training.tenant != tenant)
    now = next((training for training in schedule if training.tenant == tenant), None)
    found: list[tuple[float, int, Training | None]] = []
    for way in terms.choices[tenant]:
        by_start = bounds.of_starts(others, way, tenant, ())
        picked = [int(np.argmax(by_start))] if len(by_start) else []
        if now is not None and way is not None and now.at(0) == way:
            picked += [now.start_step + shift for shift in _SHIFTS if 0 <= now.start_step + shift < len(by_start)]
        elif now is not None and now.start_step < len(by_start):
            picked.append(now.start_step)
        for start in dict.fromkeys(picked):
            if by_start[start] > to_beat:
                found.append((float(by_start[start]), len(found), way.at(start) if way is not None else None))
    return [training for _, _, training in sorted(found, key=lambda item: (-item[0], item[1]))]


def _with(schedule: Schedule, training: Training | None) -> Schedule:
    return schedule if training is None else tuple(sorted((*schedule, training)))
