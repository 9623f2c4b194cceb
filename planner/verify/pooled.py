"""The bound of a pool alone on the GPU that pays for all that its members hold, proven by a certificate's prices.

What the pool holds serves all members, so their gains add up; each pays for its own retraining. Told apart is which
level each member has: states, from one to the next of which one level rises. A rise costs the least that the member's
retraining can cost which ends there. Where a level is better than the old one in every step, that may as well be one
which ends later within the change that begins there; where it is worse, one which ends earlier: that earns more and
costs no more, so that changes need not be cut at rises. Members beyond ``MOST_STATES`` states, and those of whom
neither is so, are taken by themselves: in each step a level adds to the old one what it adds at most, whatever is held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Int64s, sums_before
from planner.plan import Certificate
from planner.problem import Problem
from planner.verify.floors import with_floor
from planner.verify.holdings import are_enough, counts_at_start, gains_of, in_common, retraining_costs, that_serve

MOST_STATES = 16
"""States at most that are distinguished."""


class Member(NamedTuple):
    """A tenant, of a pool or alone, by what serves it.

    Attributes:
        gains: What it earns under its floor, settled, ``(1 + n_options, n_steps, n)``.
        changed: Likewise, where it has just changed.
        costs: What its retraining costs by option and end, less what it adds, ``(n_options, n_steps + 1)``.
        is_required: Whether it has to.
        salvage: What it earns without one beyond the window.
        asked: What its floor takes off the bound.
        size: How large the numbers of floor and salvage get.
    """

    gains: Floats
    changed: Floats
    costs: Floats
    is_required: bool
    salvage: float
    asked: float
    size: float

    def leeway(self, held: Bools) -> float:
        """How much what a level adds depends on what is held; without one, nothing."""
        rises = (self.gains[1:] - self.gains[0])[:, :, held]
        if not rises.size:
            return 0.0
        return float((rises.max(axis=2) - rises.min(axis=2)).sum())


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
    counts = that_serve(problem, problem.tenants[members[0]], fitting)
    index = {tuple(multiset): k for k, multiset in enumerate(counts.tolist())}
    apart = min(problem.epoch_steps, n_steps + 1)
    warm_up = min(problem.warm_up_steps(problem.tenants[members[0]]), apart)
    # Whom kept instances may not serve at first is left out: all members, which earns more.
    start = counts_at_start(problem, problem.tenants[members[0]], state.next_epoch_step, of_all=True)
    first = slice(None) if start is None else [index.get(start, 0)]
    others, told, total, size = np.zeros((n_steps, len(counts))), list[Member](), 0.0, 0.0
    held = np.all([are_enough(problem, problem.tenants[m], counts) for m in members], axis=0)
    found = [member_of(problem, m, prices, counts, first, certificate) for m in members]
    for own in sorted(found, key=lambda own: -own.leeway(held)):
        final = own.gains
        total, size = total + (own.salvage - own.asked), size + own.size
        is_ordered = all((level >= final[0]).all() or (level <= final[0]).all() for level in final[1:])
        n_states = len(final) * math.prod(len(other.gains) for other in told)
        if np.isfinite(own.costs).any() and is_ordered and n_states <= MOST_STATES:
            told.append(own._replace(costs=_least_within(own.costs, final, apart)))
        else:
            others += final[0]
            total += _best_by_itself(own)
    rows = [*product(*(range(len(own.gains)) for own in told))]
    summed = [others + sum(own.gains[level] for own, level in zip(told, row, strict=True)) for row in rows]
    earned, paid = sums_before(np.stack(summed), axis=1), sums_before(prices @ counts.T)
    common = in_common(counts)
    value = np.full((len(rows), n_steps + 1, len(index)), -np.inf)
    value[0, 0, first] = 0.0
    barred = np.where(held, 0.0, -np.inf)
    rises = [
        (place, rows.index((*row[:i], level, *row[i + 1 :])), own.costs[level - 1])
        for place, row in enumerate(rows)
        for i, own in enumerate(told)
        if row[i] == 0
        for level in range(1, len(own.gains))
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
    may_end = [all(level or not own.is_required for own, level in zip(told, row, strict=True)) for row in rows]
    return float(value[may_end, n_steps].max(initial=-np.inf)) + total, size


def member_of(
    problem: Problem, m: int, prices: Floats, counts: Int64s, first: list[int] | slice, certificate: Certificate
) -> Member:
    """Tenant m, where the multisets of ``first`` are what is held until the first epoch."""
    tenant, state = problem.tenants[m], problem.opening
    index = {tuple(multiset): k for k, multiset in enumerate(counts.tolist())}
    gains = gains_of(problem, m, list(index))
    settled, changed, asked, size = with_floor(problem, m, list(index), certificate, gains)
    costs = retraining_costs(problem, tenant, prices, (settled, changed), counts)
    for s in range(min(state.next_epoch_step, problem.n_steps)):
        settled[:, s, first] = settled[:, s, [index[counts_at_start(problem, tenant, s) or ()]]]
    is_required = tenant.must_retrain or any(run.tenant == tenant.name for run in state.retrainings)
    ended, salvages = slice(1 + len(tenant.options)), tenant.salvages
    size += max(salvages)
    return Member(settled[ended], changed[ended], costs, is_required, salvages[0], asked, size)


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


def _best_by_itself(own: Member) -> float:
    """The most that a member's retraining adds if each step's gain by it is what it is at most, whatever is held."""
    best = -np.inf if own.is_required else 0.0
    for cost, level in zip(own.costs, own.gains[1:], strict=True):
        more = (level - own.gains[0]).max(axis=1)
        best = max(best, float((np.append(np.cumsum(more[::-1])[::-1], 0.0) - cost).max()))
    return best
