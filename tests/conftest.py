"""What holds for all tests."""

from __future__ import annotations

import signal

from tests.standin.fixtures import make_standin, programs

__all__ = ["make_standin", "programs"]

# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
