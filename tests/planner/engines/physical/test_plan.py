"""Held sets and retrainings read back from a plan are those that it was made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from problems import physical_problem
from windows import tenant, window

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries, Held
from planner.engines.physical.plan import held_in, retrainings_in, tidied, with_held
from planner.engines.schedule import WindowFacts
from planner.plan import MigPlan
from planner.problem import HeldInstance, PhysicalState, Problem, Reconfiguration
from planner.solve import solve
from planner.verify import verify


def made_again(problem: Problem, plan: MigPlan) -> MigPlan:
    facts = WindowFacts.of(problem)
    held, placed = list(held_in(problem, plan)), retrainings_in(problem, plan)
    return with_held(facts, held, placed, plan.claimed_bound or 0.0, plan.engine, 0.0)


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
    assert list(held_in(problem, with_held(facts, held, (), 0.0, "by hand", 0.0))) == held


def test_what_is_held_at_first_is_the_initial_state_s() -> None:
    problem, kept, dropped = waiting()
    assert WindowFacts.of(problem).initial_held == {(kept, 0), (dropped, 0)}
    assert WindowFacts.of(replace(problem, initial=None)).initial_held is None


def any_held(problem: Problem, plan: MigPlan, seed: int) -> Held:
    """What a plan holds, with epochs put in that drop some of it and take it back."""
    facts = WindowFacts.of(problem)
    held, rng = list(held_in(problem, plan)), np.random.default_rng(seed)
    for number in reversed(range(len(held))):
        step, entries = held[number]
        end = held[number + 1][0] if number + 1 < len(held) else facts.n_steps
        room = range(step + facts.epoch_steps, end - facts.epoch_steps + 1)
        spare = [entry for entry in sorted(entries, key=lambda entry: entry[0].sort_key) if _is_spare(entries, entry)]
        if room and spare:
            at, entry = int(rng.choice(room)), spare[int(rng.integers(len(spare)))]
            held[number + 1 : number + 1] = [(at, entries - {entry}), (at + facts.epoch_steps, entries)]
    return [pair for pair in held if pair[0] < facts.n_steps]


def _is_spare(entries: Entries, entry: tuple[Placement, int]) -> bool:
    """Whether the tenant has another one of the same profile."""
    return any(other != entry and (other[0].profile, other[1]) == (entry[0].profile, entry[1]) for other in entries)


@pytest.mark.parametrize("seed", range(60))
def test_tidying_lowers_no_value_breaks_no_rule_and_adds_no_change(seed: int) -> None:
    problem = physical_problem(seed, n_steps=16)
    plan = solve(problem, "greedy")
    if not plan.status.has_plan:
        return
    facts, placed = WindowFacts.of(problem), retrainings_in(problem, plan)
    held = any_held(problem, plan, seed)
    before = with_held(facts, held, placed, 0.0, "by hand", 0.0)
    after = with_held(facts, tidied(facts, held, placed), placed, 0.0, "by hand", 0.0)
    assert after.objective >= before.objective - 1e-9
    assert verify(problem, after).broken_rules == ()
    assert len(list(held_in(problem, after))) <= len(held)
    assert n_started(facts, after) <= n_started(facts, before)


def n_started(facts: WindowFacts, plan: MigPlan) -> int:
    """Instances that epochs of the plan start."""
    return sum(len(now - last) for (_, last), (_, now) in pairwise(held_in(facts.problem, plan)))
