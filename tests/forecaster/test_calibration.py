"""Quantiles set right by what came after past origins."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.calibration import LATE_STEPS, LATE_WIDENING, PRIOR_RATIO, calibrated, total_widening, widened
from forecaster.expert import LEVELS
from forecaster.forecast import QUANTILE_LEVELS, FloatArray

LEADS = np.array([0, 30, 150])


def moved(width: float, n_origins: int, shift_rps: float = 0.0, bands_width: float = 10.0) -> FloatArray:
    """Bands of a normal spread ``bands_width`` around 100, taught by outcomes of the spread ``width``."""
    origins = np.arange(n_origins) * 200
    normal = np.random.default_rng(0).normal(size=200_000)
    bands = np.broadcast_to(
        (100 + bands_width * np.quantile(normal, LEVELS))[np.newaxis, :, np.newaxis, np.newaxis],
        (n_origins + 1, len(LEVELS), 3, 1),
    )
    came = 100 + shift_rps + width * np.random.default_rng(1).normal(size=(n_origins, 3, 1))
    return calibrated(bands[:-1], came, origins, LEADS, bands[-1])


def test_right_quantiles_hardly_move() -> None:
    np.testing.assert_allclose(moved(10.0, 200)[3:-3], moved(10.0, 0)[3:-3], atol=6)


@pytest.mark.parametrize(("width", "sign"), [(20.0, 1), (5.0, -1)])
def test_bands_grow_where_too_little_lay_inside_and_shrink_where_too_much(width: float, sign: int) -> None:
    before, after = moved(width, 0), moved(width, 200)
    grown = (after[-3] - after[3]) - (before[-3] - before[3])
    assert (np.sign(grown) == sign).all()


def test_a_shift_is_followed() -> None:
    assert (moved(10.0, 300, shift_rps=20.0)[LEVELS.index(0.5)] > 112).all()


def test_quantiles_stay_in_order_and_not_below_zero() -> None:
    after = moved(200.0, 300)
    assert (np.diff(after, axis=0) >= 0).all()
    assert after.min() >= 0


def test_leads_of_which_nothing_is_known_stay() -> None:
    bands = np.broadcast_to(np.arange(1.0, 16.0)[np.newaxis, :, np.newaxis, np.newaxis], (2, 15, 3, 1))
    came = np.array([[[99.0], [np.nan], [np.nan]]])
    after = calibrated(bands[:1], came, np.array([5]), LEADS, bands[1])
    np.testing.assert_array_equal(after[:, 1:], bands[1][:, 1:])


TOTALS = np.random.default_rng(1).normal(size=(400, 1))


def test_few_horizons_are_trusted_less_than_what_is_known_of_others() -> None:
    assert total_widening(TOTALS, TOTALS, 0)[0] == pytest.approx(PRIOR_RATIO**0.5)
    assert total_widening(TOTALS, TOTALS, 1e6)[0] == pytest.approx(1.0, abs=0.01)


def test_totals_that_erred_more_are_widened_more() -> None:
    widenings = [total_widening(TOTALS, factor * TOTALS, 3)[0] for factor in (0.5, 1.0, 2.0, 20.0)]
    assert widenings == sorted(widenings)
    assert widenings[-1] == 3.0


def test_an_error_that_all_origins_share_counts() -> None:
    assert total_widening(TOTALS, TOTALS + 2.0, 3)[0] > total_widening(TOTALS, TOTALS, 3)[0] + 0.2


def test_totals_without_spread_are_finite() -> None:
    assert np.isfinite(total_widening(np.zeros((50, 2)), np.zeros((50, 2)), 1)).all()


BANDS = np.repeat(np.linspace(8.0, 12.0, len(QUANTILE_LEVELS))[:, np.newaxis, np.newaxis], 300, axis=1)
STRETCHED = np.repeat(np.linspace(6.0, 14.0, len(QUANTILE_LEVELS))[:, np.newaxis, np.newaxis], 300, axis=1)


def test_the_first_step_is_the_bands_own_and_late_ones_are_the_paths_a_little_wider() -> None:
    reported = widened(BANDS, STRETCHED)
    np.testing.assert_array_equal(reported[:, 0], BANDS[:, 0])
    np.testing.assert_allclose(reported[:, 250] - 10.0, LATE_WIDENING * (STRETCHED[:, 250] - 10.0))
    np.testing.assert_array_equal(reported[:, 250], reported[:, LATE_STEPS])


def test_reported_quantiles_widen_with_the_lead_around_the_median_and_not_below_zero() -> None:
    reported = widened(BANDS, STRETCHED)
    assert (np.diff(reported[-1] - reported[0], axis=0) >= 0).all()
    np.testing.assert_array_equal(reported[QUANTILE_LEVELS.index(0.5)], BANDS[QUANTILE_LEVELS.index(0.5)])
    assert widened(BANDS - 8.0, STRETCHED - 6.0).min() == 0.0
