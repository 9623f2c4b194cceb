"""Random ``physical`` plans carried out on the simulated GPU: its driver and its clock never break a promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.clock import VirtualClock
from executor.mig import OwnedLayout
from executor.sim import SimGpu
from migrator.apply import Applier
from migrator.changes import changes_of, state_after
from migrator.sim_workers import SimWorkers
from planner.budget import Budget
from planner.plan import MigPlan
from planner.problem import (
    DRAIN_S,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    Task,
    TenantTerms,
)
from planner.solve import solve
from workloads.latency import LatencyCurve
from workloads.operating_point import OperatingPoint
from workloads.tenants import Tenant, WindowAccuracy, most_instances
from workloads.worker_start import WorkerStart

SLOWDOWN = 0.16
SEEDS = range(40)


def tenant_of(terms: TenantTerms, gpu_name: str) -> Tenant:
    """A tenant whose workers start in exactly the planned time when all start at once."""
    n_most = most_instances(gpu_model(gpu_name))
    latency = LatencyCurve((1,), (DRAIN_S,))
    return Tenant(
        name=terms.name,
        model="m",
        slo_s=2 * DRAIN_S,
        operating_points={
            name: OperatingPoint(name, 1, 1, rate, DRAIN_S, latency) for name, rate in terms.capability_rps.items()
        },
        retraining_time_s=terms.options[0].time_s if terms.options else {},
        accuracy=(WindowAccuracy(0.5, 0.8),),
        min_profile=terms.min_profile,
        worker_start=WorkerStart(terms.overhead_s / (1 + SLOWDOWN * (n_most - 1)), SLOWDOWN),
    )


def problem_of(rng: np.random.Generator, gpu_name: str, n_steps: int, initial: PhysicalState | None) -> Problem:
    gpu = gpu_model(gpu_name)
    profiles = [gpu.profile(name) for name in gpu.standard_profile_names]
    tenants = []
    for name in ("a", "b"):
        rate = {p.name: 50.0 * p.compute_slices**0.9 for p in profiles}
        time_s = {p.name: float(rng.uniform(10, 25)) / p.compute_slices**0.85 for p in profiles}
        load = rng.gamma(2, 1 / 2, n_steps // 10).repeat(10) * 50.0 * gpu.compute_slices / 2
        tenants.append(
            TenantTerms(
                name=name,
                arrivals_rps=load,
                capability_rps=rate,
                accuracy_before=0.5,
                overhead_s=float(rng.uniform(0.2, 4)),
                min_profile=profiles[0].name,
                options=(RetrainingOption("full", time_s, 0.8),),
            )
        )
    return Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, tuple(tenants), initial=initial)


def execute(problem: Problem, plan: MigPlan, applier: Applier, start_s: float) -> list[float]:
    """Carry the plan out with every server busy for the longest time; how late each instance was."""
    late_s = []
    for change in changes_of(plan, start_s, problem.step_s):
        begin_s = applier.begin_s(change)
        servers = [server for tenant in problem.tenant_names for server in applier.servers(tenant)]
        before = {placement for placement, _ in applier.layout.entries}
        outcome = applier.apply(change, {server.server_id: begin_s + DRAIN_S for server in servers})
        late_s += [item.late_s for item in outcome.started]
        kept = {placement for placement, _ in change.layout.entries} & before
        assert not kept & {call.placement for call in outcome.calls}
        assert all(item.drained_s == item.end_s for item in outcome.stopped if item.owner.task is Task.RETRAINING)
    return late_s


@pytest.mark.parametrize("gpu_name", ["a100-80gb", "h100-80gb", "a30-24gb"])
def test_plans_over_two_windows_are_carried_out_in_time(gpu_name: str) -> None:
    n_changes = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        first = problem_of(rng, gpu_name, 60, None)
        clock = VirtualClock(-100.0)
        gpu = SimGpu(first.gpu, clock, seed=seed)
        tenants = {terms.name: tenant_of(terms, gpu_name) for terms in first.tenants}
        applier = Applier(gpu, clock, SimWorkers(gpu, tenants, rng), tenants)
        plan = solve(first, budget=Budget(max_nodes=10))
        opening = changes_of(plan, -100.0, first.step_s)[0]
        serving = [entry for entry in opening.layout.entries if entry[1].task is Task.INFERENCE]
        applier.apply(replace(opening, layout=OwnedLayout.of(serving)), {})
        late_s = execute(first, plan, applier, 0.0)
        second = Problem(first.gpu, 1.0, 60, Reconfiguration.PHYSICAL, first.tenants, initial=state_after(plan))
        again = solve(second, budget=Budget(max_nodes=10))
        if again.status.has_plan:
            late_s += execute(second, again, applier, 60.0)
        n_changes += len(late_s)
        assert max(late_s, default=0.0) == 0.0
    assert n_changes > len(SEEDS)
