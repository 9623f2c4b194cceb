"""The bound that a certificate proves: no plan exceeds it at any prices, and it is what its definition says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from math import inf, nan

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from plans import continued_case, paper_case, physical_case
from problems import (
    paper_problem,
    physical_problem,
    short_paper_problem,
    with_checkpoints,
    with_floors,
    with_salvage,
    with_unavailable,
)

from executor.catalogue import gpu_model
from planner.gains import gain_tables
from planner.plan import Certificate, Lifetime, MigPlan, Status, StatusCertificate, TenantStatus, statuses_of
from planner.problem import (
    AttainmentFloor,
    GainTable,
    HeldInstance,
    Owner,
    PaperState,
    Per,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    Task,
    TenantTerms,
)
from planner.verify import Rule, verify, with_proof
from planner.verify.certificate import _most_ahead, certified_bound
from tests.seeds import daily

CASES = (paper_case, physical_case, continued_case)
KINDS = ((0.0, 0), (1.0, 0), (30.0, 0), (30.0, 1), (30.0, -1), (1e15, 0))
"""Scale and sign of random prices."""

A100 = gpu_model("a100-40gb")


def random_prices(problem: Problem, seed: int, scale: float, sign: int) -> Certificate:
    """Normal prices of every profile, of one sign if ``sign`` is not 0."""
    prices = scale * np.random.default_rng([seed, 7]).normal(size=(problem.n_steps, len(problem.profile_names)))
    return Certificate(problem.profile_names, sign * np.abs(prices) if sign else prices)


# ---- an upper bound ----


@cache
def best_of_paper(seed: int) -> float:
    best = paper_oracle.best_objective(paper_problem(seed))
    return -inf if best is None else best


@cache
def best_of_physical(seed: int) -> float:
    best = physical_oracle.best_objective(physical_problem(seed))
    return -inf if best is None else best


@pytest.mark.parametrize(("scale", "sign"), KINDS)
def test_no_paper_plan_exceeds_the_bound_at_any_prices(scale, sign):
    for seed in range(16):
        problem = paper_problem(seed)
        assert certified_bound(problem, random_prices(problem, seed, scale, sign)) >= best_of_paper(seed)


@pytest.mark.parametrize(("scale", "sign"), KINDS)
def test_no_physical_plan_exceeds_the_bound_at_any_prices(scale, sign):
    for seed in [*range(9), 10, 11, 12, 14, 15, 18, 20, 22, 25, 27, 31]:
        problem = physical_problem(seed)
        assert certified_bound(problem, random_prices(problem, seed, scale, sign)) >= best_of_physical(seed)


@pytest.mark.parametrize("case", CASES)
def test_no_bound_is_below_a_plan(case):
    problem, plan = case()
    for seed, kind in product(range(5), KINDS):
        assert certified_bound(problem, random_prices(problem, seed, *kind)) >= plan.objective


def test_a_lone_tenant_without_retraining_needs_no_prices_in_paper():
    for seed in range(40):
        problem = paper_problem(seed)
        tenant = replace(problem.tenants[0], options=())
        state = problem.paper_initial and PaperState({tenant.name: problem.paper_initial.held[tenant.name]})
        problem = replace(problem, tenants=(tenant,), initial=state)
        best = paper_oracle.best_objective(problem)
        if best is not None:
            assert certified_bound(problem, random_prices(problem, seed, 0.0, 0)) == pytest.approx(best, rel=1e-9)


# ---- prices of statuses ----


def random_status_prices(problem: Problem, seed: int, scale: float) -> StatusCertificate:
    """Normal prices of some of all statuses."""
    rng = np.random.default_rng([seed, 9])
    statuses = [status for tenant in problem.tenants for status in statuses_of(tenant) if rng.random() < 0.9]
    return StatusCertificate(tuple(statuses), scale * rng.normal(size=(problem.n_steps, len(statuses))))


CHANGES: tuple[Callable[[Problem, int], Problem], ...] = (
    lambda problem, _: problem,
    with_unavailable,
    lambda problem, seed: with_salvage(with_checkpoints(problem, seed), seed),
    lambda problem, seed: with_floors(problem, seed, "step"),
    lambda problem, seed: with_floors(problem, seed, "mixed"),
)


@pytest.mark.parametrize("seeds", daily((range(8), range(8, 24)), (range(8),)), ids=str)
@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_no_plan_exceeds_the_bound_at_any_prices_of_statuses(change, seeds):
    for seed in seeds:
        problem = CHANGES[change](short_paper_problem(seed), seed)
        best = paper_oracle.best_objective(problem)
        for scale, known in product((0.0, 3.0, 300.0), (inf, best or 0.0, 0.5 * (best or 0.0), -inf)):
            bound = certified_bound(problem, random_status_prices(problem, seed, scale), known)
            assert best is None or bound >= best


def test_a_multiplier_of_a_floor_bounds_no_lower_than_the_best_plan():
    for seed in range(24):
        problem = with_floors(short_paper_problem(seed), seed, "window")
        best = paper_oracle.best_objective(problem)
        floored = [(tenant.name, 0.4) for tenant in problem.tenants if tenant.min_slo_attainment is not None]
        certificate = replace(random_status_prices(problem, seed, 3.0), multipliers=tuple(floored))
        assert best is None or certified_bound(problem, certificate, best) >= best


@pytest.mark.parametrize(("per", "lacks"), [(Per.WINDOW, 1.7e-9 * 900), (Per.STEP, 5e-7)])
def test_what_a_floor_forgives_costs_no_bound(per, lacks):
    # Only what is forgiven lets a keep its floor, on 4g beside b's 3g.
    floor = AttainmentFloor(0.9, per)
    a = TenantTerms("a", [1000.0] * 3, {"4g.20gb": 900 - lacks}, 0.5, 0.4, "4g.20gb", min_slo_attainment=floor)
    b = TenantTerms("b", [1000.0] * 3, {"1g.5gb": 100.0, "3g.20gb": 900.0}, 0.9, 0.4, "1g.5gb")
    problem = Problem(A100, 1.0, 3, Reconfiguration.PHYSICAL, (a, b), switch_s=0.5)
    held = (("4g.20gb@0", "a"), ("3g.20gb@4", "b"))
    lifetimes = tuple(Lifetime(A100.placement(place), Owner(name, Task.INFERENCE), 0, 0, 3) for place, name in held)
    plan = replace(physical_case()[1], n_steps=3, lifetimes=lifetimes, next_epoch_step=0)
    certificate = Certificate(("1g.5gb",), np.zeros((3, 1)), (("a", 1e12),) if per is Per.WINDOW else ())
    found = verify(problem, replace(plan, certificate=certificate))
    assert Rule.FLOOR not in {item.rule for item in found.violations}
    assert found.bound >= found.objective == pytest.approx(3780)


def test_a_pool_that_serves_from_beyond_the_window_is_bounded():
    both = [TenantTerms(name, [10.0] * 3, {"1g.5gb": 20.0}, 0.5, 3.5, "1g.5gb") for name in "ab"]
    state = PhysicalState((HeldInstance(A100.placement("1g.5gb@0"), "a", 5, ("b",)),), next_epoch_step=5)
    pools = (Pool(("a", "b"), {"1g.5gb": {"a": 20.0, "b": 20.0}}, 3.5),)
    problem = Problem(A100, 1.0, 3, Reconfiguration.PHYSICAL, (*both,), switch_s=0.5, initial=state, pools=pools)
    assert certified_bound(problem, Certificate(("1g.5gb",), np.zeros((3, 1))), 0.0) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("scale", [0.0, 5.0, 300.0])
def test_where_few_schedules_are_left_the_best_of_them_is_the_bound(scale):
    for seed in range(24):
        problem = short_paper_problem(seed)
        best = paper_oracle.best_objective(problem)
        if best is not None:
            bound = certified_bound(problem, random_status_prices(problem, seed, scale), best)
            assert bound == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_without_retraining_the_path_alone_is_the_proof():
    for seed in range(16):
        problem = paper_problem(seed)
        problem = replace(problem, tenants=tuple(replace(tenant, options=()) for tenant in problem.tenants))
        best = paper_oracle.best_objective(problem)
        if best is not None:
            bound = certified_bound(problem, StatusCertificate((), np.zeros((problem.n_steps, 0))))
            assert bound == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_columns_of_statuses_are_found_by_name():
    problem, _ = paper_case()
    first = random_status_prices(problem, 3, 4.0)
    named = StatusCertificate(first.statuses[::-1], first.prices[:, ::-1])
    assert certified_bound(problem, named) == pytest.approx(certified_bound(problem, first), rel=1e-12)


def test_a_table_with_gaps_proves_nothing():
    problem, plan = paper_case()
    tables = [GainTable(((0, 0, 0),), np.zeros((n_levels, 4, 1)), np.zeros((n_levels, 4, 1))) for n_levels in (2, 1)]
    problem = replace(problem, gains=tuple(tables))
    assert verify(problem, replace(plan, certificate=random_status_prices(problem, 1, 1.0))).bound is None


A_RUNS = TenantStatus("a", "runs", "1g.5gb")


@pytest.mark.parametrize(
    ("statuses", "prices", "part"),
    [
        (
            (A_RUNS, A_RUNS),
            np.zeros((4, 2)),
            "prices a runs 1g.5gb; different ones of these are allowed: a runs 1g.5gb",
        ),
        ((TenantStatus("z", "runs", "1g.5gb"),), np.zeros((4, 1)), "prices z runs 1g.5gb; different"),
        ((TenantStatus("a", "runs", "9g"),), np.zeros((4, 1)), "prices a runs 9g; different"),
        ((TenantStatus("a", "done", "other"),), np.zeros((4, 1)), "prices a done other; different"),
        ((A_RUNS,), np.zeros((3, 1)), "shape (3, 1); (4, 1) is needed"),
        ((A_RUNS,), np.full((4, 1), nan), "not all finite"),
        ((A_RUNS,), np.full((4, 1), 1e101), "not all finite and from -1e+100 to 1e+100"),
    ],
)
def test_prices_of_statuses_that_do_not_fit_are_a_violation(statuses, prices, part):
    problem, plan = paper_case()
    found = verify(problem, replace(plan, certificate=StatusCertificate(statuses, prices)))
    assert [item.rule for item in found.violations] == [Rule.CERTIFICATE]
    assert part in found.violations[0].message
    assert found.bound is None


def test_huge_prices_of_statuses_leave_a_valid_bound():
    problem, plan = paper_case()
    statuses = statuses_of(problem.tenants[0])
    huge = 1e100 * np.random.default_rng(1).choice([-1.0, 1.0], size=(4, len(statuses)))
    assert certified_bound(problem, StatusCertificate(statuses, huge), plan.objective) >= plan.objective


def test_prices_of_statuses_are_for_paper_alone():
    problem, plan = physical_case()
    found = verify(problem, replace(plan, certificate=StatusCertificate((), np.zeros((problem.n_steps, 0)))))
    assert "that of a physical plan prices profiles" in found.violations[0].message


# ---- the bound of its definition, by trying everything that one tenant could do alone ----


def lone_problem(seed: int, model: Reconfiguration) -> Problem:
    """Tenant a on 2g and 4g of an A100, with one or two retrainings; two in three with an initial state.

    Tenant b earns nothing and never changes, for a GPU has only one 1g with media engines. It starts slowly, so
    that epochs are further apart than a's warm-up.
    """
    rng, n_steps = np.random.default_rng([seed, 8]), 4 if model is Reconfiguration.PAPER else 5
    options = [RetrainingOption("full", {"1g.5gb": float(rng.uniform(0.5, 2.5)), "2g.10gb": 0.9}, 0.9)]
    options += [RetrainingOption("quick", {"1g.5gb": 0.4}, 0.4)] if seed % 2 else []
    a = TenantTerms(
        "a",
        rng.uniform(0, 90, n_steps),
        {name: float(rng.uniform(10, 60)) for name in ("2g.10gb", "4g.20gb")},
        0.5,
        float(rng.choice([0.0, 0.6, 1.8])),
        "2g.10gb" if seed % 4 else "4g.20gb",
        tuple(options),
        retraining_required=bool(rng.random() < 0.5),
        retraining_start_s=0.5,
    )
    b = TenantTerms("b", np.zeros(n_steps), {"1g.5gb+me": 1.0}, 0.5, 1.9, "1g.5gb", weight=0.0)
    state = None if seed % 3 == 0 else lone_state(rng, seed, model)
    return Problem(A100, 1.0, n_steps, model, (a, b), switch_s=0.0, initial=state)


def lone_state(rng: np.random.Generator, seed: int, model: Reconfiguration) -> PaperState | PhysicalState:
    if model is Reconfiguration.PAPER:
        return PaperState({"a": ("1g.5gb",) if seed % 3 == 1 else ("2g.10gb", "2g.10gb"), "b": ("1g.5gb+me",)})
    place, first_epoch = A100.placement, int(rng.integers(0, 4))
    held = [HeldInstance(place("4g.20gb@0"), "a", 0), HeldInstance(place("1g.5gb+me@6"), "b", 0)]
    held.append(HeldInstance(place("2g.10gb@4"), "a", first_epoch))
    running = (RunningRetraining(place("1g.5gb@5"), "a", int(rng.integers(1, 6))),) if seed % 3 == 1 else ()
    return PhysicalState(tuple(held[: 2 + (not running)]), running, first_epoch)


def bound_by_definition(problem: Problem, prices: dict[str, np.ndarray]) -> float:
    fitting = problem.gpu.multisets(problem.profile_names)
    rows = np.array([prices[name] for name in problem.profile_names])
    alone = [
        sum(gains(problem, path, level)) - paid - sum(prices[n][s] for s, held in enumerate(path) for n in held)
        for path in paths(problem)
        for level, paid in levels(problem, prices)
    ]
    return float((np.array(fitting) @ rows).max(axis=0).sum() - prices["1g.5gb+me"].sum() + max(alone, default=-inf))


Path = tuple[tuple[str, ...], ...]


def paths(problem: Problem) -> Iterator[Path]:
    """What tenant a may hold step by step."""
    two, four, state = "2g.10gb", "4g.20gb", problem.physical_initial
    allowed = [(two,) * n for n in (1, 2, 3)] + [(four,), (two, four)]
    allowed = [held for held in allowed if problem.tenants[0].min_profile in (two, *held)]
    apart = problem.epoch_steps if problem.reconfiguration is Reconfiguration.PHYSICAL else 1
    for path in product(allowed, repeat=problem.n_steps):
        changes = [s for s, (was, now) in enumerate(pairwise((before(problem) or path[0], *path))) if was != now]
        is_late = state is None or not changes or changes[0] >= state.next_epoch_step
        if is_late and all(later - sooner >= apart for sooner, later in pairwise(changes)):
            yield path


def before(problem: Problem) -> tuple[str, ...] | None:
    if problem.paper_initial is not None:
        return problem.paper_initial.held["a"]
    state = problem.physical_initial
    return state and tuple(sorted(item.placement.profile.name for item in state.held if item.tenant == "a"))


def levels(problem: Problem, prices: dict[str, np.ndarray]) -> Iterator[tuple[list[int], float]]:
    """Every retraining of tenant a, as the level by step and what it pays."""
    steps, state, tenant = range(problem.n_steps), problem.physical_initial, problem.tenants[0]
    if state is not None and state.retrainings:
        (run,) = state.retrainings
        yield [int(s >= run.end_step) for s in steps], prices["1g.5gb"][: run.end_step].sum()
        return
    if not tenant.retraining_required:
        yield [0 for _ in steps], 0.0
    for index, option in enumerate(tenant.options):
        for name, start in product(option.time_s, steps):
            end = start + problem.occupied_steps(tenant, option, name)
            if end <= problem.n_steps:
                yield [(1 + index) * (s >= end) for s in steps], prices[name][start:end].sum()


def gains(problem: Problem, path: Path, level: list[int]) -> Iterator[float]:
    """Goodput of tenant a step by step."""
    tenant, is_paper = problem.tenants[0], problem.reconfiguration is Reconfiguration.PAPER
    old = was = before(problem) or path[0]
    changed_at = -9
    for s, held in enumerate(path):
        if held != was:
            old, was, changed_at = was, held, s
        serving = held if is_paper else served(problem, old, held, s, changed_at)
        capacity = sum(tenant.capability_rps[name] for name in serving)
        if is_paper and changed_at == s:
            capacity *= 1 - tenant.overhead_s / len(held)
        yield tenant.accuracies[level[s]] * min(tenant.arrivals_rps[s], capacity)


def served(problem: Problem, old: tuple[str, ...], held: tuple[str, ...], s: int, changed_at: int) -> list[str]:
    """``physical``: what of ``held`` serves in step s."""
    state = problem.physical_initial
    if state is not None and s < state.next_epoch_step:
        return [i.placement.profile.name for i in state.held if i.tenant == "a" and i.serve_step <= s]
    is_warming = s < changed_at + problem.warm_up_steps(problem.tenants[0])
    return [name for name in set(held) for _ in range(min(held.count(name), old.count(name) if is_warming else 9))]


@pytest.mark.parametrize("model", list(Reconfiguration))
@pytest.mark.parametrize("seed", daily(range(12), range(0, 12, 3)))
def test_the_bound_is_that_of_its_definition(model, seed):
    problem = lone_problem(seed, model)
    certificate = random_prices(problem, seed, 5.0, 1 if seed % 2 else 0)
    prices = dict(zip(certificate.profile_names, certificate.prices.T, strict=True))
    assert certified_bound(problem, certificate) == pytest.approx(bound_by_definition(problem, prices), rel=1e-9)


# ---- what a check says of it ----


def priced(problem: Problem, value: float = 0.0) -> Certificate:
    return Certificate(problem.profile_names, np.full((problem.n_steps, len(problem.profile_names)), value))


@pytest.mark.parametrize("case", CASES)
def test_the_gap_is_that_to_the_recomputed_bound(case):
    problem, plan = case()
    bound = certified_bound(problem, priced(problem))
    found = verify(problem, replace(plan, certificate=priced(problem)))
    assert (found.violations, found.bound) == ((), bound)
    assert found.gap == pytest.approx((bound - plan.objective) / bound)


@pytest.mark.parametrize("case", CASES)
def test_a_bound_that_the_certificate_does_not_prove_is_a_violation(case):
    problem, plan = case()
    plan = replace(plan, certificate=priced(problem))
    proven = with_proof(plan, verify(problem, plan))
    assert proven.claimed_gap == 0 < proven.gap
    assert verify(problem, proven).is_valid
    for false in (replace(proven, bound=plan.objective), replace(proven, certificate=None)):
        assert [item.rule for item in verify(problem, false).violations] == [Rule.CERTIFICATE]


def test_without_a_certificate_nothing_is_certified():
    found = verify(*paper_case())
    assert (found.bound, found.gap) == (None, None)


def test_without_an_objective_there_is_no_proven_gap():
    problem, plan = paper_case()
    tables = [GainTable(((0, 0, 0),), np.zeros((n_levels, 4, 1)), np.zeros((n_levels, 4, 1))) for n_levels in (2, 1)]
    problem = replace(problem, gains=tuple(tables))
    found = verify(problem, replace(plan, certificate=priced(problem)))
    assert (found.objective, found.bound, found.gap) == (None, None, None)


def test_a_tenant_that_cannot_retrain_in_time_has_no_bound():
    problem, plan = paper_case()
    endless = replace(problem.tenants[0], options=(RetrainingOption("full", {"1g.5gb": 5.0}, 0.8),))
    problem = replace(problem, tenants=(endless, problem.tenants[1]))
    assert certified_bound(problem, priced(problem)) == -inf
    assert verify(problem, replace(plan, certificate=priced(problem))).bound is None


@pytest.mark.parametrize("case", CASES)
def test_tables_of_min_a_c_change_nothing(case):
    problem, _ = case()
    certificate = random_prices(problem, 1, 3.0, 0)
    tabled = replace(problem, gains=gain_tables(problem))
    assert certified_bound(tabled, certificate) == pytest.approx(certified_bound(problem, certificate), rel=1e-12)


def test_columns_are_found_by_name_and_missing_ones_are_free():
    problem, _ = paper_case()
    first, second, third = problem.profile_names
    prices = np.abs(random_prices(problem, 2, 3.0, 0).prices) * [1, 0, 1]
    turned = Certificate((third, first, "7g.40gb"), np.column_stack([prices[:, 2], prices[:, 0], prices[:, 1] + 9]))
    assert certified_bound(problem, turned) == certified_bound(problem, Certificate((first, second, third), prices))


@pytest.mark.parametrize(
    ("names", "prices", "part"),
    [
        (("9g",), np.zeros((4, 1)), "prices 9g; different ones of 1g.5gb, "),
        (("1g.5gb", "1g.5gb"), np.zeros((4, 2)), "different ones"),
        (("1g.5gb",), np.zeros((3, 1)), "shape (3, 1); (4, 1) is needed"),
        (("1g.5gb",), np.zeros(4), "shape (4,); (4, 1) is needed"),
        (("1g.5gb",), np.full((4, 1), nan), "not all finite"),
        (("1g.5gb",), np.full((4, 1), -inf), "not all finite"),
        (("1g.5gb",), np.full((4, 1), 1e101), "not all finite and from -1e+100 to 1e+100"),
    ],
)
def test_a_certificate_that_does_not_fit_is_a_violation(names, prices, part):
    problem, plan = paper_case()
    found = verify(problem, replace(plan, certificate=Certificate(names, prices)))
    assert [item.rule for item in found.violations] == [Rule.CERTIFICATE]
    assert part in found.violations[0].message
    assert found.bound is None


# ---- many steps ----


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("last", [0, 1, 2, 3, 5, 9, 14])
def test_the_most_of_the_steps_ahead_is_theirs(first, last):
    values = np.random.default_rng([first, last]).normal(size=(2, 9, 3))
    ahead = [values[:, s + first : s + last + 1].max(axis=1, initial=-inf) for s in range(9)]
    assert np.array_equal(_most_ahead(values, first, last), np.stack(ahead, axis=1))


def test_a_window_of_20000_steps_with_warm_ups_of_700_is_bounded():
    n_steps, rng = 20_000, np.random.default_rng(5)
    tenants = tuple(
        TenantTerms(name, rng.uniform(0, 90, n_steps), {"1g.5gb": 30.0, "2g.10gb": 55.0}, 0.5, 4.0, "1g.5gb")
        for name in ("a", "b")
    )
    problem = Problem(A100, 0.01, n_steps, Reconfiguration.PHYSICAL, tenants)
    held = [Lifetime(A100.placement(f"2g.10gb@{2 * m}"), Owner("ab"[m], Task.INFERENCE), 0, 0, n_steps) for m in (0, 1)]
    objective = sum(0.5 * 0.01 * float(np.minimum(tenant.arrivals_rps, 55.0).sum()) for tenant in tenants)
    plan = MigPlan(
        Status.FEASIBLE, objective, None, 0.0, "hand", Reconfiguration.PHYSICAL, n_steps, lifetimes=tuple(held)
    )
    found = verify(problem, replace(plan, certificate=priced(problem)))
    assert (found.violations, found.bound >= objective) == ((), True)
