"""A GPU that is lost, reset, out of MIG mode or silent under a run: nothing counts then, and all of it is told.

The GPU is the stand-in's, on its virtual clock; requests and workers are simulated, as ``run --gpu nvml`` has them.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from executor.clock import WallClock
from executor.errors import GpuError
from executor.journal import Journal
from executor.nvml import NvmlGpu
from executor.sim import SimGpu
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.accounts import QueueAccounts
from migrator.execution.applier import Applier, Backend
from migrator.execution.loop import Loop
from migrator.execution.parts import parts_on_instances
from migrator.execution.real import RealGpu
from migrator.execution.requests import SimulatedQueues
from migrator.execution.simulated import SimWorkers
from migrator.execution.watch import NoAnswerError
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.changes import INFERENCE, Tenure, changes_in
from migrator.log.report import Report, report_of
from migrator.log.runlog import ReadLog, RunLog, read_log
from planner.policies.ours import Migrator
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_applier import tenant
from tests.migrator.views.pages import check_page
from tests.standin.cards import A100_80
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import (
    CREATE_CI,
    CREATE_GI,
    DESTROY_CI,
    DESTROY_GI,
    IN_USE,
    READ,
    UNKNOWN,
    DriverClock,
    StandIn,
)

N_HISTORIES = int(os.environ.get("MIGRATOR_HISTORIES", "16"))

WINDOW_S, N_WINDOWS, SILENT_S = 30, 2, 12

RUN: dict[str, Any] = {
    "gpu.backend": "nvml",
    "gpu.silent_s": SILENT_S,
    "window_s": WINDOW_S,
    "windows": N_WINDOWS,
    "tenants.0.retraining.samples": 300,
    "tenants.1.retraining": {"samples": 60},
    "tenants.1.accuracy": {"before": 0.5, "after": 0.8},
    "planner.max_schedules": 4,
}


@dataclass(frozen=True)
class Fault:
    """Something that happens to the GPU at a second of the run, and is over ``lasts_s`` later."""

    at_s: float
    kind: str
    lasts_s: float = inf

    def strike(self, standin: StandIn) -> None:
        match self.kind:
            case "mig off":
                standin.turn_mig_mode(on=False)
            case "lost" | "lost and reset":
                standin.lose()
            case "silent":
                standin.fail(READ, UNKNOWN, per_mille=1000)
            case "reset":
                standin.reset()
            case "reset, untold":
                standin.reset(is_told=False)
            case "refusals":
                for op in (CREATE_GI, CREATE_CI, DESTROY_CI, DESTROY_GI):
                    standin.fail(op, UNKNOWN, per_mille=200)
                standin.fail(DESTROY_CI, IN_USE, per_mille=300)

    def end(self, standin: StandIn) -> None:
        match self.kind:
            case "mig off":
                standin.turn_mig_mode(on=True)
            case "lost":
                standin.find()
            case "lost and reset":
                standin.reset()
            case "silent" | "refusals":
                standin.heal()

    @property
    def takes_instances(self) -> bool:
        return self.kind in ("mig off", "lost and reset", "reset", "reset, untold")


class FaultyClock(DriverClock):
    """The stand-in's clock, on which faults strike and end at their second; it keeps what stood from when on."""

    def __init__(self, standin: StandIn, start_s: float, faults: Sequence[Fault]) -> None:
        super().__init__(standin, start_s)
        self.standin = standin
        todo = [(fault.at_s, partial(self.strike, fault)) for fault in faults]
        todo += [(fault.at_s + fault.lasts_s, fault.end) for fault in faults if fault.lasts_s < inf]
        self.todo: list[tuple[float, Callable[[StandIn], None]]] = sorted(todo, key=lambda item: item[0])
        self.struck_s: list[tuple[Fault, float]] = []
        self.stood: list[tuple[float, frozenset[tuple[str, str]]]] = []
        self.look()

    def strike(self, fault: Fault, standin: StandIn) -> None:
        self.struck_s.append((fault, self.now_s))  # later than it was to, where a driver call was in progress
        fault.strike(standin)

    def look(self) -> None:
        standing = () if self.standin.state.gpus[0].lost else self.standin.standing()
        now = frozenset((f"{one.profile}@{one.start}", uuid) for one in standing for uuid in one.uuids)
        if not self.stood or now != self.stood[-1][1]:
            self.stood.append((self.now_s, now))

    def sleep_until(self, time_s: float) -> None:
        self.look()
        while self.todo and self.todo[0][0] <= max(time_s, self.now_s):
            at_s, happen = self.todo.pop(0)
            super().sleep_until(at_s)
            happen(self.standin)
            self.look()
        super().sleep_until(time_s)

    wait = sleep_until

    def stands(self, placement: str, from_s: float, to_s: float) -> bool:
        """Whether one and the same instance stood there all the time."""
        times = [at_s for at_s, _ in self.stood]
        first = max((n for n, at_s in enumerate(times) if at_s <= from_s), default=0)
        seen = [own for n, (at_s, own) in enumerate(self.stood) if n >= first and at_s < to_s]
        return any(place == placement and all((place, uuid) in own for own in seen) for place, uuid in seen[0])


@dataclass
class History:
    """A run that is over, and what really happened under it."""

    log: ReadLog
    clock: FaultyClock
    error: NoAnswerError | None

    @property
    def report(self) -> Report:
        return report_of(self.log)

    @property
    def serving(self) -> Iterator[tuple[Tenure, float, float]]:
        for change in changes_in(self.log):
            for one in change.started:
                for from_s, to_s in one.served if one.task == INFERENCE else ():
                    yield one, from_s, min(to_s, self.clock.now_s)

    @property
    def counted(self) -> Iterator[tuple[str, int]]:
        """By tenant the seconds in which an answer in time was counted."""
        for window, record in self.log.settled.items():
            for name, counts in record.tenants.items():
                yield from ((name, window * WINDOW_S + s) for s, n in enumerate(counts.in_time) if n)

    def check(self) -> None:
        claims = list(self.serving)
        for name, second in self.counted:
            for one, from_s, to_s in claims:
                span = max(from_s, second), min(to_s, second + 1)
                if one.tenant == name and span[0] < span[1]:
                    assert self.clock.stands(one.placement, *span), f"second {second} of {name} at {one.name}"
        self.check_that_all_is_told(claims)
        ending = self.report.ending, self.report.reason
        assert ending == (("finished", None) if self.error is None else ("interrupted", str(self.error)))
        self.check_that_what_was_learned_was_learned()

    def check_that_what_was_learned_was_learned(self) -> None:
        """Its instance stood while it trained; that it has ended counts from when that was known."""
        instances = {one.name: one for change in changes_in(self.log) for one in change.started}
        takes_s = {one.name: one.retraining_s for one in self.log.header.tenants}
        for record in self.log.of(recorded.Finished):
            one = instances[record.instance]
            assert one.ready is not None
            ready_s = one.ready.ready_s
            done_s = ready_s + takes_s[one.tenant][one.profile]
            assert done_s <= record.finish_s + 1e-3  # logged to a ten-thousandth
            assert self.clock.stands(one.placement, ready_s, done_s), one.name

    def check_that_all_is_told(self, claims: Sequence[tuple[Tenure, float, float]]) -> None:
        """Whatever was lost while it was in use, or kept silent for longer than from one question to the next."""
        ends_s = self.log.entries[-1].at_s
        told = [(seen.from_s, inf if seen.to_s is None else seen.to_s) for seen in self.report.blind]
        told += [(self.error.blind.from_s, inf)] if self.error is not None else []
        for fault, struck_s in self.clock.struck_s:
            was_in_use = any(from_s < struck_s < to_s for _, from_s, to_s in claims)
            is_long = fault.kind in ("lost", "silent") and fault.lasts_s - (struck_s - fault.at_s) > 2.5
            if ((fault.takes_instances and was_in_use) or is_long) and 0 < struck_s < ends_s - 2:
                assert any(from_s <= struck_s <= to_s for from_s, to_s in told), (fault, told)


def ran(standin: StandIn, folder: Path, faults: Sequence[Fault], queues: SimulatedQueues | None = None) -> History:
    setting, traffic = assemble(validate_config(changed(SMALL, RUN), "small"), "small")
    made: list[FaultyClock] = []

    def clock(start_s: float) -> FaultyClock:
        made.append(FaultyClock(standin, start_s, faults if not made else ()))
        return made[-1]

    error = None
    with NvmlGpu() as gpu, Journal(folder / "journal") as journal:
        real = RealGpu(gpu, journal, clock, SILENT_S)
        with RunLog(folder / "run", config_yaml(setting.config)) as log:
            try:
                tenants, window_s = setting.tenants, setting.config.window_s
                accounts = None if queues is None else QueueAccounts(traffic, tenants, window_s, queues)
                parts = parts_on_instances(setting, traffic, Migrator(), real.backend(setting), accounts=accounts)
                Loop(setting, parts).carry_out(log)
            except NoAnswerError as caught:
                error = caught
    return History(read_log(folder / "run"), made[0], error)


def faults() -> st.SearchStrategy[list[Fault]]:
    moments = st.floats(-3.0, WINDOW_S * N_WINDOWS).map(lambda at_s: round(at_s, 2))
    lasts = st.floats(2.6, 2 * SILENT_S).map(lambda s: round(s, 2))
    kinds = st.sampled_from(["mig off", "lost", "lost and reset", "silent", "reset", "reset, untold", "refusals"])
    return st.lists(st.builds(Fault, moments, kinds, lasts), min_size=1, max_size=4)


def test_whatever_befalls_the_gpu_no_second_counts_that_had_no_instance_and_every_loss_is_told(
    make_standin: MakeStandIn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(
        max_examples=N_HISTORIES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # four faults at most are readable as they are, and a run takes a while
        suppress_health_check=list(HealthCheck),
    )
    @given(faults())
    def holds(history: list[Fault]) -> None:
        standin = make_standin(A100_80)
        try:
            ran(standin, tmp_path_factory.mktemp("history"), history).check()
        finally:
            with suppress(GpuError):
                standin.close()

    holds()


@pytest.fixture
def befallen(make_standin: MakeStandIn, monkeypatch: pytest.MonkeyPatch) -> Callable[..., StandIn]:
    """Lets faults befall the GPU of the next run; its clock is the stand-in's."""
    standin = make_standin(A100_80)

    def befall(*faults: Fault) -> StandIn:
        todo = [faults]  # of the run's clock alone, which is the first that does not begin at 0

        def clock(start_s: float = 0.0) -> FaultyClock:
            return FaultyClock(standin, start_s, todo.pop() if start_s and todo else ())

        monkeypatch.setattr("migrator.execution.real.WallClock", clock)
        return standin

    return befall


def test_a_run_whose_gpu_leaves_mig_mode_ends_within_two_seconds_says_why_and_can_be_resumed(
    call, write_config, befallen, tmp_path: Path
) -> None:
    standin = befallen(Fault(5.0, "mig off"))
    where = ("--state", tmp_path / "state")
    code, _, err = call("run", write_config(RUN), *where, "--out", "run")
    said = " ".join(err.split())
    assert code == 4
    assert "error: GPU 0 (NVIDIA A100-SXM4-80GB) is not in MIG mode; as root: nvidia-smi -i 0 -mig 1" in said
    assert f"run --resume run --state {tmp_path / 'state'} goes on" in said
    assert "not taken away" not in said
    *_, last = read_log(Path("run")).entries_of(recorded.Interrupted)
    assert (last.at_s <= 7.0, last.record.blind_from_s <= 5.0) == (True, True)
    report = json.loads(call("report", "run", "--json")[1])
    assert (report["ending"], report["total"]) == ("interrupted", None)
    assert "is not in MIG mode" in report["reason"]
    befallen()
    standin.turn_mig_mode(on=True)
    assert call("run", "--resume", "run", *where)[0] == 0
    assert [window.is_void for window in report_of(read_log(Path("run"))).windows] == [True, False]
    check_page(read_log(Path("run")))


def test_a_gpu_that_is_lost_for_ten_seconds_leaves_its_trace_and_its_seconds_are_in_no_total(
    call, write_config, befallen, tmp_path: Path
) -> None:
    befallen(Fault(9.5, "lost", 10.0))
    code, out, err = call("run", write_config(RUN), "--state", tmp_path / "state", "--out", "run")
    assert code == 0
    log = read_log(Path("run"))
    report = report_of(log)
    (others,) = log.of(recorded.Others)
    assert len(others.gone) >= 2  # whatever computed on a GPU that was lost is dead, though its instances stand
    began, ended = log.of(recorded.Blind)
    assert (began.to_s, log.entries_of(recorded.Blind)[0].at_s <= 11.5) == (None, True)
    assert 8.0 <= ended.from_s <= 9.5
    assert 19.5 <= ended.to_s <= 21.5
    check_page(log)
    ((first, end),) = log.settled[0].blind
    for counts in log.settled[0].tenants.values():
        assert sum(counts.arrivals[first:end]) == 0 < min(sum(counts.arrivals[:first]), counts.arrivals[-1])
    assert report.windows[0].blind_s == report.blind_s == end - first
    assert f"blind: {end - first} s are in no figure" in " ".join(out.split())
    assert "blind: from second" in " ".join(err.split())
    found = json.loads(call("report", "run", "--json")[1])
    assert (found["blind_s"], found["windows"][0]["blind_s"], "blind_s" in found["windows"][1]) == (
        end - first,
        end - first,
        False,
    )
    assert [one["to_s"] for one in found["blind"]] == [ended.to_s]


def test_a_run_with_blind_seconds_is_not_held_against_a_simulation(call, write_config, befallen, tmp_path) -> None:
    befallen(Fault(9.5, "lost", 5.0))
    where = ("--state", tmp_path / "state", "--out", "run")
    code, out, err = call("run", write_config(RUN), *where, "--against", "static")
    assert code == 0
    assert "not held against static" in " ".join(err.split())
    assert "best fixed layout" not in out


WEIGHTS = {"vision": 1.0, "language": 1.0}


class RealQueues(SimulatedQueues):
    """Stand for queues of requests that really are answered, or not."""

    are_real = True


def test_what_became_of_real_requests_counts_whatever_the_driver_says(make_standin: MakeStandIn, tmp_path) -> None:
    folders = [tmp_path / name for name in ("sound", "lost")]
    for folder in folders:
        folder.mkdir()
    sound = ran(make_standin(A100_80), folders[0], (), RealQueues(WEIGHTS, jitter=None)).report
    lost = ran(
        make_standin(A100_80),
        folders[1],
        [Fault(9.5, "lost", 10.0)],
        RealQueues(WEIGHTS, jitter=None),
    ).report
    assert len(lost.blind) == 1
    assert lost.blind_s == 0
    assert (sound.total, lost.total) != (None, None)
    assert lost.total.requests.arrivals == sound.total.requests.arrivals


class HangingGpu(SimGpu):
    """A GPU whose driver does not come back from a question once it hangs."""

    def __init__(self, clock: WallClock) -> None:
        super().__init__(gpu_model("a100-80gb"), clock)
        self.hangs, self.may_go_on = False, threading.Event()

    def check(self) -> None:
        if self.hangs:
            self.may_go_on.wait()


def test_a_driver_that_hangs_is_told_then_given_up_and_nobody_waits_for_it() -> None:
    clock, tenants, ended = WallClock(rate=200), {"a": tenant("a")}, []
    gpu = HangingGpu(clock)
    workers = SimWorkers(None, clock, tenants, 0, 60.0)
    applier = Applier(Backend(gpu, clock, workers, end=ended.append, silent_s=SILENT_S), tenants, clock.now_s)
    gpu.hangs = True
    told = []

    def watch_on() -> None:
        while True:
            sight = applier.look()
            told.extend([] if sight is None else [sight.blind])
            clock.wait(clock.now_s + 1)

    with pytest.raises(NoAnswerError, match="has not answered for"):
        watch_on()
    assert [(blind.to_s, blind.reason) for blind in told] == [(None, "the driver has not answered for 10 s")]
    assert applier.is_busy
    applier.close()
    assert ended == [False]
    gpu.may_go_on.set()
