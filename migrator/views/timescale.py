"""A window's steps on the columns of a terminal: what a column stands for, and the numbers under it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_TICK_COLUMNS = 8
"""Columns between two numbers of an axis, at least."""

_MOST_COLUMNS = 8
"""Columns of one step, at most: three steps need no whole line."""


@dataclass(frozen=True, slots=True)
class TimeScale:
    """``n_steps`` steps on ``width`` columns: several steps a column, or several columns a step.

    Attributes:
        n_steps: Steps of the window.
        width: Columns.
    """

    n_steps: int
    width: int

    @classmethod
    def within(cls, n_steps: int, n_columns: int) -> TimeScale:
        """The scale that fills at most ``n_columns``; short windows get whole columns for every step."""
        columns = max(1, n_columns)
        return cls(n_steps, columns if n_steps >= columns else n_steps * min(_MOST_COLUMNS, columns // n_steps))

    @property
    def edges(self) -> FloatArray:
        """Where columns begin and end, in steps, ``(width + 1,)``."""
        return np.linspace(0.0, self.n_steps, self.width + 1)

    def overlaps(self, from_step: int, to_step: int) -> FloatArray:
        """How much of each column lies within ``[from_step, to_step)``, in steps, ``(width,)``."""
        edges = self.edges
        shared = np.minimum(edges[1:], to_step) - np.maximum(edges[:-1], from_step)
        return np.asarray(np.maximum(0.0, shared), dtype=np.float64)

    def means(self, values: FloatArray) -> FloatArray:
        """The mean over each column of values by step: ``(n_steps,) → (width,)``."""
        sums = np.concatenate([[0.0], np.cumsum(values)])
        at_edges = np.interp(self.edges, np.arange(self.n_steps + 1), sums)
        return np.asarray(np.diff(at_edges) * self.width / self.n_steps, dtype=np.float64)

    def axis(self) -> str:
        """Step numbers, each where its step begins; the window's end where there is room for it."""
        line = ""
        for step in range(0, self.n_steps, self._tick()):
            column = round(step / self.n_steps * self.width)
            line = line.ljust(column) + str(step)
        end = str(self.n_steps)
        return line.ljust(self.width - len(end)) + end if len(line) < self.width - len(end) else line

    def _tick(self) -> int:
        """The least 1, 2 or 5 times a power of ten whose numbers do not crowd."""
        least = max(_TICK_COLUMNS, len(str(self.n_steps)) + 3)
        for power, digit in product(range(len(str(self.n_steps)) + 1), (1, 2, 5)):
            step: int = digit * 10**power
            if step / self.n_steps * self.width >= least:
                return step
        return self.n_steps
