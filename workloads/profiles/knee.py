"""Mudi's curve: latency by share of a GPU as two lines that meet at a knee.

Source: Mudi (EuroSys '25), equation 1 of §4.1.1. One thing is ours: the knee is that of the least squares over all
inner samples, where the paper names the lowest curvature. Of the tests' 500 curves with 2 % noise, this finds more than
80 % of the knees.

Symbols: s a share, y a latency; d and l the knee's share and latency; k1 and k2 the slopes before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from workloads.arrays import FloatArray

LEAST_SAMPLES = 5
"""Shares that a curve is fitted to, at least: two lines with a knee have four parameters."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Latency by share: two lines between the samples; below them, and beyond, at most in proportion to the share.

    Attributes:
        share: d, 0 to 1.
        latency_s: l, there.
        before: k1, seconds a share below d; usually negative, and far.
        after: k2, beyond it.
        least: The smallest share that was sampled.
        most: The largest.
    """

    share: float
    latency_s: float
    before: float
    after: float
    least: float
    most: float

    def _line(self, share: float) -> float:
        return self.latency_s + (self.before if share <= self.share else self.after) * (share - self.share)

    def at(self, share: float) -> float:
        """Seconds on a ``share`` > 0."""
        if share < self.least:
            return self._line(self.least) * self.least / share
        if share > self.most:
            # No batch gains more by a larger share than the share has grown, nor loses by it.
            return max(self._line(self.most) * self.most / share, min(self._line(share), self._line(self.most)))
        return self._line(share)

    def fastest(self, share: float) -> float:
        """Seconds on a ``share`` > 0, or on a smaller one where the lines say that it is faster."""
        return min(self.at(own) for own in (share, self.least, self.share) if own <= share)

    def least_share(self, latency_s: float) -> float | None:
        """The least share ≤ 1 on which a batch takes ``latency_s`` > 0 at most; ``None`` where there is none."""
        first_s, last_s = self._line(self.least), self._line(self.most)
        if first_s <= latency_s:
            return self.least * first_s / latency_s
        if self.latency_s <= latency_s:
            return self.share + (latency_s - self.latency_s) / self.before
        if last_s <= latency_s:
            return self.share + (latency_s - self.latency_s) / self.after
        if self.after >= 0:
            return None
        found = max(self.most * last_s / latency_s, self.share + (latency_s - self.latency_s) / self.after)
        return min(found, 1.0) if found <= 1 + 1e-9 else None


def fitted(shares: Sequence[float], latency_s: Sequence[float] | FloatArray) -> Knee:
    """The two lines of the least squares, over all knees among the inner samples.

    Raises:
        ValueError: Fewer than ``LEAST_SAMPLES`` shares, not ascending, or not as many latencies.
    """
    return fitted_all(shares, np.asarray(latency_s, dtype=np.float64)[None])[0]


def fitted_all(shares: Sequence[float], latency_s: FloatArray) -> list[Knee]:
    """The same for many curves on the same shares, ``(n_curves, n_shares)``."""
    if len(shares) < LEAST_SAMPLES or list(shares) != sorted(set(shares)) or latency_s.shape[1:] != (len(shares),):
        raise ValueError(f"{LEAST_SAMPLES} ascending shares or more are needed, a latency each; got {list(shares)}")
    designs, inverses = _designs(tuple(shares))
    found = np.einsum("kps,cs->ckp", inverses, latency_s)
    left = np.einsum("ksp,ckp->cks", designs, found) - latency_s[:, None]
    best = (left**2).sum(axis=2).argmin(axis=1)
    lines = found[np.arange(len(best)), best].tolist()
    return [
        Knee(shares[1 + place], level, before, after, least=shares[0], most=shares[-1])
        for place, (level, before, after) in zip(best.tolist(), lines, strict=True)
    ]


@cache
def _designs(shares: tuple[float, ...]) -> tuple[FloatArray, FloatArray]:
    """For each knee what l, k1 and k2 are multiplied by, and the pseudo-inverse of that.

    Shapes: ``(n_knees, n_shares, 3)`` and ``(n_knees, 3, n_shares)``.
    """
    beyond = np.asarray(shares) - np.asarray(shares[1:-1])[:, None]
    designs = np.stack([np.ones_like(beyond), np.minimum(beyond, 0.0), np.maximum(beyond, 0.0)], axis=2)
    return designs, np.linalg.pinv(designs)
