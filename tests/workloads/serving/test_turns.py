"""The GPU shared by turns: by hand, its properties, and the compiled loop against an oracle that keeps lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import turns_cases
import turns_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import (
    ALWAYS,
    COLUMNS,
    INF,
    TIMELINE,
    arrivals,
    bits,
    bits_of,
    curves,
    quarters,
    random_curve,
)

from workloads.profiles.latency import LatencyCurve
from workloads.serving import advance as one_tenant
from workloads.serving import turns
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server, requests_of
from workloads.serving.turns import BatchServing, Piece, TrainingJob, TurnsState
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter

Advance = Callable[..., tuple[TurnsState, Piece]]

ONE_SECOND = BatchServing(LatencyCurve((1,), (1.0,)), 1)  # a batch of b takes b seconds
PAIR = BatchServing(LatencyCurve((1,), (1.0,)), 2)
FLAT = BatchServing(LatencyCurve((1, 100), (1.0, 1.0)), 100)  # any batch takes a second


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
    servings: Sequence[BatchServing],
    jobs: Sequence[TrainingJob] = (),
    edges_s: Sequence[float] = (),
    jitter: ServiceJitter | None = None,
    accuracy: AccuracyTimeline = TIMELINE,
    advance: Advance = turns.advance,
    in_slack: bool = False,
    turn_cost: float = 0.0,
) -> list[tuple[TurnsState, Piece]]:
    """All pieces of a run; where a retraining ends, the next piece begins."""
    state, found = replace(TurnsState.at_start(len(requests)), jobs=tuple(jobs)), []
    for until_s in (*sorted(edges_s), INF):
        while state.now_s < until_s:
            state, piece = advance(
                requests,
                state,
                servings,
                [accuracy] * len(requests),
                until_s,
                jitter,
                trains_in_slack=in_slack,
                turn_cost=turn_cost,
            )
            found.append((state, piece))
    return found


def all_of(pieces: Sequence[tuple[TurnsState, Piece]]) -> list[tuple[str, bytes]]:
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


def done(pieces: Sequence[tuple[TurnsState, Piece]]) -> list[tuple[int, float]]:
    """The retrainings: whose, and when they were done."""
    return [(piece.finished.tenant_index, state.busy_until_s) for state, piece in pieces if piece.finished is not None]


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
    assert answers(requests, [BatchServing(LatencyCurve((1,), (1.5,)), 1), ONE_SECOND]) == [[1.5], [2.5]]


def test_what_waits_is_served_in_batches_up_to_the_limit() -> None:
    assert answers([arrivals(0.0, 0.5, 0.5, 0.5)], [replace(FLAT, batch_limit=2)]) == [[1.0, 2.0, 2.0, 3.0]]


def test_drops_are_judged_on_the_batch_that_would_be_taken() -> None:
    # At 1.0 two wait with the deadline 2.75: both would take until 3.0, one until 2.0.
    assert answers([arrivals(0.0, 0.25, 0.25, slo_s=2.5)], [PAIR]) == [[1.0, None, 2.0]]


def test_a_tenant_is_judged_also_when_it_is_another_s_turn() -> None:
    # At 1.0 a's second goes first, due at 2.2. b's, due at 2.35, would take until 2.5 even now.
    requests = [arrivals(0.0, 0.5, slo_s=1.7), arrivals(0.25, slo_s=2.1)]
    servings = [ONE_SECOND, BatchServing(LatencyCurve((1,), (1.5,)), 1)]
    state, _ = turns.advance(requests, TurnsState.at_start(2), servings, [ALWAYS] * 2, 1.25)
    assert state.heads == (2, 1)


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
    state, piece = turns.advance(
        [arrivals(9.0)], replace(TurnsState.at_start(1), jobs=(job(ready_s=0.5),)), [ONE_SECOND], [ALWAYS], 20.0
    )
    assert (state.now_s, state.busy_until_s, piece.finished) == (0.5, 1.5, job(ready_s=0.5))


def test_a_job_that_was_worked_on_says_so() -> None:
    before = replace(TurnsState.at_start(1), jobs=(job(left_s=3.0), job()))
    state, _ = turns.advance([arrivals()], before, [ONE_SECOND], [ALWAYS], 1.0)
    assert state.jobs == (replace(job(left_s=2.0), has_begun=True), job())


def test_the_accuracy_is_that_of_the_begin_of_the_batch() -> None:
    accuracy = AccuracyTimeline((0.0, 1.0), (0.0, 1.0))
    (_, piece), *_ = pieces_of([arrivals(0.0, 0.5)], [ONE_SECOND], accuracy=accuracy)
    assert piece.outcomes[0].correct.tolist() == [False, True]


@pytest.mark.parametrize("left_s", [0.0, -1.0, INF, math.nan])
def test_a_job_needs_work(left_s: float) -> None:
    with pytest.raises(ValueError, match="left_s"):
        job(left_s=left_s)


def test_a_batch_limit_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="batch_limit 0"):
        replace(ONE_SECOND, batch_limit=0)


# --- cases to draw


@st.composite
def tenant_lists(draw: st.DrawFn) -> list[tuple[Requests, BatchServing]]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        times_s = sorted(draw(st.lists(quarters(0, 24), max_size=25)))
        seed, slo_s = draw(st.integers(0, 3)), draw(quarters(1, 10))
        requests = requests_of(f"t{number}", slo_s, np.array(times_s), seed=seed)
        worth = float(draw(st.integers(0, 2)))
        found.append((requests, BatchServing(draw(curves()), draw(st.integers(1, 6)), worth)))
    return found


def all_alike(tenants: list[tuple[Requests, BatchServing]]) -> list[tuple[Requests, BatchServing]]:
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


def assert_as_the_oracle(*arguments: Any, in_slack: bool = False, turn_cost: float = 0.0) -> int:
    """Compare after every piece, to the last bit; the fewest batches of a tenant are given."""
    slow = pieces_of(*arguments, advance=turns_oracle.advance, in_slack=in_slack, turn_cost=turn_cost)
    fast = pieces_of(*arguments, in_slack=in_slack, turn_cost=turn_cost)
    assert [(state, piece.finished) for state, piece in slow] == [(state, piece.finished) for state, piece in fast]
    assert [all_of([one]) for one in slow] == [all_of([one]) for one in fast]
    return min(fast[-1][0].n_batches)


@settings(derandomize=True, max_examples=200)
@given(tenant_lists(), jobs, edges, jitters, st.booleans(), costs)
def test_every_piece_is_what_the_oracle_gives(
    tenants: list[tuple[Requests, BatchServing]],
    jobs: list[TrainingJob],
    edges_s: list[float],
    jitter: ServiceJitter | None,
    in_slack: bool,
    turn_cost: float,
) -> None:
    requests, servings = zip(*tenants, strict=True)
    assert_as_the_oracle(requests, servings, jobs, edges_s, jitter, in_slack=in_slack, turn_cost=turn_cost)


@pytest.mark.parametrize("seed", range(10))
def test_random_cases_agree(seed: int) -> None:
    generator = np.random.default_rng(seed)
    requests, servings = [], []
    for number in range(generator.integers(1, 5)):
        worth = float(number % 3) * (seed % 3)
        times_s = np.sort(generator.uniform(0, 10, generator.integers(0, 500)))
        requests.append(requests_of(f"t{number}", generator.uniform(0.02, 0.4), times_s, seed))
        servings.append(BatchServing(random_curve(generator), int(generator.choice([1, 3, 8, 32])), worth))
    jobs = [
        job(*generator.uniform((0.1, 0.01, 0.0), (3.0, 0.1, 10.0)).tolist(), k, pace=0.25 * (seed % 4), due_s=9.0)
        for k in range(len(requests))
    ]
    edges_s, jitter = generator.uniform(0, 12, 6).tolist(), ServiceJitter(seed, 0.3) if seed % 2 else None
    assert_as_the_oracle(requests, servings, jobs, edges_s, jitter, turn_cost=0.05 * (seed % 5))


def test_a_piece_may_begin_more_batches_than_a_block_of_jitter_has() -> None:
    times_s = np.arange(0, 10, 0.01)
    requests = [requests_of(name, 0.5, times_s, 0) for name in "ab"]
    served = [BatchServing(LatencyCurve((1,), (0.003,)), 2)] * 2
    assert assert_as_the_oracle(requests, served, (), (), ServiceJitter(3, 0.5)) > 2 * JITTER_BLOCK


def test_turns_are_to_the_last_bit_what_they_were_before_pools() -> None:
    assert [turns_cases.figures(seed) for seed in turns_cases.SEEDS] == turns_cases.as_was()


# --- properties

CASES = settings(derandomize=True, max_examples=80)


@CASES
@given(tenant_lists(), jobs, edges, jitters, st.booleans(), costs)
def test_any_pieces_give_the_same(
    tenants: list[tuple[Requests, BatchServing]],
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
    tenants: list[tuple[Requests, BatchServing]], jitter: ServiceJitter | None
) -> None:
    requests, served = tenants[0]
    server = Server(requests.tenant, "gpu", 0.0, INF, served.latency, served.batch_limit)
    _, expected = one_tenant.advance(requests, QueueState(), [server], TIMELINE, INF, jitter)
    (_, piece), *_ = pieces_of([requests], [served], jitter=jitter)
    assert bits_of(piece.outcomes[0]) == bits_of(expected)


@CASES
@given(tenant_lists(), jobs, edges)
def test_the_gpu_does_one_thing_at_a_time(
    tenants: list[tuple[Requests, BatchServing]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*tenants, strict=True)
    pieces = pieces_of(requests, servings, jobs, edges_s)
    begin_s, end_s = (np.concatenate([getattr(p.batches, name) for _, p in pieces]) for name in ("begin_s", "end_s"))
    assert (begin_s[1:] >= end_s[:-1]).all()


@CASES
@given(tenant_lists(), jobs, edges)
def test_every_request_is_resolved_and_every_job_done(
    tenants: list[tuple[Requests, BatchServing]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*tenants, strict=True)
    pieces = pieces_of(requests, servings, jobs, edges_s)
    assert pieces[-1][0].heads == tuple(map(len, requests))
    assert sorted(index for index, _ in done(pieces)) == sorted(one.tenant_index for one in jobs)


@CASES
@given(tenant_lists(), jobs, quarters(1, 40))
def test_every_deadline_that_has_come_is_resolved(
    tenants: list[tuple[Requests, BatchServing]], jobs: list[TrainingJob], until_s: float
) -> None:
    requests, servings = zip(*tenants, strict=True)
    state = replace(TurnsState.at_start(len(requests)), jobs=tuple(jobs))
    while state.now_s < until_s:
        state, _ = turns.advance(requests, state, servings, [ALWAYS] * len(requests), until_s)
    assert all((one.deadline_s[head:] > until_s).all() for one, head in zip(requests, state.heads, strict=True))


@CASES
@given(tenant_lists(), jobs, edges)
def test_a_retraining_without_a_pace_never_goes_before_requests(
    tenants: list[tuple[Requests, BatchServing]], jobs: list[TrainingJob], edges_s: list[float]
) -> None:
    requests, servings = zip(*all_alike(tenants), strict=True)
    paceless = [replace(one, pace=0.0) for one in jobs]
    undated = [replace(one, due_s=INF, worth=0.0) for one in paceless]
    assert all_of(pieces_of(requests, servings, paceless, edges_s)) == all_of(pieces_of(requests, servings, undated))


@CASES
@given(tenant_lists(), jobs)
def test_without_jitter_nothing_is_late(tenants: list[tuple[Requests, BatchServing]], jobs: list[TrainingJob]) -> None:
    requests, servings = zip(*tenants, strict=True)
    outcomes: list[Outcomes] = [one for _, piece in pieces_of(requests, servings, jobs) for one in piece.outcomes]
    assert not any(one.late.any() for one in outcomes)


# --- values


def test_the_loop_is_compiled_once_whatever_it_is_given() -> None:
    for n_tenants in (1, 2):
        for n_jobs in (0, 1):
            requests, served = [arrivals(0.0)] * n_tenants, [FLAT] * n_tenants
            for jitter in (None, ServiceJitter(0, 0.1)):
                pieces_of(requests, served, [job()] * n_jobs, [1], jitter)
    assert len(cast("Any", turns.take_turns).signatures) == 1


@pytest.mark.parametrize("until_s", [0.5, math.nan])
def test_time_cannot_go_back(until_s: float) -> None:
    with pytest.raises(ValueError, match="cannot advance the GPU"):
        turns.advance([arrivals(0.0)], replace(TurnsState.at_start(1), now_s=1.0), [FLAT], [ALWAYS], until_s)
