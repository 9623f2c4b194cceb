"""How experts' quantiles are set right by what came after past origins, lead by lead, and for the whole horizon.

**By lead.** A quantile of level τ should have a share τ of what came below it. At each past origin, oldest first, the
quantile that would have been given is compared with what came, and its *offset* moves against the error:

    offset ← offset + γ · w · (τ − share of the group's leads that came below q + offset · width)

This is adaptive conformal inference (Gibbs and Candès, NeurIPS 2021) on quantiles instead of levels (the quantile
tracking of Angelopoulos, Candès and Tibshirani, NeurIPS 2023): whatever comes, the share below goes to τ. Offsets are
in units of the band's width, so that they hold at other levels of traffic. Origins that stand closer than a group of
leads is long tell nearly the same, so each counts for w = distance / length of the group, at most 1.

**The horizon's total.** Sample paths are put together in the order of whole past error paths, so totals vary as they
did. A history of few horizons shows too little of that: the level of its T/H pieces has a spread that is uncertain
itself, around a mean that is too. As for the mean of a few normal values, that part of the total's spread is widened by
Student's t over the normal's quantile. What comes of bursts inside a horizon is seen often enough, and stays.
"""

from __future__ import annotations

import math

import numpy as np

from forecaster.expert import LEVELS, IntArray, group_of
from forecaster.forecast import FloatArray

RATE = 0.02
"""γ: how far an offset moves at an origin, in widths of the band, for each whole unit of error."""

BLOCK_STEPS = 20
"""Beyond as many steps, what links the steps of a path is its level."""

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


def total_widening(errors_rps: FloatArray, n_history: int) -> FloatArray:
    """By how much each tenant's totals spread more than those of past error paths, ``(k, H, n)`` → ``(n,)``; 1 to 3.

    With V the variance of the paths' totals, F what blocks of 20 steps that knew nothing of each other would make of it
    (from differences of blocks inside paths, of which even a short history has many) and f the factor for few pieces,
    the variance is F + f²·(V − F), and at least F.
    """
    n_steps = errors_rps.shape[1]
    length = min(BLOCK_STEPS, n_steps)
    n_blocks = n_steps // length
    variance = errors_rps.sum(axis=1).var(axis=0)
    fast = np.zeros_like(variance)
    if n_blocks > 1:
        blocks = errors_rps[:, : n_blocks * length].reshape(len(errors_rps), n_blocks, length, -1).sum(axis=2)
        fast = blocks.var(axis=1, ddof=1).mean(axis=0) * (n_steps / length)
    wanted = fast + few_pieces(n_history / n_steps) ** 2 * np.maximum(variance - fast, 0.0)
    ratio = np.divide(wanted, variance, out=np.ones_like(variance), where=variance > 0)
    widening: FloatArray = np.clip(np.sqrt(ratio), 1.0, 3.0)
    return widening


def few_pieces(n_pieces: float) -> float:
    """By how much the 80 % band of a normal value is wider where mean and spread are known from few others.

    With ν = n − 1, at least 1: t_ν(0.9)/z(0.9) · √(1 + 1/ν); t by its expansion in 1/ν (Abramowitz and Stegun 26.7.5).
    """
    freedom = max(1.0, n_pieces - 1)
    z = 1.2815515655446004
    expansion = (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
    return expansion / z * math.sqrt(1 + 1 / freedom)
