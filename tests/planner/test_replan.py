"""What is left of a best plan is the best plan of what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from problems import physical_problem, with_unavailable

from planner.engines.physical.physical import solve_physical
from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.replan import remaining_plan, remaining_problem, state_at, without_hopeless_retrainings
from planner.verify import verify

SEEDS = range(80)


def planned(seed: int) -> tuple[Problem, MigPlan] | None:
    problem = physical_problem(seed, 6)
    plan = solve_physical(problem)
    return (problem, plan) if plan.status is Status.OPTIMAL else None


def goodput_before(problem: Problem, plan: MigPlan, step: int) -> float:
    """What the plan earns before ``step``: all of it, less what it earns when nothing arrives before."""
    quiet = [replace(t, arrivals_rps=[0.0] * step + t.arrivals_rps[step:].tolist()) for t in problem.tenants]
    rest = verify(replace(problem, tenants=tuple(quiet)), plan).objective
    return verify(problem, plan).objective - rest


@pytest.mark.parametrize("step", [1, 3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_planning_again_from_a_best_plan_finds_as_much(seed, step):
    if (found := planned(seed)) is None:
        return
    problem, plan = found
    rest = remaining_problem(problem, plan, step)
    again = solve_physical(rest, initial=remaining_plan(plan, step))
    assert verify(rest, again).violations == ()
    total = goodput_before(problem, plan, step) + again.objective
    assert total == pytest.approx(plan.objective, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_gain_tables_are_cut_as_arrivals_are(seed):
    if (found := planned(seed)) is None:
        return
    problem, plan = found
    with_tables = replace(problem, gains=gain_tables(problem))
    simple, tabled = remaining_problem(problem, plan, 3), remaining_problem(with_tables, plan, 3)
    for own, cut in zip(gain_tables(simple), tabled.gains, strict=True):
        # A problem that is left may name fewer profiles than the whole one.
        assert own.steady.max() == pytest.approx(cut.steady.max())


def test_the_seeds_have_warming_instances_and_retrainings_in_progress():
    found = [state_at(*case, 3) for case in map(planned, SEEDS) if case is not None]
    assert any(item.serve_step > 0 for state in found for item in state.held)
    assert sum(bool(state.retrainings) for state in found) > 5
    assert any(state.next_epoch_step > 0 for state in found)


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_slices_that_are_not_ours_are_shifted_with_the_window(seed):
    problem = with_unavailable(physical_problem(seed, 6), seed)
    plan = solve_physical(problem)
    if plan.status is Status.OPTIMAL:
        rest = remaining_problem(problem, plan, 2)
        steps = [rest.unavailable_in(step, step + 1) for step in range(rest.n_steps)]
        assert steps == [problem.unavailable_in(step, step + 1) for step in range(2, 6)]


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_planning_again_beside_what_is_not_ours_finds_as_much(seed):
    problem = with_unavailable(physical_problem(seed, 6), seed)
    plan = solve_physical(problem)
    if plan.status is Status.OPTIMAL:
        again = solve_physical(remaining_problem(problem, plan, 2), initial=remaining_plan(plan, 2))
        total = goodput_before(problem, plan, 2) + again.objective
        assert total == pytest.approx(plan.objective, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_problem_that_has_a_plan_still_asks_for_every_retraining(seed):
    problem = physical_problem(seed, 6)
    if solve_physical(problem).status.has_plan:
        assert without_hopeless_retrainings(problem) is problem


def hopeless(seed: int) -> Problem:
    """Without anything held or running, and with retrainings that take longer than the window."""
    problem = physical_problem(seed, 6)
    tenants = tuple(
        replace(
            tenant,
            retraining_required=True,
            options=tuple(replace(option, time_s=dict.fromkeys(option.time_s, 1e6)) for option in tenant.options),
        )
        for tenant in problem.tenants
    )
    return replace(problem, tenants=tenants, initial=None)


def test_retrainings_that_cannot_be_had_any_more_are_not_asked_for() -> None:
    problems = [problem for problem in map(hopeless, SEEDS) if any(t.must_retrain for t in problem.tenants)]
    can_serve = [p for p in problems if solve_physical(_asking_for_none(p)).status.has_plan]
    assert len(can_serve) > 10
    for problem in can_serve:
        assert not solve_physical(problem).status.has_plan
        assert not any(tenant.must_retrain for tenant in without_hopeless_retrainings(problem).tenants)


def _asking_for_none(problem: Problem) -> Problem:
    return replace(
        problem,
        tenants=tuple(replace(t, retraining_required=t.retraining_required and not t.options) for t in problem.tenants),
    )
