"""How to solve: what an engine may spend, and options that only some engines take.

``migrator run`` limits work only, so that a run is the same every time; people limit seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

FLOOR_COSTS_AT_MOST = 5.0
"""Hundredths of a window's requests that floors of in-time answers may cost, where plans may miss them."""

_SECONDS = (1.0, 6.0, 11.0, 15.0, 16.0, 18.0, 20.0)
"""What planning a window of 200 steps takes at most for one, two … tenants; ``planning_time_s`` says of what."""


_DOUBLE_MEMORY = 1.8
"""By which factor proofs take longer where the 1g with double memory may be held, too: 10.7 s instead of 6 at most."""


def planning_time_s(n_tenants: int, n_steps: int, *, has_double_memory: bool = False) -> float:
    """Seconds that planning a window takes at most with the default budget of a run: whole ones, at least 1.

    No solve of ``python -m benchmarks.speed.planner --run`` takes longer on one core, with gain tables and the check of
    the plan; from three tenants on they take half to two thirds of it. ``docs/planner.md`` has the figures. In
    proportion to the steps. Seven tenants are extrapolated.
    """
    at_200_steps = _SECONDS[min(n_tenants, len(_SECONDS)) - 1] * (_DOUBLE_MEMORY if has_double_memory else 1.0)
    return float(max(1, math.ceil(at_200_steps * n_steps / 200 - 1e-9)))


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one solve; whichever is met first ends it.

    Attributes:
        time_limit_s: Wall seconds; ``None`` for no limit. Not used by ``run``: it is not reproducible.
        max_nodes: Branch-and-bound nodes, schedules evaluated, or for ``physical`` units of work
            (``planner.engines.physical.search``); ``None`` for no limit.
        rel_gap: Relative gap at which a plan is good enough; 0 asks for a proof.
        proves: Whether work goes into bounds once the local search is over; only ``physical`` does without, for plans
            that are soon made anew.
    """

    time_limit_s: float | None = None
    max_nodes: int | None = None
    rel_gap: float = 0.0
    proves: bool = True


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options that only some engines take; ``None`` leaves a choice to the engine.

    Attributes:
        solver: ``paper-ilp``: ``highs``, ``cbc`` or ``gurobi``.
        configs: ``paper-ilp``: ``paper12``, the paper's twelve configurations, or ``all``.
    """

    solver: str | None = None
    configs: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """The choices that were made, by name."""
        chosen = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in chosen.items() if value is not None}
