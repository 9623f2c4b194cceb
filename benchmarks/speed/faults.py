"""What refused driver calls cost: `python -m benchmarks.speed.faults [CONFIG …]`, by default the quickstart.

Each config runs with seeds 1, 2 … twice on the same requests: on a GPU that does what it is asked to, and on one that
refuses every tenth call, and on which every tenth instance is in use for 5 s when it is first asked to go. Options have
other faults. A run's loss is the difference of its goodput in points of its arrivals; negative where faults came in
handy. A run that does not end is reported with its error, and counts as a loss of all its goodput.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from executor.errors import ExecutorError
from migrator.config.reading import config_yaml, read_config
from migrator.config.sections import Config, DriverFaultsConfig, Section
from migrator.errors import MigratorError
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log.records import Change, NotRevised, Outcome, PlanRevised, WindowStarted
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog, RunLog, read_log
from migrator.terminal.parallel import Processes
from planner.errors import PlannerError

ROOT = Path(__file__).parents[2]
CONFIGS = (ROOT / "configs" / "quickstart.yaml",)

FAULTS = DriverFaultsConfig(error_share=0.1, in_use_share=0.1, in_use_s=5.0)
"""What the runs with faults meet; ``half_share`` as by default."""


@dataclass(frozen=True)
class FaultyRun:
    """One pair of runs: of which config, with which seed, how long, how thoroughly planned, and where logs stay."""

    config: Path
    seed: int
    windows: int
    max_schedules: int | None
    faults: DriverFaultsConfig
    kept: Path | None = None


@dataclass(frozen=True)
class Compared:
    """A run with faults beside the same one without.

    Attributes:
        config: Name of the config.
        seed: Of requests and faults.
        error: Why the run with faults did not end; empty if it did.
        goodput_pct: Of the arrivals, without faults,
        faulty_pct: and with them.
        refused: Driver calls that were refused,
        calls: of so many.
        undone: Things that could not be done in spite of all attempts.
        revised: Plans made anew within a window,
        unplanned: and how often there was no plan, of a window or of its rest.
        by_window: Loss in each window, in points of its arrivals.
    """

    config: str
    seed: int
    error: str = ""
    goodput_pct: float = 0.0
    faulty_pct: float = 0.0
    refused: int = 0
    calls: int = 0
    undone: int = 0
    revised: int = 0
    unplanned: int = 0
    by_window: tuple[float, ...] = field(default=())

    @property
    def loss_points(self) -> float:
        """Goodput lost, in points of the arrivals."""
        return self.goodput_pct - self.faulty_pct


def compared(job: FaultyRun) -> Compared:
    """Carry both runs out."""
    config = read_config(job.config)
    planner = config.planner if job.max_schedules is None else _with(config.planner, max_schedules=job.max_schedules)
    config = _with(config, seed=job.seed, windows=job.windows, planner=planner)
    sound = _log(config, job, "sound")
    try:
        faulty = _log(_with(config, simulation=_with(config.simulation, driver=job.faults)), job, "faulty")
    except (ExecutorError, PlannerError, MigratorError) as error:
        return Compared(job.config.stem, job.seed, f"{type(error).__name__}: {error}", _goodput_pct(sound))
    outcomes = faulty.of(Outcome)
    unplanned = [one for one in faulty.of(WindowStarted) if one.plan is not None and one.plan.objective is None]
    return Compared(
        job.config.stem,
        job.seed,
        "",
        _goodput_pct(sound),
        _goodput_pct(faulty),
        refused=sum(outcome.error is not None for outcome in outcomes),
        calls=len(outcomes),
        undone=sum(len(change.undone) for change in faulty.of(Change)),
        revised=len(faulty.of(PlanRevised)),
        unplanned=len(unplanned) + len(faulty.of(NotRevised)),
        by_window=tuple(a - b for a, b in zip(_by_window(sound), _by_window(faulty), strict=True)),
    )


Part = TypeVar("Part", bound=Section)


def _with(part: Part, **changes: object) -> Part:
    return part.model_copy(update=changes)


def _log(config: Config, job: FaultyRun, name: str) -> ReadLog:
    """The log of a run, which reading has checked: every request of every second is accounted for."""
    setting, traffic = assemble(config, str(job.config))
    with TemporaryDirectory() as made:
        folder = Path(made) if job.kept is None else job.kept / f"{job.config.stem}-{job.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        with RunLog(folder / name, config_yaml(config, folder / name)) as log:
            Loop(setting, simulated_parts(setting, traffic)).carry_out(log)
        return read_log(folder / name)


def _goodput_pct(log: ReadLog) -> float:
    total = report_of(log).total
    assert total is not None
    return total.requests.goodput_pct or 0.0


def _by_window(log: ReadLog) -> list[float]:
    totals = [window.total for window in report_of(log).windows if window.total is not None]
    return [total.requests.goodput_pct or 0.0 for total in totals]


HEADER = (
    f"{'config':12} {'seed':>4} {'goodput':>8} {'faulty':>8} {'loss':>6} {'refused/calls':>13} {'undone':>6} "
    f"{'revised':>7} {'no plan':>7}  by window"
)


def _line(one: Compared) -> str:
    if one.error:
        return f"{one.config:12} {one.seed:4} {one.goodput_pct:7.2f}%  did not end: {one.error}"
    return (
        f"{one.config:12} {one.seed:4} {one.goodput_pct:7.2f}% {one.faulty_pct:7.2f}% {one.loss_points:+z6.2f} "
        f"{one.refused:6}/{one.calls:<6} {one.undone:6} {one.revised:7} {one.unplanned:7}  "
        f"{' '.join(f'{points:+z.1f}' for points in one.by_window)}"
    )


def _summary(runs: Sequence[Compared]) -> dict[str, object]:
    losses = [one.loss_points for one in runs]
    return {
        "runs": len(runs),
        "ended": sum(not one.error for one in runs),
        "median_loss_points": round(statistics.median(losses), 3),
        "mean_loss_points": round(statistics.mean(losses), 3),
        "worst_loss_points": round(max(losses), 3),
        **{name: sum(getattr(one, name) for one in runs) for name in ("refused", "calls", "undone", "revised")},
        "without_plan": sum(one.unplanned for one in runs),
    }


def main() -> None:
    """Print a line a run, and what they come to by config and in all; JSON with ``--json``."""
    parser = argparse.ArgumentParser(description="What refused driver calls cost, run by run.")
    parser.add_argument("configs", nargs="*", type=Path, default=CONFIGS, metavar="CONFIG")
    parser.add_argument("--runs", type=int, default=40, help="seeds for each config (default: 40)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--windows", type=int, default=6, help="windows of a run (default: 6)")
    parser.add_argument("--max-schedules", type=int, help="planner.max_schedules, if not the config's")
    for name, told in (
        ("error_share", "of the calls, those refused without a reason"),
        ("in_use_share", "of the instances, those that will not go at first"),
        ("in_use_s", "for so long"),
        ("half_share", "of the refusals, those that leave half an instance"),
    ):
        default = getattr(FAULTS, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default, help=f"{told} ({default:g})")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--keep", type=Path, help="keep the runs' folders here")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    faults = DriverFaultsConfig(**{name: getattr(arguments, name) for name in DriverFaultsConfig.model_fields})
    jobs = [
        FaultyRun(path, seed, arguments.windows, arguments.max_schedules, faults, arguments.keep)
        for path in arguments.configs
        for seed in range(arguments.first, arguments.first + arguments.runs)
    ]
    if not arguments.json:
        print(HEADER)
    runs = []
    with Processes(arguments.jobs) as processes:
        for _, one in processes.each(compared, jobs):
            runs.append(one)
            if not arguments.json:
                print(_line(one), flush=True)
    names = dict.fromkeys(one.config for one in runs)
    parts = {name: _summary([one for one in runs if one.config == name]) for name in names}
    if arguments.json:
        found = [{**asdict(one), "loss_points": one.loss_points} for one in runs]
        print(json.dumps({"faults": faults.model_dump(), "runs": found, "configs": parts, "all": _summary(runs)}))
        return
    for name, part in (*parts.items(), *((("all", _summary(runs)),) if len(parts) > 1 else ())):
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in part.items())}")


if __name__ == "__main__":
    main()
