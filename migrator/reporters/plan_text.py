"""A plan for people: what every task holds and when, what it promises, and how good that provably is."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from executor.mig import OwnedLayout
from migrator.reporters.strip import COLOURS, layout_strip, tenant_letters
from planner.plan import Lifetime, MigPlan
from planner.problem import Problem, Reconfiguration, Task
from planner.verify import Verification


def print_plan(problem: Problem, plan: MigPlan, verification: Verification | None, console: Console) -> None:
    """Print the plan's figures and its timetable; nothing but the reason where there is no plan."""
    console.print(
        f"[bold]{plan.status}[/] {problem.reconfiguration} plan by {plan.engine} on {problem.gpu.name}: "
        f"{plan.n_steps} steps of {problem.step_s:g} s, solved in {plan.solve_s:.2f} s"
    )
    if plan.infeasibility is not None:
        console.print(f"  {escape(str(plan.infeasibility))}")
    if not plan.status.has_plan:
        return
    _print_figures(problem, plan, console)
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            console.print(_paper_table(plan))
        case Reconfiguration.PHYSICAL:
            console.print(_physical_table(problem, plan))
    if verification is not None:
        for violation in verification.violations:
            console.print(f"[bold red]breaks[/] {escape(str(violation))}")
        if verification.is_valid:
            console.print("checked against every rule: valid", style="dim")


def _print_figures(problem: Problem, plan: MigPlan, console: Console) -> None:
    most = problem.most_goodput
    share = f" ({100 * (plan.objective or 0.0) / most:.2f} % of the {most:.0f} expected)" if most > 0 else ""
    console.print(f"  expected goodput {plan.objective:.2f} requests{share}")
    if plan.bound is not None and plan.gap is not None:
        console.print(f"  no plan exceeds {plan.bound:.2f}: gap {100 * plan.gap:.4g} %")


def _paper_table(plan: MigPlan) -> Table:
    table = Table()
    for heading in ("tenant", "task", "from", "to", "holds"):
        table.add_column(heading, justify="right" if heading in ("from", "to") else "left")
    for index, schedule in enumerate(plan.schedules):
        colour = COLOURS[index]
        for span in schedule.inference:
            held = ", ".join(f"{count} × {name}" for name, count in Counter(span.profiles).items())
            table.add_row(
                escape(schedule.name), "inference", str(span.from_step), str(span.to_step), held, style=colour
            )
        if schedule.retraining is not None:
            run = schedule.retraining
            table.add_row(
                escape(schedule.name),
                f"retraining ({escape(run.option)})",
                str(run.start_step),
                str(run.end_step),
                run.profile,
                style=colour,
                end_section=True,
            )
    return table


def _physical_table(problem: Problem, plan: MigPlan) -> Table:
    """A row for each step at which something changes: the slices, who warms, who retrains, what ends."""
    letters = tenant_letters(problem.tenant_names)
    legend = ", ".join(f"{letter} {escape(name)}" for letter, name in zip(letters, problem.tenant_names, strict=True))
    table = Table(caption=f"{legend}; small letters retrain, · is idle", caption_justify="left")
    for heading in ("step", "slices", "starts", "ends"):
        table.add_column(heading, justify="right" if heading == "step" else "left")
    moments = {item.create_step for item in plan.lifetimes} | {item.end_step for item in plan.lifetimes}
    for step in sorted(moment for moment in moments if moment < plan.n_steps):
        alive = [item for item in plan.lifetimes if item.create_step <= step < item.end_step]
        layout = OwnedLayout.of((item.placement, item.owner) for item in alive)
        begun = [item for item in alive if item.create_step == step]
        ended = [item for item in plan.lifetimes if item.end_step == step]
        table.add_row(
            str(step),
            layout_strip(layout, problem.tenant_names, problem.gpu.memory_slices),
            escape("; ".join(map(_beginning, begun))),
            escape("; ".join(f"{item.owner} {item.placement}" for item in ended)),
        )
    return table


def _beginning(item: Lifetime) -> str:
    if item.owner.task is Task.RETRAINING:
        return f"{item.owner} {item.placement} until {item.end_step}"
    ready = "" if item.serve_step <= item.create_step else f", serves from {item.serve_step}"
    return f"{item.owner} {item.placement}{ready}"
