"""What each tenant's part of a plan is worth, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import numpy as np

from planner.gains import gain_tables
from planner.plan import MigPlan
from planner.problem import FloatArray, GainTable, Problem, Reconfiguration, TenantTerms


def goodput_by_step(problem: Problem, plan: MigPlan) -> FloatArray:
    """The goodput in requests (weight and accuracy included) that the plan promises; its sum is the objective.

    ``plan`` has to be one with something to execute (``plan.status.has_plan``).

    Shapes: ``(n_tenants, n_steps)``.
    """
    tables = gain_tables(problem)
    rows = [
        _tenant_goodput(problem, plan, tenant, table) for tenant, table in zip(problem.tenants, tables, strict=True)
    ]
    return np.array(rows, dtype=np.float64).reshape(len(problem.tenants), problem.n_steps)


def _tenant_goodput(problem: Problem, plan: MigPlan, tenant: TenantTerms, table: GainTable) -> list[float]:
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            return list(_paper(problem, plan, tenant, table))
        case Reconfiguration.PHYSICAL:
            return list(_physical(problem, plan, tenant, table))
        case _:
            assert_never(problem.reconfiguration)


def _paper(problem: Problem, plan: MigPlan, tenant: TenantTerms, table: GainTable) -> Iterator[float]:
    assert table.changed is not None  # gain_tables gives every paper problem both
    schedule = next(item for item in plan.schedules if item.name == tenant.name)
    held = [span.profiles for span in schedule.inference for _ in range(span.from_step, span.to_step)]
    state, retraining = problem.paper_initial, schedule.retraining
    before = held[0] if state is None else state.held.get(tenant.name, ())
    for step, now in enumerate(held):
        level = 0 if retraining is None or step < retraining.end_step else _level(tenant, retraining.option)
        rows = table.steady if sorted(now) == sorted(before) else table.changed
        yield float(rows[level, step, _column(problem, table, now)])
        before = now


def _physical(problem: Problem, plan: MigPlan, tenant: TenantTerms, table: GainTable) -> Iterator[float]:
    own = [item for item in plan.lifetimes if item.owner.tenant == tenant.name]
    for step in range(problem.n_steps):
        ended = (item for item in own if not item.is_inference and item.end_step <= step)
        level = max((_level(tenant, item.option) for item in ended), default=0)
        serving = (item for item in own if item.is_inference and item.serve_step <= step < item.end_step)
        names = tuple(item.placement.profile.name for item in serving)
        yield float(table.steady[level, step, _column(problem, table, names)])


def _level(tenant: TenantTerms, option: str | None) -> int:
    """The level that an option leads to; a retraining without one was in progress, always on the first."""
    return 1 if option is None else 1 + [item.name for item in tenant.options].index(option)


def _column(problem: Problem, table: GainTable, names: tuple[str, ...]) -> int:
    return table.column[tuple(names.count(name) for name in problem.profile_names)]
