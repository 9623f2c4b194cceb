"""``paper``: the best that all inference tasks can hold, step by step, once the retrainings are fixed.

A longest path over (step, joint state), exact. A joint state gives every tenant a multiset; going
from one to another costs each tenant whose multiset changes, so the best predecessor is found for
each subset of tenants that stay: all states that agree on the subset share their maximum. A step
costs O(states · 2^tenants), not O(states²).

===========  ==========================================================================
K            joint states, rows of ``planner.states.joint_states``
steady[s]    value of each joint state in step s when nobody's multiset changed, ``(K,)``
V[s]         value of the best path to each joint state up to and with step s, ``(K,)``
===========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from executor.mig import Multiset
from planner.engines.schedule import (
    RetrainingChoices,
    TenantDecision,
    choices_of,
    initial_multisets,
    level_at,
    running_at,
)
from planner.problem import FloatArray, GainTable, Problem
from planner.states import CountSpace, IntArray, joint_states, tenant_multisets


@dataclass(frozen=True)
class _Agreement:
    """The joint states grouped by what a subset of the tenants holds."""

    stays: tuple[bool, ...]
    group: IntArray
    order: IntArray
    first: IntArray

    def best(self, values: FloatArray) -> FloatArray:
        """For each joint state the best value of its group, ``(K,) → (K,)``."""
        best: FloatArray = np.maximum.reduceat(values[self.order], self.first)[self.group]
        return best


class HoldingPaths:
    """Joint states and gains of one ``paper`` problem, made once and used for many retraining choices."""

    def __init__(self, problem: Problem, tables: Sequence[GainTable]) -> None:
        self.problem = problem
        self.states = joint_states(problem)
        self._multisets = [tenant_multisets(problem, tenant) for tenant in problem.tenants]
        self._steady, self._changed = [], []
        for table, multisets in zip(tables, self._multisets, strict=True):
            columns = [table.column[multiset] for multiset in multisets]
            assert table.changed is not None
            self._steady.append(np.ascontiguousarray(table.steady[:, :, columns]))
            self._changed.append(np.ascontiguousarray(table.changed[:, :, columns]))
        self._space = CountSpace(problem.gpu, problem.profile_names)
        self._codes = self._total_codes()
        self._fitting: dict[Multiset, NDArray[np.bool_]] = {}
        self._best_steps: dict[tuple[Multiset, tuple[int, ...]], FloatArray] = {}
        self._agreements = self._all_agreements()

    @property
    def n_states(self) -> int:
        """Joint states of the problem."""
        return len(self.states)

    def fitting(self, running: Multiset) -> NDArray[np.bool_]:
        """Which joint states fit beside running retrainings, ``(K,)``."""
        if running not in self._fitting:
            beside = self._space.codes(np.array([running], dtype=np.int64))
            self._fitting[running] = self._space.fits(self._codes + beside)
        return self._fitting[running]

    def best_without_change(self, running: Multiset, levels: tuple[int, ...]) -> FloatArray:
        """The most that any step can earn with these retrainings running and these levels, ``(n_steps,)``.

        Changes cost nothing here, so sums of it are upper bounds. −inf where nothing fits.
        """
        key = (running, levels)
        if key not in self._best_steps:
            rows = self.states[self.fitting(running)]
            best = np.full(self.problem.n_steps, -np.inf)
            for step in range(self.problem.n_steps if len(rows) else 0):
                best[step] = self._step_values(self._steady, levels, step, rows).max()
            self._best_steps[key] = best
        return self._best_steps[key]

    def upper_bound(self) -> float:
        """The sum over steps of the most that any layout could earn at any level possible by then.

        Changes cost nothing and retrainings hold nothing here, so no plan is better.
        """
        first_steps = [self._first_steps(m) for m in range(len(self.problem.tenants))]
        total = 0.0
        for step in range(self.problem.n_steps):
            value = np.zeros(self.n_states)
            for m, first in enumerate(first_steps):
                levels = [level for level, from_step in enumerate(first) if from_step <= step]
                value += self._steady[m][levels, step].max(axis=0)[self.states[:, m]]
            total += float(value.max())
        return total

    def _first_steps(self, m: int) -> list[int]:
        """The first step in which each level of tenant m is possible; n_steps if it never is."""
        tenant = self.problem.tenants[m]
        first = [0] + [self.problem.n_steps] * len(tenant.options)
        for choice in choices_of(self.problem, tenant):
            level = choice.option_index + 1
            first[level] = min(first[level], choice.end_step)
        return first

    def best(self, choices: RetrainingChoices) -> tuple[float, tuple[TenantDecision, ...]] | None:
        """The best decisions with these retrainings, and their value; ``None`` if some step has no room."""
        values = self._forward(choices)
        if not np.isfinite(values[-1].max()):
            return None
        path = self._backward(choices, values)
        decisions = tuple(
            TenantDecision(tuple(multisets[self.states[row, m]] for row in path), choice)
            for m, (multisets, choice) in enumerate(zip(self._multisets, choices, strict=True))
        )
        return float(values[-1].max()), decisions

    def _forward(self, choices: RetrainingChoices) -> FloatArray:
        n_steps = self.problem.n_steps
        values = np.full((n_steps, self.n_states), -np.inf)
        for step in range(n_steps):
            levels = tuple(level_at(choice, step) for choice in choices)
            fits = self.fitting(running_at(self.problem, choices, step))
            if step == 0:
                reached = self._opening_values(levels)
            else:
                reached = self._step_values(self._steady, levels, step) + values[step - 1]
                for agreement in self._agreements:
                    gained = self._mixed_values(levels, step, agreement.stays)
                    np.maximum(reached, gained + agreement.best(values[step - 1]), out=reached)
            values[step, fits] = reached[fits]
        return values

    def _backward(self, choices: RetrainingChoices, values: FloatArray) -> list[int]:
        """A path of the highest value, by finding for each state a predecessor that explains its value."""
        path = [int(values[-1].argmax())]
        for step in range(self.problem.n_steps - 1, 0, -1):
            levels = tuple(level_at(choice, step) for choice in choices)
            row = self.states[path[-1]]
            total = values[step - 1].copy()
            for m, level in enumerate(levels):
                same = self.states[:, m] == row[m]
                gains = (self._steady[m][level, step, row[m]], self._changed[m][level, step, row[m]])
                total += np.where(same, *gains)
            path.append(int(total.argmax()))
        return path[::-1]

    def _opening_values(self, levels: tuple[int, ...]) -> FloatArray:
        """The first step's values: changed for whoever does not hold what the initial state says."""
        total = np.zeros(self.n_states)
        for m, (level, initial) in enumerate(zip(levels, initial_multisets(self.problem), strict=True)):
            gains = self._steady[m][level, 0]
            if initial is not None:
                same = np.array([multiset == initial for multiset in self._multisets[m]])
                gains = np.where(same, gains, self._changed[m][level, 0])
            total += gains[self.states[:, m]]
        return total

    def _step_values(
        self, gains: Sequence[FloatArray], levels: tuple[int, ...], step: int, rows: IntArray | None = None
    ) -> FloatArray:
        states = self.states if rows is None else rows
        total = np.zeros(len(states))
        for m, level in enumerate(levels):
            total += gains[m][level, step, states[:, m]]
        return total

    def _mixed_values(self, levels: tuple[int, ...], step: int, stays: tuple[bool, ...]) -> FloatArray:
        gains = [self._steady[m] if stay else self._changed[m] for m, stay in enumerate(stays)]
        return self._step_values(gains, levels, step)

    def _total_codes(self) -> IntArray:
        codes = np.zeros(len(self.states), dtype=np.int64)
        for m, multisets in enumerate(self._multisets):
            if multisets:
                codes += self._space.codes(np.array(multisets, dtype=np.int64))[self.states[:, m]]
        return codes

    def _all_agreements(self) -> list[_Agreement]:
        """One for every proper subset of tenants that stay; that all stay is the state itself."""
        n_tenants = self.states.shape[1]
        if not self.n_states:
            return []
        subsets = [subset for size in range(n_tenants) for subset in combinations(range(n_tenants), size)]
        return [self._agreement(subset) for subset in subsets]

    def _agreement(self, subset: tuple[int, ...]) -> _Agreement:
        _, group = np.unique(self.states[:, subset], axis=0, return_inverse=True)
        group = group.reshape(-1)
        if not subset:
            group = np.zeros(self.n_states, dtype=np.int64)
        order = np.argsort(group, kind="stable")
        first = np.flatnonzero(np.diff(group[order], prepend=-1))
        stays = tuple(m in subset for m in range(self.states.shape[1]))
        return _Agreement(stays, group, order, first)
