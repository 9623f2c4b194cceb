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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from executor.mig import Multiset
from planner.counts import serving_multisets
from planner.errors import ProblemError
from planner.problem import FloatArray, GainTable, Problem, Reconfiguration, TenantTerms


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


def expected_gains(problem: Problem, paths_rps: Sequence[FloatArray]) -> tuple[GainTable, ...]:
    """One table a tenant: the mean of min(a, C) over its sample paths.

    Shapes:
        ``paths_rps``: one a tenant, ``(n_paths, n_steps)``, requests a second.

    Raises:
        ProblemError: A path array has another shape.
    """
    return tuple(
        _table(problem, tenant, _requests(problem, tenant, paths)) for tenant, paths in _with_paths(problem, paths_rps)
    )


def carry_over_gains(
    problem: Problem, paths_rps: Sequence[FloatArray], slack_s: Sequence[Mapping[str, float]]
) -> tuple[GainTable, ...]:
    """One table a tenant: the mean over its sample paths of what is served when queues carry over.

    For a multiset held from the window's start, ``left = max(0, b[s−1] + a[s] − C)`` is not served in
    step s, ``b[s] = min(left, Σ c·slack)`` of it waits and is served later, and the rest is lost: the
    step is worth ``a[s] − (left − b[s])``, between min(a, C) and a. Made monotone: a superset is worth
    no less. ``changed`` (``paper``) is the mean without carry.

    Args:
        problem: The problem.
        paths_rps: One a tenant, ``(n_paths, n_steps)``, requests a second.
        slack_s: One a tenant: SLO − batch latency in seconds, by each profile of ``capability_rps``.

    Raises:
        ProblemError: A path array has another shape, or a profile has no slack.
    """
    tables = []
    for (tenant, paths), slack in zip(_with_paths(problem, paths_rps), slack_s, strict=True):
        lacking = sorted(set(tenant.capability_rps) - set(slack))
        if lacking:
            raise ProblemError(f"tenants.{tenant.name}: slack_s lacks {', '.join(lacking)}, which capability_rps has")
        served = _mean_served_with_carry(problem, tenant, _requests(problem, tenant, paths), slack)
        tables.append(_table(problem, tenant, _requests(problem, tenant, paths), served))
    return tuple(tables)


def make_monotone(multisets: Sequence[Multiset], values: FloatArray) -> FloatArray:
    """``values`` in which every multiset is worth the most that it or any of its sub-multisets was worth.

    Shapes:
        ``(…, n_multisets) → (…, n_multisets)``.
    """
    counts = np.array(multisets, dtype=np.int64)
    below: NDArray[np.bool_] = np.all(counts[:, None, :] <= counts[None, :, :], axis=2)
    return np.stack([values[..., below[:, k]].max(axis=-1) for k in range(len(multisets))], axis=-1)


def _with_paths(problem: Problem, paths_rps: Sequence[FloatArray]) -> list[tuple[TenantTerms, FloatArray]]:
    if len(paths_rps) != len(problem.tenants):
        raise ProblemError(f"paths_rps: {len(paths_rps)} arrays given for {len(problem.tenants)} tenants")
    return list(zip(problem.tenants, paths_rps, strict=True))


def _requests(problem: Problem, tenant: TenantTerms, paths_rps: FloatArray) -> FloatArray:
    if paths_rps.ndim != 2 or paths_rps.shape[1] != problem.n_steps or not paths_rps.size:
        raise ProblemError(
            f"tenants.{tenant.name}: paths_rps has shape {paths_rps.shape}; (n_paths, {problem.n_steps}) is needed"
        )
    return paths_rps * problem.step_s


def _capacities(problem: Problem, tenant: TenantTerms) -> tuple[FloatArray, FloatArray]:
    """(C, C lessened by the overhead of a change), each ``(n_multisets,)``; the empty multiset has 0 of both."""
    counts = np.array(serving_multisets(problem, tenant), dtype=np.float64)
    rates = np.array([tenant.capability_rps.get(name, 0.0) for name in problem.profile_names])
    capacity = problem.step_s * (counts @ rates)
    n_instances = np.maximum(counts.sum(axis=1), 1.0)
    return capacity, capacity - tenant.overhead_s / problem.step_s / n_instances * capacity


def _mean_served(problem: Problem, tenant: TenantTerms, requests: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of min(a, C) over paths, steady and changed, each ``(n_steps, n_multisets)``."""
    steady, changed = _capacities(problem, tenant)
    arrivals = requests[:, :, None]
    return np.minimum(arrivals, steady).mean(axis=0), np.minimum(arrivals, changed).mean(axis=0)


def _mean_served_with_carry(
    problem: Problem, tenant: TenantTerms, requests: FloatArray, slack_s: Mapping[str, float]
) -> FloatArray:
    """Mean over paths of what is served of each step's arrivals, ``(n_steps, n_multisets)``, in it or later."""
    multisets = serving_multisets(problem, tenant)
    capacity, _ = _capacities(problem, tenant)
    room_by_profile = [
        tenant.capability_rps[name] * max(0.0, slack_s[name]) if name in tenant.capability_rps else 0.0
        for name in problem.profile_names
    ]
    room = np.array(multisets, dtype=np.float64) @ np.array(room_by_profile)
    waiting = np.zeros((len(requests), len(multisets)))
    served_mean = np.empty((problem.n_steps, len(multisets)))
    for step in range(problem.n_steps):
        arrivals = requests[:, step, None]
        left = np.maximum(waiting + arrivals - capacity, 0.0)
        waiting = np.minimum(left, room)
        served_mean[step] = (arrivals - (left - waiting)).mean(axis=0)
    return make_monotone(multisets, served_mean)


def _table(
    problem: Problem, tenant: TenantTerms, requests: FloatArray, steady_served: FloatArray | None = None
) -> GainTable:
    """The table of a tenant from its requests, ``(n_paths, n_steps)``; served times weight and accuracy by level.

    ``steady_served`` is what is served in a step without a change where that is not min(a, C), ``(n_steps,
    n_multisets)``.
    """
    worth = tenant.weight * np.array(tenant.accuracies)[:, None, None]
    steady, changed = _mean_served(problem, tenant, requests)
    served = steady if steady_served is None else steady_served
    is_paper = problem.reconfiguration is Reconfiguration.PAPER
    return GainTable(
        multisets=serving_multisets(problem, tenant),
        steady=worth * served,
        changed=worth * changed if is_paper else None,
        in_time=served,
        in_time_changed=changed if is_paper else None,
        arrived=requests.mean(axis=0),
    )


def _checked(problem: Problem, tenant: TenantTerms, table: GainTable) -> GainTable:
    """``table`` if it fits the problem, with ``changed`` if ``paper`` needs it."""
    where = f"tenants.{tenant.name}: gains"
    shape = (len(tenant.accuracies), problem.n_steps, len(table.multisets))
    for name, values in (("steady", table.steady), ("changed", table.changed)):
        if values is not None and values.shape != shape:
            raise ProblemError(f"{where}.{name} has shape {values.shape}; {shape} is needed")
        if values is not None and not np.isfinite(values).all():
            raise ProblemError(f"{where}.{name} holds a value that is not finite")
    lacking = [multiset for multiset in serving_multisets(problem, tenant) if multiset not in table.column]
    if lacking:
        raise ProblemError(f"{where} lack the multiset {lacking[0]} of {', '.join(problem.profile_names)}")
    if problem.reconfiguration is Reconfiguration.PHYSICAL:
        return table
    changed = table.changed
    if changed is None:
        requests = _requests(problem, tenant, tenant.arrivals_rps[None, :])
        simple = _table(problem, tenant, requests)
        columns = [simple.column[multiset] for multiset in table.multisets]
        assert simple.changed is not None
        changed = simple.changed[:, :, columns]
    return GainTable(table.multisets, table.steady, np.minimum(changed, table.steady))
