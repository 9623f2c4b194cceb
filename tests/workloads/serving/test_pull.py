"""Pull dispatch: hand-computed cases, and the compiled loop against an oracle that moves request by request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pull_oracle import one_by_one
from serving_cases import (
    ALWAYS,
    FLAT,
    INF,
    TENANT,
    TIMELINE,
    arrivals,
    bits_of,
    joined,
    listed,
    many_batches,
    quarters,
    random_case,
    request_lists,
    server,
    server_lists,
)

from tests.seeds import examples
from workloads.profiles.latency import LatencyCurve
from workloads.serving.advance import advance
from workloads.serving.requests import Outcomes, QueueState, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter, Spread


def answers(
    requests: Requests,
    servers: Sequence[Server],
    edges_s: Sequence[float] = (),
    accuracy: AccuracyTimeline = ALWAYS,
    jitter: ServiceJitter | None = None,
) -> Outcomes:
    """All outcomes, advancing to one edge after the other and then to the end."""
    state, pieces = QueueState(), []
    for until_s in (*edges_s, INF):
        state, piece = advance(requests, state, servers, accuracy, until_s, jitter)
        pieces.append(piece)
    return joined(pieces)


# --- by hand


def test_lone_request_is_answered_after_one_latency() -> None:
    assert listed(answers(arrivals(0.5), [server()])) == [1.5]


def test_second_request_waits_for_the_worker() -> None:
    assert listed(answers(arrivals(0.0, 0.5), [server()])) == [1.0, 2.0]


def test_waiting_requests_share_a_batch() -> None:
    assert listed(answers(arrivals(0.0, 0.5, 0.6), [server(latency=FLAT, limit=4)])) == [1.0, 2.0, 2.0]


def test_batch_limit_leaves_the_rest_waiting() -> None:
    assert listed(answers(arrivals(0, 0, 0, slo_s=9), [server(latency=FLAT, limit=2)])) == [1.0, 1.0, 2.0]


def test_drops_are_judged_on_the_batch_that_would_be_taken() -> None:
    # At 1.0 three wait: three would take 3 s, beyond the oldest's 3.1; two take 2 s, in time for those of 0.3 and 0.6.
    outcomes = answers(arrivals(0.0, 0.1, 0.3, 0.6, slo_s=3.0), [server(limit=3)])
    assert listed(outcomes) == [1.0, None, 3.0, 3.0]


def test_drops_stop_where_a_smaller_batch_stands() -> None:
    # At 3.0 three wait with deadlines 3.5, 4.0, 4.5. A batch of two takes until 5.0, one alone until 4.0.
    outcomes = answers(arrivals(0.5, 1.0, 1.5, slo_s=3.0), [server(ready_s=3.0, limit=2)])
    assert listed(outcomes) == [None, None, 4.0]


def test_answer_at_the_deadline_is_in_time() -> None:
    outcomes = answers(arrivals(0.0, slo_s=1.0), [server()])
    assert (listed(outcomes), outcomes.in_time.tolist()) == ([1.0], [True])


def test_arrival_at_the_moment_a_worker_gets_free_joins_the_batch() -> None:
    assert listed(answers(arrivals(0.0, 0.5, 1.0), [server(latency=FLAT, limit=2)])) == [1.0, 2.0, 2.0]


def test_fastest_idle_worker_goes_first() -> None:
    fast = server("z", latency=LatencyCurve((1,), (0.5,)))
    assert listed(answers(arrivals(0.0, 0.0), [server("a"), fast])) == [0.5, 1.0]


def test_workers_as_fast_go_by_id() -> None:
    state, _ = advance(arrivals(0.0), QueueState(), [server("b"), server("a")], ALWAYS, 0.5)
    assert dict(state.busy_until) == {"a": 1.0}


def test_speed_is_compared_on_the_batch_each_would_take() -> None:
    # For the three that wait, a takes one in 1 s and b all three in 0.9 s.
    b = server("b", latency=LatencyCurve((1, 3), (1.1, 0.9)), limit=3)
    assert listed(answers(arrivals(0.0, 0.0, 0.0), [server("a"), b])) == [0.9, 0.9, 0.9]


def test_the_expired_do_not_count_when_the_fastest_is_chosen() -> None:
    # At 9.0 only the last request still waits: b takes one in 0.5 s, though a would be faster with three.
    a = server("a", ready_s=9.0, latency=FLAT, limit=3)
    b = server("b", ready_s=9.0, latency=LatencyCurve((1, 3), (0.5, 2.0)), limit=3)
    assert listed(answers(arrivals(0.0, 0.0, 8.5, slo_s=3.0), [a, b])) == [None, None, 9.5]


def test_a_batch_at_the_border_of_two_pieces_sees_the_arrivals_there() -> None:
    outcomes = answers(arrivals(0.0, 0.5, 1.0), [server(latency=FLAT, limit=2)], edges_s=[1.0])
    assert listed(outcomes) == [1.0, 2.0, 2.0]


def test_no_batch_begins_before_ready_s() -> None:
    assert listed(answers(arrivals(0.0), [server(ready_s=1.25)])) == [2.25]


def test_no_batch_begins_at_end_s() -> None:
    assert listed(answers(arrivals(0.0, 1.0), [server(end_s=1.0)])) == [1.0, None]


def test_batch_in_service_outlives_its_server() -> None:
    assert listed(answers(arrivals(0.5), [server(end_s=0.75)])) == [1.5]


def test_without_servers_all_are_dropped() -> None:
    assert listed(answers(arrivals(0.0, 1.0), [])) == [None, None]


def test_servers_of_other_tenants_are_passed_over() -> None:
    assert listed(answers(arrivals(0.0), [replace(server(), tenant="other")])) == [None]


def test_worker_that_drops_the_last_request_stays_idle() -> None:
    slow = server(latency=LatencyCurve((1,), (4.0,)))
    quick = server("b", ready_s=1.0)
    assert listed(answers(arrivals(0.0, 2.0, slo_s=3.0), [slow, quick])) == [None, 3.0]


def test_correct_is_judged_on_the_accuracy_when_the_batch_begins() -> None:
    accuracy = AccuracyTimeline((0.0, 1.0), (0.4, 0.6))
    outcomes = answers(arrivals(0.0, 0.5, luck=0.5), [server()], accuracy=accuracy)
    assert outcomes.correct.tolist() == [False, True]


def test_luck_equal_to_the_accuracy_is_wrong() -> None:
    outcomes = answers(arrivals(0.0, luck=0.5), [server()], accuracy=AccuracyTimeline((0.0,), (0.5,)))
    assert outcomes.correct.tolist() == [False]


def test_dropped_requests_are_never_correct() -> None:
    assert not answers(arrivals(0.0, luck=0.0), []).correct.any()


def test_requests_are_resolved_at_their_deadline_without_servers() -> None:
    state, outcomes = advance(arrivals(0.0, 1.0, slo_s=3.0), QueueState(), [], ALWAYS, 3.0)
    assert (outcomes.index.tolist(), state.head, state.tail) == ([0], 1, 2)


def test_a_piece_ends_before_its_until_s() -> None:
    state, outcomes = advance(arrivals(0.0, 1.0), QueueState(), [server()], ALWAYS, 1.0)
    assert (outcomes.index.tolist(), state.tail, dict(state.busy_until)) == ([0], 1, {})


def test_outcomes_are_recorded_when_the_batch_begins() -> None:
    _, outcomes = advance(arrivals(0.0), QueueState(), [server()], ALWAYS, 0.25)
    assert listed(outcomes) == [1.0]


def test_state_forgets_servers_that_are_gone() -> None:
    requests = arrivals(0.0)
    state, _ = advance(requests, QueueState(), [server()], ALWAYS, 0.25)
    state, _ = advance(requests, state, [], ALWAYS, 0.5)
    assert dict(state.busy_until) == {}


def test_server_that_joins_late_does_not_act_in_the_past() -> None:
    requests = arrivals(0.0)
    state, _ = advance(requests, QueueState(), [], ALWAYS, 2.0)
    _, outcomes = advance(requests, state, [server()], ALWAYS, INF)
    assert listed(outcomes) == [3.0]


# --- jitter


@pytest.mark.parametrize("spread", [0.2, "measured"])
def test_jitter_makes_answers_late(spread: Spread) -> None:
    outcomes = answers(
        arrivals(*range(50), slo_s=1.0), [server(f"s{k}") for k in range(9)], jitter=ServiceJitter(0, spread)
    )
    assert 10 < outcomes.late.sum() < 40


def test_without_spread_jitter_changes_nothing() -> None:
    requests, servers = arrivals(0.0, 0.1, 0.2, 4.0, slo_s=3.0), [server(limit=2)]
    assert listed(answers(requests, servers, jitter=ServiceJitter(1, 0.0))) == listed(answers(requests, servers))


# --- against the oracle


def assert_as_the_oracle(
    requests: Requests, servers: Sequence[Server], edges_s: Sequence[float], jitter: ServiceJitter | None
) -> int:
    """Compare after every piece, to the last bit; the number of batches is given."""
    course = one_by_one(requests, servers, jitter)
    expected = course.outcomes(TIMELINE)
    state = QueueState()
    for until_s in (*sorted(edges_s), INF):
        head = state.head
        state, piece = advance(requests, state, servers, TIMELINE, until_s, jitter)
        assert state == course.state(until_s)
        assert bits_of(piece) == bits_of(expected.of(np.arange(head, state.head)))
        for one in servers:
            assert state.in_service(one.server_id).index.tolist() == course.in_service(one.server_id, until_s)
    return state.n_batches


def jitter_of(seed: int, spread: Spread | None) -> ServiceJitter | None:
    return None if spread is None else ServiceJitter(seed, spread)


@settings(derandomize=True, max_examples=examples(200))
@given(
    request_lists(),
    server_lists(),
    st.lists(quarters(0, 40), max_size=8),
    st.sampled_from([None, 0.0, 0.4, "measured"]),
)
def test_every_piece_is_what_the_oracle_gives(
    requests: Requests, servers: list[Server], edges_s: list[float], spread: Spread | None
) -> None:
    assert_as_the_oracle(requests, servers, edges_s, jitter_of(5, spread))


@pytest.mark.parametrize("spread", [None, 0.3, "measured"])
@pytest.mark.parametrize("seed", range(6))
def test_random_cases_agree(seed: int, spread: Spread | None) -> None:
    assert_as_the_oracle(*random_case(seed), jitter_of(seed, spread))


@pytest.mark.parametrize("edges_s", [(), (3.0, 6.0)])
def test_a_piece_may_begin_more_batches_than_a_block_of_jitter_has(edges_s: tuple[float, ...]) -> None:
    assert assert_as_the_oracle(*many_batches(), edges_s, ServiceJitter(3, 0.5)) > 3 * JITTER_BLOCK


@settings(derandomize=True, max_examples=examples(100))
@given(request_lists(), server_lists(max_size=1))
def test_dropping_the_expired_at_once_changes_nothing(requests: Requests, servers: list[Server]) -> None:
    late_drops = one_by_one(requests, servers, expire=False)
    assert bits_of(answers(requests, servers)) == bits_of(late_drops.outcomes(ALWAYS))


# --- the rule matters


def overload() -> tuple[Requests, Server, float]:
    """Poisson arrivals at 120 % of what one worker can do, and how many it can do while they come."""
    curve, lasts_s = LatencyCurve((1, 32), (0.010, 0.060)), 5.0
    most_rps = 32 / curve.at(32)
    generator = np.random.default_rng(1)
    times_s = np.sort(generator.uniform(0, lasts_s, generator.poisson(1.2 * most_rps * lasts_s)))
    return requests_of(TENANT, 0.15, times_s, seed=1), Server(TENANT, "a", 0.0, INF, curve, 32), most_rps * lasts_s


def test_under_overload_nearly_all_that_is_possible_is_in_time() -> None:
    requests, worker, n_possible = overload()
    assert answers(requests, [worker]).in_time.sum() / n_possible > 0.97


def test_judging_on_a_batch_of_one_would_be_far_worse() -> None:
    requests, worker, n_possible = overload()
    course = one_by_one(requests, [worker], batch_of_one=True)
    assert course.outcomes(ALWAYS).in_time.sum() / n_possible < 0.25
