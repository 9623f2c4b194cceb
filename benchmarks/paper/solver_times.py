"""How long planning takes by granularity, the other half of the paper's Figure 10; times of one machine, one core."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

from benchmarks.paper.experiments import WORKLOADS
from benchmarks.paper.matches import ROOT
from migrator.config import read_config
from migrator.run.planning import Solving, plan_through
from migrator.setting import assemble
from planner.problem import Reconfiguration

STEPS_S = (0.5, 1.0, 3.0, 5.0, 10.0)

COST_MODELS = (Reconfiguration.PAPER, Reconfiguration.PHYSICAL)


def solver_times(workloads: Sequence[str] = WORKLOADS, steps_s: Sequence[float] = STEPS_S) -> list[dict[str, object]]:
    """By granularity and cost model: seconds to plan window 0 from nothing, and how many of the plans are proven.

    The engine is the default of the cost model; its budget of work is that of a run, so that a gap may be left.
    """
    rows: list[dict[str, object]] = []
    for step_s in steps_s:
        for cost_model in COST_MODELS:
            found = []
            for name in workloads:
                print(f"\r  planning {name} at {step_s:g} s  ", end="", file=sys.stderr, flush=True)
                changes = {"step_s": step_s, "window_s": 200.0 // step_s * step_s}
                assembled = assemble(read_config(ROOT / "configs" / f"{name}.yaml", windows=1, **changes), name)
                found.append(plan_through(*assembled, 0, Solving(cost_model))[0].plan)
            times_s = [plan.solve_s for plan in found]
            rows.append(
                {
                    "step_s": step_s,
                    "cost_model": cost_model.value,
                    "engines": sorted({plan.engine for plan in found}),
                    "median_s": round(median(times_s), 3),
                    "worst_s": round(max(times_s), 3),
                    "worst_gap_pct": round(100 * max(plan.gap for plan in found if plan.gap is not None), 3),
                    "n_proven": sum(plan.gap is not None and plan.gap <= 1e-9 for plan in found),
                    "n_without_plan": sum(not plan.status.has_plan for plan in found),
                    "n": len(found),
                }
            )
    print(file=sys.stderr)
    return rows
