"""What experts say of one history at several of its moments, and how wrong that was.

An *expert* looks at each tenant alone and returns quantiles, at the levels :data:`LEVELS`, of the steps after a moment,
an *origin*: origin o is known by the steps before o. *Lead* h of an origin o is the step o + h. Asking an expert at
past origins tells how good it has been on this history, because what it says at an origin depends on nothing after it.
The simplest one is here: :class:`RecentWindow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import FloatArray

IntArray = NDArray[np.int64]

LEVELS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 0.97, 0.99)
"""Levels of experts' quantiles: those of every forecast, and enough others to tell the mean and the tails."""

GROUP_ENDS = (1, 2, 5, 10, 20, 40, 70, 120, 200)
"""Where groups of leads end: 0; 1; 2–4; 5–9; … The last has no end. What changes with the lead does so by ratios."""

N_NEAR_GROUPS = 4
"""Groups of the leads 0–9, in which the last seconds are worth most."""


class Expert(Protocol):
    """Anything that returns quantiles of each tenant's next steps at several origins of one history."""

    @property
    def name(self) -> str:
        """As logs name it."""

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        """Quantiles at those leads of each origin; those of an origin depend on the steps before it alone.

        Shapes: history ``(T, n)`` without gaps, origins ``(K,)`` ascending in [1, T], leads ``(J,)`` ascending →
        ``(K, L, J, n)``, ascending along L, ≥ 0; it may be read-only.
        """


def group_of(leads: IntArray) -> IntArray:
    """The group of each lead, from 0 on."""
    found: IntArray = np.minimum(np.searchsorted(GROUP_ENDS, leads, side="right"), len(GROUP_ENDS) - 1)
    return found


def scored_leads(n_steps: int, most_per_group: int = 6) -> IntArray:
    """Leads at which experts are judged: of each group of the horizon a few, evenly."""
    leads = np.arange(n_steps, dtype=np.int64)
    groups = group_of(leads)
    chosen = []
    for group in np.unique(groups):
        own = leads[groups == group]
        n_kept = min(own.size, most_per_group)
        chosen.append(own[(np.arange(n_kept) * own.size + own.size // 2) // n_kept])
    return np.concatenate(chosen)


def outcomes_at(history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
    """What came at those leads, ``(K, J, n)``; NaN where the history does not reach."""
    steps = origins[:, np.newaxis] + leads
    came: FloatArray = history_rps[np.minimum(steps, len(history_rps) - 1)]
    came[steps >= len(history_rps)] = np.nan
    return came


def pinball(quantiles_rps: FloatArray, came_rps: FloatArray) -> FloatArray:
    """The mean over :data:`LEVELS` of the pinball loss, ``(K, L, J, n)`` and ``(K, J, n)`` → ``(K, J, n)``; NaN stays.

    ``max(τ·(y − q), (τ − 1)·(y − q))``: the quantile of level τ is what keeps its mean lowest.
    """
    level = np.array(LEVELS)[:, np.newaxis, np.newaxis]
    missed = came_rps[:, np.newaxis] - quantiles_rps
    loss: FloatArray = np.maximum(level * missed, (level - 1) * missed).mean(axis=1)
    return loss


@dataclass(frozen=True, slots=True)
class RecentWindow:
    """What came in the last ``length_steps`` steps comes again, in any order: their quantiles, at every lead the same.

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
    """Quantiles of n values in order, ``(n, m)`` → ``(L, m)``: the i-th is that of level (i + ½)/n."""
    n_values = len(ordered)
    place = np.clip(np.asarray(LEVELS) * n_values - 0.5, 0, n_values - 1)
    below = place.astype(np.int64)
    above = np.minimum(below + 1, n_values - 1)
    share = (place - below)[:, np.newaxis]
    found: FloatArray = ordered[below] + (ordered[above] - ordered[below]) * share
    return found
