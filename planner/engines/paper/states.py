"""``paper``: a problem's joint states as arrays for the compiled loops, and the best path beside given retrainings.

A joint state has a multiset for every tenant such that they fit the GPU together; 146 for two tenants
on an A100 with its five standard profiles. Symbols as in ``kernel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from executor.mig import Multiset
from planner.arrays import Floats, Int64s, Ints, agreeing
from planner.counts import codes_fit, codes_of, codes_of_states, joint_states, multiset_of, tenant_multisets
from planner.engines.paper.kernel import along
from planner.engines.paper.plan import Decisions, TenantDecision, goodput_of, initial_multisets
from planner.engines.schedule import Schedule, WindowFacts, profiles_at
from planner.engines.ties import SHARES, costs_nobody, with_reserves
from planner.levels import levels_of, lowered

Course = tuple[Ints, Int64s, Ints, Floats, Int64s]
"""What a schedule means for ``kernel.along``: lists, list_bounds, levels, shares, beside."""


class JointStates:
    """One ``paper`` problem; its arrays are made once and shared by all that is computed from them.

    Attributes:
        facts: The problem with its gain tables, which have ``changed``.
        problem: The problem.
        states: A row a joint state, an index into each tenant's ``multisets``, ``(K, M)``.
        multisets: By tenant, what it may hold.
        group: ``(2^M, K)``, see ``kernel``.
        steady: What each tenant earns by level, step and state, ``(M, n_levels, n_steps, K)``; level
            axes shorter than the longest are filled with the level before's.
        loss: How much less where its multiset has changed, likewise; never negative.
    """

    def __init__(self, facts: WindowFacts) -> None:
        self.facts = facts
        self.problem = problem = facts.problem
        self.multisets = [tenant_multisets(problem, tenant) for tenant in problem.tenants]
        self.states = joint_states(problem)
        self.group = agreeing(self.states).astype(np.int32)
        self.steady, self.loss = self._gains()
        self._codes = codes_of_states(problem, self.states)
        self._fitting: dict[tuple[Multiset, int], Ints] = {}
        self._step_maxima: dict[tuple[Multiset, tuple[int, ...]], Floats] = {}

    @property
    def n_states(self) -> int:
        """K."""
        return len(self.states)

    def fitting(self, running: Sequence[str] = (), unavailable: int = 0) -> Ints:
        """The states that fit beside retrainings on these profiles and leave these memory slices free, ascending."""
        beside = multiset_of(self.problem, running)
        if (beside, unavailable) not in self._fitting:
            gpu, names, codes = self.problem.gpu, self.problem.profile_names, self._codes + codes_of(np.array(beside))
            fits = codes_fit(gpu, names, codes, unavailable)
            self._fitting[beside, unavailable] = np.flatnonzero(fits).astype(np.int32)
        return self._fitting[beside, unavailable]

    @cached_property
    def opening(self) -> Floats:
        """What each state earns in step 0, changes from the initial state paid, ``(K,)``."""
        total = self.steady[:, 0, 0].sum(axis=0)
        for m, initial in enumerate(initial_multisets(self.problem)):
            if initial is not None:
                differs = np.array([multiset != initial for multiset in self.multisets[m]])
                total = total - np.where(differs[self.states[:, m]], self.loss[m, 0, 0], 0.0)
        return np.asarray(total, dtype=np.float64)

    def step_maxima(self, running: Sequence[str], levels: tuple[int, ...]) -> Floats:
        """The most that any step can earn with these retrainings running and these levels, ``(n_steps,)``.

        Changes cost nothing here, so sums of it are upper bounds. −inf where nothing fits.
        """
        key = (multiset_of(self.problem, running), levels)
        if key not in self._step_maxima:
            maxima = np.empty(self.problem.n_steps)
            for begin, end, mask in self.problem.unavailable_spans:
                fits = self.fitting(running, mask)
                steady = sum(self.steady[m, level][begin:end, fits] for m, level in enumerate(levels))
                maxima[begin:end] = np.max(steady, axis=1, initial=-np.inf)
            self._step_maxima[key] = maxima
        return self._step_maxima[key]

    def value(self, schedule: Schedule) -> float:
        """The most goodput beside these retrainings, and their salvage; −inf if some step has no room."""
        last = self._along(self._course(schedule), np.zeros((0, 0)))
        return float(last.max(initial=-np.inf)) + self.facts.salvage(schedule)

    def path(self, schedule: Schedule) -> Decisions | None:
        """What the tenants hold in the best path beside these retrainings; ``None`` if some step has no room."""
        course, table = self._course(schedule), np.empty((self.problem.n_steps, self.n_states))
        last = self._along(course, table)
        if not np.isfinite(last.max(initial=-np.inf)):
            return None
        rows, by_tenant = self._back(course, table), {retraining.tenant: retraining for retraining in schedule}
        return tuple(
            TenantDecision(tuple(multisets[self.states[row, m]] for row in rows), by_tenant.get(m))
            for m, multisets in enumerate(self.multisets)
        )

    def fullest_path(self, schedule: Schedule) -> Decisions | None:
        """The best path that has most in reserve (``ties``); ``None`` if some step has no room."""
        path = self.path(schedule)
        if path is None:
            return None
        known = goodput_of(self.facts, path).sum(axis=1)
        for share in SHARES:
            other = JointStates(with_reserves(self.facts, share)).path(schedule)
            assert other is not None
            if costs_nobody(goodput_of(self.facts, other).sum(axis=1), known):
                return other
        return path

    def _along(self, course: Course, table: Floats) -> Floats:
        return along(self.steady, self.loss, self.group, *course, self.opening, table)

    def _course(self, schedule: Schedule) -> Course:
        """Levels, shares and state list of every step, and the lists."""
        n_steps = self.problem.n_steps
        levels = np.zeros((n_steps, len(self.multisets)), dtype=np.int32)
        shares, beside, lists = np.ones(levels.shape), np.zeros(n_steps, dtype=np.int64), list[Ints]()
        borders = {0, n_steps, *(begin for begin, _, _ in self.problem.unavailable_spans)}
        for run in schedule:
            levels[:, run.tenant] = levels_of(self.facts.changes(run), n_steps)
            if self.problem.tenants[run.tenant].swap_s > 0:
                shares[:, run.tenant] = self.facts.shares(run)
            borders |= {run.start_step, run.end_step}
        for begin, end in pairwise(sorted(borders)):
            beside[begin:end] = len(lists)
            lists.append(self.fitting(profiles_at(schedule, begin), self.problem.unavailable_in(begin, end)))
        return np.concatenate(lists), np.cumsum([0, *map(len, lists)]), levels, shares, beside

    def _back(self, course: Course, table: Floats) -> list[int]:
        """A path of the highest value, by finding for each state a predecessor that explains its value."""
        _, _, levels, shares, _ = course
        rows = [int(table[-1].argmax())]
        for step in range(self.problem.n_steps - 1, 0, -1):
            row, total = rows[-1], table[step - 1].copy()
            for m, level in enumerate(levels[step]):
                settled = self.steady[m, level, step, row]
                kept = lowered(np.array([settled, settled - self.loss[m, level, step, row]]), shares[step, m])
                total -= np.where(self.states[:, m] != self.states[row, m], kept[0] - kept[1], 0.0)
            rows.append(int(total.argmax()))
        return rows[::-1]

    def _gains(self) -> tuple[Floats, Floats]:
        n_levels = max(len(tenant.accuracies) for tenant in self.problem.tenants)
        shape = (len(self.problem.tenants), n_levels, self.problem.n_steps, self.n_states)
        steady, loss = np.empty(shape), np.empty(shape)
        for m, (table, multisets) in enumerate(zip(self.facts.gains, self.multisets, strict=True)):
            assert table.changed is not None
            columns = np.array([table.column[multiset] for multiset in multisets], dtype=np.int64)
            own = columns[self.states[:, m]]
            for level in range(n_levels):
                known = min(level, len(table.steady) - 1)
                steady[m, level] = table.steady[known][:, own]
                loss[m, level] = steady[m, level] - table.changed[known][:, own]
        return steady, loss
