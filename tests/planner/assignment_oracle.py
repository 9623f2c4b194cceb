"""The best assignment of all, by a dynamic program over sets of tenants: GPU after GPU, every set that it may have.

It shares nothing with the product. Rules that hold between GPUs (limits by node) are not in it: where there are any,
it may be worth more than every assignment that keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def most_worth(values: Sequence[Mapping[int, float]], n_tenants: int) -> float:
    """What the best assignment is worth; tenants may be left out.

    ``values`` are by GPU and by set of tenants, a bit each; a GPU may also be empty.
    """
    return float(_best(values, n_tenants).max())


def most_worth_by_number(values: Sequence[Mapping[int, float]], n_tenants: int) -> list[float]:
    """The same by how many tenants are placed, −inf where so many cannot be."""
    best = _best(values, n_tenants)
    placed = np.array([mask.bit_count() for mask in range(len(best))])
    return [float(best[placed == n].max()) for n in range(n_tenants + 1)]


def _best(values: Sequence[Mapping[int, float]], n_tenants: int) -> np.ndarray:
    """The most that the GPUs are worth by the set of tenants that they have, ``(2^n_tenants,)``."""
    masks = np.arange(1 << n_tenants)
    best = np.full(1 << n_tenants, -np.inf)
    best[0] = 0.0
    for by_set in values:
        after = best.copy()
        for members, worth in by_set.items():
            free = masks[masks & members == 0]
            after[free | members] = np.maximum(after[free | members], best[free] + worth)
        best = after
    return best
