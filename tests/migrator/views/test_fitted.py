"""Names and numbers stay whole, whatever the width."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from migrator.views.fitted import fitted, print_fitted, stacked

ROW = {"a long name": "0 1 2 3 4 5 6", "figure": "123456.78", "other": "9.99"}


def build(shown: Sequence[str]) -> Table:
    table = Table("name")
    for heading in shown:
        table.add_column(heading, no_wrap=True)
    table.add_row("tenant", *(ROW[heading] for heading in shown))
    return table


def printed(width: int) -> tuple[str, tuple[str, ...]]:
    console = Console(file=StringIO(), width=width)
    table, left_out = fitted(build, tuple(ROW), ("other", "a long name"), console)
    console.print(table)
    return console.file.getvalue(), left_out


@pytest.mark.parametrize("width", range(24, 81))
def test_no_cell_that_is_shown_is_cut(width: int) -> None:
    text, left_out = printed(width)
    assert "…" not in text
    assert all(ROW[heading] in text for heading in ROW if heading not in left_out)


def test_where_there_is_room_nothing_is_left_out() -> None:
    assert printed(80)[1] == ()


def test_what_is_least_needed_goes_first() -> None:
    assert printed(44)[1] == ("other",)
    assert printed(30)[1] == ("a long name", "other")


@pytest.mark.parametrize(("width", "last"), [(80, ""), (44, "left out for want of width: other; --json has them")])
def test_what_is_left_out_is_named(width: int, last: str) -> None:
    console = Console(file=StringIO(), width=width)
    print_fitted(build, tuple(ROW), ("other", "a long name"), console)
    assert " ".join(console.file.getvalue().rpartition("┘")[2].split()) == last


def test_a_heading_is_stacked_in_short_lines() -> None:
    assert stacked("wrong old") == "wrong\nold"
    assert stacked("capacity and reconfiguration") == "capa-\ncity\nand\nrecon-\nfigu-\nration"
