"""How experts' quantiles are set right by what came after past origins, lead by lead, and for the whole horizon.

**By lead.** A quantile of level τ should have a share τ of what came below it. At each past origin, oldest first, the
quantile that would have been given is compared with what came, and its *offset* moves against the error:

    offset ← offset + γ · w · (τ − share of the group's leads that came below q + offset · width)

This is adaptive conformal inference (Gibbs and Candès, NeurIPS 2021) on quantiles instead of levels (the quantile
tracking of Angelopoulos, Candès and Tibshirani, NeurIPS 2023): whatever comes, the share below goes to τ. Offsets are
in units of the band's width, so that they hold at other levels of traffic. Origins closer than a group of
leads is long tell nearly the same, so each counts for w = distance / length of the group, at most 1.

**The horizon's total.** Each step's quantiles can be right while the total's are too narrow: the level wanders, and the
bands of steps hardly show it. So whole sample paths are stretched until their totals spread as the totals of past
errors did. The few horizons of a history show that badly, and count beside :data:`PRIOR_HORIZONS` others.

**The late steps.** A history holds few outcomes at long leads, so offsets hardly move there, and bands stay too narrow.
What is reported of late steps is therefore the stretched paths' spread, a little widened (:func:`widened`).
"""

from __future__ import annotations

import numpy as np

from forecaster.expert import LEVELS, IntArray, group_of
from forecaster.forecast import QUANTILE_LEVELS, FloatArray

RATE = 0.02
"""γ: how far an offset moves at an origin, in widths of the band, for each whole unit of error."""

PRIOR_HORIZONS = 6.0
"""As many horizons as this does it count that totals err more than paths in the order of past errors make them."""

PRIOR_RATIO = 2.5
"""How many times the paths' variance theirs is by that; fitted, as is the figure above, to the first two thirds."""

WHOLE_STEPS = 60
"""A step that begins so long after the origin, or later, shares all of what the total does not know."""

LATE_STEPS, LATE_WIDENING = 200, 1.05
"""By how much farther from the median quantiles are in a step that ends so long after the origin, or later.

All three are fitted to the first two thirds of the traces.
"""

_LOW, _HIGH = LEVELS.index(0.05), LEVELS.index(0.95)


def calibrated(
    bands_rps: FloatArray, came_rps: FloatArray, origins: IntArray, leads: IntArray, now_rps: FloatArray
) -> FloatArray:
    """The quantiles ``now_rps`` moved by the offsets that past origins taught, ascending and ≥ 0.

    Shapes: bands ``(K, L, J, n)`` and what came ``(K, J, n)`` (NaN where nothing is known yet) at origins ``(K,)`` and
    leads ``(J,)``; now ``(L, J, n)`` → the same.
    """
    present, groups = np.unique(group_of(leads), return_inverse=True)
    members = (groups == np.arange(len(present))[:, np.newaxis]).astype(np.float64)  # (G, J)
    lengths = np.array([np.ptp(leads[groups == group]) + 1 for group in range(len(present))])
    gaps = np.diff(origins, append=origins[-1:] + 1) if len(origins) else origins
    offsets = np.zeros((len(LEVELS), len(members), now_rps.shape[-1]))
    level = np.array(LEVELS)[:, np.newaxis, np.newaxis]
    for band, came, gap in zip(bands_rps, came_rps, gaps, strict=True):
        known = members * ~np.isnan(came[:, 0])
        n_known = known.sum(axis=1)
        told = n_known > 0
        quantiles = band + offsets[:, groups] * _width(band)
        below = np.einsum("gj,ljn->lgn", known[told], (came <= quantiles).astype(np.float64))
        share = below / n_known[told][:, np.newaxis]
        weight = np.minimum(1.0, gap / lengths[told])[:, np.newaxis]
        offsets[:, told] += RATE * weight * (level - share)
    moved = now_rps + offsets[:, groups] * _width(now_rps)
    return np.sort(np.maximum(moved, 0.0), axis=0)


def _width(band_rps: FloatArray) -> FloatArray:
    """From the 5 to the 95 % quantile, ``(L, J, n)`` → ``(J, n)``."""
    width: FloatArray = band_rps[_HIGH] - band_rps[_LOW]
    return width


def total_widening(totals_rps: FloatArray, total_errors_rps: FloatArray, n_horizons: float) -> FloatArray:
    """By how much each tenant's totals are to spread more than those of the sample paths: ``(n,)``, 1 to 3.

    Of a total's error the mean square counts, and not the variance: a level that was off was so for all origins of a
    horizon. Over the paths' variance it is a ratio, which is averaged with :data:`PRIOR_RATIO`, by how many horizons
    each of them stands for.

    Shapes: paths' totals ``(k, n)``, errors of past totals ``(k, n)``; the history is ``n_horizons`` horizons long.
    """
    variance = totals_rps.var(axis=0)
    square = (total_errors_rps**2).mean(axis=0)
    ratio = np.divide(square, variance, out=np.ones_like(variance), where=variance > 0)
    mean_ratio = (PRIOR_HORIZONS * PRIOR_RATIO + n_horizons * ratio) / (PRIOR_HORIZONS + n_horizons)
    widening: FloatArray = np.clip(np.sqrt(mean_ratio), 1.0, 3.0)
    return widening


def widened(bands_rps: FloatArray, stretched_rps: FloatArray) -> FloatArray:
    """The quantiles to report: the bands' at the first step, the stretched paths' from :data:`WHOLE_STEPS` on.

    Between them they go with the logarithm of the lead, as does the widening up to :data:`LATE_STEPS`. The median is
    not moved by it, and sample paths and means are not touched.

    Shapes: both ``(Q, H, n)`` at the levels of a forecast, ascending → the same, ≥ 0.
    """
    age = np.log1p(np.arange(bands_rps.shape[1]))[:, np.newaxis]
    shared = np.minimum(age / np.log1p(WHOLE_STEPS), 1.0)
    quantiles = bands_rps + shared * (stretched_rps - bands_rps)
    median = quantiles[QUANTILE_LEVELS.index(0.5)]
    wider = 1 + (LATE_WIDENING - 1) * np.minimum(age / np.log(LATE_STEPS), 1.0)
    reported: FloatArray = np.maximum(median + wider * (quantiles - median), 0.0)
    return reported
