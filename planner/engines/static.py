"""The best layout that stays all window long, with the retrainings beside it, for both cost models.

With the inference layout fixed, what a retraining is worth depends only on how it runs and when it starts, so tenants
compete only for the room beside the layout. Layouts are tried in the order of their worth if no retraining hindered
another, until none left can beat the best found:

* up to two tenants that retrain: exact;
* more: one after the other in every order, each where it is worth most beside those before it, the
  last two jointly. Exact where no retraining lowers its tenant's goodput (moving one earlier then
  never harms), up to ``MAX_TRIALS``.

What stays lies on memory slices that are ours in every step in which it is held. A retraining holds its slices only
while it runs, and they are ours then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import pairwise, product
from typing import Generic, NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Int64s, sums_before
from planner.engines.remembered import remembered
from planner.engines.schedule import Incumbent, PlacedSchedule, Token, WindowFacts, above
from planner.problem import Retraining

MAX_TRIALS, FEW_TRIALS = 5_000, 600
"""Partial schedules that are looked at, and with more movers than are searched; two movers take a few dozen."""

StaticLayout = tuple[int, PlacedSchedule[Token]]
"""A layout by its number, and the retrainings beside it, by tenant."""


class _Way(NamedTuple, Generic[Token]):
    """One way to retrain, or not to: what it is worth by start, ``(n_starts,)``, −inf where it has no room; the most.

    ``placed`` is the retraining from step 0 on with what it occupies; empty for none, which has one start.
    """

    values: Floats
    best: float
    placed: PlacedSchedule[Token] = ()

    def at(self, start: int) -> PlacedSchedule[Token]:
        """The retraining started there."""
        return tuple((run.at(start), token) for run, token in self.placed)


class _Starts(dict[tuple[Token, int], Bools]):
    """From which steps on a token can be occupied for so many steps, where ``is_open`` tells of tokens in each step."""

    def __init__(self, is_open: Callable[[tuple[Token, ...]], Bools]) -> None:
        super().__init__()
        self._is_open = is_open

    def __missing__(self, key: tuple[Token, int]) -> Bools:
        token, n_steps = key
        self[key] = starts = free_starts(self._is_open((token,)), n_steps)
        return starts


@dataclass(eq=False)
class StaticSearch(Generic[Token]):
    """The search over layouts that may be held all window long, by what they earn and the room that they leave.

    Attributes:
        facts: The problem.
        gains: By tenant, what it earns by level, step and holding, ``(n_levels, n_steps, n_holdings)``.
        holdings: What each tenant holds in each layout, ``(n_layouts, n_tenants)``.
        room: Which room each layout leaves, ``(n_layouts,)``.
        tokens: By profile, each that a retraining on it might occupy.
        fits: Whether these tokens can be occupied together in a step beside what leaves each room, ``(n_rooms,)``.
        shape: What is the same for tokens that differ only in where they lie.
        work: How many layouts the last run looked at, and schedules beside them.
    """

    facts: WindowFacts
    gains: tuple[Floats, ...]
    holdings: Int64s
    room: Int64s
    tokens: Mapping[str, Sequence[Token]]
    fits: Callable[[int, tuple[Token, ...]], Bools]
    shape: Callable[[Sequence[Token]], object]
    work: dict[str, int] = field(default_factory=dict, init=False)
    _best: Incumbent[StaticLayout[Token]] | None = field(default=None, init=False)
    _settled: list[Floats] = field(default_factory=list, init=False)
    _options: list[list[tuple[Retraining, Token, Floats]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        facts, self.fits, self._room = self.facts, cache(self.fits), remembered(self._tokens_beside)
        self._open = remembered(self._open_in, 4_096)  # answers have a byte a step: with 200 steps a megabyte
        # Likewise, some dozens each: hashing the placed retrainings takes longer than all else.
        self._starts = remembered(self._starts_in, 512)
        changes = {begin for begin, _, _ in facts.problem.unavailable_spans} | {facts.first_step}
        self._borders = sorted({*changes, *(run.end_step for run, _ in facts.running)} - {facts.n_steps})
        for m, (tenant, gains) in enumerate(zip(facts.problem.tenants, self.gains, strict=True)):
            earned = sums_before(gains, axis=1)
            self._settled.append(earned[0, -1] + tenant.salvages[int(m in facts.running_tenants)])
            own = [(way, facts.by_start(way, gains, earned) + tenant.salvages[way.level]) for way in facts.ways(m)]
            self._options.append([(way, token, by) for way, by in own for token in self.tokens[way.profile]])

    def run(
        self, is_over: Callable[[], bool] | None = None, among: Iterable[int] | None = None
    ) -> Incumbent[StaticLayout[Token]] | None:
        """The best layout, or of those ``among`` them, with its retrainings; ``None`` if none has room for both.

        Once ``is_over``, it is the best found.
        """
        self._best, self.work = None, {"layouts": 0, "schedules": 0}
        numbers = np.arange(len(self.bounds)) if among is None else np.array([*among], dtype=np.int64)
        movers, seen = self.facts.movers, set[tuple[object, ...]]()
        for layout in numbers[np.argsort(-self.bounds[numbers], kind="stable")].tolist():
            is_hopeless = self.bounds[layout] <= self._to_beat or self.work["schedules"] >= self._most_trials
            if is_hopeless or (np.isfinite(self._to_beat) and is_over is not None and is_over()):
                break
            holdings = self.holdings[layout].tolist()
            alike = (self._room(self.room[layout])[1], *holdings)
            if alike not in seen:
                seen.add(alike)
                self.work["layouts"] += 1
                others = sum(own[holdings[m]] for m, own in enumerate(self._settled) if m not in movers)
                self._extend(layout, (), float(others), movers)
        return self._best

    @property
    def _most_trials(self) -> int:
        return FEW_TRIALS if self.facts.others else MAX_TRIALS

    @cached_property
    def bounds(self) -> Floats:
        """What each layout is worth if no retraining hinders another, ``(n_layouts,)``; −inf where one has no room."""
        facts = self.facts
        is_free = np.all([self.fits(begin, ()) for begin in self._borders], axis=0)
        total = np.where(is_free[self.room], 0.0, -np.inf)
        for m, settled in enumerate(self._settled):
            best = np.full((len(is_free), len(settled)), -np.inf)
            if None in facts.choices[m]:
                best[:] = settled
            for way, token, by_start in self._options[m]:
                patterns, which = np.unique(self._alone[token], axis=0, return_inverse=True)
                by_step = (np.repeat(pattern, np.diff([*self._borders, facts.n_steps])) for pattern in patterns)
                most = [by_start[:, free_starts(own, way.n_steps)].max(axis=1, initial=-np.inf) for own in by_step]
                np.maximum(best, np.reshape(most, (len(patterns), len(settled)))[which.reshape(-1)], out=best)
            total += best[self.room, self.holdings[:, m]]
        return total

    @property
    def _to_beat(self) -> float:
        return -np.inf if self._best is None else above(self._best.value)

    @cached_property
    def _alone(self) -> dict[Token, Bools]:
        """Whether each token has a place in each room and stretch between borders, ``(n_rooms, n_stretches)``."""
        tokens = dict.fromkeys(token for own in self._options for _, token, _ in own)
        return {token: np.column_stack([self.fits(begin, (token,)) for begin in self._borders]) for token in tokens}

    def _tokens_beside(self, room: int) -> tuple[list[Token], object]:
        """The tokens that ever have a place, and what is the same for rooms that differ only in where they lie."""
        free = {token: own[room].tobytes() for token, own in self._alone.items() if own[room].any()}
        return [*free], (self.shape([*free]), *free.values())

    def _extend(self, layout: int, placed: PlacedSchedule[Token], value: float, waiting: tuple[int, ...]) -> None:
        """Put the waiting tenants' retrainings beside those that have their place, in every order worth trying."""
        self.work["schedules"] += 1
        ways = self._ways(layout, placed, waiting)
        most = value + sum(max((way.best for way in own), default=-np.inf) for own in ways)
        if self.work["schedules"] > self._most_trials or most <= self._to_beat:
            return
        if len(waiting) > 2:
            for m, own in zip(waiting, ways, strict=True):
                rest = tuple(other for other in waiting if other != m)
                for way in sorted(own, key=lambda way: -way.best):
                    self._extend(layout, (*placed, *way.at(int(way.values.argmax()))), value + way.best, rest)
            return
        nothing: list[_Way[Token]] = [_Way(np.zeros(1), 0.0)]
        first, second = (*ways, nothing, nothing)[:2]
        for one, other in sorted(product(first, second), key=lambda pair: -(pair[0].best + pair[1].best)):
            if value + one.best + other.best <= self._to_beat:
                return
            tokens = tuple(token for _, token in (*one.placed, *other.placed))
            together = self._open(int(self.room[layout]), placed, tokens if len(tokens) == 2 else ())
            best, start, later = best_starts(one.values, other.values, together)
            if value + best > self._to_beat:
                chosen = sorted((*placed, *one.at(start), *other.at(later)), key=lambda pair: pair[0])
                self._best = Incumbent(value + best, (layout, tuple(chosen)))

    def _ways(self, layout: int, placed: PlacedSchedule[Token], waiting: tuple[int, ...]) -> list[list[_Way[Token]]]:
        """By waiting tenant, every way that has a start beside the placed retrainings."""
        room, found = int(self.room[layout]), list[list[_Way[Token]]]()
        has_place, starts = frozenset(self._room(room)[0]), self._starts(room, placed)
        for m in waiting:
            holding, own = self.holdings[layout, m], list[_Way[Token]]()
            if None in self.facts.choices[m]:
                own.append(_Way(self._settled[m][holding, None], self._settled[m][holding]))
            for way, token, by_start in self._options[m]:
                if token in has_place:
                    values = np.where(starts[token, way.n_steps], by_start[holding], -np.inf)
                    own.append(_Way(values, values.max(), ((way, token),)))
            found.append([way for way in own if way.best > -np.inf])
        return found

    def _starts_in(self, room: int, placed: PlacedSchedule[Token]) -> _Starts[Token]:
        return _Starts(partial(self._open, room, placed))

    def _open_in(self, room: int, placed: PlacedSchedule[Token], tokens: tuple[Token, ...]) -> Bools:
        """Whether the tokens can be occupied in each step beside the placed retrainings, ``(n_steps,)``."""
        n_steps = self.facts.n_steps
        ends = (step for run, _ in placed for step in (run.start_step, run.end_step) if step < n_steps)
        is_open = np.empty(n_steps, dtype=np.bool_)
        for begin, end in pairwise([*sorted({*self._borders, *ends}), n_steps]):
            beside = (token for run, token in placed if run.start_step <= begin < run.end_step)
            border = self._borders[bisect_right(self._borders, begin) - 1]
            is_open[begin:end] = self.fits(border, (*beside, *tokens))[room]
        return is_open


def free_starts(is_open: Bools, n_steps: int) -> Bools:
    """From which steps on ``n_steps`` steps are open, ``(n − n_steps + 1,)``."""
    closed = np.concatenate([[0], np.cumsum(~is_open)])
    return np.asarray(closed[n_steps:] == closed[: len(closed) - n_steps], dtype=np.bool_)


def best_starts(first: Floats, second: Floats, together: Bools) -> tuple[float, int, int]:
    """The best sum of what two retrainings are worth, and their starts, the earliest of equals; −inf if there are none.

    Args:
        first: What one is worth by start, −inf where it has no room; as many as its length leaves of the window.
        second: The other's.
        together: Whether both may run in a step, ``(n_steps,)``.
    """
    closed, n_other = np.flatnonzero(~together), len(together) + 1 - len(second)
    if not len(closed):
        a, b = int(first.argmax()), int(second.argmax())
        return float(first[a] + second[b]), a, b
    # The second ends before the first closed step of the first, begins after the last one, or needs no closed step.
    starts = np.arange(len(first))
    low, high = np.searchsorted(closed, starts), np.searchsorted(closed, starts + len(together) + 1 - len(first))
    latest = np.where(low < high, closed[np.minimum(low, len(closed) - 1)] - n_other + 1, len(second))
    earliest = np.where(low < high, closed[high - 1] + 1, 0)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(second)])[np.clip(latest, 0, len(second))]
    after = np.concatenate([np.maximum.accumulate(second[::-1])[::-1], [-np.inf]])[np.minimum(earliest, len(second))]
    anyway = second[free_starts(together, n_other)].max(initial=-np.inf)
    sums = first + np.maximum(np.maximum(before, after), anyway)
    a = int(sums.argmax())
    is_open = np.isin(np.arange(len(together)), closed[low[a] : high[a]], invert=True)
    return float(sums[a]), a, int(np.where(free_starts(is_open, n_other), second, -np.inf).argmax())
