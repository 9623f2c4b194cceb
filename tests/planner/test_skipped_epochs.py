"""Where `physical` considers epochs in some steps only, it proves nothing that the plain oracle knows better."""

from __future__ import annotations

from dataclasses import replace

import physical_oracle
import pytest
from problems import any_physical_problem
from windows import tenant, window

from planner.engines.physical import path
from planner.engines.physical.nodes import counted_nodes
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import verify

LISTED = tuple(seed for seed in range(50) if seed not in {1, 7, 9, 14, 15, 29, 30, 36, 48})
"""The first ones but those that take the oracle long."""

RARE = (79, 80, 91, 95, 104, 109, 117, 200)
"""With a floor, with three tenants that may retrain, or with none."""

MISLED = (76, 249, 375, 399, 407, 415, 447, 455, 469, 497, 505, 554, 602, 606, 1092, 1108)
"""Here the best path with epochs skipped is worth less than the best plan, whatever is tried besides."""

SEEDS = (*(pytest.param(seed, marks=pytest.mark.long if seed % 3 else ()) for seed in LISTED), *RARE, *MISLED)

LIMITS = {"placements": 1.0, "counts, too": 0.4, "all but borders": 0.0}
"""What skips epochs, and the limit as a share of the counted nodes × steps."""


def wrong_claims(problem: Problem, plan: MigPlan, best: float | None) -> list[str]:
    """What the answer says that is not so."""
    if best is None:
        return [f"{plan.status} where there is no plan"] if plan.status.has_plan else []
    slack, wrong = 1e-6 * max(1.0, abs(best)), []
    if plan.status is Status.INFEASIBLE:
        return [f"infeasible where a plan is worth {best}"]
    if plan.bound is not None and plan.bound < best - slack:
        wrong.append(f"bound {plan.bound} below {best}")
    if plan.objective is not None:
        found = verify(problem, plan)
        wrong += [str(violation) for violation in found.violations]
        if plan.objective > best + slack or abs(found.objective - plan.objective) > slack:
            wrong.append(f"objective {plan.objective} of a plan worth {found.objective}, the best one is worth {best}")
        if plan.status is Status.OPTIMAL and plan.objective < best - slack:
            wrong.append(f"{plan.objective} optimal where a plan is worth {best}")
        if found.proven_bound is not None and found.proven_bound < best - slack:
            wrong.append(f"a certificate for {found.proven_bound} below {best}")
    return wrong


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_proven_where_epochs_are_skipped(seed, monkeypatch):
    problem, wrong = any_physical_problem(seed), []
    best = physical_oracle.best_objective(problem)
    n_counted = len(counted_nodes(WindowFacts.of(problem)).graph) * problem.n_steps
    for skipped, share in LIMITS.items():
        monkeypatch.setattr(path, "MAX_NODE_EPOCHS", max(1, int(share * n_counted)))
        wrong += [f"{skipped}: {claim}" for claim in wrong_claims(problem, solve(problem), best)]
    assert wrong == []


def chased() -> Problem:
    """One tenant with one small instance, which has to be elsewhere every three steps: every epoch has one step."""
    ours = {0: ((0, 2), (9, 13)), 1: (), 2: ((3, 8), (12, 14)), 3: ((1, 5), (6, 11))}
    missing = []
    for number, spans in ours.items():
        ends = [0, *(step for span in spans for step in span), 14]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        missing += [Unavailable((number,), begin, end) for begin, end in pairs if begin < end]
    alone = tenant("a", (10.0,) * 14, {"1g.6gb": 20.0}, {}, overhead_s=3.0, min_profile="1g.6gb")
    problem = window(alone, model=Reconfiguration.PHYSICAL, gpu="a30-24gb", switch_s=0.0)
    return replace(problem, unavailable=tuple(missing))


@pytest.mark.parametrize("share", LIMITS.values(), ids=LIMITS)
def test_a_problem_whose_only_plans_are_skipped_is_not_called_infeasible(share, monkeypatch):
    problem = chased()
    n_counted = len(counted_nodes(WindowFacts.of(problem)).graph) * problem.n_steps
    monkeypatch.setattr(path, "MAX_NODE_EPOCHS", max(1, int(share * n_counted)))
    best, plan = physical_oracle.best_objective(problem), solve(problem)
    assert best is not None
    assert plan.status is not Status.INFEASIBLE
    assert wrong_claims(problem, plan, best) == []
