"""``physical``: the best plan for one schedule of retrainings, on placements or on counts.

One compiled loop (``path_kernel``) answers both. On placed nodes it finds the plan, on counted ones an upper bound
of it in a fraction of the time.

An epoch is considered in every step as long as steps × nodes stay below ``MAX_NODE_EPOCHS``, which three
tenants reach at 2,000 steps and six at 200. On larger problems epochs are considered only at every k-th step
and around the starts and ends of retrainings, and of slices that are not ours. Plans stay exact in value and keep
every rule, but better ones between those steps may be missed. So no value here is a bound there, and that
there is no path proves nothing (``HeldSetPath.skips_epochs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from executor.mig import Placement
from planner.arrays import Bools, Floats, Int64s, Ints
from planner.engines.physical.held_sets import anywhere
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path_kernel import longest_path
from planner.engines.remembered import remembered
from planner.engines.schedule import PlacedSchedule, Schedule, WindowFacts, schedule_of

MAX_NODE_EPOCHS = 60_000_000
"""Steps with an epoch × nodes: a second or two of one thread, and 300 MB while a plan is traced."""

Taken = tuple[tuple[Placement, ...], int]
"""What retrainings occupy, and the memory slices that are not ours, one bit each."""

MAX_LISTED = 40_000_000
"""Nodes in all kept lists together: 160 MB."""

_Lists = tuple[Ints, Int64s]
"""Node lists one after the other, and their bounds; list i is ``lists[bounds[i]:bounds[i + 1]]``."""

_Trace = tuple[Ints, Bools]
"""Where the kernel notes how values were reached, ``came_from`` and ``by_epoch``; empty to save the work."""

_NO_TRACE: _Trace = (np.zeros((0, 0), dtype=np.int32), np.zeros((0, 0), dtype=np.bool_))
_NO_BEST = np.zeros(0)


@dataclass(frozen=True)
class Path:
    """The held sets of a plan as nodes.

    Attributes:
        value: Goodput and salvage in requests.
        held: (step, node held from there on): the window's start, then every change.
    """

    value: float
    held: tuple[tuple[int, int], ...]


class HeldSetPath:
    """Longest paths over one graph for one problem; keeps what schedules share.

    Args:
        facts: The problem.
        nodes: Placed or counted nodes. On counted ones only the profiles of placed retrainings count.
    """

    def __init__(self, facts: WindowFacts, nodes: Nodes) -> None:
        self._facts, self.nodes = facts, nodes
        self._epoch_steps = min(facts.epoch_steps, facts.n_steps + 1)  # room for longer ones would only cost memory
        n_kept = max(1, MAX_LISTED // len(nodes))
        self._nodes, self._beside = remembered(self._compatible, n_kept), remembered(self._fitting, n_kept)

    @property
    def skips_epochs(self) -> bool:
        """Whether epochs are considered in some steps only: a better plan than the best path may exist then."""
        return self._stride > 1

    @property
    def _stride(self) -> int:
        return -(-len(self.nodes) * self._facts.n_steps // MAX_NODE_EPOCHS)

    def value(self, placed: PlacedSchedule[Placement], *, is_steady: bool = False) -> float:
        """The best plan's goodput with these retrainings, and their salvage; −inf if there is none.

        ``is_steady`` allows one epoch only, as soon as the initial state allows it; none without such a state.
        """
        return self.path(placed, is_steady=is_steady, trace=False).value

    def path(self, placed: PlacedSchedule[Placement], *, is_steady: bool = False, trace: bool = True) -> Path:
        """The best plan itself; its value is −inf if there is none.

        ``is_steady`` is as :meth:`value` has it. Without ``trace`` what is held is left out.
        """
        facts, schedule = self._facts, schedule_of(placed)
        earned, rows = facts.earned(schedule), self._epoch_rows(schedule)
        if is_steady:
            rows = np.where(np.arange(facts.n_steps) == facts.first_step, rows, -1)
        traced = _NO_TRACE
        if trace:
            shape = (int(rows.max()) + 1, len(self.nodes))
            n_after = facts.n_steps + self._epoch_steps
            traced = np.zeros(shape, dtype=np.int32), np.zeros((n_after, len(self.nodes)), dtype=np.bool_)
        value = None if facts.is_free else self._fixed_values(earned)[facts.first_step] - self._full_value(earned)
        begin = (0, self._begun(value))
        forced = facts.first_step if facts.problem.is_repartitioned else -1
        free = self._kernel(*self._step_lists(placed), rows, earned, begin, traced, _NO_BEST, forced)
        last = int(free.argmax())
        return Path(float(free[last]) + facts.salvage(schedule), self._traced(last, rows, *traced) if trace else ())

    def _full_value(self, earned: Floats) -> float:
        """What the initial held set would earn until it may change if all of it served."""
        columns = self.nodes.column[:, self.nodes.initial]
        return float(earned[np.arange(len(columns)), self._facts.first_step, columns].sum())

    def _begun(self, value: float | None) -> Floats:
        """What each node is worth to begin with: the initial one ``value``; every held set nothing, if that is free."""
        free = np.full(len(self.nodes), -np.inf)
        if value is None:
            free[self.nodes.is_held] = 0.0
        else:
            free[self.nodes.initial] = value
        return free

    def _kernel(
        self,
        lists: _Lists,
        hold: Int64s,
        epoch: Int64s,
        rows: Int64s,
        earned: Floats,
        begin: tuple[int, Floats],
        traced: _Trace,
        best_by_step: Floats,
        forced_step: int = -1,
    ) -> Floats:
        nodes, steps = self.nodes, (self._epoch_steps, forced_step)
        graph = nodes.removal, nodes.column, nodes.first_column, nodes.is_held
        terms = earned, self._facts.warm_steps
        return longest_path(*graph, *lists, hold, epoch, rows, *terms, *steps, *begin, *traced, best_by_step)

    def _traced(self, node: int, rows: Int64s, came_from: Ints, by_epoch: Bools) -> tuple[tuple[int, int], ...]:
        """What is held along the way to the last ``node``; epochs that change nothing are none."""
        found: list[tuple[int, int]] = []
        step = len(by_epoch) - 1
        while step > 0:
            if not by_epoch[step, node]:
                step -= 1
                continue
            step -= self._epoch_steps
            before = int(came_from[rows[step], node])
            if before != node:
                found.append((step, node))
            node = before
        return ((0, node), *reversed(found))

    def step_totals(self, earned: Sequence[Floats]) -> tuple[Floats, Floats]:
        """What each held set earns in each step, ``(n_held, n_steps)``; and the initial one, until it may change.

        ``earned`` is by tenant, ``(n_steps + 1, n_columns)`` each.
        """
        by_group = ((reduce(np.add, [earned[m] for m in members]), column) for members, column in self._groups)
        totals: Floats = reduce(np.add, [np.diff(own, axis=0).T[column] for own, column in by_group])
        return totals, np.diff(self._fixed_values(earned))[: self._facts.first_step]

    @cached_property
    def _groups(self) -> list[tuple[list[int], Ints]]:
        """Tenants with the same column in every held set, as a pool's members have, and that column, ``(n_held,)``."""
        columns, found = self.nodes.column[:, self.nodes.is_held], dict[tuple[int, bytes], list[int]]()
        for m, (table, column) in enumerate(zip(self._facts.gains, columns, strict=True)):
            found.setdefault((len(table.multisets), column.tobytes()), []).append(m)
        return [(members, columns[members[0]]) for members in found.values()]

    def step_maxima(self, busy: tuple[str, ...], totals: Floats, fixed: Floats) -> Floats:
        """The most that any held set earns in each step beside ``busy`` profiles, ``(n_steps,)``; −inf without one.

        Before the held set may change it is the initial one's. The others are :meth:`step_totals`.
        """
        facts, first = self._facts, self._facts.first_step
        best = np.full(facts.n_steps, -np.inf)
        for begin, end, fits in self._beside(busy):
            if (is_held := fits[self.nodes.is_held]).any():
                best[begin:end] = totals[is_held, begin:end].max(axis=0)
        if first:
            best[:first] = np.where(self._may_stay(busy)[:first], fixed, -np.inf)
        return best

    def _fitting(self, busy: tuple[str, ...]) -> list[tuple[int, int, Bools]]:
        """(begin, end, which nodes fit beside ``busy`` profiles) by stretch in which the same slices are ours."""
        problem = self._facts.problem
        places = [anywhere(problem.gpu, name) for name in busy]
        return [(begin, end, self.nodes.compatible(places, mask)) for begin, end, mask in problem.unavailable_spans]

    def _may_stay(self, busy: tuple[str, ...]) -> Bools:
        """Whether the initial set keeps rule 4 and can be held beside ``busy`` in each step, ``(n_steps,)``."""
        initial, out = self.nodes.initial, np.zeros(self._facts.n_steps, dtype=np.bool_)
        for begin, end, fits in self._beside(busy):
            out[begin:end] = self.nodes.is_held[initial] and fits[initial]
        return out

    def interval_values(self, busy: tuple[str, ...], earned: Floats, starts: Iterable[int], longest: int) -> Floats:
        """What any plan can earn over [s0, s1) at most while exactly ``busy`` is occupied, ``(n + 1, n + 1)``.

        Ends are free: what is held at s0 serves at once. An epoch begun before s1 earns no more
        until then than holding on would have, so paths without it suffice. The initial state's
        steps are taken as they are. Where slices become ours or others', ends are free, too: an epoch that makes room
        there may reach beyond s1. 0 for s0 ≥ s1, −inf where nothing can be held, and where s0 is none of
        ``starts`` or s1 − s0 is above ``longest``.
        """
        facts, n_steps, first = self._facts, self._facts.n_steps, self._facts.first_step
        holds = {end: _joined([self._nodes(frozenset()), _numbers(fits)]) for _, end, fits in self._beside(busy)}
        ones, rows = np.ones(n_steps, dtype=np.int64), self._epoch_rows(())
        fixed, may_stay = self._fixed_values(earned), self._may_stay(busy)
        out = np.full((n_steps + 1, n_steps + 1), -np.inf)
        out[np.tril_indices(n_steps + 1)] = 0.0

        def most_until(end: int, lists: _Lists, begin: int, value: float | None) -> Floats:
            """The most earned before each step up to ``end``, ``value`` before ``begin``; that is free for ``None``."""
            best, until = np.full(end + 1, -np.inf), np.ascontiguousarray(earned[:, : end + 1])
            beside = lists, ones[:end], ones[:end], rows[:end]
            self._kernel(*beside, until, (begin, self._begun(value)), _NO_TRACE, best)
            return best

        # Those of the stretches between changes continue the ones before them.
        borders = [begin for begin, _, _ in facts.problem.unavailable_spans[1:]]
        for start in sorted({*starts, *borders}, reverse=True):
            is_fixed = not facts.is_free and (start < first or start == 0)
            if start < first and not may_stay[start:first].all():
                stays_to = start + int(np.argmin(may_stay[start:first]))
                out[start, start + 1 : stays_to + 1] = fixed[start + 1 : stays_to + 1] - fixed[start]
                continue
            begin, value = max(start, first), fixed[first] - fixed[start]
            end = min(n_steps, begin + longest)
            border = min((step for step in holds if step > begin), default=n_steps)
            cut = min(end, border)
            best = most_until(cut, holds[border], begin, value if is_fixed else None)
            if is_fixed and not may_stay[min(first, n_steps - 1)]:
                # An epoch changes it at once, and may reach beyond s1: until it is over, ends are free.
                n = min(cut, first + facts.epoch_steps - 1)
                best[: n + 1] = value + most_until(n, holds[border], first, None)
            out[start, start + 1 : cut + 1] = best[start + 1 :]
            out[start, cut + 1 : end + 1] = best[cut] + out[cut, cut + 1 : end + 1]
            if is_fixed:
                out[start, start + 1 : first + 1] = fixed[start + 1 : first + 1] - fixed[start]
        return out

    def _step_lists(self, placed: PlacedSchedule[Placement]) -> tuple[_Lists, Int64s, Int64s]:
        """Node lists, and which of them may be held in each step and over [t, t + Ω) of each."""
        n_steps, problem = self._facts.n_steps, self._facts.problem
        runs, steps = [*placed, *self._facts.running], np.arange(n_steps)
        borders = {step for run, _ in runs for step in (run.start_step, run.end_step) if step < n_steps}
        firsts = sorted(borders | {begin for begin, _, _ in problem.unavailable_spans})
        taken: list[Taken] = []
        for step in firsts:
            busy = tuple(place for run, place in runs if run.start_step <= step < run.end_step)
            taken.append((busy, problem.unavailable_in(step, step + 1)))
        first = np.searchsorted(firsts, steps, side="right") - 1
        last = first[np.minimum(steps + self._epoch_steps, n_steps) - 1]
        is_new = (np.diff(first, prepend=-1) | np.diff(last, prepend=-1)) != 0
        pairs = zip(first[is_new].tolist(), last[is_new].tolist(), strict=True)
        keys = [frozenset[Taken](), *(frozenset([one]) for one in taken)]
        keys += [frozenset(taken[begin : end + 1]) for begin, end in pairs]
        return _joined([self._nodes(key) for key in keys]), 1 + first, len(taken) + np.cumsum(is_new)

    def _compatible(self, key: frozenset[Taken]) -> Ints:
        """The nodes compatible with each of what is taken, ascending."""
        fits = [self.nodes.compatible(busy, mask) for busy, mask in key]
        return _numbers(np.all(fits, axis=0)) if fits else np.arange(len(self.nodes), dtype=np.int32)

    def _fixed_values(self, earned: Iterable[Floats]) -> Floats:
        """What the initial held set, as it warms, earns before each step until it may change, ``(n_steps + 1,)``."""
        first, columns = self._facts.first_step, self._facts.initial_columns.T
        by_tenant = zip((np.diff(own[: first + 1], axis=0) for own in earned), columns, strict=True)
        own = sum(gains[np.arange(first), column] for gains, column in by_tenant)
        return np.pad(np.cumsum(np.append(0.0, own)), (0, self._facts.n_steps - first), mode="edge")

    def _epoch_rows(self, schedule: Schedule) -> Int64s:
        """Numbers the steps at which an epoch is considered, −1 for the others, ``(n_steps,)``."""
        facts = self._facts
        stride, steps = self._stride, np.arange(facts.n_steps)
        considered = (steps - facts.first_step) % stride == 0
        if stride > 1:
            considered[list(facts.around(facts.borders(schedule)))] = True
        considered &= steps >= (1 if facts.is_free else facts.first_step)
        return np.where(considered, np.cumsum(considered) - 1, -1)


def _numbers(fits: Bools) -> Ints:
    return np.flatnonzero(fits).astype(np.int32)


def _joined(lists: Sequence[Ints]) -> _Lists:
    return np.concatenate(lists), np.cumsum([0, *map(len, lists)])
