"""The values of the request simulation: requests, servers, queues, and what became of each request."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.profiles.latency import LatencyCurve
from workloads.traffic.luck import generator


class Dispatch(StrEnum):
    """Where requests wait."""

    PULL = "pull"
    """In one queue, from which idle servers take: :mod:`workloads.serving.pull`."""
    PUSH = "push"
    """At the server that would answer first, chosen at arrival: :mod:`workloads.serving.push`."""


@dataclass(frozen=True, slots=True)
class Server:
    """A worker that answers one tenant's requests, in batches, from ``ready_s`` until ``end_s``.

    Attributes:
        tenant: The tenant of the requests that it answers.
        server_id: Unique among the tenant's servers; the same in every piece.
        ready_s: First moment at which it may begin a batch.
        end_s: From this moment on it begins no batch; ``inf`` where the end is not known yet.
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

    def before(self, until_s: float) -> Requests:
        """Those that arrive before ``until_s``; arrays are shared, not copied."""
        n = int(np.searchsorted(self.arrival_s, until_s, side="left"))
        part = object.__new__(Requests)
        for name, value in (("tenant", self.tenant), ("slo_s", self.slo_s)):
            object.__setattr__(part, name, value)
        for name in ("arrival_s", "luck", "deadline_s"):
            object.__setattr__(part, name, getattr(self, name)[:n])
        return part


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

    @classmethod
    def of(cls, accuracies: Mapping[float, float]) -> AccuracyTimeline:
        """The timeline of these accuracies, by the moment from which on each holds, in any order."""
        moments_s = sorted(accuracies)
        return cls(tuple(moments_s), tuple(accuracies[at_s] for at_s in moments_s))

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
        """The outcomes of requests that are never answered."""
        n_dropped = len(index)
        return cls(index, np.full(n_dropped, np.nan), np.zeros(n_dropped, np.bool_), np.zeros(n_dropped, np.bool_))

    def of(self, index: IntArray) -> Outcomes:
        """Those of some of these requests, ascending."""
        place = np.searchsorted(self.index, index)
        return Outcomes(self.index[place], self.answer_s[place], self.in_time[place], self.correct[place])

    def where(self, chosen: BoolArray) -> Outcomes:
        """Those chosen, ``(k,)``."""
        return Outcomes(self.index[chosen], self.answer_s[chosen], self.in_time[chosen], self.correct[chosen])

    def without_answers(self, index: IntArray) -> Outcomes:
        """These, but requests in ``index`` are never answered."""
        is_kept = ~np.isin(self.index, index)
        answer_s = np.where(is_kept, self.answer_s, np.nan)
        return Outcomes(self.index, answer_s, self.in_time & is_kept, self.correct & is_kept)

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


@lru_cache(maxsize=4096)
def latency_table(latency: LatencyCurve, batch_limit: int) -> tuple[float, ...]:
    """Seconds by batch size 0 … ``batch_limit`` (0 is never asked for)."""
    table = (0.0, *(latency.at(batch) for batch in range(1, batch_limit + 1)))
    if not all(0 < latency_s < math.inf for latency_s in table[1:]):
        raise ValueError(f"latencies up to batch {batch_limit} must be finite and above 0, got {table[1:]}")
    return table
