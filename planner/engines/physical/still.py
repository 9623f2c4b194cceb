"""``physical``: the best layout that stays, beside a plan's retrainings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.compiled import working_s
from planner.engines.physical.nodes import placed_nodes
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.plan import held_along, retrainings_in, with_held
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan
from planner.problem import Problem


def still_plan(problem: Problem, plan: MigPlan) -> MigPlan | None:
    """The best plan with the same retrainings whose held set changes at most once: as soon as it may.

    Without an initial state it never changes. ``None`` where no layout can stay beside these retrainings. Its bound and
    certificate are the other's: they hold for every plan of the problem.

    Args:
        problem: A ``physical`` problem.
        plan: A plan that keeps its rules.
    """
    facts, begin_s = WindowFacts.of(problem), working_s()
    nodes, placed = placed_nodes(facts), retrainings_in(problem, plan)
    path = HeldSetPath(facts, nodes).path(placed, is_steady=True)
    if np.isneginf(path.value):
        return None
    bound = np.inf if plan.bound is None else plan.bound
    still = with_held(facts, held_along(path, nodes), placed, bound, plan.engine, begin_s, plan.work)
    return replace(still, certificate=plan.certificate, solve_s=plan.solve_s + still.solve_s)
