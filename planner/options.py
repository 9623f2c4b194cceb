"""What only some engines can be told, beside a problem and a budget."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Choices of single engines; ``None`` leaves a choice to the engine.

    Attributes:
        solver: ``milp`` and ``paper-ilp``: ``highs``, ``cbc`` or ``gurobi``.
        configs: ``paper-ilp``: ``paper12``, the paper's twelve configurations, or ``all``.
    """

    solver: str | None = None
    configs: str | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the choices that were made."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is not None)
