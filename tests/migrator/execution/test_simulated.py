"""Simulated workers: when they are ready and done, and who hears of it when."""

from __future__ import annotations

import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.errors import InUseError
from executor.gpu import GpuInstance
from executor.sim import SimGpu
from migrator.execution.happenings import Finished, Happening, Ready
from migrator.execution.simulated import SimWorkers
from planner.problem import Owner, Task
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant, WindowAccuracy, WorkerStart

GPU = gpu_model("a100-80gb")
SERVING, TRAINING = Owner("a", Task.INFERENCE), Owner("a", Task.RETRAINING)
POINT = OperatingPoint("1g.10gb", 4, 3, 100.0, 0.04, LatencyCurve((4,), (0.04,)))
WINDOW_S = 60.0


class Stage:
    """Workers on an empty GPU, with a clock at second 0; creating an instance takes a moment."""

    def __init__(self, jitter: float = 0.0, seed: int = 0) -> None:
        tenant = Tenant(
            name="a",
            model="m",
            slo_s=0.1,
            operating_points={"1g.10gb": POINT},
            retraining_time_s={"1g.10gb": 20.0},
            accuracy=(WindowAccuracy(0.5, 0.8),),
            min_profile="1g.10gb",
            worker_start=WorkerStart(2.0, 0.5, jitter, library_s=0.5),
        )
        self.clock = VirtualClock(0.0)
        self.gpu = SimGpu(GPU, self.clock)
        self.workers = SimWorkers(self.gpu, self.clock, {"a": tenant}, seed, WINDOW_S)

    def start(self, name: str, owner: Owner = SERVING, n_at_once: int = 1, where: str = "1g.10gb@0") -> float:
        """Start a worker in a new instance; the moment."""
        self.instance: GpuInstance = self.gpu.create(GPU.placement(where))
        self.workers.start(name, self.instance, owner, n_at_once)
        return self.clock.now_s

    def heard(self, until_s: float) -> list[Happening]:
        """All that happens until then."""
        found: list[Happening] = []
        while some := self.workers.happenings(until_s):
            found += some
        return found

    def ready_after_s(self, name: str, window: int = 0) -> float:
        """How long a worker takes that is started in the window, in an instance that goes away again."""
        self.clock.sleep_until(window * WINDOW_S)
        begin_s = self.start(name)
        (ready,) = self.workers.happenings(self.clock.now_s + 100)
        self.workers.stop(name, "a")
        self.gpu.destroy(self.instance.gi_id)
        return ready.at_s - begin_s


def test_a_worker_is_ready_after_its_start_up() -> None:
    stage = Stage()
    begin_s = stage.start("x")
    (ready,) = stage.heard(100.0)
    assert (ready.instance_id, ready.at_s) == ("x", pytest.approx(begin_s + 2.0))


def test_workers_that_start_together_take_longer() -> None:
    stage = Stage()
    begin_s = stage.start("x", n_at_once=2)
    assert [item.at_s for item in stage.heard(100.0)] == pytest.approx([begin_s + 2.0 * (1 + 0.5)])


def test_a_start_is_told_apart_into_libraries_and_model() -> None:
    stage = Stage()
    stage.start("x")
    (ready,) = stage.heard(100.0)
    assert isinstance(ready, Ready)
    assert (ready.library_s, ready.model_s) == pytest.approx((0.5, 1.5))


def test_a_retraining_finishes_its_training_time_after_its_start_up() -> None:
    stage = Stage()
    stage.start("x", TRAINING)
    ready, finished = stage.heard(100.0)
    assert isinstance(ready, Ready)
    assert isinstance(finished, Finished)
    assert finished.at_s == pytest.approx(ready.at_s + 20.0)


def test_nothing_is_heard_before_it_happens() -> None:
    stage = Stage()
    ready_s = stage.start("x", TRAINING) + 2.0
    assert stage.heard(ready_s - 0.01) == []
    assert stage.clock.now_s == ready_s - 0.01
    assert [type(item) for item in stage.heard(ready_s + 19.9)] == [Ready]


def test_the_clock_shows_the_moment_of_what_is_heard() -> None:
    stage = Stage()
    stage.start("x", TRAINING)
    for kind in (Ready, Finished):
        (happening,) = stage.workers.happenings(100.0)
        assert isinstance(happening, kind)
        assert stage.clock.now_s == happening.at_s


def test_what_happened_while_nobody_waited_comes_with_its_own_time() -> None:
    stage = Stage()
    ready_s = stage.start("x") + 2.0
    stage.clock.sleep_until(50.0)
    assert [item.at_s for item in stage.workers.happenings(51.0)] == pytest.approx([ready_s])
    assert stage.clock.now_s == 50.0


def test_of_a_worker_that_was_stopped_nothing_is_heard() -> None:
    stage = Stage()
    stage.start("x", TRAINING)
    stage.start("y", where="1g.10gb@1")
    stage.workers.stop("x", "a")
    assert [item.instance_id for item in stage.heard(100.0)] == ["y"]


def test_an_instance_stands_as_long_as_its_worker_runs() -> None:
    stage = Stage()
    stage.start("x")
    with pytest.raises(InUseError, match="a/inference"):
        stage.gpu.destroy(stage.instance.gi_id)
    stage.workers.stop("x", "a")
    stage.gpu.destroy(stage.instance.gi_id)
    assert stage.gpu.instances() == ()


def test_jitter_moves_readiness() -> None:
    assert Stage(jitter=0.5).ready_after_s("x") != Stage().ready_after_s("x")
    assert Stage(jitter=0.5).ready_after_s("x") != Stage(jitter=0.5, seed=1).ready_after_s("x")


def test_starts_in_a_window_are_drawn_alike_whatever_was_before() -> None:
    resumed, whole = Stage(jitter=0.5), Stage(jitter=0.5)
    before = [whole.ready_after_s(name) for name in ("x", "y")]
    after = [whole.ready_after_s(name, window=1) for name in ("x", "y")]
    assert len({*before, *after}) == 4
    assert [resumed.ready_after_s(name, window=1) for name in ("x", "y")] == pytest.approx(after)
