"""``migrator``: this product as it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from planner.plan import MigPlan
from planner.policies.policy import Knows, Window
from planner.problem import Problem
from planner.solve import solve


@dataclass(frozen=True)
class Migrator:
    """Plans each window with the engine ``physical``: placements, real transition costs, pre-initialisation.

    Source: this product; the idea of a goodput program over MIG layouts and retrainings is MIGRator's (its section 4).
    Knows: the forecast, estimates of accuracy and retraining time. Adaptations: none.
    """

    name: str = "migrator"
    knows: Knows = Knows.FORECAST

    def prepared(self, run: Sequence[Problem]) -> Self:  # noqa: ARG002 (it plans window by window)
        """Itself."""
        return self

    def plan(self, window: Window) -> MigPlan:
        """The best plan within the budget."""
        return solve(window.problem, "physical", window.budget)
