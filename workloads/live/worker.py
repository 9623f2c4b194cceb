"""The process that serves one tenant's model: it asks for batches and answers them.

It leaves when its parent or the dispatcher is gone.

Run with ``python -m workloads.live.worker PARENT SETUP`` (a process id; JSON of a :class:`WorkerSetup`), or have a
process that has imported what is heavy fork and call :func:`forked`, with one thread and no socket of ours then.

The model runs in the main thread, which also talks with the dispatcher, so that a batch passes no further hand. A
second thread with a connection of its own tells twice a second that the process lives and for how long the batch under
way has been running; it heeds an order to stop whatever the model does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from executor.files import read_input
from executor.messages import value_in
from executor.zygote import Reporter
from workloads.errors import WorkloadError
from workloads.live.memory import Memory, Where, held
from workloads.live.messages import (
    MOST_BATCH_BYTES,
    TO_WORKER,
    Answers,
    Batch,
    Credit,
    Drain,
    Goodbye,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    NoAnswer,
    Ready,
    Serve,
    Share,
    State,
    Stop,
)
from workloads.live.model import Model, ModelError, answers_of, factory, imported, made_by, take_weights
from workloads.live.process import Parent, begun
from workloads.live.wire import HEART, WORKER, WORKERS, Peer

_WAIT_S = 0.25


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker needs to know.

    Attributes:
        folder: Where the dispatcher's sockets are.
        worker: Its own name, of 1 to 200 bytes: another one for each process of a run.
        tenant: Whose requests it answers.
        lane: The instance in which it computes; empty: one of its own.
        is_shared: It is a pool's.
        model: ``module:callable``, or a name of the catalogue, called with ``options``.
        batch_limit: Most requests in one batch.
        batches: With ``latency_s``: how long a batch is to take.
        imports: Libraries of the model, as ``torch``, so their time is separate from the model's.
        weights: A file to begin with; ``None``: those that the model is made with.
        version: How these weights are called.
        sample_bytes: Of an input; the warm-up batch is filled with such of zeros. ``None``: there is no warm-up batch,
        sample: unless this file holds an input that fills it.
        splits_batches: Where a batch as a whole has no answer, each of its inputs is tried alone.
        hold: Wait warm until told to serve.
        weighs: It tells what memory it takes, there.
        environment: Set before any library is loaded, as ``CUDA_VISIBLE_DEVICES``.
        heartbeat_s: How often it says that it lives.
        silence_s: It leaves when the dispatcher has not answered for so long.
    """

    folder: Path
    worker: str
    tenant: str
    model: str
    batch_limit: int
    batches: tuple[int, ...]
    latency_s: tuple[float, ...]
    lane: str = ""
    is_shared: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    weights: Path | None = None
    version: str = "0"
    sample_bytes: int | None = None
    sample: Path | None = None
    splits_batches: bool = True
    hold: bool = False
    weighs: Where = "nowhere"
    environment: Mapping[str, str] = field(default_factory=dict)
    heartbeat_s: float = 0.5
    silence_s: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.worker.encode()) <= 200:
            raise ValueError(f"worker: {self.worker[:50]!r}: must have 1 to 200 bytes")
        if not 0 < self.heartbeat_s < self.silence_s:
            raise ValueError(f"heartbeat_s: {self.heartbeat_s}: must be above 0 and below silence_s, {self.silence_s}")


def forked(reporter: Reporter, *, setup: str) -> int:
    """As :func:`work` with the JSON of a :class:`WorkerSetup`, in a child just forked; to be left with ``os._exit``.

    Raises:
        MessageError: It is no setup.
    """
    return work(value_in(setup, WorkerSetup), Parent(os.getppid()), reporter.reached)


def work(setup: WorkerSetup, parent: Parent, reached: Callable[[str], None] = lambda _: None) -> int:
    """Serve until told to leave: 0; or 1, where the model cannot be had."""
    os.environ.update(setup.environment)
    worker = _Worker(setup, parent, reached)
    signal.signal(signal.SIGTERM, worker.drain)
    try:
        reason, code = worker.serve(), 0
    except ModelError as error:
        reason, code = str(error), 1
        sys.stderr.write(f"worker {setup.worker}: {reason}\n")
    worker.leave(reason)
    return code


class _Heart(threading.Thread):
    """Says that the process lives, and ends it when its parent or the dispatcher is gone.

    Attributes:
        state: Told with each beat, as are the others.
        busy_since_s: Of what is under way; ``None`` while nothing is.
        counts: Batches, answers, and failures.
        leaving: The main thread ends the process itself.
    """

    def __init__(self, setup: WorkerSetup, parent: Parent) -> None:
        super().__init__(name="heart", daemon=True)
        self._setup, self._parent = setup, parent
        self.state = State.STARTING
        self.busy_since_s: float | None = perf_counter()
        self.counts = (0, 0, 0)
        self.leaving = False

    def run(self) -> None:
        code = self._beat()
        if not self.leaving:
            os._exit(code)

    def _beat(self) -> int:
        """Beat until there is a reason to leave; 0 if told so, 1 if the parent or the dispatcher is gone."""
        peer = Peer(self._setup.folder, WORKERS, HEART + self._setup.worker.encode(), TO_WORKER)
        unanswered_s = 0.0  # counted in beats: a process that was itself held up has heard nothing for no reason
        while not self._parent.is_gone and unanswered_s <= self._setup.silence_s:
            since_s = self.busy_since_s
            busy_s = 0.0 if since_s is None else perf_counter() - since_s
            peer.send(Heartbeat(self._setup.worker, self.state, busy_s, *self.counts))
            until_s = perf_counter() + self._setup.heartbeat_s
            unanswered_s += self._setup.heartbeat_s
            while (left_s := until_s - perf_counter()) > 0:
                for message in peer.receive(left_s):
                    unanswered_s = 0.0
                    if isinstance(message, Stop):
                        return 0
        return 1


class _Worker:
    def __init__(self, setup: WorkerSetup, parent: Parent, reached: Callable[[str], None]) -> None:
        self._setup, self._reached = setup, reached
        self._peer = Peer(setup.folder, WORKERS, WORKER + setup.worker.encode(), TO_WORKER)
        self._heart = _Heart(setup, parent)
        self._version, self._limit = setup.version, setup.batch_limit
        self._draining = False
        self._rest: Memory | None = None  # as it became warm
        self._weighed: set[int] = set()

    def drain(self, _: int = 0, __: FrameType | None = None) -> None:
        """Leave once the batch under way is done; also on SIGTERM."""
        self._draining, self._heart.state = True, State.DRAINING

    def serve(self) -> str:
        """Get ready, then answer batches until told to leave; why, or nothing where the dispatcher itself said so.

        Raises:
            ModelError: The model cannot be had, or does not answer its warm-up batch.
        """
        setup = self._setup
        measured = setup.batch_limit, setup.batches, setup.latency_s
        self._peer.send(Hello(setup.tenant, os.getpid(), *measured, setup.lane, setup.is_shared))
        self._heart.start()
        model = self._ready_model()
        if not setup.hold:
            self._begin()
        while not self._draining:
            for message in self._peer.receive(_WAIT_S):
                match message:
                    case Batch():
                        self._answer(model, message)
                    case Load():
                        self._load(model, message)
                    case Serve():
                        if self._heart.state is State.WARM:
                            self._begin()
                    case Share():
                        self._share(message)
                    case Drain():
                        self.drain()
                    case Stop():
                        return ""
        return "drained"

    def leave(self, reason: str) -> None:
        """Say goodbye and wait until it is heard: the end of a process is seen sooner than what it said last."""
        self._heart.leaving = True
        if reason:
            self._peer.send(Goodbye(reason[:1000]))
            until_s = perf_counter() + self._setup.silence_s
            while (left_s := until_s - perf_counter()) > 0:
                if any(isinstance(message, Stop) for message in self._peer.receive(left_s)):
                    break
        self._peer.close()

    def _ready_model(self) -> Model:
        """The model, with its weights, after a warm-up batch."""
        setup, begin_s = self._setup, perf_counter()
        for module in setup.imports:
            imported(module, setup.model)
        make = factory(setup.model)
        imported_s = perf_counter()
        bare = held(setup.weighs)
        model = made_by(make, setup.model, setup.options)
        if setup.weights is not None:
            error = take_weights(model, setup.weights)
            if error:
                raise ModelError(f"model {setup.model!r}: {error}")
        made = held(setup.weighs)
        made_s = perf_counter()
        if (sample := _sample(setup)) is not None:
            answers_of(model, [sample] * setup.batch_limit)
        self._heart.busy_since_s, self._heart.state = None, State.WARM
        took_s = imported_s - begin_s, made_s - imported_s, perf_counter() - made_s
        self._rest = held(setup.weighs)
        self._peer.send(Ready(*took_s, self._version, *_resident_mib(bare, made, self._rest)))
        self._reached(State.WARM)
        return model

    def _begin(self) -> None:
        self._heart.state = State.SERVING
        self._peer.send(Credit(self._limit))

    def _share(self, share: Share) -> None:
        self._limit = share.batch_limit
        if self._heart.state is State.SERVING:
            self._peer.send(Credit(self._limit))

    def _answer(self, model: Model, batch: Batch) -> None:
        weighs = self._rest is not None and len(batch.ids) not in self._weighed
        if weighs:
            held(self._setup.weighs)  # the peak begins anew
        begin_s = self._heart.busy_since_s = perf_counter()
        answers = _answered(model, batch.payloads, splits=self._setup.splits_batches)
        if sum(len(answer) for answer in answers if isinstance(answer, bytes)) > MOST_BATCH_BYTES // 2:
            answers = [NoAnswer("the batch's answers are too large to send")] * len(answers)
        credit = 0 if self._draining else self._limit
        service_s = perf_counter() - begin_s
        batch_mib = self._batch_mib(len(batch.ids)) if weighs else None
        self._peer.send(Answers(batch.ids, tuple(answers), self._version, service_s, credit, batch_mib))
        self._heart.busy_since_s = None
        n_batches, n_answers, n_failures = self._heart.counts
        n_failed = sum(isinstance(answer, NoAnswer) for answer in answers)
        self._heart.counts = (n_batches + 1, n_answers + len(answers), n_failures + n_failed)

    def _batch_mib(self, n_requests: int) -> float | None:
        """What the batch just answered has taken beyond a worker at rest."""
        self._weighed.add(n_requests)
        now = held(self._setup.weighs)
        return None if now is None or self._rest is None else max(0.0, now.peak_mib - self._rest.own_mib)

    def _load(self, model: Model, load: Load) -> None:
        begin_s = self._heart.busy_since_s = perf_counter()
        error = take_weights(model, Path(load.weights))
        swap_s = perf_counter() - begin_s
        self._heart.busy_since_s = None
        if not error:
            self._version = load.version
        self._peer.send(Loaded(self._setup.worker, self._version, swap_s, error))


def _resident_mib(bare: Memory | None, made: Memory | None, warm: Memory | None) -> tuple[float | None, float | None]:
    """What the weights take, and all else before a batch; ``bare`` is nothing where CUDA began with the model."""
    if made is None or warm is None:
        return None, None
    weights_mib = max(0.0, made.own_mib - (0.0 if bare is None else bare.own_mib))
    return weights_mib, None if warm.else_mib is None else max(0.0, warm.own_mib + warm.else_mib - weights_mib)


def _sample(setup: WorkerSetup) -> bytes | None:
    """An input of the warm-up batch."""
    if setup.sample is not None:
        return read_input(setup.sample)
    return None if setup.sample_bytes is None else bytes(setup.sample_bytes)


def _answered(model: Model, inputs: Sequence[bytes], *, splits: bool) -> list[bytes | NoAnswer]:
    """The answers; where the batch as a whole has none, why, or, if it ``splits``, those that each input has alone."""
    try:
        return list(answers_of(model, inputs))
    except ModelError as error:
        if len(inputs) == 1 or not splits:
            return [NoAnswer(str(error)[:1000])] * len(inputs)
    return [answer for one in inputs for answer in _answered(model, [one], splits=splits)]


def main(arguments: Sequence[str]) -> int:
    """Work as the arguments say; 0, 1 without a model, 2 where they are wrong."""
    try:
        parent, (text,) = begun(arguments, 1)
        setup = value_in(text, WorkerSetup)
    except (WorkloadError, ValueError) as error:
        sys.stderr.write(f"worker: {error}\n")
        return 2
    return work(setup, parent)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the second thread is in the middle of its connection
