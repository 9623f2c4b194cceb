from __future__ import annotations

import pytest

from planner.budget import planning_time_s


def test_more_tenants_take_longer() -> None:
    seconds = [planning_time_s(n_tenants, 200) for n_tenants in range(1, 8)]
    assert seconds == sorted(set(seconds))


def test_steps_take_time_in_proportion() -> None:
    assert planning_time_s(2, 400) == 2 * planning_time_s(2, 200)


def test_profiles_with_double_memory_take_longer() -> None:
    assert planning_time_s(2, 200, has_double_memory=True) == 11.0


@pytest.mark.parametrize("n_tenants", range(1, 8))
def test_seconds_are_whole_and_one_at_least(n_tenants: int) -> None:
    seconds = planning_time_s(n_tenants, 3)
    assert seconds >= 1.0
    assert seconds == int(seconds)


def test_beyond_what_is_known_the_last_figure_holds() -> None:
    assert planning_time_s(12, 200) == planning_time_s(7, 200)
