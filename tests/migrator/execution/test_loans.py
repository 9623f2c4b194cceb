"""Runs whose layout is made once, and whose retrainings have instances on loans."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from executor.clock import VirtualClock
from executor.gpu import GpuInstance
from migrator.config.reading import config_yaml, validate_config
from migrator.execution import requests as queues
from migrator.execution.applier import Backend
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Failed, Finished, Happening, Ready
from migrator.execution.loop import Loop, log_of
from migrator.execution.posing import tenants_that_run
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.execution.tenancies import Tenancy
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records
from migrator.log.account import accounts
from migrator.log.changes import RETRAINING, changes_in
from migrator.log.figures import RunFigures
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, bytes_of_log, log_in
from migrator.log.timeline import ON_LOAN, held
from migrator.views.ending import print_full
from migrator.views.summary import print_summary
from planner.policies.registry import policy_of
from planner.problem import Owner, Task
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import begun, cuts, same, taken_up
from tests.migrator.execution.test_faults import ResettingGpu
from tests.migrator.execution.test_seams import FaultyWorkers
from tests.migrator.views.pages import data_in, page
from tests.seeds import examples
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.pool import advance as advance_pool

LAYOUT = ["2g.20gb", "2g.20gb", "3g.40gb"]
LENT: dict[str, Any] = {
    "window_s": 40,
    "sharing": {"pools": "auto"},
    "planner.layout": LAYOUT,
    "tenants.0.retraining.samples": 600,
    "tenants.1.retraining": {"samples": 60},
    "tenants.1.accuracy": {"before": 0.5, "after": 0.8},
}
THIRD = {**SMALL["tenants"][0], "name": "third", "arrivals": {"rate_rps": 30}, "retraining": {"samples": 300}}
Fault = Callable[[Owner, int, list[Happening]], list[Happening]]


def as_it_is(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    del owner, number
    return own


@dataclass
class Watched:
    """What computed when: batches by lane, and trainings by the GPU instance that they had."""

    lanes: dict[str, int] = field(default_factory=dict)
    batches: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    trainings: list[tuple[int, float, float]] = field(default_factory=list)
    died_s: dict[str, list[float]] = field(default_factory=dict)

    def advance(self, *parts: Any, **named: Any) -> Any:
        state, piece = advance_pool(*parts, **named)
        ranked = sorted(lane.lane_id for lane in parts[2])
        own = piece.batches
        for rank, begin_s, end_s in zip(own.rank, own.begin_s, own.end_s, strict=True):
            self.batches.setdefault(ranked[int(rank)], []).append((float(begin_s), float(end_s)))
        return state, piece

    def overlaps(self) -> list[object]:
        """What computed in one instance at once."""
        spans: dict[int, list[tuple[float, float]]] = {}
        for lane, own in self.batches.items():
            deaths_s = self.died_s.get(lane, [])
            ended = ((a, min([b, *(at_s for at_s in deaths_s if a <= at_s)])) for a, b in own)
            spans.setdefault(self.lanes[lane], []).extend(ended)
        for gi_id, *span_s in self.trainings:
            spans.setdefault(gi_id, []).append((span_s[0], span_s[1]))
        found: list[object] = []
        for gi_id, every in spans.items():
            last_s = -math.inf
            for begin_s, end_s in sorted(every):
                if begin_s < last_s - 1e-9:
                    found.append((gi_id, begin_s, last_s))
                last_s = max(last_s, end_s)
        own = sorted(span_s for _, *span_s in self.trainings)
        return found + [both for both in pairwise(own) if both[1][0] < both[0][1] - 1e-9]


class WatchedWorkers(FaultyWorkers):
    """Workers whose trainings are noted: from when they are let go until they end, however that is."""

    def __init__(self, watched: Watched, *parts: Any, fault: Fault) -> None:
        super().__init__(*parts, fault=fault)
        self._watched, self._training = watched, dict[str, tuple[int, float]]()
        self._gi_ids = dict[str, int]()

    def start(
        self,
        instance_id: str,
        instance: GpuInstance,
        owner: Owner,
        n_at_once: int,
        training: Training = FULLY,
        joint: OperatingPoint | None = None,
    ) -> None:
        super().start(instance_id, instance, owner, n_at_once, training, joint)
        self._gi_ids[instance_id] = instance.gi_id
        if owner.task is Task.INFERENCE:
            self._watched.lanes[instance_id] = instance.gi_id

    def hold(self, instance_id: str, for_s: float) -> None:
        super().hold(instance_id, for_s)
        assert for_s >= 0
        self._training[instance_id] = self._gi_ids[instance_id], self._clock.now_s + for_s

    def happenings(self, until_s: float) -> Sequence[Happening]:
        found = super().happenings(until_s)
        for one in found:
            if isinstance(one, Failed):
                self._watched.died_s.setdefault(one.instance_id, []).append(one.at_s)
        return found

    def stop(self, instance_id: str, tenant: str) -> Failed | None:
        if instance_id in self._training:
            gi_id, begin_s = self._training.pop(instance_id)
            self._watched.trainings.append((gi_id, begin_s, max(begin_s, self._clock.now_s)))
        return super().stop(instance_id, tenant)


def assembled(changes: Mapping[str, Any]) -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, LENT | dict(changes)), "small"), "small")


def ran(
    changes: Mapping[str, Any] = MappingProxyType({}),
    fault: Fault = as_it_is,
    *,
    watched: Watched | None = None,
    resets_s: float = math.inf,
    coming: Mapping[float, Mapping[str, Any]] = MappingProxyType({}),
) -> ReadLog:
    setting, traffic = assembled(changes)
    noted = watched or Watched()

    def opened(start_s: float) -> Backend:
        clock = VirtualClock(start_s)
        gpu = ResettingGpu(setting.gpu, clock, seed=1)
        gpu.reset_s = resets_s
        parts = gpu, clock, tenants_that_run(setting), 0, setting.config.window_s
        workers = WatchedWorkers(noted, *parts, fault=fault)
        return Backend(gpu, clock, workers)

    parts = simulated_parts(setting, traffic, backend=opened)
    tenancies = (Tenancy(at_s, *assembled({**changes, **other})) for at_s, other in coming.items())
    loop = Loop(setting, replace(parts, coming=deque(tenancies)))
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        patched.setattr(queues, "advance_pool", noted.advance)
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            loop.carry_out(log)
        return log_in(bytes_of_log(Path(folder) / "run"), Path(folder) / "run")


@cache
def plain() -> ReadLog:
    return ran()


def test_the_layout_is_made_once_and_each_retraining_has_an_instance_of_it() -> None:
    log = plain()
    intents = [entry.record for entry in log.entries_of(records.Intent) if entry.at_s >= 0]
    loans = [loan for change in log.of(records.Change) for loan in change.loans]
    assert (intents, [one.call for one in log.of(records.Intent)]) == ([], ["create"] * 3)
    assert {(loan.task, loan.members) for loan in loans} == {(RETRAINING, ("vision",)), (RETRAINING, ("language",))}
    assert len(loans) == len(log.of(records.Finished)) == 4
    assert {one.instance for one in log.of(records.Finished)} == {loan.instance for loan in loans}
    assert not any(change.stopped for change in log.of(records.Change))


def test_plans_with_loans_are_checked() -> None:
    found = list(RunCheck(plain(), *assembled({})).plans())
    assert [item.reason for item in found] == [""] * 2
    assert [item.verification.violations for item in found if item.verification] == [()] * 2


def test_what_is_lent_serves_nobody_in_any_figure() -> None:
    log = plain()
    loan = next(one for change in changes_in(log) for one in change.loans)
    (host, *_) = [one for one in changes_in(log)[0].started if one.placement == loan.placement]
    (from_s, to_s), finished = loan.served[0], {one.instance: one.finish_s for one in log.of(records.Finished)}
    assert to_s == finished[loan.name] == loan.end_s
    assert not [span for span in host.served if span[0] < to_s and from_s < span[1]]
    assert any(span[1] == from_s for span in host.served)
    assert any(span[0] == to_s for span in host.served)
    assert accounts(log).keys() == {"vision", "language"}
    spans = [one for one in held(log) if one.what == loan.placement and one.begin_s < to_s and from_s < one.end_s]
    assert {(one.tenant, one.phase) for one in spans} == {(loan.tenant, ON_LOAN)}
    assert {one.phase for one in held(log)} == {"serving", ON_LOAN}
    total = report_of(log).total
    assert total is not None
    assert (total.retrainings, total.reconfigurations, total.capacity_lost_s) == (4, 0, 0)


def test_a_loan_is_hatched_and_changes_no_layout_in_a_report_and_on_a_page() -> None:
    log, out = plain(), Console(file=StringIO(), width=11 + 120)
    print_full(log, report_of(log), None, out)
    print_summary(log, report_of(log), None, (), out)
    assert isinstance(out.file, StringIO)
    text = out.file.getvalue()
    assert re.search(r"slice 4 .*╱", text)
    assert re.search(r"slice 0 .*l", text)
    assert "· idle, ╱ lent" in text
    assert "instances made or destroyed after the first layout: none" in text
    (shown,) = re.findall(r"layout +w0 (\S+)", text)
    assert len(shown.replace("│", "")) == 8
    bars = data_in(page(log))["time"]["data"]
    assert {one["marker"]["pattern"]["shape"] for one in bars if one["name"].endswith(ON_LOAN)} == {"\\"}


def test_a_loan_is_no_change_in_metrics() -> None:
    figures = RunFigures()
    for entry in plain().entries:
        figures.take(entry)
    assert figures.n_changes == 1


def is_slow(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    """The first retraining takes 42 s longer."""
    if owner.task is Task.INFERENCE or number > 7:
        return own
    return [replace(one, at_s=one.at_s + 42.0) if isinstance(one, Finished) else one for one in own]


def test_a_late_loan_goes_on_into_the_next_window_whose_plan_knows_of_it() -> None:
    log = ran({"windows": 3}, is_slow)
    first, second, _ = log.of(records.WindowStarted)
    late = log.of(records.Finished)[0]
    assert late.window == 0
    assert 40 < late.finish_s < 80
    assert first.initial is None
    assert second.initial is not None
    ((placement, tenant, end_step, lent_from),) = second.initial["loans"]
    assert (placement, tenant, lent_from) == (late.instance.partition("#")[0], late.tenant, 0)
    assert end_step >= 1
    begun_s = [entry.at_s for entry in log.entries_of(records.Change) if entry.record.loans]
    assert all(at_s >= late.finish_s for at_s in begun_s[1:])
    found = list(RunCheck(log, *assembled({"windows": 3})).plans())
    assert [item.reason for item in found] == [""] * len(found)
    assert not any(item.verification.violations for item in found if item.verification)


def dies(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
    """The first retraining dies after two seconds of training."""
    if owner.task is Task.INFERENCE or number > 7:
        return own
    return [own[0], Failed(own[0].at_s + 2.0, own[0].instance_id, "killed")]


def test_a_failed_retraining_gives_its_instance_back_at_once_and_is_begun_again() -> None:
    log = ran({"planner.replan_every_s": 10}, dies)
    (died,) = log.of(records.Failed)
    placement = died.instance.partition("#")[0]
    served = [one.served for one in changes_in(log)[0].started if one.placement == placement]
    assert all(any(span[0] == died.failed_s for span in own) for own in served)
    again = [loan for change in log.of(records.Change) for loan in change.loans if loan.tenant == died.tenant]
    assert again[1].begin_s > died.failed_s
    assert any((one.tenant, one.window) == (died.tenant, 0) for one in log.of(records.Finished))


def test_a_retraining_that_never_ends_is_given_up_and_its_instance_serves_on() -> None:
    def hangs(owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        return own if owner.task is Task.INFERENCE or number > 7 else own[:1]

    log = ran({"windows": 4}, hangs)
    (given_up,) = log.of(records.Failed)
    assert given_up.failed_s == 80.0
    host = next(one for one in changes_in(log)[0].started if one.placement == given_up.instance.partition("#")[0])
    assert any(span[0] == 80.0 for span in host.served)
    assert {one.window for one in log.of(records.Finished)} >= {2, 3}


def test_a_loan_ends_with_its_instance() -> None:
    log = ran(resets_s=4.5)
    (lost, *_) = log.of(records.Others)
    assert len(lost.gone) == 3
    assert [one.task for one in log.of(records.Failed)].count(RETRAINING) == 1
    assert {item.placement for change in log.of(records.Change)[1:] for item in change.started} == {
        "2g.20gb@0",
        "2g.20gb@2",
        "3g.40gb@4",
    }


def test_a_trainer_s_start_does_not_wait_for_the_driver() -> None:
    started = plain().of(records.WindowStarted)[0]
    assert started.warm_up is not None
    assert started.plan is not None
    assert started.plan.lifetimes is not None
    loans = [item for item in started.plan.lifetimes if item.get("lent")]
    starts = started.warm_up.training_start_s
    assert [one["serve_step"] - one["create_step"] for one in loans] == [
        math.ceil(starts[one["tenant"]]) for one in loans
    ]


def test_a_run_with_loans_is_taken_up_wherever_it_was_cut(tmp_path: Path) -> None:
    folder, policy = tmp_path / "run", policy_of("migrator")
    whole = begun(folder, policy, changes={**LENT, "window_s": 20})
    for cut in [*cuts(whole)][5::61]:
        (folder / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(folder, policy)) == same(whole)


def test_one_tenant_alone_retrains_in_what_it_goes_on_holding() -> None:
    config = changed(SMALL, {**LENT, "tenants.0.arrivals": {"rate_rps": 200}})
    config["tenants"] = config["tenants"][:1]
    setting, traffic = assemble(validate_config(config, "small"), "small")
    log = log_of(Loop(setting, simulated_parts(setting, traffic)), setting.config)
    assert [one.tenant for one in log.of(records.Finished)] == ["vision"] * 2
    assert sum(len(change.loans) for change in log.of(records.Change)) == 2


@pytest.mark.parametrize("goes_s", [3.0, 12.0, 38.0])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_tenant_that_goes_ends_its_loan_and_the_others_serve_and_learn_on(gone: int, goes_s: float) -> None:
    three = [*changed(SMALL, LENT)["tenants"], THIRD]
    stays = [one for one in three if one is not three[gone]]
    watched = Watched()
    log = ran({"tenants": three}, watched=watched, coming={goes_s: {"tenants": stays}})
    assert watched.overlaps() == []
    name = three[gone]["name"]
    assert not [one for one in log.entries_of(records.Finished) if one.record.tenant == name and one.at_s > goes_s]
    loans = [(entry.at_s, loan) for entry in log.entries_of(records.Change) for loan in entry.record.loans]
    assert not [loan for at_s, loan in loans if loan.tenant == name and at_s > goes_s]
    assert {one.tenant for one in log.of(records.Finished) if one.window == 1} == {one["name"] for one in stays}


MOMENTS = st.floats(0.5, 70.0)


@dataclass(frozen=True)
class Drawn:
    """How the starts of a run go: by their number, later, longer, or dead after so many seconds."""

    slower: Sequence[float]
    dying: Mapping[int, float]

    def __call__(self, owner: Owner, number: int, own: list[Happening]) -> list[Happening]:
        longer_s = self.slower[number % len(self.slower)]
        found = [replace(one, at_s=one.at_s + longer_s) if isinstance(one, Finished) else one for one in own]
        if owner.task is Task.INFERENCE:
            found = [replace(one, at_s=one.at_s + longer_s / 20) if isinstance(one, Ready) else one for one in found]
        if number in self.dying:
            died_s = own[0].at_s + self.dying[number]
            found = [one for one in found if one.at_s < died_s]
            found.append(Failed(died_s, own[0].instance_id, "killed"))
        return found


@settings(max_examples=examples(60), deadline=None)
@given(
    slower=st.lists(st.sampled_from([0.0, 0.0, 0.3, 7.7, 45.0]), min_size=1, max_size=5),
    dying=st.dictionaries(st.integers(1, 14), st.floats(0.1, 30.0), max_size=4),
    every_s=st.sampled_from([5, 10, "never"]),
    bias=st.sampled_from([-0.6, -0.2, 0.0, 0.4]),
    resets_s=st.one_of(st.just(math.inf), MOMENTS),
    comes_s=st.one_of(st.none(), st.floats(1.0, 70.0)),
    goes_s=st.one_of(st.none(), st.floats(1.0, 90.0)),
    goes=st.integers(0, 2),
    planning_s=st.sampled_from([0, 3]),
)
def test_nothing_computes_twice_in_one_instance(
    slower: list[float],
    dying: dict[int, float],
    every_s: object,
    bias: float,
    resets_s: float,
    comes_s: float | None,
    goes_s: float | None,
    goes: int,
    planning_s: int,
) -> None:
    changes = {
        "planner.replan_every_s": every_s,
        "planner.planning_s": planning_s,
        "estimates.time_bias": bias,
        "windows": 3,
        "tenants.0.arrivals": {"rate_rps": 900},
    }
    three = [*changed(SMALL, {**LENT, **changes})["tenants"], THIRD]
    coming = {} if comes_s is None else {float(round(comes_s)): {"tenants": three}}
    if goes_s is not None:
        there = three if comes_s is not None and goes_s > comes_s else three[:2]
        coming |= {float(round(goes_s)): {"tenants": [one for one in there if one is not three[goes]]}}
        coming = {at_s: coming[at_s] for at_s in sorted(coming) if at_s <= round(goes_s)}  # who has gone stays away
    watched = Watched()
    log = ran(changes, Drawn(slower, dying), watched=watched, resets_s=resets_s, coming=coming)
    assert watched.overlaps() == []
    assert watched.batches
    for counts in (own for closing in log.of(records.WindowFinished) for own in closing.tenants.values()):
        assert sum(counts.arrivals) == sum(counts.in_time) + sum(counts.late) + sum(counts.dropped)
    if not coming and resets_s == math.inf and not dying:
        found = list(RunCheck(log, *assembled(changes)).plans())
        assert not any(item.verification.violations for item in found if item.verification)
        assert not [item.reason for item in found if item.is_planned and item.reason]
    loans = {loan.instance for change in log.of(records.Change) for loan in change.loans}
    assert {one.instance for one in log.of(records.Finished)} <= loans
