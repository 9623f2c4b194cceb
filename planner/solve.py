"""One pure function from a Problem to a Plan, whichever engine answers.

An engine is imported when it is first used. Nothing heavy is imported before, because ``planner/__init__``
and code that only needs the engines' names import this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

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
    """An engine by name and model.

    ``takes`` names the fields of ``EngineOptions`` that mean something to it; ``misfit`` says why it cannot start
    from a plan, and is ``None`` for an engine that starts from none. ``takes_gains`` says whether it solves problems
    with gain tables of their own, into which floors of in-time answers are put.
    """

    name: str
    model: str
    load: Callable[[], Engine]
    takes: tuple[str, ...] = ()
    misfit: Callable[[Problem, MigPlan], str | None] | None = None
    takes_gains: bool = True


def _exact() -> Engine:
    from planner.engines.paper.exact import solve_exact  # noqa: PLC0415 (numba is heavy)

    return solve_exact


def _paper_ilp() -> Engine:
    from planner.engines.milp.paper_ilp import solve_paper_ilp  # noqa: PLC0415 (PuLP and HiGHS are heavy)

    return solve_paper_ilp


def _paper_greedy() -> Engine:
    from planner.engines.paper.static import solve_greedy  # noqa: PLC0415 (numpy is heavy)

    return solve_greedy


def _physical_greedy() -> Engine:
    from planner.engines.physical.static import solve_greedy  # noqa: PLC0415 (numba is heavy)

    return solve_greedy


def _paper_static() -> Engine:
    from planner.engines.paper.static import solve_static  # noqa: PLC0415 (numpy is heavy)

    return solve_static


def _physical_static() -> Engine:
    from planner.engines.physical.static import solve_static  # noqa: PLC0415 (numba is heavy)

    return solve_static


def _physical() -> Engine:
    from planner.engines.physical.physical import solve_physical  # noqa: PLC0415 (numba is heavy)

    return solve_physical


def _paper_misfit(problem: Problem, plan: MigPlan) -> str | None:
    from planner.engines.paper.plan import misfit  # noqa: PLC0415 (numpy is heavy)

    return misfit(problem, plan)


def _physical_misfit(problem: Problem, plan: MigPlan) -> str | None:
    from planner.engines.physical.physical import misfit  # noqa: PLC0415 (numba is heavy)

    return misfit(problem, plan)


_ENGINES = (
    _Entry("exact", PAPER, _exact, misfit=_paper_misfit),
    _Entry("paper-ilp", PAPER, _paper_ilp, takes=("solver", "configs"), misfit=_paper_misfit, takes_gains=False),
    _Entry("greedy", PAPER, _paper_greedy, misfit=_paper_misfit),
    _Entry("static", PAPER, _paper_static),
    _Entry("physical", PHYSICAL, _physical, misfit=_physical_misfit),
    _Entry("greedy", PHYSICAL, _physical_greedy),
    _Entry("static", PHYSICAL, _physical_static),
)


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
    must_meet_floors: bool = True,
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
        must_meet_floors: Whether a plan that misses a floor of in-time answers is none. Otherwise the plan that lacks
            least is returned where none was found that keeps all, and its ``missed`` says what it lacks.

    Raises:
        EngineError: Unknown engine, one of the other model, an option that it does not take, or a
            solver that is missing or failed.
    """
    chosen, entry = options or EngineOptions(), _entry(problem.reconfiguration, engine)
    foreign = [name for name in chosen.given if name not in entry.takes]
    if foreign:
        takes = ", ".join(entry.takes) or "no options"
        raise EngineError(f"engine {entry.name!r} does not take {', '.join(foreign)}; it takes {takes}")
    begun_s, begun_loading_s = time.perf_counter(), loading_s()
    engine_of = partial(entry.load(), **chosen.given)
    imported_s = time.perf_counter() - begun_s
    plan = _solved(problem, entry, engine_of, budget or Budget(), initial, must_meet_floors)
    return replace(plan, load_s=imported_s + loading_s() - begun_loading_s)


def _solved(
    problem: Problem,
    entry: _Entry,
    engine_of: Engine,
    budget: Budget,
    initial: MigPlan | None,
    must_meet_floors: bool,
) -> MigPlan:
    """What the engine answers, under the problem's floors of in-time answers if there are any."""
    if not problem.has_floors:
        return engine_of(problem, budget, initial)
    from planner.floors import solve_with_floors  # noqa: PLC0415 (numpy is heavy)

    return solve_with_floors(
        problem,
        engine_of,
        budget,
        initial,
        name=entry.name,
        takes_gains=entry.takes_gains,
        must_meet=must_meet_floors,
    )


def size_note(problem: Problem, engine: str | None, options: EngineOptions | None) -> str | None:
    """What to know of the problem's size before the engine begins, in words; ``None`` where it solves any size.

    Raises:
        EngineError: Unknown engine, one of the other model, or an option that it does not take.
    """
    entry = _entry(problem.reconfiguration, engine)
    if entry.load is not _paper_ilp:
        return None
    from planner.engines.milp.paper_ilp import size_note as of_the_program  # noqa: PLC0415 (PuLP and HiGHS are heavy)

    return of_the_program(problem, **(options or EngineOptions()).given)


def start_misfit(problem: Problem, plan: MigPlan, engine: str | None = None) -> str | None:
    """Why :func:`solve` with ``plan`` as ``initial`` would not start from it, in words; ``None`` if it would.

    Raises:
        EngineError: Unknown engine, or one of the other model.
    """
    entry = _entry(problem.reconfiguration, engine)
    if entry.misfit is None:
        return f"engine {entry.name!r} starts from no plan"
    if not plan.status.has_plan:
        return f"its status is {plan.status}: there is no plan in it"
    return entry.misfit(problem, plan)


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
