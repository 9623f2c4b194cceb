"""``physical``: when, where and how each retraining runs, and what inference holds around them.

For one schedule of retrainings the best plan is a longest path over held sets (``path``).
Over schedules:

* Local moves, of one retraining at a time and then of two, from several starts. In a tenth of a second or two
  they find the best plan, or one within a few hundredths of a percent.
* Prices of instances bound all plans, for any number of tenants and steps, and are the plan's certificate.
* With at most two tenants that retrain and at most ``MAX_STEPS`` steps, every schedule is bounded. They are
  valued best bound first until no bound is above the best plan found, which proves that plan best.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.mig import Placement
from planner.arrays import Floats
from planner.budget import Budget
from planner.engines.answer import Engine
from planner.engines.effort import Meter
from planner.engines.physical.fullest import fullest
from planner.engines.physical.plan import retrainings_in, with_held
from planner.engines.physical.search import Search
from planner.engines.prices import rounded
from planner.engines.schedule import PlacedSchedule, WindowFacts, earliest_schedule, may_start
from planner.plan import Certificate, Infeasibility, MigPlan, Rule, Status, without_plan
from planner.problem import Problem, Reconfiguration

ENGINE = "physical"


def _physical(facts: WindowFacts, budget: Budget, initial: MigPlan | None, begin_s: float) -> MigPlan:
    """The best plan found within ``budget``, with a bound on every plan; never worse than greedy's if seconds are free.

    Args:
        facts: The problem.
        budget: ``max_nodes`` counts units of work, see ``search``; a plan is looked for until there is
            one even if that takes more. Half a minute's work by default.
        initial: A plan of an earlier solve; when and where it retrains is tried first.
        begin_s: When the solve began.
    """
    problem, search = facts.problem, Search(facts, budget, Meter.of(budget, facts.n_steps, begin_s))
    seed, known = earliest_schedule(problem), list[PlacedSchedule[Placement]]()
    if initial is not None and misfit(problem, initial) is None:
        known.append(retrainings_in(problem, initial))
    search.run([] if seed is None else [seed], known, _prices_of(problem, initial))
    if search.best is not None:
        return _with_plan(search, search.best.answer, begin_s)
    if search.is_exhausted:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, begin_s, infeasibility=_no_schedule(facts))
    bound = search.bound if np.isfinite(search.bound) else None
    return without_plan(problem, Status.TIMEOUT, ENGINE, begin_s, bound)


solve_physical = Engine(Reconfiguration.PHYSICAL, ENGINE, _physical)
"""The best plan of a ``physical`` problem that is found."""


def misfit(problem: Problem, plan: MigPlan) -> str | None:
    """Why :func:`solve_physical` passes over an earlier plan, in words; ``None`` if it starts from it."""
    placed = retrainings_in(problem, plan)
    for tenant, name in enumerate(problem.tenant_names):
        own = [retraining for retraining, _ in placed if retraining.tenant == tenant]
        if len(own) > 1:
            return f"it retrains {name} more than once"
        if not own and not may_start(problem, tenant, None):
            return f"it does not start the retraining that {name} needs"
        for retraining in own:
            if not may_start(problem, tenant, retraining):
                steps = f"{retraining.start_step}–{retraining.end_step}"
                return f"{name} cannot retrain on {retraining.profile} over steps {steps} in this problem"
    if not WindowFacts.of(problem).can_stand(placed):
        others = ", those in progress and what is not ours" if problem.unavailable else " and those in progress"
        return f"its retrainings do not fit beside each other{others}"
    return None


def _prices_of(problem: Problem, plan: MigPlan | None) -> Floats | None:
    """The prices of an earlier plan's certificate, where they are of this problem's steps and profiles."""
    found = None if plan is None else plan.certificate
    if not isinstance(found, Certificate) or found.profile_names != problem.profile_names:
        return None
    return found.prices if len(found.prices) == problem.n_steps else None


def _with_plan(search: Search, best: PlacedSchedule[Placement], begin_s: float) -> MigPlan:
    held, prices = fullest(search.facts, search.held, best), search.prices
    work = (("schedules", search.meter.n_counted), ("placed_schedules", search.meter.n_placed))
    plan = with_held(search.facts, held, best, search.bound, ENGINE, begin_s, work)
    if not np.isfinite(prices.bound):
        return plan
    return replace(plan, certificate=Certificate(search.facts.problem.profile_names, rounded(prices.prices)))


def _no_schedule(facts: WindowFacts) -> Infeasibility:
    """Why no schedule has a plan, with the tenant that would have none even without the others, if there is one.

    Those of a pool are one with it, and the first of them is named.
    """
    problem = facts.problem
    holders = range(len(problem.partition) if problem.unavailable else 0)
    blamed = (problem.owner(holder).tenant for holder in holders if _has_no_plan_alone(problem, holder))
    must = [tenant.name for tenant, ways in zip(problem.tenants, facts.choices, strict=True) if None not in ways]
    text = (
        f"no start and placement of the retrainings ({', '.join(must) or 'none has to start'}) leaves every tenant an "
        f"instance as large as its min_profile at each of the window's {problem.n_steps} steps, given what is held "
        f"when it opens{' and which memory slices are not ours' if problem.unavailable else ''}"
    )
    return Infeasibility(next(blamed, None), Rule.RETRAINING if must else Rule.MIN_PROFILE, text)


def _has_no_plan_alone(problem: Problem, holder: int) -> bool:
    """Whether those at a place in ``Problem.partition`` would have no plan if they had what is ours to themselves."""
    if len(problem.partition) == 1:
        return True
    names, state = problem.owner(holder).members, problem.physical_initial
    if state is not None:
        pairs = zip(state.held, problem.heirs, strict=True)
        kept = [item for item, heir in pairs if heir == holder and problem.may_serve(heir, item.placement)]
        shared = [[name for name in item.members if name in names] for item in kept]
        held = (replace(item, tenant=own[0], others=(*own[1:],)) for item, own in zip(kept, shared, strict=True))
        runs = tuple(run for run in state.retrainings if run.tenant in names)
        state = replace(state, held=tuple(held), retrainings=runs)
    alone = replace(
        problem,
        tenants=tuple(map(problem.tenant, names)),
        pools=tuple(pool for pool in problem.pools if pool.members == names),
        switch_s=problem.switching_s,
        initial=state,
        gains=None,
    )
    return solve_physical(alone).status is Status.INFEASIBLE
