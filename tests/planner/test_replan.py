"""What is left of a best plan is the best plan of what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from claims import Claims
from problems import physical_problem, with_unavailable

from planner.gains import gain_tables
from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.replan import remaining_plan, remaining_problem, state_at, without_hopeless_retrainings
from planner.solve import solve
from planner.verify import verify
from tests.seeds import daily

SEEDS = range(80)
EVERY = daily(SEEDS, SEEDS[::6])


def planned(problem: Problem) -> MigPlan | None:
    plan = solve(problem)
    return plan if plan.status is Status.OPTIMAL else None


def goodput_before(problem: Problem, plan: MigPlan, step: int) -> float:
    """What the plan earns before ``step``: all of it, less what it earns when nothing arrives before."""
    quiet = [replace(t, arrivals_rps=[0.0] * step + t.arrivals_rps[step:].tolist()) for t in problem.tenants]
    rest = verify(replace(problem, tenants=tuple(quiet)), plan).objective
    return verify(problem, plan).objective - rest


@pytest.mark.parametrize("seed", EVERY)
def test_planning_again_from_a_best_plan_finds_as_much(seed):
    plain = physical_problem(seed, 6)
    with Claims(f"seed {seed}") as claim:
        if (plan := planned(plain)) is not None:
            claim(without_hopeless_retrainings(plain) is plain, "a retraining that can be had is no longer asked for")
            check_tables(claim, plain, plan, 3)
        for problem, steps in ((plain, (1, 3, 5)), (with_unavailable(plain, seed), (2,))):
            if (plan := planned(problem)) is not None:
                for step in steps:
                    check_rest(claim, problem, plan, step)


def check_rest(claim, problem, plan, step):
    """A new plan of the rest earns what the old one would; others' slices are shifted with the window."""
    rest = remaining_problem(problem, plan, step)
    again = solve(rest, initial=remaining_plan(plan, step))
    claim(verify(rest, again).violations == (), f"step {step}: {verify(rest, again).violations}")
    total = goodput_before(problem, plan, step) + again.objective
    claim(total == pytest.approx(plan.objective, rel=1e-9, abs=1e-9), f"step {step}: {total}, not {plan.objective}")
    missing = [rest.unavailable_in(later, later + 1) for later in range(rest.n_steps)]
    expected = [problem.unavailable_in(later, later + 1) for later in range(step, problem.n_steps)]
    claim(missing == expected, f"step {step}: slices {missing} are not ours, not {expected}")


def check_tables(claim, problem, plan, step):
    """Gain tables are cut as arrivals are; a problem that is left may name fewer profiles than the whole one."""
    with_tables = replace(problem, gains=gain_tables(problem))
    simple, tabled = (remaining_problem(one, plan, step) for one in (problem, with_tables))
    most = [[table.steady.max() for table in tables] for tables in (gain_tables(simple), tabled.gains)]
    claim(most[0] == pytest.approx(most[1]), f"gain tables have {most[1]} at most, not {most[0]}")


def test_the_seeds_have_warming_instances_and_retrainings_in_progress():
    problems = [physical_problem(seed, 6) for seed in SEEDS[::2]]
    found = [state_at(problem, plan, 3) for problem in problems if (plan := planned(problem)) is not None]
    assert any(item.serve_step > 0 for state in found for item in state.held)
    assert sum(bool(state.retrainings) for state in found) > 5
    assert any(state.next_epoch_step > 0 for state in found)


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
    can_serve = [p for p in problems if solve(_asking_for_none(p)).status.has_plan]
    assert len(can_serve) > 10
    for problem in can_serve:
        assert not solve(problem).status.has_plan
        assert not any(tenant.must_retrain for tenant in without_hopeless_retrainings(problem).tenants)


def _asking_for_none(problem: Problem) -> Problem:
    return replace(
        problem,
        tenants=tuple(replace(t, retraining_required=t.retraining_required and not t.options) for t in problem.tenants),
    )
