"""``paper``: the tight mixed-integer program, solved by HiGHS or CBC, with greedy's plan as its floor.

What is returned never rests on the solver's arithmetic alone: its solution is rounded, checked
against the rules, and valued anew; greedy's plan stands in when it is better or the only one. The
bound is the solver's, or greedy's where that is lower.
"""

from __future__ import annotations

import re
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import pulp

from planner.budget import Budget
from planner.engines.greedy import Candidate, best_candidate, candidates, require_paper, with_plan, without_plan
from planner.engines.holding_path import HoldingPaths
from planner.engines.milp_model import MilpModel, milp_model
from planner.engines.schedule import broken_rule, value_of
from planner.errors import EngineError
from planner.feasibility import RULE_RETRAINING, infeasibility
from planner.gains import gain_tables
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import GainTable, Problem

ENGINE = "milp"

PROOF_TOLERANCE = 1e-6
"""A solver that says "optimal" at gap 0 means it within this, relatively: its feasibility tolerance.

Where its bound lies at most this far above the recomputed objective, the plan is called optimal.
"""

RANDOM_SEED = 0
"""One thread and one seed: the same problem gives the same plan."""


class Solver(StrEnum):
    """The solvers that the program can be given to."""

    HIGHS = "highs"
    CBC = "cbc"


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a solver said: whether it has a solution, proved it best or proved that there is none; its bound."""

    has_solution: bool
    is_proven: bool
    is_infeasible: bool
    bound: float | None
    n_nodes: int


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
        initial: A plan of an earlier solve; returned again where it is the better one.
        solver: ``highs`` or ``cbc``.
        presolve: Whether the solver may presolve; HiGHS was faster without.

    Raises:
        EngineError: The problem is not ``paper``, or the solver is unknown, missing or failed.
    """
    started_s = time.perf_counter()
    require_paper(problem, ENGINE)
    chosen = _solver_of(solver)
    limits = budget or Budget()
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, ENGINE, started_s), infeasibility=reason)
    tables = gain_tables(problem)
    paths = HoldingPaths(problem, tables)
    floor = candidates(paths, tables, initial)
    model = milp_model(problem, tables)
    spent_s = time.perf_counter() - started_s
    answer = _run(chosen, model.program, _left(limits, spent_s), presolve=presolve)
    if answer.is_infeasible and not floor:
        text = "no schedule of the required retrainings fits beside every tenant's min_profile"
        plan = without_plan(problem, Status.INFEASIBLE, ENGINE, started_s)
        return replace(plan, infeasibility=Infeasibility(None, RULE_RETRAINING, text))
    return _best_plan(problem, _Solved(tables, paths, model, answer, tuple(floor)), started_s)


@dataclass(frozen=True)
class _Solved:
    tables: Sequence[GainTable]
    paths: HoldingPaths
    model: MilpModel
    answer: _Answer
    floor: tuple[Candidate, ...]


def _best_plan(problem: Problem, solved: _Solved, started_s: float) -> MigPlan:
    """The better of the solver's plan and the floor, with the lower of both bounds."""
    answer, scale = solved.answer, solved.model.scale
    own = _solver_candidates(problem, solved) if answer.has_solution else []
    best = best_candidate([*own, *solved.floor])
    bound = solved.paths.upper_bound()
    if answer.bound is not None:
        bound = min(bound, answer.bound / scale)
    work = (("variables", solved.model.n_variables), ("nodes", answer.n_nodes))
    if best is None:
        return replace(without_plan(problem, Status.TIMEOUT, ENGINE, started_s, bound), work=work)
    certified = _certified_bound(best[0], bound, solved)
    return with_plan(problem, best, certified, ENGINE, started_s, work)


def _certified_bound(value: float, bound: float, solved: _Solved) -> float:
    """The bound that goes with a plan worth ``value``: never below it, and equal to it where that is proven."""
    tolerance = PROOF_TOLERANCE * max(abs(bound), 1.0 / solved.model.scale)
    if bound < value - tolerance:
        # The solver contradicts a plan that was checked: its bound is worth nothing.
        return max(value, solved.paths.upper_bound())
    if bound < value or (solved.answer.is_proven and bound <= value + tolerance):
        return value
    return bound


def _solver_candidates(problem: Problem, solved: _Solved) -> list[Candidate]:
    """The solver's decisions; where they are not proven best, also the best path beside their retrainings."""
    decisions = solved.model.decisions()
    found: list[Candidate] = []
    if broken_rule(problem, decisions) is None:
        found.append((value_of(problem, solved.tables, decisions), decisions))
    if not found or not solved.answer.is_proven:
        path = solved.paths.best(tuple(decision.retraining for decision in decisions))
        if path is not None and broken_rule(problem, path[1]) is None:
            found.append((value_of(problem, solved.tables, path[1]), path[1]))
    return found


def _solver_of(name: Solver | str) -> Solver:
    try:
        return Solver(name)
    except ValueError:
        raise EngineError(f"unknown solver {name!r}; known: {', '.join(Solver)}") from None


def _left(budget: Budget, spent_s: float) -> Budget:
    if budget.time_limit_s is None:
        return budget
    return replace(budget, time_limit_s=max(0.01, budget.time_limit_s - spent_s))


def _run(solver: Solver, program: pulp.LpProblem, budget: Budget, *, presolve: bool) -> _Answer:
    if budget.max_nodes == 0:
        return _Answer(has_solution=False, is_proven=False, is_infeasible=False, bound=None, n_nodes=0)
    try:
        match solver:
            case Solver.HIGHS:
                return _run_highs(program, budget, presolve=presolve)
            case Solver.CBC:
                return _run_cbc(program, budget, presolve=presolve)
            case _:
                assert_never(solver)
    except pulp.PulpSolverError as error:
        raise EngineError(f"solver {solver}: {error}") from error


def _run_highs(program: pulp.LpProblem, budget: Budget, *, presolve: bool) -> _Answer:
    options: dict[str, object] = {} if budget.max_nodes is None else {"mip_max_nodes": budget.max_nodes}
    highs = pulp.HiGHS(
        msg=False,
        gapRel=budget.rel_gap,
        gapAbs=0.0,
        threads=1,
        timeLimit=budget.time_limit_s,
        presolve="on" if presolve else "off",
        random_seed=RANDOM_SEED,
        **options,
    )
    if not highs.available():
        raise EngineError("solver highs: the package highspy is missing")
    try:
        program.solve(highs)
    except KeyError as error:
        # PuLP 3.3 lacks HiGHS's "solution limit", its answer when mip_max_nodes is met, and raises only after it
        # has read the values; what the solver says is asked of HiGHS itself below.
        if "kSolutionLimit" not in str(error):
            raise
    info = program.solverModel.getInfo()
    status = program.solverModel.modelStatusToString(program.solverModel.getModelStatus())
    # PuLP hands HiGHS the negated objective, to be minimised.
    bound = -float(info.mip_dual_bound)
    return _Answer(
        has_solution=int(info.primal_solution_status) == FEASIBLE_POINT,
        is_proven=status == "Optimal" and budget.rel_gap == 0,
        is_infeasible=status == "Infeasible",
        bound=bound if abs(bound) < INFINITE else None,
        n_nodes=max(0, int(info.mip_node_count)),
    )


FEASIBLE_POINT = 2
"""``kSolutionStatusFeasible`` of HiGHS."""

INFINITE = 1e30
"""Bounds beyond this are no bounds."""


CBC_ROUNDING = 1e-3
"""CBC's log gives three decimals of its bound; rounded up by this it stays one."""


def _run_cbc(program: pulp.LpProblem, budget: Budget, *, presolve: bool) -> _Answer:
    with tempfile.TemporaryDirectory(prefix="migrator-cbc-") as folder, warnings.catch_warnings():
        # PuLP 3.3 announces that PuLP 4 finds CBC elsewhere; this package asks for PuLP 3.
        warnings.simplefilter("ignore", DeprecationWarning)
        log = Path(folder) / "cbc.log"
        cbc = pulp.PULP_CBC_CMD(
            msg=False,
            gapRel=budget.rel_gap,
            gapAbs=0.0,
            threads=1,
            timeLimit=budget.time_limit_s,
            maxNodes=budget.max_nodes,
            presolve=presolve,
            options=[f"randomSeed {RANDOM_SEED + 1}", f"randomCbcSeed {RANDOM_SEED + 1}"],
            logPath=str(log),
        )
        if not cbc.available():
            raise EngineError("solver cbc: PuLP ships no CBC for this machine")
        program.solve(cbc)
        text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    return _cbc_answer(program, text, rel_gap=budget.rel_gap)


def _cbc_answer(program: pulp.LpProblem, log: str, *, rel_gap: float) -> _Answer:
    is_proven = program.sol_status == pulp.LpSolutionOptimal and "Result - Optimal solution found" in log
    has_solution = program.sol_status in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}
    nodes = re.search(r"Enumerated nodes:\s+(\d+)", log)
    stated = re.search(r"Upper bound:\s+(\S+)", log)
    bound = None
    if is_proven:
        bound = float(pulp.value(program.objective))
    elif stated is not None:
        bound = float(stated.group(1)) + CBC_ROUNDING
    return _Answer(
        has_solution=has_solution,
        is_proven=is_proven and rel_gap == 0,
        is_infeasible=program.status == pulp.LpStatusInfeasible,
        bound=bound,
        n_nodes=int(nodes.group(1)) if nodes else 0,
    )
