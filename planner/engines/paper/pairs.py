"""``paper``: the best schedule of at most two retrainings, proven, from shared prefixes and suffixes.

With at most two tenants that retrain a window falls into at most five stretches. What lies before the
first start and after the last end is the same for all schedules: one table each. Retrainings that do
not overlap need no search: from every start one run over its steps, beginning with the best of all
that could come before and ending in the best of all that can follow, gives the exact value of all of
them, O(ways · n · d · K · 2^M) together. Of those that overlap each is bounded by the best end of the
first one's run, the best of the stretch in which both run (ends free) and the best that the rest can
earn; what is above the best known is valued, best bound first. The bounds lose no more than the change
costs at two borders, so some hundred are left of half a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.engines.arrays import Floats, Ints
from planner.engines.paper.kernel import chain, chain_back, overlapping, runs, stretches, tails
from planner.engines.paper.states import Beside, JointStates
from planner.engines.schedule import RetrainingChoice, RetrainingChoices, choices_of

_CHUNK = 16
"""Schedules valued side by side."""

TOLERANCE = 1e-12
"""Relative; values this close are the same one summed in another order."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best schedule known, and what no schedule exceeds.

    Attributes:
        value: Goodput in requests; −inf if there is no schedule.
        choices: The schedule.
        bound: Equal to ``value`` where the search came to its end.
        n_valued: Overlapping schedules that were valued.
    """

    value: float
    choices: RetrainingChoices
    bound: float
    n_valued: int = 0


class _TimeUpError(Exception):
    """Time was up before a table was begun."""


def actors_of(joint: JointStates) -> tuple[int, ...]:
    """The tenants that may retrain."""
    return tuple(m for m, tenant in enumerate(joint.problem.tenants) if choices_of(joint.problem, tenant))


class PairSearch:
    """All schedules of one or two tenants' retrainings beside those of the others, which stay as they are.

    Args:
        joint: The problem.
        actors: One or two tenants that may retrain, or none.
        pool: Runs independent tables side by side; compiled code holds no lock.
        known: A schedule with its value to begin with; the other tenants' retrainings are taken from it.
    """

    def __init__(self, joint: JointStates, actors: tuple[int, ...], pool: Executor, known: Found) -> None:
        self._joint = joint
        self._actors = actors
        self._pool = pool
        self._best = known
        self._n_steps = joint.problem.n_steps
        self._ways = [choices_of(joint.problem, joint.problem.tenants[m]) for m in actors]
        self._optional = [not joint.problem.tenants[m].must_retrain for m in actors]
        self._fixed = tuple(None if m in actors else choice for m, choice in enumerate(known.choices))
        self._beside = Beside(joint, self._fixed)

    def run(self, is_over: Callable[[], bool]) -> Found:
        """The best schedule; its bound is its value unless ``is_over`` ended the search."""
        self._is_over = is_over
        try:
            return self._searched(is_over)
        except _TimeUpError:
            return replace(self._best, bound=np.inf)

    def _heed_the_time(self) -> None:
        if self._is_over():
            raise _TimeUpError

    def _searched(self, is_over: Callable[[], bool]) -> Found:
        if all(self._optional):
            self._offer(float(self._waiting[-1].max()), {})
        for x in range(len(self._actors)):
            if all(optional for other, optional in enumerate(self._optional) if other != x):
                self._alone(x)
        if len(self._actors) == 2:
            for first in (0, 1):
                self._one_after_the_other(first)
            return self._overlapping(is_over)
        best = self._best
        return Found(best.value, best.choices, best.value)

    # Tables that all schedules share.

    @cached_property
    def _waiting(self) -> Floats:
        """V before every step while nobody has started to retrain."""
        nothing = np.full((self._n_steps + 1, self._joint.n_states), -np.inf)
        return chain(self._gain({}), self._joint.group, self._joint.fitting(), self._beside.opening(()), nothing)

    def _rest(self, levels: dict[int, int]) -> Floats:
        """B before every step at these levels of the actors, nothing retraining."""
        key = tuple(levels.get(x, 0) for x in range(len(self._actors)))
        if key not in self._rests:
            last = np.zeros(self._joint.n_states)
            self._rests[key] = chain_back(
                self._gain(levels), self._joint.group, self._joint.fitting(), self._n_steps, last
            )
        return self._rests[key]

    @cached_property
    def _rests(self) -> dict[tuple[int, ...], Floats]:
        return {}

    @cached_property
    def _alone_runs(self) -> list[list[tuple[Floats, Floats]]]:
        """``runs`` of every way of every actor while the other one waits."""
        futures = [
            [
                self._pool.submit(self._runs, way, {}, self._waiting, self._beside.opening((way.profile_index,)))
                for way in ways
            ]
            for ways in self._ways
        ]
        return [[future.result() for future in row] for row in futures]

    def _runs(
        self, way: RetrainingChoice, levels: dict[int, int], begins: Floats, opening: Floats
    ) -> tuple[Floats, Floats]:
        self._heed_the_time()
        joint, running = self._joint, (way.profile_index,)
        gain = self._gain(levels, running)
        return runs(gain, joint.group, joint.fitting(), joint.fitting(running), opening, begins, way.end_step)

    def _gain(self, levels: dict[int, int], running: tuple[int, ...] = ()) -> Floats:
        """What states earn at these levels of the actors while these profiles retrain for them."""
        return self._beside.gain({self._actors[x]: level for x, level in levels.items()}, running)

    # Exact values.

    def _alone(self, x: int) -> None:
        """One retraining, the other actor's none."""
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            rest = self._rest({x: way.option_index + 1})[way.end_step : way.end_step + len(ends)]
            by_start = (ends + rest).max(axis=1, initial=-np.inf)
            start = int(by_start.argmax())
            self._offer(float(by_start[start]), {x: way.at(start)})

    def _one_after_the_other(self, x: int) -> None:
        """Actor ``x`` retrains first and has ended when the other one starts."""
        y = 1 - x
        for level in sorted({way.option_index + 1 for way in self._ways[x]}):
            between = self._between(x, level)
            futures = [
                self._pool.submit(self._runs, way, {x: level}, between, self._no_opening) for way in self._ways[y]
            ]
            for way, future in zip(self._ways[y], futures, strict=True):
                ends, _ = future.result()
                rest = self._rest({x: level, y: way.option_index + 1})[way.end_step : way.end_step + len(ends)]
                by_start = (ends + rest).max(axis=1, initial=-np.inf)
                start = int(by_start.argmax())
                if by_start[start] > self._to_beat:
                    self._best_before(x, level, way.at(start), float(by_start[start]))

    def _between(self, x: int, level: int) -> Floats:
        """V before every step after ``x`` has ended at ``level`` and before the other one starts."""
        joins = np.full((self._n_steps + 1, self._joint.n_states), -np.inf)
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            if way.option_index + 1 == level:
                span = slice(way.end_step, way.end_step + len(ends))
                joins[span] = np.maximum(joins[span], ends)
        return chain(self._gain({x: level}), self._joint.group, self._joint.fitting(), self._no_opening, joins)

    @cached_property
    def _no_opening(self) -> Floats:
        return np.full(self._joint.n_states, -np.inf)

    def _best_before(self, x: int, level: int, other: RetrainingChoice, value: float) -> None:
        """The retraining of ``x`` before ``other`` that makes ``value``."""
        joint, y = self._joint, 1 - x
        at_end = self._rest({x: level, y: other.option_index + 1})[other.end_step]
        running, n_run = (other.profile_index,), other.end_step - other.start_step
        gain = self._gain({x: level}, running)[other.start_step :]
        during = chain_back(gain, joint.group, joint.fitting(running), n_run, at_end)
        before = chain_back(self._gain({x: level}), joint.group, joint.fitting(), other.start_step, during[0])
        best, found = -np.inf, None
        for way, (ends, _) in zip(self._ways[x], self._alone_runs[x], strict=True):
            n_starts = min(len(ends), other.start_step - way.end_step + 1)
            if way.option_index + 1 == level and n_starts > 0:
                by_start = (ends[:n_starts] + before[way.end_step : way.end_step + n_starts]).max(axis=1)
                start = int(by_start.argmax())
                if by_start[start] > best:
                    best, found = float(by_start[start]), way.at(start)
        assert found is not None
        self._offer(value, {x: found, y: other})

    # Overlapping retrainings.

    def _overlapping(self, is_over: Callable[[], bool]) -> Found:
        bounds, schedules = self._bounded()
        order = np.argsort(-bounds, kind="stable")
        n_valued = 0
        for begin in range(0, len(order), _CHUNK):
            chunk = order[begin : begin + _CHUNK]
            if is_over() or bounds[chunk[0]] <= self._to_beat:
                bound = self._best.value if bounds[chunk[0]] <= self._to_beat else float(bounds[chunk[0]])
                return Found(self._best.value, self._best.choices, bound, n_valued)
            candidates = [schedules(int(number)) for number in chunk[bounds[chunk] > self._to_beat]]
            n_valued += len(candidates)
            for choices, value in zip(candidates, self._pool.map(self._value, candidates), strict=True):
                self._offer(value, choices)
        return Found(self._best.value, self._best.choices, self._best.value, n_valued)

    def _value(self, choices: dict[int, RetrainingChoice]) -> float:
        first = min(choice.start_step for choice in choices.values())
        last = max(choice.end_step for choice in choices.values())
        rest = self._rest({x: choice.option_index + 1 for x, choice in choices.items()})[last]
        ends = self._joint.along_span(self._by_tenant(choices), first, last, self._waiting[first])
        return float((ends + rest).max())

    def _bounded(self) -> tuple[Floats, Callable[[int], dict[int, RetrainingChoice]]]:
        """Bounds of all overlapping schedules above the best known one, and how to make the schedule of one."""
        found = [*self._bounded_pairs()]
        bounds = np.concatenate([pair[2] for pair in found]) if found else np.zeros(0)
        first = np.cumsum([0, *(len(pair[2]) for pair in found)])

        def schedule(number: int) -> dict[int, RetrainingChoice]:
            index = int(np.searchsorted(first, number, side="right")) - 1
            (x, one), (y, other), _, starts = found[index]
            a, b = starts[number - first[index]]
            return {x: one.at(int(a)), y: other.at(int(b))}

        return bounds, schedule

    def _bounded_pairs(
        self,
    ) -> Iterator[tuple[tuple[int, RetrainingChoice], tuple[int, RetrainingChoice], Floats, Ints]]:
        ways = [(x, i) for x in (0, 1) for i in range(len(self._ways[x]))]
        left = {
            (x, i, level): self._pool.submit(self._tails, x, self._ways[x][i], level)
            for x, i in ways
            for level in {way.option_index + 1 for way in self._ways[1 - x]}
        }
        both = {pair: self._pool.submit(self._stretches, *pair) for pair in self._profile_pairs()}
        for x, i in ways:
            one, y = self._ways[x][i], 1 - x
            for j, other in enumerate(self._ways[y]):
                pair = _sorted_pair(one, other)
                if len(self._joint.fitting(pair)):
                    bounds, starts = overlapping(
                        self._n_steps,
                        one.end_step,
                        other.end_step,
                        x == 1,
                        self._alone_runs[x][i][1],
                        both[pair].result(),
                        left[y, j, one.option_index + 1].result(),
                        left[x, i, other.option_index + 1].result(),
                        self._to_beat,
                    )
                    yield (x, one), (y, other), bounds, starts

    def _profile_pairs(self) -> set[tuple[int, int]]:
        pairs = {_sorted_pair(one, other) for one in self._ways[0] for other in self._ways[1]}
        return {pair for pair in pairs if len(self._joint.fitting(pair))}

    def _tails(self, x: int, way: RetrainingChoice, level: int) -> Floats:
        """``tails`` of actor ``x`` when the other one has ended at ``level``."""
        self._heed_the_time()
        done = self._rest({x: way.option_index + 1, 1 - x: level})
        running = (way.profile_index,)
        gain = self._gain({1 - x: level}, running)
        return tails(gain, self._joint.group, self._joint.fitting(running), done, way.end_step)

    def _stretches(self, one: int, other: int) -> Floats:
        self._heed_the_time()
        longest = max(
            min(a.end_step, b.end_step)
            for a in self._ways[0]
            for b in self._ways[1]
            if _sorted_pair(a, b) == (one, other)
        )
        running = (one, other)
        return stretches(self._gain({}, running), self._joint.group, self._joint.fitting(running), longest)

    # The best known.

    def _offer(self, value: float, choices: dict[int, RetrainingChoice]) -> None:
        if value > self._to_beat:
            self._best = Found(value, self._by_tenant(choices), np.inf)

    def _by_tenant(self, choices: dict[int, RetrainingChoice]) -> RetrainingChoices:
        by_tenant = list(self._fixed)
        for x, choice in choices.items():
            by_tenant[self._actors[x]] = choice
        return tuple(by_tenant)

    @property
    def _to_beat(self) -> float:
        value = self._best.value
        return value + TOLERANCE * abs(value) if np.isfinite(value) else -np.inf


def _sorted_pair(one: RetrainingChoice, other: RetrainingChoice) -> tuple[int, int]:
    first, second = sorted((one.profile_index, other.profile_index))
    return first, second
