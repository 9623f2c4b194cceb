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
from planner.engines.paper.holding_path import HoldingPaths
from planner.gains import gain_tables


@pytest.mark.parametrize("seed", range(12))
def test_no_paper_plan_is_better(seed: int) -> None:
    problem = paper_problem(seed)
    best = paper_oracle.best_objective(problem)
    if best is not None:
        assert relaxed_bound(problem, gain_tables(problem)) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_no_physical_plan_is_better(seed: int) -> None:
    problem = physical_problem(seed, 3)
    best = physical_oracle.best_objective(problem)
    if best is not None:
        assert relaxed_bound(problem, gain_tables(problem)) >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_without_retrainings_it_is_the_sum_of_per_step_maxima(seed: int) -> None:
    problem = paper_problem(seed)
    problem = replace(problem, tenants=tuple(replace(terms, options=()) for terms in problem.tenants))
    tables = gain_tables(problem)
    paths = HoldingPaths(problem, tables)
    if paths.n_states:
        nothing = (0,) * len(problem.profile_names)
        maxima = paths.best_without_change(nothing, (0,) * len(problem.tenants))
        assert relaxed_bound(problem, tables) == pytest.approx(maxima.sum())


def test_it_is_minus_infinity_where_tenants_do_not_fit() -> None:
    terms = [tenant(name, capability_rps={"7g.40gb": 100.0}) for name in "ab"]
    problem = window(*terms)
    assert relaxed_bound(problem, gain_tables(problem)) == -np.inf
