"""One pure function from a Problem to a Plan, whichever engine answers.

An engine is imported when it is first used. Nothing heavy is imported before, because ``planner/__init__``
and code that only needs the engines' names import this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from executor.compiled import loading_s
from executor.names import spelled_as
from planner.budget import Budget, EngineOptions
from planner.errors import EngineError

if TYPE_CHECKING:  # planner.problem imports numpy, which ``import planner`` must not
    from planner.plan import MigPlan
    from planner.problem import Problem

Engine: TypeAlias = "Callable[..., MigPlan]"
"""Takes a problem, a budget, a plan to start from or ``None``, and by name the options that its entry lists."""

PAPER, PHYSICAL = "paper", "physical"
"""The values of ``planner.problem.Reconfiguration``."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An engine by name and model; functions of ``planner.engines`` by module and name, which :func:`_loaded` imports.

    Attributes:
        name: What people call it.
        model: The problems that it answers.
        solve: The :data:`Engine`.
        misfit: Says why it cannot start from a plan; ``None`` for an engine that starts from none.
        takes: The fields of ``EngineOptions`` that mean something to it.
        takes_gains: Whether it solves problems with gain tables of their own, into which floors of in-time answers
            are put.
        size_note: Says what to know of a problem's size; ``None`` where it solves any.
    """

    name: str
    model: str
    solve: str
    misfit: str | None = None
    takes: tuple[str, ...] = ()
    takes_gains: bool = True
    size_note: str | None = None


_ENGINES = (
    _Entry("exact", PAPER, "paper.exact.solve_exact", "paper.plan.misfit"),
    _Entry(
        "paper-ilp",
        PAPER,
        "milp.paper_ilp.solve_paper_ilp",
        "paper.plan.misfit",
        takes=("solver", "configs"),
        takes_gains=False,
        size_note="milp.paper_ilp.size_note",
    ),
    _Entry("greedy", PAPER, "paper.static.solve_greedy", "paper.plan.misfit"),
    _Entry("static", PAPER, "paper.static.solve_static"),
    _Entry("physical", PHYSICAL, "physical.physical.solve_physical", "physical.physical.misfit"),
    _Entry("greedy", PHYSICAL, "physical.static.solve_greedy"),
    _Entry("static", PHYSICAL, "physical.static.solve_static"),
)


_LENT = "lent.solve_lent"
"""Where the layout is given, loans are all that is left to plan: the same for every engine, and from no start."""


def _loaded(path: str) -> Callable[..., Any]:
    """The function of ``planner.engines`` by that path; its module, and what is heavy in that, are imported now."""
    module, _, name = path.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"planner.engines.{module}"), name)
    return found


def engine_names(model: str | None = None) -> tuple[str, ...]:
    """The engines that answer problems of ``model``, the default one first; all of them without a model."""
    return tuple(dict.fromkeys(entry.name for entry in _ENGINES if model in (None, entry.model)))


def default_engine(model: str) -> str:
    """The engine that :func:`solve` takes when none is named."""
    return engine_names(model)[0]


def solve(
    problem: Problem,
    engine: str | None = None,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
    *,
    options: EngineOptions | None = None,
    floor_costs_at_most: float | None = None,
) -> MigPlan:
    """A plan for ``problem``, or the status that says why there is none.

    What it takes to import the engine and to load or compile its loops is the plan's ``load_s``. It counts neither into
    ``solve_s`` nor against a limit of seconds.

    Args:
        problem: What to plan.
        engine: One of :func:`engine_names`; the model's default if ``None``.
        budget: What may be spent; no limits if ``None``.
        initial: A plan of an earlier solve of a like problem, to start from; never required.
        options: What only some engines know, such as a solver; an engine refuses what it does not take.
        floor_costs_at_most: What floors of in-time answers may cost: hundredths of the requests that arrive. Of the
            plans that cost no more the one that lacks fewest is returned, and its ``missed`` says what it lacks. With
            ``None`` a plan that misses a floor is none, whatever that costs.

    Raises:
        EngineError: Unknown engine, one of the other model, an option that it does not take, or a
            solver that is missing or failed.
    """
    chosen, entry = options or EngineOptions(), _entry(problem.reconfiguration, engine)
    foreign = [name for name in chosen.given if name not in entry.takes]
    if foreign:
        takes = ", ".join(entry.takes) or "no options"
        raise EngineError(f"engine {entry.name!r} does not take {', '.join(foreign)}; it takes {takes}")
    budget, begun_s, begun_loading_s = budget or Budget(), time.perf_counter(), loading_s()
    engine_of: Engine = partial(_loaded(_LENT if problem.layout else entry.solve), **chosen.given)
    imported_s = time.perf_counter() - begun_s
    if problem.has_floors:
        from planner.floors import solve_with_floors  # noqa: PLC0415 (numpy is heavy)

        cost = floor_costs_at_most
        told = partial(solve_with_floors, name=entry.name, takes_gains=entry.takes_gains, costs_at_most=cost)
        engine_of = partial(told, engine=engine_of)
    plan = engine_of(problem, budget=budget, initial=initial)
    return replace(plan, load_s=imported_s + loading_s() - begun_loading_s)


def size_note(problem: Problem, engine: str | None, options: EngineOptions | None) -> str | None:
    """What to know of the problem's size before the engine begins, in words; ``None`` where it solves any size.

    Raises:
        EngineError: Unknown engine, one of the other model, or an option that it does not take.
    """
    entry = _entry(problem.reconfiguration, engine)
    if entry.size_note is None:
        return None
    note: str = _loaded(entry.size_note)(problem, **(options or EngineOptions()).given)
    return note


def start_misfit(problem: Problem, plan: MigPlan, engine: str | None = None) -> str | None:
    """Why :func:`solve` with ``plan`` as ``initial`` would not start from it, in words; ``None`` if it would.

    Raises:
        EngineError: Unknown engine, or one of the other model.
    """
    entry = _entry(problem.reconfiguration, engine)
    if problem.layout:
        return "the problem sets the layout: loans beside it are planned from no start"
    if entry.misfit is None:
        return f"engine {entry.name!r} starts from no plan"
    if not plan.status.has_plan:
        return f"its status is {plan.status}: there is no plan in it"
    why: str | None = _loaded(entry.misfit)(problem, plan)
    return why


def _entry(model: str, engine: str | None) -> _Entry:
    name = default_engine(model) if engine is None else spelled_as(engine, engine_names())
    if name not in engine_names():
        raise EngineError(f"unknown engine {name!r}; known: {', '.join(engine_names())}")
    if name not in engine_names(model):
        other = next(entry.model for entry in _ENGINES if entry.name == name)
        raise EngineError(
            f"engine {name!r} answers {other} problems; this one is {model}, for {', '.join(engine_names(model))}"
        )
    return next(entry for entry in _ENGINES if (entry.name, entry.model) == (name, model))
