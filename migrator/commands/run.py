"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open.

With ``--resume`` a run that was cut off is carried out again against its log, and then goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from executor.files import read_input
from executor.mig import GpuModel
from migrator import __version__
from migrator.commands.metrics import MetricsBeside
from migrator.commands.options import (
    Assignments,
    BesideOthers,
    Keep,
    Metrics,
    RunIndex,
    Verbose,
    in_groups,
    nameable,
    with_examples,
)
from migrator.commands.pages import require_page, tell
from migrator.commands.running import (
    OnGpu,
    Resumption,
    Rival,
    begin,
    carry_out,
    gpu_of,
    print_run,
    refuse_unlike,
    require_live,
    telling_what_is_left,
)
from migrator.commands.where import Manner
from migrator.config.reading import files_in, read_config
from migrator.config.sections import Config
from migrator.errors import ConfigError, MigratorError
from migrator.execution.loop import View, Views
from migrator.execution.real import RealGpu, joining
from migrator.execution.replay import replayed
from migrator.inputs.arrival_store import ARRIVALS, ArrivalStore
from migrator.inputs.assembly import assemble, assemble_run
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from migrator.log.records import Resumed, RunFinished, WindowFinished, WindowStarted
from migrator.log.report import report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import CONFIG_FILE, ReadLog, config_sum
from migrator.terminal.console import note, progress, warn, warn_of
from migrator.terminal.signals import Interruption, interruptible
from migrator.views.progress import RunView
from migrator.views.traffic import print_traffic
from migrator.whatif.goals import conditions_of, goals_of_run, require_kept
from planner.policies.policy import AnyPolicy
from planner.policies.registry import POLICIES, VARIANTS, policy_of


@in_groups(
    {
        "What is run": "windows seed assignments policy resume",
        "What it prints": "out keep against html metrics verbose",
        "On which GPU": "gpu index state adopt beside_others dry_run",
        "Else": "time_limit help",
    }
)
@with_examples("run quickstart.yaml --windows 2 --out runs/try", "run --resume runs/try")
def run_command(
    config: Annotated[
        Path | None, typer.Argument(help="The config file (YAML); see docs/configuration.md. Not with --resume.")
    ] = None,
    *,
    windows: Annotated[int | None, typer.Option(min=1, help="How many of the config's windows, or more.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed, instead of the config's.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=nameable, help="The run's folder, in which no other was begun. Default: runs/NAME, if it is free."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who decides: a sharing policy's name, or a .py file; see docs/policies.md. Default: migrator."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Simulate this policy, too, e.g. static, and report its goodput, too; report --full has more.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write a page of the run into this file at its end; needs the extra plot."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds a plan until the best found is taken; the run is then not repeatable.",
        ),
    ] = None,
    gpu: Annotated[
        Literal["sim", "nvml", "smi", "mps", "cpu"] | None,
        typer.Option(
            metavar="BACKEND",
            case_sensitive=False,
            help="sim: a simulated GPU; nvml, smi, mps: one by NVML, nvidia-smi or MPS; cpu: this machine's CPU. "
            "Over the config.",
        ),
    ] = None,
    index: RunIndex = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=nameable,
            help="Where is written which instances are ours (real GPU only). See gpu list.",
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Take over what others made (real GPU only): what the plan does not want is destroyed as the run "
            "begins, the rest at its end.",
        ),
    ] = False,
    beside_others: BesideOthers = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan the first window, print its nvidia-smi commands, and do nothing.")
    ] = False,
    keep: Keep = None,
    assignments: Assignments = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Instead of a CONFIG: go on with the run in this folder, which was cut off."),
    ] = None,
    metrics: Metrics = None,
    verbose: Verbose = False,
) -> None:
    """Run a config under a policy and print its report; with ``against``, beside what that policy answered.

    With ``time_limit`` each plan is made within that, and the run is not repeatable. With ``resume`` a run that was cut
    off goes on as it was begun.

    Nothing is written before the config is checked and window 0 has a plan; but the processes of a live run write into
    its folder before that plan, and the folder goes again where there is none.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        GridError: What is to be kept is no condition, or names no tenant or figure.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
        MigratorError: There is a time limit, or a real GPU, but the policy makes no plans; a real GPU is to have
            faults; or a live run lacks libraries.
        JournalError: The file of our instances on a real GPU cannot be used.
        GpuError: A real GPU is not there, not as the config has it, or does not answer.
        LiveError: A process that a live run cannot do without is gone.
        ZygoteError: The warm process of a live run is gone.
        WireError: The folder of a live run's processes cannot be used.
        MissedGoalError: What was to be kept was not; log, report and page are written.
    """
    where = OnGpu(gpu, index, state, Manner(dry_run, adopt, beside_others))
    if resume is not None:
        options: dict[str, object] = {"--windows": windows, "--seed": seed, "--out": out, "--time-limit": time_limit}
        options |= {"--set": assignments, "--gpu": gpu, "--index": index, "--dry-run": dry_run or None}
        given = [name for name, value in {"CONFIG": config, **options}.items() if value not in (None, [])]
        if given:
            raise typer.BadParameter(f"--resume goes on with a run as it was begun: without {', '.join(given)}")
        if html is not None:
            require_page(html, resume)
        with beside_of(metrics) as beside:
            resume_run(
                resume, where, policy=policy, against=against, html=html, keep=keep, verbose=verbose, beside=beside
            )
        return
    if config is None:
        raise typer.BadParameter("give a CONFIG, or --resume DIR")
    if keep and dry_run:
        raise typer.BadParameter("--keep is of what a run keeps, and --dry-run carries none out")
    if metrics is not None and dry_run:
        raise typer.BadParameter("--metrics is of a run that goes on, and --dry-run carries none out")
    asked = read_config(config, [*where.assignments, *(assignments or ())], windows=windows, seed=seed)
    conditions = conditions_of(keep, [tenant.name for tenant in asked.tenants])
    if html is not None:
        require_page(html, config, *files_in(asked), run=out)
    chosen = policy_of(policy or "migrator")
    rival = None if against is None else policy_of(against)
    refuse_unlike(rival, asked, str(config))
    with beside_of(metrics) as beside:
        show = partial(shown, asked, verbose, beside)
        folder, _, opponent = begin(
            asked, str(config), chosen, show, where=where, out=out, time_limit_s=time_limit, rival=rival
        )
    if folder is not None:
        print_run(folder, opponent, html, conditions)


def beside_of(port: int | None) -> AbstractContextManager[View]:
    """Who else watches the run: its metrics where a port is given."""
    return nullcontext(View()) if port is None else closing(MetricsBeside(port))


@contextmanager
def shown(config: Config, verbose: bool, beside: View, gpu: GpuModel, traffic: Traffic) -> Iterator[View]:
    """Print what arrives, and then how far the run is; ``config`` is as it was read."""
    console = progress()
    print_traffic(config, traffic, console)
    with closing(RunView(config, gpu.memory_slices, console, verbose=verbose)) as view:
        yield Views(view, beside)


def resume_run(
    folder: Path,
    where: OnGpu,
    *,
    policy: str | None,
    against: str | None,
    html: Path | None,
    keep: Sequence[str] | None,
    verbose: bool,
    beside: View,
) -> None:
    """Go on with the run in ``folder``, print what it kept and its report, and write its page into ``html``.

    ``policy`` is the file of a policy of the user's own. ``beside`` watches the run, too.

    The log of a simulated run then is that of one that was never cut off, but for facts of the wall clock. A run on a
    real GPU, which is the header's, is joined at the begin of a window. One that is finished already is left alone.

    Raises:
        LogError: There is no log of ours, or carrying the run out again does not lead to what it holds.
        RunFolderError: Another process writes the log.
        ConfigError: The config cannot be used, or is not the one that the run began with.
        PolicyError: There is no such policy.
        MigratorError: The run cannot be resumed, or not so; one line says why.
        JournalError: The file of our instances on a real GPU cannot be used.
        GpuError: The real GPU is not there, or another, or does not answer.
        LiveError: A process that a live run cannot do without is gone.
        ZygoteError: The warm process of a live run is gone.
        WireError: The folder of a live run's processes cannot be used.
    """
    rival, view = None if against is None else policy_of(against), partial(RunView, verbose=verbose)
    with interruptible() as interruption, ResumedLog(folder) as log:
        stands = log.stands
        if stands.header.service:
            raise MigratorError(f"--resume {folder}: a service is no run that ends; see migrator serve --help")
        conditions = conditions_of(keep, [tenant.name for tenant in stands.header.tenants])
        if log.is_finished:
            note(f"the run in {folder} is finished; nothing is left to do")
        if policy is not None or not log.is_finished:
            chosen = _policy_of(stands, policy)
        if log.is_finished and rival is None:
            report = report_of(stands)
            tell(stands, report, conditions, html)
            require_kept(goals_of_run(report, conditions))
            return
        config, path = _config(stands), str(stands.folder / CONFIG_FILE)
        if html is not None:
            require_page(html, folder, *files_in(config))
        refuse_unlike(rival, config, path)
        if not log.is_finished:
            require_live(config, path)
        traffic: Traffic
        if log.is_finished or config.gpu.backend == "sim":
            setting, traffic = assemble(config, path)
            opponent = Rival.of(rival, setting, traffic)
            if not log.is_finished:
                _carry_on(log, chosen, setting, traffic, view, beside, interruption, is_own=policy is not None)
        else:
            with gpu_of(config, path, where) as real:
                assert real is not None
                store = ArrivalStore(folder / ARRIVALS, [tenant.name for tenant in config.tenants], warn)
                setting, traffic = assemble_run(config, path, real.gpu.model, store)
                opponent = Rival.of(rival, setting, traffic)
                _join(log, real, where, chosen, setting, traffic, view, beside, interruption)
    print_run(folder, opponent, html, conditions)


def _policy_of(stands: ReadLog, named: str | None) -> AnyPolicy:
    """The policy that the run was begun under.

    Raises:
        PolicyError: The file holds none.
        MigratorError: It is another one, or its file has to be given.
    """
    name = stands.header.policy
    if named is None:
        if name not in {*POLICIES, *VARIANTS}:
            raise MigratorError(f"{stands.folder}: its policy, {name}, is one of your own; name its file by --policy")
        return policy_of(name)
    if not named.endswith(".py"):
        raise MigratorError(f"--policy {named}: --resume takes a file of your own; this run's policy is {name}")
    policy = policy_of(named)
    if policy.name != name:
        raise MigratorError(f"--policy {named} is {policy.name}; the run in {stands.folder} was begun under {name}")
    return policy


def _config(stands: ReadLog) -> Config:
    """The config of the run's folder.

    Raises:
        ConfigError: It cannot be used, or was changed.
    """
    path = stands.folder / CONFIG_FILE
    config = read_config(path)
    begun_with = stands.entries[0].wall.config_sum
    if begun_with is not None and begun_with != config_sum(read_input(path).decode()):
        raise ConfigError(f"{path}: was changed after the run began; it goes on with the config that it began with")
    return config


def _join(
    log: ResumedLog,
    real: RealGpu,
    where: OnGpu,
    policy: AnyPolicy,
    setting: Setting,
    traffic: Traffic,
    view_of: Callable[..., RunView],
    beside: View,
    interruption: Interruption,
) -> None:
    """Go on with a run on a real GPU at the next window for which all can be ready; what was torn is void."""
    stands = log.stands
    _warn_of(stands, setting)
    joins = joining(stands, setting)
    log.take_up()
    void = ", ".join(map(str, joins.void)) or "none"
    if joins.window >= setting.config.windows:
        note(f"no window is left to join; void: {void}")
        with telling_what_is_left(real, where):
            real.clear()
        log.append(Resumed(window=setting.config.windows, void=joins.void), log.at_s)
        log.append(RunFinished(windows=setting.config.windows), log.at_s)
        return
    note(f"joined at window {joins.window}; void, and in no total: {void}")
    console = progress()
    print_traffic(setting.config, traffic, console)
    with closing(view_of(setting.config, setting.gpu.memory_slices, console, joins.window, joins.window)) as view:
        carry_out(
            setting,
            traffic,
            policy,
            lambda: log,
            real=real,
            where=where,
            view=Views(view, beside),
            time_limit_s=stands.header.time_limit_s,
            begun=Resumption(stands, joins),
            interruption=interruption,
        )


def _warn_of(stands: ReadLog, setting: Setting) -> None:
    """What is doubtful of the inputs, and that another version began the run."""
    warn_of(setting.warnings)
    version = stands.entries[0].wall.version
    if version not in (None, __version__):
        warn(f"version {version} began this run, and this is {__version__}: what is new in the log will be of this one")


def _carry_on(
    log: ResumedLog,
    policy: AnyPolicy,
    setting: Setting,
    traffic: Traffic,
    view_of: Callable[..., RunView],
    beside: View,
    interruption: Interruption,
    *,
    is_own: bool,
) -> None:
    """Carry the run out again up to where its log ends, and then on to its end."""
    stands, console = log.stands, progress()
    _warn_of(stands, setting)
    print_traffic(setting.config, traffic, console)
    n_planned, n_settled = len(stands.of(WindowStarted)), len(stands.of(WindowFinished))
    how_far = f"up to window {n_planned - 1}" if n_planned else "up to its begin"
    left_out = f"; left out: {log.left_out}" if log.left_out else ""
    note(f"carried out again {how_far}, to check the log's {len(stands.entries):,} records, and then on{left_out}")
    with closing(view_of(setting.config, setting.gpu.memory_slices, console, n_planned, n_settled)) as view:
        carry_out(
            setting,
            traffic,
            replayed(stands, policy, is_own=is_own),
            lambda: log,
            view=Views(view, beside),
            time_limit_s=stands.header.time_limit_s,
            begun=Resumption(stands),
            interruption=interruption,
        )
