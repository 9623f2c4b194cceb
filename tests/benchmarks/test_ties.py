"""The table of what plans lose by what they leave idle, from runs that are made up."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.ties import Came, Case, Row, table_of, verdicts


def row(config: str, *goodput_pct: tuple[float, float], load: float | None = 0.35) -> Row:
    """With these runs of ours and of static."""
    ours, static = zip(*goodput_pct, strict=True)
    case = Case(Path(f"{config}.yaml"), load, 1)
    return Row(
        case, [Came(own, 100000.0, 25000.0, 12.0) for own in ours], [Came(own, 0.0, 0.0, 12.0) for own in static]
    )


def test_interval_is_of_the_differences_by_seed() -> None:
    ahead, half = row("w1", (81.0, 80.0), (72.0, 70.0), (63.0, 60.0)).ahead
    assert ahead == pytest.approx(2.0)
    assert half == pytest.approx(4.303 * 1.0 / 3.0**0.5, rel=1e-3)  # Student's t of two degrees of freedom


def test_table_is_whole_at_80_columns() -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table_of([row("quickstart", (100.0, 89.99), (90.0, 100.0)), row("mine", (1.0, 2.0), load=None)]))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    shown = [line.split() for line in lines if "quickstart" in line or "config" in line]
    assert shown[0] == ["config", "load", "%", "%", "ahead", "±", "changes", "static's", "dropped", "idle", "%"]
    assert shown[1] == ["quickstart", "0.35", "95.00", "95.00", "+0.005", "127.126", "12.0", "12.0", "200000", "25.0"]


def test_a_row_is_behind_only_beyond_its_interval() -> None:
    behind = [row("w1", (80.0, 80.3), (80.0, 80.31)), row("w2", (80.0, 80.0), (80.0, 81.0))]
    assert "interval lies below −0.1: 1, whose mean does: 2;" in " ".join(verdicts(behind))
