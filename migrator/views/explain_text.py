"""An explanation for people: the step by tenant, then the layout held there against its best alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.views.strip import COLOURS, tenant_letters
from planner.explain.explain import HELD, Explanation

_LEAST_TEXT = 10
"""Columns below which names and layouts are not narrowed; figures are left out instead."""

_DISPENSABLE = ("can serve/s", "arrive/s", "accuracy", "retrains on")
"""Of a step's figures, those left out on a narrow terminal, the first named first."""


def print_explanation(found: Explanation, console: Console) -> None:
    """Print the step, the alternatives, and why the plan stays or changes."""
    console.print(f"\n[bold]Step {found.step}[/]")
    console.print(_step_table(found, console.width))
    n = found.n_compared
    console.print(
        f"[bold]What could be held in steps {found.from_step}–{found.to_step}[/], all else as in the plan: "
        f"{n} layout{'s' if n != 1 else ''} to choose from"
    )
    console.print(_choices_table(found, console.width))
    console.print(escape(found.reason))


def _letters(found: Explanation) -> tuple[str, ...]:
    return tenant_letters([tenant.name for tenant in found.tenants])


def _step_table(found: Explanation, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tenant", min_width=_LEAST_TEXT, overflow="fold")
    shown = _fitting(("retrains on", "arrive/s", "can serve/s", "accuracy", "goodput"), _DISPENSABLE, width - 14, 11)
    for heading in shown:
        table.add_column(heading, justify="left" if heading == "retrains on" else "right", no_wrap=True)
    for letter, tenant, colour in zip(_letters(found), found.tenants, COLOURS, strict=False):
        cells = {
            "retrains on": tenant.retraining or "",
            "arrive/s": f"{tenant.arrivals_rps:.1f}",
            "can serve/s": f"{tenant.capability_rps:.1f}",
            "accuracy": f"{tenant.accuracy:.3f}",
            "goodput": f"{tenant.goodput:.2f}",
        }
        table.add_row(f"{letter} {escape(tenant.name)}", *(cells[heading] for heading in shown), style=colour)
    return table


def _choices_table(found: Explanation, width: int) -> Table:
    caption = "goodput in requests, once everything serves; net: what is left of it, for others the difference"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("layout", min_width=_LEAST_TEXT, overflow="fold")
    step, stretch = f"step {found.step}", f"{found.from_step}–{found.to_step}"
    shown = _fitting((step, stretch, "switching", "net"), ("switching", step, stretch), width - 32, 12)
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in sorted((found.held, *found.alternatives), key=lambda choice: -choice.net):
        is_held = HELD in choice.roles
        cells = {
            step: f"{choice.step_goodput:.2f}",
            stretch: f"{choice.stretch_goodput:.2f}",
            "switching": f"{-choice.switching:.2f}" if choice.switching else "0",
            "net": f"{choice.net:.2f}" if is_held else f"{choice.net - found.held.net:+.2f}",
        }
        own = zip(_letters(found), choice.holds, COLOURS, strict=False)
        layout = Text("\n").join(Text(f"{letter} {_grouped(held)}", style=colour) for letter, held, colour in own)
        figures = (cells[heading] for heading in shown)
        table.add_row("\n".join(choice.roles), layout, *figures, style="bold" if is_held else "", end_section=True)
    return table


def _fitting(headings: Sequence[str], dispensable: Sequence[str], width: int, each: int) -> tuple[str, ...]:
    """The headings that fit into ``width`` at ``each`` columns; those named first in ``dispensable`` go first."""
    n_dropped = max(0, len(headings) - max(width, 0) // each)
    return tuple(heading for heading in headings if heading not in dispensable[:n_dropped])


def _grouped(held: Sequence[str]) -> str:
    """Profiles that are held more than once with their number; placements as they are."""
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in Counter(held).items())
