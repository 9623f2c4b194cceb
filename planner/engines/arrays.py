"""Arrays as the engines and their compiled loops take them."""

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
