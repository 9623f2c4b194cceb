"""Nobody beats ``oracle`` by more than its gap on small random windows, however short its search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import Case, cases

from planner.budget import Budget
from planner.errors import EngineError
from planner.plan import MigPlan
from planner.policies.ours import Oracle
from planner.policies.policy import Knows, Policy, Window
from planner.policies.registry import MIG_POLICIES
from planner.problem import Problem, Reconfiguration, TenantTerms
from planner.verify import Rule, verify
from tests.seeds import daily, examples

CLAIMS = {Rule.OBJECTIVE, Rule.CERTIFICATE}
"""What a plan for other arrivals may say wrongly of itself; all other rules know no arrivals."""

OTHERS = [name for name in MIG_POLICIES if name != Oracle().name]

some_windows = settings(
    derandomize=True,
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def backwards(case: Case) -> Case:
    """The window with its arrivals in the other order: a forecast that is wrong."""

    def turned(tenant: TenantTerms) -> TenantTerms:
        return replace(tenant, arrivals_rps=tenant.arrivals_rps[::-1].copy())

    paths = None if case.paths_rps is None else tuple(own[:, ::-1].copy() for own in case.paths_rps)
    return replace(case.with_tenants(turned), paths_rps=paths)


def answered(policy: Policy, case: Case, past_rps: float, n_most: int) -> MigPlan | None:
    """The policy's plan of the window from what it may know of it; ``None`` where it has none."""
    told = backwards(case).problem if policy.knows is Knows.FORECAST else case.problem
    past = np.full((4, len(told.tenants)), past_rps)
    try:
        ready = policy.prepared([case.problem]) if policy.knows is Knows.RUN else policy
    except EngineError:  # no layout that stays has room for the retrainings
        return None
    plan = ready.plan(Window(0, told, Budget(max_nodes=n_most), past))
    return plan if plan.status.has_plan else None


def answered_by_oracle(case: Case, n_most: int) -> MigPlan:
    past_rps = np.zeros((0, len(case.bare.tenants)))
    return Oracle().plan(Window(0, case.problem, Budget(max_nodes=n_most), past_rps))


def worth(problem: Problem, plan: MigPlan | None) -> float:
    """The plan's goodput with the true arrivals, in requests, −inf without one; it breaks no rule by what it holds."""
    if plan is None:
        return -np.inf
    found = verify(problem, plan)
    assert {violation.rule for violation in found.violations} <= CLAIMS
    assert found.objective is not None
    return found.objective


def ceiling(problem: Problem, plan: MigPlan) -> float:
    """As high as any plan may come: the oracle's and its gap; −inf where it says that there is none."""
    if not plan.status.has_plan:
        return np.inf if plan.infeasibility is None else -np.inf
    assert plan.objective is not None
    assert plan.claimed_bound is not None
    assert verify(problem, plan).violations == ()
    value = worth(problem, plan)
    return value + plan.claimed_bound - plan.objective + 1e-9 * max(1.0, abs(value))


@pytest.mark.parametrize("name", daily(OTHERS, OTHERS[::3]))
def test_no_policy_is_worth_more_than_the_oracle_and_its_gap(name: str) -> None:
    @some_windows
    @given(cases(Reconfiguration.PHYSICAL), st.sampled_from([0.0, 60.0, 200.0]), st.sampled_from([1, 5, 200]))
    def check(case: Case, past_rps: float, n_most: int) -> None:
        plan = answered(MIG_POLICIES[name](), case, past_rps, n_most)
        best = answered_by_oracle(case, n_most)
        assert worth(case.problem, plan) <= ceiling(case.problem, best)

    check()
