"""The tight program on every solver: equal to the plain oracle, honest bounds, never below greedy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from paper_oracle import best_objective
from problems import paper_problem
from solvers import SOLVERS
from windows import tenant, window

from planner.budget import Budget
from planner.engines.milp import program, tight
from planner.engines.milp.solvers import SolverAnswer
from planner.engines.milp.tight import solve_milp
from planner.engines.paper.greedy import solve_greedy
from planner.engines.paper.plan import broken_rule, decisions_of, value_of
from planner.errors import EngineError
from planner.gains import gain_tables
from planner.plan import MigPlan, RetrainingSpan, Status
from planner.problem import PaperState, Problem, Reconfiguration, RetrainingOption


def no_greedy(*_: object) -> list[object]:
    return []


def wavy(n_steps: int = 6) -> Problem:
    """Two tenants whose peaks alternate, with a change that costs most of a step: hard enough to need branching.

    Six steps are small enough for Gurobi's free licence.
    """
    first = [300.0 if step // 2 % 2 else 60.0 for step in range(n_steps)]
    second = [60.0 if step // 2 % 2 else 260.0 for step in range(n_steps)]
    times = {"1g.5gb": 5.0, "2g.10gb": 3.0, "3g.20gb": 2.0}
    rates = {
        "1g.5gb": 40.0,
        "2g.10gb": 80.0,
        "3g.20gb": 120.0,
        "4g.20gb": 160.0,
    }  # few enough for Gurobi's free licence
    loads = (("a", first), ("b", second))
    return window(*(tenant(name, arrivals, rates, retraining_s=times) for name, arrivals in loads))


@cache
def best_of_wavy(factor: float = 1.0) -> float:
    """The oracle's answer; it scales with the loads."""
    best = best_objective(wavy())
    assert best is not None
    return best * factor


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_solvers_own_plan_is_the_best(seed: int, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "candidates", no_greedy)
    problem = paper_problem(seed)
    plan, best = solve_milp(problem, solver=solver), best_objective(problem)
    if best is None:
        assert (plan.status, plan.objective) == (Status.INFEASIBLE, None)
    else:
        assert plan.status is Status.OPTIMAL
        assert plan.objective == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(100, 130))
def test_the_objective_is_that_of_the_plan_and_the_plan_keeps_the_rules(seed: int) -> None:
    problem = paper_problem(seed)
    plan = solve_milp(problem)
    if plan.status.has_plan:
        decisions = decisions_of(problem, plan)
        assert decisions is not None
        assert broken_rule(problem, decisions) is None
        assert plan.objective == value_of(problem, gain_tables(problem), decisions)


@pytest.mark.parametrize("presolve", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_agree_with_and_without_presolve(solver: str, presolve: bool) -> None:
    plan = solve_milp(wavy(), solver=solver, presolve=presolve)
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(best_of_wavy(), rel=1e-6))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("budget", [Budget(max_nodes=0), Budget(max_nodes=1), Budget(time_limit_s=0.0)])
def test_within_a_small_budget_the_plan_is_no_worse_than_greedy_and_the_bound_holds(
    solver: str, budget: Budget
) -> None:
    plan, floor = solve_milp(wavy(), budget, solver=solver), solve_greedy(wavy())
    best = best_of_wavy()
    assert None not in (plan.objective, plan.bound, best)
    assert floor.objective <= plan.objective <= best * (1 + 1e-6) <= plan.bound * (1 + 2e-6)  # type: ignore[operator]


@pytest.mark.parametrize("seed", [5, 201, 304])
def test_a_solver_stopped_by_its_node_limit_leaves_a_plan_and_a_bound(seed: int) -> None:
    problem = paper_problem(seed)  # these take HiGHS more than one node
    plan, whole = solve_milp(problem, Budget(max_nodes=1)), solve_milp(problem)
    assert None not in (plan.objective, plan.bound, whole.objective)
    assert plan.objective <= whole.objective * (1 + 1e-6) <= plan.bound * (1 + 2e-6)  # type: ignore[operator]


def test_without_any_node_the_answer_is_greedys_with_its_bound() -> None:
    plan, floor = solve_milp(wavy(), Budget(max_nodes=0)), solve_greedy(wavy())
    assert (plan.objective, plan.bound, plan.status) == (floor.objective, floor.bound, Status.FEASIBLE)


def test_without_any_plan_in_time_the_status_is_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "candidates", no_greedy)
    plan = solve_milp(wavy(), Budget(max_nodes=0))
    assert (plan.status, plan.objective, plan.gap) == (Status.TIMEOUT, None, None)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_plan_within_the_allowed_gap_is_called_feasible_with_its_true_gap(solver: str) -> None:
    plan = solve_milp(wavy(), Budget(rel_gap=0.5), solver=solver)
    assert plan.gap is not None
    assert plan.gap <= 0.5
    assert (plan.status is Status.OPTIMAL) == (plan.gap <= 1e-9)


def test_a_bound_below_a_checked_plan_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SolverAnswer(has_solution=False, is_proven=True, is_infeasible=False, bound=-1.0, n_nodes=0)
    monkeypatch.setattr(program, "ask", lambda *_, **__: answer)
    plan = solve_milp(wavy())
    assert (plan.status, plan.bound) == (Status.FEASIBLE, solve_greedy(wavy()).bound)


def test_where_facets_are_not_enough_the_plan_keeps_the_rules_and_the_bound_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tight, "hull_facets", lambda *_: ())
    plan = solve_milp(wavy())
    decisions = decisions_of(wavy(), plan)
    assert decisions is not None
    assert broken_rule(wavy(), decisions) is None
    assert (plan.bound or 0.0) >= best_of_wavy()


@pytest.mark.parametrize("solver", SOLVERS)
def test_loads_may_be_tiny_or_huge(solver: str) -> None:
    for factor in (1e-5, 1e5):
        scaled = tuple(
            replace(
                terms,
                arrivals_rps=terms.arrivals_rps * factor,
                capability_rps={name: rate * factor for name, rate in terms.capability_rps.items()},
            )
            for terms in wavy().tenants
        )
        problem = replace(wavy(), tenants=scaled)
        assert solve_milp(problem, solver=solver).objective == pytest.approx(best_of_wavy(factor), rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_window_of_changes_that_only_cost_may_end_below_zero(solver: str) -> None:
    terms = tenant(retraining_s={}, overhead_s=40.0, capability_rps={"1g.5gb": 40.0})
    problem = window(terms, initial=PaperState({"resnet50": ("7g.40gb",)}))
    plan = solve_milp(problem, solver=solver)
    assert plan.objective == pytest.approx(best_objective(problem))
    assert (plan.objective or 0.0) < 0
    assert plan.status is Status.OPTIMAL


def test_a_window_without_arrivals_is_solved() -> None:
    plan = solve_milp(window(tenant(arrivals_rps=[0.0] * 6, overhead_s=0.0)))
    assert (plan.status, plan.objective) == (Status.OPTIMAL, 0.0)


def test_a_retraining_may_end_with_the_window() -> None:
    plan = solve_milp(window(tenant(retraining_s={"2g.10gb": 6.0})))
    assert plan.schedules[0].retraining == RetrainingSpan("2g.10gb", 0, 6, "full")


def test_the_option_that_pays_most_is_chosen() -> None:
    options = (RetrainingOption("short", {"1g.5gb": 1.0}, 0.6), RetrainingOption("long", {"1g.5gb": 2.0}, 0.9))
    retraining = solve_milp(window(tenant(options=options))).schedules[0].retraining
    assert retraining is not None
    assert retraining.option == "long"


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_problem_gives_the_same_plan(solver: str) -> None:
    plans: list[MigPlan] = [replace(solve_milp(wavy(), solver=solver), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]


def test_an_unknown_solver_is_told_with_those_known() -> None:
    with pytest.raises(EngineError, match="unknown solver 'cplex'; known: highs, cbc, gurobi"):
        solve_milp(wavy(), solver="cplex")


def test_a_physical_problem_is_refused() -> None:
    with pytest.raises(EngineError, match="'milp' answers paper problems; this one is physical"):
        solve_milp(replace(wavy(), reconfiguration=Reconfiguration.PHYSICAL))


def test_a_program_that_takes_too_long_to_make_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(tight, "_add_step", fail)
    assert solve_milp(wavy(), Budget(time_limit_s=0.0)).objective == solve_greedy(wavy()).objective
