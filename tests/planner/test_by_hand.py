"""Plans from lifetimes: what is filled in follows from the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from windows import tenant, window

from planner.by_hand import inference, plan_of, retraining
from planner.errors import ProblemError
from planner.plan import Lifetime
from planner.problem import HeldInstance, PhysicalState, Problem, Reconfiguration
from planner.solve import solve
from planner.verify import verify

N_STEPS = 40


def problem_of(initial: PhysicalState | None = None) -> Problem:
    capability = {"1g.5gb": 40.0, "2g.10gb": 85.0, "3g.20gb": 130.0}
    tenants = [
        tenant(name, [100.0] * N_STEPS, capability, retraining_s={"1g.5gb": 8.0, "2g.10gb": 5.0}, overhead_s=2.0)
        for name in "ab"
    ]
    return window(*tenants, model=Reconfiguration.PHYSICAL, initial=initial)


def held_at(problem: Problem, *texts: str) -> list[Lifetime]:
    """Each tenant's inference on one placement, all window long."""
    placements = map(problem.gpu.placement, texts)
    return [inference(problem, own, place) for own, place in zip(problem.tenants, placements, strict=True)]


def retrained(problem: Problem, text: str) -> list[Lifetime]:
    """Both retrainings on one placement, one after the other."""
    place = problem.gpu.placement(text)
    first = retraining(problem, problem.tenants[0], place)
    return [first, retraining(problem, problem.tenants[1], place, first.end_step)]


def test_a_plan_of_lifetimes_keeps_every_rule() -> None:
    problem = problem_of()
    plan = plan_of(problem, [*held_at(problem, "3g.20gb@4", "2g.10gb@0"), *retrained(problem, "2g.10gb@2")], "hand")
    assert verify(problem, plan).violations == ()


def test_an_epoch_tells_the_next_window_when_it_may_change() -> None:
    problem = problem_of()
    place = problem.gpu.placement("2g.10gb@2")
    late = inference(problem, problem.tenants[1], place, N_STEPS - 3)
    lifetimes = [*held_at(problem, "3g.20gb@4", "2g.10gb@0"), *retrained(problem, "1g.5gb@2"), late]
    plan = plan_of(problem, lifetimes, "hand")
    assert plan.next_epoch_step == N_STEPS - 3 + problem.epoch_steps
    assert verify(problem, plan).violations == ()


def test_what_is_dropped_as_the_window_opens_is_an_epoch_whether_it_is_listed_or_not() -> None:
    problem = problem_of()
    kept, dropped = (problem.gpu.placement(text) for text in ("3g.20gb@4", "2g.10gb@0"))
    problem = replace(problem, initial=PhysicalState((HeldInstance(kept, "a", 0), HeldInstance(dropped, "b", 0))))
    stays = inference(problem, problem.tenants[0], kept)
    listed = inference(problem, problem.tenants[1], dropped, end_step=0)
    found = {plan_of(problem, lifetimes, "hand").next_epoch_step for lifetimes in ([stays], [stays, listed])}
    assert found == {problem.epoch_steps}


def test_what_stands_serves_when_it_was_promised() -> None:
    place = problem_of().gpu.placement("3g.20gb@4")
    problem = problem_of(PhysicalState((HeldInstance(place, "a", 2),), next_epoch_step=2))
    assert inference(problem, problem.tenants[0], place).serve_step == 2


def test_a_new_instance_of_a_later_window_warms_up() -> None:
    problem = problem_of(PhysicalState())
    life = inference(problem, problem.tenants[0], problem.gpu.placement("3g.20gb@4"))
    assert life.serve_step == problem.warm_up_steps(problem.tenants[0])


def test_a_plan_by_hand_of_the_lifetimes_of_an_engine_is_worth_the_same() -> None:
    problem = problem_of()
    made = solve(problem, "greedy")
    assert plan_of(problem, made.lifetimes, "hand").objective == pytest.approx(made.objective)


def test_lifetimes_that_nothing_can_be_said_of_are_worth_nothing() -> None:
    problem = problem_of()
    stranger = inference(problem, problem.tenants[0], problem.gpu.placement("7g.40gb@0"))
    plan = plan_of(problem, [stranger], "hand")
    assert plan.objective == 0.0
    assert verify(problem, plan).violations


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda problem: retraining(problem, problem.tenants[0], problem.gpu.placement("3g.20gb@0")),
            "no retraining on 3g.20gb; offered: full on 1g.5gb, 2g.10gb",
        ),
        (
            lambda problem: retraining(problem, problem.tenants[0], problem.gpu.placement("1g.5gb@0"), 0, "lora"),
            "no retraining 'lora' on 1g.5gb",
        ),
    ],
)
def test_a_retraining_that_is_not_offered_is_refused(made: Callable[[Problem], Lifetime], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        made(problem_of())
