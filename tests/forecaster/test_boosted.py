"""LightGBM's quantiles; where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from forecaster.auto import Auto
from forecaster.boosted import Boosted
from forecaster.expert import LEVELS
from forecaster.forecast import FloatArray

needs_lightgbm = pytest.mark.skipif(find_spec("lightgbm") is None, reason="needs the extra `forecast`")
LEADS = np.array([0, 3, 30, 150])


def swinging(n_steps: int, n_tenants: int = 2) -> FloatArray:
    """Rates that rise and fall within two minutes, of tenants of different size."""
    phase = np.arange(n_steps)[:, np.newaxis] / 20 + np.arange(n_tenants)
    return (np.arange(n_tenants) + 1) * (50 + 30 * np.sin(phase)) + np.random.default_rng(1).normal(size=phase.shape)


@needs_lightgbm
def test_quantiles_ascend_and_follow_the_history() -> None:
    history = swinging(900)
    bands = Boosted().quantiles_at(history[:800], np.array([800]), LEADS)
    assert bands.shape == (1, len(LEVELS), len(LEADS), 2)
    assert (np.diff(bands, axis=1) >= 0).all()
    np.testing.assert_allclose(bands[0, LEVELS.index(0.5), :2], history[[800, 803]], rtol=0.25)


@needs_lightgbm
def test_the_same_history_gives_the_same_fit() -> None:
    told = [Boosted().quantiles_at(swinging(300), np.array([200, 300]), LEADS) for _ in range(2)]
    np.testing.assert_array_equal(*told)


@needs_lightgbm
def test_nothing_behind_an_origin_changes_what_is_said_there() -> None:
    history = swinging(400)
    poisoned = history.copy()
    poisoned[300:] = 1e6
    origins = np.array([100, 200, 300, 350])
    told = [Boosted().quantiles_at(own, origins, LEADS)[:2] for own in (history, poisoned)]
    np.testing.assert_array_equal(*told)


@needs_lightgbm
@pytest.mark.parametrize("history", [np.zeros((50, 1)), np.ones((2, 2)), swinging(20)], ids=["silent", "short", "few"])
def test_histories_that_teach_nothing_are_survived(history: FloatArray) -> None:
    forecast = Auto((Boosted(),), "lightgbm").forecast(history, 30, 4, np.random.default_rng(0))
    assert forecast.method == "lightgbm: lightgbm"
    assert np.isfinite(forecast.mean_rps).all()


@needs_lightgbm
def test_a_history_of_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="a history of 1 steps is too short, 2 are needed"):
        Boosted().quantiles_at(np.ones((1, 1)), np.array([1]), LEADS)
