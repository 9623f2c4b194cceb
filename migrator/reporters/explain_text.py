"""An explanation for people: the step by tenant, then the layout held there against its best alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migrator.reporters.strip import COLOURS, tenant_letters
from planner.explain import HELD, Choice, Explanation


def print_explanation(found: Explanation, console: Console) -> None:
    """Print the step, the alternatives, and why the plan stays or changes."""
    console.print(f"\n[bold]Step {found.step}[/]")
    console.print(_step_table(found))
    n = found.n_compared
    console.print(
        f"[bold]What could be held in steps {found.from_step}–{found.to_step}[/], all else as in the plan: "
        f"{n} layout{'s' if n != 1 else ''} to choose from"
    )
    console.print(_choices_table(found))
    console.print(escape(found.reason))


def _letters(found: Explanation) -> tuple[str, ...]:
    return tenant_letters([tenant.name for tenant in found.tenants])


def _step_table(found: Explanation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("tenant", "retrains on", "arrive/s", "can serve/s", "accuracy", "goodput"):
        is_text = heading in ("tenant", "retrains on")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading != "tenant")
    for letter, tenant, colour in zip(_letters(found), found.tenants, COLOURS, strict=False):
        table.add_row(
            f"{letter} {escape(tenant.name)}",
            tenant.retraining or "",
            f"{tenant.arrivals_rps:.1f}",
            f"{tenant.capability_rps:.1f}",
            f"{tenant.accuracy:.3f}",
            f"{tenant.goodput:.2f}",
            style=colour,
        )
    return table


def _choices_table(found: Explanation) -> Table:
    caption = "goodput in requests, once everything serves; net: what is left of it, for others the difference"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("")
    table.add_column("layout")
    for heading in (f"step {found.step}", f"{found.from_step}–{found.to_step}", "switching", "net"):
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in sorted((found.held, *found.alternatives), key=lambda choice: -choice.net):
        table.add_row(*_cells(found, choice), style="bold" if HELD in choice.roles else "", end_section=True)
    return table


def _cells(found: Explanation, choice: Choice) -> tuple[str | Text, ...]:
    """A row; what others are worth is told as the difference from what the plan holds."""
    own = zip(_letters(found), choice.holds, COLOURS, strict=False)
    layout = Text("\n").join(Text(f"{letter} {_grouped(held)}", style=colour) for letter, held, colour in own)
    is_held = HELD in choice.roles
    return (
        "\n".join(choice.roles),
        layout,
        f"{choice.step_goodput:.2f}",
        f"{choice.stretch_goodput:.2f}",
        f"{-choice.switching:.2f}" if choice.switching else "0",
        f"{choice.net:.2f}" if is_held else f"{choice.net - found.held.net:+.2f}",
    )


def _grouped(held: Sequence[str]) -> str:
    """Profiles that are held more than once with their number; placements as they are."""
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in Counter(held).items())
