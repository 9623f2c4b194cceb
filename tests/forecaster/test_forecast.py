"""The Forecast value."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import Forecast, is_within


def forecast_shaped(mean: tuple[int, ...], quantiles: tuple[int, ...], paths: tuple[int, ...]) -> Forecast:
    return Forecast("m", np.zeros(mean), np.zeros(quantiles), np.zeros(paths))


def test_arrays_are_read_only() -> None:
    forecast = forecast_shaped((4, 3), (7, 4, 3), (9, 4, 3))
    arrays = (forecast.mean_rps, forecast.quantiles_rps, forecast.paths_rps)
    assert not any(array.flags.writeable for array in arrays)


@pytest.mark.parametrize(
    ("mean", "quantiles", "paths"),
    [
        ((4,), (7, 4), (9, 4)),
        ((4, 3), (2, 4, 3), (9, 4, 3)),
        ((4, 3), (7, 4, 3), (9, 3, 4)),
        ((4, 3), (7, 4, 3), (4, 3)),
    ],
)
def test_shapes_that_differ_are_refused(
    mean: tuple[int, ...], quantiles: tuple[int, ...], paths: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        forecast_shaped(mean, quantiles, paths)


def test_a_band_that_misses_constant_traffic_by_rounding_holds_it() -> None:
    # The last value misses by a thousandth, which no rounding does.
    low = np.array([77 * (1 + 4e-16), 77.0, 0.0, 77.001])
    high = np.array([77 * (1 + 4e-16), 77 * (1 - 4e-16), 0.0, 78.0])
    came = np.array([77.0, 77.0, 1e-15, 77.0])
    assert is_within(came, low, high).tolist() == [True, True, True, False]
