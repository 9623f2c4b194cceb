"""What becomes of an accuracy from window to window: worked out by hand from the definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workloads.drift import accuracy_at_start, drift_in
from workloads.profiles.latency import LatencyCurve
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Drift, Tenant, WindowAccuracy, WorkerStart

BEFORE = (0.6, 0.8, 0.5, 0.9, 0.7)


def tenant(n_retraining_windows: int | None = None) -> Tenant:
    return Tenant(
        name="a",
        model="m",
        slo_s=0.1,
        operating_points={"1g.5gb": OperatingPoint("1g.5gb", 1, 1, 10.0, 0.05, LatencyCurve((1,), (0.05,)))},
        retraining_time_s={"1g.5gb": 20.0},
        accuracy=tuple(WindowAccuracy(before, 0.95) for before in BEFORE),
        min_profile="1g.5gb",
        worker_start=WorkerStart(1.0),
        n_retraining_windows=n_retraining_windows,
    )


@pytest.mark.parametrize("window", range(5))
def test_a_model_retrained_in_the_last_window_starts_at_before(window: int) -> None:
    assert accuracy_at_start(tenant(), window, window - 1) == BEFORE[window]


@pytest.mark.parametrize(
    ("window", "last_retrained", "accuracy"),
    [(1, -1, 0.6), (2, -1, 0.5), (3, -1, 0.5), (4, -1, 0.5), (2, 0, 0.5), (3, 0, 0.5), (4, 2, 0.7), (3, 1, 0.5)],
)
def test_a_model_whose_retraining_is_missing_never_recovers(window: int, last_retrained: int, accuracy: float) -> None:
    assert accuracy_at_start(tenant(), window, last_retrained) == accuracy


def test_a_tenant_that_is_not_to_be_retrained_any_more_follows_before() -> None:
    assert [accuracy_at_start(tenant(1), window, 0) for window in range(1, 5)] == list(BEFORE[1:])


def test_a_skipped_last_retraining_is_missed_for_good() -> None:
    assert [accuracy_at_start(tenant(1), window, -1) for window in range(1, 5)] == [0.6, 0.5, 0.5, 0.5]


def test_a_tenant_that_is_never_retrained_follows_before() -> None:
    assert [accuracy_at_start(tenant(0), window, -1) for window in range(5)] == list(BEFORE)


COMPOUND = replace(tenant(), accuracy=(WindowAccuracy(0.6, 0.9), WindowAccuracy(0.72, 0.8)), drift=Drift.COMPOUND)
"""Keeps 0.8 of its accuracy after window 0, and 0.9 after each later one."""


@pytest.mark.parametrize(("window", "kept"), [(0, 0.8), (1, 0.9), (5, 0.9)])
def test_a_window_takes_what_the_retrained_model_loses(window: int, kept: float) -> None:
    assert drift_in(COMPOUND, window) == pytest.approx(kept)


@pytest.mark.parametrize(
    "own",
    [
        replace(COMPOUND, n_retraining_windows=0),
        replace(COMPOUND, accuracy=(WindowAccuracy(0.6, 0.0),)),
        replace(COMPOUND, accuracy=(WindowAccuracy(0.9, 0.8),)),
    ],
)
def test_nothing_is_lost_where_nothing_can_be_learned_or_more_is_given(own: Tenant) -> None:
    assert drift_in(own, 0) == 1


def test_compound_drift_takes_from_who_skips_window_after_window() -> None:
    found = [accuracy_at_start(COMPOUND, window, -1) for window in range(4)]
    assert found == pytest.approx([0.6, 0.6 * 0.8, 0.6 * 0.8 * 0.9, 0.6 * 0.8 * 0.9**2])


def test_whoever_was_retrained_as_named_begins_with_before_whatever_the_drift() -> None:
    assert accuracy_at_start(COMPOUND, 1, 0) == 0.72


@pytest.mark.parametrize(("drift", "accuracy"), [(Drift.COMPOUND, 0.75 * 0.8), (Drift.AS_GIVEN, 0.72)])
def test_what_another_option_gave_falls_by_the_drift(drift: Drift, accuracy: float) -> None:
    assert accuracy_at_start(replace(COMPOUND, drift=drift), 1, 0, 0.75) == pytest.approx(accuracy)


def test_a_retraining_that_ends_two_windows_late_meets_the_drift_of_both() -> None:
    assert accuracy_at_start(COMPOUND, 2, 0) == pytest.approx(0.9 * 0.8 * 0.9)
