"""The request simulation against an oracle that moves request by request, and the properties that it must have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import TENANT, joined, quarters, request_lists, server_lists

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server, advance, requests_of
from workloads.traffic.luck import ServiceJitter

INF = math.inf
ALWAYS = AccuracyTimeline((0.0,), (1.0,))


def answers(
    requests: Requests,
    servers: Sequence[Server],
    edges_s: Sequence[float] = (INF,),
    accuracy: AccuracyTimeline = ALWAYS,
    jitter: ServiceJitter | None = None,
) -> Outcomes:
    """All outcomes, advancing to one edge after the other and then to the end."""
    state, pieces = QueueState(), []
    for until_s in (*edges_s, INF):
        state, piece = advance(requests, state, servers, accuracy, until_s, jitter)
        pieces.append(piece)
    return joined(pieces)


def listed(outcomes: Outcomes) -> list[float | None]:
    return [None if math.isnan(answer_s) else answer_s for answer_s in outcomes.answer_s.tolist()]


@dataclass
class Waiting:
    index: int
    deadline_s: float


def one_by_one(
    requests: Requests, servers: Sequence[Server], *, expire: bool = True, batch_of_one: bool = False
) -> list[float | None]:
    """Answers by request, visiting every moment at which anything may happen, in order."""
    answer: list[float | None] = [None] * len(requests)
    moments = {*requests.arrival_s.tolist(), *(one.ready_s for one in servers)}
    free_at = {one.server_id: one.ready_s for one in servers}
    queue: list[Waiting] = []
    seen = 0
    while moments:
        now = min(moments)
        moments.remove(now)
        while seen < len(requests) and requests.arrival_s[seen] <= now:
            queue.append(Waiting(seen, requests.arrival_s[seen] + requests.slo_s))
            seen += 1
        if expire:
            queue = [waiting for waiting in queue if waiting.deadline_s > now]
        idle = [one for one in servers if one.ready_s <= now < one.end_s and free_at[one.server_id] <= now]
        while idle and queue:
            n_now = len(queue)
            first = min(idle, key=lambda one: (one.latency.at(min(n_now, one.batch_limit)), one.server_id))
            idle.remove(first)
            while queue:
                judged = 1 if batch_of_one else min(len(queue), first.batch_limit)
                if queue[0].deadline_s >= now + first.latency.at(judged):
                    break
                queue.pop(0)
            batch, queue = queue[: first.batch_limit], queue[first.batch_limit :]
            if batch:
                free_at[first.server_id] = now + first.latency.at(len(batch))
                moments.add(free_at[first.server_id])
                for waiting in batch:
                    answer[waiting.index] = free_at[first.server_id]
    return answer


CASES = settings(deadline=None, derandomize=True, max_examples=300)


@CASES
@given(request_lists(), server_lists())
def test_outcomes_equal_those_of_the_oracle(requests: Requests, servers: list[Server]) -> None:
    assert listed(answers(requests, servers)) == one_by_one(requests, servers)


@CASES
@given(request_lists(), server_lists(max_size=1))
def test_dropping_the_expired_at_once_changes_nothing(requests: Requests, servers: list[Server]) -> None:
    assert listed(answers(requests, servers)) == one_by_one(requests, servers, expire=False)


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
        state, piece = advance(requests, state, foreseen, ALWAYS, until_s)
        pieces.append(piece)
    assert listed(joined(pieces)) == listed(answers(requests, servers))


@CASES
@given(request_lists(), server_lists(), quarters(0, 40))
def test_every_deadline_that_has_come_is_resolved(requests: Requests, servers: list[Server], until_s: float) -> None:
    state, outcomes = advance(requests, QueueState(), servers, ALWAYS, until_s)
    n_due = int((requests.deadline_s <= until_s).sum())
    assert outcomes.index.tolist() == list(range(max(state.head, n_due)))


@CASES
@given(request_lists(), server_lists())
def test_draining_resolves_every_request_once(requests: Requests, servers: list[Server]) -> None:
    outcomes = answers(requests, servers)
    assert outcomes.index.tolist() == list(range(len(requests)))


@CASES
@given(request_lists(), server_lists())
def test_without_jitter_nothing_is_late(requests: Requests, servers: list[Server]) -> None:
    assert not answers(requests, servers).late.any()


# --- the rule matters


def overload() -> tuple[Requests, Server, float]:
    """Poisson arrivals at 120 % of what one worker can do, and how many it can do while they come."""
    curve, lasts_s = LatencyCurve((1, 32), (0.010, 0.060)), 20.0
    most_rps = 32 / curve.at(32)
    generator = np.random.default_rng(1)
    times_s = np.sort(generator.uniform(0, lasts_s, generator.poisson(1.2 * most_rps * lasts_s)))
    return requests_of(TENANT, 0.15, times_s, seed=1), Server(TENANT, "a", 0.0, INF, curve, 32), most_rps * lasts_s


def test_under_overload_nearly_all_that_is_possible_is_in_time() -> None:
    requests, worker, n_possible = overload()
    assert answers(requests, [worker]).in_time.sum() / n_possible > 0.97


def test_judging_on_a_batch_of_one_would_be_far_worse() -> None:
    requests, worker, n_possible = overload()
    answered = np.array(one_by_one(requests, [worker], batch_of_one=True), dtype=float)
    assert (answered <= requests.deadline_s).sum() / n_possible < 0.25
