"""A floor under bursts: a layout that stays replaces a plan that may lose much more.

A plan is best on average over the forecast's paths. Where arrivals come that no path foresaw, a layout that was cut to
the expected ones may serve them badly, while a fixed one would have done. So a plan is held against the best layout
that stays, beside the same retrainings, on arrivals that may come: the forecast's paths, and what came lately.
Queues carry over as in :mod:`planner.gains`.

What counts is what a plan commits to: what happens before the rest can be planned anew, and the change made then has
taken effect. After that, either plan is worth what is expected of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.compiled import working_s
from planner.arrays import Floats
from planner.course import Course, courses
from planner.engines.physical.nodes import nodes_of
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.plan import held_along, retrainings_in, with_held
from planner.engines.schedule import WindowFacts
from planner.gains import carried_over, carried_over_in_turn, order_of_service, rooms
from planner.plan import MigPlan
from planner.problem import Problem

WORST_SHARE = 0.1
"""Of the scenarios: those in which a plan is furthest behind a layout that stays."""

MOST_LOST = 0.01
"""Share of these scenarios' requests that a plan may lose by it, on their mean."""


@dataclass(frozen=True, eq=False)
class Scenarios:
    """Arrivals that may come before a plan can be undone.

    Attributes:
        rates_rps: Requests a second, ``(n_scenarios, n_steps, n_tenants)``; no more steps than the problem's.
        slack_s: One a tenant: SLO − batch latency in seconds, by profile.
    """

    rates_rps: Floats
    slack_s: tuple[Mapping[str, float], ...]


def held_to_floor(problem: Problem, plan: MigPlan, running: MigPlan | None, scenarios: Scenarios | None) -> MigPlan:
    """The plan, or the best layout that stays where what would be followed may lose too much by bursts.

    What would be followed is the ``running`` plan where that is worth as much. Nothing is asked without scenarios,
    where tenants have floors of in-time answers, which go before, or where no layout can stay beside the retrainings.
    """
    if scenarios is None or not plan.status.has_plan or problem.has_floors or problem.layout:
        return plan
    followed = plan
    if running is not None and running.objective is not None and plan.objective is not None:
        followed = running if running.objective >= plan.objective else plan
    still = still_plan(problem, followed)
    if still is None:
        return plan
    loss = burst_loss(problem, followed, still, scenarios)
    return replace(still, burst_loss=loss) if loss > MOST_LOST else plan


def still_plan(problem: Problem, plan: MigPlan) -> MigPlan | None:
    """The best plan with the same retrainings whose held set changes at most once: as soon as it may.

    Without an initial state it never changes. ``None`` where no layout can stay beside these retrainings. Its bound and
    certificate are the other's: they hold for every plan of the problem.

    Args:
        problem: A ``physical`` problem.
        plan: A plan that keeps its rules.
    """
    facts, begin_s = WindowFacts.of(problem), working_s()
    nodes, placed = nodes_of(facts), retrainings_in(problem, plan)
    path = HeldSetPath(facts, nodes).path(placed, is_steady=True)
    if np.isneginf(path.value):
        return None
    bound = np.inf if plan.claimed_bound is None else plan.claimed_bound
    still = with_held(facts, held_along(path, nodes), placed, bound, plan.engine, begin_s, plan.work)
    told = None if plan.claimed_bound is None else still.claimed_bound
    return replace(still, claimed_bound=told, certificate=plan.certificate, solve_s=plan.solve_s + still.solve_s)


def burst_loss(problem: Problem, plan: MigPlan, still: MigPlan, scenarios: Scenarios) -> float:
    """What ``plan`` loses against ``still`` in the worst tenth of the scenarios, as a share of their requests.

    It may be negative. Both plans keep the rules of the problem.
    """
    behind = _worth(problem, still, scenarios) - _worth(problem, plan, scenarios)
    n_worst = max(1, math.ceil(WORST_SHARE * len(behind) - 1e-9))
    worst = np.argsort(-behind, kind="stable")[:n_worst]
    requests = scenarios.rates_rps[worst].sum() * problem.step_s
    return float(behind[worst].sum() / requests) if requests > 0 else 0.0


def _worth(problem: Problem, plan: MigPlan, scenarios: Scenarios) -> Floats:
    """Goodput of each scenario, then as is expected, in requests, ``(n_scenarios,)``."""
    n_steps, found = scenarios.rates_rps.shape[1], courses(problem, plan)
    total = np.zeros(len(scenarios.rates_rps))
    for members in problem.partition:
        for m, served in zip(*_served(problem, found, members, scenarios), strict=True):
            course = found[m]
            worth = course.tenant.weight * np.array(course.tenant.accuracies)[course.level[:n_steps]]
            total += sum((own * now for own, now in zip(worth, served, strict=True)), start=np.zeros_like(total))
            total += course.goodput[n_steps:].sum()
    return total


def _served(
    problem: Problem, found: Sequence[Course], members: tuple[int, ...], scenarios: Scenarios
) -> tuple[tuple[int, ...], Iterable[Iterable[Floats]]]:
    """Of tenants that hold instances together, and for each of them by step, what is served, ``(n_scenarios,)``."""
    order = members if len(members) == 1 else order_of_service(problem, members)
    arrived, capacity, room = list[Floats](), list[Floats](), list[Floats]()
    for m in order:
        tenant, n_steps = found[m].tenant, scenarios.rates_rps.shape[1]
        serving, arrivals = found[m].serving[:n_steps], scenarios.rates_rps[:, :, m] * problem.step_s
        arrived.append(arrivals.T)
        capacity.append(problem.step_s * (serving @ problem.rates_rps(tenant)))
        room.append(serving @ rooms(problem, tenant, scenarios.slack_s[m]))
    if len(members) == 1:
        return order, [carried_over(arrived[0], capacity[0], room[0])]
    by_step = carried_over_in_turn(arrived, [own[:, None] for own in capacity], [own[:, None] for own in room])
    return order, zip(*(served[:, :, 0] for served in by_step), strict=True)
