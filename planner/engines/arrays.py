"""Arrays as compiled loops take them, and how their functions are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """``function`` compiled at its first call, kept on disk, and free to run beside other threads."""
    # numba has no types: this is the one place where that shows.
    return cast("_Function", numba.njit(cache=True, nogil=True)(function))
