"""The seams: a run that cannot know what comes, workers that fail, and one loop for every policy.

Two runs whose traffic, starts and ends of training differ only after a moment must write the same log up to it. The
workers here draw what happens only as their clock passes it, so there is nothing for the loop to look up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from executor.clock import Clock, VirtualClock
from executor.errors import InsufficientResourcesError
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.sim import SimGpu
from migrator.comparison.matches import Fairness, matches_of, score_of
from migrator.config.reading import config_yaml
from migrator.config.sections import Config
from migrator.execution.applier import MAX_STARTS, Backend
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Failed, Finished, Happening, Ready
from migrator.execution.loop import Loop, View
from migrator.execution.posing import tenants_that_run
from migrator.execution.simulated import SimWorkers, simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Hindsight, RecordedTraffic
from migrator.log import records as recorded
from migrator.log.account import accounts
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, read_log
from planner.policies.policy import AnyPolicy
from planner.policies.registry import POLICIES, policy_of
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.asking import ask, once_after
from tests.seeds import daily
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.tally import Totals
from workloads.traffic.scaling import Arrivals

TINY = changed(
    SMALL,
    {
        "window_s": 30,
        "tenants.0.retraining.samples": 300,
        "planner.max_schedules": 4,
        "tenants.0.arrivals.rate_rps": 250,
    },
)
W8 = Path(__file__).parents[3] / "configs" / "w8.yaml"
TICK_S = 0.5


def setting_of(data: dict[str, Any]) -> tuple[Setting, RecordedTraffic]:
    return assemble(Config.model_validate(data), "test")


def logged(
    folder: Path,
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy | None = None,
    *,
    backend: Callable[[float], Backend] | None = None,
    view: View | None = None,
) -> ReadLog:
    """The log of a simulated run, in the folder."""
    run = Loop(setting, simulated_parts(setting, traffic, policy, backend=backend), view)
    with RunLog(folder, config_yaml(setting.config)) as log:
        run.carry_out(log)
    return read_log(folder)


class DrawingWorkers:
    """Workers of whom nobody knows when they will be ready, done or dead: each tick of the clock draws it.

    Ticks after ``differs_after_s`` are drawn from other numbers.
    """

    def __init__(self, gpu: SimGpu, clock: Clock, differs_after_s: float, variant: int) -> None:
        self._gpu, self._clock = gpu, clock
        self._differs_after_s, self._variant = differs_after_s, variant
        self._clients: dict[str, tuple[int, Owner, bool]] = {}
        self._tick = round(clock.now_s / TICK_S)

    def start(
        self, instance_id: str, instance: GpuInstance, owner: Owner, n_at_once: int, training: Training, joint: object
    ) -> None:
        del n_at_once, training, joint
        self._gpu.attach(instance.gi_id, str(owner))
        self._clients[instance_id] = (instance.gi_id, owner, False)

    def serve_by(self, instance_id: str, tenant: str, joint: OperatingPoint | None) -> None:
        pass

    def hold(self, instance_id: str, for_s: float) -> None:
        raise AssertionError(f"{instance_id} is lent for {for_s} s")

    def drain(self, instance_id: str, tenant: str) -> float:  # noqa: ARG002
        return -math.inf

    def stop(self, instance_id: str, tenant: str) -> Failed | None:  # noqa: ARG002
        gi_id, owner, _ = self._clients.pop(instance_id)
        self._gpu.detach(gi_id, str(owner))
        return None

    def happenings(self, until_s: float) -> Sequence[Happening]:
        while (self._tick + 1) * TICK_S <= until_s:
            self._tick += 1
            now_s = self._tick * TICK_S
            self._clock.sleep_until(now_s)
            found = [item for name in list(self._clients) for item in self._drawn(name, now_s)]
            if found:
                return found
        self._clock.sleep_until(until_s)
        return ()

    def _drawn(self, name: str, now_s: float) -> list[Happening]:
        gi_id, owner, is_ready = self._clients[name]
        variant = self._variant if now_s > self._differs_after_s else 0
        u = np.random.default_rng([variant, self._tick + 1000, *name.encode()]).random()
        if not is_ready and u < 0.25:
            self._clients[name] = (gi_id, owner, True)
            return [Ready(now_s, name)]
        if is_ready and owner.task is Task.RETRAINING and u < 0.2:
            return [Finished(now_s, name)]
        if is_ready and owner.task is Task.INFERENCE and u < 0.02:
            self.stop(name, owner.tenant)
            return [Failed(now_s, name, "drawn")]
        return []


def drawing(setting: Setting, differs_after_s: float, variant: int) -> Callable[[float], Backend]:
    def opened(start_s: float) -> Backend:
        clock = VirtualClock(start_s)
        gpu = SimGpu(setting.gpu, clock, seed=1)
        return Backend(gpu, clock, DrawingWorkers(gpu, clock, differs_after_s, variant))

    return opened


def times_between(times_s: np.ndarray, first_s: int, end_s: int) -> np.ndarray:
    return times_s[(times_s >= first_s) & (times_s < end_s)]


def changed_after(setting: Setting, traffic: RecordedTraffic, moment_s: float, variant: int) -> RecordedTraffic:
    """The traffic with other requests after the moment; its origins, scale factors among them, are the same."""
    rng = np.random.default_rng(variant)
    arrivals = []
    for own, origin in zip(traffic.hindsight.arrivals, traffic.origins, strict=True):
        times_s = own.times_s
        end_s = setting.config.windows * setting.config.window_s
        later = moment_s + (end_s - moment_s) * rng.random(rng.poisson(times_s.size * (1 - moment_s / end_s)))
        both = np.sort(np.concatenate([times_s[times_s <= moment_s], later]))
        n_seconds = round(end_s)
        by_second = np.bincount(np.floor(both).astype(np.int64), minlength=n_seconds)[:n_seconds]
        between = partial(times_between, both)
        past, dispersion = own.history_counts, origin.dispersion_before
        arrivals.append(Arrivals("", origin.source, origin.scale, between, by_second, past, dispersion, 0.0))
    other = RecordedTraffic(setting.tenants, arrivals, [0.0] * len(arrivals), setting.config.seed)
    other.origins = traffic.origins
    return other


def until(log: Path, moment_s: float) -> list[str]:
    lines = (log / EVENTS_FILE).read_text("utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [
        json.dumps({key: value for key, value in event.items() if key != "wall"})
        for event in events
        if event["at_s"] <= moment_s
    ]


@cache
def tiny() -> tuple[Setting, RecordedTraffic]:
    return setting_of(TINY)


@pytest.fixture(scope="module")
def as_drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    setting, traffic = tiny()
    folder = tmp_path_factory.mktemp("drawn") / "run"
    logged(folder, setting, traffic, backend=drawing(setting, 0.0, 0))
    return folder


MOMENTS = np.round(np.random.default_rng(7).uniform(-2.0, 60.0, 50), 3).tolist()


@pytest.mark.parametrize("moment_s", daily(MOMENTS, MOMENTS[:6]))
def test_a_run_does_not_know_what_comes(as_drawn: Path, tmp_path: Path, moment_s: float) -> None:
    setting, traffic = tiny()
    other = changed_after(setting, traffic, max(0.0, moment_s), variant=1)
    logged(tmp_path / "run", setting, other, backend=drawing(setting, moment_s, 1))
    assert until(tmp_path / "run", moment_s) == until(as_drawn, moment_s)
    assert until(tmp_path / "run", 1e9) != until(as_drawn, 1e9)


def test_what_is_drawn_holds_all_that_may_happen(as_drawn: Path) -> None:
    kinds = {entry.record.kind for entry in read_log(as_drawn).entries}
    assert {"ready", "finished", "failed", "change", "intent", "outcome", "window_finished"} <= kinds


@pytest.mark.parametrize("policy", ["ekya", "astraea", "whole", "equal", "window"])
# Whole seconds: interference is that of the second's own load.
@pytest.mark.parametrize("moment_s", daily([7, 30, 41], [30]))
def test_no_other_policy_knows_what_comes(policy: str, moment_s: int, tmp_path: Path) -> None:
    setting, traffic = tiny()
    logged(tmp_path / "one", setting, traffic, policy_of(policy))
    other = changed_after(setting, traffic, moment_s, variant=2)
    logged(tmp_path / "two", setting, other, policy_of(policy))
    assert until(tmp_path / "one", moment_s) == until(tmp_path / "two", moment_s)


class FaultyWorkers(SimWorkers):
    """Simulated workers, of which the chosen starts go wrong: ``fault`` turns a start's happenings into others."""

    def __init__(self, *parts: Any, fault: Callable[[Owner, int, list[Happening]], list[Happening]]) -> None:
        super().__init__(*parts)
        self._fault, self._n = fault, 0

    def start(
        self,
        instance_id: str,
        instance: GpuInstance,
        owner: Owner,
        n_at_once: int,
        training: Training = FULLY,
        joint: OperatingPoint | None = None,
    ) -> None:
        others, self._to_come = self._to_come, []
        super().start(instance_id, instance, owner, n_at_once, training, joint)
        own, self._to_come = [item[2] for item in sorted(self._to_come)], sorted(others)
        self._n += 1
        for happening in self._fault(owner, self._n, own):
            is_named = isinstance(happening, Ready | Failed)
            self._expect(replace(happening, tenant=owner.tenant) if is_named else happening)

    def happenings(self, until_s: float) -> Sequence[Happening]:
        found = super().happenings(until_s)
        for happening in found:
            if isinstance(happening, Failed):
                self.stop(happening.instance_id, happening.tenant or "")
        return found

    def stop(self, instance_id: str, tenant: str) -> Failed | None:
        """Who has died is out of its instance by now."""
        return super().stop(instance_id, tenant) if (instance_id, tenant) in self._clients else None


def faulty(
    setting: Setting, fault: Callable[[Owner, int, list[Happening]], list[Happening]]
) -> Callable[[float], Backend]:
    def opened(start_s: float) -> Backend:
        clock = VirtualClock(start_s)
        gpu = SimGpu(setting.gpu, clock, seed=1)
        workers = FaultyWorkers(gpu, clock, tenants_that_run(setting), 0, setting.config.window_s, fault=fault)
        return Backend(gpu, clock, workers)

    return opened


def is_late(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del owner, number
    return [Ready(item.at_s + 25.0, item.instance_id) if isinstance(item, Ready) else item for item in own[:1]]


def never_comes_up(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del number
    return own if owner.tenant == "language" else []


def dies_while_serving(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    if owner.task is Task.RETRAINING or number > 6:
        return own
    return [*own, Failed(max(own[-1].at_s, 0.0) + 4.321, own[-1].instance_id, "killed")]


def dies_at_every_start(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del number
    return own if owner.tenant == "language" else [Failed(own[0].at_s, own[0].instance_id, "out of memory")]


def dies_while_retraining(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del number
    if owner.task is Task.INFERENCE:
        return own
    return [own[0], Failed((own[0].at_s + own[1].at_s) / 2, own[0].instance_id, "killed")]


FAULTS = (is_late, never_comes_up, dies_while_serving, dies_at_every_start, dies_while_retraining)


@cache
def with_fault(folder: Path, fault: Callable[..., list[Happening]]) -> ReadLog:
    setting, traffic = tiny()
    return logged(folder, setting, traffic, backend=faulty(setting, fault))


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReadLog]:
    folder = tmp_path_factory.mktemp("faults")
    return {fault.__name__: with_fault(folder / fault.__name__, fault) for fault in FAULTS}


@pytest.mark.parametrize("fault", [fault.__name__ for fault in FAULTS])
def test_every_request_is_accounted_for_whatever_fails(with_faults: dict[str, ReadLog], fault: str) -> None:
    log, (_, traffic) = with_faults[fault], tiny()
    report = report_of(log)
    assert report.total is not None
    requests = report.total.requests
    assert requests.arrivals == sum(int(own.counts.sum()) for own in traffic.hindsight.arrivals)
    assert requests.arrivals == requests.in_time + requests.late + requests.dropped
    assert report.ending == "finished"
    for account in accounts(log).values():
        assert account.total.arrivals == pytest.approx(account.arrivals.sum())


def test_a_late_worker_is_told_with_its_delay(with_faults: dict[str, ReadLog]) -> None:
    late = [event.late_ready_s for event in with_faults["is_late"].of(recorded.Ready)]
    assert max(late) > 5


def test_who_never_comes_up_serves_nobody(with_faults: dict[str, ReadLog]) -> None:
    log = with_faults["never_comes_up"]
    assert {event.tenant for event in log.of(recorded.Ready)} == {"language"}
    for event in log.of(recorded.WindowFinished):
        assert sum(event.tenants["vision"].in_time) == 0 < sum(event.tenants["language"].in_time)


def test_who_dies_while_serving_is_started_again(with_faults: dict[str, ReadLog]) -> None:
    log = with_faults["dies_while_serving"]
    for failed in log.of(recorded.Failed):
        again = [event for event in log.of(recorded.Ready) if event.instance == failed.instance]
        assert any(event.ready_s > failed.failed_s for event in again) or failed.failed_s > 50
    assert len(log.of(recorded.Failed)) >= 2


def test_answers_under_way_die_with_their_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many arrive that the servers of vision are busy when they die."""
    setting, traffic = setting_of(changed(TINY, {"tenants.0.arrivals.rate_rps": 2000}))
    backend = faulty(setting, dies_while_serving)
    total = report_of(logged(tmp_path / "run", setting, traffic, backend=backend)).total
    monkeypatch.setattr("migrator.execution.requests.Ledger.lose", lambda *_: None)
    as_if_answered = report_of(logged(tmp_path / "answered", setting, traffic, backend=backend)).total
    assert total is not None
    assert as_if_answered is not None
    assert total.requests.dropped > as_if_answered.requests.dropped
    assert total.requests.arrivals == as_if_answered.requests.arrivals


def test_who_dies_at_every_start_is_given_up_for_the_window(with_faults: dict[str, ReadLog]) -> None:
    log = with_faults["dies_at_every_start"]
    by_instance: dict[str, int] = {}
    for event in log.of(recorded.Failed):
        by_instance[event.instance] = by_instance.get(event.instance, 0) + 1
    assert max(by_instance.values()) == MAX_STARTS


def test_who_served_is_started_as_often_as_who_never_did_before_it_is_given_up(tmp_path: Path) -> None:
    setting, traffic = tiny()
    begun: set[str] = set()

    def served_once(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        name = own[0].instance_id
        if owner != Owner("vision", Task.INFERENCE):
            return own
        if name in begun:
            return [Failed(own[0].at_s, name, "out of memory")]
        begun.add(name)
        return [*own, Failed(own[0].at_s + 10.0, name, "killed")]

    log = logged(tmp_path / "run", setting, traffic, backend=faulty(setting, served_once))
    first = [one.record.kind for one in log.entries if getattr(one.record, "instance", None) == min(begun)]
    assert first == ["ready", *["failed"] * (1 + MAX_STARTS)]


def test_a_retraining_that_dies_leaves_the_old_model(with_faults: dict[str, ReadLog]) -> None:
    log = with_faults["dies_while_retraining"]
    assert not log.of(recorded.Finished)
    assert {event.task for event in log.of(recorded.Failed)} == {"retraining"}
    before = [event.forecast.tenants["vision"].accuracy_before for event in log.of(recorded.WindowStarted)]
    assert before == [0.6, 0.6]


def test_answers_that_jitter_makes_late_at_the_very_end_are_waited_for(tmp_path: Path) -> None:
    busy = {"tenants.0.arrivals.rate_rps": 5000, "tenants.1.arrivals.scale.factor": 40.0}
    setting, traffic = setting_of(changed(TINY, {**busy, "simulation.service_jitter": 1.0}))
    report = report_of(logged(tmp_path / "run", setting, traffic))
    assert report.total is not None
    assert report.ending == "finished"
    assert report.total.requests.arrivals == sum(int(own.counts.sum()) for own in traffic.hindsight.arrivals)


def test_a_trainer_that_hangs_is_given_up_after_the_window_after_its_own(tmp_path: Path) -> None:
    setting, traffic = setting_of(changed(TINY, {"windows": 4}))

    def hangs(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        return own[:1] if owner.task is Task.RETRAINING and own[0].at_s < 30 else own

    log = logged(tmp_path / "run", setting, traffic, backend=faulty(setting, hangs))
    (failed,) = log.of(recorded.Failed)
    assert (failed.window, failed.failed_s, failed.reason[:8]) == (0, 60.0, "not done")
    assert any(event.finish_s > 60 for event in log.of(recorded.Finished))
    assert report_of(log).ending == "finished"


def test_a_retraining_that_dies_late_has_failed_in_the_window_whose_data_it_learned(tmp_path: Path) -> None:
    setting, traffic = tiny()

    def dies_late(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        is_first = owner.task is Task.RETRAINING and own[0].at_s < 30
        return [own[0], Failed(40.0, own[0].instance_id, "killed")] if is_first else own

    log = logged(tmp_path / "run", setting, traffic, backend=faulty(setting, dies_late))
    (failed,) = log.of(recorded.Failed)
    assert (failed.task, failed.window, failed.failed_s) == ("retraining", 0, 40.0)


def test_answers_die_with_a_server_that_was_to_finish_its_last_batch(tmp_path: Path) -> None:
    heavy = {"tenants.0.arrivals.rate_rps": 3000, "tenants.1.arrivals.scale.factor": 60.0, "windows": 3}
    setting, traffic = setting_of(changed(TINY, heavy))
    sound = logged(tmp_path / "sound", setting, traffic)
    stopped = [item for event in sound.of(recorded.Change) for item in event.stopped if item.task == "inference"]
    victim = next(item for item in stopped if item.drained_s > item.end_s)

    def dies_draining(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del owner, number
        moment_s = (victim.end_s + victim.drained_s) / 2
        is_victim = own[0].instance_id == victim.instance
        return [*own, Failed(moment_s, victim.instance, "killed")] if is_victim else own

    log = logged(tmp_path / "run", setting, traffic, backend=faulty(setting, dies_draining))
    (failed,) = log.of(recorded.Failed)
    before, after = report_of(sound).total, report_of(log).total
    assert failed.instance == victim.instance
    assert before is not None
    assert after is not None
    assert after.requests.arrivals == before.requests.arrivals
    assert after.requests.dropped > before.requests.dropped


class RefusingGpu(SimGpu):
    """A GPU whose driver refuses every creation from this number on."""

    refused = 3

    def create(self, placement: Placement) -> GpuInstance:
        self.refused -= 1
        if self.refused < 0:
            raise InsufficientResourcesError(f"no room for {placement}")
        return super().create(placement)


def refusing_run(folder: Path) -> tuple[ReadLog, RecordedTraffic]:
    setting, traffic = tiny()

    def opened(start_s: float) -> Backend:
        clock = VirtualClock(start_s)
        gpu = RefusingGpu(setting.gpu, clock, seed=1)
        return Backend(gpu, clock, SimWorkers(gpu, clock, tenants_that_run(setting), 0, setting.config.window_s))

    return logged(folder, setting, traffic, backend=opened), traffic


def test_refused_calls_do_not_end_the_run(tmp_path: Path) -> None:
    log, traffic = refusing_run(tmp_path / "run")
    report = report_of(log)
    assert any(event.error for event in log.of(recorded.Outcome))
    assert report.ending == "finished"
    assert report.total is not None
    assert report.total.requests.arrivals == sum(int(own.counts.sum()) for own in traffic.hindsight.arrivals)


def test_what_could_not_be_made_is_told_and_planned_around(tmp_path: Path) -> None:
    log, _ = refusing_run(tmp_path / "run")
    undone = [event for event in log.of(recorded.Change) if event.undone]
    (revised, *_) = log.of(recorded.PlanRevised)
    assert undone
    assert revised.reason == "; ".join(undone[0].undone)
    assert revised.unavailable
    assert revised.violations == ()


@pytest.mark.parametrize("moment_s", [3.0, 11.3, 36.5])
def test_the_rest_of_a_window_is_planned_anew_when_asked(
    tmp_path: Path, moment_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, traffic = tiny()
    ask(monkeypatch, once_after(moment_s))
    log = logged(tmp_path / "run", setting, traffic)
    (revised,) = log.of(recorded.PlanRevised)
    assert revised.reason == "a test asks"
    assert revised.violations == ()
    assert revised.from_step >= moment_s % 30
    assert revised.plan.n_steps == 30 - revised.from_step
    report = report_of(log)
    assert report.total is not None
    assert report.total.requests.arrivals == sum(int(own.counts.sum()) for own in traffic.hindsight.arrivals)


def test_the_rest_of_a_window_is_planned_anew_under_its_floors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    floors = {"tenants.0.min_slo_attainment": 0.9, "tenants.1.min_slo_attainment": {"share": 0.9, "per": "step"}}
    setting, traffic = setting_of(changed(SMALL, {"window_s": 30, "tenants.0.retraining.samples": 300, **floors}))
    ask(monkeypatch, once_after(11.3))
    log = logged(tmp_path / "run", setting, traffic)
    (revised,) = log.of(recorded.PlanRevised)
    assert revised.plan.status in ("optimal", "feasible")
    assert revised.violations == ()


def test_a_log_holds_floors_and_what_was_promised(tmp_path: Path) -> None:
    setting, traffic = setting_of(changed(SMALL, {"windows": 1, "tenants.0.min_slo_attainment": 0.9}))
    log = logged(tmp_path / "run", setting, traffic)
    tenants = {tenant.name: tenant.min_slo_attainment for tenant in log.header.tenants}
    (started,) = log.of(recorded.WindowStarted)
    assert tenants == {"vision": recorded.Floor(share=0.9, per="window"), "language": None}
    assert started.in_time is not None
    assert started.in_time["vision"].promised >= 0.9
    assert started.in_time["vision"].missed is None


def test_a_log_without_floors_says_nothing_of_them(tmp_path: Path) -> None:
    setting, traffic = setting_of(changed(SMALL, {"windows": 1}))
    log = logged(tmp_path / "run", setting, traffic)
    assert log.of(recorded.WindowStarted)[0].in_time is None


def test_a_plan_that_is_made_just_after_a_change_begins_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {"tenants.0.arrivals.rate_rps": 900, "tenants.1.arrivals.scale.factor": 20.0}
    setting, traffic = setting_of(changed(SMALL, {**busy, "tenants.0.retraining.samples": 12000}))

    def after_each_change(now_s: float) -> str | None:
        changes = read_log(tmp_path / "run").of(recorded.Change)
        return "a change was made" if changes[-1].planned_s == now_s else None

    ask(monkeypatch, after_each_change)
    log = logged(tmp_path / "run", setting, traffic)
    assert log.of(recorded.PlanRevised)
    planned_s = [event.planned_s for event in log.of(recorded.Change)]
    assert planned_s == sorted(set(planned_s))


def test_a_retraining_that_died_is_planned_again_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, traffic = tiny()

    died: list[str] = []

    def first_dies(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        if died or owner.task is Task.INFERENCE:
            return own
        died.append(own[0].instance_id)
        return [own[0], Failed(own[0].at_s + 0.5, own[0].instance_id, "killed")]

    told: list[float] = []

    def when_it_died(now_s: float) -> str | None:
        if told or not read_log(tmp_path / "run").of(recorded.Failed):
            return None
        told.append(now_s)
        return "a retraining died"

    ask(monkeypatch, when_it_died)
    log = logged(tmp_path / "run", setting, traffic, backend=faulty(setting, first_dies))
    (failed,) = log.of(recorded.Failed)
    assert [event.reason for event in log.of(recorded.PlanRevised)] == ["a retraining died"]
    assert failed.failed_s < min(event.finish_s for event in log.of(recorded.Finished)) < 30


def revised_after(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fault: Callable[[list[Happening]], list[Happening]], kind: str
) -> ReadLog:
    """A run of whose first retraining's worker ``fault`` tells, asked once to plan anew after a record of that kind."""
    setting, traffic = tiny()
    begun: list[Owner] = []

    def first(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        if begun or owner.task is Task.INFERENCE:
            return own
        begun.append(owner)
        return fault(own)

    asked: list[float] = []

    def reason(now_s: float) -> str | None:
        log = read_log(folder)
        has_failed = bool(log.of(recorded.Failed))
        is_gone = any(item.task == "retraining" for change in log.of(recorded.Change) for item in change.stopped)
        if asked or not has_failed or (kind == "change" and not is_gone):
            return None
        asked.append(now_s)
        return "a test asks"

    ask(monkeypatch, reason)
    return logged(folder, setting, traffic, backend=faulty(setting, first))


def test_a_retraining_that_died_is_planned_again_also_after_its_instance_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(own: list[Happening]) -> list[Happening]:
        return [own[0], Failed(own[1].at_s - 0.1, own[0].instance_id, "killed")]

    log = revised_after(monkeypatch, tmp_path / "run", dies, "change")
    assert len(log.of(recorded.PlanRevised)) == 1
    assert [event.window for event in log.of(recorded.Finished)] == [0, 1]


def test_a_retraining_whose_worker_died_when_it_was_done_is_not_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(own: list[Happening]) -> list[Happening]:
        return [*own, Failed(own[1].at_s + 0.1, own[0].instance_id, "killed")]

    log = revised_after(monkeypatch, tmp_path / "run", dies, "failed")
    assert len(log.of(recorded.PlanRevised)) == 1
    assert [event.window for event in log.of(recorded.Finished)] == [0, 1]


def test_policies_that_know_what_comes_are_refused_with_live_traffic() -> None:
    setting, traffic = tiny()

    class Live(RecordedTraffic):
        hindsight: Hindsight | None = None  # type: ignore[assignment]

    live = object.__new__(Live)
    live.__dict__.update(traffic.__dict__)
    for name in ("oracle", "static", "reactive"):
        with pytest.raises(Exception, match="live traffic has no hindsight") as refused:
            Loop(setting, simulated_parts(setting, live, policy_of(name)))
        assert type(refused.value).__name__ == "ConfigError"
    Loop(setting, simulated_parts(setting, live, policy_of("migrator")))


def drawn_ready_s(n_before: int) -> float:
    """When a worker that starts at second 31 is ready, after so many starts there in the window before."""
    setting, _ = setting_of(changed(TINY, {"simulation.start_jitter": 0.5}))
    placement = Placement(setting.gpu.profile("3g.40gb"), 4)
    clock = VirtualClock(2.0)
    gpu = SimGpu(setting.gpu, clock)
    workers = SimWorkers(gpu, clock, tenants_that_run(setting), 3, 30.0)
    instance = gpu.create(placement)
    for number in range(n_before):
        workers.start(f"before{number}", instance, Owner("language", Task.INFERENCE), 1)
        workers.stop(f"before{number}", "language")
    clock.sleep_until(31.0)
    workers.start("one", instance, Owner("vision", Task.INFERENCE), 1)
    return workers.happenings(1e6)[0].at_s


def test_draws_do_not_depend_on_what_was_drawn_before() -> None:
    assert drawn_ready_s(0) == drawn_ready_s(2)


@pytest.mark.parametrize("policy", daily(POLICIES, [*POLICIES][::2]))
def test_every_policy_runs_in_the_loop_and_its_report_is_what_compare_says(
    policy: str, call: Any, write_config: Any
) -> None:
    path = write_config({"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4})
    code, out, err = call("run", path, "--policy", policy, "--out", "run")
    assert (code, "simulated" in out) == (0, True), err
    total = report_of(read_log(Path("run"))).total
    assert total is not None
    config = Config.model_validate(yaml.safe_load(path.read_text()))
    (match,) = matches_of(config, "test", [policy], 1, Fairness.POLICY_ONLY)
    assert total.requests == sum(score_of(match).totals, Totals())


def test_a_policy_that_is_not_there_ends_with_2(call: Any, write_config: Any) -> None:
    code, _, err = call("run", write_config(), "--policy", "magic")
    assert (code, err.count("\n")) == (2, 1)
    assert "policy 'magic': known are migrator" in err
    assert not Path("runs").exists()
