"""A search is gone with its tables when it has ended."""

from __future__ import annotations

import gc

import pytest
from problems import paper_problem, physical_problem

from planner.engines.remembered import remembered
from planner.solve import solve


@pytest.fixture
def uncollected():
    """Nothing is collected by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("made", [paper_problem, physical_problem])
@pytest.mark.usefixtures("uncollected")
def test_a_search_leaves_nothing_for_the_collector(made):
    problem = made(3)
    solve(problem)  # what is made once stays
    gc.collect()
    solve(problem)
    assert gc.collect() == 0


def test_as_many_answers_are_kept_as_asked_for():
    class Owner:
        def __init__(self):
            self.asked = []
            self.twice = remembered(self._twice, 2)

        def _twice(self, number):
            self.asked.append(number)
            return 2 * number

    owner = Owner()
    assert [owner.twice(number) for number in (1, 1, 2, 1, 3, 2)] == [2, 2, 4, 2, 6, 4]
    assert owner.asked == [1, 2, 3, 2]
