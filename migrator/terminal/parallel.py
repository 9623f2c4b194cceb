"""One function on many items at once, in processes of its own, none of which outlives its parent.

Interrupts go to the parent alone. When it ends, for whatever reason, the processes end, even in the middle of a call.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self, TypeVar

from executor.files import LIMIT
from migrator.errors import MigratorError
from migrator.terminal.signals import SIGNALS

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Processes:
    """One or more processes that wait for work; they end with the context.

    Functions, items and results have to be picklable. Use a process even for one job: compiled code in this process
    would delay an interrupt.
    """

    def __init__(self, n_processes: int, prepare: Callable[[], None] | None = None) -> None:
        """``prepare`` is called first in each process."""
        self._n_processes = n_processes
        self._others = set(multiprocessing.active_children())
        # Spawned, not forked: compiled kernels and their threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        with interrupts_put_off():  # what tracks their resources starts here, and has to outlive them
            given = prepare, LIMIT.said_bytes
            self._executor = ProcessPoolExecutor(n_processes, context, initializer=_begin, initargs=given)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()  # they put off what is less
        self._executor.shutdown(cancel_futures=True)

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """(place of the item, its result), in the order in which they are done.

        Raises:
            MigratorError: A process was killed.
            Exception: What the function raised.
        """
        try:
            places = self._submitted(function, items)
            for done in as_completed(places):
                yield places[done], done.result()
        except BrokenProcessPool:
            raise MigratorError(
                f"one of {self._n_processes} processes ended before its work was done: killed for want of memory "
                "(one job needs less), or a Python script lacks if __name__ == '__main__'"
            ) from None

    def _submitted(self, function: Callable[[Item], Result], items: Sequence[Item]) -> dict[Future[Result], int]:
        # Processes start at the submissions.
        with interrupts_put_off():
            return {self._executor.submit(function, item): index for index, item in enumerate(items)}


def start_beside(do: Callable[..., object], *given: object) -> BaseProcess:
    """Do it in a process of its own, which ends with this one at the latest, and hears of no interrupt."""
    process = multiprocessing.get_context("spawn").Process(target=_do, args=(LIMIT.said_bytes, do, given), daemon=True)
    with interrupts_put_off():
        process.start()
    return process


def _do(said_bytes: int | None, do: Callable[..., object], given: Iterable[object]) -> None:
    _begin(None, said_bytes)
    do(*given)


@contextmanager
def interrupts_put_off() -> Iterator[None]:
    """Put interrupts off to the end of the context; processes started in it never get any, as they inherit the block.

    Blocking the signals is not enough: another thread would receive them, and they would still be raised here while a
    new process waits for the rest of its instructions.
    """
    put_off: list[int] = []
    hears = threading.current_thread() is threading.main_thread()  # the only one that may set what is done at a signal
    handlers = {one: signal.signal(one, lambda number, _: put_off.append(number)) for one in SIGNALS if hears}
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for one, handler in handlers.items():
            signal.signal(one, handler)
    if put_off:
        signal.raise_signal(signal.Signals(put_off[0]))


def _begin(prepare: Callable[[], None] | None, said_bytes: int | None) -> None:
    _end_with_parent()
    LIMIT.said_bytes = said_bytes
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # it is the initializer of a child

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
