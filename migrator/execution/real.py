"""A real GPU under a run: its instances are real, whether workers and requests are simulated or those of a live run.

Here, and nowhere else, a run is put on one; :mod:`migrator.execution.live.opening` brings the parts of a live run.
The process that runs it holds the GPU's journal, so that it is the only controller. At the end all that is ours is
taken away. After a crash, the next run or ``migrator gpu`` command finds it in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from executor.clock import Clock, WallClock
from executor.cpu.gpu import CpuGpu
from executor.cuts import CpuCut, MpsCut
from executor.driver import DriverGpu
from executor.errors import GpuError, MigModeOffError, NoGpuError, RetryableGpuError
from executor.gpu import SILENT_S
from executor.journal import Journal, Remembered, file_of, recorded
from executor.mig import Layout, OwnedLayout
from executor.mps import MpsGpu
from executor.opening import open_gpu
from executor.reconcile import Outcome, Reconciler
from migrator.config.sections import GpuConfig
from migrator.execution.applier import Backend
from migrator.execution.happenings import Trained
from migrator.execution.instances import lead_s
from migrator.execution.parts import Joining, Parts, parts_on_instances
from migrator.execution.posing import tenants_that_run
from migrator.execution.seams import Workers
from migrator.execution.simulated import SimWorkers
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log.records import Change, Checkpoint, Finished, Resumed, RolledBack, WindowStarted
from migrator.log.runlog import ReadLog
from planner.policies.policy import Policy
from planner.problem import Owner, Task
from workloads.training import FULL

MAX_SILENCES = 4
"""How often the driver may fail to list instances before the GPU is left as it is at a run's end."""


@dataclass(frozen=True)
class RealGpu:
    """A GPU we may reconfigure; foreign instances stay untouched.

    Attributes:
        gpu: The GPU, by its driver.
        journal: What on it is ours.
        clock: Makes a clock that shows this second.
        silent_s: How long a run waits for a driver that does not answer.
        left: What could not be taken away, and why; from a run's begin to its end, that it may have made something.
        keeps: Whether a run's instances stay at its end.
    """

    gpu: DriverGpu
    journal: Journal
    clock: Callable[[float], Clock]
    silent_s: float = SILENT_S
    left: list[str] = field(default_factory=list)
    keeps: bool = False

    def backend(self, setting: Setting) -> Callable[[float], Backend]:
        """Opens it for a run with simulated workers; see :func:`migrator.execution.parts.parts_on_instances`."""

        def opened(start_s: float) -> Backend:
            config, clock = setting.config, self.clock(start_s)
            workers = SimWorkers(None, clock, tenants_that_run(setting), config.seed, config.window_s)
            return self.under(clock, workers)

        return opened

    def under(
        self,
        clock: Clock,
        workers: Workers,
        begin: Callable[[], object] = lambda: None,
        first: Callable[[], object] = lambda: None,
    ) -> Backend:
        """The GPU under these workers; ``first`` is called before it is cleared at the end."""

        def begun() -> None:
            self.left[:] = ["what the run has made, if anything"]  # until it is cleared
            begin()

        def end(may_be_called: bool) -> None:
            try:
                first()
            finally:
                if self.keeps:
                    self.left.clear()
                elif may_be_called:
                    self.clear()

        return Backend(self.gpu, clock, workers, self.journal, begin=begun, end=end, silent_s=self.silent_s)

    def clear(self) -> None:
        """Take away all that is ours; what would not go, or could not be written down, stands in :attr:`left`."""
        self.left.clear()
        try:
            self.journal.aim(Layout())
            self.left.extend(map(str, self._cleared().undone))
        except MigModeOffError:
            self.journal.settle(())  # nothing is left
        except GpuError as error:
            self.left.append(str(error))
        except OSError as error:
            self.left.append(f"{error.filename}: {error.strerror or error}")
        except KeyboardInterrupt:
            self.left.append("interrupted once more")
            raise

    def _cleared(self) -> Outcome:
        """Its outcome; the driver is asked again where it does not list instances."""
        clock = self.clock(0.0)
        reconciler = Reconciler(self.gpu, self.journal, clock)
        for _ in range(MAX_SILENCES):
            try:
                self.gpu.check()
                return reconciler.apply(Layout())
            except RetryableGpuError as error:
                clock.sleep_until(clock.now_s + error.retry_after_s)
        return reconciler.apply(Layout())


@contextmanager
def real_gpu(
    asked: GpuConfig, origin: str, state: Path, *, adopt: bool = False, dry_run: bool = False, keeps: bool = False
) -> Iterator[RealGpu]:
    """The GPU that a config asks for, with the journal in folder ``state``; ``adopt`` takes over what others made.

    With ``keeps`` a run's instances stay at its end.

    With ``dry_run`` it may be looked at only: nothing is written, and no other controller is kept away.

    Raises:
        NoGpuError: It is not there, or another card than the config is about; ``origin`` names the config.
        OtherControllerError: Another controller has it.
        JournalError: The journal cannot be used.
        GpuError: The driver does not answer.
    """
    assert asked.backend != "sim"
    with _opened(asked, state) as gpu:
        if gpu.model.name != asked.model:
            raise NoGpuError(f"{origin}: gpu.model is {asked.model}; {_what_it_is(gpu)}")
        path = file_of(state, gpu.uuid)
        with Remembered(recorded(path, gpu.boot)) if dry_run else Journal(path, gpu.boot) as journal:
            reconciler = Reconciler(gpu, journal, WallClock())
            reconciler.settle()
            if adopt:
                reconciler.adopt()
            yield RealGpu(gpu, journal, WallClock, asked.silent_s, keeps=keeps)


def _opened(asked: GpuConfig, state: Path) -> DriverGpu:
    """The GPU, or the machine's CPU in its place; by MIG, or by what takes its place.

    Raises:
        NoGpuError: It is not there.
    """
    match asked.backend:
        case "cpu":
            cut = CpuCut.named(asked.model)
            if cut is None:
                raise NoGpuError(f"gpu.model is {asked.model}; backend cpu takes cpu-CORES-in-SLICES, as cpu-1.6-in-7")
            return CpuGpu(cut, state)
        case "mps":
            share = MpsCut.named(asked.model)
            if share is None:
                raise NoGpuError(f"gpu.model is {asked.model}; backend mps takes mps-CARD-in-SLICES, see gpu models")
            return MpsGpu(share, asked.index, state)
        case "nvml" | "smi":
            return open_gpu(asked.backend, asked.index)
        case _:
            raise AssertionError("a simulated GPU is not opened here")


def real_parts(
    real: RealGpu,
    setting: Setting,
    traffic: RecordedTraffic,
    policy: Policy,
    *,
    joins: Joining | None = None,
    time_limit_s: float | None = None,
) -> Parts:
    """The parts of a run with real instances, and simulated workers and requests.

    Raises:
        ConfigError: The policy cannot run on what was measured.
        GpuError: The driver does not list instances.
    """
    backend = real.backend(setting)
    return parts_on_instances(setting, traffic, policy, backend, joins=joins, time_limit_s=time_limit_s)


def joining(stands: ReadLog, setting: Setting) -> Joining:
    """Where the run whose log ``stands`` is joined again: the first window that all instances can be ready for.

    The run's clock stands still while no process runs it.
    """
    return _joining_at(stands, setting, stands.entries[-1].at_s + lead_s(setting))


def rejoining(stands: ReadLog, setting: Setting, wall_s: float) -> Joining:
    """Where the service whose log ``stands`` goes on: at once, with what it held last, until a window is planned.

    Its seconds are those of the wall clock, which shows ``wall_s`` since 1970. Where nothing was held yet, it begins
    with a window, as far ahead of that clock as instances take to be ready.
    """
    config, begun = setting.config, stands.entries[0]
    assert begun.wall.started_at is not None  # a service's own log
    begun_s = datetime.fromisoformat(begun.wall.started_at).timestamp() - begun.at_s
    now_s = max(wall_s - begun_s, stands.entries[-1].at_s)
    ahead_s = lead_s(setting) + config.estimates.delay_s + config.ahead_steps * config.step_s
    joins = _joining_at(stands, setting, now_s + ahead_s)
    changes = stands.of(Change)
    if not changes:
        return joins
    there = {tenant.name for tenant in setting.tenants}
    held = [
        (setting.gpu.placement(placement), Owner(members[0], Task.INFERENCE, tuple(members[1:])))
        for placement, holder, task in changes[-1].layout
        if task == Task.INFERENCE
        and (members := [one for one in ([holder] if isinstance(holder, str) else holder) if one in there])
    ]
    return replace(joins, held=OwnedLayout.of(held), from_s=now_s)


def _joining_at(stands: ReadLog, setting: Setting, ready_s: float) -> Joining:
    """Where the run is joined if all can be ready at this second of it."""
    window_s = setting.config.window_s
    joined = max((joined.window for joined in stands.of(Resumed)), default=0)
    begun = (started.window for started in stands.of(WindowStarted))
    window = max(1 + max(begun, default=-1), joined, stands.first_window)
    window = max(window, math.ceil(ready_s / window_s - 1e-9))
    settled = max(1 + max(stands.settled, default=-1), joined, stands.first_window)
    void = range(settled, min(window, setting.config.windows))
    n_trained = {} if stands.begins is None else stands.begins.n_trained
    joins = Joining(window, tuple(void), trained_in(stands), stands.n_instances, n_trained=n_trained)
    return replace(joins, rolled_back=rolled_back_in(stands))


def rolled_back_in(log: ReadLog) -> dict[str, int]:
    """By tenant that answers with older weights, the newest window in them."""
    found = dict[str, int]()
    for entry in log.entries:
        match entry.record:
            case RolledBack() as back:
                found[back.tenant] = back.learned
            case Finished(rejected=None) as ended:
                found.pop(ended.tenant, None)
            case _:
                pass
    return found


def trained_in(log: ReadLog) -> tuple[Trained, ...]:
    """What the run's models have learned, in order."""
    return tuple(
        Trained(
            at_s=ended.finish_s,
            tenant=ended.tenant,
            window=ended.window,
            instance_id=ended.instance,
            option=ended.option or FULL,
            checkpoint=ended.part if isinstance(ended, Checkpoint) else None,
        )
        for ended in (entry.record for entry in log.entries)
        if isinstance(ended, Finished) and ended.rejected is None
    )


def _what_it_is(gpu: DriverGpu) -> str:
    own = f"GPU {gpu.index} is a {gpu.model.title}"
    return f"{own}: set gpu.model to {gpu.model.name}, or take another GPU with --index"
