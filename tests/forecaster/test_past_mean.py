"""What takes a failed forecaster's place: it takes any history."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import FloatArray, Forecast
from forecaster.past_mean import WINDOW_MEAN, window_mean


def of(history: FloatArray, n_steps: int = 5, n_paths: int = 40) -> Forecast:
    return window_mean(history, n_steps, n_paths, np.random.default_rng(1))


def test_it_says_the_mean_at_every_step() -> None:
    forecast = of(np.array([[8.0, 3.0], [12.0, 5.0]] * 10))
    assert forecast.mean_rps == pytest.approx(np.array([[10.0, 4.0]] * 5))
    assert forecast.method == WINDOW_MEAN


def test_its_paths_spread_as_the_history_does() -> None:
    history = np.random.default_rng(2).poisson(50, (300, 1)).astype(float)
    assert of(history, n_paths=400).paths_rps.std() == pytest.approx(history.std(), rel=0.05)


def test_what_was_not_seen_does_not_count() -> None:
    history = np.array([[8.0], [np.nan], [-1.0], [np.inf], [12.0]])
    assert of(history).mean_rps == pytest.approx(np.full((5, 1), 10.0))


@pytest.mark.parametrize("history", [np.zeros((0, 2)), np.full((4, 2), np.nan)])
def test_of_whom_nothing_was_seen_nothing_is_expected(history: FloatArray) -> None:
    forecast = of(history)
    assert forecast.mean_rps.shape == (5, 2)
    assert not forecast.paths_rps.any()


def test_what_is_no_history_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \(steps, tenants\), got shape \(3,\)"):
        of(np.ones(3))
