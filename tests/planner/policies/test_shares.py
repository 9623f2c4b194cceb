"""What shares can be: the message of each rule, and that nothing else is refused."""

from __future__ import annotations

import pytest
from share_moments import moment_of, share_tenant

from planner.policies.shares import QUANTA, Stage, violation
from planner.problem import Owner, Task

A, B = share_tenant("a"), share_tenant("b", training_s=20.0)
MOMENT = moment_of(A, B)
STRANGER = "; only inference and retrainings that wait or run may"


@pytest.mark.parametrize("retraining", [0, 1, QUANTA - 2])
def test_shares_that_fit_are_no_violation(retraining: int) -> None:
    assert violation({A.inference: 1, B.inference: 1, B.retraining: retraining}, MOMENT) is None


def test_a_retraining_that_waits_may_be_left_out() -> None:
    assert violation({A.inference: 1, B.inference: QUANTA - 1}, MOMENT) is None


def test_processors_may_idle() -> None:
    assert violation({A.inference: 1, B.inference: 1}, MOMENT) is None


def test_an_unknown_tenant_gets_none() -> None:
    shares = {A.inference: 1, B.inference: 1, Owner("c", Task.INFERENCE): 1}
    assert violation(shares, MOMENT) == f"c/inference gets a share{STRANGER}"


@pytest.mark.parametrize("stage", [Stage.NONE, Stage.DONE])
def test_a_retraining_that_neither_waits_nor_runs_gets_none(stage: Stage) -> None:
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


@pytest.mark.parametrize(("stage", "expected"), list(zip(Stage, [False, True, True, False], strict=True)))
def test_what_waits_or_runs_is_to_retrain(stage: Stage, expected: bool) -> None:
    assert share_tenant(training_s=20.0, stage=stage).is_to_retrain is expected
