"""The search for the best fixed layout and the retrainings beside it, shared by both models' ``static``.

With the inference layout fixed, the worth of a retraining depends only on when it ends, so tenants compete
only for the room beside the layout. Layouts are tried in the order of their worth if no retraining hindered
another, until none left can beat the best found:

* up to two tenants that retrain: exact, from maxima over ranges of starts;
* more: one after the other in every order, each where it is worth most beside those before it, the
  last two jointly. Exact where no retraining lowers its tenant's goodput (moving one earlier then
  never harms), up to ``MAX_TRIALS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic

import numpy as np

from planner.engines.arrays import Bools, Floats, Int64s
from planner.engines.schedule import Incumbent, PlacedSchedule, Token, WindowFacts, above
from planner.problem import Retraining

MAX_TRIALS = 5_000
"""Partial schedules that are looked at; two retraining tenants take a few dozen."""

FixedLayout = tuple[int, PlacedSchedule[Token]]
"""A layout by its number, and the retrainings beside it, by tenant."""


@dataclass(frozen=True)
class Room(Generic[Token]):
    """What a layout leaves to retrainings.

    Attributes:
        tokens: By profile, each that a retraining on it might occupy.
        fits: Whether tokens can be occupied together in the stretch of that number.
    """

    tokens: Mapping[str, tuple[Token, ...]]
    fits: Callable[[int, tuple[Token, ...]], bool]


@dataclass(frozen=True)
class FixedLayouts(Generic[Token]):
    """Every layout that can be held all window long, with what it earns and leaves.

    Attributes:
        facts: The problem.
        borders: First step of each stretch over which the room stays the same; begins with 0.
        by_end: By tenant, goodput of the window, and salvage, if a level is reached at a step: ``(n_levels, n_holdings,
            n_steps + 1)``; level 0 stands for no retraining.
        by_way: By way to retrain whose tenant's level changes in other ways, the same by its start: ``(n_holdings,
            n_starts)``.
        holdings: What each tenant holds in each layout, ``(n_layouts, n_tenants)``.
        room: Which of ``rooms`` each layout leaves, ``(n_layouts,)``.
        rooms: The rooms.
    """

    facts: WindowFacts
    borders: tuple[int, ...]
    by_end: tuple[Floats, ...]
    by_way: Mapping[Retraining, Floats]
    holdings: Int64s
    room: Int64s
    rooms: tuple[Room[Token], ...]

    def by_start(self, way: Retraining) -> Floats:
        """Goodput of the window, and salvage, if its tenant retrains that way, by start: ``(n_holdings, n_starts)``."""
        if way in self.by_way:
            return self.by_way[way]
        values: Floats = self.by_end[way.tenant][way.level][:, way.n_steps :]
        return values


def values_by_way(facts: WindowFacts, m: int, gains: Floats) -> dict[Retraining, Floats]:
    """``FixedLayouts.by_way`` of tenant m from what its holdings earn, ``(n_levels, n_steps, n_holdings)``."""
    tenant = facts.problem.tenants[m]
    if not tenant.has_swaps:
        return {}
    earned = np.concatenate([np.zeros_like(gains[:, :1]), np.cumsum(gains, axis=1)], axis=1)
    return {way: facts.by_start(way, gains, earned) + tenant.salvages[way.level] for way in facts.ways(m)}


@dataclass(frozen=True, eq=False)
class _Way(Generic[Token]):
    """One way to retrain, or not to: values by start step, −inf where it has no room."""

    retraining: Retraining | None
    token: Token | None
    values: Floats

    @property
    def best(self) -> float:
        return float(self.values.max(initial=-np.inf))

    @property
    def startable(self) -> Startable:
        return Startable(self.values, self.retraining.n_steps if self.retraining is not None else 0)

    def at(self, start: int) -> PlacedSchedule[Token]:
        if self.retraining is None or self.token is None:
            return ()
        return ((self.retraining.at(start), self.token),)


class StaticSearch(Generic[Token]):
    """One search over the fixed layouts of a problem; ``best`` is what it found."""

    def __init__(self, layouts: FixedLayouts[Token]) -> None:
        self._layouts = layouts
        self._facts, self._movers = layouts.facts, layouts.facts.movers
        self._own: dict[tuple[int, int], Floats] = {}
        self._masked: dict[tuple[Retraining, bytes], Floats] = {}
        self._open_alone: dict[tuple[int, Token], Bools] = {}
        self.best: Incumbent[FixedLayout[Token]] | None = None
        self.n_valued = 0
        self.n_trials = 0

    def run(self, is_over: Callable[[], bool] | None = None) -> Incumbent[FixedLayout[Token]] | None:
        """The best layout with its retrainings; ``None`` if none has room for what must run.

        Once ``is_over``, it is the best found by then.
        """
        bounds = self.bounds()
        for layout in np.argsort(-bounds, kind="stable"):
            if bounds[layout] <= self._to_beat or self.n_trials >= MAX_TRIALS:
                break
            if self.best is not None and is_over is not None and is_over():
                break
            self.n_valued += 1
            self._extend(int(layout), (), self._unmoved(int(layout)), self._movers)
        return self.best

    def only(self, layout: int) -> Incumbent[FixedLayout[Token]] | None:
        """The best retrainings beside one layout; ``None`` if it has no room for what must run."""
        own = StaticSearch(self._layouts)
        own._extend(layout, (), own._unmoved(layout), own._movers)
        return own.best

    @property
    def _to_beat(self) -> float:
        return -np.inf if self.best is None else above(self.best.value)

    def bounds(self) -> Floats:
        """What each layout is worth if no retraining hinders another, ``(n_layouts,)``; −inf where one has no room."""
        layouts = self._layouts
        total = np.zeros(len(layouts.room))
        for m, by_end in enumerate(layouts.by_end):
            if m not in self._movers:
                total += by_end[0, layouts.holdings[:, m], 0]
        for number in range(len(layouts.rooms)):
            rows = np.flatnonzero(layouts.room == number)
            for m in self._movers:
                total[rows] += self._own_best(m, number)[layouts.holdings[rows, m]]
        return total

    def _unmoved(self, layout: int) -> float:
        """What the tenants without a choice earn."""
        layouts = self._layouts
        others = [m for m in range(len(layouts.by_end)) if m not in self._movers]
        return sum(float(layouts.by_end[m][0, layouts.holdings[layout, m], 0]) for m in others)

    def _own_best(self, m: int, room: int) -> Floats:
        """The most that tenant m can earn beside each of its holdings with the room to itself, ``(n_holdings,)``."""
        if (m, room) not in self._own:
            best = np.full(self._layouts.by_end[m].shape[1], -np.inf)
            for retraining in self._facts.choices[m]:
                if retraining is None:
                    np.maximum(best, self._layouts.by_end[m][0, :, 0], out=best)
                    continue
                for token in self._layouts.rooms[room].tokens.get(retraining.profile, ()):
                    np.maximum(best, self._best_beside(retraining, self._open(room, (), (token,))), out=best)
            self._own[m, room] = best
        return self._own[m, room]

    def _best_beside(self, retraining: Retraining, is_open: Bools) -> Floats:
        key = (retraining, is_open.tobytes())
        if key not in self._masked:
            starts = free_starts(is_open, retraining.n_steps)
            values = self._layouts.by_start(retraining)
            self._masked[key] = values[:, starts].max(axis=1, initial=-np.inf)
        return self._masked[key]

    def _extend(self, layout: int, placed: PlacedSchedule[Token], value: float, waiting: tuple[int, ...]) -> None:
        """Put the waiting tenants' retrainings beside those that have their place, in every order worth trying."""
        room = int(self._layouts.room[layout])
        self.n_trials += 1
        if self.n_trials > MAX_TRIALS:
            return
        ways = [self._ways(layout, room, placed, m) for m in waiting]
        if not all(ways) or value + sum(max(way.best for way in own_ways) for own_ways in ways) <= self._to_beat:
            return
        match ways:
            case []:
                self.best = Incumbent(value, (layout, tuple(sorted(placed, key=lambda pair: pair[0]))))
            case [one]:
                way = max(one, key=lambda way: way.best)
                self._extend(layout, (*placed, *way.at(int(way.values.argmax()))), value + way.best, ())
            case [first, second]:
                self._pair(layout, placed, value, (first, second))
            case _:
                for m, own_ways in zip(waiting, ways, strict=True):
                    rest = tuple(other for other in waiting if other != m)
                    for way in sorted(own_ways, key=lambda way: -way.best):
                        start = int(way.values.argmax())
                        self._extend(layout, (*placed, *way.at(start)), value + way.best, rest)

    def _ways(self, layout: int, room: int, placed: PlacedSchedule[Token], m: int) -> list[_Way[Token]]:
        """Every way for tenant m beside the placed retrainings that has a start."""
        found: list[_Way[Token]] = []
        holding = self._layouts.holdings[layout, m]
        for retraining in self._facts.choices[m]:
            if retraining is None:
                found.append(_Way(None, None, self._layouts.by_end[m][0, holding, :1]))
                continue
            for token in self._layouts.rooms[room].tokens.get(retraining.profile, ()):
                starts = free_starts(self._open(room, placed, (token,)), retraining.n_steps)
                values = np.where(starts, self._layouts.by_start(retraining)[holding], -np.inf)
                found.append(_Way(retraining, token, values))
        return [way for way in found if way.best > -np.inf]

    def _pair(
        self,
        layout: int,
        placed: PlacedSchedule[Token],
        value: float,
        ways: tuple[Sequence[_Way[Token]], Sequence[_Way[Token]]],
    ) -> None:
        """The last two tenants' retrainings, jointly: every pair of ways and starts."""
        room = int(self._layouts.room[layout])
        pairs = sorted(((a, b) for a in ways[0] for b in ways[1]), key=lambda pair: -(pair[0].best + pair[1].best))
        seen: set[tuple[object, ...]] = set()
        for first, second in pairs:
            if value + first.best + second.best <= self._to_beat:
                return
            together = np.ones(self._facts.n_steps, dtype=np.bool_)
            if first.token is not None and second.token is not None:
                together = self._open(room, placed, (first.token, second.token))
            parts = (first.values.tobytes(), second.values.tobytes(), together.tobytes())
            key = (first.retraining, second.retraining, *map(hash, parts))
            if key in seen:
                continue
            seen.add(key)
            sum_of, start, other = best_starts(first.startable, second.startable, together)
            if value + sum_of > self._to_beat:
                chosen = (*placed, *first.at(start), *second.at(other))
                self._extend(layout, chosen, value + sum_of, ())

    def _open(self, room: int, placed: PlacedSchedule[Token], tokens: tuple[Token, ...]) -> Bools:
        """Whether the tokens can be occupied in each step beside the placed retrainings, ``(n_steps,)``."""
        if not placed and len(tokens) == 1 and (room, tokens[0]) in self._open_alone:
            return self._open_alone[room, tokens[0]]
        n_steps, fits = self._facts.n_steps, self._layouts.rooms[room].fits
        steps = {*self._layouts.borders, *(s for run, _ in placed for s in (run.start_step, run.end_step))}
        edges = [*sorted(step for step in steps if step < n_steps), n_steps]
        is_open = np.empty(n_steps, dtype=np.bool_)
        for begin, end in pairwise(edges):
            beside = tuple(token for run, token in placed if run.start_step <= begin < run.end_step)
            stretch = int(np.searchsorted(self._layouts.borders, begin, side="right")) - 1
            is_open[begin:end] = fits(stretch, (*beside, *tokens))
        if not placed and len(tokens) == 1:
            self._open_alone[room, tokens[0]] = is_open
        return is_open


@dataclass(frozen=True, eq=False)
class Startable:
    """A retraining that takes ``n_steps`` from its start on; 0 for one that does not run.

    ``values`` are goodput by start step, −inf where there is no room, ``(n_starts,)``.
    """

    values: Floats
    n_steps: int


def free_starts(is_open: Bools, n_steps: int) -> Bools:
    """From which steps on ``n_steps`` steps are open, ``(n − n_steps + 1,)``."""
    closed = np.concatenate([[0], np.cumsum(~is_open)])
    return np.asarray(closed[n_steps:] == closed[: len(closed) - n_steps], dtype=np.bool_)


def best_starts(first: Startable, second: Startable, together: Bools) -> tuple[float, int, int]:
    """The best sum and its starts, the earliest of equals; −inf if there are none.

    ``together`` says of each step whether both may run in it, ``(n_steps,)``.
    """
    if not first.n_steps or not second.n_steps or together.all():
        a, b = int(first.values.argmax()), int(second.values.argmax())
        return float(first.values[a] + second.values[b]), a, b
    best = (-np.inf, 0, 0)
    for own, other in _ranges(first, second, together):
        a_in, b_in = _argmax_in(first.values, own), _argmax_in(second.values, other)
        if a_in is not None and b_in is not None:
            best = max(best, (float(first.values[a_in] + second.values[b_in]), -a_in, -b_in))
    ahead, behind = _in_turn(first, second), _in_turn(second, first)
    best = max(best, (ahead[0], -ahead[1], -ahead[2]), (behind[0], -behind[2], -behind[1]))
    return best[0], -best[1], -best[2]


_Range = tuple[int, int]


def _ranges(first: Startable, second: Startable, together: Bools) -> Iterator[tuple[_Range, _Range]]:
    """Ranges of starts, each with all of the other's, that overlap only within one run of ``together``.

    Two retrainings overlap from the later start to the earlier end. That stays within [u, w) iff
    one of the two starts is ≥ u and one of the two ends ≤ w: four ways to choose the ones.
    """
    edges = np.flatnonzero(np.diff(together, prepend=False, append=False))
    most = len(together)
    for u, w in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        ends = (w - first.n_steps + 1, w - second.n_steps + 1)
        yield (u, ends[0]), (0, most)
        yield (0, most), (u, ends[1])
        yield (u, most), (0, ends[1])
        yield (0, ends[0]), (u, most)


def _argmax_in(values: Floats, span: _Range) -> int | None:
    """The first best position in [first, last) of the range; ``None`` if the range holds none."""
    part = values[max(span[0], 0) : max(span[1], 0)]
    return max(span[0], 0) + int(part.argmax()) if len(part) else None


def _in_turn(first: Startable, second: Startable) -> tuple[float, int, int]:
    """The best of the first and of the second after its end."""
    n_starts = len(second.values) - first.n_steps
    if n_starts <= 0:
        return -np.inf, 0, 0
    before = np.maximum.accumulate(first.values)
    sums = before[np.minimum(np.arange(n_starts), len(before) - 1)] + second.values[first.n_steps :]
    start = int(sums.argmax())
    return float(sums[start]), int(first.values[: start + 1].argmax()), start + first.n_steps
