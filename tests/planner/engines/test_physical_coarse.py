"""The coarse program's schedule fits the fine window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from executor.catalogue import gpu_model
from planner.engines.physical import solve_physical
from planner.engines.physical_coarse import coarse_problem, coarse_schedule
from planner.problem import (
    HeldInstance,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.verify import verify

A30 = gpu_model("a30-24gb")


def fine_problem(n_steps=23, initial=None):
    tenants = tuple(
        TenantTerms(
            f"t{index}",
            np.linspace(10, 50, n_steps)[:: 1 - 2 * index],
            {"1g.6gb": 15.0, "2g.12gb": 30.0},
            0.6,
            1.0,
            "1g.6gb",
            (RetrainingOption("full", {"1g.6gb": 4.5, "2g.12gb": 2.2}, 0.9),),
        )
        for index in range(2)
    )
    return Problem(A30, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=1.0, initial=initial)


def test_coarse_arrivals_are_means_of_the_fine_ones():
    fine, coarse = fine_problem(), coarse_problem(fine_problem(), 5)
    assert coarse.tenants[0].arrivals_rps.tolist() == [
        pytest.approx(fine.tenants[0].arrivals_rps[5 * k : 5 * k + 5].mean()) for k in range(4)
    ]


def test_coarse_retrainings_include_their_start_up():
    times = coarse_problem(fine_problem(), 5).tenants[0].options[0].time_s
    assert dict(times) == {"1g.6gb": 7.0, "2g.12gb": 5.0}


def test_coarse_changes_cost_switch_and_worker_start():
    assert coarse_problem(fine_problem(), 5).tenants[0].overhead_s == 2.0


@pytest.mark.parametrize("coarse_steps", [1, 2, 5])
def test_a_coarse_schedule_fits_into_the_fine_window(coarse_steps):
    schedule = coarse_schedule(fine_problem(), coarse_steps)
    steps = {"1g.6gb": 7, "2g.12gb": 5}
    assert all(item.n_steps == steps[item.profile] and item.end_step <= 23 for item in schedule)
    assert [item.tenant for item in schedule] == [0, 1]


def test_a_window_shorter_than_a_coarse_step_has_none():
    assert coarse_schedule(fine_problem(), 30) is None


def test_a_coarse_window_in_which_nothing_ends_has_none():
    assert coarse_schedule(fine_problem(n_steps=9), 5) is None


def test_a_retraining_in_progress_counts_as_done():
    state = PhysicalState(
        (HeldInstance(A30.placement("1g.6gb@0"), "t0", 0), HeldInstance(A30.placement("1g.6gb@1"), "t1", 0)),
        (RunningRetraining(A30.placement("1g.6gb@2"), "t0", 4),),
    )
    coarse = coarse_problem(fine_problem(initial=state), 5)
    assert (coarse.tenants[0].accuracy_before, coarse.tenants[0].options) == (0.9, ())
    assert coarse.initial.held == {"t0": ("1g.6gb",), "t1": ("1g.6gb",)}


def test_the_engine_takes_the_coarse_schedule_as_one_of_its_starts():
    problem = fine_problem()
    plan = solve_physical(problem, coarse_steps=5)
    assert verify(problem, plan).violations == ()
    assert replace(plan, solve_s=0.0).objective == pytest.approx(solve_physical(problem).objective)
