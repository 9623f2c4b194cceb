"""A real GPU under a run: its instances are real, whether workers and requests are simulated or those of a live run.

Here, and nowhere else, a run is put on one; :mod:`migrator.execution.live.opening` brings the parts of a live run.
The process that runs it holds the GPU's journal, so that it is the only controller. At the end all that is ours is
taken away. After a crash, the next run or ``migrator gpu`` command finds it in the journal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from executor.clock import Clock, WallClock
from executor.cpu.gpu import CpuGpu
from executor.cuts import CpuCut, MpsCut
from executor.driver import DriverGpu
from executor.errors import GpuError, MigModeOffError, NoGpuError, RetryableGpuError
from executor.gpu import SILENT_S
from executor.journal import Journal, Remembered, file_of, recorded
from executor.mig import Layout
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
from migrator.log.records import Change, Checkpoint, Finished, Resumed, WindowStarted
from migrator.log.runlog import ReadLog
from planner.policies.policy import Policy
from workloads.training import FULL

MAX_SILENCES = 4
"""How often the driver may fail to say what stands before the GPU is left as it is at a run's end."""


@dataclass(frozen=True)
class RealGpu:
    """A GPU that is ours to change, as far as it is not others'.

    Attributes:
        gpu: The GPU, by its driver.
        journal: What on it is ours.
        clock: Makes a clock that shows this second.
        silent_s: How long a run waits for a driver that does not answer.
        left: What could not be taken away, and why; from a run's begin to its end, that it may have made something.
    """

    gpu: DriverGpu
    journal: Journal
    clock: Callable[[float], Clock]
    silent_s: float = SILENT_S
    left: list[str] = field(default_factory=list)

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
                if may_be_called:
                    self.clear()

        return Backend(self.gpu, clock, workers, self.journal, begin=begun, end=end, silent_s=self.silent_s)

    def clear(self) -> None:
        """Take away all that is ours; what would not go, or could not be written down, stands in :attr:`left`."""
        self.left.clear()
        try:
            self.journal.aim(Layout())
            self.left.extend(map(str, self._cleared().undone))
        except MigModeOffError:
            self.journal.settle(())  # nothing stands
        except GpuError as error:
            self.left.append(str(error))
        except OSError as error:
            self.left.append(f"{error.filename}: {error.strerror or error}")
        except KeyboardInterrupt:
            self.left.append("interrupted once more")
            raise

    def _cleared(self) -> Outcome:
        """What came of it; the driver is asked again where it does not say what stands."""
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
    asked: GpuConfig, origin: str, state: Path, *, adopt: bool = False, dry_run: bool = False
) -> Iterator[RealGpu]:
    """The GPU that a config asks for, with the journal in folder ``state``; ``adopt`` takes over what others made.

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
            yield RealGpu(gpu, journal, WallClock, asked.silent_s)


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
        GpuError: The driver does not say what stands.
    """
    backend = real.backend(setting)
    return parts_on_instances(setting, traffic, policy, backend, joins=joins, time_limit_s=time_limit_s)


def joining(stands: ReadLog, setting: Setting) -> Joining:
    """Where the run whose log ``stands`` is joined again: the first window that all instances can be ready for.

    The run's clock stands still while no process runs it.
    """
    window_s = setting.config.window_s
    joined = max((joined.window for joined in stands.of(Resumed)), default=0)
    window = max(1 + max((started.window for started in stands.of(WindowStarted)), default=-1), joined)
    ready_s = stands.entries[-1].at_s + lead_s(setting)
    window = max(window, math.ceil(ready_s / window_s - 1e-9))
    n_started = sum(len(change.started) for change in stands.of(Change))
    void = range(max(1 + max(stands.settled, default=-1), joined), min(window, setting.config.windows))
    return Joining(window, tuple(void), trained_in(stands), n_started)


def trained_in(log: ReadLog) -> tuple[Trained, ...]:
    """What the run's models have learned so far, in order."""
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
        if isinstance(ended, Finished)
    )


def _what_it_is(gpu: DriverGpu) -> str:
    own = f"GPU {gpu.index} is a {gpu.model.title}"
    return f"{own}: set gpu.model to {gpu.model.name}, or take another GPU with --index"
