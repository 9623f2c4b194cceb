"""``physical``: a good plan within a limit of seconds, however little that is.

The program over all placed sets takes tenths of a second to be set up for four tenants, and a second a schedule for
six. Where a limit leaves no room for that, schedules are put together and improved on counts alone, in long windows on
coarser steps, until half of the time is gone. The best of them are then put on placements path by path (``placing``),
which is where the plan comes from. Nothing of this is done without a limit of seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.engines.physical.bounds import Bounds
from planner.engines.physical.plan import lifetimes, objective
from planner.engines.physical.prices import coarse_facts
from planner.engines.physical.search import Search
from planner.engines.schedule import (
    PlacedSchedule,
    Schedule,
    WindowFacts,
    above,
    earliest_schedule,
    may_start,
    on_profiles,
    schedule_of,
    with_retraining,
)

COARSE_STEPS = 200
"""Steps of a window that schedules are looked for on, at most twice as many."""

_EXPLORED = 0.5
"""Share of the time in which schedules are looked for."""

_TO_PLACE = 30
"""Schedules that are placed, best first; one is usually enough."""

_WAYS = 4
"""Ways to place a schedule's retrainings that are tried."""

_SETTING_UP, _A_SCHEDULE = 400, 5
"""What the program over all placed sets takes, in steps of a counted node: a placed set, to set it up and find a floor;
and a placed set and step, to value and trace schedules."""


_CLOSE = 1e-3
"""Share by which a placed schedule may fall short of its counts before other placements are tried."""

_AT_THE_END = 4
"""How often as long as valuing it takes, to make the plan of what was found."""


_UNNOTICED_S = 0.03
"""Seconds that the program over all placed sets may take whatever the limit."""


class QuickSearch:
    """Fills a search with a first plan, and says what it can still afford.

    Args:
        search: The search; its meter has a deadline.
    """

    def __init__(self, search: Search) -> None:
        self._search, self._facts = search, search.facts
        paths = search.counted_paths
        self._placer = search.placer
        paths.value(())  # what it makes for all schedules does not count
        begin_s = working_s()
        paths.value(())
        a_node_step_s = (working_s() - begin_s) / (len(paths) * search.facts.n_steps)
        steps = _SETTING_UP + _A_SCHEDULE * search.facts.n_steps
        self.placing_s = a_node_step_s * steps * self._placer.n_sets()

    def can_afford(self, share: float) -> bool:
        """Whether this share of the time that is left is enough for the program over all placed sets."""
        return self.placing_s <= max(share * self._search.meter.left_s, _UNNOTICED_S)

    def run(self, seeds: Iterable[Schedule]) -> None:
        """Find a plan in half of the time that is left, or a little more if none is found by then."""
        search, facts = self._search, self._facts
        coarse_steps = facts.n_steps // COARSE_STEPS
        with search.meter.share(_EXPLORED):
            if coarse_steps <= 1:
                search.explore(Bounds(facts, search.counted_paths), tuple(seeds))
                self._place(search.ranked())
                return
            coarse = Search(coarse_facts(facts, coarse_steps), search.budget, search.begin_s)
            coarse.meter = search.meter
            seed = earliest_schedule(coarse.facts.problem)
            coarse.explore(Bounds(coarse.facts, coarse.counted_paths), () if seed is None else (seed,))
            refined = [refined_schedule(facts, schedule, coarse_steps) for schedule in coarse.ranked()]
        self._place([*(schedule for schedule in refined if schedule is not None), *seeds])
        self._shift(coarse_steps)

    def lower_bound(self) -> None:
        """Spend what is left on bounds, and place what the prices favour."""
        search = self._search
        search.bound = Bounds(self._facts, search.counted_paths).relaxed()
        while not search.meter.is_late():
            before = search.prices.bound
            favoured = dict.fromkeys(reversed(search.lower_prices()))
            self._place([schedule for schedule in favoured if not search.is_valued(schedule)][:_TO_PLACE])
            if search.prices.bound >= before:
                return

    def _place(self, schedules: Iterable[Schedule]) -> None:
        """Put the first of the schedules that are worth it on placements; one of them even if time is up."""
        search = self._search
        for schedule in islice(schedules, _TO_PLACE):
            if search.best is not None and search.meter.is_late():
                return
            most = search.value_on_counts(schedule)
            if most > search.to_beat:
                self._place_one(schedule, most)

    def carry_on(self, known: Iterable[PlacedSchedule[Placement]]) -> None:
        """Take up what an earlier plan retrains, when and where it did, before anything else."""
        for placed in known:
            schedule = schedule_of(placed)
            self._place_one(schedule, self._search.value_on_counts(schedule), [placed])

    def _place_one(self, schedule: Schedule, most: float, first: Sequence[PlacedSchedule[Placement]] = ()) -> None:
        """Put the schedule's best path on placements, its retrainings in the ``first`` ways first."""
        search = self._search
        path = search.counted_paths.path(on_profiles(schedule))
        if np.isneginf(path.value):
            return
        for placed in islice(chain(first, self._placer.ways(path, schedule)), _WAYS):
            held = self._placer.held(path, placed)
            if held is not None:
                begin_s = working_s()
                value = objective(self._facts, lifetimes(self._facts, held, placed))
                # The plan is put together in the same way at the end.
                search.meter.reserve(_AT_THE_END * (working_s() - begin_s))
                search.accept(value, placed, held)
                if above(value, _CLOSE) >= most or search.meter.is_late():
                    break

    def _shift(self, coarse_steps: int) -> None:
        """Move the best plan's retrainings within the coarse steps on which they were found."""
        search = self._search
        if search.best is None:
            return
        best, shift = tuple(run for run, _ in search.best.answer), coarse_steps // 2
        while shift and not search.meter.is_late():
            moved = [
                with_retraining((*best[:n], *best[n + 1 :]), run.at(run.start_step + by))
                for n, run in enumerate(best)
                for by in (-shift, shift)
                if may_start(self._facts.problem, run.tenant, run.at(run.start_step + by))
            ]
            found = best
            for schedule in moved:
                if not search.meter.is_late() and search.value_on_counts(schedule) > search.value_on_counts(found):
                    found = schedule
            best, shift = found, shift if found != best else shift // 2
        self._place([best])


def refined_schedule(facts: WindowFacts, schedule: Schedule, coarse_steps: int) -> Schedule | None:
    """A schedule on coarse steps on the problem's own; ``None`` if one of its retrainings does not end there."""
    found: Schedule = ()
    for run in schedule:
        ways = [way for way in facts.ways(run.tenant) if (way.level, way.profile) == (run.level, run.profile)]
        if not ways:
            return None
        start = min(run.start_step * coarse_steps, facts.n_steps - ways[0].n_steps)
        found = with_retraining(found, ways[0].at(start))
    return found
