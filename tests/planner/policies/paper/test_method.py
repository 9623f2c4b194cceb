"""The paper's method on hardware: by the rules, with its retrainings, and no worse for pre-initialising."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from problems import physical_problem
from strategies import Case, cases
from windows import tenant, window

from planner.budget import Budget
from planner.plan import MigPlan, Status
from planner.policies.paper.method import MigratorPaper, MigratorPaperCold, paper_problem
from planner.policies.policy import Batching, Policy, Window
from planner.policies.registry import policy_of
from planner.problem import HeldInstance, PaperState, PhysicalState, Problem, Reconfiguration, Task
from planner.replan import state_at
from planner.solve import solve
from planner.verify import verify
from tests.seeds import examples

PHYSICAL = Reconfiguration.PHYSICAL
FEWER = settings(max_examples=examples(25))


def answered(policy: Policy, problem: Problem, plans: tuple[MigPlan, ...] = ()) -> MigPlan:
    return policy.plan(Window(len(plans), problem, Budget(max_nodes=200), np.ones((5, len(problem.tenants))), plans))


def has_retrained(problem: Problem, plan: MigPlan) -> bool:
    trained = {item.owner.tenant for item in plan.lifetimes if item.owner.task is Task.RETRAINING}
    return {one.name for one in problem.tenants if one.must_retrain} <= trained


def swinging(n_steps: int = 60, *, initial: PhysicalState | None = None) -> Problem:
    """First a has the load, then b; both retrain."""
    half = n_steps // 2
    loads = (("a", [150.0] * half + [30.0] * half), ("b", [30.0] * half + [150.0] * half))
    tenants = [tenant(name, load, retraining_s={"1g.5gb": 9.0, "2g.10gb": 5.0}) for name, load in loads]
    return window(*tenants, model=PHYSICAL, switch_s=2.5, initial=initial)


@FEWER
@given(cases(PHYSICAL))
def test_every_answer_keeps_the_rules_and_retrains(case: Case) -> None:
    plan = answered(MigratorPaper(), case.problem)
    if plan.status.has_plan:
        assert verify(case.problem, plan).violations == ()
        assert has_retrained(case.problem, plan)


@FEWER
@given(st.integers(0, 10_000), st.integers(8, 30))
def test_it_answers_whenever_there_is_a_simple_plan(seed: int, n_steps: int) -> None:
    problem = physical_problem(seed, n_steps=n_steps)
    plan = answered(MigratorPaper(), problem)
    assert plan.status.has_plan or not solve(problem, "greedy").status.has_plan
    assert not plan.status.has_plan or verify(problem, plan).violations == ()


@FEWER
@given(st.integers(0, 10_000), st.integers(8, 30))
def test_pre_initialising_never_costs_goodput_in_the_first_window(seed: int, n_steps: int) -> None:
    problem = physical_problem(seed, n_steps=n_steps)
    warm, cold = (answered(policy, problem).objective for policy in (MigratorPaper(), MigratorPaperCold()))
    assert (warm is None) == (cold is None)
    assert warm is None or cold is None or warm >= cold - 1e-6 * max(1.0, abs(cold))


@pytest.mark.long
@FEWER
@given(st.integers(0, 10_000), st.integers(8, 30))
def test_nor_does_feeding_back_what_it_hid(seed: int, n_steps: int) -> None:
    problem = physical_problem(seed, n_steps=n_steps)
    first = answered(MigratorPaper(), problem)
    assume(first.status.has_plan)
    following = replace(problem, initial=state_at(problem, first, n_steps))
    warm, cold = (answered(policy, following, (first,)) for policy in (MigratorPaper(), MigratorPaperCold()))
    assume(cold.engine == MigratorPaperCold.name)
    assert warm.objective is not None
    assert cold.objective is not None
    assert warm.objective >= cold.objective - 1e-6 * max(1.0, abs(cold.objective))


@pytest.mark.parametrize("policy", [MigratorPaper(), MigratorPaperCold()])
def test_windows_follow_each_other(policy: Policy) -> None:
    first = swinging()
    plan = answered(policy, first)
    second = swinging(initial=state_at(first, plan, first.n_steps))
    following = answered(policy, second, (plan,))
    assert following.engine == policy.name
    assert verify(second, following).violations == ()


def test_it_changes_with_the_load_and_retrains_both() -> None:
    plan = answered(MigratorPaper(), swinging())
    assert {item.owner.tenant for item in plan.lifetimes if not item.is_inference} == {"a", "b"}
    assert any(item.is_inference and item.create_step > 0 for item in plan.lifetimes)


def test_retrainings_take_as_long_in_its_program_as_they_do() -> None:
    problem = swinging()
    posed = paper_problem(problem, (0.1, 0.2))
    for one, own in zip(problem.tenants, posed.tenants, strict=True):
        for name in one.options[0].time_s:
            assert posed.occupied_steps(own, own.options[0], name) == problem.occupied_steps(one, one.options[0], name)
    assert [own.overhead_s for own in posed.tenants] == [0.1, 0.2]


def test_its_program_begins_where_the_layout_may_change() -> None:
    place = swinging().gpu.placement
    held = (HeldInstance(place("3g.20gb@4"), "a", 0), HeldInstance(place("2g.10gb@2"), "b", 0))
    problem = swinging(initial=PhysicalState(held, next_epoch_step=7))
    posed = paper_problem(problem, (0.5, 0.5))
    assert posed.n_steps == problem.n_steps - 7
    assert posed.initial == PaperState({"a": ("3g.20gb",), "b": ("2g.10gb",)})


def test_a_window_that_may_not_change_falls_back_and_says_so() -> None:
    place = swinging().gpu.placement
    held = (HeldInstance(place("3g.20gb@4"), "a", 0), HeldInstance(place("2g.10gb@2"), "b", 0))
    problem = swinging(initial=PhysicalState(held, next_epoch_step=60))
    plan = answered(MigratorPaper(), problem)
    assert ("fallback_greedy", 1) in plan.work
    assert verify(problem, plan).violations == ()


def test_what_nobody_can_meet_is_told() -> None:
    tenants = tuple(replace(one, min_profile="4g.20gb") for one in swinging().tenants)
    plan = answered(MigratorPaper(), replace(swinging(), tenants=tenants))
    assert (plan.status, plan.lifetimes) == (Status.INFEASIBLE, ())


def test_both_are_known_by_name_and_take_batches_as_given() -> None:
    known = [policy_of(name) for name in ("migrator-paper", "migrator-paper-cold")]
    assert [policy.name for policy in known] == ["migrator-paper", "migrator-paper-cold"]
    assert {policy.traits.batching for policy in known} == {Batching.GIVEN}
