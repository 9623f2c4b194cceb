"""``paper`` decisions: what each tenant holds step by step, what that is worth, and the plan that it makes.

Engines decide in these words; objective and feasibility are always recomputed here from the
decoded decision, never taken from a solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np

from executor.mig import Multiset
from planner.arrays import Floats
from planner.counts import feasible_multisets, multiset_of, profiles_of, tenant_multisets
from planner.engines.schedule import Incumbent, Schedule, WindowFacts, may_start, profiles_at
from planner.plan import (
    Infeasibility,
    InferenceSpan,
    MigPlan,
    RetrainingSpan,
    Rule,
    Status,
    TenantSchedule,
    with_plan,
    without_plan,
)
from planner.problem import Problem, Retraining
from planner.unavailable import slices_text


@dataclass(frozen=True, slots=True)
class TenantDecision:
    """All that one tenant holds: ``held[s]`` is its inference's multiset in step s."""

    held: tuple[Multiset, ...]
    retraining: Retraining | None


Decisions = tuple[TenantDecision, ...]
"""One a tenant, in the problem's order."""


def schedule_in(decisions: Sequence[TenantDecision]) -> Schedule:
    """The retrainings that the decisions start."""
    return tuple(decision.retraining for decision in decisions if decision.retraining is not None)


def initial_multisets(problem: Problem) -> tuple[Multiset | None, ...]:
    """What each tenant's inference held before the window; all ``None`` when the first layout is free.

    A tenant that an initial state does not name held nothing.
    """
    state = problem.paper_initial
    if state is None:
        return (None,) * len(problem.tenants)
    return tuple(multiset_of(problem, state.held.get(name, ())) for name in problem.tenant_names)


def value_of(facts: WindowFacts, decisions: Sequence[TenantDecision]) -> float:
    """Goodput and salvage in requests of the decisions, by the gain tables (rule 5)."""
    goodput = chain.from_iterable(goodput_of(facts, decisions).tolist())
    return math.fsum((facts.salvage(schedule_in(decisions)), *goodput))


def goodput_of(facts: WindowFacts, decisions: Sequence[TenantDecision]) -> Floats:
    """What each tenant earns in each step, ``(n_tenants, n_steps)``."""
    steps, found = np.arange(facts.n_steps), list[Floats]()
    for table, decision, initial in zip(facts.gains, decisions, initial_multisets(facts.problem), strict=True):
        assert table.changed is not None
        held = [table.column[multiset] for multiset in decision.held]
        # What could not serve the tenant has no column, and is never what is held.
        before = [held[0] if initial is None else table.column.get(initial, -1), *held[:-1]]
        gains = np.where(np.equal(held, before), table.steady[:, steps, held], table.changed[:, steps, held])
        own = gains[0] if decision.retraining is None else facts.along(decision.retraining, gains)
        found.append(own)
    return np.array(found)


def broken_rule(problem: Problem, decisions: Sequence[TenantDecision]) -> str | None:
    """The first rule of the model that the decisions break, in a sentence; ``None`` if they keep all."""
    for m, (tenant, decision) in enumerate(zip(problem.tenants, decisions, strict=True)):
        allowed = set(tenant_multisets(problem, tenant))
        if len(decision.held) != problem.n_steps or not set(decision.held) <= allowed:
            return f"rules 2 and 4: {tenant.name} holds what it may not, or not at each of {problem.n_steps} steps"
        if not may_start(problem, m, decision.retraining):
            return f"rule 3: {tenant.name} {_as_text(decision.retraining)}"
    by_step = list(zip(*(decision.held for decision in decisions), strict=True))
    for begin, end, mask in problem.unavailable_spans:
        feasible = set(feasible_multisets(problem.gpu, problem.profile_names, mask))
        for step in range(begin, end):
            running = multiset_of(problem, profiles_at(schedule_in(decisions), step))
            total = tuple(map(sum, zip(*by_step[step], running, strict=True)))
            if total not in feasible:
                beside = f" beside {slices_text(mask)}, not ours," if mask else ""
                held = ", ".join(profiles_of(problem, total))
                return f"rule 1: {held} do not fit together{beside} in step {step}"
    return None


def _as_text(retraining: Retraining | None) -> str:
    if retraining is None:
        return "does not retrain, which it has to"
    steps = f"{retraining.start_step}–{retraining.end_step}"
    return f"cannot retrain on {retraining.profile} over steps {steps} in this problem"


def with_decisions(
    problem: Problem,
    best: Incumbent[Decisions],
    bound: float,
    engine: str,
    started_s: float,
    work: tuple[tuple[str, int], ...] = (),
) -> MigPlan:
    """The decisions as a plan; ``started_s`` is on ``executor.compiled.working_s``."""
    schedules = schedules_of(problem, best.answer)
    return with_plan(problem, best.value, bound, engine, started_s, schedules=schedules, work=work)


def without_room(problem: Problem, engine: str, started_s: float) -> MigPlan:
    """The answer where no schedule of the required retrainings has room."""
    text = "no schedule of the required retrainings fits beside every tenant's min_profile"
    reason = Infeasibility(None, Rule.RETRAINING, text)
    return without_plan(problem, Status.INFEASIBLE, engine, started_s, infeasibility=reason)


def schedules_of(problem: Problem, decisions: Sequence[TenantDecision]) -> tuple[TenantSchedule, ...]:
    """The decisions as a plan's schedules."""
    found = []
    for tenant, decision in zip(problem.tenants, decisions, strict=True):
        run, span = decision.retraining, None
        if run is not None:
            span = RetrainingSpan(run.profile, run.start_step, run.end_step, tenant.ending_names[run.level])
        found.append(TenantSchedule(tenant.name, _spans(problem, decision.held), span))
    return tuple(found)


def _spans(problem: Problem, held: Sequence[Multiset]) -> tuple[InferenceSpan, ...]:
    spans, first = [], 0
    for multiset, steps in groupby(held):
        last = first + len(list(steps))
        spans.append(InferenceSpan(first, last, profiles_of(problem, multiset)))
        first = last
    return tuple(spans)


def decisions_of(problem: Problem, plan: MigPlan) -> Decisions | None:
    """A plan's schedules as decisions for ``problem``; ``None`` unless they are feasible for it.

    Used to start from a plan made before, so anything unfit is passed over, not refused.
    """
    found = _read(problem, plan)
    return None if isinstance(found, str) else found


def misfit(problem: Problem, plan: MigPlan) -> str | None:
    """Why :func:`decisions_of` passes the plan over, in words; ``None`` if it does not."""
    found = _read(problem, plan)
    return found if isinstance(found, str) else None


def _read(problem: Problem, plan: MigPlan) -> Decisions | str:
    by_name = {schedule.name: schedule for schedule in plan.schedules}
    if set(by_name) != set(problem.tenant_names):
        needed = f"the problem's tenants are {', '.join(problem.tenant_names)}"
        return f"it schedules {', '.join(by_name) or 'no tenant'}; {needed}"
    decisions = []
    for m, tenant in enumerate(problem.tenants):
        decision = _decision(problem, m, by_name[tenant.name])
        if isinstance(decision, str):
            return decision
        decisions.append(decision)
    return broken_rule(problem, decisions) or tuple(decisions)


def _decision(problem: Problem, m: int, schedule: TenantSchedule) -> TenantDecision | str:
    tenant, retraining = problem.tenants[m], schedule.retraining
    used = {name for span in schedule.inference for name in span.profiles}
    used |= set() if retraining is None else {retraining.profile}
    if foreign := used - set(problem.profile_names):
        return f"it gives {tenant.name} {', '.join(sorted(foreign))}, which the problem has no use for"
    held: list[Multiset] = []
    for span in sorted(schedule.inference, key=lambda span: span.from_step):
        if span.from_step != len(held) or span.to_step > problem.n_steps:
            return f"its spans of {tenant.name} do not follow each other within steps 0 to {problem.n_steps}"
        held += [multiset_of(problem, span.profiles)] * (span.to_step - span.from_step)
    if retraining is None:
        return TenantDecision(tuple(held), None)
    if retraining.option not in tenant.ending_names[1:]:
        return f"it retrains {tenant.name} by {retraining.option!r}, which is none of its options"
    level = tenant.level_of(retraining.option)
    run = Retraining(m, level, retraining.profile, retraining.start_step, retraining.end_step)
    return TenantDecision(tuple(held), run)
