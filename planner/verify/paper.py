"""The `paper` rules: layouts of multisets, one step at a time, and retrainings that keep only their profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from executor.mig import GpuModel
from planner.plan import MigPlan, TenantSchedule
from planner.problem import Problem, TenantTerms
from planner.verify.findings import Rule, Violation
from planner.verify.timeline import Timeline, level_of, retraining_violation, run_starts, training_steps


def timelines(problem: Problem, plan: MigPlan) -> list[Timeline]:
    """One a tenant, in the problem's order; its spans have to cover the window."""
    return [
        _timeline(problem, tenant, schedule) for tenant, schedule in zip(problem.tenants, plan.schedules, strict=True)
    ]


def violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """Breaches of rules 1 and 3."""
    yield from _layout_violations(problem, plan)
    for tenant, schedule in zip(problem.tenants, plan.schedules, strict=True):
        yield from _retraining_violations(problem, tenant, schedule)


def _timeline(problem: Problem, tenant: TenantTerms, schedule: TenantSchedule) -> Timeline:
    held = [tuple(sorted(span.profiles)) for span in schedule.inference for _ in range(span.from_step, span.to_step)]
    before = held[0]
    if problem.paper_initial is not None:
        before = tuple(sorted(problem.paper_initial.held.get(tenant.name, ())))
    changed = [was != now for was, now in pairwise([before, *held])]
    level = [0] * problem.n_steps
    if (retraining := schedule.retraining) is not None:
        after = level_of(tenant, retraining.option)
        level = [after if s >= retraining.end_step else 0 for s in range(problem.n_steps)]
    return Timeline(held, held, changed, level)


def _layout_violations(problem: Problem, plan: MigPlan) -> Iterator[Violation]:
    """Rule 1: at each step some layout holds all profiles in use, wherever they were the step before."""
    in_use: list[list[str]] = [[] for _ in range(problem.n_steps)]
    for schedule in plan.schedules:
        for span in schedule.inference:
            for s in range(span.from_step, span.to_step):
                in_use[s].extend(span.profiles)
        if (retraining := schedule.retraining) is not None:
            for s in range(max(0, retraining.start_step), min(retraining.end_step, problem.n_steps)):
                in_use[s].append(retraining.profile)
    multisets = [tuple(sorted(names)) for names in in_use]
    placeable = {multiset: _can_be_placed(problem.gpu, multiset) for multiset in set(multisets)}
    for step in run_starts([not placeable[multiset] for multiset in multisets]):
        message = f"no layout of {problem.gpu.name} holds {', '.join(multisets[step])}"
        yield Violation(Rule.LAYOUT, None, step, message)


def _can_be_placed(gpu: GpuModel, names: Sequence[str]) -> bool:
    """Whether some choice of starts makes a layout of one instance of each name: all are tried, largest first."""
    profiles = sorted(map(gpu.profile, names), key=lambda profile: -profile.memory_slices)
    if any(count > profile.max_instances for profile, count in Counter(profiles).items()):
        return False
    if sum(profile.compute_slices for profile in profiles) > gpu.compute_slices:
        return False

    def can_place_from(index: int, taken: int) -> bool:
        if index == len(profiles):
            return True
        claims = [((1 << profiles[index].memory_slices) - 1) << start for start in profiles[index].starts]
        return any(not taken & claim and can_place_from(index + 1, taken | claim) for claim in claims)

    return can_place_from(0, 0)


def _retraining_violations(problem: Problem, tenant: TenantTerms, schedule: TenantSchedule) -> Iterator[Violation]:
    """Rule 3: the required one runs once, on an offered profile, for d steps inside the window."""
    retraining = schedule.retraining
    if retraining is None:
        if tenant.must_retrain:
            yield retraining_violation(tenant, None, "the required retraining is missing")
        return
    start, end = retraining.start_step, retraining.end_step
    what = f"retraining {retraining.option!r} on {retraining.profile} over [{start}, {end})"
    steps = training_steps(problem, tenant, retraining.option, retraining.profile)
    if steps is None:
        yield retraining_violation(tenant, start, f"{what} is not offered")
    elif end - start != steps:
        yield retraining_violation(tenant, start, f"{what} takes {steps} steps")
    if start < 0 or end > problem.n_steps:
        yield retraining_violation(tenant, start, f"{what} leaves the window [0, {problem.n_steps})")
