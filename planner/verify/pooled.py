"""The bound of a pool alone on the GPU that pays for all that its members hold, proven by a certificate's prices.

What the pool holds serves all members, so their gains add up; each pays for its own retraining. Told apart is which
level each member has: states, from one to the next of which one level rises. A rise costs the least that the member's
retraining can cost which ends there. Where a level is better than the old one in every step, that may as well be one
which ends later within the change that begins there; where it is worse, one which ends earlier: that earns more and
costs no more, so that changes need not be cut at rises. Members beyond ``MOST_STATES`` states, and those of whom
neither is so, have the best level that there may be in each step, and pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from planner.arrays import Bools, Floats, Int64s, sums_before
from planner.plan import Certificate
from planner.problem import Problem
from planner.verify.floors import with_floor
from planner.verify.holdings import counts_at_start, gains_of, retraining_costs

MOST_STATES = 64
"""States at most that are told apart."""


def best_pooled(
    problem: Problem, members: Sequence[int], prices: Floats, fitting: Int64s, certificate: Certificate
) -> tuple[float, float]:
    """The most that the pool can earn less what it pays, under its floors; and the size of what floors and salvage add.

    Args:
        problem: A ``physical`` problem.
        members: The pool's tenants, by index.
        prices: ``(n_steps, n_profiles)``.
        fitting: What fits the GPU, ``(n, n_profiles)``.
        certificate: That with the multipliers of floors.
    """
    n_steps, state = problem.n_steps, problem.opening
    rates = problem.capability_rps(problem.tenants[members[0]])
    counts = fitting[~fitting[:, [name not in rates for name in problem.profile_names]].any(axis=1)]
    index = {tuple(multiset): k for k, multiset in enumerate(counts.tolist())}
    apart = min(problem.epoch_steps, n_steps + 1)
    warm_up = min(problem.warm_up_steps(problem.tenants[members[0]]), apart)
    # Who may kept instances serve at first is left out: all members, which earns more.
    start = counts_at_start(problem, problem.tenants[members[0]], n_steps, of_all=True)
    first = slice(None) if start is None else [index.get(start, 0)]
    others, told, total, size = np.zeros((n_steps, len(counts))), list[tuple[Floats, Floats, bool]](), 0.0, 0.0
    for m in members:
        tenant = problem.tenants[m]
        gains = gains_of(problem, m, list(index))
        settled, _, asked, own_size = with_floor(problem, m, list(index), certificate, gains)
        costs = retraining_costs(problem, tenant, prices, (settled, settled), counts)
        for s in range(min(state.next_epoch_step, n_steps)):
            settled[:, s, first] = settled[:, s, [index[counts_at_start(problem, tenant, s) or ()]]]
        is_required = tenant.must_retrain or any(run.tenant == tenant.name for run in state.retrainings)
        final = settled[: 1 + len(tenant.options)]
        total, size = total + tenant.salvages[0] - asked, size + own_size + max(tenant.salvages)
        is_ordered = all((own >= final[0]).all() or (own <= final[0]).all() for own in final[1:])
        n_states = (1 + len(tenant.options)) * int(np.prod([len(own) for own, _, _ in told]))
        if np.isposinf(costs).all() and is_required:
            return -np.inf, size
        if np.isposinf(costs).all():
            others += final[0]
        elif is_ordered and n_states <= MOST_STATES:
            told.append((final, _least_within(costs, final, apart), is_required))
        else:
            total += max(tenant.salvages) - tenant.salvages[0]
            others += _best_levels(settled, costs)
    rows = [*product(*(range(len(own)) for own, _, _ in told))]
    summed = [others + sum(own[0][level] for own, level in zip(told, row, strict=True)) for row in rows]
    earned, paid = sums_before(np.stack(summed), axis=1), sums_before(prices @ counts.T)
    common = np.array([[index[tuple(map(min, a, b))] for b in index] for a in index])
    value = np.full((len(rows), n_steps + 1, len(index)), -np.inf)
    value[0, 0, first] = 0.0
    barred = np.where(_may_be_held(problem, members, counts), 0.0, -np.inf)
    rises = [
        (place, rows.index((*row[:i], level, *row[i + 1 :])), own[1][level - 1])
        for place, row in enumerate(rows)
        for i, own in enumerate(told)
        if row[i] == 0
        for level in range(1, len(own[0]))
    ]
    for s in range(n_steps + 1):
        for source, target, cost in rises:
            value[target, s] = np.maximum(value[target, s], value[source, s] - cost[s])
        if s == n_steps:
            break
        stay = value[:, s] + earned[:, s + 1] - earned[:, s] - paid[s + 1] + paid[s] + barred
        value[:, s + 1] = np.maximum(value[:, s + 1], stay)
        if s < state.next_epoch_step:
            continue
        warm, end = min(s + warm_up, n_steps), min(s + apart, n_steps)
        kept = earned[:, warm] - earned[:, s]
        best = (value[:, s, :, None] + kept[:, common]).max(axis=1)
        due = earned[:, end] - earned[:, warm] + barred - paid[end] + paid[s]
        value[:, end] = np.maximum(value[:, end], best + due)
    may_end = [all(level or not own[2] for own, level in zip(told, row, strict=True)) for row in rows]
    return float(value[may_end, n_steps].max(initial=-np.inf)) + total, size


def _least_within(costs: Floats, gains: Floats, apart: int) -> Floats:
    """By option and step the least cost of those that may stand for one which ends there; of the same shape."""
    out, n_steps = costs.copy(), costs.shape[1] - 1
    for own, cost, level in zip(out, costs, gains[1:], strict=True):
        is_better = bool((level >= gains[0]).all())
        for shift in range(1, min(apart, n_steps + 1)):
            if is_better:
                own[:-shift] = np.minimum(own[:-shift], cost[shift:])
            else:
                own[shift:] = np.minimum(own[shift:], cost[:-shift])
    return out


def _best_levels(gains: Floats, costs: Floats) -> Floats:
    """The most that any level earns in each step in which it may hold: ``(n_levels, n_steps, n) → (n_steps, n)``."""
    best: Floats = gains[0].copy()
    n_final = 1 + len(costs)
    for level, own in enumerate(gains[1:], start=1):
        # Of checkpoints no step is looked for.
        step = int(np.isfinite(costs[level - 1]).argmax()) if level < n_final else 0
        if level >= n_final or np.isfinite(costs[level - 1]).any():
            best[step:] = np.maximum(best[step:], own[step:])
    return best


def _may_be_held(problem: Problem, members: Sequence[int], counts: Int64s) -> Bools:
    """Whether each of the counts has an instance as large as every member's ``min_profile``, ``(n,)``."""
    out = np.ones(len(counts), dtype=np.bool_)
    for m in members:
        least = problem.gpu.profile(problem.tenants[m].min_profile)
        out &= counts[:, [profile.is_at_least(least) for profile in problem.profiles]].any(axis=1)
    return out
