"""Held sets and retrainings read back from a plan are those that it was made of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from problems import physical_problem
from windows import tenant, window

from executor.mig import Placement
from planner.engines.physical.plan import held_in, retrainings_in, with_held
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan
from planner.problem import HeldInstance, PhysicalState, Problem, Reconfiguration
from planner.solve import solve


def made_again(problem: Problem, plan: MigPlan) -> MigPlan:
    facts = WindowFacts.of(problem)
    held, placed = list(held_in(facts, plan)), retrainings_in(problem, plan)
    return with_held(facts, held, placed, plan.bound or 0.0, plan.engine, 0.0)


@pytest.mark.parametrize("engine", ["static", "greedy", "physical"])
@pytest.mark.parametrize("seed", range(30))
def test_a_plan_made_again_of_what_is_read_back_is_the_same(engine: str, seed: int) -> None:
    problem = physical_problem(seed, n_steps=8)
    plan = solve(problem, engine)
    assert not plan.status.has_plan or made_again(problem, plan).lifetimes == plan.lifetimes


def waiting() -> tuple[Problem, Placement, Placement]:
    """A problem that holds two instances until step 3 at least."""
    problem = window(tenant("a", [20.0] * 8, retraining_s={"3g.20gb": 2.0}), model=Reconfiguration.PHYSICAL)
    kept, dropped = problem.gpu.placements(["3g.20gb"])
    entries = tuple(HeldInstance(placement, "a", 0) for placement in (kept, dropped))
    return replace(problem, initial=PhysicalState(entries, next_epoch_step=3)), kept, dropped


def test_an_epoch_that_only_drops_is_one() -> None:
    problem, kept, dropped = waiting()
    facts = WindowFacts.of(problem)
    held = [(0, frozenset({(kept, 0), (dropped, 0)})), (3, frozenset({(kept, 0)}))]
    assert list(held_in(facts, with_held(facts, held, (), 0.0, "by hand", 0.0))) == held


def test_what_is_held_at_first_is_the_initial_state_s() -> None:
    problem, kept, dropped = waiting()
    assert WindowFacts.of(problem).initial_held == {(kept, 0), (dropped, 0)}
    assert WindowFacts.of(replace(problem, initial=None)).initial_held is None
