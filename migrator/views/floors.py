"""Floors of in-time answers for people: what a plan misses, and what it pays."""

from __future__ import annotations

from collections.abc import Sequence

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
