"""What solvers are told and what is believed of their answers; each on one small program of the paper's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import cache

import highspy
import pulp
import pytest
from paper_oracle import best_objective
from problems import short_paper_problem
from solvers import SOLVERS, WITHOUT_GUROBI
from windows import tenant, window

from planner.budget import Budget
from planner.engines.milp.paper_ilp import PaperModel, configurations, paper_model, solve_paper_ilp
from planner.engines.milp.solvers import Solver, SolverAnswer, ask, solver_of
from planner.engines.paper.exact import solve_exact
from planner.engines.paper.plan import TenantDecision, decisions_of, value_of
from planner.engines.paper.static import solve_greedy
from planner.errors import EngineError
from planner.gains import gain_tables
from planner.plan import Status
from planner.problem import Problem


def wavy() -> Problem:
    """Two tenants on an A100 whose program has 302 variables: what HiGHS finds first, and greedy, are not the best."""
    return short_paper_problem(37)


def model() -> PaperModel:
    return paper_model(wavy(), configurations(wavy(), "all"))


@cache
def best_goodput() -> float:
    best = best_objective(wavy())
    assert best is not None
    return best


@cache
def best_decisions() -> tuple[TenantDecision, ...]:
    decisions = decisions_of(wavy(), solve_exact(wavy()))
    assert decisions is not None
    return decisions


def worth(decisions: tuple[TenantDecision, ...]) -> float:
    return value_of(wavy(), gain_tables(wavy()), decisions)


def asked(solver: Solver | str, program: pulp.LpProblem, budget: Budget, *, has_start: bool = False) -> SolverAnswer:
    return ask(Solver(solver), program, budget, presolve=False, has_start=has_start)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("budget", [Budget(rel_gap=0.9), Budget(max_nodes=1, rel_gap=0.9)])
def test_a_start_is_not_lost(solver: str, budget: Budget) -> None:
    started, start = model(), best_decisions()
    started.start_from(start)
    assert asked(solver, started.program, budget, has_start=True).has_solution
    assert worth(started.decisions()) >= worth(start) - 1e-9


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_start_is_the_solution_where_there_is_no_time(solver: str) -> None:
    started, start = model(), best_decisions()
    started.start_from(start)
    assert asked(solver, started.program, Budget(time_limit_s=0.0), has_start=True).has_solution
    assert started.decisions() == start


@pytest.mark.parametrize("solver", ["highs", pytest.param("gurobi", marks=WITHOUT_GUROBI)])
def test_without_the_start_less_is_found(solver: str) -> None:
    # What makes the tests above tell something: CBC finds the best of this program at once.
    fresh = model()
    asked(solver, fresh.program, Budget(rel_gap=0.9))
    assert worth(fresh.decisions()) < worth(best_decisions()) - 1e-6


def test_greedys_plan_is_given_to_the_solver_and_a_better_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    best, starts = solve_exact(wavy()), []
    monkeypatch.setattr(PaperModel, "start_from", lambda _, decisions: starts.append(worth(decisions)))
    for initial in (None, best):
        solve_paper_ilp(wavy(), Budget(max_nodes=0), initial)
    assert starts == [pytest.approx(solve_greedy(wavy()).objective), pytest.approx(best.objective)]


def test_a_crash_of_cbc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda _, **options: run(["false"], **options))
    with pytest.raises(EngineError, match="solver cbc: it ended with exit code 1 and no solution file"):
        asked("cbc", model().program, Budget())


@pytest.mark.parametrize("time_limit_s", [0.01, 0.02, 0.03, 0.05])
def test_a_start_does_not_make_cbc_crash_or_see_nothing_feasible(time_limit_s: float) -> None:
    # With its preprocessing it did one or the other at some of these limits.
    started, start = model(), best_decisions()
    started.start_from(start)
    answer = asked("cbc", started.program, Budget(time_limit_s=time_limit_s), has_start=True)
    assert (answer.has_solution, answer.is_infeasible) == (True, False)


def test_ctrl_c_stops_highs_and_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    is_cancelled = threading.Event()

    def run(_: highspy.Highs) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        is_cancelled.wait()

    monkeypatch.setattr(highspy.Highs, "run", run)
    monkeypatch.setattr(highspy.Highs, "cancelSolve", lambda _: is_cancelled.set())
    with pytest.raises(KeyboardInterrupt):
        asked("highs", model().program, Budget())
    assert is_cancelled.is_set()


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
    assert solver_of(solver.value) is solver


def test_gurobi_that_is_not_installed_is_told_with_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    message = (
        r"^solver gurobi: the package gurobipy is not installed \(pip install 'migrator-mig\[gurobi\]'\); --solver"
    )
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
