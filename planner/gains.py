"""Gain tables: the goodput that a tenant can expect of a multiset of instances in a step.

===========  ==========================================================================
C[k]         requests that multiset k can serve in a step = ``step_s · Σ c`` over its instances
N[k]         how many instances it has
a[s]         requests that the tenant brings in step s, or ``a[i, s]`` on sample path i
b[s]         requests that wait at the end of step s and can still be answered in time
===========  ==========================================================================

Three tables, from plain to good: min(a, C) at the expected arrivals, its mean over sample paths of
the forecast, and the mean with queues that carry over what still meets its deadline. Against a
request simulation min(a, C) is 1–13 % off (design, section 4); with queues, plans are some 0.2 % off
where workers start exactly as planned, 1 % with extreme bursts (``docs/fidelity.md``).

Requests count in the step in which they *arrive*, as everywhere (a request that waits and is served a
step later earns in its own step). Counted where they are served, a plan that changes its multiset
could earn twice for one request: a larger multiset serves it at once, a smaller one the step after.

The members of a pool are served in one order for the whole window (:func:`order_of_service`), each in what those before
it leave of the step. So each member has a table of its own, and tables still add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from executor.compiled import compiled
from executor.mig import Multiset
from planner.arrays import Floats, Int64s
from planner.counts import serving_multisets
from planner.errors import ProblemError
from planner.problem import FLOOR_TOLERANCE, GainTable, Problem, Reconfiguration, TenantTerms


def gain_tables(problem: Problem) -> tuple[GainTable, ...]:
    """One table a tenant: ``problem.gains`` if it has some, else the simple one, min(a, C).

    Columns are at least :func:`~planner.counts.serving_multisets`, the empty multiset first. In
    ``paper`` every table has ``changed``, never above ``steady``.

    Raises:
        ProblemError: ``problem.gains`` does not fit the problem.
    """
    if problem.gains is None:
        return expected_gains(problem, [tenant.arrivals_rps[None, :] for tenant in problem.tenants])
    if len(problem.gains) != len(problem.tenants):
        raise ProblemError(f"gains: {len(problem.gains)} tables given for {len(problem.tenants)} tenants")
    return tuple(_checked(problem, *pair) for pair in zip(problem.tenants, problem.gains, strict=True))


def expected_gains(problem: Problem, paths_rps: Sequence[Floats]) -> tuple[GainTable, ...]:
    """One table a tenant: the mean of min(a, C) over its sample paths.

    Shapes:
        ``paths_rps``: one a tenant, ``(n_paths, n_steps)``, requests a second.

    Raises:
        ProblemError: A path array has another shape.
    """
    requests = tuple(_requests(problem, paths_rps))
    no_slack = dict[str, float]()
    return _by_tenant(
        problem,
        lambda m: _table(problem, *requests[m]),
        lambda members: _carried_in_turn(problem, members, requests, [no_slack] * len(requests), 0.0),
    )


def carry_over_gains(
    problem: Problem, paths_rps: Sequence[Floats], slack_s: Sequence[Mapping[str, float]], risk: float = 0.0
) -> tuple[GainTable, ...]:
    """One table a tenant: the mean over its sample paths of what is served when queues carry over.

    For a multiset held from the window's start, ``left = max(0, b[s−1] + a[s] − C)`` is not served in
    step s, ``b[s] = min(left, Σ c·slack)`` of it waits and is served later, and the rest is lost: the
    step is worth ``a[s] − (left − b[s])``, between min(a, C) and a. Made monotone: a superset is worth
    no less. ``changed`` (``paper``) is the mean without carry.

    With ``risk`` ρ a step is worth (1 − ρ) · mean + ρ · CVaR, the mean of the fifth of the paths on which least is
    served in it. As each step has a worst fifth of its own, the sum is a lower bound of what whole paths come to.
    ``in_time`` stays the mean.

    Args:
        problem: The problem.
        paths_rps: One a tenant, ``(n_paths, n_steps)``, requests a second.
        slack_s: One a tenant: SLO − batch latency in seconds, by each profile of ``capability_rps``.
        risk: From 0 to 1.

    Raises:
        ProblemError: A path array has another shape, or a profile has no slack.
    """
    requests = tuple(_requests(problem, paths_rps))
    for tenant, slack in zip(problem.tenants, slack_s, strict=True):
        lacking = sorted(set(problem.capability_rps(tenant)) - set(slack))
        if lacking:
            raise ProblemError(f"tenants.{tenant.name}: slack_s lacks {', '.join(lacking)}, which capability_rps has")
    return _by_tenant(
        problem,
        lambda m: _carried(problem, *requests[m], slack_s[m], risk),
        lambda members: _carried_in_turn(problem, members, requests, slack_s, risk),
    )


def _by_tenant(
    problem: Problem, alone: Callable[[int], GainTable], pooled: Callable[[tuple[int, ...]], Sequence[GainTable]]
) -> tuple[GainTable, ...]:
    """The tables in the tenants' order, those of a pool made together."""
    found: dict[int, GainTable] = {}
    for members in problem.partition:
        found |= zip(members, [alone(members[0])] if len(members) == 1 else pooled(members), strict=True)
    return tuple(found[m] for m in range(len(problem.tenants)))


def order_of_service(problem: Problem, members: Sequence[int]) -> tuple[int, ...]:
    """The members of a pool, those first whose requests of a second of the largest instance are worth most.

    A request's worth is its tenant's weight times the mean of the accuracy now and the best one that it may have.
    """
    pool = problem.pool_of(problem.tenants[members[0]].name)
    assert pool is not None
    largest = max(map(problem.gpu.profile, pool.capability_rps), key=lambda p: (p.compute_slices, p.memory_slices))

    def worth(m: int) -> float:
        tenant = problem.tenants[m]
        accuracy = (tenant.accuracy_before + max(tenant.accuracies)) / 2
        return tenant.weight * accuracy * pool.capability_rps[largest.name][tenant.name]

    return tuple(sorted(members, key=lambda m: (-worth(m), m)))


def make_monotone(multisets: Sequence[Multiset], values: Floats) -> Floats:
    """``values`` in which every multiset is worth the most that it or any of its sub-multisets was worth.

    Shapes:
        ``(…, n_multisets) → (…, n_multisets)``.
    """
    return np.stack([values[..., below].max(axis=-1) for below in _below(tuple(multisets))], axis=-1)


@lru_cache(maxsize=64)
def _below(multisets: tuple[Multiset, ...]) -> list[Int64s]:
    """By multiset, which ones it holds, itself among them."""
    counts = np.array(multisets, dtype=np.int64)
    return [np.flatnonzero(np.all(counts <= own, axis=1)) for own in counts]


def carried_over(arrived: Floats, capacity: Floats, room: Floats) -> Iterator[Floats]:
    """What is served of each step's arrivals, in it or later, where so many can be served in a step and so many wait.

    Shapes:
        ``(n_steps, …)`` each, of shapes that broadcast.
    """
    waiting: Floats | float = 0.0
    for came, most, most_waiting in zip(arrived, capacity, room, strict=True):
        left = np.maximum(waiting + came - most, 0.0)
        waiting = np.minimum(left, most_waiting)
        yield came - (left - waiting)


def carried_over_in_turn(
    arrived: Sequence[Floats], capacity: Sequence[Floats], room: Sequence[Floats]
) -> Iterator[Floats]:
    """Likewise for the members of a pool in the order of their service: by step, ``(n_members, n_paths, n_columns)``.

    Each is served in what those before it leave of the step, and waits no longer than they leave it time. Of what came
    in the step no more than its share of the time that a request may wait does.

    Shapes:
        One a member: arrivals ``(n_steps, n_paths)``, the others ``(n_steps, n_columns)``.
    """
    return (served for block in _blocks_in_turn(arrived, capacity, room) for served in block)


_BLOCK = 16
"""Steps that are reckoned at once: a call for each costs more than it does."""


def _blocks_in_turn(arrived: Sequence[Floats], capacity: Sequence[Floats], room: Sequence[Floats]) -> Iterator[Floats]:
    """:func:`carried_over_in_turn` by block of steps, ``(n_steps of it, n_members, n_paths, n_columns)``."""
    came, most, most_waiting = (np.stack([*own], axis=1).astype(np.float64) for own in (arrived, capacity, room))
    waiting = np.zeros((came.shape[1], came.shape[2], most.shape[2]))
    for begin in range(0, len(came), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        served = np.empty((len(came[block]), *waiting.shape))
        _serve_in_turn(came[block], most[block], most_waiting[block], waiting, served)
        yield served


@compiled
def _serve_in_turn(came: Floats, most: Floats, most_waiting: Floats, waiting: Floats, served: Floats) -> None:
    """What is ``served`` of what ``came``, ``waiting`` from before and, updated, for later, step by step."""
    for step in range(came.shape[0]):
        for k in range(most.shape[2]):
            for path in range(came.shape[2]):
                left_share, waited = 1.0, 0.0
                for i in range(came.shape[1]):
                    due, capacity = came[step, i, path] + waiting[i, path, k], most[step, i, k]
                    taken, kept = 0.0, 0.0
                    if capacity > 0.0:
                        taken = min(due, capacity * left_share)
                        left_share = max(0.0, left_share - taken / capacity)
                        slack = most_waiting[step, i, k] / capacity
                        kept = min(due - taken, came[step, i, path] * slack, capacity * max(0.0, slack - waited))
                        waited += kept / capacity
                    waiting[i, path, k] = kept
                    served[step, i, path, k] = came[step, i, path] - (due - taken - kept)


def rooms(problem: Problem, tenant: TenantTerms, slack_s: Mapping[str, float]) -> Floats:
    """Requests that can wait for an instance and still be answered in time, by ``profile_names``, ``(n_profiles,)``."""
    slack: Floats = np.array([max(0.0, slack_s.get(name, 0.0)) for name in problem.profile_names])
    return problem.rates_rps(tenant) * slack


def worth_of(tenant: TenantTerms) -> Floats:
    """Goodput of a request in time, by level: ``(n_levels, 1, 1)``."""
    worth: Floats = tenant.weight * np.array(tenant.accuracies)[:, None, None]
    return worth


def _requests(problem: Problem, paths_rps: Sequence[Floats]) -> Iterator[tuple[TenantTerms, Floats]]:
    """Each tenant with its requests by path and step."""
    if len(paths_rps) != len(problem.tenants):
        raise ProblemError(f"paths_rps: {len(paths_rps)} arrays given for {len(problem.tenants)} tenants")
    for tenant, paths in zip(problem.tenants, paths_rps, strict=True):
        if paths.ndim != 2 or paths.shape[1] != problem.n_steps or not paths.size:
            raise ProblemError(
                f"tenants.{tenant.name}: paths_rps has shape {paths.shape}; (n_paths, {problem.n_steps}) is needed"
            )
        yield tenant, paths * problem.step_s


WORST_FIFTH = 0.2
"""Of the paths: those that CVaR is the mean of."""


def _carried(
    problem: Problem, tenant: TenantTerms, requests: Floats, slack_s: Mapping[str, float], risk: float
) -> GainTable:
    """The table of a tenant whose queues carry over."""
    multisets = serving_multisets(problem, tenant)
    counts = np.array(multisets, dtype=np.float64)
    shape = (problem.n_steps, len(counts))
    capacity = np.broadcast_to(problem.step_s * (counts @ problem.rates_rps(tenant)), shape)
    room = np.broadcast_to(counts @ rooms(problem, tenant, slack_s), shape)
    by_step = carried_over(requests.T[:, :, None], capacity, room)
    means = _means((served[None] for served in by_step), len(requests), risk)
    return _averaged(problem, tenant, requests, *means, risk)


def _carried_in_turn(
    problem: Problem,
    members: Sequence[int],
    requests: Sequence[tuple[TenantTerms, Floats]],
    slack_s: Sequence[Mapping[str, float]],
    risk: float,
) -> list[GainTable]:
    """The tables of a pool's members, in their order."""
    order = order_of_service(problem, members)
    counts = np.array(serving_multisets(problem, problem.tenants[members[0]]), dtype=np.float64)
    shape = (problem.n_steps, len(counts))
    rates = [problem.rates_rps(problem.tenants[m]) for m in order]
    room = [rooms(problem, problem.tenants[m], slack_s[m]) for m in order]
    blocks = _blocks_in_turn(
        [requests[m][1].T for m in order],
        [np.broadcast_to(problem.step_s * (counts @ own), shape) for own in rates],
        [np.broadcast_to(counts @ own, shape) for own in room],
    )
    mean, worst = _means(blocks, len(requests[members[0]][1]), risk)
    pairs = ((m, order.index(m)) for m in members)
    return [_averaged(problem, *requests[m], mean[:, place], worst[:, place], risk) for m, place in pairs]


def _means(blocks: Iterable[Floats], n_paths: int, risk: float) -> tuple[Floats, Floats]:
    """Of what is served, ``(n_steps of it, …, n_paths, n_columns)`` by block: means over paths, and over the worst.

    Shapes:
        → ``(n_steps, …, n_columns)`` each, the second the first where there is no risk.
    """
    means, worst, n_worst = list[Floats](), list[Floats](), max(1, math.ceil(WORST_FIFTH * n_paths - 1e-9))
    for served in blocks:
        means.append(served.sum(axis=-2))
        if risk > 0:
            worst.append(np.sort(served, axis=-2)[..., :n_worst, :].mean(axis=-2))
    mean = np.concatenate(means) / n_paths
    return mean, np.concatenate(worst) if risk > 0 else mean


def _averaged(
    problem: Problem, tenant: TenantTerms, requests: Floats, mean: Floats, worst: Floats, risk: float
) -> GainTable:
    """The table from the :func:`_means` of what is served, ``(n_steps, n_multisets)`` each."""
    multisets = serving_multisets(problem, tenant)
    served = make_monotone(multisets, mean)
    table = _table(problem, tenant, requests, served)
    if risk > 0:
        table = replace(
            table, steady=table.steady + risk * worth_of(tenant) * (make_monotone(multisets, worst) - served)
        )
    return table


def _table(problem: Problem, tenant: TenantTerms, requests: Floats, served: Floats | None = None) -> GainTable:
    """The table of a tenant from its requests, ``(n_paths, n_steps)``; served times weight and accuracy by level.

    ``served`` is what is served in a step without a change where that is not the mean of min(a, C), ``(n_steps,
    n_multisets)``.
    """
    counts = np.array(serving_multisets(problem, tenant), dtype=np.float64)
    capacity, arrived = problem.step_s * (counts @ problem.rates_rps(tenant)), requests[:, :, None]
    if served is None:
        served = np.minimum(arrived, capacity).mean(axis=0)
    changed = None
    if problem.reconfiguration is Reconfiguration.PAPER:
        lost = tenant.overhead_s / problem.step_s / np.maximum(counts.sum(axis=1), 1.0) * capacity
        changed = np.minimum(arrived, capacity - lost).mean(axis=0)
    return table_of(tenant, serving_multisets(problem, tenant), served, changed, requests.mean(axis=0))


def table_of(
    tenant: TenantTerms,
    multisets: tuple[Multiset, ...],
    in_time: Floats,
    in_time_changed: Floats | None,
    arrived: Floats | None,
) -> GainTable:
    """The table in which goodput is weight and accuracy times what is served in time."""
    worth = worth_of(tenant)
    changed = None if in_time_changed is None else worth * in_time_changed
    return GainTable(multisets, worth * in_time, changed, in_time, in_time_changed, arrived)


def _checked(problem: Problem, tenant: TenantTerms, table: GainTable) -> GainTable:
    """``table`` if it fits the problem, with ``changed`` if ``paper`` needs it."""
    where = f"tenants.{tenant.name}: gains"
    by_level = (len(tenant.accuracies), problem.n_steps, len(table.multisets))
    shapes = {"steady": by_level, "changed": by_level, "in_time": by_level[1:], "in_time_changed": by_level[1:]}
    for name, shape in (shapes | {"arrived": by_level[1:2]}).items():
        values = getattr(table, name)
        if values is not None and values.shape != shape:
            raise ProblemError(f"{where}.{name} has shape {values.shape}; {shape} is needed")
        if values is not None and not np.isfinite(values).all():
            raise ProblemError(f"{where}.{name} holds a value that is not finite")
    lacking = [multiset for multiset in serving_multisets(problem, tenant) if multiset not in table.column]
    if lacking:
        raise ProblemError(f"{where} lack the multiset {lacking[0]} of {', '.join(problem.profile_names)}")
    if tenant.min_slo_attainment is not None:
        _check_in_time(where, table)
    arrived = tenant.arrivals_rps * problem.step_s if table.arrived is None else table.arrived
    if problem.reconfiguration is Reconfiguration.PHYSICAL:
        return replace(table, arrived=arrived)
    simple = _table(problem, tenant, tenant.arrivals_rps[None, :] * problem.step_s)
    columns = [simple.column[multiset] for multiset in table.multisets]
    assert simple.changed is not None
    assert simple.in_time_changed is not None
    changed = simple.changed[:, :, columns] if table.changed is None else table.changed
    owed = simple.in_time_changed[:, columns] if table.in_time_changed is None else table.in_time_changed
    return replace(
        table,
        changed=np.minimum(changed, table.steady),
        in_time_changed=None if table.in_time is None else np.minimum(owed, table.in_time),
        arrived=arrived,
    )


def _check_in_time(where: str, table: GainTable) -> None:
    """Whether the table says what a floor needs, in a way that what is closed upwards stays so."""
    if table.in_time is None:
        raise ProblemError(f"{where} lack in_time, which min_slo_attainment is measured by")
    if (table.in_time < -FLOOR_TOLERANCE).any():
        raise ProblemError(f"{where}.in_time holds {table.in_time.min():g}; numbers ≥ 0 are needed")
    most = make_monotone(table.multisets, table.in_time)
    if (table.in_time < most - FLOOR_TOLERANCE * np.maximum(1.0, most)).any():
        raise ProblemError(f"{where}.in_time is lower for a multiset than for a part of it")
