"""What engines answer: a plan, or why there is none; and a bound that takes milliseconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.compiled import working_s
from planner.counts import codes_fit, codes_of_states, joint_states, tenant_multisets
from planner.engines.schedule import WindowFacts
from planner.errors import EngineError
from planner.plan import Infeasibility, Lifetime, MigPlan, Status, TenantSchedule, salvage_of, status_of
from planner.problem import Problem, Reconfiguration


def require_model(problem: Problem, model: Reconfiguration, engine: str) -> None:
    """Refuse a problem of another model than the engine's.

    Raises:
        EngineError: The problem is of another model.
    """
    if problem.reconfiguration is not model:
        raise EngineError(f"engine {engine!r} answers {model} problems; this one is {problem.reconfiguration}")


def with_plan(
    problem: Problem,
    value: float,
    bound: float,
    engine: str,
    started_s: float,
    *,
    schedules: tuple[TenantSchedule, ...] = (),
    lifetimes: tuple[Lifetime, ...] = (),
    next_epoch_step: int = 0,
    work: tuple[tuple[str, int], ...] = (),
) -> MigPlan:
    """A plan worth ``value``, where no plan is worth more than ``bound``.

    ``started_s`` is on ``executor.compiled.working_s``. Plans of ``paper`` have schedules, of ``physical`` lifetimes.
    """
    return replace(
        without_plan(problem, status_of(value, bound), engine, started_s, bound),
        objective=value,
        schedules=schedules,
        lifetimes=lifetimes,
        next_epoch_step=next_epoch_step,
        work=work,
        salvage=salvage_of(problem, schedules, lifetimes),
    )


def without_plan(
    problem: Problem,
    status: Status,
    engine: str,
    started_s: float,
    bound: float | None = None,
    infeasibility: Infeasibility | None = None,
) -> MigPlan:
    """The answer when there is no plan, or none was found."""
    return MigPlan(
        status=status,
        objective=None,
        bound=bound,
        solve_s=working_s() - started_s,
        engine=engine,
        reconfiguration=problem.reconfiguration,
        n_steps=problem.n_steps,
        infeasibility=infeasibility,
    )


def relaxed_bound(facts: WindowFacts) -> float:
    """The sum over steps of the most that any layout could earn there; no plan is better.

    Changes cost nothing, retrainings hold nothing, and every tenant has in each step the best level
    that it could have by then, and at the end the one that is worth most beyond the window. −inf where no layout
    serves every tenant.
    """
    problem, states = facts.problem, joint_states(facts.problem)
    gpu, names, codes = problem.gpu, problem.profile_names, codes_of_states(problem, states)
    if not len(states):
        return -np.inf
    total = np.zeros((problem.n_steps, len(states)))
    for m, tenant in enumerate(problem.tenants):
        columns = [facts.gains[m].column[multiset] for multiset in tenant_multisets(problem, tenant)]
        total += facts.best_steady(m)[:, columns][:, states[:, m]]
    for begin, end, mask in problem.unavailable_spans if problem.unavailable else ():
        total[begin:end, ~codes_fit(gpu, names, codes, mask)] = -np.inf
    return float(total.max(axis=1).sum()) + facts.most_salvage
