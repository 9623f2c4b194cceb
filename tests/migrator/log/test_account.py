"""Every request of a run is in one class; what the classes are is checked on logs made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from migrator.comparison.matches import matches_of, score_of, standings, told_apart, with_hindsight
from migrator.config.reading import read_config
from migrator.log.account import Account, accounts, waits_for_others
from migrator.log.runlog import ReadLog
from tests.migrator.log import records
from tests.migrator.log.records import Json, change, failed, ready, started, stopped


def log_of(arrivals: list[int], in_time: list[int], correct: list[int], *changes: Json, **tenant: Any) -> ReadLog:
    """A log of one window of one tenant ``a``, with rates of 10 and 20 requests a second and compute slice."""
    counts = {"arrivals": arrivals, "in_time": in_time, "correct": correct, **tenant}
    header = records.header(len(arrivals), sharing="shares" if tenant else "instances")
    return records.log_of(header, *changes, records.window_finished(0, a=counts))


UP = (change(0, -5.0, [started("one", -5.0, "1g.10gb@0")]), ready(0, "one", -1.0))


def starting(ready_s: float) -> tuple[Json, Json]:
    return change(0, 0.0, [started("two", 0.0, "2g.20gb@2")]), ready(0, "two", ready_s)


def test_what_no_instance_could_have_answered_is_capacity():
    account = accounts(log_of([30, 10], [10, 10], [10, 10], *UP))["a"]
    assert account.capacity.tolist() == [20.0, 0.0]
    assert account.total == Account(goodput=20.0, capacity=20.0)


def test_what_a_starting_instance_would_have_answered_is_reconfiguration():
    account = accounts(log_of([40, 40], [10, 20], [10, 20], *UP, *starting(1.5)))["a"]
    assert account.reconfiguration.tolist() == [20.0, 10.0]
    assert account.capacity.tolist() == [10.0, 10.0]


def test_what_a_stopping_instance_would_have_answered_is_reconfiguration():
    stopping = change(0, 0.5, [], [stopped("one", 0.5, 1.25)])
    account = accounts(log_of([10, 10], [5, 0], [5, 0], *UP, stopping))["a"]
    assert account.reconfiguration.tolist() == [5.0, 2.5]
    assert account.capacity.tolist() == [0.0, 7.5]


def test_an_instance_of_a_pool_could_have_answered_each_member_at_the_pool_s_rate():
    rates = {"1g.10gb": {"a": 8.0, "b": 4.0}}
    pools = [{"members": ["a", "b"], "overhead_s": 1.0, "capability_rps": rates}]
    begun = records.window_started(0, 2.0, "a", "b") | {"pools": pools}
    up = change(0, -5.0, [started("one", -5.0, "1g.10gb@0") | {"tenant": ["a", "b"]}])
    counts = {name: records.counts([4, 0], [6, 10], [4, 0]) for name in ("a", "b")}
    own = [ready(0, "one", -1.0, tenant="a"), ready(0, "one", 0.5, tenant="b")]
    found = accounts(
        records.log_of(records.header(2.0, "a", "b"), begun, up, *own, records.window_finished(0, **counts))
    )
    assert [found[name].capacity.tolist() for name in ("a", "b")] == [[2.0, 2.0], [6.0, 6.0]]
    assert found["b"].reconfiguration.tolist() == [0.0, 0.0]
    assert found["a"].queueing.tolist() == [4.0, 8.0]


def test_of_a_pool_s_queueing_what_lacks_beside_the_others_turns_waited_for_them():
    pools = [{"members": ["a", "b"], "overhead_s": 1.0, "capability_rps": {"1g.10gb": {"a": 8.0, "b": 4.0}}}]
    begun = records.window_started(0, 4.0, "a", "b") | {"pools": pools}
    up = change(0, -5.0, [started("one", -5.0, "1g.10gb@0") | {"tenant": ["a", "b"]}])
    own = [ready(0, "one", -1.0, tenant=name) for name in ("a", "b")]
    # Of what was missed, the rest waited for a batch.
    a = records.counts([3, 6, 7, 0], [2, 2, 1, 9], [3, 6, 7, 0], others_share=[0.5, 0.25, 0.0, 1.0])
    b = records.counts([2, 1, 0, 5], [0, 0, 3, 0], [0] * 4, others_share=[0.5, 0.75, 0.875, 0.0])
    log = records.log_of(records.header(4.0, "a", "b"), begun, up, *own, records.window_finished(0, a=a, b=b))
    known = accounts(log)
    assert known["a"].queueing.tolist() == [2.0, 2.0, 1.0, 8.0]
    found = waits_for_others(log, known)
    assert found["a"].tolist() == [1.0, 2.0, 0.0, 8.0]
    assert found["b"].tolist() == [0.0, 0.0, 2.5, 0.0]
    # A live run does not say what others had: then it is not known, which is not nothing.
    for counts in (a, b):
        del counts["others_share"]
    log = records.log_of(records.header(4.0, "a", "b"), begun, up, *own, records.window_finished(0, a=a, b=b))
    assert waits_for_others(log, accounts(log)) == {}


def test_what_a_failed_worker_would_have_answered_is_capacity():
    died = (failed(0, "one", 0.5), ready(0, "one", 2.25))
    account = accounts(log_of([10, 10, 10], [5, 0, 7], [5, 0, 7], *UP, *died))["a"]
    assert account.capacity.tolist() == [5.0, 10.0, 2.5]
    assert account.queueing.tolist() == [0.0, 0.0, 0.5]


def test_a_start_that_was_given_up_is_capacity_from_then_on():
    begun = change(0, 0.0, [started("two", 0.0, "2g.20gb@2")])
    account = accounts(log_of([30, 30], [10, 10], [10, 10], *UP, begun, failed(0, "two", 0.5)))["a"]
    assert account.reconfiguration.tolist() == [10.0, 0.0]
    assert account.capacity.tolist() == [10.0, 20.0]


def test_without_instances_the_log_says_what_could_have_been_served():
    account = accounts(log_of([30, 30], [10, 10], [10, 10], could_serve=[10.0, 25.0], changing=[15.0, 0.0]))["a"]
    assert account.reconfiguration.tolist() == [15.0, 0.0]
    assert account.capacity.tolist() == [5.0, 5.0]


def test_what_instances_could_have_answered_but_did_not_is_queueing():
    account = accounts(log_of([10], [7], [7], *UP))["a"]
    assert account.total == Account(goodput=7.0, queueing=3.0)


def test_wrong_answers_are_the_new_model_s_from_the_second_after_its_retraining():
    log = log_of([9, 9, 9], [9, 9, 9], [8, 7, 6], *UP, records.finished(0, None, 1.4))
    account = accounts(log)["a"]
    assert (account.wrong_old.tolist(), account.wrong_new.tolist()) == ([1, 2, 0], [0, 0, 3])


def test_what_is_known_to_be_served_otherwise_is_forecast_before_the_others():
    account = accounts(log_of([40], [5], [5], *UP, *starting(1.0)))["a"]
    assert account.total == Account(goodput=5.0, capacity=10.0, reconfiguration=20.0, queueing=5.0)
    assert account.with_forecast(np.array([20.0])).total == Account(5.0, 0.0, 0.0, 0.0, 15.0, 15.0, 5.0)
    assert account.with_forecast(np.array([3.0])).total == account.total


def test_shares_of_nothing_are_nothing():
    assert set(Account().shares.values()) == {0.0}


@pytest.mark.parametrize("policy", ["migrator", "static", "oracle"])
def test_the_classes_add_up_in_every_second_of_a_run(write_config, policy):
    path = write_config({"tenants.0.arrivals": {"rate_rps": 3000}})
    score = score_of(matches_of(read_config(path), str(path), [policy], 1)[0])
    for account in score.accounts.values():
        classes = (
            account.goodput,
            account.wrong_old,
            account.wrong_new,
            account.capacity,
            account.reconfiguration,
            account.queueing,
            account.forecast,
        )
        assert np.allclose(np.sum(classes, axis=0), account.arrivals)
        assert min(float(of_class.min()) for of_class in classes) >= 0.0
        assert account.arrivals.shape == (120,)
    total = sum(account.total.arrivals for account in score.accounts.values())
    assert total == pytest.approx(score.total.arrivals, rel=1e-12)


def test_what_oracle_serves_and_another_does_not_is_told_as_forecast(write_config):
    path = write_config({"tenants.0.arrivals": {"rate_rps": 3000}})
    config = read_config(path)
    scores = [score_of(match) for match in matches_of(config, str(path), ["equal", "oracle"], 1)]
    equal, oracle = standings(told_apart(scores, 2))
    asked = matches_of(config, str(path), ["equal", "ekya"], 1)
    assert with_hindsight(asked) == [*asked, *matches_of(config, str(path), ["oracle"], 1)]
    assert with_hindsight(asked[1:]) == asked[1:]  # without partitions there is nothing to tell apart
    assert standings(told_apart(scores, 1))[0].account == equal.account
    assert equal.account.forecast > 0.0
    assert oracle.account.forecast == 0.0
    assert equal.account.arrivals == pytest.approx(equal.total.arrivals)
