"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from migrator.config import config_yaml, read_config
from migrator.console import escape, output, program, progress
from migrator.errors import RunFolderError
from migrator.log.report import report_of
from migrator.log.runlog import CONFIG_FILE, RunLog, new_run_log, read_log
from migrator.run import events
from migrator.run.simulated import SimulatedRun
from migrator.setting import assemble
from migrator.views.live import RunView
from migrator.views.report import print_report
from planner.policies.registry import policy_of

RUNS = Path("runs")
"""Where runs go unless ``--out`` says otherwise."""


def run_command(
    config_path: Path, *, windows: int | None, seed: int | None, out: Path | None, policy: str = "migrator"
) -> None:
    """Run a config under a policy and print its report.

    Nothing is written before the config is checked and window 0 has a plan.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
    """
    config = read_config(config_path, windows=windows, seed=seed)
    chosen = policy_of(policy)
    if out is not None and out.exists():
        raise RunFolderError(f"{out} exists already; give --out another folder, runs are never overwritten")
    setting, traffic = assemble(config, str(config_path))
    console = progress()
    with closing(RunView(setting, console)) as view:
        run = SimulatedRun(setting, traffic, chosen, view)
        resolved = config_yaml(setting.config)
        with new_run_log(RUNS, config.name, resolved) if out is None else RunLog(out, resolved) as log:
            folder = log.folder
            run.carry_out(log, events.wall())
    print_report(report_of(read_log(folder)), output())
    output().print(f"\nThe run is in [bold]{escape(str(folder))}[/]. To look further:")
    here, last = escape(str(folder)), setting.config.windows - 1
    output().print(f"  {escape(program())} report {here} --json", soft_wrap=True)
    output().print(f"  {escape(program())} plan {here}/{CONFIG_FILE} --window {min(1, last)}", soft_wrap=True)
