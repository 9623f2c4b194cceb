"""The relaxed bound: above every plan, and no more than what per-step maxima add up to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paper_oracle
import physical_oracle
import pytest
from problems import paper_problem, physical_problem
from windows import tenant, window

from planner.engines.answer import relaxed_bound
from planner.engines.paper.states import JointStates
from planner.engines.schedule import WindowFacts


@pytest.mark.parametrize("seed", range(12))
def test_no_paper_plan_is_better(seed: int) -> None:
    problem = paper_problem(seed)
    best = paper_oracle.best_objective(problem)
    if best is not None:
        assert relaxed_bound(WindowFacts.of(problem)) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_no_physical_plan_is_better(seed: int) -> None:
    problem = physical_problem(seed, 3)
    best = physical_oracle.best_objective(problem)
    if best is not None:
        assert relaxed_bound(WindowFacts.of(problem)) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_without_retrainings_it_is_the_sum_of_per_step_maxima(seed: int) -> None:
    problem = paper_problem(seed)
    problem = replace(problem, tenants=tuple(replace(terms, options=()) for terms in problem.tenants))
    facts = WindowFacts.of(problem)
    joint = JointStates(facts)
    if joint.n_states:
        maxima = joint.step_maxima((), (0,) * len(problem.tenants))
        assert relaxed_bound(facts) == pytest.approx(maxima.sum())


def test_it_is_minus_infinity_where_tenants_do_not_fit() -> None:
    terms = [tenant(name, capability_rps={"7g.40gb": 100.0}) for name in "ab"]
    problem = window(*terms)
    assert relaxed_bound(WindowFacts.of(problem)) == -np.inf
