"""What came one season ago comes again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.expert import IntArray
from forecaster.forecast import FloatArray, Forecast
from forecaster.spread import checked_history, error_targets, forecast_from_errors


@dataclass(frozen=True, slots=True)
class SeasonalNaive:
    """Repeats the last season, with the spread of its own past errors.

    Horizons up to one season have the errors of one season ahead, the next season's those of two, and so on, while
    the history reaches; horizons beyond share the farthest. A history of less than two seasons holds too few errors of
    the method itself: the spread is then that of half the history as the season.

    Attributes:
        season_steps: Length of the season, ≥ 1. One step says that the last rate stays.

    Raises:
        ValueError: The season is below 1 or not an int.
    """

    name = "seasonal-naive"
    season_steps: int

    def __post_init__(self) -> None:
        season: object = self.season_steps  # a config's number may be a float, whatever the annotation says
        if not isinstance(season, int) or season < 1:
            raise ValueError(f"{self.name}: season_steps {self.season_steps}: must be a whole number, at least 1")

    @property
    def min_history_steps(self) -> int:
        """One season, and at least the two steps that an error takes."""
        return max(2, self.season_steps)

    def forecast(self, history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
        """The next ``n_steps`` steps after ``history_rps``: its last season, over and over.

        Shapes: history ``(T, n)`` → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

        Raises:
            ValueError: T is below ``min_history_steps``, a rate is negative or not finite, or a count is below 1.
        """
        history = checked_history(history_rps, self.name, self.min_history_steps)
        ahead = np.arange(n_steps)
        point = history[len(history) - self.season_steps + ahead % self.season_steps]
        errors = _errors(
            history, min(self.season_steps, len(history) // 2), seasons_ahead=ahead // self.season_steps + 1
        )
        return forecast_from_errors(self.name, point, errors, n_paths, rng)


def _errors(history: FloatArray, season_steps: int, seasons_ahead: IntArray) -> FloatArray:
    """Past errors ``(k, H, n)``, where horizon h compares with ``seasons_ahead[h]`` seasons before.

    An error at step t and j seasons ahead is ``y[t] − y[t − j·season]``, whatever the origin. Where that reaches before
    the history (possible only when it is closed to a ring), fewer seasons do.
    """
    targets = error_targets(season_steps, len(history), len(seasons_ahead))
    n_back = np.minimum(seasons_ahead, targets // season_steps)
    errors: FloatArray = history[targets] - history[targets - n_back * season_steps]
    return errors
