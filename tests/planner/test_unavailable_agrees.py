"""With slices that are not ours, every engine finds what the plain oracles find, or stays between floor and bound."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import paper_oracle
import physical_oracle
import pytest
import static_oracle
from problems import paper_problem, physical_problem, short_paper_problem, with_unavailable

from planner.plan import MigPlan, Status
from planner.problem import PaperState, PhysicalState, Problem
from planner.solve import engine_names, solve
from planner.verify import Verification, verify

CASES = [("paper", seed) for seed in range(50)]
CASES += [("short", seed) for seed in range(100)]
CASES += [("physical", seed) for seed in (*range(130), 194, 268, 343, 437, 469)]
CASES += [("physical 3", seed) for seed in (1, 2, 14, 24, 42, 46, 47, 51, 62, 70)]

MAKERS: dict[str, Callable[[int], Problem]] = {
    "paper": paper_problem,
    "short": short_paper_problem,
    "physical": lambda seed: physical_problem(seed, 3 + seed % 3, None if seed % 3 else 2),
    "physical 3": partial(physical_problem, n_steps=3, n_tenants=3),
}
ENGINES = {
    "paper": ("exact", "greedy", "static"),
    "short": ("exact", "paper-ilp", "greedy", "static"),
    "physical": engine_names("physical"),
    "physical 3": engine_names("physical"),
}
PROVING = ("exact", "paper-ilp", "physical")

ANSWERS = [(kind, seed, engine) for kind, seed in CASES for engine in ENGINES[kind]]
PROOFS = [answer for answer in ANSWERS if answer[2] in PROVING]

every_case = pytest.mark.parametrize(("kind", "seed"), CASES)
every_answer = pytest.mark.parametrize(("kind", "seed", "engine"), ANSWERS)
every_proof = pytest.mark.parametrize(("kind", "seed", "engine"), PROOFS)


@cache
def problem_of(kind: str, seed: int) -> Problem:
    return with_unavailable(MAKERS[kind](seed), seed)


@cache
def oracle(kind: str, seed: int) -> float | None:
    judge = physical_oracle if kind.startswith("physical") else paper_oracle
    return judge.best_objective(problem_of(kind, seed))


@cache
def plan_of(kind: str, seed: int, engine: str) -> MigPlan:
    return solve(problem_of(kind, seed), engine)


@cache
def checked(kind: str, seed: int, engine: str) -> Verification:
    return verify(problem_of(kind, seed), plan_of(kind, seed, engine))


def slack(best: float) -> float:
    return 1e-6 * max(1.0, abs(best))


@every_proof
def test_a_problem_is_infeasible_iff_nothing_keeps_the_rules(kind, seed, engine):
    assert (plan_of(kind, seed, engine).status is Status.INFEASIBLE) == (oracle(kind, seed) is None)


@every_answer
def test_no_engine_plans_what_has_no_plan(kind, seed, engine):
    if oracle(kind, seed) is None:
        assert not plan_of(kind, seed, engine).status.has_plan


@every_proof
def test_engines_that_prove_equal_the_oracle(kind, seed, engine):
    best = oracle(kind, seed)
    if best is not None:
        assert plan_of(kind, seed, engine).status is Status.OPTIMAL
        assert checked(kind, seed, engine).objective == pytest.approx(best, rel=1e-6, abs=1e-6)


@every_answer
def test_every_plan_keeps_the_rules(kind, seed, engine):
    if plan_of(kind, seed, engine).status.has_plan:
        assert checked(kind, seed, engine).violations == ()


@every_answer
def test_no_bound_is_below_the_best_plan(kind, seed, engine):
    best, plan = oracle(kind, seed), plan_of(kind, seed, engine)
    if best is not None:
        assert plan.bound >= best - slack(best)
        certified = checked(kind, seed, engine).proven_bound if plan.status.has_plan else None
        assert certified is None or certified >= best - slack(best)


@every_answer
def test_no_plan_is_better_than_the_oracle_s(kind, seed, engine):
    best = oracle(kind, seed)
    if best is not None and plan_of(kind, seed, engine).status.has_plan:
        assert checked(kind, seed, engine).objective <= best + slack(best)


@every_case
def test_static_is_the_best_of_what_never_changes(kind, seed):
    best = static_oracle.best_static(problem_of(kind, seed))
    value = plan_of(kind, seed, "static").objective
    if oracle(kind, seed) is not None and best is not None:
        assert (-np.inf if value is None else value) == pytest.approx(best, rel=1e-9, abs=1e-9)


def comes(problem: Problem) -> bool:
    return problem.unavailable_spans[0][2] & ~problem.unavailable_spans[-1][2] == 0 < len(problem.unavailable_spans) - 1


def starts_on_what_is_not_ours(problem: Problem) -> bool:
    state, mask = problem.initial, problem.unavailable_in(0, 1)
    return isinstance(state, PhysicalState) and any(item.placement.memory_mask & mask for item in state.held)


COVERED = {
    "slices missing throughout": lambda p: len(p.unavailable_spans) == 1,
    "slices that come to be missing": comes,
    "slices that become ours": lambda p: p.unavailable_spans[-1][2] == 0,
    "other slices from step to step": lambda p: len({mask for *_, mask in p.unavailable_spans if mask}) > 1,
    "an a30": lambda p: p.gpu.name == "a30-24gb",
    "an a100": lambda p: p.gpu.name.startswith("a100"),
    "three tenants": lambda p: len(p.tenants) == 3,
    "a required retraining": lambda p: any(tenant.must_retrain for tenant in p.tenants),
    "a paper state": lambda p: isinstance(p.initial, PaperState),
    "a physical state": lambda p: isinstance(p.initial, PhysicalState),
    "an epoch that has to wait": lambda p: p.physical_initial is not None and p.physical_initial.next_epoch_step > 0,
    "a retraining in progress": lambda p: p.physical_initial is not None and bool(p.physical_initial.retrainings),
    "what has to be dropped at once": starts_on_what_is_not_ours,
    "a longer warm-up": lambda p: p.epoch_steps > 1 and len(p.unavailable_spans) > 1,
}


@pytest.mark.parametrize("feature", COVERED)
def test_the_problems_with_a_plan_cover(feature):
    assert sum(COVERED[feature](problem_of(*case)) and oracle(*case) is not None for case in CASES) >= 3


def test_more_than_a_hundred_problems_have_a_plan():
    assert sum(oracle(*case) is not None for case in CASES) >= 100
