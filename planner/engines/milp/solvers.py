"""The solvers of mixed-integer programs, each called the same way and answering in the same form.

All are called through PuLP, with one thread and a fixed seed, so that a program is answered the same
every time. The solution is left in the program's variables. Programs are to be minimised.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, assert_never

import highspy
import pulp

from executor.extras import install
from planner.budget import Budget
from planner.errors import EngineError
from planner.highs import SilentHighs

RANDOM_SEED = 0

Choice = TypeVar("Choice", bound=StrEnum)


class Solver(StrEnum):
    """The solvers by name; ``gurobi`` needs the optional package gurobipy and a licence."""

    HIGHS = "highs"
    CBC = "cbc"
    GUROBI = "gurobi"


@dataclass(frozen=True, slots=True)
class SolverAnswer:
    """What a solver found for a program that is to be minimised.

    Attributes:
        has_solution: Whether the program's variables hold a feasible point.
        is_proven: Whether it says that none is better, at a relative gap of 0.
        is_infeasible: Whether it says that there is none.
        bound: In the program's units: no solution's objective is lower; ``None`` if it has none.
        n_nodes: Nodes of its search.
    """

    has_solution: bool
    is_proven: bool
    is_infeasible: bool
    bound: float | None
    n_nodes: int


UNSOLVED = SolverAnswer(has_solution=False, is_proven=False, is_infeasible=False, bound=None, n_nodes=0)
"""The answer within a budget of no nodes."""


def one_of(kind: type[Choice], what: str, name: str) -> Choice:
    """The choice of that name.

    Raises:
        EngineError: There is none; names those known.
    """
    try:
        return kind(name)
    except ValueError:
        raise EngineError(f"unknown {what} {name!r}; known: {', '.join(kind)}") from None


def ask(solver: Solver, program: pulp.LpProblem, budget: Budget) -> SolverAnswer:
    """The answer of ``solver`` to ``program`` within ``budget``; its solution is left in the program's variables.

    Args:
        solver: Which solver.
        program: To be minimised.
        budget: Limits of the solver alone.

    Raises:
        EngineError: The solver is missing, has no licence for a program of this size, or failed.
    """
    if budget.max_nodes == 0:
        return UNSOLVED
    try:
        match solver:
            case Solver.HIGHS:
                return _ask_highs(program, budget)
            case Solver.CBC:
                return _ask_cbc(program, budget)
            case Solver.GUROBI:
                return _ask_gurobi(program, budget)
            case _:
                assert_never(solver)
    except pulp.PulpSolverError as error:
        raise EngineError(f"solver {solver}: {error}") from error


INFINITE = 1e30
"""Bounds beyond this are no bounds."""


def _finite(bound: float) -> float | None:
    return bound if abs(bound) < INFINITE else None


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _ask_highs(program: pulp.LpProblem, budget: Budget) -> SolverAnswer:
    started_s = time.perf_counter()
    model = program.solverModel = SilentHighs()
    model.setOptionValue("mip_rel_gap", budget.rel_gap)
    model.setOptionValue("mip_abs_gap", 0.0)
    model.setOptionValue("threads", 1)
    if budget.max_nodes is not None:
        model.setOptionValue("mip_max_nodes", budget.max_nodes)
    model.setOptionValue("random_seed", RANDOM_SEED)
    # PuLP's own call fails where HiGHS stops at a limit of nodes.
    pulp.HiGHS().buildSolverModel(program)
    if budget.time_limit_s is not None:
        model.setOptionValue("time_limit", max(0.0, budget.time_limit_s - (time.perf_counter() - started_s)))
    _run_highs(model)
    info, status = model.getInfo(), model.getModelStatus()
    has_solution = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if has_solution:
        for variable, value in zip(program.variables(), model.getSolution().col_value, strict=True):
            variable.varValue = value
    return SolverAnswer(
        has_solution=has_solution,
        is_proven=status == highspy.HighsModelStatus.kOptimal and budget.rel_gap == 0,
        is_infeasible=status == highspy.HighsModelStatus.kInfeasible,
        bound=_finite(float(info.mip_dual_bound)),
        n_nodes=max(0, int(info.mip_node_count)),
    )


INTERRUPT_CHECK_S = 0.1
"""Seconds between checks for Ctrl-C while HiGHS runs."""


def _run_highs(model: highspy.Highs) -> None:
    """Solve in another thread: in this one Ctrl-C would wait until HiGHS is done."""
    model.HandleUserInterrupt = True
    try:
        model.startSolve()
        while not model.wait(INTERRUPT_CHECK_S)[0]:
            pass
    except KeyboardInterrupt:
        model.cancelSolve()  # type: ignore[no-untyped-call]
        model.wait()
        raise


CBC_ROUNDING = 1e-3
"""CBC's log has three decimals of its bound; lowered by this it stays one."""


def _ask_cbc(program: pulp.LpProblem, budget: Budget) -> SolverAnswer:
    with warnings.catch_warnings():
        # PuLP 3.3 announces that PuLP 4 finds CBC elsewhere; this package asks for PuLP 3.
        warnings.simplefilter("ignore", DeprecationWarning)
        cbc = pulp.PULP_CBC_CMD(msg=False)
    if not cbc.available():
        raise EngineError("solver cbc: PuLP ships no CBC for this machine; --solver highs needs none")
    with tempfile.TemporaryDirectory(prefix="migrator-cbc-") as folder:
        mps, solution = (str(Path(folder) / name) for name in ("program.mps", "solution"))
        names = program.writeMPS(mps, rename=1)[:3]
        # Not by PuLP's own call: interrupted, it leaves CBC running and its files behind.
        command = [cbc.path, mps, *_cbc_options(budget), "-solve", "-printingOptions", "all", "-solution", solution]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 (no shell)
        if done.returncode or not Path(solution).exists():
            raise EngineError(f"solver cbc: it ended with exit code {done.returncode} and no solution file")
        status, values, *_, solution_status = cbc.readsol_MPS(solution, program, *names)
    program.assignVarsVals(values)
    program.assignStatus(status, solution_status)
    return _cbc_answer(program, done.stdout.decode("utf-8", errors="replace"), rel_gap=budget.rel_gap)


def _cbc_options(budget: Budget) -> list[str]:
    # The preprocessing of CBC 2.10 takes longer than it saves.
    options: dict[str, object] = {"preprocess": "off", "timeMode": "elapsed"}
    options |= {"ratio": budget.rel_gap, "allow": 0.0, "threads": 1}
    options |= {"randomSeed": RANDOM_SEED + 1, "randomCbcSeed": RANDOM_SEED + 1}
    options |= _given({"sec": budget.time_limit_s, "maxNodes": budget.max_nodes})
    return [text for name, value in options.items() for text in (f"-{name}", str(value))]


def _cbc_answer(program: pulp.LpProblem, log: str, *, rel_gap: float) -> SolverAnswer:
    has_solution = program.sol_status in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}
    nodes = re.search(r"Enumerated nodes:\s+(\d+)", log)
    stated = re.search(r"Lower bound:\s+(\S+)", log)  # absent where the solution is optimal at gap 0
    is_proven = has_solution and stated is None and "Result - Optimal solution found" in log
    bound = None
    if is_proven:
        # PuLP gives an objective without terms a variable without a value.
        bound = float(pulp.value(program.objective) or 0.0)
    elif stated is not None:
        bound = float(stated.group(1)) - CBC_ROUNDING
    return SolverAnswer(
        has_solution=has_solution,
        is_proven=is_proven and rel_gap == 0,
        is_infeasible=program.status == pulp.LpStatusInfeasible,
        bound=bound,
        n_nodes=int(nodes.group(1)) if nodes else 0,
    )


def _ask_gurobi(program: pulp.LpProblem, budget: Budget) -> SolverAnswer:
    try:
        import gurobipy  # noqa: PLC0415 (optional)
    except ImportError:
        message = f"the package gurobipy is not installed ({install('gurobi')})"
        raise EngineError(f"solver gurobi: {message}; --solver highs needs nothing more") from None
    options = {"TimeLimit": budget.time_limit_s, "NodeLimit": budget.max_nodes, "Seed": RANDOM_SEED, "Threads": 1}
    options |= {"MIPGap": budget.rel_gap, "MIPGapAbs": 0.0}
    gurobi = pulp.GUROBI(msg=False, manageEnv=True, envOptions={"OutputFlag": 0}, **_given(options))
    try:
        program.solve(gurobi)
        if program.solverModel.Status == gurobipy.GRB.INTERRUPTED:  # it takes Ctrl-C for itself
            raise KeyboardInterrupt
        return _gurobi_answer(program.solverModel, gurobipy.GRB, rel_gap=budget.rel_gap)
    except gurobipy.GurobiError as error:
        raise EngineError(_gurobi_failure(program, error, gurobipy.GRB)) from None
    finally:
        gurobi.close()


def _gurobi_answer(model: Any, grb: Any, *, rel_gap: float) -> SolverAnswer:
    return SolverAnswer(
        has_solution=model.SolCount >= 1,
        is_proven=model.Status == grb.OPTIMAL and rel_gap == 0,
        is_infeasible=model.Status in {grb.INFEASIBLE, grb.INF_OR_UNBD},
        bound=_finite(float(model.ObjBound)),
        n_nodes=int(model.NodeCount),
    )


def _gurobi_failure(program: pulp.LpProblem, error: Any, grb: Any) -> str:
    if error.errno != grb.Error.SIZE_LIMIT_EXCEEDED:
        return f"solver gurobi: {error}; --solver highs needs no licence"
    size = f"{len(program.variables()):,} variables and {program.numConstraints():,} constraints"
    return (
        f"solver gurobi: this program has {size}, and Gurobi's licence here is the free one, which stops at 2,000 "
        "of each; --solver highs has no such limit"
    )
