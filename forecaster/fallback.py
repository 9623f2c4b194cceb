"""A forecaster that always forecasts: where it cannot, the window expert does, and the forecast says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from forecaster.forecast import FloatArray, Forecast, Forecaster
from forecaster.history import filled
from forecaster.registry import make_forecaster
from forecaster.spread import check_counts


@dataclass(frozen=True, slots=True)
class WithFallback:
    """The forecaster, with gaps of the history filled; ``window`` where its history is too short, or it raises.

    Attributes:
        forecaster: Who is asked first.
    """

    forecaster: Forecaster

    @property
    def name(self) -> str:
        """The forecaster's."""
        return self.forecaster.name

    @property
    def min_history_steps(self) -> int:
        """The forecaster's: what it needs in order not to be replaced."""
        return self.forecaster.min_history_steps

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``, which may have gaps (NaN) or be empty.

        Raises:
            ValueError: The history is not two-dimensional, a rate is negative or infinite, or a count is below 1.
        """
        check_counts(self.name, n_steps, n_paths)
        known = filled(history_rps, self.name)
        n_history = len(history_rps)
        if n_history < self.min_history_steps:
            return self._replaced(f"a history of {n_history} steps", history_rps, n_steps, n_paths, rng)
        try:
            forecast = self.forecaster.forecast(known.rates_rps, n_steps, n_paths, rng)
        except Exception as error:  # noqa: BLE001 - a model is anybody's code; a run goes on, and its log says why
            return self._replaced(f"{type(error).__name__}: {error}", history_rps, n_steps, n_paths, rng)
        return replace(forecast, method="; ".join((forecast.method, *known.notes)))

    def _replaced(
        self, reason: str, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator
    ) -> Forecast:
        forecast = make_forecaster("window").forecast(history_rps, n_steps, n_paths, rng)
        return replace(forecast, method=f"{forecast.method}; in place of {self.name} ({reason})")
