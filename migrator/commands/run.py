"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from migrator.compare import simulated
from migrator.config import config_yaml, read_config
from migrator.console import escape, output, program, progress, warn
from migrator.errors import RunFolderError
from migrator.log.report import report_of
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, RunLog, new_run_log, read_log
from migrator.run import events
from migrator.run.loop import View
from migrator.run.simulated import SimulatedRun
from migrator.setting import assemble
from migrator.views.ending import print_against, print_layout_over_time
from migrator.views.live import RunView
from migrator.views.report import print_report
from planner.policies.registry import policy_of

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
) -> None:
    """Run a config under a policy and print its report; with ``against``, what it won over that policy, too.

    Nothing is written before the config is checked and window 0 has a plan.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
    """
    config = read_config(config_path, windows=windows, seed=seed)
    chosen = policy_of(policy)
    rival = None if against is None else policy_of(against)
    if out is not None and out.exists():
        raise RunFolderError(f"{out} exists already; give --out another folder, runs are never overwritten")
    setting, traffic = assemble(config, str(config_path))
    console = progress()
    with closing(RunView(setting, console)) as view:
        run = SimulatedRun(setting, traffic, chosen, view)
        resolved = config_yaml(setting.config, out or RUNS / config.name)
        with new_run_log(RUNS, config.name, resolved) if out is None else RunLog(out, resolved) as log:
            folder = log.folder
            with _telling_where(folder):
                run.carry_out(log, events.wall())
    log_of_run = read_log(folder)
    print_report(report_of(log_of_run), output())
    print_layout_over_time(log_of_run, output())
    if rival is not None:
        with console.status(f"simulating {escape(rival.name)} on the same requests"):
            log_of_rival = simulated(setting, traffic, rival, View())
        print_against(log_of_run, log_of_rival, output())
    output().print(f"\nThe run is in [bold]{escape(str(folder))}[/]. To look further:")
    here, last = escape(str(folder)), setting.config.windows - 1
    output().print(f"  {escape(program())} report {here} --json", soft_wrap=True)
    output().print(f"  {escape(program())} plan {here}/{CONFIG_FILE} --window {min(1, last)}", soft_wrap=True)


@contextmanager
def _telling_where(folder: Path) -> Iterator[None]:
    """Say where the log is, if there is one, when the run is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if (folder / EVENTS_FILE).exists():
            warn(f"the log up to here is in {folder}; {program()} report {folder} shows it")
        raise
