"""A plan for people: what it promises and how good that provably is, and who holds what over the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.views.plan_bars import chart_of
from migrator.views.plan_changes import changes_table
from migrator.views.sparkline import sparkline
from migrator.views.strip import COLOURS, IDLE, tenant_letters
from migrator.views.strips import WARMING, gantt
from migrator.views.timescale import FloatArray, TimeScale
from planner.course import Course, RetrainingCourse, courses
from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.verify import TOLERANCE, Verification

_GUTTER = 11
"""Columns before every line over time."""

FEW_CHANGES = 12
"""Rows of the timetable up to which it is shown without being asked for."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What a simple engine makes of the same problem; ``objective`` is ``None`` where it found no plan."""

    engine: str
    objective: float | None


def print_plan(
    problem: Problem,
    plan: MigPlan,
    verification: Verification | None,
    console: Console,
    *,
    floors: Sequence[Floor] = (),
    notes: Sequence[tuple[str, str]] = (),
    all_changes: bool = False,
) -> None:
    """Print the plan's figures, its chart and its timetable; nothing but the reason where there is no plan.

    Args:
        problem: The problem.
        plan: Its plan.
        verification: What the independent check found; ``None`` where there was nothing to check.
        console: Where to print; its width sets the scale.
        floors: What to measure the plan against.
        notes: More to say beside its figures: a word and what stands behind it.
        all_changes: Print the timetable also where it is long.
    """
    console.print(
        f"[bold]{plan.status}[/] {problem.reconfiguration} plan by {escape(plan.engine)} on {problem.gpu.name}: "
        f"{plan.n_steps} step{'s' if plan.n_steps != 1 else ''} of {problem.step_s:g} s"
    )
    if plan.infeasibility is not None:
        console.print(f"  {escape(str(plan.infeasibility))}", soft_wrap=True)
    if not plan.status.has_plan:
        return
    console.print(_figures(problem, plan, verification, floors, notes))
    for violation in () if verification is None else verification.violations:
        console.print(f"[bold red]breaks[/] {escape(str(violation))}")
    if verification is None or verification.objective is not None:
        _print_over_time(problem, plan, console)
    _print_changes(problem, plan, console, all_changes=all_changes)


def _figures(
    problem: Problem,
    plan: MigPlan,
    verification: Verification | None,
    floors: Sequence[Floor],
    notes: Sequence[tuple[str, str]],
) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=True)
    most, objective = problem.most_goodput, plan.objective or 0.0
    share = f", {100 * objective / most:.2f} % of the {most:.2f} that arrive" if most > 0 else ""
    table.add_row("goodput", f"[bold]{objective:.2f}[/] requests expected{share}")
    if plan.bound is not None and plan.gap is not None:
        proof = "proven best" if plan.status is Status.OPTIMAL else f"gap {_percent(plan.gap)}"
        table.add_row("bound", f"{plan.bound:.2f}, which no plan exceeds: {proof}")
    table.add_row("solved", f"in {plan.solve_s:.2f} s{_work(plan)}")
    if verification is not None:
        table.add_row("checked", _checked(verification))
    for heading in ("beats", "equals", "short of"):
        some = [floor for floor in floors if _standing(floor, objective) == heading]
        if some:
            table.add_row(heading, ", ".join(_against(floor, objective) for floor in some))
    for word, text in notes:
        table.add_row(word, escape(text))
    return table


def _work(plan: MigPlan) -> str:
    done = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in plan.work)
    return f" ({escape(done)})" if done else ""


def _checked(verification: Verification) -> str:
    if not verification.is_valid:
        n = len(verification.violations)
        return f"[bold red]breaks {n} rule{'s' if n != 1 else ''}[/]"
    if verification.certified_gap is None:
        return "valid by every rule; the bound is the engine's word"
    return f"valid by every rule; its certificate proves a gap of {_percent(verification.certified_gap)}"


def _standing(floor: Floor, objective: float) -> str:
    if floor.objective is None:
        return "beats"
    if abs(objective - floor.objective) <= TOLERANCE * max(1.0, abs(floor.objective)):
        return "equals"
    return "beats" if objective > floor.objective else "short of"


def _against(floor: Floor, objective: float) -> str:
    if floor.objective is None:
        return f"{floor.engine}, which finds no plan"
    share = abs(objective / floor.objective - 1) if floor.objective else 0.0
    by = f" by {_percent(share)}" if share > TOLERANCE else ""
    return f"{floor.engine} {floor.objective:.2f}{by}"


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _print_over_time(problem: Problem, plan: MigPlan, console: Console) -> None:
    """The chart of what is held, then arrivals and capability of each tenant, on one time scale."""
    scale = TimeScale.within(plan.n_steps, console.width - _GUTTER)
    letters = tenant_letters(problem.tenant_names)
    chart = chart_of(problem, plan, letters)
    lines = gantt(chart.bars, len(chart.row_names), scale, letters)
    console.print()
    for name, line in zip(chart.row_names, lines, strict=True):
        _print_line(console, name, line)
    _print_line(console, "step", Text(scale.axis(), style="dim"))
    console.print(_legend(scale))
    for course, letter, colour in zip(courses(problem, plan), letters, COLOURS, strict=False):
        _print_tenant(problem, course, console, scale, f"[bold {colour}]{letter} {escape(course.tenant.name)}[/]")


def _legend(scale: TimeScale) -> Text:
    per_column = scale.n_steps / scale.width
    column = f"; 1 column = {per_column:.3g} steps" if per_column > 1 else ""
    return Text(f"  capital: serves, small: retrains, {WARMING} starts up, {IDLE} idle{column}", style="dim")


def _print_line(console: Console, name: str, line: Text, *, no_wrap: bool = True) -> None:
    console.print(
        Text(f"{name:>{_GUTTER - 1}} ").append_text(line), no_wrap=no_wrap, overflow="crop" if no_wrap else None
    )


def _print_tenant(problem: Problem, course: Course, console: Console, scale: TimeScale, title: str) -> None:
    tenant, share = course.tenant, course.share(problem.step_s)
    arrivals, capability = (scale.means(values) for values in (tenant.arrivals_rps, course.capability_rps))
    top = float(max(arrivals.max(), capability.max()))
    earned = f"{course.goodput.sum():.2f} requests{'' if share is None else f', {100 * share:.2f} % of arrivals'}"
    console.print(f"\n{title}  {earned}  [dim]█ is {top:.4g} requests/s[/]")
    if course.retraining is not None:
        _print_line(console, "retrains", Text(_retraining(course, course.retraining)), no_wrap=False)
    _print_line(console, "arrivals", Text(sparkline(arrivals, top)))
    _print_line(console, "capability", _capability_line(arrivals, capability, top))


def _retraining(course: Course, run: RetrainingCourse) -> str:
    before, after = course.tenant.accuracy_before, run.option.accuracy_after
    name = f"{run.option.name} on " if len(course.tenant.options) > 1 else ""
    trains = f", trains from {run.train_step}" if run.train_step > run.from_step else ""
    return f"{name}{run.where}, steps {run.from_step}–{run.to_step}{trains}, accuracy {before:.3f} → {after:.3f}"


def _capability_line(arrivals: FloatArray, capability: FloatArray, top: float) -> Text:
    """The sparkline of capability, red where fewer can be answered than arrive."""
    line = Text()
    for char, is_short in zip(sparkline(capability, top), capability < arrivals, strict=True):
        line.append(char, style="red" if is_short else "")
    return line


def _print_changes(problem: Problem, plan: MigPlan, console: Console, *, all_changes: bool) -> None:
    table = changes_table(problem, plan)
    if all_changes or table.row_count <= FEW_CHANGES:
        console.print(table)
    else:
        console.print(f"\n{table.row_count} changes; --changes lists them, --explain STEP says why", style="dim")
