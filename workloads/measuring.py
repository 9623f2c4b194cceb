"""The process that measures a model where it stands: in an instance, while its neighbours are as busy as it is.

Forked from a zygote (:func:`measures`). It makes the model, answers a first batch, connects to whoever measures, and
then does what it is told, one JSON object a message: ``run`` a load and tell once it is running; ``measure`` it from
one moment of the machine's monotonic clock to another, and go on, so that neighbours are measured beside a full load;
``rest``. When the connection ends, so does the process.

A load is batches, answered one after the other, or the steps of a retraining as its trainer makes them. Both give
their results to the CPU, so a GPU has finished when their time is taken. Batches come and answers go as in live
serving, by the same messages and sockets, with a feeder (:func:`feeds`) in the dispatcher's place: where a model is
small, they take longer than the model.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zmq

from workloads.errors import WorkloadError
from workloads.live.messages import MOST_BATCH_BYTES, Answers, Batch, Credit, packed, unpacked
from workloads.live.model import Model, answers_of, factory, imported, made_by
from workloads.live.wire import WORKER, WORKERS, Peer, private_folder, router

LIBRARY, MODEL, WARM = "library", "model", "warm"
"""The phases of a start: libraries are loaded, the model is made, it has answered a first batch."""

LEAST_PASSES = 3
"""A stretch holds no fewer batches or steps, however long they take."""

_LARGEST = 1 << 16
_WAIT_S = 0.25
_N_BEFORE = 2
"""Batches or steps before a load counts as running: libraries come to life in the first."""


@dataclass(frozen=True, slots=True)
class Load:
    """What keeps a process busy.

    Attributes:
        batch: Requests in a batch; new samples in a step.
        strategy: Of a retraining; ``None``: batches are answered.
        learning_rate: Of a retraining.
    """

    batch: int
    strategy: str | None = None
    learning_rate: float = 0.02


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one process did from one batch's begin to a later one's end, without a pause.

    Attributes:
        n_passes: Batches answered, or steps made, ≥ 1.
        n_samples: Requests in them, or new samples.
        span_s: Seconds that they took together.
        median_s: Of one.
        p95_s: Of 95 in 100, no longer than this.
        cpu_s: CPU time of the process meanwhile.
    """

    n_passes: int
    n_samples: float
    span_s: float
    median_s: float
    p95_s: float
    cpu_s: float


class Reporter(Protocol):
    """How a forked worker tells the process that it was forked from how far it is."""

    def reached(self, phase: str) -> None:
        """It has come to a phase."""
        ...


def measures(
    reporter: Reporter,
    *,
    worker: str,
    address: str,
    feeder: str,
    model: str,
    options: Mapping[str, object],
    imports: tuple[str, ...],
    sample: str,
    samples: str | None,
) -> int:
    """Be a worker that is measured; 0 once whoever measures is gone.

    Args:
        reporter: Hears of the phases.
        worker: How it calls itself at ``address``, a Unix socket.
        address: Where it is told what to do.
        feeder: The folder of the sockets by which batches come.
        model: A name of the catalogue, or ``module:callable``.
        options: The model is called with them.
        imports: Its libraries.
        sample: A file that holds one input.
        samples: A file of training samples, see :func:`write_samples`; ``None``: there is no retraining.

    Raises:
        ModelError: The model cannot be had, or does not answer.
    """
    for module in imports:
        imported(module, model)
    make = factory(model)
    reporter.reached(LIBRARY)
    made = made_by(make, model, options)
    reporter.reached(MODEL)
    payload = Path(sample).read_bytes()
    answers_of(made, [payload])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        orders = _Orders(connection)
        batches = Peer(Path(feeder), WORKERS, WORKER + worker.encode(), frozenset([Batch]))
        orders.tell({"worker": worker})
        reporter.reached(WARM)
        _obey(orders, batches, made, samples)
    return 0


def feeds(reporter: Reporter, *, folder: str, sample: str) -> int:
    """Stand in for a dispatcher that always has requests: a worker that has credit is given a batch, until killed.

    Args:
        reporter: Hears that it is there.
        folder: Of its sockets.
        sample: A file that holds one input.
    """
    payload = Path(sample).read_bytes()
    socket_ = router(zmq.Context(), private_folder(Path(folder)), WORKERS, MOST_BATCH_BYTES)
    reporter.reached(WARM)
    batches: dict[int, bytes] = {}
    while True:
        identity, raw = socket_.recv_multipart()
        match unpacked(raw, frozenset([Credit, Answers])):
            case Credit(requests=credit) | Answers(credit=credit):
                pass
            case _:
                continue
        if credit not in batches:
            batches[credit] = packed(Batch(tuple(range(credit)), (payload,) * credit))
        with suppress(zmq.ZMQError):  # the worker is gone
            socket_.send_multipart((identity, batches[credit]))


def write_samples(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    """Write ``new_inputs``, ``new_labels``, ``memory_inputs`` and ``memory_labels`` for :func:`measures`."""
    np.savez(path, allow_pickle=False, **arrays)


class _Gone(Exception):  # noqa: N818 (it ends the process, which is no error)
    """Whoever measures is gone."""


class _Rest(Exception):  # noqa: N818 (it ends a load, which is no error)
    """The load is no longer needed."""


class _Orders:
    """The connection to whoever measures."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def tell(self, told: Mapping[str, object]) -> None:
        """Say it, if anybody is there."""
        try:
            self._connection.send(json.dumps(told).encode())
        except OSError as error:
            raise _Gone from error

    def next(self) -> dict[str, Any]:
        """The next order, whenever it comes."""
        try:
            message = self._connection.recv(_LARGEST)
        except OSError as error:
            raise _Gone from error
        if not message:
            raise _Gone
        order: dict[str, Any] = json.loads(message)
        return order

    def now(self) -> dict[str, Any] | None:
        """An order that is there already."""
        return self.next() if select.select([self._connection], [], [], 0.0)[0] else None


@dataclass
class _Pace:
    """Takes the time of each pass; between two that are not measured it heeds orders."""

    orders: _Orders
    samples_per_pass: float
    n_done: int = 0
    window_s: tuple[float, float] | None = None
    is_measuring: bool = False
    begin_s: float = 0.0
    since_s: float = 0.0
    cpu_since_s: float = 0.0
    took_s: list[float] = field(default_factory=list)

    def passed(self) -> None:
        """One more pass is done, and the next begins.

        Raises:
            _Rest: No more are needed.
        """
        end_s = time.monotonic()
        self.n_done += 1
        if self.window_s is None:
            self._heed()
            return
        from_s, until_s = self.window_s
        if self.is_measuring:
            self.took_s.append(end_s - self.begin_s)
            self.begin_s = end_s
            if end_s >= until_s and len(self.took_s) >= LEAST_PASSES:
                self._tell(end_s)
        elif end_s >= from_s:  # the next pass is the first that counts
            self.is_measuring, self.took_s = True, []
            self.begin_s = self.since_s = end_s
            self.cpu_since_s = time.process_time()

    def _heed(self) -> None:
        if self.n_done == _N_BEFORE:
            self.orders.tell({"running": True})
        order = self.orders.now()
        if order is None:
            return
        if "rest" in order:
            raise _Rest
        from_s, until_s = order["measure"]
        self.window_s = (from_s, until_s)

    def _tell(self, end_s: float) -> None:
        told = Stretch(
            n_passes=len(self.took_s),
            n_samples=len(self.took_s) * self.samples_per_pass,
            span_s=end_s - self.since_s,
            median_s=float(np.median(self.took_s)),
            p95_s=float(np.quantile(self.took_s, 0.95, method="higher")),
            cpu_s=time.process_time() - self.cpu_since_s,
        )
        self.window_s, self.is_measuring = None, False
        self.orders.tell({"measured": asdict(told)})


def _obey(orders: _Orders, batches: Peer, model: Model, samples: str | None) -> None:
    """Do what is ordered until nobody orders any more."""
    while True:
        try:
            order = orders.next()
            if "run" not in order:
                continue  # a rest, after a load that has ended by itself
            load = Load(**order["run"])
            if load.strategy is None:
                _answer(orders, batches, model, load.batch)
            else:
                _train(orders, model, samples, load)
        except _Rest:
            continue
        except _Gone:
            return
        except WorkloadError as error:
            said = str(error)
        except Exception as error:  # noqa: BLE001 - torch without memory, or a user's model about anything
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        orders.tell({"error": said[:300]})


def _answer(orders: _Orders, batches: Peer, model: Model, n_requests: int) -> None:
    """Batches, as a live worker takes and answers them."""
    pace = _Pace(orders, n_requests)
    batches.send(Credit(n_requests))
    while True:
        for batch in batches.receive(_WAIT_S):
            if not isinstance(batch, Batch):
                continue
            begin_s = time.perf_counter()
            answers = answers_of(model, batch.payloads)
            pace.passed()  # before credit is given: who rests has no batch under way
            batches.send(Answers(batch.ids, tuple(answers), "", time.perf_counter() - begin_s, n_requests))


def _train(orders: _Orders, model: Model, samples: str | None, load: Load) -> None:
    """The steps of a retraining that never ends, on a copy of the model."""
    from workloads.learning.course import Option  # noqa: PLC0415 - of models that learn
    from workloads.learning.experiences import Samples  # noqa: PLC0415
    from workloads.learning.models import Classifier  # noqa: PLC0415
    from workloads.learning.training import fit  # noqa: PLC0415

    if not isinstance(model, Classifier) or samples is None:
        raise WorkloadError("it cannot be retrained: no Classifier, or nothing to learn from")
    with np.load(samples, allow_pickle=False) as arrays:
        new, memory = (Samples(arrays[f"{of}_inputs"], arrays[f"{of}_labels"]) for of in ("new", "memory"))
    strategy = load.strategy or "naive"
    option = Option("measured", strategy, n_epochs=10**9, batch=load.batch, learning_rate=load.learning_rate)
    # Batches are of even size: so many new samples are in one on average.
    pace = _Pace(orders, len(new) / -(-len(new) // load.batch))
    fit(model.copied(), new, memory, option, seed=0, steps=_Steps(pace.passed))


@dataclass(frozen=True, slots=True)
class _Steps:
    """What a trainer tells of its steps."""

    passed: Callable[[], None]

    def step(self, loss: float, n_steps: int) -> None:
        """One more of ``n_steps`` is done."""
        del loss, n_steps
        self.passed()
