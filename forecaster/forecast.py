"""What a forecaster says of the next H steps of n tenants, and the interface of every forecaster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

QUANTILE_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""The quantiles that every forecaster returns, ascending; each has its opposite."""

_ROUNDING = 1e-9
"""Relative, and in requests a second: far below what a forecast could mean, far above what rounding leaves."""


@dataclass(frozen=True)
class Forecast:
    """Expected arrivals of n tenants over H steps, with honest spread. All arrays are read-only and ≥ 0.

    Attributes:
        method: The forecaster's name.
        mean_rps: Expected requests a second, ``(H, n)``.
        quantiles_rps: At :data:`QUANTILE_LEVELS`, ``(Q, H, n)``, ascending along Q.
        paths_rps: Sample paths, ``(n_paths, H, n)``; each is one way the window may go.
    """

    method: str
    mean_rps: FloatArray
    quantiles_rps: FloatArray
    paths_rps: FloatArray

    def __post_init__(self) -> None:
        horizon_shape = self.mean_rps.shape
        shapes_fit = (
            self.mean_rps.ndim == 2
            and self.quantiles_rps.shape == (len(QUANTILE_LEVELS), *horizon_shape)
            and self.paths_rps.ndim == 3
            and self.paths_rps.shape[1:] == horizon_shape
        )
        if not shapes_fit:
            raise ValueError(
                f"forecast shapes differ: mean {horizon_shape}, quantiles {self.quantiles_rps.shape}, "
                f"paths {self.paths_rps.shape}"
            )
        for array in (self.mean_rps, self.quantiles_rps, self.paths_rps):
            array.setflags(write=False)


def is_within(values: FloatArray, low: FloatArray, high: FloatArray) -> NDArray[np.bool_]:
    """Whether each value lies in its band, ends included; all arrays of one shape.

    Quantiles are interpolated and scaled, so that those of constant traffic miss its rate by a few units in the last
    place: such a value lies in its band.
    """
    slack = _ROUNDING * np.maximum(np.abs(values), 1.0)
    return (low - slack <= values) & (values <= high + slack)


class Forecaster(Protocol):
    """Anything that turns past rates into a :class:`Forecast`."""

    @property
    def name(self) -> str:
        """The name used in configs, logs and reports."""

    @property
    def min_history_steps(self) -> int:
        """Fewest past steps that :meth:`forecast` needs."""

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``.

        Shapes: history ``(T, n)`` → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: T is below ``min_history_steps``.
        """
