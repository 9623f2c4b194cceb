"""Rows of a split held over some windows, and sentences about which split is best: shared by Figures 2 and 4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workloads.serving.tally import Totals

W7 = Path(__file__).parents[2] / "configs" / "w7.yaml"
"""Inception and ResNet-50 with NC-CIFAR-10, the two models of the paper's motivation."""

Row = dict[str, object]
Study = dict[str, object]

ALL_WINDOWS = "all"
"""Instead of a window's number, from 1: all of them together."""


def by_window(totals: Sequence[Totals]) -> list[tuple[int | str, Totals]]:
    """Each window's totals with its number from 1, as the paper counts, and those of all together."""
    return [*enumerate(totals, 1), (ALL_WINDOWS, sum(totals, Totals()))]


def counted(totals: Totals) -> Row:
    """The counts, and the percentages that follow from them."""
    shares = (totals.slo_attainment_pct, totals.accuracy_pct, totals.goodput_pct)
    slo, accuracy, goodput = (None if share is None else round(share, 2) for share in shares)
    return {
        "arrivals": totals.arrivals,
        "in_time": totals.in_time,
        "late": totals.late,
        "dropped": totals.dropped,
        "correct": totals.correct,
        "correct_late": totals.correct_late,
        "slo_pct": slo,
        "accuracy_pct": accuracy,
        "goodput_pct": goodput,
    }


def printed(by_number: Sequence[float | None], window: int | str) -> float | None:
    """What the paper prints for the window; of all together it prints nothing."""
    return by_number[window - 1] if isinstance(window, int) else None


def windows_first(rows: Sequence[Row]) -> list[Row]:
    """The rows window by window, the splits of each in their order."""
    windows = list(dict.fromkeys(row["window"] for row in rows))
    return sorted(rows, key=lambda row: windows.index(row["window"]))


def best_in_each(rows: Sequence[Row], key: str, named: str) -> str:
    """A sentence: which split has the highest ``key`` in each window where it is known."""
    parts = []
    for window in dict.fromkeys(row["window"] for row in rows):
        values = dict(_known((row for row in rows if row["window"] == window), key))
        if values:
            split = max(values, key=values.__getitem__)
            where = "all together" if window == ALL_WINDOWS else f"window {window}"
            parts.append(f"{split} in {where} ({values[split]:.2f} %)")
    return f"{named} is highest with {', '.join(parts)}."


def of_all(rows: Sequence[Row], key: str) -> dict[str, float]:
    """``key`` of all windows together, by split."""
    return dict(_known((row for row in rows if row["window"] == ALL_WINDOWS), key))


def _known(rows: Iterator[Mapping[str, object]], key: str) -> Iterator[tuple[str, float]]:
    for row in rows:
        value = row[key]
        if isinstance(value, (int, float)):
            yield str(row["split"]), float(value)
