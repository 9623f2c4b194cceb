"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rich.markup import escape

from migrator.config import config_yaml, read_config
from migrator.console import output, program, progress
from migrator.errors import RunFolderError
from migrator.log.report import report_of
from migrator.log.runlog import CONFIG_FILE, RunLog, free_run_folder, read_log
from migrator.run import events
from migrator.run.loop import Loop
from migrator.run.planning import PlannedWindow, accuracy_at_start, plan_window, require_plan
from migrator.setting import Setting, assemble, simulated_applier
from migrator.views.live import RunView
from migrator.views.report import print_report

RUNS = Path("runs")
"""Where runs go unless ``--out`` says otherwise."""


def run_command(config_path: Path, *, windows: int | None, seed: int | None, out: Path | None) -> None:
    """Run a config and print its report.

    Nothing is written before the config is checked and window 0 has a plan.

    Raises:
        ConfigError: The config cannot be used.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
    """
    config = read_config(config_path, windows=windows, seed=seed)
    folder = free_run_folder(RUNS, config.name) if out is None else out
    if folder.exists():
        raise RunFolderError(f"{folder} exists already; give --out another folder, runs are never overwritten")
    setting = assemble(config, str(config_path))
    console = progress()
    with closing(RunView(setting, console)) as view:
        view.planning(0)
        first = _first_plan(setting)
        require_plan(first)
        with RunLog(folder, config_yaml(setting.config)) as log:
            log.append("run_started", events.run_started(setting), wall=events.wall())
            try:
                _carry_out(setting, first, log, view)
            except KeyboardInterrupt:
                log.append("interrupted", {})
                raise
    print_report(report_of(read_log(folder)), output())
    output().print(f"\nThe run is in [bold]{escape(str(folder))}[/]. To look further:")
    here, last = escape(str(folder)), setting.config.windows - 1
    output().print(f"  {escape(program())} report {here} --json", soft_wrap=True)
    output().print(f"  {escape(program())} plan {here}/{CONFIG_FILE} --window {min(1, last)}", soft_wrap=True)


def _first_plan(setting: Setting) -> PlannedWindow:
    accuracies = [accuracy_at_start(tenant, 0, -1) for tenant in setting.tenants]
    return plan_window(setting, 0, None, accuracies)


def _carry_out(setting: Setting, first: PlannedWindow, log: RunLog, view: RunView) -> None:
    # The first layout goes up before second 0; the clock starts early enough for all of it.
    lead_s = first.problem.epoch_steps * setting.config.step_s
    applier = simulated_applier(setting, -lead_s)
    Loop(setting, applier, log, view).run(first)
