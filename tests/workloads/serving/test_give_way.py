"""Trainings that give way: by hand, against an oracle request by request, and against the pool without trainings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from give_way_oracle import gives_way
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_oracle import Problem, Process
from serving_cases import ALWAYS, INF, arrivals, bits_of, joined

from tests.seeds import daily, examples
from tests.workloads.serving.test_pool import lanes_in, random_problem
from workloads.profiles.latency import LatencyCurve
from workloads.serving import pool
from workloads.serving.pool import Beside, Lane, LaneMemory, PoolState, TrainingJob
from workloads.serving.requests import requests_of
from workloads.serving.servers import AccuracyTimeline, Server

UNITS = 4
HALVES = (0.0, 0.25, 0.5, 0.5, 1.0)
NEEDS_ALL = Beside(floors=((0, 4, 4),), speeds=(HALVES,))
MEMORY = LaneMemory(weights_mib=(4.0,), load_s=(0.5,), capacity_mib=10.0, idle_s=2.0, watermark_mib=1.0)


def lane(batch_s: float = 1.0) -> Lane:
    return Lane("gpu", (Server("t0", "gpu", 0.0, INF, LatencyCurve((1,), (batch_s,)), 1),))


def served(times_s: list[float], left_s: float, beside: Beside, **others: Any) -> tuple[list[float], list[float]]:
    """When requests are answered, and trainings done."""
    own = replace(arrivals(*times_s, slo_s=50.0), tenant="t0")
    state = replace(PoolState.at_start(1), jobs=(TrainingJob(0, 0, left_s, 1.0, 0.0),))
    answers, ends = [], []
    while state.now_s < INF:
        state, piece = pool.give_way([own], state, [lane()], [ALWAYS], INF, beside=beside, **others)
        answers += piece.outcomes[0].answer_s.tolist()
        ends += [piece.finished_s] if piece.finished is not None else []
    return answers, ends


def test_a_training_that_gives_way_at_once_and_loses_nothing_waits_for_requests_only() -> None:
    assert served([2.0, 3.0], 4.0, NEEDS_ALL) == ([3.0, 4.0], [6.0])


def test_a_batch_waits_until_the_training_has_left_and_one_that_follows_it_does_not() -> None:
    assert served([2.0, 3.0], 4.0, replace(NEEDS_ALL, give_way_s=0.5))[0] == [3.5, 4.5]


@pytest.mark.parametrize(("discard_s", "done_s"), [(0.5, 5.5), (9.0, 7.0)])
def test_what_is_lost_is_at_most_what_was_done_since_the_last_batch(discard_s: float, done_s: float) -> None:
    assert served([2.0], 4.0, replace(NEEDS_ALL, discard_s=discard_s))[1] == [done_s]


def test_a_training_goes_on_beside_a_batch_with_what_its_floor_leaves_and_may_end_there() -> None:
    half = replace(NEEDS_ALL, floors=((0, 2),))
    assert served([2.0], 4.0, half)[1] == [4.5]
    assert served([2.0], 2.25, half) == ([3.0], [2.5])


def test_the_largest_floor_holds_within_the_window() -> None:
    own = replace(arrivals(0.0, 0.0, 1.0, 5.0, slo_s=50.0), tenant="t0")
    pair = Lane("gpu", (Server("t0", "gpu", 0.0, INF, LatencyCurve((1,), (0.5,)), 2),))
    beside = Beside(floors=((0, 1, 3),), speeds=(HALVES,), window_s=1.0)
    _, piece = pool.give_way([own], PoolState.at_start(1), [pair], [ALWAYS], INF, beside=beside)
    assert piece.floors.tolist() == [3, 3, 1]


def test_batches_last_longer_while_a_training_is_to_be_done() -> None:
    assert served([2.0, 9.0], 3.0, replace(NEEDS_ALL, slowdowns=((1.0, 1.5),)))[0] == [3.5, 10.0]


def test_requests_leave_a_training_alone_as_long_as_all_can_wait() -> None:
    # The two are due at 4.0 and 5.0, and take a second each: until 2.0 both can wait, and from 3.0 to 4.0 the second.
    own = replace(arrivals(0.0, 1.0, slo_s=4.0), tenant="t0")
    state = replace(PoolState.at_start(1), jobs=(TrainingJob(0, 0, 9.0, 1.0, 0.0),))
    beside = replace(NEEDS_ALL, slack_s=0.5)
    _, piece = pool.give_way([own], state, [lane()], [ALWAYS], 8.0, beside=beside)
    assert piece.outcomes[0].answer_s.tolist() == [3.0, 5.0]


def test_a_model_comes_before_its_first_batch_and_stays_until_the_reserve_is_twice_the_watermark() -> None:
    # It begins at 2.0 and is idle from 4.0 on, when the 5 MiB of the reserve are more than twice the one.
    for again_s, load_s in ((3.9, 0.0), (4.0, 0.5)):
        found = served([2.0, again_s], 0.5, replace(NEEDS_ALL, memory=MEMORY))[0]
        assert found == [3.5, again_s + 1.0 + load_s]
        kept = replace(MEMORY, watermark_mib=5.0)
        assert served([2.0, again_s], 0.5, replace(NEEDS_ALL, memory=kept))[0] == [3.5, again_s + 1.0]


def test_memory_that_is_taken_from_a_training_costs_it_what_the_handover_does() -> None:
    beside = replace(NEEDS_ALL, give_way_s=0.25, memory=replace(MEMORY, discard_s=0.5))
    assert served([2.0], 4.0, beside) == ([3.75], [6.25])
    assert served([2.0], 1.0, beside) == ([3.5], [1.0])  # nothing trains by then


def two(times_s: tuple[list[float], list[float]], memory: LaneMemory) -> tuple[list[list[float]], float]:
    """When requests of two members are answered, of a second each, and what memory serving then has."""
    own = [replace(arrivals(*times, slo_s=50.0), tenant=f"t{member}") for member, times in enumerate(times_s)]
    curve = LatencyCurve((1,), (1.0,))
    gpu = Lane("gpu", tuple(Server(f"t{member}", f"gpu{member}", 0.0, INF, curve, 1) for member in range(2)))
    beside = Beside(floors=((0, 4),) * 2, speeds=(HALVES,) * 2, memory=memory)
    state, piece = pool.give_way(own, PoolState.at_start(2), [gpu], [ALWAYS] * 2, INF, beside=beside)
    return [one.answer_s.tolist() for one in piece.outcomes], state.trainings["gpu"].ours_mib


def test_where_no_memory_is_left_the_active_model_makes_room_and_else_the_reserved_one() -> None:
    small = LaneMemory((4.0, 4.0), (0.5, 0.25), capacity_mib=6.0, idle_s=2.0, watermark_mib=9.0)
    assert two(([0.0, 4.0], [2.0]), small) == ([[1.5, 5.5], [3.25]], 6.0)
    large = replace(small, capacity_mib=8.0)
    assert two(([0.0, 4.0], [2.0]), large) == ([[1.5, 5.0], [3.25]], 8.0)


def test_a_model_that_goes_leaves_what_it_held_up_to_the_watermark_in_reserve() -> None:
    # Serving takes 6 MiB for the first model, and gives back 4 as that goes: the second finds room in what is left.
    memory = LaneMemory((4.0, 1.0), (0.5, 0.25), capacity_mib=9.0, idle_s=2.0, watermark_mib=2.0)
    assert two(([0.0], [3.0]), memory) == ([[1.5], [4.25]], 2.0)


@pytest.mark.parametrize("name", ["idle_s", "watermark_mib", "discard_s"])
@pytest.mark.parametrize("value", [-0.1, INF, math.nan])
def test_what_memory_is_given_is_finite_and_not_below_0(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(MEMORY, **{name: value})


@pytest.mark.parametrize(("capacity_mib", "shown"), [(3.0, "3"), (math.nan, "nan")])
def test_memory_has_room_for_each_model(capacity_mib: float, shown: str) -> None:
    with pytest.raises(ValueError, match=f"a model of 4 MiB in {shown} MiB"):
        replace(MEMORY, capacity_mib=capacity_mib)


@pytest.mark.parametrize("name", ["give_way_s", "discard_s", "window_s", "slack_s"])
@pytest.mark.parametrize("value", [-0.1, INF, math.nan])
def test_times_are_finite_and_not_below_0(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(NEEDS_ALL, **{name: value})


def coarse_problem(seed: int) -> tuple[Problem, Beside, list[float]]:
    """Lanes, trainings and requests whose times are sixteenths, so that sums of them are exact."""
    rng = np.random.default_rng((66, seed))

    def sixteenths(low: int, high: int) -> float:
        return int(rng.integers(low, high)) / 16

    n_members, n_lanes = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    requests = [
        requests_of(f"t{member}", sixteenths(2, 24), np.sort(rng.integers(0, 96, int(rng.integers(0, 50)))) / 16, seed)
        for member in range(n_members)
    ]
    lanes = []
    for _ in range(n_lanes):
        members = []
        for _ in range(n_members):
            one_s = sixteenths(1, 6)
            curve = LatencyCurve((1, 2, 4), (one_s, one_s + sixteenths(0, 3), one_s + 4 / 16))
            end_s = float(rng.choice([INF, sixteenths(32, 96)]))
            members.append([Process(sixteenths(0, 16), end_s, curve, int(rng.choice([1, 2, 4])))])
        lanes.append(members)
    jobs = [
        TrainingJob(int(rng.integers(n_members)), number, sixteenths(2, 60), 1.0, sixteenths(0, 60), lane_id=str(rank))
        for number in range(int(rng.integers(1, 4)))
        for rank in [int(rng.integers(n_lanes))]
    ]
    beside = Beside(
        floors=tuple((0, *rng.integers(0, UNITS + 1, 4).tolist()) for _ in range(n_members)),
        speeds=tuple((0.0, *np.sort(rng.choice([0.0, 0.25, 0.5, 1.0], UNITS)).tolist()) for _ in range(n_members)),
        give_way_s=float(rng.choice([0.0, 1 / 16, 1 / 4])),
        discard_s=float(rng.choice([0.0, 1 / 16, 1.0])),
        window_s=float(rng.choice([0.0, 1 / 2, 2.0])),
        slowdowns=tuple((1.0, *rng.choice([1.0, 1.25, 1.5], 4).tolist()) for _ in range(n_members)),
        slack_s=float(rng.choice([0.0, 1 / 16, 1 / 4])),
    )
    accuracies = [AccuracyTimeline((0.0, 3.0), (0.4, 0.8))] * n_members
    problem = Problem(
        requests,
        lanes,
        accuracies,
        weights=[1.0, 2.0, 3.0][:n_members],
        jobs=jobs,
        turn_cost=float(rng.choice([0, 1 / 8])),
    )
    return problem, beside, (rng.integers(1, 120, int(rng.integers(0, 6))) / 16).tolist()


def with_memory(beside: Beside, seed: int) -> Beside:
    """The same where models of some sixteenths of a MiB share what may be too little for all of them."""
    rng = np.random.default_rng((67, seed))
    n_members = len(beside.speeds)
    weights = (rng.integers(1, 64, n_members) / 16).tolist()
    memory = LaneMemory(
        weights_mib=tuple(weights),
        load_s=tuple((rng.integers(0, 16, n_members) / 16).tolist()),
        capacity_mib=max(weights) + int(rng.integers(0, 128)) / 16,
        idle_s=float(rng.choice([1 / 16, 1 / 2, 2.0])),
        watermark_mib=int(rng.integers(0, 48)) / 16,
        discard_s=float(rng.choice([0.0, 1 / 16, 1.0])),
    )
    return replace(beside, memory=memory)


def differences(problem: Problem, beside: Beside, edges_s: list[float], seed: int) -> list[str]:
    """In what the loop, in pieces, is not as the oracle, at once."""
    course, held, lost_s = gives_way(problem, beside)
    rng = np.random.default_rng(seed)
    state = replace(PoolState.at_start(len(problem.requests)), jobs=tuple(problem.jobs))
    pieces = []
    for until_s in (*sorted(edges_s), INF):
        lanes = lanes_in(problem, state.now_s, until_s, rng)
        while state.now_s < until_s:
            state, piece = pool.give_way(
                problem.requests,
                state,
                lanes,
                problem.accuracies,
                until_s,
                beside=beside,
                weights=problem.weights,
                turn_cost=problem.turn_cost,
            )
            pieces.append((piece, sorted(int(one.lane_id) for one in lanes)))
    wrong = [
        f"outcomes of {member}"
        for member in range(len(problem.requests))
        if bits_of(joined([piece.outcomes[member] for piece, _ in pieces])) != bits_of(course.outcomes(member))
    ]
    batches = [
        (ranks[rank], begin_s, end_s, units)
        for piece, ranks in pieces
        for rank, begin_s, end_s, units in zip(
            *(getattr(piece.batches, name).tolist() for name in ("rank", "begin_s", "end_s")),
            piece.floors.tolist(),
            strict=True,
        )
    ]
    turns = zip(course.turns, held, strict=True)
    if batches != [(one.rank, one.begin_s, one.end_s, units) for one, units in turns]:
        wrong.append("batches")
    ended = [(one.finished.tenant_index, one.finished.window, one.finished_s) for one, _ in pieces if one.finished]
    if sorted(ended) != sorted(course.trained):
        wrong.append(f"trainings {ended} instead of {course.trained}")
    if sum(one.lost_s for one, _ in pieces) != lost_s:
        wrong.append("lost work")
    return wrong


@pytest.mark.parametrize("block", range(4))
def test_trainings_give_way_as_the_oracle_has_them_in_any_pieces(block: int) -> None:
    seeds = range(50 * block, 50 * (block + 1))
    found = {seed: differences(*coarse_problem(seed), seed) for seed in seeds}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("block", range(4))
def test_memory_changes_hands_as_the_oracle_has_it_in_any_pieces(block: int) -> None:
    found = {}
    for seed in range(50 * block, 50 * (block + 1)):
        problem, beside, edges_s = coarse_problem(seed)
        found[seed] = differences(problem, with_memory(beside, seed), edges_s, seed)
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@settings(derandomize=True, max_examples=examples(200))
@given(st.integers(0, 10**6))
def test_floors_are_kept_and_water_does_not_rise_within_the_window_of_a_batch(seed: int) -> None:
    problem, beside, _ = coarse_problem(seed)
    state = replace(PoolState.at_start(len(problem.requests)), jobs=tuple(problem.jobs))
    lanes, begun = lanes_in(problem, 0.0, INF, np.random.default_rng(seed)), []
    while state.now_s < INF:
        state, piece = pool.give_way(problem.requests, state, lanes, problem.accuracies, INF, beside=beside)
        ends = list(zip(piece.batches.tenant_index.tolist(), piece.batches.end_s.tolist(), strict=True))
        own = []
        for (member, end_s), units in zip(ends, piece.floors.tolist(), strict=True):
            n_taken = int((piece.outcomes[member].answer_s == end_s).sum())
            is_alone = ends.count((member, end_s)) == 1  # else it is unknown how many each of them took
            own.append(beside.floors[member][n_taken] if is_alone else 0)
            assert own[-1] <= units <= UNITS
        begun += zip(piece.batches.rank, piece.batches.begin_s, piece.batches.end_s, piece.floors, own, strict=True)
    for place, (rank, _, end_s, _, floor) in enumerate(begun):
        until_s = end_s + beside.window_s
        later = [held for other, at_s, _, held, _ in begun[place + 1 :] if other == rank and at_s < until_s]
        assert min(later, default=UNITS) >= floor


@pytest.mark.parametrize("block", daily(range(12), range(4)))
def test_without_trainings_it_is_the_pool_to_the_bit(block: int) -> None:
    for seed in range(30 * block, 30 * (block + 1)):
        problem, edges_s = random_problem(seed)
        n_members = len(problem.requests)
        beside = Beside(floors=((0,) * 9,) * n_members, speeds=((0.0, 1.0),) * n_members)
        state = other = PoolState.at_start(n_members)
        for until_s in (*sorted(edges_s), INF):
            lanes = lanes_in(problem, state.now_s, until_s, np.random.default_rng(seed))
            terms = (lanes, problem.accuracies, until_s, problem.jitter)
            common: dict[str, Any] = {"weights": problem.weights, "turn_cost": problem.turn_cost}
            state, piece = pool.advance(problem.requests, state, *terms, **common)
            other, same = pool.give_way(problem.requests, other, *terms, beside=beside, **common)
            assert replace(other, trainings={}) == replace(state, trainings={})
            assert [bits_of(one) for one in same.outcomes] == [bits_of(one) for one in piece.outcomes]
            assert same.batches.end_s.tobytes() == piece.batches.end_s.tobytes()
