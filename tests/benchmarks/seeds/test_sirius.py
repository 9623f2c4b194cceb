"""Sirius's Figure 10 in its paper's order, and Algorithm 1 on small cases."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.seeds import sirius
from benchmarks.seeds.sirius import (
    CAPACITY_MB,
    HANDOVER_S,
    MODELS,
    N_MODELS,
    OTHERWISE,
    STATES_MB,
    T_IDLE_S,
    WATERMARK_MB,
    Sirius,
    Static,
    TaskSwitching,
    Training,
    found_otherwise,
    loading_s,
    outcomes_of,
    simulate,
    trace,
)

RESNET, DENSENET = 0, 1
"""Models of 319 and 84 MB."""


def test_the_order_is_the_papers_but_for_the_pairs_that_are_named() -> None:
    assert found_otherwise(outcomes_of(3)) == {pair: workloads for pair, (workloads, _) in OTHERWISE.items()}


def test_the_same_seed_is_the_same_trace() -> None:
    assert trace("BURST", 4) == trace("BURST", 4) != trace("BURST", 5)
    first, second = (simulate(trace("LIGHT", 2), Sirius()) for _ in range(2))
    assert np.array_equal(first.latencies_s, second.latencies_s)


def test_a_model_that_is_not_there_takes_memory_from_the_training_and_its_batch() -> None:
    system = Sirius()
    system.rest(0.0, 0.1)
    assert system.opened_s(0.1, RESNET) == HANDOVER_S + loading_s(RESNET)
    assert system.ours_mb == MODELS[RESNET][0] + WATERMARK_MB
    assert system.training.memory_mb == CAPACITY_MB - system.ours_mb
    assert system.training.lost_s == pytest.approx(0.1)


def test_the_reserve_takes_models_without_a_handover() -> None:
    system = Sirius()
    system.opened_s(0.0, RESNET)
    assert [system.opened_s(0.0, model) for model in (DENSENET, DENSENET)] == [
        loading_s(DENSENET),
        MODELS[DENSENET][1],
    ]
    assert system.reserve_mb == WATERMARK_MB - MODELS[DENSENET][0]


def test_an_idle_model_stays_in_the_reserve_and_is_warm() -> None:
    system = Sirius()
    system.opened_s(0.0, RESNET)
    system.rest(0.0, T_IDLE_S + 1.0)
    assert [*system.reserved] == [RESNET]
    assert system.opened_s(T_IDLE_S + 1.0, RESNET) == MODELS[RESNET][1]


def test_at_twice_the_watermark_the_coldest_go_whole_and_the_watermark_stays() -> None:
    system = Sirius(watermark_mb=300.0)
    for model in (0, 6, 12):  # three of 319 MB
        system.opened_s(0.0, model)
    system.rest(0.0, T_IDLE_S + 1.0)
    assert system.reserve_mb == pytest.approx(300.0)
    assert len(system.reserved) == 0
    assert system.free_mb == pytest.approx(300.0)


def test_a_training_that_has_less_gives_what_it_has_and_then_models_are_swapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sirius, "CAPACITY_MB", STATES_MB + 700.0)
    system = Sirius()
    system.opened_s(0.0, RESNET)
    assert (system.ours_mb, system.training.largest) == (700.0, 0)
    assert [system.opened_s(0.0, model) for model in (6, 12)] == [loading_s(6), loading_s(12)]
    assert [*system.active] == [6, 12]


def test_memory_is_never_more_than_there_is() -> None:
    system, rng, now_s = Sirius(), np.random.default_rng(1), 0.0
    for _ in range(3000):
        system.rest(now_s, gap_s := float(rng.exponential(0.05)))
        now_s += gap_s
        now_s += system.serve(now_s, int(rng.integers(N_MODELS)))
        assert system.free_mb + 1e-6 >= 0
        assert system.ours_mb + system.training.memory_mb == pytest.approx(CAPACITY_MB)
        assert system.ours_mb <= CAPACITY_MB - STATES_MB + 1e-6
        assert not set(system.active) & set(system.reserved)


def test_a_discarded_batch_is_trained_again() -> None:
    training = Training(CAPACITY_MB)
    training.work(0.3)
    training.discard()
    training.work(0.318 + 0.1)
    assert (training.samples, training.lost_s) == (72, pytest.approx(0.3))


def test_under_task_switching_models_stay_only_while_somebody_waits() -> None:
    system = TaskSwitching()
    first, second = system.serve(0.0, DENSENET), system.serve(0.1, DENSENET)
    system.rest(0.2, 1.0)
    assert (first, second) == (HANDOVER_S + loading_s(DENSENET), MODELS[DENSENET][1])
    assert system.serve(1.2, DENSENET) == first


def test_a_static_part_loses_the_model_unused_for_longest() -> None:
    assert simulate(trace("LIGHT", 0), Static(1.0)).cold_pct < simulate(trace("LIGHT", 0), Static(0.3)).cold_pct
