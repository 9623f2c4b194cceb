"""What holds of every problem: of all engines' plans and bounds, and of the best plan when a problem changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import PROFILES, Case, cases

from planner.plan import MigPlan, Status
from planner.problem import Reconfiguration, RetrainingOption, TenantTerms
from planner.solve import engine_names, solve
from planner.verify import verify

SLOW = {"paper-ilp"}
"""Takes minutes for some of these problems; its own tests compare it with the others."""

ENGINES = [(model, name) for model in Reconfiguration for name in engine_names(model) if name not in SLOW]
PROVING = [(model, name) for model, name in ENGINES if name not in {"greedy", "static"}]

every_engine = pytest.mark.parametrize(("model", "engine"), ENGINES)
every_proving_engine = pytest.mark.parametrize(("model", "engine"), PROVING)


some_cases = settings(
    derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def tolerance(value: float) -> float:
    return 1e-6 * max(1.0, abs(value))


def at_least(better: MigPlan, plan: MigPlan) -> bool:
    """Whether a problem with more room is answered as well: by its bound, and by its plan if that is proven."""
    if not plan.status.has_plan:
        return True
    least = plan.objective - tolerance(plan.objective)
    return better.bound >= least and (better.status is not Status.OPTIMAL or better.objective >= least)


@every_engine
def test_every_plan_passes_verify(model, engine):
    @some_cases
    @given(cases(model))
    def check(case: Case) -> None:
        plan = solve(case.problem, engine)
        if plan.status.has_plan:
            assert verify(case.problem, plan).violations == ()

    check()


@every_engine
def test_no_plan_of_any_engine_exceeds_a_bound(model, engine):
    @some_cases
    @given(cases(model))
    def check(case: Case) -> None:
        plan = solve(case.problem, engine)
        best = max((other.objective for other in plans_of(case, model) if other.status.has_plan), default=None)
        if best is not None and plan.bound is not None:
            assert plan.bound >= best - tolerance(best)

    check()


def plans_of(case: Case, model: Reconfiguration) -> list[MigPlan]:
    return [solve(case.problem, name) for of, name in ENGINES if of is model]


@every_proving_engine
def test_the_objective_is_never_below_greedy_s_and_static_s(model, engine):
    @some_cases
    @given(cases(model))
    def check(case: Case) -> None:
        plan = solve(case.problem, engine)
        for floor in (solve(case.problem, "greedy"), solve(case.problem, "static")):
            if floor.status.has_plan:
                assert plan.objective >= floor.objective - tolerance(floor.objective)

    check()


@every_proving_engine
def test_scaling_arrivals_and_capabilities_scales_the_objective(model, engine):
    @some_cases
    @given(cases(model), st.sampled_from([0.1, 3.0]))
    def check(case: Case, factor: float) -> None:
        plan, scaled = solve(case.problem, engine), solve(case.scaled(factor).problem, engine)
        assert scaled.status.has_plan == plan.status.has_plan
        if plan.status is scaled.status is Status.OPTIMAL:
            assert scaled.objective == pytest.approx(factor * plan.objective, rel=1e-6, abs=1e-6)

    check()


@every_proving_engine
def test_the_order_of_the_tenants_changes_nothing(model, engine):
    @some_cases
    @given(cases(model))
    def check(case: Case) -> None:
        plan, other = solve(case.problem, engine), solve(case.reversed().problem, engine)
        assert other.status.has_plan == plan.status.has_plan
        if plan.status is other.status is Status.OPTIMAL:
            assert other.objective == pytest.approx(plan.objective, rel=1e-6, abs=1e-6)

    check()


def check_never_lowers(model: Reconfiguration, engine: str, more: Callable[[Case, TenantTerms], TenantTerms]) -> None:
    """With every tenant changed by ``more``, what had a plan has one that is worth no less."""

    @some_cases
    @given(cases(model))
    def check(case: Case) -> None:
        assert at_least(solve(case.with_tenants(partial(more, case)).problem, engine), solve(case.problem, engine))

    check()


@every_proving_engine
def test_another_profile_to_serve_on_never_lowers_the_objective(model, engine):
    def more(case: Case, tenant: TenantTerms) -> TenantTerms:
        spare = [name for name in PROFILES[case.bare.gpu.name] if name not in tenant.capability_rps]
        return replace(tenant, capability_rps={**tenant.capability_rps, **dict.fromkeys(spare[:1], 70.0)})

    check_never_lowers(model, engine, more)


@every_proving_engine
def test_another_profile_to_retrain_on_never_lowers_the_objective(model, engine):
    def longer(case: Case, option: RetrainingOption) -> RetrainingOption:
        spare = [name for name in PROFILES[case.bare.gpu.name] if name not in option.time_s]
        return replace(option, time_s={**option.time_s, **dict.fromkeys(spare[:1], case.bare.step_s)})

    def more(case: Case, tenant: TenantTerms) -> TenantTerms:
        return replace(tenant, options=tuple(longer(case, option) for option in tenant.options))

    check_never_lowers(model, engine, more)


@every_proving_engine
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_cheaper_overhead_never_lowers_the_objective(model, engine, share):
    # Also where a change costs more than a step, and where a retraining does not pay: it can start later then.
    check_never_lowers(model, engine, lambda _, tenant: replace(tenant, overhead_s=share * tenant.overhead_s))


@every_proving_engine
def test_a_retraining_that_may_be_skipped_never_lowers_the_objective(model, engine):
    check_never_lowers(model, engine, lambda _, tenant: replace(tenant, retraining_required=False))
