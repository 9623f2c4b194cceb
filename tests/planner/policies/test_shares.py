"""What shares can be: the message of each rule, and that nothing else is refused. And what is settled with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from share_moments import moment_of, share_tenant, with_options, with_turns

from planner.policies.shares import (
    QUANTA,
    Answer,
    Moment,
    RetrainingStage,
    Shares,
    ShareTenant,
    least_shares,
    speed_in_turns,
    violation,
)
from planner.policies.worth import best_answer, expected_worth
from planner.problem import Owner, Task
from tests.seeds import examples

A, B = share_tenant("a"), share_tenant("b", training_s=20.0)
MOMENT = moment_of(A, B)
STRANGER = "; only inference and retrainings that wait or run may"


@pytest.mark.parametrize("retraining", [0, 1, QUANTA - 2])
def test_shares_that_fit_are_no_violation(retraining: int) -> None:
    assert violation({A.inference: 1, B.inference: 1, B.retraining: retraining}, MOMENT) is None


def test_a_retraining_that_waits_may_be_left_out() -> None:
    assert violation({A.inference: 1, B.inference: QUANTA - 1}, MOMENT) is None


@pytest.mark.parametrize("stage", [RetrainingStage.WAITING, RetrainingStage.RUNNING])
def test_a_retraining_that_is_due_waits_for_another_or_gets_a_share(stage: RetrainingStage) -> None:
    a, b = (replace(share_tenant(name, training_s=20.0, stage=stage), is_due=True) for name in "ab")
    serving = {a.inference: 1, b.inference: 1}
    found = violation(serving, moment_of(a, b))
    due = "is due (retraining.required, max_skipped), could end in time, and waits for no other"
    assert found == f"a/retraining gets no share, {due}"
    assert violation({**serving, b.retraining: 1}, moment_of(a, b)) is None
    assert violation(serving, moment_of(a, b, left_s=20.0)) is None  # it cannot end


def test_what_is_due_follows_the_one_that_it_waits_for() -> None:
    a, b = (replace(share_tenant(name, accuracy=(0.5, 0.9), training_s=20.0), is_due=True) for name in "ab")
    shares = {a.inference: 6, b.inference: 6, a.retraining: 8}  # 50 s each, one after the other
    in_time = expected_worth(moment_of(a, b, left_s=101.0), [10.0, 10.0], shares)
    assert in_time == pytest.approx(10 * (50 * 0.5 + 51 * 0.9) + 10 * (100 * 0.5 + 1 * 0.9))
    assert expected_worth(moment_of(a, b, left_s=100.0), [10.0, 10.0], shares) < 0


@pytest.mark.parametrize("start_s", [0.0, 2.0])
def test_a_retraining_ends_after_its_start(start_s: float) -> None:
    a = replace(share_tenant(accuracy=(0.0, 1.0), training_s=20.0), start_s=start_s)
    worth = expected_worth(moment_of(a), [1.0], {a.inference: 10, a.retraining: 10})
    assert worth == pytest.approx(60 - start_s)


@pytest.mark.parametrize(
    ("left_s", "done", "start_s", "quanta"),
    [(20.1, 0.0, 0.0, 20), (40.1, 0.0, 0.0, 10), (42.1, 0.0, 2.0, 10), (40.1, 0.5, 0.0, 5), (20.0, 0.0, 0.0, 1)],
)
def test_a_retraining_that_is_due_needs_what_ends_it(left_s: float, done: float, start_s: float, quanta: int) -> None:
    tenant = replace(share_tenant(training_s=20.0, done=done), is_due=True, start_s=start_s)
    assert tenant.least_training(left_s) == quanta
    assert replace(tenant, is_due=False).least_training(left_s) == 0
    assert replace(tenant, stage=RetrainingStage.DONE).least_training(left_s) == 0


def test_where_not_all_that_is_due_can_end_each_has_the_least() -> None:
    a, b = (replace(share_tenant(name, training_s=20.0), is_due=True) for name in "ab")
    assert least_shares(moment_of(a, b, left_s=25.0)) == dict.fromkeys(
        (a.inference, b.inference, a.retraining, b.retraining), 1
    )
    assert least_shares(moment_of(a, b, left_s=50.1))[a.retraining] == 8


@pytest.mark.parametrize(("n_tenants", "n_training"), [(10, 10), (11, 9), (QUANTA, 0)])
def test_where_not_all_that_is_due_has_room_the_first_tenants_train(n_tenants: int, n_training: int) -> None:
    tenants = [replace(share_tenant(f"t{k}", training_s=20.0), is_due=True) for k in range(n_tenants)]
    found = least_shares(moment_of(*tenants, left_s=25.0))
    assert [found[one.retraining] for one in tenants] == [1] * n_training + [0] * (n_tenants - n_training)
    assert all(found[one.inference] == 1 for one in tenants)


def test_processors_may_idle() -> None:
    assert violation({A.inference: 1, B.inference: 1}, MOMENT) is None


def test_an_unknown_tenant_gets_none() -> None:
    shares = {A.inference: 1, B.inference: 1, Owner("c", Task.INFERENCE): 1}
    assert violation(shares, MOMENT) == f"c/inference gets a share{STRANGER}"


@pytest.mark.parametrize("stage", [RetrainingStage.NONE, RetrainingStage.DONE])
def test_a_retraining_that_neither_waits_nor_runs_gets_none(stage: RetrainingStage) -> None:
    tenant = share_tenant("b", training_s=20.0, stage=stage)
    found = violation({tenant.inference: 1, tenant.retraining: 1}, moment_of(tenant))
    assert found == f"b/retraining gets a share{STRANGER}"


@pytest.mark.parametrize("shares", [{A.inference: 1}, {A.inference: 1, B.inference: 0}], ids=["left out", "0"])
def test_every_inference_gets_at_least_one(shares: dict[Owner, int]) -> None:
    assert violation(shares, MOMENT) == "b/inference gets no share; at least 1 of 20 is needed"


def test_no_shares_at_all_are_a_violation() -> None:
    assert violation({}, MOMENT) == "a/inference gets no share; at least 1 of 20 is needed"


def test_no_share_is_negative() -> None:
    shares = {A.inference: 1, B.inference: 1, B.retraining: -1}
    assert violation(shares, MOMENT) == "shares are [-1, 1, 1]; from 0 on, and 20 together, are allowed"


def test_shares_are_not_more_than_the_gpu() -> None:
    shares = {A.inference: 1, B.inference: QUANTA}
    assert violation(shares, MOMENT) == "shares are [1, 20]; from 0 on, and 20 together, are allowed"


@pytest.mark.parametrize(("stage", "expected"), list(zip(RetrainingStage, [False, True, True, False], strict=True)))
def test_what_waits_or_runs_is_to_retrain(stage: RetrainingStage, expected: bool) -> None:
    assert share_tenant(training_s=20.0, stage=stage).is_to_retrain is expected


# --- what shares are worth, and what is settled with them


def evenly(moment: Moment) -> Shares:
    """The same share for every task."""
    tasks = [tenant.inference for tenant in moment.tenants] + [tenant.retraining for tenant in moment.tenants]
    return dict.fromkeys(tasks, QUANTA // len(tasks))


@pytest.mark.parametrize(("as_published", "worth"), [(False, 9740.0), (True, 8300.0)])
def test_an_ended_retraining_disturbs_nobody_but_as_published(as_published: bool, worth: float) -> None:
    a, b = share_tenant("a", accuracy=(0.5, 0.5), training_s=10.0), share_tenant("b", 12.0)
    disturbed = replace(b, rate_rps=b.rate_rps / 2, rate_beside=(b.rate_rps, b.rate_rps / 2))
    moment = moment_of(a, disturbed, ahead_rps=[[1000.0] * 2], as_published=as_published)
    # For 20 s: 50 and 30 requests a second; for 80 s: 150, and 60 or 30.
    assert expected_worth(moment, [1000.0] * 2, {a.inference: 5, a.retraining: 10, b.inference: 5}) == worth


@pytest.mark.parametrize(("left_s", "beyond"), [(100.0, 7.0), (20.0, 3.0), (10.0, 3.0)])
def test_a_model_is_worth_something_beyond_the_window_that_it_is_ready_in(left_s: float, beyond: float) -> None:
    a = replace(share_tenant(training_s=10.0), salvage=(3.0, 7.0))
    moment = moment_of(a, left_s=left_s)
    assert expected_worth(moment, [0.0], {a.inference: 10, a.retraining: 10}) == beyond


def test_where_there_is_nothing_to_choose_shares_are_all_there_is() -> None:
    moment = moment_of(A, with_options(B))
    assert best_answer(moment, evenly, [100.0] * 2) == Answer(evenly(moment))


@pytest.mark.parametrize(("rps_each", "in_turns"), [(9.0, False), (10.0, False), (11.0, True)])
def test_turns_are_taken_where_they_are_worth_more(rps_each: float, in_turns: bool) -> None:
    tenants = [with_turns(share_tenant(name), rps_each) for name in "ab"]
    assert best_answer(moment_of(*tenants), evenly, [100.0] * 2).in_turns is in_turns


def test_turns_of_which_somebody_knows_nothing_are_not_taken() -> None:
    a, b = with_turns(share_tenant("a"), 1000.0), share_tenant("b")
    assert not best_answer(moment_of(a, b), evenly, [100.0] * 2).in_turns


def test_in_turns_nobody_is_disturbed_and_training_has_the_whole_gpu_for_its_part() -> None:
    rising = B.training_rate**2
    tenant = replace(with_turns(B, 4.0), rate_beside=(B.rate_rps,), training_rate=rising).in_turns()
    assert tenant.rate_while(1).tolist() == [4.0 * quanta for quanta in range(QUANTA + 1)]
    assert tenant.training_rate.tolist() == pytest.approx([rising[-1] * quanta / 21 for quanta in range(21)])
    assert speed_in_turns(rising)[-1] == rising[-1] / 1.05


def judged(moment: Moment, found: Answer, mean_rps: Sequence[float]) -> float:
    return expected_worth(moment.if_settled(found.options, in_turns=found.in_turns), mean_rps, found.shares)


@st.composite
def choosing(draw: st.DrawFn, name: str) -> ShareTenant:
    ways = {f"way{k}": (draw(st.floats(0, 1)), draw(st.floats(1, 200))) for k in range(draw(st.integers(0, 2)))}
    tenant = share_tenant(name, training_s=draw(st.floats(1, 200)), accuracy=(0.5, draw(st.floats(0, 1))))
    return with_turns(with_options(tenant, **ways), draw(st.sampled_from([8.0, 10.0, 12.0])))


@settings(max_examples=examples(60))
@given(choosing("a"), choosing("b"), st.lists(st.integers(0, 200).map(float), min_size=2, max_size=2))
def test_nothing_that_could_be_settled_is_worth_more(a: ShareTenant, b: ShareTenant, mean_rps: list[float]) -> None:
    moment = moment_of(a, b)
    every = [
        Answer(evenly(moment), in_turns, {"a": own.name, "b": other.name})
        for in_turns, own, other in product([False, True], a.options, b.options)
    ]
    best = max(judged(moment, answer, mean_rps) for answer in every)
    assert judged(moment, best_answer(moment, evenly, mean_rps), mean_rps) == pytest.approx(best)
