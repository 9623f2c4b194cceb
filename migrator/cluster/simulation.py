"""A cluster's runs, simulated: each GPU's is an ordinary run, several at once; what they answered is added up.

A run knows nothing but its own GPU: it is the one that ``migrator run`` makes of the GPU's config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from migrator.cluster.answer import ClusterPlan
from migrator.cluster.planning import sets_of
from migrator.cluster.posing import FirstWindow
from migrator.comparison.matches import simulated
from migrator.config.cluster import ClusterConfig
from migrator.config.sections import Config
from migrator.errors import ConfigError
from migrator.inputs.assembly import assemble
from migrator.log.report import totals_of
from migrator.log.runlog import ReadLog
from migrator.terminal.parallel import Processes
from planner.policies.ours import Migrator
from workloads.serving.tally import Totals
from workloads.traffic.trace_store import keep_traces, kept_traces

Answered = Mapping[str, tuple[Totals, ...]]
"""Outcomes of requests, by tenant and window."""


def gpu_configs(cluster: ClusterConfig, window: FirstWindow, plan: ClusterPlan) -> dict[str, Config]:
    """By name of the GPU its run, which ``migrator run`` takes; GPUs that serve no tenants have none."""
    each = zip(cluster.gpus, sets_of(plan.fleet, plan.found), plan.planned, strict=True)
    order = {tenant.name: n for n, tenant in enumerate(cluster.run.tenants)}
    known = [one.tenant for one in window.tenants]
    return {
        gpu.name: cluster.config_of(gpu, sorted((known[i] for i in own.members), key=lambda one: order[one.name]))
        for gpu, own, planned in each
        if planned is not None
    }


def require_simulated(cluster: ClusterConfig, origin: str) -> None:
    """Refuse GPUs that are no simulated ones.

    Raises:
        ConfigError: Names the first.
    """
    for gpu in cluster.gpus:
        if gpu.config.backend != "sim":
            raise ConfigError(
                f"{origin}: cluster.gpus.{gpu.name.rpartition('.')[0]}.backend is {gpu.config.backend}; a cluster's "
                "runs are simulated, so that sim is needed (cluster plan --write writes a config for each GPU)"
            )


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One GPU's run; its log lies in the new ``folder``, or nowhere. ``origin`` begins messages."""

    config: Config
    origin: str
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class GpuOutcome:
    """The outcome of a GPU's run.

    Attributes:
        name: The GPU's.
        node: Where it is.
        answered: The outcomes of its tenants' requests; empty without tenants.
        expected: What its first window's plan was expected to answer in time and right, by weight.
    """

    name: str
    node: str
    answered: Answered
    expected: float

    @property
    def total(self) -> Totals:
        """All its tenants' requests together."""
        return total([self.answered])


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """The outcome of all GPUs' runs.

    Attributes:
        gpus: In the config's order.
        weights: By tenant.
    """

    gpus: tuple[GpuOutcome, ...]
    weights: Mapping[str, float]

    @property
    def answered(self) -> Answered:
        """By tenant and window."""
        return {name: windows for gpu in self.gpus for name, windows in gpu.answered.items()}

    @property
    def total(self) -> Totals:
        """All requests together."""
        return total([self.answered])

    @property
    def expected(self) -> float:
        """What plans of the first window were expected to answer in time and right, by weight."""
        return sum(gpu.expected for gpu in self.gpus)

    @property
    def first_goodput(self) -> float:
        """What was answered in time and right of the first window's requests, by weight."""
        return sum(self.weights[name] * windows[0].correct for name, windows in self.answered.items())


def answered_in(log: ReadLog) -> Answered:
    """The outcomes of a run's requests, by its log alone."""
    windows = list(log.settled.values())
    return {one.name: tuple(totals_of(window.tenants[one.name]) for window in windows) for one in log.header.tenants}


def _carried_out(job: GpuRun) -> Answered:
    setting, traffic = assemble(job.config, job.origin)
    return answered_in(simulated(setting, traffic, Migrator(), into=job.folder))


def carry_out(runs: Sequence[GpuRun], n_processes: int, tell: Callable[[int], None] = lambda _: None) -> list[Answered]:
    """The outcomes of the requests of each run; ``tell`` hears how many are done.

    Raises:
        InfeasibleError: A run has no first plan.
    """
    done = dict[int, Answered]()
    prepare = partial(keep_traces, kept_traces())
    with Processes(min(n_processes, max(1, len(runs))), prepare) as processes:
        for place, answered in processes.each(_carried_out, runs):
            done[place] = answered
            tell(len(done))
    return [done[place] for place in range(len(runs))]


def outcome_of(cluster: ClusterConfig, plan: ClusterPlan, answered: Mapping[str, Answered]) -> ClusterOutcome:
    """The outcomes of runs, by GPU."""
    gpus = tuple(
        GpuOutcome(gpu.name, gpu.node, answered.get(gpu.name, {}), expected)
        for gpu, expected in zip(cluster.gpus, plan.expected, strict=True)
    )
    return ClusterOutcome(gpus, {tenant.name: tenant.weight for tenant in cluster.run.tenants})


def likeness(run: Config) -> str:
    """The same of runs that answer the same, as those of one set on two GPUs of one model do."""
    return run.model_dump_json(exclude={"name": True, "gpu": {"index"}})


def total(answered: Sequence[Answered], window: int | None = None) -> Totals:
    """All tenants' requests together, of one window or of all."""
    each = (windows if window is None else windows[window : window + 1] for own in answered for windows in own.values())
    return sum((one for windows in each for one in windows), Totals())
