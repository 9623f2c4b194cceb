"""Least shares that keep SLOs, the rest for trainings: what is kept wherever it can be, and when it decides anew."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from share_moments import STEPS, moment_of, share_tenant, share_tenants, with_options, with_turns

from planner.policies.mudi import Mudi, best_tried
from planner.policies.shares import QUANTA, Answer, Batches, Moment, RetrainingStage, ShareTenant, violation
from tests.seeds import examples

MUDI = Mudi()


def sizes(per_s: float, sizes: tuple[int, ...] = (1, 4, 16), fixed: float = 0.2) -> tuple[Batches, ...]:
    """Batches that take a fixed part and one for each request; ``per_s`` requests a second of the largest on all."""
    whole_s = [(fixed + size) / (fixed + sizes[-1]) * sizes[-1] / per_s for size in sizes]
    return tuple(Batches(size, 1, STEPS / QUANTA / own_s) for size, own_s in zip(sizes, whole_s, strict=True))


def tenant(name: str = "a", per_s: float = 400.0, slo_s: float = 0.2, **more: object) -> ShareTenant:
    """A tenant that serves so many a second on all of the GPU, in the largest batches."""
    return replace(share_tenant(name, per_s / QUANTA, **more), slo_s=slo_s, batches=sizes(per_s))  # type: ignore[arg-type]


@st.composite
def moments(draw: st.DrawFn, most_tenants: int = 6) -> Moment:
    """Tenants with batches, SLOs and interference, from no load to far more than the GPU carries."""
    tenants = [
        replace(
            draw(share_tenants(name)),
            slo_s=draw(st.floats(0.01, 2)),
            batches=sizes(draw(st.floats(10, 5000)), fixed=draw(st.floats(0, 8))),
            slowdowns=tuple(1 + draw(st.floats(0, 0.5)) * n for n in range(most_tenants + 1)),
        )
        for name in "abcdef"[: draw(st.integers(1, most_tenants))]
    ]
    rates = [draw(st.lists(st.integers(0, 600), min_size=len(tenants), max_size=len(tenants)))]
    return moment_of(*tenants, past_rps=rates * 3, left_s=draw(st.floats(0.01, 200)))


def n_training(answer: Answer, moment: Moment) -> int:
    return sum(answer.shares.get(own.retraining, 0) > 0 for own in moment.tenants)


def n_due(moment: Moment) -> int:
    due = sum(own.is_due and own.is_to_retrain for own in moment.tenants)
    return min(due, 3, QUANTA - len(moment.tenants))


def keeps(own: ShareTenant, size: Batches, quanta: int, rate_rps: float, n: int) -> bool:
    """Whether batches of this size are as many as arrive, and two of them within the SLO."""
    batch_s = own.slowdown_while(n) / float(size.speed[quanta])
    return rate_rps * batch_s <= size.most * size.processes * (1 + 1e-9) and 2 * batch_s <= own.slo_s * (1 + 1e-9)


def least(own: ShareTenant, rate_rps: float, n: int) -> float:
    """By trying: the fewest quanta with which any size keeps the SLO; infinite without any."""
    found = (q for q in range(1, QUANTA + 1) if any(keeps(own, size, q, rate_rps, n) for size in own.batches))
    return next(found, math.inf)


@settings(max_examples=examples(200))
@given(moments())
def test_shares_can_be_and_are_all_of_the_gpu(moment: Moment) -> None:
    answer = MUDI.answer(moment)
    assert violation(answer.shares, moment) is None
    assert sum(answer.shares.values()) == QUANTA
    assert n_due(moment) <= n_training(answer, moment) <= 3


@settings(max_examples=examples(200))
@given(moments())
def test_inference_has_what_keeps_its_slo_wherever_a_share_does(moment: Moment) -> None:
    answer, rates = MUDI.answer(moment), moment.past_rps[-1].tolist()
    n = n_training(answer, moment)
    needed = [least(own, rps, n_due(moment)) for own, rps in zip(moment.tenants, rates, strict=True)]
    if sum(needed) <= QUANTA - n_due(moment):
        for own, rps in zip(moment.tenants, rates, strict=True):
            assert keeps(own, answer.batches[own.name], answer.shares[own.inference], rps, n)
    else:
        assert n == n_due(moment)


@settings(max_examples=examples(100))
@given(moments())
def test_trainings_have_equal_parts(moment: Moment) -> None:
    answer = MUDI.answer(moment)
    parts = [q for own in moment.tenants if (q := answer.shares.get(own.retraining, 0))]
    assert not parts or max(parts) - min(parts) <= 1


@settings(max_examples=examples(100))
@given(moments(), st.floats(0.51, 0.99), st.floats(1.01, 1.49))
def test_it_decides_anew_where_a_rate_changes_by_half_or_trainings_change_and_else_not(
    moment: Moment, less: float, more: float
) -> None:
    later = replace(moment, decided=moment)
    assert not MUDI.reconsiders(later)
    assert not MUDI.reconsiders(replace(later, past_rps=moment.past_rps * less))
    assert not MUDI.reconsiders(replace(later, past_rps=moment.past_rps * more))
    assert MUDI.reconsiders(replace(later, past_rps=moment.past_rps * 1.6 + 0.1))
    first, *others = moment.tenants
    stage = RetrainingStage.DONE if first.is_to_retrain else RetrainingStage.WAITING
    assert MUDI.reconsiders(replace(later, tenants=(replace(first, stage=stage), *others)))
    assert MUDI.reconsiders(moment)


def test_a_training_that_begins_to_run_changes_nothing() -> None:
    now = moment_of(tenant(training_s=20.0), past_rps=[[100.0]])
    began = replace(now, tenants=(replace(now.tenants[0], stage=RetrainingStage.RUNNING),), decided=now)
    assert not MUDI.reconsiders(began)


def test_inference_has_a_tenth_more_than_the_least_and_training_the_rest() -> None:
    # 100 of 400 a second are five twentieths, a tenth more 5.5, in the batches that are the fastest.
    moment = moment_of(tenant(training_s=20.0, slo_s=10.0), past_rps=[[100.0]])
    answer = MUDI.answer(moment)
    assert answer.shares == {moment.tenants[0].inference: 6, moment.tenants[0].retraining: 14}
    assert answer.batches["a"].most == 16


def test_the_slo_may_ask_for_smaller_batches_and_a_larger_share() -> None:
    moment = moment_of(tenant(training_s=20.0, slo_s=0.05), past_rps=[[100.0]])
    answer = MUDI.answer(moment)
    assert answer.batches["a"].most == 1
    assert answer.shares[moment.tenants[0].inference] > 6


def test_more_interference_is_a_larger_share() -> None:
    alone = tenant(training_s=20.0, slo_s=10.0)
    beside = replace(alone, slowdowns=(1.0, 1.5))
    shares = [MUDI.answer(moment_of(own, past_rps=[[100.0]])).shares[own.inference] for own in (alone, beside)]
    assert shares == [6, 9]


def test_training_is_paused_where_no_share_keeps_the_slo_unless_it_is_due() -> None:
    busy = tenant(training_s=20.0)
    paused, due = (MUDI.answer(moment_of(replace(busy, is_due=is_due), past_rps=[[1000.0]])) for is_due in (0, 1))
    assert paused.shares == {busy.inference: QUANTA}
    assert due.shares == {busy.inference: QUANTA - 1, busy.retraining: 1}


def test_of_many_trainings_three_run_those_that_are_due_and_those_that_run_first() -> None:
    tenants = [tenant(name, training_s=20.0) for name in "abcde"]
    tenants[4] = replace(tenants[4], is_due=True)
    tenants[3] = replace(tenants[3], stage=RetrainingStage.RUNNING)
    answer = MUDI.answer(moment_of(*tenants, past_rps=[[1.0] * 5]))
    assert {own.name for own in tenants if answer.shares.get(own.retraining, 0)} == {"a", "d", "e"}


@pytest.mark.parametrize("n_tenants", [10, 19, QUANTA])
def test_many_tenants_that_all_retrain_are_served(n_tenants: int) -> None:
    tenants = [replace(tenant(f"t{k}", training_s=5.0), is_due=True) for k in range(n_tenants)]
    moment = moment_of(*tenants, past_rps=[[5.0] * n_tenants])
    assert violation(MUDI.answer(moment).shares, moment) is None


def test_turns_are_taken_where_they_are_worth_more() -> None:
    disturbed = [replace(with_turns(tenant(name), 19.0), slowdowns=(3.0,), rate_rps=5.0 * STEPS) for name in "ab"]
    answer = MUDI.answer(moment_of(*disturbed, past_rps=[[150.0, 150.0]]))
    assert answer.in_turns
    assert set(answer.shares.values()) == {QUANTA // 2}
    assert answer.batches["a"] in disturbed[0].batches


def test_of_several_ways_to_retrain_that_which_is_worth_most_is_taken() -> None:
    own = with_options(tenant(training_s=90.0, slo_s=10.0), quick=(0.79, 20.0))
    answer = MUDI.answer(moment_of(own, past_rps=[[100.0]], left_s=100.0))
    assert answer.options == {"a": "quick"}


def test_the_mean_of_four_trials_finds_the_best_of_six() -> None:
    rng, lost = np.random.default_rng(5), []
    for _ in range(400):
        best = rng.integers(0, 6)
        true = 100 * (1 + rng.uniform(0.02, 0.1) * (np.arange(6) - best) ** 2 / 4 + rng.normal(0, 0.015, 6))
        found = best_tried(range(6), lambda place, true=true: float(true[place] * rng.lognormal(0, 0.05)))
        lost.append(float(true[found] / true.min() - 1))
    assert float(np.mean(lost)) <= 0.01
