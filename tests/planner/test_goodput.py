from __future__ import annotations

import numpy as np
import pytest
from problems import paper_problem, physical_problem

from planner.budget import Budget
from planner.goodput import goodput_by_step
from planner.solve import solve


@pytest.mark.parametrize("seed", range(40))
def test_the_tenants_goodput_adds_up_to_the_plans_in_paper(seed: int) -> None:
    problem = paper_problem(seed)
    plan = solve(problem, "greedy")
    if plan.status.has_plan:
        assert goodput_by_step(problem, plan).sum() == pytest.approx(plan.objective)


@pytest.mark.parametrize("seed", range(40))
def test_the_tenants_goodput_adds_up_to_the_plans_in_physical(seed: int) -> None:
    problem = physical_problem(seed)
    plan = solve(problem, "physical", Budget(max_nodes=20))
    if plan.status.has_plan:
        assert goodput_by_step(problem, plan).sum() == pytest.approx(plan.objective)


@pytest.mark.parametrize("seed", range(12))
def test_no_tenant_is_worth_more_than_all_its_requests(seed: int) -> None:
    problem = physical_problem(seed)
    plan = solve(problem, "physical", Budget(max_nodes=20))
    if plan.status.has_plan:
        goodput = goodput_by_step(problem, plan)
        most = np.array([max(t.accuracies) * t.weight * t.arrivals_rps * problem.step_s for t in problem.tenants])
        assert goodput.shape == most.shape
        assert (goodput <= most + 1e-9).all()
