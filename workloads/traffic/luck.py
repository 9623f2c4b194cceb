"""What chance decides about a tenant's requests, fixed by the run's seed: every policy meets the same."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workloads.traffic.step_factors import step_factors

JITTER_BLOCK = 256
"""Batches whose factors are drawn at once; part of what a seed means."""


Spread = float | Literal["measured"]
"""How much batch latencies vary: a sigma, or as was measured."""


@dataclass(frozen=True, slots=True)
class ServiceJitter:
    """Factors of mean 1 on batch latencies, fixed by (seed, tenant, number of the batch).

    Drops are judged on the planned latency, so jitter is the only way for an answer to be late.

    Attributes:
        seed: The run's seed.
        spread: Standard deviation of the logarithm of lognormal factors, ≥ 0; or ``"measured"``, factors that vary
            as measured steps of training do (:mod:`workloads.traffic.step_factors`).
    """

    seed: int
    spread: Spread

    def __post_init__(self) -> None:
        if self.spread != "measured" and not 0 <= self.spread < math.inf:
            raise ValueError(f"service jitter: spread {self.spread}: must be 'measured', or finite and at least 0")

    def factors(self, tenant: str, block: int) -> NDArray[np.float64]:
        """What the latencies of batches from ``block * JITTER_BLOCK`` on are multiplied by, ``(JITTER_BLOCK,)``.

        The array is read-only.
        """
        return _factors(self, tenant, block)


def service_jitter(seed: int, spread: Spread) -> ServiceJitter | None:
    """The jitter of a run; ``None`` where the spread is 0, so that every batch takes what is planned."""
    return None if spread == 0 else ServiceJitter(seed, spread)


def generator(seed: int, tenant: str, purpose: str) -> np.random.Generator:
    """Random numbers fixed by the three, and unrelated between any two different triples."""
    digest = hashlib.sha256(repr((seed, tenant, purpose)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


@lru_cache(maxsize=256)
def _factors(jitter: ServiceJitter, tenant: str, block: int) -> NDArray[np.float64]:
    drawn = generator(jitter.seed, tenant, f"service jitter {block}")
    if jitter.spread == "measured":
        factors = step_factors().drawn(drawn, JITTER_BLOCK)
    else:
        factors = drawn.lognormal(-(jitter.spread**2) / 2, jitter.spread, JITTER_BLOCK)
    factors.setflags(write=False)
    return factors
