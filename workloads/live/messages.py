"""What the processes of live serving say to each other, in msgpack; whatever arrives is checked field by field.

A message is the array ``[VERSION, kind, *fields]``. All times are seconds of the machine's monotonic clock, which its
processes share. Who says what to whom:

=======================  ==============================================================================================
client → dispatcher      :class:`Request`
dispatcher → client      :class:`Answer`, one for each request
worker → dispatcher      :class:`Hello`, :class:`Ready`, :class:`Credit`, :class:`Answers`, :class:`Loaded`,
                         :class:`Goodbye`; :class:`Heartbeat` by a connection of its own
dispatcher → worker      :class:`Batch`; the orders :class:`Serve`, :class:`Load`, :class:`Drain`, :class:`Stop`;
                         :class:`Beat`
controller → dispatcher  :class:`Watch`, :class:`Finish`, and the orders, which are passed on to the worker
dispatcher → controller  :class:`Beat`, :class:`Changed`, :class:`Heartbeat`, :class:`Hung`, :class:`Loaded`,
                         :class:`Counts`, :class:`Finished`, :class:`NotDone`
=======================  ==============================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal, get_type_hints

import msgpack

from workloads.errors import WorkloadError

VERSION = 1
"""Of the messages; processes of different versions refuse each other's."""

MOST_BYTES = 16 * 2**20
"""Of one message, but for those that hold a batch."""

MOST_BATCH = 4096
"""Requests in one batch."""

MOST_BATCH_BYTES = 2**30
"""Of a message with a batch's inputs or answers; they come from our own queues and workers."""


class MessageError(WorkloadError, ValueError):
    """What arrived is no message of ours, or one that has no business here."""


class State(StrEnum):
    """A worker's, in this order; ``gone`` may follow any."""

    STARTING = "starting"
    """The process runs; it loads libraries and its model."""
    WARM = "warm"
    """It has answered its warm-up batch."""
    SERVING = "serving"
    """It takes batches."""
    DRAINING = "draining"
    """It takes no further batch; one that it has is finished."""
    GONE = "gone"
    """It left, died or fell silent; what it had is waiting again."""


class Status(StrEnum):
    """What became of a request."""

    IN_TIME = "in_time"
    LATE = "late"
    DROPPED = "dropped"
    """It could not be answered in time any more."""
    REFUSED = "refused"
    """There was no room, or there is no such tenant; it was never in the queue."""
    FAILED = "failed"
    """The model raised, or workers died of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One input to answer.

    Attributes:
        id: The client's own number; an answer names it.
        arrival_s: When it was to arrive; a generator that is late does not move it.
        deadline_s: Worth nothing after it.
        expected: The right answer, where it is known; workers are not shown it.
    """

    id: int
    tenant: str
    arrival_s: float
    deadline_s: float
    payload: bytes
    expected: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        at_s: When the dispatcher had it.
        version: Of the model that answered; empty if none did.
        payload: The answer; ``None`` unless in time or late.
        reason: Why there is none.
    """

    id: int
    status: Status
    at_s: float
    version: str = ""
    payload: bytes | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker's process runs.

    Attributes:
        batch_limit: Most requests in one batch.
        batches: With ``latency_s``, how long a batch is to take: see :class:`workloads.profiles.latency.LatencyCurve`.
    """

    tenant: str
    pid: int
    batch_limit: int
    batches: tuple[int, ...]
    latency_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is warm: how long it took to load libraries, then the model, then to answer a first batch."""

    library_s: float
    model_s: float
    warm_up_s: float
    version: str


@dataclass(frozen=True, slots=True)
class Credit:
    """The worker is idle and takes a batch of up to so many requests."""

    requests: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests to answer, the oldest first."""

    ids: tuple[int, ...]
    payloads: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.ids) == len(self.payloads) <= MOST_BATCH:
            raise MessageError(f"batch of {len(self.ids)} ids, {len(self.payloads)} payloads; allowed: 1–{MOST_BATCH}")


@dataclass(frozen=True, slots=True)
class Answers:
    """A batch's answers; a text in the place of bytes says why there is none.

    Attributes:
        service_s: How long the model took.
        credit: As in :class:`Credit`; 0: the worker takes no further batch.
    """

    ids: tuple[int, ...]
    answers: tuple[bytes | str, ...]
    version: str
    service_s: float
    credit: int

    def __post_init__(self) -> None:
        if not 0 < len(self.ids) == len(self.answers) <= MOST_BATCH:
            raise MessageError(f"{len(self.answers)} answers to {len(self.ids)} requests; allowed: 1–{MOST_BATCH}")


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The worker leaves, once the dispatcher has answered with :class:`Stop`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker's process lives; the dispatcher passes it on to controllers.

    Attributes:
        busy_s: For how long it has been at what it is doing: starting, a batch, new weights; 0: it waits.
        batches: Answered so far, of ``answers`` requests; ``failures`` of them without an answer.
    """

    worker: str
    state: State
    busy_s: float
    batches: int
    answers: int
    failures: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The dispatcher lives."""


@dataclass(frozen=True, slots=True)
class Serve:
    """A worker that waits warm is to take batches."""

    worker: str


@dataclass(frozen=True, slots=True)
class Load:
    """A worker is to take new weights once its batch is done."""

    worker: str
    weights: str
    version: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """It did, between two batches, and the model took ``swap_s`` to load them; or why it has kept the old ones."""

    worker: str
    version: str
    swap_s: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """A worker is to finish its batch and leave."""

    worker: str


@dataclass(frozen=True, slots=True)
class Stop:
    """A worker is to leave at once, whatever it does."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Watch:
    """The controller wants to hear: first a :class:`Beat`, the workers and counts of now, then whatever changes."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The dispatcher is to stop all workers, drop what waits, and end."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A worker's state; the seconds are those of :class:`Ready`, 0 before."""

    worker: str
    tenant: str
    state: State
    at_s: float
    reason: str = ""
    library_s: float = 0.0
    model_s: float = 0.0
    warm_up_s: float = 0.0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Hung:
    """A worker has had a batch of so many requests for ``batch_s``; they wait again, and it gets no other one."""

    worker: str
    batch_s: float
    requests: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the requests that arrived in one second: the latest word on it.

    Attributes:
        second: Of the intended arrival, from the run's origin.
        dropped: All that got no answer; ``refused`` and ``failed`` of them were not dropped for their deadline.
        judged: Answered requests whose right answer is known; ``correct`` of them were right, ``goodput`` also in time.
    """

    tenant: str
    second: int
    arrived: int
    in_time: int
    late: int
    dropped: int
    refused: int
    failed: int
    judged: int
    correct: int
    goodput: int

    @property
    def waiting(self) -> int:
        """Neither answered nor dropped so far."""
        return self.arrived - self.in_time - self.late - self.dropped


@dataclass(frozen=True, slots=True)
class Finished:
    """The dispatcher's last word; all counts came before."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """An order was not passed on, or a message was refused."""

    reason: str


Order = Serve | Load | Drain | Stop
FromWorker = Hello | Ready | Credit | Answers | Loaded | Goodbye | Heartbeat
ToWorker = Batch | Order | Beat
FromController = Watch | Finish | Order
ToController = Beat | Changed | Heartbeat | Hung | Loaded | Counts | Finished | NotDone
Message = Request | Answer | FromWorker | ToWorker | FromController | ToController


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1000


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: object) -> bool:
    return type(value) in (float, int) and math.isfinite(value)  # type: ignore[arg-type]


def _each(check: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and len(value) <= MOST_BATCH and all(map(check, value))


_CHECKS: dict[object, tuple[Callable[[Any], bool], str]] = {
    int: (_is_count, "a whole number of at least 0"),
    float: (_is_number, "a finite number"),
    str: (_is_text, "text of at most 1000 characters"),
    bytes: (lambda value: isinstance(value, bytes), "bytes"),
    bytes | None: (lambda value: value is None or isinstance(value, bytes), "bytes or nothing"),
    State: (lambda value: value in tuple(State), " ".join(State)),
    Status: (lambda value: value in tuple(Status), " ".join(Status)),
    tuple[int, ...]: (_each(_is_count), "a list of whole numbers"),
    tuple[float, ...]: (_each(_is_number), "a list of finite numbers"),
    tuple[bytes, ...]: (_each(lambda value: isinstance(value, bytes)), "a list of bytes"),
    tuple[bytes | str, ...]: (_each(lambda value: isinstance(value, bytes) or _is_text(value)), "a list of bytes"),
}


class _Kind:
    """How one kind of message is packed and checked."""

    def __init__(self, made: type[Message]) -> None:
        hints = get_type_hints(made)
        names = [field.name for field in fields(made)]
        self.made, self.name = made, made.__name__
        self.checks = [(name, *_CHECKS[hints[name]]) for name in names]
        enums = [(place, hints[name]) for place, name in enumerate(names) if hints[name] in (State, Status)]
        self.enums: list[tuple[int, type[StrEnum]]] = enums
        self.values: Callable[[Any], tuple[object, ...]]
        match names:
            case []:
                self.values = lambda _: ()
            case [name]:
                self.values = lambda message: (getattr(message, name),)
            case _:
                self.values = attrgetter(*names)

    def message(self, values: tuple[object, ...]) -> Message:
        if len(values) != len(self.checks):
            raise MessageError(f"message {self.name}: has {len(values)} fields; {len(self.checks)} are needed")
        for (name, is_right, allowed), value in zip(self.checks, values, strict=True):
            if not is_right(value):
                raise MessageError(f"message {self.name}: {name}: {_shown(value)}; allowed: {allowed}")
        given: list[Any] = list(values)
        for place, enum in self.enums:
            given[place] = enum(given[place])
        return self.made(*given)


_BATCHES = (Batch, Answers)
_KINDS = {kind.__name__: _Kind(kind) for kind in Message.__args__}


def packed(message: Message) -> bytes:
    """The message as it goes over the wire.

    Raises:
        MessageError: It would be too large.
    """
    name = type(message).__name__
    raw: bytes = msgpack.packb((VERSION, name, *_KINDS[name].values(message)))
    most = MOST_BATCH_BYTES if isinstance(message, _BATCHES) else MOST_BYTES
    if len(raw) > most:
        raise MessageError(f"message {name}: {len(raw)} bytes; allowed: at most {most}")
    return raw


def unpacked(raw: bytes, allowed: frozenset[type[Message]]) -> Message:
    """The message of one of the ``allowed`` kinds that ``raw`` holds.

    Raises:
        MessageError: It holds none; the message says which field is wrong, and what is allowed.
    """
    most = MOST_BYTES if allowed.isdisjoint(_BATCHES) else MOST_BATCH_BYTES
    if len(raw) > most:
        raise MessageError(f"message: {len(raw)} bytes; allowed: at most {most}")
    try:
        parts = msgpack.unpackb(raw, use_list=False, ext_hook=_no_extension)
    except Exception as error:  # noqa: BLE001 - msgpack raises half a dozen unrelated kinds
        raise MessageError(f"message: no msgpack: {type(error).__name__}: {str(error)[:80]}") from None
    if not isinstance(parts, tuple) or len(parts) < 2:
        raise MessageError(f"message: {_shown(parts)}; allowed: [{VERSION}, kind, fields …]")
    version, name, *values = parts
    if version != VERSION:
        raise MessageError(f"message of version {_shown(version)}; allowed: {VERSION}")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None or kind.made not in allowed:
        names = " ".join(sorted(one.__name__ for one in allowed))
        raise MessageError(f"message {_shown(name)}: has no business here; allowed: {names}")
    return kind.message(tuple(values))


def _no_extension(code: int, _: bytes) -> Literal["never"]:
    raise MessageError(f"extension type {code}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
