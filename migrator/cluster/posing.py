"""A cluster's first window: each tenant forecast alone, and any set of them posed on a GPU as a run of them poses it.

Tenants are assembled once, in several processes, with the factor that brings each to its share of the load of all GPUs;
the first model decides what a GPU's load is. Sets are valued in processes that know all of that. How many there are
changes no value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import TracebackType
from typing import Self

import numpy as np

from executor.names import spelled_as
from forecaster.forecast import Forecast
from migrator.config.cluster import ClusterConfig, ClusterGpu
from migrator.config.sections import Config, TenantConfig
from migrator.errors import ConfigError, ConfigSloError, InfeasibleError
from migrator.execution.ahead import plan_through
from migrator.execution.foresight import Foresight, observe
from migrator.execution.models import TabledModels
from migrator.execution.planning import Solving
from migrator.execution.posing import pools_terms, posed, warm_ups_of
from migrator.execution.windows import Opening
from migrator.inputs.assembly import assemble, assemble_run, service_profiles, untraced
from migrator.inputs.setting import Setting
from migrator.terminal.parallel import Processes
from migrator.whatif.sweep import TenantOutcome, least_salvage, tenant_outcomes
from planner.arrays import Floats
from planner.budget import Budget
from planner.cluster.estimate import net_worths
from planner.cluster.fleet import Apart, Fleet, FleetGpu, GpuClass, TenantSet
from planner.errors import ProblemError
from planner.plan import MigPlan
from planner.problem import Problem
from planner.solve import solve
from workloads.errors import WorkloadError
from workloads.profiles.operating_point import highest_capability_rps
from workloads.profiles.shares import ShareProfile, slowdown

SHORT = Budget(max_nodes=10, proves=False)
"""With which sets are valued in a search."""

LONG = Budget(max_nodes=60, proves=False)
"""With which the chosen sets are planned, where there are several GPUs."""

MOST_POOLED = 20
"""Tenants of one GPU at most, where they may share instances."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One tenant, its scale's factor in it, and what is known as the first window begins.

    Attributes:
        tenant: As a run's config has it.
        accuracy: Of its model.
        forecast: Of its arrivals.
        gpu_class: On GPUs of which class its load is meant.
        load: Its mean arrivals over the run, of what such a GPU serves at most; of clients, the forecast of window 0.
    """

    tenant: TenantConfig
    accuracy: float
    forecast: Forecast
    gpu_class: int
    load: float


@dataclass(frozen=True, eq=False)
class FirstWindow:
    """What posing any set of the cluster's tenants takes.

    Attributes:
        configs: By class of GPUs, a run on one of them without its tenants' own.
        tenants: By name, ascending.
        origin: What messages begin with.
    """

    configs: tuple[Config, ...]
    tenants: tuple[Foreseen, ...]
    origin: str

    def pose(self, wanted: TenantSet, *, pooled: bool = False) -> Problem | None:
        """The problem of these tenants on a GPU of the class, exclusive, or all in one pool; ``None`` if there is none.

        Raises:
            ConfigError: A tenant has no profile there that meets its SLO.
        """
        own, config = [self.tenants[i] for i in wanted.members], self.config_of(wanted)
        alone = [_setting(self, wanted.gpu_class, i) for i in wanted.members]
        tenants, known = (tuple(getattr(one, name)[0] for one in alone) for name in ("tenants", "known_tenants"))
        setting = replace(alone[0], config=config, tenants=tenants, known_tenants=known)
        forecast = _joined([one.forecast for one in own])
        opening = Opening(0, np.zeros((0, len(own))), tuple(one.accuracy for one in own))
        try:
            if not pooled:
                return posed(setting, opening, None, forecast)
            terms = pools_terms(setting, warm_ups_of(setting, opening), forecast.mean_rps.mean(axis=0))
            pool = terms(tuple(range(len(own))))
            return None if pool is None else posed(setting, opening, None, forecast, pools=(pool,))
        except ProblemError:  # more tenants than the GPU has compute slices
            return None

    def config_of(self, wanted: TenantSet) -> Config:
        """The run of these tenants on a GPU of the class."""
        tenants = [self.tenants[i].tenant for i in wanted.members]
        return self.configs[wanted.gpu_class].model_copy(update={"tenants": tenants})

    def slopes(self) -> Floats:
        """How steep each tenant's latency is by share, beside a training, over its SLO, ``(n_classes, n_tenants)``.

        ∞ where it has no operating point.
        """
        found = np.full((len(self.configs), len(self.tenants)), np.inf)
        for number, tenant in np.ndindex(*found.shape):
            try:
                setting = _setting(self, number, tenant)
            except (ConfigError, WorkloadError):
                continue
            entry, own = setting.config.tenants[0], setting.known_tenants[0]
            chosen = (entry.batch, entry.processes, entry.max_batch, setting.knees(entry.model))
            profile = ShareProfile.of(setting.profiles, setting.gpu, entry.model, own.slo_s, *chosen)
            beside = slowdown(setting.sensitivity(entry.model), setting.config.simulation.interference, (), 1)
            found[number, tenant] = beside * profile.steepness / own.slo_s
        return found

    def obstacle(self, tenant: int, classes: Collection[int]) -> str | None:
        """Why none of the classes serves the tenant; ``None`` where one does."""
        said = dict[str, None]()
        for number in classes:
            try:
                _setting(self, number, tenant)
            except (ConfigError, WorkloadError) as error:
                said[str(error).removeprefix(f"{self.origin}: ")] = None
            else:
                return None
        return "; ".join(said) or None

    def may_pool(self, wanted: TenantSet) -> bool:
        """Whether all of these tenants may share instances."""
        several = len(wanted.members) > 1 and self.configs[wanted.gpu_class].sharing.may_pool
        return several and not any(self.tenants[i].tenant.alone for i in wanted.members)


@cache
def _setting(window: FirstWindow, gpu_class: int, tenant: int) -> Setting:
    """One tenant alone on a GPU of the class."""
    return untraced(window.config_of(TenantSet(gpu_class, (tenant,))), window.origin)


def _joined(forecasts: Sequence[Forecast]) -> Forecast:
    return Forecast(
        forecasts[0].method,
        np.concatenate([one.mean_rps for one in forecasts], axis=1),
        np.concatenate([one.quantiles_rps for one in forecasts], axis=2),
        np.concatenate([one.paths_rps for one in forecasts], axis=2),
    )


def first_window(cluster: ClusterConfig, origin: str, n_processes: int) -> FirstWindow:
    """The first window of the cluster's tenants.

    Raises:
        ConfigError: A tenant's trace or scale does not work out, or its model has no profiles where it may be.
        InfeasibleError: Its SLO is met by no profile.
    """
    run, places = cluster.run, classes_of(cluster)
    configs = [cluster.config_of(cluster.gpus[own[0]], ()) for own in places]
    _require_profiles(cluster, configs, places, origin)
    load_share = sum(tenant.load_share for tenant in run.tenants)
    jobs = []
    for tenant in sorted(run.tenants, key=lambda one: one.name):
        share = len(cluster.gpus) * tenant.load_share / load_share
        load = None if run.load is None else run.load * share
        jobs.append(([one.model_copy(update={"tenants": [tenant], "load": load}) for one in configs], origin))
    with Processes(min(n_processes, len(jobs))) as processes:
        found = dict(processes.each(_foreseen, jobs))
    return FirstWindow(tuple(configs), tuple(found[place] for place in range(len(jobs))), origin)


def classes_of(cluster: ClusterConfig) -> list[list[int]]:
    """The GPUs of each class, by place: those of one model with one table of profiles."""
    classes: dict[tuple[object, ...], list[int]] = {}
    for place, gpu in enumerate(cluster.gpus):
        classes.setdefault((gpu.config.model, gpu.profiles), []).append(place)
    return list(classes.values())


def _require_profiles(
    cluster: ClusterConfig, configs: Sequence[Config], places: Sequence[Sequence[int]], origin: str
) -> None:
    """Refuse a tenant whose model was measured on none of the GPUs that may have it.

    Raises:
        ConfigError: Names the tenant, its model and the GPUs; or a table cannot be read.
    """
    known = [_measured(config, origin) for config in configs]
    for tenant in cluster.run.tenants:
        allowed = set(cluster.allowed(tenant.name))
        classes = [c for c, own in enumerate(places) if not allowed.isdisjoint(own)]
        if not any(spelled_as(tenant.model, known[c]) in known[c] for c in classes):
            gpus = ", ".join(dict.fromkeys(configs[c].gpu.model for c in classes))
            measured = ", ".join(sorted({name for c in classes for name in known[c]})) or "none"
            raise ConfigError(
                f"{origin}: tenants.{tenant.name}.model is {tenant.model!r}, which has no service profiles on {gpus}, "
                f"where it may be; with profiles there: {measured}"
            )


def _measured(config: Config, origin: str) -> tuple[str, ...]:
    """The models that have profiles on the config's GPU."""
    try:
        profiles = service_profiles(config)
    except WorkloadError as error:
        raise ConfigError(f"{origin}: profiles: {error}") from None
    gpu = config.gpu.cut.name
    return profiles.models(gpu) if gpu in profiles.gpus else ()


def _foreseen(job: tuple[Sequence[Config], str]) -> Foreseen:
    """What is foreseen of one tenant, by the first class on which it has an operating point."""
    configs, origin = job
    failed = list[ConfigError]()
    for gpu_class, config in enumerate(configs):
        try:
            setting, traffic = assemble_run(config, origin)
        except ConfigError as error:
            failed.append(error)
            continue
        models = TabledModels(setting.tenants, config.window_s)
        accuracies = models.open(0)
        forecast = Foresight(setting, traffic).forecast(observe(setting, traffic, 0, accuracies))
        load = traffic.origins[0].load
        if config.has_live_arrivals:
            most_rps = highest_capability_rps(setting.gpu, setting.tenants[0].operating_points.values())
            load = float(forecast.mean_rps.mean()) / most_rps
        return Foreseen(setting.config.tenants[0], accuracies[0], forecast, gpu_class, load)
    if unmet := next((error for error in failed if isinstance(error, ConfigSloError)), None):
        raise InfeasibleError(str(unmet))
    raise failed[0]


def fleet_of(cluster: ClusterConfig, window: FirstWindow) -> Fleet:
    """The cluster as planning takes it."""
    names = tuple(one.tenant.name for one in window.tenants)
    places = classes_of(cluster)
    class_of = {g: c for c, own in enumerate(places) for g in own}
    allowed = {name: set(cluster.allowed(name)) for name in names}
    gpus = tuple(
        FleetGpu(gpu.name, gpu.node, class_of[g], frozenset(name for name in names if g not in allowed[name]))
        for g, gpu in enumerate(cluster.gpus)
    )
    classes = tuple(_class(cluster.gpus[own[0]], c, window) for c, own in enumerate(places))
    apart = [Apart(frozenset(pair)) for pair in cluster.apart()]
    for replicas in cluster.replicas_of():
        i = names.index(replicas[0])
        serving = [g for g in allowed[replicas[0]] if classes[class_of[g]].alone[i] is not None]
        if n_nodes := len({cluster.gpus[g].node for g in serving}):
            apart.append(Apart(frozenset(replicas), per_node=True, most=math.ceil(len(replicas) / n_nodes)))
    return Fleet(names, classes, gpus, tuple(apart))


def _class(gpu: ClusterGpu, number: int, window: FirstWindow) -> GpuClass:
    alone: list[Problem | None] = []
    for i in range(len(window.tenants)):
        try:
            alone.append(window.pose(TenantSet(number, (i,))))
        except (ConfigError, WorkloadError):  # no profile there, or none that meets its SLO
            alone.append(None)
    pools = window.configs[number].sharing.may_pool
    most = MOST_POOLED if pools else gpu.config.cut.compute_slices
    return GpuClass(gpu.config.model, tuple(alone), most)


_HERE: list[FirstWindow] = []
"""The window that this process values sets of."""


def _take(window: FirstWindow) -> None:
    _HERE[:] = [window]


@dataclass(frozen=True, slots=True)
class Planned:
    """What the plan of a set comes to.

    Attributes:
        worth: Its objective, salvage included.
        expected: What it expects to answer in time and right in the window.
        tenants: What it promises each.
        least_salvage: Every plan of the set has as much of it.
    """

    worth: float
    expected: float
    tenants: tuple[TenantOutcome, ...]
    least_salvage: float


Effort = Budget | None
"""How a set is planned; ``None``: as ``migrator plan`` plans its window, and a run."""


def _planned(job: tuple[TenantSet, Effort]) -> tuple[Problem, MigPlan] | None:
    """The best plan of the set, exclusive or in one pool, and its problem."""
    wanted, budget = job
    window = _HERE[0]
    if budget is None:
        return _as_a_run(window, wanted)
    problems = [window.pose(wanted), window.pose(wanted, pooled=True) if window.may_pool(wanted) else None]
    costs = window.configs[wanted.gpu_class].planner.floor_costs_at_most
    plans = [(one, solve(one, "physical", budget, floor_costs_at_most=costs)) for one in problems if one is not None]
    served = [(problem, plan) for problem, plan in plans if plan.objective is not None]
    return max(served, key=lambda pair: pair[1].objective or 0.0, default=None)


def _as_a_run(window: FirstWindow, wanted: TenantSet) -> tuple[Problem, MigPlan] | None:
    try:
        setting, traffic = assemble(window.config_of(wanted), window.origin)
        (planned,) = plan_through(setting, traffic, 0, Solving(must_meet_floors=False))
    except (ConfigSloError, InfeasibleError):
        return None
    return (planned.problem, planned.plan) if planned.is_planned else None


def _short(wanted: TenantSet) -> float | None:
    found = _planned((wanted, SHORT))
    return None if found is None else found[1].objective


def _net(job: tuple[int, int, Floats]) -> Floats:
    gpu_class, tenant, prices = job
    problem = _HERE[0].pose(TenantSet(gpu_class, (tenant,)))
    assert problem is not None  # those without one are not asked for
    return net_worths(problem, prices)


def _summary(job: tuple[TenantSet, Effort]) -> Planned | None:
    found = _planned(job)
    if found is None or found[1].objective is None:
        return None
    problem, plan = found
    assert plan.objective is not None
    tenants, least = tuple(tenant_outcomes(problem, plan)), least_salvage(problem)
    return Planned(plan.objective, plan.objective - plan.salvage, tenants, least)


class Valuing:
    """Values sets of a window's tenants in processes that end with the context."""

    def __init__(self, window: FirstWindow, n_processes: int) -> None:
        self.window, self._processes = window, Processes(n_processes, partial(_take, window))
        self._short: dict[TenantSet, float | None] = {}

    def __enter__(self) -> Self:
        self._processes.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._processes.__exit__(kind, error, traceback)

    def worths(self, wanted: Sequence[TenantSet]) -> list[float | None]:
        """As a search values sets."""
        done = dict(self._processes.each(_short, wanted))
        found = [done[place] for place in range(len(wanted))]
        self._short.update(zip(wanted, found, strict=True))
        return found

    def nets(self, pairs: Sequence[tuple[int, int]], prices: Floats) -> Floats:
        """What tenants earn net of prices, ``(n_pairs, n_prices)``."""
        done = dict(self._processes.each(_net, [(c, i, prices) for c, i in pairs]))
        return np.array([done[place] for place in range(len(pairs))]).reshape(len(pairs), len(prices))

    def planned(self, wanted: Sequence[TenantSet], effort: Effort = LONG) -> list[Planned | None]:
        """What each set's full plan comes to, never less than the short one where there is a budget."""
        found = self._summaries([(one, effort) for one in wanted])
        if effort is None:
            return found
        is_less = [not self._is_as_good(one, own) for one, own in zip(wanted, found, strict=True)]
        short = iter(self._summaries([(one, SHORT) for one, less in zip(wanted, is_less, strict=True) if less]))
        pairs = [(own, next(short) if less else None) for own, less in zip(found, is_less, strict=True)]
        return [max(filter(None, pair), key=lambda one: one.worth, default=None) for pair in pairs]

    def _summaries(self, jobs: Sequence[tuple[TenantSet, Effort]]) -> list[Planned | None]:
        done = dict(self._processes.each(_summary, jobs))
        return [done[place] for place in range(len(jobs))]

    def _is_as_good(self, wanted: TenantSet, found: Planned | None) -> bool:
        """Whether the set's short plan is known to be worth no more."""
        short = self._short.get(wanted, math.inf)
        return short is None or (found is not None and found.worth >= short)
