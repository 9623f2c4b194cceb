"""Salus's lanes: Algorithm 1 as printed and mended, and what its Table 2 comes to in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.seeds.salus import (
    AS_PRINTED,
    CAPACITY_MIB,
    METRICS,
    POLICIES,
    Card,
    Job,
    Outcome,
    mended_lane,
    one_lane,
    outcomes_of,
    printed_lane,
    ratios,
    simulate,
    trace,
)

CAPACITY = 12
PLACES = [mended_lane, one_lane, POLICIES["SRTF"].place]


def job(number: int, persistent: int, ephemeral: int, seconds: float = 1.0) -> Job:
    return Job(number, 0.0, seconds, persistent, ephemeral)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[Outcome]]:
    return outcomes_of([trace(seed) for seed in range(10)], POLICIES)


def test_algorithm_1_as_printed_lets_in_more_weights_than_fit() -> None:
    gpu = Card(CAPACITY)
    for number in range(6):
        found = printed_lane(gpu, job(number, 1, 7), {})
        assert found is not None
        gpu = found
    assert (len(gpu.lanes), gpu.held_mib, gpu.held_mib <= gpu.capacity_mib) == (1, 13, False)


@given(
    st.sampled_from(PLACES),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12), st.booleans(), st.integers(0, 99)), max_size=40),
)
def test_algorithm_1_mended_is_always_safe_and_its_lanes_are_as_large_as_their_largest_job(
    place: object, events: list[tuple[int, int, bool, int]]
) -> None:
    assert callable(place)
    gpu = Card(CAPACITY)
    left = {number: float(which) for number, (*_, which) in enumerate(events)}
    for number, (persistent, ephemeral, ends, which) in enumerate(events):
        gpu = place(gpu, job(number, persistent, ephemeral), left) or gpu
        there = [one.number for lane in gpu.lanes for one in lane.jobs]
        if ends and there:
            gpu = gpu.without(there[which % len(there)], shrinks=True)
        assert gpu.held_mib <= gpu.capacity_mib
        assert all(lane.size_mib == max(one.ephemeral_mib for one in lane.jobs) for lane in gpu.lanes)


def test_a_lane_is_never_made_smaller_than_a_job_that_is_in_it() -> None:
    gpu = Card(CAPACITY).opened(job(0, 1, 7))
    found = mended_lane(gpu, job(1, 1, 5), {})
    assert found is not None
    assert [lane.size_mib for lane in found.lanes] == [7]


@pytest.mark.parametrize("name", POLICIES)
def test_jobs_of_1_and_7_in_12_do_not_deadlock(name: str) -> None:
    found = simulate([job(number, 1, 7) for number in range(9)], POLICIES[name], CAPACITY)
    assert found.times_s["end"].notna().all()
    assert found.peak_mib <= CAPACITY
    assert found.metrics_min[0] == pytest.approx(9 / 60)


def test_a_shorter_job_preempts_only_if_paused_weights_leave_it_room() -> None:
    jobs = [Job(0, 0.0, 9.0, 3, 7), Job(1, 1.0, 1.0, 3, 8), Job(2, 2.0, 1.0, 2, 7)]
    mended = simulate(jobs, POLICIES["SRTF"], CAPACITY)
    assert mended.times_s["end"].tolist() == [10.0, 11.0, 3.0]
    printed = simulate(jobs, AS_PRINTED["SRTF"], CAPACITY)
    assert printed.times_s["end"].tolist() == [11.0, 2.0, 3.0]
    assert (mended.peak_mib, printed.peak_mib) == (12, 14)


def test_a_job_that_cannot_run_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="job 0 needs 6 \\+ 7 of 12 MiB"):
        simulate([job(0, 6, 7)], POLICIES["PACK"], CAPACITY)


def test_no_scheduler_holds_more_than_the_gpu_has_but_algorithm_1_as_printed(
    outcomes: dict[str, list[Outcome]],
) -> None:
    assert all(one.peak_mib <= CAPACITY_MIB for own in outcomes.values() for one in own)
    assert simulate(trace(0), AS_PRINTED["PACK"]).peak_mib > CAPACITY_MIB


def test_srtf_is_2_5_times_better_than_fifo_on_the_mean(outcomes: dict[str, list[Outcome]]) -> None:
    assert ratios(outcomes, "mean JCT", "FIFO", "SRTF").min() >= 2.5


def test_makespans_of_fifo_srtf_and_fair_are_alike_and_packs_is_shortest(outcomes: dict[str, list[Outcome]]) -> None:
    for name in ("SRTF", "FAIR"):
        assert ratios(outcomes, "makespan", name, "FIFO") == pytest.approx(1.0, abs=0.02)
    assert all((ratios(outcomes, "makespan", name, "PACK") > 1).all() for name in ("FIFO", "SRTF", "FAIR"))


def test_the_papers_order_of_mean_completion_times_comes_out_but_for_pack(outcomes: dict[str, list[Outcome]]) -> None:
    means = {name: sum(one.metrics_min[METRICS.index("mean JCT")] for one in own) for name, own in outcomes.items()}
    assert all(means[one] < means[other] for one, other in pairwise(("SRTF", "FAIR", "FIFO")))
    assert means["PACK"] < means["FAIR"]  # the paper's is 145.5 minutes, and FAIR's 96.6
