"""``physical``: a schedule of retrainings from the ``paper`` program on coarser steps.

The coarse problem sees multisets instead of placements and charges changes as ``paper`` does. Its
retrainings are lengthened by their start-up and rounded up to coarse steps, so that each fits into
the fine window where the coarse plan has it. What it fixes is when each retraining runs, which
option, and on which profile.
"""

from __future__ import annotations

from dataclasses import replace

from planner.budget import Budget
from planner.engines.milp import solve_milp
from planner.engines.physical_schedule import Schedule, Training
from planner.plan import MigPlan
from planner.problem import PaperState, Problem, Reconfiguration, TenantTerms

MAX_NODES = 20
"""Branch-and-bound nodes of the coarse program: its schedule is one of several, so it need not be proved best."""


def coarse_schedule(problem: Problem, coarse_steps: int, budget: Budget | None = None) -> Schedule | None:
    """The coarse plan's retrainings in fine steps; ``None`` if nothing was found or the window is too short.

    Args:
        problem: A ``physical`` problem.
        coarse_steps: Fine steps to a coarse one.
        budget: What the coarse program may spend; :data:`MAX_NODES` nodes by default.
    """
    if problem.n_steps < coarse_steps:
        return None
    plan = solve_milp(coarse_problem(problem, coarse_steps), budget or Budget(max_nodes=MAX_NODES))
    return decoded(problem, plan, coarse_steps) if plan.status.has_plan else None


def coarse_problem(problem: Problem, coarse_steps: int) -> Problem:
    """The ``paper`` problem on steps ``coarse_steps`` times as long; what is left at the window's end is cut off.

    A change costs switch and worker start. A retraining in progress is taken as done: its tenant
    has none, and what it occupies is not seen.
    """
    n_steps = problem.n_steps // coarse_steps
    state = problem.physical_initial
    initial = None
    if state is not None:
        names = {tenant.name: [i for i in state.held if i.tenant == tenant.name] for tenant in problem.tenants}
        initial = PaperState({name: tuple(i.placement.profile.name for i in held) for name, held in names.items()})
    return Problem(
        gpu=problem.gpu,
        step_s=problem.step_s * coarse_steps,
        n_steps=n_steps,
        reconfiguration=Reconfiguration.PAPER,
        tenants=tuple(_coarse_tenant(problem, tenant, coarse_steps, n_steps) for tenant in problem.tenants),
        initial=initial,
    )


def _coarse_tenant(problem: Problem, tenant: TenantTerms, coarse_steps: int, n_steps: int) -> TenantTerms:
    arrivals = tenant.arrivals_rps[: n_steps * coarse_steps].reshape(n_steps, coarse_steps).mean(axis=1)
    state = problem.physical_initial
    is_running = state is not None and any(item.tenant == tenant.name for item in state.retrainings)
    options = () if is_running else tenant.options
    return replace(
        tenant,
        arrivals_rps=arrivals,
        overhead_s=problem.switching_s + tenant.overhead_s,
        accuracy_before=tenant.options[0].accuracy_after if is_running else tenant.accuracy_before,
        options=tuple(
            replace(
                option,
                time_s={name: problem.step_s * problem.occupied_steps(tenant, option, name) for name in option.time_s},
            )
            for option in options
        ),
    )


def decoded(problem: Problem, plan: MigPlan, coarse_steps: int) -> Schedule:
    """The plan's retrainings as they run on fine steps: from the same moment, for as long as they take there."""
    schedule = []
    for index, (tenant, own) in enumerate(zip(problem.tenants, plan.schedules, strict=True)):
        if own.retraining is None:
            continue
        level = 1 + [option.name for option in tenant.options].index(own.retraining.option)
        option, profile = tenant.options[level - 1], own.retraining.profile
        start = own.retraining.start_step * coarse_steps
        end = start + problem.occupied_steps(tenant, option, profile)
        schedule.append(Training(index, level, profile, start, end))
    return tuple(schedule)
