"""How much an engine may spend. ``run`` gives work only, so that a run is the same every time; people give seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one solve; whichever is met first ends it.

    Attributes:
        time_limit_s: Wall seconds; ``None`` for no limit. Not used by ``run``: it is not reproducible.
        max_nodes: Branch-and-bound nodes, or schedules evaluated, by engine; ``None`` for no limit.
        rel_gap: Relative gap at which a plan is good enough; 0 asks for a proof.
    """

    time_limit_s: float | None = None
    max_nodes: int | None = None
    rel_gap: float = 0.0
