"""Engine ``greedy``, ``physical``: the retrainings of the best static plan, and the best held sets around them.

When, where and how each retraining runs is taken from ``static``. What inference holds around them is the exact
best, with every epoch and pre-initialisation, so the plan is never worse than that of ``static``.

Where ``static`` has no plan, one placement is set aside, and the required retrainings run in it back to back
as soon as the held set may change, or from a step on in which slices become ours or others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.budget import Budget
from planner.engines.answer import relaxed_bound, require_model, without_plan
from planner.engines.fixed import StaticSearch
from planner.engines.physical.fixed import held_choices
from planner.engines.physical.nodes import placed_nodes
from planner.engines.physical.path import HeldSetPath
from planner.engines.physical.plan import held_along, with_held
from planner.engines.schedule import Incumbent, PlacedSchedule, WindowFacts, best_of
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration, Retraining

ENGINE = "greedy"


def solve_physical_greedy(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """A valid plan that is never worse than that of ``static``, and the sum of per-step maxima as its bound.

    Args:
        problem: A ``physical`` problem.
        budget: Not needed: the work is bounded.
        initial: Not needed.

    Raises:
        EngineError: The problem is not ``physical``.
    """
    del budget, initial
    require_model(problem, Reconfiguration.PHYSICAL, ENGINE)
    started_s = working_s()
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    facts = WindowFacts.of(problem)
    nodes, bound = placed_nodes(facts), relaxed_bound(facts)
    paths = HeldSetPath(facts, nodes)
    chosen = static_schedule(facts) or greedy_schedule(facts, paths)
    if chosen is None:
        return without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound)
    held = held_along(paths.path(chosen.answer), nodes)
    return with_held(facts, held, chosen.answer, bound, ENGINE, started_s)


def static_schedule(
    facts: WindowFacts, is_over: Callable[[], bool] | None = None
) -> Incumbent[PlacedSchedule[Placement]] | None:
    """The retrainings of the best plan with one held set, and what that plan is worth; ``None`` if there is none.

    Once ``is_over``, it is the best plan found by then.
    """
    choices = held_choices(facts)
    found = StaticSearch(choices.layouts).run(is_over)
    return None if found is None else Incumbent(found.value, choices.placed(found.answer))


def greedy_schedule(facts: WindowFacts, paths: HeldSetPath[Placement]) -> Incumbent[PlacedSchedule[Placement]] | None:
    """The best schedule back to back in one place, by what steady held sets earn; ``None`` if none fits the window.

    Where some slices are not ours, steady ones may not do: held sets change then as often as they like.
    """
    is_steady = not facts.problem.unavailable
    found = [Incumbent(paths.value(placed, is_steady=is_steady), placed) for placed in _candidates(facts)]
    return best_of(one for one in found if not np.isneginf(one.value))


def _candidates(facts: WindowFacts) -> Iterator[PlacedSchedule[Placement]]:
    required = [choices for choices in facts.choices if None not in choices]
    if not required:
        yield ()
        return
    names = [name for name in facts.problem.profile_names if all(_on(name, choices) for choices in required)]
    starts = {facts.first_step, *(begin for begin, _, _ in facts.problem.unavailable_spans)}
    begins = sorted(step for step in starts if step >= facts.first_step)
    for placement, start in product(facts.problem.gpu.placements(names), begins):
        ways = [min(_on(placement.profile.name, choices), key=_shortness) for choices in required]
        step, placed = start, []
        for way in ways:
            placed.append((way.at(step), placement))
            step += way.n_steps
        if step <= facts.n_steps and facts.can_stand(tuple(placed)):
            yield tuple(placed)


def _on(name: str, choices: tuple[Retraining | None, ...]) -> list[Retraining]:
    return [retraining for retraining in choices if retraining is not None and retraining.profile == name]


def _shortness(retraining: Retraining) -> tuple[int, int]:
    return retraining.n_steps, retraining.level
