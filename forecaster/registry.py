"""Forecasters by the names used in configs, and hindsight in the place of a forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType

from forecaster.ewma import Ewma
from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast, Forecaster
from forecaster.naive import SeasonalNaive
from forecaster.spread import checked_history

_FORECASTERS: Mapping[str, type[Ewma | SeasonalNaive]] = MappingProxyType(
    {"ewma": Ewma, "seasonal-naive": SeasonalNaive}
)

HINDSIGHT = "known (hindsight)"
"""What hindsight is called in logs and reports, so that its figures are not taken for a forecaster's."""


def forecaster_names() -> tuple[str, ...]:
    """All known names, in order."""
    return tuple(sorted(_FORECASTERS))


def make_forecaster(name: str, **settings: float) -> Forecaster:
    """The forecaster of that name with those settings, as ``make_forecaster("ewma", half_life_steps=20)``.

    Raises:
        ValueError: The name is unknown, or the settings are not the ones that it takes.
    """
    if name not in _FORECASTERS:
        raise ValueError(f"forecaster {name!r} is unknown; known are {', '.join(forecaster_names())}")
    kind: Callable[..., Forecaster] = _FORECASTERS[name]
    allowed = {field.name for field in fields(_FORECASTERS[name])}
    if set(settings) != allowed:
        raise ValueError(
            f"forecaster {name!r} takes {', '.join(sorted(allowed))}, got {', '.join(sorted(settings)) or 'nothing'}"
        )
    return kind(**settings)


def known(rates_rps: FloatArray) -> Forecast:
    """The forecast that says these rates and nothing else: its mean, every quantile, and its one path.

    It shows what plans are worth apart from forecasts: the rates given are the arrivals as they will be.

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
