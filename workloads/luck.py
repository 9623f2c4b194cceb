"""What chance decides about a tenant's requests, fixed by the run's seed: every policy meets the same."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

JITTER_BLOCK = 256
"""Batches whose factors are drawn at once; part of what a seed means."""


@dataclass(frozen=True, slots=True)
class ServiceJitter:
    """Lognormal factors of mean 1 on batch latencies, fixed by (seed, tenant, number of the batch).

    Drops are judged on the planned latency, so jitter is the only way for an answer to be late.

    Attributes:
        seed: The run's seed.
        sigma: Standard deviation of the factor's logarithm, ≥ 0.
    """

    seed: int
    sigma: float

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf:
            raise ValueError(f"service jitter: sigma {self.sigma}: must be finite and at least 0")

    def factor(self, tenant: str, batch_number: int) -> float:
        """What the latency of this batch is multiplied by."""
        block, place = divmod(batch_number, JITTER_BLOCK)
        return _numbers(self, tenant, block)[place]

    def factors(self, tenant: str, block: int) -> NDArray[np.float64]:
        """The factors of batches from ``block * JITTER_BLOCK`` on, ``(JITTER_BLOCK,)``. Read-only."""
        return _factors(self, tenant, block)


def generator(seed: int, tenant: str, purpose: str) -> np.random.Generator:
    """Random numbers fixed by the three, and unrelated between any two different triples."""
    digest = hashlib.sha256(repr((seed, tenant, purpose)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


@lru_cache(maxsize=256)
def _factors(jitter: ServiceJitter, tenant: str, block: int) -> NDArray[np.float64]:
    drawn = generator(jitter.seed, tenant, f"service jitter {block}")
    factors = drawn.lognormal(-(jitter.sigma**2) / 2, jitter.sigma, JITTER_BLOCK)
    factors.setflags(write=False)
    return factors


@lru_cache(maxsize=256)
def _numbers(jitter: ServiceJitter, tenant: str, block: int) -> tuple[float, ...]:
    return tuple(_factors(jitter, tenant, block).tolist())
