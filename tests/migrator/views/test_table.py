"""A figure is the same for people and programs, and names and numbers stay whole, whatever the width."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from migrator.views.table import WORDS, Column, Sheet, in_json, named, stacked

ROW = {"a long name": "0 1 2 3 4 5 6", "figure": "123456.78", "other": "9.99"}

TEXTS: Sheet[dict[str, str]] = Sheet(
    [
        Column("name", get=lambda _: "tenant", layout=WORDS),
        *(Column(name, get=lambda row, name=name: row[name], heading=name, layout={"no_wrap": True}) for name in ROW),
    ],
    [[ROW]],
    spare=("other", "a long name"),
)


@dataclass(frozen=True)
class Served:
    """A row."""

    tenant: str
    n: int
    share: float | None
    before: Served | None = None


N: Column[Served] = Column("requests", "n")
SHARE: Column[Served] = Column("share", "share", "%", factor=100)
EVIL = "[red]\x1b[31m\nx"


def printed(width: int) -> tuple[str, list[str]]:
    console = Console(file=StringIO(), width=width)
    table, left_out = TEXTS.fitted(console)
    console.print(table)
    return console.file.getvalue(), left_out


@pytest.mark.parametrize("width", range(24, 81))
def test_no_cell_that_is_shown_is_cut(width: int) -> None:
    text, left_out = printed(width)
    assert "…" not in text
    assert all(ROW[heading] in text for heading in ROW if heading not in left_out)


def test_where_there_is_room_nothing_is_left_out() -> None:
    assert printed(80)[1] == []


def test_what_is_least_needed_goes_first() -> None:
    assert printed(40)[1] == ["other"]
    assert printed(26)[1] == ["a long name", "other"]


@pytest.mark.parametrize(("width", "last"), [(80, ""), (40, "left out for want of width: other; --json has them")])
def test_what_is_left_out_is_named(width: int, last: str) -> None:
    console = Console(file=StringIO(), width=width)
    TEXTS.print(console)
    assert " ".join(console.file.getvalue().partition("123456.78")[2].replace("9.99", "").split()) == last


def test_a_heading_is_stacked_in_short_lines() -> None:
    assert stacked("wrong old") == "wrong\nold"
    assert stacked("capacity and reconfiguration") == "capa-\ncity\nand\nrecon-\nfigu-\nration"


def test_programs_get_what_people_see_with_all_its_digits() -> None:
    row = Served("a", 12345, 0.123456)
    assert in_json((N, SHARE), row) == {"n": 12345, "share": 0.123456}
    assert [(column.title, column.shown(row)) for column in (N, SHARE)] == [
        ("requests", "12,345"),
        ("share %", "12.35"),
    ]


def test_what_is_unknown_is_null_and_a_dash() -> None:
    row = Served("a", 0, None)
    assert (SHARE.value(row), SHARE.shown(row)) == (None, "–")


def test_a_figure_of_a_part_is_nothing_where_there_is_no_part() -> None:
    before = SHARE.of(lambda row: row.before)
    alone, later = Served("a", 1, 0.5), Served("a", 1, 0.75, Served("a", 1, 0.25))
    assert [(before.value(row), before.shown(row)) for row in (alone, later)] == [(None, ""), (0.25, "25.00")]


def test_columns_are_named_in_the_order_asked_for() -> None:
    assert named((N, SHARE), ("share", "requests")) == [SHARE, N]


def test_texts_of_rows_are_no_markup_and_act_on_nothing_but_those_of_rich() -> None:
    console = Console(file=StringIO(), width=60, force_terminal=True, color_system="truecolor")
    two: Column[Served] = Column("two", text=lambda _: Text("one\ntwo"))
    console.print(Sheet([Column("tenant", "tenant", mark=lambda _: "bold"), two], [[Served(EVIL, 1, 1.0)]]).drawn())
    text = console.file.getvalue()
    assert "\x1b[1m[red]\\x1b[31m\\nx\x1b[0m" in text
    assert [line.split()[-1] for line in text.splitlines() if line.split()[-1:] in (["one"], ["two"])] == ["one", "two"]
