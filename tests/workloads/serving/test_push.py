"""Push dispatch: hand-computed cases, and the compiled loop against an oracle that keeps lists."""

from __future__ import annotations

from collections.abc import Sequence

import push_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import (
    ALWAYS,
    FLAT,
    INF,
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
from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import Dispatch, Server
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter, Spread

PUSH = Dispatch.PUSH


def answers(requests: Requests, servers: Sequence[Server], jitter: ServiceJitter | None = None) -> Outcomes:
    return advance(requests, QueueState(), servers, ALWAYS, INF, jitter, PUSH)[1]


# --- by hand


def test_a_request_waits_for_a_busy_server_that_answers_it_sooner_than_an_idle_one() -> None:
    slow = server("b", latency=LatencyCurve((1,), (5.0,)))
    assert listed(answers(arrivals(0.0, 0.5), [server(), slow])) == [1.0, 2.0]


def test_what_is_queued_counts() -> None:
    slow = server("b", latency=LatencyCurve((1,), (2.5,)))
    assert listed(answers(arrivals(0.0, 0.0, 0.0), [server(), slow])) == [1.0, 2.0, 2.5]


def test_those_that_wait_are_expected_to_be_served_in_full_batches() -> None:
    # At 0.5 the third would wait at a with the second for 1.0 and be answered at 2.0; alone at b only at 2.25.
    slow = server("b", latency=LatencyCurve((1,), (1.75,)))
    fast = server(latency=FLAT, limit=2)
    assert listed(answers(arrivals(0.0, 0.5, 0.5, 0.5), [fast, slow])) == [1.0, 2.0, 2.0, 2.25]


def test_servers_as_soon_go_by_id() -> None:
    state, _ = advance(arrivals(0.0), QueueState(), [server("b"), server("a")], ALWAYS, 0.5, None, PUSH)
    assert dict(state.busy_until) == {"a": 1.0}


def test_an_idle_server_takes_nothing_that_waits_elsewhere() -> None:
    # Two wait at a when b gets ready; b serves only what arrives from then on.
    late = server("b", ready_s=0.5)
    assert listed(answers(arrivals(0.0, 0.0, 0.0, 0.75), [server(), late])) == [1.0, 2.0, 3.0, 1.75]


def test_what_waits_at_a_server_that_ends_is_sent_elsewhere_before_younger_ones() -> None:
    # At 1.0 a sends its second request back: b, busy until 1.5, takes it before the one of 0.75.
    a, b, requests = server(end_s=1.0), server("b", ready_s=0.5), arrivals(0.0, 0.25, 0.5, 0.75)
    state, _ = advance(requests, QueueState(), [a, b], ALWAYS, 1.0, None, PUSH)
    assert dict(state.queues) == {"a": (1,), "b": (3,)}
    assert listed(answers(requests, [a, b])) == [1.0, 2.5, 1.5, 3.5]


def test_without_open_servers_requests_wait_for_the_first() -> None:
    assert listed(answers(arrivals(0.0, 0.5), [server(ready_s=1.0)])) == [2.0, 3.0]


def test_a_server_drops_by_its_own_queue() -> None:
    # At 1.0 a has two waiting with the deadline 2.75: both would take until 3.0, one until 2.0.
    assert listed(answers(arrivals(0.0, 0.25, 0.25, slo_s=2.5), [server(limit=2)])) == [1.0, None, 2.0]


def test_outcomes_of_a_piece_may_have_gaps() -> None:
    slow = server("b", latency=LatencyCurve((1,), (2.5,)))
    requests = arrivals(0.0, 0.0, 0.0)
    state, outcomes = advance(requests, QueueState(), [server(), slow], ALWAYS, 0.5, None, PUSH)
    assert (outcomes.index.tolist(), state.head, state.tail, dict(state.queues)) == ([0, 2], 1, 3, {"a": (1,)})


# --- against the oracle, and against pull


def assert_as_the_oracle(
    requests: Requests, servers: Sequence[Server], edges_s: Sequence[float], jitter: ServiceJitter | None
) -> int:
    """Compare after every piece, each going on from its own state; and all pieces with one; to the last bit."""
    slow, fast, pieces = QueueState(), QueueState(), []
    for until_s in (*sorted(edges_s), INF):
        slow, expected = push_oracle.advance(requests, slow, servers, TIMELINE, until_s, jitter)
        fast, piece = advance(requests, fast, servers, TIMELINE, until_s, jitter, PUSH)
        assert (fast, bits_of(piece)) == (slow, bits_of(expected))
        pieces.append(piece)
    _, whole = advance(requests, QueueState(), servers, TIMELINE, INF, jitter, PUSH)
    assert bits_of(joined(pieces)) == bits_of(whole)
    return fast.n_batches


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


@settings(derandomize=True, max_examples=examples(80))
@given(request_lists(), server_lists(max_size=1), st.booleans())
def test_with_one_server_push_is_pull(requests: Requests, servers: list[Server], jittered: bool) -> None:
    jitter = ServiceJitter(5, 0.4) if jittered else None
    _, pulled = advance(requests, QueueState(), servers, ALWAYS, INF, jitter)
    assert bits_of(answers(requests, servers, jitter)) == bits_of(pulled)
