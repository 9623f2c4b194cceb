"""The thief: what it may answer, what it is worth by its own estimate, and which arrivals it goes by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from share_moments import moment_of, moments, share_tenant, with_options, with_turns

from planner.policies.ekya import Ekya
from planner.policies.shares import QUANTA, Moment, RetrainingStage, Shares, violation
from planner.policies.worth import expected_worth
from planner.problem import Owner
from tests.seeds import examples

EITHER_WAY = pytest.mark.parametrize("as_published", [False, True])
BUSY_A, BUSY_B = [150.0, 20.0], [20.0, 150.0]


def known_rps(moment: Moment) -> list[float]:
    """Mean arrivals as the policy may know them."""
    last = slice(-max(1, round(moment.left_s)), None)
    return list(np.mean(moment.past_rps[last] if moment.as_published else moment.ahead_rps, axis=0))


def estimate(moment: Moment, shares: Shares) -> float:
    """Requests right and in time to the window's end: with the old model while it trains, then with the new one."""
    total = 0.0
    for tenant, load_rps in zip(moment.tenants, known_rps(moment), strict=True):
        own = shares[tenant.inference]
        training = shares.get(tenant.retraining, 0) if tenant.is_to_retrain else 0
        rate = tenant.training_rate[training]
        until_s = moment.left_s
        if training and rate > 0:
            until_s = min(until_s, tenant.start_s + (1 - tenant.done) / rate)
        old = min(load_rps, tenant.rate_rps[own]) * tenant.accuracy_before * until_s
        new = min(load_rps, tenant.rate_rps[own + training]) * tenant.accuracy_after * (moment.left_s - until_s)
        total += tenant.weight * (old + new)
    return total


def free(moment: Moment) -> Moment:
    """The moment with nothing due."""
    return replace(moment, tenants=tuple(replace(tenant, is_due=False) for tenant in moment.tenants))


def equal_shares(moment: Moment) -> dict[Owner, int]:
    """As near to equal as whole twentieths allow; inference first, in the order of tenants."""
    tasks = [tenant.inference for tenant in moment.tenants]
    tasks += [tenant.retraining for tenant in moment.tenants if tenant.is_to_retrain]
    return {task: len(part) for task, part in zip(tasks, np.array_split(range(QUANTA), len(tasks)), strict=True)}


@settings(max_examples=examples(40))
@given(moments())
def test_its_shares_can_be(moment: Moment) -> None:
    assert violation(Ekya().shares(moment), moment) is None


def test_a_retraining_that_is_due_keeps_what_ends_it() -> None:
    a, b = share_tenant("a", accuracy=(0.8, 0.8), training_s=20.0), share_tenant("b")
    left_out, kept = (
        Ekya().shares(moment_of(replace(a, is_due=is_due), b, ahead_rps=[[150.0, 150.0]]))[a.retraining]
        for is_due in (False, True)
    )
    assert left_out == 0
    assert kept >= 4  # ends it in 100 s


def test_what_is_due_may_wait_for_another_to_end() -> None:
    a, b = (
        replace(share_tenant(name, accuracy=gain, training_s=20.0), is_due=True)
        for name, gain in (("a", (0.2, 0.8)), ("b", (0.5, 0.5)))
    )
    shares = Ekya().shares(moment_of(a, b, ahead_rps=[[60.0, 60.0]]))
    assert shares[a.retraining] > shares[b.retraining] == 0


@settings(max_examples=examples(60))
@given(moments())
def test_one_that_is_due_ends_if_it_could_alone(moment: Moment) -> None:
    due = [tenant for tenant in moment.tenants if tenant.is_due and tenant.is_to_retrain]
    if len(due) == 1 and due[0].training_s(QUANTA - len(moment.tenants)) < moment.left_s:
        worth = expected_worth(moment, known_rps(moment), Ekya().shares(moment))
        assert worth >= 0  # with one that does not end it would be below


@settings(max_examples=examples(40))
@given(moments())
def test_by_its_own_estimate_it_is_no_worse_than_equal_shares(moment: Moment) -> None:
    moment = free(moment)
    found, equal = (estimate(moment, shares) for shares in (Ekya().shares(moment), equal_shares(moment)))
    assert found >= equal * (1 - 1e-9)


@settings(max_examples=examples(20))
@given(moments(most_tenants=2))
def test_no_theft_of_one_twentieth_is_left_to_gain_from(moment: Moment) -> None:
    moment = free(moment)
    found = Ekya().shares(moment)
    best = estimate(moment, found)
    for thief in found:
        for victim in found.keys() - {thief}:
            stolen = {**found, thief: found[thief] + 1, victim: found[victim] - 1}
            if violation(stolen, moment) is None:
                assert estimate(moment, stolen) <= best * (1 + 1e-6)


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("n_tenants", [6, 10, 11, QUANTA])
def test_many_tenants_that_all_retrain_are_served(n_tenants: int, is_due: bool) -> None:
    tenants = [replace(share_tenant(f"t{k}", training_s=5.0), is_due=is_due) for k in range(n_tenants)]
    moment = moment_of(*tenants, ahead_rps=[[5.0] * n_tenants])
    assert violation(Ekya().shares(moment), moment) is None


def test_who_is_busier_gets_more() -> None:
    a, b = share_tenant("a"), share_tenant("b")
    found = Ekya().shares(moment_of(a, b, ahead_rps=[[150.0, 20.0]]))
    assert found[a.inference] >= 15 > found[b.inference]


def test_who_has_more_weight_gets_more_when_there_is_not_enough() -> None:
    a, b = share_tenant("a"), share_tenant("b", weight=2.0)
    found = Ekya().shares(moment_of(a, b, ahead_rps=[[500.0, 500.0]]))
    assert found == {a.inference: 1, b.inference: QUANTA - 1}


def test_a_retraining_that_gains_much_ends_early() -> None:
    a = share_tenant(accuracy=(0.2, 0.9), training_s=10.0)
    found = Ekya().shares(moment_of(a, ahead_rps=[[10.0]]))
    assert found[a.retraining] == QUANTA - 1


@pytest.mark.parametrize("after", [0.0, 0.6], ids=["harms", "gains nothing"])
def test_a_retraining_that_is_of_no_use_and_cannot_end_gets_none_under_load(after: float) -> None:
    a, b = share_tenant("a", accuracy=(0.6, after), training_s=1e4), share_tenant("b")
    found = Ekya().shares(moment_of(a, b, ahead_rps=[[300.0, 300.0]]))
    assert found[a.retraining] == 0


def test_a_retraining_that_harms_gets_none_though_it_could_end() -> None:
    a = share_tenant(accuracy=(0.6, 0.1), training_s=20.0)
    assert Ekya().shares(moment_of(a, ahead_rps=[[300.0]]))[a.retraining] == 0


def test_an_ended_retraining_gets_nothing() -> None:
    a = share_tenant(training_s=20.0, stage=RetrainingStage.DONE, done=1.0)
    assert Ekya().shares(moment_of(a, ahead_rps=[[300.0]])) == {a.inference: QUANTA}


@EITHER_WAY
def test_as_published_it_goes_by_the_past_else_by_the_forecast(as_published: bool) -> None:
    a, b = share_tenant("a"), share_tenant("b")
    moment = moment_of(a, b, ahead_rps=[BUSY_A], past_rps=[BUSY_B], as_published=as_published)
    found = Ekya().shares(moment)
    assert (found[b.inference] > found[a.inference]) is as_published


@EITHER_WAY
def test_it_uses_only_the_mean_of_what_it_knows(as_published: bool) -> None:
    tenants = (share_tenant("a", training_s=30.0), share_tenant("b", 5.0))
    rates = [[10.0 * k, 200.0 - 5.0 * k] for k in range(1, 9)]
    mean = [list(np.mean(rates, axis=0))] * 8
    each, flat = (
        moment_of(*tenants, ahead_rps=known, past_rps=known, as_published=as_published) for known in (rates, mean)
    )
    assert Ekya().shares(each) == Ekya().shares(flat)


@pytest.mark.parametrize("left_s", [0.2, 3.0])
def test_as_published_the_distant_past_does_not_matter(left_s: float) -> None:
    a, b = share_tenant("a"), share_tenant("b")
    past = [[500.0, 0.0]] * 50 + [BUSY_B] * 3
    moment = moment_of(a, b, past_rps=past, left_s=left_s, as_published=True)
    assert Ekya().shares(moment) == Ekya().shares(replace(moment, past_rps=np.array([BUSY_B])))


def test_the_shares_in_force_do_not_matter() -> None:
    a, b = share_tenant("a", training_s=30.0), share_tenant("b")
    moment = moment_of(a, b, ahead_rps=[BUSY_A])
    held = replace(moment, shares={a.inference: 1, a.retraining: 1, b.inference: 18})
    assert Ekya().shares(held) == Ekya().shares(moment)


@EITHER_WAY
def test_of_two_ways_to_retrain_it_takes_the_one_that_can_end(as_published: bool) -> None:
    a = with_options(share_tenant("a", training_s=20.0), quick=(0.7, 2.0))
    late, early = (moment_of(a, ahead_rps=[[50.0]], past_rps=[[50.0]], left_s=left_s) for left_s in (5.0, 200.0))
    found = [Ekya().answer(replace(moment, as_published=as_published)) for moment in (late, early)]
    assert [own.options.get("a", "full") for own in found] == ["quick", "full"]
    assert all(own.shares[a.retraining] > 0 for own in found)


def test_what_a_model_is_worth_later_pays_for_its_retraining() -> None:
    a = share_tenant("a", accuracy=(0.6, 0.5), training_s=20.0)
    found = [Ekya().shares(moment_of(own, ahead_rps=[[300.0]])) for own in (a, replace(a, salvage=(0.0, 1e6)))]
    assert [own[a.retraining] > 0 for own in found] == [False, True]


def test_it_takes_turns_where_its_shares_are_worth_more_so() -> None:
    a, b = (with_turns(share_tenant(name), 15.0) for name in "ab")
    assert Ekya().answer(moment_of(a, b, ahead_rps=[[250.0, 40.0]])).in_turns


def test_in_turns_it_shares_for_turns() -> None:
    # Side by side all are alike; in turns b needs next to nothing.
    a, b = with_turns(share_tenant("a"), 12.0), with_turns(share_tenant("b"), 1000.0)
    moment = moment_of(a, b, ahead_rps=[[300.0, 300.0]])
    assert Ekya().shares(moment)[b.inference] > 1 == Ekya().answer(moment).shares[b.inference]
