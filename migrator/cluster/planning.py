"""From a cluster's config to who goes where, and the check of such an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from migrator.cluster.answer import ClusterPlan, PlanFile, assignment_in, wrong_totals
from migrator.cluster.posing import LONG, FirstWindow, Valuing, fleet_of
from migrator.config.cluster import ClusterConfig
from planner.budget import Budget
from planner.cluster.check import violations
from planner.cluster.fleet import Assignment, Fleet, Present, TenantSet, Unplaced
from planner.cluster.rivals import loads_of
from planner.cluster.search import assign
from planner.errors import PlanFileError


def plan_cluster(cluster: ClusterConfig, values: Valuing, begun: PlanFile | None = None) -> ClusterPlan:
    """Who goes where in the window, each GPU planned in full; ``begun`` says where tenants are now."""
    window = values.window
    fleet = fleet_of(cluster, window)
    present = None if begun is None else _present(cluster, fleet, begun)
    found = assign(fleet, values.worths, nets=values.nets, present=present, seed=cluster.run.seed)
    planned = _planned(cluster, fleet, found, values)
    full = replace(
        found,
        worths=tuple(worth for worth, _ in planned),
        unplaced=tuple(Unplaced(one.tenant, _reason(fleet, window, one)) for one in found.unplaced),
    )
    has_pools = any(config.sharing.may_pool for config in window.configs)
    return ClusterPlan(fleet, full, tuple(own for _, own in planned), has_pools)


def _reason(fleet: Fleet, window: FirstWindow, unplaced: Unplaced) -> str:
    classes = {gpu.gpu_class for gpu in fleet.gpus if unplaced.tenant not in gpu.barred}
    return window.obstacle(fleet.tenants.index(unplaced.tenant), sorted(classes)) or unplaced.reason


def check_cluster(cluster: ClusterConfig, values: Valuing, file: PlanFile) -> tuple[str, ...]:
    """What is wrong with the answer in a file, a sentence each; every set is planned anew, and the bound recomputed."""
    fleet, found = fleet_of(cluster, values.window), assignment_in(file)
    has_pools = any(config.sharing.may_pool for config in values.window.configs)
    if wrong := wrong_totals(file, cluster, [None] * len(file.gpus), has_pools=has_pools):
        return tuple(wrong)
    known = dict[TenantSet, tuple[float, float] | None]()

    def worths(wanted: Sequence[TenantSet]) -> list[float | None]:
        known.update(zip(wanted, values.planned(wanted, _budget(cluster)), strict=True))
        return [None if (own := known[one]) is None else own[0] for one in wanted]

    if broken := violations(fleet, found, worths):
        return broken
    plans = [known[one] if one.members else (0.0, 0.0) for one in _sets(fleet, found)]
    return tuple(wrong_totals(file, cluster, [own and own[1] for own in plans], has_pools=has_pools))


def too_large(fleet: Fleet) -> list[str]:
    """Tenants that bring more than the GPU that suits them best serves, and with how many replicas they fit."""
    least = loads_of(fleet).min(axis=0)
    return [
        f"tenant {name} brings {load:.2f} times what one GPU serves; replicas: {math.ceil(load)} is the least that fits"
        for name, load in zip(fleet.tenants, least.tolist(), strict=True)
        if 1.0 < load < float("inf")
    ]


def _budget(cluster: ClusterConfig) -> Budget:
    """With which sets are planned in full: one GPU as ``migrator plan`` plans it."""
    return LONG if len(cluster.gpus) > 1 else Budget(max_nodes=cluster.run.planner.max_schedules)


def _sets(fleet: Fleet, found: Assignment) -> list[TenantSet]:
    """By GPU its tenants."""
    index = {name: i for i, name in enumerate(fleet.tenants)}
    pairs = zip(fleet.gpus, found.sets, strict=True)
    return [TenantSet(gpu.gpu_class, tuple(sorted(index[name] for name in own))) for gpu, own in pairs]


def _planned(cluster: ClusterConfig, fleet: Fleet, found: Assignment, values: Valuing) -> list[tuple[float, float]]:
    """By GPU (worth, expected goodput) of its tenants' full plan."""
    sets = _sets(fleet, found)
    wanted = [one for one in sets if one.members]
    plans = dict(zip(wanted, values.planned(wanted, _budget(cluster)), strict=True))
    return [plans.get(one) or (0.0, 0.0) for one in sets]


def _present(cluster: ClusterConfig, fleet: Fleet, begun: PlanFile) -> Present:
    """Where the file has tenants; a move costs what is answered right while weights are moved and workers start.

    Raises:
        PlanFileError: The file has a tenant on two GPUs.
    """
    gpu_of: dict[str, str] = {}
    for one in begun.gpus:
        for name in one.tenants:
            if name in gpu_of:
                raise PlanFileError(f"tenant {name} is on {gpu_of[name]} and on {one.name}; one GPU is needed")
            gpu_of[name] = one.name
    costs: dict[str, float] = {}
    for own in fleet.classes:
        for alone in filter(None, own.alone):
            (terms,) = alone.tenants
            away_s = cluster.move.transfer_s + alone.switching_s + terms.overhead_s
            answers = terms.weight * terms.accuracy_before * float(terms.arrivals_rps.mean())
            costs[terms.name] = max(costs.get(terms.name, 0.0), answers * away_s)
    return Present(gpu_of, costs, cluster.move.horizon_windows)
