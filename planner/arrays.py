"""Arrays as compiled loops take them, and sums and groups over them that engines and checker make alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


def sums_before(values: Floats, axis: int = 0) -> Floats:
    """What the entries before each add up to along an axis, which gets one longer."""
    sums = np.zeros([size + (dimension == axis) for dimension, size in enumerate(values.shape)])
    np.cumsum(values, axis=axis, out=sums[(slice(None),) * axis + (slice(1, None),)])
    return sums


def agreeing(states: Int64s) -> Int64s:
    """By subset of tenants, the number of each state among those that agree on the tenants outside it, ``(2^M, K)``.

    Bit m of a subset is tenant m; ``states`` are ``(K, M)``.
    """
    n_states, n_tenants = states.shape
    out = np.zeros((1 << n_tenants, n_states), dtype=np.int64)  # all agree on no tenant
    for subset in range((1 << n_tenants) - 1):
        others = [m for m in range(n_tenants) if not subset >> m & 1]
        out[subset] = np.unique(states[:, others], axis=0, return_inverse=True)[1].reshape(-1)
    return out
