"""What chance decides about a tenant's requests, fixed by the run's seed: every policy sees the same.

Batch latencies may vary as measured steps do. Source: MISO's step times on MIG profiles of an A100-40GB
(``data/README.md``). They are steps of training: no source publishes batch by batch how long serving takes on a MIG
profile, so it is assumed to vary alike.
"""

from __future__ import annotations

import csv
import hashlib
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from executor.files import read_shipped
from workloads.arrays import FloatArray

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
            as measured steps of training do (:class:`StepFactors`).
    """

    seed: int
    spread: Spread

    def __post_init__(self) -> None:
        if self.spread != "measured" and not 0 <= self.spread < math.inf:
            raise ValueError(f"service jitter: spread {self.spread}: must be 'measured', or finite and at least 0")

    def factors(self, tenant: str, block: int) -> FloatArray:
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


def at_draw(drawing: np.random.Generator, n_drawn: int) -> np.random.Generator:
    """The fresh generator as it is after ``n_drawn`` numbers of :meth:`numpy.random.Generator.random`, at no cost."""
    bits = drawing.bit_generator
    assert isinstance(bits, np.random.PCG64)  # one step a number
    bits.advance(n_drawn)
    return drawing


@lru_cache(maxsize=256)
def _factors(jitter: ServiceJitter, tenant: str, block: int) -> FloatArray:
    drawn = generator(jitter.seed, tenant, f"service jitter {block}")
    if jitter.spread == "measured":
        factors = step_factors().drawn(drawn, JITTER_BLOCK)
    else:
        factors = drawn.lognormal(-(jitter.spread**2) / 2, jitter.spread, JITTER_BLOCK)
    factors.setflags(write=False)
    return factors


@dataclass(frozen=True, eq=False, slots=True)
class StepFactors:
    """How much measured steps of training vary: a distribution of factors on a step's mean time, of mean 1.

    Attributes:
        factors: Ascending, ``(n,)``, read-only.
        up_to: Which share of the steps has this factor or a smaller one; the last is 1, ``(n,)``, read-only.
    """

    factors: FloatArray
    up_to: FloatArray

    def drawn(self, rng: np.random.Generator, n: int) -> FloatArray:
        """``n`` independent factors, from ``n`` uniform numbers of ``rng``."""
        return self.factors[np.searchsorted(self.up_to, rng.random(n), side="right")]


@cache
def step_factors() -> StepFactors:
    """The shipped distribution. Its factors are rounded, so they are brought to mean 1 here."""
    rows = list(csv.DictReader(read_shipped("workloads.data", "step_factors.csv").decode().splitlines()))
    factors = np.array([float(row["factor"]) for row in rows])
    shares = np.array([float(row["share"]) for row in rows])
    factors /= (factors * shares).sum() / shares.sum()
    up_to = np.cumsum(shares) / shares.sum()
    up_to[-1] = 1.0  # whatever the sums round to, so that every uniform number below 1 finds a factor
    for array in (factors, up_to):
        array.setflags(write=False)
    return StepFactors(factors, up_to)
