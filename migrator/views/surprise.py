"""Windows that came out far from their plans, in a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.log.surprise import Surprise

MOST_LINES = 4
"""Beyond it the rest is a number; the largest differences are told."""


def surprise_lines(surprises: Sequence[Surprise]) -> list[str]:
    """A line each, in the order of windows; those of all tenants before those of one."""
    if len(surprises) <= MOST_LINES:
        return [str(item) for item in surprises]
    ranked = sorted(surprises, key=lambda item: (item.tenant is not None, -abs(item.points)))[: MOST_LINES - 1]
    told = [str(item) for item in surprises if item in ranked]
    return [*told, f"and {len(surprises) - len(told)} more, which --json has"]
