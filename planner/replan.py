"""Planning again inside a window: what is left of the problem, of its state, and of the plan that was followed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.course import Course, courses
from planner.feasibility import infeasibility
from planner.plan import Lifetime, MigPlan, Rule, Status, next_epoch_step
from planner.problem import (
    AttainmentFloor,
    GainTable,
    HeldInstance,
    Per,
    PhysicalState,
    Problem,
    RunningRetraining,
    TenantTerms,
)
from planner.unavailable import unavailable_within


def remaining_problem(problem: Problem, plan: MigPlan, step: int) -> Problem:
    """The ``physical`` problem from ``step`` on, when ``plan`` was followed up to there.

    A retraining that has ended is no longer offered: its accuracy is the one before. One in progress
    comes first among its tenant's options, as the initial state's are option 0. Arrivals and gain tables
    are the old forecast's; a new one replaces them. ``step`` is from 1 to n_steps − 1. A floor of in-time answers per
    window is that of the rest and of what the steps before owe it, as the plan expected them. Salvage follows the
    levels: where a retraining has ended, its own is all that is left. A retraining in progress has served checkpoints
    so far, and the best of them is the accuracy before; what a swap that began before ``step`` still takes is left out.
    """
    found = [_tenant_at(course, _levels_left(course, step), step) for course in courses(problem, plan)]
    gains = problem.gains
    return replace(
        problem,
        n_steps=problem.n_steps - step,
        tenants=tuple(tenant for tenant, _ in found),
        # The rest of the window keeps the warm-ups that its beginning was planned with.
        switch_s=problem.switching_s,
        initial=state_at(problem, plan, step),
        unavailable=unavailable_within(problem.unavailable, step, problem.n_steps - step),
        gains=None if gains is None else tuple(_left(t, old, step) for t, (_, old) in zip(gains, found, strict=True)),
    )


def without_hopeless_retrainings(problem: Problem) -> Problem:
    """The problem in which a retraining that cannot be had any more is no longer asked for.

    A tenant that is left with part of a window, or of a GPU, has to serve with it all the same.
    """
    while (reason := infeasibility(problem)) is not None and reason.rule == Rule.RETRAINING:
        hopeless = next(tenant for tenant in problem.tenants if tenant.name == reason.tenant)
        if not hopeless.retraining_required:
            break
        let_go = replace(hopeless, retraining_required=False)
        tenants = tuple(let_go if tenant is hopeless else tenant for tenant in problem.tenants)
        problem = replace(problem, tenants=tenants)
    return problem


def _levels_left(course: Course, step: int) -> list[int]:
    """The tenant's options from ``step`` on by their old levels, after the level by a retraining that has ended."""
    run, levels = course.retraining, range(1, len(course.tenant.options) + 1)
    if run is None or run.create_step >= step:
        return [0, *levels]
    level = course.tenant.level_of(run.option)
    if run.end_step <= step:
        return [level]
    return [0, level, *(other for other in levels if other != level)]


def _tenant_at(course: Course, levels: list[int], step: int) -> tuple[TenantTerms, list[int]]:
    """The tenant as it goes on from ``step``, and the old number of each of its levels, those of checkpoints too.

    While it trains, it has the level of the step before: a checkpoint that comes with ``step`` is still to come.
    """
    tenant, run = course.tenant, course.retraining
    is_training = run is not None and run.create_step < step < run.end_step
    now = int(course.level[step - 1 if is_training else step])
    left = replace(
        tenant,
        arrivals_rps=tenant.arrivals_rps[step:],
        accuracy_before=tenant.accuracies[now],
        options=tuple(tenant.options[level - 1] for level in levels[1:]),
        salvage=tuple(tenant.salvage[level] for level in levels) if tenant.salvage else (),
        min_slo_attainment=_floor_left(course, step),
    )
    old = [now, *levels[1:]]
    for new, level in enumerate(levels[1:], start=1):
        known = {checkpoint: number for number, checkpoint in tenant.kept_checkpoints(level)}
        old += [known[checkpoint] for _, checkpoint in left.kept_checkpoints(new)]
    return left, old


def _floor_left(course: Course, step: int) -> AttainmentFloor | None:
    """The tenant's floor from ``step`` on; one per window with what it already owes on top."""
    floor, arrived, in_time = course.tenant.min_slo_attainment, course.table.arrived, course.in_time
    if floor is None or floor.per is Per.STEP:
        return floor
    assert arrived is not None
    assert in_time is not None
    owed = floor.share * float(arrived[:step].sum()) - float(in_time[:step].sum())
    return replace(floor, due=floor.due + owed)


def _left(table: GainTable, levels: list[int], step: int) -> GainTable:
    return GainTable(
        table.multisets,
        np.ascontiguousarray(table.steady[levels, step:]),
        in_time=None if table.in_time is None else table.in_time[step:].copy(),
        arrived=None if table.arrived is None else table.arrived[step:].copy(),
    )


def state_at(problem: Problem, plan: MigPlan, step: int) -> PhysicalState:
    """What a ``physical`` plan that was followed up to ``step`` has left, in steps from there.

    That is what inference held in the step before, warming instances with the step from which they
    serve, the retrainings in progress, and the first step at which the held set may change again.
    ``step`` is from 1 to n_steps.
    """
    left = [item for item in plan.lifetimes if item.create_step < step <= item.end_step]
    runs = [item for item in left if not item.is_inference and item.end_step > step]
    held = tuple(_held(problem, item, step) for item in left if item.is_inference)
    # What was planned with who has gone since may warm up longer than those who are left would.
    longest = max((item.serve_step for item in held), default=0)
    return PhysicalState(
        held,
        tuple(
            RunningRetraining(
                item.placement,
                item.owner.tenant,
                item.end_step - step,
                max(0, item.serve_step - step) if item.lent else None,
            )
            for item in runs
        ),
        next_epoch_step=max(longest, next_epoch_step(problem, plan.lifetimes, step) - step),
    )


def _held(problem: Problem, item: Lifetime, step: int) -> HeldInstance:
    """What is held; where a process of a pool's member is still to come, it counts as serving from then on.

    Until the first epoch it is what the window opened with, as that was held.
    """
    if step <= problem.opening.next_epoch_step:
        opening = next(own for own in problem.opening.held if own.placement == item.placement)
        return replace(opening, serve_step=max(0, opening.serve_step - step))
    serve_step = item.serve_step
    if item.create_step == 0:
        joins = (problem.joins_at(item.placement, problem.tenant(name)) for name in item.owner.members)
        serve_step = max(serve_step, *joins)
    return HeldInstance(item.placement, item.owner.tenant, max(0, serve_step - step), item.owner.others)


def remaining_plan(plan: MigPlan, step: int) -> MigPlan:
    """The rest of a ``physical`` plan in steps from ``step`` on: what planning again may start from, not valued.

    A retraining in progress has no option there: it is the initial state's, not a choice. Its certificate's prices of
    these steps bound every plan of the rest, too, whatever the rest is.
    """
    return replace(
        plan,
        status=Status.FEASIBLE,
        objective=None,
        bound=None,
        claimed_bound=None,
        burst_loss=None,
        n_steps=plan.n_steps - step,
        lifetimes=tuple(_remaining(item, step) for item in plan.lifetimes if item.end_step > step),
        next_epoch_step=max(0, plan.next_epoch_step - step),
        certificate=None if plan.certificate is None else plan.certificate.left(step),
    )


def _remaining(item: Lifetime, step: int) -> Lifetime:
    return replace(
        item,
        create_step=max(0, item.create_step - step),
        serve_step=max(0, item.serve_step - step),
        end_step=item.end_step - step,
        option=None if item.create_step < step else item.option,
    )
