"""The supervisor: what it tells the loop, and what it has processes do, whatever these do. No process is started."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from executor.catalogue import gpu_model
from executor.cuts import MpsCut
from executor.errors import InstanceNotFoundError
from executor.gpu import GpuInstance
from executor.messages import value_in
from executor.mps import MpsGpu
from executor.nvml import NvmlGpu
from executor.zygote import Exited, Forked, Reached
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Failed, Finished, Ready
from planner.problem import Owner, Task
from tests.standin.cards import A100_40
from tests.standin.fixtures import MakeStandIn
from tests.standin.mps import MpsStandIn
from workloads.learning import course
from workloads.live import worker
from workloads.live.messages import (
    Changed,
    Drain,
    Heartbeat,
    Hung,
    Lend,
    Lent,
    Load,
    Loaded,
    Return,
    Serve,
    Share,
    State,
    Worth,
)
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint

pytest.importorskip("zmq")

from migrator.execution.live.learning import Taught
from migrator.execution.live.workers import LiveWorkers
from migrator.log.weights import Served

GPU = gpu_model("cpu-1.6-in-7")
SHARED = GpuInstance(1, GPU.placement("1c@0"), "uuid")
JOINT = OperatingPoint("1c", 2, 1, 100.0, 0.015, LatencyCurve((1, 2), (0.01, 0.015)))
SERVING, TRAINING = Owner("a", Task.INFERENCE), Owner("a", Task.RETRAINING)


@dataclass
class Zygote:
    workers: dict[str, int | None] = field(default_factory=dict)
    started: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    environments: dict[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)

    def start(
        self, function: str, arguments: Mapping[str, Any], *, name: str, environment: Mapping[str, str], **_: object
    ) -> str:
        self.workers[name] = 100 + len(self.workers)
        self.environments[name] = environment
        self.started[name] = function, arguments
        return name

    def stop(self, name: str, limit_s: float) -> None:
        self.stopped.setdefault(name, limit_s)


@dataclass
class Place:
    """A site, as far as workers know it: what happens is put into ``coming``."""

    folder: Path
    zygote: Zygote = field(default_factory=Zygote)
    orders: list[Any] = field(default_factory=list)
    coming: list[Any] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def order(self, order: object) -> None:
        self.orders.append(order)

    def received(self, until_s: float) -> list[Any]:  # noqa: ARG002
        found, self.coming = self.coming, []
        return found


class Models:
    def __init__(self, folder: Path) -> None:
        self.now, self.gives = Served(folder / "first", "first", 0.4), 0.4
        self.folder = folder
        self.pin: str | None = None
        self.ends: list[tuple[str, Taught, str]] = []

    def served(self, _: str) -> Served:
        return self.now

    def accuracy(self, _: str) -> float:
        return self.gives

    def serve(self, _: str, served: Served) -> None:
        self.now = served

    def serves(self, _: str, accuracy: float, old: course.Started | None) -> bool:
        return old is None or accuracy >= old.accuracy

    def pinned(self, _: str) -> str | None:
        return self.pin

    def ended(self, *of: Any) -> None:
        self.ends.append(of)

    def model_options(self, _: str) -> Mapping[str, Any]:
        return {}

    def input_bytes(self, _: str) -> int:
        return 4

    def out(self, tenant: str, window: int, attempt: int) -> Path:
        return self.folder / f"{tenant}-{window}-{attempt}"

    def job(self, *of: Any) -> Any:
        self.jobs = [*getattr(self, "jobs", []), of]
        return {}


class Gpu:
    is_entered_warm = True

    def __init__(self) -> None:
        self.entered: list[tuple[str, int]] = []
        self.refuses = self.is_gone = False

    def environment(self, gi_uuid: str) -> Mapping[str, str]:
        if self.is_gone:
            raise InstanceNotFoundError("it is gone")
        return {"WHERE": gi_uuid}

    def enter(self, gi_uuid: str, pid: int) -> None:
        if self.refuses:
            raise InstanceNotFoundError("it is gone")
        self.entered.append((gi_uuid, pid))


class Stage:
    """Workers with everything around them played; an hour of the machine's clock is second 0."""

    def __init__(self, folder: Path, processes: int = 1, gpu: Any = None) -> None:
        self.site, self.gpu, self.models = Place(folder), gpu or Gpu(), Models(folder)
        self.clock = SimpleNamespace(now_s=70.0, origin_s=3600.0)
        point = SimpleNamespace(
            batch=4, processes=processes, latency=LatencyCurve((1, 4), (0.01, 0.02)), batch_latency_s=0.02
        )
        own = SimpleNamespace(operating_points={"1c": point}, weight=0.5, model="mlp")
        parts: tuple[Any, ...] = self.site, self.gpu, self.clock, self.models, {"a": own, "b": own}
        self.workers = LiveWorkers(*parts, 60.0, folder)

    def start(self, instance_id: str = "1c@0#1", owner: Owner = SERVING, training: Training = FULLY) -> list[str]:
        """The names of the processes that were started."""
        before = set(self.site.zygote.started)
        instance = GpuInstance(1, GPU.placement(instance_id.partition("#")[0]), f"uuid-{instance_id}")
        self.workers.start(instance_id, instance, owner, 1, training)
        return [name for name in self.site.zygote.started if name not in before]

    def start_member(self, tenant: str, instance: GpuInstance = SHARED) -> str:
        """The name of the process of a member of the pool of both tenants."""
        before = set(self.site.zygote.started)
        self.workers.start("1c@0#1", instance, Owner(tenant, Task.INFERENCE), 2, FULLY, JOINT)
        (name,) = set(self.site.zygote.started) - before
        return name

    def happens(self, *events: object) -> list[Any]:
        """What the loop is told after these events."""
        self.site.coming += events
        found: list[Any] = []
        while news := self.workers.happenings(-math.inf):
            found += news
        return found

    def becomes(self, name: str, state: State, reason: str = "", version: str = "first") -> list[Any]:
        at_s = self.clock.origin_s + self.clock.now_s
        return self.happens(Changed(name, "a", state, at_s, reason, 0.5, 1.0, 0.25, version))

    def serving(self, instance_id: str = "1c@0#1") -> str:
        (name,) = self.start(instance_id)
        self.becomes(name, State.WARM)
        self.becomes(name, State.SERVING)
        self.site.orders.clear()
        return name

    def training(self) -> str:
        (name,) = self.start("1c@3#9", TRAINING)
        assert self.happens(Reached(name, "warm", 3671.0)) == [Ready(71.0, "1c@3#9")]
        return name

    def tells(self, name: str, *told: course.Told) -> list[Any]:
        path = Path(self.site.zygote.started[name][1]["course"])
        with path.open("ab") as file:
            for one in told:
                file.write(course.line_of(one))
        return self.happens(*(Reached(name, one.kind, 3672.0) for one in told))

    def exited(self, name: str, **how: Any) -> Exited:
        usual = {"pid": 1, "code": 0, "signal": None, "error": "", "was_asked": False, "at_s": 3673.0}
        return Exited(worker=name, **{**usual, **how})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# --- in an instance of a pool


def test_each_member_of_a_pool_has_a_worker_in_its_lane_that_is_ready_fails_and_stops_by_itself(stage: Stage) -> None:
    a, b = stage.start_member("a"), stage.start_member("b")
    for name, tenant in ((a, "a"), (b, "b")):
        setup = value_in(stage.site.zygote.started[name][1]["setup"], worker.WorkerSetup)
        assert (setup.tenant, setup.lane, setup.is_shared, setup.batch_limit) == (tenant, SHARED.uuid, True, 2)
        assert name.startswith(f"1c@0#1/{tenant}/")
        stage.becomes(name, State.WARM)
    assert stage.becomes(b, State.SERVING) == [Ready(70.0, "1c@0#1", 0.5, 1.25, "b")]
    assert stage.becomes(a, State.SERVING) == [Ready(70.0, "1c@0#1", 0.5, 1.25, "a")]
    # A dead member is no other's failure, and starts again beside it.
    assert stage.happens(stage.exited(a)) == [Failed(70.0, "1c@0#1", stage.exited(a).reason, "a")]
    again = stage.start_member("a")
    assert (again != a, b in stage.site.zygote.stopped) == (True, False)
    stage.site.coming.append(stage.exited(b, code=1, error="it broke"))
    assert stage.workers.stop("1c@0#1", "a") is None
    failure = stage.workers.stop("1c@0#1", "b")
    assert failure is not None
    assert failure.tenant == "b"


def test_a_worker_that_comes_to_a_pool_is_told_and_no_other_process_takes_its_place(stage: Stage) -> None:
    name = stage.serving()
    stage.workers.serve_by("1c@0#1", "a", JOINT)
    share = Share(name, True, 2, (1, 2), (0.01, 0.015))
    assert [order for order in stage.site.orders if isinstance(order, Share)] == [share]
    stage.workers.serve_by("1c@0#1", "a", JOINT)
    assert stage.site.orders.count(share) == 1
    stage.workers.serve_by("1c@0#1", "a", None)
    assert stage.site.orders[-1] == Share(name, False, 4, (1, 4), (0.01, 0.02))
    assert (list(stage.site.zygote.started), stage.site.zygote.stopped) == ([name], {})


def test_who_starts_when_its_instance_comes_to_a_pool_is_told_once_it_is_warm(stage: Stage) -> None:
    (name,) = stage.start()
    stage.workers.serve_by("1c@0#1", "a", JOINT)
    assert not any(isinstance(order, Share) for order in stage.site.orders)
    stage.becomes(name, State.WARM)
    assert [order for order in stage.site.orders if isinstance(order, Share)] == [
        Share(name, True, 2, (1, 2), (0.01, 0.015))
    ]


def test_processes_that_a_pool_has_no_use_for_leave_which_is_no_failure(tmp_path: Path) -> None:
    stage = Stage(tmp_path, processes=2)
    first, second = stage.start()
    for name in (first, second):
        stage.becomes(name, State.WARM)
    assert stage.becomes(first, State.SERVING) == []
    assert [type(one) for one in stage.becomes(second, State.SERVING)] == [Ready]
    stage.workers.serve_by("1c@0#1", "a", JOINT)
    assert Drain(second) in stage.site.orders
    assert list(stage.site.zygote.stopped) == [second]
    assert stage.becomes(second, State.GONE) == stage.happens(stage.exited(second)) == []
    # Alone again it has two, and is ready as it was.
    stage.workers.serve_by("1c@0#1", "a", None)
    third = list(stage.site.zygote.started)[-1]
    assert third not in (first, second)
    stage.becomes(third, State.WARM)
    assert stage.becomes(third, State.SERVING) == []


def test_members_are_put_into_their_pool_s_instance_on_mig_and_on_mps(
    tmp_path: Path, make_standin: MakeStandIn, mps: MpsStandIn
) -> None:
    cut = MpsGpu(MpsCut("a100-80gb"), 0, mps.state)
    make_standin(A100_40)
    with NvmlGpu() as mig, cut:
        for gpu, placement in ((mig, "3g.20gb@4"), (cut, "2m@0")):
            folder = tmp_path / gpu.backend
            folder.mkdir()
            stage = Stage(folder, gpu=gpu)
            instance = gpu.create(gpu.model.placement(placement))
            told = [stage.site.zygote.environments[stage.start_member(tenant, instance)] for tenant in ("a", "b")]
            assert told == [gpu.environment(instance.uuid)] * 2
            if gpu is mig:
                assert told[0] == {"CUDA_VISIBLE_DEVICES": instance.uuid}
            else:
                limits = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
                assert [told[0][name] for name in limits] == ["28", "0=20480M"]
                assert told[0]["CUDA_VISIBLE_DEVICES"] == mps.gpu_uuid


def test_the_dispatcher_is_told_what_a_member_s_answers_are_worth_when_that_changes(stage: Stage) -> None:
    name = stage.start_member("a")
    stage.becomes(name, State.WARM)
    stage.becomes(name, State.SERVING)
    stage.models.gives = 0.1  # as is measured when a window has begun
    stage.happens()
    stage.tells(stage.training(), STARTED, DONE)
    stage.happens(Loaded(name, "window-1", 0.1))
    stage.models.gives = 0.9  # as the loop takes it from the retraining that has finished
    stage.happens()
    told = [order for order in stage.site.orders if isinstance(order, Worth)]
    assert told == [Worth("a", 0.2), Worth("a", 0.05), Worth("a", 0.45)]


# --- serving


def test_a_worker_enters_its_instance_warm_and_is_ready_when_it_serves(stage: Stage) -> None:
    (name,) = stage.start()
    assert stage.becomes(name, State.STARTING) == []
    assert stage.gpu.entered == []
    assert stage.becomes(name, State.WARM) == []
    assert (stage.gpu.entered, stage.site.orders) == ([("uuid-1c@0#1", 100)], [Serve(name)])
    assert stage.becomes(name, State.SERVING) == [Ready(70.0, "1c@0#1", 0.5, 1.25, "a")]


def test_where_the_environment_alone_does_not_do_it_a_worker_enters_as_it_starts(stage: Stage) -> None:
    stage.gpu.is_entered_warm = False
    (name,) = stage.start()
    stage.happens(Forked(name, 100, 3670.0, 3670.0))
    stage.becomes(name, State.WARM)
    assert stage.gpu.entered == [("uuid-1c@0#1", 100)]


def test_an_instance_is_ready_when_all_its_processes_serve(tmp_path: Path) -> None:
    stage = Stage(tmp_path, processes=2)
    one, other = stage.start()
    for name in (one, other):
        stage.becomes(name, State.WARM)
    assert stage.becomes(one, State.SERVING) == []
    assert [type(news) for news in stage.becomes(other, State.SERVING)] == [Ready]


def test_one_death_ends_all_processes_of_the_instance_and_is_told_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, processes=2)
    one, other = stage.start()
    news = stage.happens(stage.exited(one, code=None, signal=9)) + stage.becomes(one, State.GONE, "its process is gone")
    assert news == [Failed(70.0, "1c@0#1", "killed by signal 9, maybe for want of memory", "a")]
    assert stage.site.zygote.stopped[other] == 0.0
    assert stage.happens(stage.exited(other)) == []


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (lambda name: Hung(name, 2.5, 3), "hangs: a batch has taken 2.5 s"),
        (lambda name: Heartbeat(name, State.SERVING, 121.0, 1, 1, 0), "hangs: serving, and busy for 121 s"),
        (lambda name: Changed(name, "a", State.GONE, 3670.0, "not heard for 5.0 s"), "not heard for 5.0 s"),
    ],
)
def test_who_hangs_or_is_silent_has_failed_and_is_killed(stage: Stage, event: Any, said: str) -> None:
    name = stage.serving()
    assert stage.happens(event(name)) == [Failed(70.0, "1c@0#1", said, "a")]
    assert stage.site.zygote.stopped[name] == 0.0


def test_what_is_told_of_a_worker_that_is_gone_is_no_news(stage: Stage) -> None:
    name = stage.serving()
    late = Hung(name, 2.5, 3), Heartbeat(name, State.SERVING, 199.0, 1, 1, 0), Loaded(name, "window-1", 0.1)
    assert [type(news) for news in stage.happens(stage.exited(name, code=1), *late)] == [Failed]


def test_a_worker_that_is_long_at_work_does_not_hang(stage: Stage) -> None:
    name = stage.serving()
    assert stage.happens(Heartbeat(name, State.SERVING, 119.0, 1, 1, 0)) == []


def test_newer_weights_overtake_those_on_their_way(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    stage.tells(stage.training(), STARTED, DONE)
    stage.clock.now_s = 130.0
    newer = course.Finished(0.95, "/w/newer", 2.0)
    (name,) = stage.start("1c@4#10", TRAINING)
    stage.happens(Reached(name, "warm", 3731.0))
    assert [item.instance_id for item in stage.tells(name, STARTED, newer)] == ["1c@3#9"]
    loads = [order for order in stage.site.orders if isinstance(order, Load)]
    assert [(load.worker, load.version) for load in loads] == [(one, "window-1"), (one, "window-2")]
    stage.happens(Loaded(one, "window-1", 0.001), Loaded(one, "window-2", 0.001))
    (finished,) = stage.happens(Loaded(other, "window-2", 0.001))
    assert (finished.instance_id, stage.models.now.version) == ("1c@4#10", "window-2")


def test_who_cannot_enter_its_instance_has_failed(stage: Stage) -> None:
    (name,) = stage.start()
    stage.gpu.refuses = True
    assert stage.becomes(name, State.WARM) == [Failed(70.0, "1c@0#1", "cannot enter its instance: it is gone", "a")]


def test_where_nothing_can_get_into_an_instance_no_process_is_started_and_that_is_told_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, processes=2)
    stage.gpu.is_gone = True
    assert stage.start() == []
    assert stage.happens() == [Failed(70.0, "1c@0#1", "cannot enter its instance: it is gone", "a")]


def test_the_rest_of_an_instances_processes_is_not_started_where_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, processes=3)
    asked: list[str] = []

    def environment(gi_uuid: str) -> Mapping[str, str]:
        asked.append(gi_uuid)
        if len(asked) == 2:
            raise InstanceNotFoundError("it is gone")
        return {}

    monkeypatch.setattr(stage.gpu, "environment", environment)
    (first,) = stage.start()
    assert len(asked) == 2
    assert stage.site.zygote.stopped[first] == 0.0


def test_a_worker_that_drains_takes_no_batch_and_its_end_is_no_news(stage: Stage) -> None:
    name = stage.serving()
    assert stage.workers.drain("1c@0#1", "a") == pytest.approx(70.12)
    assert stage.site.orders == [Drain(name)]
    assert stage.becomes(name, State.GONE, "drained") + stage.happens(stage.exited(name)) == []
    assert stage.workers.stop("1c@0#1", "a") is None


def test_a_failure_that_was_not_heard_is_the_answer_to_a_stop(stage: Stage) -> None:
    name = stage.serving()
    stage.site.coming.append(stage.exited(name, code=1, error="it broke"))
    assert stage.workers.stop("1c@0#1", "a") == Failed(70.0, "1c@0#1", "it broke", "a")
    assert stage.happens() == []


def test_who_is_started_again_in_its_instance_has_another_name(stage: Stage) -> None:
    name = stage.serving()
    stage.happens(stage.exited(name, code=1))
    (again,) = stage.start()
    assert again != name
    assert stage.happens(stage.exited(name)) == []


# --- retraining


STARTED, DONE = course.Started(0.4, "first", 0.1), course.Finished(0.9, "/w/final", 2.0)
HALF, LATE = course.Checkpoint(0.5, 0.7, "/w/half", 1.0), course.Failed("deadline", "it was late", 1.5)
LEFT = "deadline: it was late; its checkpoint at 50%, which answers 70% right,"


def test_new_weights_go_to_one_worker_after_the_other_and_then_the_retraining_has_finished(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    trainer = stage.training()
    assert stage.tells(trainer, STARTED, DONE) == []
    assert stage.site.orders == [Load(one, "/w/final", "window-1")]
    assert stage.happens(Loaded(one, "window-1", 0.002)) == []
    assert stage.site.orders[1:] == [Load(other, "/w/final", "window-1")]
    (finished,) = stage.happens(Loaded(other, "window-1", 0.003))
    assert isinstance(finished, Finished)
    assert (finished.instance_id, finished.facts["swap_s"]) == ("1c@3#9", (0.002, 0.003))
    assert (finished.facts["version"], finished.facts["accuracy_before"]) == ("window-1", 0.4)
    assert stage.models.ends == [("a", Taught(1, "full", 0.9, pytest.approx(1.0)), "1c")]
    assert stage.workers.n_swaps == 2


def test_weights_that_are_worse_are_kept_aside_and_their_retraining_has_ended(stage: Stage) -> None:
    stage.serving()
    (finished,) = stage.tells(stage.training(), STARTED, course.Finished(0.3, "/w/final", 2.0))
    assert isinstance(finished, Finished)
    assert (finished.facts["rejected"], finished.facts["accuracy_before"]) == (0.3, 0.4)
    assert (stage.site.orders, stage.models.now.version) == ([], "first")
    assert stage.models.ends == [("a", Taught(1, "full", 0.3, pytest.approx(1.0)), "1c")]


def test_where_weights_are_pinned_better_ones_and_checkpoints_are_kept_aside(stage: Stage) -> None:
    stage.serving()
    trainer = stage.training()
    stage.models.pin = "first"  # meanwhile
    (finished,) = stage.tells(trainer, STARTED, DONE)
    assert isinstance(finished, Finished)
    assert (finished.facts["rejected"], finished.facts["pinned"]) == (0.9, "first")
    (failed,) = stage.tells(stage.training(), STARTED, HALF, LATE)
    assert failed.reason == "deadline: it was late"
    assert (stage.site.orders, stage.models.now.version) == ([], "first")


def test_a_retraining_goes_by_the_plans_option_and_is_told_with_it(stage: Stage) -> None:
    (trainer,) = stage.start("1c@3#9", TRAINING, Training("half"))
    ((*_, option),) = stage.models.jobs
    assert option == "half"
    stage.tells(trainer, STARTED, DONE)
    ((_, lesson, profile),) = stage.models.ends
    assert (lesson.option, lesson.accuracy, profile) == ("half", 0.9, "1c")


def test_a_retraining_may_have_an_instance_in_which_its_tenant_cannot_be_served(stage: Stage) -> None:
    (name,) = stage.start("2c@0#1", TRAINING)
    assert stage.happens(Reached(name, "warm", 3671.0)) == [Ready(71.0, "2c@0#1")]
    assert stage.workers.drain("2c@0#1", "a") == pytest.approx(70.1)


def test_a_worker_that_dies_while_it_loads_holds_up_nobody(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    stage.tells(stage.training(), STARTED, DONE)
    assert [type(news) for news in stage.happens(stage.exited(one, code=1))] == [Failed]
    assert stage.site.orders[1:] == [Load(other, "/w/final", "window-1")]
    assert [type(news) for news in stage.happens(Loaded(other, "window-1", 0.003))] == [Finished]


def test_who_was_starting_when_new_weights_came_takes_them_before_it_serves(stage: Stage) -> None:
    (name,) = stage.start()
    assert [type(news) for news in stage.tells(stage.training(), STARTED, DONE)] == [Finished]
    stage.becomes(name, State.WARM, version="first")
    assert stage.site.orders == [Load(name, "/w/final", "window-1"), Serve(name)]
    stage.happens(Loaded(name, "window-1", 0.002))
    assert stage.workers.n_swaps == 1


def test_weights_that_the_first_worker_cannot_load_are_given_up(stage: Stage) -> None:
    name = stage.serving()
    stage.tells(stage.training(), STARTED, DONE)
    (failed,) = stage.happens(Loaded(name, "first", 0.0, "its checksum is wrong"))
    assert failed == Failed(70.0, "1c@3#9", "its weights cannot be loaded: its checksum is wrong")
    assert stage.models.now.version == "first"


def test_weights_that_only_a_later_worker_cannot_load_are_kept(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    stage.tells(stage.training(), STARTED, DONE)
    stage.happens(Loaded(one, "window-1", 0.002))
    news = stage.happens(Loaded(other, "first", 0.0, "disk"))
    assert {type(item): item.instance_id for item in news} == {Failed: "1c@1#2", Finished: "1c@3#9"}
    assert stage.models.now.version == "window-1"


OLD, NEW = Served(Path("/w/old"), "window-0", 0.5), Served(Path("/w/new"), "window-1", 0.6)


def test_older_weights_go_to_one_worker_after_the_other_and_nothing_has_finished(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    stage.site.orders.clear()
    stage.models.now = OLD
    stage.workers.roll_back("a", OLD, NEW, lambda: pytest.fail("they can be loaded"))
    assert stage.site.orders == [Load(one, "/w/old", "window-0")]
    assert stage.workers.is_swapping("a")
    assert stage.happens(Loaded(one, "window-0", 0.002)) == []
    assert stage.site.orders[1:] == [Load(other, "/w/old", "window-0")]
    assert stage.happens(Loaded(other, "window-0", 0.002)) == []
    assert not stage.workers.is_swapping("a")


def test_older_weights_that_no_worker_can_load_are_given_up(stage: Stage) -> None:
    name, told = stage.serving(), list[str]()
    stage.workers.roll_back("a", OLD, NEW, lambda: told.append("failed"))
    assert stage.happens(Loaded(name, "first", 0.0, "its checksum is wrong")) == []
    assert told == ["failed"]
    assert not stage.workers.is_swapping("a")


def test_a_retraining_that_ends_overtakes_older_weights_on_their_way(stage: Stage) -> None:
    name = stage.serving()
    stage.workers.roll_back("a", OLD, NEW, lambda: pytest.fail("they were overtaken"))
    stage.tells(stage.training(), STARTED, DONE)
    stage.happens(Loaded(name, "window-0", 0.002))
    (news,) = stage.happens(Loaded(name, "window-1", 0.002))
    assert isinstance(news, Finished)
    assert stage.models.now.version == "window-1"


def test_a_retraining_that_runs_out_of_time_leaves_its_better_checkpoint(stage: Stage) -> None:
    name = stage.serving()
    assert stage.tells(stage.training(), STARTED, HALF, LATE) == []
    (load,) = stage.site.orders
    assert (load.worker, load.weights, load.version[:13]) == (name, "/w/half", "window-1@0.50")
    (failed,) = stage.happens(Loaded(name, load.version, 0.002))
    assert failed == Failed(70.0, "1c@3#9", f"{LEFT} is served")


def test_a_checkpoint_that_no_worker_can_load_is_not_said_to_be_served(stage: Stage) -> None:
    name = stage.serving()
    stage.tells(stage.training(), STARTED, HALF, LATE)
    (failed,) = stage.happens(Loaded(name, "first", 0.0, "disk"))
    assert failed == Failed(70.0, "1c@3#9", f"{LEFT} cannot be loaded: disk")
    assert stage.models.now.version == "first"


def test_a_checkpoint_that_nobody_takes_over_is_for_workers_to_come(stage: Stage) -> None:
    (failed,) = stage.tells(stage.training(), STARTED, HALF, LATE)
    assert failed.reason == f"{LEFT} is what workers begin with from now on"


def test_a_failure_whose_checkpoint_is_being_loaded_is_the_answer_to_a_stop(stage: Stage) -> None:
    name = stage.serving()
    stage.tells(stage.training(), STARTED, HALF, LATE)
    assert stage.workers.stop("1c@3#9", "a") == Failed(70.0, "1c@3#9", f"{LEFT} is being loaded")
    assert stage.happens(Loaded(name, stage.models.now.version, 0.002)) == []


def test_a_checkpoint_that_is_worse_than_the_old_weights_is_not_served(stage: Stage) -> None:
    stage.serving()
    checkpoint = course.Checkpoint(0.5, 0.3, "/w/half", 1.0)
    (failed,) = stage.tells(stage.training(), STARTED, checkpoint, LATE)
    assert (failed.reason, stage.site.orders, stage.models.now.version) == ("deadline: it was late", [], "first")


def test_a_trainer_that_is_killed_has_failed(stage: Stage) -> None:
    trainer = stage.training()
    (failed,) = stage.happens(stage.exited(trainer, code=None, signal=11))
    assert failed == Failed(70.0, "1c@3#9", "killed by signal 11")


def test_half_a_line_is_read_when_it_is_whole(stage: Stage) -> None:
    trainer = stage.training()
    path = Path(stage.site.zygote.started[trainer][1]["course"])
    line = course.line_of(DONE)
    path.write_bytes(line[:10])
    assert stage.happens(Reached(trainer, "finished", 3672.0)) == []
    path.write_bytes(line)
    assert [type(news) for news in stage.happens(Reached(trainer, "finished", 3672.0))] == [Finished]


def test_a_retraining_has_the_rest_of_its_window(stage: Stage) -> None:
    stage.training()
    (_, window, _, time_s, _) = stage.models.jobs[0]
    assert (window, time_s) == (1, pytest.approx(49.8))


def test_what_happened_first_is_told_first(stage: Stage) -> None:
    one, other = stage.serving("1c@0#1"), stage.serving("1c@1#2")
    early, late = stage.exited(one, code=1, at_s=3665.0), stage.exited(other, code=1, at_s=3669.0)
    assert [news.at_s for news in stage.happens(late, early)] == [65.0, 69.0]


# --- on a loan

LENT = Training("full", is_lent=True)


def lent(stage: Stage) -> tuple[str, str]:
    """A worker, and a trainer that is warm in its instance."""
    server = stage.serving()
    (name,) = stage.start("1c@0#9", TRAINING, LENT)
    assert stage.happens(Reached(name, "warm", 3671.0)) == []
    assert stage.site.orders == [Lend("uuid-1c@0#9", name)]
    stage.site.orders.clear()
    return server, name


def is_let_go(stage: Stage, name: str) -> bool:
    return Path(stage.site.zygote.started[name][1]["go"]).exists()


def test_a_trainer_on_a_loan_is_ready_when_its_instance_is_lent_and_gives_it_back_when_it_is_gone(
    stage: Stage,
) -> None:
    server, name = lent(stage)
    assert not is_let_go(stage, name)
    assert stage.happens(Lent(name, 3671.5)) == [Ready(71.5, "1c@0#9")]
    assert is_let_go(stage, name)
    assert stage.tells(name, STARTED, DONE) == []
    assert stage.site.orders == [Load(server, "/w/final", "window-1")]  # which waits for the lane
    assert stage.site.zygote.stopped[name] > 0  # it is to end now, as nothing is to come
    stage.happens(stage.exited(name))
    assert stage.site.orders[1:] == [Return(name)]
    (finished,) = stage.happens(Loaded(server, "window-1", 0.1))
    assert isinstance(finished, Finished)
    assert finished.facts["trained_s"] == 0.5  # not from when it was loaded
    assert stage.workers.stop("1c@0#9", "a") is None


def test_who_serves_and_trains_in_one_instance_are_told_apart(stage: Stage) -> None:
    server, name = lent(stage)
    stage.happens(Lent(name, 3671.5))
    assert stage.happens(stage.exited(server)) == [Failed(70.0, "1c@0#1", stage.exited(server).reason, "a")]
    assert name not in stage.site.zygote.stopped
    assert [type(one) for one in stage.tells(name, STARTED, LATE)] == [Failed]
    assert stage.workers.stop("1c@0#1", "a") is None


def test_a_trainer_that_dies_before_it_was_lent_anything_gives_back_what_it_has_asked_for(stage: Stage) -> None:
    _, name = lent(stage)
    assert [type(one) for one in stage.happens(stage.exited(name, code=None, signal=9))] == [Failed]
    assert stage.site.orders == [Return(name)]
    assert stage.happens(Lent(name, 3671.5)) == []
    assert not is_let_go(stage, name)


def test_a_trainer_that_is_stopped_is_not_let_go(stage: Stage) -> None:
    _, name = lent(stage)
    stage.workers.stop("1c@0#9", "a")
    assert stage.happens(Lent(name, 3671.5)) == []
    assert not is_let_go(stage, name)
    assert stage.site.orders == []  # it may compute, as far as is known
    stage.happens(stage.exited(name))
    assert stage.site.orders == [Return(name)]


def test_a_trainer_that_dies_cold_has_nothing_to_give_back(stage: Stage) -> None:
    (name,) = stage.start("1c@0#9", TRAINING, LENT)
    assert [type(one) for one in stage.happens(stage.exited(name, code=1, error="it broke"))] == [Failed]
    assert stage.site.orders == []


@pytest.mark.parametrize("training", [FULLY, LENT], ids=["own", "lent"])
def test_a_trainer_that_stands_still_is_killed_when_its_time_is_over(stage: Stage, training: Training) -> None:
    (name,) = stage.start("1c@0#9", TRAINING, training)
    stage.happens(Reached(name, "warm", 3671.0), Lent(name, 3671.5))
    stage.clock.now_s = 120.0
    assert stage.happens() == []  # it may be about to end by itself
    stage.clock.now_s = 126.0
    assert stage.happens() == [Failed(126.0, "1c@0#9", "hangs: its time is over")]
    assert stage.site.zygote.stopped[name] == 0.0
    assert stage.happens(stage.exited(name, code=None, signal=9)) == []
    assert [one for one in stage.site.orders if isinstance(one, Return)] == ([Return(name)] if training is LENT else [])


def test_a_trainer_that_has_learned_and_does_not_end_is_no_failure(stage: Stage) -> None:
    server, name = lent(stage)
    stage.happens(Lent(name, 3671.5))
    stage.tells(name, STARTED, DONE)
    stage.clock.now_s = 126.0
    assert stage.happens() == []
    stage.happens(stage.exited(name, code=None, signal=9))
    assert [type(one) for one in stage.happens(Loaded(server, "window-1", 0.1))] == [Finished]
