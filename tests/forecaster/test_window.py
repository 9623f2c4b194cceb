"""Quantiles of the last so many steps."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.expert import LEVELS
from forecaster.window import Window


def test_quantiles_are_those_of_the_last_steps_at_every_lead() -> None:
    history = np.random.default_rng(1).uniform(size=(500, 2))
    bands = Window(100).quantiles_at(history, np.array([300, 500]), np.arange(7))
    assert bands.shape == (2, len(LEVELS), 7, 2)
    expected = np.quantile(history[200:300], LEVELS, axis=0, method="hazen")
    np.testing.assert_allclose(bands[0], np.repeat(expected[:, np.newaxis], 7, axis=1))


def test_a_short_history_is_taken_whole() -> None:
    history = np.random.default_rng(1).uniform(size=(40, 1))
    both = [Window(length).quantiles_at(history, np.array([40]), np.arange(1)) for length in (40, 600)]
    np.testing.assert_array_equal(*both)


def test_lengths_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="length_steps 0: must be at least 1"):
        Window(0)
