"""Shares by load and compute intensity: what they fill, what moves them, and what does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from share_moments import moment_of, moments, share_tenant, with_options, with_turns

from planner.arrays import Floats
from planner.policies.astraea import Astraea
from planner.policies.shares import QUANTA, Moment, RetrainingStage, Shares, violation
from tests.seeds import examples

LOADS = pytest.mark.parametrize("load_rps", [0.0, 1.0, 50.0, 200.0, 1e6])


@settings(max_examples=examples(100))
@given(moments(most_tenants=6))
def test_its_shares_can_be(moment: Moment) -> None:
    assert violation(Astraea().shares(moment), moment) is None


@settings(max_examples=examples(100))
@given(moments(most_tenants=6))
def test_the_gpu_is_filled(moment: Moment) -> None:
    assert sum(Astraea().shares(moment).values()) == QUANTA


@LOADS
def test_from_no_load_to_far_too_much_everybody_has_a_share(load_rps: float) -> None:
    tenants = [share_tenant(name, training_s=20.0) for name in "abcdef"]
    found = Astraea().shares(moment_of(*tenants, past_rps=[[load_rps] * 6]))
    assert len(found) == 12
    assert min(found.values()) >= 1


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("n_tenants", [10, 11, QUANTA])
def test_many_tenants_that_all_retrain_are_served(n_tenants: int, is_due: bool) -> None:
    tenants = [replace(share_tenant(f"t{k}", training_s=5.0), is_due=is_due) for k in range(n_tenants)]
    moment = moment_of(*tenants, past_rps=[[5.0] * n_tenants])
    assert violation(Astraea().shares(moment), moment) is None


@LOADS
def test_equal_tenants_have_equal_shares(load_rps: float) -> None:
    tenants = [share_tenant(name) for name in "abcd"]
    found = Astraea().shares(moment_of(*tenants, past_rps=[[load_rps] * 4]))
    assert set(found.values()) == {QUANTA // 4}


@settings(max_examples=examples(50))
@given(moments(), st.floats(0, 1), st.floats(0, 1), st.floats(0, 5))
def test_accuracy_and_weight_do_not_matter(moment: Moment, before: float, after: float, weight: float) -> None:
    first = replace(moment.tenants[0], accuracy_before=before, accuracy_after=after, weight=weight)
    other = replace(moment, tenants=(first, *moment.tenants[1:]))
    assert Astraea().shares(other) == Astraea().shares(moment)


@settings(max_examples=examples(100))
@given(moments(), st.integers(1, 500))
def test_more_load_is_no_smaller_share(moment: Moment, more_rps: int) -> None:
    busier = moment.past_rps.copy()
    busier[:, 0] += more_rps
    inference = moment.tenants[0].inference
    before, after = (Astraea().shares(replace(moment, past_rps=rates)) for rates in (moment.past_rps, busier))
    # Where it makes the load too much for all, what inference may have is shared out in proportion instead.
    if is_enough(moment, moment.past_rps, before) == is_enough(moment, busier, after):
        assert after[inference] >= before[inference]


def is_enough(moment: Moment, rates: Floats, shares: Shares) -> bool:
    """Whether every tenant's share serves the load that is expected."""
    loads = (Astraea().headroom * rates[-1]).tolist()
    tenants = zip(moment.tenants, loads, strict=True)
    return all(bool(tenant.rate_rps[shares[tenant.inference]] >= load) for tenant, load in tenants)


@settings(max_examples=examples(100))
@given(moments(), st.integers(1, 4))
def test_inference_comes_first_and_retrainings_have_the_rest(moment: Moment, floor: int) -> None:
    policy = Astraea(floor=floor)
    shares = policy.shares(moment)
    training = [tenant for tenant in moment.tenants if tenant.is_to_retrain]
    floors = sum(max(floor, one.least_training(moment.left_s)) for one in training)  # what is due may need more
    alone = replace(moment, tenants=tuple(replace(tenant, stage=RetrainingStage.NONE) for tenant in moment.tenants))
    for tenant, load_rps in zip(moment.tenants, moment.past_rps[-1].tolist(), strict=True):
        wanted_rps = policy.headroom * load_rps
        is_served = tenant.rate_rps[shares[tenant.inference]] >= wanted_rps
        floors_left = sum(shares[one.retraining] for one in training) > floors
        if floors_left and wanted_rps <= tenant.rate_rps[-1]:
            assert is_served  # who trains with more than the floors leaves nobody short
    if not training:
        assert shares == policy.shares(alone)
    elif floors <= QUANTA - len(moment.tenants):
        assert all(shares[one.retraining] >= floor for one in training)


def test_load_that_needs_more_gets_more() -> None:
    a, b = share_tenant("a"), share_tenant("b")
    found = Astraea().shares(moment_of(a, b, past_rps=[[80.0, 40.0]]))
    assert found == {a.inference: 13, b.inference: 7}  # one each, and 18 in proportion 2 to 1


def test_the_same_load_on_a_heavier_model_gets_more() -> None:
    light, heavy = share_tenant("light", 20.0), share_tenant("heavy", 5.0)
    found = Astraea().shares(moment_of(light, heavy, past_rps=[[40.0, 40.0]]))
    assert found[heavy.inference] > found[light.inference]


def test_a_heavier_retraining_gets_more() -> None:
    short, long = share_tenant("short", training_s=10.0), share_tenant("long", training_s=40.0)
    found = Astraea().shares(moment_of(short, long, past_rps=[[10.0, 10.0]]))
    assert found[long.retraining] > found[short.retraining]


@settings(max_examples=examples(50))
@given(st.floats(1, 199), st.floats(0, 1), st.floats(0, 0.9))
def test_a_retraining_gets_more_when_less_time_is_left(left_s: float, done: float, earlier: float) -> None:
    a = share_tenant("a", training_s=40.0, done=done)
    now = moment_of(a, past_rps=[[50.0]], left_s=left_s)
    late = replace(now, left_s=left_s * (1 - earlier))
    assert Astraea().shares(late)[a.retraining] >= Astraea().shares(now)[a.retraining]


def test_only_the_last_seconds_count() -> None:
    a, b = share_tenant("a"), share_tenant("b")
    last = [[30.0, 60.0]] * 3
    whole = moment_of(a, b, past_rps=[[900.0, 0.0]] * 50 + last)
    of_three = Astraea(n_seen=3)
    assert of_three.shares(whole) == of_three.shares(moment_of(a, b, past_rps=last))


@settings(max_examples=examples(30))
@given(moments())
def test_it_knows_nothing_of_what_is_ahead(moment: Moment) -> None:
    other = replace(moment, ahead_rps=np.full_like(moment.ahead_rps, np.nan))
    assert Astraea().shares(other) == Astraea().shares(moment)


def test_load_within_what_is_needed_is_carried_with_headroom() -> None:
    a, b = share_tenant("a"), share_tenant("b")
    found = Astraea().shares(moment_of(a, b, past_rps=[[60.0, 30.0]]))
    assert all(10 * quanta >= Astraea().headroom * load for quanta, load in zip(found.values(), (60, 30), strict=True))


def test_a_way_to_retrain_that_pays_before_the_window_ends_is_chosen_for_it() -> None:
    a = with_options(share_tenant("a", training_s=40.0), quick=(0.75, 2.0))
    found = Astraea().answer(moment_of(a, past_rps=[[40.0]], left_s=30.0))
    assert (found.options, found.shares) == (
        {"a": "quick"},
        Astraea().shares(moment_of(a.retrained_by("quick"), past_rps=[[40.0]], left_s=30.0)),
    )


def test_turns_are_chosen_for_it_by_the_load_that_it_sees() -> None:
    a, b = with_turns(share_tenant("a"), 20.0), with_turns(share_tenant("b"), 20.0)
    found = [Astraea().answer(moment_of(a, b, past_rps=[[load_rps] * 2])).in_turns for load_rps in (50.0, 200.0)]
    assert found == [False, True]
