"""``paper`` decisions as values: what each tenant holds step by step, what that is worth, and the plan it makes.

Engines decide in these terms; objective and feasibility are always recomputed here from the
decoded decision, never taken from a solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from executor.mig import Multiset, Placement
from planner.counts import feasible_multisets, multiset_of, profiles_of, tenant_multisets
from planner.gains import gain_tables
from planner.initial import PhysicalState
from planner.plan import InferenceSpan, MigPlan, RetrainingSpan, TenantSchedule
from planner.problem import FloatArray, GainTable, Problem, TenantTerms


@dataclass(frozen=True, slots=True, order=True)
class Retraining:
    """A retraining that holds one instance of ``profile`` over ``[start_step, end_step)``.

    Attributes:
        tenant: Index of the tenant.
        level: The tenant's level from ``end_step`` on; option ``level − 1`` runs.
        profile: Name of the profile.
        start_step: From here on the placement is taken.
        end_step: First step with the new accuracy.
    """

    tenant: int
    level: int
    profile: str
    start_step: int
    end_step: int

    @property
    def n_steps(self) -> int:
        """Steps of start-up and training."""
        return self.end_step - self.start_step

    def at(self, start_step: int) -> Retraining:
        """The same retraining, started at another step."""
        return replace(self, start_step=start_step, end_step=start_step + self.n_steps)


Schedule = tuple[Retraining, ...]
"""The retrainings that start in the window, by tenant, at most one each."""


@dataclass(frozen=True)
class WindowFacts:
    """A window's problem with its gain tables, and what follows from both for every schedule.

    Attributes:
        problem: The problem.
        gains: Its gain tables.
    """

    problem: Problem
    gains: tuple[GainTable, ...]

    @classmethod
    def of(cls, problem: Problem) -> WindowFacts:
        """The facts of a problem, with its own or the simple gain tables."""
        return cls(problem, gain_tables(problem))

    @property
    def n_steps(self) -> int:
        """Steps of the window."""
        return self.problem.n_steps

    @property
    def state(self) -> PhysicalState:
        """The initial state; an empty one where there is none."""
        return self.problem.physical_initial or PhysicalState()

    @property
    def is_free(self) -> bool:
        """Whether the first held set is free and serves at once."""
        return self.problem.initial is None

    @property
    def initial_held(self) -> frozenset[tuple[Placement, int]] | None:
        """(placement, tenant index) of what inference holds when the window opens; ``None`` if that is free."""
        if self.is_free:
            return None
        names = self.problem.tenant_names
        return frozenset((item.placement, names.index(item.tenant)) for item in self.state.held)

    @property
    def first_step(self) -> int:
        """The first step at which the held set may differ from the initial one; within the window."""
        return min(self.state.next_epoch_step, self.n_steps)

    @cached_property
    def warm_steps(self) -> NDArray[np.int64]:
        """Ω_m, ``(n_tenants,)``."""
        return np.array([self.problem.warm_up_steps(tenant) for tenant in self.problem.tenants], dtype=np.int64)

    @cached_property
    def epoch_steps(self) -> int:
        """Ω."""
        return self.problem.epoch_steps

    @cached_property
    def running(self) -> tuple[tuple[Retraining, Placement], ...]:
        """The retrainings in progress when the window opens; their outcome is option 0's."""
        names = self.problem.tenant_names
        return tuple(
            (Retraining(names.index(item.tenant), 1, item.placement.profile.name, 0, item.end_step), item.placement)
            for item in self.state.retrainings
        )

    @cached_property
    def choices(self) -> tuple[tuple[Retraining | None, ...], ...]:
        """By tenant, what it may retrain in this window, started at step 0; ``None`` stands for not at all.

        Empty for a tenant that must retrain but for which nothing ends within the window.
        """
        busy = {retraining.tenant for retraining, _ in self.running}
        return tuple(self._choices(index, index in busy) for index in range(len(self.problem.tenants)))

    def _choices(self, index: int, is_running: bool) -> tuple[Retraining | None, ...]:
        tenant = self.problem.tenants[index]
        if is_running or not tenant.options:
            return (None,)
        found = [
            Retraining(index, level, name, 0, self.problem.occupied_steps(tenant, option, name))
            for level, option in enumerate(tenant.options, start=1)
            for name in self.problem.profile_names
            if name in option.time_s
        ]
        in_time = [retraining for retraining in found if retraining.end_step <= self.n_steps]
        return (*in_time,) if tenant.must_retrain else (None, *in_time)

    @cached_property
    def earned_by_level(self) -> tuple[FloatArray, ...]:
        """By tenant, what each column earns in the steps before s, ``(n_levels, n_steps + 1, n_columns)``."""
        return tuple(
            np.concatenate([np.zeros_like(table.steady[:, :1]), np.cumsum(table.steady, axis=1)], axis=1)
            for table in self.gains
        )

    def earned(self, schedule: Schedule) -> FloatArray:
        """What each column earns before each step under the schedule, ``(n_tenants, n_steps + 1, n_columns)``."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, by_level in enumerate(self.earned_by_level):
            out[tenant, :, : by_level.shape[2]] = by_level[0]
        for retraining in (*schedule, *(retraining for retraining, _ in self.running)):
            by_level, end = self.earned_by_level[retraining.tenant], retraining.end_step
            tail = by_level[0, end] + (by_level[retraining.level, end:] - by_level[retraining.level, end])
            out[retraining.tenant, end:, : by_level.shape[2]] = tail
        return out

    def earned_at_levels(self, levels: Sequence[int | None]) -> FloatArray:
        """The same when every tenant keeps one level throughout; ``None`` takes the best that can be by then."""
        most = max(len(table.multisets) for table in self.gains)
        out = np.zeros((len(self.gains), self.n_steps + 1, most))
        for tenant, (level, by_level) in enumerate(zip(levels, self.earned_by_level, strict=True)):
            own = self._best_earned(tenant) if level is None else by_level[level]
            out[tenant, :, : own.shape[1]] = own
        return out

    def _best_earned(self, tenant: int) -> FloatArray:
        steady = self.gains[tenant].steady
        best = steady[0].copy()
        for retraining in (*self.choices[tenant], *(retraining for retraining, _ in self.running)):
            if retraining is not None and retraining.tenant == tenant:
                end = retraining.end_step
                best[end:] = np.maximum(best[end:], steady[retraining.level, end:])
        return np.concatenate([np.zeros_like(best[:1]), np.cumsum(best, axis=0)])

    def placements(self, retraining: Retraining) -> tuple[Placement, ...]:
        """Where the retraining's instance may sit."""
        return self.problem.gpu.placements([retraining.profile])

    def placed(self, schedule: Schedule) -> tuple[tuple[Placement, ...], ...]:
        """Every way to place the schedule's retrainings so that no two that overlap in time exclude each other."""
        found: list[tuple[Placement, ...]] = [()]
        for number, retraining in enumerate(schedule):
            found = [
                (*places, place)
                for places in found
                for place in self.placements(retraining)
                if self._can_join(schedule[:number], places, retraining, place)
            ]
        return tuple(found)

    def can_stand(self, schedule: Schedule, places: Sequence[Placement]) -> bool:
        """Whether the schedule at these places, and the retrainings in progress, leave each other alone."""
        pairs = enumerate(zip(schedule, places, strict=True))
        return all(self._can_join(schedule[:n], places[:n], retraining, place) for n, (retraining, place) in pairs)

    def _can_join(
        self, others: Schedule, places: Sequence[Placement], retraining: Retraining, placement: Placement
    ) -> bool:
        """Whether the retraining leaves those that are placed, and those in progress, alone."""
        spans = [*zip(others, places, strict=True), *self.running]
        beside = [
            (other, place)
            for other, place in spans
            if other.start_step < retraining.end_step and retraining.start_step < other.end_step
        ]
        steps = {max(retraining.start_step, other.start_step) for other, _ in beside}
        return all(
            self.problem.gpu.fits(
                [placement, *(place for other, place in beside if other.start_step <= step < other.end_step)]
            )
            for step in steps
        )


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
