"""What the processes of live serving have in common: how they get their orders, and that they never outlive others.

The end of a parent is noticed twice. Where there is ``prctl`` (Linux), the kernel kills its children at once, whatever
they do; the dispatcher, which runs no code but ours, is asked to end, and still answers its clients. It goes by the
*thread* that started them, so they are to be started from a thread that stays. Everywhere the processes also look now
and then whether their parent is still the one that they began with.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from executor.processes import signal_at_end_of_parent
from workloads.errors import WorkloadError

DOOR_SETUP = "door.json"
"""The file in the processes' folder from which a front door takes another setup."""


class Parent:
    """The process that started this one, by its id: it may have ended before this one could look.

    Interrupts are left to it: Ctrl-C reaches all processes of a terminal, and it alone knows what to do then.
    ``at_its_end`` is what the kernel sends to this process then.
    """

    def __init__(self, pid: int, at_its_end: signal.Signals = signal.SIGKILL) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._pid = pid
        signal_at_end_of_parent(at_its_end)

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, so that this process has another parent now."""
        return os.getppid() != self._pid


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a child that runs the module; its ``main`` begins with :func:`begun`."""
    return [sys.executable, "-m", module, str(os.getpid()), *arguments]


def begun(
    arguments: Sequence[str], n_needed: int, at_its_end: signal.Signals = signal.SIGKILL
) -> tuple[Parent, Sequence[str]]:
    """The parent, and the arguments that are left for the module.

    Raises:
        WorkloadError: They are not what :func:`command` makes of so many arguments.
    """
    pid, *rest = arguments or [""]
    if not pid.isdecimal() or len(rest) != n_needed:
        raise WorkloadError(f"{len(arguments)} arguments; allowed: the parent's process id and {n_needed} more")
    return Parent(int(pid), at_its_end), rest
