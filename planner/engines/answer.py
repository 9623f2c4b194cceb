"""What engines answer: a plan, or why there is none; and a bound that takes milliseconds."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from planner.counts import joint_states, tenant_multisets
from planner.engines.schedule import TenantDecision, schedules_of
from planner.errors import EngineError
from planner.plan import MigPlan, Status, status_of
from planner.problem import FloatArray, GainTable, PhysicalState, Problem, Reconfiguration

Candidate = tuple[float, tuple[TenantDecision, ...]]
"""A value in requests and the decisions that earn it."""


def best_candidate(found: Sequence[Candidate]) -> Candidate | None:
    """The candidate of the highest value, the first of equals."""
    return max(found, key=lambda candidate: candidate[0], default=None)


def require_paper(problem: Problem, engine: str) -> None:
    """Nothing, unless the problem is of another model.

    Raises:
        EngineError: The problem is not ``paper``.
    """
    if problem.reconfiguration is not Reconfiguration.PAPER:
        raise EngineError(f"engine {engine!r} answers paper problems; this one is {problem.reconfiguration}")


def with_plan(
    problem: Problem,
    best: Candidate,
    bound: float,
    engine: str,
    started_s: float,
    work: tuple[tuple[str, int], ...] = (),
) -> MigPlan:
    """The decisions as a plan with its certificate; ``started_s`` is on ``time.perf_counter``."""
    value, decisions = best
    return MigPlan(
        status=status_of(value, bound),
        objective=value,
        bound=bound,
        solve_s=time.perf_counter() - started_s,
        engine=engine,
        reconfiguration=Reconfiguration.PAPER,
        n_steps=problem.n_steps,
        schedules=schedules_of(problem, decisions),
        work=work,
    )


def without_plan(
    problem: Problem, status: Status, engine: str, started_s: float, bound: float | None = None
) -> MigPlan:
    """The answer when there is no plan, or none was found."""
    return MigPlan(
        status=status,
        objective=None,
        bound=bound,
        solve_s=time.perf_counter() - started_s,
        engine=engine,
        reconfiguration=problem.reconfiguration,
        n_steps=problem.n_steps,
    )


def relaxed_bound(problem: Problem, tables: Sequence[GainTable]) -> float:
    """The sum over steps of the most that any layout could earn there; no plan is better.

    Changes cost nothing, retrainings hold nothing, and every tenant has in each step the best level
    that it could have by then. −inf where no layout serves every tenant.
    """
    states = joint_states(problem)
    if not len(states):
        return -np.inf
    total = np.zeros((problem.n_steps, len(states)))
    for m, tenant in enumerate(problem.tenants):
        columns = [tables[m].column[multiset] for multiset in tenant_multisets(problem, tenant)]
        total += _best_levels(problem, m, tables[m])[:, columns][:, states[:, m]]
    return float(total.max(axis=1).sum())


def _best_levels(problem: Problem, m: int, table: GainTable) -> FloatArray:
    """What each column earns at the best level possible by each step, ``(n_steps, n_columns)``."""
    best: FloatArray = table.steady[0].copy()
    for level, end_step in enumerate(_first_ends(problem, m), start=1):
        best[end_step:] = np.maximum(best[end_step:], table.steady[level, end_step:])
    return best


def _first_ends(problem: Problem, m: int) -> list[int]:
    """By option of tenant m, the first step that can have its accuracy; n_steps if none can."""
    tenant, state = problem.tenants[m], problem.initial
    running = state.retrainings if isinstance(state, PhysicalState) else ()
    own_end = next((item.end_step for item in running if item.tenant == tenant.name), None)
    if own_end is not None:
        return [own_end, *[problem.n_steps] * (len(tenant.options) - 1)]
    shortest = [min(problem.occupied_steps(tenant, o, name) for name in o.time_s) for o in tenant.options]
    return [min(n_steps, problem.n_steps) for n_steps in shortest]
