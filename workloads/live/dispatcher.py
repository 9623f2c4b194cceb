"""The process between clients and workers: it keeps each request until its answer is there.

Run with ``python -m workloads.live.dispatcher PARENT SETUP`` (a process id; JSON of a :class:`DispatcherSetup`), or
call :func:`dispatch` in a child. It ends on ``Finish``, by SIGTERM, or with its parent.

Messages and timers come in here; what is done about requests is decided in :mod:`workloads.live.queues`. A worker's
death is noticed at once where the system can watch a process (``pidfd``), else by its silence.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, inf
from pathlib import Path
from time import monotonic
from types import FrameType

import zmq

from executor.messages import MessageError, packed, value_in
from workloads.errors import WorkloadError
from workloads.live.lanes import Lanes
from workloads.live.messages import (
    FROM_CLIENT,
    FROM_CONTROLLER,
    FROM_HEART,
    FROM_WORKER,
    MOST_BATCH_BYTES,
    MOST_BYTES,
    Answer,
    Answers,
    Batch,
    Beat,
    Changed,
    Closed,
    Credit,
    Drain,
    DrainAll,
    Drained,
    Draining,
    Finish,
    Finished,
    FromClient,
    FromController,
    FromWorker,
    Goodbye,
    Heartbeat,
    Hello,
    Hung,
    Labelled,
    Lend,
    Lent,
    Load,
    Loaded,
    Message,
    NoAnswer,
    NotDone,
    Order,
    Ready,
    Return,
    Serve,
    Share,
    State,
    Status,
    Stop,
    Tenants,
    TurnedAway,
    Watch,
    Worth,
)
from workloads.live.process import Parent, begun
from workloads.live.queues import TenantQueue
from workloads.live.wire import CLIENTS, CONTROLLER, HEART, WORKER, WORKERS, private_folder, router
from workloads.profiles.latency import LatencyCurve

_AT_ONCE = 256
"""Messages of clients that are taken before those of workers again."""


@dataclass(frozen=True, slots=True)
class DispatcherSetup:
    """What a dispatcher needs to know.

    Attributes:
        folder: Where its sockets are made.
        tenants: Whose requests it takes.
        origin_s: The run's second 0, on the machine's monotonic clock.
        silence_s: A worker that is not heard for so long is given up.
        hang_factor: A batch is given to others after so many times the latency that it should have,
        hang_s: but not earlier.
        queue_bytes: Most memory for one tenant's requests; what is over is refused.
        tick_s: How often it reports counts, and looks for silence and hanging.
        turn_cost: The share by which a turn in a shared lane lasts longer that follows another tenant's.
        closes_s: A second closes so long after its end, with a message; ``None``: it never closes.
    """

    folder: Path
    tenants: tuple[str, ...]
    origin_s: float = 0.0
    silence_s: float = 5.0
    hang_factor: float = 20.0
    hang_s: float = 2.0
    queue_bytes: int = 2**28
    tick_s: float = 0.25
    turn_cost: float = 0.0
    closes_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("silence_s", "hang_factor", "hang_s", "tick_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: {getattr(self, name)}: must be above 0")
        if not 0 <= self.turn_cost < inf:
            raise ValueError(f"turn_cost: {self.turn_cost}: must be finite and at least 0")
        if not 0 < self.queue_bytes <= MOST_BATCH_BYTES // 2:
            raise ValueError(f"queue_bytes: {self.queue_bytes}: must lie in 1–{MOST_BATCH_BYTES // 2}")


@dataclass(slots=True)
class _Known:
    """What a worker has reported of itself."""

    tenant: str
    received_s: float
    state: State = State.STARTING
    ready: Ready = field(default_factory=lambda: Ready(0.0, 0.0, 0.0, ""))
    reason: str = ""
    process: int | None = None  # a file that can be read once the process is gone


def dispatch(setup: DispatcherSetup, parent: Parent) -> None:
    """Dispatch until told to finish, or until the parent is gone.

    Raises:
        WireError: The sockets cannot be made.
    """
    dispatcher = _Dispatcher(setup, parent)
    try:
        dispatcher.run()
    finally:
        dispatcher.close()


class _Dispatcher:
    def __init__(self, setup: DispatcherSetup, parent: Parent) -> None:
        self._setup, self._parent = setup, parent
        self._queues = {
            tenant: TenantQueue(tenant, setup.origin_s, setup.queue_bytes, setup.closes_s)
            for tenant in dict.fromkeys(setup.tenants)
        }
        self._closed = 0
        self._lanes = Lanes(self._queues, setup.turn_cost)
        self._loads: dict[str, Order] = {}  # of those whose lane is not kept for them yet
        self._known: dict[str, _Known] = {}
        self._strangers: dict[str, float] = {}  # whose heart was heard first, and when
        self._watchers: set[bytes] = set()
        self._finished = False
        self._draining: Draining | None = None
        self._is_drained = False  # and has said so
        folder = private_folder(setup.folder)
        self._context = zmq.Context()
        self._workers = router(self._context, folder, WORKERS, MOST_BATCH_BYTES)
        self._clients = router(self._context, folder, CLIENTS, MOST_BYTES)
        self._poller = zmq.Poller()
        self._poller.register(self._workers, zmq.POLLIN)
        self._poller.register(self._clients, zmq.POLLIN)
        self._orders: dict[type[Message], Callable[[str, _Known, Order], None]] = {
            Serve: self._pass_on,
            Load: self._load,
            Drain: self._drain,
            Share: self._share,
            Stop: self._stop,
        }

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        tick_s = monotonic()
        while not self._finished and not self._parent.is_gone:
            due_s = min([tick_s, *(queue.next_deadline_s for queue in self._queues.values())])
            ready = self._poller.poll(ceil(max(1000 * (due_s - monotonic()), 0)))
            self._receive(self._workers, self._from_workers, sys.maxsize)
            self._receive(self._clients, self._from_client, _AT_ONCE)
            self._reap([file for file, _ in ready if isinstance(file, int)])
            now_s = monotonic()
            if now_s >= tick_s:
                self._tick(now_s, is_behind=now_s > tick_s + self._setup.silence_s / 2)
                tick_s = now_s + self._setup.tick_s
            self._hand_out(now_s)
            self._look_whether_drained()
        self._finish()

    def close(self) -> None:
        for known in self._known.values():
            if known.process is not None:
                os.close(known.process)
        self._workers.close()
        self._clients.close()
        self._context.term()

    def _terminated(self, _: int, __: FrameType | None) -> None:
        self._finished = True

    # --- receiving and sending

    def _receive(self, socket: zmq.Socket[bytes], take: Callable[[bytes, bytes], None], most: int) -> None:
        try:
            for _ in range(most):
                identity, *frames = socket.recv_multipart(zmq.NOBLOCK)
                take(identity, frames[0] if len(frames) == 1 else b"")
        except zmq.Again:
            return

    def _send(self, socket: zmq.Socket[bytes], identity: bytes, message: Message) -> bool:
        """Whether the message could be sent; a peer that is gone or does not listen gets none."""
        try:
            socket.send_multipart([identity, packed(message)], zmq.NOBLOCK)
        except (zmq.Again, zmq.ZMQError, MessageError):
            return False
        return True

    def _broadcast(self, message: Message) -> None:
        """Tell all watchers; those that are gone are forgotten."""
        self._watchers = {watcher for watcher in self._watchers if self._send(self._workers, watcher, message)}

    # --- clients

    def _from_client(self, client: bytes, raw: bytes) -> None:
        try:
            request: FromClient = FROM_CLIENT.message(raw)
        except MessageError as error:
            self._broadcast(NotDone(f"from a client: {error}"))
            return
        now_s = monotonic()
        queue = self._queues.get(request.tenant)
        if queue is None:
            if isinstance(request, TurnedAway | Labelled):
                return
            known = " ".join(self._queues)
            reason = f"no tenant {request.tenant[:100]!r}; there is: {known}"[:1000]
            self._send(self._clients, client, Answer(request.id, Status.REFUSED, now_s, reason=reason))
            return
        if isinstance(request, TurnedAway):
            queue.turned_away(request.arrival_s, request.requests, now_s)
            return
        if isinstance(request, Labelled):
            self._broadcast(request)
            return
        queue.arrive(
            client, request.id, request.arrival_s, request.deadline_s, request.payload, now_s, request.expected
        )

    def _hand_out(self, now_s: float) -> None:
        while given := self._lanes.hand_out(now_s):  # again where a worker could not be reached
            for name, batch in given:
                message = Batch(tuple(one.number for one in batch), tuple(one.payload for one in batch))
                if not self._send(self._workers, WORKER + name.encode(), message):
                    self._lose(name, "its connection is gone")
        for name in self._lanes.kept():
            if name in self._loads:
                self._pass_on(name, self._known[name], self._loads.pop(name))
            else:
                self._broadcast(Lent(name, monotonic()))
        for queue in self._queues.values():
            self._answer_clients(queue)

    def _answer_clients(self, queue: TenantQueue) -> None:
        for one in queue.resolved():
            payload, reason = (one.answer, "") if isinstance(one.answer, bytes) else (None, one.answer)
            answer = Answer(one.request.id, one.status, one.at_s, one.version, payload, reason)
            self._send(self._clients, one.request.client, answer)

    # --- workers

    def _from_workers(self, identity: bytes, raw: bytes) -> None:
        role, name = identity[:1], identity[1:].decode("utf-8", "replace")
        try:
            if role == CONTROLLER:
                self._from_controller(identity, FROM_CONTROLLER.message(raw))
            elif role == HEART:
                self._from_heart(identity, name, FROM_HEART.message(raw))
            elif role == WORKER:
                self._from_worker(name, FROM_WORKER.message(raw))
            else:
                self._broadcast(NotDone(f"from {name}: its connection is neither a worker's nor a controller's"[:1000]))
        except (MessageError, ValueError) as error:
            self._broadcast(NotDone(f"from {name}: {error}"[:1000]))
            if role == WORKER:
                self._dismiss(name, f"refused: {error}"[:1000])

    def _from_heart(self, identity: bytes, name: str, message: Heartbeat) -> None:
        known = self._known.get(name)
        now_s = monotonic()
        if known is None:  # its Hello comes by another connection, which may be the slower one
            is_welcome = now_s - self._strangers.setdefault(name, now_s) <= self._setup.silence_s
        else:
            is_welcome, known.received_s = known.state is not State.GONE, now_s
        if is_welcome:
            self._send(self._workers, identity, Beat())
            self._broadcast(message)
        else:
            self._send(self._workers, identity, Stop(name, "it was given up" if known else "it is not known"))

    def _from_worker(self, name: str, message: FromWorker) -> None:
        known = self._known.get(name)
        if isinstance(message, Hello):
            self._join(name, message)
            return
        if known is None or known.state is State.GONE:
            self._dismiss(name, "it was given up" if known else "it is not known")
            return
        queue = self._queues[known.tenant]
        match message:
            case Ready():
                known.ready = message
                self._change(name, State.WARM)
            case Credit():
                queue.credit(name, message.requests)
                if known.state is State.WARM:
                    self._change(name, State.SERVING)
            case Answers():
                answers = [_fitting(answer) for answer in message.answers]
                queue.answer(name, message.ids, answers, message.version, monotonic())
                queue.credit(name, message.credit)
            case Loaded():
                queue.pause(name, paused=False)
                self._lanes.release(name)
                known.ready = Ready(known.ready.library_s, known.ready.model_s, known.ready.warm_up_s, message.version)
                self._broadcast(message)
            case Goodbye():
                self._lose(name, message.reason, to_blame=False)
                self._send(self._workers, WORKER + name.encode(), Stop(name, message.reason))

    def _join(self, name: str, hello: Hello) -> None:
        if name in self._known:
            raise MessageError(f"worker {name}: there was one of this name already")
        if hello.tenant not in self._queues:
            raise MessageError(f"worker {name}: no tenant {hello.tenant!r}; there is: {' '.join(self._queues)}")
        latency = LatencyCurve(hello.batches, hello.latency_s)
        self._queues[hello.tenant].join(name, latency, hello.batch_limit)
        self._lanes.join(hello.lane or name, hello.tenant, name, is_shared=hello.is_shared)
        known = self._known[name] = _Known(hello.tenant, monotonic())
        self._strangers.pop(name, None)
        try:
            known.process = os.pidfd_open(hello.pid)
        except (AttributeError, OSError, OverflowError):  # not this system, another one's process, or gone: by silence
            known.process = None
        else:
            self._poller.register(known.process, zmq.POLLIN)
        self._change(name, State.STARTING)

    def _reap(self, processes: Sequence[int]) -> None:
        """Give up the workers whose processes are gone."""
        for name, known in list(self._known.items()):
            if known.process in processes:
                self._lose(name, known.reason or "its process is gone")

    def _kill(self, name: str, reason: str) -> bool:
        """Kill a worker, so that its lane is free once it is dead; whether that can be done."""
        known = self._known[name]
        if known.process is None:
            return False
        known.reason = reason
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(known.process, signal.SIGKILL)
        return True

    def _dismiss(self, name: str, reason: str) -> None:
        """Tell a worker to leave, by either connection, and give it up."""
        for role in (HEART, WORKER):
            self._send(self._workers, role + name.encode(), Stop(name, reason))
        self._lose(name, reason)

    def _lose(self, name: str, reason: str, *, to_blame: bool = True) -> None:
        """Give a worker up: what it has waits again."""
        known = self._known.get(name)
        if known is None or known.state is State.GONE:
            return
        self._loads.pop(name, None)
        self._lanes.leave(known.tenant, name)
        self._queues[known.tenant].leave(name, monotonic(), to_blame=to_blame)
        if known.process is not None:
            self._poller.unregister(known.process)
            os.close(known.process)
            known.process = None
        self._change(name, State.GONE, reason)

    def _change(self, name: str, state: State, reason: str = "") -> None:
        known = self._known[name]
        known.state, known.reason = state, reason
        self._broadcast(self._changed(name, known))

    def _changed(self, name: str, known: _Known) -> Changed:
        ready = known.ready
        seconds = (ready.library_s, ready.model_s, ready.warm_up_s)
        return Changed(name, known.tenant, known.state, monotonic(), known.reason, *seconds, ready.version)

    # --- controllers

    def _from_controller(self, identity: bytes, message: FromController) -> None:
        match message:
            case Watch():
                self._watchers.add(identity)
                self._tell_all(identity)
            case DrainAll():
                self._watchers.add(identity)
                self._drain_all(message.retry_after_s)
            case Finish():
                self._watchers.add(identity)
                self._finished = True
            case Worth():
                if message.tenant in self._queues:
                    self._lanes.worth[message.tenant] = message.worth
                else:
                    self._send(self._workers, identity, NotDone(f"Worth: no tenant {message.tenant!r}"[:1000]))
            case Tenants():
                self._change_tenants(message.names)
            case Lend():
                self._lanes.lend(message.lane, message.worker)
            case Return():
                self._lanes.give_back(message.worker)
            case Serve() | Share() | Load() | Drain() | Stop():
                worker = self._known.get(message.worker)
                if worker is None or worker.state is State.GONE:
                    why = "it is not known" if worker is None else "it is gone"
                    self._send(self._workers, identity, NotDone(f"{type(message).__name__} {message.worker}: {why}"))
                else:
                    self._orders[type(message)](message.worker, worker, message)

    def _change_tenants(self, names: Sequence[str]) -> None:
        """Take requests of these tenants alone."""
        setup = self._setup
        for name in names:
            if name not in self._queues:
                self._queues[name] = TenantQueue(name, setup.origin_s, setup.queue_bytes, setup.closes_s)
                self._lanes.worth.setdefault(name, 1.0)
        if self._draining is None:
            for name, queue in self._queues.items():
                queue.closed = "" if name in names else "no further request of this tenant is taken"

    def _tell_all(self, watcher: bytes) -> None:
        """Report the counts."""
        drains = () if self._draining is None else (self._draining,)
        workers = (self._changed(name, known) for name, known in self._known.items())
        counts = (own for queue in self._queues.values() for own in queue.all_counts())
        for message in chain([Beat()], drains, workers, counts):
            self._send(self._workers, watcher, message)

    def _drain_all(self, retry_after_s: float) -> None:
        self._draining, self._is_drained = Draining(retry_after_s), False
        for queue in self._queues.values():
            queue.closed = "no further request is taken"
        self._broadcast(self._draining)

    def _look_whether_drained(self) -> None:
        if self._draining is None or self._is_drained or any(queue.n_open for queue in self._queues.values()):
            return
        self._is_drained = True
        for queue in self._queues.values():
            self._broadcast_counts(queue)
        self._broadcast(Drained())

    def _pass_on(self, name: str, _: _Known, order: Order) -> None:
        self._send(self._workers, WORKER + name.encode(), order)

    def _load(self, name: str, known: _Known, order: Order) -> None:
        self._queues[known.tenant].pause(name)
        if not self._lanes.has_turns(name):
            self._lanes.loads(name)
            self._pass_on(name, known, order)
        elif name in self._loads:
            self._loads[name] = order  # newer weights, before its lane was free
        else:
            self._loads[name] = order
            self._lanes.keep(name)

    def _share(self, name: str, known: _Known, order: Order) -> None:
        assert isinstance(order, Share)
        latency = LatencyCurve(order.batches, order.latency_s)
        self._queues[known.tenant].serve_by(name, latency, order.batch_limit)
        self._lanes.share(name, is_shared=order.is_shared)
        self._pass_on(name, known, order)

    def _drain(self, name: str, known: _Known, order: Order) -> None:
        if known.state is State.STARTING:
            self._dismiss(name, "drained before it was ready")
            return
        self._queues[known.tenant].drain(name)
        if known.state is not State.DRAINING:
            self._change(name, State.DRAINING)
            self._pass_on(name, known, order)

    def _stop(self, name: str, _: _Known, order: Order) -> None:
        assert isinstance(order, Stop)
        self._dismiss(name, order.reason)

    # --- time

    def _tick(self, now_s: float, *, is_behind: bool) -> None:
        """Look for silence and for batches that take too long; tell what has changed."""
        for name, known in list(self._known.items()):
            if is_behind:
                known.received_s = now_s  # this process was held up, and may have heard nothing for that reason
            if known.state is not State.GONE and now_s - known.received_s > self._setup.silence_s:
                reason = f"not heard for {now_s - known.received_s:.1f} s"
                if not self._kill(name, reason):
                    self._dismiss(name, reason)
        for queue in self._queues.values():
            for name, begun_s in queue.overdue(now_s, self._most_s):
                n_back = queue.give_back(name, now_s)
                self._broadcast(Hung(name, now_s - begun_s, n_back))
                if self._lanes.has_turns(name):  # others wait for it
                    self._kill(name, f"it had a batch for {now_s - begun_s:.1f} s")
            self._broadcast_counts(queue)
        closed = min((queue.closed_before(now_s) for queue in self._queues.values()), default=0)
        if self._setup.closes_s is not None and closed > self._closed:
            self._closed = closed
            self._broadcast(Closed(closed))

    def _most_s(self, latency_s: float) -> float:
        return max(self._setup.hang_s, self._setup.hang_factor * latency_s)

    def _broadcast_counts(self, queue: TenantQueue) -> None:
        for counts in queue.changed_counts():
            self._broadcast(counts)

    def _finish(self) -> None:
        """Send all workers away, answer what still waits, and tell the last counts."""
        for name in list(self._known):
            self._dismiss(name, "the run has ended")
        for queue in self._queues.values():
            queue.drop_all(monotonic(), "the run has ended")
            self._answer_clients(queue)
            self._broadcast_counts(queue)
        self._broadcast(Finished())


def _fitting(answer: bytes | NoAnswer) -> bytes | str:
    """The answer, if there is one that a message to a client can hold; else why there is none."""
    if isinstance(answer, NoAnswer):
        return answer.reason
    if len(answer) > MOST_BYTES - 4096:
        return f"the model's answer has {len(answer)} bytes; allowed: at most {MOST_BYTES - 4096}"
    return answer


def main(arguments: Sequence[str]) -> int:
    """Dispatch as the arguments say; 0, or 2 where it cannot be done."""
    try:
        parent, (text,) = begun(arguments, 1, signal.SIGTERM)
        dispatch(value_in(text, DispatcherSetup), parent)
    except (WorkloadError, ValueError) as error:
        sys.stderr.write(f"dispatcher: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
