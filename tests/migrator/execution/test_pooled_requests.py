"""Queues of tenants that come to share lanes, and to have servers of their own again: no request is lost or doubled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from migrator.execution.requests import SimulatedQueues, connected
from workloads.profiles.latency import LatencyCurve
from workloads.serving.advance import advance
from workloads.serving.pool import Lane, PoolState
from workloads.serving.pool import advance as advance_pool
from workloads.serving.requests import Outcomes, Requests
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.traffic.luck import service_jitter

NAMES = ("a", "b", "c", "d")
END_S = 12.0
ACCURACIES = {name: AccuracyTimeline((0.0, 5.0), (0.4 + 0.1 * place, 0.6)) for place, name in enumerate(NAMES)}
JITTER = service_jitter(3, 0.2)
WEIGHTS = dict(zip(NAMES, (1.0, 2.0, 0.5, 1.0), strict=True))
EQUAL = dict.fromkeys(NAMES, 1.0)


def requests_of(seed: int) -> dict[str, Requests]:
    rng = np.random.default_rng(seed)
    found = {}
    for name in NAMES:
        arrival_s = np.sort(rng.uniform(0, END_S - 1, rng.integers(200, 900)))
        found[name] = Requests(name, float(rng.uniform(0.1, 0.3)), arrival_s, rng.random(len(arrival_s)))
    return found


def server(tenant: str, server_id: str, ready_s: float = 0.0) -> Server:
    slow = 1 + NAMES.index(tenant) / 4
    return Server(tenant, server_id, ready_s, math.inf, LatencyCurve((1, 8), (0.01 * slow, 0.03 * slow)), 8)


def lane(instance: str, *members: str) -> Lane:
    return Lane(instance, tuple(server(name, f"{instance}/{name}") for name in members))


def queues() -> SimulatedQueues:
    return SimulatedQueues(WEIGHTS, JITTER, turn_cost=0.05)


def assert_same(found: Outcomes, expected: Outcomes) -> None:
    for key in ("index", "answer_s", "in_time", "correct"):
        np.testing.assert_array_equal(getattr(found, key), getattr(expected, key))


def together(pieces: Sequence[Outcomes]) -> Outcomes:
    keys = ("index", "answer_s", "in_time", "correct")
    return Outcomes(*(np.concatenate([getattr(one, key) for one in pieces]) for key in keys))


def test_tenants_whom_lanes_connect_are_together() -> None:
    lanes = [lane("x", "c"), lane("y", "a", "d"), lane("z", "d", "c")]
    assert connected(NAMES, lanes) == [("a", "c", "d"), ("b",)]
    assert connected(NAMES, []) == [("a",), ("b",), ("c",), ("d",)]


@pytest.mark.parametrize("seed", range(4))
def test_who_shares_lanes_is_served_as_the_kernel_has_it_and_who_does_not_as_alone(seed: int) -> None:
    requests, lanes = requests_of(seed), [lane("x#1", "a", "c"), lane("y#2", "a", "c")]
    servers = {"b": [server("b", "u#3/0"), server("b", "u#3/1")], "d": [server("d", "v#4/0")]}
    ours = queues()
    found = [ours.advance(requests, servers, ACCURACIES, until_s, lanes) for until_s in (0.7, 3.1, 3.2, END_S)]
    pooled = [requests["a"], requests["c"]]
    _, piece = advance_pool(
        pooled,
        PoolState.at_start(2),
        lanes,
        [ACCURACIES["a"], ACCURACIES["c"]],
        END_S,
        JITTER,
        weights=[WEIGHTS["a"], WEIGHTS["c"]],
        turn_cost=0.05,
    )
    _, alone = advance(requests["b"], queues().states["b"], servers["b"], ACCURACIES["b"], END_S, JITTER)
    for name, expected in (("a", piece.outcomes[0]), ("c", piece.outcomes[1]), ("b", alone)):
        assert_same(together([one[name] for one in found]), expected)


Layout = tuple[Mapping[str, Sequence[Server]], Sequence[Lane]]


def drawn(rng: np.random.Generator, before: Layout, now_s: float, busy_until_s: Mapping[str, float]) -> Layout:
    """What stands next: instances that stay are partly passed on, some members' processes gone, some new."""
    servers: dict[str, list[Server]] = {}
    lanes: list[Lane] = []
    last = {one.lane_id: one for one in before[1]}
    old = {one.server_id.partition("/")[0]: one for own in before[0].values() for one in own}
    for number in range(3):
        members = tuple(name for name in NAMES if rng.random() < 0.5)
        instance = f"i#{number}" if rng.random() < 0.7 else f"i#{number}-{now_s:.3f}"
        there = [*last[instance].servers] if instance in last else [old[instance]] if instance in old else []
        free_s = max([now_s, *(busy_until_s.get(one.server_id, now_s) for one in there)])
        if len(members) == 1:
            servers.setdefault(members[0], []).append(server(members[0], f"{instance}/0", free_s))
        elif members:
            lanes.append(Lane(instance, tuple(server(name, f"{instance}/{name}", free_s) for name in members)))
    return servers, lanes


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_shared_when_each_request_is_resolved_once_and_no_instance_does_two_things(seed: int) -> None:
    rng, requests, ours = np.random.default_rng(seed), requests_of(seed), queues()
    found: dict[str, list[Outcomes]] = {name: [] for name in NAMES}
    layout: Layout = ({}, [])
    for now_s in np.sort(rng.uniform(0, END_S, 25)).tolist():
        for name, outcomes in ours.advance(requests, *_given(layout, now_s)).items():
            found[name].append(outcomes)
        assert len({state.now_s for state in ours.states.values()}) == 1
        layout = drawn(rng, layout, now_s, ours.busy_until_s)
    for name, outcomes in ours.advance(requests, *_given(({}, []), math.inf)).items():
        found[name].append(outcomes)
    for name, own in requests.items():
        merged = together(found[name])
        np.testing.assert_array_equal(merged.index, np.arange(len(own)))
        answered = ~merged.dropped
        assert (merged.answer_s[answered] > own.arrival_s[answered]).all()
        state = ours.states[name]
        assert (state.head, dict(state.busy_until)) == (len(own), {})


def _given(
    layout: Layout, until_s: float
) -> tuple[Mapping[str, Sequence[Server]], Mapping[str, AccuracyTimeline], float, Sequence[Lane]]:
    return layout[0], ACCURACIES, until_s, layout[1]


def test_a_lane_goes_on_when_a_member_s_process_is_gone_with_its_batch() -> None:
    requests, ours = requests_of(1), queues()
    both = lane("x#1", "a", "b")
    ours.advance(requests, {}, ACCURACIES, 0.5, [both])
    until_s = 0.5
    while "x#1/a" not in ours.busy_until_s:
        until_s += 0.005
        ours.advance(requests, {}, ACCURACIES, until_s, [both])
    lost, end_s = ours.states["a"].in_service("x#1/a"), ours.busy_until_s["x#1/a"]
    assert len(lost.index) > 0
    ours.advance(requests, {}, ACCURACIES, (until_s + end_s) / 2, [Lane("x#1", both.servers[1:])])
    assert set(ours.busy_until_s) == {"x#1/b"}
    assert len(ours.states["a"].in_service("x#1/a").index) == 0


def took_s(arrivals: Mapping[str, Sequence[float]], steps: Sequence[tuple[float, str]]) -> dict[str, list[float]]:
    """By member, how long its batches of one took, in a lane that serves each step's members until the step's end.

    A batch takes 0.1 s, and half as much again where a turn costs.
    """
    latency = LatencyCurve((1,), (0.1,))
    requests = {name: Requests(name, 1.0, np.array(arrivals[name]), np.zeros(len(arrivals[name]))) for name in NAMES}
    ours = SimulatedQueues(EQUAL, None, turn_cost=0.5)
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for until_s, members in steps:
        there = tuple(Server(name, f"x#1/{name}", 0.0, math.inf, latency, 1) for name in members)
        for name, piece in ours.advance(requests, {}, ACCURACIES, until_s, [Lane("x#1", there)]).items():
            found[name].extend((piece.answer_s - requests[name].arrival_s[piece.index]).round(9).tolist())
    return found


def test_a_turn_costs_where_another_member_had_the_lane_before_it_was_passed_on() -> None:
    arrivals = {"a": [0.0], "b": [1.0], "c": [2.0], "d": [3.0, 4.0]}
    steps = ((1.5, "ab"), (2.5, "bc"), (3.5, "cd"), (5.0, "d"))
    assert took_s(arrivals, steps) == {"a": [0.1], "b": [0.15], "c": [0.15], "d": [0.15, 0.1]}


def test_a_member_that_is_ready_first_has_had_a_turn_only_if_it_served() -> None:
    """b's turn is the first, though a was there before and after it; c pays for b's turn, though c is alone then."""
    arrivals = {"a": [4.0], "b": [1.2], "c": [2.2, 2.5], "d": []}
    steps = ((1.0, "a"), (2.0, "ab"), (2.1, "a"), (3.0, "c"), (5.0, "ac"))
    assert took_s(arrivals, steps) == {"a": [0.15], "b": [0.1], "c": [0.15, 0.1], "d": []}


def test_what_part_of_shared_lanes_others_had_is_told_by_second_and_forgotten() -> None:
    """Batches of 0.1 s on one lane, half of which time a and b share it, then b and c; d has a lane of its own."""
    latency = LatencyCurve((1,), (0.1,))
    arrivals = {"a": [0.0, 0.15], "b": [0.1, 1.0, 2.45], "c": [1.6, 1.7, 1.8], "d": [0.0, 0.1]}
    requests = {name: Requests(name, 1.0, np.array(at_s), np.zeros(len(at_s))) for name, at_s in arrivals.items()}
    own = {"d": [Server("d", "d#1/0", 0.0, math.inf, latency, 1)]}
    ours = SimulatedQueues(EQUAL, None)
    for until_s, members in ((1.5, "ab"), (2.5, "bc"), (3.0, "bc")):
        there = tuple(Server(name, f"x#1/{name}", 0.0, math.inf, latency, 1) for name in members)
        ours.advance(requests, own, ACCURACIES, until_s, [Lane("x#1", there)])
    found = ours.others_shares(0, 2)
    # In second 1, a had the lane for half of the time, and b's batch took a fifth of that.
    assert {name: shares.tolist() for name, shares in found.items()} == {
        "a": [pytest.approx(0.1), pytest.approx(0.2)],
        "b": [pytest.approx(0.2), pytest.approx(0.3)],
        "c": [0.0, 0.0],
    }
    later = ours.others_shares(2, 3)
    assert {name: shares.tolist() for name, shares in later.items()} == {"b": [0.0], "c": [pytest.approx(0.1)]}
    ours.others_shares(3, 4)
    assert ours.others_shares(0, 3) == {}


def test_new_weights_count_from_the_next_batch_and_luck_is_the_same_in_every_partition() -> None:
    requests = requests_of(2)
    idle = {name: replace(own, slo_s=0.3) for name, own in requests.items()}
    pooled, alone = queues(), queues()
    lanes = [lane("x#1", "a", "b"), lane("y#2", "a", "b")]
    servers = {name: [server(name, f"{name}#{n}/0") for n in range(2)] for name in ("a", "b")}
    shared = pooled.advance(idle, {}, ACCURACIES, END_S, lanes)
    own = alone.advance(idle, servers, ACCURACIES, END_S)
    for index in ("a", "b"):
        both = ~shared[index].dropped & ~own[index].dropped
        settled = both & ((shared[index].answer_s < 5.0) == (own[index].answer_s < 5.0))
        settled &= (np.abs(own[index].answer_s - 5.0) > 0.5) & (np.abs(shared[index].answer_s - 5.0) > 0.5)
        np.testing.assert_array_equal(shared[index].correct[settled], own[index].correct[settled])
