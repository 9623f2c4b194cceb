"""Forecasts by the second, for steps that are parts of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.forecast import FloatArray, Forecast, Forecaster


@dataclass(frozen=True, slots=True)
class BySeconds:
    """A forecaster of whole seconds that answers for shorter steps: each has the rate of its second.

    Traffic is counted by the second. In steps of 0.1 s what is known is ten equal rates after each other, and what was
    fitted to seconds takes three seconds for half a minute.

    Attributes:
        forecaster: Of seconds.
        steps_per_second: ≥ 1.
    """

    forecaster: Forecaster
    steps_per_second: int

    @property
    def name(self) -> str:
        """That of the forecaster of seconds."""
        return self.forecaster.name

    @property
    def min_history_steps(self) -> int:
        """Fewest past steps that :meth:`forecast` needs."""
        return self.forecaster.min_history_steps * self.steps_per_second

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``, which ends with a full second.

        Shapes: history ``(T, n)`` → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: T is below ``min_history_steps``, or as the forecaster of seconds has it.
        """
        each = self.steps_per_second
        begun = history_rps[len(history_rps) % each :]
        # Counts are whole numbers; their parts add up to them but for the last digits.
        seconds_rps = begun.reshape(-1, each, history_rps.shape[1]).mean(axis=1).round(6)
        found = self.forecaster.forecast(seconds_rps, -(-n_steps // each), n_paths, rng)

        def in_steps(values: FloatArray) -> FloatArray:
            return values.repeat(each, axis=-2)[..., :n_steps, :]

        return Forecast(
            found.method, in_steps(found.mean_rps), in_steps(found.quantiles_rps), in_steps(found.paths_rps)
        )


def steps_per_second(step_s: float) -> int:
    """How many steps make up a second, 1 where steps are no shorter or do not add up to one."""
    each = max(1, round(1 / step_s))
    return each if abs(each * step_s - 1) < 1e-9 else 1
