"""What is claimed of every engine's answer: beside the best plan's worth, which an oracle says, and by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from claims import Claims
from engine_table import Engine

from planner.course import courses
from planner.files.plan_file import plan_of, plan_to_json
from planner.files.problem_file import problem_of, problem_to_json
from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.verify import verify


def near(value: float | None, relative: float = 1e-9) -> object:
    """What is equal to ``value`` but for rounding."""
    return None if value is None else pytest.approx(value, rel=relative, abs=relative)


def check_answer(
    claim: Claims, engine: Engine, problem: Problem, plan: MigPlan, best: float | None, *, is_proven: bool
) -> None:
    """Status, value and bounds beside the best plan's worth, which is ``None`` where there is no plan."""
    is_exact = is_proven and engine.proves_best(problem)
    told = f"{engine}: {plan.status} with {plan.objective}, bound {plan.claimed_bound}; the best plan is worth {best}"
    if best is None:
        claim(plan.status is Status.INFEASIBLE or not (is_exact or plan.status.has_plan), told)
        return
    slack = engine.tolerance * max(1.0, abs(best))
    claim(plan.status is not Status.INFEASIBLE, told)
    if is_exact:
        claim(plan.status is Status.OPTIMAL, told)
    if plan.status is Status.OPTIMAL:
        claim(plan.objective == near(best, engine.tolerance), told)
    if engine.name == "greedy" and not problem.pools:
        # Greedy promises this of no problem in general; on small ones it should not give up.
        claim(plan.status.has_plan, told)
    claim(plan.claimed_bound is not None and plan.claimed_bound >= best - slack, told)
    if plan.status.has_plan:
        found = verify(problem, plan)
        claim(found.objective <= best + slack, f"{told}; this one {found.objective}")
        claim(found.bound is None or found.bound >= best - slack, f"{told}; proven {found.bound}")


def check_files(claim: Claims, problem: Problem, plan: MigPlan) -> None:
    """Problem, but for gain tables, and plan say the same once they have been written as text and read."""
    written, plan_written = problem_to_json(problem), plan_to_json(plan)
    again = problem_of(json.loads(json.dumps(written)), "problem")
    claim(problem_to_json(again) == written, "the problem reads back otherwise")
    claim(
        again.pools == problem.pools and again.initial == problem.initial, "pools or initial state read back otherwise"
    )
    back = plan_of(json.loads(json.dumps(plan_written)), again, "plan")
    claim(plan_to_json(back) == plan_written, "the plan reads back otherwise")
    claim(back.lifetimes == plan.lifetimes, "lifetimes read back otherwise")


def check_plan(claim: Claims, engine: Engine, problem: Problem, plan: MigPlan) -> None:
    """Rules, and what gain tables and courses say of it."""
    found = verify(problem, plan)
    claim(found.violations == (), f"{engine}: {[str(violation) for violation in found.violations]}")
    tabled = verify(replace(problem, gains=gain_tables(problem)), plan).objective
    claim(tabled == near(found.objective), f"{engine}: worth {tabled} by gain tables, {found.objective} without")
    goodput = sum(float(course.goodput.sum()) for course in courses(problem, plan))
    claim(goodput + plan.salvage == near(plan.objective), f"{engine}: {goodput} and {plan.salvage} are no objective")
