"""Forecasters by the names used in configs, and hindsight in the place of a forecast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType

from forecaster.auto import WINDOWS, Auto
from forecaster.boosted import Boosted
from forecaster.ewma import Ewma
from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast, Forecaster
from forecaster.naive import SeasonalNaive
from forecaster.short_term import ShortTerm
from forecaster.spread import checked_history

_FORECASTERS: Mapping[str, type[Ewma | SeasonalNaive]] = MappingProxyType(
    {"ewma": Ewma, "seasonal-naive": SeasonalNaive}
)

_EXPERTS: Mapping[str, Auto] = MappingProxyType(
    {
        own.name: own
        for own in (
            Auto(),
            Auto(WINDOWS, "window"),
            Auto((ShortTerm(),), "short-term"),
            Auto((Boosted(),), "lightgbm"),
        )
    }
)

HINDSIGHT = "known (hindsight)"
"""What hindsight is called in logs and reports, so that its figures are not taken for a forecaster's."""


def forecaster_names() -> tuple[str, ...]:
    """All known names, in order."""
    return tuple(sorted({*_FORECASTERS, *_EXPERTS}))


def make_forecaster(name: str, **settings: float) -> Forecaster:
    """The forecaster of that name with those settings, as ``make_forecaster("ewma", half_life_steps=20)``.

    Those made of experts, such as ``auto``, take none.

    Raises:
        ValueError: The name is unknown, or the settings are not the ones that it takes.
    """
    if name not in forecaster_names():
        raise ValueError(f"forecaster {name!r} is unknown; known are {', '.join(forecaster_names())}")
    allowed = set() if name in _EXPERTS else {field.name for field in fields(_FORECASTERS[name])}
    if set(settings) != allowed:
        takes, got = (", ".join(sorted(names)) or "nothing" for names in (allowed, settings))
        raise ValueError(f"forecaster {name!r} takes {takes}, got {got}")
    if name in _EXPERTS:
        return _EXPERTS[name]
    kind: Callable[..., Forecaster] = _FORECASTERS[name]
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
        quantiles_rps=rates[None].repeat(len(QUANTILE_LEVELS), axis=0),
        paths_rps=rates[None],
    )
