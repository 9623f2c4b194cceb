"""Where `physical` considers epochs in some steps only, it proves nothing that the plain oracle knows better."""

from __future__ import annotations

from dataclasses import replace

import physical_oracle
import pytest
from answers import check_answer, check_plan
from claims import Claims
from engine_table import ENGINES
from problems import any_physical_problem
from windows import tenant, window

from planner.engines.physical import path
from planner.engines.physical.nodes import nodes_of
from planner.engines.schedule import WindowFacts
from planner.problem import Problem, Reconfiguration
from planner.unavailable import Unavailable
from tests.seeds import daily

LISTED = tuple(seed for seed in range(50) if seed not in {1, 7, 9, 14, 15, 29, 30, 36, 48})
"""The first ones but those that take the oracle long."""

RARE = (79, 80, 91, 95, 104, 109, 117, 200)
"""With a floor, with three tenants that may retrain, or with none."""

MISLED = (76, 249, 375, 399, 407, 415, 447, 455, 469, 497, 505, 554, 602, 606, 1092, 1108)
"""Here the best path with epochs skipped is worth less than the best plan, whatever is tried besides."""

SEEDS = (*daily(LISTED, LISTED[::6]), *RARE, *daily(MISLED, MISLED[::3]))

LIMITS = {"placements": 1.0, "counts, too": 0.4, "all but borders": 0.0}
"""What skips epochs, and the limit as a share of the counted nodes × steps."""


PHYSICAL = next(engine for engine in ENGINES if engine.name == "physical")


def check_skipped(
    claim: Claims, problem: Problem, best: float | None, skipped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim all that is true of an answer for which epochs were skipped."""
    n_counted = len(nodes_of(WindowFacts.of(problem), is_counted=True)) * problem.n_steps
    monkeypatch.setattr(path, "MAX_NODE_EPOCHS", max(1, int(LIMITS[skipped] * n_counted)))
    plan = PHYSICAL.plan(problem)
    check_answer(claim, PHYSICAL, problem, plan, best, is_proven=False)
    if plan.status.has_plan:
        check_plan(claim, PHYSICAL, problem, plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_proven_where_epochs_are_skipped(seed, monkeypatch):
    problem = any_physical_problem(seed)
    best = physical_oracle.best_objective(problem)
    with Claims(f"seed {seed}") as claim:
        for skipped in LIMITS:
            check_skipped(claim, problem, best, skipped, monkeypatch)


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


@pytest.mark.parametrize("skipped", LIMITS)
def test_a_problem_whose_only_plans_are_skipped_is_not_called_infeasible(skipped, monkeypatch):
    problem = chased()
    best = physical_oracle.best_objective(problem)
    assert best is not None
    with Claims(skipped) as claim:
        check_skipped(claim, problem, best, skipped, monkeypatch)
