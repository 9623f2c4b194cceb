"""The oracle is itself judged: by every plan there is, on problems small enough to list them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np
import physical_oracle
import pytest
from claims import Claims
from plans import continued_case, physical_case
from problems import featured

from executor.catalogue import gpu_model
from executor.mig import Placement
from planner.plan import Lifetime, MigPlan, Status
from planner.problem import (
    HeldInstance,
    Owner,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    Task,
    TenantTerms,
)
from planner.verify import Rule, verify
from tests.seeds import daily

A30 = gpu_model("a30-24gb")
HeldSet = frozenset[tuple[Placement, str]]


SEEDS = daily(range(12), {1, 2, 5, 9, 11})


def tiny_problem(seed: int) -> Problem:
    """A tenant on 2g and 4g over four steps, or two on 2g and 1g over three; some with an initial state."""
    rng = np.random.default_rng([seed, 4])
    if seed % 2:
        tenants = (tiny_tenant(rng, "a", ("2g.12gb", "4g.24gb"), "2g.12gb", 4),)
    else:
        tenants = (tiny_tenant(rng, "a", ("2g.12gb",), "1g.6gb", 3), tiny_tenant(rng, "b", ("1g.6gb",), None, 3))
    initial = tiny_state(rng, seed) if seed % 3 else None
    n_steps = 4 if seed % 2 else 3
    return Problem(A30, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=0.0, initial=initial)


def tiny_tenant(
    rng: np.random.Generator, name: str, serving: tuple[str, ...], retraining: str | None, n_steps: int
) -> TenantTerms:
    options = (RetrainingOption("full", {retraining: float(rng.choice([0.5, 1.5]))}, 0.9),) if retraining else ()
    overhead_s, is_required = float(rng.choice([0.0, 2.0])), bool(rng.random() < 0.4)
    capability = {profile: float(rng.uniform(10, 60)) for profile in serving}
    arrivals = rng.uniform(0, 90, n_steps)
    return TenantTerms(name, arrivals, capability, 0.3, overhead_s, "1g.6gb", options, is_required)


def tiny_state(rng: np.random.Generator, seed: int) -> PhysicalState:
    """`a` holds 2g@0; `b` a 1g beside it, or with `a` alone a retraining may run there."""
    next_epoch_step = int(rng.integers(0, 2))
    held = [HeldInstance(A30.placement("2g.12gb@0"), "a", next_epoch_step)]
    if seed % 2 == 0:
        held.append(HeldInstance(A30.placement("1g.6gb@2"), "b", 0))
        return PhysicalState(tuple(held), (), next_epoch_step)
    running = (RunningRetraining(A30.placement("2g.12gb@2"), "a", 2),) if seed % 4 == 1 else ()
    return PhysicalState(tuple(held), running, next_epoch_step)


def every_plan(problem: Problem) -> Iterator[MigPlan]:
    """All sequences of held sets that leave no tenant out, with all retrainings; many are against the rules."""
    pairs = [(p, t.name) for t in problem.tenants for p in A30.placements(list(t.capability_rps))]
    some = [
        frozenset(chosen) for n in range(1, 5) for chosen in combinations(pairs, n) if A30.fits(p for p, _ in chosen)
    ]
    held_sets = [held for held in some if {name for _, name in held} == set(problem.tenant_names)]
    paths = [inference(problem, path) for path in product(held_sets, repeat=problem.n_steps)]
    for held, retraining in product(paths, every_retraining(problem)):
        lifetimes = (*held, *retraining)
        claims = (Status.FEASIBLE, 0.0, 1e9, 0.0, "all", Reconfiguration.PHYSICAL, problem.n_steps)
        yield MigPlan(*claims, lifetimes=lifetimes, next_epoch_step=problem.n_steps + problem.epoch_steps)


def inference(problem: Problem, path: tuple[HeldSet, ...]) -> list[Lifetime]:
    """The held sets of all steps as lifetimes, each serving from the step that the design gives it."""
    state = problem.physical_initial
    initially = {(h.placement, h.tenant): h.serve_step for h in state.held} if state else dict.fromkeys(path[0], 0)
    found = []
    for placement, name in sorted(set().union(*path), key=str):
        warm_up = next(problem.warm_up_steps(tenant) for tenant in problem.tenants if tenant.name == name)
        present = [(placement, name) in held for held in path]
        borders = [s for s, (was, now) in enumerate(pairwise([False, *present, False])) if was != now]
        for create, end in zip(borders[::2], borders[1::2], strict=True):
            serve = initially.get((placement, name), warm_up) if create == 0 else create + warm_up
            found.append(Lifetime(placement, Owner(name, Task.INFERENCE), create, serve, end))
    return found


def every_retraining(problem: Problem) -> Iterator[list[Lifetime]]:
    """None, the one in progress, or one that starts: only `a` has any."""
    owner, options = Owner("a", Task.RETRAINING), problem.tenants[0].options
    state = problem.physical_initial
    if state and state.retrainings:
        yield [Lifetime(state.retrainings[0].placement, owner, 0, 0, state.retrainings[0].end_step)]
        return
    yield []
    start_up = problem.retraining_warm_up_steps(problem.tenants[0])
    for option in options:
        (name,) = option.time_s
        steps = start_up + problem.training_steps(option, name)
        for placement, s in product(A30.placements([name]), range(problem.n_steps - steps + 1)):
            yield [Lifetime(placement, owner, s, s + start_up, s + steps, option.name)]


@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_is_the_best_of_all_plans_that_keep_the_rules(seed):
    with Claims(f"seed {seed}") as claim:
        for name, problem in (("plain", tiny_problem(seed)), featured(tiny_problem(seed), seed)):
            found = [verify(problem, plan) for plan in every_plan(problem)]
            kept = [
                one.objective for one in found if {violation.rule for violation in one.violations} <= {Rule.OBJECTIVE}
            ]
            best, most = physical_oracle.best_objective(problem), max(kept, default=None)
            claim(best == (None if most is None else pytest.approx(most, rel=1e-9)), f"{name}: {best}; there is {most}")


def test_most_of_the_tiny_problems_have_a_plan():
    assert sum(physical_oracle.best_objective(tiny_problem(seed)) is not None for seed in range(12)) >= 9


@pytest.mark.parametrize("case", [physical_case, continued_case])
def test_oracle_is_no_worse_than_a_plan_made_by_hand(case):
    problem, plan = case()
    assert physical_oracle.best_objective(problem) >= plan.objective
