"""Forecasters by name."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.ewma import Ewma
from forecaster.forecast import Forecaster
from forecaster.naive import SeasonalNaive
from forecaster.registry import HINDSIGHT, forecaster_names, known, make_forecaster


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [("ewma", {"half_life_steps": 20.0}, Ewma(20.0)), ("seasonal-naive", {"season_steps": 60}, SeasonalNaive(60))],
)
def test_names_make_their_forecasters(name: str, settings: dict[str, float], expected: Forecaster) -> None:
    assert make_forecaster(name, **settings) == expected


@pytest.mark.parametrize("forecaster", [Ewma(20.0), SeasonalNaive(60)])
def test_forecasters_know_the_name_they_are_made_by(forecaster: Forecaster) -> None:
    assert forecaster.name in forecaster_names()


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'arima' is unknown; known are auto, ewma, lightgbm, seasonal-naive"):
        make_forecaster("arima")


@pytest.mark.parametrize("settings", [{}, {"season_steps": 5}, {"half_life_steps": 5, "more": 1}])
def test_settings_of_another_forecaster_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="'ewma' takes half_life_steps, got"):
        make_forecaster("ewma", **settings)


@pytest.mark.parametrize("name", ["auto", "window", "short-term", "lightgbm"])
def test_forecasters_made_of_experts_take_no_settings(name: str) -> None:
    assert make_forecaster(name).name == name
    with pytest.raises(ValueError, match=f"'{name}' takes nothing, got half_life_steps"):
        make_forecaster(name, half_life_steps=5)


def test_impossible_settings_are_refused_with_the_forecaster_s_own_words() -> None:
    with pytest.raises(ValueError, match="season_steps 0: must be a whole number, at least 1"):
        make_forecaster("seasonal-naive", season_steps=0)


# --- hindsight

RATES = np.array([[1.0, 20.0], [0.0, 30.0], [5.0, 10.0]])


def test_mean_quantiles_and_the_one_path_are_the_rates() -> None:
    forecast = known(RATES)
    assert (forecast.mean_rps == RATES).all()
    assert forecast.paths_rps.tolist() == [RATES.tolist()]
    assert (forecast.quantiles_rps == RATES).all()


def test_hindsight_bears_no_forecaster_s_name() -> None:
    assert known(RATES).method == HINDSIGHT
    assert HINDSIGHT not in forecaster_names()


def test_the_rates_given_stay_writeable() -> None:
    rates = RATES.copy()
    known(rates)
    assert rates.flags.writeable


def test_negative_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="finite and at least 0"):
        known(-RATES)
