"""What the results page shows beside matches of policies: studies of their own, each kept by its code's content."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.paper import nine
from benchmarks.paper.clusters import kept
from benchmarks.paper.experiments import WORKLOADS
from benchmarks.paper.matches import CACHE, ROOT, digest_of, make_folder, product_files
from benchmarks.paper.pre_initialisation import by_load
from migrator.comparison.matches import over_each_segment
from migrator.config.reading import read_config
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving
from migrator.inputs.assembly import assemble
from migrator.terminal.outputs import write_output
from planner.plan import MigPlan
from planner.problem import Reconfiguration

STEPS_S = (0.5, 1.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True)
class Study:
    """A part of the page that is no match of policies.

    Attributes:
        name: Of its results.
        title: What it is about.
        files: Those of this folder that make it.
        made: Makes its results, of values that JSON can hold.
    """

    name: str
    title: str
    files: tuple[str, ...]
    made: Callable[[], object]


def planning_work(workloads: Sequence[str] = WORKLOADS, steps_s: Sequence[float] = STEPS_S) -> list[dict[str, object]]:
    """By granularity and cost model: what planning window 0 from nothing takes, and how many plans claim to be best.

    The engine is the default of the cost model; its budget of work is that of a run, so that a gap may be left. The
    work is counted in valued schedules: seconds would be others each time.
    """
    rows: list[dict[str, object]] = []
    for step_s in steps_s:
        for cost_model in (Reconfiguration.PAPER, Reconfiguration.PHYSICAL):
            found = [_planned(name, step_s, cost_model) for name in workloads]
            schedules = [dict(plan.work)["schedules"] for plan in found]
            rows.append(
                {
                    "step_s": step_s,
                    "cost_model": cost_model.value,
                    "engines": sorted({plan.engine for plan in found}),
                    "median_schedules": median(schedules),
                    "most_schedules": max(schedules),
                    "worst_claimed_gap_pct": round(
                        100 * max(plan.claimed_gap for plan in found if plan.claimed_gap is not None), 3
                    ),
                    "n_optimal": sum(plan.claimed_gap is not None and plan.claimed_gap <= 1e-9 for plan in found),
                    "n": len(found),
                }
            )
    print(file=sys.stderr)
    return rows


def _planned(workload: str, step_s: float, cost_model: Reconfiguration) -> MigPlan:
    """The plan of the workload's window 0; a window is as many whole steps as 200 s hold."""
    print(f"\r  planning {workload} at {step_s:g} s  ", end="", file=sys.stderr, flush=True)
    changes = {"step_s": step_s, "window_s": 200.0 // step_s * step_s, "sharing": {"pools": "off"}}
    config = over_each_segment(read_config(ROOT / "configs" / f"{workload}.yaml", windows=1, **changes))
    assembled = assemble(config, workload)
    return plan_through(*assembled, 0, Solving(cost_model))[0].plan


STUDIES = (
    Study("planning", "What planning takes", ("studies.py", "experiments.py"), planning_work),
    Study(
        "pre-initialisation",
        "Pre-initialisation: how much of the overhead is hidden?",
        ("pre_initialisation.py", "experiments.py"),
        by_load,
    ),
    Study("clusters", "Many GPUs: who goes where", ("clusters.py", "cluster.jsonl"), kept),
    Study("nine-systems", "Nine systems on the same requests", ("nine.py", "matches.py", "experiments.py"), nine.rows),
)
"""In the order of the page."""


def results_of_studies(names: Collection[str]) -> dict[str, object]:
    """By study its results, of those named; what is not known yet is made, and kept."""
    return {one.name: _kept(one) for one in STUDIES if one.name in names}


def _kept(one: Study) -> object:
    own = [Path(__file__).with_name(name) for name in one.files]
    digest = digest_of([*product_files(), *own, *(ROOT / "configs").glob("*.yaml")])
    path = CACHE / f"study-{one.name}-{digest[:16]}.json"
    if path.is_file():
        try:
            return json.loads(path.read_bytes())
        except ValueError:
            print(f"{path}: damaged; what it held is made anew", file=sys.stderr)
    print(f"study: {one.name}", file=sys.stderr)
    make_folder(CACHE)
    write_output("the cache", path, json.dumps(one.made()), None)
    return json.loads(path.read_bytes())
