"""``paper`` decisions as values: what each tenant holds step by step, what that is worth, and the plan it makes.

Engines decide in these terms; objective and feasibility are always recomputed here from the
decoded decision, never taken from a solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from executor.mig import Multiset
from planner.counts import feasible_multisets, multiset_of, profiles_of, tenant_multisets
from planner.plan import InferenceSpan, MigPlan, RetrainingSpan, TenantSchedule
from planner.problem import GainTable, Problem, TenantTerms


@dataclass(frozen=True, slots=True, order=True)
class RetrainingChoice:
    """A retraining that a tenant starts: option and profile by index, ``[start_step, end_step)``.

    Attributes:
        option_index: Into ``tenant.options``; the level after its end is ``option_index + 1``.
        profile_index: Into ``problem.profile_names``.
        start_step: First step in which it holds its instance.
        end_step: First step with the new accuracy.
    """

    option_index: int
    profile_index: int
    start_step: int
    end_step: int

    def at(self, start_step: int) -> RetrainingChoice:
        """The same retraining, started at another step."""
        n_steps = self.end_step - self.start_step
        return RetrainingChoice(self.option_index, self.profile_index, start_step, start_step + n_steps)


RetrainingChoices = tuple[RetrainingChoice | None, ...]
"""One a tenant, in the problem's order."""


@dataclass(frozen=True, slots=True)
class TenantDecision:
    """All that one tenant holds: ``held[s]`` is its inference's multiset in step s."""

    held: tuple[Multiset, ...]
    retraining: RetrainingChoice | None


def choices_of(problem: Problem, tenant: TenantTerms) -> tuple[RetrainingChoice, ...]:
    """Each way to retrain with the earliest start; a later start shifts both steps. Only those that end in time."""
    ends = [
        (option_index, problem.profile_names.index(profile), problem.occupied_steps(tenant, option, profile))
        for option_index, option in enumerate(tenant.options)
        for profile in option.time_s
    ]
    return tuple(RetrainingChoice(o, p, 0, n_steps) for o, p, n_steps in sorted(ends) if n_steps <= problem.n_steps)


def running_at(problem: Problem, choices: RetrainingChoices, step: int) -> Multiset:
    """The multiset that the retrainings hold in ``step``."""
    counts = [0] * len(problem.profile_names)
    for choice in choices:
        if choice is not None and choice.start_step <= step < choice.end_step:
            counts[choice.profile_index] += 1
    return tuple(counts)


def level_at(choice: RetrainingChoice | None, step: int) -> int:
    """The tenant's level in ``step``: 0 until its retraining has ended."""
    return choice.option_index + 1 if choice is not None and step >= choice.end_step else 0


def initial_multisets(problem: Problem) -> tuple[Multiset | None, ...]:
    """What each tenant's inference held before the window; all ``None`` when the first layout is free.

    A tenant that an initial state does not name held nothing.
    """
    state = problem.paper_initial
    if state is None:
        return (None,) * len(problem.tenants)
    return tuple(multiset_of(problem, state.held.get(name, ())) for name in problem.tenant_names)


def value_of(problem: Problem, tables: Sequence[GainTable], decisions: Sequence[TenantDecision]) -> float:
    """Goodput in requests of the decisions, by the gain tables (rule 5)."""
    terms = []
    for table, decision, initial in zip(tables, decisions, initial_multisets(problem), strict=True):
        assert table.changed is not None
        before = initial if initial is not None else decision.held[0]
        for step, multiset in enumerate(decision.held):
            gains = table.steady if multiset == before else table.changed
            terms.append(float(gains[level_at(decision.retraining, step), step, table.column[multiset]]))
            before = multiset
    return math.fsum(terms)


def broken_rule(problem: Problem, decisions: Sequence[TenantDecision]) -> str | None:
    """The first rule of the model that the decisions break, in a sentence; ``None`` if they keep all."""
    feasible = set(feasible_multisets(problem.gpu, problem.profile_names))
    choices = tuple(decision.retraining for decision in decisions)
    for tenant, decision in zip(problem.tenants, decisions, strict=True):
        allowed = set(tenant_multisets(problem, tenant))
        if len(decision.held) != problem.n_steps or not set(decision.held) <= allowed:
            return f"rules 2 and 4: {tenant.name} holds what it may not, or not at each of {problem.n_steps} steps"
        if not _is_allowed(problem, tenant, decision.retraining):
            return f"rule 3: {tenant.name} {_told(problem, decision.retraining)}"
    for step, held in enumerate(zip(*(decision.held for decision in decisions), strict=True)):
        total = tuple(map(sum, zip(*held, running_at(problem, choices, step), strict=True)))
        if total not in feasible:
            return f"rule 1: {', '.join(profiles_of(problem, total))} do not fit together in step {step}"
    return None


def _told(problem: Problem, choice: RetrainingChoice | None) -> str:
    if choice is None:
        return "does not retrain, which it has to"
    profile, steps = problem.profile_names[choice.profile_index], f"{choice.start_step}–{choice.end_step}"
    return f"cannot retrain on {profile} over steps {steps} in this problem"


def _is_allowed(problem: Problem, tenant: TenantTerms, choice: RetrainingChoice | None) -> bool:
    if choice is None:
        return not tenant.must_retrain
    return any(
        choice == way.at(choice.start_step)
        for way in choices_of(problem, tenant)
        if 0 <= choice.start_step <= problem.n_steps - way.end_step
    )


def schedules_of(problem: Problem, decisions: Sequence[TenantDecision]) -> tuple[TenantSchedule, ...]:
    """The decisions as a plan's schedules."""
    pairs = zip(problem.tenants, decisions, strict=True)
    return tuple(
        TenantSchedule(
            tenant.name, _spans(problem, decision.held), _retraining_span(problem, tenant, decision.retraining)
        )
        for tenant, decision in pairs
    )


def _spans(problem: Problem, held: Sequence[Multiset]) -> tuple[InferenceSpan, ...]:
    spans, first = [], 0
    for multiset, steps in groupby(held):
        last = first + len(list(steps))
        spans.append(InferenceSpan(first, last, profiles_of(problem, multiset)))
        first = last
    return tuple(spans)


def _retraining_span(problem: Problem, tenant: TenantTerms, choice: RetrainingChoice | None) -> RetrainingSpan | None:
    if choice is None:
        return None
    profile, option = problem.profile_names[choice.profile_index], tenant.options[choice.option_index]
    return RetrainingSpan(profile, choice.start_step, choice.end_step, option.name)


def decisions_of(problem: Problem, plan: MigPlan) -> tuple[TenantDecision, ...] | None:
    """A plan's schedules as decisions for ``problem``; ``None`` unless they are feasible for it.

    Used to start from a plan made before, so anything unfit is passed over, not refused.
    """
    found = _read(problem, plan)
    return None if isinstance(found, str) else found


def misfit(problem: Problem, plan: MigPlan) -> str | None:
    """Why :func:`decisions_of` passes the plan over, in words; ``None`` if it does not."""
    found = _read(problem, plan)
    return found if isinstance(found, str) else None


def _read(problem: Problem, plan: MigPlan) -> tuple[TenantDecision, ...] | str:
    by_name = {schedule.name: schedule for schedule in plan.schedules}
    if set(by_name) != set(problem.tenant_names):
        needed = f"the problem's tenants are {', '.join(problem.tenant_names)}"
        return f"it schedules {', '.join(by_name) or 'nobody'}; {needed}"
    decisions = []
    for tenant in problem.tenants:
        decision = _decision(problem, tenant, by_name[tenant.name])
        if isinstance(decision, str):
            return decision
        decisions.append(decision)
    return broken_rule(problem, decisions) or tuple(decisions)


def _decision(problem: Problem, tenant: TenantTerms, schedule: TenantSchedule) -> TenantDecision | str:
    retraining, option_names = schedule.retraining, [option.name for option in tenant.options]
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
    if retraining.option not in option_names:
        return f"it retrains {tenant.name} by {retraining.option!r}, which is none of its options"
    choice = RetrainingChoice(
        option_names.index(retraining.option),
        problem.profile_names.index(retraining.profile),
        retraining.start_step,
        retraining.end_step,
    )
    return TenantDecision(tuple(held), choice)
