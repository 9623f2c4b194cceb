"""``paper``: a fast plan that is never silly: retrainings placed one after the other, inference exact beside them.

Retrainings are judged by per-step maxima without change cost, each tenant's in turn, in every order, while the
others' stay where they are, until none improves; then what inference holds is the exact best for
them (``holding_path``). Where ``static`` retrains better, its retrainings are taken, so that no
plan is worse than that one. The floor under ``milp``, and the fallback where no solver answers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise, permutations

import numpy as np

from planner.budget import Budget
from planner.engines.answer import (
    Candidate,
    best_candidate,
    relaxed_bound,
    require_paper,
    with_plan,
    without_plan,
)
from planner.engines.fixed import StaticSearch
from planner.engines.paper.fixed import decisions_of_fixed, paper_layouts
from planner.engines.paper.holding_path import HoldingPaths
from planner.engines.schedule import (
    RetrainingChoice,
    RetrainingChoices,
    choices_of,
    decisions_of,
    level_at,
    running_at,
    value_of,
)
from planner.feasibility import RetrainingStart, SearchLimitError, earliest_retrainings, infeasibility
from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import FloatArray, GainTable, Problem, TenantTerms

ENGINE = "greedy"

MAX_ORDERS = 24
"""Orders in which retrainings are placed: all of them for four tenants. Who comes first matters most."""

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
    started_s = time.perf_counter()
    require_paper(problem, ENGINE)
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, ENGINE, started_s), infeasibility=reason)
    tables = gain_tables(problem)
    paths = HoldingPaths(problem, tables)
    bound = relaxed_bound(problem, tables)
    best = best_candidate(candidates(paths, tables, initial))
    if best is None:
        return without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound)
    return with_plan(problem, best, bound, ENGINE, started_s, (("states", paths.n_states),))


def candidates(paths: HoldingPaths, tables: Sequence[GainTable], initial: MigPlan | None) -> list[Candidate]:
    """The plans that greedy knows, each with its value recomputed from its decisions."""
    problem = paths.problem
    found: list[Candidate] = []
    schedules = schedules_to_try(paths, tables)
    path = paths.best(max(schedules, key=paths.joint.value)) if schedules else None
    if path is not None:
        found.append((value_of(problem, tables, path[1]), path[1]))
    if initial is not None:
        decisions = decisions_of(problem, initial)
        if decisions is not None:
            found.append((value_of(problem, tables, decisions), decisions))
    return found


def schedules_to_try(paths: HoldingPaths, tables: Sequence[GainTable]) -> list[RetrainingChoices]:
    """Schedules of all required retrainings that look good; some may leave a step without room."""
    problem = paths.problem
    movers = [m for m, tenant in enumerate(problem.tenants) if tenant.options]
    orders = list(islice(permutations(movers), MAX_ORDERS))
    schedules = [_improve(paths, start, order) for start in _starts(problem) for order in orders]
    schedules += _static_choices(problem, tables)
    return [choices for choices in dict.fromkeys(schedules) if _is_complete(problem, choices)]


def _starts(problem: Problem) -> list[RetrainingChoices]:
    """Choices to improve: none at all, and a schedule that is known to fit."""
    nothing: RetrainingChoices = (None,) * len(problem.tenants)
    return [nothing, earliest_choices(problem) or nothing]


def earliest_choices(problem: Problem) -> RetrainingChoices | None:
    """The required retrainings, each as early as it fits; ``None`` if none were found within the search's limit."""
    try:
        found = earliest_retrainings(problem)
    except SearchLimitError:
        return None
    if found is None:
        return None
    by_tenant = {item.tenant: item for item in found}
    return tuple(_choice(problem, tenant, by_tenant.get(tenant.name)) for tenant in problem.tenants)


def _choice(problem: Problem, tenant: TenantTerms, item: RetrainingStart | None) -> RetrainingChoice | None:
    if item is None:
        return None
    option, profile = tenant.options.index(item.option), problem.profile_names.index(item.profile)
    return RetrainingChoice(option, profile, item.start_step, item.end_step)


def _static_choices(problem: Problem, tables: Sequence[GainTable]) -> list[RetrainingChoices]:
    """The retrainings of the best plan with one layout, if there is such a plan."""
    layouts = paper_layouts(problem, tables)
    found = StaticSearch(layouts).run()
    if found is None:
        return []
    return [tuple(decision.retraining for decision in decisions_of_fixed(problem, layouts, found))]


def _is_complete(problem: Problem, choices: RetrainingChoices) -> bool:
    return all(
        choice is not None or not tenant.must_retrain for tenant, choice in zip(problem.tenants, choices, strict=True)
    )


def _improve(paths: HoldingPaths, choices: RetrainingChoices, order: Sequence[int]) -> RetrainingChoices:
    """``choices`` with each tenant's retraining in its turn where it is worth most beside the others'."""
    for _ in range(MAX_SWEEPS):
        before = choices
        for m in order:
            choices = (*choices[:m], _best_choice(paths, choices, m), *choices[m + 1 :])
        if choices == before:
            break
    return choices


def _best_choice(paths: HoldingPaths, choices: RetrainingChoices, m: int) -> RetrainingChoice | None:
    """Where tenant m's retraining is worth most by per-step maxima, the others' fixed; ``None`` if nowhere."""
    problem, tenant = paths.problem, paths.problem.tenants[m]
    others = (*choices[:m], None, *choices[m + 1 :])
    before = _prefix_sums(_step_values(paths, others, m, 0, None))
    best_value, best = (-np.inf if tenant.must_retrain else before[-1]), None
    for earliest in choices_of(problem, tenant):
        n_steps = earliest.end_step
        running = _step_values(paths, others, m, 0, earliest.profile_index)
        during = _prefix_sums(np.where(np.isfinite(running), running, 0.0))
        blocked = _prefix_sums((~np.isfinite(running)).astype(np.float64))
        after = _prefix_sums(_step_values(paths, others, m, earliest.option_index + 1, None))
        values = before[:-n_steps] + during[n_steps:] - during[:-n_steps] + after[-1] - after[n_steps:]
        values = np.where(blocked[n_steps:] > blocked[:-n_steps], -np.inf, values)
        start = int(values.argmax())
        if values[start] > best_value:
            best_value = values[start]
            best = earliest.at(start)
    return best


def _prefix_sums(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])


def _step_values(
    paths: HoldingPaths, others: RetrainingChoices, m: int, level: int, running_profile: int | None
) -> FloatArray:
    """Per-step maxima, ``(n_steps,)``, with tenant m at ``level`` (and running on a profile) beside the others."""
    problem = paths.problem
    borders = sorted({0, problem.n_steps, *(s for c in others if c is not None for s in (c.start_step, c.end_step))})
    values = np.empty(problem.n_steps)
    for first, last in pairwise(borders):
        counts = list(running_at(problem, others, first))
        if running_profile is not None:
            counts[running_profile] += 1
        levels = tuple(level if other == m else level_at(choice, first) for other, choice in enumerate(others))
        values[first:last] = paths.best_without_change(tuple(counts), levels)[first:last]
    return values
