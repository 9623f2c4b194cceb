"""That a process does not outlive the one that started it, as far as the kernel helps."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def signal_at_end_of_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process the signal when the *thread* that started it ends; nothing but on Linux.

    ``prctl(PR_SET_PDEATHSIG)``, which a fork does not hand on. A parent that has ended by now is not noticed: look
    whether ``os.getppid()`` is still what it was.

    Raises:
        OSError: The kernel refuses.
    """
    if sys.platform == "linux" and _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
