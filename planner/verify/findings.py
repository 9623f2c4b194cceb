"""What a check says: violations of named rules, and the recomputed objective."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TOLERANCE = 1e-6
"""Objectives and bounds are compared with this tolerance: relative, and in requests near zero."""


class Rule(StrEnum):
    """What a violation is about: a rule of the design's section 4, or the plan's own consistency."""

    LAYOUT = "rule 1"
    PROFILE = "rule 2"
    RETRAINING = "rule 3"
    MIN_PROFILE = "rule 4"
    OBJECTIVE = "rule 5"
    EPOCHS = "epochs"
    WARM_UP = "warm-up"
    SHAPE = "shape"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: by whom, from which step on, and in a sentence what is wrong and what is allowed."""

    rule: Rule
    tenant: str | None
    step: int | None
    message: str

    def __str__(self) -> str:
        where = [] if self.tenant is None else [self.tenant]
        where += [] if self.step is None else [f"step {self.step}"]
        return f"{self.rule}: {', '.join(where) + ': ' if where else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check found.

    Attributes:
        violations: Empty for a valid plan.
        objective: Goodput in requests, recomputed from the plan; ``None`` where it cannot be.
        claimed_objective: What the plan says.
        bound: What the plan says no plan exceeds.
    """

    violations: tuple[Violation, ...]
    objective: float | None
    claimed_objective: float | None
    bound: float | None

    @property
    def is_valid(self) -> bool:
        """Whether all rules hold and the claimed objective, bound and status agree with the recomputed objective."""
        return not self.violations

    @property
    def gap(self) -> float | None:
        """(bound − recomputed objective) / max(|bound|, 1e-9), never negative; ``None`` where one is missing."""
        if self.objective is None or self.bound is None:
            return None
        return max(0.0, self.bound - self.objective) / max(abs(self.bound), 1e-9)
