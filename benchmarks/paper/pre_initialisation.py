"""How much of the reconfiguration overhead is hidden: what the paper says is 83 % (§5.2).

The paper does not say of what. Two measures, in one sentence each:

- **in seconds**: the time that new inference instances spend between creation and service, and of it the share of
  instances at whose creation no inference instance ended. The share of ``migrator-paper-cold`` is beside that of
  ``migrator-paper``, because growing into what a retraining left hides time without pre-initialisation;
- **as goodput**: 1 − requests that ``migrator-paper`` loses to the class *reconfiguration* over those that
  ``migrator-paper-cold`` loses to it, of the same requests.

Times are the plans', whose warm-ups are rounded up to steps; requests are what the simulation made of the plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.paper.experiments import AT_ONCE, WORKLOADS
from benchmarks.paper.matches import ROOT
from migrator.comparison.matches import over_each_segment, simulated
from migrator.config.reading import read_config
from migrator.config.sections import Config
from migrator.execution.loop import View
from migrator.execution.windows import PlannedWindow
from migrator.inputs.assembly import assemble
from migrator.log.account import Account, accounts
from migrator.log.runlog import ReadLog
from migrator.terminal.parallel import Processes, n_cores
from planner.plan import MigPlan
from planner.policies.paper.pre_initialisation import StartSteps, warm_ups
from planner.policies.registry import MIG_POLICIES
from workloads.serving.tally import Totals

Row = Mapping[str, float]

LOADS = (0.3, 0.7)

PAPER, COLD = "migrator-paper", "migrator-paper-cold"

POLICIES = (PAPER, COLD, "migrator")


def by_load() -> list[dict[str, object]]:
    """By load, the studies of all sixteen workloads added up, two windows each."""
    found = []
    with Processes(n_cores()) as processes:
        for load in LOADS:
            paths = [ROOT / "configs" / f"{name}.yaml" for name in WORKLOADS]
            configs = [over_each_segment(read_config(path, windows=2, load=load, **AT_ONCE)) for path in paths]
            own = dict(processes.each(study, configs))
            found.append({"load": load, "policies": added([own[place] for place in range(len(configs))])})
    return found


def study(config: Config, policies: Sequence[str] = POLICIES) -> dict[str, dict[str, float]]:
    """By policy, what a run of the config comes to; all policies have the config's own batches.

    Seconds that new inference instances warm up: ``idle_s`` on slices that were idle before, ``left_s`` on slices that
    a retraining has just left, ``exposed_s`` where an inference instance was given up for them. Requests:
    ``arrivals``, ``goodput``, and ``reconfiguration`` for those lost to it. The same config has the same figures.

    Raises:
        InfeasibleError: A policy has no plan for window 0.
    """
    setting, traffic = assemble(config, config.name)
    rows = {}
    for name in policies:
        seen = _Plans()
        rows[name] = _row(simulated(setting, traffic, MIG_POLICIES[name](), seen), seen, setting.config.step_s)
    return rows


def added(studies: Sequence[Mapping[str, Row]]) -> dict[str, dict[str, float]]:
    """The studies of several configs with the same policies as one: every figure added up."""
    return {
        name: {key: sum(one[name][key] for one in studies) for key in row}
        for name, row in (studies[0].items() if studies else ())
    }


def hidden_in_seconds(row: Row) -> float | None:
    """The share of warm-up for which no inference instance was given up; ``None`` if nothing warmed up."""
    hidden_s = row["idle_s"] + row["left_s"]
    all_s = hidden_s + row["exposed_s"]
    return hidden_s / all_s if all_s else None


def hidden_as_goodput(rows: Mapping[str, Row]) -> float | None:
    """1 − requests lost to reconfiguration with pre-initialisation over those lost without; ``None`` if those are 0.

    It is negative if more are lost with it, as plans differ from the second window on.
    """
    lost, lost_cold = (rows[name]["reconfiguration"] for name in (PAPER, COLD))
    return 1.0 - lost / lost_cold if lost_cold else None


def gained_points(rows: Mapping[str, Row]) -> float:
    """How many points of goodput % pre-initialisation is worth."""
    with_it, without = (100.0 * rows[name]["goodput"] / rows[name]["arrivals"] for name in (PAPER, COLD))
    return with_it - without


class _Plans(View):
    """A view that keeps what was in force, and its outcome."""

    def __init__(self) -> None:
        self.plans: list[MigPlan] = []
        self.total = Totals()

    def planned(self, planned: PlannedWindow) -> None:
        """Keep the plan."""
        self.plans.append(planned.plan)

    def settled(self, window: int, totals: Totals) -> None:  # noqa: ARG002 (they come in order)
        """Add the window."""
        self.total += totals


def _row(log: ReadLog, seen: _Plans, step_s: float) -> dict[str, float]:
    account = sum((own.total for own in accounts(log).values()), Account())
    warm, before = StartSteps(), None
    for plan in seen.plans:
        warm, before = warm + warm_ups(plan, before), plan
    return {
        "idle_s": warm.idle_steps * step_s,
        "left_s": warm.left_steps * step_s,
        "exposed_s": warm.exposed_steps * step_s,
        "arrivals": seen.total.arrivals,
        "goodput": seen.total.correct,
        "reconfiguration": account.reconfiguration,
    }
