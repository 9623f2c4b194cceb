"""The fewest of a cluster's GPUs that keep what is asked for: ``--find min:gpus``, judged as ``whatif --find`` judges.

The first n GPUs of the config are tried, with the traffic that its load brings to all of them. Plans promise; runs of
the sets that the plan has, with three seeds, then say what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from migrator.cluster.answer import ClusterPlan
from migrator.cluster.planning import plan_cluster
from migrator.cluster.posing import Valuing
from migrator.cluster.simulation import Answered, GpuRun, carry_out, gpu_configs
from migrator.config.cluster import ClusterConfig
from migrator.errors import GridError, InfeasibleError
from migrator.whatif.confirm import Confirmed, Kept, Trial, confirm
from migrator.whatif.grid import Choice, shown
from migrator.whatif.search import Condition, Found, GoalSearch
from migrator.whatif.search import find as search_for
from migrator.whatif.sweep import PointOutcome, attainment_pct

N_VALUES = 5
"""Numbers of GPUs that are planned first, from all of them down to one."""

ASKED = "min:gpus"
"""What can be looked for."""


@dataclass
class Fewest:
    """A search for the fewest GPUs of a cluster; plans are kept.

    Attributes:
        cluster: With all of its GPUs.
        values: Of its tenants' sets.
        n_processes: That runs are simulated in.
        planned: Hears of each number that was planned.
    """

    cluster: ClusterConfig
    values: Valuing
    n_processes: int
    planned: Callable[[PointOutcome], None] = lambda _: None
    _plans: dict[int, ClusterPlan | InfeasibleError] = field(default_factory=dict)

    def find(self, conditions: Sequence[Condition]) -> Found:
        """What plans promise."""
        return search_for(numbers_of(self.cluster), conditions, lambda choices: [*map(self._outcome, choices)])

    def confirm(self, found: Found, tell: Callable[[Trial], None], told: Callable[[int], None]) -> Confirmed:
        """What runs keep; ``told`` hears how many of a fleet's are done."""

        def simulate(wanted: Sequence[tuple[Choice, int]]) -> list[Kept | None]:
            return [self._kept(choice, seed, told) for choice, seed in wanted]

        weights = {tenant.name: tenant.weight for tenant in self.cluster.run.tenants}
        return confirm(found, self.cluster.run.seed, weights, simulate, tell)

    def with_gpus(self, choice: Choice) -> ClusterConfig:
        """The cluster's first so many GPUs."""
        assert isinstance(choice.value, int)
        return replace(self.cluster, gpus=self.cluster.gpus[: choice.value])

    def _plan(self, choice: Choice) -> ClusterPlan | InfeasibleError:
        cluster = self.with_gpus(choice)
        if len(cluster.gpus) not in self._plans:
            try:
                self._plans[len(cluster.gpus)] = plan_cluster(cluster, self.values)
            except InfeasibleError as error:
                self._plans[len(cluster.gpus)] = error
        return self._plans[len(cluster.gpus)]

    def _outcome(self, choice: Choice) -> PointOutcome:
        outcome = self._as_point(choice, self._plan(choice))
        self.planned(outcome)
        return outcome

    def _as_point(self, choice: Choice, plan: ClusterPlan | InfeasibleError) -> PointOutcome:
        model, engine = "physical", "cluster"
        if isinstance(plan, InfeasibleError):
            return PointOutcome((choice,), "infeasible", model, engine, reason=str(plan))
        if plan.shortfall is not None:
            return PointOutcome((choice,), "infeasible", model, engine, reason=plan.shortfall)
        weights = {tenant.name: tenant.weight for tenant in self.cluster.run.tenants}
        each = [one for one in plan.planned if one is not None]
        tenants = tuple(sorted((own for one in each for own in one.tenants), key=lambda own: own.name))
        salvages = [one.worth - one.expected for one in each]
        return PointOutcome(
            (choice,),
            plan.status,
            model,
            engine,
            arrivals=sum(weights[own.name] * own.arrivals for own in tenants),
            goodput=sum(plan.expected),
            bound=plan.bound,
            gap=plan.gap,
            tenants=tenants,
            slo_attainment_pct=attainment_pct(tenants),
            salvage=sum(salvages) if any(salvages) else None,
            least_salvage=sum(one.least_salvage for one in each),
        )

    def _kept(self, choice: Choice, seed: int, told: Callable[[int], None]) -> Kept | None:
        plan, cluster = self._plan(choice), self.with_gpus(choice)
        if isinstance(plan, InfeasibleError) or plan.unserved:
            return None
        configs = gpu_configs(cluster, self.values.window, plan).values()
        runs = [GpuRun(one.model_copy(update={"seed": seed}), self.values.window.origin) for one in configs]
        try:
            return {name: own for one in carry_out(runs, self.n_processes, told) for name, own in _counts(one)}
        except InfeasibleError:
            return None


def _counts(answered: Answered) -> list[tuple[str, np.ndarray]]:
    return [
        (name, np.array([(one.arrivals, one.correct, one.in_time) for one in windows], dtype=np.float64))
        for name, windows in answered.items()
    ]


def numbers_of(cluster: ClusterConfig) -> GoalSearch:
    """The numbers of GPUs that are tried first, from the easy end."""
    most = len(cluster.gpus)
    tried = dict.fromkeys(round(most - place * (most - 1) / (N_VALUES - 1)) for place in range(N_VALUES))
    return GoalSearch("min", tuple(Choice("gpus", None, n) for n in tried))


def require_known(text: str) -> None:
    """Refuse to look for anything else.

    Raises:
        GridError: Names what can be found.
    """
    if text != ASKED:
        raise GridError(f"--find {shown(text)}: {ASKED} can be found in a cluster")
