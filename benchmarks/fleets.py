"""Seeded fleets for the cluster's benchmark: tenants, traces and loads drawn; posed, and valued in several processes.

Models have SLOs that the shipped A100-80GB rows meet; a tenant's load is a share of a GPU, log-normal, none above 0.8,
and all loads sum up to what was asked for. Everything here is made up but the rows and the traces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from forecaster.forecast import Forecast
from migrator.config.sections import Config, ScaleConfig
from migrator.errors import ConfigError
from migrator.execution.foresight import Foresight, observe
from migrator.execution.models import TabledModels
from migrator.execution.posing import posed
from migrator.execution.windows import Opening
from migrator.inputs.assembly import assemble, untraced
from migrator.inputs.setting import Setting
from migrator.terminal.parallel import Processes
from planner.arrays import Floats
from planner.budget import Budget
from planner.cluster.estimate import net_worths
from planner.cluster.fleet import Fleet, FleetGpu, GpuClass, TenantSet
from planner.errors import ProblemError
from planner.problem import Problem
from planner.solve import solve

Tenant = dict[str, Any]

GPU = "a100-80gb"

SHORT = Budget(max_nodes=10, proves=False)
"""With which sets are valued in a search."""

LONG = Budget(max_nodes=60, proves=False)
"""With which chosen sets are planned."""

_MODELS = (
    *(("resnet50", 150, 10000), ("mobilenet-v2", 100, 10000), ("inception-v3", 200, 8000), ("bert-base", 300, 2000)),
    *(("vit-b-16", 400, 3000), ("convnext-base", 400, 3000), ("bert-large", 330, 1500)),
)
"""With SLO in milliseconds, and samples of a retraining."""

_LATEST_S = {"azure-conv": (600, 2600), "azure-code": (600, 2600), "alibaba-servegen": (648_000, 800_000)}
"""Where in a trace windows begin; `apollo` is short, and looped."""


def config_of(tenants: Sequence[Tenant], **more: Any) -> Config:
    """The config of a run of these tenants on one GPU, without pools."""
    base = {
        "name": "fleet",
        "seed": 1,
        "gpu": {"model": GPU},
        "window_s": 200,
        "windows": 1,
        "forecast": {"n_paths": 8},
    }
    return Config.model_validate({**base, "sharing": {"pools": "off"}, **more, "tenants": list(tenants)})


def drawn(seed: int, n_tenants: int, n_gpus: int, load: float) -> list[Tenant]:
    """Tenants whose loads sum up to ``load`` of all GPUs."""
    rng = random.Random(seed)  # noqa: S311 - what is drawn is no secret
    tenants, scales = list[Tenant](), list[ScaleConfig]()
    while len(tenants) < n_tenants:
        tenant = _tenant(rng, f"t{len(tenants):03d}")
        try:
            alone, _ = assemble(config_of([tenant], load=1.0), "fleet")
        except ConfigError:  # its SLO cannot be met, or its trace has nothing there
            continue
        tenants.append(tenant)
        scales.append(alone.config.tenants[0].arrivals.scale)
    loads = _loads([rng.lognormvariate(0, 0.8) for _ in tenants], load * n_gpus)
    for tenant, scale, own in zip(tenants, scales, loads, strict=True):
        assert scale.factor is not None  # a load gives one
        at_load = {"method": scale.method, "factor": scale.factor * own, "smooth_s": scale.smooth_s}
        tenant["arrivals"]["scale"] = at_load
    return tenants


def _tenant(rng: random.Random, name: str) -> Tenant:
    model, slo_ms, samples = rng.choice(_MODELS)
    trace = rng.choice([*_LATEST_S, "apollo"])
    before = round(rng.uniform(0.55, 0.75), 3)
    arrivals = {"trace": trace, "offset_s": rng.randrange(*_LATEST_S[trace]) if trace in _LATEST_S else 0}
    tenant: Tenant = {
        "name": name,
        "model": model,
        "slo_ms": slo_ms * rng.choice([1, 1, 1.5, 2]),
        "arrivals": arrivals if trace in _LATEST_S else {**arrivals, "loop": True},
        "accuracy": {"before": before, "after": round(min(0.95, before + rng.uniform(0.05, 0.3)), 3)},
    }
    if rng.random() < 0.7:
        tenant["retraining"] = {"samples": int(samples * rng.uniform(0.3, 1))}
    return tenant


def _loads(weights: Sequence[float], total: float) -> list[float]:
    """In proportion to weights, as far as none is above 0.8."""
    loads = np.array(weights) / sum(weights) * total
    for _ in range(50):
        over, free = float(np.maximum(loads - 0.8, 0).sum()), loads < 0.8
        loads = np.minimum(loads, 0.8)
        if over < 1e-9 or not free.any():
            break
        loads[free] += over / free.sum()
    return list(map(float, loads))


@dataclass(frozen=True, eq=False)
class FleetWindow:
    """The first window of a fleet's tenants: what posing any of them on one GPU takes."""

    config: Config
    accuracies: tuple[float, ...]
    forecast: Forecast

    def pose(self, members: Sequence[int]) -> Problem:
        """The problem of a GPU with these tenants, as a run of them alone poses it."""
        own, setting, forecast = list(members), _setting(self), self.forecast
        config = setting.config.model_copy(update={"tenants": [setting.config.tenants[i] for i in own]})
        tenants, known = (tuple(of[i] for i in own) for of in (setting.tenants, setting.known_tenants))
        theirs = replace(
            forecast,
            mean_rps=forecast.mean_rps[:, own],
            quantiles_rps=forecast.quantiles_rps[:, :, own],
            paths_rps=forecast.paths_rps[:, :, own],
        )
        opening = Opening(0, np.zeros((0, len(own))), tuple(self.accuracies[i] for i in own))
        return posed(replace(setting, config=config, tenants=tenants, known_tenants=known), opening, None, theirs)


@cache
def _setting(window: FleetWindow) -> Setting:
    return untraced(window.config, "fleet")


def foreseen(tenant: Tenant) -> tuple[float, Forecast]:
    """A tenant's accuracy, and what is forecast of its first window."""
    setting, traffic = assemble(config_of([tenant]), "fleet")
    accuracies = TabledModels(setting.tenants, setting.config.window_s).open(0)
    forecast = Foresight(setting, traffic).forecast(observe(setting, traffic, 0, accuracies))
    return accuracies[0], forecast


_HERE: list[FleetWindow] = []
"""The window that this process values sets of."""


def take(window: FleetWindow) -> None:
    """Let this process value sets of the window."""
    _HERE[:] = [window]


Worth = tuple[float | None, float]
"""What a plan is worth, and how much of that is salvage."""


def _value(job: tuple[tuple[int, ...], Budget]) -> Worth:
    members, budget = job
    try:
        plan = solve(_HERE[0].pose(members), "physical", budget)
    except ProblemError:  # more tenants than the GPU has compute slices
        return None, 0.0
    return plan.objective, plan.salvage


def _net(job: tuple[int, Floats]) -> Floats:
    tenant, prices = job
    return net_worths(_HERE[0].pose([tenant]), prices)


class Valuer:
    """Values sets of tenants in processes that know their window, each once with each budget."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._known: dict[tuple[tuple[int, ...], Budget], Worth] = {}

    def __call__(self, wanted: Sequence[TenantSet]) -> list[float | None]:
        """As a search values sets."""
        return [worth for worth, _ in self.valued([one.members for one in wanted], SHORT)]

    def nets(self, pairs: Sequence[tuple[int, int]], prices: Floats) -> Floats:
        """What tenants earn net of prices, as estimates take it."""
        done = dict(self._processes.each(_net, [(i, prices) for _, i in pairs]))
        return np.stack([done[place] for place in range(len(pairs))])

    def valued(self, sets: Sequence[tuple[int, ...]], budget: Budget) -> list[Worth]:
        """What each set is worth."""
        jobs = [(members, budget) for members in sets]
        new = [job for job in dict.fromkeys(jobs) if job not in self._known]
        self._known.update((new[place], worth) for place, worth in self._processes.each(_value, new))
        return [self._known[job] for job in jobs]

    def total(self, sets: Sequence[tuple[int, ...]], budget: Budget) -> tuple[float, float]:
        """What an assignment's sets are worth together, and how much of that is salvage; one not served is nothing."""
        found = [(worth, salvage) for worth, salvage in self.valued([own for own in sets if own], budget) if worth]
        return sum(worth for worth, _ in found), sum(salvage for _, salvage in found)


def window_of(tenants: Sequence[Tenant], n_processes: int) -> FleetWindow:
    """The first window of these tenants, each forecast alone."""
    with Processes(n_processes) as processes:
        found = dict(processes.each(foreseen, tenants))
    return joined(tenants, [found[place] for place in range(len(tenants))])


def joined(tenants: Sequence[Tenant], found: Sequence[tuple[float, Forecast]]) -> FleetWindow:
    """The window of tenants of which each one's accuracy and forecast were found alone."""
    accuracies, forecasts = zip(*found, strict=True)
    forecast = Forecast(
        forecasts[0].method,
        np.concatenate([one.mean_rps for one in forecasts], axis=1),
        np.concatenate([one.quantiles_rps for one in forecasts], axis=2),
        np.concatenate([one.paths_rps for one in forecasts], axis=2),
    )
    return FleetWindow(config_of(tenants), tuple(accuracies), forecast)


def fleet_of(window: FleetWindow, n_gpus: int, n_nodes: int = 1) -> Fleet:
    """Like GPUs, as many on each node, for the window's tenants."""
    names = tuple(tenant.name for tenant in window.config.tenants)
    alone = tuple(window.pose([i]) for i in range(len(names)))
    gpus = tuple(FleetGpu(f"g{g:02d}", f"n{g * n_nodes // n_gpus}", 0) for g in range(n_gpus))
    return Fleet(names, (GpuClass(GPU, alone, alone[0].gpu.compute_slices),), gpus)
