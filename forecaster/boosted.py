"""Gradient-boosted trees for each quantile, by LightGBM (the extra ``forecast``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from forecaster.expert import LEVELS, IntArray
from forecaster.forecast import QUANTILE_LEVELS, FloatArray
from forecaster.short_term import SPANS, past_means, refits, sums_of

if TYPE_CHECKING:
    from lightgbm import Booster

_MAX_ROWS = 1500
_LEADS = (0, 1, 2, 4, 7, 12, 20, 35, 60, 90, 130, 199)
_N_TREES = 60
_SETTINGS = {
    "objective": "quantile",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 40,
    "num_threads": 1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclass(frozen=True, slots=True)
class Boosted:
    """The expert that fits LightGBM quantiles to the history at hand, all tenants in one model.

    Rates are divided by the mean of the last 400 steps, so that tenants of any size share what is learnt. Features are
    the means of the last 1 … 100 steps and the lead. The time of day is none: a history has no clock. A fit to an hour
    of one tenant takes about a second and a half.
    """

    name = "lightgbm"

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        """As :meth:`forecaster.expert.Expert.quantiles_at`, from fits to what lies before a few of the origins."""
        refit_of = refits(origins, 2)
        parts = []
        for refit in np.unique(refit_of):
            models = _fit(history_rps[: max(2, int(refit))])
            parts.append(_told(models, history_rps, origins[refit_of == refit], leads))
        return np.concatenate(parts)


def _fit(history: FloatArray) -> list[Booster]:
    """A model a quantile, in the order of ``QUANTILE_LEVELS``.

    Raises:
        ImportError: LightGBM is not installed.
        ValueError: The history has less than two steps.
    """
    import lightgbm  # noqa: PLC0415 - an extra

    if len(history) < 2:
        raise ValueError(f"lightgbm: a history of {len(history)} steps is too short, 2 are needed")
    leads = np.array([lead for lead in _LEADS if lead < max(1, len(history) // 2)])
    first, last = min(30, len(history) // 4), len(history) - 1
    origins = np.unique(np.linspace(max(1, first), last, min(_MAX_ROWS, last)).astype(np.int64))
    level, features = _features(history, origins, leads)
    steps = origins[:, np.newaxis] + leads
    came = np.moveaxis(history[np.minimum(steps, last)], 2, 1)  # (K, n, J)
    is_known = (steps <= last)[:, np.newaxis] & (level > 0)[:, :, np.newaxis]
    target = (came / np.where(level > 0, level, 1.0)[:, :, np.newaxis])[is_known]
    rows = features[is_known]
    if not len(rows):  # nothing ever came
        rows, target = np.zeros((1, len(SPANS))), np.zeros(1)
    models = []
    for quantile in QUANTILE_LEVELS:
        data = lightgbm.Dataset(rows, target, params={"verbosity": -1})
        models.append(lightgbm.train({**_SETTINGS, "alpha": quantile}, data, num_boost_round=_N_TREES))
    return models


def _told(models: list[Booster], history: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
    """The fit's quantiles at those leads of each origin, ``(K, L, J, n)``."""
    level, features = _features(history, origins, leads)
    rows = features.reshape(-1, features.shape[-1])
    told = [model.predict(rows, num_threads=1) for model in models]
    quantiles = np.sort(np.array(told).reshape(len(QUANTILE_LEVELS), len(origins), -1, len(leads)), axis=0)
    relative = np.maximum(_at_all_levels(quantiles), 0.0)  # (L, K, n, J)
    found: FloatArray = np.moveaxis(relative * level[:, :, np.newaxis], (0, 2), (1, 3))
    return found


def _features(history: FloatArray, origins: IntArray, leads: IntArray) -> tuple[FloatArray, FloatArray]:
    """Levels ``(K, n)`` and rows ``(K, n, J, F)``: nearer means over the level, and the lead."""
    means = past_means(sums_of(history), origins)
    level = means[-1]
    safe = np.where(level > 0, level, 1.0)
    past = np.stack([mean / safe for mean in means[:-1]], axis=-1)  # (K, n, F − 1)
    shape = (*level.shape, len(leads))
    lead = np.broadcast_to(leads.astype(np.float64), shape)
    rows = np.concatenate(
        [np.broadcast_to(past[:, :, np.newaxis], (*shape, len(SPANS) - 1)), lead[..., np.newaxis]], axis=-1
    )
    return level, rows


def _at_all_levels(quantiles: FloatArray) -> FloatArray:
    """From the forecast's quantiles to those of :data:`LEVELS`, on lines; beyond the outermost ones they stay."""
    known, wanted = np.array(QUANTILE_LEVELS), np.clip(LEVELS, QUANTILE_LEVELS[0], QUANTILE_LEVELS[-1])
    below = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, len(known) - 2)
    share = ((wanted - known[below]) / (known[below + 1] - known[below])).reshape(-1, *[1] * (quantiles.ndim - 1))
    found: FloatArray = quantiles[below] + (quantiles[below + 1] - quantiles[below]) * share
    return found
