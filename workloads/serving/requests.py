"""The values of the request simulation: requests, queues, and outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.traffic.luck import at_draw, generator


@dataclass(frozen=True, eq=False)
class Requests:
    """Consecutive arrivals of one tenant, with the luck that decides whether an accuracy answers them right. Read-only.

    A request's *index* is its place among all arrivals of the tenant, from the run's first on. States and outcomes
    name requests by it, so that a run can let go of those that are settled.

    Attributes:
        tenant: The tenant's name.
        slo_s: A request is in time if it is answered at most this long after its arrival.
        arrival_s: Ascending, ``(N,)``.
        luck: Uniform in [0, 1), ``(N,)``: answered correctly iff below the accuracy when its batch begins.
        first: Index of the first of these.
    """

    tenant: str
    slo_s: float
    arrival_s: FloatArray
    luck: FloatArray
    first: int = 0
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

    @property
    def end(self) -> int:
        """Index after the last of these: how many requests have arrived, where the last one is the newest."""
        return self.first + len(self.arrival_s)

    def n_before(self, until_s: float) -> int:
        """Index of the first request that arrives at ``until_s`` or later; of these, or ``end``."""
        return self.first + int(self.arrival_s.searchsorted(until_s, side="left"))

    def before(self, until_s: float) -> Requests:
        """Those that arrive before ``until_s``; arrays are shared, not copied."""
        return self._cut(0, self.n_before(until_s) - self.first)

    def since(self, from_s: float) -> Requests:
        """Those that arrive at ``from_s`` or later; arrays are shared, not copied."""
        return self._cut(self.n_before(from_s) - self.first, len(self))

    def then(self, following: Requests) -> Requests:
        """These and those that follow them.

        Raises:
            ValueError: The others do not follow these.
        """
        if following.first != self.end:
            raise ValueError(f"requests of {self.tenant}: {following.first} does not follow {self.end - 1}")
        return Requests(
            self.tenant,
            self.slo_s,
            np.concatenate([self.arrival_s, following.arrival_s]),
            np.concatenate([self.luck, following.luck]),
            self.first,
        )

    def _cut(self, begin: int, end: int) -> Requests:
        part = object.__new__(Requests)
        for name, value in (("tenant", self.tenant), ("slo_s", self.slo_s), ("first", self.first + begin)):
            object.__setattr__(part, name, value)
        for name in ("arrival_s", "luck", "deadline_s"):
            object.__setattr__(part, name, getattr(self, name)[begin:end])
        return part


@dataclass(frozen=True, slots=True)
class QueueState:
    """What one piece hands to the next. Everything before ``now_s`` has happened, nothing at or after it.

    Attributes:
        head: Index of the oldest request that is not resolved; the queue is ``[head, tail)``.
        tail: Number of arrivals before ``now_s``.
        busy_until: By ``server_id``, when the batch in service ends; idle servers are absent.
        now_s: The time reached.
        n_batches: Batches begun.
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
    """The outcomes of k requests, consecutive with pull dispatch. All arrays are ``(k,)`` and read-only.

    Attributes:
        index: Of the requests, see :class:`Requests`: ascending; with pull dispatch without gaps, also from piece to
            piece.
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


def requests_of(tenant: str, slo_s: float, arrival_s: FloatArray, seed: int, first: int = 0) -> Requests:
    """The requests from index ``first`` on, with luck fixed by (seed, tenant, index): every policy sees the same."""
    lucks = at_draw(generator(seed, tenant, "luck"), first)
    return Requests(tenant, slo_s, arrival_s, lucks.random(len(arrival_s)), first)
