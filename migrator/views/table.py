"""Tables as values: a figure is described once, and terminals, pages, JSON, CSV and frames show it.

On a narrow terminal names and numbers stay whole: columns are left out instead, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.terminal.console import escape

Row = TypeVar("Row")
Whole = TypeVar("Whole")

WORDS: Mapping[str, Any] = {"justify": "left", "overflow": "fold", "no_wrap": False}
NAME: Mapping[str, Any] = {**WORDS, "min_width": 6}
"""For the ``layout`` of a terminal's column of texts; names are not folded below these columns."""

_BOUNDLESS = 10_000
"""Columns of a console on which every table fits, to measure a table's own width."""

_DIVIDED = {
    "accuracy": "accu-racy",
    "capacity": "capa-city",
    "forecast": "fore-cast",
    "reconfiguration": "recon-figu-ration",
}


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A figure of the rows of a table.

    Attributes:
        name: What people call it; empty where programs alone have it.
        key: Its field in JSON and frames, and its column in CSV; empty where they do not have it.
        unit: Written behind the name.
        form: How a number is written, as in a format string; by default whole ones are, and others have two digits.
        get: The figure of a row as programs have it, ``None`` where it is unknown; by default the attribute ``key``.
        factor: Times which people see it; 100 turns a share into per cent.
        unknown: What stands for ``None``.
        text: What people see of a row, where ``form`` cannot say it; only rich's texts have styles and several lines.
        heading: Of a terminal's column, as markup; by default name and unit, one word a line.
        mark: The style of a row's cell in a terminal.
        layout: Of a terminal's column, as rich has it.
    """

    name: str
    key: str = ""
    unit: str = ""
    form: str = ""
    get: Callable[[Row], Any] | None = None
    factor: int = 1
    unknown: str = "–"
    text: Callable[[Row], str | Text] | None = None
    heading: str | None = None
    mark: Callable[[Row], str] | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name and unit, for the heading of a page's column."""
        return f"{self.name} {self.unit}".strip()

    def value(self, row: Row) -> Any:
        """The figure of a row as programs have it."""
        return getattr(row, self.key) if self.get is None else self.get(row)

    def shown(self, row: Row) -> str | Text:
        """What people see of a row."""
        if self.text is not None:
            return self.text(row)
        value = self.value(row)
        if isinstance(value, int | float):
            return format(self.factor * value, self.form or ("," if isinstance(value, int) else ",.2f"))
        return self.unknown if value is None else str(value)

    def of(self, part: Callable[[Whole], Row | None]) -> Column[Whole]:
        """The same figure of a part of other rows; nothing where a row lacks that part."""

        def get(whole: Whole) -> Any:
            return None if (row := part(whole)) is None else self.value(row)

        def text(whole: Whole) -> str | Text:
            return "" if (row := part(whole)) is None else self.shown(row)

        own: Column[Any] = self
        return replace(own, get=get, text=text, mark=None)


def named(columns: Iterable[Column[Row]], names: Iterable[str]) -> list[Column[Row]]:
    """The columns of these names, in the order of the names."""
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in names]


def in_json(columns: Iterable[Column[Row]], row: Row) -> dict[str, Any]:
    """The row's fields, in the order of the columns."""
    return {column.key: column.value(row) for column in columns if column.key}


@dataclass(frozen=True, slots=True)
class Sheet(Generic[Row]):
    """A table in a terminal.

    Attributes:
        columns: Its figures.
        sections: Its rows, in groups.
        style: That of a row.
        spare: Names of columns that a narrow terminal does without, the first named first.
        layout: What is the same of all columns unless they say otherwise, as rich has it.
        frame: Of the table, as rich has it.
    """

    columns: Sequence[Column[Row]]
    sections: Sequence[Sequence[Row]]
    style: Callable[[Row], str | None] = lambda _: None
    spare: Sequence[str] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    frame: Mapping[str, Any] = field(default_factory=dict)

    def drawn(self, n_spared: int = 0) -> Table:
        """The table without the first so many columns that can be spared."""
        shown = [column for column in self.columns if column.name not in self.spare[:n_spared]]
        table = Table(**{"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False, **self.frame})
        for column in shown:
            heading = stacked(escape(column.title)) if column.heading is None else column.heading
            table.add_column(heading, **{"justify": "right", **self.layout, **column.layout})
        for rows in self.sections:
            for row in rows:
                table.add_row(*(_cell(column, row) for column in shown), style=self.style(row))
            table.add_section()
        return table

    def fitted(self, console: Console) -> tuple[Table, list[str]]:
        """The table with as many columns as fit on ``console``, and the names of those left out.

        What cannot be spared stays, also on a console that is too narrow for it.
        """
        for n_spared in range(len(self.spare) + 1):
            table = self.drawn(n_spared)
            _keep_whole(table)
            if console.measure(table, options=console.options.update(width=_BOUNDLESS)).minimum <= console.width:
                break
        return table, [column.name for column in self.columns if column.name in self.spare[:n_spared]]

    def print(self, console: Console) -> None:
        """Print the table as it fits, and what is left out of it."""
        table, left_out = self.fitted(console)
        console.print(table)
        if left_out:
            console.print(f"left out for want of width: {', '.join(left_out)}; --json has them", style="dim")


def _cell(column: Column[Row], row: Row) -> str | Text:
    shown = column.shown(row)
    if isinstance(shown, Text):
        return shown
    text = escape(shown)
    mark = None if column.mark is None else column.mark(row)
    return f"[{mark}]{text}[/]" if mark else text


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
