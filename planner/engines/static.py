"""Engine ``static``, both models: the best plan whose inference holdings never change.

A baseline to plan against: one good layout for the whole window, and retrainings beside it. The layout, and
when, how and where each retraining runs, are the best of the kind (``fixed``). A retraining holds its slices
only while it runs.

``paper``: one multiset a tenant all window long, with an initial state charged as a change in
step 0. ``physical``: one held set; with an initial state that is held until ``next_epoch_step``, where one
epoch is allowed. What never changes lies on memory slices that are ours in every step in which it is held;
retrainings beside it may use the others while they are. Where layouts must change for the retrainings, or for others'
instances, there are plans but none of this kind: the status is ``timeout`` then, with a bound and without a plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.engines.answer import relaxed_bound, without_plan
from planner.engines.fixed import StaticSearch
from planner.engines.paper.fixed import decisions_of_fixed, paper_layouts
from planner.engines.paper.plan import value_of, with_decisions
from planner.engines.physical.fixed import held_choices
from planner.engines.schedule import Incumbent, Token, WindowFacts
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration

ENGINE = "static"


def solve_static(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best static plan, with the sum of per-step maxima as the bound of *all* plans.

    Args:
        problem: A problem of either model.
        budget: Not needed: the work is bounded.
        initial: Not needed.
    """
    del budget, initial
    started_s = working_s()
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    solved = _paper if problem.reconfiguration is Reconfiguration.PAPER else _physical
    return solved(WindowFacts.of(problem), started_s)


def _paper(facts: WindowFacts, started_s: float) -> MigPlan:
    layouts = paper_layouts(facts)
    search = StaticSearch(layouts)
    found, bound = search.run(), relaxed_bound(facts)
    if found is None:
        return without_plan(facts.problem, Status.TIMEOUT, ENGINE, started_s, bound)
    decisions = decisions_of_fixed(layouts, found.answer)
    value = value_of(facts.problem, facts.gains, decisions)
    best = Incumbent(value, decisions)
    return with_decisions(facts.problem, best, max(value, bound), ENGINE, started_s, _work(search))


def solve_static_among(problem: Problem, held_sets: Sequence[int]) -> MigPlan:
    """The best static plan of a ``physical`` problem that holds one of these sets, numbered as by ``HeldSets``."""
    started_s = working_s()
    reason = infeasibility(problem)
    if reason is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, started_s, infeasibility=reason)
    return _physical(WindowFacts.of(problem), started_s, held_sets)


def best_held_set(problems: Sequence[Problem]) -> int | None:
    """The held set, by its number, that is worth most to these ``physical`` problems together; ``None`` if none fits.

    The problems are of the same tenants on the same GPU; the value of each is that of its best retrainings beside
    the set. Exact as far as ``fixed`` is: sets are valued in the order of what they would be worth if no
    retraining hindered another.
    """
    searches, rows, bounds = [], [], []
    for problem in problems:
        choices = held_choices(WindowFacts.of(problem))
        searches.append(StaticSearch(choices.layouts))
        rows.append(choices.row)
        bounds.append(np.append(searches[-1].bounds(), -np.inf)[choices.row])
    total = np.sum(bounds, axis=0)
    best, best_value = None, -np.inf
    for number in np.argsort(-total, kind="stable"):
        if total[number] <= best_value:
            break
        found = [search.only(int(row[number])) for search, row in zip(searches, rows, strict=True)]
        value = sum(-np.inf if one is None else one.value for one in found)
        if value > best_value:
            best, best_value = int(number), value
    return best


def _physical(facts: WindowFacts, started_s: float, among: Sequence[int] | None = None) -> MigPlan:
    from planner.engines.physical.plan import with_held  # noqa: PLC0415 (brings in numba, which paper does without)

    choices = held_choices(facts, among)
    search = StaticSearch(choices.layouts)
    found, bound = search.run(), relaxed_bound(facts)
    if found is None:
        return without_plan(facts.problem, Status.TIMEOUT, ENGINE, started_s, bound)
    held = choices.held(found.answer[0])
    return with_held(facts, held, choices.placed(found.answer), bound, ENGINE, started_s, _work(search))


def _work(search: StaticSearch[Token]) -> tuple[tuple[str, int], ...]:
    return (("layouts", search.n_valued), ("schedules", search.n_trials))
