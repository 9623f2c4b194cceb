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
from itertools import combinations, islice, permutations

import numpy as np

from executor.mig import Placement
from planner.budget import Budget
from planner.engines.physical_bounds import MAX_STEPS, BoundedSchedules, Bounds
from planner.engines.physical_greedy import PlacedSchedule, greedy_schedule
from planner.engines.physical_program import Program
from planner.engines.physical_schedule import Schedule, Terms, Training
from planner.engines.placed import CountedNodes, PlacedNodes, counted_nodes, placed_nodes

DEFAULT_WORK = 20_000
"""Units for a window of 200 steps when a budget names neither work nor time, in proportion fewer for longer ones:
half a minute at most. Two tenants seldom take one in ten of them.
"""

MAX_BEST_FIRST = 2
"""Tenants that retrain up to which every schedule is bounded and the search can prove its plan best."""

TOLERANCE = 1e-12
"""Relative; values this close are the same one summed in another order."""

_MOVES = 12
"""Schedules valued for one tenant's turn in the local search, best bound first."""

_SHIFTS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
"""Starts near the present one that are looked at in any case."""

_ORDERS = 24
"""Orders in which the local search's first schedules are put together: all of them for four tenants."""

_STARTS = 4
"""Schedules from which the local search descends, best first."""

_PAIRS = 3
"""Pairs of tenants of which the rough bound looks at all schedules."""

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
    def of(cls, budget: Budget, n_steps: int) -> Meter:
        """A meter for ``budget`` and a window of ``n_steps``, started now."""
        limit = budget.max_nodes
        if limit is None and budget.time_limit_s is None:
            limit = DEFAULT_WORK * 200 // max(n_steps, 200)
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
        self.meter = Meter.of(self.budget, self.terms.n_steps)

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

    def run(self, seeds: Iterable[Schedule] = (), known: Iterable[tuple[Schedule, tuple[Placement, ...]]] = ()) -> None:
        """Search from ``seeds``; never ends worse than greedy or the ``known`` placed schedules."""
        for schedule, places in known:
            self._try(schedule, places)
        floor = greedy_schedule(self.terms, self.placed)
        if floor is not None:
            self._try(floor.schedule, floor.places)
        rough = Bounds(self.terms, self.counted, is_tight=False)
        self._local(rough, tuple(seeds))
        if len(rough.actors()) > MAX_BEST_FIRST or self.terms.n_steps > MAX_STEPS or self._is_over:
            self.bound = self._rough_bound(rough)
        else:
            tight = Bounds(self.terms, self.counted, is_tight=True)
            self._best_first(tight.of_pair(tight.actors()))

    def _rough_bound(self, bounds: Bounds) -> float:
        """The best of a few bounds that relax all tenants but two."""
        bound = bounds.relaxed()
        if self.terms.n_steps <= MAX_STEPS:
            for pair in islice(combinations(bounds.actors(), 2), _PAIRS):
                most = max(float(bounded.bounds.max(initial=-np.inf)) for bounded in bounds.of_pair(pair))
                bound = min(bound, most)
        return bound

    def _best_first(self, ways: Iterator[BoundedSchedules]) -> None:
        kept = [(bounded, np.flatnonzero(bounded.bounds > self._to_beat)) for bounded in ways]
        bounds = np.concatenate([bounded.bounds[index] for bounded, index in kept])
        first = np.cumsum([0, *(len(index) for _, index in kept)])
        for number in np.argsort(-bounds, kind="stable"):
            self.bound = float(bounds[number])
            if self.bound <= self._good_enough or self.meter.is_spent:
                return
            way = int(np.searchsorted(first, number, side="right")) - 1
            bounded, index = kept[way]
            self._place(bounded.schedule(int(index[number - first[way]])))
        self.bound, self.is_exhausted = -np.inf, True

    def _local(self, bounds: Bounds, seeds: tuple[Schedule, ...]) -> None:
        actors = bounds.actors()
        movers = tuple(tenant for tenant in actors if self.terms.choices[tenant] != (None,))
        found = list(seeds)
        for order in islice(permutations(movers), _ORDERS):
            for way in self.terms.choices[order[0]] if order else ():
                found += _inserted(self.terms, bounds, (), order, way)
        found += [self.best.schedule] if self.best is not None else []
        starts = sorted(dict.fromkeys(found), key=lambda schedule: -self._value(schedule))
        for schedule in starts[:_STARTS]:
            self._descend(bounds, schedule, movers)
        ranked = sorted(self._valued.items(), key=lambda pair: -pair[1])
        for rank, (schedule, value) in enumerate(ranked[:_TO_PLACE]):
            # The best one is placed whatever has been spent: without that the search was for nothing.
            if value <= self._to_beat or (rank > 0 and self._is_over):
                return
            self._place(schedule)

    def _descend(self, bounds: Bounds, schedule: Schedule, movers: tuple[int, ...]) -> None:
        """Move one tenant's retraining at a time, then two, to the best of a few others until none improves."""
        turns = [*((tenant,) for tenant in movers), *permutations(movers, 2)]
        n_stuck, turn = 0, 0
        while n_stuck < len(turns) and not self.meter.is_spent:
            best = max(self._moved(bounds, schedule, turns[turn]), key=self._value, default=schedule)
            if self._value(best) > self._value(schedule) * (1 + TOLERANCE):
                schedule, n_stuck, turn = best, 0, 0
            else:
                n_stuck, turn = n_stuck + 1, (turn + 1) % len(turns)

    def _moved(self, bounds: Bounds, schedule: Schedule, tenants: tuple[int, ...]) -> list[Schedule]:
        """The schedule with the retraining of one tenant elsewhere, or with two put in anew, the first one first."""
        others = tuple(training for training in schedule if training.tenant not in tenants)
        if len(tenants) == 1:
            moves = _promising(self.terms, bounds, schedule, tenants[0], self._value(schedule))
            return [_with(others, training) for training in moves[:_MOVES]]
        ways = self.terms.choices[tenants[0]]
        return [found for way in ways for found in _inserted(self.terms, bounds, others, tenants, way)]

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
            if value >= most * (1 - TOLERANCE) or self._is_over:
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
    def _is_over(self) -> bool:
        """Whether the budget is spent and there is a plan to return."""
        return self.meter.is_spent and self.best is not None

    @property
    def _to_beat(self) -> float:
        return -np.inf if self.best is None else self.best.value * (1 + TOLERANCE)

    @property
    def _good_enough(self) -> float:
        return -np.inf if self.best is None else self.best.value * (1 + max(self.budget.rel_gap, TOLERANCE))


def _inserted(
    terms: Terms, bounds: Bounds, others: Schedule, order: tuple[int, ...], first: Training | None
) -> list[Schedule]:
    """``others`` and, one after the other, the tenants' retrainings where their bounds are highest.

    The first tenant retrains the ``first`` way. Empty if one of them does not fit.
    """
    schedule = others
    for number, tenant in enumerate(order):
        waiting = order[number + 1 :]
        options: list[tuple[float, Training | None]] = []
        for way in (first,) if number == 0 else terms.choices[tenant]:
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
