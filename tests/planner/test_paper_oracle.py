"""The oracle is itself judged: by every plan there is, on problems small enough to list them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, product

import numpy as np
import paper_oracle
import pytest
from claims import Claims
from plans import paper_case
from problems import GPU_NAMES, featured, profile_names

from executor.catalogue import gpu_model
from planner.plan import InferenceSpan, MigPlan, RetrainingSpan, Status, TenantSchedule
from planner.problem import PaperState, Problem, Reconfiguration, RetrainingOption, TenantTerms
from planner.verify import Rule, verify
from tests.seeds import daily


@pytest.mark.parametrize("gpu_name", GPU_NAMES)
def test_fitting_multisets_are_those_of_the_layouts(gpu_name):
    gpu = gpu_model(gpu_name)
    names = profile_names(gpu)
    found = {tuple(map(list(one).count, names)) for one in paper_oracle.fitting_multisets(gpu, names)}
    assert found == set(gpu.multisets(names))


SEEDS = daily(range(12), {3, 5, 7, 9})


def tiny_problem(seed: int) -> Problem:
    """One or two tenants on an A30 over three steps, with 1g and 2g, so that all plans can be listed."""
    rng = np.random.default_rng([seed, 3])
    tenants = tuple(tiny_tenant(rng, f"tenant-{index}", 1 + seed % 2) for index in range(1 + seed % 2))
    initial = PaperState({tenant.name: ("1g.6gb",) for tenant in tenants}) if seed % 3 == 0 else None
    return Problem(gpu_model("a30-24gb"), 1.0, 3, Reconfiguration.PAPER, tenants, initial=initial)


def tiny_tenant(rng: np.random.Generator, name: str, n_tenants: int) -> TenantTerms:
    profiles = ["1g.6gb", "2g.12gb"] if n_tenants == 1 else [str(rng.choice(["1g.6gb", "2g.12gb"]))]
    capability = {profile: float(rng.uniform(10, 50)) for profile in profiles}
    option = RetrainingOption("full", {"1g.6gb": float(rng.choice([0.5, 1.5, 2.9]))}, 0.9)
    overhead_s, is_required = float(rng.choice([0.0, 0.5, 2.5])), bool(rng.random() < 0.5)
    arrivals = rng.uniform(0, 80, 3)
    return TenantTerms(
        name, arrivals, capability, 0.5, overhead_s, "1g.6gb", (option,), retraining_required=is_required
    )


def every_plan(problem: Problem) -> Iterator[MigPlan]:
    """All plans in which everyone holds something and nobody more than is there; most are against the rules."""
    n_slices = 4 if len(problem.tenants) == 1 else 3
    schedules = [list(every_schedule(problem, tenant, n_slices)) for tenant in problem.tenants]
    for chosen in product(*schedules):
        yield MigPlan(Status.FEASIBLE, 0.0, 1e9, 0.0, "all", Reconfiguration.PAPER, problem.n_steps, schedules=chosen)


def every_schedule(problem: Problem, tenant: TenantTerms, n_slices: int) -> Iterator[TenantSchedule]:
    names = sorted(tenant.capability_rps)
    sizes = [gpu_model("a30-24gb").profile(name).memory_slices for name in names]
    counts = [n for n in product(range(5), repeat=len(names)) if 0 < np.dot(n, sizes) <= n_slices]
    held = [tuple(name for name, k in zip(names, n, strict=True) for _ in range(k)) for n in counts]
    starts = []
    for option in tenant.options:
        steps = problem.training_steps(option, "1g.6gb")
        starts += [RetrainingSpan("1g.6gb", s, s + steps, option.name) for s in range(problem.n_steps - steps + 1)]
    for path, retraining in product(product(held, repeat=problem.n_steps), [None, *starts]):
        runs = [(list(run), profiles) for profiles, run in groupby(range(problem.n_steps), key=path.__getitem__)]
        spans = tuple(InferenceSpan(run[0], run[-1] + 1, profiles) for run, profiles in runs)
        yield TenantSchedule(tenant.name, spans, retraining)


@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_is_the_best_of_all_plans_that_keep_the_rules(seed):
    with Claims(f"seed {seed}") as claim:
        for name, problem in (("plain", tiny_problem(seed)), featured(tiny_problem(seed), seed)):
            found = [verify(problem, plan) for plan in every_plan(problem)]
            kept = [
                one.objective for one in found if {violation.rule for violation in one.violations} <= {Rule.OBJECTIVE}
            ]
            best, most = paper_oracle.best_objective(problem), max(kept, default=None)
            claim(best == (None if most is None else pytest.approx(most, rel=1e-9)), f"{name}: {best}; there is {most}")


def test_a_smallest_profile_that_leaves_no_room_makes_a_problem_infeasible():
    problem, _ = paper_case()
    tenants = tuple(replace(tenant, min_profile="7g.40gb") for tenant in problem.tenants)
    assert paper_oracle.best_objective(replace(problem, tenants=tenants)) is None
