"""What is said of the next steps where a forecaster fails: the mean of what has come, with its own spread."""

from __future__ import annotations

import numpy as np

from forecaster.forecast import FloatArray, Forecast
from forecaster.spread import error_targets, forecast_from_errors

WINDOW_MEAN = "window-mean"
"""What it is called in logs and reports."""


def window_mean(history_rps: FloatArray, n_steps: int, n_paths: int, rng: np.random.Generator) -> Forecast:
    """The mean of the history at every step, with pieces of the history as error paths; any history will do.

    Steps of the history that are not finite or negative count as not seen. A tenant of whom nothing was seen has the
    rate 0.

    Shapes: history ``(T, n)``, T ≥ 0 → mean ``(n_steps, n)``, paths ``(n_paths, n_steps, n)``.

    Raises:
        ValueError: The history is not two-dimensional, or a count is below 1.
    """
    history = np.asarray(history_rps, dtype=np.float64)
    if history.ndim != 2:
        raise ValueError(f"{WINDOW_MEAN}: the history must be (steps, tenants), got shape {history.shape}")
    is_seen = np.isfinite(history) & (history >= 0)
    mean = np.where(is_seen, history, 0.0).sum(axis=0) / np.maximum(1, is_seen.sum(axis=0))
    errors = np.where(is_seen, history - mean, 0.0) if len(history) else np.zeros((1, history.shape[1]))
    targets = error_targets(0, len(errors), n_steps)
    return forecast_from_errors(WINDOW_MEAN, np.repeat(mean[None], n_steps, axis=0), errors[targets], n_paths, rng)
