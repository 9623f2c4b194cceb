"""The exponentially weighted level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forecaster.ewma import Ewma
from forecaster.forecast import FloatArray


def mean_of(half_life_steps: float, history: FloatArray, n_steps: int = 5) -> FloatArray:
    return Ewma(half_life_steps).forecast(history, n_steps, 4, np.random.default_rng(0)).mean_rps


def test_level_is_the_normalised_weighted_mean() -> None:
    history = 100 + np.random.default_rng(1).normal(size=(30, 2))
    weights = 0.5 ** (np.arange(30)[::-1] / 4)
    np.testing.assert_allclose(mean_of(4.0, history)[0], weights @ history / weights.sum())


def test_level_holds_for_the_whole_horizon() -> None:
    mean_rps = mean_of(4.0, 100 + np.random.default_rng(1).normal(size=(30, 2)), n_steps=50)
    np.testing.assert_array_equal(mean_rps, np.tile(mean_rps[0], (50, 1)))


def test_a_step_one_half_life_back_weighs_half() -> None:
    assert mean_of(1.0, np.array([[0.0], [3.0]]), n_steps=1)[0, 0] == pytest.approx(2.0)


def test_errors_grow_from_the_next_step_to_the_far_ones() -> None:
    # A random walk: what comes soon is near the level, what comes late is not.
    walk = 1000 + np.cumsum(np.random.default_rng(2).normal(size=(3000, 1)), axis=0)
    band = Ewma(2.0).forecast(walk, 100, 4, np.random.default_rng(0)).quantiles_rps
    assert band[-1, 99, 0] - band[0, 99, 0] > 3 * (band[-1, 0, 0] - band[0, 0, 0])


def test_errors_are_those_of_levels_that_did_not_know_the_outcome() -> None:
    # Of independent rates the next is as hard to tell as the fiftieth.
    noise = np.random.default_rng(3).normal(1000, 10, size=(3000, 1))
    band = Ewma(1.0).forecast(noise, 50, 4, np.random.default_rng(0)).quantiles_rps
    widths = band[-1, :, 0] - band[0, :, 0]
    assert widths[0] == pytest.approx(widths[-1], rel=0.15)


def test_levels_of_few_steps_do_not_widen_the_spread() -> None:
    # The first step's flood has all but left the level after three half-lives, where the first origin stands.
    history = np.full((40, 1), 2000.0)
    history[0] = 3000.0
    upper = Ewma(2.0).forecast(history, 5, 4, np.random.default_rng(0)).quantiles_rps[-1]
    assert upper.max() < 2020


@pytest.mark.parametrize(("half_life_steps", "n_needed"), [(0.5, 2), (1.5, 2), (7.2, 8)])
def test_a_half_life_of_history_is_needed(half_life_steps: float, n_needed: int) -> None:
    assert Ewma(half_life_steps).min_history_steps == n_needed


@pytest.mark.parametrize("half_life_steps", [0.0, -1.0, math.inf, math.nan])
def test_impossible_half_lives_are_refused(half_life_steps: float) -> None:
    with pytest.raises(ValueError, match="half_life_steps"):
        Ewma(half_life_steps)
