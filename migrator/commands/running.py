"""What a new run and one that is taken up again share: their GPU, their parts, what they tell, their report."""

from __future__ import annotations

import errno
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from executor.mig import GpuModel
from executor.reconcile import decide
from executor.zygote import ZygoteError
from migrator.commands.gpu.changing import print_decision
from migrator.commands.options import RUNS
from migrator.commands.pages import AGAINST, tell
from migrator.commands.where import Manner, mind_other_managers, state_folder
from migrator.comparison.matches import Simulation, prepared
from migrator.config.reading import config_yaml
from migrator.config.sections import Config
from migrator.errors import ConfigError, InfeasibleError, LiveError, MigratorError, StoppedError
from migrator.execution import events
from migrator.execution.loop import Loop, View, Views
from migrator.execution.parts import Joining, Parts
from migrator.execution.real import RealGpu, real_gpu, real_parts
from migrator.execution.simulated import simulated_parts
from migrator.execution.watch import NoAnswerError
from migrator.extras import lacking
from migrator.inputs.assembly import assemble_run
from migrator.inputs.pools import require_shareable, sharing_in_words, without_turns
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic, Traffic
from migrator.log.records import Record, Wall
from migrator.log.report import report_of
from migrator.log.runlog import (
    CUT,
    EVENTS_FILE,
    LOST,
    ReadLog,
    RunLog,
    config_sum,
    new_run_log,
    read_log,
    require_unbegun,
)
from migrator.terminal.console import escape, note, program, progress, warn, warn_of
from migrator.terminal.signals import Interruption, interruptible
from migrator.views.progress import ProgressFile
from migrator.whatif.goals import goals_of_run, require_kept
from migrator.whatif.search import Condition
from planner.policies.policy import AnyPolicy, Policy
from workloads.learning.models import libraries


@dataclass(frozen=True, slots=True)
class OnGpu:
    """On what a run is put: a simulated GPU or a real one, instead of the config's.

    Attributes:
        backend: ``sim``, ``nvml``, ``smi``, ``mps`` or ``cpu``.
        index: Which of the real ones.
        state: The folder of our journals.
        manner: How it is changed.
        keeps: Whether instances stay at the end.
    """

    backend: str | None = None
    index: int | None = None
    state: Path | None = None
    manner: Manner = field(default_factory=Manner)
    keeps: bool = False

    @property
    def assignments(self) -> list[str]:
        """As ``--set`` takes them."""
        given = {"gpu.backend": self.backend, "gpu.index": self.index}
        return [f"{key}={value}" for key, value in given.items() if value is not None]

    @property
    def with_state(self) -> str:
        """The options with which another command finds the same journals; none where they lie in the default place."""
        return "" if self.state is None else f" --state {self.state}"


def require_live(config: Config, origin: str) -> None:
    """Refuse a live run that lacks libraries, before anything is started.

    Raises:
        MigratorError: Says what to install.
    """
    needed = {"zmq"}
    for entry in config.tenants:
        made_of = {name.partition(".")[0] for name in libraries(entry.model)}  # of a model of the catalogue
        needed |= made_of | ({"safetensors"} if made_of and entry.weights is not None else set())
        needed |= set() if entry.learning is None else {"safetensors", "scipy", "torch"}
        needed |= {"avalanche"} if entry.learning is not None and entry.learning.trainer == "avalanche" else set()
    needed |= set() if config.front_door is None else {"starlette", "uvicorn"}
    if config.is_live and (lacks := lacking("live", needed)):
        raise MigratorError(f"{origin}: a live run {lacks}")


def refuse_unlike(rival: AnyPolicy | None, config: Config, origin: str) -> None:
    """Refuse to hold a simulation against a live run, or a rival that cannot share the config against any.

    Raises:
        MigratorError: They would be compared.
    """
    if rival is not None:
        require_shareable(config, origin, rival)
    if rival is not None and config.is_live:
        raise MigratorError(
            "--against simulates the rival with the accuracies that the config assumes, and a live run has its own; "
            "compare with --gpu sim"
        )


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy that the run is held against; its own run can begin, and is simulated when the other one is done."""

    name: str
    simulate: Simulation

    @classmethod
    def of(cls, policy: AnyPolicy | None, setting: Setting, traffic: Traffic) -> Rival | None:
        """The policy with its first window planned, before the run that it is for; ``None`` without one.

        Raises:
            ConfigError: The policy cannot run on what was measured, or has no pools and the config lists some.
            InfeasibleError: It has no plan for window 0, or the GPU no room for all tenants.
            PlannerError: It cannot answer.
        """
        if policy is None:
            return None
        assert isinstance(traffic, RecordedTraffic)  # of a live run there is no rival
        try:
            return cls(policy.name, prepared(setting, traffic, policy))
        except InfeasibleError as error:
            raise InfeasibleError(f"--against {policy.name}: {error}") from None


def print_run(
    folder: Path,
    rival: Rival | None,
    html: Path | None = None,
    conditions: Sequence[Condition] = (),
) -> None:
    """Print what a finished run kept of the conditions, then its report, and write its page into ``html``.

    ``rival`` is simulated on the same requests before, and its run kept in the run's folder; report and page hold both
    against each other. Where that fails, the error waits until all else is done.

    Raises:
        MissedGoalError: A condition was not kept; all else is done then.
    """
    log = read_log(folder)
    report = report_of(log)
    failure = None if rival is None else _held_against(rival, log, report.blind_s)
    tell(log, report, conditions, html)
    require_kept(goals_of_run(report, conditions))
    if failure is not None:
        raise failure


def _held_against(rival: Rival, log_of_run: ReadLog, blind_s: int) -> Exception | None:
    """Simulate the rival into the run's folder; the error that ended it, if one did."""
    if blind_s:
        warn(f"not held against {rival.name}: {blind_s} s of the run are in no figure, unlike a simulation's")
        return None
    part, whole = (log_of_run.folder / name for name in (f"{AGAINST}.part", AGAINST))  # what is at the second is whole
    try:
        with progress().status(f"simulating {escape(rival.name)} on the same requests"):
            for old in (part, whole):
                shutil.rmtree(old, ignore_errors=True)
            rival.simulate(part)
            part.rename(whole)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run's own report comes first
        warn(f"the run is done, but not held against {rival.name}, which failed; the run's own report follows")
        return error
    return None


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
    given = {"adopt": manner.adopt, "dry_run": manner.dry_run, "keeps": where.keeps}
    with real_gpu(config.gpu, origin, state, **given) as real:
        warn_of(real.journal.untold())
        if left := real.journal.made:
            note(f"ours are there already: {', '.join(left)}; what the first plan has no use for goes")
        try:
            yield real
        finally:
            warn_of(real.journal.untold())  # a call of the run's own may have had an effect that nothing proves


def shareable_on(real: RealGpu | None, config: Config) -> Config:
    """The config, with pools ``off``, which is printed, where an instance of the GPU takes one process alone."""
    if real is None or (apart := without_turns(config, real.gpu.turns_by)) is config:
        return config
    note(f"sharing.pools: off, as an instance of GPU {real.gpu.index} takes one process (see migrator doctor)")
    return apart


def begin(
    config: Config,
    origin: str,
    policy: AnyPolicy,
    show: Callable[[GpuModel, Traffic], AbstractContextManager[View]],
    *,
    where: OnGpu,
    out: Path | None = None,
    time_limit_s: float | None = None,
    rival: AnyPolicy | None = None,
    stop: Event | None = None,
    given: Wall | None = None,
) -> tuple[Path | None, Setting, Rival | None]:
    """Carry out a new run: its folder, ``None`` for a dry run, what it was about, and the rival, which could begin it.

    Signals end it in order, and so does ``stop`` once it is set.

    ``show`` hears what the run is about before anything is planned, and says who watches it. ``out`` is the run's
    folder, by default one in ``runs``. ``origin`` names the config in messages; the log has what else is ``given``.

    Raises:
        MigratorError: As :func:`migrator.commands.run.run_command` has it, with errors of the planner, of the GPU, and
            of live processes.
    """
    if time_limit_s is not None and not math.isfinite(time_limit_s):
        raise MigratorError(f"--time-limit is {time_limit_s}; a finite number of seconds is needed")
    if time_limit_s is not None and not isinstance(policy, Policy):
        raise MigratorError(f"--time-limit goes with policies that plan windows; {policy.name} decides as it goes")
    require_shareable(config, origin, policy)
    if config.has_live_arrivals and policy.needs_hindsight:
        raise ConfigError(
            f"{origin}: arrivals are live, and policy {policy.name} needs recorded ones; one that forecasts is needed"
        )
    if out is not None:
        require_unbegun(out)
    if not where.manner.dry_run:
        require_live(config, origin)
    if config.gpu.backend != "sim" and not isinstance(policy, Policy):
        raise MigratorError(f"gpu.backend is {config.gpu.backend}; {policy.name} shares the GPU without MIG instances")
    with interruptible(stop) as interruption, gpu_of(config, origin, where) as real:
        config = shareable_on(real, config)
        setting, traffic = assemble_run(config, origin, None if real is None else real.gpu.model)
        warn_of(setting.warnings)
        if sharing := sharing_in_words(config, policy):
            note(sharing)
        opponent = Rival.of(rival, setting, traffic)
        with show(setting.gpu, traffic) as view:
            resolved = config_yaml(setting.config, out or RUNS / config.name)

            def new_log() -> RunLog:
                return new_run_log(RUNS, config.name, resolved) if out is None else RunLog(out, resolved)

            folder = carry_out(
                setting,
                traffic,
                policy,
                new_log,
                real=real,
                where=where,
                view=view,
                time_limit_s=time_limit_s,
                wall=events.wall(config_sum(resolved), given),
                interruption=interruption,
            )
    return folder, setting, opponent


@dataclass(frozen=True, slots=True)
class Resumption:
    """A run that was begun before: its log, and where it is joined again if it is not carried out from its begin.

    ``told`` is what else the log is to have of its going on.
    """

    stands: ReadLog | None = None
    joins: Joining | None = None
    told: Sequence[Record] = ()


def carry_out(
    setting: Setting,
    traffic: Traffic,
    policy: AnyPolicy,
    log_of_run: Callable[[], RunLog],
    *,
    real: RealGpu | None = None,
    where: OnGpu | None = None,
    view: View | None = None,
    time_limit_s: float | None = None,
    wall: Wall | None = None,
    begun: Resumption | None = None,
    interruption: Interruption | None = None,
) -> Path | None:
    """Carry out a run, new or ``begun``; its folder. A dry run's first layout is printed, and nothing is made.

    ``log_of_run`` opens the log: once the first window has a plan, but for live runs, whose processes write into the
    run's folder before that; it goes again if there is none.

    Raises:
        MigratorError: As :func:`migrator.commands.run.run_command` and :func:`migrator.commands.run.resume_run`
            have it, with errors of the planner, of the GPU, and of live processes.
    """
    where = where or OnGpu()
    with telling_what_is_left(real, where), ExitStack() as stack:
        is_live = real is not None and setting.config.is_live and not where.manner.dry_run
        log = stack.enter_context(log_of_run()) if is_live else None
        if log is not None and begun is None:
            stack.enter_context(gone_if_empty(log))
        folder = None if log is None else log.folder
        opened = _opened_parts(
            setting, traffic, policy, real=real, run=folder, begun=begun or Resumption(), time_limit_s=time_limit_s
        )
        parts = stack.enter_context(opened)
        progress_file = stack.enter_context(closing(ProgressFile()))
        run = Loop(setting, parts, Views(view or View(), progress_file), interruption)
        if where.manner.dry_run:
            standing, ours = ((), lambda _: True) if real is None else (real.gpu.instances(), real.journal.is_ours)
            print_decision(decide(standing, ours, run.first_layout), setting.config.gpu.index)
            return None
        log = log or stack.enter_context(log_of_run())
        with telling_where(log.folder, where, is_service=setting.config.is_endless):
            run.carry_out(log, wall)
        return log.folder


@contextmanager
def _opened_parts(
    setting: Setting,
    traffic: Traffic,
    policy: AnyPolicy,
    *,
    real: RealGpu | None,
    run: Path | None,
    begun: Resumption,
    time_limit_s: float | None,
) -> Iterator[Parts]:
    """What a run is made of; on ``real`` if it is given, and live if ``run`` is given, too: the folder of the run.

    Simulated, real, or live: that is asked here, and nowhere else.

    Raises:
        ConfigError: The policy cannot run on what was measured; or, live, a model or its data cannot be had.
        GpuError: The driver does not list instances.
        LiveError: A process that the run cannot do without is gone.
        WireError: The folder of the processes cannot be used.
    """
    if real is None:
        assert isinstance(traffic, RecordedTraffic)  # others need workers that are real
        yield simulated_parts(setting, traffic, policy, time_limit_s=time_limit_s)
        return
    assert isinstance(policy, Policy)  # others share a GPU without MIG instances, and are refused before
    joins = begun.joins
    if run is None:
        if not isinstance(traffic, RecordedTraffic):
            raise MigratorError("--dry-run plans with a trace or a rate, and this config's clients are yet to come")
        yield real_parts(real, setting, traffic, policy, joins=joins, time_limit_s=time_limit_s)
        return
    from migrator.execution.live.opening import live_parts  # noqa: PLC0415 - needs an extra

    stands, told = begun.stands, begun.told
    opened = live_parts(
        real, setting, traffic, policy, run, joins=joins, stands=stands, told=told, time_limit_s=time_limit_s
    )
    with opened as parts:
        yield parts


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
def gone_if_empty(log: RunLog) -> Iterator[None]:
    """Remove the run's folder again where the run fails before anything of it is in its log."""
    try:
        yield
    except BaseException:
        if log.is_empty:
            shutil.rmtree(log.folder, ignore_errors=True)
        raise


@contextmanager
def telling_where(folder: Path, where: OnGpu, *, is_service: bool = False) -> Iterator[None]:
    """Say where the log is and what can be done with it when the run is cut off.

    Raises:
        OSError: The log is not there any more, and that is why.
    """
    was_asked = KeyboardInterrupt, StoppedError
    try:
        yield
    except (*was_asked, OSError, LiveError, ZygoteError, NoAnswerError) as error:
        if isinstance(error, OSError) and error.strerror == CUT:
            raise  # neither a report nor a resumption can be had of it
        if (folder / EVENTS_FILE).exists():
            again = "" if is_service else f", {program()} run --resume {folder}{where.with_state} goes on"
            warn(f"the log up to here is in {folder}; {program()} report {folder} shows it{again}")
        elif not isinstance(error, was_asked):  # a process of a live run may miss the folder first
            raise OSError(errno.ENOENT, LOST, str(folder / EVENTS_FILE)) from None
        raise
