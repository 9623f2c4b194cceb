"""What several views say in the same words: goals, what was assumed, floors of in-time answers, surprising windows.

Each is a few lines; JSON has the complete lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from migrator.log.records import Assumed
from migrator.log.surprise import Surprise
from migrator.terminal.console import escape

if TYPE_CHECKING:  # a report without goals should not wait for the module's imports
    from migrator.log.report import Percentile
    from migrator.whatif.goals import Goal

MOST_LINES = 6
"""Lines of what was assumed, unless all are asked for."""

_FIRST = ("pools", "accuracy", "worker start", "retraining start", "retraining time")
"""How the kinds begin that weigh most in a plan; they have a line of their own whatever else there is."""


def print_goals(goals: Iterable[Goal], console: Console) -> None:
    """Print what was to be kept, a line each: whether it was, and what was counted."""
    for goal in goals:
        console.print(escape(_goal_line(goal)), style="bold green" if goal.is_kept else "bold red", soft_wrap=True)


def latency_text(found: Percentile) -> str:
    """A percentile of latency in milliseconds; where it falls on a request that was never answered, that it is over."""
    return f"{found.ms:,}" if found.ms is not None else "> SLO" if found.is_over_slo else "–"


def _goal_line(goal: Goal) -> str:
    mark, word = ("✓", "kept") if goal.is_kept else ("✗", "missed")
    if goal.reason is not None or goal.share is None:
        return f"{mark} {goal.condition} {word}: {goal.reason}"
    requests = f"{goal.requests:,} request{'s' if goal.requests != 1 else ''}"
    simulated = ", simulated" if goal.is_simulated else ""
    return f"{mark} {goal.condition} {word}: {share_text(goal.share, goal.condition.share)} of {requests}{simulated}"


def share_text(share: float, asked_share: float) -> str:
    """The share in percent, with as many digits as tell it from what was asked for."""
    texts = [f"{100 * share:.{digits}f}" for digits in range(1, 7)]
    asked = 100 * asked_share
    return next((text for text in texts if (float(text) == asked) == (100 * share == asked)), texts[-1]) + " %"


def assumed_lines(assumed: Sequence[Assumed], *, left_out: Sequence[str] = (), most: int = MOST_LINES) -> list[str]:
    """What was assumed, in a line for each kind of figure and source: whose, its value and where that comes from.

    Of kinds that are ``left_out`` nothing is said, because it is said elsewhere. Beyond ``most`` lines the rest is
    named, without values.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for item in assumed:
        if item.what not in left_out:
            whose = f"{item.tenant} " if item.tenant else ""
            groups.setdefault((item.what, item.source), []).append(whose + _value_text(item))
    kinds = sorted(groups, key=lambda kind: not kind[0].startswith(_FIRST))
    lines = [f"{what}: {', '.join(groups[what, source])}; {source}" for what, source in kinds]
    n_told = max(most - 1, sum(what.startswith(_FIRST) for what, _ in kinds))
    if len(lines) <= max(most, n_told):
        return lines
    rest = dict.fromkeys(what for what, _ in kinds[n_told:])
    return [*lines[:n_told], f"and {', '.join(rest)}; --json has the values"]


def _value_text(item: Assumed) -> str:
    unit = f" {item.unit}" if item.unit else ""
    value = item.value
    if not isinstance(value, Mapping):
        return f"{value:,.3g}{unit}"
    low, high = min(value.values()), max(value.values())
    return f"{low:,.3g}{unit}" if low == high else f"{low:,.3g}–{high:,.3g}{unit}"


_LEAST_TOLD = 5e-5
"""Share of the requests below which a cost is none in two digits of points."""


def floors_in_words(missed: Sequence[str], floor_costs: float | None, keeping_costs: float | None) -> str | None:
    """Which floors a plan misses, and what they cost and would cost; ``None`` where there is nothing to tell.

    Args:
        missed: As :class:`~planner.plan.MigPlan` has it, and so are the others.
        floor_costs: What the plan costs.
        keeping_costs: What one costs that keeps all floors.
    """
    pays = None if floor_costs is None else f"pays {100 * floor_costs:.2f} points of goodput for floors"
    if not missed:
        return pays if floor_costs is not None and floor_costs >= _LEAST_TOLD else None
    lacks = f"misses {'; '.join(missed)}"
    if pays is None:
        return lacks
    if keeping_costs is None:
        return f"{lacks}; {pays}, and no plan was found that keeps them all"
    return f"{lacks}; {pays}, and would pay {100 * keeping_costs:.2f} to keep them all"


MOST_SURPRISES = 4
"""Lines of them. Beyond it the rest is a number; the largest differences have lines."""


def surprise_lines(surprises: Sequence[Surprise]) -> list[str]:
    """Windows that came out far from their plans, a line each, in their order; those of all tenants before one's."""
    if len(surprises) <= MOST_SURPRISES:
        return [str(item) for item in surprises]
    ranked = sorted(surprises, key=lambda item: (item.tenant is not None, -abs(item.points)))[: MOST_SURPRISES - 1]
    told = [str(item) for item in surprises if item in ranked]
    return [*told, f"and {len(surprises) - len(told)} more, which --json has"]
