"""Whether a plan can be read at all: its steps, tenants, profiles and placements exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from planner.plan import Lifetime, MigPlan, TenantSchedule
from planner.problem import Problem, Reconfiguration
from planner.verify.findings import Rule, Violation


def unreadable(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """What keeps the plan from being laid out step by step; nothing if it can be."""
    if not plan.status.has_plan:
        message = f"the status is {plan.status}: there is no plan to check"
        yield Violation(Rule.CERTIFICATE, None, None, message)
    elif plan.reconfiguration is not problem.reconfiguration:
        message = f"the plan is a {plan.reconfiguration} one; the problem is {problem.reconfiguration}"
        yield Violation(Rule.SHAPE, None, None, message)
    elif plan.n_steps != problem.n_steps:
        message = f"the plan has {plan.n_steps} steps; the problem has {problem.n_steps}"
        yield Violation(Rule.SHAPE, None, None, message)
    else:
        yield from _unreadable_contents(problem, plan)


def _unreadable_contents(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    match plan.reconfiguration:
        case Reconfiguration.PAPER:
            names = tuple(schedule.name for schedule in plan.schedules)
            if names != problem.tenant_names:
                message = f"the plan schedules {names}; the problem's tenants are {problem.tenant_names}"
                yield Violation(Rule.SHAPE, None, None, message)
                return
            for schedule in plan.schedules:
                yield from _broken_spans(problem, schedule)
                yield from _unknown_profiles(problem, schedule)
        case Reconfiguration.PHYSICAL:
            for lifetime in plan.lifetimes:
                yield from _unreadable_lifetime(problem, lifetime)
        case _:
            assert_never(plan.reconfiguration)


def _broken_spans(problem: Problem, schedule: TenantSchedule) -> Iterator[Violation]:
    """Spans that leave gaps, overlap or do not cover [0, n_steps)."""
    covered_to = 0
    for span in schedule.inference:
        if span.from_step != covered_to or span.to_step <= span.from_step:
            message = f"a span covers [{span.from_step}, {span.to_step}) where one from step {covered_to} on is due"
            yield Violation(Rule.SHAPE, schedule.name, covered_to, message)
            return
        covered_to = span.to_step
    if covered_to != problem.n_steps:
        message = f"the spans cover [0, {covered_to}); exactly [0, {problem.n_steps}) is needed"
        yield Violation(Rule.SHAPE, schedule.name, covered_to, message)


def _unknown_profiles(problem: Problem, schedule: TenantSchedule) -> Iterator[Violation]:
    used = {name for span in schedule.inference for name in span.profiles}
    used |= {schedule.retraining.profile} if schedule.retraining else set()
    for name in sorted(used - set(problem.gpu.profile_names)):
        yield Violation(Rule.SHAPE, schedule.name, None, f"{problem.gpu.name} has no profile {name!r}")


def _unreadable_lifetime(problem: Problem, lifetime: Lifetime) -> Iterator[Violation]:
    tenant, placement = lifetime.owner.tenant, lifetime.placement
    create, serve, end = lifetime.create_step, lifetime.serve_step, lifetime.end_step
    if tenant not in problem.tenant_names:
        message = f"{placement} is held by {tenant!r}; the tenants are {problem.tenant_names}"
        yield Violation(Rule.SHAPE, tenant, create, message)
    if not (0 <= create < end <= problem.n_steps and create <= serve) and not _is_dropped_at_once(problem, lifetime):
        message = (
            f"{placement} has create {create}, serve {serve}, end {end}; create ≤ serve and "
            f"0 ≤ create < end ≤ {problem.n_steps} are needed"
        )
        yield Violation(Rule.SHAPE, tenant, create, message)
    known = {profile.name: profile for profile in problem.gpu.profiles}.get(placement.profile.name)
    if known != placement.profile or placement.start not in known.starts:
        yield Violation(Rule.LAYOUT, tenant, create, f"{problem.gpu.name} has no placement {placement}")


def _is_dropped_at_once(problem: Problem, lifetime: Lifetime) -> bool:
    """Whether the window starts with the instance and drops it at step 0: listed as empty, or left out."""
    state = problem.physical_initial
    held = {(item.placement, item.tenant) for item in state.held} if state else set()
    is_held = lifetime.is_inference and (lifetime.placement, lifetime.owner.tenant) in held
    return is_held and lifetime.create_step == lifetime.end_step == 0
