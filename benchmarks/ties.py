"""What plans lose by what they leave idle: `python -m benchmarks.ties [CONFIG …] [--loads 0.2 0.35] [--seeds 3]`.

At low loads most plans are expected to answer every request, and what else is held decides who serves those that no
forecast saw. W1 to W16, or configs of your own, are simulated at each load, with the first seeds, under `migrator` and
under `static`, the best layout that stays, chosen in hindsight; so is the example of `docs/start.md`, as it is. A row
has the points of goodput by which `migrator` is ahead, with their interval of 95 % over seeds (Student's t); its
changes of the layout, a window, and static's; and of the requests that it dropped the share in seconds in which three
memory slices or more were idle throughout. Below the table is what it has to show.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import stdtrit

from executor.catalogue import gpu_model
from migrator.comparison.matches import FLOOR, simulated
from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.log.account import counts_of
from migrator.log.changes import changes_in
from migrator.log.runlog import ReadLog
from migrator.log.timeline import held, n_seconds
from planner.policies.registry import policy_of
from workloads.arrays import FloatArray, IntArray

ROOT = Path(__file__).resolve().parents[1]
OURS = "migrator"

IDLE_SLICES = 3
"""Idle memory slices from which on a second counts."""

MOST_BEHIND = 0.1
"""Points that `migrator` may be behind in a row."""

MOST_DROPPED = 2.0
"""Per cent of the dropped requests that may be dropped beside idle slices."""


@dataclass(frozen=True, slots=True)
class Case:
    """A config at a load; ``None`` for its own load and windows."""

    config: Path
    load: float | None
    windows: int | None


@dataclass(frozen=True, slots=True)
class Came:
    """A run's outcome: goodput % of its arrivals, requests dropped, and of them beside idle slices; changes."""

    goodput_pct: float
    dropped: float
    beside_idle: float
    changes: float


@dataclass(frozen=True, slots=True)
class Row:
    """A case's runs by seed."""

    case: Case
    ours: Sequence[Came]
    static: Sequence[Came]

    @property
    def ahead(self) -> tuple[float, float]:
        """Points ahead: the mean over seeds, and half the interval's width."""
        points = [own.goodput_pct - other.goodput_pct for own, other in zip(self.ours, self.static, strict=True)]
        if len(points) == 1:
            return points[0], float("nan")
        return fmean(points), float(stdtrit(len(points) - 1, 0.975)) * stdev(points) / len(points) ** 0.5


def came_of(case: Case, seed: int, policy: str) -> Came:
    """A run of the case, in which nobody shares an instance: ``static`` has no pools."""
    own = {"windows": case.windows, "load": case.load, "seed": seed, "sharing": {"pools": "off"}}
    config = read_config(case.config, **own)
    setting, traffic = assemble(config, str(case.config))
    log = simulated(setting, traffic, policy_of(policy))
    names = [tenant.name for tenant in log.header.tenants]
    arrivals, correct, dropped = (
        sum((counts_of(log, name, key, n_seconds(log)) for name in names), np.zeros(n_seconds(log)))
        for key in ("arrivals", "correct", "dropped")
    )
    n_changes = sum(1 for change in changes_in(log)[1:] if change.calls)
    return Came(
        goodput_pct=100.0 * float(correct.sum() / arrivals.sum()),
        dropped=float(dropped.sum()),
        beside_idle=float(dropped[idle_slices(log) >= IDLE_SLICES].sum()),
        changes=n_changes / config.windows,
    )


def idle_slices(log: ReadLog) -> IntArray:
    """Memory slices that nobody held for any part of each second, ``(n_seconds,)``."""
    is_held = np.zeros((n_seconds(log), gpu_model(log.header.gpu).memory_slices), dtype=np.bool_)
    for span in held(log):
        is_held[int(span.begin_s) : int(np.ceil(span.end_s)), int(span.first_row) : int(np.ceil(span.end_row))] = True
    return np.asarray((~is_held).sum(axis=1), dtype=np.int64)


def from_start(folder: Path) -> Path:
    """The example of `docs/start.md`, written down as its reader does."""
    text = (ROOT / "docs" / "start.md").read_text("utf-8")
    for name, language in (("mine.yaml", "yaml"), ("profiles.csv", "csv")):
        found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (folder / name).write_text(found[1], "utf-8")
    trace = ROOT / "configs" / "my-traces" / "trace.csv"
    (folder / trace.name).write_bytes(trace.read_bytes())
    return folder / "mine.yaml"


def rows_of(cases: Iterable[Case], seeds: Sequence[int]) -> Iterator[Row]:
    """A row a case, one after the other."""
    for case in cases:
        ours, static = ([came_of(case, seed, policy) for seed in seeds] for policy in (OURS, FLOOR))
        yield Row(case, ours, static)


def table_of(rows: Sequence[Row]) -> Table:
    """The rows as a table."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    table.add_column("config", vertical="bottom")
    for name in ("load", "migrator\n%", "static\n%", "ahead", "±", "changes", "static's", "dropped", "beside\nidle %"):
        table.add_column(name, justify="right", vertical="bottom")
    for row in rows:
        ahead, half = row.ahead
        means = (fmean(one.goodput_pct for one in runs) for runs in (row.ours, row.static))
        changes = (fmean(one.changes for one in runs) for runs in (row.ours, row.static))
        dropped = sum(one.dropped for one in row.ours)
        table.add_row(
            row.case.config.stem,
            "own" if row.case.load is None else f"{row.case.load:g}",
            *(f"{mean:.2f}" for mean in means),
            f"{ahead:+.3f}",
            f"{half:.3f}",
            *(f"{mean:.1f}" for mean in changes),
            f"{dropped:.0f}",
            f"{share_beside_idle([row]):.1f}",
        )
    return table


def share_beside_idle(rows: Sequence[Row]) -> float:
    """Per cent of the requests that `migrator` dropped; 0 where it dropped none."""
    dropped = sum(one.dropped for row in rows for one in row.ours)
    return 100.0 * sum(one.beside_idle for row in rows for one in row.ours) / dropped if dropped else 0.0


def verdicts(rows: Sequence[Row]) -> Iterator[str]:
    """What is wanted of the rows, and what they are."""
    points: FloatArray = np.array([row.ahead for row in rows])
    loaded = np.array([row.case.load is not None for row in rows])
    if loaded.any():
        yield f"ahead on the mean of configs at loads: {points[loaded, 0].mean():+.3f} points; at least 0 is wanted"
    behind = int((points.sum(axis=1) < -MOST_BEHIND).sum())
    on_mean = int((points[:, 0] < -MOST_BEHIND).sum())
    yield f"rows whose interval lies below −{MOST_BEHIND:g}: {behind}, whose mean does: {on_mean}; 0 are wanted"
    beside_idle = share_beside_idle(rows)
    yield f"of dropped requests beside idle slices: {beside_idle:.2f} %; at most {MOST_DROPPED:g} % are wanted"


def main() -> None:
    """Simulate, and print the table and what is wanted of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=Path, help="instead of W1 to W16")
    parser.add_argument("--loads", nargs="*", type=float, default=[0.2, 0.35], help="loads that configs are brought to")
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 1 on")
    parser.add_argument("--windows", type=int, default=1, help="windows that configs run")
    asked = parser.parse_args()
    configs = asked.configs or [ROOT / "configs" / f"w{number}.yaml" for number in range(1, 17)]
    with tempfile.TemporaryDirectory() as folder:
        cases = [Case(from_start(Path(folder)), None, None)]
        cases += [Case(config, load, asked.windows) for config, load in product(configs, asked.loads)]
        found = rows_of(cases, range(1, asked.seeds + 1))
        rows = list(track(found, total=len(cases), console=Console(stderr=True), transient=True))
    console = Console()
    console.print(table_of(rows))
    for verdict in verdicts(rows):
        console.print(verdict)


if __name__ == "__main__":
    main()
