"""``migrator verify``: an independent check of a plan file against its problem file."""

from __future__ import annotations

from pathlib import Path

from migrator.console import escape, output, print_json
from migrator.errors import MigratorError
from migrator.views.as_json import verification_to_json
from planner.files.plan_file import read_plan
from planner.files.problem_file import read_problem
from planner.plan import MigPlan
from planner.verify import verify
from planner.verify.verification import Verification


def verify_command(plan_path: Path, problem_path: Path, *, as_json: bool) -> None:
    """Print every broken rule, the recomputed goodput and the gaps that stated and certified bound leave.

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
        print_json(verification_to_json(found))
    else:
        _print_found(plan_path, plan, found)
    if not found.is_valid:
        n = len(found.violations)
        raise MigratorError(f"{plan_path}: the plan breaks {n} rule{'s' if n != 1 else ''}")


def _print_found(plan_path: Path, plan: MigPlan, found: Verification) -> None:
    console = output()
    for item in found.violations:
        console.print(f"  {escape(str(item))}")
    if not found.is_valid:
        return
    console.print(f"{escape(str(plan_path))} is valid: goodput {found.objective:.10g} requests")
    if found.bound is not None and found.gap is not None:
        console.print(f"  the plan says that none exceeds {found.bound:.10g}: gap {100 * found.gap:.4g} %")
    if found.certified_bound is not None and found.certified_gap is not None:
        gap = f"gap {100 * found.certified_gap:.4g} %"
        console.print(f"  its certificate proves that no plan exceeds {found.certified_bound:.10g}: {gap}")
    else:
        why = "it has no certificate" if plan.certificate is None else "its certificate bounds nothing"
        console.print(f"  {why}: no bound is proven here")
