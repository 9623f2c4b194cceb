"""``paper``: engines ``static``, the best plan whose holdings never change, and ``greedy``, a fast one whose do.

``static``: one multiset a tenant all window long, with an initial state charged as a change in step 0, and the
retrainings that are best beside them. Where layouts must change for the retrainings, or for others' instances, there
are plans but none of this kind: the status is ``timeout`` then, with a bound and without a plan.

``greedy``: each tenant's retraining is moved in its turn to where per-step maxima without change costs are highest,
until none improves, for every order of the tenants. What inference holds beside them is then the exact best
(``JointStates.path``). The retrainings of ``static`` compete too, so no plan is worse than that one. This is the
floor under ``paper-ilp``, and the fallback where no solver answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise, permutations, product
from typing import TYPE_CHECKING

import numpy as np

from planner.arrays import Bools, Floats
from planner.budget import Budget
from planner.counts import codes_fit, codes_of, codes_of_states, joint_states, multiset_of, tenant_multisets
from planner.engines.answer import Engine, relaxed_bound
from planner.engines.paper.plan import (
    Decisions,
    TenantDecision,
    decisions_of,
    initial_multisets,
    value_of,
    with_decisions,
)
from planner.engines.schedule import (
    Incumbent,
    Schedule,
    WindowFacts,
    best_of,
    by_stage,
    earliest_schedule,
    profiles_at,
    schedule_of,
    sums_along,
    with_retraining,
)
from planner.engines.static import StaticSearch
from planner.plan import MigPlan, Status, without_plan
from planner.problem import Reconfiguration, Retraining

if TYPE_CHECKING:
    from planner.engines.paper.states import JointStates

MAX_ORDERS = 24
"""Orders in which retrainings are placed: all of them for four tenants. The first place matters most."""

MAX_SWEEPS = 5
"""Rounds over the tenants; three are rarely needed."""


def _static(facts: WindowFacts, budget: Budget, initial: MigPlan | None, started_s: float) -> MigPlan:
    del budget, initial
    problem, search, bound = facts.problem, search_of(facts), relaxed_bound(facts)
    found = search.run()
    if found is None:
        return without_plan(problem, Status.TIMEOUT, "static", started_s, bound)
    layout, placed = found.answer
    runs = {run.tenant: run for run, _ in placed}
    held = [tenant_multisets(problem, t)[search.holdings[layout, m]] for m, t in enumerate(problem.tenants)]
    decisions = tuple(TenantDecision((own,) * problem.n_steps, runs.get(m)) for m, own in enumerate(held))
    best = Incumbent(value_of(facts, decisions), decisions)
    return with_decisions(problem, best, max(best.value, bound), "static", started_s, (*search.work.items(),))


def _greedy(facts: WindowFacts, budget: Budget, initial: MigPlan | None, started_s: float) -> MigPlan:
    from planner.engines.paper.states import JointStates  # noqa: PLC0415 (brings in numba, which static does without)

    del budget
    joint, bound = JointStates(facts), relaxed_bound(facts)
    best = best_of(candidates(joint, initial))
    if best is None:
        return without_plan(facts.problem, Status.TIMEOUT, "greedy", started_s, bound)
    return with_decisions(facts.problem, best, bound, "greedy", started_s, (("states", joint.n_states),))


solve_static = Engine(Reconfiguration.PAPER, "static", _static)
"""The best static plan."""

solve_greedy = Engine(Reconfiguration.PAPER, "greedy", _greedy)
"""A plan no worse than that of ``static``; the earlier one where that is the better."""


def search_of(facts: WindowFacts) -> StaticSearch[str]:
    """The search over joint states on slices that stay ours; a retraining occupies a profile where counts leave it."""
    problem, states = facts.problem, joint_states(facts.problem)
    codes, gains = codes_of_states(problem, states), []
    stay = codes_fit(problem.gpu, problem.profile_names, codes, problem.unavailable_in(0, problem.n_steps))
    states, codes = states[stay], codes[stay]
    for m, (table, initial) in enumerate(zip(facts.gains, initial_multisets(problem), strict=True)):
        multisets = tenant_multisets(problem, problem.tenants[m])
        own = table.steady[:, :, [table.column[multiset] for multiset in multisets]]
        for number, multiset in enumerate(multisets):
            if initial is not None and multiset != initial:
                assert table.changed is not None
                own[:, 0, number] = table.changed[:, 0, table.column[multiset]]
        gains.append(own)
    rooms, room = np.unique(codes, return_inverse=True)

    def fits(step: int, profiles: tuple[str, ...]) -> Bools:
        beside = codes_of(np.array(multiset_of(problem, profiles)))
        return codes_fit(problem.gpu, problem.profile_names, rooms + beside, problem.unavailable_in(step, step + 1))

    tokens = {name: (name,) for name in problem.profile_names}
    return StaticSearch(facts, tuple(gains), states, room.reshape(-1), tokens, fits, shape=tuple)


def candidates(joint: JointStates, initial: MigPlan | None) -> list[Incumbent[Decisions]]:
    """The plans that greedy knows, each with its value recomputed from its decisions."""
    facts, best = joint.facts, max(dict.fromkeys(schedules_to_try(joint)), key=joint.value, default=None)
    found = [] if best is None else [joint.fullest_path(best)]
    found += [] if initial is None else [decisions_of(facts.problem, initial)]
    return [Incumbent(value_of(facts, own), own) for own in found if own is not None]


def schedules_to_try(joint: JointStates) -> Iterator[Schedule]:
    """Schedules of all required retrainings that look good, each made when it is asked for.

    Some may leave a step without room.
    """
    yield from _improved_schedules(joint)
    static = search_of(joint.facts).run()
    if static is not None:
        yield schedule_of(static.answer[1])


def _improved_schedules(joint: JointStates) -> Iterator[Schedule]:
    """Schedules of all required retrainings that were moved in their turn until none improved, order by order."""
    tenants = joint.problem.tenants
    movers = [m for m, tenant in enumerate(tenants) if tenant.options]
    required = {m for m, tenant in enumerate(tenants) if tenant.must_retrain}
    starts: list[Schedule] = [(), earliest_schedule(joint.problem) or ()]
    for start, order in product(starts, islice(permutations(movers), MAX_ORDERS)):
        schedule = start
        for _ in range(MAX_SWEEPS):
            before = schedule
            for m in order:
                others = tuple(retraining for retraining in schedule if retraining.tenant != m)
                schedule = with_retraining(others, best_beside(joint, others, m))
            if schedule == before:
                break
        if required <= {retraining.tenant for retraining in schedule}:
            yield schedule


def best_beside(joint: JointStates, others: Schedule, m: int) -> Retraining | None:
    """Where tenant m's retraining is worth most by per-step maxima beside the others; ``None`` if nowhere."""
    before = _sums(joint, others, m, 0)
    best_value, best = -np.inf, None
    if None in joint.facts.choices[m] and not before[1, -1]:
        best_value = before[0, -1] + joint.problem.tenants[m].salvages[0]
    for way in joint.facts.ways(m):
        during, after = _sums(joint, others, m, 0, way.profile), _sums(joint, others, m, way.level)
        values = by_stage(way.n_steps, before, during, after) + joint.facts.added(way)
        start = int(values.argmax())
        if values[start] > best_value:
            best_value, best = values[start], way.at(start)
    return best


def _sums(joint: JointStates, others: Schedule, m: int, level: int, *running: str) -> Floats:
    """``sums_along`` with tenant m at ``level`` and what it retrains on beside the others."""
    n_steps, maxima = joint.problem.n_steps, list[Floats]()
    borders = sorted({0, n_steps, *(step for run in others for step in (run.start_step, run.end_step))})
    for begin, end in pairwise(borders):
        levels = {run.tenant: run.level for run in others if run.end_step <= begin} | {m: level}
        by_tenant = tuple(levels.get(tenant, 0) for tenant in range(len(joint.multisets)))
        maxima.append(joint.step_maxima((*profiles_at(others, begin), *running), by_tenant)[begin:end])
    return sums_along(np.concatenate(maxima))
