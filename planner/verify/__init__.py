"""An independent check of a plan against the rules of the design's section 4, for both cost models.

Shares no code with the engines, nor with what they are built from (counts, gains, feasibility). It takes layouts from
``executor.mig``, durations in steps from the problem, from ``planner.levels`` when a retraining changes the level, and
from ``planner.arrays`` sums and which rows of an array agree. All else is written here a second time, as directly from
the rules as possible. What cannot be read at all is reported alone: the rest would be a guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from planner.plan import OPTIMAL_GAP, MigPlan, Rule, Status
from planner.problem import Problem
from planner.verify.certificate import certified_bound
from planner.verify.floors import floor_violations
from planner.verify.holdings import lifetimes_of, objective_of, salvage_of
from planner.verify.rules import unreadable, violations
from planner.verify.verification import TOLERANCE, Verification, Violation

__all__ = ["TOLERANCE", "Rule", "Verification", "Violation", "verify", "with_proof"]


def verify(problem: Problem, plan: MigPlan) -> Verification:
    """Every violation of the rules by the plan, its objective and the bound of its certificate, both recomputed.

    Raises:
        ProblemError: ``problem.gains`` lacks the table of changed steps that a ``paper`` problem needs.
    """
    if found := list(unreadable(problem, plan)):
        return Verification(tuple(found), plan.objective, plan.claimed_bound)
    lifetimes = list(lifetimes_of(problem, plan))
    objective, certificate = objective_of(problem, lifetimes), plan.certificate
    found = [*violations(problem, plan, lifetimes), *floor_violations(problem, lifetimes)]
    salvage = salvage_of(problem, lifetimes)
    found += _wrong_claims(plan, objective, salvage)
    misfit = certificate.misfit(problem, problem.n_steps) if certificate else None
    found += [Violation(Rule.CERTIFICATE, misfit)] if misfit else []
    known = math.inf if objective is None else objective
    bound = certified_bound(problem, certificate, known) if certificate and not misfit else math.nan
    proven = bound if math.isfinite(bound) else None
    found += _wrong_proof(plan, proven)
    return Verification(tuple(found), plan.objective, plan.claimed_bound, objective, proven, salvage)


def with_proof(plan: MigPlan, found: Verification) -> MigPlan:
    """The plan with the bound that its check recomputed from its certificate; without one where nothing is proven."""
    return replace(plan, bound=found.bound)


def _wrong_proof(plan: MigPlan, proven: float | None) -> Iterator[Violation]:
    """A bound that the plan says its certificate proves, and which it does not."""
    if plan.bound is None:
        return
    if proven is None or not plan.bound >= proven - TOLERANCE * max(1.0, abs(proven)):
        proves = "none" if proven is None else f"{proven:,}"
        yield Violation(Rule.CERTIFICATE, f"the bound is {plan.bound:,}; the certificate proves {proves}")


def _wrong_claims(plan: MigPlan, objective: float | None, salvage: float) -> Iterator[Violation]:
    """What is wrong with what the plan says of itself; written so that NaN is wrong, too."""
    if objective is None:
        yield Violation(Rule.OBJECTIVE, "the goodput of what the plan holds is undefined")
        return
    slack = TOLERANCE * max(1.0, abs(objective))
    if plan.objective is None or not abs(plan.objective - objective) <= slack:
        claimed = "none" if plan.objective is None else f"{plan.objective:,}"
        yield Violation(Rule.OBJECTIVE, f"the plan claims {claimed} requests; recomputed {objective:,}")
    if not abs(plan.salvage - salvage) <= TOLERANCE * max(1.0, abs(salvage)):
        yield Violation(Rule.OBJECTIVE, f"the plan claims {plan.salvage:,} requests of salvage; recomputed {salvage:,}")
    bound, gap = plan.claimed_bound, plan.claimed_gap
    if bound is not None and not bound >= objective - slack:
        yield Violation(Rule.CERTIFICATE, f"the claimed bound {bound:,} is below the plan's own {objective:,}")
    if (plan.status is Status.OPTIMAL) != (gap is not None and gap <= OPTIMAL_GAP):
        yield Violation(Rule.CERTIFICATE, f"the status is {plan.status} with a claimed gap of {gap}")
