"""``migrator serve``: a run before real clients, without an end, which stops in order when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from executor.mig import OwnedLayout
from migrator.commands.options import (
    Assignments,
    BesideOthers,
    ConfigFile,
    Metrics,
    RunIndex,
    Verbose,
    nameable,
    with_examples,
)
from migrator.commands.run import beside_of, shown
from migrator.commands.running import OnGpu, Resumption, begin, carry_out, gpu_of, require_live, shareable_on
from migrator.commands.where import Manner
from migrator.config.changing import ChangedKey, changes_of, in_words
from migrator.config.reading import config_yaml, read_config
from migrator.config.sections import Config
from migrator.errors import MigratorError
from migrator.execution.loop import View, Views
from migrator.execution.seams import Counted
from migrator.inputs.arrival_store import ARRIVALS, ArrivalStore
from migrator.inputs.assembly import assemble_run
from migrator.inputs.in_force import config_in_force, service_of
from migrator.log.records import Reloaded, Wall
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import ReadLog, has_begun
from migrator.terminal.console import escape, note, output, program, warn, warn_of
from migrator.terminal.notify import notify
from migrator.terminal.signals import interruptible
from planner.policies.policy import AnyPolicy
from planner.policies.registry import policy_of
from planner.problem import Owner


@with_examples("serve shop.yaml --out runs/shop")
def serve_command(
    config: ConfigFile,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=nameable,
            help="The service's folder; one that was served in before goes on. Default: a new one, runs/NAME.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="Who decides: a sharing policy's name, or a .py file; see docs/policies.md."),
    ] = "migrator",
    index: RunIndex = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", callback=nameable, help="Where is written which instances are ours. See gpu list."),
    ] = None,
    keep_layout: Annotated[
        bool,
        typer.Option("--keep-layout", help="Leave instances on the GPU at the end, for when it is started again."),
    ] = False,
    beside_others: BesideOthers = False,
    assignments: Assignments = None,
    metrics: Metrics = None,
    verbose: Verbose = False,
) -> None:
    """Serve clients until it is told to stop: by TERM, Ctrl-C, or systemd, which hears when it is ready.

    Then further requests get 503 with ``Retry-After``, those that wait are answered, instances are taken away, and the
    exit code is 0. Ctrl-C once more ends it at once.

    Raises:
        ConfigError: The config cannot be used, or is no service's.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
        MigratorError: A library is missing, or the policy makes no plans.
        JournalError: The file of our instances cannot be used.
        GpuError: The GPU is not there, not as the config has it, or does not answer.
        LiveError: A process that it cannot do without is gone.
        ZygoteError: The warm process is gone.
        WireError: The folder of its processes cannot be used.
    """
    where = OnGpu(index=index, state=state, manner=Manner(beside_others=beside_others), keeps=keep_layout)
    assigned = (*where.assignments, *(assignments or ()))
    asked = service_of(read_config(config, assigned), str(config))
    given = Wall(config_file=str(config.absolute()), assigned=assigned)

    with beside_of(metrics) as beside:
        show = partial(shown, asked, verbose, Views(ServiceManager(), beside))
        chosen, folder = policy_of(policy), out
        if out is not None and has_begun(out):
            _go_on(out, asked, str(config), chosen, show, where, given)
        else:
            folder, _, _ = begin(asked, str(config), chosen, show, where=where, out=out, given=given)
    output().print(f"stopped; {escape(program())} report {escape(str(folder))} says what was served", soft_wrap=True)


def _go_on(
    folder: Path,
    config: Config,
    origin: str,
    policy: AnyPolicy,
    show: Callable[..., AbstractContextManager[View]],
    where: OnGpu,
    given: Wall,
) -> None:
    """Serve again in a folder, at once with the layout of before; ``origin`` names the config.

    What may change while it serves may be another than it was.

    Raises:
        MigratorError: The folder holds a run that is no service, or was begun under another policy.
        ConfigError: The config is not the one that it began with.
    """
    with interruptible() as interruption, ResumedLog(folder, is_whole=False) as log:
        header = log.stands.header
        if not header.service:
            raise MigratorError(f"{folder}: holds a run, which is no service; give --out another folder")
        if header.policy != policy.name:
            raise MigratorError(f"--policy {policy.name}: the service in {folder} was begun under {header.policy}")
        require_live(config, origin)
        with gpu_of(config, origin, where) as real:
            assert real is not None  # live arrivals need one
            store = ArrivalStore(folder / ARRIVALS, [tenant.name for tenant in config.tenants], warn)
            setting, traffic = assemble_run(shareable_on(real, config), origin, real.gpu.model, store)
            changes = _changes(setting.config, log.stands, origin)
            warn_of(setting.warnings)
            log.take_up()
            with show(setting.gpu, traffic) as view:
                carry_out(
                    setting,
                    traffic,
                    policy,
                    lambda: log,
                    real=real,
                    where=where,
                    view=view,
                    wall=given,
                    begun=Resumption(log.stands, told=_taken_up(setting.config, changes, folder)),
                    interruption=interruption,
                )


def _changes(config: Config, stands: ReadLog, origin: str) -> tuple[ChangedKey, ...]:
    """In what a config is not the one in force in the service's folder.

    Raises:
        ConfigError: In something that may not change; or the one in force cannot be used any more.
    """
    changes = changes_of(config_in_force(stands), config, f"{origin}: not as {stands.folder} was served")
    for change in changes:
        note(f"taken up: {change}")
    return changes


def _taken_up(config: Config, changes: Sequence[ChangedKey], folder: Path) -> tuple[Reloaded, ...]:
    if not changes:
        return ()
    return (Reloaded(config=config_yaml(config, folder), changes=in_words(changes)),)


class ServiceManager(View):
    """Tells systemd, or whoever it is, that the service is ready, alive, and about to stop."""

    def __init__(self) -> None:
        self._is_ready = False

    def reached(self, now_s: float, counted: Counted, layout: OwnedLayout[Owner] | None, n_records: int) -> None:
        """It is alive; the first time, what serves is up."""
        del now_s, counted, layout, n_records
        notify("WATCHDOG=1" if self._is_ready else "READY=1")
        self._is_ready = True

    def draining(self) -> None:
        """No further request is taken."""
        notify("STOPPING=1")
        note("stopping: no further request is taken, and those that wait are answered")
