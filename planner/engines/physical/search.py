"""``physical``: the search over schedules of retrainings, by local moves and best bound first.

Prices of instances (``prices``) bound every plan and every schedule, whatever the number of tenants and steps.
With at most two tenants that retrain, interval tables (``bounds``) bound schedules too. The schedules left are
valued best bound first, which proves the best plan.

Schedules are valued on counts first, which is cheap and an upper bound, then on every placement of their
retrainings. Where the paths on placements skip epochs, the path on counts is put on placements as well
(``placing``), and a schedule whose placements stay below its counts is left open. Work is counted, so that the same
problem gives the same plan. A unit is one schedule valued on counts; on placements a schedule takes as many units
as there are placed nodes to a counted one.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, permutations, product

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.budget import Budget
from planner.engines.arrays import Floats
from planner.engines.effort import N_THREADS, Meter
from planner.engines.physical.bounds import MAX_STEPS, BoundedSchedules, Bounds, Stage, Ways
from planner.engines.physical.greedy import greedy_schedule, static_schedule
from planner.engines.physical.held_sets import Held
from planner.engines.physical.nodes import CountedNodes, PlacedNodes, counted_nodes, placed_nodes
from planner.engines.physical.path import HeldSetPath, Path
from planner.engines.physical.placing import Placer
from planner.engines.physical.plan import held_along, lifetimes, objective
from planner.engines.physical.prices import PhysicalPrices
from planner.engines.schedule import (
    TOLERANCE,
    Incumbent,
    PlacedSchedule,
    Schedule,
    WindowFacts,
    above,
    on_profiles,
    schedule_of,
    with_retraining,
)
from planner.problem import Retraining

MAX_BEST_FIRST = 2
"""Tenants that retrain up to which every schedule is bounded and the search can prove its plan best."""

_MOVES = 12
"""Schedules valued for one tenant's turn in the local search, best bound first."""

_ORDERS = 24
"""Orders in which the local search's first schedules are put together: all of them for four tenants."""

_STARTS = 4
"""Schedules from which the local search descends, best first."""

_PRICE_ROUNDS, _MORE_PRICE_ROUNDS = 60, 150
"""Rounds of the prices: with at most two tenants that retrain, where tables prove more; and with more tenants."""

_FAVOURED = 60
"""How many of the schedules that the prices came across are valued, the last first."""

_FAVOURED_STARTS = 2
"""How many of those the local search goes on from."""

_WORTHWHILE = 1e-5
"""Share by which the bound must fall in these rounds for another turn."""

_PLACES = 4
"""Placements of a schedule that are tried before other schedules have their turn."""

_LOCAL_SHARE = 0.5
"""Share of the remaining time that the local search may take; the rest is for bounds."""

_MOST_PLACES = 3_000
"""Placements of one schedule that are listed; four tenants that retrain at once have fewer."""

_CHUNK = 16
"""Schedules valued side by side."""

_SHIFTS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
"""Starts near the present one that are looked at in any case."""

_TO_PLACE = 30
"""Schedules that the local search places, best first; one is usually enough."""


@dataclass
class Search:
    """One search: the paths, what has been valued, and the best placed schedule so far.

    Attributes:
        facts: The problem.
        budget: What may be spent.
        held: What the best plan's inference holds, where that is known.
        begin_s: When the solve began, by ``executor.compiled.working_s``.
    """

    facts: WindowFacts
    budget: Budget
    begin_s: float = field(default_factory=working_s)
    best: Incumbent[PlacedSchedule[Placement]] | None = field(default=None, init=False)
    held: Held | None = field(default=None, init=False)
    bound: float = field(default=np.inf, init=False)
    is_exhausted: bool = field(default=False, init=False)
    meter: Meter = field(init=False)
    _valued: dict[Schedule, float] = field(default_factory=dict, init=False)
    _n_beside: dict[Placement, int] = field(default_factory=dict, init=False)
    _tried: dict[Schedule, set[PlacedSchedule[Placement]]] = field(default_factory=dict, init=False)
    _share: dict[tuple[int, Placement], float] = field(default_factory=dict, init=False)
    _traced: tuple[Schedule, Path] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.meter = Meter.of(self.budget, self.facts.n_steps, self.begin_s)

    @cached_property
    def nodes(self) -> PlacedNodes:
        """The placed nodes."""
        return placed_nodes(self.facts)

    @cached_property
    def placed_paths(self) -> HeldSetPath[Placement]:
        """The best paths on placements."""
        return HeldSetPath(self.facts, self.nodes)

    @cached_property
    def counts(self) -> CountedNodes:
        """The counted nodes."""
        return counted_nodes(self.facts)

    @cached_property
    def counted_paths(self) -> HeldSetPath[str]:
        """The best paths on counts."""
        return HeldSetPath(self.facts, self.counts)

    @cached_property
    def placer(self) -> Placer:
        """Puts paths on counts on placements."""
        return Placer(self.facts, self.counts)

    @cached_property
    def prices(self) -> PhysicalPrices:
        """The prices of instances."""
        return PhysicalPrices(self.facts, self.meter.is_late)

    def run(self, seeds: Iterable[Schedule] = (), known: Iterable[PlacedSchedule[Placement]] = ()) -> None:
        """Search from ``seeds``; never ends worse than greedy or the ``known`` placed schedules."""
        for placed in known:
            self._try(placed)
        floor = None if self._is_over else self._floor()
        if floor is not None:
            self._try(floor.answer)
        bounds = Bounds(self.facts, self.counted_paths)
        with self.meter.share(_LOCAL_SHARE):
            self._local(bounds, tuple(seeds))
        self.bound = bounds.relaxed()
        if self._is_over or not self.budget.proves:
            return
        is_large = len(self.facts.actors) > MAX_BEST_FIRST or self.facts.n_steps > MAX_STEPS
        # Proofs by tables take what schedules are worth on counts for bounds.
        if is_large or self.counted_paths.skips_epochs:
            self._by_prices(bounds)
        else:
            with ThreadPoolExecutor(N_THREADS) as pool:
                self._by_tables(bounds, pool)

    def _floor(self) -> Incumbent[PlacedSchedule[Placement]] | None:
        is_over = self.meter.is_late if self.meter.deadline_s is not None else None
        return static_schedule(self.facts, is_over) or greedy_schedule(self.facts, self.placed_paths)

    def _by_prices(self, bounds: Bounds) -> None:
        """Lower the bound by prices, value the schedules that they favour, and improve the best of those.

        One turn where work is limited. With a time limit, turns go on while they bring something new.
        """
        movers = self.facts.movers
        while not self._is_over:
            before = self.prices.bound
            favoured = dict.fromkeys(reversed(self.lower_prices()))
            new = [schedule for schedule in favoured if schedule not in self._valued][:_FAVOURED]
            for schedule in new:
                if not self.meter.is_spent:
                    self._value(schedule)
            ranked = sorted((item for item in new if item in self._valued), key=self._value, reverse=True)
            for schedule in ranked[:_FAVOURED_STARTS]:
                self._descend(bounds, schedule, movers)
            self._place_best()
            self._shift_best()
            is_stuck = not new and self.prices.bound > before * (1 - _WORTHWHILE)
            if self.meter.deadline_s is None or is_stuck or self.bound <= self._good_enough:
                return

    def _by_tables(self, bounds: Bounds, pool: Executor) -> None:
        """Bound every schedule, and value those whose bound is above the best plan.

        Tables are begun beside the prices; no more are made of ways that these rule out.
        """
        priced = pool.submit(self._left_by_prices, bounds)

        def is_needed(stage: Stage) -> bool:
            return not priced.done() or stage in priced.result()[1]

        is_complete = bounds.tabulate(pool, self.meter.is_late, is_needed)
        left, _ = priced.result()
        self.bound = min(self.bound, self.prices.bound)
        if is_complete and not self.meter.is_spent:
            self._best_first(list(bounds.of_pair(left)), pool)

    def _left_by_prices(self, bounds: Bounds) -> tuple[list[Ways], set[Stage]]:
        """The pairs of ways of which prices leave some schedule above the best plan, and the stages of these."""
        self.prices.lower(self._aim, _PRICE_ROUNDS)
        slacks, left = self.prices.slacks(), []
        for pair in bounds.pairs:
            bound = self.prices.bound
            for tenant, way in zip(self.facts.actors, pair, strict=False):
                if tenant not in self.facts.running_tenants:
                    bound -= float(np.min(slacks[tenant][way]))
            if bound > self._to_beat:
                left.append(pair)
        return left, bounds.stages(left)

    def _best_first(self, ways: list[BoundedSchedules], pool: Executor) -> None:
        slacks = self.prices.slacks()
        priced = [self._priced(bounded, slacks) for bounded in ways]
        kept = [np.flatnonzero(own > self._to_beat) for own in priced]
        bounds = np.concatenate([np.zeros(0), *(own[index] for own, index in zip(priced, kept, strict=True))])
        first = np.cumsum([0, *map(len, kept)])
        order = np.argsort(-bounds, kind="stable")
        waiting: list[Schedule] = []
        highest, end = -np.inf, len(order)
        for begin in range(0, len(order), _CHUNK):
            chunk = order[begin : begin + _CHUNK]
            self.bound = min(self.bound, max(float(bounds[chunk[0]]), highest))
            if self.meter.is_spent:
                return
            if bounds[chunk[0]] <= self._good_enough:
                end = begin
                break
            schedules = []
            for number in chunk[bounds[chunk] > self._good_enough]:
                way = int(np.searchsorted(first, number, side="right")) - 1
                schedules.append(ways[way].schedule(int(kept[way][number - first[way]])))
            self._value_all(schedules, pool)
            # Most placements of one schedule are no better than those of the next: the proof can wait.
            waiting += [schedule for schedule in schedules if not self._place(schedule, _PLACES)]
            highest = max([highest, *map(self._value, waiting[-len(schedules) :])])
        self._resolve(waiting, float(bounds[order[end]]) if end < len(order) else -np.inf)

    def _resolve(self, waiting: list[Schedule], rest: float) -> None:
        """Try all placements of the schedules whose counts are above the best plan; ``rest`` bounds all others.

        The bound stays at the first schedule that is left open; the others may still have a better plan.
        """
        highest = -np.inf
        for schedule in sorted(waiting, key=self._value, reverse=True):
            self.bound = min(self.bound, max(rest, highest, self._value(schedule)))
            if self.bound <= self._good_enough or self.meter.is_spent:
                return
            if not self._place(schedule):
                highest = max(highest, self._value(schedule))
        if highest == -np.inf:
            self.bound, self.is_exhausted = rest, rest == -np.inf

    def _priced(self, bounded: BoundedSchedules, slacks: list[dict[Retraining | None, Floats]]) -> Floats:
        """The schedules' bounds, those by prices where they are lower."""
        by_prices: Floats = np.full(len(bounded.bounds), self.prices.bound)
        for tenant, way, starts in zip(bounded.tenants, bounded.retrainings, bounded.starts, strict=False):
            if tenant not in self.facts.running_tenants:
                by_prices = by_prices - slacks[tenant][way][starts if way is not None else 0]
        return np.asarray(np.minimum(bounded.bounds, by_prices))

    def _value_all(self, schedules: list[Schedule], pool: Executor) -> None:
        new = [schedule for schedule in dict.fromkeys(schedules) if schedule not in self._valued]
        for schedule, value in zip(new, pool.map(self._counted_value, new), strict=True):
            self._note(schedule, value)

    def _local(self, bounds: Bounds, seeds: tuple[Schedule, ...]) -> None:
        movers = self.facts.movers
        found = list(seeds)
        for order in islice(permutations(movers), _ORDERS):
            for way in self.facts.choices[order[0]] if order and not self._is_over else ():
                found += _inserted(self.facts, bounds, (), order, way)
        found += [schedule_of(self.best.answer)] if self.best is not None else []
        starts = sorted(dict.fromkeys(found), key=lambda schedule: -self._value(schedule))
        for schedule in starts[:_STARTS]:
            self._descend(bounds, schedule, movers)
        self._place_best()
        self._shift_best()

    def explore(self, bounds: Bounds, seeds: tuple[Schedule, ...]) -> None:
        """Value schedules on counts alone, from ``seeds`` and from moves, until time is up."""
        movers, found = self.facts.movers, list(seeds)
        for order in islice(permutations(movers), _ORDERS):
            for way in self.facts.choices[order[0]] if order else ():
                if self.meter.is_late() and self.ranked():
                    return
                found += _inserted(self.facts, bounds, (), order, way)
                for schedule in found[-1:]:
                    self._value(schedule)
        for schedule in sorted(dict.fromkeys(found), key=lambda schedule: -self._value(schedule))[:_STARTS]:
            self._descend(bounds, schedule, movers)

    def ranked(self) -> list[Schedule]:
        """The schedules that were valued on counts and can be held, best first."""
        known = [(value, schedule) for schedule, value in self._valued.items() if not np.isneginf(value)]
        return [schedule for _, schedule in sorted(known, key=lambda pair: -pair[0])]

    def is_valued(self, schedule: Schedule) -> bool:
        """Whether the schedule was valued on counts."""
        return schedule in self._valued

    def value_on_counts(self, schedule: Schedule) -> float:
        """The most that a plan with these retrainings can be worth."""
        return self._value(schedule)

    def accept(self, value: float, placed: PlacedSchedule[Placement], held: Held) -> None:
        """Take a plan that was found elsewhere if it is better than the best."""
        if value > (-np.inf if self.best is None else self.best.value):
            self.best, self.held = Incumbent(value, placed), held

    def lower_prices(self) -> list[Schedule]:
        """Lower the bound by prices; the schedules that they favour."""
        favoured = self.prices.lower(self._aim, _MORE_PRICE_ROUNDS)
        self.bound = min(self.bound, self.prices.bound)
        return favoured

    def _place_best(self) -> None:
        """Value the best schedules on placements, until one is as good there."""
        ranked = sorted(self._valued.items(), key=lambda pair: -pair[1])
        for rank, (schedule, value) in enumerate(ranked[:_TO_PLACE]):
            # The best one is placed whatever has been spent: without a placement the search was for nothing.
            if value <= self._to_beat or (rank > 0 and self._is_over):
                return
            # Where there is no plan yet, any placement will do.
            self._place(schedule, None if self.best is None else _PLACES)

    def _descend(self, bounds: Bounds, schedule: Schedule, movers: tuple[int, ...]) -> None:
        """Move one tenant's retraining at a time, then two, to the best of a few others until none improves."""
        turns = [*((tenant,) for tenant in movers), *permutations(movers, 2)]
        n_stuck, turn = 0, 0
        while n_stuck < len(turns) and not self.meter.is_spent:
            best = max(self._moved(bounds, schedule, turns[turn]), key=self._value, default=schedule)
            if self._value(best) > above(self._value(schedule)):
                schedule, n_stuck, turn = best, 0, 0
            else:
                n_stuck, turn = n_stuck + 1, (turn + 1) % len(turns)

    def _moved(self, bounds: Bounds, schedule: Schedule, tenants: tuple[int, ...]) -> list[Schedule]:
        """The schedule with the retraining of one tenant elsewhere, or with two put in anew, the first one first."""
        others = tuple(retraining for retraining in schedule if retraining.tenant not in tenants)
        if len(tenants) == 1:
            moves = _promising(self.facts, bounds, schedule, tenants[0], self._value(schedule))
            return [with_retraining(others, retraining) for retraining in moves[:_MOVES]]
        ways = self.facts.choices[tenants[0]]
        return [found for way in ways for found in _inserted(self.facts, bounds, others, tenants, way)]

    def _value(self, schedule: Schedule) -> float:
        if schedule not in self._valued:
            self._note(schedule, self._counted_value(schedule))
        return self._valued[schedule]

    def _counted_value(self, schedule: Schedule) -> float:
        return self.counted_paths.value(on_profiles(schedule))

    def _note(self, schedule: Schedule, value: float) -> None:
        self.meter.n_counted += 1
        self.meter.spent += 1
        self._valued[schedule] = value

    def _place(self, schedule: Schedule, n_most: int | None = None) -> bool:
        """Value the schedule on counts, then on placements until one is as good as the counts or none is left.

        At most ``n_most`` placements in all; whether the schedule needs no further look, as no plan with it is better
        than the best. Where epochs are skipped, only a placement as good as the counts shows that.
        """
        most = self._value(schedule)
        if most <= self._to_beat:
            return True
        tried = self._tried.setdefault(schedule, set())
        for placed in [placed for placed in self._ordered(schedule) if placed not in tried]:
            if n_most is not None and len(tried) >= n_most:
                return False
            tried.add(placed)
            value = self._try(placed)
            self._learn(placed, value / most if most > 0 else 1.0)
            if above(value) >= most:
                return True
            if self._is_over:
                return False
        return not self.placed_paths.skips_epochs

    def _ordered(self, schedule: Schedule) -> list[PlacedSchedule[Placement]]:
        """Ways to place the schedule's retrainings, the most promising first, from a list that is cut short."""
        own = (self._by_promise(((item, place),) for place in self.facts.placements(item)) for item in schedule)
        single = ([pair for (pair,) in placed] for placed in own)
        fitting = (placed for placed in product(*single) if self.facts.can_stand(placed))
        return self._by_promise(islice(fitting, _MOST_PLACES))

    def _by_promise(self, found: Iterable[PlacedSchedule[Placement]]) -> list[PlacedSchedule[Placement]]:
        return sorted(found, key=self._promise, reverse=True)

    def _promise(self, placed: PlacedSchedule[Placement]) -> tuple[float, int]:
        """What comes close to the counts elsewhere comes first, then what leaves the others most room."""
        shares = (self._share.get((retraining.tenant, place), 1.0) for retraining, place in placed)
        return sum(shares), sum(self._room_beside(place) for _, place in placed)

    def _learn(self, placed: PlacedSchedule[Placement], share: float) -> None:
        for retraining, place in placed:
            known = self._share.get((retraining.tenant, place), 0.0)
            self._share[retraining.tenant, place] = max(known, share)

    def _shift_best(self) -> None:
        """Move the best plan's retrainings in time where they are, while that makes it better."""
        is_better = True
        while is_better and self.best is not None:
            now, is_better = self.best, False
            for index, shift in product(range(len(now.answer)), _SHIFTS):
                retraining, place = now.answer[index]
                start = retraining.start_step + shift
                if not 0 <= start <= self.facts.n_steps - retraining.n_steps:
                    continue
                if self.meter.is_spent:
                    return
                moved = (*now.answer[:index], (retraining.at(start), place), *now.answer[index + 1 :])
                schedule = schedule_of(moved)
                if self._value(schedule) <= self._to_beat or not self.facts.can_stand(moved):
                    continue
                if moved not in self._tried.setdefault(schedule, set()):
                    self._tried[schedule].add(moved)
                    is_better |= self._try(moved) > now.value

    def _room_beside(self, placement: Placement) -> int:
        if placement not in self._n_beside:
            self._n_beside[placement] = int(self.nodes.compatible([placement]).sum())
        return self._n_beside[placement]

    def _try(self, placed: PlacedSchedule[Placement]) -> float:
        self.meter.n_placed += 1
        self.meter.spent += -(-len(self.placed_paths) // len(self.counted_paths))
        begin_s = working_s()
        if self.meter.deadline_s is None or self.meter.n_placed > 1:
            value, held = self.placed_paths.value(placed), None
        else:
            # The best plan is traced at the end: the first one says how long that takes.
            path = self.placed_paths.path(placed)
            value, held = path.value, None if np.isneginf(path.value) else held_along(path, self.nodes)
            self.meter.reserve(working_s() - begin_s)
        if self.placed_paths.skips_epochs and not self.counted_paths.skips_epochs:
            finer = self._by_counts(placed)
            value, held = (value, held) if finer is None or finer.value <= value else (finer.value, finer.answer)
        if value > (-np.inf if self.best is None else self.best.value):
            self.best, self.held = Incumbent(value, placed), held
        return value

    def _by_counts(self, placed: PlacedSchedule[Placement]) -> Incumbent[Held] | None:
        """The schedule's best path on counts beside the placed retrainings; ``None`` if it has no place there."""
        schedule = schedule_of(placed)
        if self._traced is None or self._traced[0] != schedule:
            self._traced = schedule, self.counted_paths.path(on_profiles(schedule))
        path = self._traced[1]
        held = None if np.isneginf(path.value) else self.placer.held(path, placed)
        return None if held is None else Incumbent(objective(self.facts, lifetimes(self.facts, held, placed)), held)

    def best_held(self) -> Held:
        """What the best plan's inference holds from which step on; there has to be one."""
        assert self.best is not None
        if self.held is None:
            self.held = held_along(self.placed_paths.path(self.best.answer), self.nodes)
        return self.held

    @property
    def _is_over(self) -> bool:
        """Whether the budget is spent and there is a plan to return."""
        return self.meter.is_spent and self.best is not None

    @property
    def _aim(self) -> float:
        """What the bound is lowered towards."""
        return 0.0 if self.best is None else self.best.value

    @property
    def to_beat(self) -> float:
        """What a plan has to be worth to be better than the best."""
        return self._to_beat

    @property
    def _to_beat(self) -> float:
        return -np.inf if self.best is None else above(self.best.value)

    @property
    def _good_enough(self) -> float:
        return -np.inf if self.best is None else above(self.best.value, max(self.budget.rel_gap, TOLERANCE))


def _inserted(
    facts: WindowFacts, bounds: Bounds, others: Schedule, order: tuple[int, ...], first: Retraining | None
) -> list[Schedule]:
    """``others`` and, one after the other, the tenants' retrainings where their bounds are highest.

    The first tenant retrains the ``first`` way. Empty if one of them does not fit.
    """
    schedule = others
    for number, tenant in enumerate(order):
        waiting = order[number + 1 :]
        options: list[tuple[float, Retraining | None]] = []
        for way in (first,) if number == 0 else facts.choices[tenant]:
            by_start = bounds.of_starts(schedule, way, tenant, waiting)
            start = int(np.argmax(by_start))
            options.append((float(by_start[start]), way.at(start) if way is not None else None))
        value, retraining = max(options, key=lambda option: option[0], default=(-np.inf, None))
        if np.isneginf(value):
            return []
        schedule = with_retraining(schedule, retraining)
    return [schedule]


def _promising(
    facts: WindowFacts, bounds: Bounds, schedule: Schedule, tenant: int, to_beat: float
) -> list[Retraining | None]:
    """Other retrainings of the tenant whose bound beats ``to_beat``: the best of each way, and near the present one."""
    others = tuple(retraining for retraining in schedule if retraining.tenant != tenant)
    now = next((retraining for retraining in schedule if retraining.tenant == tenant), None)
    found: list[tuple[float, int, Retraining | None]] = []
    for way in facts.choices[tenant]:
        by_start = bounds.of_starts(others, way, tenant, ())
        picked = [int(np.argmax(by_start))] if len(by_start) else []
        if now is not None and way is not None and now.at(0) == way:
            picked += [now.start_step + shift for shift in _SHIFTS if 0 <= now.start_step + shift < len(by_start)]
        elif now is not None and now.start_step < len(by_start):
            picked.append(now.start_step)
        for start in dict.fromkeys(picked):
            if by_start[start] > to_beat:
                found.append((float(by_start[start]), len(found), way.at(start) if way is not None else None))
    return [retraining for _, _, retraining in sorted(found, key=lambda item: (-item[0], item[1]))]
