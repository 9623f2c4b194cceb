"""Arrays as the engines and their compiled loops take them, and how those are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """``function`` compiled at its first call, kept on disk, and free to run beside other threads."""
    import numba  # noqa: PLC0415 (heavy: what compiles nothing does without it)

    # numba has no types: this is the one place where that shows.
    return cast("_Function", numba.njit(cache=True, nogil=True)(function))
