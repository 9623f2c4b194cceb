"""What forecasters, and planning anew inside windows, are worth in runs: `python -m benchmarks.online [WORKLOAD …]`.

Each forecaster plans once a window, and again every few seconds; beside them are the best fixed layouts in hindsight
and by the past, `reactive`, and plans that know the arrivals. The workloads are the paper's sixteen, at their config's
load; with `--traces FILE` (the Twitter counts) each runs on `--segments` pieces of the second week instead, `--stride`
seconds apart. Plans are charged what configs charge. Everything is simulated; results are kept as those of
`make reproduce`. `--model DIR` adds a fitted network that plans once a window: with an Informer that is the MIGRator
paper's way.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paper.experiments import SEVEN_HOURS_S, WORKLOADS, Experiment
from benchmarks.paper.matches import Json, matches_of, require_two_weeks, results_of
from benchmarks.paper.statistics import BLOCK, Interval, interval
from forecaster.neural import FitError, Learned
from migrator.comparison.forecasts import methods_of

STATIC, HISTORY, REACTIVE = "static", "static-history", "reactive"
RIVALS = (STATIC, HISTORY, REACTIVE)
REFERENCE = "ewma, once"
KNOWN = "known"

LOSSES = ("capacity", "reconfiguration", "queueing", "wrong_old", "wrong_new")
"""Classes of the loss account; those that a forecast is to blame for are in the first two."""

LEAST_GAP_POINTS = 1.0
"""A smaller gap has no share."""

LEAST_BLOCKS = 4
"""Fewer resampled blocks of windows or segments show no interval: both its ends are then NaN."""

MUCH_POINTS = 1.0
"""Runs that are below a rival by more are counted."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What is compared: a policy, whose forecaster it is, and whether it plans anew."""

    label: str
    policy: str
    forecast: Mapping[str, object]
    every_s: float | None = None

    def experiment(self, workloads: Sequence[str], windows: int, n_segments: int, stride_s: int) -> Experiment:
        """The arm on these workloads."""
        planner = {"replan_every_s": "never" if self.every_s is None else self.every_s}
        return Experiment(
            name=f"online-{self.label}",
            label=self.label,
            policies=(self.policy,),
            workloads=tuple(workloads),
            windows=windows,
            changes={"forecast": dict(self.forecast), "planner": planner},
            n_segments=n_segments,
            stride_s=stride_s,
        )


def arms(methods: Sequence[str], every_s: float, models: Sequence[Learned] = ()) -> list[Arm]:
    """The rivals, fitted networks once, and each forecaster once and rolling.

    Last come the arrivals as they will be.
    """
    found = [Arm(name, name, {"method": "ewma"}) for name in RIVALS]
    names = [model.name for model in models]
    for model in models:
        name = model.name if names.count(model.name) == 1 else f"{model.name} ({model.folder})"
        forecast = {"method": model.name, "model": str(model.folder.resolve())}
        found.append(Arm(f"{name}, once", "migrator", forecast))
    for method in (*methods, KNOWN):
        forecast = {"method": method}
        found.append(Arm(f"{method}, once", "migrator", forecast))
        found.append(Arm(f"{method}, every {every_s:g} s", "migrator", forecast, every_s))
    return found


@dataclass(frozen=True, slots=True)
class Ahead:
    """An arm against a rival.

    Attributes:
        points: Ahead of it, over windows or segments.
        worst: The least that a run is ahead of the rival's.
        n_below: Runs that are more than :data:`MUCH_POINTS` below it.
    """

    points: Interval
    worst: float
    n_below: int


@dataclass(frozen=True, slots=True)
class OnlineRow:
    """What an arm came to.

    Attributes:
        label: The arm's.
        goodput_pct: The mean over workloads.
        ahead_of_once: Points ahead of :data:`REFERENCE`; ``None`` for itself.
        against: It against each rival that was run; itself is none.
        losses_pct: Where the requests that do not count went, by class of the loss account, % of the arrivals;
            workloads count alike.
        n_runs: Runs that have numbers.
        gap_closed_pct: Of the gap between the better of the two references and the better plan that knows the arrivals.
        changes: Of the layout, a window.
    """

    label: str
    goodput_pct: float
    ahead_of_once: Interval | None
    against: Mapping[str, Ahead]
    losses_pct: Mapping[str, float]
    n_runs: int
    gap_closed_pct: float | None
    changes: float


def rows_of(results: Mapping[str, Sequence[Json]], block: int) -> list[OnlineRow]:
    """A row an arm, from its results; only runs count of which every arm has numbers."""
    failed = {(one["workload"], one["segment"]) for own in results.values() for one in own if "error" in one}
    kept = {
        label: [one for one in own if (one["workload"], one["segment"]) not in failed] for label, own in results.items()
    }
    by_window = {label: _by_window(own) for label, own in kept.items()}
    by_run = {label: _by_run(own) for label, own in kept.items()}
    means = {label: float(runs.groupby(level=0).mean().mean()) for label, runs in by_run.items()}
    base = max(means[label] for label in (STATIC, REFERENCE) if label in means)
    gap = max((mean for label, mean in means.items() if label.startswith(KNOWN)), default=base) - base
    rows = []
    for label, own in kept.items():
        rivals = {name: by_run[label] - by_run[name] for name in RIVALS if name in by_run and name != label}
        against = {
            name: Ahead(_ahead(by_window, label, name, block), float(runs.min()), int((runs < -MUCH_POINTS).sum()))
            for name, runs in rivals.items()
        }
        rows.append(
            OnlineRow(
                label=label,
                goodput_pct=means[label],
                ahead_of_once=_ahead(by_window, label, REFERENCE, block) if label != REFERENCE in by_window else None,
                against=against,
                losses_pct=_losses_pct(own),
                n_runs=len(own),
                gap_closed_pct=100 * (means[label] - base) / gap if gap > LEAST_GAP_POINTS else None,
                changes=sum(one["changes"] for one in own) / max(sum(len(one["windows"]) for one in own), 1),
            )
        )
    return rows


def _by_window(results: Sequence[Json]) -> pd.DataFrame:
    """Goodput %: a row a window (of a segment), a column a workload."""
    cells = {
        (one["segment"], number, one["workload"]): 100 * correct / max(arrivals, 1)
        for one in results
        for number, (arrivals, correct) in enumerate(one["windows"])
    }
    return pd.Series(cells, dtype=float).unstack(sort=False).sort_index()


def _by_run(results: Sequence[Json]) -> pd.Series[float]:
    """Goodput % by workload and segment."""
    return pd.Series(
        {(one["workload"], one["segment"]): 100 * one["correct"] / max(one["arrivals"], 1) for one in results},
        dtype=float,
    )


def _losses_pct(results: Sequence[Json]) -> dict[str, float]:
    """By class, % of the arrivals, the mean over workloads."""
    lost = {
        name: pd.Series([sum(sum(own[name]) for own in one["seconds"].values()) for one in results], dtype=float)
        for name in LOSSES
    }
    table = pd.DataFrame({**lost, "arrivals": [one["arrivals"] for one in results]})
    sums = table.groupby([one["workload"] for one in results]).sum()
    return {name: float((100 * sums[name] / sums["arrivals"]).mean()) for name in LOSSES}


def _ahead(by_window: Mapping[str, pd.DataFrame], label: str, of: str, block: int) -> Interval:
    differences = by_window[label] - by_window[of]
    found = interval(differences, block)
    return found if len(differences) >= LEAST_BLOCKS * block else Interval(found.mean, math.nan, math.nan)


def tables_of(rows: Sequence[OnlineRow]) -> list[Table]:
    """The rows for a reader: what they came to, against rivals too, and where the other requests went."""
    worth = _table("goodput\n%", f"points ahead of\n{REFERENCE} [95 %]", "gap\nclosed %", "changes\na window", "runs")
    rivals = [name for name in RIVALS if any(name in row.against for row in rows)]
    below = f"worst run, more than {MUCH_POINTS:g} below"
    standing = _table(*(f"points ahead of {name} [95 %],\n{below}" for name in rivals))
    lost = _table(*(f"{name.replace('_', ' ')}\n%" for name in LOSSES))
    for row in rows:
        gap = "–" if row.gap_closed_pct is None else f"{row.gap_closed_pct:.0f}"
        once = "" if row.ahead_of_once is None else _shown(row.ahead_of_once)
        worth.add_row(row.label, f"{row.goodput_pct:.2f}", once, gap, f"{row.changes:.1f}", str(row.n_runs))
        standing.add_row(row.label, *(_standing(row.against.get(name)) for name in rivals))
        lost.add_row(row.label, *(f"{row.losses_pct[name]:.2f}" for name in LOSSES))
    return [worth, standing, lost]


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _standing(one: Ahead | None) -> str:
    return "" if one is None else f"{_shown(one.points)}, {one.worst:+z.2f}, {one.n_below}"


def _shown(found: Interval) -> str:
    return f"{found.mean:+z.2f}" + ("" if math.isnan(found.low) else f" [{found.low:+z.2f}, {found.high:+z.2f}]")


def main() -> None:
    """Simulate what is not kept yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="w1 … w16; all by default")
    parser.add_argument("--windows", type=int, default=2, help="of each run")
    parser.add_argument("--method", action="append", default=[], help="a forecaster; all of the registry's by default")
    parser.add_argument("--model", action="append", default=[], type=Path, help="the folder of a fitted network")
    parser.add_argument("--every", type=float, default=10.0, help="seconds from plan to plan")
    parser.add_argument("--traces", type=Path, help="the Twitter counts, in the place of the workloads' own traces")
    parser.add_argument("--segments", type=int, default=84, help="pieces of these")
    parser.add_argument("--stride", type=int, default=SEVEN_HOURS_S // 3, help="seconds from piece to piece")
    parser.add_argument("--out", type=Path, help="write every figure as JSON")
    asked = parser.parse_args()
    if asked.traces is not None:
        require_two_weeks(asked.traces)
    n_segments = asked.segments if asked.traces is not None else 0
    try:
        models = [Learned(folder) for folder in asked.model]
    except FitError as error:
        parser.error(f"--model {error}")
    compared = arms(asked.method or list(methods_of().forecasters), asked.every, models)
    experiments = [arm.experiment(asked.workloads, asked.windows, n_segments, asked.stride) for arm in compared]
    by_arm = [matches_of(experiment, asked.traces) for experiment in experiments]
    found = results_of([match for own in by_arm for match in own])
    results = {arm.label: [next(found) for _ in own] for arm, own in zip(compared, by_arm, strict=True)}
    rows = rows_of(results, BLOCK["segments" if n_segments else "windows"])
    Console(width=140, highlight=False).print(*tables_of(rows))
    if asked.out is not None:
        found_rows = msgspec.json.decode(msgspec.json.encode(rows))  # an end that is no number becomes null
        asked.out.write_text(json.dumps(found_rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
