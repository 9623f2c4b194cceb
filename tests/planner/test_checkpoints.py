"""Weights served as they come: checkpoints, swaps, checks, files and re-planning."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from problems import physical_problem, short_paper_problem, with_checkpoints, with_salvage

from planner.course import courses
from planner.errors import EngineError, ProblemError
from planner.files.problem_file import problem_of, problem_to_json
from planner.levels import level_changes
from planner.problem import Checkpoint, Problem, RetrainingOption
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from planner.verify import Rule, verify

RELATIVE = 1e-9


def staged(problem: Problem, seed: int) -> Problem:
    return with_salvage(with_checkpoints(problem, seed), seed)


def same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and abs(a - b) <= RELATIVE * max(1.0, abs(a)))


def example(**changes: object) -> Problem:
    """One tenant on half an A30; its retraining takes four steps on 1g and has checkpoints at a quarter and a half."""
    option = RetrainingOption("full", {"1g.6gb": 4.0}, 0.9, (Checkpoint(0.25, 0.6), Checkpoint(0.5, 0.8)))
    base = physical_problem(0, n_steps=12, n_tenants=1)
    tenant = replace(
        base.tenants[0],
        arrivals_rps=np.full(12, 10.0),
        capability_rps={"2g.12gb": 100.0},
        accuracy_before=0.5,
        overhead_s=1.0,
        options=(option,),
        retraining_start_s=2.0,
        weight=1.0,
        min_profile="1g.6gb",
    )
    return replace(base, tenants=(replace(tenant, **changes),), initial=None)  # type: ignore[arg-type]


def changes_of(problem: Problem) -> tuple[tuple[int, int], ...]:
    return level_changes(problem, problem.tenants[0], 1, "1g.6gb")


def test_checkpoints_come_at_their_share_of_the_training() -> None:
    assert changes_of(example()) == ((3, 2), (4, 3), (6, 1))


def test_a_checkpoint_below_what_serves_is_not_kept() -> None:
    assert changes_of(example(accuracy_before=0.7)) == ((4, 2), (6, 1))


def test_an_end_below_the_last_kept_checkpoint_is_not_served() -> None:
    option = RetrainingOption("full", {"1g.6gb": 4.0}, 0.7, (Checkpoint(0.5, 0.8),))
    assert changes_of(example(options=(option,))) == ((4, 2),)


def test_of_checkpoints_in_one_step_the_last_counts() -> None:
    option = RetrainingOption("full", {"1g.6gb": 4.0}, 0.9, (Checkpoint(0.3, 0.6), Checkpoint(0.5, 0.8)))
    assert changes_of(example(options=(option,))) == ((4, 3), (6, 1))


def test_each_checkpoint_makes_the_training_longer() -> None:
    option = replace(example().tenants[0].options[0], checkpoint_s=1.0)
    assert example(options=(option,)).training_steps(option, "1g.6gb") == 6


def test_swaps_take_their_seconds_off_the_steps_from_each_change_on() -> None:
    problem = example(swap_s=1.5)
    (course,) = courses(problem, solve(problem))
    start = int(np.flatnonzero(course.level)[0])
    assert course.swap_share[start : start + 6].tolist() == [0.0, 0.0, 0.5, 0.0, 0.5, 1.0]


def test_a_plan_earns_more_with_checkpoints_and_less_with_swaps() -> None:
    plain = example(options=(replace(example().tenants[0].options[0], checkpoints=()),))
    values = [solve(problem).objective or 0.0 for problem in (plain, example(swap_s=0.1), example())]
    assert values == sorted(values)
    assert values[0] < values[1] < values[2]


def test_paper_ilp_refuses_checkpoints_and_swaps() -> None:
    problem = next(p for p in (staged(short_paper_problem(s), s) for s in range(9)) if p.tenants[0].has_swaps)
    with pytest.raises(EngineError, match=r"knows no checkpoints and no swap_s, which tenant tenant-0 has"):
        solve(problem, "paper-ilp")


@pytest.mark.parametrize("what", ["checkpoints", "level", "swap"])
def test_verify_refuses_what_other_checkpoints_levels_or_swaps_would_earn(what: str) -> None:
    """A plan of a problem in which one of them differs claims what this problem does not give."""
    problem = example(swap_s=0.4)
    option = problem.tenants[0].options[0]
    other = {
        "checkpoints": example(swap_s=0.4, options=(replace(option, checkpoints=option.checkpoints[1:]),)),
        "level": example(swap_s=0.4, options=(replace(option, accuracy_after=0.95),)),
        "swap": example(swap_s=0.3),
    }[what]
    found = verify(problem, solve(other))
    assert [item.rule for item in found.violations] == [Rule.OBJECTIVE]


def test_verify_refuses_a_training_that_leaves_out_the_seconds_of_its_checkpoints() -> None:
    slow = example(options=(replace(example().tenants[0].options[0], checkpoint_s=1.0),))
    found = verify(slow, solve(example()))
    assert Rule.RETRAINING in [item.rule for item in found.violations]


def test_a_problem_file_keeps_checkpoints_and_swaps() -> None:
    problem = example(swap_s=0.4, options=(replace(example().tenants[0].options[0], checkpoint_s=0.5),))
    again = problem_of(json.loads(json.dumps(problem_to_json(problem))), "problem.json")
    assert again.tenants[0].options == problem.tenants[0].options
    assert again.tenants[0].swap_s == 0.4


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ((Checkpoint(0.0, 0.5),), r"checkpoints\[0\]\.fraction is 0\.0; a number above 0 and below 1"),
        ((Checkpoint(1.0, 0.5),), r"checkpoints\[0\]\.fraction is 1\.0"),
        ((Checkpoint(0.5, 0.5), Checkpoint(0.5, 0.6)), r"checkpoints\[1\]\.fraction is 0\.5; a number above 0\.5"),
        ((Checkpoint(0.5, 1.5),), r"checkpoints\[0\]\.accuracy is 1\.5"),
        ((Checkpoint(float("nan"), 0.5),), r"checkpoints\[0\]\.fraction is nan"),
    ],
)
def test_wrong_checkpoints_are_one_clear_line(checkpoints: tuple[Checkpoint, ...], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        example(options=(replace(example().tenants[0].options[0], checkpoints=checkpoints),))


@pytest.mark.parametrize("step", range(1, 12))
def test_what_is_left_of_a_plan_earns_what_the_plan_does_from_there_on(step: int) -> None:
    """With checkpoints served, to come, and coming in the very step; a swap in progress is the only loss left out."""
    problem = example(salvage=(1.0, 5.0))
    plan = solve(problem)
    (course,) = courses(problem, plan)
    left = remaining_problem(problem, plan, step)
    found = verify(left, replace(remaining_plan(plan, step), objective=0.0))
    assert same(found.objective, float(course.goodput[step:].sum()) + 5.0)
    assert [item.rule for item in found.violations] == [Rule.OBJECTIVE]


@pytest.mark.parametrize("seed", range(8))
def test_a_window_can_be_planned_again_at_every_step(seed: int) -> None:
    problem = staged(physical_problem(seed), seed)
    plan = solve(problem)
    for step in range(1, problem.n_steps if plan.status.has_plan else 1):
        left = remaining_problem(problem, plan, step)
        again = solve(left, initial=remaining_plan(plan, step))
        assert verify(left, again).is_valid
