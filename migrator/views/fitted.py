"""Tables that keep names and numbers whole on a narrow terminal: columns are left out instead, and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_BOUNDLESS = 10_000
"""Columns of a console on which every table fits, to measure a table's own width."""

_DIVIDED = {
    "accuracy": "accu-racy",
    "capacity": "capa-city",
    "forecast": "fore-cast",
    "reconfiguration": "recon-figu-ration",
}


def fitted(
    build: Callable[[Sequence[str]], Table], headings: Sequence[str], dispensable: Sequence[str], console: Console
) -> tuple[Table, tuple[str, ...]]:
    """The table with as many of ``headings`` as fit on ``console``, and those left out, in the order of ``headings``.

    ``build`` makes the table with the headings that it is given. Of ``dispensable`` the first goes first. What is not
    among them stays, also on a console that is too narrow for it.
    """
    for n_gone in range(len(dispensable) + 1):
        kept = [name for name in headings if name not in dispensable[:n_gone]]
        table = build(kept)
        _keep_whole(table)
        if console.measure(table, options=console.options.update(width=_BOUNDLESS)).minimum <= console.width:
            break
    return table, tuple(name for name in headings if name not in kept)


def print_fitted(
    build: Callable[[Sequence[str]], Table], headings: Sequence[str], dispensable: Sequence[str], console: Console
) -> None:
    """Print the table that :func:`fitted` makes, and what is left out of it."""
    table, left_out = fitted(build, headings, dispensable, console)
    console.print(table)
    if left_out:
        console.print(f"left out for want of width: {', '.join(left_out)}; --json has them", style="dim")


def _keep_whole(table: Table) -> None:
    """Give columns that do not wrap the width of their longest line, which rich would cut otherwise."""
    for column in table.columns:
        if column.no_wrap:
            cells = (column.header, *column.cells)
            texts = [cell if isinstance(cell, Text) else Text.from_markup(str(cell)) for cell in cells]
            column.min_width = max(cell_len(line) for text in texts for line in (text.plain.splitlines() or [""]))


def stacked(heading: str) -> str:
    """The heading with one word a line, and long words divided, for a narrow column."""
    return "\n".join(_DIVIDED.get(word, word).replace("-", "-\n") for word in heading.split())
