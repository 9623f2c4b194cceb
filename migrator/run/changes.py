"""From a plan's lifetimes to the changes that carry it out: what holds the GPU after each, and what is promised."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from executor.mig import OwnedLayout, Placement
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import HeldInstance, Owner, PhysicalState, Problem, RunningRetraining, Task


@dataclass(frozen=True, slots=True)
class Change:
    """One moment at which instances start or end.

    Attributes:
        planned_s: When it is due, seconds from the start of the run.
        layout: Who holds what from then on.
        promised_s: For each lifetime that begins, when the plan lets it serve (or train). A retraining
            that was in progress when the plan was made begins nothing: it has no entry.
    """

    planned_s: float
    layout: OwnedLayout[Owner]
    promised_s: tuple[tuple[Placement, float], ...]


def changes_of(plan: MigPlan, start_s: float, step_s: float) -> tuple[Change, ...]:
    """The changes of a ``physical`` plan whose step 0 is at ``start_s``, in order of time.

    The first is always at step 0, whether or not anything differs from before: what ended with
    the last window is cleared there.
    """
    steps = {0}
    steps |= {lifetime.create_step for lifetime in plan.lifetimes}
    steps |= {lifetime.end_step for lifetime in plan.lifetimes if lifetime.end_step < plan.n_steps}
    return tuple(_change_at(step, plan, start_s, step_s) for step in sorted(steps))


def _change_at(step: int, plan: MigPlan, start_s: float, step_s: float) -> Change:
    alive = [item for item in plan.lifetimes if item.create_step <= step < item.end_step]
    begun = [item for item in alive if item.create_step == step and (item.is_inference or item.option is not None)]
    return Change(
        planned_s=start_s + step * step_s,
        layout=OwnedLayout.of((item.placement, item.owner) for item in alive),
        promised_s=tuple((item.placement, start_s + item.serve_step * step_s) for item in begun),
    )


def state_after(plan: MigPlan) -> PhysicalState:
    """What the plan leaves to the next window, in steps from that window's start.

    Instances that outlive the window are held on, those still warming with the step from which
    they serve. Retrainings end inside their window, so none is running.
    """
    outliving = [item for item in plan.lifetimes if item.end_step >= plan.n_steps and item.is_inference]
    return PhysicalState(
        held=tuple(
            HeldInstance(item.placement, item.owner.tenant, max(0, item.serve_step - plan.n_steps))
            for item in outliving
        ),
        next_epoch_step=max(0, plan.next_epoch_step - plan.n_steps),
    )


def state_of(serving_from_s: Iterable[tuple[Placement, str, float]], start_s: float, step_s: float) -> PhysicalState:
    """What a window that begins at ``start_s`` starts from, by what really stands: placement, tenant, readiness.

    Every retraining counts as over: the plan does not know of one that takes longer than estimated.
    """
    held = tuple(
        HeldInstance(placement, tenant, max(0, math.ceil((ready_s - start_s) / step_s - 1e-9)))
        for placement, tenant, ready_s in serving_from_s
    )
    return PhysicalState(held=held, next_epoch_step=max((item.serve_step for item in held), default=0))


def shifted(state: PhysicalState, n_steps: int) -> PhysicalState:
    """The same state, told in steps from ``n_steps`` later, when nothing was changed meanwhile."""
    return PhysicalState(
        held=tuple(HeldInstance(item.placement, item.tenant, max(0, item.serve_step - n_steps)) for item in state.held),
        retrainings=tuple(
            RunningRetraining(item.placement, item.tenant, item.end_step - n_steps)
            for item in state.retrainings
            if item.end_step > n_steps
        ),
        next_epoch_step=max(0, state.next_epoch_step - n_steps),
    )


def kept_plan(problem: Problem, plan: MigPlan) -> MigPlan:
    """The plan that changes nothing: what a failed solve, or a plan that breaks a rule, leaves in force."""
    state = problem.physical_initial or PhysicalState()
    lifetimes = tuple(
        Lifetime(item.placement, Owner(item.tenant, Task.INFERENCE), 0, item.serve_step, problem.n_steps)
        for item in state.held
    )
    return MigPlan(
        status=Status.TIMEOUT if plan.status.has_plan else plan.status,
        objective=None,
        bound=plan.bound,
        solve_s=plan.solve_s,
        engine=plan.engine,
        reconfiguration=plan.reconfiguration,
        n_steps=problem.n_steps,
        lifetimes=lifetimes,
        next_epoch_step=state.next_epoch_step,
        infeasibility=plan.infeasibility,
        work=plan.work,
    )
