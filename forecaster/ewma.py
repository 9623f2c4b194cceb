"""The recent level, held for the whole horizon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forecaster.forecast import FloatArray, Forecast
from forecaster.spread import checked_history, error_targets, forecast_from_errors


@dataclass(frozen=True, slots=True)
class Ewma:
    """Forecasts the exponentially weighted mean of the past, with the spread of its own past errors.

    A step's weight halves every ``half_life_steps`` steps of age; weights are normalised, so that a short history is
    not pulled towards zero. The mean is this level at every step; where the spread reaches down to zero, it is this
    level on average over the horizon.

    Attributes:
        half_life_steps: Above 0. Short follows bursts, long trusts the average.

    Raises:
        ValueError: The half-life is not a finite number above 0.
    """

    name = "ewma"
    half_life_steps: float

    def __post_init__(self) -> None:
        if not 0 < self.half_life_steps < math.inf:
            raise ValueError(f"{self.name}: half_life_steps {self.half_life_steps}: must be finite and above 0")

    @property
    def min_history_steps(self) -> int:
        """One half-life, and at least the two steps that an error takes."""
        return max(2, math.ceil(self.half_life_steps))

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``, at the level reached.

        Shapes: history ``(T, n)`` → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: T is below ``min_history_steps``, a rate is negative or not finite, or a count is below 1.
        """
        history = checked_history(history_rps, self.name, self.min_history_steps)
        levels = _levels(history, 0.5 ** (1 / self.half_life_steps))
        # Levels of a few steps are less certain than the one forecast from: their errors would widen the spread.
        first_origin = max(1, min(len(history) // 2, math.ceil(3 * self.half_life_steps)))
        targets = error_targets(first_origin, len(history), n_steps)
        errors = history[targets] - levels[targets[:, :1]]
        point = np.repeat(levels[-1:], n_steps, axis=0)
        return forecast_from_errors(self.name, point, errors, n_paths, rng)


def _levels(history: FloatArray, decay: float) -> FloatArray:
    """Weighted means of what came before each step and before the one after the last, ``(T + 1, n)``; row 0 is 0.

    ``W_t = decay · W_{t−1} + 1``, ``level_t = level_{t−1} + (y_{t−1} − level_{t−1}) / W_t``: exact for a constant.
    """
    levels = np.zeros((len(history) + 1, history.shape[1]))
    weight, level = 0.0, levels[0]
    for step, rate in enumerate(history, start=1):
        weight = decay * weight + 1
        level = level + (rate - level) / weight
        levels[step] = level
    return levels
