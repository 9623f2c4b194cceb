"""``migrator verify``: an independent check of a plan file against its problem file."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from migrator.console import output, print_json
from migrator.errors import MigratorError
from planner.plan_file import read_plan
from planner.problem_file import read_problem
from planner.verify import verify


def verify_command(plan_path: Path, problem_path: Path, *, as_json: bool) -> None:
    """Print every broken rule, the recomputed goodput and the gap that the bound leaves.

    Raises:
        ProblemError: No problem file.
        PlanFileError: No plan file for this problem.
        MigratorError: The plan is invalid, or there is none to check; ends with exit code 2.
    """
    problem = read_problem(problem_path)
    plan = read_plan(plan_path, problem)
    if not plan.status.has_plan:
        raise MigratorError(f"{plan_path}: holds no plan to check; its status is {plan.status}")
    found = verify(problem, plan)
    if as_json:
        print_json(
            {
                "valid": found.is_valid,
                "objective": found.objective,
                "claimed_objective": found.claimed_objective,
                "bound": found.bound,
                "gap": found.gap,
                "violations": [
                    {"rule": item.rule.value, "tenant": item.tenant, "step": item.step, "message": item.message}
                    for item in found.violations
                ],
            }
        )
    else:
        console = output()
        for item in found.violations:
            console.print(f"  {escape(str(item))}")
        if found.is_valid:
            gap = "" if found.gap is None else f", within {100 * found.gap:.4g} % of the bound that it claims"
            console.print(f"{escape(str(plan_path))} is valid: goodput {found.objective:.10g} requests{gap}")
    if not found.is_valid:
        n = len(found.violations)
        raise MigratorError(f"{plan_path}: the plan breaks {n} rule{'s' if n != 1 else ''}")
