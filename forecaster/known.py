"""Arrivals as they will be: no prediction but hindsight, to see what plans are worth apart from forecasts."""

from __future__ import annotations

from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast
from forecaster.spread import checked_history

HINDSIGHT = "known (hindsight)"
"""What such a forecast is called in logs and reports, so that nobody takes its figures for a forecaster's."""


def known(rates_rps: FloatArray) -> Forecast:
    """The forecast that says these rates and nothing else: its mean, every quantile, and its one path.

    Shapes: rates ``(H, n)`` → mean ``(H, n)``, paths ``(1, H, n)``.

    Raises:
        ValueError: The rates are not two-dimensional, or negative, or not finite.
    """
    rates = checked_history(rates_rps, HINDSIGHT, 0).copy()
    return Forecast(
        method=HINDSIGHT,
        mean_rps=rates,
        quantile_levels=QUANTILE_LEVELS,
        quantiles_rps=rates[None].repeat(len(QUANTILE_LEVELS), axis=0),
        paths_rps=rates[None],
    )
