"""Push dispatch by hand, against pull dispatch where both are the same, and the properties that it must have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import INF, TENANT, joined, quarters, request_lists, server_lists

from workloads.profiles.latency import LatencyCurve
from workloads.serving import push_serving
from workloads.serving import requests as serving
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server
from workloads.traffic.luck import ServiceJitter

ALWAYS = AccuracyTimeline((0.0,), (1.0,))
ONE_SECOND = LatencyCurve((1,), (1.0,))  # a batch of b takes b seconds
FLAT = LatencyCurve((1, 100), (1.0, 1.0))  # any batch takes a second


def arrivals(*times_s: float, slo_s: float = 9.0) -> Requests:
    return Requests(TENANT, slo_s, np.array(times_s, dtype=float), np.full(len(times_s), 0.5))


def server(
    server_id: str = "a", ready_s: float = 0.0, end_s: float = INF, latency: LatencyCurve = ONE_SECOND, limit: int = 1
) -> Server:
    return Server(TENANT, server_id, ready_s, end_s, latency, limit)


def in_order(pieces: Sequence[Outcomes]) -> Outcomes:
    """All pieces' outcomes by index: what one piece leaves out a later one has."""
    all_of_them = joined(pieces)
    by_index = np.argsort(all_of_them.index, kind="stable")
    return Outcomes(*(getattr(all_of_them, name)[by_index] for name in ("index", "answer_s", "in_time", "correct")))


def answers(
    requests: Requests,
    servers: Sequence[Server],
    edges_s: Sequence[float] = (),
    accuracy: AccuracyTimeline = ALWAYS,
    jitter: ServiceJitter | None = None,
) -> Outcomes:
    state, pieces = QueueState(), []
    for until_s in (*edges_s, INF):
        state, piece = push_serving.advance(requests, state, servers, accuracy, until_s, jitter)
        pieces.append(piece)
    return in_order(pieces)


def listed(outcomes: Outcomes) -> list[float | None]:
    return [None if math.isnan(answer_s) else answer_s for answer_s in outcomes.answer_s.tolist()]


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
    state, _ = push_serving.advance(arrivals(0.0), QueueState(), [server("b"), server("a")], ALWAYS, 0.5)
    assert dict(state.busy_until) == {"a": 1.0}


def test_an_idle_server_takes_nothing_that_waits_elsewhere() -> None:
    # Two wait at a when b gets ready; b serves only what arrives from then on.
    late = server("b", ready_s=0.5)
    assert listed(answers(arrivals(0.0, 0.0, 0.0, 0.75), [server(), late])) == [1.0, 2.0, 3.0, 1.75]


def test_what_waits_at_a_server_that_ends_is_sent_elsewhere_before_younger_ones() -> None:
    # At 1.0 a sends its second request back: b, busy until 1.5, takes it before the one of 0.75.
    a, b, requests = server(end_s=1.0), server("b", ready_s=0.5), arrivals(0.0, 0.25, 0.5, 0.75)
    state, _ = push_serving.advance(requests, QueueState(), [a, b], ALWAYS, 1.0)
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
    state, outcomes = push_serving.advance(requests, QueueState(), [server(), slow], ALWAYS, 0.5)
    assert (outcomes.index.tolist(), state.head, state.tail, dict(state.queues)) == ([0, 2], 1, 3, {"a": (1,)})


# --- properties

CASES = settings(deadline=None, derandomize=True, max_examples=120)


@CASES
@given(request_lists(), server_lists(max_size=1), st.booleans())
def test_with_one_server_push_is_pull(requests: Requests, servers: list[Server], jittered: bool) -> None:
    jitter = ServiceJitter(5, 0.4) if jittered else None
    _, pulled = serving.advance(requests, QueueState(), servers, ALWAYS, INF, jitter)
    assert listed(answers(requests, servers, jitter=jitter)) == listed(pulled)


@CASES
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8), st.booleans())
def test_any_pieces_give_the_same_outcomes(
    requests: Requests, servers: list[Server], edges_s: list[float], jittered: bool
) -> None:
    jitter = ServiceJitter(5, 0.4) if jittered else None
    accuracy = AccuracyTimeline((0.0, 2.0), (0.3, 0.8))
    at_once = answers(requests, servers, accuracy=accuracy, jitter=jitter)
    in_pieces = answers(requests, servers, sorted(edges_s), accuracy=accuracy, jitter=jitter)
    for name in ("index", "answer_s", "in_time", "correct"):
        np.testing.assert_array_equal(getattr(at_once, name), getattr(in_pieces, name))


@CASES
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8))
def test_a_piece_need_not_know_what_comes_after_it(
    requests: Requests, servers: list[Server], edges_s: list[float]
) -> None:
    state, pieces = QueueState(), []
    for from_s, until_s in pairwise([0.0, *sorted(edges_s), INF]):
        known = [one for one in servers if one.ready_s < until_s and one.end_s > from_s]
        foreseen = [replace(one, end_s=INF) if one.end_s >= until_s else one for one in known]
        state, piece = push_serving.advance(requests, state, foreseen, ALWAYS, until_s)
        pieces.append(piece)
    assert listed(in_order(pieces)) == listed(answers(requests, servers))


@CASES
@given(request_lists(), server_lists(), quarters(0, 40))
def test_every_deadline_that_has_come_is_resolved(requests: Requests, servers: list[Server], until_s: float) -> None:
    state, outcomes = push_serving.advance(requests, QueueState(), servers, ALWAYS, until_s)
    waiting = [index for queue in state.queues.values() for index in queue]
    assert sorted([*outcomes.index.tolist(), *waiting]) == list(range(state.tail))
    assert all(requests.deadline_s[waiting] > until_s)


@CASES
@given(request_lists(), server_lists())
def test_without_jitter_nothing_is_late(requests: Requests, servers: list[Server]) -> None:
    assert not answers(requests, servers).late.any()


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    with pytest.raises(ValueError, match="cannot advance bert"):
        push_serving.advance(arrivals(0.0), QueueState(now_s=1.0), [], ALWAYS, until_s)
