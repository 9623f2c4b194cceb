"""``physical``: the best plan for one schedule of retrainings, on placements or on counts.

One compiled loop (``path_kernel``) answers both. On :class:`PlacedNodes` it gives the plan, on
:class:`CountedNodes` an upper bound of it in a fraction of the time.

An epoch is considered in every step as long as steps × nodes stay below ``MAX_NODE_EPOCHS``, which three
tenants reach at 2,000 steps and six at 200. On larger problems epochs are considered only at every k-th step
and around the starts and ends of retrainings, and of slices that are not ours. Plans stay exact in value and keep
every rule, but better ones between those steps may be missed. So no value here is a bound there, and that
there is no path proves nothing (``HeldSetPath.skips_epochs``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Never

import numpy as np

from planner.engines.arrays import Bools, Floats, Int64s, Ints
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path_kernel import longest_path
from planner.engines.schedule import PlacedSchedule, Schedule, Token, WindowFacts, schedule_of

MAX_NODE_EPOCHS = 60_000_000
"""Steps with an epoch × nodes: a second or two of one thread, and 300 MB while a plan is traced."""

Taken = tuple[tuple[Token, ...], int]
"""What retrainings occupy, and the memory slices that are not ours, one bit each."""

NOTHING_TAKEN: Taken[Never] = ((), 0)

MAX_LISTED = 40_000_000
"""Nodes in all kept lists together: 160 MB."""


@dataclass(frozen=True)
class Path:
    """The held sets of a plan as nodes.

    Attributes:
        value: Goodput and salvage in requests.
        first_node: What is held when the window opens.
        epochs: (step, node) of every change, ascending.
    """

    value: float
    first_node: int
    epochs: tuple[tuple[int, int], ...]


class HeldSetPath(Generic[Token]):
    """Longest paths over one graph for one problem; keeps what schedules share.

    Args:
        facts: The problem.
        nodes: Placed or counted nodes.
    """

    def __init__(self, facts: WindowFacts, nodes: Nodes[Token]) -> None:
        self._facts = facts
        self.nodes = nodes
        self._graph = nodes.graph
        self._running = tuple((run, nodes.token(placement)) for run, placement in facts.running)
        self._lists: dict[frozenset[Taken[Token]], Ints] = {}
        self._n_listed = 0

    def __len__(self) -> int:
        return len(self._graph)

    @property
    def skips_epochs(self) -> bool:
        """Whether epochs are considered in some steps only: a better plan than the best path may exist then."""
        return self._stride > 1

    @property
    def _stride(self) -> int:
        return -(-len(self) * self._facts.n_steps // MAX_NODE_EPOCHS)

    def value(self, placed: PlacedSchedule[Token], *, is_steady: bool = False) -> float:
        """The best plan's goodput with these retrainings, and their salvage; −inf if there is none.

        ``is_steady`` allows one epoch only, as soon as the initial state allows it; none without such a state.
        """
        return self._run(placed, trace=False, is_steady=is_steady).value

    def path(self, placed: PlacedSchedule[Token], *, is_steady: bool = False) -> Path:
        """The best plan itself; its value is −inf if there is none. ``is_steady`` is as :meth:`value` has it."""
        return self._run(placed, trace=True, is_steady=is_steady)

    def step_totals(self, earned: Floats) -> Floats:
        """What each held set earns in each step, ``(n_held, n_steps)``."""
        gains = np.diff(earned, axis=1)
        columns = self._graph.column[:, self._graph.is_held]
        totals: Floats = sum(gain.T[column] for gain, column in zip(gains, columns, strict=True))
        return totals

    def step_maxima(self, busy: Sequence[Token], earned: Floats, totals: Floats) -> Floats:
        """The most that any held set earns in each step beside ``busy``, ``(n_steps,)``; −inf if there is none.

        Before the held set may change it is the initial one's. ``totals`` are the :meth:`step_totals` of ``earned``.
        """
        facts, first = self._facts, self._facts.first_step
        best = np.full(facts.n_steps, -np.inf)
        for begin, end, mask in facts.problem.unavailable_spans:
            fits = self.nodes.compatible(busy, mask)[self._graph.is_held]
            if fits.any():
                best[begin:end] = totals[fits, begin:end].max(axis=0)
        if first:
            may_stay = self._may_stay(busy) & self._graph.is_held[self.nodes.initial]
            best[:first] = np.where(may_stay, np.diff(self._fixed_values(earned))[:first], -np.inf)
        return best

    def _may_stay(self, busy: Sequence[Token]) -> Bools:
        """Whether the initial set can be held beside ``busy`` in each step until it may change, ``(first_step,)``."""
        out = np.ones(self._facts.n_steps, dtype=np.bool_)
        for begin, end, mask in self._facts.problem.unavailable_spans if self._facts.first_step else ():
            out[begin:end] = self.nodes.compatible(busy, mask)[self.nodes.initial]
        return out[: self._facts.first_step]

    def interval_values(self, busy: Sequence[Token], earned: Floats, starts: Iterable[int], longest: int) -> Floats:
        """What any plan can earn over [s0, s1) at most while exactly ``busy`` is occupied, ``(n + 1, n + 1)``.

        Ends are free: what is held at s0 serves at once. An epoch begun before s1 earns no more
        until then than holding on would have, so paths without it suffice. The initial state's
        steps are taken as they are. Where slices become ours or others', ends are free, too: an epoch that makes room
        there may reach beyond s1. 0 for s0 ≥ s1, −inf where nothing can be held, and where s0 is none of
        ``starts`` or s1 − s0 is above ``longest``.
        """
        facts, n_steps = self._facts, self._facts.n_steps
        holds = {
            end: _Lists.of([self._nodes(frozenset([NOTHING_TAKEN])), self._nodes(frozenset([(tuple(busy), mask)]))])
            for _, end, mask in facts.problem.unavailable_spans
        }
        ones = np.ones(n_steps, dtype=np.int64)
        rows = self._epoch_rows(())
        out = np.full((n_steps + 1, n_steps + 1), -np.inf)
        out[np.tril_indices(n_steps + 1)] = 0.0
        first = facts.first_step
        fixed = self._fixed_values(earned)
        may_stay = self._may_stay(busy)
        # Those of the stretches between changes continue the ones before them.
        borders = [begin for begin, _, _ in facts.problem.unavailable_spans[1:]]
        for start in sorted({*starts, *borders}, reverse=True):
            is_fixed = not facts.is_free and (start < first or start == 0)
            if start < first and not may_stay[start:].all():
                stays_to = start + int(np.argmin(may_stay[start:]))
                out[start, start + 1 : stays_to + 1] = fixed[start + 1 : stays_to + 1] - fixed[start]
                continue
            value = fixed[first] - fixed[start] if is_fixed else 0.0
            end = min(n_steps, max(start, first) + longest)
            border = next((step for step in sorted(holds) if step > max(start, first)), n_steps)
            cut = min(end, border)
            best = np.full(cut + 1, -np.inf)
            until = np.ascontiguousarray(earned[:, : cut + 1])
            begin = (max(start, first), is_fixed, value)
            self._kernel(holds[border], ones[:cut], ones[:cut], rows[:cut], until, begin, _NO_TRACE, best)
            if is_fixed and not self._may_hold_on(holds[border]):
                # An epoch changes it at once, and may reach beyond s1: until it is over, ends are free.
                n = min(cut, first + facts.epoch_steps - 1)
                free, until = np.full(n + 1, -np.inf), np.ascontiguousarray(earned[:, : n + 1])
                self._kernel(holds[border], ones[:n], ones[:n], rows[:n], until, (first, False, 0.0), _NO_TRACE, free)
                best[: n + 1] = value + free
            out[start, start + 1 : cut + 1] = best[start + 1 :]
            out[start, cut + 1 : end + 1] = best[cut] + out[cut, cut + 1 : end + 1]
            if is_fixed:
                out[start, start + 1 : first + 1] = fixed[start + 1 : first + 1] - fixed[start]
        return out

    def _may_hold_on(self, hold: _Lists) -> bool:
        """Whether the initial set is one of the second list, and keeps rule 4."""
        initial, second = self.nodes.initial, hold.nodes[hold.bounds[1] : hold.bounds[2]]
        return bool(self._graph.is_held[initial] and (second == initial).any())

    def _run(self, placed: PlacedSchedule[Token], *, trace: bool, is_steady: bool) -> Path:
        facts, n_steps, schedule = self._facts, self._facts.n_steps, schedule_of(placed)
        earned = facts.earned(schedule)
        segments = self._segments(placed)
        value = self._initial_value(segments, earned)
        salvage = facts.salvage(schedule)
        if facts.first_step == n_steps or np.isneginf(value):
            return Path(value + salvage, self.nodes.initial, ())
        lists, hold, epoch = self._step_lists(segments)
        rows = self._epoch_rows(schedule)
        if is_steady:
            rows = np.where(np.arange(n_steps) == facts.first_step, rows, -1)
        n_rows = int(rows.max()) + 1
        shape = (n_rows, len(self)) if trace else (0, 0)
        traced = _Trace(
            np.zeros(shape, dtype=np.int32), np.zeros((n_steps + 1, len(self)) if trace else (0, 0), dtype=np.bool_)
        )
        start = (facts.first_step, not facts.is_free, value)
        best, node, last = self._kernel(lists, hold, epoch, rows, earned, start, traced, _NO_BEST)
        if not trace or not n_rows or np.isneginf(best):
            return Path(best + salvage, node, ())
        return self._trace(best + salvage, node, last, rows, traced)

    def _kernel(
        self,
        lists: _Lists,
        hold: Int64s,
        epoch: Int64s,
        rows: Int64s,
        earned: Floats,
        start: tuple[int, bool, float],
        traced: _Trace,
        best_by_step: Floats,
    ) -> tuple[float, int, int]:
        first_step, is_fixed, value = start
        graph, facts = self._graph, self._facts
        best, node, last = longest_path(
            graph.removal,
            graph.column,
            graph.is_held,
            lists.nodes,
            lists.bounds,
            hold,
            epoch,
            rows,
            earned,
            facts.warm_steps,
            min(facts.epoch_steps, facts.n_steps + 1),  # room for longer ones would only cost memory
            first_step,
            self.nodes.initial if is_fixed else -1,
            value,
            traced.came_from,
            traced.by_epoch,
            best_by_step,
        )
        return float(best), int(node), int(last)

    def _trace(
        self,
        value: float,
        node: int,
        last_epoch: int,
        rows: Int64s,
        traced: _Trace,
    ) -> Path:
        """Walk back from the window's end; epochs that change nothing are none."""
        epochs: list[tuple[int, int]] = []
        step = self._facts.n_steps
        if last_epoch >= 0:
            before = int(traced.came_from[rows[last_epoch], node])
            epochs.append((last_epoch, node))
            step, node = last_epoch, before
        while step > self._facts.first_step:
            if not traced.by_epoch[step, node]:
                step -= 1
                continue
            step -= self._facts.epoch_steps
            before = int(traced.came_from[rows[step], node])
            if before != node:
                epochs.append((step, node))
            node = before
        return Path(value, node, tuple(reversed(epochs)))

    def _segments(self, placed: PlacedSchedule[Token]) -> list[tuple[int, Taken[Token]]]:
        """(first step, what is taken) of every stretch in which that stays the same."""
        spans, problem = [*placed, *self._running], self._facts.problem
        borders = {step for run, _ in spans for step in (run.start_step, run.end_step)}
        borders |= {begin for begin, _, _ in problem.unavailable_spans}
        return [
            (
                step,
                (
                    tuple(token for run, token in spans if run.start_step <= step < run.end_step),
                    problem.unavailable_in(step, step + 1),
                ),
            )
            for step in sorted(borders)
            if step < self._facts.n_steps
        ]

    def _step_lists(self, segments: list[tuple[int, Taken[Token]]]) -> tuple[_Lists, Int64s, Int64s]:
        """Node lists, and which of them may be held in each step and over [t, t + Ω) of each."""
        n_steps = self._facts.n_steps
        steps = np.arange(n_steps)
        segment = np.searchsorted([first for first, _ in segments], steps, side="right") - 1
        last = segment[np.minimum(steps + self._facts.epoch_steps, n_steps) - 1]
        keys: dict[frozenset[Taken[Token]], int] = {frozenset([NOTHING_TAKEN]): 0}
        spans, inverse = np.unique(segment * len(segments) + last, return_inverse=True)
        numbers = []
        for span in spans:
            first_of, last_of = divmod(int(span), len(segments))
            key = frozenset(taken for _, taken in segments[first_of : last_of + 1])
            numbers.append(keys.setdefault(key, len(keys)))
        own = [keys.setdefault(frozenset([taken]), len(keys)) for _, taken in segments]
        lists = _Lists.of([self._nodes(key) for key in keys])
        return lists, np.array(own, dtype=np.int64)[segment], np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]

    def _nodes(self, key: frozenset[Taken[Token]]) -> Ints:
        """The nodes compatible with each of what is taken, ascending."""
        known = self._lists.get(key)
        if known is not None:
            return known
        fits = np.ones(len(self), dtype=np.bool_)
        for busy, mask in key:
            fits &= self.nodes.compatible(busy, mask)
        nodes = np.flatnonzero(fits).astype(np.int32)
        self._n_listed += len(nodes)
        if self._n_listed > MAX_LISTED:
            self._lists.clear()
            self._n_listed = len(nodes)
        self._lists[key] = nodes
        return nodes

    def _initial_value(self, segments: list[tuple[int, Taken[Token]]], earned: Floats) -> float:
        """What the initial held set earns until it may change; −inf if it may not be held so long."""
        facts = self._facts
        if facts.is_free or facts.first_step == 0:
            return 0.0
        fits = all(
            self.nodes.compatible(*taken)[self.nodes.initial] for first, taken in segments if first < facts.first_step
        )
        if not (fits and self._graph.is_held[self.nodes.initial]):
            return -np.inf
        return float(self._fixed_values(earned)[facts.first_step])

    def _fixed_values(self, earned: Floats) -> Floats:
        """What the initial held set, as it warms, earns before each step until it may change, ``(n_steps + 1,)``."""
        first, columns = self._facts.first_step, self._facts.initial_columns
        out = np.zeros(self._facts.n_steps + 1)
        for step in range(first):
            gain = 0.0
            for m, column in enumerate(columns[step]):
                gain += earned[m, step + 1, column] - earned[m, step, column]
            out[step + 1] = out[step] + gain
        out[first + 1 :] = out[first]
        return out

    def _epoch_rows(self, schedule: Schedule) -> Int64s:
        """Numbers the steps at which an epoch is considered, −1 for the others, ``(n_steps,)``."""
        facts = self._facts
        stride, steps = self._stride, np.arange(facts.n_steps)
        considered = (steps - facts.first_step) % stride == 0
        borders = {step for retraining in schedule for step in (retraining.start_step, retraining.end_step)}
        borders |= {begin for begin, _, _ in facts.problem.unavailable_spans[1:]}
        for border in borders if stride > 1 else ():
            prepared = (border, border - facts.epoch_steps, border + facts.epoch_steps)
            considered[[step for step in prepared if 0 <= step < facts.n_steps]] = True
        considered &= steps >= (1 if facts.is_free else facts.first_step)
        return np.where(considered, np.cumsum(considered) - 1, -1)


@dataclass(frozen=True)
class _Lists:
    """Node lists one after the other; list i is ``nodes[bounds[i]:bounds[i + 1]]``."""

    nodes: Ints
    bounds: Int64s

    @classmethod
    def of(cls, lists: Sequence[Ints]) -> _Lists:
        return cls(np.concatenate(lists), np.cumsum([0, *map(len, lists)]))


@dataclass(frozen=True)
class _Trace:
    """Where the kernel notes how values were reached; empty to save the work."""

    came_from: Ints
    by_epoch: Bools


_NO_TRACE = _Trace(np.zeros((0, 0), dtype=np.int32), np.zeros((0, 0), dtype=np.bool_))
_NO_BEST = np.zeros(0)
