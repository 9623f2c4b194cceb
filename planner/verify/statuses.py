"""The bound that prices of statuses prove (:class:`~planner.plan.StatusCertificate`), from the rules of ``paper``.

A path goes over (step, status of every tenant, what inference of every tenant holds). Between two steps, retrainings
end, then multisets change, then retrainings start: so what runs while multisets change fits beside both.

===========  ==========================================================================
k            joint state: a multiset for every tenant, so that all of it fits the GPU; K of them
v            status vector: a status for every tenant, so that some k fits beside what runs; V of them
c            subset of tenants whose multiset changes, bit m for tenant m; C = 2^M
row          the states that fit beside what runs in a vector and leave free what is not ours
===========  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from executor.compiled import compiled
from executor.mig import Multiset
from planner.plan import StatusCertificate, TenantStatus
from planner.problem import FloatArray, Problem, TenantTerms
from planner.verify.floors import with_floor
from planner.verify.holdings import (
    counts_at_start,
    counts_of,
    gains_of,
    more_by_checkpoints,
    most_goodput,
    rounding,
)

IntArray = NDArray[np.int64]

Vector = tuple[TenantStatus, ...]

MOST_COMBINATIONS = 250
"""Combinations of schedules that are looked at one by one, each in a millisecond or two."""


def status_bound(problem: Problem, certificate: StatusCertificate, known: float) -> float:
    """No plan earns more requests; −inf where there is none, NaN where a given gain table has gaps.

    Where few enough combinations of schedules may be worth more than ``known``, each of them is looked at. Then what no
    plan exceeds is the best of them, or ``known``; it may be any number, and a plan's own worth is a good one.
    """
    held = [_multisets(problem, tenant) for tenant in problem.tenants]
    states = _joint_states(problem, held)
    if not len(states):
        return -math.inf
    tenants = [_Tenant.of(problem, m, own, certificate) for m, own in enumerate(held)]
    if any(np.isnan(gains).any() for own in tenants for gains in (own.settled, own.changed)):
        return math.nan
    prices = dict(zip(certificate.statuses, certificate.prices.T, strict=True))
    paths = _Paths(problem, tenants, states)
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
        ways: Profile and number of the option of every retraining that ends within the window, and its steps.
    """

    terms: TenantTerms
    multisets: IntArray
    settled: FloatArray
    changed: FloatArray
    opening: FloatArray
    asked: float
    size: float
    ways: dict[tuple[str, int], int]

    @classmethod
    def of(cls, problem: Problem, m: int, held: IntArray, certificate: StatusCertificate) -> _Tenant:
        """Tenant m's, which holds one of these multisets."""
        tenant, multisets = problem.tenants[m], [tuple(counts) for counts in held.tolist()]
        gains = gains_of(problem, m, multisets)
        settled, changed, asked, size = with_floor(problem, m, multisets, certificate, gains)
        start = counts_at_start(problem, tenant, 0)
        is_kept = [start in (None, multiset) for multiset in multisets]
        ways = {
            (name, number): steps
            for number, option in enumerate(tenant.options)
            for name in option.time_s
            if (steps := problem.occupied_steps(tenant, option, name)) <= problem.n_steps
        }
        opening = np.where(is_kept, settled[0, 0], changed[0, 0])
        return cls(tenant, held, settled, changed, opening, asked, size, ways)

    @property
    def waits(self) -> TenantStatus:
        """Its status until it retrains."""
        return TenantStatus(self.terms.name, "waits", "")

    def runs(self, profile_name: str) -> TenantStatus:
        """Its status while it retrains."""
        return TenantStatus(self.terms.name, "runs", profile_name)

    def done(self, number: int) -> TenantStatus:
        """Its status after a retraining with the option of this number."""
        return TenantStatus(self.terms.name, "done", self.terms.options[number].name)

    @property
    def statuses(self) -> tuple[TenantStatus, ...]:
        """All that it can have, waiting first."""
        runs, done = (self.runs(name) for name, _ in self.ways), (self.done(number) for _, number in self.ways)
        return tuple(dict.fromkeys((self.waits, *runs, *done)))


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


def _choices(problem: Problem, own: _Tenant, prices: dict[TenantStatus, FloatArray], paths: _Paths) -> list[_Choice]:
    """All schedules of a tenant for which there is room in each step."""
    n_steps, gains = problem.n_steps, (own.settled, own.changed)
    salvage = own.terms.salvage or (0.0,) * (1 + len(own.terms.options))
    found = [] if own.terms.must_retrain else [_Choice((own.waits,), n_steps, n_steps, salvage[0], salvage[0])]
    for (name, number), steps in own.ways.items():
        lacking = _before_each(np.where(paths.has_room(name), 0.0, 1.0))
        starts = np.flatnonzero(lacking[steps:] == lacking[:-steps])
        ends, runs, done = starts + steps, own.runs(name), own.done(number)
        more = more_by_checkpoints(problem, own.terms, number, name, gains, own.multisets, ends)
        added = more + salvage[1 + number]
        running, after = (_before_each(prices.get(status, np.zeros(n_steps))) for status in (runs, done))
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
    problem: Problem, choices: Iterable[_Choice], prices: dict[TenantStatus, FloatArray]
) -> dict[TenantStatus, FloatArray]:
    """The price of each status in the steps in which one of the schedules has it; ∞ in others, ``(n_steps,)`` each."""
    free = np.zeros(problem.n_steps)
    found: dict[TenantStatus, FloatArray] = {}
    for choice in choices:
        spans = ((0, choice.start), (choice.start, choice.end), (choice.end, problem.n_steps))
        for status, (begin, end) in zip(choice.statuses, spans, strict=False):
            costs = found.setdefault(status, np.full(problem.n_steps, np.inf))
            costs[begin:end] = prices.get(status, free)[begin:end]
    return found


def _before_each(values: FloatArray) -> FloatArray:
    """What the steps before each add up to, ``(n_steps + 1,)``."""
    return np.insert(np.cumsum(values), 0, 0.0)


def _multisets(problem: Problem, tenant: TenantTerms) -> IntArray:
    """What may serve a tenant, something as large as ``min_profile`` among it, ``(n_multisets, n_profiles)``."""
    least = problem.gpu.profile(tenant.min_profile)
    is_foreign = [name not in tenant.capability_rps for name in problem.profile_names]
    is_large = [profile.is_at_least(least) for profile in problem.profiles]
    found = np.array(problem.gpu.multisets(problem.profile_names))
    return found[found[:, is_large].any(axis=1) & ~found[:, is_foreign].any(axis=1)]


def _joint_states(problem: Problem, held: Sequence[IntArray]) -> IntArray:
    """Every k, by the number of each tenant's multiset, ``(K, M)``."""
    fitting = set(problem.gpu.multisets(problem.profile_names))
    found: dict[tuple[int, ...], Multiset] = {(): (0,) * len(problem.profile_names)}
    for multisets in held:
        own = [tuple(counts) for counts in multisets.tolist()]
        longer = (
            ((*state, number), _sum(total, counts))
            for state, total in found.items()
            for number, counts in enumerate(own)
        )
        found = {state: total for state, total in longer if total in fitting}
    return np.array(list(found), dtype=np.int64).reshape(-1, len(held))


def _sum(one: Multiset, other: Multiset) -> Multiset:
    return tuple(map(int.__add__, one, other))


class _Paths:
    """All paths of a problem."""

    def __init__(self, problem: Problem, tenants: Sequence[_Tenant], states: IntArray) -> None:
        self._problem = problem
        self._totals = np.sum([own.multisets[states[:, m]] for m, own in enumerate(tenants)], axis=0)
        self._fitting: dict[int, set[Multiset]] = {}
        self._row: dict[tuple[Multiset, int], int] = {}
        self._rows: list[IntArray] = []
        self._vectors = self._all_vectors(tenants)
        number = {vector: v for v, vector in enumerate(self._vectors)}
        n_levels = 1 + max(len(own.terms.options) for own in tenants)
        self._gains = np.zeros((2, len(tenants), n_levels, problem.n_steps, len(states)))
        for m, own in enumerate(tenants):
            for kind, values in enumerate((own.settled, own.changed)):
                # Levels beyond the options are those of checkpoints.
                known = values[: 1 + len(own.terms.options)]
                self._gains[kind, m, : len(known)] = known[..., states[:, m]]
        self._opening = np.sum([own.opening[states[:, m]] for m, own in enumerate(tenants)], axis=0)
        self._agreeing = _agreeing(states)
        self._levels = np.array([_levels(tenants, vector) for vector in self._vectors], dtype=np.int64)
        self._ends, self._starts = _ends(tenants, number), _starts(tenants, number)

    def best(self, costs: dict[TenantStatus, FloatArray]) -> float:
        """The most that one earns less what its statuses cost; −inf where none leads through.

        ``costs`` are ``(n_steps,)`` each; other statuses cannot be had.
        """
        # All wait before the window.
        known = [v for v, vector in enumerate(self._vectors) if v == 0 or costs.keys() >= set(vector)]
        barred, spans = np.full(self._problem.n_steps, np.inf), self._problem.unavailable_spans
        paid = np.array([sum(costs.get(status, barred) for status in self._vectors[v]) for v in known]).T
        rows = np.array([[self._row_of(_running(self._vectors[v]), mask) for v in known] for _, _, mask in spans])
        place = {v: number for number, v in enumerate(known)}
        ends, starts = (
            [(place[source], place[to]) for source, to in pairs if source in place and to in place]
            for pairs in (self._ends, self._starts)
        )
        return _longest_path(
            self._gains[0],
            self._gains[1],
            self._opening,
            self._agreeing,
            self._levels[known],
            np.array(ends, dtype=np.int64).reshape(-1, 2),
            np.array(starts, dtype=np.int64).reshape(-1, 2),
            np.ascontiguousarray(paid),
            np.concatenate(self._rows),
            np.cumsum([0, *map(len, self._rows)]),
            np.repeat(rows, [end - begin for begin, end, _ in spans], axis=0),
        )

    def has_room(self, profile_name: str) -> NDArray[np.bool_]:
        """Whether something fits beside a retraining, by step, ``(n_steps,)``."""
        out = np.empty(self._problem.n_steps, dtype=np.bool_)
        for begin, end, mask in self._problem.unavailable_spans:
            out[begin:end] = not self._is_empty([profile_name], mask)
        return out

    def _row_of(self, running: Sequence[str], mask: int = 0) -> int:
        """The number of the row beside retrainings on these profiles, where the mask's memory slices are not ours."""
        counts = counts_of(self._problem, running)
        if (counts, mask) not in self._row:
            if mask not in self._fitting:
                self._fitting[mask] = set(self._problem.gpu.multisets(self._problem.profile_names, mask))
            fits = [tuple(total) in self._fitting[mask] for total in (self._totals + np.array(counts)).tolist()]
            self._row[counts, mask] = len(self._rows)
            self._rows.append(np.flatnonzero(fits))
        return self._row[counts, mask]

    def _is_empty(self, running: Sequence[str], mask: int = 0) -> bool:
        row = self._row_of(running, mask)
        return not len(self._rows[row])

    def _all_vectors(self, tenants: Sequence[_Tenant]) -> list[Vector]:
        """Every v, those of the same levels together; first that in which all wait."""
        found: list[Vector] = [()]
        for own in tenants:
            longer = ((*vector, status) for vector, status in product(found, own.statuses))
            found = [vector for vector in longer if not self._is_empty(_running(vector))]
        return sorted(found, key=lambda vector: _levels(tenants, vector))


def _running(vector: Vector) -> list[str]:
    """The profiles on which a vector's retrainings run."""
    return [status.of for status in vector if status.kind == "runs"]


def _levels(tenants: Sequence[_Tenant], vector: Vector) -> list[int]:
    """The tenants' levels; until one is done that of the old model."""
    names = [[option.name for option in own.terms.options] for own in tenants]
    return [1 + own.index(status.of) if status.kind == "done" else 0 for own, status in zip(names, vector, strict=True)]


def _ends(tenants: Sequence[_Tenant], number: dict[Vector, int]) -> list[tuple[int, int]]:
    """(from, to) of the vectors in which one retraining runs and is done; by tenant, so that several may end."""
    return [
        (v, number[*vector[:m], own.done(option), *vector[m + 1 :]])
        for m, own in enumerate(tenants)
        for vector, v in number.items()
        for name, option in own.ways
        if vector[m] == own.runs(name)
    ]


def _starts(tenants: Sequence[_Tenant], number: dict[Vector, int]) -> list[tuple[int, int]]:
    """(from, to) of the vectors in which one retraining waits and runs, likewise."""
    return [
        (number[*vector[:m], own.waits, *vector[m + 1 :]], v)
        for m, own in enumerate(tenants)
        for vector, v in number.items()
        if vector[m].kind == "runs"
    ]


def _agreeing(states: IntArray) -> IntArray:
    """By subset, the number of each state among those that agree on the tenants outside it, ``(C, K)``."""
    n_states, n_tenants = states.shape
    out = np.zeros((1 << n_tenants, n_states), dtype=np.int64)
    for subset in range(1 << n_tenants):
        others = [m for m in range(n_tenants) if not subset >> m & 1]
        out[subset] = np.unique(states[:, others], axis=0, return_inverse=True)[1].reshape(-1) if others else 0
    return out


@compiled
def _gains_at(settled: FloatArray, changed: FloatArray, levels: IntArray, s: int, out: FloatArray) -> None:
    """What each state earns in step s by subset at these levels, ``(C, K)``."""
    out[0] = 0.0
    for m in range(len(levels)):
        out[0] += settled[m, levels[m], s]
    for m in range(len(levels)):
        less = settled[m, levels[m], s] - changed[m, levels[m], s]
        for c in range(1 << m):
            out[(1 << m) + c] = out[c] - less


@compiled
def _changed_to(
    values: FloatArray, before: IntArray, after: IntArray, agreeing: IntArray, gains: FloatArray, best: FloatArray
) -> None:
    """What a step makes of ``values``, ``(K,)``: each state after it from the best state before it by subset.

    ``best`` is scratch, ``(C, K)``.
    """
    best[:] = -np.inf
    for c in range(len(agreeing)):
        for k in before:
            best[c, agreeing[c, k]] = max(best[c, agreeing[c, k]], values[k])
    values[:] = -np.inf
    for k in after:
        for c in range(len(agreeing)):
            values[k] = max(values[k], best[c, agreeing[c, k]] + gains[c, k])


@compiled
def _longest_path(
    settled: FloatArray,
    changed: FloatArray,
    opening: FloatArray,
    agreeing: IntArray,
    levels: IntArray,
    ends: IntArray,
    starts: IntArray,
    paid: FloatArray,
    lists: IntArray,
    bounds: IntArray,
    row_of: IntArray,
) -> float:
    """The most that a path earns less what it pays; −inf where none leads through.

    Args:
        settled: What each tenant earns by level, step and state, ``(M, n_levels, n_steps, K)``.
        changed: Likewise where its multiset has just changed.
        opening: What a state earns in step 0, ``(K,)``.
        agreeing: ``(C, K)``.
        levels: Of each vector, ``(V, M)``.
        ends: From and to vectors, ``(n, 2)``.
        starts: Likewise.
        paid: What each vector costs, ``(n_steps, V)``.
        lists: Rows one after the other.
        bounds: Where each begins and ends.
        row_of: Of each vector by step, ``(n_steps, V)``.
    """
    values = np.full((len(levels), len(opening)), -np.inf)
    gains, best = np.empty(agreeing.shape), np.empty(agreeing.shape)
    for s in range(len(paid)):
        now, before = row_of[s], row_of[max(0, s - 1)]
        if s == 0:
            for k in lists[bounds[now[0]] : bounds[now[0] + 1]]:
                values[0, k] = opening[k]
        else:
            for source, to in ends:
                for k in lists[bounds[before[source]] : bounds[before[source] + 1]]:
                    values[to, k] = max(values[to, k], values[source, k])
            known = -1
            for v in range(len(levels)):
                own = lists[bounds[before[v]] : bounds[before[v] + 1]]
                if values[v].max() == -np.inf:
                    continue
                if known < 0 or (levels[v] != levels[known]).any():
                    _gains_at(settled, changed, levels[v], s, gains)
                    known = v
                _changed_to(values[v], own, lists[bounds[now[v]] : bounds[now[v] + 1]], agreeing, gains, best)
        for source, to in starts:
            for k in lists[bounds[now[to]] : bounds[now[to] + 1]]:
                values[to, k] = max(values[to, k], values[source, k])
        for v in range(len(levels)):
            values[v] -= paid[s, v]
    return float(values.max())
