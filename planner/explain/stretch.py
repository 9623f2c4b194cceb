"""The layouts that could be held over a stretch of a plan, with what changing to and from them costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.counts import IntArray
from planner.problem import FloatArray

HELD, BEFORE, AFTER = "held", "before", "after"
"""Roles of a layout: held by the plan over the stretch, just before it, just after it."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Layouts for the steps ``[from_step, to_step)`` of a plan that stays the same elsewhere.

    Attributes:
        from_step: First step compared.
        to_step: End of the steps compared.
        columns: Each tenant's column of its gain table once everything serves, ``(n, n_tenants)``.
        switching: Goodput that changing to it and from it takes away, ``(n,)``.
        roles: Row by role; ``before`` and ``after`` are missing where there is none or it does not fit.
        is_change: Whether the plan itself changes the layout at ``from_step``.
        fixed_because: Why nothing else could be held there; empty where something could.
        names: What each tenant holds in the row of that number.
    """

    from_step: int
    to_step: int
    columns: IntArray
    switching: FloatArray
    roles: dict[str, int]
    is_change: bool
    fixed_because: str
    names: Callable[[int], tuple[tuple[str, ...], ...]]

    @property
    def held(self) -> int:
        """The row that the plan holds."""
        return self.roles[HELD]
