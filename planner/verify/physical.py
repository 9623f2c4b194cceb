"""The `physical` rules: placements with lifetimes, held sets that change at epochs, warm-ups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from executor.mig import GpuModel, Placement
from planner.plan import Lifetime, MigPlan
from planner.problem import PhysicalState, Problem, RunningRetraining, TenantTerms
from planner.verify.findings import Rule, Violation
from planner.verify.timeline import Timeline, level_of, retraining_violation, run_starts, steps_for, training_steps


def timelines(problem: Problem, plan: MigPlan) -> list[Timeline]:
    """One a tenant, in the problem's order."""
    return [_timeline(problem, tenant, plan) for tenant in problem.tenants]


def violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """Breaches of rules 1 and 3, of the spacing of epochs and of the warm-ups."""
    yield from _layout_violations(problem, plan)
    yield from _epoch_violations(problem, plan)
    yield from _warm_up_violations(problem, plan)
    for tenant in problem.tenants:
        yield from _retraining_violations(problem, tenant, plan)


def _initial(problem: Problem) -> PhysicalState:
    return problem.physical_initial or PhysicalState()


def _warm_up_steps(problem: Problem, tenant: TenantTerms) -> int:
    """Ω[m]."""
    return steps_for(problem.switching_s + tenant.overhead_s, problem.step_s)


def _is_alive(lifetime: Lifetime, step: int) -> bool:
    return lifetime.create_step <= step < lifetime.end_step


def _timeline(problem: Problem, tenant: TenantTerms, plan: MigPlan) -> Timeline:
    steps = range(problem.n_steps)
    own = [lifetime for lifetime in plan.lifetimes if lifetime.owner.tenant == tenant.name]
    inference = [lifetime for lifetime in own if lifetime.is_inference]
    alive = [[lifetime for lifetime in inference if _is_alive(lifetime, s)] for s in steps]
    held = [tuple(sorted(item.placement.profile.name for item in alive[s])) for s in steps]
    served = [tuple(sorted(i.placement.profile.name for i in alive[s] if i.serve_step <= s)) for s in steps]
    level = [0] * problem.n_steps
    running = _running(problem, tenant)
    for lifetime in own:
        if not lifetime.is_inference:
            # A retraining that was already running is always on option 0, which leads to level 1.
            after = 1 if _continues(lifetime, running) else level_of(tenant, lifetime.option)
            level = [max(level[s], after if s >= lifetime.end_step else 0) for s in steps]
    return Timeline(held, served, [False] * problem.n_steps, level)


def _running(problem: Problem, tenant: TenantTerms) -> RunningRetraining | None:
    return next((item for item in _initial(problem).retrainings if item.tenant == tenant.name), None)


def _continues(lifetime: Lifetime, running: RunningRetraining | None) -> bool:
    """Whether the lifetime is what is left of the running retraining."""
    if running is None or lifetime.placement != running.placement or lifetime.create_step != 0:
        return False
    return lifetime.serve_step <= lifetime.end_step == running.end_step


def _layout_violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """Rule 1: what inference and retrainings hold at a step is a layout."""
    in_use = [[item.placement for item in plan.lifetimes if _is_alive(item, s)] for s in range(problem.n_steps)]
    for step in run_starts([not _is_layout(problem.gpu, placements) for placements in in_use]):
        message = f"{' '.join(sorted(map(str, in_use[step])))} is no layout of {problem.gpu.name}"
        yield Violation(Rule.LAYOUT, None, step, message)


def _is_layout(gpu: GpuModel, placements: list[Placement]) -> bool:
    claimed = [s for item in placements for s in range(item.start, item.start + item.profile.memory_slices)]
    if len(claimed) > len(set(claimed)) or not set(claimed) <= set(range(gpu.memory_slices)):
        return False
    counts = Counter(gpu.profile(item.profile.name) for item in placements)
    compute_slices = sum(count * profile.compute_slices for profile, count in counts.items())
    return compute_slices <= gpu.compute_slices and all(n <= profile.max_instances for profile, n in counts.items())


def _epoch_violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """Epochs are at least Ω apart, the first not before the initial state allows it, the next one as promised."""
    apart = max(_warm_up_steps(problem, tenant) for tenant in problem.tenants)
    earliest = _initial(problem).next_epoch_step
    epochs = _epochs(problem, plan)
    for epoch in [epoch for epoch in epochs if epoch < earliest]:
        message = f"the held set changes at step {epoch}; the initial state allows it from step {earliest} on"
        yield Violation(Rule.EPOCHS, None, epoch, message)
    for before, after in pairwise(epochs):
        if after - before < apart:
            message = f"epochs at steps {before} and {after}; at least {apart} steps must lie between"
            yield Violation(Rule.EPOCHS, None, after, message)
    next_step = max([earliest, *(epoch + apart for epoch in epochs)])
    if plan.next_epoch_step < next_step:
        message = f"next_epoch_step is {plan.next_epoch_step}; the last epoch allows none before {next_step}"
        yield Violation(Rule.EPOCHS, None, None, message)
    ends = {(item.placement, item.owner, item.end_step) for item in plan.lifetimes if item.create_step < item.end_step}
    for item in plan.lifetimes:
        if item.is_inference and (item.placement, item.owner, item.create_step) in ends:
            message = f"{item.placement} ends and begins again; the held set keeps it, so it is one lifetime"
            yield Violation(Rule.EPOCHS, item.owner.tenant, item.create_step, message)


def _epochs(problem: Problem, plan: MigPlan) -> list[int]:
    """Steps at which the held set changes; what the window starts with changes it at step 0 if it is not kept."""
    inference = [item for item in plan.lifetimes if item.is_inference]
    borders = {item.create_step for item in inference} | {item.end_step for item in inference}
    epochs = {step for step in borders if 0 < step < problem.n_steps}
    if problem.physical_initial is not None:
        held = {(item.placement, item.owner.tenant) for item in inference if _is_alive(item, 0)}
        epochs |= {0} if held != set(_initially_held(problem)) else set()
    return sorted(epochs)


def _initially_held(problem: Problem) -> dict[tuple[Placement, str], int]:
    """The step from which each (placement, tenant) of the initial held set serves."""
    return {(item.placement, item.tenant): item.serve_step for item in _initial(problem).held}


def _warm_up_violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """An instance serves Ω[m] steps after its creation, or as the initial state has it, or at once at step 0."""
    tenants = {tenant.name: tenant for tenant in problem.tenants}
    initially_held = _initially_held(problem)
    for item in plan.lifetimes:
        key = (item.placement, item.owner.tenant)
        if not item.is_inference or item.create_step == item.end_step:
            continue
        due = item.create_step + _warm_up_steps(problem, tenants[item.owner.tenant])
        if item.create_step == 0:
            at_once = {} if problem.physical_initial else {key: 0}
            due = (initially_held | at_once).get(key, due)
        if item.serve_step != due:
            message = (
                f"{item.placement} is held from step {item.create_step} and serves from {item.serve_step}, not {due}"
            )
            yield Violation(Rule.WARM_UP, item.owner.tenant, item.create_step, message)


def _retraining_violations(problem: Problem, tenant: TenantTerms, plan: MigPlan) -> Iterator[Violation]:
    """Rule 3: a running retraining goes on to its end; otherwise the required one runs exactly once."""
    own = [item for item in plan.lifetimes if item.owner.tenant == tenant.name and not item.is_inference]
    running = _running(problem, tenant)
    started = [item for item in own if not _continues(item, running)]
    if running is not None and len(started) == len(own):
        message = f"the retraining in progress on {running.placement} is not held until step {running.end_step}"
        yield retraining_violation(tenant, 0, message)
    n_retrainings = len(started) + (running is not None)
    if n_retrainings > 1:
        yield retraining_violation(tenant, None, f"{n_retrainings} retrainings; one a window is allowed")
    if n_retrainings == 0 and tenant.must_retrain:
        yield retraining_violation(tenant, None, "the required retraining is missing")
    for item in started:
        yield from _started_violations(problem, tenant, item)


def _started_violations(problem: Problem, tenant: TenantTerms, item: Lifetime) -> Iterator[Violation]:
    """Rule 3 for one that starts in the window: Ω_r steps of start-up, then d of training."""
    start_s = tenant.overhead_s if tenant.retraining_start_s is None else tenant.retraining_start_s
    serve = item.create_step + steps_for(problem.switching_s + start_s, problem.step_s)
    steps = training_steps(problem, tenant, item.option, item.placement.profile.name)
    what = f"retraining {item.option!r} on {item.placement} over [{item.create_step}, {item.end_step})"
    if steps is None:
        yield retraining_violation(tenant, item.create_step, f"{what} is not offered")
    elif item.end_step != serve + steps:
        yield retraining_violation(tenant, item.create_step, f"{what} should end at step {serve + steps}")
    if item.serve_step != serve:
        message = f"{what} trains from step {item.serve_step}, not {serve}"
        yield Violation(Rule.WARM_UP, tenant.name, item.create_step, message)
