"""Among plans of one objective the one that holds most: what engines add to gains to tell such plans apart.

Expected arrivals say nothing of what serves those that nobody expects: a tenant that one instance serves in full earns
no more with two. What it holds counts as its *reserve*. A tenant of which ``a`` requests come a step, on the window's
mean, and whose instances can serve ``C`` has the reserve ``a · C / (a + C)``, times what a request in time is worth.
That is what it would serve if its arrivals had the same mean and a heavy tail, more than ``x`` of them with probability
``(a / (a + x))²`` (Lomax, 1954, α = 2). So each instance adds to it, and the less the more a tenant has already. The
step makes no difference, nor does the level: what is held does not change with every forecast for a reserve's sake.

No figure counts a reserve. ``physical`` hands idle slices out by it; ``paper`` adds it to gains in so small a share
that it outweighs nothing else. Whatever is found by it is taken only where no tenant's goodput is lower: whose goodput
it is may matter to those who asked, as under floors of in-time answers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.engines.schedule import TOLERANCE, WindowFacts
from planner.gains import worth_of
from planner.problem import GainTable, Problem, TenantTerms

SHARES = (1e-10, 1e-12)
"""Shares of a reserve that are added to gains: the second where the first costs some of the objective.

The first stays above the rounding of sums over hundreds of steps, the second below what ``schedule.TOLERANCE`` tells
apart.
"""

_LEAST_REQUESTS = 1.0
"""Requests a step that a tenant is taken to have at least: one that expects none has a reserve, too."""


def with_reserves(facts: WindowFacts, share: float) -> WindowFacts:
    """The problem with a share of its tenants' reserves added to what they earn."""
    pairs = zip(facts.problem.tenants, facts.gains, strict=True)
    return replace(facts, gains=tuple(_with_reserve(facts.problem, *pair, share) for pair in pairs))


def _with_reserve(problem: Problem, tenant: TenantTerms, table: GainTable, share: float) -> GainTable:
    counts = np.array(table.multisets, dtype=np.float64)
    capacity = problem.step_s * (counts @ problem.rates_rps(tenant))
    steady, changed = table.steady + share * reserve(problem, tenant, capacity), table.changed
    if changed is not None:
        left = np.maximum(0.0, 1.0 - tenant.overhead_s / problem.step_s / np.maximum(1.0, counts.sum(axis=1)))
        changed = changed + share * reserve(problem, tenant, left * capacity)
    return GainTable(table.multisets, steady, changed)


def reserve(problem: Problem, tenant: TenantTerms, capacity: Floats) -> Floats:
    """A tenant's reserve in a step in which so many requests can be served, element by element."""
    requests = max(_LEAST_REQUESTS, problem.step_s * float(tenant.arrivals_rps.mean()))
    worth = float(worth_of(tenant)[0, 0, 0]) * requests
    return np.asarray(worth * capacity / (requests + capacity), dtype=np.float64)


def costs_nobody(goodput: Floats, known: Floats) -> bool:
    """Whether no tenant's goodput, ``(n_tenants,)`` each, is lower than was known, by more than rounding."""
    return bool((goodput >= known - TOLERANCE * np.abs(known).sum()).all())
