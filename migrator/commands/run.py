"""``migrator run``: put the run together, refuse what cannot work, then carry it out with its log open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from migrator.compare import simulated
from migrator.config import config_yaml, read_config
from migrator.console import escape, output, program, progress, warn, warn_of
from migrator.errors import MigratorError, RunFolderError
from migrator.log.report import report_of
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, ReadLog, RunLog, new_run_log, read_log
from migrator.run import events
from migrator.run.loop import View
from migrator.run.simulated import SimulatedRun
from migrator.setting import assemble
from migrator.views.ending import print_against, print_layout_over_time
from migrator.views.live import RunView
from migrator.views.report import print_report
from migrator.views.traffic import print_traffic
from planner.policies.policy import Policy
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
    time_limit_s: float | None = None,
    assignments: Sequence[str] = (),
) -> None:
    """Run a config under a policy and print its report; with ``against``, what it won over that policy, too.

    With ``time_limit_s`` each plan is made within that, and the run is not repeatable.

    Nothing is written before the config is checked and window 0 has a plan.

    Raises:
        ConfigError: The config cannot be used.
        PolicyError: There is no such policy.
        RunFolderError: The folder exists already.
        InfeasibleError: Window 0 cannot be planned.
        MigratorError: There is a time limit, but the policy makes no plans.
    """
    config = read_config(config_path, assignments, windows=windows, seed=seed)
    chosen = policy_of(policy)
    rival = None if against is None else policy_of(against)
    if time_limit_s is not None and not math.isfinite(time_limit_s):
        raise MigratorError(f"--time-limit is {time_limit_s}; a finite number of seconds is needed")
    if time_limit_s is not None and not isinstance(chosen, Policy):
        raise MigratorError(f"--time-limit goes with policies that plan windows; {chosen.name} decides as it goes")
    if out is not None and out.exists():
        raise RunFolderError(f"{out} exists already; give --out another folder, runs are never overwritten")
    setting, traffic = assemble(config, str(config_path))
    warn_of(setting.warnings)
    console = progress()
    print_traffic(config, setting, traffic, console)
    with closing(RunView(setting, console)) as view:
        run = SimulatedRun(setting, traffic, chosen, view, time_limit_s=time_limit_s)
        resolved = config_yaml(setting.config, out or RUNS / config.name)
        with new_run_log(RUNS, config.name, resolved) if out is None else RunLog(out, resolved) as log:
            folder = log.folder
            with _telling_where(folder):
                run.carry_out(log, events.wall())
    log_of_run = read_log(folder)
    print_report(report_of(log_of_run), output())
    print_layout_over_time(log_of_run, output())
    _warn_of_slow_plans(log_of_run)
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


def _warn_of_slow_plans(log: ReadLog) -> None:
    """Warn if plans took longer than the time that they were charged; that of window 0 is made before the run."""
    charged_s = log.header.get("planning_s", 0.0)
    took_s = {event["window"]: event.get("wall", {}).get("solve_s", 0.0) for event in log.of_kind("window_started")}
    slow_s = {window: seconds for window, seconds in took_s.items() if window > 0 and seconds > charged_s}
    if slow_s:
        slowest = max(slow_s, key=lambda window: slow_s[window])
        plans = "plan took" if len(slow_s) == 1 else "plans took"
        warn(
            f"{len(slow_s)} {plans} longer than the {charged_s:g} s charged (planner.planning_s), up to "
            f"{slow_s[slowest]:.1f} s in window {slowest}: on this machine they would come later than simulated"
        )
