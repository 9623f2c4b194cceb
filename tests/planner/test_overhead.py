from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from windows import tenant, window

from planner.errors import ProblemError
from planner.gains import gain_tables
from planner.overhead import with_measured_overhead
from planner.problem import Problem, Reconfiguration


def two_tenants() -> Problem:
    return window(tenant("a", overhead_s=1.0), tenant("b", overhead_s=2.0))


def test_measured_overheads_take_the_place_of_those_given() -> None:
    fed_back = with_measured_overhead(two_tenants(), {"a": 3.5, "b": 0.0})
    assert [terms.overhead_s for terms in fed_back.tenants] == [3.5, 0.0]


def test_a_tenant_without_a_measured_overhead_keeps_its_own() -> None:
    assert [terms.overhead_s for terms in with_measured_overhead(two_tenants(), {"a": 3.5}).tenants] == [3.5, 2.0]


def test_the_problem_that_was_given_stays_as_it_was() -> None:
    problem = two_tenants()
    with_measured_overhead(problem, {"a": 3.5})
    assert problem.tenants[0].overhead_s == 1.0


def test_gain_tables_follow_the_overhead() -> None:
    problem = two_tenants()
    tabled = replace(problem, gains=gain_tables(problem))
    fed_back = with_measured_overhead(tabled, {"a": 3.5})
    plain = gain_tables(with_measured_overhead(problem, {"a": 3.5}))
    for table, expected in zip(gain_tables(fed_back), plain, strict=True):
        assert table.changed is not None
        np.testing.assert_allclose(table.changed, expected.changed)
        np.testing.assert_allclose(table.steady, expected.steady)


def test_a_physical_problem_is_refused() -> None:
    with pytest.raises(ProblemError, match="measured overhead is for paper problems; this one is physical"):
        with_measured_overhead(window(model=Reconfiguration.PHYSICAL), {"resnet50": 1.0})


def test_a_name_of_no_tenant_is_told_with_those_there_are() -> None:
    with pytest.raises(ProblemError, match="'c' is no tenant; there are a, b"):
        with_measured_overhead(two_tenants(), {"a": 1.0, "c": 1.0})


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_value_that_no_overhead_can_have_is_told(value: float) -> None:
    with pytest.raises(ProblemError, match=r"tenants.a.overhead_s is .* a finite number"):
        with_measured_overhead(two_tenants(), {"a": value})
