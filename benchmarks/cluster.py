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
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.fleets import cluster_of, config_of, drawn
from benchmarks.paper.statistics import over_workloads
from migrator.cluster.answer import ClusterPlan, PlanFile, plan_to_json
from migrator.cluster.planning import plan_cluster, plan_rival, present_in
from migrator.cluster.posing import Valuing, first_window, fleet_of
from migrator.cluster.simulation import GpuRun, carry_out, gpu_configs, total
from migrator.config.cluster import ClusterConfig
from planner.cluster.fleet import TenantSet
from planner.cluster.rivals import rival
from planner.cluster.search import assign
from tests.planner.assignment_oracle import most_worth

Row = dict[str, Any]

LOADS = (0.5, 0.7, 0.9)

MOST_MEMBERS = 4

PLANNED_ONCE = {"max_schedules": 250, "replan_every_s": "never"}
"""How simulated windows are planned: once, in about a second."""

RIVALS = ("spread", "best-fit")


def planned(cluster: ClusterConfig, values: Valuing, rivals: Sequence[str] = RIVALS) -> dict[str, ClusterPlan]:
    """Ours and rivals', each with its GPUs planned in full."""
    ours = plan_cluster(cluster, values)
    return {"ours": ours, **{name: plan_rival(cluster, values, name, ours.found.bound) for name in rivals}}


class Spent(NamedTuple):
    """Seconds on the wall, and of the processors: of this process and of those that it started."""

    wall_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Spent:
        """Progress of both."""
        ended, each = os.times(), [Path(f"/proc/{one.pid}/stat").read_text() for one in active_children()]
        ticks = [int(tick) for stat in each for tick in stat.rpartition(")")[2].split()[11:13]]
        cpu_s = time.process_time() + ended.children_user + ended.children_system
        return cls(time.perf_counter(), cpu_s + sum(ticks) / os.sysconf("SC_CLK_TCK"))

    def since(self, begun: Spent, what: str) -> Row:
        """What was spent from ``begun`` on."""
        return {f"{what}_s": self.wall_s - begun.wall_s, f"{what}_cpu_s": self.cpu_s - begun.cpu_s}


def exact(seed: int, jobs: int) -> Iterator[Row]:
    """Ours, the bound and rivals, of the best over all sets of at most four, by the values of a search."""
    n_tenants, n_gpus = 14, 6
    cluster = cluster_of(drawn(seed, n_tenants, n_gpus, 0.7), n_gpus)
    window = first_window(cluster, "fleet", jobs)
    fleet = fleet_of(cluster, window)
    sets = [TenantSet(0, own) for size in range(1, MOST_MEMBERS + 1) for own in combinations(range(n_tenants), size)]
    with Valuing(window, jobs) as values:
        found = assign(fleet, values.worths, nets=values.nets)
        known = dict(zip(sets, values.worths(sets), strict=True))
        others = {name: [TenantSet(0, own) for own in rival(name, fleet) if own] for name in RIVALS}
        larger = [one for own in others.values() for one in own if one not in known]
        known.update(zip(larger, values.worths(larger), strict=True))
    by_mask = {sum(1 << i for i in one.members): known[one] for one in sets}
    best = most_worth([{own: worth for own, worth in by_mask.items() if worth is not None}] * n_gpus, n_tenants)
    rivals = {name: sum(known[one] or 0.0 for one in own) for name, own in others.items()}
    of_best = {name: 100 * worth / best for name, worth in {"ours": found.worth, **rivals}.items()}
    above = 100 * (found.bound.value / best - 1)
    yield {"part": "exact", "seed": seed, **of_best, "bound_above": above, "sets": found.evaluations, "of": len(sets)}


def gaps(seed: int, jobs: int) -> Iterator[Row]:
    """The gap of an assignment whose sets are planned in full, and what it is worth more than rivals' so planned."""
    for load in LOADS:
        cluster = cluster_of(drawn(seed, 20, 8, load), 8)
        with Valuing(first_window(cluster, "fleet", jobs), jobs) as values:
            found = planned(cluster, values)
        ours = found["ours"]
        over = {f"over_{name}": 100 * (ours.found.worth / found[name].found.worth - 1) for name in RIVALS}
        gap = 100 * (ours.gap or 0.0)
        yield {"part": "gaps", "seed": seed, "load": load, "gap": gap, **over, "sets": ours.found.evaluations}


def large(seed: int, jobs: int) -> Iterator[Row]:
    """64 GPUs on eight nodes and 160 tenants: from nothing, then without one node."""
    cluster = cluster_of(drawn(seed, 160, 64, 0.7), 64, 8)
    begun = Spent.now()
    window = first_window(cluster, "fleet", jobs)
    traced = Spent.now()
    with Valuing(window, jobs) as values:
        ours = plan_cluster(cluster, values)
        done = Spent.now()
        spread = plan_rival(cluster, values, "spread", ours.found.bound)
        yield {
            "part": "large",
            "seed": seed,
            "gap": 100 * (ours.gap or 0.0),
            "over_spread": 100 * (ours.found.worth / spread.found.worth - 1),
            "sets": ours.found.evaluations,
            **traced.since(begun, "traces"),
            **done.since(traced, "plan"),
        }
        yield {"part": "lost", "seed": seed, **_lost(cluster, ours, values)}


def _lost(cluster: ClusterConfig, before: ClusterPlan, values: Valuing) -> Row:
    """New sets after the first node is gone; only the tenants' former places are known."""
    left = replace(cluster, gpus=tuple(gpu for gpu in cluster.gpus if gpu.node != "n0"))
    begun = PlanFile.model_validate_json(json.dumps(plan_to_json(cluster, before)))
    asked = Spent.now()
    fleet = fleet_of(left, values.window)
    after = assign(fleet, values.worths, nets=values.nets, present=present_in(left, fleet, begun.sets))
    done = Spent.now()
    gone = {name for gpu in begun.gpus if gpu.node == "n0" for name in gpu.tenants}
    return {
        "gap": 100 * (1 - after.worth / after.bound.value),
        "sets": after.evaluations,
        **done.since(asked, "new_sets"),
        "lost": len(gone),
        "moved_beside": len(set(after.moved) - gone),
    }


def simulated(seed: int, jobs: int) -> Iterator[Row]:
    """Goodput, in per cent of all arrivals, of runs of two windows; and what the first was expected to bring."""
    for load in LOADS:
        tenants = drawn(seed, 20, 8, load)
        cluster = cluster_of(tenants, 8)
        window = first_window(cluster, "fleet", jobs)
        with Valuing(window, jobs) as values:
            found = planned(cluster, values)
        in_runs = replace(cluster, run=config_of(tenants, windows=2, planner=PLANNED_ONCE))
        runs = {
            name: [GpuRun(one, "fleet") for one in gpu_configs(in_runs, window, plan).values()]
            for name, plan in found.items()
        }
        each = [run for own in runs.values() for run in own]
        done = iter(carry_out(each, jobs))
        answered = {name: [next(done) for _ in own] for name, own in runs.items()}
        shares = {name: 100 * total(own).correct / total(own).arrivals for name, own in answered.items()}
        expected_off = 100 * (sum(found["ours"].expected) / total(answered["ours"], 0).correct - 1)
        over = {f"over_{name}": shares["ours"] - shares[name] for name in RIVALS}
        yield {"part": "simulated", "seed": seed, "load": load, **shares, "expected_off": expected_off, **over}


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
