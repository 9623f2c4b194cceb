"""What a plan means for each tenant, step by step: what it holds, what serves, and what that is expected to earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from planner.counts import BoolArray, IntArray, multiset_of
from planner.gains import gain_tables
from planner.levels import LevelChange, level_changes, levels_of, lowered, running_changes, shares_of, swap_shares
from planner.plan import Lifetime, MigPlan, TenantSchedule
from planner.problem import FloatArray, GainTable, Problem, Reconfiguration, RetrainingOption, TenantTerms


@dataclass(frozen=True, slots=True)
class RetrainingCourse:
    """One retraining of a plan.

    Attributes:
        option: What runs.
        where: Its profile (``paper``) or placement (``physical``).
        from_step: First step in which it holds that.
        train_step: First step in which it trains; later than ``from_step`` where a start-up comes first.
        to_step: First step with the new accuracy.
        profile: The profile of ``where``.
        is_continued: Whether it was in progress when the window opened.
    """

    option: RetrainingOption
    where: str
    from_step: int
    train_step: int
    to_step: int
    profile: str
    is_continued: bool = False


@dataclass(frozen=True, eq=False)
class Course:
    """One tenant's window under a plan.

    Attributes:
        tenant: The tenant.
        retraining: Its retraining; ``None`` if it has none in the window.
        held: Instances that inference holds, ``(n_steps, n_profiles)``, by ``Problem.profile_names``.
        serving: Those of them that serve, ``(n_steps, n_profiles)``; fewer while some warm up.
        has_changed: ``paper``: whether the step pays for a change of what is held, ``(n_steps,)``.
        level: That of ``TenantTerms.accuracies``: 0 until a checkpoint is served or the retraining has ended,
            ``(n_steps,)``.
        swap_share: What taking new weights over leaves of each step's gains, ``(n_steps,)``.
        capability_rps: Requests a second that what serves can answer in time, ``(n_steps,)``; in a step
            that pays for a change, what that leaves, at least 0.
        goodput: Expected goodput in requests, weight included, ``(n_steps,)``.
        in_time: Requests that are expected to be answered in time, ``(n_steps,)``; ``None`` where the problem's
            gain tables do not say.
    """

    tenant: TenantTerms
    retraining: RetrainingCourse | None
    held: IntArray
    serving: IntArray
    has_changed: BoolArray
    level: IntArray
    swap_share: FloatArray
    capability_rps: FloatArray
    goodput: FloatArray
    in_time: FloatArray | None = None

    def share(self, step_s: float) -> float | None:
        """Expected goodput over what it would be if every answer were in time and right; ``None`` without arrivals."""
        most = self.tenant.weight * float(self.tenant.arrivals_rps.sum()) * step_s
        return float(self.goodput.sum()) / most if most > 0 else None


def courses(problem: Problem, plan: MigPlan) -> tuple[Course, ...]:
    """One course a tenant, in the problem's order; their goodput adds up to the plan's objective.

    The plan must be one that answers ``problem`` and keeps its rules.
    """
    tables = gain_tables(problem)
    return tuple(_course(problem, plan, m, table) for m, table in enumerate(tables))


def column_of(problem: Problem, table: GainTable, counts: IntArray) -> IntArray:
    """The table's column of each row of counts over ``problem.profile_names``: ``(n, n_profiles) → (n,)``."""
    width = len(problem.profile_names)
    distinct, inverse = np.unique(counts.reshape(-1, width), axis=0, return_inverse=True)
    columns = [table.column[tuple(map(int, row))] for row in distinct]
    return np.array(columns, dtype=np.int64)[inverse.reshape(-1)]


def _course(problem: Problem, plan: MigPlan, m: int, table: GainTable) -> Course:
    tenant = problem.tenants[m]
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            held, retraining = _paper(problem, tenant, plan.schedules[m])
            serving = held
        case Reconfiguration.PHYSICAL:
            own = [item for item in plan.lifetimes if item.owner.tenant == tenant.name]
            held, serving, retraining = _physical(problem, tenant, own)
        case _:
            assert_never(problem.reconfiguration)
    has_changed = _changes(problem, tenant, held)
    changes = () if retraining is None else _level_changes(problem, tenant, retraining)
    level = levels_of(changes, problem.n_steps)
    swap_share = shares_of(changes, swap_shares(problem, tenant), problem.n_steps)
    return Course(
        tenant=tenant,
        retraining=retraining,
        held=held,
        serving=serving,
        has_changed=has_changed,
        level=level,
        swap_share=swap_share,
        capability_rps=_capability(problem, tenant, serving, has_changed),
        goodput=lowered(_goodput(problem, table, serving, has_changed, level), swap_share),
        in_time=_in_time(problem, table, serving, has_changed),
    )


def _paper(problem: Problem, tenant: TenantTerms, schedule: TenantSchedule) -> tuple[IntArray, RetrainingCourse | None]:
    held = np.zeros((problem.n_steps, len(problem.profile_names)), dtype=np.int64)
    for span in schedule.inference:
        held[span.from_step : span.to_step] = multiset_of(problem, span.profiles)
    run = schedule.retraining
    if run is None:
        return held, None
    option = next(option for option in tenant.options if option.name == run.option)
    return held, RetrainingCourse(option, run.profile, run.start_step, run.start_step, run.end_step, run.profile)


def _physical(
    problem: Problem, tenant: TenantTerms, own: Sequence[Lifetime]
) -> tuple[IntArray, IntArray, RetrainingCourse | None]:
    held = np.zeros((problem.n_steps, len(problem.profile_names)), dtype=np.int64)
    serving, retraining = np.zeros_like(held), None
    for item in own:
        if item.is_inference:
            profile = problem.profile_names.index(item.placement.profile.name)
            held[item.create_step : item.end_step, profile] += 1
            serving[item.serve_step : item.end_step, profile] += 1
        else:
            # Without an option's name it was in progress when the window opened: always the first option.
            option = next((o for o in tenant.options if o.name == item.option), tenant.options[0])
            steps = (item.create_step, item.serve_step, item.end_step)
            name = item.placement.profile.name
            retraining = RetrainingCourse(option, str(item.placement), *steps, name, item.option is None)
    return held, serving, retraining


def _level_changes(problem: Problem, tenant: TenantTerms, run: RetrainingCourse) -> tuple[LevelChange, ...]:
    if run.is_continued:
        return running_changes(problem, tenant, run.profile, run.to_step)
    own = level_changes(problem, tenant, 1 + tenant.options.index(run.option), run.profile)
    return tuple((run.from_step + step, level) for step, level in own)


def _changes(problem: Problem, tenant: TenantTerms, held: IntArray) -> BoolArray:
    if problem.reconfiguration is not Reconfiguration.PAPER:
        return np.zeros(problem.n_steps, dtype=np.bool_)
    state = problem.paper_initial
    before = held[0] if state is None else np.array(multiset_of(problem, state.held.get(tenant.name, ())))
    return np.asarray(np.any(np.diff(held, axis=0, prepend=before[None, :]) != 0, axis=1), dtype=np.bool_)


def _capability(problem: Problem, tenant: TenantTerms, serving: IntArray, has_changed: BoolArray) -> FloatArray:
    rates = np.array([tenant.capability_rps.get(name, 0.0) for name in problem.profile_names])
    lost = tenant.overhead_s / problem.step_s / np.maximum(1, serving.sum(axis=1))
    capability: FloatArray = serving @ rates
    return np.where(has_changed, np.maximum(0.0, 1.0 - lost), 1.0) * capability


def _goodput(
    problem: Problem, table: GainTable, serving: IntArray, has_changed: BoolArray, level: IntArray
) -> FloatArray:
    at = (level, np.arange(problem.n_steps), column_of(problem, table, serving))
    steady = table.steady[at]
    return steady if table.changed is None else np.where(has_changed, table.changed[at], steady)


def _in_time(problem: Problem, table: GainTable, serving: IntArray, has_changed: BoolArray) -> FloatArray | None:
    if table.in_time is None:
        return None
    at = (np.arange(problem.n_steps), column_of(problem, table, serving))
    settled = table.in_time[at]
    return settled if table.in_time_changed is None else np.where(has_changed, table.in_time_changed[at], settled)
