"""Workers that start at once: forked from a warm process, the zygote, which has imported what is heavy beforehand.

A controller holds a ``Zygote`` and asks it for workers; what happens to them comes back as events, with times on the
clock that all processes of a machine share (``time.monotonic``). The zygote has one thread and knows nothing but
forking, so that a fork is safe. A worker enters its share of a GPU or CPU when it is ready: loading is not slowed down.

No process outlives the one that it works for: the kernel kills a worker when the zygote dies, the zygote when the
controller does, ``kill -9`` included; and the zygote sees its connection close, too. A worker's own children are killed
when it ends, if they stayed in its process group.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from executor import messages
from executor.errors import ExecutorError
from executor.files import open_appended
from executor.messages import Allowed, Count, MessageError, Moment, Seconds, packed
from executor.processes import python_command, signal_at_end_of_parent

ONE_THREAD = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
    ),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow, which pandas imports, and scikit-learn pandas
}
"""A process of several threads is not to be forked, and in a share of a core they only get in each other's way."""

LIMIT_S = 5.0
"""A worker that was asked to end is killed after this."""

_LARGEST = 1 << 16
"""Bytes of a message: names and small options; data goes through files."""


class ZygoteError(ExecutorError):
    """The zygote cannot be had, or is gone; the message says why."""


class Message(messages.Message, frozen=True):
    """What a controller, its zygote and the workers say to each other."""

    most_bytes: ClassVar[int] = _LARGEST


class Warm(Message, frozen=True):
    """The zygote has imported everything.

    Attributes:
        pid: Its own.
        import_s: Seconds that each import took, in order; those that others had brought along take none.
        at_s: When.
    """

    pid: Count
    import_s: Mapping[str, Seconds]
    at_s: Moment


class Cold(Message, frozen=True):
    """The zygote cannot import what it was asked for, or not so that it can fork; it ends."""

    reason: str


class Forked(Message, frozen=True):
    """A worker runs, and is about to import what it was asked for; ``asked_s`` is when the controller asked for it."""

    worker: str
    pid: Count
    asked_s: Moment
    at_s: Moment


class Reached(Message, frozen=True):
    """A worker says that it has come to a phase of its own, such as ``loaded`` or ``ready``."""

    worker: str
    phase: str
    at_s: Moment


class Exited(Message, frozen=True):
    """A worker is gone, and has been waited for.

    Attributes:
        worker: Which.
        pid: Its number, which may come again from now on.
        code: What it returned; ``None`` if a signal ended it.
        signal: What ended it: 9 also when the kernel had no memory left.
        error: The exception that it died of, in one line; empty if none.
        was_asked: Whether it had been asked to end.
        at_s: When it was noticed.
    """

    worker: str
    pid: Count
    code: int | None
    signal: Count | None
    error: str
    was_asked: bool
    at_s: Moment

    @property
    def reason(self) -> str:
        """Why it ended, in a few words: its exception, without the module of that, or its signal or code."""
        if self.error:
            kind, colon, said = self.error.partition(": ")
            return f"{kind.rpartition('.')[2]}{colon}{said}" if kind.replace(".", "").isidentifier() else self.error
        if self.signal is None:
            return f"ended with code {self.code}"
        maybe = ", maybe for want of memory" if self.signal == signal.SIGKILL and not self.was_asked else ""
        return f"killed by signal {self.signal}{maybe}"


class Start(Message, frozen=True):
    """A worker is wanted, which runs ``function``; what it prints is appended to ``log``, if there is one."""

    worker: str
    function: str
    arguments: dict[str, Any]
    environment: dict[str, str]
    log: str | None
    asked_s: Moment


class Stop(Message, frozen=True):
    """A worker is to end, and is killed if it has not after ``limit_s``."""

    worker: str
    limit_s: Seconds


Event = Warm | Forked | Reached | Exited
_EVENTS: Allowed[Event | Cold] = Allowed(Event | Cold)
_REQUESTS: Allowed[Start | Stop] = Allowed(Start | Stop)


class Reporter:
    """How a worker says how far it is. The function that it runs gets one, and its own arguments by name."""

    def __init__(self, worker: str, connection: socket.socket) -> None:
        self.worker = worker
        self._connection = connection

    def reached(self, phase: str) -> None:
        """Tell the controller of a phase; nothing happens if it does not listen any more."""
        with suppress(OSError):
            self._connection.send(packed(Reached(self.worker, phase, time.monotonic())))


class Zygote:
    """The controller's side of a zygote: a context at whose end all its workers are gone. For one thread.

    Attributes:
        pid: The zygote's.
        workers: Those that were asked for and are not known to be gone, with their pid as soon as it is known.
    """

    def __init__(self, imports: Iterable[str] = (), *, environment: Mapping[str, str] = ONE_THREAD) -> None:
        """A zygote that begins to import; :class:`Warm` comes when it has, and workers can be asked for before that.

        Raises:
            ZygoteError: This is not the main thread: Linux would end the zygote with its thread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ZygoteError("a zygote has to be started on the main thread, because Linux ends it with its thread")
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(  # noqa: S603 - this very file
                python_command(__name__, "main", str(its.fileno()), str(os.getpid()), *imports),
                pass_fds=(its.fileno(),),
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is the controller's
            )
        self._connection = ours
        self.pid = self._process.pid
        self.workers: dict[str, int | None] = {}
        self._n_started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """What becomes readable when there are events, for ``select`` and its like."""
        return self._connection.fileno()

    def start(
        self,
        function: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> str:
        """A worker is asked for: its name. It runs ``module:function`` with a :class:`Reporter`.

        ``arguments`` are what msgpack can say. ``log`` is appended to by what it prints; without one, that goes where
        the controller's goes. What ``environment`` sets is set before anything is imported that the zygote has not.

        Raises:
            ZygoteError: The zygote is gone, a worker of this name is not, or the arguments are too long.
        """
        self._n_started += 1
        name = name or f"worker-{self._n_started}"
        if name in self.workers:
            raise ZygoteError(f"there is a worker called {name} already")
        log_name = None if log is None else str(log.absolute())
        self._ask(Start(name, function, dict(arguments or {}), dict(environment or {}), log_name, time.monotonic()))
        self.workers[name] = None
        return name

    def stop(self, worker: str, limit_s: float = LIMIT_S) -> None:
        """Ask the worker to end (SIGTERM), and kill it if it has not after ``limit_s``; nothing if it is gone.

        Asking again brings the end nearer, and never puts it off.

        Raises:
            ZygoteError: The zygote is gone.
        """
        if worker in self.workers:
            self._ask(Stop(worker, limit_s))

    def events(self, timeout_s: float = 0.0) -> tuple[Event, ...]:
        """What has happened since; waits until something has, or ``timeout_s`` have passed.

        Raises:
            ZygoteError: The zygote is gone, and all its workers with it; or cannot import what it was asked for.
        """
        found: list[Event] = []
        while select.select([self._connection], [], [], 0.0 if found else timeout_s)[0]:
            message = self._received()
            if not message:
                if found:
                    break  # the next call tells it
                raise ZygoteError(f"the zygote is gone, and its workers with it: {self._ending()}")
            try:
                event = _EVENTS.message(message)
            except MessageError as error:
                raise ZygoteError(f"a worker, or the zygote, says what is none of its messages: {error}") from error
            if isinstance(event, Cold):
                raise ZygoteError(event.reason)
            if isinstance(event, Forked):
                self.workers[event.worker] = event.pid
            elif isinstance(event, Exited):
                self.workers.pop(event.worker, None)
            found.append(event)
        if not found and self._process.poll() is not None and not select.select([self._connection], [], [], 0.0)[0]:
            # What a worker had started may outlive it, and keep the connection open.
            raise ZygoteError(f"the zygote is gone, and its workers with it: {self._ending()}")
        return tuple(found)

    def close(self, limit_s: float = LIMIT_S) -> None:
        """Ask every worker to end, kill it after ``limit_s``, then end the zygote, too. Once is enough."""
        if self._connection.fileno() < 0:
            return
        with suppress(ZygoteError):
            for worker in self.workers:
                self._ask(Stop(worker, limit_s))
            until_s = time.monotonic() + limit_s + 1.0
            while self.workers and time.monotonic() < until_s:
                self.events(max(0.0, until_s - time.monotonic()))
        self._connection.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # it hangs in an import; its workers die with it
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Start | Stop) -> None:
        try:
            self._connection.send(packed(request))
        except MessageError as error:
            raise ZygoteError(f"a request is too long: {error}: use a file") from None
        except OSError as error:
            self.events()  # raises with the reason, if it has said why
            raise ZygoteError(f"the zygote is gone, and its workers with it: {error.strerror}") from error

    def _received(self) -> bytes:
        with suppress(ConnectionResetError):  # it left requests unread; what it said is the next
            return self._connection.recv(_LARGEST)
        return self._connection.recv(_LARGEST)

    def _ending(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        if code is None:
            return "it has closed the connection"
        return f"killed by signal {-code}" if code < 0 else f"it ended with code {code}"


# What follows runs in the zygote and in its workers.


@dataclass
class _Worker:
    """A worker as the zygote knows it."""

    name: str
    pid: int
    pidfd: int
    error_fd: int
    kill_at_s: float | None = None
    was_asked: bool = False


@dataclass
class _Server:
    """The zygote's loop: requests come, workers go, and those that linger are killed."""

    connection: socket.socket
    workers: dict[int, _Worker] = field(default_factory=dict)

    def run(self) -> None:
        """Until the controller's end of the connection is closed; then no worker is left."""
        try:
            while True:
                for descriptor in self._ready():
                    if descriptor != self.connection.fileno():
                        self._reap(self.workers.pop(descriptor))
                    elif not self._answer():
                        return
                self._kill_overdue()
        finally:
            for worker in self.workers.values():
                _kill_group(worker.pid)
            for worker in self.workers.values():
                os.waitpid(worker.pid, 0)

    def _ready(self) -> list[int]:
        poll = select.poll()
        for descriptor in (self.connection.fileno(), *self.workers):
            poll.register(descriptor, select.POLLIN)
        due = [worker.kill_at_s for worker in self.workers.values() if worker.kill_at_s is not None]
        timeout_ms = max(0.0, min(due) - time.monotonic()) * 1000 + 1 if due else None
        return [descriptor for descriptor, _ in poll.poll(timeout_ms)]

    def _answer(self) -> bool:
        """Do what is asked for next; whether the controller is still there."""
        try:
            message = self.connection.recv(_LARGEST)
        except ConnectionResetError:
            return False
        if not message:
            return False
        request = _REQUESTS.message(message)
        if isinstance(request, Start):
            self._fork(request)
        else:
            self._stop(request)
        return True

    def _stop(self, request: Stop) -> None:
        worker = next((one for one in self.workers.values() if one.name == request.worker), None)
        if worker is None:
            return
        kill_at_s = time.monotonic() + request.limit_s
        worker.kill_at_s = kill_at_s if worker.kill_at_s is None else min(kill_at_s, worker.kill_at_s)
        worker.was_asked = True
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process takes SIGTERM once it goes on
            os.kill(worker.pid, number)

    def _fork(self, request: Start) -> None:
        parent = os.getpid()
        reading, writing = os.pipe()
        os.set_blocking(reading, False)  # a process that the worker leaves behind may keep it open
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            said = f"it cannot be forked: {error.strerror}"
            exited = Exited(request.worker, 0, 1, None, said, was_asked=False, at_s=time.monotonic())
            self.connection.send(packed(exited))
            return
        if pid == 0:
            for other in self.workers.values():
                os.close(other.pidfd)
                os.close(other.error_fd)
            _become_worker(request, parent, self.connection, writing)
        os.close(writing)
        worker = _Worker(request.worker, pid, os.pidfd_open(pid), reading)
        self.workers[worker.pidfd] = worker

    def _reap(self, worker: _Worker) -> None:
        """Tell how a worker ended; its own children go with it."""
        _kill_group(worker.pid)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        error = b""
        with suppress(BlockingIOError):
            error = os.read(worker.error_fd, _LARGEST)
        os.close(worker.pidfd)
        os.close(worker.error_fd)
        event = Exited(
            worker.name,
            worker.pid,
            None if code < 0 else code,
            -code if code < 0 else None,
            error.decode(errors="replace"),
            worker.was_asked,
            time.monotonic(),
        )
        with suppress(OSError):  # the controller is gone: the next look at the connection tells
            self.connection.send(packed(event))

    def _kill_overdue(self) -> None:
        now_s = time.monotonic()
        for worker in self.workers.values():
            if worker.kill_at_s is not None and worker.kill_at_s <= now_s:
                _kill_group(worker.pid)
                worker.kill_at_s = None


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not have its own group yet
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _die_with(parent: int) -> None:
    """This process is killed when the thread that started it ends; at once if its parent is gone already."""
    signal_at_end_of_parent()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _become_worker(request: Start, parent: int, connection: socket.socket, error_fd: int) -> NoReturn:
    """Run the function that was asked for, and end."""
    code = 1
    try:
        _die_with(parent)
        os.setsid()
        connection.send(packed(Forked(request.worker, os.getpid(), request.asked_s, time.monotonic())))
        if request.log is not None:
            with open_appended(Path(request.log)) as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        os.environ.update(request.environment)
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        code = _call(request, Reporter(request.worker, connection))
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the controller hears of it, and this process ends
        traceback.print_exc()
        text = " ".join("".join(traceback.format_exception_only(error)).split())
        os.write(error_fd, text.encode(errors="replace")[:4096])
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _call(request: Start, reporter: Reporter) -> int:
    module, _, name = request.function.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    result = function(reporter, **request.arguments)
    return result if isinstance(result, int) else 0


def main(descriptor: str, parent: str, *imports: str) -> int:
    """Be the zygote: warm up, then fork until the controller is gone. What a zygote's process is started with."""
    _die_with(int(parent))
    with socket.socket(fileno=int(descriptor)) as connection:
        connection.set_inheritable(False)
        try:
            import_s = {module: _imported_s(module) for module in imports}
        except ZygoteError as error:
            with suppress(BrokenPipeError):
                connection.send(packed(Cold(str(error))))
            return 1
        gc.collect()
        gc.freeze()  # what is warm stays shared between the processes: no collection writes to it
        with suppress(BrokenPipeError):
            connection.send(packed(Warm(os.getpid(), import_s, time.monotonic())))
            _Server(connection).run()
    # At once: tearing down what was imported takes a second, and some libraries complain of it at length.
    os._exit(0)


def _imported_s(module: str) -> float:
    """Seconds that the import took.

    Raises:
        ZygoteError: It failed, or has left more than one thread.
    """
    begin_s = time.monotonic()
    try:
        importlib.import_module(module)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:1000]
        raise ZygoteError(f"the warm process cannot import {module}: {said}") from error
    tasks = Path("/proc/self/task")
    threads = [(task / "comm").read_text().strip() for task in tasks.iterdir() if int(task.name) != os.getpid()]
    if threads:
        raise ZygoteError(
            f"the warm process cannot fork workers: a library that {module} imports has started a thread or more, "
            f"called {', '.join(threads)[:1000]}; set what keeps it from that, or leave it out"
        )
    return time.monotonic() - begin_s
