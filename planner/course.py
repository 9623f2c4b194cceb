"""What a plan means for each tenant, step by step: what it holds, what serves, and what that is expected to earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.counts import BoolArray, IntArray, multiset_of
from planner.gains import gain_tables
from planner.levels import changes_by, levels_of, lowered, shares_of, swap_shares
from planner.plan import Lifetime, MigPlan
from planner.problem import FloatArray, GainTable, Problem, Reconfiguration, TenantTerms
from planner.verify.holdings import lifetimes_of


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
    retraining: Lifetime | None
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

    def earned(self, gains: FloatArray, steps: slice) -> FloatArray:
        """What each column of a gain table earns at the plan's levels: ``(n_levels, n_steps, n) → (n_of_steps, n)``."""
        at = np.arange(len(self.level))[steps]
        return lowered(gains[self.level[at], at], self.swap_share[at, None])


def courses(problem: Problem, plan: MigPlan) -> tuple[Course, ...]:
    """One course a tenant, in the problem's order; their goodput adds up to the plan's objective.

    The plan must be one that answers ``problem`` and keeps its rules.
    """
    lifetimes, tables = tuple(lifetimes_of(problem, plan)), gain_tables(problem)
    return tuple(
        _course(problem, tenant, table, [item for item in lifetimes if item.owner.tenant == tenant.name])
        for tenant, table in zip(problem.tenants, tables, strict=True)
    )


def column_of(problem: Problem, table: GainTable, counts: IntArray) -> IntArray:
    """The table's column of each row of counts over ``problem.profile_names``: ``(n, n_profiles) → (n,)``."""
    width = len(problem.profile_names)
    distinct, inverse = np.unique(counts.reshape(-1, width), axis=0, return_inverse=True)
    columns = [table.column[tuple(map(int, row))] for row in distinct]
    return np.array(columns, dtype=np.int64)[inverse.reshape(-1)]


def _course(problem: Problem, tenant: TenantTerms, table: GainTable, own: Sequence[Lifetime]) -> Course:
    held = np.zeros((problem.n_steps, len(problem.profile_names)), dtype=np.int64)
    serving, retraining = np.zeros_like(held), None
    for item in own:
        if item.is_inference:
            profile = problem.profile_names.index(item.placement.profile.name)
            held[item.create_step : item.end_step, profile] += 1
            serving[item.serve_step : item.end_step, profile] += 1
        else:
            retraining = item
    changes = () if retraining is None else changes_by(problem, tenant, retraining)
    level = levels_of(changes, problem.n_steps)
    swap_share = shares_of(changes, swap_shares(problem, tenant), problem.n_steps)
    has_changed, steps = _changes(problem, tenant, held), np.arange(problem.n_steps)
    column = column_of(problem, table, serving)

    def of_step(settled: FloatArray, changed: FloatArray | None, *at: IntArray) -> FloatArray:
        return settled[at] if changed is None else np.where(has_changed, changed[at], settled[at])

    return Course(
        tenant=tenant,
        retraining=retraining,
        held=held,
        serving=serving,
        has_changed=has_changed,
        level=level,
        swap_share=swap_share,
        capability_rps=_capability(problem, tenant, serving, has_changed),
        goodput=lowered(of_step(table.steady, table.changed, level, steps, column), swap_share),
        in_time=None if table.in_time is None else of_step(table.in_time, table.in_time_changed, steps, column),
    )


def _changes(problem: Problem, tenant: TenantTerms, held: IntArray) -> BoolArray:
    if problem.reconfiguration is not Reconfiguration.PAPER:
        return np.zeros(problem.n_steps, dtype=np.bool_)
    state = problem.paper_initial
    before = held[0] if state is None else np.array(multiset_of(problem, state.held.get(tenant.name, ())))
    return np.asarray(np.any(np.diff(held, axis=0, prepend=before[None, :]) != 0, axis=1), dtype=np.bool_)


def _capability(problem: Problem, tenant: TenantTerms, serving: IntArray, has_changed: BoolArray) -> FloatArray:
    lost = tenant.overhead_s / problem.step_s / np.maximum(1, serving.sum(axis=1))
    capability: FloatArray = serving @ problem.rates_rps(tenant)
    return np.where(has_changed, np.maximum(0.0, 1.0 - lost), 1.0) * capability
