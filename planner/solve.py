"""One pure function from a Problem to a Plan, whoever solves it.

Engines are imported when they are first used, and nothing heavy before: ``planner/__init__``
imports this module, and so does whoever only asks for the engines' names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from planner.budget import Budget
from planner.errors import EngineError

if TYPE_CHECKING:  # planner.problem imports numpy, which ``import planner`` must not
    from planner.plan import MigPlan
    from planner.problem import Problem

Engine: TypeAlias = "Callable[[Problem, Budget, MigPlan | None], MigPlan]"
"""Anything that answers a problem within a budget, perhaps starting from an earlier plan."""


PAPER, PHYSICAL = "paper", "physical"
"""The values of ``planner.problem.Reconfiguration``."""


@dataclass(frozen=True, slots=True)
class _Entry:
    model: str
    load: Callable[[], Engine]


def _milp(solver: str) -> Engine:
    from planner.engines.milp import solve_milp  # noqa: PLC0415 (PuLP and HiGHS are heavy)

    return partial(solve_milp, solver=solver)


def _greedy() -> Engine:
    from planner.engines.greedy import solve_greedy  # noqa: PLC0415 (numpy is heavy)

    return solve_greedy


def _physical() -> Engine:
    from planner.engines.physical import solve_physical  # noqa: PLC0415 (numba is heavy)

    return solve_physical


_ENGINES = {
    "milp": _Entry(PAPER, partial(_milp, "highs")),
    "milp-cbc": _Entry(PAPER, partial(_milp, "cbc")),
    "greedy": _Entry(PAPER, _greedy),
    "physical": _Entry(PHYSICAL, _physical),
}


def engine_names(model: str | None = None) -> tuple[str, ...]:
    """The engines that answer problems of ``model``, the default one first; all of them without a model."""
    return tuple(name for name, entry in _ENGINES.items() if model in (None, entry.model))


def default_engine(model: str) -> str:
    """The engine that :func:`solve` takes when none is named."""
    return engine_names(model)[0]


def solve(
    problem: Problem,
    engine: str | None = None,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
) -> MigPlan:
    """A plan for ``problem``, or the status that says why there is none.

    Args:
        problem: What to plan.
        engine: One of :func:`engine_names`; the model's default if ``None``.
        budget: What may be spent; no limits if ``None``.
        initial: A plan of an earlier solve of a like problem, to start from; never required.

    Raises:
        EngineError: Unknown engine, one of the other model, or a solver that is missing or failed.
    """
    name = default_engine(problem.reconfiguration) if engine is None else engine
    entry = _ENGINES.get(name)
    if entry is None:
        raise EngineError(f"unknown engine {name!r}; known: {', '.join(engine_names())}")
    if entry.model != problem.reconfiguration:
        allowed = ", ".join(engine_names(problem.reconfiguration))
        raise EngineError(
            f"engine {name!r} answers {entry.model} problems; this one is {problem.reconfiguration}, for {allowed}"
        )
    return entry.load()(problem, budget or Budget(), initial)
