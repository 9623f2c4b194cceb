"""Time enters through a ``Clock``, so that a simulated window of 200 s takes no waiting and a test no sleep."""

from __future__ import annotations

import math
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only runs forwards, and a way to wait for it."""

    @property
    def now_s(self) -> float:
        """Seconds since the clock's own zero."""

    def sleep_until(self, time_s: float) -> None:
        """Return once ``now_s`` ≥ ``time_s``; immediately if it already is."""


class VirtualClock:
    """A clock that stands still until a caller waits on it, and then jumps."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = _finite(start_s)

    def __repr__(self) -> str:
        return f"VirtualClock(now_s={self._now_s})"

    @property
    def now_s(self) -> float:
        """Virtual seconds, starting at ``start_s``."""
        return self._now_s

    def sleep_until(self, time_s: float) -> None:
        """Set the clock to ``time_s``, or leave it where that is past.

        Raises:
            ValueError: ``time_s`` is not finite; the clock could never go on.
        """
        self._now_s = max(self._now_s, _finite(time_s))


class WallClock:
    """The machine's own clock, which runs whether anybody waits or not; its zero is when it was made."""

    def __init__(self) -> None:
        self._zero_s = time.monotonic()

    @property
    def now_s(self) -> float:
        """Seconds since it was made; never falls."""
        return time.monotonic() - self._zero_s

    def sleep_until(self, time_s: float) -> None:
        """Sleep until then; immediately back if that is past.

        Raises:
            ValueError: ``time_s`` is not finite.
        """
        left_s = _finite(time_s) - self.now_s
        if left_s > 0:
            time.sleep(left_s)


def _finite(time_s: float) -> float:
    if not math.isfinite(time_s):
        raise ValueError(f"a clock cannot show {time_s} s; allowed: finite seconds")
    return float(time_s)
