"""What solvers are told and what is believed of their answers; each on one small program of the paper's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache

import highspy
import pulp
import pytest
from paper_oracle import best_objective
from problems import short_paper_problem
from solvers import SOLVERS, WITHOUT_GUROBI
from windows import tenant, window

from planner.budget import Budget
from planner.engines.milp.paper_ilp import PaperModel, configurations, formulate, solve_paper_ilp
from planner.engines.milp.solvers import Solver, SolverAnswer, ask, one_of
from planner.engines.paper.exact import solve_exact
from planner.engines.paper.static import solve_greedy
from planner.errors import EngineError
from planner.plan import Status
from planner.problem import Problem


def wavy() -> Problem:
    """Two tenants on an A100 whose program has 302 variables: what HiGHS finds first, and greedy, are not the best."""
    return short_paper_problem(37)


def model() -> PaperModel:
    made = PaperModel.of(wavy(), configurations(wavy(), "all"))
    assert formulate(made)
    return made


@cache
def best_goodput() -> float:
    best = best_objective(wavy())
    assert best is not None
    return best


def asked(solver: Solver | str, program: pulp.LpProblem, budget: Budget) -> SolverAnswer:
    return ask(Solver(solver), program, budget)


def test_where_the_solver_finds_nothing_greedys_plan_stands_in_and_a_better_one_before_it() -> None:
    best = solve_exact(wavy())
    for initial, expected in ((None, solve_greedy(wavy())), (best, best)):
        plan = solve_paper_ilp(wavy(), Budget(max_nodes=0), initial)
        assert plan.objective == pytest.approx(expected.objective)
        assert plan.schedules == expected.schedules


def test_a_crash_of_cbc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda _, **options: run(["false"], **options))
    with pytest.raises(EngineError, match="solver cbc: it ended with exit code 1 and no solution file"):
        asked("cbc", model().program, Budget())


@pytest.mark.parametrize("time_limit_s", [0.01, 0.02, 0.03, 0.05])
def test_a_limit_does_not_make_cbc_crash_or_see_nothing_feasible(time_limit_s: float) -> None:
    # With its preprocessing and a start it did one or the other at some of these limits.
    assert not asked("cbc", model().program, Budget(time_limit_s=time_limit_s)).is_infeasible


def test_ctrl_c_stops_highs_and_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    start, cancel, models = highspy.Highs.startSolve, highspy.Highs.cancelSolve, []

    def start_and_interrupt(model: highspy.Highs) -> None:
        start(model)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(highspy.Highs, "startSolve", start_and_interrupt)
    monkeypatch.setattr(highspy.Highs, "cancelSolve", lambda model: models.append(model) or cancel(model))
    with pytest.raises(KeyboardInterrupt):
        asked("highs", model().program, Budget())
    assert [model.is_solver_running() for model in models] == [False]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_bound_is_no_objective_that_is_not_proven(solver: str) -> None:
    made = model()
    answer = asked(solver, made.program, Budget(rel_gap=0.9))
    assert answer.bound is not None
    assert not answer.is_proven
    assert answer.bound < pulp.value(made.program.objective) - 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_proven_bound_is_the_best_objective(solver: str) -> None:
    made = model()
    answer = asked(solver, made.program, Budget())
    assert (answer.is_proven, answer.is_infeasible) == (True, False)
    assert -(answer.bound or 0.0) / made.scale == pytest.approx(best_goodput(), rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_program_without_a_solution_is_told(solver: str) -> None:
    made = model()
    made.program.addConstraint(made.tasks[0][0].runs[0] >= 2)
    answer = asked(solver, made.program, Budget())
    assert (answer.has_solution, answer.is_infeasible) == (False, True)


def test_without_nodes_nobody_is_asked() -> None:
    assert asked("cbc", model().program, Budget(max_nodes=0)) == SolverAnswer(
        has_solution=False, is_proven=False, is_infeasible=False, bound=None, n_nodes=0
    )


@pytest.mark.parametrize("solver", Solver)
def test_a_solver_is_found_by_its_name(solver: Solver) -> None:
    assert one_of(Solver, "solver", solver.value) is solver


def test_gurobi_that_is_not_installed_is_told_with_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    message = r"^solver gurobi: the package gurobipy is not installed \(pip install '.*\[gurobi\]'\); --solver"
    with pytest.raises(EngineError, match=message):
        solve_paper_ilp(wavy(), solver="gurobi")


@WITHOUT_GUROBI
def test_a_program_too_large_for_gurobis_free_licence_is_told_with_what_else_there_is() -> None:
    long = window(tenant(arrivals_rps=[60.0] * 40), tenant("other", arrivals_rps=[60.0] * 40))
    with pytest.raises(EngineError, match=r"\d,\d+ variables .* stops at 2,000 of each; --solver highs"):
        solve_paper_ilp(long, solver="gurobi")


@WITHOUT_GUROBI
def test_gurobi_solves_what_its_free_licence_admits() -> None:
    plan = solve_paper_ilp(wavy(), solver="gurobi")
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(best_goodput(), rel=1e-6))
