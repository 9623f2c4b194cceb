"""An independent check of a plan against the rules of the design's section 4, for both cost models.

Shares no code with the engines, and none with what they are built from (states, hull, gains,
feasibility): what it knows of layouts, retrainings, epochs and goodput is written here a second time,
as directly from the rules as it goes. Slow and obvious is what a checker should be.

It works in two stages. What cannot be read at all (wrong steps, unknown tenants or profiles) is
reported alone, because everything after it would be a guess. Otherwise the plan is laid out step by
step (:class:`~planner.verify.timeline.Timeline`, one a tenant) and every rule is checked on that. A
condition that is broken over several consecutive steps is reported once, at its first step.
"""

from __future__ import annotations

from typing import assert_never

from planner.plan import OPTIMAL_GAP, MigPlan, Status
from planner.problem import Problem, Reconfiguration
from planner.verify import paper, physical
from planner.verify.findings import TOLERANCE, Rule, Verification, Violation
from planner.verify.readable import unreadable
from planner.verify.timeline import Timeline, holding_violations, objective_of

__all__ = ["TOLERANCE", "Rule", "Verification", "Violation", "verify"]


def verify(problem: Problem, plan: MigPlan) -> Verification:
    """Every violation of the rules by the plan, and its objective recomputed from what the tasks hold.

    Goodput is weight · accuracy · min(a, C), or what ``problem.gains`` says where it is given.

    Raises:
        ProblemError: ``problem.gains`` lacks the table that a ``paper`` problem needs.
    """
    found = list(unreadable(problem, plan))
    if found:
        return Verification(tuple(found), None, plan.objective, plan.bound)
    timelines, broken = _laid_out(problem, plan)
    found += broken
    for tenant, timeline in zip(problem.tenants, timelines, strict=True):
        found += holding_violations(problem, tenant, timeline)
    objective = objective_of(problem, timelines)
    found += _certificate_violations(plan, objective)
    return Verification(tuple(found), objective, plan.objective, plan.bound)


def _laid_out(problem: Problem, plan: MigPlan) -> tuple[list[Timeline], list[Violation]]:
    match problem.reconfiguration:
        case Reconfiguration.PAPER:
            return paper.timelines(problem, plan), list(paper.violations(problem, plan))
        case Reconfiguration.PHYSICAL:
            return physical.timelines(problem, plan), list(physical.violations(problem, plan))
        case _:
            assert_never(problem.reconfiguration)


def _certificate_violations(plan: MigPlan, objective: float | None) -> list[Violation]:
    """What is wrong with the plan's claims about itself."""
    if objective is None:
        return [Violation(Rule.OBJECTIVE, None, None, "the goodput of what the plan holds is undefined")]
    messages = []
    slack = TOLERANCE * max(1.0, abs(objective))
    # Written so that NaN is a violation, too.
    if plan.objective is None or not abs(plan.objective - objective) <= slack:
        messages.append((Rule.OBJECTIVE, f"the plan claims {plan.objective} requests; recomputed {objective}"))
    if plan.bound is not None and not plan.bound >= objective - slack:
        messages.append((Rule.CERTIFICATE, f"the bound {plan.bound} is below the plan's own {objective}"))
    is_proven = plan.gap is not None and plan.gap <= OPTIMAL_GAP
    if (plan.status is Status.OPTIMAL) != is_proven:
        messages.append((Rule.CERTIFICATE, f"the status is {plan.status} with a gap of {plan.gap}"))
    return [Violation(rule, None, None, message) for rule, message in messages]
