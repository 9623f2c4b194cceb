"""How long a worker takes from its start until it serves: process, CUDA context, libraries, weights."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from workloads.errors import WorkloadError

_SHIPPED = "worker_start.csv"
_ANY_MODEL = "*"


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """The start-up time of one tenant's workers. A worker is all that runs in one instance.

    Attributes:
        base_s: Median seconds when one worker starts alone, ≥ 0.
        slowdown_per_other: Share of ``base_s`` added for each other worker that starts at the same
            time, ≥ 0.
        jitter: Sigma of the lognormal factor around the planned time, ≥ 0; with 0 starts are exact.
        source: Who measured it.

    Raises:
        WorkloadError: A figure is not a finite number ≥ 0.
    """

    base_s: float
    slowdown_per_other: float = 0.0
    jitter: float = 0.0
    source: str = "config"

    def __post_init__(self) -> None:
        figures = {"base_s": self.base_s, "slowdown_per_other": self.slowdown_per_other, "jitter": self.jitter}
        for key, value in figures.items():
            if not (math.isfinite(value) and value >= 0):
                raise WorkloadError(f"worker_start.{key} is {value}; a finite number ≥ 0 is needed")

    def planned_s(self, n_at_once: int) -> float:
        """Seconds when ``n_at_once`` ≥ 1 workers start together, this one included, without jitter."""
        if n_at_once < 1:
            raise ValueError(f"n_at_once is {n_at_once}; the worker itself counts, so at least 1 is needed")
        return self.base_s * (1.0 + self.slowdown_per_other * (n_at_once - 1))

    def start_s(self, n_at_once: int, rng: np.random.Generator) -> float:
        """Seconds that one start takes: :meth:`planned_s` times a lognormal factor with median 1.

        One draw is taken from ``rng`` for each call, with or without jitter.
        """
        return self.planned_s(n_at_once) * math.exp(self.jitter * float(rng.standard_normal()))


def default_worker_start(model: str) -> WorkerStart:
    """The shipped median for ``model``; for a model that the source lacks, the median over its models."""
    table = _shipped()
    return table.get(model, table[_ANY_MODEL])


@cache
def _shipped() -> dict[str, WorkerStart]:
    text = (files("workloads.data") / _SHIPPED).read_text("utf-8")
    return {
        row["model"]: WorkerStart(
            base_s=float(row["start_s"]), slowdown_per_other=float(row["slowdown_per_other"]), source=row["source"]
        )
        for row in csv.DictReader(text.splitlines())
    }
