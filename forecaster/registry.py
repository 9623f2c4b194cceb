"""Forecasters by the names used in configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType

from forecaster.ewma import Ewma
from forecaster.forecast import Forecaster
from forecaster.naive import SeasonalNaive

_FORECASTERS: Mapping[str, type[Ewma | SeasonalNaive]] = MappingProxyType(
    {"ewma": Ewma, "seasonal-naive": SeasonalNaive}
)


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
    known = {field.name for field in fields(_FORECASTERS[name])}
    if set(settings) != known:
        raise ValueError(
            f"forecaster {name!r} takes {', '.join(sorted(known))}, got {', '.join(sorted(settings)) or 'nothing'}"
        )
    return kind(**settings)
