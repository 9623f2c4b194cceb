"""How experts are asked and judged."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.expert import LEVELS, RecentWindow, group_of, outcomes_at, pinball, scored_leads
from forecaster.forecast import QUANTILE_LEVELS


def test_experts_give_every_level_of_a_forecast() -> None:
    assert set(QUANTILE_LEVELS) <= set(LEVELS)


def test_leads_are_grouped_by_ratios() -> None:
    assert group_of(np.array([0, 1, 2, 4, 5, 199, 200, 999])).tolist() == [0, 1, 2, 2, 3, 8, 8, 8]


@pytest.mark.parametrize("n_steps", [1, 2, 3, 11, 200, 700])
def test_scored_leads_are_few_of_every_group(n_steps: int) -> None:
    leads = scored_leads(n_steps)
    assert set(group_of(leads).tolist()) == set(group_of(np.arange(n_steps)).tolist())
    assert (np.diff(leads) > 0).all()
    assert leads[-1] < n_steps
    assert leads.size <= 6 * 9


def test_outcomes_beyond_the_history_are_unknown() -> None:
    came = outcomes_at(np.arange(4.0)[:, np.newaxis], np.array([1, 3]), np.array([0, 2]))
    np.testing.assert_array_equal(came[:, :, 0], [[1, 3], [3, np.nan]])


def test_the_true_quantile_has_the_lowest_pinball_loss() -> None:
    came = np.random.default_rng(1).normal(50, 5, size=(4000, 1, 1))
    true = np.quantile(came, LEVELS).reshape(1, -1, 1, 1)
    losses = [pinball(true + shift, came).mean() for shift in (-1.0, 0.0, 1.0)]
    assert min(losses) == losses[1]


def test_quantiles_are_those_of_the_last_steps_at_every_lead() -> None:
    history = np.random.default_rng(1).uniform(size=(500, 2))
    bands = RecentWindow(100).quantiles_at(history, np.array([300, 500]), np.arange(7))
    assert bands.shape == (2, len(LEVELS), 7, 2)
    expected = np.quantile(history[200:300], LEVELS, axis=0, method="hazen")
    np.testing.assert_allclose(bands[0], np.repeat(expected[:, np.newaxis], 7, axis=1))


def test_a_short_history_is_taken_whole() -> None:
    history = np.random.default_rng(1).uniform(size=(40, 1))
    both = [RecentWindow(length).quantiles_at(history, np.array([40]), np.arange(1)) for length in (40, 600)]
    np.testing.assert_array_equal(*both)


def test_lengths_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="length_steps 0: must be at least 1"):
        RecentWindow(0)
