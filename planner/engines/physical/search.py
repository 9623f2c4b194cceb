"""``physical``: the search over schedules of retrainings: on counts, then placed, then bounded, then proven.

* *Counts.* A schedule's best path on counts is cheap, and an upper bound. Local moves, of one retraining at a time and
  then of two, from several starts, find schedules.
* *Placing.* The paths of the best ones are put on placements (``placing``), which takes milliseconds.
* *Prices* of instances (``prices``) bound every plan, whatever the number of tenants and steps, and are its
  certificate. The schedules that they favour are valued, too. This goes on as long as it helps.
* *The program over all placed sets* values the best schedules once, where that can be afforded: what placing lost.
* *Tables* (``bounds``), with at most two tenants that retrain: schedules are valued best bound first until no bound is
  above the best plan, which proves it best.

Work is counted, so the same problem has the same plan. A unit is a schedule valued on counts; what else is done
takes units in proportion to its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from itertools import chain, islice, permutations, product

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.arrays import Floats
from planner.budget import Budget
from planner.engines.effort import N_THREADS, Meter
from planner.engines.physical.bounds import MAX_STEPS, BoundedSchedules, Bounds, Ways
from planner.engines.physical.coarse import coarse_facts, refined_schedule
from planner.engines.physical.held_sets import Held
from planner.engines.physical.nodes import nodes_of, on_counts
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.placing import Placer
from planner.engines.physical.plan import held_along, lifetimes, objective
from planner.engines.physical.prices import PhysicalPrices
from planner.engines.physical.static import greedy_schedule, static_schedule
from planner.engines.schedule import (
    TOLERANCE,
    Incumbent,
    PlacedSchedule,
    Schedule,
    WindowFacts,
    above,
    earliest_schedule,
    may_start,
    schedule_of,
    with_retraining,
)
from planner.problem import Retraining

MAX_BEST_FIRST = 2
"""Tenants that retrain up to which every schedule is bounded and the search can prove its plan best."""

COARSE_STEPS = 200
"""Steps of a window on which a hurried search looks for schedules, at most twice as many."""

UNIT_NODES, UNIT_TENANTS = 800, 4
"""Counted nodes of a unit's schedule, which four tenants have on an A100; larger ones take as many units more."""

_MOVES = 12
"""Schedules valued for one tenant's turn in the local search, best bound first."""

_ORDERS = 24
"""Orders in which the local search's first schedules are put together: all of them for four tenants."""

_FEW_ORDERS, _FEW_STARTS = 1, 2
"""The same, and schedules to descend from, where more tenants retrain than are moved in pairs."""

_STARTS = 4
"""Schedules from which the local search descends, best first."""

_FEWEST_ROUNDS, _MOST_ROUNDS = 20, 150
"""Rounds of the prices in a turn: one a step, within these."""

_BEFORE_TABLES = 60
"""Rounds at most in a turn before tables are made, which prove more."""

_MORE_TURNS = 3
"""Turns after the first at most."""

_WORTHWHILE = 0.1
"""Share of the gap by which a turn has to lower the bound for another one."""

_FAVOURED = 60
"""How many of the schedules that the prices came across are valued, the last first."""

_FAVOURED_STARTS = 2
"""How many of those the local search goes on from."""

_TO_PLACE = 30
"""Schedules that are placed in a turn, best first; one is usually enough."""

_WAYS = 4
"""Ways to place a schedule's retrainings that are tried."""

_CLOSE = 1e-4
"""Share by which a placed schedule may fall short of its counts before other ways are tried."""

_TO_REFINE = 8
"""Schedules that the program over all placed sets values in a turn."""

_MOST_PLACES = 3_000
"""Placements of one schedule that are listed; four tenants that retrain at once have fewer."""

_CHUNK = 16
"""Schedules valued side by side."""

_SHIFTS = (-16, -8, -4, -2, -1, 1, 2, 4, 8, 16)
"""Starts near the present one that are looked at in any case."""

_LOCAL_SHARE, _REFINING_SHARE = (0.8, 0.5), (0.5, 0.5)
"""Shares of the work and of the time left that the local search, and the program over all placed sets, may take."""

_A_ROUND, _A_PLACING = 2, 5
"""Units that a round of the prices takes, and a schedule's path put on placements."""

_AT_ONCE = 0.15
"""Share of a limit of seconds that the program over all placed sets may take before there is a plan."""

_SETTING_UP = 400
"""What that program takes to be set up and to find a floor, a placed set, in steps of a counted node."""

_UNNOTICED_S = 0.03
"""Seconds that it may take whatever the limit."""

_AT_THE_END = 4
"""How often as long as valuing it takes, to make the plan of what was found."""


class Search:
    """One search: the paths, what has been valued, and the best plan found.

    Args:
        facts: The problem.
        budget: What may be spent.
        meter: What has been spent of it; by default nothing.

    Attributes:
        best: The best plan's retrainings, placed, and what the plan is worth.
        held: What its inference holds.
        bound: What no plan exceeds.
        is_exhausted: Whether there is no plan.
        counted_paths: The best paths on counts.
        bounds: Bounds of schedules from counts.
        placer: Puts paths on counts on placements.
    """

    def __init__(self, facts: WindowFacts, budget: Budget, meter: Meter | None = None) -> None:
        self.facts, self.budget = facts, budget
        self.meter = meter or Meter.of(budget, facts.n_steps, working_s())
        self.best: Incumbent[PlacedSchedule[Placement]] | None = None
        self.held: Held = ()
        self.bound, self.is_exhausted = np.inf, False
        self.counted_paths = HeldSetPath(facts, nodes_of(facts, is_counted=True))
        self.bounds = Bounds(facts, self.counted_paths)
        self.placer = Placer(facts, self.counted_paths.nodes)
        # Units that valuing it on counts takes.
        self._a_schedule = max(1, len(self.counted_paths.nodes) // UNIT_NODES, len(facts.gains) // UNIT_TENANTS)
        self._valued: dict[Schedule, float] = {}
        self._put_by: set[Schedule] = set()
        self._tried: set[PlacedSchedule[Placement]] = set()
        self._floors: list[PlacedSchedule[Placement]] = []

    @cached_property
    def prices(self) -> PhysicalPrices:
        """The prices of instances."""
        return PhysicalPrices(self.facts, self.meter.is_late)

    @cached_property
    def placed_paths(self) -> HeldSetPath:
        """The program over all placed sets."""
        return HeldSetPath(self.facts, nodes_of(self.facts))

    def run(
        self,
        seeds: Iterable[Schedule] = (),
        known: Iterable[PlacedSchedule[Placement]] = (),
        prices: Floats | None = None,
    ) -> None:
        """Search from ``seeds`` and the ``known`` placed schedules.

        Unless it has to be done in seconds that leave no room for it, it never ends worse than greedy. Where no work
        goes into bounds, those are from ``prices`` found before.
        """
        is_hurried = not self._affords(_AT_ONCE)
        for placed in known:
            self._put(schedule_of(placed), [placed])
        if not is_hurried and (self.budget.proves or self.best is None):
            self._find_floor()
        with self.meter.share(*_LOCAL_SHARE):
            self._explore(tuple(seeds), is_hurried=is_hurried)
        self.bound = self.bounds.relaxed()
        if not self.budget.proves:
            self.bound = min(self.bound, self.prices.carry(prices))
        elif not self.meter.is_late():  # whatever work has been spent: a plan without a bound says little
            self._take_turn(_BEFORE_TABLES if self._has_tables else _MOST_ROUNDS)
        self._refine()
        if self.budget.proves:
            self._prove()

    def _prove(self) -> None:
        """Close the gap by tables, if they can; then lower the prices' own bound as long as it helps."""
        if self._has_tables and not self._is_over:
            with ThreadPoolExecutor(N_THREADS) as pool:
                self._by_tables(pool)
        for _ in range(_MORE_TURNS):
            if self._is_over or self.prices.bound <= self._good_enough or not self._take_turn():
                return
            self._refine()

    @property
    def _has_tables(self) -> bool:
        """Whether every schedule can be bounded; that takes what schedules are worth on counts for bounds."""
        is_small = len(self.facts.actors) <= MAX_BEST_FIRST and self.facts.n_steps <= MAX_STEPS
        return is_small and not self.counted_paths.skips_epochs

    def _find_floor(self) -> None:
        is_over = self.meter.is_late if self.meter.deadline_s is not None else None
        floor = static_schedule(self.facts, is_over) or greedy_schedule(self.facts, self.placed_paths)
        if floor is not None:
            self._floors = [floor.answer]
            self._put(schedule_of(floor.answer), self._floors)

    # --- on counts

    def _explore(self, seeds: tuple[Schedule, ...], *, is_hurried: bool) -> None:
        """Look for schedules on counts, and place the best; in long windows on coarser steps, if hurried."""
        coarse_steps = self.facts.n_steps // COARSE_STEPS if is_hurried else 1
        if coarse_steps <= 1:
            self._look_around(seeds)
            self._place_best()
            self._shift_best(_SHIFTS)
            return
        coarse = Search(coarse_facts(self.facts, coarse_steps), self.budget, self.meter)
        first = earliest_schedule(coarse.facts.problem)
        coarse._look_around(() if first is None else (first,))
        refined = (refined_schedule(self.facts, schedule, coarse_steps) for schedule in coarse._ranked())
        for schedule in islice(chain((own for own in refined if own is not None), seeds), _TO_PLACE):
            if self.best is None or not self.meter.is_late():
                self._put(schedule)
        self._shift_best([shift for shift in _SHIFTS if abs(shift) <= coarse_steps // 2])

    def _look_around(self, seeds: tuple[Schedule, ...]) -> None:
        """Value schedules that are put together by their bounds, and descend from the best of them."""
        searched, others, found = self.facts.searched, self.facts.others, list(seeds)
        found += [schedule_of(self.best.answer)] if self.best is not None else []
        self._value_all(found)
        n_orders, n_starts = (_FEW_ORDERS, _FEW_STARTS) if others else (_ORDERS, _STARTS)
        for order in islice(((*first, *others) for first in permutations(searched)), n_orders):
            for way in self.facts.choices[order[0]] if order else ():
                if self.meter.is_spent and self._ranked():
                    return
                inserted = self._inserted((), order, way)
                self._value_all(inserted)
                found += inserted
        for schedule in sorted(dict.fromkeys(found), key=lambda schedule: -self._value(schedule))[:n_starts]:
            self._descend(schedule)

    def _descend(self, schedule: Schedule) -> None:
        """Move one tenant's retraining at a time, then two, to the best of a few others until none improves."""
        searched, others = self.facts.searched, self.facts.others
        turns = [*((tenant,) for tenant in (*searched, *others)), *(() if others else permutations(searched, 2))]
        n_stuck, turn = 0, 0
        while n_stuck < len(turns) and not self.meter.is_spent:
            best = max(self._moved(schedule, turns[turn]), key=self._value, default=schedule)
            if self._value(best) > above(self._value(schedule)):
                schedule, n_stuck, turn = best, 0, 0
            else:
                n_stuck, turn = n_stuck + 1, (turn + 1) % len(turns)

    def _moved(self, schedule: Schedule, tenants: tuple[int, ...]) -> list[Schedule]:
        """The schedule with the retraining of one tenant elsewhere, or with two put in anew, the first one first."""
        others = tuple(retraining for retraining in schedule if retraining.tenant not in tenants)
        ways = self.facts.choices[tenants[0]]
        if len(tenants) > 1:
            return [found for way in ways for found in self._inserted(others, tenants, way)]
        now = next((retraining for retraining in schedule if retraining.tenant == tenants[0]), None)
        options = self._options(others, tenants[0], ways, (), now, self._value(schedule))
        options.sort(key=lambda option: -option[0])
        return [with_retraining(others, retraining) for _, retraining in options[:_MOVES]]

    def _inserted(self, others: Schedule, order: tuple[int, ...], first: Retraining | None) -> list[Schedule]:
        """``others`` and, one after the other, the tenants' retrainings where their bounds are highest.

        The first tenant retrains the ``first`` way. Empty if one of them does not fit.
        """
        schedule = others
        for number, tenant in enumerate(order):
            ways = (first,) if number == 0 else self.facts.choices[tenant]
            options = self._options(schedule, tenant, ways, order[number + 1 :])
            bound, retraining = max(options, key=lambda option: option[0], default=(-np.inf, None))
            if np.isneginf(bound):
                return []
            schedule = with_retraining(schedule, retraining)
        return [schedule]

    def _options(
        self,
        others: Schedule,
        tenant: int,
        ways: Iterable[Retraining | None],
        waiting: tuple[int, ...],
        now: Retraining | None = None,
        to_beat: float = -np.inf,
    ) -> list[tuple[float, Retraining | None]]:
        """(bound, retraining) of each of the tenant's ways beside ``others``: the best one, and those near ``now``.

        Only what is above ``to_beat`` is listed.
        """
        found = []
        for way in ways:
            by_start = self.bounds.of_starts(others, way, tenant, waiting)
            starts = [int(np.argmax(by_start))]
            if now is not None:
                near = (now.start_step + shift for shift in (_SHIFTS if now.at(0) == way else (0,)))
                starts += [start for start in near if 0 <= start < len(by_start)]
            better = [start for start in dict.fromkeys(starts) if by_start[start] > to_beat]
            found += [(float(by_start[start]), None if way is None else way.at(start)) for start in better]
        return found

    def _ranked(self) -> list[Schedule]:
        """The schedules that were valued on counts and can be held, best first."""
        known = [(value, schedule) for schedule, value in self._valued.items() if not np.isneginf(value)]
        return [schedule for _, schedule in sorted(known, key=lambda pair: -pair[0])]

    def _value(self, schedule: Schedule) -> float:
        """The most that a plan with these retrainings can be worth, on counts."""
        if schedule not in self._valued:
            self._value_all([schedule])
        return self._valued[schedule]

    def _value_all(self, schedules: Iterable[Schedule], pool: Executor | None = None) -> None:
        """Value what has not been valued, side by side in a ``pool``."""
        new = [schedule for schedule in dict.fromkeys(schedules) if schedule not in self._valued]
        placed = [on_counts(self.facts, schedule) for schedule in new]
        values = map(self.counted_paths.value, placed) if pool is None else pool.map(self.counted_paths.value, placed)
        for schedule, value in zip(new, values, strict=True):
            self.meter.n_counted += 1
            self.meter.spent += self._a_schedule
            self._valued[schedule] = value

    # --- on placements

    def _place_best(self) -> None:
        """Place the best schedules, until one is as good as the next on counts."""
        for rank, schedule in enumerate(self._ranked()[:_TO_PLACE]):
            # The best one is placed whatever has been spent: without a placement the search was for nothing.
            if rank > 0 and self._is_over:
                return
            self._put(schedule)

    def _put(self, schedule: Schedule, first: Sequence[PlacedSchedule[Placement]] = ()) -> None:
        """Put the schedule's best path on counts on placements, its retrainings in the ``first`` ways first.

        Nothing is done a second time, or where the path is not above the best plan.
        """
        if schedule in self._put_by or self._valued.get(schedule, np.inf) <= self._to_beat:
            return
        self._put_by.add(schedule)
        path = self.counted_paths.path(on_counts(self.facts, schedule))
        if path.value <= self._to_beat:
            return
        for placed in islice(chain(first, self.placer.ways(path, schedule)), _WAYS):
            self.meter.spent += _A_PLACING * self._a_schedule
            held = self.placer.held(path, placed)
            if held is not None:
                begin_s = working_s()
                value = objective(self.facts, lifetimes(self.facts, held, placed))
                # The plan is put together in the same way at the end.
                self.meter.reserve(_AT_THE_END * (working_s() - begin_s))
                self._accept(value, placed, held)
                if above(value, _CLOSE) >= path.value or self.meter.is_late():
                    return

    def _accept(self, value: float, placed: PlacedSchedule[Placement], held: Held) -> None:
        if value > (-np.inf if self.best is None else self.best.value):
            self.best, self.held = Incumbent(value, placed), held

    def _shift_best(self, shifts: Sequence[int]) -> None:
        """Move the best plan's retrainings in time, where they are if they can be, while that makes it better."""
        is_better = True
        while is_better and self.best is not None:
            now, is_better = self.best, False
            for index, shift in product(range(len(now.answer)), shifts):
                run, place = now.answer[index]
                if self.meter.is_spent:
                    return
                if not may_start(self.facts.problem, run.tenant, run.at(run.start_step + shift)):
                    continue
                moved = (*now.answer[:index], (run.at(run.start_step + shift), place), *now.answer[index + 1 :])
                schedule = tuple(sorted(schedule_of(moved)))
                if self._value(schedule) > self._to_beat:
                    self._put(schedule, [moved] if self.facts.can_stand(moved) else [])
                    is_better |= self.best.value > now.value

    # --- with the program over all placed sets

    def _affords(self, share: float) -> bool:
        """Whether this share of the seconds that are left is enough for the program over all placed sets."""
        if self.meter.deadline_s is None:
            return True
        n_steps = self.facts.n_steps * 2 + (0 if "placed_paths" in self.__dict__ else _SETTING_UP)
        needed_s = self._a_node_step_s * n_steps * self.placer.n_sets()
        return needed_s <= max(share * self.meter.left_s, _UNNOTICED_S)

    @cached_property
    def _a_node_step_s(self) -> float:
        """Seconds that the path on counts takes, a node and step."""
        self.counted_paths.value(())  # what it makes for all schedules does not count
        begin_s = working_s()
        self.counted_paths.value(())
        return (working_s() - begin_s) / (len(self.counted_paths.nodes) * self.facts.n_steps)

    @cached_property
    def _a_placed_schedule(self) -> int:
        """Units that valuing a schedule on all placed sets takes."""
        return -(-self.placer.n_sets() // len(self.counted_paths.nodes)) * self._a_schedule

    def _refine(self) -> None:
        """Value the best schedules on all placed sets: what placing lost, and plans where it found none.

        The best one is valued whatever has been spent, but where no work goes into bounds.
        """
        for schedule in self._ranked():
            if self.best is not None:
                break
            self._try_places(schedule)
        if self.best is None or not self._affords(_REFINING_SHARE[1]):
            return
        if not self.budget.proves and self._a_placed_schedule > self.meter.left:
            return
        with self.meter.share(*_REFINING_SHARE):
            for placed in (self.best.answer, *self._floors):
                self._try(placed)
            for schedule in self._ranked()[:_TO_REFINE]:
                if self._value(schedule) <= self._to_beat or self._is_over:
                    return
                self._try_places(schedule, _WAYS)

    def _try_places(self, schedule: Schedule, n_most: int | None = None) -> bool:
        """Try the schedule's placements, ``n_most`` in all, until one is as good as the counts or none is left.

        Returns:
            Whether the schedule, if none was left out, needs no further look, as no plan with it is better than the
            best. Where epochs are skipped, only a placement as good as the counts shows that.
        """
        most = self._value(schedule)
        if most <= self._to_beat:
            return True
        for placed in islice(self._places(schedule), n_most):
            if above(self._try(placed)) >= most:
                return True
            if self._is_over:
                return False
        return not self.placed_paths.skips_epochs

    def _places(self, schedule: Schedule) -> Iterator[PlacedSchedule[Placement]]:
        """Ways to place the schedule's retrainings: those that suit its best path first; the list may be cut short."""
        path = self.counted_paths.path(on_counts(self.facts, schedule))
        suited = [] if np.isneginf(path.value) else list(self.placer.ways(path, schedule))
        yield from dict.fromkeys(chain(suited, islice(self._fitting((), schedule), _MOST_PLACES)))

    def _fitting(self, placed: PlacedSchedule[Placement], waiting: Schedule) -> Iterator[PlacedSchedule[Placement]]:
        """Every way to place the waiting retrainings beside the placed ones."""
        if not waiting:
            yield placed
            return
        for place in self.facts.placements(waiting[0]):
            more = (*placed, (waiting[0], place))
            if self.facts.can_stand(more):
                yield from self._fitting(more, waiting[1:])

    def _try(self, placed: PlacedSchedule[Placement]) -> float:
        """What the best plan with these placed retrainings is worth; −inf if it was tried before."""
        if placed in self._tried:
            return -np.inf
        self._tried.add(placed)
        self.meter.n_placed += 1
        self.meter.spent += self._a_placed_schedule
        value = self.placed_paths.value(placed)
        if value > self._to_beat:
            self._accept(value, placed, held_along(self.placed_paths.path(placed), self.placed_paths.nodes))
        return value

    # --- bounds

    def _take_turn(self, n_most: int = _MOST_ROUNDS) -> bool:
        """Lower the bound by prices, value the schedules that they favour, and improve the best of those.

        Whether that helped: the bound has come closer to the best plan, or the plan has become better.
        """
        before, plan = self.prices.bound, self.best
        favoured = self.prices.lower(self._aim, min(max(_FEWEST_ROUNDS, self.facts.n_steps), n_most))
        self.meter.spent += len(favoured) * _A_ROUND
        self.bound = min(self.bound, self.prices.bound)
        completed = [own for own in map(self._completed, reversed(favoured)) if own is not None]
        new = [schedule for schedule in dict.fromkeys(completed) if schedule not in self._valued]
        for schedule in new[:_FAVOURED]:
            if not self.meter.is_spent:
                self._value(schedule)
        ranked = sorted((item for item in new if item in self._valued), key=self._value, reverse=True)
        for schedule in ranked[:_FAVOURED_STARTS]:
            self._descend(schedule)
        self._place_best()
        self._shift_best(_SHIFTS)
        is_lower = before - self.prices.bound > _WORTHWHILE * (self.prices.bound - self._aim)
        return is_lower or self.best is not plan

    def _completed(self, favoured: Schedule) -> Schedule | None:
        """The schedule with the best plan's retrainings of the tenants that prices say nothing of.

        ``None`` where one of them has to be retrained and there is no plan.
        """
        undecided, known = self.prices.undecided, () if self.best is None else schedule_of(self.best.answer)
        if self.best is None and any(None not in self.facts.choices[m] for m in undecided):
            return None
        return tuple(sorted((*favoured, *(run for run in known if run.tenant in undecided))))

    def _by_tables(self, pool: Executor) -> None:
        """Bound every schedule, and value those whose bound is above the best plan.

        No tables are made of ways that prices rule out.
        """
        slacks, left = self.prices.slacks(), list[Ways]()
        for pair in self.bounds.pairs:
            least = (slacks[m][way].min() for m, way in zip(self.facts.actors, pair, strict=False))
            if self.prices.bound - sum(least) > self._to_beat:
                left.append(pair)
        is_complete = self.bounds.tabulate(self.bounds.stages(left), pool, self.meter.is_late)
        if is_complete and not self.meter.is_spent:
            self._best_first(self._by_bound(left, slacks), pool)

    def _by_bound(
        self, ways: list[Ways], slacks: list[dict[Retraining | None, Floats]]
    ) -> Iterator[tuple[float, Schedule]]:
        """The schedules whose bound is above the best plan with their bounds, the best bound first.

        Bounds are those by prices where these are lower.
        """
        found = list(self.bounds.of_pair(ways))
        priced = [np.minimum(own.bounds, self._priced(own, slacks)) for own in found]
        kept = [np.flatnonzero(own > self._to_beat) for own in priced]
        which = np.repeat(np.arange(len(found)), [len(own) for own in kept])
        bounds, index = (np.concatenate([np.zeros(0), *own]) for own in (map(np.take, priced, kept), kept))
        for number in np.argsort(-bounds, kind="stable"):
            yield float(bounds[number]), found[which[number]].schedule(int(index[number]))

    def _priced(self, bounded: BoundedSchedules, slacks: list[dict[Retraining | None, Floats]]) -> Floats:
        """The schedules' bounds by prices, ``(n,)``."""
        bounds: Floats = np.full(len(bounded.bounds), self.prices.bound)
        for tenant, way, starts in zip(bounded.tenants, bounded.retrainings, bounded.starts, strict=False):
            if tenant not in self.facts.running_tenants:
                bounds -= slacks[tenant][way][starts if way is not None else 0]
        return bounds

    def _best_first(self, bounded: Iterator[tuple[float, Schedule]], pool: Executor) -> None:
        """Value schedules in the order of their bounds until no bound is above the best plan."""
        waiting: list[Schedule] = []
        highest = rest = -np.inf
        while rest == -np.inf and (chunk := list(islice(bounded, _CHUNK))):
            self.bound = min(self.bound, max(chunk[0][0], highest))
            if self.meter.is_spent:
                return
            schedules = [schedule for bound, schedule in chunk if bound > self._good_enough]
            rest = max((bound for bound, _ in chunk[len(schedules) :]), default=-np.inf)
            self._value_all(schedules, pool)
            # Most placements of one schedule are no better than those of the next: the proof can wait.
            for schedule in schedules:
                self._put(schedule)
            waiting += schedules
            highest = max([highest, *map(self._value, schedules)])
        self._resolve(waiting, rest)

    def _resolve(self, waiting: list[Schedule], rest: float) -> None:
        """Try all placements of the schedules whose counts are above the best plan; ``rest`` bounds all others.

        The bound stays at the first schedule that is left open; the others may still have a better plan.
        """
        highest = -np.inf
        for schedule in sorted(waiting, key=self._value, reverse=True):
            self.bound = min(self.bound, max(rest, highest, self._value(schedule)))
            if self.bound <= self._good_enough or self.meter.is_spent:
                return
            if not self._try_places(schedule):
                highest = max(highest, self._value(schedule))
        if highest == -np.inf:
            self.bound, self.is_exhausted = rest, rest == -np.inf

    @property
    def _is_over(self) -> bool:
        """Whether the budget is spent and there is a plan to return."""
        return self.meter.is_spent and self.best is not None

    @property
    def _aim(self) -> float:
        """What the bound is lowered towards."""
        return 0.0 if self.best is None else self.best.value

    @property
    def _to_beat(self) -> float:
        """What a plan has to be worth to be better than the best."""
        return -np.inf if self.best is None else above(self.best.value)

    @property
    def _good_enough(self) -> float:
        return -np.inf if self.best is None else above(self.best.value, max(self.budget.rel_gap, TOLERANCE))
