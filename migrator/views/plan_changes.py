"""A plan's timetable: a row for each span (``paper``) or each step at which something changes (``physical``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import assert_never

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from executor.mig import OwnedLayout
from migrator.views.strip import COLOURS, layout_strip, tenant_letters
from planner.plan import Lifetime, MigPlan
from planner.problem import Owner, Problem, Reconfiguration, Task


def changes_table(problem: Problem, plan: MigPlan) -> Table:
    """The timetable of a plan that exists."""
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            return _paper_table(plan)
        case Reconfiguration.PHYSICAL:
            return _physical_table(problem, plan)
        case _:
            assert_never(problem.reconfiguration)


def _paper_table(plan: MigPlan) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
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
    """A row for each step at which something changes: the slices, what starts, what ends."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("step", "slices", "starts", "ends"):
        table.add_column(heading, justify="right" if heading == "step" else "left")
    moments = {item.create_step for item in plan.lifetimes} | {item.end_step for item in plan.lifetimes}
    for step in sorted(moment for moment in moments if moment < plan.n_steps):
        alive = [item for item in plan.lifetimes if item.create_step <= step < item.end_step]
        layout = OwnedLayout.of((item.placement, item.owner) for item in alive)
        table.add_row(
            str(step),
            layout_strip(layout, problem.tenant_names, problem.gpu.memory_slices),
            _by_owner(problem, [item for item in alive if item.create_step == step], _ready),
            _by_owner(problem, [item for item in plan.lifetimes if item.end_step == step], lambda _: ""),
        )
    return table


def _ready(item: Lifetime) -> str:
    if not item.is_inference:
        return f" until {item.end_step}"
    return f" from {item.serve_step}" if item.serve_step > item.create_step else ""


def _by_owner(problem: Problem, items: Sequence[Lifetime], note: Callable[[Lifetime], str]) -> Text:
    """A line for each owner: its letter, a small one where it retrains, its placements, and the note on them."""
    lines: dict[tuple[Owner, str], list[str]] = {}
    for item in sorted(items, key=lambda item: item.owner):
        lines.setdefault((item.owner, note(item)), []).append(str(item.placement))
    letters, found = tenant_letters(problem.tenant_names), []
    for (owner, words), placements in lines.items():
        index = problem.tenant_names.index(owner.tenant)
        letter = letters[index] if owner.task is Task.INFERENCE else letters[index].lower()
        found.append(Text(f"{letter} {' '.join(placements)}{words}", style=COLOURS[index]))
    return Text("\n").join(found)
