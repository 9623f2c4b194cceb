"""How the time of what a process does over and over is taken: of its batches, or of the steps of its retraining."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from migrator.profiling.record import Stretch

LEAST_PASSES = 3
"""A stretch holds no fewer batches or steps, however long they take."""


class Stopwatch:
    """Takes the time of one process's passes, which follow each other without a pause.

    Attributes:
        n_passes: Done so far.
        stretch: What was measured; ``None`` until it is.
    """

    def __init__(self, samples_per_pass: float, cpu_s: Callable[[], float]) -> None:
        """``cpu_s`` is the CPU time that the process has used so far."""
        self.n_passes = 0
        self.stretch: Stretch | None = None
        self._samples_per_pass, self._cpu_s = samples_per_pass, cpu_s
        self._from_s = self._until_s = self._cpu_since_s = 0.0
        self._is_asked = False
        self._took_s: list[float] | None = None

    def measure(self, from_s: float, until_s: float) -> None:
        """Measure what begins after the one moment, until something ends after the other."""
        self._is_asked, self._from_s, self._until_s = True, from_s, until_s

    def passed(self, took_s: Sequence[float], at_s: float) -> None:
        """These passes are done, the last of them at ``at_s``."""
        self.n_passes += len(took_s)
        if not self._is_asked or self.stretch is not None:
            return
        if self._took_s is None:
            if at_s >= self._from_s:  # the next pass is the first that counts
                self._took_s, self._cpu_since_s = [], self._cpu_s()
            return
        self._took_s += took_s
        if at_s >= self._until_s and len(self._took_s) >= LEAST_PASSES:
            self.stretch = Stretch(
                n_passes=len(self._took_s),
                n_samples=len(self._took_s) * self._samples_per_pass,
                span_s=sum(self._took_s),
                median_s=float(np.median(self._took_s)),
                p95_s=float(np.quantile(self._took_s, 0.95, method="higher")),
                cpu_s=self._cpu_s() - self._cpu_since_s,
            )
