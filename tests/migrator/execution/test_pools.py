"""Runs in which tenants share instances: what is served, logged, checked, and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.execution.happenings import Failed, Happening, Ready
from migrator.execution.loop import Loop, log_of
from migrator.execution.parts import jitter_of
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records
from migrator.log.account import accounts
from migrator.log.changes import changes_in
from migrator.log.runlog import EVENTS_FILE, ReadLog
from planner.policies.ours import Migrator
from planner.policies.policy import Policy
from planner.policies.registry import policy_of
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import SHORT, begun, cuts, same, taken_up
from tests.migrator.execution.test_seams import faulty
from workloads.serving.pool import Lane, PoolState, advance
from workloads.serving.servers import AccuracyTimeline, Server

BOTH = ("vision", "language")
TOGETHER: dict[str, Any] = SHORT | {"sharing": {"pools": [list(BOTH)]}}
THIRD = {**SMALL["tenants"][0], "name": "third", "arrivals": {"rate_rps": 30}, "worker_start_s": 1.5}
THREE: dict[str, Any] = {"tenants": [*SMALL["tenants"], THIRD], "sharing": {"pools": "auto"}} | SHORT


def assembled(changes: Mapping[str, Any]) -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, changes), "small"), "small")


Fault = Callable[[Owner, int, list[Happening]], list[Happening]]


def ran(changes: Mapping[str, Any], fault: Fault | None = None, policy: Policy | None = None) -> ReadLog:
    setting, traffic = assembled(changes)
    backend = None if fault is None else faulty(setting, fault)
    return log_of(Loop(setting, simulated_parts(setting, traffic, policy, backend=backend)), setting.config)


@pytest.fixture(scope="module")
def together() -> ReadLog:
    return ran(TOGETHER)


def test_each_member_has_its_workers_and_all_is_answered_by_turns(together: ReadLog) -> None:
    started = [item for change in together.of(records.Change) for item in change.started if item.task == "inference"]
    assert {item.members for item in started} == {BOTH}
    ready = {(one.instance, one.tenant) for one in together.of(records.Ready) if one.task == "inference"}
    assert ready >= {(item.instance, name) for item in started[:1] for name in BOTH}
    assert all(window.pools[0].members == BOTH for window in together.of(records.WindowStarted))
    for closing in together.of(records.WindowFinished):
        for counts in closing.tenants.values():
            assert sum(counts.in_time) > 0.8 * sum(counts.arrivals)


def test_one_instance_for_two_is_served_as_the_kernel_has_it() -> None:
    """A listed pool whose layout never changes: its outcomes are those of the kernel, called by hand."""
    changes = TOGETHER | {"simulation": {"service_jitter": 0.2}, "windows": 1, "retraining.required": False}
    changes |= {f"tenants.{place}.accuracy": {"before": 0.6, "after": 0.1} for place in range(2)}
    log = ran(changes, policy=policy_of("migrator"))
    setting, traffic = assembled(changes)
    (change,) = [one for one in log.of(records.Change) if one.started]
    points, ready = (
        setting.joint_servings(BOTH),
        {(one.instance, one.tenant): one.ready_s for one in log.of(records.Ready)},
    )
    lanes = []
    for item in change.started:
        own = points[item.placement.partition("@")[0]]
        servers = (
            Server(
                name,
                f"{item.instance}/{name}",
                ready[item.instance, name],
                np.inf,
                own[name].latency.of_processes(own[name].processes, own[name].batch),
                own[name].batch * own[name].processes,
            )
            for name in BOTH
        )
        lanes.append(Lane(item.instance, tuple(servers)))
    requests = traffic.requests(0, round(setting.config.window_s))
    accuracies = [AccuracyTimeline((0.0,), (tenant.accuracy_in(0).before,)) for tenant in setting.tenants]
    weights, cost = [tenant.weight for tenant in setting.tenants], setting.turn_cost
    _, piece = advance(
        requests, PoolState.at_start(2), lanes, accuracies, np.inf, jitter_of(setting), weights=weights, turn_cost=cost
    )
    (closing,) = log.of(records.WindowFinished)
    for name, outcomes in zip(BOTH, piece.outcomes, strict=True):
        counts = closing.tenants[name]
        assert (sum(counts.in_time), sum(counts.late), sum(counts.dropped)) == (
            outcomes.in_time.sum(),
            outcomes.late.sum(),
            outcomes.dropped.sum(),
        )
        assert sum(counts.correct) == (outcomes.in_time & outcomes.correct).sum()


def test_a_run_whose_tenants_share_is_checked_and_worth_what_it_says(together: ReadLog) -> None:
    found = list(RunCheck(together, *assembled(TOGETHER)).plans())
    assert [item.reason for item in found] == [""] * 3
    assert [item.verification.violations for item in found if item.verification] == [()] * 3


@pytest.mark.parametrize("pools", [[list(BOTH)], "auto"], ids=["listed", "auto"])
def test_a_run_whose_tenants_share_is_taken_up_wherever_it_was_cut(pools: object, tmp_path: Path) -> None:
    folder, policy = tmp_path / "run", policy_of("migrator")
    whole = begun(folder, policy, changes={"window_s": 20, "windows": 2, "sharing": {"pools": pools}})
    for cut in [*cuts(whole)][3::97]:
        (folder / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(folder, policy)) == same(whole)


def test_a_member_s_worker_that_fails_starts_again_and_others_are_served_on() -> None:
    """The first worker of vision dies in second 4.321, over whatever it does."""
    failed: list[str] = []

    def fault(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        if owner != Owner("vision", Task.INFERENCE) or failed:
            return own
        failed.append(own[0].instance_id)
        return [*own, Failed(4.321, own[0].instance_id, "killed")]

    log = ran(TOGETHER | {"simulation": {"service_jitter": 0.2}}, fault)  # starts are exact
    (died,) = log.of(records.Failed)
    assert (died.instance, died.tenant, died.failed_s) == (failed[0], "vision", 4.321)
    instances = [item for change in changes_in(log) for item in change.started if item.name == failed[0]]
    served = {item.tenant: item.served for item in instances}
    assert [len(served[name]) for name in BOTH] == [2, 1]
    assert served["vision"][1][0] == pytest.approx(4.321 + 1.0)
    for closing in log.of(records.WindowFinished):
        for own in closing.tenants.values():
            assert sum(own.arrivals) == sum(own.in_time) + sum(own.late) + sum(own.dropped)


def test_a_member_whose_worker_is_late_is_served_late_and_nobody_else_is() -> None:
    def fault(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        del number
        late_s = 40.0 if owner == Owner("vision", Task.INFERENCE) else 0.0
        return [replace(one, at_s=one.at_s + late_s) if isinstance(one, Ready) else one for one in own]

    first = ran(TOGETHER | {"windows": 1}, fault).of(records.WindowFinished)[0].tenants
    assert sum(first["vision"].in_time) < 0.5 * sum(first["vision"].arrivals)
    assert sum(first["language"].in_time) > 0.9 * sum(first["language"].arrivals)


@dataclass(frozen=True)
class Settled(Migrator):
    """Our plans, for pools that are settled by window."""

    partitions: tuple[tuple[tuple[str, ...], ...], ...] = ()

    def pools_in(self, window: int) -> Sequence[tuple[str, ...]]:
        return self.partitions[window]


AB, BC = ("vision", "language"), ("language", "third")
PARTITIONS = ((AB,), (BC,), ((*AB, "third"),), ())


@pytest.fixture(scope="module")
def repartitioned() -> ReadLog:
    return ran(THREE | {"windows": 4}, policy=Settled(partitions=PARTITIONS))


def test_a_window_with_other_pools_keeps_instances_whose_holders_share_a_member(repartitioned: ReadLog) -> None:
    log = repartitioned
    told = [[pool.members for pool in started.pools] for started in log.of(records.WindowStarted)]
    assert told == [list(pools) for pools in PARTITIONS]
    changes, n_shared = changes_in(log), 0
    for change in changes:
        assert {call.placement for call in change.calls}.isdisjoint(item.placement for item in change.passed)
        for item in change.passed:
            assert change.begin_s >= change.window * log.header.window_s > 0
            before = [
                one
                for other in changes
                for one in other.begun
                if (one.name, one.tenant, one.end_s) == (item.name, item.tenant, item.begin_s)
            ]
            if before and before[0].served and before[0].served[-1][1] == item.begin_s:  # it was served there, and is
                assert item.served[0][0] == item.begin_s
                n_shared += 1
    assert n_shared > 0


def test_what_a_log_of_changing_pools_says_adds_up(repartitioned: ReadLog) -> None:
    for own in accounts(repartitioned).values():
        total = own.goodput + own.wrong_old + own.wrong_new + own.capacity + own.reconfiguration + own.queueing
        np.testing.assert_allclose(total, own.arrivals)
    found = list(RunCheck(repartitioned, *assembled(THREE | {"windows": 4})).plans())
    assert [item.reason for item in found] == [""] * 4
    assert [item.verification.violations for item in found if item.verification] == [()] * 4


def test_changing_pools_are_taken_up_as_the_log_has_them(tmp_path: Path) -> None:
    policy = Settled(partitions=PARTITIONS)
    changes = THREE | {"windows": 4}
    whole = begun(tmp_path / "run", policy, changes=changes)
    for cut in [*cuts(whole)][5::40]:
        (tmp_path / "run" / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(tmp_path / "run", policy)) == same(whole)
