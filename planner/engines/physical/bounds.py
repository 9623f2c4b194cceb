"""``physical``: what no plan can exceed, for every schedule of at most two retrainings at once.

A window falls into stretches in which the same retrainings run and the same levels hold. For each
such *stage* the best value of every interval with free ends comes from the path over counts,
change costs inside included. A schedule's bound is the sum of at most five look-ups, which leaves a
few hundred of half a million schedules to evaluate.

A coarser bound guides the local search: per-step maxima without change costs, for the starts of one tenant's
retraining beside the others'. Tenants that wait for their turn are relaxed there: they occupy nothing and have
the best level possible at that step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from planner.arrays import Floats, Int64s
from planner.engines.physical.path import HeldSetPath
from planner.engines.remembered import remembered
from planner.engines.schedule import Schedule, WindowFacts, by_stage, schedule_of, sums_along
from planner.problem import Retraining

MAX_STEPS = 300
"""Above this many steps the tables of all intervals (steps² each) cost more than they save."""

_MOST_KEPT = 8_000_000
"""Numbers in the tables by levels that are kept, about: 64 MB."""

_MOST_SUMS = 500_000
"""Steps in the sums by stage that are kept: 8 MB."""


Ways = tuple[Retraining | None, Retraining | None]
"""How the first and the second of two tenants are retrained; ``None`` for one that is not, or where there is none."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stretch is like: each tenant's level (``None``: relaxed) and what retrainings occupy."""

    levels: tuple[int | None, ...]
    busy: tuple[str, ...]


@dataclass(frozen=True)
class BoundedSchedules:
    """Schedules of one way to retrain for each of two tenants, with their bounds.

    Attributes:
        tenants: The two tenants; fewer where there are none.
        retrainings: The ways, started at step 0; ``None`` for a tenant that does not retrain.
        starts: The start steps of the first and of the second, ``(n,)`` each.
        bounds: ``(n,)``; −inf where nothing can be held beside the retrainings.
    """

    tenants: tuple[int, ...]
    retrainings: Ways
    starts: tuple[Int64s, Int64s]
    bounds: Floats

    def schedule(self, index: int) -> Schedule:
        """The schedule numbered ``index``; retrainings in progress are no part of it."""
        pairs = zip(self.retrainings, self.starts, strict=True)
        return tuple(retraining.at(int(start[index])) for retraining, start in pairs if retraining is not None)


class Bounds:
    """Bounds for one problem; keeps the tables of the stages that it has seen.

    Args:
        facts: The problem.
        paths: The best paths on counts.

    Attributes:
        maxima: By stage, the most that can be earned in each step in it, ``(n_steps,)``.
    """

    def __init__(self, facts: WindowFacts, paths: HeldSetPath) -> None:
        self._facts = facts
        self._paths = paths
        self._tables: dict[Stage, Floats] = {}
        self.maxima = remembered(self._most_by_step)
        self._totals = remembered(self._totals_at, max(1, _MOST_KEPT // (facts.n_steps * len(paths.nodes))))
        self._kept_sums: dict[tuple[Schedule, int, tuple[object, ...], frozenset[int]], Floats] = {}

    def tabulate(self, stages: Iterable[Stage], pool: Executor, is_over: Callable[[], bool]) -> bool:
        """Make the stages' tables, side by side; whether that was done before time was up."""
        ordered = sorted(set(stages) - self._tables.keys(), key=lambda stage: (stage.busy, stage.levels))

        def made(stage: Stage) -> bool:
            return not is_over() and self._table(stage) is not None

        return all(list(pool.map(made, ordered)))

    def stages(self, pairs: Iterable[Ways]) -> set[Stage]:
        """The stages that schedules of these ways go through."""
        return {stage for pair in pairs for stage in self._stages(*pair).values()}

    def of_pair(self, pairs: Iterable[Ways] | None = None) -> Iterator[BoundedSchedules]:
        """All schedules where at most two tenants are actors, or those of these ways; by way to retrain."""
        return (self._bounded(first, second) for first, second in (self.pairs if pairs is None else pairs))

    @property
    def pairs(self) -> list[Ways]:
        """A way to retrain for each of at most two actors."""
        firsts, seconds = (*(self._facts.courses[m] for m in self._facts.actors), (None,), (None,))[:2]
        return [(first, second) for first in firsts for second in seconds]

    def relaxed(self) -> float:
        """A bound on everything: every actor relaxed."""
        levels = tuple(None if tenant in self._facts.actors else 0 for tenant in range(len(self._facts.gains)))
        return float(self.maxima(Stage(levels, ())).sum()) + self._facts.most_salvage

    def of_starts(self, others: Schedule, way: Retraining | None, tenant: int, waiting: Container[int]) -> Floats:
        """Bounds by start step of one tenant's retraining beside the others', ``(n_starts,)``.

        Per-step maxima without change costs. ``waiting`` tenants have not been decided yet and are relaxed.
        """
        beyond = self._added_by(others, way, tenant, waiting)
        fixed = (*others, *schedule_of(self._facts.running))
        before, *later = (self._sums(fixed, way, tenant, state, waiting) for state in range(3 if way else 1))
        if way is None:  # it waits throughout
            return by_stage(0, before, before, before)[-1:] + beyond
        return by_stage(way.n_steps, before, *later) + beyond + self._facts.added(way)

    def _added_by(self, others: Schedule, way: Retraining | None, tenant: int, waiting: Container[int]) -> float:
        """What ``added`` says of all but the tenant's way; ``waiting`` tenants are relaxed: the most salvage."""
        facts = self._facts
        settled = {run.tenant: float(facts.added(run.at(0))[run.start_step]) for run in others}
        settled |= {run.tenant: float(facts.added(run)[0]) for run, _ in facts.running}
        settled |= {tenant: 0.0} if way is not None else {}
        relaxed = {m: facts.best_salvage(m) for m in facts.actors if m in waiting}
        own = (terms.salvages[0] for terms in facts.problem.tenants)
        return sum(settled.get(m, relaxed.get(m, none)) for m, none in enumerate(own))

    def _most_by_step(self, stage: Stage) -> Floats:
        return self._paths.step_maxima(stage.busy, *self._totals(stage.levels))

    def _totals_at(self, levels: tuple[int | None, ...]) -> tuple[Floats, Floats]:
        """What held sets earn in each step at these levels, and the initial one."""
        return self._paths.step_totals(self._facts.earned_by_tenant(levels))

    def _sums(
        self, fixed: Schedule, way: Retraining | None, tenant: int, state: int, waiting: Container[int]
    ) -> Floats:
        """``sums_along`` while ``tenant`` stays in one state."""
        # Ways that hold the same profile, or lead to the same level, share what their stages earn.
        alike = () if way is None or state == 0 else (way.profile,) if state == 1 else (way.level,)
        relaxed = frozenset(m for m in self._facts.actors if m in waiting and m != tenant)
        key, n_steps, maxima = (fixed, tenant, alike, relaxed), self._facts.n_steps, list[Floats]()
        if key not in self._kept_sums:
            borders = {0, n_steps, *(min(step, n_steps) for run in fixed for step in (run.start_step, run.end_step))}
            for begin, end in pairwise(sorted(borders)):
                states = [(run, int(begin >= run.start_step) + int(begin >= run.end_step)) for run in fixed]
                maxima.append(self.maxima(self._stage(relaxed, [*states, (way, state)]))[begin:end])
            if len(self._kept_sums) * n_steps > _MOST_SUMS:
                self._kept_sums.clear()
            self._kept_sums[key] = sums_along(np.concatenate(maxima))
        return self._kept_sums[key]

    def _bounded(self, first: Retraining | None, second: Retraining | None) -> BoundedSchedules:
        n_steps = self._facts.n_steps
        starts = [self._starts(way) for way in (first, second)]
        a, b = (grid.reshape(-1) for grid in np.meshgrid(*starts, indexing="ij"))
        a_end, b_end = a + (first.n_steps if first else 0), b + (second.n_steps if second else 0)
        events = np.sort(np.stack([a, a_end, b, b_end]), axis=0)
        edges = np.concatenate([np.zeros((1, len(a)), np.int64), events, np.full((1, len(a)), n_steps)])
        tables = np.zeros((3, 3, n_steps + 1, n_steps + 1))
        for states, stage in self._stages(first, second).items():
            tables[states] = self._table(stage)
        added = {way.tenant: self._facts.added(way)[at] for way, at in ((first, a), (second, b)) if way is not None}
        bounds = np.zeros(len(a))
        for m, terms in enumerate(self._facts.problem.tenants):
            bounds += added.get(m, terms.salvages[0])
        for begin, end in pairwise(edges):
            state, other = ((begin >= at).astype(np.int64) + (begin >= last) for at, last in ((a, a_end), (b, b_end)))
            bounds += tables[state, other, begin, end]
        running = self._facts.running_tenants
        one, two = (None if way is None or way.tenant in running else way for way in (first, second))
        return BoundedSchedules(self._facts.actors, (one, two), (a, b), bounds)

    def _starts(self, retraining: Retraining | None) -> Int64s:
        if retraining is None:
            # Never started: at the window's end, for no steps.
            return np.array([self._facts.n_steps], dtype=np.int64)
        if retraining.tenant in self._facts.running_tenants:
            return np.zeros(1, dtype=np.int64)
        return np.arange(self._facts.n_steps - retraining.n_steps + 1, dtype=np.int64)

    def _stages(self, first: Retraining | None, second: Retraining | None) -> dict[tuple[int, int], Stage]:
        """The stages by the state of the first and of the second: waiting, running, done."""
        states = product(range(3 if first else 1), range(3 if second else 1))
        return {(i, j): self._stage((), ((first, i), (second, j))) for i, j in states}

    def _stage(self, relaxed: Container[int], states: Sequence[tuple[Retraining | None, int]]) -> Stage:
        levels: list[int | None] = [None if tenant in relaxed else 0 for tenant in range(len(self._facts.gains))]
        busy = []
        for retraining, state in states:
            if retraining is not None and state == 1:
                busy.append(retraining.profile)
            if retraining is not None and state == 2:
                levels[retraining.tenant] = retraining.level
        return Stage(tuple(levels), tuple(sorted(busy)))

    def _table(self, stage: Stage) -> Floats:
        if stage not in self._tables:
            earned = self._facts.earned_at_levels(stage.levels)
            starts, longest = self._reach(stage)
            self._tables[stage] = self._paths.interval_values(stage.busy, earned, starts, longest)
        return self._tables[stage]

    def _reach(self, stage: Stage) -> tuple[range, int]:
        """Where a stretch of the stage can begin, and how long it can be."""
        n_steps = self._facts.n_steps
        ways = [[way for way in self._facts.courses[tenant] if way is not None] for tenant in self._facts.actors]
        if not stage.busy and not any(stage.levels):
            return range(1), n_steps
        longest = [max(way.n_steps for own in ways for way in own if way.profile == name) for name in stage.busy]
        done = [
            min(way.n_steps for way in own if way.level == stage.levels[way.tenant])
            for own in ways
            if own and stage.levels[own[0].tenant]
        ]
        return range(max(done, default=0), n_steps), min(longest, default=n_steps)
