"""TERM and HUP end the program as Ctrl-C does: children end, what is half written goes, and a log stays whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)
"""What a supervisor sends, and what a terminal that is closed."""


@contextmanager
def terminations_interrupt() -> Iterator[list[signal.Signals]]:
    """Inside, the first of these signals raises ``KeyboardInterrupt``; which one it was is in the list then.

    More of them are ignored, so that nothing is cut short that the first one began. Signals that are ignored on entry
    (``nohup``) stay so.
    """
    received: list[signal.Signals] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        for one in TERMINATIONS:
            signal.signal(one, signal.SIG_IGN)
        received.append(signal.Signals(number))
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread hears signals
        return
    before = {one: signal.getsignal(one) for one in TERMINATIONS}
    for one, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(one, interrupt)
    try:
        yield received
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
