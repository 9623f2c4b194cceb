"""``paper``: a fast plan: retrainings placed one after the other, and the exact best for inference beside them.

Each tenant's retraining is moved in its turn to where per-step maxima without change costs are highest, until
none improves, for every order of the tenants. What inference holds beside them is then the exact best
(``JointStates.path``). The retrainings of ``static`` compete too, so no plan is worse than that one. This is the
floor under ``paper-ilp``, and the fallback where no solver answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise, permutations, product

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import relaxed_bound, require_model, without_plan
from planner.engines.arrays import Floats
from planner.engines.fixed import StaticSearch
from planner.engines.paper.fixed import paper_layouts
from planner.engines.paper.plan import Decisions, decisions_of, value_of, with_decisions
from planner.engines.paper.states import JointStates
from planner.engines.schedule import (
    Incumbent,
    Schedule,
    WindowFacts,
    best_of,
    earliest_schedule,
    profiles_at,
    schedule_of,
    with_retraining,
)
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration, Retraining

ENGINE = "greedy"

MAX_ORDERS = 24
"""Orders in which retrainings are placed: all of them for four tenants. The first place matters most."""

MAX_SWEEPS = 5
"""Rounds over the tenants; three are rarely needed."""


def solve_greedy(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """A valid plan, and the sum of per-step maxima as its bound.

    Args:
        problem: A ``paper`` problem.
        budget: Not needed: the work is bounded.
        initial: A plan of an earlier solve; returned again where it is the better one.

    Raises:
        EngineError: The problem is not ``paper``.
    """
    del budget
    started_s = working_s()
    require_model(problem, Reconfiguration.PAPER, ENGINE)
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    joint = JointStates(WindowFacts.of(problem))
    bound = relaxed_bound(joint.facts)
    best = best_of(candidates(joint, initial))
    if best is None:
        return without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound)
    return with_decisions(problem, best, bound, ENGINE, started_s, (("states", joint.n_states),))


def candidates(joint: JointStates, initial: MigPlan | None) -> list[Incumbent[Decisions]]:
    """The plans that greedy knows, each with its value recomputed from its decisions."""
    schedules = schedules_to_try(joint)
    known = [
        joint.path(max(schedules, key=joint.value)) if schedules else None,
        None if initial is None else decisions_of(joint.problem, initial),
    ]
    return [
        Incumbent(value_of(joint.problem, joint.facts.gains, decisions), decisions)
        for decisions in known
        if decisions is not None
    ]


def schedules_to_try(joint: JointStates) -> list[Schedule]:
    """Schedules of all required retrainings that look good; some may leave a step without room."""
    problem = joint.problem
    schedules = [*improved_schedules(joint)]
    static = StaticSearch(paper_layouts(joint.facts)).run()
    if static is not None:
        schedules.append(schedule_of(static.answer[1]))
    return [schedule for schedule in dict.fromkeys(schedules) if _is_complete(problem, schedule)]


def improved_schedules(joint: JointStates) -> Iterator[Schedule]:
    """Schedules of all required retrainings that were moved in their turn until none improved, order by order."""
    movers = [m for m, tenant in enumerate(joint.problem.tenants) if tenant.options]
    starts: list[Schedule] = [(), earliest_schedule(joint.problem) or ()]
    orders = islice(permutations(movers), MAX_ORDERS)
    found = (_improve(joint, start, order) for start, order in product(starts, orders))
    return (schedule for schedule in found if _is_complete(joint.problem, schedule))


def _is_complete(problem: Problem, schedule: Schedule) -> bool:
    retrained = {retraining.tenant for retraining in schedule}
    return all(m in retrained or not tenant.must_retrain for m, tenant in enumerate(problem.tenants))


def _improve(joint: JointStates, schedule: Schedule, order: Sequence[int]) -> Schedule:
    """The schedule with each tenant's retraining in its turn where it is worth most beside the others'."""
    for _ in range(MAX_SWEEPS):
        before = schedule
        for m in order:
            others = tuple(retraining for retraining in schedule if retraining.tenant != m)
            schedule = with_retraining(others, best_beside(joint, others, m))
        if schedule == before:
            break
    return schedule


def best_beside(joint: JointStates, others: Schedule, m: int) -> Retraining | None:
    """Where tenant m's retraining is worth most by per-step maxima beside the others; ``None`` if nowhere."""
    before = _prefix_sums(_step_values(joint, others, m, 0, None))
    salvages = joint.problem.tenants[m].salvages
    best_value, best = (before[-1] + salvages[0] if None in joint.facts.choices[m] else -np.inf), None
    for way in joint.facts.ways(m):
        n_steps = way.n_steps
        running = _step_values(joint, others, m, 0, way)
        during = _prefix_sums(np.where(np.isfinite(running), running, 0.0))
        blocked = _prefix_sums((~np.isfinite(running)).astype(np.float64))
        after = _prefix_sums(_step_values(joint, others, m, way.level, None))
        with np.errstate(invalid="ignore"):  # where the others leave no room, nothing has a value
            values = before[:-n_steps] + during[n_steps:] - during[:-n_steps] + after[-1] - after[n_steps:]
        values += joint.facts.added(way)
        values = np.where((blocked[n_steps:] > blocked[:-n_steps]) | np.isnan(values), -np.inf, values)
        start = int(values.argmax())
        if values[start] > best_value:
            best_value, best = values[start], way.at(start)
    return best


def _prefix_sums(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def _step_values(joint: JointStates, others: Schedule, m: int, level: int, way: Retraining | None) -> Floats:
    """Per-step maxima, ``(n_steps,)``, with tenant m at ``level``, and retraining that way, beside the others."""
    n_steps = joint.problem.n_steps
    borders = sorted({0, n_steps, *(step for run in others for step in (run.start_step, run.end_step))})
    values = np.empty(n_steps)
    for first, last in pairwise(borders):
        own = [] if way is None else [way.profile]
        levels = {run.tenant: run.level for run in others if run.end_step <= first} | {m: level}
        by_tenant = tuple(levels.get(other, 0) for other in range(len(joint.multisets)))
        values[first:last] = joint.step_maxima((*profiles_at(others, first), *own), by_tenant)[first:last]
    return values
