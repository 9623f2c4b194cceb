"""What a check of a plan says: violations of named rules, the recomputed objective, and the bounds on it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.plan import Rule, gap_between


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


TOLERANCE = 1e-6
"""Between objectives and bounds: relative, and in requests near zero."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check found; figures are requests. What the plan says of itself is *claimed*.

    Attributes:
        violations: Empty for a valid plan.
        claimed_objective: What the plan says that it earns.
        claimed_bound: What the plan says no plan exceeds; ``None`` where it says nothing.
        objective: Goodput and salvage, recomputed from the plan; ``None`` where it cannot be.
        bound: What no plan exceeds by the plan's certificate, recomputed; ``None`` without a usable one.
        salvage: What of the recomputed objective is salvage.
    """

    violations: tuple[Violation, ...]
    claimed_objective: float | None
    claimed_bound: float | None
    objective: float | None = None
    bound: float | None = None
    salvage: float = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether all rules hold and the plan's claims about itself agree with the recomputed objective."""
        return not self.violations

    @property
    def broken_rules(self) -> tuple[Violation, ...]:
        """The violations without missed floors of in-time answers: a plan that misses one can still be carried out."""
        return tuple(item for item in self.violations if item.rule is not Rule.FLOOR)

    @property
    def claimed_gap(self) -> float | None:
        """(bound − recomputed objective) / max(|bound|, 1e-9), never negative; ``None`` where one is missing."""
        return gap_between(self.claimed_bound, self.objective)

    @property
    def gap(self) -> float | None:
        """The same to ``bound``: proven, as it takes nothing that the plan says on trust."""
        return gap_between(self.bound, self.objective)

    @property
    def is_claim_proven(self) -> bool:
        """Whether the certificate proves the bound that the plan claims; a plan without one claims nothing."""
        if self.claimed_bound is None:
            return True
        slack = TOLERANCE * max(1.0, abs(self.claimed_bound))
        return self.bound is not None and self.claimed_bound >= self.bound - slack
