"""What workers of tests run, and modules that a zygote had better not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NoReturn

from executor.zygote import Reporter, Zygote

SECRET = os.urandom(8).hex()
"""Another one wherever this module is imported anew."""


def returns(reporter: Reporter, code: int) -> int:
    reporter.reached("ready")
    return code


def tells(reporter: Reporter, what: str) -> None:
    told = {
        "secret": lambda: SECRET,
        "OMP_NUM_THREADS": lambda: os.environ["OMP_NUM_THREADS"],
        "COLOUR": lambda: os.environ["COLOUR"],
        "session": lambda: str(os.getsid(0) == os.getpid()),
        "luck": lambda: repr(__import__("random").random()),
    }
    reporter.reached(told[what]())


def prints(reporter: Reporter, text: str) -> None:  # noqa: ARG001
    os.write(1, text.encode())
    os.write(2, b"!\n")


def raises(reporter: Reporter) -> NoReturn:  # noqa: ARG001
    raise ValueError("no such\nthing")


def leaves(reporter: Reporter, code: int | str | None) -> NoReturn:  # noqa: ARG001
    sys.exit(code)


def says_nonsense(reporter: Reporter) -> None:
    reporter._connection.send(b"nonsense")


def waits(reporter: Reporter) -> None:
    reporter.reached("ready")
    signal.pause()


def ignores(reporter: Reporter) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reporter.reached("ready")
    while True:
        signal.pause()


def says_goodbye(reporter: Reporter) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    reporter.reached("ready")
    signal.pause()


def has_a_child(reporter: Reporter) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        reporter.reached(str(child.pid))
        signal.pause()


def leaves_a_child_behind(reporter: Reporter) -> None:
    """It holds the connection, and is in a session of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pause()
    reporter.reached(str(pid))
    signal.pause()


def controls(*workers: str) -> None:
    """A controller: tells the pids of its zygote and workers, and hangs."""
    zygote = Zygote()
    for function in workers:
        zygote.start(f"tests.executor.zygote_workers:{function}")
    n_ready, until_s = 0, time.monotonic() + 20
    while n_ready < len(workers) and time.monotonic() < until_s:
        n_ready += sum(type(event).__name__ == "Reached" for event in zygote.events(1.0))
    sys.stdout.write(f"{zygote.pid} {' '.join(map(str, zygote.workers.values()))}\n")
    sys.stdout.flush()
    signal.pause()
