"""Seeded fleets for the cluster's benchmark: tenants, traces and loads are drawn, and put into a cluster's config.

Models have SLOs that the shipped A100-80GB rows meet; a tenant's load is a share of a GPU, log-normal, none above 0.8,
and all loads sum up to what was asked for. Everything here is made up but the rows and the traces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from migrator.config.cluster import ClusterConfig, ClusterGpu, MoveConfig, PlacedTenantConfig
from migrator.config.sections import Config, GpuConfig, ScaleConfig
from migrator.errors import ConfigError
from migrator.inputs.assembly import assemble

Tenant = dict[str, Any]

GPU = "a100-80gb"

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
    """In proportion to weights, none above 0.8."""
    loads = np.array(weights) / sum(weights) * total
    for _ in range(50):
        over, free = float(np.maximum(loads - 0.8, 0).sum()), loads < 0.8
        loads = np.minimum(loads, 0.8)
        if over < 1e-9 or not free.any():
            break
        loads[free] += over / free.sum()
    return list(map(float, loads))


def cluster_of(tenants: Sequence[Tenant], n_gpus: int, n_nodes: int = 1, **more: Any) -> ClusterConfig:
    """Like GPUs, as many on each node, for these tenants."""
    per_node = n_gpus // n_nodes
    gpus = tuple(
        ClusterGpu(f"g{g:02d}.0", f"n{g // per_node}", GpuConfig(model=GPU, index=g % per_node), None)
        for g in range(n_gpus)
    )
    asked = tuple(PlacedTenantConfig.model_validate(tenant) for tenant in tenants)
    return ClusterConfig(gpus, MoveConfig(), config_of(tenants, **more), asked)
