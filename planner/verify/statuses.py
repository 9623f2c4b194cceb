"""The bound that prices of statuses prove (:class:`~planner.plan.StatusCertificate`), from the rules of ``paper``.

A path goes over (step, status of every tenant, what inference of every tenant holds). Between two steps, retrainings
end, then multisets change, then retrainings start: so what runs while multisets change fits beside both.

===========  ==========================================================================
k            joint state: a multiset for every tenant, so that all of it fits the GPU; K of them
v            status vector: a status for every tenant, so that some k fits beside what runs; V of them
c            subset of tenants whose multiset changes, bit m for tenant m; C = 2^M
r            counts of profiles that retrainings run on in some v; R of them
mask         memory slices that are not ours in some step; each different one counts once
===========  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from executor.compiled import compiled
from executor.mig import Multiset
from planner.arrays import Bools, Floats, Int64s, agreeing, sums_before
from planner.plan import StatusCertificate, TenantStatus
from planner.problem import Problem, TenantTerms
from planner.verify.floors import with_floor
from planner.verify.holdings import (
    are_enough,
    counts_at_start,
    counts_of,
    fits_gpu,
    gains_of,
    more_by_checkpoints,
    most_goodput,
    rounding,
    that_serve,
)

MOST_COMBINATIONS = 250
"""Combinations of schedules that are looked at one by one, each in a millisecond or two."""


def status_bound(problem: Problem, certificate: StatusCertificate, known: float) -> float:
    """No plan earns more requests; −inf where there is none, NaN where a given gain table has gaps.

    Where few enough combinations of schedules may be worth more than ``known``, each of them is looked at. Then what no
    plan exceeds is the best of them, or ``known``; it may be any number, and a plan's own worth is a good one.
    """
    fitting = np.array(problem.gpu.multisets(problem.profile_names))
    own_fitting = [(tenant, that_serve(problem, tenant, fitting)) for tenant in problem.tenants]
    held = [counts[are_enough(problem, tenant, counts)] for tenant, counts in own_fitting]
    states, totals = _joined(held, lambda sums: fits_gpu(problem, sums))
    if not len(states):
        return -math.inf
    tenants = [_Tenant.of(problem, m, own, certificate) for m, own in enumerate(held)]
    if any(np.isnan(gains).any() for own in tenants for gains in (own.settled, own.changed)):
        return math.nan
    prices = dict(zip(certificate.statuses, certificate.prices.T, strict=True))
    paths = _Paths(problem, tenants, states, totals)
    choices = [_choices(problem, own, prices, paths) for own in tenants]
    if not all(choices):
        return -math.inf
    best = [max(choice.worth for choice in own) for own in choices]
    asked = sum(own.asked for own in tenants)
    size = most_goodput(problem) + sum(own.size for own in tenants)
    size += float(np.abs(certificate.prices).sum()) + sum(map(abs, best))
    spare = rounding(problem, size)
    # In a step in which no schedule has a status, being in it costs a path all there is.
    bound = paths.best(_costs(problem, chain.from_iterable(choices), prices)) + sum(best) - asked + spare
    if not known < bound < math.inf:
        return bound
    left = _combinations(choices, best, bound - known)
    if left is None:
        return bound
    found = [
        paths.best(_costs(problem, combination, {})) + sum(choice.added for choice in combination) - asked + spare
        for combination in left
    ]
    return min(bound, max(known, *found))


class _Tenant(NamedTuple):
    """What a tenant holds and earns.

    Attributes:
        terms: The problem's.
        multisets: What may serve it, ``(n_multisets, n_profiles)``.
        settled: What it earns by them under its floor, ``(n_levels, n_steps, n_multisets)``.
        changed: Likewise, where it has just changed to them.
        opening: Likewise, in step 0 after the initial state, ``(n_multisets,)``.
        asked: What its floor takes off the bound.
        size: How large the floor makes the numbers.
        ways: Steps of every retraining that may end within the window, by the statuses while it runs and once done.
    """

    terms: TenantTerms
    multisets: Int64s
    settled: Floats
    changed: Floats
    opening: Floats
    asked: float
    size: float
    ways: dict[tuple[TenantStatus, TenantStatus], int]

    @classmethod
    def of(cls, problem: Problem, m: int, held: Int64s, certificate: StatusCertificate) -> _Tenant:
        """Tenant m's, which holds one of these multisets."""
        tenant, multisets = problem.tenants[m], [tuple(counts) for counts in held.tolist()]
        gains = gains_of(problem, m, multisets)
        settled, changed, asked, size = with_floor(problem, m, multisets, certificate, gains)
        start = counts_at_start(problem, tenant, 0)
        is_kept = [start in (None, multiset) for multiset in multisets]
        ways = {
            (TenantStatus(tenant.name, "runs", name), TenantStatus(tenant.name, "done", option.name)): steps
            for option in tenant.options
            for name in option.time_s
            if (steps := problem.occupied_steps(tenant, option, name)) <= problem.n_steps
        }
        opening = np.where(is_kept, settled[0, 0], changed[0, 0])
        return cls(tenant, held, settled, changed, opening, asked, size, ways)

    @property
    def waits(self) -> TenantStatus:
        """Its status until it retrains."""
        return TenantStatus(self.terms.name, "waits", "")

    @property
    def statuses(self) -> tuple[TenantStatus, ...]:
        """All that it can have, waiting first."""
        return tuple(dict.fromkeys((self.waits, *chain.from_iterable(self.ways))))

    @property
    def levels(self) -> Int64s:
        """The level in each status; until one is done that of the old model."""
        return np.array([self.terms.level_of(it.of) if it.kind == "done" else 0 for it in self.statuses])


class _Choice(NamedTuple):
    """A tenant's schedule: waits, then from ``start`` on runs, then from ``end`` on done.

    Attributes:
        statuses: The three; the first alone where it does not retrain.
        start: A step; that of the window's end where it does not retrain.
        end: Likewise.
        added: Its salvage, and the most that checkpoints add.
        worth: The same and what it is paid.
    """

    statuses: tuple[TenantStatus, ...]
    start: int
    end: int
    added: float
    worth: float


def _choices(problem: Problem, own: _Tenant, prices: dict[TenantStatus, Floats], paths: _Paths) -> list[_Choice]:
    """All schedules of a tenant for which there is room in each step."""
    n_steps, gains, salvage = problem.n_steps, (own.settled, own.changed), own.terms.salvages
    found = [] if own.terms.must_retrain else [_Choice((own.waits,), n_steps, n_steps, salvage[0], salvage[0])]
    for (runs, done), steps in own.ways.items():
        lacking = sums_before(np.where(paths.has_room(counts_of(problem, [runs.of])), 0.0, 1.0))
        starts = np.flatnonzero(lacking[steps:] == lacking[:-steps])
        ends, level = starts + steps, own.terms.level_of(done.of)
        added = salvage[level] + more_by_checkpoints(problem, own.terms, level, runs.of, gains, own.multisets, ends)
        running, after = (sums_before(prices.get(status, np.zeros(n_steps))) for status in (runs, done))
        worth = added + running[ends] - running[starts] + after[n_steps] - after[ends]
        columns = (values.tolist() for values in (starts, ends, added, worth))
        found += [_Choice((own.waits, runs, done), *row) for row in zip(*columns, strict=True)]
    return found


def _combinations(
    choices: Sequence[Sequence[_Choice]], best: Sequence[float], gap: float
) -> list[tuple[_Choice, ...]] | None:
    """Those that are worth less than the best of all by less than ``gap``; ``None`` if there are too many."""
    found: list[tuple[float, tuple[_Choice, ...]]] = [(0.0, ())]
    for own, most in zip(choices, best, strict=True):
        near = [(most - choice.worth, choice) for choice in own if most - choice.worth < gap]
        if len(found) * len(near) > MOST_COMBINATIONS**2:
            return None
        longer = ((lack + slack, (*some, choice)) for lack, some in found for slack, choice in near)
        found = [(lack, some) for lack, some in longer if lack < gap]
    return None if len(found) > MOST_COMBINATIONS else [some for _, some in found]


def _costs(
    problem: Problem, choices: Iterable[_Choice], prices: dict[TenantStatus, Floats]
) -> dict[TenantStatus, Floats]:
    """The price of each status in the steps in which one of the schedules has it; ∞ in others, ``(n_steps,)`` each."""
    free = np.zeros(problem.n_steps)
    found: dict[TenantStatus, Floats] = {}
    for choice in choices:
        spans = ((0, choice.start), (choice.start, choice.end), (choice.end, problem.n_steps))
        for status, (begin, end) in zip(choice.statuses, spans, strict=False):
            costs = found.setdefault(status, np.full(problem.n_steps, np.inf))
            costs[begin:end] = prices.get(status, free)[begin:end]
    return found


def _joined(parts: Sequence[Int64s], fits: Callable[[Int64s], Bools]) -> tuple[Int64s, Int64s]:
    """All ways to take a row of each part so that their sum fits: the rows' numbers, ``(n, n_parts)``, and the sums."""
    numbers, sums = np.zeros((1, 0), dtype=np.int64), np.zeros((1, parts[0].shape[1]), dtype=np.int64)
    for part in parts:
        before, number = np.indices((len(sums), len(part))).reshape(2, -1)
        longer = sums[before] + part[number]
        kept = fits(longer)
        numbers, sums = np.column_stack([numbers[before], number])[kept], longer[kept]
    return numbers, sums


class _Paths:
    """All paths of a problem over these joint states, ``(K, M)``, which hold ``totals`` in all, ``(K, n_profiles)``."""

    def __init__(self, problem: Problem, tenants: Sequence[_Tenant], states: Int64s, totals: Int64s) -> None:
        n_levels = max(len(own.settled) for own in tenants)
        self._gains = np.zeros((2, len(tenants), n_levels, problem.n_steps, len(states)))
        for m, own in enumerate(tenants):
            for table, values in zip(self._gains[:, m], (own.settled, own.changed), strict=True):
                table[: len(values)] = values[..., states[:, m]]
        self._opening = np.sum([own.opening[states[:, m]] for m, own in enumerate(tenants)], axis=0)
        self._agreeing = agreeing(states)

        def has_room(taken: Int64s) -> Bools:
            kinds, kind = np.unique(taken, axis=0, return_inverse=True)
            rooms: Bools = np.any(fits_gpu(problem, totals + kinds[:, None]), axis=1)
            return rooms[kind.reshape(-1)]

        own_taken = [[counts_of(problem, [it.of] * (it.kind == "runs")) for it in own.statuses] for own in tenants]
        vectors, taken = _joined([np.array(counts) for counts in own_taken], has_room)
        self._levels = np.stack([own.levels[vectors[:, m]] for m, own in enumerate(tenants)], axis=1)
        # Those of the same levels together; first that in which all wait.
        order = np.lexsort(self._levels.T[::-1])
        self._levels, taken = self._levels[order], taken[order]
        self._statuses = [status for own in tenants for status in own.statuses]
        self._vectors = vectors[order] + np.cumsum([0, *(len(own.statuses) for own in tenants[:-1])])
        self._ends = self._moves(way for own in tenants for way in own.ways)
        self._starts = self._moves((own.waits, runs) for own in tenants for runs, _ in own.ways)
        self._running, kind = np.unique(taken, axis=0, return_inverse=True)
        self._kind, spans = kind.reshape(-1), problem.unavailable_spans
        masks = list(dict.fromkeys(mask for _, _, mask in spans))
        self._fits = np.stack([fits_gpu(problem, totals + self._running[:, None], mask) for mask in masks])
        n_steps = [end - begin for begin, end, _ in spans]
        self._mask: Int64s = np.repeat([masks.index(mask) for _, _, mask in spans], n_steps)

    def best(self, costs: dict[TenantStatus, Floats]) -> float:
        """The most that one earns less what its statuses cost; −inf where none leads through.

        ``costs`` are ``(n_steps,)`` each; other statuses cannot be had.
        """
        is_known = np.array([status in costs for status in self._statuses])[self._vectors].all(axis=1)
        is_known[0] = True  # all wait before the window
        barred = np.full(len(self._mask), np.inf)
        of_statuses = np.array([costs.get(status, barred) for status in self._statuses])
        place = np.where(is_known, np.cumsum(is_known) - 1, -1)
        ends, starts = (moves[(moves >= 0).all(axis=1)] for moves in (place[self._ends], place[self._starts]))
        return _longest_path(
            self._gains,
            self._opening,
            self._agreeing,
            self._levels[is_known],
            ends,
            starts,
            np.ascontiguousarray(of_statuses[self._vectors[is_known]].sum(axis=1).T),
            self._fits,
            self._mask,
            self._kind[is_known],
        )

    def has_room(self, counts: Multiset) -> Bools:
        """Whether something fits beside retrainings on these profiles alone, by step, ``(n_steps,)``."""
        is_it = (self._running == counts).all(axis=1)
        rooms: Bools = np.any(self._fits[:, is_it], axis=(1, 2))
        return rooms[self._mask]

    def _moves(self, pairs: Iterable[tuple[TenantStatus, TenantStatus]]) -> Int64s:
        """(from, to) of the vectors that differ by one of the pairs, pair by pair, so that several may follow."""
        number = {tuple(vector): v for v, vector in enumerate(self._vectors.tolist())}
        found = [
            (v, number[after])
            for source, to in (map(self._statuses.index, pair) for pair in dict.fromkeys(pairs))
            for vector, v in number.items()
            if source in vector and (after := tuple(to if one == source else one for one in vector)) in number
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 2)


@compiled
def _earned(gains: Floats, levels: Int64s, s: int, out: Floats) -> None:
    """What each state earns in step s by subset at these levels, ``(C, K)``."""
    out[0] = 0.0
    for m in range(len(levels)):
        out[0] += gains[0, m, levels[m], s]
    for m in range(len(levels)):
        less = gains[0, m, levels[m], s] - gains[1, m, levels[m], s]
        for c in range(1 << m):
            out[(1 << m) + c] = out[c] - less


@compiled
def _changed_to(values: Floats, fits: Bools, agreeing: Int64s, earned: Floats, best: Floats) -> None:
    """What a step makes of ``values``, ``(K,)``: each state that fits from the best state before it by subset.

    ``best`` is scratch, ``(C, K)``.
    """
    best[:] = -np.inf
    before, after = np.flatnonzero(values > -np.inf), np.flatnonzero(fits)
    for c in range(len(agreeing)):
        for k in before:
            best[c, agreeing[c, k]] = max(best[c, agreeing[c, k]], values[k])
    values[:] = -np.inf
    for k in after:
        for c in range(len(agreeing)):
            values[k] = max(values[k], best[c, agreeing[c, k]] + earned[c, k])


@compiled
def _longest_path(
    gains: Floats,
    opening: Floats,
    agreeing: Int64s,
    levels: Int64s,
    ends: Int64s,
    starts: Int64s,
    paid: Floats,
    fits: Bools,
    mask: Int64s,
    kind: Int64s,
) -> float:
    """The most that a path earns less what it pays; −inf where none leads through.

    Args:
        gains: What each tenant earns, settled and just changed, by level, step and state,
            ``(2, M, n_levels, n_steps, K)``.
        opening: What a state earns in step 0, ``(K,)``.
        agreeing: ``(C, K)``.
        levels: Of each vector, ``(V, M)``.
        ends: From and to vectors, ``(n, 2)``.
        starts: Likewise.
        paid: What each vector costs, ``(n_steps, V)``.
        fits: By mask whether a state fits beside what runs, ``(n_masks, R, K)``.
        mask: The number of each step's, ``(n_steps,)``.
        kind: What runs in each vector, ``(V,)``.
    """
    values = np.full((len(levels), len(opening)), -np.inf)
    earned, best = np.empty(agreeing.shape), np.empty(agreeing.shape)
    for s in range(len(paid)):
        own = fits[mask[s]]
        if s == 0:
            values[0] = np.where(own[kind[0]], opening, -np.inf)
        else:
            for source, to in ends:
                for k in range(len(opening)):
                    values[to, k] = max(values[to, k], values[source, k])
            known = -1
            for v in range(len(levels)):
                if values[v].max() == -np.inf:
                    continue
                if known < 0 or (levels[v] != levels[known]).any():
                    _earned(gains, levels[v], s, earned)
                    known = v
                _changed_to(values[v], own[kind[v]], agreeing, earned, best)
        for source, to in starts:
            for k in range(len(opening)):
                if own[kind[to], k]:
                    values[to, k] = max(values[to, k], values[source, k])
        for v in range(len(levels)):
            values[v] -= paid[s, v]
    return float(values.max())
