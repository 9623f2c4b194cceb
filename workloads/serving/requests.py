"""The reference simulation of requests against servers: one tenant's queue, advanced in pieces.

Decisions are few: a batch can begin only when a worker is free *and* a request waits. So :func:`advance` jumps from
one such moment to the next, and finds by bisection what arrived or expired in between. The queue is first in, first
out, so it is always a range ``[head, tail)`` of the arrivals, and what one piece resolves is a range too.

The rule (the design's §5). At a decision moment requests whose deadline has passed are dropped. Of the
idle workers the one with the smallest latency for its batch goes first (ties: the smaller ``server_id``). It drops
the oldest request while that one's deadline is before now + latency(min(queue length, batch limit)), then takes
min(queue length, batch limit) of the oldest. A worker may begin a batch in ``[ready_s, end_s)``; a batch in
service is finished even after ``end_s``.

Why expired requests may go at once: latencies are above 0, so whichever worker looks first would drop every request
with deadline ≤ now before it takes anything. The order of idle workers is judged on those that still wait. So nothing
depends on when an expired request is removed, which makes outcomes independent of the pieces of time.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from workloads.profiles.latency import LatencyCurve
from workloads.traffic.luck import ServiceJitter, generator

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Dispatch(StrEnum):
    """Where requests wait."""

    PULL = "pull"
    """In one queue, from which idle servers take: the rule above."""
    PUSH = "push"
    """At the server that would answer first, chosen at arrival: :mod:`workloads.serving.push_serving`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A worker that answers one tenant's requests, in batches, from ``ready_s`` until ``end_s``.

    Attributes:
        tenant: Whose requests it answers.
        server_id: Unique among the tenant's servers; the same in every piece.
        ready_s: First moment at which it may begin a batch.
        end_s: It begins no batch at or after this; ``inf`` where the end is not known yet.
        latency: Seconds by batch size.
        batch_limit: Most requests in one batch, ≥ 1.

    Raises:
        ValueError: A time is NaN, the limit is below 1, or a batch within it takes no time.
    """

    tenant: str
    server_id: str
    ready_s: float
    end_s: float
    latency: LatencyCurve
    batch_limit: int

    def __post_init__(self) -> None:
        if math.isnan(self.ready_s) or math.isnan(self.end_s):
            raise ValueError(f"server {self.server_id}: ready_s {self.ready_s}, end_s {self.end_s}: must be numbers")
        if self.batch_limit < 1:
            raise ValueError(f"server {self.server_id}: batch_limit {self.batch_limit}: must be at least 1")
        latency_table(self.latency, self.batch_limit)


@dataclass(frozen=True, eq=False)
class Requests:
    """All arrivals of one tenant, with the luck that decides whether an accuracy answers them right. Read-only.

    Attributes:
        tenant: The tenant's name.
        slo_s: A request is in time if it is answered at most this long after its arrival.
        arrival_s: Ascending, ``(N,)``.
        luck: Uniform in [0, 1), ``(N,)``: answered correctly iff below the accuracy when its batch begins.
    """

    tenant: str
    slo_s: float
    arrival_s: FloatArray
    luck: FloatArray
    deadline_s: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.slo_s < math.inf:
            raise ValueError(f"requests of {self.tenant}: slo_s {self.slo_s}: must be finite and above 0")
        arrival_s = np.array(self.arrival_s, dtype=np.float64)
        luck = np.array(self.luck, dtype=np.float64)
        if arrival_s.ndim != 1 or luck.shape != arrival_s.shape:
            raise ValueError(f"requests of {self.tenant}: arrivals {arrival_s.shape} and luck {luck.shape} differ")
        if not np.isfinite(arrival_s).all() or (np.diff(arrival_s) < 0).any():
            raise ValueError(f"requests of {self.tenant}: arrival_s must be finite and ascending")
        if not ((luck >= 0) & (luck < 1)).all():
            raise ValueError(f"requests of {self.tenant}: luck must lie in [0, 1)")
        for name, array in (("arrival_s", arrival_s), ("luck", luck), ("deadline_s", arrival_s + self.slo_s)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True)
class AccuracyTimeline:
    """A tenant's accuracy over time: ``accuracy[i]`` from ``from_s[i]`` on. The first also holds before its time.

    Attributes:
        from_s: Strictly ascending, at least one.
        accuracy: In [0, 1], as many.
    """

    from_s: tuple[float, ...]
    accuracy: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise(self.from_s))
        if not self.from_s or len(self.from_s) != len(self.accuracy) or not ascending:
            raise ValueError(f"an accuracy timeline needs ascending times and as many accuracies, got {self}")
        if not all(0 <= accuracy <= 1 for accuracy in self.accuracy):
            raise ValueError(f"accuracies must lie in [0, 1], got {self.accuracy}")

    def at(self, time_s: float) -> float:
        """The accuracy of a batch that begins at ``time_s``."""
        return self.accuracy[max(bisect_right(self.from_s, time_s) - 1, 0)]


@dataclass(frozen=True, slots=True)
class QueueState:
    """What one piece hands to the next. Everything before ``now_s`` has happened, nothing at or after it.

    Attributes:
        head: Index of the oldest request that is not resolved; the queue is ``[head, tail)``.
        tail: Number of arrivals before ``now_s``.
        busy_until: By ``server_id``, when the batch in service ends; idle servers are absent.
        now_s: The time reached.
        n_batches: Batches begun so far.
        queues: With push dispatch: by ``server_id`` the requests that wait there, ascending (None: sent to no server
            yet). Empty queues are absent.
        batches: By ``server_id``, the requests in service, and the outcomes of the piece in which their batch began.
            It has the keys of ``busy_until``; see :meth:`in_service`.
    """

    head: int = 0
    tail: int = 0
    busy_until: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    now_s: float = 0.0
    n_batches: int = 0
    queues: Mapping[str | None, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    batches: Mapping[str, tuple[Outcomes, range | IntArray]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, compare=False
    )

    def in_service(self, server_id: str) -> Outcomes:
        """The outcomes already recorded for the batch that the server has in service; empty where it has none.

        These answers are lost if the server fails at ``now_s``: :meth:`workloads.serving.tally.Tally.lose` counts
        them as dropped. What waits at a failed server needs nothing: leave the server out of the next piece.
        """
        if server_id not in self.batches:
            return Outcomes.all_dropped(np.empty(0, dtype=np.int64))
        recorded, indices = self.batches[server_id]
        return recorded.of(np.array(indices, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What became of k requests, consecutive with pull dispatch. All arrays are ``(k,)`` and read-only.

    Attributes:
        index: Places in the tenant's arrivals: ascending; with pull dispatch without gaps, also from piece to piece.
        answer_s: When the answer is complete; NaN: dropped.
        in_time: Answered at most an SLO after arrival.
        correct: Answered, in time or late, and right.
    """

    index: IntArray
    answer_s: FloatArray
    in_time: BoolArray
    correct: BoolArray

    def __post_init__(self) -> None:
        for array in (self.index, self.answer_s, self.in_time, self.correct):
            array.setflags(write=False)

    @classmethod
    def all_dropped(cls, index: IntArray) -> Outcomes:
        """The outcomes of requests that nobody answers."""
        n_dropped = len(index)
        return cls(index, np.full(n_dropped, np.nan), np.zeros(n_dropped, np.bool_), np.zeros(n_dropped, np.bool_))

    def of(self, index: IntArray) -> Outcomes:
        """Those of some of these requests, ascending."""
        place = np.searchsorted(self.index, index)
        return Outcomes(self.index[place], self.answer_s[place], self.in_time[place], self.correct[place])

    @property
    def dropped(self) -> BoolArray:
        """Never answered, ``(k,)``."""
        return np.isnan(self.answer_s)

    @property
    def late(self) -> BoolArray:
        """Answered after the deadline, ``(k,)``."""
        return ~(self.in_time | self.dropped)


def requests_of(tenant: str, slo_s: float, arrival_s: FloatArray, seed: int) -> Requests:
    """The requests with luck fixed by (seed, tenant, arrival index): every policy sees the same."""
    return Requests(tenant, slo_s, arrival_s, generator(seed, tenant, "luck").random(len(arrival_s)))


def advance(
    requests: Requests,
    state: QueueState,
    servers: Sequence[Server],
    accuracy: AccuracyTimeline,
    until_s: float,
    service_jitter: ServiceJitter | None = None,
) -> tuple[QueueState, Outcomes]:
    """The state at ``until_s``, and the outcomes of all requests resolved in ``[state.now_s, until_s)``.

    A batch is recorded when it begins; its answer may come after ``until_s``. Every request with a deadline ≤
    ``until_s`` is resolved, so ``until_s = inf`` drains the queue. Any pieces give the same outcomes, also when a
    piece does not know yet of servers with ``ready_s`` ≥ its end, or of ends ≥ its end. Servers that have ended may
    be left out. Servers of other tenants are passed over.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN, or two of the tenant's servers share an id.
    """
    if not until_s >= state.now_s:
        raise ValueError(f"cannot advance {requests.tenant} to {until_s} s: it stands at {state.now_s} s")
    workers = _Workers(in_rank_order(servers, requests.tenant), state)
    tail = int(np.searchsorted(requests.arrival_s, until_s, side="left"))
    deadlines = requests.deadline_s[state.head : tail].tolist()
    batches = _Batches(requests.tenant, state.n_batches, service_jitter)
    n_resolved = _serve(requests.arrival_s[state.head : tail].tolist(), deadlines, workers, batches, until_s)
    n_resolved = bisect_right(deadlines, until_s, n_resolved)
    after = QueueState(
        head=state.head + n_resolved,
        tail=tail,
        busy_until=workers.busy_after(until_s),
        now_s=until_s,
        n_batches=state.n_batches + len(batches.first),
    )
    return after, batches.outcomes(requests, state.head, n_resolved, accuracy)


def in_rank_order(servers: Sequence[Server], tenant: str) -> list[Server]:
    """The tenant's servers, by id: a server's place is its rank.

    Raises:
        ValueError: Two of them share an id.
    """
    ordered = sorted((one for one in servers if one.tenant == tenant), key=attrgetter("server_id"))
    ids = [one.server_id for one in ordered]
    if len(set(ids)) < len(ids):
        raise ValueError(f"server ids must differ within a tenant, got {ids}")
    return ordered


def _serve(arrivals: list[float], deadlines: list[float], workers: _Workers, batches: _Batches, until_s: float) -> int:
    """How many requests were taken or dropped by workers before ``until_s``; batches are added to ``batches``.

    Indices count from the oldest unresolved request.
    """
    head, n_requests = 0, len(arrivals)
    while head < n_requests:
        now_s = workers.next_chance_s(arrivals[head])
        if now_s >= until_s:
            break
        workers.release(now_s)
        head = bisect_right(deadlines, now_s, head)
        tail = bisect_right(arrivals, now_s, head)
        while head < tail and workers.idle:
            rank = workers.fastest(tail - head)
            latency_s = workers.latency_s[rank]
            head = _drop_hopeless(deadlines, head, tail, now_s, latency_s)
            if head < tail:  # otherwise this worker stays idle: nobody waits any more
                n_taken = min(tail - head, len(latency_s) - 1)
                answer_s = batches.begin(head, n_taken, now_s, latency_s[n_taken])
                workers.occupy(rank, answer_s)
                head += n_taken
    return head


def _drop_hopeless(deadlines: list[float], head: int, tail: int, now_s: float, latency_s: tuple[float, ...]) -> int:
    """The new head: the oldest request whose deadline stands with the batch that would then be taken; or ``tail``."""
    limit = len(latency_s) - 1
    if tail - head > limit and deadlines[head] < now_s + latency_s[limit]:
        # While more than a batch waits, the batch does not shrink with the drops: skip them all at once.
        head = bisect_left(deadlines, now_s + latency_s[limit], head, tail - limit)
    while head < tail and deadlines[head] < now_s + latency_s[min(tail - head, limit)]:
        head += 1
    return head


class _Workers:
    """One tenant's servers during one piece, by rank (the order of their ids): idle, or free at a known time.

    Between decisions, whenever a worker is idle nobody waits: an idle worker takes or drops all it sees.
    """

    __slots__ = ("_busy_until", "_end_s", "_free_at", "_ids", "idle", "latency_s")

    def __init__(self, ordered: Sequence[Server], state: QueueState) -> None:
        self._ids = [server.server_id for server in ordered]
        self._end_s = [server.end_s for server in ordered]
        self.latency_s = [latency_table(server.latency, server.batch_limit) for server in ordered]
        known = state.busy_until
        self._busy_until = {rank: known[name] for rank, name in enumerate(self._ids) if name in known}
        self._free_at = [  # a server that joins late cannot act in the past, hence now_s
            (max(server.ready_s, self._busy_until.get(rank, state.now_s)), rank) for rank, server in enumerate(ordered)
        ]
        heapq.heapify(self._free_at)
        self.idle: list[int] = []

    def next_chance_s(self, oldest_arrival_s: float) -> float:
        """The next moment at which a worker may be free and the oldest request has arrived; ``inf``: never."""
        if self.idle:
            return oldest_arrival_s
        return max(self._free_at[0][0], oldest_arrival_s) if self._free_at else math.inf

    def release(self, now_s: float) -> None:
        """Makes those idle that are free by ``now_s``, and forgets those that have ended."""
        free_at = self._free_at
        while free_at and free_at[0][0] <= now_s:
            self.idle.append(heapq.heappop(free_at)[1])
        self.idle = [rank for rank in self.idle if now_s < self._end_s[rank]]

    def fastest(self, n_queued: int) -> int:
        """The idle worker with the smallest latency for the batch that it would take of ``n_queued`` requests."""
        if len(self.idle) == 1:
            return self.idle[0]
        tables = self.latency_s
        return min((tables[rank][min(n_queued, len(tables[rank]) - 1)], rank) for rank in self.idle)[1]

    def occupy(self, rank: int, until_s: float) -> None:
        """Makes an idle worker busy."""
        self.idle.remove(rank)
        self._busy_until[rank] = until_s
        heapq.heappush(self._free_at, (until_s, rank))

    def busy_after(self, time_s: float) -> Mapping[str, float]:
        """Ends of the batches that are in service at ``time_s``, by server id."""
        return MappingProxyType({self._ids[rank]: end for rank, end in self._busy_until.items() if end > time_s})


class _Batches:
    """The batches begun in one piece, as columns."""

    __slots__ = ("_answer_s", "_jitter", "_n_before", "_n_taken", "_start_s", "_tenant", "first")

    def __init__(self, tenant: str, n_before: int, jitter: ServiceJitter | None) -> None:
        self._tenant, self._n_before, self._jitter = tenant, n_before, jitter
        self.first: list[int] = []
        self._n_taken: list[int] = []
        self._start_s: list[float] = []
        self._answer_s: list[float] = []

    def begin(self, first: int, n_taken: int, start_s: float, planned_s: float) -> float:
        """When the batch of requests ``[first, first + n_taken)`` will be answered."""
        if self._jitter is not None:
            planned_s *= self._jitter.factor(self._tenant, self._n_before + len(self.first))
        answer_s = start_s + planned_s
        self.first.append(first)
        self._n_taken.append(n_taken)
        self._start_s.append(start_s)
        self._answer_s.append(answer_s)
        return answer_s

    def outcomes(self, requests: Requests, head: int, n_resolved: int, accuracy: AccuracyTimeline) -> Outcomes:
        """Of requests ``[head, head + n_resolved)``: those in a batch are answered, all others dropped."""
        n_taken = np.array(self._n_taken, dtype=np.int64)
        places_before = np.cumsum(n_taken) - n_taken
        taken = np.repeat(np.array(self.first, dtype=np.int64) - places_before, n_taken) + np.arange(n_taken.sum())
        answer_s = np.full(n_resolved, np.nan)
        answer_s[taken] = np.repeat(np.array(self._answer_s), n_taken)
        era = np.searchsorted(accuracy.from_s, self._start_s, side="right") - 1
        right_below = np.zeros(n_resolved)
        right_below[taken] = np.repeat(np.array(accuracy.accuracy)[np.maximum(era, 0)], n_taken)
        resolved = slice(head, head + n_resolved)
        return Outcomes(
            index=np.arange(head, head + n_resolved, dtype=np.int64),
            answer_s=answer_s,
            in_time=answer_s <= requests.deadline_s[resolved],
            correct=requests.luck[resolved] < right_below,
        )


@lru_cache(maxsize=4096)
def latency_table(latency: LatencyCurve, batch_limit: int) -> tuple[float, ...]:
    """Seconds by batch size 0 … ``batch_limit`` (0 is never asked for)."""
    table = (0.0, *(latency.at(batch) for batch in range(1, batch_limit + 1)))
    if not all(0 < latency_s < math.inf for latency_s in table[1:]):
        raise ValueError(f"latencies up to batch {batch_limit} must be finite and above 0, got {table[1:]}")
    return table
