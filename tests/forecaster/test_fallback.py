"""A forecaster that always forecasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from forecaster.ewma import Ewma
from forecaster.fallback import WithFallback
from forecaster.forecast import FloatArray, Forecast
from forecaster.registry import make_forecaster

HISTORY = np.random.default_rng(1).gamma(2, 8, (300, 2))


@dataclass(frozen=True)
class Broken:
    name: str = "broken"
    min_history_steps: int = 10

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:  # noqa: ARG002
        raise RuntimeError("no weights")


def forecast_of(forecaster: WithFallback, history: FloatArray) -> Forecast:
    return forecaster.forecast(history, 30, 8, np.random.default_rng(0))


def test_a_forecaster_that_can_is_left_alone() -> None:
    forecast = forecast_of(WithFallback(Ewma(20)), HISTORY)
    plain = Ewma(20).forecast(HISTORY, 30, 8, np.random.default_rng(0))
    assert forecast.method == "ewma"
    np.testing.assert_array_equal(forecast.paths_rps, plain.paths_rps)


@pytest.mark.parametrize(
    ("forecaster", "history", "reason"),
    [
        (WithFallback(Broken()), HISTORY, "in place of broken (RuntimeError: no weights)"),
        (WithFallback(Ewma(20)), HISTORY[:5], "in place of ewma (a history of 5 steps)"),
    ],
)
def test_the_window_takes_over_and_it_is_said(forecaster: WithFallback, history: FloatArray, reason: str) -> None:
    forecast = forecast_of(forecaster, history)
    window = make_forecaster("window").forecast(history, 30, 8, np.random.default_rng(0))
    assert forecast.method == f"{window.method}; {reason}"
    np.testing.assert_array_equal(forecast.mean_rps, window.mean_rps)


def test_without_history_the_window_s_prior_is_forecast() -> None:
    said = forecast_of(WithFallback(Ewma(20)), np.empty((0, 2))).method
    assert said.endswith("; no history: prior of 1 requests a second; in place of ewma (a history of 0 steps)")


def test_gaps_are_filled_for_a_forecaster_that_knows_none() -> None:
    history = HISTORY.copy()
    history[50:60] = np.nan
    assert forecast_of(WithFallback(Ewma(20)), history).method == "ewma; 10 of 300 past steps missing"


def test_a_wrong_call_is_no_reason_to_take_over() -> None:
    with pytest.raises(ValueError, match="at least 1 step and 1 path"):
        WithFallback(Ewma(20)).forecast(HISTORY, 0, 8, np.random.default_rng(0))


def test_name_and_need_are_the_forecaster_s() -> None:
    assert (WithFallback(Ewma(20)).name, WithFallback(Ewma(20)).min_history_steps) == ("ewma", 20)
