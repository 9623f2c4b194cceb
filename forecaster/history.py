"""Past rates as experts need them: whole, where steps are missing or nothing has been seen at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.forecast import FloatArray

PRIOR_RPS = 1.0
"""Mean rate that is assumed where no tenant has any history."""

PRIOR_STEPS = 60
"""Length of the history that stands for none."""

_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Filled:
    """A history without gaps.

    Attributes:
        rates_rps: ``(T, n)``, T ≥ 1, finite and ≥ 0.
        notes: What was made up, a phrase each; empty where nothing was.
    """

    rates_rps: FloatArray
    notes: tuple[str, ...] = ()


def filled(history_rps: FloatArray, method: str) -> Filled:
    """The history with its gaps closed.

    A gap (NaN) is filled with what lies before it, read backwards, as often as it takes; at the beginning with what
    lies behind it. So it has the level and the bursts of its neighbourhood, and adds no calm that was not there. A
    tenant of whom nothing is known gets the *prior*: exponentially distributed rates with the mean of the other
    tenants', or of :data:`PRIOR_RPS` where there are none. An empty history is one of :data:`PRIOR_STEPS` steps of
    which nothing is known.

    Raises:
        ValueError: It is not two-dimensional, or a rate is negative or infinite.
    """
    history = np.array(history_rps, dtype=np.float64)
    if history.ndim != 2 or history.shape[1] < 1:
        raise ValueError(f"{method}: the history must be (steps, tenants), got shape {history.shape}")
    missing: NDArray[np.bool_] = np.isnan(history)
    if (history[~missing] < 0).any() or np.isinf(history).any():
        raise ValueError(
            f"{method}: past rates must be at least 0 and finite; NaN stands for a step of which nothing is known"
        )
    if len(history) == 0:
        history = np.full((PRIOR_STEPS, history.shape[1]), np.nan)
        missing = np.isnan(history)
    if not missing.any():
        return Filled(history)
    return _filled(history, missing)


def _filled(history: FloatArray, missing: NDArray[np.bool_]) -> Filled:
    unseen = np.atleast_1d(missing.all(axis=0))
    prior_rps = PRIOR_RPS if unseen.all() else float(np.nanmean(history[:, ~unseen]))
    notes = []
    if unseen.any():
        history[:, unseen] = _prior(len(history), prior_rps)[:, np.newaxis]
        who = "no history" if unseen.all() else f"{int(unseen.sum())} of {len(unseen)} tenants without history"
        notes.append(f"{who}: prior of {prior_rps:.3g} requests a second")
    n_missing = missing[:, ~unseen].any(axis=1).sum()
    if n_missing:
        notes.append(f"{int(n_missing)} of {len(history)} past steps missing")
    for tenant in np.flatnonzero(~unseen & missing.any(axis=0)):
        history[:, tenant] = _mirrored(history[:, tenant], missing[:, tenant])
    return Filled(history, tuple(notes))


def _prior(n_steps: int, mean_rps: float) -> FloatArray:
    """Exponentially distributed rates, evenly over the distribution and without order in time."""
    share = (np.arange(n_steps) * _GOLDEN) % 1.0
    return -mean_rps * np.log1p(-(share * n_steps // 1 + 0.5) / n_steps)


def _mirrored(rates: FloatArray, missing: NDArray[np.bool_]) -> FloatArray:
    """One tenant's rates, gaps filled with the known ones before them, latest first."""
    known = np.flatnonzero(~missing)
    made = rates.copy()
    made[: known[0]] = rates[known[np.arange(known[0]) % len(known)][::-1]]
    for step in np.flatnonzero(missing):
        if step > known[0]:
            before = known[: np.searchsorted(known, step)]
            made[step] = rates[before[-1 - (step - before[-1] - 1) % len(before)]]
    return made
