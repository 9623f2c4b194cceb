"""The correction by the near past."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.expert import LEVELS
from forecaster.forecast import FloatArray
from forecaster.short_term import MAX_REFITS, ShortTerm, refits

MEDIAN = LEVELS.index(0.5)


def persistent(n_steps: int, last_rps: float, seed: int = 1) -> FloatArray:
    """Rates around 100 with an autocorrelation of 0.9 a step, ten last steps at another level."""
    generator = np.random.default_rng(seed)
    level, rows = 0.0, []
    for _ in range(n_steps):
        level = 0.9 * level + generator.normal()
        rows.append(100 + 5 * level)
    rows[-10:] = [last_rps] * 10
    return np.array(rows)[:, np.newaxis]


def test_the_last_seconds_correct_the_next_ones_and_hardly_the_far_ones() -> None:
    history = persistent(1500, 130.0)
    bands = ShortTerm().quantiles_at(history, np.array([1500]), np.array([0, 150]))
    near, far = bands[0, MEDIAN, :, 0]
    assert 120 < near < 132
    assert abs(far - 100) < 7


def test_the_next_second_is_surer_than_a_far_one() -> None:
    bands = ShortTerm().quantiles_at(persistent(1500, 100.0), np.array([1500]), np.array([0, 150]))
    near, far = (bands[0, -1] - bands[0, 0])[:, 0]
    assert near < 0.7 * far


def test_noise_is_not_corrected() -> None:
    history = np.random.default_rng(2).normal(100, 10, size=(1500, 1))
    history[-1:] = 130.0
    bands = ShortTerm().quantiles_at(history, np.array([1500]), np.array([0]))
    assert abs(bands[0, MEDIAN, 0, 0] - 100) < 4


@pytest.mark.parametrize("now_rps", [17.0, 30.0, 0.0])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-4])
def test_after_a_past_that_hardly_changed_no_rate_is_foreseen_that_never_was(now_rps: float, noise: float) -> None:
    for n_since in (1, 5, 20):
        history = 21 + noise * np.random.default_rng(3).normal(size=(600, 1))
        history[-n_since:] = now_rps
        found = ShortTerm().quantiles_at(history, np.array([600]), np.arange(200))[0, :, :, 0]
        assert min(now_rps, 21) - 0.01 <= found[MEDIAN].min()
        assert found[MEDIAN].max() <= max(now_rps, 21) + 0.03
        assert found.max() < 45


def test_a_few_refits_serve_all_origins_and_the_last_knows_all() -> None:
    origins = np.arange(100, 132)
    found = refits(origins)
    assert (found <= origins).all()
    assert len(set(found.tolist())) <= MAX_REFITS + 1
    assert found[-1] == origins[-1]
