"""The last season, again."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import FloatArray, Forecast
from forecaster.naive import SeasonalNaive


def forecast_of(season_steps: int, history: FloatArray, n_steps: int) -> Forecast:
    return SeasonalNaive(season_steps).forecast(history, n_steps, 16, np.random.default_rng(0))


def band_width(forecast: Forecast, step: int) -> float:
    return float(forecast.quantiles_rps[-1, step, 0] - forecast.quantiles_rps[0, step, 0])


def test_last_season_repeats() -> None:
    forecast = forecast_of(3, 50 + np.arange(9.0)[:, np.newaxis] % 4, n_steps=7)
    assert forecast.mean_rps[:, 0].tolist() == [52, 53, 50, 52, 53, 50, 52]


@pytest.mark.parametrize("n_history", [40, 45, 90, 300])
def test_a_season_that_repeats_exactly_has_no_spread(n_history: int) -> None:
    history = np.tile(np.random.default_rng(1).uniform(1, 9, size=(20, 2)), (20, 1))[:n_history]
    forecast = forecast_of(20, history, n_steps=30)
    np.testing.assert_array_equal(forecast.paths_rps, np.broadcast_to(forecast.mean_rps, forecast.paths_rps.shape))


def test_spread_is_that_of_the_differences_between_seasons() -> None:
    # Every season is 2 above the one before it, or 2 below: differences are ± 2, the band as wide.
    seasons = np.where(np.random.default_rng(2).random(400) < 0.5, 2.0, -2.0).cumsum() + 1000
    forecast = forecast_of(5, np.repeat(seasons, 5)[:, np.newaxis], n_steps=5)
    assert band_width(forecast, 0) == pytest.approx(4.0)


def test_horizons_of_more_seasons_have_their_own_errors() -> None:
    walk = 1000 + np.cumsum(np.random.default_rng(3).normal(size=(3000, 1)), axis=0)
    forecast = forecast_of(10, walk, n_steps=90)
    assert band_width(forecast, 85) > 2 * band_width(forecast, 5)


@pytest.mark.parametrize("n_history", [20, 25, 39])
def test_less_than_two_seasons_still_give_a_spread(n_history: int) -> None:
    history = np.random.default_rng(4).uniform(50, 90, size=(n_history, 1))
    forecast = forecast_of(20, history, n_steps=30)
    assert min(band_width(forecast, step) for step in range(30)) > 5


@pytest.mark.parametrize("n_history", [6, 7, 11, 12, 13, 23, 24, 50])
@pytest.mark.parametrize("n_steps", [1, 5, 6, 7, 40])
def test_any_horizon_follows_any_history(n_history: int, n_steps: int) -> None:
    history = np.random.default_rng(5).uniform(50, 90, size=(n_history, 1))
    assert np.isfinite(forecast_of(6, history, n_steps).paths_rps).all()


@pytest.mark.parametrize(("season_steps", "n_needed"), [(1, 2), (2, 2), (200, 200)])
def test_a_season_of_history_is_needed(season_steps: int, n_needed: int) -> None:
    assert SeasonalNaive(season_steps).min_history_steps == n_needed


@pytest.mark.parametrize("season_steps", [0, -3, 2.5, 60.0])
def test_impossible_seasons_are_refused(season_steps: int) -> None:
    with pytest.raises(ValueError, match="season_steps"):
        SeasonalNaive(season_steps)
