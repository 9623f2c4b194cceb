"""``physical``: one tenant alone, paying for every instance that it holds (``prices``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from executor.mig import Multiset
from planner.counts import large_enough_profiles, serving_multisets
from planner.engines.arrays import Bools, Floats, Int64s, Ints
from planner.engines.physical.alone_kernel import best_alone_placed, traced
from planner.engines.schedule import WindowFacts
from planner.problem import Retraining

_NONE = -1


class _Starts(NamedTuple):
    """Every way to retrain at every start, way by way, ``(n,)`` each.

    Attributes:
        way: Its number among the ways.
        level: What it leads to.
        profile: Column of the profile that it holds.
        start: Its first step.
        end: Its end step.
        added: ``WindowFacts.added``.
    """

    way: Int64s
    level: Int64s
    profile: Int64s
    start: Int64s
    end: Int64s
    added: Floats

    @classmethod
    def of(cls, facts: WindowFacts, ways: Sequence[Retraining]) -> _Starts:
        """The starts of these ways."""
        profiles, added = facts.problem.profile_names, [facts.added(way) for way in ways]
        rows = [(n, way.level, profiles.index(way.profile), way.n_steps) for n, way in enumerate(ways)]
        rows_by_start = np.repeat(np.array(rows, dtype=np.int64).reshape(-1, 4), [len(own) for own in added], axis=0)
        number, level, profile, n_steps = np.ascontiguousarray(rows_by_start.T)
        start = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(len(own)) for own in added)])
        return cls(number, level, profile, start, start + n_steps, np.concatenate([np.zeros(0), *added]))


@dataclass(eq=False)
class TenantSubproblem:
    """One tenant's nodes, multisets that it may hold or be served by, and what they earn.

    Attributes:
        used: From the last call: instances held by profile, ``(n_steps, n_profiles)``.
        choice: From the last call: its retraining; ``None`` too for one in progress.
        ways: Its retrainings from step 0; that in progress instead where there is one.
        unchanged: From the last call: the net value without any retraining.
    """

    facts: WindowFacts
    tenant: int
    used: Floats = field(init=False)
    choice: Retraining | None = field(init=False, default=None)
    ways: tuple[Retraining, ...] = field(init=False)
    unchanged: float = field(init=False, default=-np.inf)

    def __post_init__(self) -> None:
        facts, problem = self.facts, self.facts.problem
        self._multisets = sorted(serving_multisets(problem, problem.tenants[self.tenant]), key=sum)
        table = facts.gains[self.tenant]
        columns = [table.column[multiset] for multiset in self._multisets]
        n_levels = 1 + len(problem.tenants[self.tenant].options)  # checkpoints count by ``WindowFacts.added``
        self._earned = np.ascontiguousarray(facts.earned_by_level[self.tenant][:n_levels, :, columns])
        self._counts = np.array(self._multisets, dtype=np.float64)
        self._removal = _removal(self._multisets)
        enough = {profile.name for profile in large_enough_profiles(problem, problem.tenants[self.tenant])}
        large = np.array([name in enough for name in problem.profile_names])
        self._is_held: Bools = np.asarray((self._counts[:, large] > 0).any(axis=1))
        self._fixed_earned = self._initial_earned()
        self._is_running = self.tenant in facts.running_tenants
        self.ways = tuple(way for way in facts.courses[self.tenant] if way is not None)
        self._starts = _Starts.of(facts, self.ways)
        self._is_optional = None in facts.courses[self.tenant]
        shape = (len(self._earned), facts.n_steps + 1)
        ends = [[way.n_steps for way in self.ways if way.level == level] for level in range(1, shape[0])]
        self._earliest = np.array([facts.n_steps, *(min(own, default=shape[1]) for own in ends)], dtype=np.int64)
        self._worth = np.full(len(self._starts.way), -np.inf)
        self.used = np.zeros((facts.n_steps, len(problem.profile_names)))
        self._switched = np.zeros(shape)
        self._switched_by: Int64s = np.zeros((*shape, 3), dtype=np.int64)
        self._courses: Ints = np.zeros((1 + shape[0], shape[1], len(self._multisets)), dtype=np.int32)

    def best(self, prices: Floats) -> float:
        """The most that it earns net of prices, ``(n_steps, n_profiles)``; −inf if its retraining has no time."""
        facts = self.facts
        cost = prices @ self._counts.T
        paid = np.concatenate([np.zeros((1, cost.shape[1])), np.cumsum(cost, axis=0)])
        initial = _NONE if facts.is_free else self._initial_node
        fixed = self._fixed_earned
        if initial != _NONE:
            fixed = fixed - paid[: facts.first_step + 1, initial]
        best_alone_placed(
            self._removal,
            self._is_held,
            self._earned,
            paid,
            facts.first_step,
            int(facts.warm_steps[self.tenant]),
            facts.epoch_steps,
            initial,
            np.ascontiguousarray(fixed),
            self._earliest,
            self._switched,
            self._switched_by,
            self._courses,
        )
        return self._chosen(prices)

    def _chosen(self, prices: Floats) -> float:
        """Take the best way and start; what it holds is left in ``used``."""
        facts = self.facts
        paid = np.concatenate([np.zeros((1, prices.shape[1])), np.cumsum(prices, axis=0)])
        none = facts.problem.tenants[self.tenant].salvages[0]
        self.unchanged = float(self._switched[0, facts.n_steps]) + none if self._is_optional else -np.inf
        total, taken = self.unchanged, None
        way, level, profile, start, end, added = self._starts
        worth = self._switched[level, end] - (paid[end, profile] - paid[start, profile]) + added
        self._worth = worth
        best = int(worth.argmax()) if len(way) else _NONE
        if best != _NONE and worth[best] > total:
            total, taken = float(worth[best]), self.ways[way[best]].at(int(start[best]))
        self.choice = None if self._is_running else taken
        self._use(taken)
        return total

    @property
    def worths(self) -> list[Floats]:
        """From the last call: the net value of each way by start, as of ``ways``."""
        return np.split(self._worth, np.flatnonzero(np.diff(self._starts.way)) + 1) if self.ways else []

    def _use(self, taken: Retraining | None) -> None:
        facts = self.facts
        self.used[:] = 0.0
        level, switch = (taken.level, taken.end_step) if taken is not None else (0, facts.n_steps)
        if taken is not None:
            profile = facts.problem.profile_names.index(taken.profile)
            self.used[taken.start_step : taken.end_step, profile] += 1.0
        by = self._switched_by[level, switch]
        traced(by, level, facts.first_step, facts.epoch_steps, self._courses, self._counts, self.used)

    @cached_property
    def _initial_node(self) -> int:
        name = self.facts.problem.tenant_names[self.tenant]
        held = [item.placement.profile.name for item in self.facts.state.held if item.tenant == name]
        return self._multisets.index(tuple(held.count(profile) for profile in self.facts.problem.profile_names))

    def _initial_earned(self) -> Floats:
        """What the initial held set earns, as it warms, before each step by level, ``(n_levels, first_step + 1)``."""
        steady = self.facts.gains[self.tenant].steady
        out = np.zeros((len(self._earned), self.facts.first_step + 1))
        for step, column in enumerate(self.facts.initial_columns[:, self.tenant]):
            out[:, step + 1] = out[:, step] + steady[: len(out), step, column]
        return out


def _removal(multisets: Sequence[Multiset]) -> Ints:
    """Each multiset without one of its instances; −1 fills the row's end."""
    number = {multiset: index for index, multiset in enumerate(multisets)}
    rows = [
        [number[(*multiset[:p], count - 1, *multiset[p + 1 :])] for p, count in enumerate(multiset) if count]
        for multiset in multisets
    ]
    width = max(1, *map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)
