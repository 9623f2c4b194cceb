"""What the processes of live serving say to each other; how it is sent and checked: :mod:`executor.messages`.

All times are seconds of the machine's monotonic clock, which its processes share. Who says what to whom:

=======================  ==============================================================================================
client → dispatcher      :class:`Request`, :class:`TurnedAway`, :class:`Labelled`
dispatcher → client      :class:`Answer`, one for each request
worker → dispatcher      :class:`Hello`, :class:`Ready`, :class:`Credit`, :class:`Answers`, :class:`Loaded`,
                         :class:`Goodbye`; :class:`Heartbeat` by a connection of its own
dispatcher → worker      :class:`Batch`; the orders :class:`Serve`, :class:`Share`, :class:`Load`, :class:`Drain`,
                         :class:`Stop`; :class:`Beat`
controller → dispatcher  :class:`Watch`, :class:`DrainAll`, :class:`Finish`, :class:`Worth`, :class:`Lend`,
                         :class:`Return`, :class:`Tenants`, and the orders, which are passed on to the worker
dispatcher → controller  :class:`Beat`, :class:`Changed`, :class:`Heartbeat`, :class:`Hung`, :class:`Loaded`,
                         :class:`Lent`, :class:`Counts`, :class:`Closed`, :class:`Draining`, :class:`Drained`,
                         :class:`Finished`, :class:`NotDone`
=======================  ==============================================================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta

from executor import messages
from executor.messages import Allowed, Count, Mebibytes, MessageError, Moment, Seconds

MOST_BYTES = 16 * 2**20
"""Of one message, but for those that hold a batch."""

MOST_BATCH = 4096
"""Requests in one batch."""

MOST_BATCH_BYTES = 2**30
"""Of a message with a batch's inputs or answers; they come from our own queues and workers."""

Text = Annotated[str, Meta(max_length=1000)]
"""A name, or a reason."""


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
    """The outcome of a request."""

    IN_TIME = "in_time"
    LATE = "late"
    DROPPED = "dropped"
    """It could not be answered in time any more."""
    REFUSED = "refused"
    """There was no room, there is no such tenant, or none is taken any more; it was never in the queue."""
    FAILED = "failed"
    """The model raised, or workers died of it."""


class Message(messages.Message, frozen=True):
    """What the processes of live serving say."""

    most_bytes: ClassVar[int] = MOST_BYTES


class Request(Message, frozen=True):
    """One input to answer.

    Attributes:
        id: The client's own number; an answer names it.
        arrival_s: When it was to arrive; a generator that is late does not move it.
        deadline_s: Worth nothing after it.
        expected: The right answer, where it is known; workers are not shown it.
    """

    id: Count
    tenant: Text
    arrival_s: Moment
    deadline_s: Moment
    payload: bytes
    expected: bytes | None = None


class TurnedAway(Message, frozen=True):
    """So many requests were refused before they came to the dispatcher, for want of room alone."""

    tenant: Text
    arrival_s: Moment
    requests: Count


class Labelled(Message, frozen=True):
    """Clients said of so many answers of a tenant's version which label was right; ``right`` of them had it."""

    tenant: Text
    version: Text
    labels: Count
    right: Count


class Answer(Message, frozen=True):
    """The outcome of a request.

    Attributes:
        at_s: When the dispatcher had it.
        version: Of the model that answered; empty if none did.
        payload: The answer; ``None`` unless in time or late.
        reason: Why there is none.
    """

    id: Count
    status: Status
    at_s: Moment
    version: Text = ""
    payload: bytes | None = None
    reason: Text = ""


class Hello(Message, frozen=True):
    """A worker's process runs.

    Attributes:
        batch_limit: Most requests in one batch.
        batches: With ``latency_s``, how long a batch is to take: see :class:`workloads.profiles.latency.LatencyCurve`.
        lane: The instance in which it computes; without one, it is the only worker there.
        is_shared: It is a pool's, so that tenants take turns there.
    """

    tenant: Text
    pid: Count
    batch_limit: Count
    batches: Annotated[tuple[Count, ...], Meta(max_length=MOST_BATCH)]
    latency_s: Annotated[tuple[Seconds, ...], Meta(max_length=MOST_BATCH)]
    lane: Text = ""
    is_shared: bool = False


class Ready(Message, frozen=True):
    """The worker is warm: how long it took to load libraries, then the model, then to answer a first batch.

    Attributes:
        weights_mib: What making the model took of memory, if the worker weighs itself and the system says it.
        context_mib: What else the process holds then, likewise.
    """

    library_s: Seconds
    model_s: Seconds
    warm_up_s: Seconds
    version: Text
    weights_mib: Mebibytes | None = None
    context_mib: Mebibytes | None = None


class Credit(Message, frozen=True):
    """The worker is idle and takes a batch of up to so many requests."""

    requests: Count


class Batch(Message, frozen=True):
    """Requests to answer, the oldest first."""

    most_bytes: ClassVar[int] = MOST_BATCH_BYTES
    ids: tuple[Count, ...]
    payloads: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.ids) == len(self.payloads) <= MOST_BATCH:
            raise MessageError(f"batch of {len(self.ids)} ids, {len(self.payloads)} payloads; allowed: 1–{MOST_BATCH}")


class NoAnswer(Message, frozen=True):
    """In the place of an answer: why there is none."""

    reason: Text


class Answers(Message, frozen=True):
    """A batch's answers.

    Attributes:
        service_s: How long the model took.
        credit: As in :class:`Credit`; 0: the worker takes no further batch.
        batch_mib: What the batch took of memory, told with a worker's first one of a size if it weighs itself.
    """

    most_bytes: ClassVar[int] = MOST_BATCH_BYTES
    ids: tuple[Count, ...]
    answers: tuple[bytes | NoAnswer, ...]
    version: Text
    service_s: Seconds
    credit: Count
    batch_mib: Mebibytes | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.ids) == len(self.answers) <= MOST_BATCH:
            raise MessageError(f"{len(self.answers)} answers to {len(self.ids)} requests; allowed: 1–{MOST_BATCH}")


class Goodbye(Message, frozen=True):
    """The worker leaves, once the dispatcher has answered with :class:`Stop`."""

    reason: Text


class Heartbeat(Message, frozen=True):
    """The worker's process lives; the dispatcher passes it on to controllers.

    Attributes:
        busy_s: For how long it has been at what it is doing: starting, a batch, new weights; 0: it waits.
        batches: Answered, of ``answers`` requests; ``failures`` of them without an answer.
    """

    worker: Text
    state: State
    busy_s: Seconds
    batches: Count
    answers: Count
    failures: Count


class Beat(Message, frozen=True):
    """The dispatcher lives."""


class Serve(Message, frozen=True):
    """A worker that waits warm is to take batches."""

    worker: Text


class Share(Message, frozen=True):
    """A worker serves on in another way: for a pool or for its tenant alone; the rest is as in :class:`Hello`."""

    worker: Text
    is_shared: bool
    batch_limit: Count
    batches: Annotated[tuple[Count, ...], Meta(max_length=MOST_BATCH)]
    latency_s: Annotated[tuple[Seconds, ...], Meta(max_length=MOST_BATCH)]


class Load(Message, frozen=True):
    """A worker is to take new weights once its batch is done."""

    worker: Text
    weights: Text
    version: Text


class Loaded(Message, frozen=True):
    """It did, between two batches, and the model took ``swap_s`` to load them; or why it has kept the old ones."""

    worker: Text
    version: Text
    swap_s: Seconds
    error: Text = ""


class Drain(Message, frozen=True):
    """A worker is to finish its batch and leave."""

    worker: Text


class Stop(Message, frozen=True):
    """A worker is to leave at once, whatever it does."""

    worker: Text
    reason: Text


class Worth(Message, frozen=True):
    """What a tenant's answers in time are worth from now on, in a lane that it shares: weight × accuracy in service."""

    tenant: Text
    worth: Seconds


class Lend(Message, frozen=True):
    """An instance is to serve nobody, once the batches in it are answered, until :class:`Return`.

    Attributes:
        lane: The instance.
        worker: The trainer that is to compute there alone; the loan goes by its name, and no other has that.
    """

    lane: Text
    worker: Text


class Lent(Message, frozen=True):
    """No batch is in the instance any more that this trainer was lent, and none begins."""

    worker: Text
    at_s: Moment


class Return(Message, frozen=True):
    """The trainer is gone, or wants its instance no more: that serves again."""

    worker: Text


class Watch(Message, frozen=True):
    """The controller wants to hear: first a :class:`Beat`, the workers and counts of now, then whatever changes."""


class DrainAll(Message, frozen=True):
    """No further request is to be taken; those that are there are to be answered as ever.

    Attributes:
        retry_after_s: After which clients may ask again.
    """

    retry_after_s: Seconds


class Closed(Message, frozen=True):
    """No further request counts in a second before this one; all of theirs have been reported."""

    second: Count


class Draining(Message, frozen=True):
    """No further request is taken; who asks may ask again ``retry_after_s`` later."""

    retry_after_s: Seconds


class Drained(Message, frozen=True):
    """The dispatcher drains, and has no request any more."""


class Finish(Message, frozen=True):
    """The dispatcher is to stop all workers, drop what waits, and end."""


class Changed(Message, frozen=True):
    """A worker's state; the seconds are those of :class:`Ready`, 0 before."""

    worker: Text
    tenant: Text
    state: State
    at_s: Moment
    reason: Text = ""
    library_s: Seconds = 0.0
    model_s: Seconds = 0.0
    warm_up_s: Seconds = 0.0
    version: Text = ""


class Hung(Message, frozen=True):
    """A worker has had a batch of so many requests for ``batch_s``; they wait again, and it gets no other one."""

    worker: Text
    batch_s: Seconds
    requests: Count


class Counts(Message, frozen=True):
    """The outcomes of the requests that arrived in one second, as last reported.

    Attributes:
        second: Of the intended arrival, from the run's origin.
        dropped: All that got no answer; ``refused`` and ``failed`` of them were not dropped for their deadline.
        judged: Answered requests whose right answer is known; ``correct`` of them were right, ``goodput`` also in time.
        turned_away: Requests that a client says were refused before they came here; in no other count.
        latency_ms: Of the answered, ``(b, n)``: n took more than b − 1 and at most b milliseconds; only where seconds
            are closed.
    """

    tenant: Text
    second: Count
    arrived: Count
    in_time: Count
    late: Count
    dropped: Count
    refused: Count
    failed: Count
    judged: Count
    correct: Count
    goodput: Count
    turned_away: Count = 0
    latency_ms: tuple[tuple[Count, Count], ...] = ()

    @property
    def offered(self) -> int:
        """All requests that were to be answered, whatever room there was."""
        return self.arrived + self.turned_away

    @property
    def waiting(self) -> int:
        """Neither answered nor dropped yet."""
        return self.arrived - self.in_time - self.late - self.dropped


class Tenants(Message, frozen=True):
    """From now on requests are taken of these tenants alone; what others have waiting is still answered."""

    names: tuple[Text, ...]


class Finished(Message, frozen=True):
    """The dispatcher's last word; all counts came before."""


class NotDone(Message, frozen=True):
    """An order was not passed on, or a message was refused."""

    reason: Text


Order = Serve | Share | Load | Drain | Stop
FromWorker = Hello | Ready | Credit | Answers | Loaded | Goodbye
ToWorker = Batch | Order | Beat
FromController = Watch | DrainAll | Finish | Worth | Lend | Return | Tenants | Order
FromClient = Request | TurnedAway | Labelled
ToController = (
    Beat
    | Changed
    | Heartbeat
    | Hung
    | Loaded
    | Lent
    | Counts
    | Closed
    | Labelled
    | Draining
    | Drained
    | Finished
    | NotDone
)

FROM_CLIENT: Allowed[FromClient] = Allowed(FromClient)
TO_CLIENT: Allowed[Answer] = Allowed(Answer)
FROM_WORKER: Allowed[FromWorker] = Allowed(FromWorker)
FROM_HEART: Allowed[Heartbeat] = Allowed(Heartbeat)
TO_WORKER: Allowed[ToWorker] = Allowed(ToWorker)
FROM_CONTROLLER: Allowed[FromController] = Allowed(FromController)
TO_CONTROLLER: Allowed[ToController] = Allowed(ToController)
