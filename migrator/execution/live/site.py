"""The processes of a live run, and one ear for them all.

A warm process forks workers, trainers and profilers; a dispatcher keeps the requests, a generator sends them. All
belong to the thread that opens the site, which has to be the main one, and none outlives it, ``kill -9`` included.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import IO, Any, Self

import zmq

from executor.clock import WallClock
from executor.files import make_new, open_appended, write_whole
from executor.messages import as_text
from executor.zygote import Event, Exited, Zygote, ZygoteError
from migrator.errors import LiveError
from migrator.log.records import Dispatched
from migrator.terminal.console import note
from workloads.errors import LearningError
from workloads.learning.profiler import Found, found_in
from workloads.live import dispatcher
from workloads.live.generator import Stream, write_streams
from workloads.live.messages import (
    TO_CONTROLLER,
    Beat,
    Changed,
    Closed,
    Counts,
    DrainAll,
    Drained,
    Draining,
    Finish,
    Finished,
    Heartbeat,
    Hung,
    Labelled,
    Lend,
    Lent,
    Loaded,
    Message,
    NotDone,
    Order,
    Return,
    Tenants,
    ToController,
    Watch,
    Worth,
)
from workloads.live.process import DOOR_SETUP, command
from workloads.live.wire import CONTROLLER, WORKERS, Peer, private_folder

IMPORTS = ("workloads.live.worker", "workloads.learning.profiler", "workloads.learning.warm")
"""What the warm process imports: all that workers and trainers of every model need."""


TOTALS = Dispatched.__struct_fields__
"""What of :class:`workloads.live.messages.Counts` adds up over seconds."""

FINISH_S = 10.0
"""The dispatcher's last word is waited for no longer than this."""


Received = Changed | Hung | Lent | Loaded | NotDone | Heartbeat | Event


class LiveClock(WallClock):
    """The machine's clock, whose zero the processes of a run share; a thread that waits on it can be woken by a file.

    Attributes:
        woken: A file that can be read once the clock was woken.
    """

    def __init__(self, start_s: float) -> None:
        super().__init__(start_s)
        self.woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @cached_property
    def origin_s(self) -> float:
        """The machine's monotonic clock at second 0; the clock runs from now on at the latest."""
        return monotonic() - self.now_s

    def wake(self) -> None:
        """End a wait, from any thread."""
        super().wake()
        with suppress(OSError):  # it is full of reasons to wake already, or closed
            os.write(self._waker, b"!")

    def was_woken(self) -> bool:
        """Whether the clock was woken since the last call."""
        try:
            return bool(os.read(self.woken, 4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Let go of its files."""
        os.close(self.woken)
        os.close(self._waker)


class Asking:
    """Profilers that are at work.

    Attributes:
        outs: By profiler, where it writes.
        limit_s: What they may take,
        until_s: and by the machine's monotonic clock, until when.
        found: By profiler that has ended, what it wrote, or why it did not.
    """

    def __init__(self, outs: Mapping[str, Path], limit_s: float) -> None:
        self.outs, self.limit_s, self.until_s = outs, limit_s, monotonic() + limit_s
        self.found: dict[str, Found | str] = {}

    @property
    def is_open(self) -> bool:
        """Whether one has not ended."""
        return len(self.found) < len(self.outs)

    def hears(self, event: object) -> bool:
        """Take in the end of one of these; whether it was one."""
        if not isinstance(event, Exited) or event.worker not in self.outs:
            return False
        self.found[event.worker] = _written(self.outs[event.worker]) if event.code == 0 else event.reason
        return True


class Site:
    """Where a live run takes place: a folder for what its processes write, and the processes.

    Attributes:
        folder: Sockets, weights, requests and what processes print.
        zygote: The warm process.
        totals: By tenant, the dispatcher's sums of :data:`TOTALS`.
        url: Where the front door is, once it is open,
        opened_s: and when that was heard.
        is_drained: Whether it was told to :meth:`drain`, and no request is left.
        hear: Is told each of the dispatcher's words on requests.
    """

    def __init__(self, folder: Path, imports: Iterable[str] = ()) -> None:
        """Make the folder, and begin to warm up; ``imports`` are the models' own libraries.

        Raises:
            WireError: The folder cannot be used.
            ZygoteError: This is not the main thread.
        """
        self.folder = private_folder(folder)
        self.totals = defaultdict[str, Counter[str]](Counter)
        self._counts: dict[tuple[str, int], Counts] = {}  # of the last seconds, the dispatcher's latest word
        self._kept_s, self._newest_s = math.inf, 0
        self.url: str | None = None
        self.opened_s: float | None = None
        self.is_drained = False
        self.hear: Callable[[Counts | Closed | Labelled], object] = lambda _: None
        self._later: list[Received] = []
        self._poller = zmq.Poller()
        self._clock: LiveClock | None = None
        self._peer: Peer[ToController] | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # by what messages call it, in the order of starts
        self._door_setup: str | None = None
        self._door: IO[bytes] | None = None  # what it says
        self._has_other_door = False  # its setup has changed before it was open
        self._is_finishing = self._has_finished = False
        self._n_asked = 0
        self._asking: list[Asking] = []
        self.zygote = Zygote(dict.fromkeys([*IMPORTS, *imports]))
        self._poller.register(self.zygote.fileno(), zmq.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> Path:
        """What the processes print."""
        return self.folder / "processes.log"

    @property
    def outcomes(self) -> Path:
        """What became of each request: records as in :data:`workloads.live.generator.OUTCOME`."""
        return self.folder / "outcomes.bin"

    # --- profilers

    def begin_asking(
        self, function: str, asked: Sequence[Mapping[str, Any]], limit_s: float, environment: Mapping[str, str]
    ) -> Asking:
        """Start a profiler each, all at once, that writes by the function for these arguments; nothing is waited for.

        Raises:
            ZygoteError: The warm process is gone as a profiler is asked for.
        """
        outs: dict[str, Path] = {}
        for arguments in asked:
            self._n_asked += 1
            out = self.folder / f"profiler-{self._n_asked}.json"
            given = {**arguments, "out": str(out)}
            outs[self.zygote.start(function, given, name=out.stem, environment=environment, log=self.log)] = out
        asking = Asking(outs, limit_s)
        self._asking.append(asking)
        return asking

    def answers(self, asking: Asking) -> list[Found | str]:
        """What the profilers write, or why they do not; what else happens meanwhile is received later.

        Raises:
            LiveError: The warm process, the dispatcher, the generator or the front door is gone.
        """
        found: list[Found | str] | None = None

        def is_waiting() -> bool:
            nonlocal found
            found = self.answered(asking)
            return found is None

        self._receive_while(is_waiting, asking.until_s)
        return self.end_asking(asking) if found is None else found

    def answered(self, asking: Asking) -> list[Found | str] | None:
        """The same as far as it has been received; ``None`` while profilers may take longer."""
        return None if asking.is_open and monotonic() < asking.until_s else self.end_asking(asking)

    def end_asking(self, asking: Asking) -> list[Found | str]:
        """Wait no longer; profilers that are not done are stopped."""
        self._asking.remove(asking)
        for name in asking.outs.keys() - asking.found.keys():
            self.zygote.stop(name, 0.0)
            asking.found[name] = f"not done within {asking.limit_s:g} s"
        for out in asking.outs.values():
            out.unlink(missing_ok=True)
        return [asking.found[name] for name in asking.outs]

    # --- the service

    @property
    def _requests(self) -> Path:
        return self.folder / "requests.msgpack"

    def prepare(self, streams: Sequence[Stream]) -> None:
        """Write down what is to be sent.

        Raises:
            OSError: It cannot be written.
        """
        write_streams(self._requests, streams)
        make_new(self.outcomes)

    def open(
        self,
        clock: LiveClock,
        tenants: Sequence[str],
        door: str | None = None,
        turn_cost: float = 0.0,
        kept_s: float = math.inf,
        closes_s: float | None = None,
    ) -> None:
        """Begin to take requests; and to send them when the clock says so, unless others do: with ``closes_s``.

        Seconds are closed so long after their end, then. ``door`` is the JSON of a
        :class:`workloads.live.front_door.DoorSetup`, where clients from outside may ask, too; ``turn_cost`` is what a
        turn in a shared lane costs. What became of requests that arrived ``kept_s`` ago does not change any more.
        """
        self._kept_s = kept_s
        self._clock, self._door_setup = clock, door
        self._poller.register(clock.woken, zmq.POLLIN)
        self._peer = Peer(self.folder, WORKERS, CONTROLLER, TO_CONTROLLER)
        self._peer.watched_by(self._poller)
        self._peer.send(Watch())
        setup = dispatcher.DispatcherSetup(
            self.folder, tuple(tenants), clock.origin_s, turn_cost=turn_cost, closes_s=closes_s
        )
        self._start("dispatcher", "workloads.live.dispatcher", as_text(setup))
        if closes_s is not None:
            return
        files = str(self._requests), repr(clock.origin_s), str(self.outcomes)
        self._start("generator", "workloads.live.generator", str(self.folder), *files)

    def order(self, order: Order | Worth | Lend | Return) -> None:
        """Tell the dispatcher what a worker is to do, what a tenant's answers are worth, or which instance is lent."""
        assert self._peer is not None
        self._peer.send(order)

    def received(self, until_s: float) -> list[Received]:
        """What has happened, in the order in which it was told; waits for something until the clock shows ``until_s``.

        It is back earlier, with nothing, once the clock was woken.

        Raises:
            LiveError: The warm process, the dispatcher, the generator or the front door is gone.
        """
        assert self._clock is not None
        found, self._later = self._later, []
        found += self._fresh(0.0)
        while not found and (left_s := until_s - self._clock.now_s) > 0 and not self._clock.was_woken():
            found += self._fresh(left_s)
        return found

    def finish(self) -> Mapping[str, Any] | None:
        """Drop what still waits and send all workers away; what the generator says of the requests, if there is one.

        Raises:
            LiveError: Dispatcher or generator do not end as they should.
        """
        assert self._peer is not None
        self.drop_rest()
        generator = self._processes.get("generator")
        try:
            said, _ = (b"null", None) if generator is None else generator.communicate(timeout=FINISH_S)
        except subprocess.TimeoutExpired:
            raise LiveError(f"the generator does not end; see {self.log}") from None
        until_s = monotonic() + FINISH_S
        while not self._has_finished:
            if monotonic() > until_s:
                raise LiveError(f"the dispatcher does not end; see {self.log}")
            self._take(self._peer.receive(0.5))
        if generator is not None and generator.returncode:
            raise LiveError(f"the generator ended with code {generator.returncode}; see {self.log}")
        replayed: dict[str, Any] | None = json.loads(said)
        return replayed

    def hear_until(self, is_heard: Callable[[], bool], due_s: float) -> None:
        """Wait until what :attr:`hear` was told is enough; what else happens meanwhile is received later.

        It is told when the clock shows ``due_s``, or soon after.

        Raises:
            LiveError: It is not told, or the warm process, the dispatcher, the generator or the front door is gone.
        """
        assert self._clock is not None
        self._receive_while(lambda: not is_heard(), monotonic() + max(0.0, due_s - self._clock.now_s) + FINISH_S)
        if not is_heard():
            raise LiveError(f"the dispatcher has not told its counts for {FINISH_S:g} s; see {self.log}")

    def drain(self, retry_after_s: float) -> None:
        """Take no further request, and tell who asks to come again so much later; those that wait are answered."""
        assert self._peer is not None
        self._peer.send(DrainAll(retry_after_s))

    def change_tenants(self, names: Sequence[str]) -> None:
        """Have the dispatcher take requests of these tenants alone; what others have waiting is still answered."""
        assert self._peer is not None
        self._peer.send(Tenants(tuple(names)))

    def change_door(self, setup: str) -> None:
        """Have the front door go on by another setup; what is under way there goes on as it began.

        Raises:
            OSError: The setup cannot be written.
        """
        if self._door_setup is not None:  # it is not started yet
            self._door_setup = setup
            return
        write_whole(self.folder / DOOR_SETUP, setup.encode(), waits=False)
        self._has_other_door = self.url is None
        if not self._has_other_door:
            self._processes["front door"].send_signal(signal.SIGHUP)

    def drop_rest(self) -> None:
        """What is not answered by now is dropped."""
        assert self._peer is not None
        if not self._is_finishing:
            self._is_finishing = True
            self._peer.send(Finish())

    def close(self) -> None:
        """End all processes, whatever they do."""
        for process in reversed(self._processes.values()):  # the dispatcher last
            if process.poll() is None:
                process.terminate()
        self.zygote.close()
        for process in reversed(self._processes.values()):
            try:
                process.communicate(timeout=FINISH_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        if self._clock is not None:
            self._poller.unregister(self._clock.woken)
            self._clock.close()
            self._clock = None

    def _start(self, name: str, module: str, *arguments: str) -> IO[bytes]:
        """Start a process; what it says."""
        with open_appended(self.log) as log:
            process = self._processes[name] = subprocess.Popen(  # noqa: S603 - our own module
                command(module, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # what ends a terminal, or all of its group, is the controller's
            )
        assert process.stdout is not None
        return process.stdout

    def _receive_while(self, is_waiting: Callable[[], bool], until_s: float) -> None:
        """Receive, to be handed on later, while this is so, until the machine's monotonic clock shows ``until_s``."""
        was_woken = False
        while is_waiting() and (left_s := until_s - monotonic()) > 0:
            self._later += self._fresh(min(1.0, left_s))
            was_woken |= self._clock is not None and self._clock.was_woken()
        if was_woken and self._clock is not None:
            self._clock.wake()  # the thread that waits next is to know

    def _fresh(self, timeout_s: float) -> list[Received]:
        """What has happened since this was last asked; waits until something can be read, ``timeout_s`` at most."""
        self._poller.poll(max(0, math.ceil(1000 * timeout_s)))
        found: list[Received] = []
        try:
            found += [event for event in self.zygote.events() if not any(one.hears(event) for one in self._asking)]
        except ZygoteError as error:
            raise LiveError(str(error)) from error
        if self._peer is not None:
            found += self._take(self._peer.receive(0.0))
        if self._door is not None and self.url is None:
            self._await_door(self._door)
        codes = {name: process.poll() for name, process in self._processes.items()}
        for name, code in codes.items():
            if code not in (None, 0):
                raise LiveError(f"the {name} is gone, with code {code}; see {self.log}")
        if codes.get("dispatcher") == 0 and not self._is_finishing:
            raise LiveError(f"the dispatcher has ended before the run; see {self.log}")
        return found

    def _add(self, counts: Counts) -> None:
        """Add up the word on a second, in place of the one before; on old seconds all has been said."""
        key, since_s = (counts.tenant, counts.second), self._newest_s - self._kept_s
        if counts.second < since_s:
            return
        before, own = self._counts.get(key), self.totals[counts.tenant]
        for name in TOTALS:
            own[name] += getattr(counts, name) - (0 if before is None else getattr(before, name))
        self._counts[key] = counts
        if counts.second > self._newest_s:
            self._newest_s = counts.second
            self._counts = {one: word for one, word in self._counts.items() if one[1] >= self._newest_s - self._kept_s}

    def _await_door(self, door: IO[bytes]) -> None:
        """Say where it is, once it is open."""
        if select.select([door], [], [], 0.0)[0]:
            self._poller.unregister(door.fileno())
            said = door.readline()
            self.url = str(json.loads(said)["url"]) if said else ""
            if not said:
                raise LiveError(f"the front door cannot be opened; see {self.log}")
            assert self._clock is not None
            self.opened_s = self._clock.now_s
            note(f"the front door is open: {self.url}/v2")
            if self._has_other_door:
                self._has_other_door = False
                self._processes["front door"].send_signal(signal.SIGHUP)

    def _take(self, messages: Sequence[Message]) -> list[Received]:
        """Keep counts; what else there is to know."""
        found: list[Received] = []
        for message in messages:
            match message:
                case Counts():
                    self._add(message)
                    self.hear(message)
                case Closed() | Labelled():
                    self.hear(message)
                case Draining():
                    pass  # as told to
                case Drained():
                    self.is_drained = True
                case Finished():
                    self._has_finished = True
                case Changed() | Hung() | Lent() | Loaded() | NotDone() | Heartbeat():
                    found.append(message)
                case Beat():
                    if self._door_setup is not None:  # the dispatcher is there, and can be asked
                        self._door = self._start("front door", "workloads.live.front_door", self._door_setup)
                        self._door_setup = None
                        self._poller.register(self._door.fileno(), zmq.POLLIN)
        return found


def _written(out: Path) -> Found | str:
    try:
        return found_in(out)
    except (OSError, LearningError) as error:
        return str(error)
