"""When two retrainings start best, given what each start is worth and where they may overlap.

===========  ==========================================================================
values       goodput by start step, ``(n_starts,)``; −inf where there is no room
together     whether the two may be occupied at once, by step, ``(n_steps,)``
===========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.problem import FloatArray

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Startable:
    """A retraining that takes ``n_steps`` from its start on; 0 for one that does not run."""

    values: FloatArray
    n_steps: int


def free_starts(is_open: BoolArray, n_steps: int) -> BoolArray:
    """From which steps on ``n_steps`` steps are open, ``(n − n_steps + 1,)``."""
    closed = np.concatenate([[0], np.cumsum(~is_open)])
    return np.asarray(closed[n_steps:] == closed[: len(closed) - n_steps], dtype=np.bool_)


def best_starts(first: Startable, second: Startable, together: BoolArray) -> tuple[float, int, int]:
    """The best sum and its starts, the earliest of equals; −inf if there are none."""
    if not first.n_steps or not second.n_steps or together.all():
        a, b = int(first.values.argmax()), int(second.values.argmax())
        return float(first.values[a] + second.values[b]), a, b
    best = (-np.inf, 0, 0)
    for own, other in _ranges(first, second, together):
        a_in, b_in = _argmax_in(first.values, own), _argmax_in(second.values, other)
        if a_in is not None and b_in is not None:
            best = max(best, (float(first.values[a_in] + second.values[b_in]), -a_in, -b_in))
    ahead, behind = _in_turn(first, second), _in_turn(second, first)
    best = max(best, (ahead[0], -ahead[1], -ahead[2]), (behind[0], -behind[2], -behind[1]))
    return best[0], -best[1], -best[2]


_Range = tuple[int, int]


def _ranges(first: Startable, second: Startable, together: BoolArray) -> Iterator[tuple[_Range, _Range]]:
    """Ranges of starts, each with all of the other's, that overlap only within one run of ``together``.

    Two retrainings overlap from the later start to the earlier end. That stays within [u, w) iff
    one of the two starts is ≥ u and one of the two ends ≤ w: four ways to choose the ones.
    """
    edges = np.flatnonzero(np.diff(together, prepend=False, append=False))
    most = len(together)
    for u, w in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        ends = (w - first.n_steps + 1, w - second.n_steps + 1)
        yield (u, ends[0]), (0, most)
        yield (0, most), (u, ends[1])
        yield (u, most), (0, ends[1])
        yield (0, ends[0]), (u, most)


def _argmax_in(values: FloatArray, span: _Range) -> int | None:
    """The first best position in [first, last) of the range; ``None`` if the range holds none."""
    part = values[max(span[0], 0) : max(span[1], 0)]
    return max(span[0], 0) + int(part.argmax()) if len(part) else None


def _in_turn(first: Startable, second: Startable) -> tuple[float, int, int]:
    """The best of the first and of the second after its end."""
    n_starts = len(second.values) - first.n_steps
    if n_starts <= 0:
        return -np.inf, 0, 0
    before = np.maximum.accumulate(first.values)
    sums = before[np.minimum(np.arange(n_starts), len(before) - 1)] + second.values[first.n_steps :]
    start = int(sums.argmax())
    return float(sums[start]), int(first.values[: start + 1].argmax()), start + first.n_steps
