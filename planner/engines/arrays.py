"""Arrays as the engines and their compiled loops take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
