"""What was assumed, in a few lines: alike figures of several tenants in one, the complete list in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_LINES = 6
"""Beyond it the rest is a number."""


def assumed_lines(assumed: Sequence[Mapping[str, Any]], *, left_out: Sequence[str] = ()) -> list[str]:
    """A line for each kind of figure and source: whose, its value and where that comes from.

    ``assumed`` is as in a log's header; of kinds that are ``left_out`` nothing is said, because it is said elsewhere.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for item in assumed:
        if item["what"] not in left_out:
            whose = f"{item['tenant']} " if item["tenant"] else ""
            groups.setdefault((item["what"], item["source"]), []).append(whose + _value_text(item))
    lines = [f"{what}: {', '.join(values)}; {source}" for (what, source), values in groups.items()]
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} kinds more, which --json has"]


def _value_text(item: Mapping[str, Any]) -> str:
    unit = f" {item['unit']}" if item["unit"] else ""
    value = item["value"]
    if not isinstance(value, Mapping):
        return f"{value:.3g}{unit}"
    low, high = min(value.values()), max(value.values())
    return f"{low:.3g}{unit}" if low == high else f"{low:.3g}–{high:.3g}{unit}"
