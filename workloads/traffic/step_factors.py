"""How much measured steps of training vary around their mean: the shipped distribution, and draws from it.

Source: MISO's step times on MIG profiles of an A100-40GB (``data/README.md``). They are steps of training; nobody
published batch by batch how long serving takes on a MIG profile, so it is assumed to vary alike.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_SHIPPED = "step_factors.csv"


@dataclass(frozen=True, eq=False, slots=True)
class StepFactors:
    """A distribution of factors on a step's mean time. The factors' mean is 1.

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
    rows = list(csv.DictReader((files("workloads.data") / _SHIPPED).read_text("utf-8").splitlines()))
    factors = np.array([float(row["factor"]) for row in rows])
    shares = np.array([float(row["share"]) for row in rows])
    factors /= (factors * shares).sum() / shares.sum()
    up_to = np.cumsum(shares) / shares.sum()
    up_to[-1] = 1.0  # whatever the sums round to, so that every uniform number below 1 finds a factor
    for array in (factors, up_to):
        array.setflags(write=False)
    return StepFactors(factors, up_to)
