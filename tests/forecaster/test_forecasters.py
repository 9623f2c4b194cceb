"""What every forecaster must do: one suite for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forecaster.auto import WINDOWS, Auto
from forecaster.ewma import Ewma
from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast, Forecaster
from forecaster.naive import SeasonalNaive
from forecaster.short_term import ShortTerm
from tests.seeds import daily

AZURE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "azure_llm_2023"

FORECASTERS = [Ewma(1.5), Ewma(20), Ewma(60), SeasonalNaive(1), SeasonalNaive(7), SeasonalNaive(60), SeasonalNaive(200)]
CALIBRATED = [Auto(), Auto((*WINDOWS,), "window"), Auto((ShortTerm(),), "short-term")]
every_naive_one = pytest.mark.parametrize("forecaster", FORECASTERS, ids=str)
every_forecaster = pytest.mark.parametrize(
    "forecaster", [*FORECASTERS, *CALIBRATED], ids=lambda own: own.name if isinstance(own, Auto) else str(own)
)


def correlated_rates(n_steps: int, seed: int, mean_rps: float = 100.0, n_tenants: int = 2) -> FloatArray:
    """Stationary rates with an autocorrelation of 0.76 a step, as in real traces."""
    generator = np.random.default_rng(seed)
    level = np.zeros(n_tenants)
    rows = []
    for _ in range(n_steps + 100):
        level = 0.76 * level + generator.normal(size=n_tenants)
        rows.append(mean_rps + 10 * level)
    return np.maximum(np.array(rows[100:]).reshape(-1, n_tenants), 0)


def forecast_of(
    forecaster: Forecaster, history: FloatArray, n_steps: int = 50, n_paths: int = 64, seed: int = 0
) -> Forecast:
    return forecaster.forecast(history, n_steps, n_paths, np.random.default_rng(seed))


def coverage(forecaster: Forecaster, rates: FloatArray, n_history: int, n_steps: int) -> FloatArray:
    """Fraction of what came within the 5–95 % band, by tenant, over forecasts from many origins."""
    inside = []
    for origin in range(n_history, len(rates) - n_steps + 1, n_steps):
        band = forecast_of(forecaster, rates[origin - n_history : origin], n_steps).quantiles_rps
        came = rates[origin : origin + n_steps]
        inside.append((band[0] <= came) & (came <= band[-1]))
    covered: FloatArray = np.concatenate(inside).mean(axis=0)
    return covered


@every_forecaster
@pytest.mark.parametrize("n_extra", [0, 1, 30, 400])
def test_shapes_fit_the_horizon(forecaster: Forecaster, n_extra: int) -> None:
    history = correlated_rates(forecaster.min_history_steps + n_extra, seed=1, n_tenants=3)
    forecast = forecast_of(forecaster, history, n_steps=40, n_paths=9)
    assert forecast.mean_rps.shape == (40, 3)
    assert forecast.paths_rps.shape == (9, 40, 3)
    assert forecast.quantiles_rps.shape == (len(QUANTILE_LEVELS), 40, 3)


@every_forecaster
def test_bursts_never_make_rates_negative(forecaster: Forecaster) -> None:
    bursty = np.random.default_rng(2).exponential(3.0, size=(500, 2)) ** 2 // 9
    forecast = forecast_of(forecaster, bursty)
    assert min(forecast.mean_rps.min(), forecast.quantiles_rps.min(), forecast.paths_rps.min()) >= 0


@every_forecaster
def test_quantiles_ascend(forecaster: Forecaster) -> None:
    forecast = forecast_of(forecaster, correlated_rates(500, seed=3))
    assert (np.diff(forecast.quantiles_rps, axis=0) > 0).all()


@every_forecaster
@pytest.mark.parametrize("n_history", [200, 333, 1000])
def test_a_constant_goes_on_without_spread(forecaster: Forecaster, n_history: int) -> None:
    history = np.tile([0.1, 70.3], (n_history, 1))
    forecast = forecast_of(forecaster, history)
    for values in (forecast.mean_rps, forecast.quantiles_rps, forecast.paths_rps):
        np.testing.assert_allclose(values, np.broadcast_to([0.1, 70.3], values.shape), rtol=1e-10)


@every_forecaster
def test_silence_goes_on(forecaster: Forecaster) -> None:
    forecast = forecast_of(forecaster, np.zeros((300, 1)))
    assert not forecast.mean_rps.any()
    assert not forecast.paths_rps.any()


@every_naive_one
def test_short_histories_are_refused(forecaster: Forecaster) -> None:
    with pytest.raises(ValueError, match=f"{forecaster.name}: a history of"):
        forecast_of(forecaster, np.ones((forecaster.min_history_steps - 1, 1)))


@every_forecaster
def test_the_same_generator_gives_the_same_paths(forecaster: Forecaster) -> None:
    history = correlated_rates(500, seed=4)
    first, second = forecast_of(forecaster, history, seed=5), forecast_of(forecaster, history, seed=5)
    np.testing.assert_array_equal(first.paths_rps, second.paths_rps)


@every_forecaster
def test_chance_changes_the_paths_but_neither_mean_nor_quantiles(forecaster: Forecaster) -> None:
    history = correlated_rates(500, seed=4)
    first, second = forecast_of(forecaster, history, seed=5), forecast_of(forecaster, history, seed=6)
    assert (first.paths_rps != second.paths_rps).any()
    np.testing.assert_array_equal(first.mean_rps, second.mean_rps)
    np.testing.assert_array_equal(first.quantiles_rps, second.quantiles_rps)


@every_forecaster
@pytest.mark.parametrize("mean_rps", [100.0, 5.0])
def test_paths_average_to_the_mean(forecaster: Forecaster, mean_rps: float) -> None:
    forecast = forecast_of(forecaster, correlated_rates(500, seed=7, mean_rps=mean_rps), n_paths=256)
    spread_rps = forecast.paths_rps.std(axis=0)
    assert (np.abs(forecast.paths_rps.mean(axis=0) - forecast.mean_rps) < 4 * spread_rps / 16).all()


@every_forecaster
def test_paths_fill_the_quantiles(forecaster: Forecaster) -> None:
    forecast = forecast_of(forecaster, correlated_rates(800, seed=8), n_paths=256)
    below = (forecast.paths_rps[np.newaxis] <= forecast.quantiles_rps[:, np.newaxis]).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(below, QUANTILE_LEVELS, atol=0.02)


@every_forecaster
@pytest.mark.parametrize("n_history", daily([300, 700], [300]))
def test_the_band_covers_about_nine_tenths(forecaster: Forecaster, n_history: int) -> None:
    covered = coverage(forecaster, correlated_rates(3000, seed=9, n_tenants=3), n_history, n_steps=100)
    np.testing.assert_allclose(covered, 0.9, atol=0.05)


@pytest.mark.parametrize("forecaster", [Ewma(20), SeasonalNaive(60)], ids=str)
def test_paths_hang_together_in_time_as_real_rates_do(forecaster: Forecaster) -> None:
    forecast = forecast_of(forecaster, correlated_rates(2000, seed=10), n_steps=200)
    errors = forecast.paths_rps - forecast.mean_rps
    assert np.corrcoef(errors[:, :-1].ravel(), errors[:, 1:].ravel())[0, 1] == pytest.approx(0.76, abs=0.06)


@pytest.mark.parametrize("forecaster", [Ewma(20), SeasonalNaive(60)], ids=str)
def test_paths_keep_how_tenants_hang_together(forecaster: Forecaster) -> None:
    rates = correlated_rates(1000, seed=11, mean_rps=500)
    rates[:, 1] = 1000 - rates[:, 0]
    forecast = forecast_of(forecaster, rates)
    errors = forecast.paths_rps - forecast.mean_rps
    np.testing.assert_allclose(errors[..., 0], -errors[..., 1], atol=1e-9)


@every_forecaster
def test_forecasts_are_read_only(forecaster: Forecaster) -> None:
    forecast = forecast_of(forecaster, correlated_rates(300, seed=12))
    assert not any(array.flags.writeable for array in (forecast.mean_rps, forecast.quantiles_rps, forecast.paths_rps))


@every_forecaster
def test_the_history_is_left_as_it_was(forecaster: Forecaster) -> None:
    history = correlated_rates(300, seed=13)
    before = history.copy()
    forecast_of(forecaster, history)
    assert history.flags.writeable
    np.testing.assert_array_equal(history, before)


@pytest.mark.skipif(not AZURE.exists(), reason="needs the Azure LLM 2023 trace beside the repository")
@pytest.mark.parametrize("trace", ["code", "conv"])
@pytest.mark.parametrize("forecaster", [Ewma(60), SeasonalNaive(200)], ids=str)
def test_the_band_is_sane_on_a_real_trace(forecaster: Forecaster, trace: str) -> None:
    arrivals_s = np.load(AZURE / f"{trace}_arrivals.npz")["arrival_ms"] / 1e3
    rates = np.bincount((arrivals_s - arrivals_s.min()).astype(int))[:, np.newaxis].astype(float)
    covered = coverage(forecaster, rates, n_history=600, n_steps=200)
    assert 0.7 < covered[0] < 0.98, f"{trace}: {covered[0]:.3f} of what came lay in the 5–95 % band"
