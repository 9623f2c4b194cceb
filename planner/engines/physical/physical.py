"""``physical``: when, where and how each retraining runs, and what inference holds around them.

For one schedule of retrainings the best plan is a longest path over held sets (``placed_kernel``,
``physical_program``). Over schedules:

* Local moves of one retraining at a time, then of two, from several starts. They find the best
  plan, or one within a few hundredths of a percent, in a tenth of a second or two.
* Prices of instances bound all plans, for any number of tenants and steps, and are the plan's certificate.
* At most two tenants that retrain, at most ``MAX_STEPS`` steps: every schedule is bounded, and
  they are valued best bound first until no bound is above the best plan found. That proves it best.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from executor.mig import Placement
from planner.budget import Budget
from planner.engines.answer import without_plan
from planner.engines.physical.greedy import PlacedSchedule
from planner.engines.physical.path_kernel import load_kernel
from planner.engines.physical.plan import held_along, with_held
from planner.engines.physical.search import Search
from planner.engines.prices import certificate
from planner.engines.schedule import Retraining, Schedule, WindowFacts
from planner.errors import EngineError
from planner.feasibility import RULE_RETRAINING, SearchLimitError, earliest_retrainings, infeasibility
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import Problem, Reconfiguration, Task

ENGINE = "physical"


def solve_physical(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best plan found within ``budget``, with a bound on every plan; never worse than greedy's.

    Args:
        problem: A ``physical`` problem.
        budget: ``max_nodes`` counts schedules valued on counts, see ``physical_search``; a plan is
            looked for until there is one even if that takes more. Half a minute's work by default.
        initial: A plan of an earlier solve; when and where it retrains is tried first.

    Raises:
        EngineError: The problem is not ``physical``.
    """
    if problem.reconfiguration is not Reconfiguration.PHYSICAL:
        raise EngineError(f"engine {ENGINE!r} answers physical problems; this one is {problem.reconfiguration}")
    load_kernel()
    begin_s = time.perf_counter()
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, ENGINE, begin_s), infeasibility=reason)
    facts = WindowFacts.of(problem)
    search = Search(facts, budget or Budget(), begin_s)
    known = [] if initial is None else [_known(facts, initial)]
    search.run(_seeds(facts), [start for start in known if _start_misfit(facts, *start) is None])
    if search.best is not None:
        return _with_plan(search, search.best, begin_s)
    if search.is_exhausted:
        plan = without_plan(problem, Status.INFEASIBLE, ENGINE, begin_s)
        return replace(plan, infeasibility=_no_schedule(facts))
    bound = search.bound if np.isfinite(search.bound) else None
    return without_plan(problem, Status.TIMEOUT, ENGINE, begin_s, bound)


def _seeds(facts: WindowFacts) -> Iterator[Schedule]:
    try:
        found = earliest_retrainings(facts.problem) or ()
    except SearchLimitError:
        return
    names, options = facts.problem.tenant_names, [tenant.options for tenant in facts.problem.tenants]
    schedule = []
    for item in found:
        tenant = names.index(item.tenant)
        level = options[tenant].index(item.option) + 1
        schedule.append(Retraining(tenant, level, item.profile, item.start_step, item.end_step))
    ordered = tuple(sorted(schedule))
    if _misfit(facts, ordered) is None:
        yield ordered


def _misfit(facts: WindowFacts, schedule: Schedule) -> str | None:
    """Why the schedule is none of the problem's, in words; ``None`` if it is one."""
    for tenant, (name, choices) in enumerate(zip(facts.problem.tenant_names, facts.choices, strict=True)):
        own = [retraining for retraining in schedule if retraining.tenant == tenant]
        if len(own) > 1:
            return f"it retrains {name} more than once"
        if not own and None not in choices:
            return f"it does not start the retraining that {name} needs"
        for retraining in own:
            is_within = 0 <= retraining.start_step <= retraining.end_step <= facts.n_steps
            if retraining.at(0) not in choices or not is_within:
                steps = f"{retraining.start_step}–{retraining.end_step}"
                return f"{name} cannot retrain on {retraining.profile} over steps {steps} in this problem"
    return None


def misfit(problem: Problem, plan: MigPlan) -> str | None:
    """Why :func:`solve_physical` passes over an earlier plan, in words; ``None`` if it starts from it."""
    facts = WindowFacts.of(problem)
    return _start_misfit(facts, *_known(facts, plan))


def _start_misfit(facts: WindowFacts, schedule: Schedule, places: tuple[Placement, ...]) -> str | None:
    found = _misfit(facts, schedule)
    if found is None and not facts.can_stand(schedule, places):
        return "its retrainings do not fit beside each other and those in progress"
    return found


def _known(facts: WindowFacts, plan: MigPlan) -> tuple[Schedule, tuple[Placement, ...]]:
    """When and where an earlier plan starts retrainings that this problem knows."""
    names, found = facts.problem.tenant_names, []
    for item in plan.lifetimes:
        if item.owner.task is Task.RETRAINING and item.option is not None and item.owner.tenant in names:
            tenant = names.index(item.owner.tenant)
            options = [option.name for option in facts.problem.tenants[tenant].options]
            if item.option in options:
                level, name = options.index(item.option) + 1, item.placement.profile.name
                found.append((Retraining(tenant, level, name, item.create_step, item.end_step), item.placement))
    found.sort(key=lambda pair: pair[0])
    return tuple(retraining for retraining, _ in found), tuple(placement for _, placement in found)


def _with_plan(search: Search, best: PlacedSchedule, begin_s: float) -> MigPlan:
    held = held_along(search.placed.path(best.schedule, best.places), search.nodes)
    occupied = tuple(zip(best.schedule, best.places, strict=True))
    prices = search.prices
    return replace(
        with_held(search.facts, held, occupied, search.bound, ENGINE, begin_s),
        work=(("schedules", search.meter.n_counted), ("placed_schedules", search.meter.n_placed)),
        certificate=certificate(search.facts.problem, prices.prices) if np.isfinite(prices.bound) else None,
    )


def _no_schedule(facts: WindowFacts) -> Infeasibility:
    problem = facts.problem
    must = [tenant.name for tenant, ways in zip(problem.tenants, facts.choices, strict=True) if None not in ways]
    text = (
        f"no start and placement of the retrainings ({', '.join(must) or 'none has to start'}) leaves every tenant an "
        f"instance as large as its min_profile at each of the window's {problem.n_steps} steps, given what is held "
        "when it opens"
    )
    return Infeasibility(None, RULE_RETRAINING, text)
