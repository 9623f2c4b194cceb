"""What is said of seconds holds for their parts."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import FloatArray, Forecast, Forecaster
from forecaster.registry import make_forecaster
from forecaster.seconds import BySeconds, steps_per_second

SECONDS = np.random.default_rng(1).poisson(40.0, (50, 2)).astype(np.float64)
OF_SECONDS = make_forecaster("ewma", half_life_steps=8)


def said(forecaster: Forecaster, history: FloatArray, n_steps: int) -> Forecast:
    return forecaster.forecast(history, n_steps, 3, np.random.default_rng(2))


@pytest.mark.parametrize("each", [1, 2, 10])
@pytest.mark.parametrize("n_beyond", [0, 1])
def test_each_step_has_what_is_said_of_its_second(each: int, n_beyond: int) -> None:
    of_steps, n_steps = BySeconds(OF_SECONDS, each), 7 * each + n_beyond
    # Of the oldest second a part is known: it is no whole one.
    history = SECONDS.repeat(each, axis=0)[each - 1 :]
    seconds = said(OF_SECONDS, SECONDS[1 if each > 1 else 0 :], 7 + n_beyond)
    found = said(of_steps, history, n_steps)
    second = np.arange(n_steps) // each
    assert (found.method, of_steps.name) == (seconds.method, OF_SECONDS.name)
    assert of_steps.min_history_steps == OF_SECONDS.min_history_steps * each
    assert np.array_equal(found.mean_rps, seconds.mean_rps[second])
    assert np.array_equal(found.quantiles_rps, seconds.quantiles_rps[:, second])
    assert np.array_equal(found.paths_rps, seconds.paths_rps[:, second])


def test_a_second_that_is_not_known_stays_so() -> None:
    of_steps, history = make_forecaster("window"), SECONDS.copy()
    history[20] = np.nan
    found = said(BySeconds(of_steps, 4), history.repeat(4, axis=0), 8)
    assert np.array_equal(found.mean_rps[::4], said(of_steps, history, 2).mean_rps)


def test_without_a_past_there_is_a_forecast() -> None:
    assert said(BySeconds(make_forecaster("auto"), 10), np.empty((0, 2)), 15).mean_rps.shape == (15, 2)


@pytest.mark.parametrize(
    ("step_s", "each"),
    [(0.001, 1000), (0.1, 10), (0.2, 5), (0.25, 4), (1 / 3, 3), (0.5, 2), (0.3, 1), (0.4, 1), (0.7, 1), (1, 1), (5, 1)],
)
def test_a_second_is_made_up_of_whole_steps_or_is_one(step_s: float, each: int) -> None:
    assert steps_per_second(step_s) == each
