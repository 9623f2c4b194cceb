"""What a plan's figures say of each other."""

from __future__ import annotations

import math

import pytest

from planner.plan import Status, gap_between, status_of


@pytest.mark.parametrize(
    ("bound", "objective", "salvage", "gap"),
    [(50.0, 40.0, 0.0, 0.2), (50.0, 40.0, 25.0, 0.4), (40.0, 50.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)],
)
def test_a_gap_is_a_share_of_the_bound_without_salvage(
    bound: float, objective: float, salvage: float, gap: float
) -> None:
    assert gap_between(bound, objective, salvage) == gap


def test_without_a_bound_or_an_objective_there_is_no_gap() -> None:
    assert (gap_between(None, 1.0), gap_between(1.0, None)) == (None, None)


@pytest.mark.parametrize("objective", [49.0, math.nan])
def test_what_is_short_of_its_bound_or_undefined_is_not_optimal(objective: float) -> None:
    assert status_of(objective, 50.0) is Status.FEASIBLE
    assert status_of(50.0, 50.0) is Status.OPTIMAL
