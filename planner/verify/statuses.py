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
from collections.abc import Sequence
from itertools import product
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


def status_bound(problem: Problem, certificate: StatusCertificate) -> float:
    """No plan earns more requests; −inf where there is none, NaN where a given gain table has gaps."""
    tenants = [_Tenant.of(problem, m, certificate) for m in range(len(problem.tenants))]
    if any(np.isnan(gains).any() for own in tenants for gains in (own.settled, own.changed)):
        return math.nan
    states = _joint_states(problem, tenants)
    rows = _Rows(problem, tenants, states)
    prices = dict(zip(certificate.statuses, certificate.prices.T, strict=True))
    # In a step in which no schedule has a status, being in it costs a path all there is.
    costs = {status: np.full(problem.n_steps, np.inf) for own in tenants for status in own.statuses}
    schedules = [_best_schedule(problem, own, rows, prices, costs) for own in tenants]
    if not len(states) or -math.inf in schedules:
        return -math.inf
    size = most_goodput(problem) + sum(own.size for own in tenants)
    size += float(np.abs(certificate.prices).sum()) + sum(map(abs, schedules))
    path = _best_path(problem, tenants, states, rows, costs)
    return path + sum(schedules) - sum(own.asked for own in tenants) + rounding(problem, size)


class _Tenant(NamedTuple):
    """What a tenant holds and earns.

    Attributes:
        terms: The problem's.
        multisets: What may serve it, something as large as ``min_profile`` among it, ``(n_multisets, n_profiles)``.
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
    def of(cls, problem: Problem, m: int, certificate: StatusCertificate) -> _Tenant:
        """Tenant m's."""
        tenant, least = problem.tenants[m], problem.gpu.profile(problem.tenants[m].min_profile)
        may_serve = [name in tenant.capability_rps for name in problem.profile_names]
        is_large = [profile.is_at_least(least) for profile in problem.profiles]
        found = np.array(problem.gpu.multisets(problem.profile_names))
        found = found[found[:, is_large].any(axis=1) & ~found[:, ~np.array(may_serve)].any(axis=1)]
        multisets = [tuple(counts) for counts in found.tolist()]
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
        return cls(tenant, found, settled, changed, opening, asked, size, ways)

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


def _best_schedule(
    problem: Problem,
    own: _Tenant,
    rows: _Rows,
    prices: dict[TenantStatus, FloatArray],
    costs: dict[TenantStatus, FloatArray],
) -> float:
    """The most that a schedule of a tenant is paid, with salvage and what checkpoints add; −inf where it has none.

    ``costs`` become the prices in the steps in which some schedule has the status.
    """
    n_steps, gains = problem.n_steps, (own.settled, own.changed)
    salvage = own.terms.salvage or (0.0,) * (1 + len(own.terms.options))
    given = {status: prices.get(status, np.zeros(n_steps)) for status in own.statuses}
    paid = {status: _before_each(values) for status, values in given.items()}
    best, last_wait = (-math.inf, 0) if own.terms.must_retrain else (salvage[0], n_steps)
    for (name, number), steps in own.ways.items():
        lacking = _before_each(np.where(rows.has_room(name), 0.0, 1.0))
        starts = np.flatnonzero(lacking[steps:] == lacking[:-steps])
        if not len(starts):
            continue
        ends, runs, done = starts + steps, own.runs(name), own.done(number)
        worth = paid[runs][ends] - paid[runs][starts] + paid[done][n_steps] - paid[done][ends] + salvage[1 + number]
        worth += more_by_checkpoints(problem, own.terms, number, name, gains, own.multisets, ends.tolist())
        best, last_wait = max(best, float(worth.max())), max(last_wait, int(starts[-1]))
        for start in starts.tolist():
            costs[runs][start : start + steps] = given[runs][start : start + steps]
        costs[done][ends[0] :] = given[done][ends[0] :]
    costs[own.waits][:last_wait] = 0.0
    return best


def _before_each(values: FloatArray) -> FloatArray:
    """What the steps before each add up to, ``(n_steps + 1,)``."""
    return np.insert(np.cumsum(values), 0, 0.0)


def _joint_states(problem: Problem, tenants: Sequence[_Tenant]) -> IntArray:
    """Every k, by the number of each tenant's multiset, ``(K, M)``."""
    fitting = set(problem.gpu.multisets(problem.profile_names))
    found: dict[tuple[int, ...], Multiset] = {(): (0,) * len(problem.profile_names)}
    for tenant in tenants:
        own = [tuple(counts) for counts in tenant.multisets.tolist()]
        longer = (
            ((*state, number), _sum(total, counts))
            for state, total in found.items()
            for number, counts in enumerate(own)
        )
        found = {state: total for state, total in longer if total in fitting}
    return np.array(list(found), dtype=np.int64).reshape(-1, len(tenants))


def _sum(one: Multiset, other: Multiset) -> Multiset:
    return tuple(map(int.__add__, one, other))


def _best_path(
    problem: Problem,
    tenants: Sequence[_Tenant],
    states: IntArray,
    rows: _Rows,
    costs: dict[TenantStatus, FloatArray],
) -> float:
    """The most that a path earns less what it pays; −inf where none leads through the window."""
    vectors = _vectors(tenants, rows)
    number = {vector: v for v, vector in enumerate(vectors)}
    n_levels = 1 + max(len(own.terms.options) for own in tenants)
    gains = np.zeros((2, len(tenants), n_levels, problem.n_steps, len(states)))
    for m, own in enumerate(tenants):
        for kind, values in enumerate((own.settled, own.changed)):
            # Levels beyond the options are those of checkpoints.
            known = values[: 1 + len(own.terms.options)]
            gains[kind, m, : len(known)] = known[..., states[:, m]]
    spans = problem.unavailable_spans
    row_of = np.array([[rows.number(_running(vector), mask) for vector in vectors] for _, _, mask in spans])
    lists, bounds = rows.packed()
    return _longest_path(
        gains[0],
        gains[1],
        np.sum([own.opening[states[:, m]] for m, own in enumerate(tenants)], axis=0),
        _agreeing(states),
        np.array([_levels(tenants, vector) for vector in vectors], dtype=np.int64),
        np.array(_ends(tenants, number), dtype=np.int64).reshape(-1, 2),
        np.array(_starts(tenants, number), dtype=np.int64).reshape(-1, 2),
        np.array([sum(costs[status] for status in vector) for vector in vectors]).T.copy(),
        lists,
        bounds,
        np.repeat(row_of, [end - begin for begin, end, _ in spans], axis=0),
    )


class _Rows:
    """Rows, each made where it is first asked for."""

    def __init__(self, problem: Problem, tenants: Sequence[_Tenant], states: IntArray) -> None:
        self._problem = problem
        self._totals = sum(tenant.multisets[states[:, m]] for m, tenant in enumerate(tenants))
        self._fitting: dict[int, set[Multiset]] = {}
        self._number: dict[tuple[Multiset, int], int] = {}
        self._found: list[IntArray] = []

    def number(self, running: Sequence[str], mask: int = 0) -> int:
        """That beside retrainings on these profiles, where these memory slices, one bit each, are not ours."""
        counts = counts_of(self._problem, running)
        if (counts, mask) not in self._number:
            if mask not in self._fitting:
                self._fitting[mask] = set(self._problem.gpu.multisets(self._problem.profile_names, mask))
            fits = [tuple(total) in self._fitting[mask] for total in (self._totals + np.array(counts)).tolist()]
            self._number[counts, mask] = len(self._found)
            self._found.append(np.flatnonzero(fits))
        return self._number[counts, mask]

    def is_empty(self, running: Sequence[str], mask: int = 0) -> bool:
        """Whether nothing fits there."""
        number = self.number(running, mask)
        return not len(self._found[number])

    def has_room(self, profile_name: str) -> NDArray[np.bool_]:
        """Whether something fits beside one retraining, by step, ``(n_steps,)``."""
        out = np.empty(self._problem.n_steps, dtype=np.bool_)
        for begin, end, mask in self._problem.unavailable_spans:
            out[begin:end] = not self.is_empty([profile_name], mask)
        return out

    def packed(self) -> tuple[IntArray, IntArray]:
        """All rows, one after the other, and where each begins and ends, ``(n_rows + 1,)``."""
        return np.concatenate(self._found), np.cumsum([0, *map(len, self._found)])


def _vectors(tenants: Sequence[_Tenant], rows: _Rows) -> list[Vector]:
    """Every v, those of the same levels together; first that in which all wait."""
    found: list[Vector] = [()]
    for own in tenants:
        longer = ((*vector, status) for vector, status in product(found, own.statuses))
        found = [vector for vector in longer if not rows.is_empty(_running(vector))]
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
    for c in range(len(agreeing)):
        for k in before:
            best[c, agreeing[c, k]] = -np.inf
        for k in after:
            best[c, agreeing[c, k]] = -np.inf
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
            for v in range(len(levels)):
                if v == 0 or (levels[v] != levels[v - 1]).any():
                    _gains_at(settled, changed, levels[v], s, gains)
                own = lists[bounds[before[v]] : bounds[before[v] + 1]]
                _changed_to(values[v], own, lists[bounds[now[v]] : bounds[now[v] + 1]], agreeing, gains, best)
        for source, to in starts:
            for k in lists[bounds[now[to]] : bounds[now[to] + 1]]:
                values[to, k] = max(values[to, k], values[source, k])
        for v in range(len(levels)):
            values[v] -= paid[s, v]
    return float(values.max())
