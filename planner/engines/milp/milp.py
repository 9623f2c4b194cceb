"""``paper``: the tight mixed-integer program (``milp_model``), on any of the solvers."""

from __future__ import annotations

from planner.budget import Budget
from planner.engines.milp.program import solve_formulated
from planner.engines.milp.solvers import Solver, solver_of
from planner.engines.milp.tight import milp_model
from planner.plan import MigPlan
from planner.problem import Problem

ENGINE = "milp"


def solve_milp(
    problem: Problem,
    budget: Budget | None = None,
    initial: MigPlan | None = None,
    *,
    solver: Solver | str = Solver.HIGHS,
    presolve: bool = False,
) -> MigPlan:
    """The best plan found within ``budget``, with bound and gap; never worse than greedy's or ``initial``.

    Args:
        problem: A ``paper`` problem.
        budget: Limits; none by default.
        initial: A plan of an earlier solve, to start from; returned again where it is the better one.
        solver: ``highs``, ``cbc`` or ``gurobi``.
        presolve: Whether the solver may presolve; HiGHS was faster without.

    Raises:
        EngineError: The problem is not ``paper``, or the solver is unknown, missing, without a licence for a
            program of this size, or failed.
    """
    return solve_formulated(
        problem, ENGINE, milp_model, budget or Budget(), initial, solver=solver_of(solver), presolve=presolve
    )
