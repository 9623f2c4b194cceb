"""Changes that take long on a clock that runs by itself: what is logged of them, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from executor.clock import VirtualClock
from executor.errors import DriverError
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.reconcile import Patience
from executor.sim import Faults, SimGpu
from migrator.config.sections import Config
from migrator.execution import applier
from migrator.execution.applier import Backend
from migrator.execution.posing import tenants_that_run
from migrator.execution.simulated import SimWorkers
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.log import records as recorded
from migrator.log.changes import changes_in
from migrator.log.runlog import ReadLog
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_seams import logged


class OwnClock(VirtualClock):
    """A virtual clock that says it runs by itself, so that nobody waits for a change that is in progress."""

    runs_by_itself = True


class BusyGpu(SimGpu):
    """A GPU on which the second instance comes only three seconds before the run, and each refuses to go for 28 s."""

    def __init__(self, setting: Setting, clock: OwnClock) -> None:
        super().__init__(setting.gpu, clock, faults=Faults(in_use_share=1.0, in_use_s=28.0, half_share=0.0))

    def create(self, placement: Placement) -> GpuInstance:
        if self.instances() and self._clock.now_s < -3:
            raise DriverError(f"Unable to create {placement}: Unknown Error", retry_after_s=0.5)
        return super().create(placement)


def busy(setting: Setting) -> Callable[[float], Backend]:
    def opened(start_s: float) -> Backend:
        clock = OwnClock(start_s)
        gpu = BusyGpu(setting, clock)
        workers = SimWorkers(gpu, clock, tenants_that_run(setting), 0, setting.config.window_s)
        return Backend(gpu, clock, workers, patience=Patience(n_attempts=50, factor=1.0))

    return opened


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ReadLog:
    """Of a run in which a worker is ready, and a window ends, while a change is in progress.

    A layout fixed by window gives a retraining's instance back when it ends; ours would serve from it.
    """
    changes = {"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applier, "_DriverThread", applier.Inline)  # threads would race
        setting, traffic = assemble(Config.model_validate(changed(SMALL, changes)), "test")
        folder = tmp_path_factory.mktemp("run") / "log"
        return logged(folder, setting, traffic, policy_of("window"), backend=busy(setting))


def test_who_is_ready_before_a_change_is_over_starts_in_the_log_before(log: ReadLog) -> None:
    (ready,) = (entry for entry in log.entries_of(recorded.Ready) if str(entry.record.instance).endswith("#1"))
    before, after = log.entries_of(recorded.Change)[:2]
    first, second = before.record, after.record
    assert [item.instance for item in first.started] == [ready.record.instance]
    assert before.n < ready.n < after.n
    assert (first.planned_s, first.begin_s) == (second.planned_s, second.begin_s)


def test_a_change_that_outlives_its_window_is_that_windows(log: ReadLog) -> None:
    late = next(one.record for one in log.entries_of(recorded.Change) if one.record.begin_s < 30 < one.at_s)
    assert late.window == 0
    assert [change.is_bring_up for change in changes_in(log) if change.begin_s == late.begin_s] == [False]
