"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

import errno
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.reconcile import decide
from executor.zygote import ZygoteError
from migrator.commands.mig import Manner, mind_other_managers, print_decision, state_folder
from migrator.compare import simulated
from migrator.config import Config, config_yaml, read_config
from migrator.console import escape, output, program, progress, warn, warn_of
from migrator.errors import LiveError, MigratorError
from migrator.extras import lacking
from migrator.log.report import report_of
from migrator.log.runlog import (
    CONFIG_FILE,
    EVENTS_FILE,
    LOST,
    ReadLog,
    RunLog,
    config_sum,
    new_run_log,
    read_log,
    require_unbegun,
)
from migrator.run import events
from migrator.run.loop import Joining, View
from migrator.run.policy_run import PolicyRun
from migrator.run.real import RealGpu, real_gpu
from migrator.run.watch import NoAnswerError
from migrator.setting import Setting, assemble
from migrator.traffic import RecordedTraffic
from migrator.views.ending import print_against, print_layout_over_time
from migrator.views.live import RunView
from migrator.views.report import print_report
from migrator.views.traffic import print_traffic
from planner.policies.policy import AnyPolicy, Policy
from planner.policies.registry import policy_of
from workloads.learning.models import libraries


@dataclass(frozen=True, slots=True)
class OnGpu:
    """On what a run is put: a simulated GPU or a real one, instead of the config's.

    Attributes:
        backend: ``sim``, ``nvml``, ``smi``, ``mps`` or ``cpu``.
        index: Which of the real ones.
        state: The folder of our journals.
        manner: How it is changed.
    """

    backend: str | None = None
    index: int | None = None
    state: Path | None = None
    manner: Manner = field(default_factory=Manner)

    @property
    def assignments(self) -> list[str]:
        """As ``--set`` takes them."""
        given = {"gpu.backend": self.backend, "gpu.index": self.index}
        return [f"{key}={value}" for key, value in given.items() if value is not None]

    @property
    def with_state(self) -> str:
        """What a command that is to find the same journals has at its end: nothing where they are in their place."""
        return "" if self.state is None else f" --state {self.state}"


RUNS = Path("runs")
"""Where runs go unless ``--out`` says otherwise."""


def run_command(
    config_path: Path,
    *,
    windows: int | None,
    seed: int | None,
    out: Path | None,
    policy: str = "migrator",
    against: str | None = None,
    time_limit_s: float | None = None,
    on_gpu: OnGpu | None = None,
    assignments: Sequence[str] = (),
) -> None:
    """Run a config under a policy and print its report; with ``against``, what it won over that policy, too.

    With ``time_limit_s`` each plan is made within that, and the run is not repeatable. ``on_gpu`` says on what, and by
    default it is what the config says.

    Nothing is written before the config is checked and window 0 has a plan; but the processes of a live run write into
    its folder before that plan, and the folder goes again where there is none.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
        MigratorError: There is a time limit, or a real GPU, but the policy makes no plans; a real GPU is to have
            faults; or a live run lacks libraries.
        JournalError: The file of our instances on a real GPU cannot be used.
        GpuError: A real GPU is not there, not as the config has it, or does not answer.
        LiveError: A process that a live run cannot do without is gone.
        ZygoteError: The warm process of a live run is gone.
        WireError: The folder of a live run's processes cannot be used.
    """
    where = on_gpu or OnGpu()
    config = read_config(config_path, [*where.assignments, *assignments], windows=windows, seed=seed)
    chosen = policy_of(policy)
    rival = None if against is None else policy_of(against)
    if time_limit_s is not None and not math.isfinite(time_limit_s):
        raise MigratorError(f"--time-limit is {time_limit_s}; a finite number of seconds is needed")
    if time_limit_s is not None and not isinstance(chosen, Policy):
        raise MigratorError(f"--time-limit goes with policies that plan windows; {chosen.name} decides as it goes")
    refuse_unlike(rival, config)
    if out is not None:
        require_unbegun(out)
    if not where.manner.dry_run:
        require_live(config, str(config_path))
    if config.gpu.backend != "sim" and not isinstance(chosen, Policy):
        raise MigratorError(f"gpu.backend is {config.gpu.backend}; {chosen.name} shares the GPU without MIG instances")
    with gpu_of(config, str(config_path), where) as real:
        setting, traffic = assemble(config, str(config_path), None if real is None else real.gpu.model)
        warn_of(setting.warnings)
        console = progress()
        print_traffic(config, setting, traffic, console)
        resolved = config_yaml(setting.config, out or RUNS / config.name)
        wall = {**events.wall(), "config_sum": config_sum(resolved)}

        def new_log() -> RunLog:
            return new_run_log(RUNS, config.name, resolved) if out is None else RunLog(out, resolved)

        with closing(RunView(setting, console)) as view, telling_what_is_left(real, where), ExitStack() as parts:
            given: dict[str, Any] = {"backend": None if real is None else real.backend(setting)}
            log: RunLog | None = None
            if real is not None and config.is_live and not where.manner.dry_run:
                # Its processes write into the run's folder before the first plan; it goes if there is none.
                log = parts.enter_context(new_log())
                parts.enter_context(gone_if_empty(log))
                given = parts.enter_context(live_parts(real, setting, traffic, log.folder))
            with untouched_if_refused(real):
                run = PolicyRun(setting, traffic, chosen, view, time_limit_s=time_limit_s, **given)
            if where.manner.dry_run:
                standing, ours = ((), lambda _: True) if real is None else (real.gpu.instances(), real.journal.is_ours)
                print_decision(decide(standing, ours, run.first_layout), config.gpu.index)
                return
            log = log or parts.enter_context(new_log())
            folder = log.folder
            with telling_where(folder, where):
                run.carry_out(log, wall)
    print_run(folder, rival, setting, traffic)


def require_live(config: Config, origin: str) -> None:
    """Refuse a live run that lacks libraries, before anything is started.

    Raises:
        MigratorError: Says what to install.
    """
    needed = {"msgpack", "safetensors", "scipy", "torch", "zmq"}
    for entry in config.tenants:
        needed |= {name.partition(".")[0] for name in libraries(entry.model)}
        needed |= {"avalanche"} if entry.learning is not None and entry.learning.trainer == "avalanche" else set()
    needed |= set() if config.front_door is None else {"starlette", "uvicorn"}
    if config.is_live and (lacks := lacking("live", needed)):
        raise MigratorError(f"{origin}: a live run {lacks}")


def refuse_unlike(rival: AnyPolicy | None, config: Config) -> None:
    """Refuse to hold a simulation against a live run.

    Raises:
        MigratorError: They would be compared.
    """
    if rival is not None and config.is_live:
        raise MigratorError(
            "--against simulates the rival with the accuracies that the config assumes, and a live run has its own; "
            "compare with --gpu sim"
        )


def print_run(folder: Path, rival: AnyPolicy | None, setting: Setting, traffic: RecordedTraffic) -> None:
    """Print the report of a finished run; with ``rival``, what it won over that policy on the same requests, too."""
    log_of_run = read_log(folder)
    report = report_of(log_of_run)
    print_report(report, output())
    print_layout_over_time(log_of_run, output())
    _warn_of_slow_plans(log_of_run)
    if rival is not None and report.blind_s:
        warn(f"not held against {rival.name}: {report.blind_s} s of the run are in no figure, unlike a simulation's")
    elif rival is not None:
        with progress().status(f"simulating {escape(rival.name)} on the same requests"):
            log_of_rival = simulated(setting, traffic, rival, View())
        print_against(log_of_run, log_of_rival, output())
    output().print(f"\nThe run is in [bold]{escape(str(folder))}[/]. To look further:")
    here, last = escape(str(folder)), setting.config.windows - 1
    output().print(f"  {escape(program())} report {here} --json", soft_wrap=True)
    output().print(f"  {escape(program())} plan {here}/{CONFIG_FILE} --window {min(1, last)}", soft_wrap=True)


@contextmanager
def gpu_of(config: Config, origin: str, where: OnGpu) -> Iterator[RealGpu | None]:
    """The real GPU that the config asks for, if it asks for one.

    Raises:
        MigratorError: The config asks for faults, which only a simulated one has.
        OtherControllerError: Another controller has it, or another manager of this node would undo its layout.
        JournalError: The file of our instances cannot be used.
        GpuError: It is not there, not as the config has it, or does not answer.
    """
    if config.gpu.backend == "sim":
        yield None
        return
    if config.simulation.has_faults:
        raise MigratorError(f"{origin}: simulation.driver and simulation.others are faults of the simulated GPU alone")
    manner = where.manner
    if config.gpu.backend != "cpu":
        mind_other_managers(may_refuse=not (manner.dry_run or manner.beside_others))
    state = where.state or state_folder()
    with real_gpu(config.gpu, origin, state, adopt=manner.adopt, dry_run=manner.dry_run) as real:
        warn_of(real.journal.untold())
        try:
            yield real
        finally:
            warn_of(real.journal.untold())  # a call of the run's own may have come to something that nobody can prove


@contextmanager
def telling_what_is_left(real: RealGpu | None, where: OnGpu) -> Iterator[None]:
    """Say what of ours the run could not take away from the GPU."""
    try:
        yield
    finally:
        if real is not None and real.left:
            later = f"{program()} gpu clear --index {real.gpu.index}{where.with_state}"
            warn(f"not taken away: {'; '.join(real.left)}; later: {later}")


@contextmanager
def untouched_if_refused(real: RealGpu | None) -> Iterator[None]:
    """While a run is prepared, nothing is made on the GPU: where that fails, nothing is left there."""
    try:
        yield
    except BaseException:
        if real is not None:
            real.left.clear()
        raise


@contextmanager
def live_parts(
    real: RealGpu,
    setting: Setting,
    traffic: RecordedTraffic,
    folder: Path,
    joins: Joining | None = None,
    stands: ReadLog | None = None,
) -> Iterator[dict[str, Any]]:
    """What a live run in ``folder`` hands to :class:`PolicyRun`; see :func:`migrator.run.live.opening.live_run`.

    Raises:
        ConfigError: The config does not go with this GPU; or a model or its data cannot be had.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder of the processes cannot be used.
    """
    from migrator.run.live.opening import live_run  # noqa: PLC0415 - needs an extra

    with live_run(real, setting, traffic, folder, joins, stands) as live:
        yield vars(live)


@contextmanager
def gone_if_empty(log: RunLog) -> Iterator[None]:
    """Remove the run's folder again where the run fails before anything of it is in its log."""
    try:
        yield
    except BaseException:
        if log.is_empty:
            shutil.rmtree(log.folder, ignore_errors=True)
        raise


@contextmanager
def telling_where(folder: Path, where: OnGpu) -> Iterator[None]:
    """Say where the log is and what can be done with it when the run is cut off.

    Raises:
        OSError: The log is not there any more, and that is why.
    """
    try:
        yield
    except (KeyboardInterrupt, OSError, LiveError, ZygoteError, NoAnswerError) as error:
        if (folder / EVENTS_FILE).exists():
            again = f"{program()} run --resume {folder}{where.with_state}"
            warn(f"the log up to here is in {folder}; {program()} report {folder} shows it, {again} goes on")
        elif not isinstance(error, KeyboardInterrupt):  # a process of a live run may miss the folder first
            raise OSError(errno.ENOENT, LOST, str(folder / EVENTS_FILE)) from None
        raise


def _warn_of_slow_plans(log: ReadLog) -> None:
    """Warn if plans took longer than they were charged; the first plan of a run, or of its rest, is charged nothing."""
    if not log.header["simulated"]:
        _warn_of_late_plans(log)
        return
    charged_s = log.header.get("planning_s", 0.0)
    took_s = {event["window"]: event.get("wall", {}).get("solve_s", 0.0) for event in log.of_kind("window_started")}
    ahead = {0, *(event["window"] for event in log.of_kind("resumed"))}  # planned while the run's clock stands still
    slow_s = {window: seconds for window, seconds in took_s.items() if window not in ahead and seconds > charged_s}
    if slow_s:
        slowest = max(slow_s, key=lambda window: slow_s[window])
        plans = "plan took" if len(slow_s) == 1 else "plans took"
        is_real = "backend" in log.header
        what = "they came later than planned" if is_real else "on this machine they would come later than simulated"
        warn(
            f"{len(slow_s)} {plans} longer than the {charged_s:g} s charged (planner.planning_s), up to "
            f"{slow_s[slowest]:.1f} s in window {slowest}: {what}"
        )


def _warn_of_late_plans(log: ReadLog) -> None:
    """Warn if plans of a live run were there later than they were to begin, clerks and all."""
    step_s, late_s = log.header["step_s"], {}
    for record in log.of_kind("window_started"):
        due_s = record["start_s"] + record.get("plan_from_step", 0) * step_s
        if record["at_s"] > due_s:
            late_s[record["window"]] = record["at_s"] - due_s
    if late_s:
        worst = max(late_s, key=lambda window: late_s[window])
        plans = "1 plan was" if len(late_s) == 1 else f"{len(late_s)} plans were"
        warn(
            f"{plans} there later than estimates.delay_s and planner.planning_s say, up to {late_s[worst]:.1f} s in "
            f"window {worst}: what they change before that comes late"
        )
