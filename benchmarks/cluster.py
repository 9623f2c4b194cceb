"""What assignments of tenants to GPUs are worth, and what they take: `python -m benchmarks.cluster [PART …]`.

Parts: `exact` (6 GPUs, 14 tenants: the best over all sets of at most 4 by a dynamic program), `gaps` (8 / 20 at three
loads: gap to the bound, planned over rivals), `large` (64 / 160, cold, then with one of eight nodes gone) and
`simulated` (8 / 20: goodput of ordinary runs, two windows, planned once each). `--seeds N` draws more or fewer fleets;
`--jobs N` is how many processes value and simulate. Sets are valued without pools. Figures go to standard output, and
with `--out FILE` as JSON lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fleets import LONG, SHORT, Tenant, Valuer, config_of, drawn, fleet_of, take, window_of
from benchmarks.paper.statistics import over_workloads
from migrator import api
from migrator.errors import MigratorError
from migrator.terminal.parallel import Processes
from planner.cluster.fleet import Assignment, Fleet, Present, TenantSet
from planner.cluster.rivals import rival
from planner.cluster.search import assign
from tests.planner.assignment_oracle import most_worth

Row = dict[str, Any]

LOADS = (0.5, 0.7, 0.9)

MOST_MEMBERS = 4

PLANNED_ONCE = {"max_schedules": 250, "replan_every_s": "never"}
"""How simulated windows are planned: once, in about a second."""

RIVALS = ("spread", "best-fit")

TRANSFER_S, HORIZON_WINDOWS = 6.0, 6.0
"""What a move takes, and over how many windows its gain counts."""


def members_of(fleet: Fleet, found: Assignment) -> list[tuple[int, ...]]:
    """The assignment's sets by index."""
    index = {name: i for i, name in enumerate(fleet.tenants)}
    return [tuple(index[name] for name in members) for members in found.sets]


def exact(seed: int, jobs: int) -> Iterator[Row]:
    """Ours, the bound and rivals, of the best over all sets of at most four."""
    n_tenants, n_gpus = 14, 6
    window = window_of(drawn(seed, n_tenants, n_gpus, 0.7), jobs)
    fleet = fleet_of(window, n_gpus)
    with Processes(jobs, partial(take, window)) as processes:
        worths = Valuer(processes)
        found = assign(fleet, worths, nets=worths.nets)
        sets = [
            TenantSet(0, own) for size in range(1, MOST_MEMBERS + 1) for own in combinations(range(n_tenants), size)
        ]
        known = {sum(1 << i for i in one.members): worth for one, worth in zip(sets, worths(sets), strict=True)}
        best = most_worth([{own: worth for own, worth in known.items() if worth is not None}] * n_gpus, n_tenants)
        rivals = {name: worths.total(rival(name, fleet), SHORT)[0] for name in RIVALS}
    of_best = {name: 100 * worth / best for name, worth in {"ours": found.worth, **rivals}.items()}
    above = 100 * (found.bound.value / best - 1)
    yield {"part": "exact", "seed": seed, **of_best, "bound_above": above, "sets": found.evaluations, "of": len(sets)}


def gaps(seed: int, jobs: int) -> Iterator[Row]:
    """The gap of an assignment whose sets are planned in full, and what it is worth more than rivals' so planned."""
    for load in LOADS:
        window = window_of(drawn(seed, 20, 8, load), jobs)
        fleet = fleet_of(window, 8)
        with Processes(jobs, partial(take, window)) as processes:
            worths = Valuer(processes)
            found = assign(fleet, worths, nets=worths.nets)
            worth = worths.total(members_of(fleet, found), LONG)[0]
            rivals = {name: worths.total(rival(name, fleet), LONG)[0] for name in RIVALS}
        gap = 100 * (1 - worth / found.bound.value)
        over = {f"over_{name}": 100 * (worth / own - 1) for name, own in rivals.items()}
        yield {"part": "gaps", "seed": seed, "load": load, "gap": gap, **over, "sets": found.evaluations}


def large(seed: int, jobs: int) -> Iterator[Row]:
    """64 GPUs on eight nodes and 160 tenants: from nothing, then without one node."""
    tenants = drawn(seed, 160, 64, 0.7)
    begun_s = time.perf_counter()
    window = window_of(tenants, jobs)
    traced_s = time.perf_counter()
    fleet = fleet_of(window, 64, 8)
    with Processes(jobs, partial(take, window)) as processes:
        worths = Valuer(processes)
        found = assign(fleet, worths, nets=worths.nets)
        found_s = time.perf_counter()
        worth, _ = worths.total(members_of(fleet, found), LONG)
        planned_s = time.perf_counter()
        spread, _ = worths.total(rival("spread", fleet), LONG)
        yield {
            "part": "large",
            "seed": seed,
            "gap": 100 * (1 - worth / found.bound.value),
            "over_spread": 100 * (worth / spread - 1),
            "sets": found.evaluations,
            "traces_s": traced_s - begun_s,
            "search_s": found_s - traced_s,
            "plans_s": planned_s - found_s,
        }
        yield {"part": "lost", "seed": seed, **_lost(fleet, found, Valuer(processes))}


def _lost(fleet: Fleet, found: Assignment, worths: Valuer) -> Row:
    """New sets after the first node is gone; nothing is known but where tenants stood."""
    left = replace(fleet, gpus=tuple(gpu for gpu in fleet.gpus if gpu.node != "n0"))
    gpu_of = {name: gpu.name for gpu, members in zip(fleet.gpus, found.sets, strict=True) for name in members}
    begun_s = time.perf_counter()
    after = assign(left, worths, nets=worths.nets, present=Present(gpu_of, dict(_move_costs(fleet)), HORIZON_WINDOWS))
    took_s = time.perf_counter() - begun_s
    kept = {name for name, gpu in gpu_of.items() if gpu in {one.name for one in left.gpus}}
    return {
        "gap": 100 * (1 - after.worth / after.bound.value),
        "sets": after.evaluations,
        "new_sets_s": took_s,
        "lost": len(gpu_of) - len(kept),
        "moved_beside": len(kept.intersection(after.moved)),
    }


def _move_costs(fleet: Fleet) -> Iterator[tuple[str, float]]:
    """Right answers that a tenant misses while its weights are moved and its workers start."""
    for alone in fleet.classes[0].alone:
        if alone is not None:
            (own,) = alone.tenants
            away_s = TRANSFER_S + alone.switching_s + own.overhead_s
            yield own.name, own.weight * own.accuracy_before * float(own.arrivals_rps.mean()) * away_s


def simulated(seed: int, jobs: int) -> Iterator[Row]:
    """Goodput, in per cent of all arrivals, of runs of two windows; and what the first was expected to bring."""
    for load in LOADS:
        tenants = drawn(seed, 20, 8, load)
        window = window_of(tenants, jobs)
        fleet = fleet_of(window, 8)
        with Processes(jobs, partial(take, window)) as processes:
            worths = Valuer(processes)
            ours = members_of(fleet, assign(fleet, worths, nets=worths.nets))
            worth, salvage = worths.total(ours, LONG)
        chosen = {"ours": ours, **{name: list(rival(name, fleet)) for name in RIVALS}}
        runs = list(dict.fromkeys(members for sets in chosen.values() for members in sets if members))
        with Processes(jobs) as processes:
            done = dict(processes.each(_run, [[tenants[i] for i in members] for members in runs]))
        by_set = {members: done[place] for place, members in enumerate(runs)}
        row: Row = {"part": "simulated", "seed": seed, "load": load}
        for name, sets in chosen.items():
            arrivals, good, first = (sum(by_set[own][k] for own in sets if own) for k in range(3))
            row[name] = 100 * good / arrivals
            if name == "ours":
                row["expected_off"] = 100 * ((worth - salvage) / first - 1)
        yield {**row, **{f"over_{name}": row["ours"] - row[name] for name in RIVALS}}


def _run(tenants: Sequence[Tenant]) -> tuple[int, int, int]:
    """(arrivals, right answers in time, those of the first window) of an ordinary run."""
    config = config_of(tenants, windows=2, planner=PLANNED_ONCE)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = api.run(config, out=Path(folder) / "run").windows()
        except MigratorError as error:
            raise SystemExit(f"{', '.join(tenant['name'] for tenant in tenants)}: {error}") from None
    good = [row["goodput"] for row in rows]
    first = sum(row["goodput"] for row in rows if row["window"] == 0)
    return sum(row["arrivals"] for row in rows), sum(good), first


PARTS: Mapping[str, tuple[Callable[[int, int], Iterator[Row]], int]] = {
    "exact": (exact, 20),
    "gaps": (gaps, 5),
    "large": (large, 1),
    "simulated": (simulated, 5),
}
"""What makes a part's rows of a seed, and how many seeds there are."""

_KEYS = {"part", "seed", "load"}


def summaries(rows: Sequence[Row]) -> Iterator[str]:
    """By part and load the mean of each figure over seeds, its 95 % interval, least and most."""
    table = pd.DataFrame([{"load": 0.7, **row} for row in rows])
    for keys, own in table.groupby(["part", "load"]) if rows else ():
        part, load = keys
        for name in (name for name in own if name not in _KEYS and own[name].notna().all()):
            mean, low, high = over_workloads(own[[name]].T)
            line = f"{part} at {load:g}: {name} {mean:.2f}"
            if len(own) > 1:
                least, most = own[name].min(), own[name].max()
                line += f" (95 %: {low:.2f} to {high:.2f}; {least:.2f} to {most:.2f} in {len(own)} seeds)"
            yield line


def main() -> None:
    """Print each row as it is there, and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seeds", type=int, help="fleets of each part, from seed 1 on")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, help="rows as JSON lines, added to the file")
    given = parser.parse_args()
    if unknown := set(given.parts).difference(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    rows: list[Row] = []
    for part in given.parts or PARTS:
        make, n_seeds = PARTS[part]
        for seed in range(given.first, given.first + (given.seeds or n_seeds)):
            for row in make(seed, given.jobs):
                rows.append(row)
                line = json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()})
                print(line, flush=True)
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(line + "\n")
    print("\n".join(summaries(rows)), file=sys.stdout)


if __name__ == "__main__":
    main()
