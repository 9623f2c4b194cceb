"""The compiled request simulation gives what the references give: after every piece, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import INF, TENANT, quarters, request_lists, server_lists

from workloads.profiles.latency import LatencyCurve
from workloads.serving import advance as fast_serving
from workloads.serving import pull as serving_kernel
from workloads.serving import push as push_kernel
from workloads.serving import push_serving
from workloads.serving import requests as serving
from workloads.serving.requests import AccuracyTimeline, Dispatch, Outcomes, QueueState, Requests, Server, requests_of
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter, Spread

COLUMNS = ("index", "answer_s", "in_time", "correct")
REFERENCE = {Dispatch.PULL: serving.advance, Dispatch.PUSH: push_serving.advance}
TIMELINE = AccuracyTimeline((0.0, 2.0, 3.5), (0.3, 0.8, 0.6))


def bits(outcomes: Outcomes) -> list[tuple[str, bytes]]:
    columns = [getattr(outcomes, name) for name in COLUMNS]
    return [(column.dtype.str, column.tobytes()) for column in columns]


def assert_same(
    requests: Requests,
    pieces: Sequence[tuple[float, Sequence[Server]]],
    jitter: ServiceJitter | None = None,
    dispatch: Dispatch = Dispatch.PULL,
) -> QueueState:
    """Compare after every piece (its end, its servers); each goes on from its own state. The last one is given."""
    slow = fast = QueueState()
    for until_s, servers in pieces:
        slow, expected = REFERENCE[dispatch](requests, slow, servers, TIMELINE, until_s, jitter)
        fast, got = fast_serving.advance(requests, fast, servers, TIMELINE, until_s, jitter, dispatch)
        assert (fast, bits(got)) == (slow, bits(expected))
    return fast


def cut(edges_s: Sequence[float], servers: Sequence[Server]) -> list[tuple[float, Sequence[Server]]]:
    return [(until_s, servers) for until_s in (*sorted(edges_s), INF)]


@pytest.mark.parametrize("dispatch", Dispatch)
@settings(deadline=None, derandomize=True, max_examples=250)
@given(
    request_lists(),
    server_lists(),
    st.lists(quarters(0, 40), max_size=8),
    st.sampled_from([None, 0.0, 0.4, "measured"]),
)
def test_equal_moments_are_settled_alike(
    dispatch: Dispatch, requests: Requests, servers: list[Server], edges_s: list[float], spread: Spread | None
) -> None:
    assert_same(requests, cut(edges_s, servers), None if spread is None else ServiceJitter(5, spread), dispatch)


# --- real moments, more of everything


def bursts(generator: np.random.Generator, n_requests: int, lasts_s: float) -> Requests:
    """Arrivals in clumps, some of them at one moment."""
    times_s = generator.choice(generator.uniform(0, lasts_s, max(n_requests // 4, 1)), n_requests)
    spread_s = generator.choice([0.0, 0.02, 0.5]) * generator.exponential(size=n_requests)
    return requests_of(TENANT, generator.uniform(0.02, 0.4), np.sort(times_s + spread_s), seed=1)


def curve(generator: np.random.Generator) -> LatencyCurve:
    return LatencyCurve((1, 4, 16), tuple(np.sort(generator.uniform(0.001, 0.1, 3)).tolist()))


def comers_and_goers(generator: np.random.Generator, n_servers: int, lasts_s: float) -> list[Server]:
    """Servers that join and end, of few kinds, so that some are as fast as others."""
    curves = [curve(generator) for _ in range(3)]
    servers = []
    for number in generator.permutation(n_servers).tolist():
        ready_s = max(generator.uniform(-1, 1) * lasts_s, 0.0)
        end_s = generator.choice([INF, ready_s + generator.exponential(lasts_s / 2)])
        latency, limit = curves[generator.integers(3)], int(generator.choice([1, 3, 8, 32]))
        servers.append(Server(TENANT, f"s{number:02}", ready_s, float(end_s), latency, limit))
    return servers


@pytest.mark.parametrize("dispatch", Dispatch)
@pytest.mark.parametrize(
    ("seed", "spread"), [*((n, 0.3 if n % 2 else None) for n in range(40)), *((n, "measured") for n in range(40, 52))]
)
def test_random_cases_agree(seed: int, spread: Spread | None, dispatch: Dispatch) -> None:
    generator = np.random.default_rng(seed)
    lasts_s = generator.uniform(0.5, 20)
    requests = bursts(generator, int(generator.integers(0, 1500)), lasts_s)
    servers = comers_and_goers(generator, int(generator.integers(0, 22)), lasts_s)
    edges_s = generator.uniform(0, 1.2 * lasts_s, generator.integers(0, 30)).tolist()
    assert_same(requests, cut(edges_s, servers), None if spread is None else ServiceJitter(seed, spread), dispatch)


@pytest.mark.parametrize("dispatch", Dispatch)
@pytest.mark.parametrize("edges_s", [(), tuple(range(1, 12))])
@pytest.mark.parametrize("spread", [0.5, "measured"])
def test_a_piece_may_begin_more_batches_than_a_block_of_jitter_has(
    edges_s: tuple[float, ...], spread: Spread, dispatch: Dispatch
) -> None:
    generator = np.random.default_rng(2)
    requests = bursts(generator, 4000, 10.0)
    servers = [Server(TENANT, f"s{k}", 0.0, INF, curve(generator), 2) for k in range(9)]
    after = assert_same(requests, cut(edges_s, servers), ServiceJitter(3, spread), dispatch)
    assert after.n_batches > 3 * JITTER_BLOCK


def test_servers_of_other_tenants_are_passed_over() -> None:
    requests, latency = requests_of(TENANT, 1.0, np.array([0.0, 0.1]), 0), LatencyCurve((1,), (0.5,))
    servers = [Server(name, "a", 0.0, INF, latency, 1) for name in ("other", TENANT)]
    assert_same(requests, cut([0.0, 0.0], servers))


@pytest.mark.parametrize("dispatch", Dispatch)
def test_a_piece_may_do_without_servers_that_have_ended(dispatch: Dispatch) -> None:
    requests, latency = requests_of(TENANT, 9.0, np.repeat(np.arange(3.0), 8), 0), LatencyCurve((1,), (0.75,))
    gone = [Server(TENANT, name, 0.0, 1.0, latency, 1) for name in "bc"]
    stay = [Server(TENANT, "a", 1.0, INF, latency, 1), Server(TENANT, "d", 1.0, INF, LatencyCurve((1,), (1.25,)), 1)]
    for pieces in ([(1.0, gone), (1.25, gone + stay), (INF, stay)], [(1.0, gone), (INF, stay)]):
        assert_same(requests, pieces, None, dispatch)


# --- what a failing server loses


@pytest.mark.parametrize("dispatch", Dispatch)
@settings(deadline=None, derandomize=True, max_examples=150)
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8), st.sampled_from([None, 0.4]))
def test_in_service_is_what_a_present_server_will_answer_later(
    dispatch: Dispatch, requests: Requests, servers: list[Server], edges_s: list[float], spread: Spread | None
) -> None:
    jitter = None if spread is None else ServiceJitter(5, spread)
    state, recorded = QueueState(), dict[int, float]()
    for until_s in sorted(edges_s):
        state, piece = fast_serving.advance(requests, state, servers, TIMELINE, until_s, jitter, dispatch)
        recorded |= dict(zip(piece.index.tolist(), piece.answer_s.tolist(), strict=True))
        batches = {one.server_id: state.in_service(one.server_id) for one in servers}
        found = [index for batch in batches.values() for index in batch.index.tolist()]
        assert sorted(found) == sorted(index for index, answer_s in recorded.items() if answer_s > until_s)
        ends_s = {name: set(batch.answer_s.tolist()) for name, batch in batches.items() if batch.index.size}
        assert ends_s == {name: {end_s} for name, end_s in state.busy_until.items()}


@pytest.mark.parametrize("dispatch", Dispatch)
def test_batches_that_end_together_are_told_apart(dispatch: Dispatch) -> None:
    requests, flat = requests_of(TENANT, 9.0, np.zeros(5), 0), LatencyCurve((1, 4), (1.0, 1.0))
    servers = [Server(TENANT, name, 0.0, INF, flat, 2) for name in "ab"]
    state, whole = fast_serving.advance(requests, QueueState(), servers, TIMELINE, 0.5, None, dispatch)
    for _ in range(2):  # also where the batch began in an earlier piece
        assert tuple(state.in_service(name).index.tolist() for name in "ab") == ([0, 1], [2, 3])
        assert bits(state.in_service("a")) == bits(whole.of(np.array([0, 1])))
        state, _ = fast_serving.advance(requests, state, servers, TIMELINE, 0.75, None, dispatch)


@pytest.mark.parametrize("dispatch", Dispatch)
def test_nothing_is_in_service_when_a_batch_has_just_ended(dispatch: Dispatch) -> None:
    requests, server = (
        requests_of(TENANT, 9.0, np.zeros(2), 0),
        Server(TENANT, "a", 0, INF, LatencyCurve((1,), (1,)), 1),
    )
    state, _ = fast_serving.advance(requests, QueueState(), [server], TIMELINE, 1.0, None, dispatch)
    assert state.in_service("a").index.size == 0


# --- values


@pytest.mark.parametrize("dispatch", Dispatch)
def test_outcomes_are_read_only(dispatch: Dispatch) -> None:
    requests = requests_of(TENANT, 1.0, np.zeros(3), 0)
    _, outcomes = fast_serving.advance(requests, QueueState(), [], TIMELINE, 2.0, None, dispatch)
    assert not any(getattr(outcomes, name).flags.writeable for name in COLUMNS)


@pytest.mark.parametrize(
    ("dispatch", "loop"), [(Dispatch.PULL, serving_kernel.serve), (Dispatch.PUSH, push_kernel.push)]
)
def test_the_loop_is_compiled_once_whatever_it_is_given(dispatch: Dispatch, loop: object) -> None:
    for n_requests in (0, 1, 3):
        requests = requests_of(TENANT, 1.0, np.zeros(n_requests), 0)
        for n_servers in (0, 1, 3):
            servers = [Server(TENANT, f"s{k}", 0, INF, LatencyCurve((1,), (1,)), 1) for k in range(n_servers)]
            for jitter in (None, ServiceJitter(0, 0.1)):
                accuracy = AccuracyTimeline((0,), (1,))
                fast_serving.advance(requests, QueueState(), servers, accuracy, 1, jitter, dispatch)
    assert len(cast("Any", loop).signatures) == 1


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    requests = requests_of(TENANT, 1.0, np.zeros(1), 0)
    with pytest.raises(ValueError, match="cannot advance bert"):
        fast_serving.advance(requests, QueueState(now_s=1.0), [], TIMELINE, until_s)


def test_two_servers_of_one_id_are_refused() -> None:
    server = Server(TENANT, "a", 0.0, INF, LatencyCurve((1,), (0.5,)), 1)
    with pytest.raises(ValueError, match="must differ"):
        fast_serving.advance(requests_of(TENANT, 1.0, np.zeros(1), 0), QueueState(), [server, server], TIMELINE, 1.0)
