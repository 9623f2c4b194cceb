"""From a cluster's config to who goes where, and the check of such an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from migrator.cluster.answer import ClusterPlan, PlanFile, assignment_in, wrong_totals
from migrator.cluster.posing import LONG, Effort, FirstWindow, Planned, Valuing, first_window, fleet_of
from migrator.config.cluster import ClusterConfig
from migrator.errors import InfeasibleError
from planner.cluster.check import violations
from planner.cluster.fleet import Assignment, Fleet, FleetBound, Present, TenantSet, Unplaced
from planner.cluster.rivals import loads_of, rival
from planner.cluster.search import assign
from planner.errors import PlanFileError

ROOM = 1.02
"""The load that a GPU may have at most; arrivals as they are drawn stray by a little from what was asked for."""


def plan_cluster(
    cluster: ClusterConfig, values: Valuing, begun: Mapping[str, Sequence[str]] | None = None
) -> ClusterPlan:
    """Who goes where in the window, each GPU planned in full; ``begun`` says by GPU whom it has now.

    Raises:
        InfeasibleError: A tenant brings more than any GPU serves that may have it.
    """
    window = values.window
    fleet = fleet_of(cluster, window)
    _require_room(cluster, fleet, window)
    present = None if begun is None else present_in(cluster, fleet, begun)
    found = assign(fleet, values.worths, nets=values.nets, present=present, seed=cluster.run.seed)
    unplaced = tuple(Unplaced(one.tenant, _reason(fleet, window, one)) for one in found.unplaced)
    return _in_full(cluster, fleet, replace(found, unplaced=unplaced), values)


class TenantPlacer:
    """Places tenants again and again; the last cluster's window and processes are kept, which take the longest.

    Threads may share it; one waits for the other.
    """

    def __init__(self, n_processes: int) -> None:
        self._n_processes, self._lock = n_processes, Lock()
        self._values: tuple[ClusterConfig, Valuing] | None = None

    def __call__(
        self, cluster: ClusterConfig, begun: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """By GPU its tenants, where ``begun`` has them now; and who is on none, with the reason.

        Raises:
            MigratorError: The cluster cannot be planned.
        """
        with self._lock:
            plan = plan_cluster(cluster, self.values(cluster), begun)
        sets = {gpu.name: own for gpu, own in zip(cluster.gpus, plan.found.sets, strict=True)}
        unplaced = {one.tenant: one.reason for one in plan.found.unplaced}
        unserved = dict.fromkeys(plan.unserved, "it is on a GPU that cannot serve all that it has")
        return {gpu: own for gpu, own in sets.items() if not unserved.keys() & set(own)}, unserved | unplaced

    def values(self, cluster: ClusterConfig) -> Valuing:
        """What sets of the cluster are valued with, also where nodes are lost."""
        whole = cluster.without(())
        if self._values is None or self._values[0] != whole:
            self.close()
            self._values = whole, Valuing(first_window(whole, whole.run.name, self._n_processes), self._n_processes)
            self._values[1].__enter__()
        return self._values[1]

    def close(self) -> None:
        """End the processes."""
        if self._values is not None:
            self._values[1].__exit__(None, None, None)
        self._values = None


def plan_rival(cluster: ClusterConfig, values: Valuing, name: str, bound: FleetBound) -> ClusterPlan:
    """The same where a rival says who goes where; a GPU that cannot serve what it is given serves nothing."""
    fleet = fleet_of(cluster, values.window)
    dealt = rival(name, fleet, cluster.run.seed, values.window.slopes)
    sets = tuple(tuple(fleet.tenants[i] for i in members) for members in dealt)
    placed = {name for members in sets for name in members}
    left = tuple(Unplaced(name, "the rival finds no GPU for it") for name in fleet.tenants if name not in placed)
    return _in_full(cluster, fleet, Assignment(sets, (0.0,) * len(sets), bound, left), values)


def _in_full(cluster: ClusterConfig, fleet: Fleet, found: Assignment, values: Valuing) -> ClusterPlan:
    """The assignment with the worths of its sets' full plans."""
    sets = sets_of(fleet, found)
    wanted = list(dict.fromkeys(one for one in sets if one.members))
    plans = dict(zip(wanted, values.planned(wanted, _effort(cluster)), strict=True))
    planned = tuple(plans.get(one) for one in sets)
    worths = tuple(0.0 if one is None else one.worth for one in planned)
    return ClusterPlan(fleet, replace(found, worths=worths), planned, cluster.run.sharing.may_pool)


def _reason(fleet: Fleet, window: FirstWindow, unplaced: Unplaced) -> str:
    classes = {gpu.gpu_class for gpu in fleet.gpus if unplaced.tenant not in gpu.barred}
    return window.obstacle(fleet.tenants.index(unplaced.tenant), sorted(classes)) or unplaced.reason


def check_cluster(cluster: ClusterConfig, values: Valuing, file: PlanFile) -> tuple[str, ...]:
    """What is wrong with the answer in a file, a sentence each; every set is planned anew, and the bound recomputed."""
    fleet, found = fleet_of(cluster, values.window), assignment_in(file)
    has_pools = cluster.run.sharing.may_pool
    if wrong := wrong_totals(file, cluster, [None] * len(file.gpus), has_pools=has_pools):
        return tuple(wrong)
    known = dict[TenantSet, Planned | None]()

    def worths(wanted: Sequence[TenantSet]) -> list[float | None]:
        known.update(zip(wanted, values.planned(wanted, _effort(cluster)), strict=True))
        return [None if (own := known[one]) is None else own.worth for one in wanted]

    if broken := violations(fleet, found, worths):
        return broken
    plans = [known[one] if one.members else None for one in sets_of(fleet, found)]
    expected = [0.0 if own is None else own.expected for own in plans]
    return tuple(wrong_totals(file, cluster, expected, has_pools=has_pools))


def _require_room(cluster: ClusterConfig, fleet: Fleet, window: FirstWindow) -> None:
    """Refuse a tenant whose mean arrivals are more than any GPU serves that may have it.

    Raises:
        InfeasibleError: Names it, and the least number of replicas that fit.
    """
    loads = loads_of(fleet)
    for i, (name, own) in enumerate(zip(fleet.tenants, window.tenants, strict=True)):
        classes = sorted({gpu.gpu_class for gpu, may in zip(fleet.gpus, fleet.may_go[:, i], strict=True) if may})
        if classes and (least := own.load * float(loads[classes, i].min() / loads[own.gpu_class, i])) > ROOM:
            asked = cluster.asked_for(name)
            raise InfeasibleError(
                f"{window.origin}: tenant {name} fits on no GPU: it brings {least:.2f} times what one serves at most; "
                f"the least that fits is tenants.{asked.name}.replicas: {math.ceil(asked.replicas * least - 1e-6)}"
            )


def _effort(cluster: ClusterConfig) -> Effort:
    """With which sets are planned in full: one GPU as ``migrator plan`` plans it, which plans for traces alone."""
    return LONG if len(cluster.gpus) > 1 or cluster.run.has_live_arrivals else None


def sets_of(fleet: Fleet, found: Assignment) -> list[TenantSet]:
    """By GPU its tenants."""
    index = {name: i for i, name in enumerate(fleet.tenants)}
    pairs = zip(fleet.gpus, found.sets, strict=True)
    return [TenantSet(gpu.gpu_class, tuple(sorted(index[name] for name in own))) for gpu, own in pairs]


def present_in(cluster: ClusterConfig, fleet: Fleet, begun: Mapping[str, Sequence[str]]) -> Present:
    """Where tenants are; a move costs what is answered right while weights are moved and workers start.

    Raises:
        PlanFileError: A tenant is on two GPUs.
    """
    gpu_of: dict[str, str] = {}
    for gpu, names in begun.items():
        for name in names:
            if name in gpu_of:
                raise PlanFileError(f"--from: tenant {name} is on {gpu_of[name]} and on {gpu}; one GPU is needed")
            gpu_of[name] = gpu
    costs: dict[str, float] = {}
    for own in fleet.classes:
        for alone in filter(None, own.alone):
            (terms,) = alone.tenants
            away_s = cluster.move.transfer_s + alone.switching_s + terms.overhead_s
            answers = terms.weight * terms.accuracy_before * float(terms.arrivals_rps.mean())
            costs[terms.name] = max(costs.get(terms.name, 0.0), answers * away_s)
    return Present(gpu_of, costs, cluster.move.horizon_windows)
