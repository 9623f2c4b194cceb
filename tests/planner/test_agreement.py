"""Every engine against the plain oracles, on problems that have all features at once, each of them a test.

The problems are the same for a seed every time; the last tests check that they are the awkward ones that we want.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from altered import altered
from answers import check_answer, check_files, check_plan, near
from claims import Claims
from engine_table import ENGINES
from problems import any_paper_problem, any_physical_problem, case_name, physical_problem, pooled_problem

from planner.explain import explain
from planner.feasibility import infeasibility
from planner.plan import Status
from planner.problem import Per, Problem
from planner.solve import solve
from planner.verify import verify
from tests.seeds import daily

Case = tuple[Callable[[int], Problem], int]

SEEDS: dict[Callable[[int], Problem], range] = {
    any_paper_problem: range(400),
    any_physical_problem: range(200),
    pooled_problem: range(400),
}
SLOW = {any_paper_problem: {3, 16, 34, 37, 54}, any_physical_problem: {7, 9, 15, 29, 30}, pooled_problem: {2, 17, 40}}
"""Those that take the oracle a second or more."""
QUICK = {any_paper_problem: range(40), any_physical_problem: range(26), pooled_problem: range(18)}
DRAWN = {any_paper_problem: range(140), any_physical_problem: range(80), pooled_problem: range(160)}
"""Those that have to cover what there is."""

N_ALTERED = 25
"""Plans that a plan with pools is altered to."""

EVERY = [
    pytest.param((make, seed), marks=() if seed in set(QUICK[make]) - SLOW[make] else pytest.mark.long)
    for make, seeds in SEEDS.items()
    for seed in seeds
]

UNPROVEN = {(any_physical_problem, seed) for seed in (109, 162)}
"""`physical` finds the best plan, or none where there is none, and cannot prove it."""


def is_proven(case: Case, problem: Problem) -> bool:
    """Whether engines that prove are to prove their plan: with pools where two at most may be retrained."""
    return case not in UNPROVEN and not (problem.pools and sum(map(bool, options_of(problem))) > 2)


def has_floor(problem: Problem, per: Per) -> bool:
    floors = (tenant.min_slo_attainment for tenant in problem.tenants)
    return any(floor is not None and floor.per is per for floor in floors)


@pytest.mark.parametrize("case", EVERY, ids=case_name)
def test_engines_find_what_the_oracle_finds(case: Case) -> None:
    make, seed = case
    problem = make(seed)
    oracle = paper_oracle if make is any_paper_problem else physical_oracle
    best, best_static = oracle.best_objective(problem), oracle.best_objective(problem, is_static=True)
    worth: dict[str, float | None] = {}
    with Claims(case_name(case)) as claim:
        for engine in ENGINES:
            if engine.answers(problem):
                plan = engine.plan(problem)
                worth[engine.name] = plan.objective
                check_answer(claim, engine, problem, plan, best, is_proven=is_proven(case, problem))
                if engine.proves_best(problem):
                    claim(plan.objective == near(best, engine.tolerance), f"{engine}: {plan.objective}, not {best}")
                if not engine.changes and best is not None:
                    claim(plan.objective == near(best_static), f"{engine}: {plan.objective}; {best_static} can stay")
                if plan.status.has_plan:
                    check_plan(claim, engine, problem, plan)
        if worth["static"] is not None and not problem.has_floors:
            claim(worth["greedy"] >= worth["static"] - 1e-9 * abs(worth["static"]), f"worth {worth}")
        told, is_whole = infeasibility(problem), make is any_paper_problem and not problem.has_floors
        claim(best is None or told is None, f"refused though a plan is worth {best}: {told}")
        claim(best is not None or told is not None or not is_whole, "not refused though there is no plan")


@pytest.mark.parametrize(
    "seed",
    daily(SEEDS[pooled_problem], QUICK[pooled_problem]),
)
def test_plans_with_pools_are_read_explained_and_refused_where_they_are_wrong(seed: int) -> None:
    problem = pooled_problem(seed)
    plan, rng = solve(problem), np.random.default_rng([seed, 11])
    if not plan.status.has_plan:
        return
    held_sets = physical_oracle.HeldSets(problem)
    with Claims(f"seed {seed}") as claim:
        check_files(claim, problem, plan)
        worth = physical_oracle.worth_of(held_sets, plan.lifetimes, plan.next_epoch_step)
        claim(worth == near(plan.objective), f"the oracle follows the plan to {worth}; it says {plan.objective}")
        for step in range(problem.n_steps):
            explain(problem, plan, step)
        for changed in (altered(rng, problem, plan) for _ in range(N_ALTERED)):
            worth = physical_oracle.worth_of(held_sets, changed.lifetimes, changed.next_epoch_step)
            found = verify(problem, changed)
            honest = replace(changed, objective=found.objective, salvage=found.salvage, claimed_bound=None)
            told = verify(problem, replace(honest, status=Status.FEASIBLE)).violations
            claim((worth is None) == bool(told), f"worth {worth}; {[str(one) for one in told]} of {changed.lifetimes}")
            claim(worth is None or found.objective == near(worth), f"worth {worth}, not {found.objective}")


def missing(problem: Problem) -> list[int]:
    """The memory slices that are not ours, stretch by stretch."""
    return [mask for *_, mask in problem.unavailable_spans]


def options_of(problem: Problem) -> list[int]:
    return [len(tenant.options) for tenant in problem.tenants]


COVERED: dict[str, Callable[[Problem], object]] = {
    "one tenant": lambda p: len(p.tenants) == 1,
    "two tenants": lambda p: len(p.tenants) == 2,
    "three tenants": lambda p: len(p.tenants) == 3,
    "tenants with other profiles": lambda p: len({frozenset(t.capability_rps) for t in p.tenants}) > 1,
    "retraining where it cannot serve": lambda p: any(
        set(option.time_s) - set(tenant.capability_rps) for tenant in p.tenants for option in tenant.options
    ),
    "nothing to retrain": lambda p: not any(options_of(p)),
    "two ways to retrain": lambda p: 2 in options_of(p),
    "a required retraining": lambda p: any(t.must_retrain for t in p.tenants),
    "an optional retraining": lambda p: any(t.options and not t.retraining_required for t in p.tenants),
    "a retraining that does not pay": lambda p: any(
        t.must_retrain and max(t.accuracies[1:]) < t.accuracy_before for t in p.tenants
    ),
    "a retraining as long as the window": lambda p: any(
        p.training_steps(option, name) == p.n_steps for t in p.tenants for option in t.options for name in option.time_s
    ),
    "a smallest profile above 1g": lambda p: any(p.gpu.profile(t.min_profile).compute_slices > 1 for t in p.tenants),
    "no arrivals": lambda p: any(not t.arrivals_rps.any() for t in p.tenants),
    "debt of a change": lambda p: any(t.overhead_s > p.step_s for t in p.tenants),
    "weights": lambda p: any(t.weight not in (0.0, 1.0) for t in p.tenants),
    "checkpoints": lambda p: any(option.checkpoints for t in p.tenants for option in t.options),
    "swaps": lambda p: any(t.swap_s for t in p.tenants),
    "salvage": lambda p: any(t.salvage for t in p.tenants),
    "a floor per step": lambda p: has_floor(p, Per.STEP),
    "a floor per window": lambda p: has_floor(p, Per.WINDOW),
    "gain tables": lambda p: p.gains is not None,
    "slices missing throughout": lambda p: len(missing(p)) == 1 and missing(p)[0],
    "slices that come to be missing": lambda p: missing(p)[-1] & ~missing(p)[0],
    "slices that become ours": lambda p: missing(p)[0] & ~missing(p)[-1],
    "no initial state": lambda p: p.initial is None,
    "an initial state": lambda p: p.initial is not None,
}
COVERED_BY = {
    any_paper_problem: {
        **COVERED,
        "a step that no time is a multiple of": lambda p: p.step_s == 0.3 and 2.1 in times_of(p),
        "an a30": lambda p: p.gpu.name == "a30-24gb",
        "an a100": lambda p: p.gpu.name.startswith("a100"),
        "an h100 with the double-memory 1g": lambda p: any("1g.20gb" in t.capability_rps for t in p.tenants),
    },
    any_physical_problem: {
        **COVERED,
        "a retraining in progress": lambda p: bool(p.initial and p.initial.retrainings),
        "an epoch that has to wait": lambda p: p.initial is not None and p.initial.next_epoch_step > 1,
        "a longer warm-up": lambda p: p.epoch_steps > 1,
        "what has to be dropped at once": lambda p: (
            p.initial is not None and any(item.placement.memory_mask & missing(p)[0] for item in p.initial.held)
        ),
    },
    pooled_problem: {
        "two tenants in a pool": lambda p: p.partition == ((0, 1),),
        "three tenants in a pool": lambda p: p.partition == ((0, 1, 2),),
        "a pool beside a tenant alone": lambda p: len(p.partition) == 2,
        "members with other rates on what serves them alone": lambda p: any(
            set(t.capability_rps) != set(p.capability_rps(t)) for t in p.tenants
        ),
        **{
            name: COVERED[name]
            for name in (
                "a required retraining",
                "an optional retraining",
                "weights",
                "checkpoints",
                "swaps",
                "salvage",
                "a floor per step",
                "a floor per window",
                "gain tables",
                "slices that come to be missing",
                "slices that become ours",
                "no initial state",
                "an initial state",
            )
        },
        "held by the same pools": lambda p: p.opening.held and not p.is_repartitioned,
        "held by a part of who keeps it": lambda p: any(set(a) < set(b) for a, b in heirs_of(p)),
        "held by more than keep it": lambda p: any(set(a) > set(b) for a, b in heirs_of(p)),
        "held by others that share a tenant": lambda p: any(
            set(a) - set(b) and set(b) - set(a) for a, b in heirs_of(p)
        ),
        "held though it serves nobody": lambda p: any(
            not p.may_serve(heir, item.placement) for item, heir in zip(p.opening.held, p.heirs, strict=True)
        ),
        "others than before, and an epoch that has to wait": lambda p: p.is_repartitioned and p.opening.next_epoch_step,
        "a retraining in progress": lambda p: p.opening.retrainings,
        "a longer warm-up of a pool than of its tenants": lambda p: any(
            pool.overhead_s > max(p.tenant(name).overhead_s for name in pool.members) for pool in p.pools
        ),
    },
}


def heirs_of(problem: Problem) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Who holds each instance when the window opens, and who keeps it."""
    pairs = zip(problem.opening.held, problem.kept_at_start, strict=True)
    return [(item.members, owner.members) for item, (_, owner) in pairs]


def times_of(problem: Problem) -> set[float]:
    return {seconds for tenant in problem.tenants for option in tenant.options for seconds in option.time_s.values()}


@pytest.mark.long
@pytest.mark.parametrize("make", SEEDS)
def test_the_problems_with_a_plan_cover_what_there_is(make: Callable[[int], Problem]) -> None:
    problems = list(map(make, DRAWN[make]))
    found = [problem for problem in problems if solve(problem, "greedy").status.has_plan]
    least = 1 if make is pooled_problem else 2
    assert {name for name, holds in COVERED_BY[make].items() if sum(map(bool, map(holds, found))) < least} == set()
    assert 10 <= len(problems) - len(found) <= len(problems) / 2


CROWDED = ((204, 3), (256, 3), (479, 5))
"""The GPU is full with a retraining in progress on slice 0, while another one has to run."""


@pytest.mark.parametrize(("seed", "n_steps"), [*CROWDED, *((seed, 6 + seed % 2 * 6) for seed in range(100, 140))])
def test_plans_of_longer_windows_keep_the_rules_and_each_others_bounds(seed: int, n_steps: int) -> None:
    problem = physical_problem(seed, n_steps)
    plans = {engine: engine.plan(problem) for engine in ENGINES if engine.answers(problem)}
    best = max((plan.objective for plan in plans.values() if plan.status.has_plan), default=None)
    with Claims(f"seed {seed}") as claim:
        for engine, plan in plans.items():
            if plan.status.has_plan:
                check_plan(claim, engine, problem, plan)
            if best is not None:
                lowest = min(plan.claimed_bound, verify(problem, plan).bound or plan.claimed_bound)
                claim(lowest >= best - 1e-9 * abs(best), f"{engine}: bound {lowest}; a plan is worth {best}")
                claim(not engine.proves or plan.objective >= best - 1e-9 * abs(best), f"{engine}: {plan.objective}")
