"""INT, TERM and HUP end what is under way in order: children end, a GPU is cleared, and a log stays whole.

The first of them raises ``KeyboardInterrupt`` on the main thread, as Ctrl-C does anyway. Later ones are ignored, so
that they cut nothing short that the first began; but Ctrl-C once more does. A service that serves raises nothing at
the first: it drains, but HUP has it read its config anew. Every other signal ends the program as the system has it: the
next command on a GPU then says what is left there.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType

from migrator.errors import ExitCode, StoppedError
from migrator.terminal.console import warn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What Ctrl-C sends, a supervisor, and a terminal that is closed."""

_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
"""What is done at a signal of which a program has said nothing."""


class Interruption:
    """What interrupts the work under way: a signal, or the event of the program that asked for the work.

    Attributes:
        stop: Set by that program, from any thread; ``None``: it has none.
        received: The signals, in order.
        is_due: Whether one was put off, and is to be raised when the work has ended.
    """

    def __init__(self, stop: threading.Event | None = None, received: list[signal.Signals] | None = None) -> None:
        """``received`` is that of the work of which this one is a part."""
        self.stop, self.is_due, self._puts_off, self._is_lost = stop, False, False, False
        self._lets_drain = self._asks_anew = False
        self.received: list[signal.Signals] = [] if received is None else received

    def check(self) -> None:
        """End the work if it is to end: a signal does so here at the latest, where Python has dropped its interrupt.

        Raises:
            KeyboardInterrupt: A signal was received.
            StoppedError: The event is set.
        """
        if self.received and not self._lets_drain:
            raise KeyboardInterrupt
        if self.stop is not None and self.stop.is_set():
            raise StoppedError("stopped, as the event given as stop was set")

    def put_off(self) -> None:
        """Let the first signal wait, from now on, until the work has ended: what ends it is not cut short."""
        self._puts_off = True

    def let_serve(self) -> None:
        """From now on the first signal interrupts nothing: :attr:`drains` tells of it, and the work ends by itself.

        HUP is none that ends anything: :meth:`asked_anew` tells of it.
        """
        self._lets_drain = True

    def asked_anew(self) -> bool:
        """Whether HUP was received since this was asked last."""
        asks, self._asks_anew = self._asks_anew, False
        return asks

    @property
    def drains(self) -> bool:
        """Whether the work is to end as it may; Ctrl-C once more ends it at once."""
        return self._lets_drain and bool(self.received)

    def hear(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        if number == signal.SIGHUP and self._lets_drain:
            self._asks_anew = True
            return
        is_first = not self.received
        self.received.append(signal.Signals(number))
        if is_first and self._lets_drain:
            return
        if is_first and self._puts_off:
            self.is_due = True
        elif is_first or number == signal.SIGINT or self._is_lost:
            self._is_lost = False
            raise KeyboardInterrupt

    def lose(self) -> None:
        """Know that Python has dropped an interrupt, as it was raised inside a finalizer, or a callback of C's."""
        self._is_lost = True


@contextmanager
def interruptible(stop: threading.Event | None = None) -> Iterator[Interruption]:
    """Inside, signals end what is under way, in a context around this one, too; ``stop`` does where it is checked.

    Signals that are ignored on entry (``nohup``), or for which the program has a handler of its own, stay so. Off the
    main thread no signal can be heard; a warning says so, once a program.
    """
    if threading.current_thread() is not threading.main_thread():
        _tell_that_none_is_heard()
        yield Interruption(stop)
        return
    before = {one: signal.getsignal(one) for one in SIGNALS}
    outer = [own for handler in before.values() if isinstance(own := getattr(handler, "__self__", None), Interruption)]
    here = Interruption(stop, outer[0].received if outer else None)
    for one, handler in before.items():
        if handler in _DEFAULTS or getattr(handler, "__self__", None) in outer:
            signal.signal(one, here.hear)
    try:
        with _losing_quietly(here):
            yield here
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if here.is_due:
        raise KeyboardInterrupt


@contextmanager
def _losing_quietly(here: Interruption) -> Iterator[None]:
    """Without Python's complaint of interrupts that it drops: compiled code calls back while it is loaded."""
    usual = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            here.lose()
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


@cache
def _tell_that_none_is_heard() -> None:
    warn(
        "this run is not on the program's main thread and hears no signals: SIGTERM and SIGHUP kill it, and leave what "
        "it has made on a GPU; to end it, give it stop=threading.Event(), and set that"
    )


def exit_code(received: Sequence[signal.Signals]) -> int:
    """The exit code that shells expect of what the first signal has ended: 128 and its number."""
    return 128 + received[0] if received else ExitCode.INTERRUPTED
