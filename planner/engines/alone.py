"""One tenant alone on the GPU, paying for every instance that it holds (``prices``); both cost models.

Alone it has epochs of its own, any two at least Ω apart. What survives an epoch from H′ to H is counted, not placed:
as many instances of each profile as both have. ``paper`` is the same with Ω of one step and no warm-up: nothing
survives, and the step of an epoch earns what a changed multiset does.

Symbols: nodes are multisets H, partial ones included, numbered by size; u = min(t + Ω, n) and w = min(t + Ω_m, u) end
an epoch at t and its warm-up.

=======  ==================================================================================
G[t][H]  the best net value of [0, t) with H held and free to change at t, at level 0
M[t][C]  max of G[t][H′] over H′ ⊇ C
B[t][H]  the best net value of [t, n) with H held and free to change at t, at one level
=======  ==================================================================================

The maxima over supersets and subsets go one instance at a time, as in ``physical.path_kernel``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from executor.compiled import compiled
from executor.mig import Multiset
from planner.arrays import Floats, Int64s, Ints, sums_before
from planner.counts import large_enough_profiles, multiset_of, serving_multisets
from planner.engines.schedule import WindowFacts
from planner.problem import Reconfiguration, Retraining


class _Terms(NamedTuple):
    """What a tenant alone may do and earns.

    Attributes:
        removal: A node without one of its instances, −1 fills the row's end, ``(K, most)``.
        barred: 0 where a node holds an instance as large as ``min_profile``, else −inf, ``(K,)``.
        opening: 0 where a node may be held when the window opens, else −inf, ``(K,)``.
        settled: What a node earns in the steps before each, ``(n_levels, n + 1, K)``.
        changed: Likewise where its multiset has just changed (``paper``).
        first: First step with an epoch.
        warm: Ω_m; 0 in ``paper``.
        spacing: Ω.
        earliest: First step at which the level can change to each one, ``(n_levels,)``; n for level 0: never.
    """

    removal: Ints
    barred: Floats
    opening: Floats
    settled: Floats
    changed: Floats
    first: int
    warm: int
    spacing: int
    earliest: Int64s


class _Tables(NamedTuple):
    """The best net values, and how they come about.

    Attributes:
        free: G, ``(n + 1, K)``.
        above: M, likewise.
        above_at: The H′ of M.
        came_from: The H′ of the epoch that is just over, −1 where H was held on to.
        back: B by level, all 0 at level 0, ``(n_levels, n + 1, K)``.
        target: The H of an epoch that begins, −1 for holding on, likewise.
    """

    free: Floats
    above: Floats
    above_at: Ints
    came_from: Ints
    back: Floats
    target: Ints


_Scratch = tuple[Floats, Floats, Floats, Ints]
"""Values of nodes that a loop works out on its way, and where the last of them are from."""


class TenantSubproblem:
    """One tenant's problem when it has the GPU to itself; checkpoints count by ``WindowFacts.added``.

    Attributes:
        used: From the last call: instances held by profile, inference and retraining, ``(n_steps, n_profiles)``.
        choices: From the last call: its retraining, if there is one that is not in progress.
        switched: From the last call: what is earned net of the retraining's own price when the level changes at each
            step, ``(n_levels, n_steps + 1)``; at level 0 what is earned without any change.
    """

    used: Floats
    choices: tuple[Retraining, ...]

    def __init__(self, facts: WindowFacts, tenant: int) -> None:
        self._facts, self._tenant = facts, tenant
        ways = [way for way in facts.courses[tenant] if way is not None]
        self._ways = [(way, facts.problem.profile_names.index(way.profile), facts.added(way)) for way in ways]
        multisets = sorted(serving_multisets(facts.problem, facts.problem.tenants[tenant]), key=sum)
        self._counts = np.array(multisets, dtype=np.float64)
        self._terms = _terms(facts, tenant, multisets, ways)
        shape, of_levels = (facts.n_steps + 1, len(multisets)), self._terms.settled.shape
        free, above, back = np.empty(shape), np.empty(shape), np.zeros(of_levels)
        above_at, came_from, target = (np.full(size, -1, dtype=np.int32) for size in (shape, shape, of_levels))
        self._tables = _Tables(free, above, above_at, came_from, back, target)
        self.switched = np.full(of_levels[:2], -np.inf)
        self._worths: dict[Retraining | None, Floats] = {}

    def best(self, prices: Floats) -> float:
        """The most that it earns net of prices, ``(n_steps, n_profiles)``; −inf if its retraining has no time."""
        facts, paid, least = self._facts, sums_before(prices), -np.inf
        cost = paid @ self._counts.T
        _solve(self._terms, cost, self._tables, self.switched)
        if None in facts.courses[self._tenant]:
            least = float(self.switched[0, facts.n_steps]) + facts.problem.tenants[self._tenant].salvages[0]
        self._worths = {} if self._ways and np.isneginf(least) else {None: np.array([least])}
        for way, profile, added in self._ways:
            n, price = way.n_steps, paid[:, profile]
            self._worths[way] = (self.switched[way.level, n:] - price[n:] + price[:-n])[: len(added)] + added
        best, worth = max(self._worths.items(), key=lambda item: float(item[1].max()))
        taken = None if best is None else best.at(int(worth.argmax()))
        level, switch = (0, facts.n_steps) if taken is None else (taken.level, taken.end_step)
        self.used = self._counts[_held(self._terms, cost, self._tables, level, switch)]
        if taken is not None:
            self.used[taken.start_step : taken.end_step, facts.problem.profile_names.index(taken.profile)] += 1.0
        self.choices = () if taken is None or self._tenant in facts.running_tenants else (taken,)
        return float(worth.max())

    def slacks(self) -> dict[int, dict[Retraining | None, Floats]]:
        """Of the tenant, from the last call: how far each way falls short of the best by start, ``(n_starts,)``.

        ``None`` has one.
        """
        best = max(float(worth.max()) for worth in self._worths.values())
        return {self._tenant: {way: best - worth for way, worth in self._worths.items()}}


def _terms(facts: WindowFacts, m: int, multisets: Sequence[Multiset], ways: Sequence[Retraining]) -> _Terms:
    problem, table, tenant = facts.problem, facts.gains[m], facts.problem.tenants[m]
    columns, n_levels = [table.column[multiset] for multiset in multisets], 1 + len(tenant.options)
    number, settled = {multiset: node for node, multiset in enumerate(multisets)}, table.steady[:n_levels, :, columns]
    enough = {profile.name for profile in large_enough_profiles(problem, tenant)}
    is_large = np.array([name in enough for name in problem.profile_names])
    barred = np.where((np.array(multisets)[:, is_large] > 0).any(axis=1), 0.0, -np.inf)
    opening = barred
    if not facts.is_free:
        held = [place.profile.name for place, holder in facts.initial_held or () if holder == problem.holder_of[m]]
        state = problem.paper_initial
        # What may not serve the tenant counts as empty: it has to change.
        initial = number.get(multiset_of(problem, held if state is None else state.held.get(tenant.name, ())), 0)
        opening = np.where(np.arange(len(number)) == initial, 0.0, -np.inf)
        for step, column in enumerate(facts.initial_columns[:, m]):
            settled[:, step, initial] = table.steady[:n_levels, step, column]
    earned = np.ascontiguousarray(sums_before(settled, axis=1))
    ends = [[way.n_steps for way in ways if way.level == level] for level in range(1, n_levels)]
    earliest = np.array([facts.n_steps, *(min(own, default=facts.n_steps + 1) for own in ends)], dtype=np.int64)
    if problem.reconfiguration is not Reconfiguration.PAPER:
        lasting = (facts.first_step, int(facts.warm_steps[m]), facts.epoch_steps)
        return _Terms(removal_of(number), barred, opening, earned, earned, *lasting, earliest)
    assert table.changed is not None
    changed = np.ascontiguousarray(sums_before(table.changed[:n_levels, :, columns], axis=1))
    return _Terms(removal_of(number), barred, opening, earned, changed, 0, 0, 1, earliest)


def removal_of(number: Mapping[Multiset, int]) -> Ints:
    """Each multiset without one of its instances; −1 fills the row's end."""
    rows = [
        [number[(*multiset[:p], count - 1, *multiset[p + 1 :])] for p, count in enumerate(multiset) if count]
        for multiset in number
    ]
    width = max(1, *map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int32)


@compiled
def over_supersets(removal: Ints, values: Floats, best: Floats, best_at: Ints) -> None:
    """The best of each node's supersets, and which it is."""
    for node in range(len(values)):
        best[node], best_at[node] = values[node], node
    for node in range(len(values) - 1, -1, -1):
        for i in range(removal.shape[1]):
            part = removal[node, i]
            if part < 0:
                break
            if best[node] > best[part]:
                best[part], best_at[part] = best[node], best_at[node]


@compiled
def over_cores(removal: Ints, above: Floats, above_at: Ints, core: Floats, best: Floats, best_at: Ints) -> None:
    """For each node the best core within it: what the core earns plus ``above`` of it."""
    for node in range(len(core)):
        best[node], best_at[node] = above[node] + core[node], above_at[node]
        for i in range(removal.shape[1]):
            part = removal[node, i]
            if part < 0:
                break
            if best[part] > best[node]:
                best[node], best_at[node] = best[part], best_at[part]


@compiled
def _epoch(terms: _Terms, paid: Floats, t: int, level: int, switch: int, core: Floats, rest: Floats) -> int:
    """u; ``core`` is what a node earns while an epoch at t warms, and ``rest`` what it earns then, less its price.

    From ``switch`` on at ``level``, before at level 0.
    """
    until = min(t + terms.spacing, len(paid) - 1)
    ready = min(t + terms.warm, until)
    _between(terms.settled, level, t, switch, ready, core)
    _between(terms.settled, level, ready, switch, until, rest)
    for k in range(len(rest)):
        rest[k] += terms.barred[k] - paid[until, k] + paid[t, k]
    return until


@compiled
def _between(gains: Floats, level: int, begin: int, switch: int, end: int, out: Floats) -> None:
    """What nodes earn over [begin, end), from ``switch`` on at the level, before at level 0."""
    middle = min(max(begin, switch), end)
    if middle == end:
        for k in range(len(out)):
            out[k] = gains[0, end, k] - gains[0, begin, k]
    elif middle == begin:
        for k in range(len(out)):
            out[k] = gains[level, end, k] - gains[level, begin, k]
    else:
        for k in range(len(out)):
            out[k] = gains[0, middle, k] - gains[0, begin, k] + gains[level, end, k] - gains[level, middle, k]


@compiled
def _raise(values: Floats, sources: Ints, others: Floats, source: Ints) -> None:
    """Put the others in the place of values that they exceed, and their sources likewise."""
    for k in range(len(values)):
        if others[k] > values[k]:
            values[k], sources[k] = others[k], source[k]


@compiled
def _hold(terms: _Terms, paid: Floats, t: int, level: int, values: Floats, out: Floats) -> None:
    """The values and what holding on to each node in step t is worth, less its price."""
    gains = terms.settled[level]
    for k in range(len(out)):
        out[k] = values[k] + gains[t + 1, k] - gains[t, k] - paid[t + 1, k] + paid[t, k] + terms.barred[k]


@compiled
def _forward(terms: _Terms, paid: Floats, tables: _Tables, scratch: _Scratch) -> None:
    """``free``, ``above``, ``above_at`` and ``came_from``."""
    n_steps, n_nodes = len(paid) - 1, len(terms.barred)
    moved, moved_from = np.empty((n_steps, n_nodes)), np.empty((n_steps, n_nodes), np.int32)
    (core, rest, _, _), free, above, above_at = scratch, tables.free, tables.above, tables.above_at
    for k in range(len(terms.barred)):
        free[0, k] = terms.opening[k]
    tables.came_from[:] = -1
    for t in range(n_steps):
        _hold(terms, paid, t, 0, free[t], free[t + 1])
        if t >= terms.first:
            over_supersets(terms.removal, free[t], above[t], above_at[t])
            _epoch(terms, paid, t, 0, n_steps, core, rest)
            over_cores(terms.removal, above[t], above_at[t], core, moved[t], moved_from[t])
            for k in range(n_nodes):
                moved[t, k] += rest[k]
        source = t + 1 - terms.spacing
        if source >= terms.first:
            _raise(free[t + 1], tables.came_from[t + 1], moved[source], moved_from[source])


@compiled
def _backward(terms: _Terms, paid: Floats, tables: _Tables, level: int, scratch: _Scratch) -> None:
    """``back`` and ``target`` of a level."""
    back, target = tables.back[level], tables.target[level]
    above, above_at = np.empty(len(terms.barred)), np.empty(len(terms.barred), np.int32)
    core, rest, best, best_at = scratch
    target[:] = -1
    for t in range(len(paid) - 2, -1, -1):
        _hold(terms, paid, t, level, back[t + 1], back[t])
        if t >= terms.first:
            until = _epoch(terms, paid, t, level, t, core, rest)
            rest += back[until]
            over_supersets(terms.removal, rest, above, above_at)
            over_cores(terms.removal, above, above_at, core, best, best_at)
            _raise(back[t], target[t], best, best_at)


@compiled
def _step_by_step(terms: _Terms, paid: Floats, tables: _Tables) -> None:
    """``free`` and ``came_from`` where an epoch is over with its step and nothing survives it."""
    settled, changed, free, came_from = terms.settled[0], terms.changed[0], tables.free, tables.came_from
    for k in range(len(terms.barred)):
        free[0, k] = terms.opening[k]
    for t in range(len(paid) - 1):
        top = int(np.argmax(free[t]))
        most = free[t, top]
        for k in range(len(terms.barred)):
            stay, change = free[t, k] + settled[t + 1, k] - settled[t, k], most + changed[t + 1, k] - changed[t, k]
            came_from[t + 1, k] = -1 if stay >= change else top
            free[t + 1, k] = max(stay, change) - paid[t + 1, k] + paid[t, k] + terms.barred[k]


@compiled
def _step_by_step_back(terms: _Terms, paid: Floats, tables: _Tables, level: int) -> None:
    """``back`` and ``target`` of a level, likewise."""
    settled, changed = terms.settled[level], terms.changed[level]
    back, target = tables.back[level], tables.target[level]
    for t in range(len(paid) - 2, -1, -1):
        most, top = -np.inf, 0
        for k in range(len(terms.barred)):
            due = back[t + 1, k] - paid[t + 1, k] + paid[t, k] + terms.barred[k]
            back[t, k] = due + settled[t + 1, k] - settled[t, k]
            value = due + changed[t + 1, k] - changed[t, k]
            if value > most:
                most, top = value, k
        for k in range(len(terms.barred)):
            target[t, k] = -1 if back[t, k] >= most else top
            back[t, k] = max(back[t, k], most)


@compiled
def _at_switch(
    terms: _Terms, paid: Floats, tables: _Tables, level: int, switch: int, scratch: _Scratch
) -> tuple[float, int, int, int]:
    """The best net value with a change to ``level`` at ``switch``, and how that step is passed.

    That is the step of the epoch under way, or ``switch`` where none is, the node after it and the one before.
    """
    back, (core, rest, best, best_at) = tables.back[level], scratch
    for k in range(len(best)):
        best[k] = tables.free[switch, k] + back[switch, k]
    node = int(np.argmax(best))
    most, begin, source = best[node], switch, node
    for t in range(max(terms.first, switch - terms.spacing + 1), min(switch, len(paid) - 1)):
        until = _epoch(terms, paid, t, level, switch, core, rest)
        over_cores(terms.removal, tables.above[t], tables.above_at[t], core, best, best_at)
        best += rest + back[until]
        k = int(np.argmax(best))
        if best[k] > most:
            most, begin, node, source = best[k], t, k, best_at[k]
    return most, begin, node, source


@compiled
def _scratch_of(terms: _Terms) -> _Scratch:
    n_nodes = len(terms.barred)
    return np.empty(n_nodes), np.empty(n_nodes), np.empty(n_nodes), np.empty(n_nodes, np.int32)


@compiled
def _solve(terms: _Terms, paid: Floats, tables: _Tables, switched: Floats) -> None:
    """The tables, and the best net value by level and by the step at which the level changes.

    Args:
        terms: What the tenant may do and earns.
        paid: What a node costs in the steps before each, ``(n + 1, K)``.
        tables: Out.
        switched: Out: ``(n_levels, n + 1)``; level 0 at n is the value without any change.
    """
    scratch = _scratch_of(terms)
    if terms.warm:
        _forward(terms, paid, tables, scratch)
    else:
        _step_by_step(terms, paid, tables)
    for level in range(len(switched)):
        if level and terms.warm:
            _backward(terms, paid, tables, level, scratch)
        elif level:
            _step_by_step_back(terms, paid, tables, level)
        for switch in range(terms.earliest[level], len(paid)):
            switched[level, switch] = _at_switch(terms, paid, tables, level, switch, scratch)[0]


@compiled
def _held(terms: _Terms, paid: Floats, tables: _Tables, level: int, switch: int) -> Int64s:
    """The node held in each step of the best course with that change of level, ``(n,)``."""
    nodes, spacing = np.empty(len(paid) - 1, np.int64), terms.spacing
    _, begin, node, source = _at_switch(terms, paid, tables, level, switch, _scratch_of(terms))
    until = min(begin + spacing, len(nodes)) if begin < switch else switch
    nodes[begin:until] = node
    step = begin
    while step > 0:
        last = tables.came_from[step, source]
        first = step - (spacing if last >= 0 else 1)
        nodes[first:step] = source
        step, source = first, (last if last >= 0 else source)
    while until < len(nodes):
        step, to = until, tables.target[level, until, node]
        until = min(step + (spacing if to >= 0 else 1), len(nodes))
        node = to if to >= 0 else node
        nodes[step:until] = node
    return nodes
