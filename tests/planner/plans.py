"""Hand-made problems with a plan each, whose goodput was worked out by hand (see the comments)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from executor.catalogue import gpu_model
from planner.plan import InferenceSpan, Lifetime, MigPlan, RetrainingSpan, Status, TenantSchedule
from planner.problem import (
    HeldInstance,
    Owner,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    Task,
    TenantTerms,
)
from planner.verify import Rule, verify


def paper_case() -> tuple[Problem, MigPlan]:
    """An A100 over 4 steps of 1 s: `a` retrains on a 1g, then adds one; `b` keeps its 3g. 368 requests."""
    full = RetrainingOption("full", {"1g.5gb": 2.0}, 0.8)
    a = TenantTerms("a", np.full(4, 100.0), {"1g.5gb": 40.0, "2g.10gb": 90.0}, 0.5, 0.5, "2g.10gb", (full,))
    b = TenantTerms("b", np.full(4, 50.0), {"3g.20gb": 60.0}, 0.6, 1.0, "1g.5gb")
    problem = Problem(gpu_model("a100-40gb"), 1.0, 4, Reconfiguration.PAPER, (a, b))
    # a: 90 · 0.5 twice; then C = 130, two instances lose 0.5 s / 2 of it: 97.5 · 0.8; then 100 · 0.8. Together 248.
    spans_a = (InferenceSpan(0, 2, ("2g.10gb",)), InferenceSpan(2, 4, ("1g.5gb", "2g.10gb")))
    schedule_a = TenantSchedule("a", spans_a, RetrainingSpan("1g.5gb", 0, 2, "full"))
    # b: 50 · 0.6 in each of four steps: 120.
    schedule_b = TenantSchedule("b", (InferenceSpan(0, 4, ("3g.20gb",)),), None)
    return problem, _plan(problem, 368.0, schedules=(schedule_a, schedule_b))


def physical_case() -> tuple[Problem, MigPlan]:
    """An A30 over 6 steps of 1 s: `a` retrains at slice 3, then takes it for inference. 237.5 requests.

    Warm-ups: 2 steps for a, 1 for b, so epochs are at least 2 apart; 1 for a's retraining, which trains for 2.
    """
    full = RetrainingOption("full", {"1g.6gb": 1.5}, 1.0)
    capability_a = {"1g.6gb": 10.0, "2g.12gb": 25.0}
    a = TenantTerms("a", np.full(6, 30.0), capability_a, 0.5, 2.0, "2g.12gb", (full,), retraining_start_s=0.5)
    b = TenantTerms("b", np.full(6, 20.0), {"1g.6gb": 20.0}, 1.0, 1.0, "1g.6gb")
    problem = Problem(gpu_model("a30-24gb"), 1.0, 6, Reconfiguration.PHYSICAL, (a, b), switch_s=0.0)
    lifetimes = (
        # a: 25 · 0.5 three times, 25 · 1 twice while the new 1g warms, then min(30, 35): 117.5.
        lifetime(problem, "2g.12gb@0", "a", 0, 0, 6),
        # b: 20 in each of six steps: 120.
        lifetime(problem, "1g.6gb@2", "b", 0, 0, 6),
        replace(lifetime(problem, "1g.6gb@3", "a", 0, 1, 3, Task.RETRAINING), option="full"),
        lifetime(problem, "1g.6gb@3", "a", 3, 5, 6),
    )
    return problem, _plan(problem, 237.5, lifetimes=lifetimes, next_epoch_step=5)


def continued_case() -> tuple[Problem, MigPlan]:
    """The physical case with an initial state: the 2g serves from step 1, a retraining ends at 4. 207.5 requests."""
    problem, plan = physical_case()
    placement = problem.gpu.placement
    held = (HeldInstance(placement("2g.12gb@0"), "a", 1), HeldInstance(placement("1g.6gb@2"), "b", 0))
    running = (RunningRetraining(placement("1g.6gb@3"), "a", 4),)
    problem = replace(problem, initial=PhysicalState(held, running, 2))
    lifetimes = (
        # a: nothing, 25 · 0.5 in steps 1 to 3, then 25 · 1 twice: 87.5.
        lifetime(problem, "2g.12gb@0", "a", 0, 1, 6),
        # b: 20 in steps 0 to 3; from 4 on it has a second 1g, which serves from 5, but no more arrivals: 120.
        lifetime(problem, "1g.6gb@2", "b", 0, 0, 6),
        lifetime(problem, "1g.6gb@3", "a", 0, 0, 4, Task.RETRAINING),
        lifetime(problem, "1g.6gb@3", "b", 4, 5, 6),
    )
    return problem, replace(plan, objective=207.5, claimed_bound=207.5, lifetimes=lifetimes, next_epoch_step=6)


def lent_case() -> tuple[Problem, MigPlan]:
    """An A30 over 8 steps of 1 s: `a` and `b` hold 2g and 1g together; `a` retrains on a loan of the 1g. 345."""
    full = RetrainingOption("full", {"1g.6gb": 1.5}, 1.0)
    rates = {"1g.6gb": 20.0, "2g.12gb": 40.0}
    a = TenantTerms("a", np.full(8, 30.0), rates, 0.5, 1.0, "1g.6gb", (full,), retraining_start_s=0.5)
    b = replace(a, name="b", arrivals_rps=np.full(8, 20.0), accuracy_before=1.0, retraining_required=False)
    gpu = gpu_model("a30-24gb")
    pool = Pool(("a", "b"), {name: {"a": rate, "b": rate} for name, rate in rates.items()}, 1.0)
    layout = (gpu.placement("2g.12gb@0"), gpu.placement("1g.6gb@2"))
    problem = Problem(gpu, 1.0, 8, Reconfiguration.PHYSICAL, (a, b), switch_s=0.0, pools=(pool,), layout=layout)
    both = Owner("a", Task.INFERENCE, ("b",))
    run = lifetime(problem, "1g.6gb@2", "a", 0, 1, 3, Task.RETRAINING)
    # b comes first, 20 in each step: 160. a: 30 · 0.5 as its trainer starts, 20 · 0.5 twice, 30 · 1 five times: 185.
    lifetimes = (
        Lifetime(layout[0], both, 0, 0, 8),
        Lifetime(layout[1], both, 0, 0, 8),
        replace(run, option="full", lent=True),
    )
    return problem, _plan(problem, 345.0, lifetimes=lifetimes)


def lifetime(
    problem: Problem, where: str, tenant: str, create: int, serve: int, end: int, task: Task = Task.INFERENCE
) -> Lifetime:
    """One instance's lifetime, the placement written as text."""
    return Lifetime(problem.gpu.placement(where), Owner(tenant, task), create, serve, end)


def broken_rules(problem: Problem, plan: MigPlan) -> set[Rule]:
    """The rules that the plan breaks, once its claims are put right where the goodput can be recomputed."""
    objective = verify(problem, plan).objective
    if objective is not None:
        plan = replace(plan, status=Status.OPTIMAL, objective=objective, claimed_bound=objective)
    return {violation.rule for violation in verify(problem, plan).violations}


def with_terms(problem: Problem, m: int, **changes: object) -> Problem:
    """The problem with some of tenant m's terms changed."""
    tenants = list(problem.tenants)
    tenants[m] = replace(tenants[m], **changes)  # type: ignore[arg-type]
    return replace(problem, tenants=tuple(tenants))


def with_lifetime(plan: MigPlan, index: int, **changes: object) -> MigPlan:
    """The plan with one of its lifetimes changed."""
    lifetimes = list(plan.lifetimes)
    lifetimes[index] = replace(lifetimes[index], **changes)  # type: ignore[arg-type]
    return replace(plan, lifetimes=tuple(lifetimes))


def _plan(problem: Problem, objective: float, **contents: object) -> MigPlan:
    claims = {
        "status": Status.OPTIMAL,
        "objective": objective,
        "claimed_bound": objective,
        "solve_s": 0.0,
        "engine": "hand",
    }
    terms = {"reconfiguration": problem.reconfiguration, "n_steps": problem.n_steps}
    return MigPlan(**claims, **terms, **contents)  # type: ignore[arg-type]
