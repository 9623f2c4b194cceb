"""A pool alone on the GPU, paying for every instance that its members hold: ``alone`` for several; ``physical``.

All members are served by what the pool holds, so their gains add up by multiset; each retrains on an instance of its
own. A *state* is the level of each member. From state to state a member's level rises; that costs what the price of its
retraining comes to that ends there, less what it adds (``WindowFacts.added``), and within an epoch the least of what
it comes to while the epoch lasts. So a bound is never too low by it, and a little too high where a level rises while an
epoch is under way.

Of states there are ``MOST_STATES`` at most. Beyond, a member earns by a level, in each step, what that adds at most to
the old one, whatever is held. So when it retrains does not depend on what is held, and its best is found by itself.
That is nearly all where most multisets serve it fully. Told apart are those for whom it is least so; of whom one level
is not better than another throughout, none is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from executor.compiled import compiled
from planner.arrays import Floats, Int64s, Ints, sums_before
from planner.counts import multiset_of, serving_multisets, tenant_multisets
from planner.engines.alone import over_cores, over_supersets, removal_of
from planner.engines.schedule import WindowFacts
from planner.problem import Retraining

MOST_STATES = 16
"""Combinations of levels that are distinguished."""


class _Rise(NamedTuple):
    """A member's level changes: from one state to another.

    Attributes:
        source: The state before.
        target: The state after; its number is higher.
        row: Whose level, and to which one: a row of the costs.
    """

    source: int
    target: int
    row: int


class _Row(NamedTuple):
    """A member's level in the costs of rises.

    Attributes:
        ways: Its retrainings that lead there, each with its profile's place and what it adds by start.
        ahead: Steps after a rise in which its retraining may end at no cost of its own; behind: before it.
    """

    ways: Sequence[tuple[Retraining, int, Floats]]
    ahead: int
    behind: int


class PoolSubproblem:
    """A pool's problem when it has the GPU to itself.

    Attributes:
        used: From the last call: instances held by profile, inference and retrainings, ``(n_steps, n_profiles)``.
        choices: From the last call: its members' retrainings, but for those in progress.
        undecided: The members that may start a retraining of which ``choices`` say nothing.
    """

    used: Floats
    choices: tuple[Retraining, ...]

    def __init__(self, facts: WindowFacts, members: Sequence[int]) -> None:
        self._facts, self._members, problem = facts, members, facts.problem
        first = problem.tenants[members[0]]
        multisets = sorted(serving_multisets(problem, first), key=sum)
        self._counts = np.array(multisets, dtype=np.float64)
        number = {multiset: node for node, multiset in enumerate(multisets)}
        self._removal, may_hold = removal_of(number), set(tenant_multisets(problem, first))
        self._may_hold = np.array([multiset in may_hold for multiset in multisets])
        self._barred = np.where(self._may_hold, 0.0, -np.inf)
        self._opening, initial = self._barred, None
        if not facts.is_free:
            held = [place.profile.name for place, m in facts.initial_held or () if m == problem.holder_of[members[0]]]
            initial = number.get(multiset_of(problem, held), 0)
            self._opening = np.where(np.arange(len(number)) == initial, 0.0, -np.inf)
        gains = {m: self._gains(m, multisets, initial) for m in members}
        self._more = {m: [own.max(axis=1) for own in gains[m] - gains[m][0]] for m in members}
        self._told = self._told_apart(gains)
        self.undecided = frozenset(m for m in members if m in facts.movers and m not in self._told)
        self._states = [*product(*(range(gains[m].shape[0]) for m in self._told))]
        self._make_states(gains)

    def _gains(self, m: int, multisets: Sequence[tuple[int, ...]], initial: int | None) -> Floats:
        """What the member earns by its levels that last to the window's end, ``(n_levels, n_steps, n_multisets)``."""
        facts, table = self._facts, self._facts.gains[m]
        n_levels, columns = 1 + len(facts.problem.tenants[m].options), [table.column[own] for own in multisets]
        steady = table.steady[:n_levels, :, columns]
        for step, column in enumerate(facts.initial_columns[:, m] if initial is not None else ()):
            steady[:, step, initial] = table.steady[:n_levels, step, column]
        return steady

    def _told_apart(self, gains: Mapping[int, Floats]) -> tuple[int, ...]:
        """The members whose levels make states: those first whose gain by a level depends most on what is held."""
        found, n_states = list[int](), 1

        def leeway(m: int) -> float:
            rises = (gains[m][1:] - gains[m][0])[:, :, self._may_hold]
            return float((rises.max(axis=2) - rises.min(axis=2)).sum()) if rises.size else 0.0

        for m in sorted((m for m in gains if m in self._facts.actors), key=lambda m: (-leeway(m), m)):
            rises = gains[m][1:] - gains[m][0]
            is_ordered = all((rise >= 0).all() or (rise <= 0).all() for rise in rises)
            if is_ordered and n_states * len(gains[m]) <= MOST_STATES:
                found.append(m)
                n_states *= len(gains[m])
        return tuple(found)

    def _make_states(self, gains: Mapping[int, Floats]) -> None:
        """What each state earns in the steps before each, what it is worth at the end, and how states follow."""
        told = self._told
        others = sum((gains[m][0] for m in self._members if m not in told), np.zeros_like(gains[self._members[0]][0]))
        self._untold = [(m, self._rows_of(m, gains[m])) for m in self._members if m not in told]
        number = {state: place for place, state in enumerate(self._states)}
        earned = [others + sum(gains[m][level] for m, level in zip(told, state, strict=True)) for state in number]
        self._earned = np.ascontiguousarray(sums_before(np.stack(earned), axis=1))
        self._rows, rows = list[_Row](), dict[tuple[int, int], int]()
        for m in told:
            rows |= {(m, level): len(self._rows) + place for place, level in enumerate(range(1, len(gains[m])))}
            self._rows += self._rows_of(m, gains[m])
        self._rises = [
            _Rise(number[state], number[(*state[:place], level, *state[place + 1 :])], rows[m, level])
            for state in self._states
            for place, m in enumerate(told)
            for level in range(1, len(gains[m]))
            if state[place] == 0
        ]
        self._last = np.array([self._worth_at_end(state) for state in self._states])

    def _rows_of(self, m: int, gains: Floats) -> list[_Row]:
        """One for each level of a member beyond the old one."""
        facts, found = self._facts, list[_Row]()
        names, spacing = facts.problem.profile_names, facts.epoch_steps
        for level in range(1, len(gains)):
            own = [way for way in facts.courses[m] if way is not None and way.level == level]
            ways = [(way, names.index(way.profile), facts.added(way)) for way in own]
            is_better = bool((gains[level] >= gains[0]).all())
            found.append(_Row(ways, *((spacing - 1, 0) if is_better else (0, spacing - 1))))
        return found

    def _worth_at_end(self, state: tuple[int, ...]) -> float:
        """Salvage of the members that were not retrained; −inf where one of them has to be."""
        waiting = [m for m, level in zip(self._told, state, strict=True) if level == 0]
        if not all(None in self._facts.courses[m] for m in waiting):
            return -np.inf
        return sum(self._facts.problem.tenants[m].salvages[0] for m in waiting)

    def best(self, prices: Floats) -> float:
        """The most that it earns net of prices, ``(n_steps, n_profiles)``; −inf if a retraining has no time."""
        facts, paid = self._facts, sums_before(prices)
        n_steps, n_nodes = facts.n_steps, len(self._barred)
        costs, ends = self._costs(paid)
        value = np.full((len(self._states), n_steps + 1, n_nodes), -np.inf)
        value[0, 0] = self._opening
        source, since, rise = (np.full(value.shape, -1, dtype=np.int32) for _ in range(3))
        rises = np.array(self._rises, dtype=np.int64).reshape(-1, len(_Rise._fields))
        lasting = (facts.first_step, int(facts.warm_steps[self._members[0]]), facts.epoch_steps)
        cost = np.ascontiguousarray(paid @ self._counts.T)
        _search(self._removal, self._barred, self._earned, cost, rises, costs, lasting, value, source, since, rise)
        final = value[:, n_steps] + self._last[:, None]
        state, node = (int(index) for index in np.unravel_index(int(final.argmax()), final.shape))
        self.used, self.choices = np.zeros((n_steps, prices.shape[1])), ()
        if np.isneginf(final[state, node]):
            return -np.inf
        by_themselves = sum(self._best_by_itself(m, rows, paid) for m, rows in self._untold)
        step = n_steps
        while True:
            if (number := rise[state, step, node]) >= 0:
                before, _, row = self._rises[number]
                self._retrain(self._rows[row], int(ends[row, step]), paid)
                state = before
            elif step > 0:
                begin = int(since[state, step, node])
                self.used[begin if begin >= 0 else step - 1 : step] += self._counts[node]
                if begin >= 0:
                    step, node = begin, int(source[state, step, node])
                else:
                    step -= 1
            else:
                return float(final.max()) + by_themselves

    def _best_by_itself(self, m: int, rows: Sequence[_Row], paid: Floats) -> float:
        """The most that a member's retraining adds whatever is held, its salvage with it."""
        best, chosen = -np.inf, None
        if None in self._facts.courses[m]:
            best = self._facts.problem.tenants[m].salvages[0]
        for level, row in enumerate(rows, start=1):
            later = np.append(np.cumsum(self._more[m][level][::-1])[::-1], 0.0)
            worth = later - self._exact(row, paid)
            if (most := float(worth.max())) > best:
                best, chosen = most, (row, int(worth.argmax()))
        if chosen is not None:
            self._retrain(*chosen, paid)
        return best

    def _retrain(self, row: _Row, end: int, paid: Floats) -> None:
        """Note the retraining that costs least of those that end there."""
        found = [
            (paid[end, profile] - paid[end - way.n_steps, profile] - added[end - way.n_steps], number)
            for number, (way, profile, added) in enumerate(row.ways)
            if 0 <= end - way.n_steps < len(added)
        ]
        way, profile, _ = row.ways[min(found)[1]]
        self.used[end - way.n_steps : end, profile] += 1.0
        if way.tenant not in self._facts.running_tenants:
            self.choices = tuple(sorted((*self.choices, way.at(end - way.n_steps))))

    def _costs(self, paid: Floats) -> tuple[Floats, Int64s]:
        """What each row's rise costs by step, and where its retraining ends then, ``(n_rows, n_steps + 1)`` each."""
        n_steps = self._facts.n_steps
        costs, ends = (
            np.full((len(self._rows), n_steps + 1), np.inf),
            np.zeros((len(self._rows), n_steps + 1), np.int64),
        )
        for number, row in enumerate(self._rows):
            exact, steps = self._exact(row, paid), np.arange(n_steps + 1)
            ends[number], costs[number] = steps, exact
            for shift in range(-min(row.behind, n_steps), min(row.ahead, n_steps) + 1):
                at = np.clip(steps + shift, 0, n_steps)
                is_less = exact[at] < costs[number]
                costs[number][is_less], ends[number][is_less] = exact[at][is_less], at[is_less]
        return costs, ends

    def _exact(self, row: _Row, paid: Floats) -> Floats:
        """What a retraining of a row costs at least that ends in each step, less what it adds, ``(n_steps + 1,)``."""
        exact = np.full(self._facts.n_steps + 1, np.inf)
        for way, profile, added in row.ways:
            n, last = way.n_steps, way.n_steps + len(added)
            price = paid[n:last, profile] - paid[: last - n, profile] - added
            exact[n:last] = np.minimum(exact[n:last], price)
        return exact

    def slacks(self) -> dict[int, dict[Retraining | None, Floats]]:
        """By member and way, how far each start falls short of the best at least: nothing is known of it."""
        facts = self._facts
        return {
            m: {
                way: np.zeros(1 if way is None else max(1, facts.n_steps - way.n_steps + 1)) for way in facts.courses[m]
            }
            for m in self._members
        }


_Lasting = tuple[int, int, int]
"""The first step with an epoch, Ω of the pool, and Ω."""


@compiled
def _search(  # noqa: C901, PLR0912 (one compiled loop)
    removal: Ints,
    barred: Floats,
    earned: Floats,
    paid: Floats,
    rises: Int64s,
    costs: Floats,
    lasting: _Lasting,
    value: Floats,
    source: Ints,
    since: Ints,
    rise: Ints,
) -> None:
    """The best net value by state, step and node, and how it comes about, ``(n_states, n_steps + 1, n_nodes)`` each.

    Args:
        removal: A node without one of its instances, −1 fills the row's end, ``(n_nodes, most)``.
        barred: 0 where a node may be held, else −inf, ``(n_nodes,)``.
        earned: What nodes earn in the steps before each, ``(n_states, n_steps + 1, n_nodes)``.
        paid: What they pay, ``(n_steps + 1, n_nodes)``.
        rises: As :class:`_Rise`, by rising source, ``(n_rises, 3)``.
        costs: By row and step, ``(n_rows, n_steps + 1)``.
        lasting: See there.
        value: In and out: −inf but for state 0 at step 0.
        source: Out: the node before the epoch that is just over.
        since: Out: when that began; −1 where the node was held on to.
        rise: Out: the rise that has just happened, −1: none.
    """
    n_states, n_steps, n_nodes = value.shape[0], value.shape[1] - 1, value.shape[2]
    above, above_at = np.empty(n_nodes), np.empty(n_nodes, np.int32)
    core, best, best_at = np.empty(n_nodes), np.empty(n_nodes), np.empty(n_nodes, np.int32)
    first, warm, spacing = lasting
    for t in range(n_steps + 1):
        for number in range(len(rises)):
            cost, before, after = costs[rises[number, 2], t], rises[number, 0], rises[number, 1]
            if cost < np.inf:
                for k in range(n_nodes):
                    if value[before, t, k] - cost > value[after, t, k]:
                        value[after, t, k] = value[before, t, k] - cost
                        rise[after, t, k] = number
        if t == n_steps:
            break
        ready, until = min(t + warm, n_steps), min(t + spacing, n_steps)
        ready = min(ready, until)
        for state in range(n_states):
            now, gains = value[state, t], earned[state]
            if now.max() == -np.inf:
                continue
            for k in range(n_nodes):
                held = now[k] + gains[t + 1, k] - gains[t, k] - paid[t + 1, k] + paid[t, k] + barred[k]
                if held > value[state, t + 1, k]:
                    value[state, t + 1, k] = held
                    since[state, t + 1, k] = -1
                core[k] = gains[ready, k] - gains[t, k]
            if t < first:
                continue
            over_supersets(removal, now, above, above_at)
            over_cores(removal, above, above_at, core, best, best_at)
            for k in range(n_nodes):
                changed = best[k] + gains[until, k] - gains[ready, k] - paid[until, k] + paid[t, k] + barred[k]
                if changed > value[state, until, k]:
                    value[state, until, k] = changed
                    since[state, until, k] = t
                    source[state, until, k] = best_at[k]
