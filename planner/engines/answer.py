"""What every engine does before it begins, and a bound that takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from executor.compiled import working_s
from planner.budget import Budget
from planner.counts import codes_fit, codes_of_states, joint_states, tenant_multisets
from planner.engines.schedule import WindowFacts
from planner.errors import EngineError
from planner.feasibility import infeasibility
from planner.plan import MigPlan, Status, without_plan
from planner.problem import Problem, Reconfiguration


@dataclass(frozen=True)
class Engine:
    """An engine, called with a problem, a budget and a plan of an earlier solve.

    Attributes:
        model: Whose problems it answers.
        name: What it is called.
        find: Answers a problem that counts do not show to be infeasible; from its facts, the budget, the earlier plan,
            and when the solve began on ``executor.compiled.working_s``.
    """

    model: Reconfiguration
    name: str
    find: Callable[[WindowFacts, Budget, MigPlan | None, float], MigPlan]

    def __call__(self, problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
        """The plan found, or why there is none.

        Raises:
            EngineError: The problem is of another model.
        """
        started_s = working_s()
        require_model(problem, self.model, self.name)
        reason = infeasibility(problem)
        if reason is not None:
            return without_plan(problem, Status.INFEASIBLE, self.name, started_s, infeasibility=reason)
        return self.find(WindowFacts.of(problem), budget or Budget(), initial, started_s)


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
        total += facts.best_steady(m)[:, columns][:, states[:, problem.holder_of[m]]]
    for begin, end, mask in problem.unavailable_spans if problem.unavailable else ():
        total[begin:end, ~codes_fit(gpu, names, codes, mask)] = -np.inf
    return float(total.max(axis=1).sum()) + facts.most_salvage
