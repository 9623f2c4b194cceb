"""The near past corrects the level: less and less, the farther ahead.

In real traces a busy second is followed by a busy one and a busy minute hardly by one (autocorrelation 0.76 at 1 s and
0.05 at 30 s), so what the last seconds brought is worth much in the next seconds and nothing minutes later. How much is
learnt from the history at hand, for each group of leads apart: with x = √rate and x̄_k the mean of its last k steps,

    √rate at lead h  =  x̄_400 + Σ_k β_k,g · (x̄_k − x̄_400) + residual,      k = 1, 2, 5, 10, 30, 100

by ridge regression of the group's mean, so that without evidence β is 0 and the level stays; rows that overlap are no
more evidence than one. The spread is that of the residuals at single leads of the group. The root makes the spread of
counts the same at any level, nearly. A past that hardly changed is evidence of nothing, whatever came after it: so no
rate is foreseen that is beyond all of those before it, but for the spread.

Fits are made at a few *refits* of the history, each from what lies before it; an origin uses the latest one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecaster.expert import GROUP_ENDS, LEVELS, IntArray, group_of
from forecaster.forecast import FloatArray

SPANS = (1, 2, 5, 10, 30, 100, 400)
"""Steps over which the past is averaged; the longest is the level."""

MAX_ROWS = 400
"""Moments of the history that a fit learns from, evenly."""

MAX_REFITS = 4

ROUNDING = 1e-12
"""Of the level's square: what near means differ by less is rounding."""


@dataclass(frozen=True, slots=True)
class ShortTerm:
    """The expert that corrects the level by the near past, with the quantiles of what the correction left.

    Attributes:
        ridge: How strongly coefficients are drawn to 0, in rows of evidence.
    """

    name = "short-term"
    ridge: float = 30.0

    def quantiles_at(self, history_rps: FloatArray, origins: IntArray, leads: IntArray) -> FloatArray:
        """As :meth:`forecaster.expert.Expert.quantiles_at`."""
        roots = np.sqrt(history_rps)
        sums, lowest, highest = sums_of(roots), np.minimum.accumulate(roots), np.maximum.accumulate(roots)
        quantiles = np.empty((len(origins), len(LEVELS), len(leads), roots.shape[1]))
        refit_of = refits(origins)
        for refit in np.unique(refit_of):
            own = refit_of == refit
            level, near = _features(sums, origins[own])
            for group in np.unique(group_of(leads)):
                beta, residuals = self._fit(roots, sums, int(refit), int(group))
                center = level + np.einsum("kfn,fn->kn", near, beta)
                center = np.clip(center, lowest[origins[own] - 1], highest[origins[own] - 1])
                found = np.maximum(center[:, np.newaxis] + residuals, 0.0) ** 2
                at = group_of(leads) == group
                quantiles[np.ix_(own, np.arange(len(LEVELS)), at)] = found[:, :, np.newaxis]
        return quantiles

    def _fit(self, roots: FloatArray, sums: FloatArray, n_known: int, group: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients ``(F, n)`` and quantiles of residuals ``(L, n)``, from the first ``n_known`` steps."""
        first, end = (GROUP_ENDS[group - 1] if group else 0), GROUP_ENDS[group]
        last_row = n_known - end
        earliest = min(30, max(1, last_row // 4))
        if last_row <= earliest:
            # too little is known of leads this far: the level, with the spread of all that came
            level, _ = _features(sums, np.array([n_known]))
            return np.zeros((len(SPANS) - 1, roots.shape[1])), np.quantile(roots[:n_known] - level, LEVELS, axis=0)
        rows = np.unique(np.linspace(earliest, last_row, min(MAX_ROWS, last_row - earliest + 1)).astype(np.int64))
        level, near = _features(sums, rows)
        target = (sums[rows + end] - sums[rows + first]) / (end - first) - level
        gram = np.einsum("rfn,rgn->nfg", near, near)
        spread = np.trace(gram, axis1=1, axis2=2) / gram.shape[1] / len(rows)
        spread = np.maximum(spread, ROUNDING * (level**2).mean(axis=0))
        # Rows this near to each other tell of the same steps.
        overlap = max(1.0, (end - first) * len(rows) / (last_row - earliest + 1))
        penalty = (self.ridge * overlap * spread + 1e-300)[:, np.newaxis, np.newaxis] * np.eye(gram.shape[1])
        moment = np.einsum("rfn,rn->nf", near, target)
        beta = np.linalg.solve(gram + penalty, moment[..., np.newaxis])[..., 0].T
        center = level + np.einsum("rfn,fn->rn", near, beta)
        at = np.unique(np.linspace(first, end - 1, min(4, end - first)).astype(np.int64))
        residuals = (roots[rows[:, np.newaxis] + at] - center[:, np.newaxis]).reshape(-1, roots.shape[1])
        return beta, np.quantile(residuals, LEVELS, axis=0)


def refits(origins: IntArray, most: int = MAX_REFITS) -> IntArray:
    """For each origin how many steps its fit knows: those before it, or before an earlier origin.

    There are at most ``most`` fits, and the last origin's, which knows all.
    """
    n_parts = min(most, len(origins))
    starts = (np.arange(n_parts) * len(origins)) // n_parts
    found = origins[starts[np.searchsorted(starts, np.arange(len(origins)), side="right") - 1]]
    found[-1] = origins[-1]
    return found


def sums_of(values: FloatArray) -> FloatArray:
    """Sums over the steps before each one and before the one after the last, ``(T, n)`` → ``(T + 1, n)``."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def past_means(sums: FloatArray, at: IntArray) -> FloatArray:
    """Means over the :data:`SPANS` before each moment, from :func:`sums_of` what is averaged: ``(F + 1, K, n)``."""
    spans = np.array(SPANS)[:, np.newaxis]
    found: FloatArray = (sums[at] - sums[np.maximum(at - spans, 0)]) / np.minimum(spans, at)[:, :, np.newaxis]
    return found


def _features(sums: FloatArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
    """The level before each moment ``(K, n)``, and by how much nearer means differ from it ``(K, F, n)``."""
    means = past_means(sums, at)
    return means[-1], np.moveaxis(means[:-1] - means[-1], 0, 1)
