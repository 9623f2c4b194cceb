"""What was assumed, in a few lines: alike figures of several tenants in one, the complete list in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.log.records import Assumed

MOST_LINES = 6
"""Beyond it the rest is named, without values."""

_FIRST = ("accuracy", "worker start", "retraining start", "retraining time")
"""How the kinds begin that weigh most in a plan; they have a line of their own whatever else there is."""


def assumed_lines(assumed: Sequence[Assumed], *, left_out: Sequence[str] = ()) -> list[str]:
    """A line for each kind of figure and source: whose, its value and where that comes from.

    Of kinds that are ``left_out`` nothing is said, because it is said elsewhere.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for item in assumed:
        if item.what not in left_out:
            whose = f"{item.tenant} " if item.tenant else ""
            groups.setdefault((item.what, item.source), []).append(whose + _value_text(item))
    kinds = sorted(groups, key=lambda kind: not kind[0].startswith(_FIRST))
    lines = [f"{what}: {', '.join(groups[what, source])}; {source}" for what, source in kinds]
    n_told = max(MOST_LINES - 1, sum(what.startswith(_FIRST) for what, _ in kinds))
    if len(lines) <= max(MOST_LINES, n_told):
        return lines
    rest = dict.fromkeys(what for what, _ in kinds[n_told:])
    return [*lines[:n_told], f"and {', '.join(rest)}; --json has the values"]


def _value_text(item: Assumed) -> str:
    unit = f" {item.unit}" if item.unit else ""
    value = item.value
    if not isinstance(value, Mapping):
        return f"{value:.3g}{unit}"
    low, high = min(value.values()), max(value.values())
    return f"{low:.3g}{unit}" if low == high else f"{low:.3g}–{high:.3g}{unit}"
