"""Of plans of one objective ``paper`` engines take the one that holds most beside its retrainings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problems import short_paper_problem

from planner.counts import tenant_multisets
from planner.engines.paper.plan import Decisions, broken_rule, decisions_of, value_of
from planner.engines.schedule import WindowFacts
from planner.problem import Problem
from planner.solve import solve

QUIET = 0.3
"""Share of the arrivals that leaves most problems room for more than they need."""


def reserve(problem: Problem, decisions: Decisions) -> float:
    """What the decisions hold in reserve where no change costs capacity, by the definition alone."""
    total = 0.0
    for own, decision in zip(problem.tenants, decisions, strict=True):
        requests = max(1.0, problem.step_s * float(np.mean(own.arrivals_rps)))
        capacity = problem.step_s * np.array(decision.held) @ problem.rates_rps(own)
        total += float((own.weight * own.accuracy_before * requests * capacity / (requests + capacity)).sum())
    return total


def otherwise(problem: Problem, decisions: Decisions) -> Iterator[Decisions]:
    """The decisions in which one tenant holds something else for some steps."""
    for m, (own, decision) in enumerate(zip(problem.tenants, decisions, strict=True)):
        for multiset, begin, end in product(
            tenant_multisets(problem, own), range(problem.n_steps), range(1, problem.n_steps + 1)
        ):
            held = (*decision.held[:begin], *[multiset] * (end - begin), *decision.held[end:])
            if begin < end:
                yield (*decisions[:m], replace(decision, held=held), *decisions[m + 1 :])


@pytest.mark.parametrize("engine", ["exact", "greedy"])
@pytest.mark.parametrize("seed", range(12))
def test_no_plan_leaves_idle_what_could_serve_at_the_same_objective(engine: str, seed: int) -> None:
    problem = short_paper_problem(seed)
    quiet = (replace(own, arrivals_rps=QUIET * own.arrivals_rps, overhead_s=0.0) for own in problem.tenants)
    problem = replace(problem, tenants=tuple(quiet))
    plan = solve(problem, engine)
    if not plan.status.has_plan:
        return
    facts, decisions = WindowFacts.of(problem), decisions_of(problem, plan)
    assert decisions is not None
    most, least = reserve(problem, decisions) * (1 + 1e-9), value_of(facts, decisions) - 1e-9
    better = (own for own in otherwise(problem, decisions) if reserve(problem, own) > most)
    assert [own for own in better if broken_rule(problem, own) is None and value_of(facts, own) >= least] == []
