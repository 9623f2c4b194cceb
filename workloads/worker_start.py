"""How long a worker takes from its start until it serves, in two phases: loading libraries, loading the model.

The paper (Figure 5) tells four phases of a change apart: instance destruction, instance initialisation,
library load, model load. The first two are driver calls and belong to the GPU (``executor``); the last
two happen in the worker and are told apart here.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
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
        library_s: The part of ``base_s`` that loads libraries; the rest loads the model.

    Raises:
        WorkloadError: A figure is not a finite number ≥ 0, or ``library_s`` exceeds ``base_s``.
    """

    base_s: float
    slowdown_per_other: float = 0.0
    jitter: float = 0.0
    source: str = "config"
    library_s: float = 0.0

    def __post_init__(self) -> None:
        keys = ("base_s", "slowdown_per_other", "jitter", "library_s")
        figures = {key: getattr(self, key) for key in keys}
        for key, value in figures.items():
            if not (math.isfinite(value) and value >= 0):
                raise WorkloadError(f"worker_start.{key} is {value}; a finite number ≥ 0 is needed")
        if self.library_s > self.base_s:
            raise WorkloadError(
                f"worker_start.library_s is {self.library_s}; at most base_s, {self.base_s}, is allowed"
            )

    def lasting(self, base_s: float, source: str) -> WorkerStart:
        """The same start-up with another length, divided into its phases in the same proportion."""
        library_s, _ = self.phases_s(base_s)
        return replace(self, base_s=base_s, library_s=library_s, source=source)

    def phases_s(self, start_s: float) -> tuple[float, float]:
        """``(library load, model load)`` of a start that took ``start_s``: each stretched alike."""
        library_s = start_s * self.library_s / self.base_s if self.base_s > 0 else 0.0
        return library_s, start_s - library_s

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
            base_s=float(row["library_s"]) + float(row["model_s"]),
            slowdown_per_other=float(row["slowdown_per_other"]),
            source=row["source"],
            library_s=float(row["library_s"]),
        )
        for row in csv.DictReader(text.splitlines())
    }
