"""Honest spread for any point forecast: the errors that the same method made at earlier origins of the history.

An *origin* is a moment in the history from which the method forecasts; its *error path* is what then came minus
what the method said, step by step. Sampling whole error paths keeps how real errors hang together in
time (autocorrelation 0.76 at 1 s and 0.05 at 30 s in real traces: a busy second is followed by a busy one), and
taking all tenants' errors from one origin keeps how tenants hang together.

With origins o₁ … o_k, error paths E (k, H, n) and their mean over origins Ē, the forecast is the distribution
that gives ``max(0, point + E[i] − Ē − δ)`` the weight 1/k each. Rates cannot be negative, and cutting them at zero
alone would raise the mean (on the Azure code trace from 2.6 to 4.8 requests a second for a seasonal forecast); so each
tenant's δ ≥ 0 is such that the mean over the horizon stays that of the point forecast. One δ for all steps: seconds
that the point calls empty keep their spread. Without cuts δ is 0 and the mean is the point forecast at every step.
"""

from __future__ import annotations

import numpy as np

from forecaster.calibration import total_widening, widened
from forecaster.expert import LEVELS, IntArray
from forecaster.forecast import QUANTILE_LEVELS, FloatArray, Forecast

_MEAN_TOLERANCE = 1e-9  # requests a second
_MAX_NEWTON_STEPS = 100  # a handful is usual

MAX_ORIGINS = 400
"""Longer histories are thinned to as many origins, evenly: neighbouring ones hardly differ."""


def checked_history(history_rps: FloatArray, method: str, min_history_steps: int) -> FloatArray:
    """The history as floats ``(T, n)``.

    Raises:
        ValueError: It is not two-dimensional, has negative or non-finite rates, or T is below ``min_history_steps``.
    """
    history = np.asarray(history_rps, dtype=np.float64)
    if history.ndim != 2:
        raise ValueError(f"{method}: the history must be (steps, tenants), got shape {history.shape}")
    if len(history) < min_history_steps:
        raise ValueError(f"{method}: a history of {len(history)} steps is too short, {min_history_steps} are needed")
    if not (np.isfinite(history) & (history >= 0)).all():
        raise ValueError(f"{method}: past rates must be finite and at least 0")
    return history


def error_targets(first_origin: int, n_history: int, n_steps: int) -> IntArray:
    """Steps of the history that error paths compare with, ``(k, n_steps)``: row i begins at origin i.

    Where at least ``n_steps`` origins have all their ``n_steps`` steps inside the history, only those count. A shorter
    history is closed to a ring for this: paths that reach its end go on at ``first_origin``, once a round.
    """
    n_whole = n_history - n_steps - first_origin + 1
    n_origins = n_whole if n_whole >= n_steps else n_history - first_origin
    n_kept = min(n_origins, MAX_ORIGINS)
    offsets = (np.arange(n_kept, dtype=np.int64) * n_origins) // n_kept
    ahead = offsets[:, np.newaxis] + np.arange(n_steps, dtype=np.int64)
    return first_origin + ahead % (n_history - first_origin)


def forecast_from_errors(
    method: str, point_rps: FloatArray, errors_rps: FloatArray, n_paths: int, rng: np.random.Generator
) -> Forecast:
    """The forecast whose spread is that of the error paths.

    Origins are drawn one from each of ``n_paths`` equal stretches of the history, so the paths' mean is nearer to
    ``mean_rps`` than that of independent draws; the paths' order is random.

    Shapes: point ``(H, n)``, errors ``(k, H, n)``.

    Raises:
        ValueError: H or ``n_paths`` is below 1.
    """
    check_counts(method, len(point_rps), n_paths)
    spread_rps = point_rps + (errors_rps - errors_rps.mean(axis=0))
    is_cut = (spread_rps < 0).any(axis=(0, 1))
    lowered_by = np.array([_lowering(spread_rps[:, :, m]) if cut else 0.0 for m, cut in enumerate(is_cut)])
    outcomes_rps = np.maximum(spread_rps - lowered_by, 0.0)
    drawn = _drawn(len(errors_rps), n_paths, rng)
    return Forecast(
        method=method,
        mean_rps=np.where(is_cut, outcomes_rps.mean(axis=0), point_rps),
        quantiles_rps=quantiles_of(outcomes_rps),
        paths_rps=outcomes_rps[drawn],
    )


def forecast_from_bands(
    method: str,
    bands_rps: FloatArray,
    errors_rps: FloatArray,
    n_history: int,
    n_paths: int,
    rng: np.random.Generator,
) -> Forecast:
    """The forecast of these bands, whose paths rise and fall as the error paths do.

    At each step the path of origin i has the quantile of the level of the i-th error among all origins'
    errors of that step (Schaake shuffle: Clark et al., Journal of Hydrometeorology 5, 2004). So every step has its own
    spread, and steps and tenants hang together as they did. Then each path is stretched as a whole, such that its
    total's distance from the mean total grows as :func:`~forecaster.calibration.total_widening` asks. The quantiles go
    from the bands' at the first step to the stretched paths' own, for the later a step is, the more it shares of what
    the total does not know (:func:`~forecaster.calibration.widened`).

    Shapes: bands ``(L, H, n)`` at the levels of :data:`forecaster.expert.LEVELS`, errors ``(k, H, n)``, told from
    ``n_history`` steps.

    Raises:
        ValueError: H or ``n_paths`` is below 1.
    """
    check_counts(method, bands_rps.shape[1], n_paths)
    n_origins = len(errors_rps)
    share = (np.arange(n_origins) + 0.5) / n_origins
    below = np.clip(np.searchsorted(LEVELS, share) - 1, 0, len(LEVELS) - 2)
    levels = np.array(LEVELS)
    between = np.clip((share - levels[below]) / (levels[below + 1] - levels[below]), 0, 1)[:, np.newaxis, np.newaxis]
    values = bands_rps[below] + (bands_rps[below + 1] - bands_rps[below]) * between
    ranks = np.empty(errors_rps.shape, dtype=np.int64)
    np.put_along_axis(ranks, errors_rps.argsort(axis=0, kind="stable"), np.arange(n_origins)[:, None, None], axis=0)
    outcomes_rps = np.take_along_axis(values, ranks, axis=0)
    totals = outcomes_rps.sum(axis=1, keepdims=True)
    mean = totals.mean(axis=0)
    widening = total_widening(totals[:, 0], errors_rps.sum(axis=1), n_history / bands_rps.shape[1])
    wanted = np.maximum(mean + widening * (totals - mean), 0.0)
    wanted *= np.divide(mean, wanted.mean(axis=0), out=np.ones_like(mean), where=mean > 0)  # what was cut at zero
    outcomes_rps *= np.divide(wanted, totals, out=np.ones_like(totals), where=totals > 0)
    return Forecast(
        method=method,
        mean_rps=outcomes_rps.mean(axis=0),
        quantiles_rps=widened(bands_rps[[LEVELS.index(one) for one in QUANTILE_LEVELS]], quantiles_of(outcomes_rps)),
        paths_rps=outcomes_rps[_drawn(n_origins, n_paths, rng)],
    )


def check_counts(method: str, n_steps: int, n_paths: int) -> None:
    """Raises ValueError where a forecast of nothing is asked for."""
    if n_steps < 1 or n_paths < 1:
        raise ValueError(f"{method}: a forecast needs at least 1 step and 1 path, got {n_steps} and {n_paths}")


def _drawn(n_origins: int, n_paths: int, rng: np.random.Generator) -> IntArray:
    """Which origins' paths are taken: one from each of ``n_paths`` equal stretches of the history, in random order."""
    stretches = (np.arange(n_paths) + rng.random(n_paths)) / n_paths
    return rng.permutation(np.minimum((stretches * n_origins).astype(np.int64), n_origins - 1))


def _lowering(values: FloatArray) -> float:
    """The δ ≥ 0 with ``mean(max(0, values − δ)) = mean(values)``, for a mean ≥ 0.

    The left side is convex and piecewise linear in δ, so Newton's steps from 0 ascend to the root and end on it.
    """
    target, lowered_by = max(float(values.mean()), 0.0), 0.0
    for _ in range(_MAX_NEWTON_STEPS):
        above = values[values > lowered_by] - lowered_by
        excess = above.sum() - target * values.size
        if excess <= _MEAN_TOLERANCE * values.size:
            break
        lowered_by += float(excess / above.size)
    return lowered_by


def quantiles_of(outcomes_rps: FloatArray) -> FloatArray:
    """A forecast's, of outcomes ``(k, H, n)`` → ``(Q, H, n)``, ascending also where interpolation rounds."""
    by_step = np.moveaxis(outcomes_rps, 0, -1).copy()  # sorting is quickest along memory, and in place
    quantiles = np.quantile(by_step, QUANTILE_LEVELS, axis=-1, overwrite_input=True)
    return np.asarray(np.maximum.accumulate(quantiles, axis=0), dtype=np.float64)
