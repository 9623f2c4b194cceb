"""``paper``: the paper's own integer program, with its corrections, as the measure for other engines.

The program stands in ``paper_ilp_formulas``, formula by formula. It is slow: a binary for every
step, task and instance of every configuration, many of them interchangeable.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.budget import Budget
from planner.engines.answer import require_model
from planner.engines.milp.paper_ilp_model import Configs, PaperModel, configs_of, configurations, paper_model
from planner.engines.milp.program import solve_formulated
from planner.engines.milp.solvers import Solver, solver_of
from planner.errors import EngineError
from planner.plan import MigPlan
from planner.problem import GainTable, Problem, Reconfiguration

ENGINE = "paper-ilp"


def solve_paper_ilp(
    problem: Problem,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
    *,
    solver: Solver | str = Solver.HIGHS,
    configs: Configs | str = Configs.ALL,
    presolve: bool = True,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Args:
        problem: A ``paper`` problem without gain tables of its own.
        budget: Limits; none by default.
        initial: A plan of an earlier solve, to start from; returned again where it is the better one.
        solver: ``highs``, ``cbc`` or ``gurobi``.
        configs: ``paper12`` or ``all``.
        presolve: Whether the solver may presolve.

    Raises:
        EngineError: The problem is not ``paper`` or has gain tables; the configurations do not go with it; the
            solver is unknown, missing, without a licence for a program of this size, or failed.
    """
    require_model(problem, Reconfiguration.PAPER, ENGINE)
    if problem.gains is not None:
        message = "counts min(arrivals, capability), the paper's formula 10; this problem has gain tables of its own"
        raise EngineError(f"engine {ENGINE!r} {message}")
    chosen = configurations(problem, configs_of(configs))

    def formulate(problem: Problem, tables: Sequence[GainTable]) -> PaperModel:
        del tables
        return paper_model(problem, chosen)

    return solve_formulated(
        problem, ENGINE, formulate, budget or Budget(), initial, solver=solver_of(solver), presolve=presolve
    )
