"""What came in the last so many steps comes again, in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.expert import LEVELS, IntArray
from forecaster.forecast import FloatArray


@dataclass(frozen=True, slots=True)
class Window:
    """The expert that gives the quantiles of the last ``length_steps`` rates, at every lead the same.

    Attributes:
        length_steps: ≥ 1. Where the history is shorter, all of it.

    Raises:
        ValueError: The length is below 1.
    """

    length_steps: int

    def __post_init__(self) -> None:
        if self.length_steps < 1:
            raise ValueError(f"window: length_steps {self.length_steps}: must be at least 1")

    @property
    def name(self) -> str:
        """``window 120``."""
        return f"window {self.length_steps}"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        """As :meth:`forecaster.expert.Expert.quantiles_at`."""
        n_tenants = history_rps.shape[1]
        quantiles = np.empty((len(origins), len(LEVELS), 1, n_tenants))
        for place, origin in enumerate(origins):
            ordered = np.sort(history_rps[max(0, origin - self.length_steps) : origin], axis=0)
            quantiles[place, :, 0] = _quantiles_of_sorted(ordered)
        return np.broadcast_to(quantiles, (len(origins), len(LEVELS), len(leads), n_tenants))


def _quantiles_of_sorted(ordered: FloatArray) -> FloatArray:
    """Quantiles of n values that stand in order, ``(n, m)`` → ``(L, m)``: the i-th is that of level (i + ½)/n."""
    n_values = len(ordered)
    place = np.clip(np.asarray(LEVELS) * n_values - 0.5, 0, n_values - 1)
    below = place.astype(np.int64)
    above = np.minimum(below + 1, n_values - 1)
    share = (place - below)[:, np.newaxis]
    found: FloatArray = ordered[below] + (ordered[above] - ordered[below]) * share
    return found
