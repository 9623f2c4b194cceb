"""``paper``: the best schedule of at most two retrainings, proven, from shared prefixes and suffixes.

With at most two tenants that retrain a window falls into at most five stretches. All schedules share one table
for what lies before the first start, and one for what lies after the last end.

Retrainings that do not overlap need no search. One run over the steps of a retraining from each of its starts,
which begins with the best that could come before and ends in the best that can follow, gives their exact values:
O(ways · n · d · K · 2^M) together.

A pair that overlaps is bounded by three parts: the best end of the first one's run, the best of the stretch in
which both run (ends free), and the best that the rest can earn. Those above the best known are valued, best bound
first. The bounds lose no more than the change costs at two borders, so some hundred are left of half a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.engines.arrays import Floats, Ints
from planner.engines.paper.kernel import chain, chain_back, overlapping, runs, stretches, tails
from planner.engines.paper.states import Beside, JointStates
from planner.engines.schedule import Incumbent, Schedule, above
from planner.problem import Retraining

_CHUNK = 16
"""Schedules valued side by side."""


class _TimeUpError(Exception):
    """Time was up before a table was begun."""


class PairSearch:
    """All schedules of one or two tenants' retrainings beside those of the others, which stay as they are.

    Args:
        joint: The problem.
        actors: One or two tenants that may retrain, or none.
        pool: Runs independent tables side by side; compiled code holds no lock.
        known: A schedule with its value to begin with; the other tenants' retrainings are taken from it.

    Attributes:
        n_valued: Overlapping schedules that were valued.
    """

    def __init__(self, joint: JointStates, actors: tuple[int, ...], pool: Executor, known: Incumbent[Schedule]) -> None:
        self._joint = joint
        self._actors = actors
        self._pool = pool
        self._best = known
        self._n_steps = joint.problem.n_steps
        self._ways = [joint.facts.ways(m) for m in actors]
        self._optional = [None in joint.facts.choices[m] for m in actors]
        self._fixed = tuple(retraining for retraining in known.answer if retraining.tenant not in actors)
        self.n_valued = 0
        self._beside = Beside(joint, self._fixed)

    def run(self, is_over: Callable[[], bool]) -> Incumbent[Schedule]:
        """The best schedule; its bound is its value unless ``is_over`` ended the search."""
        self._is_over = is_over
        try:
            return self._searched(is_over)
        except _TimeUpError:
            return replace(self._best, bound=np.inf)

    def _check_deadline(self) -> None:
        if self._is_over() or self._joint.stop[0]:
            raise _TimeUpError

    def _searched(self, is_over: Callable[[], bool]) -> Incumbent[Schedule]:
        if all(self._optional):
            self._offer(float(self._waiting[-1].max()) + self._salvage({}))
        for x in range(len(self._actors)):
            if all(optional for other, optional in enumerate(self._optional) if other != x):
                self._alone(x)
        if len(self._actors) == 2:
            for first in (0, 1):
                self._one_after_the_other(first)
            return self._overlapping(is_over)
        return replace(self._best, bound=self._best.value)

    @cached_property
    def _waiting(self) -> Floats:
        """V before every step while no retraining has started."""
        nothing = np.full((self._n_steps + 1, self._joint.n_states), -np.inf)
        return chain(self._gain({}), self._joint.group, self._joint.fitting(), self._beside.opening(()), nothing)

    def _rest(self, levels: dict[int, int]) -> Floats:
        """B before every step at these levels of the actors, nothing retraining; salvage is earned at the end."""
        key = tuple(levels.get(x, 0) for x in range(len(self._actors)))
        if key not in self._rests:
            last = np.full(self._joint.n_states, self._salvage(levels))
            self._rests[key] = chain_back(
                self._gain(levels), self._joint.group, self._joint.fitting(), self._n_steps, last
            )
        return self._rests[key]

    def _salvage(self, levels: dict[int, int]) -> float:
        """What a window is worth beyond its end that ends at these levels of the actors."""
        settled = {run.tenant: run.level for run in self._fixed}
        return self._joint.facts.salvage_at(settled | {self._actors[x]: level for x, level in levels.items()})

    @cached_property
    def _rests(self) -> dict[tuple[int, ...], Floats]:
        return {}

    @cached_property
    def _alone_runs(self) -> list[list[tuple[Floats, Floats]]]:
        """``runs`` of every way of every actor while the other one waits."""
        futures = [
            [
                self._pool.submit(self._runs, way, {}, self._waiting, self._beside.opening((way.profile,)))
                for way in ways
            ]
            for ways in self._ways
        ]
        return [[future.result() for future in row] for row in futures]

    def _runs(self, way: Retraining, levels: dict[int, int], begins: Floats, opening: Floats) -> tuple[Floats, Floats]:
        self._check_deadline()
        joint, running = self._joint, (way.profile,)
        gain = self._gain(levels, running)
        beside = joint.fitting(running)
        found = runs(gain, joint.group, joint.fitting(), beside, opening, begins, way.end_step, joint.stop)
        self._check_deadline()
        return found

    def _gain(self, levels: dict[int, int], running: tuple[str, ...] = ()) -> Floats:
        """What states earn at these levels of the actors while these profiles retrain for them."""
        return self._beside.gain({self._actors[x]: level for x, level in levels.items()}, running)

    def _alone(self, x: int) -> None:
        """One retraining, the other actor's none."""
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            rest = self._rest({x: way.level})[way.end_step : way.end_step + len(ends)]
            by_start = (ends + rest).max(axis=1, initial=-np.inf)
            start = int(by_start.argmax())
            self._offer(float(by_start[start]), way.at(start))

    def _one_after_the_other(self, x: int) -> None:
        """Actor ``x`` retrains first and has ended when the other one starts."""
        y = 1 - x
        for level in sorted({way.level for way in self._ways[x]}):
            between = self._between(x, level)
            futures = [
                self._pool.submit(self._runs, way, {x: level}, between, self._no_opening) for way in self._ways[y]
            ]
            for way, future in zip(self._ways[y], futures, strict=True):
                ends, _ = future.result()
                rest = self._rest({x: level, y: way.level})[way.end_step : way.end_step + len(ends)]
                by_start = (ends + rest).max(axis=1, initial=-np.inf)
                start = int(by_start.argmax())
                if by_start[start] > self._to_beat:
                    self._best_before(x, level, way.at(start), float(by_start[start]))

    def _between(self, x: int, level: int) -> Floats:
        """V before every step after ``x`` has ended at ``level`` and before the other one starts."""
        joins = np.full((self._n_steps + 1, self._joint.n_states), -np.inf)
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            if way.level == level:
                span = slice(way.end_step, way.end_step + len(ends))
                joins[span] = np.maximum(joins[span], ends)
        return chain(self._gain({x: level}), self._joint.group, self._joint.fitting(), self._no_opening, joins)

    @cached_property
    def _no_opening(self) -> Floats:
        return np.full(self._joint.n_states, -np.inf)

    def _best_before(self, x: int, level: int, other: Retraining, value: float) -> None:
        """The retraining of ``x`` before ``other`` that makes ``value``."""
        joint, y = self._joint, 1 - x
        at_end = self._rest({x: level, y: other.level})[other.end_step]
        running, n_run = (other.profile,), other.n_steps
        gain = self._gain({x: level}, running)[other.start_step :]
        during = chain_back(gain, joint.group, joint.fitting(running), n_run, at_end)
        before = chain_back(self._gain({x: level}), joint.group, joint.fitting(), other.start_step, during[0])
        best, found = -np.inf, None
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            n_starts = min(len(ends), other.start_step - way.end_step + 1)
            if way.level == level and n_starts > 0:
                by_start = (ends[:n_starts] + before[way.end_step : way.end_step + n_starts]).max(axis=1)
                start = int(by_start.argmax())
                if by_start[start] > best:
                    best, found = float(by_start[start]), way.at(start)
        assert found is not None
        self._offer(value, found, other)

    def _overlapping(self, is_over: Callable[[], bool]) -> Incumbent[Schedule]:
        bounds, schedules = self._bounded()
        order = np.argsort(-bounds, kind="stable")
        for begin in range(0, len(order), _CHUNK):
            chunk = order[begin : begin + _CHUNK]
            if is_over() or bounds[chunk[0]] <= self._to_beat:
                bound = self._best.value if bounds[chunk[0]] <= self._to_beat else float(bounds[chunk[0]])
                return replace(self._best, bound=bound)
            candidates = [schedules(int(number)) for number in chunk[bounds[chunk] > self._to_beat]]
            self.n_valued += len(candidates)
            for pair, value in zip(candidates, self._pool.map(self._value, candidates), strict=True):
                self._offer(value, *pair)
        return replace(self._best, bound=self._best.value)

    def _value(self, pair: tuple[Retraining, Retraining]) -> float:
        first, last = min(run.start_step for run in pair), max(run.end_step for run in pair)
        rest = self._rest({self._actors.index(run.tenant): run.level for run in pair})[last]
        ends = self._joint.along_span(self._beside_fixed(*pair), first, last, self._waiting[first])
        return float((ends + rest).max())

    def _bounded(self) -> tuple[Floats, Callable[[int], tuple[Retraining, Retraining]]]:
        """Bounds of all overlapping schedules above the best known one, and how to make the schedule of one."""
        found = [*self._bounded_pairs()]
        bounds = np.concatenate([pair[2] for pair in found]) if found else np.zeros(0)
        first = np.cumsum([0, *(len(pair[2]) for pair in found)])

        def schedule(number: int) -> tuple[Retraining, Retraining]:
            index = int(np.searchsorted(first, number, side="right")) - 1
            one, other, _, starts = found[index]
            a, b = starts[number - first[index]]
            return one.at(int(a)), other.at(int(b))

        return bounds, schedule

    def _bounded_pairs(self) -> Iterator[tuple[Retraining, Retraining, Floats, Ints]]:
        """The ways of two actors, the first to start first, with bounds and starts of what overlaps."""
        ways = [(x, i) for x in (0, 1) for i in range(len(self._ways[x]))]
        left = {
            (x, i, level): self._pool.submit(self._tails, x, self._ways[x][i], level)
            for x, i in ways
            for level in sorted({way.level for way in self._ways[1 - x]})
        }
        both = {pair: self._pool.submit(self._stretches, *pair) for pair in self._profile_pairs()}
        for x, i in ways:
            one, y = self._ways[x][i], 1 - x
            for j, other in enumerate(self._ways[y]):
                pair = _profiles_of(one, other)
                if len(self._joint.fitting(pair)):
                    bounds, starts = overlapping(
                        self._n_steps,
                        one.end_step,
                        other.end_step,
                        x == 1,
                        self._alone_runs[x][i][1],
                        both[pair].result(),
                        left[y, j, one.level].result(),
                        left[x, i, other.level].result(),
                        self._to_beat,
                    )
                    yield one, other, bounds, starts

    def _profile_pairs(self) -> list[tuple[str, str]]:
        pairs = dict.fromkeys(_profiles_of(one, other) for one in self._ways[0] for other in self._ways[1])
        return [pair for pair in pairs if len(self._joint.fitting(pair))]

    def _tails(self, x: int, way: Retraining, level: int) -> Floats:
        """``tails`` of actor ``x`` when the other one has ended at ``level``."""
        self._check_deadline()
        done = self._rest({x: way.level, 1 - x: level})
        running = (way.profile,)
        gain = self._gain({1 - x: level}, running)
        beside = self._joint.fitting(running)
        found = tails(gain, self._joint.group, beside, done, way.end_step, self._joint.stop)
        self._check_deadline()
        return found

    def _stretches(self, one: str, other: str) -> Floats:
        self._check_deadline()
        longest = max(
            min(a.end_step, b.end_step)
            for a in self._ways[0]
            for b in self._ways[1]
            if _profiles_of(a, b) == (one, other)
        )
        running = (one, other)
        beside = self._joint.fitting(running)
        found = stretches(self._gain({}, running), self._joint.group, beside, longest, self._joint.stop)
        self._check_deadline()
        return found

    def _offer(self, value: float, *retrainings: Retraining) -> None:
        if value > self._to_beat:
            self._best = Incumbent(value, self._beside_fixed(*retrainings))

    def _beside_fixed(self, *retrainings: Retraining) -> Schedule:
        return tuple(sorted((*self._fixed, *retrainings)))

    @property
    def _to_beat(self) -> float:
        return above(self._best.value)


def _profiles_of(one: Retraining, other: Retraining) -> tuple[str, str]:
    """The profiles of both, in an order that does not depend on who comes first."""
    first, second = sorted((one.profile, other.profile))
    return first, second
