"""What a check of a plan says: violations of named rules, the recomputed objective, and the bounds on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """What a violation is about: a rule of the design's section 4, or the plan's own consistency."""

    LAYOUT = "rule 1"
    PROFILE = "rule 2"
    RETRAINING = "rule 3"
    MIN_PROFILE = "rule 4"
    OBJECTIVE = "rule 5"
    FLOOR = "min_slo_attainment"
    EPOCHS = "epochs"
    WARM_UP = "warm-up"
    SHAPE = "shape"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: in a sentence what is wrong and what is allowed, by whom, and from which step on."""

    rule: Rule
    message: str
    tenant: str | None = None
    step: int | None = None

    def __str__(self) -> str:
        where = [] if self.tenant is None else [self.tenant]
        where += [] if self.step is None else [f"step {self.step}"]
        return f"{self.rule}: {', '.join(where) + ': ' if where else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check found; figures are requests.

    Attributes:
        violations: Empty for a valid plan.
        claimed_objective: What the plan says.
        bound: What the plan says no plan exceeds.
        objective: Goodput, recomputed from the plan; ``None`` where it cannot be.
        certified_bound: What no plan exceeds by the plan's certificate, recomputed; ``None`` without a usable one.
    """

    violations: tuple[Violation, ...]
    claimed_objective: float | None
    bound: float | None
    objective: float | None = None
    certified_bound: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether all rules hold and the plan's claims about itself agree with the recomputed objective."""
        return not self.violations

    @property
    def broken_rules(self) -> tuple[Violation, ...]:
        """The violations without missed floors of in-time answers: a plan that misses one can still be carried out."""
        return tuple(item for item in self.violations if item.rule is not Rule.FLOOR)

    @property
    def gap(self) -> float | None:
        """(bound − recomputed objective) / max(|bound|, 1e-9), never negative; ``None`` where one is missing."""
        return _gap(self.bound, self.objective)

    @property
    def certified_gap(self) -> float | None:
        """The same to the certified bound, which takes nothing that the engine says on trust."""
        return _gap(self.certified_bound, self.objective)


def _gap(bound: float | None, objective: float | None) -> float | None:
    return None if bound is None or objective is None else max(0.0, bound - objective) / max(abs(bound), 1e-9)
