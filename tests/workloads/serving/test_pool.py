"""Lanes shared by turns: by hand, properties, and the loop against an oracle, `pull`, and turns as they were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_oracle import Course, Problem, Process, one_by_one
from serving_cases import (
    ALWAYS,
    COLUMNS,
    INF,
    TIMELINE,
    arrivals,
    bits,
    bits_of,
    curves,
    joined,
    many_batches,
    quarters,
    random_case,
    random_curve,
    request_lists,
    server_lists,
)

from tests.seeds import daily, examples
from workloads.profiles.latency import LatencyCurve
from workloads.serving import advance as one_tenant
from workloads.serving import pool
from workloads.serving.pool import Lane, Piece, PoolState, TrainingJob
from workloads.serving.requests import Outcomes, QueueState, Requests, requests_of
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter


@dataclass(frozen=True)
class Served:
    """How one lane serves a member."""

    latency: LatencyCurve
    batch_limit: int
    worth: float = 0.0


ONE_SECOND = Served(LatencyCurve((1,), (1.0,)), 1)  # a batch of b takes b seconds
PAIR = Served(LatencyCurve((1,), (1.0,)), 2)
FLAT = Served(LatencyCurve((1, 100), (1.0, 1.0)), 100)  # any batch takes a second


def gpu(servings: Sequence[Served]) -> Lane:
    """One lane that serves members t0, t1, … throughout."""
    numbered = enumerate(servings)
    return Lane("gpu", tuple(Server(f"t{i}", "gpu", 0.0, INF, one.latency, one.batch_limit) for i, one in numbered))


def named(requests: Sequence[Requests]) -> list[Requests]:
    return [replace(one, tenant=f"t{number}") for number, one in enumerate(requests)]


def job(
    left_s: float = 1.0,
    piece_s: float = 1.0,
    ready_s: float = 0.0,
    tenant_index: int = 0,
    pace: float = 0.0,
    due_s: float = INF,
    worth: float = 0.0,
) -> TrainingJob:
    return TrainingJob(tenant_index, 0, left_s, piece_s, ready_s, pace=pace, due_s=due_s, worth=worth)


def pieces_of(
    requests: Sequence[Requests],
    servings: Sequence[Served],
    jobs: Sequence[TrainingJob] = (),
    edges_s: Sequence[float] = (),
    jitter: ServiceJitter | None = None,
    accuracy: AccuracyTimeline = TIMELINE,
    in_slack: bool = False,
    turn_cost: float = 0.0,
) -> list[tuple[PoolState, Piece]]:
    """All pieces of one lane's run; where a retraining ends, the next piece begins."""
    state, found = replace(PoolState.at_start(len(requests), others=["gpu"]), jobs=tuple(jobs)), []
    for until_s in (*sorted(edges_s), INF):
        while state.now_s < until_s:
            state, piece = pool.advance(
                named(requests),
                state,
                [gpu(servings)],
                [accuracy] * len(requests),
                until_s,
                jitter,
                worths=[one.worth for one in servings],
                trains_in_slack=in_slack,
                turn_cost=turn_cost,
            )
            found.append((state, piece))
    return found


def all_of(pieces: Sequence[tuple[PoolState, Piece]]) -> list[tuple[str, bytes]]:
    """What became of every tenant's requests, the batches, and when which retraining was done, as bits."""
    n_tenants = len(pieces[0][1].outcomes)
    columns = [
        np.concatenate([getattr(piece.outcomes[tenant], name) for _, piece in pieces])
        for tenant in range(n_tenants)
        for name in COLUMNS
    ]
    batches = [
        np.concatenate([getattr(piece.batches, name) for _, piece in pieces])
        for name in ("tenant_index", "begin_s", "end_s")
    ]
    return bits([*columns, *batches, np.array(done(pieces))])


def done(pieces: Sequence[tuple[PoolState, Piece]]) -> list[tuple[int, float]]:
    """The retrainings: whose, and when they were done."""
    return [(piece.finished.tenant_index, piece.finished_s) for _, piece in pieces if piece.finished is not None]


def answers(*arguments: Any, **others: Any) -> list[list[float | None]]:
    """By tenant, when each request was answered."""
    pieces = pieces_of(*arguments, **others)
    return [
        [None if math.isnan(at_s) else at_s for _, piece in pieces for at_s in piece.outcomes[tenant].answer_s.tolist()]
        for tenant in range(len(arguments[0]))
    ]


# --- by hand


def test_the_tenant_whose_oldest_is_due_first_goes_first() -> None:
    requests = [arrivals(0.0, slo_s=9.0), arrivals(0.0, slo_s=5.0)]
    assert answers(requests, [ONE_SECOND] * 2) == [[2.0], [1.0]]


def test_tenants_due_at_once_go_in_order() -> None:
    assert answers([arrivals(0.0), arrivals(0.0)], [ONE_SECOND] * 2) == [[1.0], [2.0]]


def test_a_batch_is_not_interrupted_by_somebody_more_urgent() -> None:
    requests = [arrivals(0.0), arrivals(0.25, slo_s=2.5)]
    assert answers(requests, [Served(LatencyCurve((1,), (1.5,)), 1), ONE_SECOND]) == [[1.5], [2.5]]


def test_what_waits_is_served_in_batches_up_to_the_limit() -> None:
    assert answers([arrivals(0.0, 0.5, 0.5, 0.5)], [replace(FLAT, batch_limit=2)]) == [[1.0, 2.0, 2.0, 3.0]]


def test_drops_are_judged_on_the_batch_that_would_be_taken() -> None:
    # At 1.0 two wait with the deadline 2.75: both would take until 3.0, one until 2.0.
    assert answers([arrivals(0.0, 0.25, 0.25, slo_s=2.5)], [PAIR]) == [[1.0, None, 2.0]]


def test_a_tenant_is_judged_also_when_it_is_another_s_turn() -> None:
    # At 1.0 a's second goes first, due at 2.2. b's, due at 2.35, would take until 2.5 even now.
    requests = [arrivals(0.0, 0.5, slo_s=1.7), arrivals(0.25, slo_s=2.1)]
    servings = [ONE_SECOND, Served(LatencyCurve((1,), (1.5,)), 1)]
    (state, _), *_ = pieces_of(requests, servings, edges_s=[1.25])
    assert [own.head for own in state.queues] == [2, 1]


def test_training_waits_for_the_last_request() -> None:
    pieces = pieces_of([arrivals(0.0, 0.5)], [ONE_SECOND], [job()])
    assert done(pieces) == [(0, 3.0)]


def test_a_request_waits_for_the_piece_of_training_only() -> None:
    assert answers([arrivals(0.5)], [ONE_SECOND], [job(left_s=5.0, piece_s=0.75)]) == [[1.75]]


def test_in_slack_training_goes_before_those_who_can_wait() -> None:
    pieces = pieces_of([arrivals(0.0)], [ONE_SECOND], [job(left_s=2.0, piece_s=0.75)], in_slack=True)
    assert done(pieces) == [(0, 2.0)]


def test_in_slack_all_that_waits_counts() -> None:
    # Two batches of a second must be answered by 2.5, and then one by as much: 0.75 is too long before either.
    pieces = pieces_of([arrivals(0.0, 0.0, slo_s=2.5)], [ONE_SECOND], [job(left_s=0.75)], in_slack=True)
    assert done(pieces) == [(0, 2.75)]


def test_a_retraining_that_lags_goes_before_requests() -> None:
    # At 1.0 three quarters of 2.25 s are left for two seconds of work.
    pieces = pieces_of([arrivals(0.0, 1.0, slo_s=9.0)], [ONE_SECOND], [job(left_s=2.0, pace=0.75, due_s=3.25)])
    assert done(pieces) == [(0, 3.0)]


def test_a_retraining_ahead_of_its_pace_waits() -> None:
    pieces = pieces_of([arrivals(0.0, 1.0, slo_s=9.0)], [ONE_SECOND], [job(left_s=2.0, pace=0.5, due_s=9.0)])
    assert done(pieces) == [(0, 4.0)]


def test_a_retraining_that_lags_does_not_make_those_of_more_worth_late() -> None:
    lagging = job(left_s=2.0, pace=0.5, due_s=3.75, worth=1.0)
    for worth, ends_s in ((1.0, 2.0), (2.0, 3.0)):
        served = replace(ONE_SECOND, worth=worth)
        assert done(pieces_of([arrivals(0.0, slo_s=1.5)], [served], [lagging])) == [(0, ends_s)]


def test_a_retraining_that_would_be_late_spares_nobody() -> None:
    served, late = replace(ONE_SECOND, worth=2.0), job(left_s=2.0, pace=0.5, due_s=3.0, worth=1.0)
    assert done(pieces_of([arrivals(0.0, slo_s=1.5)], [served], [late])) == [(0, 2.0)]


def test_a_tenant_is_passed_over_where_it_would_make_those_of_more_worth_late() -> None:
    requests = [arrivals(0.0, slo_s=1.25), arrivals(0.0, slo_s=1.5)]
    assert answers(requests, [ONE_SECOND] * 2) == [[1.0], [None]]
    assert answers(requests, [ONE_SECOND, replace(ONE_SECOND, worth=1.0)]) == [[None], [1.0]]


def test_what_follows_another_s_lasts_longer() -> None:
    requests = [arrivals(0.0, 0.0, slo_s=9.0), arrivals(0.0)]
    assert answers(requests, [ONE_SECOND] * 2, turn_cost=0.5) == [[1.5, 2.5], [4.0]]


def test_a_piece_of_training_that_follows_requests_lasts_longer_and_does_no_more() -> None:
    pieces = pieces_of([arrivals(0.0)], [ONE_SECOND], [job(left_s=2.0)], turn_cost=0.5)
    assert done(pieces) == [(0, 4.0)]


@pytest.mark.parametrize(("key", "value"), [("pace", 1.5), ("pace", -0.5), ("pace", math.nan), ("due_s", math.nan)])
def test_a_pace_is_a_share_and_a_due_time_a_number(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=key):
        replace(job(), **{key: value})


def test_training_goes_on_after_requests() -> None:
    pieces = pieces_of([arrivals(0.5)], [ONE_SECOND], [job(left_s=2.0, piece_s=0.75)])
    assert done(pieces) == [(0, 3.0)]


def test_jobs_are_done_in_order_as_far_as_they_are_ready() -> None:
    jobs = [job(ready_s=1.5, tenant_index=1), job(left_s=3.0), job(tenant_index=2)]
    nobody = [arrivals(tenant=name) for name in "abc"]
    assert done(pieces_of(nobody, [ONE_SECOND] * 3, jobs)) == [(1, 3.0), (0, 4.0), (2, 5.0)]


def test_a_piece_ends_where_the_last_piece_of_a_retraining_begins() -> None:
    (state, piece), *_ = pieces_of([arrivals(9.0)], [ONE_SECOND], [job(ready_s=0.5)])
    assert (state.now_s, dict(state.busy_until), piece.finished) == (0.5, {"gpu": 1.5}, job(ready_s=0.5))


def test_a_job_that_was_worked_on_says_so() -> None:
    (state, _), *_ = pieces_of([arrivals()], [ONE_SECOND], [job(left_s=3.0), job()], [1.0])
    assert state.jobs == (replace(job(left_s=2.0), has_begun=True), job())


def test_the_accuracy_is_that_of_the_begin_of_the_batch() -> None:
    accuracy = AccuracyTimeline((0.0, 1.0), (0.0, 1.0))
    (_, piece), *_ = pieces_of([arrivals(0.0, 0.5)], [ONE_SECOND], accuracy=accuracy)
    assert piece.outcomes[0].correct.tolist() == [False, True]


@pytest.mark.parametrize("left_s", [0.0, -1.0, INF, math.nan])
def test_a_job_needs_work(left_s: float) -> None:
    with pytest.raises(ValueError, match="left_s"):
        job(left_s=left_s)


# --- several lanes by hand


def lane(lane_id: str, *servings: Served | None, ready_s: float = 0.0, end_s: float = INF) -> Lane:
    """How it serves members t0, t1, …; None: not at all."""
    found = []
    for number, one in enumerate(servings):
        if one is not None:
            server_id = f"{lane_id}/t{number}"
            found.append(Server(f"t{number}", server_id, ready_s, end_s, one.latency, one.batch_limit))
    return Lane(lane_id, tuple(found))


def drained(requests: Sequence[Requests], lanes: Sequence[Lane], **others: Any) -> list[list[float | None]]:
    """By member, when each request was answered."""
    own = named(requests)
    _, piece = pool.advance(own, PoolState.at_start(len(own)), lanes, [ALWAYS] * len(own), INF, **others)
    return [[None if math.isnan(at_s) else at_s for at_s in one.answer_s.tolist()] for one in piece.outcomes]


def test_lanes_serve_different_members_at_once() -> None:
    lanes = [lane("a", ONE_SECOND, ONE_SECOND), lane("b", ONE_SECOND, ONE_SECOND)]
    assert drained([arrivals(0.0), arrivals(0.0)], lanes) == [[1.0], [1.0]]


def test_the_lane_with_the_least_latency_for_the_member_goes_first() -> None:
    quick = Served(LatencyCurve((1,), (0.5,)), 1)
    lanes = [lane("a", quick, ONE_SECOND), lane("b", ONE_SECOND, quick)]
    assert drained([arrivals(0.0), arrivals(0.0)], lanes) == [[0.5], [0.5]]


def test_a_member_stays_on_its_lane_where_turns_cost() -> None:
    lanes = [lane("a", ONE_SECOND, ONE_SECOND), lane("b", ONE_SECOND, ONE_SECOND)]
    requests = [arrivals(0.0, 2.0), arrivals(0.0, 1.5)]
    assert drained(requests, lanes, turn_cost=0.5) == [[1.0, 3.0], [1.0, 2.5]]


def test_a_lane_s_first_turn_costs_where_others_had_it() -> None:
    for others, answer_s in (((), 1.0), (("a",), 1.5)):
        state = PoolState.at_start(1, others)
        _, piece = pool.advance(named([arrivals(0.0)]), state, [lane("a", ONE_SECOND)], [ALWAYS], INF, turn_cost=0.5)
        assert piece.outcomes[0].answer_s.tolist() == [answer_s]


def test_a_lane_serves_only_those_who_have_a_process_there() -> None:
    lanes = [lane("a", ONE_SECOND, None)]
    assert drained([arrivals(0.0, 0.0), arrivals(0.0)], lanes) == [[1.0, 2.0], [None]]


def test_all_lanes_count_when_it_is_asked_whether_the_richer_can_wait() -> None:
    # Four of the richer member are due at 4.0, in batches of one second. After a second of the poorer, due at 1.5, one
    # lane needs until 5.0, and two until 3.0.
    rich, poor = arrivals(0.0, 0.0, 0.0, 0.0, slo_s=4.0), arrivals(0.0, slo_s=1.5)
    lanes = [lane("a", ONE_SECOND, ONE_SECOND), lane("b", ONE_SECOND, ONE_SECOND)]
    assert drained([rich, poor], lanes[:1], weights=[2.0, 1.0])[1] == [None]
    assert drained([rich, poor], lanes, weights=[2.0, 1.0])[1] == [1.0]


def test_each_of_the_richer_can_wait_until_its_own_deadline() -> None:
    # Three of the richest are due at 5.0, one of the richer at 2.0; each takes a second. After a second of the poorest,
    # due at 1.0, the one is answered at 2.0 and the three at 5.0; with a fourth they would be late.
    richer, poorest = arrivals(0.0, slo_s=2.0), arrivals(0.0, slo_s=1.0)
    lanes = [lane("a", ONE_SECOND, ONE_SECOND, ONE_SECOND)]
    for n_richest, expected in ((3, [1.0]), (4, [None])):
        richest = arrivals(*[0.0] * n_richest, slo_s=5.0)
        assert drained([richest, richer, poorest], lanes, weights=[3.0, 2.0, 1.0])[2] == expected


def test_worth_goes_by_the_accuracy_in_service() -> None:
    # Both wait at 2.0, the second due first; only one of them can be answered. The first's accuracy rises at 2.0.
    requests = named([arrivals(0.0, 2.0, slo_s=1.5), arrivals(2.0, slo_s=1.25)])
    for accuracy, expected in ((0.9, [1, 0]), (0.4, [0, 1])):
        accuracies = [AccuracyTimeline((0.0, 2.0), (0.1, accuracy)), AccuracyTimeline((0.0,), (0.5,))]
        _, piece = pool.advance(requests, PoolState.at_start(2), [lane("a", ONE_SECOND, ONE_SECOND)], accuracies, INF)
        assert [int(one.in_time[-1]) for one in piece.outcomes] == expected


def test_no_lane_waits_for_another() -> None:
    # Each lane has the other member's larger batches, and its own member's shorter one.
    quick = Served(LatencyCurve((1,), (0.5,)), 1)
    lanes = [lane("a", quick, FLAT), lane("b", FLAT, quick)]
    assert drained([arrivals(0.0, slo_s=0.9), arrivals(0.0, slo_s=0.9)], lanes) == [[0.5], [0.5]]


def test_a_job_is_done_on_its_lane() -> None:
    state = replace(PoolState.at_start(1), jobs=(replace(job(), lane_id="b"),))
    lanes = [lane("a", ONE_SECOND), lane("b", ONE_SECOND)]
    state, piece = pool.advance(named([arrivals(0.0)]), state, lanes, [ALWAYS], INF)
    assert (piece.finished_s, dict(state.holders), dict(state.busy_until)) == (
        1.0,
        {"a": 0, "b": 1},
        {"a": 1.0, "b": 1.0},
    )


def test_whose_lane_is_kept_for_a_job_goes_to_another_before_those_due_later() -> None:
    quick = Served(LatencyCurve((1,), (0.5,)), 1)
    state = replace(PoolState.at_start(2), jobs=(replace(job(), lane_id="a"),))
    lanes = [lane("a", quick, None), lane("b", ONE_SECOND, ONE_SECOND)]
    requests = named([arrivals(0.0, slo_s=10.0), arrivals(0.0, slo_s=20.0)])
    found = []
    for _ in range(2):  # it stops as the job's last piece begins
        state, piece = pool.advance(requests, state, lanes, [ALWAYS] * 2, INF, trains_in_slack=True)
        found += [(member, *one.answer_s.tolist()) for member, one in enumerate(piece.outcomes) if len(one.answer_s)]
    assert sorted(found) == [(0, 1.0), (1, 2.0)]


def test_a_job_without_its_lane_waits() -> None:
    state = replace(PoolState.at_start(1), jobs=(replace(job(), lane_id="b"),))
    state, piece = pool.advance(named([arrivals(0.0)]), state, [lane("a", ONE_SECOND)], [ALWAYS], INF)
    assert (piece.finished, len(state.jobs)) == (None, 1)


def test_what_a_failed_process_had_in_service_is_known_and_its_lane_goes_on() -> None:
    requests, one = named([arrivals(0.0), arrivals(0.25)]), lane("a", ONE_SECOND, ONE_SECOND)
    state, _ = pool.advance(requests, PoolState.at_start(2), [one], [ALWAYS] * 2, 0.5)
    member, lost = cast("tuple[int, Outcomes]", state.in_service("a"))
    assert (member, lost.index.tolist(), lost.answer_s.tolist()) == (0, [0], [1.0])
    state = state.freed("a")
    assert (state.in_service("a"), dict(state.busy_until), dict(state.queues[0].busy_until)) == (None, {}, {})
    state, piece = pool.advance(requests, state, [Lane("a", one.servers[1:])], [ALWAYS] * 2, INF)
    assert piece.outcomes[1].answer_s.tolist() == [1.5]


def test_what_is_in_service_is_known_by_lane_and_by_server() -> None:
    requests, lanes = named([arrivals(0.0, 0.0)]), [lane("a", ONE_SECOND), lane("b", FLAT)]
    state, _ = pool.advance(requests, PoolState.at_start(1), lanes, [ALWAYS], 0.5)
    state, _ = pool.advance(requests, state, lanes, [ALWAYS], 0.75)
    _, found = cast("tuple[int, Outcomes]", state.in_service("b"))
    assert (found.index.tolist(), state.in_service("c")) == ([1], None)
    assert state.queues[0].in_service("b/t0").index.tolist() == [1]


def test_a_lane_that_is_gone_is_forgotten() -> None:
    state, _ = pool.advance(named([arrivals(0.0)]), PoolState.at_start(1), [lane("a", ONE_SECOND)], [ALWAYS], 0.5)
    state, _ = pool.advance(named([arrivals(0.0)]), state, [], [ALWAYS], 0.75)
    assert (dict(state.busy_until), dict(state.holders), dict(state.queues[0].batches)) == ({}, {}, {})


# --- cases to draw


@st.composite
def tenant_lists(draw: st.DrawFn) -> list[tuple[Requests, Served]]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        times_s = sorted(draw(st.lists(quarters(0, 24), max_size=25)))
        seed, slo_s = draw(st.integers(0, 3)), draw(quarters(1, 10))
        requests = requests_of(f"t{number}", slo_s, np.array(times_s), seed=seed)
        worth = float(draw(st.integers(0, 2)))
        found.append((requests, Served(draw(curves()), draw(st.integers(1, 6)), worth)))
    return found


def all_alike(tenants: list[tuple[Requests, Served]]) -> list[tuple[Requests, Served]]:
    return [(requests, replace(serving, worth=0.0)) for requests, serving in tenants]


jobs = st.lists(
    st.builds(
        job,
        left_s=quarters(1, 12),
        piece_s=quarters(1, 4),
        ready_s=quarters(0, 30),
        tenant_index=st.integers(0, 3),
        pace=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        due_s=quarters(1, 40),
        worth=st.sampled_from([0.0, 0.5, 1.0]),
    ),
    max_size=4,
)
costs = st.sampled_from([0.0, 0.125, 0.5])
edges = st.lists(quarters(1, 60), max_size=8)
jitters = st.sampled_from([None, ServiceJitter(5, 0.0), ServiceJitter(5, 0.4), ServiceJitter(5, "measured")])

# --- against the oracle


def lanes_in(problem: Problem, start_s: float, until_s: float, rng: np.random.Generator) -> list[Lane]:
    """What is known in a piece, in any order: perhaps without later ends, what comes later, and what has ended."""
    found = []
    for rank, members in enumerate(problem.lanes):
        servers = []
        for member, processes in enumerate(members):
            places = [place for place, one in enumerate(processes) if one.end_s > start_s]
            if places and (processes[places[0]].ready_s < until_s or rng.random() < 0.5):
                one = processes[places[0]]
                end_s = INF if one.end_s >= until_s and rng.random() < 0.5 else one.end_s
                server_id = f"{rank}/{places[0]}"
                servers.append(Server(f"t{member}", server_id, one.ready_s, end_s, one.latency, one.limit))
        every = [one for processes in members for one in processes]
        has_come, is_over = (any(one.ready_s < until_s for one in every), all(one.end_s <= start_s for one in every))
        is_left_out = (is_over and rank % 2 == 0) or (not has_come and not servers)
        if not is_left_out or str(rank) in [job.lane_id for job in problem.jobs]:
            found.append(Lane(str(rank), tuple(servers)))
    return [found[place] for place in rng.permutation(len(found))]


def stands(state: PoolState, lanes: Sequence[Lane]) -> dict[str, Any]:
    ids = sorted(one.lane_id for one in lanes)
    served = {one: found for one in ids if (found := state.in_service(one)) is not None}
    return {
        "queues": [(own.head, own.tail) for own in state.queues],
        "busy": dict(state.busy_until),
        "by server": sorted(end_s for own in state.queues for end_s in own.busy_until.values()),
        "in service": {one: (member, tuple(lost.index.tolist())) for one, (member, lost) in served.items()},
        "holders": {one: holder for one, holder in state.holders.items() if holder >= 0},
    }


def should_stand(course: Course, now_s: float, lanes: Sequence[Lane]) -> dict[str, Any]:
    begun = {str(turn.rank): turn for turn in course.turns if turn.begin_s < now_s}
    last = {one.lane_id: begun[one.lane_id] for one in lanes if one.lane_id in begun}
    under_way = {one: turn for one, turn in last.items() if turn.is_under_way(now_s)}
    batches = {one: turn for one, turn in under_way.items() if turn.indices}
    return {
        "queues": [
            (course.head(member, now_s), int((own.arrival_s < now_s).sum()))
            for member, own in enumerate(course.problem.requests)
        ],
        "busy": {one: turn.end_s for one, turn in under_way.items()},
        "by server": sorted(turn.end_s for turn in batches.values()),
        "in service": {one: (turn.holder, turn.indices) for one, turn in batches.items()},
        "holders": {one: turn.holder for one, turn in last.items()},
    }


def differences(problem: Problem, edges_s: Sequence[float], seed: int = 0) -> list[str]:
    """In what the loop, in pieces, is not as the oracle, at once."""
    course, rng = one_by_one(problem), np.random.default_rng(seed)
    failures = [
        (one.end_s, str(rank), member)
        for rank, members in enumerate(problem.lanes)
        for member, processes in enumerate(members)
        for one in processes
        if one.fails
    ]
    others = [str(rank) for rank in range(len(problem.lanes))] if problem.first_turn_costs else []
    state = replace(PoolState.at_start(len(problem.requests), others), jobs=tuple(problem.jobs))
    wrong, pieces = [], []
    lost: list[list[int]] = [[] for _ in problem.requests]
    for until_s in (*sorted({*edges_s, *(at_s for at_s, _, _ in failures)}), INF):
        lanes = lanes_in(problem, state.now_s, until_s, rng)
        while state.now_s < until_s:
            state, piece = pool.advance(
                problem.requests,
                state,
                lanes,
                problem.accuracies,
                until_s,
                problem.jitter,
                weights=problem.weights,
                worths=problem.worths,
                trains_in_slack=problem.in_slack,
                turn_cost=problem.turn_cost,
            )
            # By their ids: ranks are among the lanes that are known.
            pieces.append((piece, sorted(int(one.lane_id) for one in lanes)))
        if (found := stands(state, lanes)) != (expected := should_stand(course, until_s, lanes)):
            wrong.append(f"at {until_s} s {found} instead of {expected}")
        for at_s, lane_id, member in failures:
            served = state.in_service(lane_id) if at_s == until_s else None
            if served is not None and served[0] == member:
                lost[member] += served[1].index.tolist()
                state = state.freed(lane_id)
    for member, indices in enumerate(lost):
        own = joined([piece.outcomes[member] for piece, _ in pieces]).without_answers(np.array(indices, dtype=np.int64))
        if bits_of(own) != bits_of(course.outcomes(member)):
            wrong.append(f"outcomes of {member}")
    batches = [
        (ranks[rank], member, begin_s, end_s)
        for piece, ranks in pieces
        for rank, member, begin_s, end_s in zip(
            *(getattr(piece.batches, name).tolist() for name in ("rank", "tenant_index", "begin_s", "end_s")),
            strict=True,
        )
    ]
    if batches != [(one.rank, one.holder, one.begin_s, one.end_s) for one in course.turns if one.indices]:
        wrong.append("batches")
    ended = [(one.finished, one.finished_s) for one, _ in pieces if one.finished is not None]
    if [(one.tenant_index, one.window, at_s) for one, at_s in ended] != course.trained:
        wrong.append("retrainings")
    return wrong


def one_lane(
    requests: Sequence[Requests],
    servings: Sequence[Served],
    jobs: Sequence[TrainingJob],
    jitter: ServiceJitter | None,
    in_slack: bool = False,
    turn_cost: float = 0.0,
) -> Problem:
    return Problem(
        named(requests),
        [[[Process(0.0, INF, one.latency, one.batch_limit)] for one in servings]],
        [TIMELINE] * len(requests),
        worths=[one.worth for one in servings],
        jobs=[replace(one, lane_id="0") for one in jobs],
        jitter=jitter,
        in_slack=in_slack,
        turn_cost=turn_cost,
        first_turn_costs=True,
    )


@settings(derandomize=True, max_examples=examples(200))
@given(tenant_lists(), jobs, edges, jitters, st.booleans(), costs)
def test_turns_of_one_lane_are_as_the_oracle_takes_them(
    tenants: list[tuple[Requests, Served]],
    jobs: list[TrainingJob],
    edges_s: list[float],
    jitter: ServiceJitter | None,
    in_slack: bool,
    turn_cost: float,
) -> None:
    requests, servings = zip(*tenants, strict=True)
    assert differences(one_lane(requests, servings, jobs, jitter, in_slack, turn_cost), edges_s) == []


def test_a_piece_may_begin_more_batches_than_a_block_of_jitter_has() -> None:
    times_s = np.arange(0, 10, 0.01)
    problem = one_lane(
        [requests_of(name, 0.5, times_s, 0) for name in "ab"],
        [Served(LatencyCurve((1,), (0.003,)), 2)] * 2,
        (),
        ServiceJitter(3, 0.5),
    )
    assert min(sum(turn.holder == member for turn in one_by_one(problem).turns) for member in (0, 1)) > 2 * JITTER_BLOCK
    assert differences(problem, ()) == []


def random_problem(seed: int) -> tuple[Problem, list[float]]:
    """Members, lanes that come and go, processes that start late, end and fail; and where time is cut into pieces.

    Every other one has few moments and few curves, so that many of them are equal.
    """
    rng = np.random.default_rng((41, seed))
    is_coarse, lasts_s = seed % 2 == 0, float(rng.uniform(3, 8))

    def rounded(value: Any) -> Any:
        return np.maximum(np.round(np.asarray(value) * 16), 1) / 16 if is_coarse else np.asarray(value)

    def moment(low: float, high: float) -> float:
        return float(rounded(rng.uniform(low, high)))

    n_members, n_lanes = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    requests = []
    for member in range(n_members):
        times_s = np.sort(rounded(rng.uniform(0, lasts_s, int(rng.integers(0, 130)))))
        requests.append(requests_of(f"t{member}", moment(0.05, 0.9), times_s, seed))
    kinds = []
    for _ in range(2):
        served = [random_curve(rng).stretched(float(rng.choice([1.0, 4.0]))) for _ in range(n_members)]
        rounder = [LatencyCurve(one.batches, tuple(rounded(one.latency_s).tolist())) for one in served]
        kinds.append([(one, int(rng.choice([1, 2, 3, 8]))) for one in rounder])
    lanes = []
    for _ in range(n_lanes):
        kind = kinds[int(rng.integers(2))]
        ready_s = float(rng.choice([0.0, moment(0, 0.7 * lasts_s)]))
        end_s = float(rng.choice([INF, ready_s + moment(0.1, lasts_s)]))
        members = []
        for latency, limit in kind:
            from_s = ready_s + float(rng.choice([0.0, moment(0, 2)]))
            until_s = float(rng.choice([end_s, min(end_s, from_s + moment(0.1, 4))]))
            first = Process(from_s, until_s, latency, limit)
            fails_s = from_s + moment(0.1, 4)
            again_s = fails_s + moment(0.1, 2)
            if rng.random() < 0.3 and again_s < end_s:
                again = Process(again_s, end_s, latency, limit)
                members.append([replace(first, end_s=fails_s, fails=True), again])
            else:
                members.append([] if rng.random() < 0.1 else [first])
        lanes.append(members)
    accuracies = []
    for _ in range(n_members):
        moments_s = sorted({0.0, *(moment(0, lasts_s) for _ in range(int(rng.integers(0, 4))))})
        accuracies.append(
            AccuracyTimeline(tuple(moments_s), tuple(rng.choice([0.0, 0.3, 0.5, 0.9], len(moments_s)).tolist()))
        )
    jobs = [
        TrainingJob(
            tenant_index=int(rng.integers(n_members)),
            window=number,
            left_s=moment(0.1, 2),
            piece_s=moment(0.05, 0.3),
            ready_s=moment(0, lasts_s),
            pace=float(rng.choice([0.0, 0.3, 1.0])),
            due_s=float(rng.choice([INF, moment(1, lasts_s)])),
            worth=float(rng.choice([0.0, 10.0, 60.0])),
            lane_id=str(rng.integers(n_lanes)),
        )
        for number in range(int(rng.integers(0, 3)) if seed % 3 == 0 else 0)
    ]
    spread = [None, None, 0.3][int(rng.integers(3))]
    problem = Problem(
        requests,
        lanes,
        accuracies,
        weights=rng.choice([0.5, 1.0, 3.0], n_members).tolist(),
        jobs=jobs,
        jitter=None if spread is None else ServiceJitter(seed, spread),
        in_slack=bool(rng.random() < 0.5),
        turn_cost=float(rng.choice([0.0, 0.125, rng.uniform(0, 0.3)])),
    )
    return problem, rounded(rng.uniform(0, 1.3 * lasts_s, int(rng.integers(0, 9)))).tolist()


@pytest.mark.parametrize("block", daily(range(12), range(4)))
def test_pools_are_as_the_oracle_serves_them_in_any_pieces(block: int) -> None:
    found = {seed: differences(*random_problem(seed), seed) for seed in range(30 * block, 30 * (block + 1))}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


# --- against pull


def assert_as_pull(
    requests: Requests, servers: Sequence[Server], edges_s: Sequence[float], jitter: ServiceJitter | None
) -> None:
    """A member alone with a lane for each server: the same after every piece, to the last bit."""
    lanes = [Lane(one.server_id, (one,)) for one in servers]
    expected, state = QueueState(), PoolState.at_start(1)
    for until_s in (*sorted(edges_s), INF):
        expected, outcomes = one_tenant.advance(requests, expected, servers, TIMELINE, until_s, jitter)
        state, piece = pool.advance([requests], state, lanes, [TIMELINE], until_s, jitter, turn_cost=0.2)
        assert state.queues[0] == expected
        assert bits_of(piece.outcomes[0]) == bits_of(outcomes)
        for one in servers:
            in_service = state.queues[0].in_service(one.server_id)
            assert bits_of(in_service) == bits_of(expected.in_service(one.server_id))


@settings(derandomize=True, max_examples=examples(200))
@given(request_lists(), server_lists(), st.lists(quarters(0, 40), max_size=8), jitters)
def test_a_member_alone_is_served_as_by_pull(
    requests: Requests, servers: list[Server], edges_s: list[float], jitter: ServiceJitter | None
) -> None:
    assert_as_pull(requests, servers, edges_s, jitter)


@pytest.mark.parametrize("seed", range(40))
def test_random_cases_of_pull_agree(seed: int) -> None:
    assert_as_pull(
        *random_case(seed), jitter=[None, ServiceJitter(seed, 0.3), ServiceJitter(seed, "measured")][seed % 3]
    )


def test_many_batches_of_pull_agree() -> None:
    assert_as_pull(*many_batches(), (3.0, 6.0), ServiceJitter(3, 0.5))


# --- properties

CASES = settings(derandomize=True, max_examples=examples(80))


@CASES
@given(tenant_lists(), jobs, edges, jitters, st.booleans(), costs)
def test_any_pieces_give_the_same(
    tenants: list[tuple[Requests, Served]],
    jobs: list[TrainingJob],
    edges_s: list[float],
    jitter: ServiceJitter | None,
    in_slack: bool,
    turn_cost: float,
) -> None:
    requests, servings = zip(*tenants, strict=True)
    at_once = pieces_of(requests, servings, jobs, (), jitter, in_slack=in_slack, turn_cost=turn_cost)
    in_pieces = pieces_of(requests, servings, jobs, edges_s, jitter, in_slack=in_slack, turn_cost=turn_cost)
    assert all_of(in_pieces) == all_of(at_once)


@CASES
@given(tenant_lists(), jitters)
def test_a_tenant_alone_is_served_as_by_one_server(
    tenants: list[tuple[Requests, Served]], jitter: ServiceJitter | None
) -> None:
    requests, served = tenants[0]
    server = Server(requests.tenant, "gpu", 0.0, INF, served.latency, served.batch_limit)
    _, expected = one_tenant.advance(requests, QueueState(), [server], TIMELINE, INF, jitter)
    (_, piece), *_ = pieces_of([requests], [served], jitter=jitter)
    assert bits_of(piece.outcomes[0]) == bits_of(expected)


@CASES
@given(tenant_lists(), jobs, edges)
def test_the_gpu_does_one_thing_at_a_time(
    tenants: list[tuple[Requests, Served]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*tenants, strict=True)
    pieces = pieces_of(requests, servings, jobs, edges_s)
    begin_s, end_s = (np.concatenate([getattr(p.batches, name) for _, p in pieces]) for name in ("begin_s", "end_s"))
    assert (begin_s[1:] >= end_s[:-1]).all()


@CASES
@given(tenant_lists(), jobs, edges)
def test_every_request_is_resolved_and_every_job_done(
    tenants: list[tuple[Requests, Served]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*tenants, strict=True)
    pieces = pieces_of(requests, servings, jobs, edges_s)
    assert [own.head for own in pieces[-1][0].queues] == [len(own) for own in requests]
    assert sorted(index for index, _ in done(pieces)) == sorted(one.tenant_index for one in jobs)


@CASES
@given(tenant_lists(), jobs, quarters(1, 40))
def test_every_deadline_that_has_come_is_resolved(
    tenants: list[tuple[Requests, Served]], jobs: list[TrainingJob], until_s: float
) -> None:
    requests, servings = zip(*tenants, strict=True)
    states = [state for state, _ in pieces_of(requests, servings, jobs, [until_s]) if state.now_s == until_s]
    heads = [own.head for own in states[0].queues]
    assert all((one.deadline_s[head:] > until_s).all() for one, head in zip(requests, heads, strict=True))


@CASES
@given(tenant_lists(), jobs, edges)
def test_a_retraining_without_a_pace_never_goes_before_requests(
    tenants: list[tuple[Requests, Served]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*all_alike(tenants), strict=True)
    paceless = [replace(one, pace=0.0) for one in jobs]
    undated = [replace(one, due_s=INF, worth=0.0) for one in paceless]
    assert all_of(pieces_of(requests, servings, paceless, edges_s)) == all_of(pieces_of(requests, servings, undated))


@CASES
@given(tenant_lists(), jobs)
def test_without_jitter_nothing_is_late(tenants: list[tuple[Requests, Served]], jobs: list[TrainingJob]) -> None:
    requests, servings = zip(*tenants, strict=True)
    outcomes: list[Outcomes] = [one for _, piece in pieces_of(requests, servings, jobs) for one in piece.outcomes]
    assert not any(one.late.any() for one in outcomes)


# --- values


def test_the_loop_is_compiled_once_whatever_it_is_given() -> None:
    for n_members in (1, 2):
        for n_jobs in (0, 1):
            for jitter in (None, ServiceJitter(0, 0.1)):
                pieces_of([arrivals(0.0)] * n_members, [FLAT] * n_members, [job()] * n_jobs, [1], jitter)
    pool.advance([arrivals(0.0)], PoolState.at_start(1), [], [ALWAYS], 1.0)
    assert len(cast("Any", pool.take_turns).signatures) == 1


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    state = PoolState((QueueState(now_s=1.0),))
    with pytest.raises(ValueError, match="cannot advance the pool"):
        pool.advance([arrivals(0.0)], state, [gpu([FLAT])], [ALWAYS], until_s)


def test_lane_ids_differ() -> None:
    with pytest.raises(ValueError, match="lane ids must differ"):
        pool.advance([arrivals(0.0)], PoolState.at_start(1), [gpu([FLAT])] * 2, [ALWAYS], 1.0)


def test_a_lane_has_one_server_a_tenant() -> None:
    with pytest.raises(ValueError, match="one server a tenant"):
        Lane("a", gpu([FLAT]).servers * 2)
