"""Whole runs on GPUs that refuse, that others use, and that lose everything: they end, and little is lost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.errors import InsufficientResourcesError
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.sim import SimGpu
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.applier import Backend
from migrator.execution.loop import Loop
from migrator.execution.posing import tenants_that_run
from migrator.execution.simulated import SimWorkers, simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.report import Figures, report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, log_in, read_log
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import begun, cuts, same, taken_up
from tests.seeds import daily

SIX: dict[str, Any] = {
    "window_s": 40,
    "windows": 6,
    "tenants.0.retraining.samples": 300,
    "tenants.1.retraining": {"samples": 60},
    "tenants.1.accuracy": {"before": 0.5, "after": 0.8},
    "planner.max_schedules": 4,
}
"""Changes of the small config after which six windows take some tenths of a second, with a retraining in each."""

REFUSALS = {"error_share": 0.1, "in_use_share": 0.1, "in_use_s": 5.0}
STUBBORN = {"error_share": 0.5, "in_use_share": 0.5, "in_use_s": 60.0}
OTHERS = [{"placement": "2g.20gb@4", "from_s": 50, "to_s": 130}]

SEEDS = range(1, 3)
EVERY = daily(range(1, 5), SEEDS)


def logged(simulation: dict[str, Any], seed: int, changes: dict[str, Any] | None = None) -> ReadLog:
    """A whole run; reading its log checks that in every second each request is accounted for."""
    data = changed(SMALL, {**SIX, **(changes or {}), "simulation": simulation, "seed": seed})
    setting, traffic = assemble(validate_config(data, "small"), "small")
    with TemporaryDirectory() as folder:
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            Loop(setting, simulated_parts(setting, traffic)).carry_out(log)
        return read_log(Path(folder) / "run")


@cache
def sound(seed: int) -> ReadLog:
    return logged({}, seed)


@cache
def refused(seed: int) -> ReadLog:
    return logged({"driver": REFUSALS}, seed)


@cache
def stubborn(seed: int) -> ReadLog:
    return logged({"driver": STUBBORN, "others": OTHERS}, seed)


def total(log: ReadLog) -> Figures:
    found = report_of(log).total
    assert found is not None
    return found


def goodput_pct(log: ReadLog) -> float:
    return total(log).requests.goodput_pct or 0.0


@pytest.mark.parametrize("seed", EVERY)
@pytest.mark.parametrize("run", [refused, stubborn])
def test_a_run_ends_whatever_is_refused(run: Any, seed: int) -> None:
    log = run(seed)
    assert any(event.error for event in log.of(recorded.Outcome))
    assert (report_of(log).ending, len(log.of(recorded.WindowFinished))) == ("finished", 6)


@pytest.mark.parametrize("seed", EVERY)
@pytest.mark.parametrize("run", [refused, stubborn])
def test_no_request_is_lost_from_the_accounts(run: Any, seed: int) -> None:
    assert total(run(seed)).requests.arrivals == total(sound(seed)).requests.arrivals


@pytest.mark.parametrize("seed", EVERY)
@pytest.mark.parametrize("run", [refused, stubborn])
def test_every_plan_made_among_refusals_keeps_every_rule(run: Any, seed: int) -> None:
    plans = [one.record for one in run(seed).entries if hasattr(one.record, "violations")]
    assert len(plans) >= 6
    assert [plan.violations for plan in plans] == [()] * len(plans)


def test_refused_calls_and_busy_instances_cost_less_than_three_points() -> None:
    losses = [goodput_pct(sound(seed)) - goodput_pct(refused(seed)) for seed in SEEDS]
    assert statistics.median(losses) <= 3


def test_instances_that_will_not_go_are_told_and_planned_around() -> None:
    logs = list(map(stubborn, SEEDS))
    assert any(event.undone for log in logs for event in log.of(recorded.Change))
    assert any(log.of(recorded.PlanRevised) for log in logs)


def test_nothing_of_others_who_come_is_touched_or_overlapped() -> None:
    n_came = 0
    for log in map(stubborn, SEEDS):
        left = [entry.at_s for entry in log.entries_of(recorded.Others) if entry.record.left]
        for entry in log.entries_of(recorded.Others):
            n_came += len(entry.record.came)
            until_s = min((at_s for at_s in left if at_s > entry.at_s), default=float("inf"))
            assert not overlapping(log, entry.record.came, entry.at_s, until_s)
    assert n_came > 0


@pytest.mark.parametrize("seed", EVERY)
def test_nothing_of_others_who_were_there_first_is_overlapped(seed: int) -> None:
    log = logged({"driver": STUBBORN, "others": [{"placement": "2g.20gb@4", "to_s": 130}]}, seed)
    assert not overlapping(log, ["2g.20gb@4"], -float("inf"), 130)
    assert overlapping(log, ["2g.20gb@4"], 130, float("inf"))


def overlapping(log: ReadLog, theirs: Sequence[str], from_s: float, until_s: float) -> list[Placement]:
    """What was made between these moments where others are."""
    place = gpu_model(log.header.gpu).placement
    made = [item for change in log.of(recorded.Change) for item in change.started]
    during = [place(item.placement) for item in made if from_s < item.begin_s < until_s]
    return [item for item in during if any(item.overlaps(place(other)) for other in theirs)]


class ResettingGpu(SimGpu):
    """A GPU that somebody resets, once, as soon as it is asked something after this second of the run."""

    reset_s = 57.0

    def instances(self) -> tuple[GpuInstance, ...]:
        if self._clock.now_s >= self.reset_s:
            self.reset_s = float("inf")
            self.reset()
        return super().instances()


class OutOfOrderGpu(ResettingGpu):
    """A GPU that is reset, and makes no instance for 30 s from then on."""

    reset_s = 43.0
    heals_s = 73.0

    def create(self, placement: Placement) -> GpuInstance:
        if 43 <= self._clock.now_s < self.heals_s:
            raise InsufficientResourcesError(f"no {placement} now")
        return super().create(placement)


@cache
def after_a_reset(gpu_type: type[SimGpu] = ResettingGpu) -> ReadLog:
    setting, traffic = assemble(validate_config(changed(SMALL, SIX | {"windows": 2}), "small"), "small")

    def opened(start_s: float) -> Backend:
        clock = VirtualClock(start_s)
        gpu = gpu_type(setting.gpu, clock)
        return Backend(gpu, clock, SimWorkers(gpu, clock, tenants_that_run(setting), 0, setting.config.window_s))

    with TemporaryDirectory() as folder:
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            Loop(setting, simulated_parts(setting, traffic, backend=opened)).carry_out(log)
        return read_log(Path(folder) / "run")


def test_a_reset_takes_every_instance_and_is_told() -> None:
    (lost, *_) = after_a_reset().entries_of(recorded.Others)
    assert len(lost.record.gone) >= 2
    assert 57 <= lost.at_s <= 62


@pytest.mark.parametrize("tenant", ["vision", "language"])
def test_after_a_reset_every_tenant_serves_again_in_the_same_window(tenant: str) -> None:
    ready_s = [
        event.ready_s
        for event in after_a_reset().of(recorded.Ready)
        if (event.tenant, event.task) == (tenant, "inference")
    ]
    assert any(57 < moment_s < 75 for moment_s in ready_s)
    served = after_a_reset().of(recorded.WindowFinished)[1].tenants[tenant].in_time
    assert sum(served[35:]) > 0


def test_a_reset_costs_no_request_its_place_in_the_accounts() -> None:
    before = total(logged({}, 3, {"windows": 2})).requests.arrivals
    assert total(after_a_reset()).requests.arrivals == before


def test_where_there_is_no_plan_the_log_says_so_and_it_is_asked_for_again() -> None:
    log = after_a_reset(OutOfOrderGpu)
    assert log.of(recorded.NotRevised)
    assert report_of(log).ending == "finished"
    assert any(43 < entry.at_s < 80 and entry.record.started for entry in log.entries_of(recorded.Change))
    assert any(73 < event.ready_s < 80 for event in log.of(recorded.Ready))


CUT = {**SIX, "windows": 3, "simulation": {"driver": STUBBORN, "others": OTHERS}}


@pytest.mark.long
def test_a_run_among_refusals_cut_anywhere_and_resumed_is_the_run_that_was_never_cut(tmp_path: Path) -> None:
    policy = policy_of("migrator")
    whole = begun(tmp_path / "run", policy, changes=CUT)
    assert log_in(whole, tmp_path).of(recorded.PlanRevised)
    for cut in list(cuts(whole))[::58]:
        (tmp_path / "run" / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(tmp_path / "run", policy)) == same(whole)


@pytest.mark.long
def test_ten_more_runs_of_six_windows_end_and_lose_less_than_three_points() -> None:
    seeds = range(101, 111)
    assert {report_of(refused(seed)).ending for seed in seeds} == {"finished"}
    losses = [goodput_pct(sound(seed)) - goodput_pct(refused(seed)) for seed in seeds]
    assert statistics.median(losses) <= 3
