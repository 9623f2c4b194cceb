"""The arrays of the request simulation, and how its loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """``function`` compiled at its first call, kept on disk, and free to run beside other threads."""
    # numba has no types: these two casts are the only places where that shows.
    return cast("_Function", numba.njit(cache=True, nogil=True)(function))


def inlined(function: _Function) -> _Function:
    """``function`` as a part of the compiled functions that call it, which must stand in the same file.

    numba looks at that file alone to see whether the code kept on disk is still valid.
    """
    return cast("_Function", numba.njit(inline="always")(function))
