"""``static``: the best layout for the whole run, in hindsight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from planner.engines.static import best_held_set, solve_static_among
from planner.errors import EngineError
from planner.plan import MigPlan
from planner.policies.policy import Knows, Window
from planner.problem import Problem


@dataclass(frozen=True)
class FixedInHindsight:
    """Holds one layout from the first second to the last: the one that the whole run's arrivals favour.

    Source: the usual deployment of MIG, given more than anybody has: the true arrivals of all windows, and the best
    retrainings beside the layout in each. Knows: the run.

    Attributes:
        held_set: The layout with its owners, by its number among all held sets.
    """

    name: str = "static"
    knows: Knows = Knows.RUN
    held_set: int | None = None

    def prepared(self, run: Sequence[Problem]) -> Self:
        """With the layout that all windows together gain most from.

        Raises:
            EngineError: No layout has room for every window's retrainings.
        """
        held_set = best_held_set(run)
        if held_set is None:
            raise EngineError(f"{self.name}: no fixed layout has room for the retrainings of every window")
        return replace(self, held_set=held_set)

    def plan(self, window: Window) -> MigPlan:
        """The best retrainings beside the layout."""
        assert self.held_set is not None  # who knows the run is prepared with it
        return solve_static_among(window.problem, [self.held_set])
