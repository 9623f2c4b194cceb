"""Whether a plan can be read at all, and what it breaks of rules 1 to 4, of the warm-ups and of the epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from executor.mig import GpuModel, Placement, memory_slices_in
from planner.plan import ANYWHERE, Lifetime, MigPlan, Rule, TenantSchedule
from planner.problem import Owner, Problem, Reconfiguration, Task, TenantTerms
from planner.verify.holdings import continues
from planner.verify.loans import loan_violations
from planner.verify.verification import Violation


def unreadable(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """What keeps the plan from being laid out step by step; empty if it can be."""
    names = tuple(schedule.name for schedule in plan.schedules)
    if not plan.status.has_plan:
        yield Violation(Rule.CERTIFICATE, f"the status is {plan.status}: there is no plan to check")
    elif (plan.reconfiguration, plan.n_steps) != (problem.reconfiguration, problem.n_steps):
        needed = f"a {problem.reconfiguration} one of {problem.n_steps} is needed"
        yield Violation(Rule.SHAPE, f"a {plan.reconfiguration} plan of {plan.n_steps} steps; {needed}")
    elif plan.reconfiguration is Reconfiguration.PHYSICAL:
        for item in plan.lifetimes:
            yield from _unreadable_lifetime(problem, item)
    elif names != problem.tenant_names:
        yield Violation(Rule.SHAPE, f"the plan schedules {names}; the problem's tenants are {problem.tenant_names}")
    else:
        for schedule in plan.schedules:
            yield from _unreadable_schedule(problem, schedule)


def _unreadable_schedule(problem: Problem, schedule: TenantSchedule) -> Iterator[Violation]:
    covered_to, used = 0, {schedule.retraining.profile} if schedule.retraining else set()
    for span in schedule.inference:
        used |= set(span.profiles)
        covered_to = span.to_step if covered_to == span.from_step < span.to_step else -1
    if covered_to != problem.n_steps:
        yield Violation(Rule.SHAPE, f"spans have to cover [0, {problem.n_steps}) one after the other", schedule.name)
    for name in sorted(used - set(problem.gpu.profile_names)):
        yield Violation(Rule.SHAPE, f"{problem.gpu.name} has no profile {name!r}", schedule.name)


def _unreadable_lifetime(problem: Problem, item: Lifetime) -> Iterator[Violation]:
    where, tenant, create, end = item.placement, item.owner.tenant, item.create_step, item.end_step
    # What the window starts with and drops at step 0 may be listed as empty.
    is_dropped = item.is_inference and create == end == 0 and (where, item.owner) in problem.kept_at_start
    if item.owner not in _owners(problem, item.owner.task):
        known = ", ".join(f"{'+'.join(owner.members)}" for owner in _owners(problem, item.owner.task))
        yield Violation(
            Rule.SHAPE, f"{where} is held by {'+'.join(item.owner.members)}, none of {known}", tenant, create
        )
    if not (0 <= create < end <= problem.n_steps and create <= item.serve_step) and not is_dropped:
        needed = f"create ≤ serve and 0 ≤ create < end ≤ {problem.n_steps} are needed"
        message = f"{where} has create {create}, serve {item.serve_step}, end {end}; {needed}"
        yield Violation(Rule.SHAPE, message, tenant, create)
    if where not in problem.gpu.placements(problem.gpu.profile_names):
        yield Violation(Rule.LAYOUT, f"{problem.gpu.name} has no placement {where}", tenant, create)


def _owners(problem: Problem, task: Task) -> list[Owner]:
    """Who may hold instances for a task: tenants alone retrain, those of a pool serve together."""
    if task is Task.RETRAINING:
        return [Owner(name, task) for name in problem.tenant_names]
    pooled = {name for pool in problem.pools for name in pool.members}
    alone = [Owner(name, task) for name in problem.tenant_names if name not in pooled]
    return [*alone, *(Owner(pool.members[0], task, pool.members[1:]) for pool in problem.pools)]


def violations(problem: Problem, plan: MigPlan, lifetimes: Sequence[Lifetime]) -> Iterator[Violation]:
    """Every breach by a readable plan; one that lasts several steps counts once, at the first."""
    edges = {0, *(s for item in lifetimes for s in (item.create_step, item.end_step))}
    edges |= {s for item in problem.unavailable for s in (item.from_step, item.to_step or 0)}
    waiting = sorted(lifetimes, key=lambda item: item.create_step, reverse=True)
    alive: list[Lifetime] = []
    before: set[tuple[Rule, str | None]] = set()
    for s in sorted(s for s in edges if 0 <= s < problem.n_steps):
        while waiting and waiting[-1].create_step <= s:
            alive.append(waiting.pop())
        alive = [item for item in alive if item.end_step > s]
        broken = list(_step_violations(problem, alive, s))
        yield from (one for one in broken if (one.rule, one.tenant) not in before)
        before = {(one.rule, one.tenant) for one in broken}
    for tenant in problem.tenants:
        yield from _retraining_violations(problem, tenant, lifetimes)
    if problem.reconfiguration is Reconfiguration.PHYSICAL:
        yield from _instance_violations(problem, lifetimes)
        yield from loan_violations(problem, lifetimes)
        yield from _epoch_violations(problem, plan, [item for item in lifetimes if item.is_inference])


def _step_violations(problem: Problem, alive: Sequence[Lifetime], s: int) -> Iterator[Violation]:
    """Rules 1, 2 and 4 on what is held in step s."""
    made = (item.placement for item in alive if not item.lent)
    placements = sorted(made, key=lambda it: (-it.profile.memory_slices, *it.sort_key))
    barred = frozenset(memory_slices_in(problem.unavailable_in(s, s + 1)))
    if not _fits(problem.gpu, placements, barred=barred):
        shown = ", ".join(str(item).removesuffix(f"@{ANYWHERE}") for item in placements)
        beside = f" beside memory slices {', '.join(map(str, sorted(barred)))}, which are not ours" if barred else ""
        yield Violation(Rule.LAYOUT, f"no layout of {problem.gpu.name} holds {shown}{beside}", None, s)
    for tenant in problem.tenants:
        own = [item for item in alive if item.is_inference and tenant.name in item.owner.members]
        held, rates = [item.placement.profile for item in own], problem.capability_rps(tenant)
        shown, allowed = ", ".join(sorted(map(str, held))) or "nothing", ", ".join(rates)
        if not rates.keys() >= set(map(str, held)):
            yield Violation(Rule.PROFILE, f"inference holds {shown}; capability_rps allows {allowed}", tenant.name, s)
        if not any(profile.is_at_least(problem.gpu.profile(tenant.min_profile)) for profile in held):
            message = f"inference holds {shown}, nothing as large as min_profile {tenant.min_profile}"
            yield Violation(Rule.MIN_PROFILE, message, tenant.name, s)


def _fits(
    gpu: GpuModel,
    placements: Sequence[Placement],
    placed: tuple[Placement, ...] = (),
    barred: frozenset[int] = frozenset(),
) -> bool:
    """Whether the placements form a layout off the barred slices with some choice of the starts that are open."""
    n_idle = gpu.compute_slices - sum(item.profile.compute_slices for item in (*placed, *placements))
    if not placements or n_idle < 0 or not gpu.fits(placed):
        return n_idle >= 0 and gpu.fits(placed)
    profile, start = placements[0].profile, placements[0].start
    # Instances of one profile are alike: those side by side in the list take their starts in ascending order.
    last = placed[-1].start if placed and placed[-1].profile == profile else ANYWHERE
    choices = [Placement(profile, s) for s in (profile.starts if start == ANYWHERE else [start]) if s > last]
    free = [choice for choice in choices if barred.isdisjoint(range(choice.start, choice.end))]
    return any(_fits(gpu, placements[1:], (*placed, choice), barred) for choice in free)


def _retraining_violations(problem: Problem, tenant: TenantTerms, held: Sequence[Lifetime]) -> Iterator[Violation]:
    """Rule 3: a running retraining goes on to its end; otherwise the required one runs exactly once."""
    running = [run for run in problem.opening.retrainings if run.tenant == tenant.name]
    runs = [item for item in held if item.owner == Owner(tenant.name, Task.RETRAINING)]
    started = [run for run in runs if not continues(problem, run)]
    n_runs = len(started) + len(running)
    if running and len(started) == len(runs):
        message = f"the retraining in progress on {running[0].placement} is not held until step {running[0].end_step}"
        yield Violation(Rule.RETRAINING, message, tenant.name, 0)
    if n_runs > 1:
        yield Violation(Rule.RETRAINING, f"{n_runs} retrainings; one a window is allowed", tenant.name)
    if n_runs == 0 and tenant.must_retrain:
        yield Violation(Rule.RETRAINING, "the required retraining is missing", tenant.name)
    for run in started:
        name, start, end = run.placement.profile.name, run.create_step, run.end_step
        option = next((one for one in tenant.options if one.name == run.option and name in one.time_s), None)
        what = f"retraining {run.option!r} on {name} over [{start}, {end})"
        if option is None:
            yield Violation(Rule.RETRAINING, f"{what} is not offered", tenant.name, start)
        elif end - start != (steps := problem.occupied_steps(tenant, option, name)):
            yield Violation(Rule.RETRAINING, f"{what} takes {steps} steps", tenant.name, start)
        if start < 0 or end > problem.n_steps:
            yield Violation(Rule.RETRAINING, f"{what} leaves the window [0, {problem.n_steps})", tenant.name, start)


def _instance_violations(problem: Problem, lifetimes: Sequence[Lifetime]) -> Iterator[Violation]:
    """Ready Ω[m] or Ω_r[m] after its creation; what inference starts with, at once or as the initial state has it."""
    ends = {(item.placement, item.owner, item.end_step) for item in lifetimes if item.is_inference}
    for item in lifetimes:
        tenant, create = problem.tenants[problem.tenant_names.index(item.owner.tenant)], item.create_step
        due = create + (problem.warm_up_steps if item.is_inference else problem.retraining_warm_up_steps)(tenant)
        if item.is_inference and create == 0:
            kept = problem.kept_at_start.get((item.placement, item.owner))
            due = kept.serve_step if kept is not None else due if problem.initial else 0
        if item.serve_step != due and not continues(problem, item):
            message = f"{item.placement} is ready at step {item.serve_step}, not {due}"
            yield Violation(Rule.WARM_UP, message, tenant.name, create)
        if (item.placement, item.owner, create) in ends:
            message = f"{item.placement} ends and begins again: what is kept is one lifetime"
            yield Violation(Rule.EPOCHS, message, tenant.name, create)


def _epoch_violations(problem: Problem, plan: MigPlan, inference: Sequence[Lifetime]) -> Iterator[Violation]:
    """Epochs are at least Ω apart, the first not before the initial state allows it, the next one as promised."""
    epochs = {s for item in inference for s in (item.create_step, item.end_step) if 0 < s < problem.n_steps}
    held = {(item.placement, item.owner) for item in inference if item.create_step == 0}
    epochs |= {0} if problem.initial is not None and held != problem.kept_at_start.keys() else set()
    allowed_from = problem.opening.next_epoch_step
    # Members' processes that are missing in what is kept start as soon as the held set may change.
    epochs |= {allowed_from} if problem.is_repartitioned else set()
    for epoch in sorted(epochs):
        if epoch < allowed_from:
            yield Violation(Rule.EPOCHS, f"the held set changes; it may from step {allowed_from} on", None, epoch)
        allowed_from = max(allowed_from, epoch + problem.epoch_steps)
    if plan.next_epoch_step < allowed_from:
        yield Violation(Rule.EPOCHS, f"next_epoch_step is {plan.next_epoch_step}; {allowed_from} is the first allowed")
