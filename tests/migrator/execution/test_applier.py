"""Changes of the layout carried out on a GPU: driver calls, workers that start and stop, and what is noted of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from executor.catalogue import gpu_model
from executor.clock import Clock, VirtualClock
from executor.errors import DriverError, InUseError
from executor.gpu import LOOK_EVERY_S, GpuInstance
from executor.mig import OwnedLayout
from executor.sim import Faults, SimGpu
from migrator.execution import events
from migrator.execution.applier import MAX_STARTS, STAYS_S, Applier, Backend, Live, Sight
from migrator.execution.changes import Change, ChangeOutcome, Loan, Training
from migrator.execution.happenings import Happening, Ready
from migrator.log.records import Intent, Outcome, Record, Wall
from planner.problem import Owner, Task
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.servers import Server
from workloads.tenants import Tenant, WindowAccuracy, WorkerStart

GPU = gpu_model("a100-80gb")
A, B = Owner("a", Task.INFERENCE), Owner("b", Task.INFERENCE)
AB, BC = Owner("a", Task.INFERENCE, ("b",)), Owner("b", Task.INFERENCE, ("c",))
TRAINING = Owner("a", Task.RETRAINING)


def tenant(name: str) -> Tenant:
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
        worker_start=WorkerStart(2.0, 0.5),
    )


def joint_servings(members: tuple[str, ...]) -> dict[str, dict[str, OperatingPoint]]:
    point = OperatingPoint("2g.20gb", 4, 2, 80.0, 0.05, LatencyCurve((1, 4), (0.02, 0.05)))
    return {name: dict.fromkeys(members, point) for name in ("2g.20gb", "3g.40gb")}


class SilentWorkers:
    """Workers of which nothing is heard; an instance cannot be destroyed under one, and what was asked is kept."""

    def __init__(self, gpu: SimGpu, clock: Clock) -> None:
        self._gpu, self._clock = gpu, clock
        self.running: dict[tuple[str, str], tuple[int, Owner]] = {}
        self.starts: list[tuple[float, str, int]] = []
        self.told: list[tuple[str, str, int | None]] = []

    def start(
        self, instance_id: str, instance: GpuInstance, owner: Owner, n_at_once: int, training: Training, joint: object
    ) -> None:
        del training, joint
        self._gpu.attach(instance.gi_id, str(owner))
        self.running[instance_id, owner.tenant] = (instance.gi_id, owner)
        self.starts.append((self._clock.now_s, str(owner), n_at_once))

    def serve_by(self, instance_id: str, tenant: str, joint: OperatingPoint | None) -> None:
        self.told.append((instance_id, tenant, None if joint is None else joint.batch))

    def hold(self, instance_id: str, for_s: float) -> None:
        raise AssertionError(f"{instance_id} is lent for {for_s} s")

    def drain(self, instance_id: str, tenant: str) -> float:  # noqa: ARG002
        return -math.inf

    def stop(self, instance_id: str, tenant: str) -> None:
        gi_id, owner = self.running.pop((instance_id, tenant))
        self._gpu.detach(gi_id, str(owner))

    def happenings(self, until_s: float) -> Sequence[Happening]:
        self._clock.sleep_until(until_s)
        return ()


class Stage:
    """An applier with an empty GPU and a clock at second 0, and all that it noted."""

    def __init__(self) -> None:
        self.clock = VirtualClock(0.0)
        self.gpu = SimGpu(GPU, self.clock)
        self.workers = SilentWorkers(self.gpu, self.clock)
        tenants = {name: tenant(name) for name in ("a", "b", "c")}
        backend, now_s = Backend(self.gpu, self.clock, self.workers), self.clock.now_s
        self.applier = Applier(backend, tenants, now_s, joint_servings=joint_servings)
        self.notes: list[Record] = []

    def note(self, record: Record, wall: Wall | None = None) -> int:
        del wall
        self.notes.append(record)
        return len(self.notes) - 1

    def apply(self, wanted: Change, busy_until_s: Mapping[str, float] | None = None) -> ChangeOutcome:
        """Carry the change out when it is due."""
        self.clock.sleep_until(wanted.planned_s)
        outcome = self.applier.apply(wanted, 0, busy_until_s or {}, self.note)
        assert outcome is not None
        return outcome

    def hold(self, held: dict[str, Owner]) -> ChangeOutcome:
        """Carry a change out in which all that is new is ready at once."""
        outcome = self.apply(change(self.clock.now_s, held))
        for item in outcome.started:
            for name in item.owner.members:
                self.ready(item.instance_id, name)
        return outcome

    def live(self, instance_id: str) -> Live:
        found = self.applier.live(instance_id)
        assert found is not None
        return found

    def ready(self, instance_id: str, name: str | None = None) -> None:
        self.applier.ready(self.live(instance_id), Ready(self.clock.now_s, instance_id, tenant=name))

    def fail(self, instance_id: str, name: str) -> None:
        """Let a worker in the instance die."""
        self.workers.stop(instance_id, name)
        self.applier.failed(self.live(instance_id), name)

    @property
    def served(self) -> dict[str, list[str]]:
        """By lane, who is served there."""
        return {lane.lane_id: [server.tenant for server in lane.servers] for lane in self.applier.lanes}

    def end(self, instance_id: str) -> None:
        """Let the retraining in the instance be done."""
        live = self.applier.live(instance_id)
        assert live is not None
        live.end()

    def servers(self, name: str) -> Sequence[Server]:
        return self.applier.servers.get(name, ())


def change(planned_s: float, held: dict[str, Owner], promised_s: float = 1e9) -> Change:
    entries = [(GPU.placement(text), owner) for text, owner in held.items()]
    return Change(planned_s, OwnedLayout.of(entries), tuple((p, promised_s) for p, _ in entries))


def test_workers_start_when_their_instance_is_there_and_know_how_many_do() -> None:
    stage = Stage()
    stage.apply(change(10.0, {"2g.20gb@0": A, "2g.20gb@2": B}))
    # Two creations of 0.17 s, one after the other.
    assert stage.workers.starts == [
        (pytest.approx(10.17), "a/inference", 2),
        (pytest.approx(10.34), "b/inference", 2),
    ]


def test_who_starts_serves_when_its_worker_says_so() -> None:
    stage = Stage()
    (started,) = stage.apply(change(0.0, {"2g.20gb@0": A})).started
    assert stage.servers("a") == ()
    stage.clock.sleep_until(9.0)
    stage.ready(started.instance_id)
    assert {server.ready_s for server in stage.servers("a")} == {9.0}


def test_every_process_becomes_a_server() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    assert len(stage.servers("a")) == 3
    assert stage.servers("b") == ()


def test_a_kept_instance_is_not_touched() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    (before,) = stage.gpu.instances()
    servers = stage.servers("a")
    stage.hold({"2g.20gb@0": A, "1g.10gb@4": B})
    assert stage.gpu.instances()[0] == before
    assert stage.servers("a") == servers


def test_a_dropped_instance_finishes_its_batch_before_it_is_destroyed() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A, "1g.10gb@4": B})
    busy = {stage.servers("a")[1].server_id: 20.4}
    (stopped,) = stage.apply(change(20.0, {"1g.10gb@4": B}), busy).stopped
    assert (stopped.end_s, stopped.drained_s, stopped.gone_s) == pytest.approx((20.0, 20.4, 20.6))


def test_a_dropped_instance_serves_nobody_and_runs_no_worker() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    stage.apply(change(20.0, {}))
    assert stage.servers("a") == ()
    assert stage.workers.running == {}


def test_an_instance_handed_over_stays_and_starts_another_worker() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    (before,) = stage.gpu.instances()
    outcome = stage.apply(change(20.0, {"2g.20gb@0": B}))
    assert stage.gpu.instances() == (before,)
    assert [record.kind for record in stage.notes].count("intent") == 1
    assert [str(item.owner) for item in outcome.started] == ["b/inference"]
    assert stage.workers.starts[-1] == (20.0, "b/inference", 1)
    assert [owner for _, owner in stage.workers.running.values()] == [B]


def test_an_instance_of_a_pool_starts_a_worker_for_each_member_and_serves_who_is_ready() -> None:
    stage = Stage()
    first, second = stage.apply(change(0.0, {"2g.20gb@0": AB, "3g.40gb@4": AB})).started
    assert [(owner, n) for _, owner, n in stage.workers.starts] == [("a/inference", 4), ("b/inference", 4)] * 2
    assert stage.served == {}
    stage.clock.sleep_until(5.0)
    stage.ready(first.instance_id, "b")
    assert stage.served == {first.instance_id: ["b"]}
    assert stage.applier.needs_replan(1e9)
    for live, name in ((first, "a"), (second, "a"), (second, "b")):
        stage.ready(live.instance_id, name)
    assert stage.served == {first.instance_id: ["a", "b"], second.instance_id: ["a", "b"]}
    assert not stage.applier.needs_replan(1e9)
    assert stage.applier.servers == {}


def test_a_member_is_served_in_turns_of_all_its_processes() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": AB})
    ((server, _),) = [lane.servers for lane in stage.applier.lanes]
    assert (server.tenant, server.server_id, server.batch_limit) == ("a", "2g.20gb@0#1/a", 8)
    assert [server.latency.at(n) for n in (1, 2, 8)] == pytest.approx([0.02, 0.02, 0.05])


def test_a_member_that_fails_starts_again_while_others_are_served() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": AB}).started
    stage.fail(started.instance_id, "a")
    assert stage.served == {started.instance_id: ["b"]}
    assert stage.workers.starts[-1][1:] == ("a/inference", 1)
    assert stage.applier.needs_replan(0.0)
    ((_, owner, ready_s),) = stage.applier.serving_from_s
    assert (owner, ready_s) == (AB, stage.clock.now_s + 2.0)
    stage.ready(started.instance_id, "a")
    assert stage.served == {started.instance_id: ["a", "b"]}
    assert not stage.applier.needs_replan(0.0)


def test_a_member_that_was_given_up_holds_no_instance_until_a_plan_begins_with_it() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": AB}).started
    while ("2g.20gb@0#1", "a") in stage.workers.running:
        stage.fail(started.instance_id, "a")
    assert [owner for _, owner, _ in stage.applier.serving_from_s] == [B]
    assert stage.apply(Change(60.0, stage.applier.layout, ())).is_empty
    outcome = stage.apply(change(61.0, {"2g.20gb@0": AB}))
    assert (outcome.started, outcome.stopped, len(outcome.passed)) == ((), (), 1)
    assert stage.workers.starts[-1] == (61.0, "a/inference", 1)
    stage.ready(started.instance_id, "a")
    assert stage.served == {started.instance_id: ["a", "b"]}


def test_a_pool_keeps_an_instance_of_others_who_share_a_member_with_it() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": AB}).started
    (instance,) = stage.gpu.instances()
    busy = {"2g.20gb@0#1/a": 20.03}
    (passed,) = stage.apply(change(20.0, {"2g.20gb@0": BC}, promised_s=24.0), busy).passed
    assert (passed.instance_id, passed.owner, passed.begin_s, passed.promised_s) == ("2g.20gb@0#1", BC, 20.0, 24.0)
    assert stage.gpu.instances() == (instance,)
    assert {name for _, name in stage.workers.running} == {"b", "c"}
    assert stage.workers.starts[-1] == (20.0, "c/inference", 1)
    assert stage.workers.told == [("2g.20gb@0#1", "b", 4)]
    assert stage.served == {started.instance_id: ["b"]}
    # What was in service ends first, whoever left.
    assert [server.ready_s for server in stage.applier.lanes[0].servers] == [20.03]
    assert stage.applier.layout.owner(instance.placement) == BC
    stage.clock.sleep_until(22.0)
    stage.ready(started.instance_id, "c")
    assert stage.served == {started.instance_id: ["b", "c"]}


def test_a_tenant_alone_comes_to_share_its_instance_and_to_have_it_alone_again() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": A}).started
    busy = {server.server_id: 20.01 + 0.01 * place for place, server in enumerate(stage.servers("a"))}
    stage.apply(change(20.0, {"2g.20gb@0": AB}), busy)
    assert stage.servers("a") == ()
    assert [server.ready_s for server in stage.applier.lanes[0].servers] == pytest.approx([20.03])
    stage.ready(started.instance_id, "b")
    stage.apply(change(30.0, {"2g.20gb@0": A}), {"2g.20gb@0#1/b": 30.05})
    assert stage.applier.lanes == []
    assert [server.server_id for server in stage.servers("a")] == [f"2g.20gb@0#1/{place}" for place in range(3)]
    assert {server.ready_s for server in stage.servers("a")} == {30.05}
    assert {name for _, name in stage.workers.running} == {"a"}
    assert len(stage.workers.starts) == 2


def test_an_instance_of_which_nobody_is_left_starts_anew() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": AB}).started
    outcome = stage.apply(change(20.0, {"2g.20gb@0": Owner("c", Task.INFERENCE)}))
    assert ([one.instance_id for one in outcome.stopped], outcome.passed) == ([started.instance_id], ())
    assert {name for _, name in stage.workers.running} == {"c"}


def test_a_dropped_instance_of_a_pool_finishes_whatever_batch_it_has() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": AB, "2g.20gb@4": A})
    (stopped,) = stage.apply(change(20.0, {"2g.20gb@4": A}), {"2g.20gb@0#1/b": 20.4}).stopped
    assert (stopped.owner, stopped.drained_s, stopped.gone_s) == (AB, pytest.approx(20.4), pytest.approx(20.6))
    assert len(stage.workers.running) == 1


def test_new_weights_are_loaded_when_the_lane_is_free_and_pause_their_member_alone() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": AB})
    stage.applier._tenants["a"] = replace(tenant("a"), swap_s=0.5)
    ready_s = stage.clock.now_s
    stage.applier.take_over("a", 20.0, {"2g.20gb@0#1/b": 20.04})
    assert [server.ready_s for server in stage.applier.lanes[0].servers] == [20.54, ready_s]


def test_a_retraining_serves_nobody() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": TRAINING})
    assert stage.servers("a") == ()


def test_a_change_that_ends_a_retraining_is_blocked_until_that_is_done() -> None:
    stage = Stage()
    (started,) = stage.hold({"1g.10gb@4": TRAINING}).started
    assert stage.applier.is_blocked(change(5.0, {}))
    stage.end(started.instance_id)
    assert not stage.applier.is_blocked(change(5.0, {}))
    stage.apply(change(5.0, {}))
    assert stage.gpu.instances() == ()


def test_a_change_that_takes_away_what_is_lent_is_blocked_until_it_is_given_back() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": A, "2g.20gb@0": A})
    placement, kept = GPU.placement("1g.10gb@4"), change(5.0, {"1g.10gb@4": A, "2g.20gb@0": A})
    loan, lent = Loan(placement, TRAINING, 6.0, Training(is_lent=True)), ((placement, TRAINING),)
    (started,) = stage.apply(replace(kept, promised_s=(), lent=lent, loans=(loan,))).lent
    for held, blocked in (({"1g.10gb@4": A, "2g.20gb@0": A}, False), ({"2g.20gb@0": A}, True)):
        wanted = replace(change(9.0, held), promised_s=(), lent=lent)  # even of one that says it goes on
        assert stage.applier.is_blocked(wanted) == blocked
    live = stage.applier.live(started.instance_id)
    assert live is not None
    stage.applier.give_back(live)
    assert not stage.applier.is_blocked(replace(change(9.0, {"2g.20gb@0": A}), promised_s=()))


def test_a_change_beside_a_retraining_is_not_blocked() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": TRAINING})
    layout = change(5.0, {"1g.10gb@4": TRAINING, "2g.20gb@0": A}).layout
    assert not stage.applier.is_blocked(Change(5.0, layout, ((GPU.placement("2g.20gb@0"), 9.0),)))


def test_a_retraining_may_follow_the_last_one_on_its_placement() -> None:
    stage = Stage()
    (first,) = stage.hold({"1g.10gb@4": TRAINING}).started
    (instance,) = stage.gpu.instances()
    stage.end(first.instance_id)
    outcome = stage.apply(change(60.0, {"1g.10gb@4": TRAINING}))
    assert [item.begin_s for item in outcome.started] == [60.0]
    assert [item.instance_id for item in outcome.stopped] == [first.instance_id]
    assert stage.gpu.instances() == (instance,)


def test_a_retraining_on_the_placement_of_one_that_is_not_done_waits_for_it() -> None:
    stage = Stage()
    (first,) = stage.hold({"1g.10gb@4": TRAINING}).started
    next_one = change(60.0, {"1g.10gb@4": TRAINING})
    assert stage.applier.is_blocked(next_one)
    stage.end(first.instance_id)
    assert not stage.applier.is_blocked(next_one)


def test_a_retraining_that_goes_on_is_kept() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": TRAINING})
    assert stage.apply(Change(5.0, stage.applier.layout, ())).is_empty


def test_lateness_is_measured_against_the_promise() -> None:
    stage = Stage()
    (started,) = stage.apply(change(0.0, {"2g.20gb@0": A}, promised_s=1.0)).started
    late_s = [events.ready(0, started, Ready(at_s, started.instance_id)).late_ready_s for at_s in (0.5, 3.25)]
    assert late_s == [0.0, 2.25]


def test_a_change_that_comes_while_the_driver_is_busy_waits_for_it() -> None:
    stage = Stage()
    three = {"2g.20gb@0": A, "2g.20gb@2": A, "2g.20gb@4": A}
    stage.apply(change(0.0, three))
    busy_until_s = stage.clock.now_s
    outcome = stage.apply(change(0.1, {**three, "1g.10gb@6": B}))
    assert (outcome.planned_s, outcome.begin_s) == (0.1, busy_until_s)


def test_nothing_to_do_is_an_empty_outcome() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    assert stage.apply(change(9.0, {"2g.20gb@0": A})).is_empty


def test_what_serves_is_told_with_its_readiness() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": TRAINING, "2g.20gb@0": A})
    ready_s = stage.clock.now_s
    assert stage.applier.serving_from_s == ((GPU.placement("2g.20gb@0"), A, ready_s),)


def test_what_starts_to_serve_is_told_with_when_it_should_be_ready() -> None:
    stage = Stage()
    stage.apply(change(0.0, {"2g.20gb@0": A}))
    created_s = stage.clock.now_s
    ((_, _, expected_s),) = stage.applier.serving_from_s
    assert expected_s == pytest.approx(created_s + 2.0)
    # It is not there in time, so that another start is counted from now on.
    stage.clock.sleep_until(60.0)
    ((_, _, expected_s),) = stage.applier.serving_from_s
    assert expected_s == pytest.approx(62.0)


def test_every_driver_call_is_noted_before_it_is_made_and_after_it() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    stage.apply(change(20.0, {"2g.20gb@2": B}))
    kinds = [record.kind for record in stage.notes]
    assert kinds == ["intent", "outcome"] * 3
    assert [record.call for record in stage.notes if isinstance(record, Intent)] == ["create", "destroy", "create"]
    assert [record.intent for record in stage.notes if isinstance(record, Outcome)] == [0, 2, 4]
    assert all(record.error is None for record in stage.notes if isinstance(record, Outcome))


def test_a_refused_call_is_told_and_the_rest_is_done() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A, "2g.20gb@4": A})
    stage.gpu.create(GPU.placement("2g.20gb@2"))  # by somebody else
    outcome = stage.apply(change(20.0, {"2g.20gb@0": A, "1g.10gb@4": B, "2g.20gb@2": B}))
    (undone,) = outcome.undone
    assert str(undone.placement) == "2g.20gb@2"
    assert [str(item.placement) for item in outcome.stopped] == ["2g.20gb@4"]
    assert [one.error for one in stage.notes if isinstance(one, Outcome)][2:] == [None, str(undone.error), None]
    assert [str(placement) for placement, _ in stage.applier.layout.entries] == ["2g.20gb@0", "1g.10gb@4"]
    assert len(stage.servers("a")) == 3


def test_a_serving_worker_that_fails_is_started_again_a_few_times() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": A}).started
    live = stage.applier.live(started.instance_id)
    assert live is not None
    for n_starts in range(2, 2 + MAX_STARTS):  # the first got ready
        stage.workers.stop(started.instance_id, "a")
        stage.applier.failed(live)
        assert (stage.servers("a"), len(stage.workers.starts)) == ((), n_starts)
    stage.workers.stop(started.instance_id, "a")
    stage.applier.failed(live)
    assert stage.workers.running == {}
    assert stage.applier.needs_replan(0.0)
    assert stage.applier.serving_from_s == ()


def test_a_worker_that_was_given_up_is_tried_again_where_a_plan_begins_with_it() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": A}).started
    (instance,) = stage.gpu.instances()
    live = stage.applier.live(started.instance_id)
    assert live is not None
    while stage.workers.running:
        stage.workers.stop(started.instance_id, "a")
        stage.applier.failed(live)
    outcome = stage.hold({"2g.20gb@0": A})
    assert [item.instance_id for item in outcome.stopped] == [started.instance_id]
    assert (len(stage.servers("a")), stage.gpu.instances()) == (3, (instance,))


def test_a_worker_that_is_back_serves_and_has_not_strayed() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": A}).started
    live = stage.applier.live(started.instance_id)
    assert live is not None
    stage.workers.stop(started.instance_id, "a")
    stage.applier.failed(live)
    assert stage.applier.needs_replan(0.0)
    stage.ready(started.instance_id)
    assert not stage.applier.needs_replan(0.0)
    assert len(stage.servers("a")) == 3


def test_a_retraining_that_fails_is_not_started_again_and_blocks_nothing() -> None:
    stage = Stage()
    (started,) = stage.hold({"1g.10gb@4": TRAINING}).started
    live = stage.applier.live(started.instance_id)
    assert live is not None
    stage.workers.stop(started.instance_id, "a")
    stage.applier.failed(live)
    assert stage.applier.failed_retrainings == {TRAINING}
    assert not stage.applier.is_blocked(change(5.0, {}))
    stage.apply(change(5.0, {}))
    assert stage.gpu.instances() == ()


def test_an_instance_whose_worker_starts_again_can_be_dropped() -> None:
    stage = Stage()
    (started,) = stage.hold({"2g.20gb@0": A}).started
    live = stage.applier.live(started.instance_id)
    assert live is not None
    stage.workers.stop(started.instance_id, "a")
    stage.applier.failed(live)
    assert stage.apply(change(20.0, {})).undone == ()
    assert (stage.workers.running, stage.gpu.instances()) == ({}, ())


def test_half_an_instance_that_nobody_could_mend_stays_in_sight() -> None:
    stage = Stage()
    stage.gpu._faults = Faults(error_share=1.0, half_share=1.0)
    assert stage.apply(change(0.0, {"2g.20gb@0": A})).undone
    stage.gpu._faults = Faults()
    stage.applier.look()
    stage.applier.give_up(1)  # what could not be made may be tried again
    assert stage.applier.taken == (GPU.placement("2g.20gb@0"),)
    assert stage.apply(change(60.0, {"3g.40gb@0": A})).undone == ()
    assert [str(item.placement) for item in stage.gpu.instances()] == ["3g.40gb@0"]


def test_a_change_that_the_driver_tells_of_once_is_seen_though_the_look_at_it_fails() -> None:
    stage = Stage()
    stage.applier.look()
    theirs, told, silences = stage.gpu.create(GPU.placement("1g.10gb@6")), [True], [DriverError("Unknown Error")]

    def instances() -> tuple[GpuInstance, ...]:
        if silences:
            raise silences.pop()
        return (theirs,)

    stage.gpu.changed = lambda: bool(told) and told.pop()
    stage.gpu.instances = instances
    sights = []
    for _ in range(2):
        stage.clock.sleep_until(stage.clock.now_s + LOOK_EVERY_S)
        sights.append(stage.applier.look())
    assert sights == [None, Sight(came=(theirs.placement,))]


def test_where_an_instance_was_given_back_nothing_is_taken() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    stage.gpu._faults = Faults(in_use_share=1.0, in_use_s=1e6, half_share=0.0)
    assert len(stage.apply(change(20.0, {"3g.40gb@0": A})).undone) == 2
    assert [str(placement) for placement, _ in stage.applier.layout.entries] == ["2g.20gb@0"]
    assert stage.applier.taken == ()


def test_an_instance_that_is_given_back_starts_its_worker_alone_where_nothing_else_starts() -> None:
    stage = Stage()
    stage.hold({"2g.20gb@0": A})
    stage.gpu._faults = Faults(in_use_share=1.0, in_use_s=1e6, half_share=0.0)
    stage.apply(change(20.0, {}))
    assert stage.workers.starts[-1][1:] == ("a/inference", 1)


class StubbornGpu(SimGpu):
    """A GPU of which nothing goes."""

    def destroy(self, gi_id: int) -> None:
        raise InUseError(f"{gi_id} is in use by another client")


def stubborn() -> Stage:
    stage = Stage()
    stage.gpu.__class__ = StubbornGpu
    return stage


def test_an_instance_that_will_not_go_serves_whom_it_served() -> None:
    stage = stubborn()
    stage.hold({"2g.20gb@0": A})
    outcome = stage.apply(change(20.0, {}))
    assert [str(item.placement) for item in outcome.news] == ["2g.20gb@0"]
    assert dict(stage.applier.layout.entries) == {GPU.placement("2g.20gb@0"): A}


def test_a_retraining_s_instance_that_will_not_go_serves_its_tenant() -> None:
    stage = stubborn()
    (started,) = stage.hold({"1g.10gb@4": TRAINING}).started
    stage.end(started.instance_id)
    stage.apply(change(20.0, {}))
    assert dict(stage.applier.layout.entries) == {GPU.placement("1g.10gb@4"): A}


def test_an_instance_that_would_not_go_is_left_alone_for_a_while() -> None:
    stage = stubborn()
    stage.hold({"2g.20gb@0": A})
    stage.apply(change(20.0, {}))
    assert stage.applier.stays_until_s == stage.clock.now_s + STAYS_S


def test_what_could_not_go_before_is_no_news() -> None:
    stage = stubborn()
    stage.gpu.create(GPU.placement("7g.80gb@0"))
    stage.applier._journal.stands(stage.gpu.instances()[0])
    stage.applier.leave_idle(stage.gpu.instances()[0])
    outcome = stage.apply(change(20.0, {}))
    assert len(outcome.undone) == 1
    assert outcome.news == ()


def test_only_what_was_started_in_the_window_counts_as_its_retraining() -> None:
    stage = Stage()
    stage.hold({"1g.10gb@4": TRAINING})
    assert stage.applier.training_from_s(0).keys() == {TRAINING}
    assert not stage.applier.training_from_s(1)
