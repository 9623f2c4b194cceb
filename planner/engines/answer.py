"""What engines refuse, and a bound that takes milliseconds."""

from __future__ import annotations

import numpy as np

from planner.counts import codes_fit, codes_of_states, joint_states, tenant_multisets
from planner.engines.schedule import WindowFacts
from planner.errors import EngineError
from planner.problem import Problem, Reconfiguration


def require_model(problem: Problem, model: Reconfiguration, engine: str) -> None:
    """Refuse a problem of another model than the engine's.

    Raises:
        EngineError: The problem is of another model.
    """
    if problem.reconfiguration is not model:
        raise EngineError(f"engine {engine!r} answers {model} problems; this one is {problem.reconfiguration}")


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
