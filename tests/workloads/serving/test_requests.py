"""The request simulation against hand-computed cases and an oracle that moves request by request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server, advance, requests_of
from workloads.traffic.luck import ServiceJitter, Spread, service_jitter

INF = math.inf
TENANT = "bert"
ALWAYS = AccuracyTimeline((0.0,), (1.0,))
ONE_SECOND = LatencyCurve((1,), (1.0,))  # a batch of b takes b seconds
FLAT = LatencyCurve((1, 100), (1.0, 1.0))  # any batch takes a second


def arrivals(*times_s: float, slo_s: float = 3.0, luck: float = 0.5) -> Requests:
    return Requests(TENANT, slo_s, np.array(times_s, dtype=float), np.full(len(times_s), luck))


def server(
    server_id: str = "a", ready_s: float = 0.0, end_s: float = INF, latency: LatencyCurve = ONE_SECOND, limit: int = 1
) -> Server:
    return Server(TENANT, server_id, ready_s, end_s, latency, limit)


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


def joined(pieces: Sequence[Outcomes]) -> Outcomes:
    names = ("index", "answer_s", "in_time", "correct")
    return Outcomes(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))


def listed(outcomes: Outcomes) -> list[float | None]:
    return [None if math.isnan(answer_s) else answer_s for answer_s in outcomes.answer_s.tolist()]


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
    outcomes = answers(arrivals(0.0, 0.1, 0.3, 0.6), [server(limit=3)])
    assert listed(outcomes) == [1.0, None, 3.0, 3.0]


def test_drops_stop_where_a_smaller_batch_stands() -> None:
    # At 3.0 three wait with deadlines 3.5, 4.0, 4.5. A batch of two takes until 5.0, one alone until 4.0.
    outcomes = answers(arrivals(0.5, 1.0, 1.5), [server(ready_s=3.0, limit=2)])
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
    assert listed(answers(arrivals(0.0, 0.0, 8.5), [a, b])) == [None, None, 9.5]


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
    assert listed(answers(arrivals(0.0, 2.0), [slow, quick])) == [None, 3.0]


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
    state, outcomes = advance(arrivals(0.0, 1.0), QueueState(), [], ALWAYS, 3.0)
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


# --- luck and jitter


def test_luck_depends_on_seed_tenant_and_index_alone() -> None:
    few = requests_of(TENANT, 1.0, np.arange(3.0), seed=7)
    many = requests_of(TENANT, 2.0, np.arange(9.0) / 2, seed=7)
    np.testing.assert_array_equal(few.luck, many.luck[:3])


@pytest.mark.parametrize(("tenant", "seed"), [("resnet", 7), (TENANT, 8)])
def test_luck_differs_by_tenant_and_seed(tenant: str, seed: int) -> None:
    ours, other = requests_of(TENANT, 1.0, np.arange(9.0), 7), requests_of(tenant, 1.0, np.arange(9.0), seed)
    assert not (ours.luck == other.luck).any()


@pytest.mark.parametrize("spread", [0.2, "measured"])
def test_jitter_makes_answers_late(spread: Spread) -> None:
    outcomes = answers(
        arrivals(*range(50), slo_s=1.0), [server(f"s{k}") for k in range(9)], jitter=ServiceJitter(0, spread)
    )
    assert 10 < outcomes.late.sum() < 40


@pytest.mark.parametrize("spread", [0.5, "measured"])
def test_jitter_keeps_the_mean_latency(spread: Spread) -> None:
    factors = [ServiceJitter(3, spread).factor(TENANT, number) for number in range(20_000)]
    assert np.mean(factors) == pytest.approx(1.0, abs=0.02)


def test_jitter_of_neighbouring_batches_differs_across_blocks() -> None:
    factors = [ServiceJitter(3, 0.5).factor(TENANT, number) for number in range(1000)]
    assert len(set(factors)) == 1000


def test_without_spread_jitter_changes_nothing() -> None:
    requests, servers = arrivals(0.0, 0.1, 0.2, 4.0), [server(limit=2)]
    assert listed(answers(requests, servers, jitter=ServiceJitter(1, 0.0))) == listed(answers(requests, servers))


# --- bad input


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    with pytest.raises(ValueError, match="cannot advance bert"):
        advance(arrivals(0.0), QueueState(now_s=1.0), [], ALWAYS, until_s)


def test_two_servers_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="must differ"):
        advance(arrivals(0.0), QueueState(), [server(), server(ready_s=1.0)], ALWAYS, 1.0)


@pytest.mark.parametrize(
    ("times_s", "luck", "slo_s"),
    [([1, 0], [0, 0], 1), ([0, math.nan], [0, 0], 1), ([0], [1], 1), ([0], [0, 0], 1), ([0], [0], 0), ([0], [0], INF)],
)
def test_malformed_requests_are_refused(times_s: list[float], luck: list[float], slo_s: float) -> None:
    with pytest.raises(ValueError, match="requests of bert"):
        Requests(TENANT, slo_s, np.array(times_s, dtype=float), np.array(luck, dtype=float))


@pytest.mark.parametrize(
    "change", [{"ready_s": math.nan}, {"end_s": math.nan}, {"limit": 0}, {"latency": LatencyCurve((1,), (0.0,))}]
)
def test_malformed_servers_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|above 0"):
        server(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("from_s", "accuracy"), [((), ()), ((0.0,), (0.5, 0.6)), ((1.0, 1.0), (0.5, 0.6)), ((0.0,), (1.1,))]
)
def test_malformed_accuracy_timelines_are_refused(from_s: tuple[float, ...], accuracy: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="accurac"):
        AccuracyTimeline(from_s, accuracy)


def test_negative_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"spread -0\.1: must be 'measured', or finite"):
        ServiceJitter(0, -0.1)


def test_a_spread_of_0_is_no_jitter() -> None:
    assert service_jitter(3, 0.0) is None


@pytest.mark.parametrize("spread", [0.5, "measured"])
def test_any_other_spread_is_jitter(spread: Spread) -> None:
    assert service_jitter(3, spread) == ServiceJitter(3, spread)


@pytest.mark.parametrize(("time_s", "expected"), [(-1.0, 0.5), (0.0, 0.5), (1.5, 0.5), (2.0, 0.7), (9.0, 0.7)])
def test_accuracy_holds_from_its_time_on(time_s: float, expected: float) -> None:
    assert AccuracyTimeline((0.0, 2.0), (0.5, 0.7)).at(time_s) == expected


def test_requests_do_not_share_memory_with_their_source() -> None:
    times_s = np.array([0.0, 1.0])
    requests = requests_of(TENANT, 1.0, times_s, 0)
    times_s[0] = 0.5
    assert requests.arrival_s[0] == 0.0
