"""``paper``: what ``static`` searches: every joint state, held from the first step to the last.

A layout that never changes lies on memory slices that are ours in every step; retrainings beside it may use
the others while they are.
"""

from __future__ import annotations

import numpy as np

from executor.mig import Multiset
from planner.counts import feasible_multisets, joint_states, multiset_of, states_left, tenant_multisets
from planner.engines.arrays import Floats
from planner.engines.fixed import FixedLayout, FixedLayouts, Room, values_by_way
from planner.engines.paper.plan import Decisions, TenantDecision, initial_multisets
from planner.engines.schedule import WindowFacts
from planner.problem import GainTable, Problem, Retraining


def paper_layouts(facts: WindowFacts) -> FixedLayouts[str]:
    """The joint states in their order; a retraining occupies a profile wherever counts leave it."""
    problem, states = facts.problem, joint_states(facts.problem)
    if problem.unavailable:
        states = states[states_left(problem, states, problem.unavailable_in(0, problem.n_steps))]
    own = [np.array(tenant_multisets(problem, tenant), dtype=np.int64) for tenant in problem.tenants]
    totals = sum(counts[states[:, m]] for m, counts in enumerate(own)) if len(states) else np.zeros((0, 1))
    distinct, room = np.unique(totals, axis=0, return_inverse=True)
    return FixedLayouts(
        facts=facts,
        borders=tuple(begin for begin, _, _ in problem.unavailable_spans),
        by_end=tuple(_by_end(problem, m, table) for m, table in enumerate(facts.gains)),
        by_way={way: v for m in range(len(facts.gains)) for way, v in _by_way(facts, m).items()},
        holdings=states,
        room=room.reshape(-1),
        rooms=tuple(_room(problem, tuple(map(int, total))) for total in distinct),
    )


def decisions_of_fixed(layouts: FixedLayouts[str], found: FixedLayout[str]) -> Decisions:
    """The layout and its retrainings as decisions."""
    problem, (layout, placed) = layouts.facts.problem, found
    by_tenant = {retraining.tenant: retraining for retraining, _ in placed}
    return tuple(
        TenantDecision(
            (tenant_multisets(problem, tenant)[layouts.holdings[layout, m]],) * problem.n_steps, by_tenant.get(m)
        )
        for m, tenant in enumerate(problem.tenants)
    )


def _by_end(problem: Problem, m: int, table: GainTable) -> Floats:
    """See :class:`FixedLayouts`; the change from the initial state in step 0 is paid here."""
    multisets = tenant_multisets(problem, problem.tenants[m])
    columns = [table.column[multiset] for multiset in multisets]
    steady = table.steady[:, :, columns]
    earned = np.concatenate([np.zeros_like(steady[:, :1]), np.cumsum(steady, axis=1)], axis=1)
    values = earned[:1] + earned[:, -1:] - earned
    salvages = problem.tenants[m].salvages
    values[: len(salvages)] += np.array(salvages)[:, None, None]
    values += _opening_change(problem, m, table)
    return np.ascontiguousarray(np.moveaxis(values, 1, 2))


def _by_way(facts: WindowFacts, m: int) -> dict[Retraining, Floats]:
    table, problem = facts.gains[m], facts.problem
    columns = [table.column[multiset] for multiset in tenant_multisets(problem, problem.tenants[m])]
    opening = _opening_change(problem, m, table)
    return {way: own + opening[:, None] for way, own in values_by_way(facts, m, table.steady[:, :, columns]).items()}


def _opening_change(problem: Problem, m: int, table: GainTable) -> Floats:
    """What the change from the initial state in step 0 adds to each of the tenant's multisets, ``(n,)``; 0 or less."""
    multisets, initial = tenant_multisets(problem, problem.tenants[m]), initial_multisets(problem)[m]
    if initial is None:
        return np.zeros(len(multisets))
    assert table.changed is not None
    columns = [table.column[multiset] for multiset in multisets]
    is_new = np.array([multiset != initial for multiset in multisets])
    return np.where(is_new, table.changed[0, 0, columns] - table.steady[0, 0, columns], 0.0)


def _room(problem: Problem, total: Multiset) -> Room[str]:
    spans = problem.unavailable_spans
    feasible = [frozenset(feasible_multisets(problem.gpu, problem.profile_names, mask)) for _, _, mask in spans]

    def fits(stretch: int, profiles: tuple[str, ...]) -> bool:
        beside = multiset_of(problem, profiles)
        return tuple(map(sum, zip(total, beside, strict=True))) in feasible[stretch]

    ever = [name for name in problem.profile_names if any(fits(stretch, (name,)) for stretch in range(len(spans)))]
    return Room({name: (name,) for name in ever}, fits)
