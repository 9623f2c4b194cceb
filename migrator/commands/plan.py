"""``migrator plan``: solve one window of a config, or a problem file, without any GPU."""

from __future__ import annotations

import json
from pathlib import Path

from migrator.assembly import assemble
from migrator.config import read_config
from migrator.console import output, print_json, progress
from migrator.errors import InfeasibleError, MigratorError
from migrator.planning import plan_through, require_plan
from migrator.reporters.plan_text import print_plan
from planner.budget import Budget
from planner.plan import MigPlan
from planner.plan_file import plan_to_json
from planner.problem import Problem
from planner.problem_file import read_problem
from planner.solve import solve
from planner.verify import verify


def plan_config_command(config_path: Path, *, window: int, out: Path | None, as_json: bool) -> None:
    """Print the plan that a run of the config makes for ``window``, if every plan before it is carried out as promised.

    Raises:
        ConfigError: The config cannot be used, or has fewer windows.
        InfeasibleError: The window has no plan.
    """
    config = read_config(config_path)
    if window >= config.windows:
        raise MigratorError(f"--window is {window}; {config_path} has windows 0 to {config.windows - 1}")
    setting = assemble(config, str(config_path))
    with progress().status(f"planning windows 0 to {window}"):
        planned = plan_through(setting, window)[-1]
    _show(planned.problem, planned.plan, out, as_json=as_json)
    require_plan(planned)


def plan_problem_command(
    problem_path: Path, *, engine: str | None, time_limit_s: float | None, out: Path | None, as_json: bool
) -> None:
    """Print the plan of a problem file.

    Raises:
        ProblemError: The file is no problem.
        EngineError: No such engine, or it does not take this model.
        InfeasibleError: There is no plan; it is printed (and written) all the same.
    """
    problem = read_problem(problem_path)
    with progress().status("solving"):
        plan = solve(problem, engine=engine, budget=Budget(time_limit_s=time_limit_s))
    _show(problem, plan, out, as_json=as_json)
    if not plan.status.has_plan:
        reason = plan.infeasibility
        raise InfeasibleError(f"{problem_path}: {reason or f'no plan: {plan.status}'}")


def _show(problem: Problem, plan: MigPlan, out: Path | None, *, as_json: bool) -> None:
    if out is not None:
        _write(out, plan)
    if as_json:
        print_json(plan_to_json(plan))
    else:
        print_plan(problem, plan, verify(problem, plan) if plan.status.has_plan else None, output())


def _write(path: Path, plan: MigPlan) -> None:

    try:
        path.write_text(json.dumps(plan_to_json(plan), indent=2, allow_nan=False) + "\n", "utf-8")
    except OSError as error:
        raise MigratorError(f"--out {path}: cannot be written: {error.strerror or error}") from None
