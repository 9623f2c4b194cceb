"""What holds of every problem: of all engines' plans and bounds, and of the best plan when a problem changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from claims import Claims
from engine_table import ENGINES, Engine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import PROFILES, Case, cases

from planner.plan import MigPlan, Status
from planner.problem import Problem, Reconfiguration, TenantTerms
from planner.verify import verify
from tests.seeds import examples


def served_on_more(problem: Problem, tenant: TenantTerms) -> TenantTerms:
    spare = [name for name in PROFILES[problem.gpu.name] if name not in tenant.capability_rps]
    return replace(tenant, capability_rps={**tenant.capability_rps, **dict.fromkeys(spare[:1], 70.0)})


def retrained_on_more(problem: Problem, tenant: TenantTerms) -> TenantTerms:
    options = []
    for option in tenant.options:
        spare = [name for name in PROFILES[problem.gpu.name] if name not in option.time_s]
        options.append(replace(option, time_s={**option.time_s, **dict.fromkeys(spare[:1], problem.step_s)}))
    return replace(tenant, options=tuple(options))


ROOM: dict[str, Callable[[Problem, TenantTerms], TenantTerms]] = {
    "another profile to serve on": served_on_more,
    "another profile to retrain on": retrained_on_more,
    # Also where a change costs more than a step, and where a retraining does not pay: it can start later then.
    "no overhead": lambda _, tenant: replace(tenant, overhead_s=0.0),
    "half the overhead": lambda _, tenant: replace(tenant, overhead_s=0.5 * tenant.overhead_s),
    "a retraining that may be skipped": lambda _, tenant: replace(tenant, retraining_required=False),
}
"""What never lowers the objective, as a change of every tenant."""


def tolerance(value: float) -> float:
    return 1e-6 * max(1.0, abs(value))


def is_as_good(better: MigPlan, plan: MigPlan) -> bool:
    """Whether a problem with more room is answered as well: by its bound, and by its plan if that is proven."""
    if not plan.status.has_plan:
        return True
    least = plan.objective - tolerance(plan.objective)
    return better.claimed_bound >= least and (better.status is not Status.OPTIMAL or better.objective >= least)


def is_same(plan: MigPlan, other: MigPlan, factor: float = 1.0) -> bool:
    """Whether ``other`` is a plan where ``plan`` is one, and worth ``factor`` as much if both are proven."""
    if plan.status is other.status is Status.OPTIMAL:
        return other.objective == pytest.approx(factor * plan.objective, rel=1e-6, abs=1e-6)
    return other.status.has_plan == plan.status.has_plan


def check_plans(claim: Claims, problem: Problem, plans: dict[Engine, MigPlan]) -> None:
    """Rules, and bounds and values beside those of the other engines."""
    best = max((plan.objective for plan in plans.values() if plan.status.has_plan), default=None)
    for engine, plan in plans.items():
        if plan.status.has_plan:
            claim(verify(problem, plan).violations == (), f"{engine}: {verify(problem, plan).violations}")
        if best is not None and plan.claimed_bound is not None:
            claim(
                plan.claimed_bound >= best - tolerance(best),
                f"{engine}: bound {plan.claimed_bound}; a plan is worth {best}",
            )
        if best is not None and engine.proves:
            claim(plan.objective >= best - tolerance(best), f"{engine}: {plan.objective}; a plan is worth {best}")


@pytest.mark.parametrize("model", Reconfiguration)
def test_what_holds_of_plans_and_of_the_best_one_when_a_problem_changes(model: Reconfiguration) -> None:
    engines = [engine for engine in ENGINES if engine.model is model and engine.solver is None]

    @settings(
        derandomize=True,
        max_examples=examples(8),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(cases(model), st.sampled_from([0.1, 3.0]))
    def check(case: Case, factor: float) -> None:
        plans = {engine: engine.plan(case.problem) for engine in engines}
        with Claims(model) as claim:
            check_plans(claim, case.problem, plans)
            for engine, plan in plans.items():
                if engine.proves:
                    claim(is_same(plan, engine.plan(case.scaled(factor).problem), factor), f"{engine}: times {factor}")
                    claim(is_same(plan, engine.plan(case.reversed().problem)), f"{engine}: tenants in the other order")
                    for name, more in ROOM.items():
                        roomier = case.with_tenants(lambda tenant, more=more: more(case.bare, tenant)).problem
                        claim(is_as_good(engine.plan(roomier), plan), f"{engine}: worse with {name}")

    check()
