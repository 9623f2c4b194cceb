"""Tables that keep names and numbers whole on a narrow terminal: columns are left out instead, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Column, Table
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
    options = console.options.update(width=_BOUNDLESS)
    gone: set[str] = set()
    for heading in (None, *dispensable):
        gone |= {heading} & set(headings) if heading is not None else set()
        table = build([name for name in headings if name not in gone])
        _keep_whole(table)
        if console.measure(table, options=options).minimum <= console.width:
            break
    return table, tuple(name for name in headings if name in gone)


def _keep_whole(table: Table) -> None:
    """Give columns that do not wrap the width of their longest line, which rich would cut otherwise."""
    for column in table.columns:
        if column.no_wrap:
            texts = [cell if isinstance(cell, Text) else Text.from_markup(str(cell)) for cell in _cells_of(column)]
            column.min_width = max(cell_len(line) for text in texts for line in (text.plain.splitlines() or [""]))


def _cells_of(column: Column) -> Iterator[RenderableType]:
    yield column.header
    yield from column.cells


def stacked(heading: str) -> str:
    """The heading with one word a line, and long words divided, for a narrow column."""
    return "\n".join(_DIVIDED.get(word, word).replace("-", "-\n") for word in heading.split())


def left_out_text(left_out: Sequence[str]) -> str:
    """What to say of columns that are not there."""
    return f"left out for want of width: {', '.join(left_out)}; --json has them"
