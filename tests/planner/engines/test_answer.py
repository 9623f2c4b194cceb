"""The relaxed bound: no more than what per-step maxima add up to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from claims import Claims
from problems import paper_problem
from windows import tenant, window

from planner.engines.answer import relaxed_bound
from planner.engines.paper.states import JointStates
from planner.engines.schedule import WindowFacts


def test_without_retrainings_it_is_the_sum_of_per_step_maxima() -> None:
    with Claims("relaxed bounds") as claim:
        for problem in map(paper_problem, range(12)):
            bare = replace(problem, tenants=tuple(replace(terms, options=()) for terms in problem.tenants))
            facts = WindowFacts.of(bare)
            joint = JointStates(facts)
            if joint.n_states:
                total, found = joint.step_maxima((), (0,) * len(bare.tenants)).sum(), relaxed_bound(facts)
                claim(found == pytest.approx(total), f"{found}; the maxima add up to {total}")


def test_it_is_minus_infinity_where_tenants_do_not_fit() -> None:
    terms = [tenant(name, capability_rps={"7g.40gb": 100.0}) for name in "ab"]
    problem = window(*terms)
    assert relaxed_bound(WindowFacts.of(problem)) == -np.inf
