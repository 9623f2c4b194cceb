"""``paper``: a problem's joint states as arrays for the compiled loops, and the best path beside given retrainings.

A joint state gives every tenant a multiset such that they fit the GPU together; 146 for two tenants
on an A100 with its five standard profiles. Symbols as in ``kernel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock

import numpy as np

from executor.mig import Multiset
from planner.counts import CountSpace, joint_states, tenant_multisets
from planner.engines.arrays import Floats, Int64s, Ints
from planner.engines.paper.kernel import along
from planner.engines.paper.plan import Decisions, TenantDecision, initial_multisets
from planner.engines.schedule import Schedule, WindowFacts, profiles_at


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
        self._profile_names = problem.profile_names
        self.multisets = [tenant_multisets(problem, tenant) for tenant in problem.tenants]
        self.states = joint_states(problem)
        self.group = _groups(self.states)
        self.steady, self.loss = self._gains()
        self._space = CountSpace(problem.gpu, problem.profile_names)
        self._codes = self._total_codes()
        # Tables are made side by side, and lists are numbered where they are first asked for.
        self._lock = Lock()
        self._numbers: dict[tuple[Multiset, int], int] = {}
        self._lists: list[Ints] = []
        self._packed: tuple[Ints, Int64s] | None = None
        self._step_maxima: dict[tuple[Multiset, tuple[int, ...]], Floats] = {}
        self.list_number(())

    @property
    def n_states(self) -> int:
        """K."""
        return len(self.states)

    def fitting(self, running: Sequence[str] = (), unavailable: int = 0) -> Ints:
        """The states that fit beside retrainings on these profiles and leave these memory slices free, ascending."""
        return self._lists[self.list_number(running, unavailable)]

    def list_number(self, running: Sequence[str], unavailable: int = 0) -> int:
        """The number of the list of states that ``fitting`` gives; 0 is beside nothing."""
        with self._lock:
            return self._numbered(self._counted(running), unavailable)

    def _counted(self, running: Sequence[str]) -> Multiset:
        return tuple(running.count(name) for name in self._profile_names)

    def _numbered(self, running: Multiset, unavailable: int) -> int:
        key = (running, unavailable)
        if key not in self._numbers:
            beside = self._space.codes(np.array([running], dtype=np.int64))
            # Two retrainings may not even fit alone; their code is then beyond what ``fits`` can judge.
            fits = (
                self._space.fits(self._codes + beside, unavailable)
                if self._is_feasible(running)
                else np.zeros(self.n_states, bool)
            )
            self._numbers[key] = len(self._lists)
            self._lists.append(np.flatnonzero(fits).astype(np.int32))
            self._packed = None
        return self._numbers[key]

    def _is_feasible(self, running: Multiset) -> bool:
        return bool(self._space.fits(self._space.codes(np.array([running], dtype=np.int64)))[0])

    def lists(self) -> tuple[Ints, Int64s]:
        """All lists that have a number, one after the other, and where each begins."""
        with self._lock:
            if self._packed is None:
                bounds = np.cumsum([0, *map(len, self._lists)])
                self._packed = (np.concatenate(self._lists), bounds)
            return self._packed

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
        key = (self._counted(running), levels)
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
        last = self._along(schedule, np.zeros((0, 0)))
        return float(last.max(initial=-np.inf)) + self.facts.salvage(schedule)

    def path(self, schedule: Schedule) -> Decisions | None:
        """What the tenants hold in the best path beside these retrainings; ``None`` if some step has no room."""
        table = np.empty((self.problem.n_steps, self.n_states))
        last = self._along(schedule, table)
        if not np.isfinite(last.max(initial=-np.inf)):
            return None
        rows, by_tenant = self._back(schedule, table), {retraining.tenant: retraining for retraining in schedule}
        return tuple(
            TenantDecision(tuple(multisets[self.states[row, m]] for row in rows), by_tenant.get(m))
            for m, multisets in enumerate(self.multisets)
        )

    def _along(self, schedule: Schedule, table: Floats) -> Floats:
        levels, shares, beside = self._course(schedule)
        lists, bounds = self.lists()
        return along(self.steady, self.loss, self.group, lists, bounds, levels, shares, beside, self.opening, table)

    def _course(self, schedule: Schedule) -> tuple[Ints, Floats, Int64s]:
        """Levels, shares and state list of every step."""
        n_steps = self.problem.n_steps
        levels = np.zeros((n_steps, len(self.multisets)), dtype=np.int32)
        shares = np.ones(levels.shape)
        beside = np.zeros(n_steps, dtype=np.int64)
        borders = {0, n_steps, *(begin for begin, _, _ in self.problem.unavailable_spans)}
        for run in schedule:
            for step, level in self.facts.changes(run):
                levels[step:, run.tenant] = level
            if self.problem.tenants[run.tenant].swap_s > 0:
                shares[:, run.tenant] = self.facts.shares(run)
            borders |= {run.start_step, run.end_step}
        for begin, end in pairwise(sorted(borders)):
            mask = self.problem.unavailable_in(begin, end)
            beside[begin:end] = self.list_number(profiles_at(schedule, begin), mask)
        return levels, shares, beside

    def _back(self, schedule: Schedule, table: Floats) -> list[int]:
        """A path of the highest value, by finding for each state a predecessor that explains its value."""
        levels, shares, _ = self._course(schedule)
        rows = [int(table[-1].argmax())]
        for step in range(self.problem.n_steps - 1, 0, -1):
            row, total = rows[-1], table[step - 1].copy()
            for m, level in enumerate(levels[step]):
                differs = self.states[:, m] != self.states[row, m]
                loss, share = float(self.loss[m, level, step, row]), float(shares[step, m])
                if share != 1.0:
                    settled = float(self.steady[m, level, step, row])
                    loss = min(settled, share * settled) - min(settled - loss, share * (settled - loss))
                total -= np.where(differs, loss, 0.0)
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

    def _total_codes(self) -> Int64s:
        codes = np.zeros(self.n_states, dtype=np.int64)
        for m, multisets in enumerate(self.multisets):
            if self.n_states:
                codes += self._space.codes(np.array(multisets, dtype=np.int64))[self.states[:, m]]
        return codes


def _groups(states: Int64s) -> Ints:
    """By subset of tenants that change: each state's number among those that agree on the others, ``(2^M, K)``."""
    n_states, n_tenants = states.shape
    out = np.zeros((1 << n_tenants, n_states), dtype=np.int32)
    out[0] = np.arange(n_states)
    for subset in range(1, (1 << n_tenants) - 1):
        stay = [m for m in range(n_tenants) if not subset >> m & 1]
        _, number = np.unique(states[:, stay], axis=0, return_inverse=True)
        out[subset] = number.reshape(-1)
    return out
