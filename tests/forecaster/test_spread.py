"""Where error paths come from, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.spread import MAX_ORIGINS, checked_history, error_targets, forecast_from_errors
from tests.seeds import examples


def test_long_histories_use_whole_paths_only() -> None:
    assert error_targets(first_origin=1, n_history=8, n_steps=3).tolist() == [
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 5],
        [4, 5, 6],
        [5, 6, 7],
    ]


def test_short_histories_are_closed_to_a_ring() -> None:
    assert error_targets(first_origin=2, n_history=5, n_steps=4).tolist() == [[2, 3, 4, 2], [3, 4, 2, 3], [4, 2, 3, 4]]


@pytest.mark.parametrize(("n_history", "n_origins"), [(6, 3), (5, 4)])
def test_the_ring_closes_when_whole_paths_are_fewer_than_steps(n_history: int, n_origins: int) -> None:
    assert len(error_targets(first_origin=1, n_history=n_history, n_steps=3)) == n_origins


def test_origins_of_very_long_histories_are_thinned_evenly() -> None:
    origins = error_targets(first_origin=1, n_history=10_000, n_steps=10)[:, 0]
    assert (len(origins), set(np.diff(origins).tolist())) == (MAX_ORIGINS, {24, 25})


def test_paths_take_all_tenants_from_one_origin() -> None:
    errors = np.arange(20.0).reshape(20, 1, 1) * np.array([1.0, -1.0])
    forecast = forecast_from_errors("m", np.full((1, 2), 50.0), errors, 30, np.random.default_rng(0))
    np.testing.assert_allclose(forecast.paths_rps[..., 0] - 50, -(forecast.paths_rps[..., 1] - 50))


def test_paths_are_whole_error_paths() -> None:
    errors = np.random.default_rng(1).normal(size=(7, 5, 1))
    forecast = forecast_from_errors("m", np.full((5, 1), 50.0), errors, 40, np.random.default_rng(0))
    possible = 50 + errors - errors.mean(axis=0)
    assert all(np.isclose(path, possible).all(axis=(1, 2)).any() for path in forecast.paths_rps)


def test_paths_use_every_origin_alike() -> None:
    errors = np.arange(8.0).reshape(8, 1, 1)
    forecast = forecast_from_errors("m", np.full((1, 1), 50.0), errors, 64, np.random.default_rng(0))
    assert set(np.unique(forecast.paths_rps, return_counts=True)[1].tolist()) == {8}


def test_paths_do_not_come_in_the_order_of_their_origins() -> None:
    errors = np.arange(64.0).reshape(64, 1, 1)
    forecast = forecast_from_errors("m", np.full((1, 1), 50.0), errors, 64, np.random.default_rng(0))
    assert (np.diff(forecast.paths_rps[:, 0, 0]) < 0).any()


def test_without_cuts_the_mean_is_the_point_forecast_exactly() -> None:
    errors = np.random.default_rng(1).normal(2.0, 1.0, size=(50, 3, 2))
    point = np.array([[9.1, 8.2], [7.3, 9.4], [8.5, 7.6]])
    np.testing.assert_array_equal(forecast_from_errors("m", point, errors, 4, np.random.default_rng(0)).mean_rps, point)


POINTS = st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 20.0]), min_size=1, max_size=6)


@settings(derandomize=True, max_examples=examples(200))
@given(POINTS, st.integers(1, 40), st.integers(0, 999), st.sampled_from([0.0, 0.5, 5.0, 80.0]))
def test_cutting_at_zero_keeps_the_mean_over_the_horizon(
    levels: list[float], n_origins: int, seed: int, spread_rps: float
) -> None:
    generator = np.random.default_rng(seed)
    errors = spread_rps * (generator.exponential(size=(n_origins, len(levels), 2)) - 1)
    point = np.stack([levels, levels[::-1]], axis=1)
    forecast = forecast_from_errors("m", point, errors, 3, generator)
    np.testing.assert_allclose(forecast.mean_rps.mean(axis=0), point.mean(axis=0), atol=1e-6)


@settings(derandomize=True, max_examples=examples(200))
@given(POINTS, st.integers(1, 40), st.integers(0, 999))
def test_quantiles_ascend_and_nothing_is_negative(levels: list[float], n_origins: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    errors = generator.normal(0, 4, size=(n_origins, len(levels), 1))
    forecast = forecast_from_errors("m", np.array(levels)[:, np.newaxis], errors, 3, generator)
    assert (np.diff(forecast.quantiles_rps, axis=0) >= 0).all()
    assert min(forecast.quantiles_rps.min(), forecast.paths_rps.min(), forecast.mean_rps.min()) >= 0


@pytest.mark.parametrize(("n_steps", "n_paths"), [(0, 4), (4, 0)])
def test_forecasts_of_nothing_are_refused(n_steps: int, n_paths: int) -> None:
    with pytest.raises(ValueError, match="at least 1 step and 1 path"):
        forecast_from_errors("m", np.zeros((n_steps, 1)), np.zeros((3, n_steps, 1)), n_paths, np.random.default_rng(0))


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="finite and at least 0"):
        checked_history(np.array([[1.0], [rate]]), "m", 1)


def test_histories_without_tenants_axis_are_refused() -> None:
    with pytest.raises(ValueError, match=r"steps, tenants"):
        checked_history(np.ones(5), "m", 1)


def test_short_histories_are_refused() -> None:
    with pytest.raises(ValueError, match="2 steps is too short, 3 are needed"):
        checked_history(np.ones((2, 1)), "m", 3)
