from __future__ import annotations

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.mig import OwnedLayout
from executor.sim import SimGpu
from migrator.run.changes import Change
from migrator.run.instances import Applier
from migrator.run.simulated import SimWorkers
from planner.problem import Owner, Task
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant, WindowAccuracy, WorkerStart

GPU = gpu_model("a100-80gb")
A, B = Owner("a", Task.INFERENCE), Owner("b", Task.INFERENCE)
TRAINING = Owner("a", Task.RETRAINING)


def tenant(name: str, jitter: float = 0.0) -> Tenant:
    point = OperatingPoint("2g.20gb", 4, 3, 100.0, 0.04, LatencyCurve((4,), (0.04,)))
    points = dict.fromkeys(("1g.10gb", "2g.20gb", "3g.40gb"), point)
    return Tenant(
        name=name,
        model="m",
        slo_s=0.1,
        operating_points=points,
        retraining_time_s={"1g.10gb": 20.0},
        accuracy=(WindowAccuracy(0.5, 0.8),),
        min_profile="1g.10gb",
        worker_start=WorkerStart(2.0, 0.5, jitter, library_s=0.5),
    )


def applier(jitter: float = 0.0) -> tuple[Applier, SimGpu, VirtualClock]:
    clock = VirtualClock(0.0)
    gpu = SimGpu(GPU, clock)
    tenants = {name: tenant(name, jitter) for name in ("a", "b")}
    return Applier(gpu, clock, SimWorkers(gpu, tenants, np.random.default_rng(0)), tenants), gpu, clock


def change(planned_s: float, held: dict[str, Owner], promised_s: float = 1e9) -> Change:
    entries = [(GPU.placement(text), owner) for text, owner in held.items()]
    return Change(planned_s, OwnedLayout.of(entries), tuple((p, promised_s) for p, _ in entries))


def test_readiness_follows_from_driver_calls_and_start_up() -> None:
    made, _, _ = applier()
    outcome = made.apply(change(10.0, {"2g.20gb@0": A, "2g.20gb@2": B}), {})
    # Two creations of 0.17 s, one after the other; then 2 s × (1 + 0.5) because two start at once.
    assert [item.ready_s for item in outcome.started] == pytest.approx([10.17 + 3.0, 10.34 + 3.0])


def test_a_start_is_told_apart_into_libraries_and_model() -> None:
    made, _, _ = applier()
    (item,) = made.apply(change(0.0, {"2g.20gb@0": A}), {}).started
    assert (item.library_s, item.model_s) == pytest.approx((0.5, 1.5))


def test_every_process_becomes_a_server() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A}), {})
    assert len(made.servers("a")) == 3
    assert made.servers("b") == ()


def test_a_kept_instance_is_not_touched() -> None:
    made, gpu, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A}), {})
    (before,) = gpu.instances()
    servers = made.servers("a")
    made.apply(change(20.0, {"2g.20gb@0": A, "1g.10gb@4": B}), {})
    assert gpu.instances()[0] == before
    assert made.servers("a") == servers


def test_a_dropped_instance_finishes_its_batch_before_it_is_destroyed() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A, "1g.10gb@4": B}), {})
    busy = {made.servers("a")[1].server_id: 20.4}
    (stopped,) = made.apply(change(20.0, {"1g.10gb@4": B}), busy).stopped
    assert (stopped.end_s, stopped.drained_s, stopped.gone_s) == pytest.approx((20.0, 20.4, 20.6))


def test_servers_of_a_dropped_instance_end_when_it_is_dropped() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A}), {})
    made.apply(change(20.0, {}), {})
    assert {server.end_s for server in made.servers("a")} == {20.0}
    assert made.servers("a", since_s=20.0) == ()


def test_an_instance_handed_over_stays_and_starts_another_worker() -> None:
    made, gpu, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A}), {})
    (before,) = gpu.instances()
    outcome = made.apply(change(20.0, {"2g.20gb@0": B}), {})
    assert gpu.instances() == (before,)
    assert outcome.calls == ()
    assert [str(item.owner) for item in outcome.started] == ["b/inference"]
    assert outcome.started[0].ready_s == 22.0


def test_a_retraining_finishes_its_training_time_after_its_start_up() -> None:
    made, _, _ = applier()
    (started,) = made.apply(change(0.0, {"1g.10gb@4": TRAINING}), {}).started
    assert started.finish_s == pytest.approx(started.ready_s + 20.0)
    assert made.servers("a") == ()


def test_a_retraining_is_never_killed() -> None:
    made, gpu, clock = applier()
    (started,) = made.apply(change(0.0, {"1g.10gb@4": TRAINING}), {}).started
    made.apply(change(5.0, {}), {})
    assert gpu.instances() == ()
    assert clock.now_s >= started.finish_s


def test_a_retraining_may_follow_the_last_one_on_its_placement() -> None:
    made, gpu, _ = applier()
    (first,) = made.apply(change(0.0, {"1g.10gb@4": TRAINING}), {}).started
    (instance,) = gpu.instances()
    outcome = made.apply(change(60.0, {"1g.10gb@4": TRAINING}), {})
    assert [item.finish_s for item in outcome.started] == [82.0]
    assert [item.instance_id for item in outcome.stopped] == [first.instance_id]
    assert gpu.instances() == (instance,)


def test_a_retraining_that_goes_on_is_kept() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"1g.10gb@4": TRAINING}), {})
    going_on = Change(5.0, made.layout, ())
    assert made.apply(going_on, {}).is_empty


def test_lateness_is_measured_against_the_promise() -> None:
    made, _, _ = applier()
    (started,) = made.apply(change(0.0, {"2g.20gb@0": A}, promised_s=1.0), {}).started
    assert started.late_s == pytest.approx(started.ready_s - 1.0)


def test_jitter_moves_readiness() -> None:
    (plain,) = applier()[0].apply(change(0.0, {"2g.20gb@0": A}), {}).started
    (moved,) = applier(jitter=0.5)[0].apply(change(0.0, {"2g.20gb@0": A}), {}).started
    assert moved.ready_s != plain.ready_s


def test_a_change_that_comes_while_the_driver_is_busy_waits_for_it() -> None:
    made, _, clock = applier()
    made.apply(change(0.0, {"2g.20gb@0": A, "2g.20gb@2": A, "2g.20gb@4": A}), {})
    busy_until_s = clock.now_s
    later = change(0.1, {"2g.20gb@0": A, "2g.20gb@2": A, "2g.20gb@4": A, "1g.10gb@6": B})
    assert made.begin_s(later) == busy_until_s
    assert made.apply(later, {}).begin_s == busy_until_s


def test_nothing_to_do_is_an_empty_outcome() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"2g.20gb@0": A}), {})
    assert made.apply(change(9.0, {"2g.20gb@0": A}), {}).is_empty


def test_a_change_that_ends_a_retraining_waits_until_it_is_done() -> None:
    made, _, _ = applier()
    started = made.apply(change(0.0, {"1g.10gb@4": TRAINING, "2g.20gb@0": A}), {}).started
    finish_s = next(item.finish_s for item in started if item.finish_s is not None)
    outcome = made.apply(change(5.0, {"2g.20gb@4": A}), {})
    assert {item.end_s for item in outcome.stopped} == {outcome.begin_s} == {finish_s}


def test_a_change_beside_a_retraining_does_not_wait_for_it() -> None:
    made, _, _ = applier()
    made.apply(change(0.0, {"1g.10gb@4": TRAINING}), {})
    beside = Change(
        5.0, change(0.0, {"1g.10gb@4": TRAINING, "2g.20gb@0": A}).layout, ((GPU.placement("2g.20gb@0"), 9.0),)
    )
    assert made.begin_s(beside) == 5.0


def test_a_change_may_be_held_back() -> None:
    made, _, _ = applier()
    assert made.apply(change(5.0, {"2g.20gb@0": A}), {}, not_before_s=7.0).begin_s == 7.0


def test_what_serves_is_told_with_its_readiness() -> None:
    made, _, _ = applier()
    started = made.apply(change(0.0, {"1g.10gb@4": TRAINING, "2g.20gb@0": A}), {}).started
    ready_s = {item.placement: item.ready_s for item in started}[GPU.placement("2g.20gb@0")]
    assert made.serving_from_s == ((GPU.placement("2g.20gb@0"), "a", ready_s),)
