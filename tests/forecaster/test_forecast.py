"""The Forecast value."""

from __future__ import annotations

import numpy as np
import pytest

from forecaster.forecast import Forecast


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
