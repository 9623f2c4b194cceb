"""Time enters through a ``Clock``, so that a simulated window of 200 s takes no waiting and a test no sleep."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A clock that only runs forwards, and a way to wait for it."""

    @property
    def runs_by_itself(self) -> bool:
        """Whether time passes without a waiter; where it does not, waiting moves the clock on."""

    @property
    def now_s(self) -> float:
        """Seconds since the clock's own zero."""

    def sleep_until(self, time_s: float) -> None:
        """Return once ``now_s`` ≥ ``time_s``; immediately if it already is."""

    def wait(self, until_s: float) -> None:
        """As :meth:`sleep_until`, but back earlier if another thread wakes the clock, or has since the last wait."""

    def wake(self) -> None:
        """End a wait, from any thread."""


class VirtualClock:
    """A clock that stands still until a caller waits on it, and then jumps."""

    runs_by_itself = False

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

    def wait(self, until_s: float) -> None:
        """Set the clock to ``until_s``, or leave it where that is past: nothing happens without a waiter."""
        self.sleep_until(until_s)

    def wake(self) -> None:
        """Do nothing: there is no waiter."""


class WallClock:
    """The machine's own clock, which runs with and without waiters.

    It begins to run when it is first looked at, and then shows ``start_s``. It shows ``rate`` seconds more each second.
    """

    runs_by_itself = True

    def __init__(self, start_s: float = 0.0, rate: float = 1.0) -> None:
        self._start_s, self._rate = _finite(start_s), rate
        self._begin_s: float | None = None
        self._woken = threading.Event()

    @property
    def now_s(self) -> float:
        """Seconds; never falls."""
        now_s = time.monotonic()
        if self._begin_s is None:
            self._begin_s = now_s
        return self._start_s + self._rate * (now_s - self._begin_s)

    def sleep_until(self, time_s: float) -> None:
        """Sleep until then; immediately back if that is past.

        Raises:
            ValueError: ``time_s`` is not finite.
        """
        left_s = (_finite(time_s) - self.now_s) / self._rate
        if left_s > 0:
            time.sleep(left_s)

    def wait(self, until_s: float) -> None:
        """Sleep until then or until woken; immediately back if that is past.

        Raises:
            ValueError: ``until_s`` is not finite.
        """
        left_s = (_finite(until_s) - self.now_s) / self._rate
        if left_s > 0:
            self._woken.wait(left_s)
        self._woken.clear()

    def wake(self) -> None:
        """End a wait, from any thread; the next one, if there is none."""
        self._woken.set()


def _finite(time_s: float) -> float:
    if not math.isfinite(time_s):
        raise ValueError(f"a clock cannot show {time_s} s; allowed: finite seconds")
    return float(time_s)
