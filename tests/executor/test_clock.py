import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.clock import Clock, VirtualClock, WallClock
from tests.seeds import examples


def test_virtual_clock_starts_where_it_is_told_to() -> None:
    assert (VirtualClock().now_s, VirtualClock(7.5).now_s) == (0.0, 7.5)


def test_virtual_clock_is_a_clock() -> None:
    clock: Clock = VirtualClock()
    assert clock.now_s == 0.0


def test_sleeping_sets_the_clock_to_exactly_that_time() -> None:
    clock = VirtualClock()
    clock.sleep_until(0.1 + 0.2)
    assert clock.now_s == 0.1 + 0.2


def test_sleeping_until_the_past_returns_at_once() -> None:
    clock = VirtualClock(5.0)
    clock.sleep_until(3.0)
    assert clock.now_s == 5.0


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
@settings(derandomize=True, max_examples=examples(100))
def test_clock_shows_the_latest_time_slept_until(times_s: list[float]) -> None:
    clock = VirtualClock(-1e9)
    for time_s in times_s:
        clock.sleep_until(time_s)
    assert clock.now_s == max(times_s)


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf])
def test_sleeping_until_no_finite_time_is_refused(time_s: float) -> None:
    clock = VirtualClock(1.0)
    with pytest.raises(ValueError, match=r"a clock cannot show -?(nan|inf) s; allowed: finite seconds"):
        clock.sleep_until(time_s)
    assert clock.now_s == 1.0


def test_starting_at_no_finite_time_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        VirtualClock(math.nan)


def test_a_wall_clock_runs_by_itself_and_never_falls() -> None:
    clock = WallClock()
    assert 0 <= clock.now_s <= clock.now_s


def test_a_wall_clock_does_not_wait_for_what_is_past(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    WallClock().sleep_until(-1.0)
    assert slept == []


def test_a_wall_clock_waits_for_no_moment_that_is_none() -> None:
    clock = WallClock()
    with pytest.raises(ValueError, match="finite"):
        clock.sleep_until(float("nan"))


def test_a_wall_clock_sleeps_for_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    clock = WallClock()
    clock.sleep_until(1000.0)
    assert 990 < slept[0] <= 1000
