"""``window``: the best fixed layout of each window, from its forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from planner.plan import MigPlan
from planner.policies.policy import Knows, Window
from planner.problem import Problem
from planner.solve import solve


@dataclass(frozen=True)
class FixedByWindow:
    """Changes the layout at the start of a window and then leaves it, retrainings beside it.

    Source: the obvious thing to do with MIG, whose layouts are slow to change. Knows: the forecast. The layout, and
    when and where retrainings run beside it, are the best of the kind (engine ``static``).
    """

    name: str = "window"
    knows: Knows = Knows.FORECAST

    def prepared(self, run: Sequence[Problem]) -> Self:  # noqa: ARG002 (it plans window by window)
        """Itself."""
        return self

    def plan(self, window: Window) -> MigPlan:
        """The best plan with at most one change, at the window's start."""
        return solve(window.problem, "static", window.budget)
