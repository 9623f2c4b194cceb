"""What holds for both kinds of dispatch: pieces of time, what a failing server loses, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import (
    ALWAYS,
    COLUMNS,
    FLAT,
    INF,
    TENANT,
    TIMELINE,
    arrivals,
    bits_of,
    joined,
    quarters,
    request_lists,
    server,
    server_lists,
)

from tests.seeds import examples
from workloads.profiles.latency import LatencyCurve
from workloads.serving.advance import advance
from workloads.serving.pull import pull
from workloads.serving.push import push
from workloads.serving.requests import Outcomes, QueueState, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Dispatch, Server
from workloads.traffic.luck import ServiceJitter

EACH = pytest.mark.parametrize("dispatch", Dispatch)
CASES = settings(derandomize=True, max_examples=examples(80))


def in_pieces(requests: Requests, pieces: Sequence[tuple[float, Sequence[Server]]], dispatch: Dispatch) -> Outcomes:
    """All outcomes of pieces, each with its end and its servers."""
    state, found = QueueState(), []
    for until_s, servers in pieces:
        state, outcomes = advance(requests, state, servers, TIMELINE, until_s, None, dispatch)
        found.append(outcomes)
    return joined(found)


def at_once(requests: Requests, servers: Sequence[Server], dispatch: Dispatch) -> Outcomes:
    return in_pieces(requests, [(INF, servers)], dispatch)


# --- pieces


@EACH
@CASES
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8))
def test_a_piece_need_not_know_what_comes_after_it(
    dispatch: Dispatch, requests: Requests, servers: list[Server], edges_s: list[float]
) -> None:
    pieces = []
    for from_s, until_s in pairwise([0.0, *sorted(edges_s), INF]):
        known = [one for one in servers if one.ready_s < until_s and one.end_s > from_s]
        pieces.append((until_s, [replace(one, end_s=INF) if one.end_s >= until_s else one for one in known]))
    assert bits_of(in_pieces(requests, pieces, dispatch)) == bits_of(at_once(requests, servers, dispatch))


@EACH
def test_a_piece_may_do_without_servers_that_have_ended(dispatch: Dispatch) -> None:
    requests, latency = requests_of(TENANT, 9.0, np.repeat(np.arange(3.0), 8), 0), LatencyCurve((1,), (0.75,))
    gone = [server(name, 0.0, 1.0, latency) for name in "bc"]
    stay = [server("a", 1.0, latency=latency), server("d", 1.0, latency=LatencyCurve((1,), (1.25,)))]
    expected = bits_of(at_once(requests, gone + stay, dispatch))
    for pieces in ([(1.0, gone), (1.25, gone + stay), (INF, stay)], [(1.0, gone), (INF, stay)]):
        assert bits_of(in_pieces(requests, pieces, dispatch)) == expected


@EACH
@CASES
@given(request_lists(), server_lists(), quarters(0, 40))
def test_every_deadline_that_has_come_is_resolved(
    dispatch: Dispatch, requests: Requests, servers: list[Server], until_s: float
) -> None:
    state, outcomes = advance(requests, QueueState(), servers, ALWAYS, until_s, None, dispatch)
    waiting = sorted(set(range(state.tail)) - set(outcomes.index.tolist()))
    assert all(requests.deadline_s[waiting] > until_s)
    if dispatch is Dispatch.PUSH:
        assert waiting == sorted(index for queue in state.queues.values() for index in queue)


@EACH
@CASES
@given(request_lists(), server_lists())
def test_draining_resolves_every_request_once_and_none_late(
    dispatch: Dispatch, requests: Requests, servers: list[Server]
) -> None:
    outcomes = at_once(requests, servers, dispatch)
    assert (outcomes.index.tolist(), outcomes.late.any()) == (list(range(len(requests))), False)


@EACH
def test_servers_of_other_tenants_are_passed_over(dispatch: Dispatch) -> None:
    requests = arrivals(0.0, 0.1)
    mixed = [replace(server("a"), tenant="other"), server("a")]
    assert bits_of(at_once(requests, mixed, dispatch)) == bits_of(at_once(requests, [server("a")], dispatch))


# --- what a failing server loses


@EACH
@CASES
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8), st.sampled_from([None, 0.4]))
def test_in_service_is_what_a_present_server_will_answer_later(
    dispatch: Dispatch, requests: Requests, servers: list[Server], edges_s: list[float], spread: float | None
) -> None:
    jitter = None if spread is None else ServiceJitter(5, spread)
    state, recorded = QueueState(), dict[int, float]()
    for until_s in sorted(edges_s):
        state, piece = advance(requests, state, servers, TIMELINE, until_s, jitter, dispatch)
        recorded |= dict(zip(piece.index.tolist(), piece.answer_s.tolist(), strict=True))
        batches = {one.server_id: state.in_service(one.server_id) for one in servers}
        found = [index for batch in batches.values() for index in batch.index.tolist()]
        assert sorted(found) == sorted(index for index, answer_s in recorded.items() if answer_s > until_s)
        ends_s = {name: set(batch.answer_s.tolist()) for name, batch in batches.items() if batch.index.size}
        assert ends_s == {name: {end_s} for name, end_s in state.busy_until.items()}


@EACH
def test_batches_that_end_together_are_told_apart(dispatch: Dispatch) -> None:
    requests, servers = arrivals(*[0.0] * 5), [server(name, latency=FLAT, limit=2) for name in "ab"]
    state, whole = advance(requests, QueueState(), servers, TIMELINE, 0.5, None, dispatch)
    for _ in range(2):  # also where the batch began in an earlier piece
        assert tuple(state.in_service(name).index.tolist() for name in "ab") == ([0, 1], [2, 3])
        assert bits_of(state.in_service("a")) == bits_of(whole.of(np.array([0, 1])))
        state, _ = advance(requests, state, servers, TIMELINE, 0.75, None, dispatch)


@EACH
def test_nothing_is_in_service_when_a_batch_has_just_ended(dispatch: Dispatch) -> None:
    state, _ = advance(arrivals(0.0, 0.0), QueueState(), [server()], TIMELINE, 1.0, None, dispatch)
    assert state.in_service("a").index.size == 0


# --- values


@EACH
def test_outcomes_are_read_only(dispatch: Dispatch) -> None:
    requests = requests_of(TENANT, 1.0, np.zeros(3), 0)
    _, outcomes = advance(requests, QueueState(), [], TIMELINE, 2.0, None, dispatch)
    assert not any(getattr(outcomes, name).flags.writeable for name in COLUMNS)


@pytest.mark.parametrize(("dispatch", "loop"), [(Dispatch.PULL, pull), (Dispatch.PUSH, push)])
def test_the_loop_is_compiled_once_whatever_it_is_given(dispatch: Dispatch, loop: object) -> None:
    for n_requests in (0, 1, 3):
        requests = requests_of(TENANT, 1.0, np.zeros(n_requests), 0)
        for n_servers in (0, 1, 3):
            servers = [Server(TENANT, f"s{k}", 0, INF, LatencyCurve((1,), (1,)), 1) for k in range(n_servers)]
            for jitter in (None, ServiceJitter(0, 0.1)):
                accuracy = AccuracyTimeline((0,), (1,))
                advance(requests, QueueState(), servers, accuracy, 1, jitter, dispatch)
    assert len(cast("Any", loop).signatures) == 1


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    requests = requests_of(TENANT, 1.0, np.zeros(1), 0)
    with pytest.raises(ValueError, match="cannot advance bert"):
        advance(requests, QueueState(now_s=1.0), [], TIMELINE, until_s)


def test_two_servers_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="must differ"):
        advance(arrivals(0.0), QueueState(), [server(), server(ready_s=1.0)], TIMELINE, 1.0)
