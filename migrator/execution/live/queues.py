"""What became of real requests, in the form in which the loop's ledger counts simulated ones.

The generator appends what it hears to a file, so that reading it never holds up what is still to be sent. Nothing is
reckoned here: statuses and right answers are those that clients saw, times are the dispatcher's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrator.execution.live.site import Site
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.live.generator import OUTCOME, STATUSES
from workloads.live.messages import Status
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server

_RECORD = np.dtype([("stream", "<u2"), ("place", "<u4"), ("status", "u1"), ("right", "u1"), ("at_s", "<f8")])
assert _RECORD.itemsize == OUTCOME.size

_IN_TIME, _LATE = STATUSES.index(Status.IN_TIME), STATUSES.index(Status.LATE)

AGAIN_S = 0.25
"""How long the loop waits for answers that are not there yet, at a run's end."""

GRACE_S = 10.0
"""What is not answered so long after the last deadline is dropped."""


class LiveQueues:
    """See :class:`migrator.execution.requests.Queues`: the servers that stand do not matter, for these are real."""

    are_real = True

    def __init__(self, site: Site, n_tenants: int, end_s: float) -> None:
        """``end_s`` is the last deadline."""
        self._site, self._end_s = site, end_s
        self._known = [_Known() for _ in range(n_tenants)]
        self._states = [QueueState() for _ in range(n_tenants)]
        self._first = np.zeros(n_tenants, np.int64)
        self._n_read = 0
        self._coming: NDArray[np.void] = np.empty(0, _RECORD)

    def begin(self, requests: Sequence[Requests], start_s: float) -> None:
        """Begin at a later second; ``requests`` arrived before it, and are nobody's."""
        self._first = np.array([len(own) for own in requests])
        self._known = [_Known(len(own)) for own in requests]
        self._states = [QueueState(head=len(own), tail=len(own), now_s=start_s) for own in requests]

    @property
    def states(self) -> Sequence[QueueState]:
        """How each queue stands."""
        return tuple(self._states)

    @property
    def now_s(self) -> float:
        """How far all queues have come."""
        return self._states[0].now_s

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """Nothing is known of batches in service; workers say themselves when they are gone."""
        return {}

    def advance(
        self,
        requests: Sequence[Requests],
        servers: Mapping[str, Sequence[Server]],  # noqa: ARG002 - as the simulation's
        accuracies: Sequence[AccuracyTimeline],  # noqa: ARG002
        until_s: float,
    ) -> list[Outcomes]:
        """What became known by now of the requests that arrived before ``until_s``."""
        records = self._fresh(requests)
        found = []
        for index, (own, known) in enumerate(zip(requests, self._known, strict=True)):
            outcomes = _outcomes(records[records["stream"] == index])
            known.resolve(outcomes.index)
            self._states[index] = self._state(known.head, len(own), until_s)
            found.append(outcomes)
        return found

    def _fresh(self, requests: Sequence[Requests]) -> NDArray[np.void]:
        """What was appended since, of requests that have arrived as far as the loop knows; the rest is kept."""
        raw = _read(self._site.outcomes, self._n_read, OUTCOME.size)
        self._n_read += len(raw)
        fresh = np.frombuffer(raw, _RECORD).copy()
        fresh["place"] += self._first[fresh["stream"]].astype(np.uint32)  # streams begin where the run does
        records = np.concatenate([self._coming, fresh])
        n_arrived = np.array([len(own) for own in requests])
        is_here = records["place"] < n_arrived[records["stream"]]
        self._coming = records[~is_here]
        here: NDArray[np.void] = records[is_here]
        return here

    def _state(self, head: int, tail: int, until_s: float) -> QueueState:
        """As far as known. After the last deadline, what is still open is told as in service: the loop waits for it."""
        if head >= tail or until_s < self._end_s:
            return QueueState(head=head, tail=tail, now_s=until_s)
        if until_s > self._end_s + 4 * GRACE_S:  # nobody is left to say: they stay without a fate, as the report tells
            return QueueState(head=tail, tail=tail, now_s=until_s)
        if until_s > self._end_s + GRACE_S:
            self._site.drop_rest()
        open_ = (Outcomes.all_dropped(np.empty(0, np.int64)), range(head, head + 1))
        return QueueState(
            head=head,
            tail=tail,
            now_s=until_s,
            busy_until={"answers": until_s + AGAIN_S},
            batches={"answers": open_},
        )


@dataclass
class _Known:
    """Of which requests is known what became of them: all below ``head``, and some above."""

    head: int = 0
    beyond: set[int] = field(default_factory=set)

    def resolve(self, index: IntArray) -> None:
        self.beyond.update(index.tolist())
        while self.head in self.beyond:
            self.beyond.remove(self.head)
            self.head += 1


def _outcomes(records: NDArray[np.void]) -> Outcomes:
    """The records as the ledger takes them, in the order of arrival."""
    ordered = records[np.argsort(records["place"], kind="stable")]
    status = ordered["status"]
    in_time: BoolArray = status == _IN_TIME
    is_answered = in_time | (status == _LATE)
    index: IntArray = ordered["place"].astype(np.int64)
    answer_s: FloatArray = np.where(is_answered, ordered["at_s"], np.nan)
    right: BoolArray = is_answered & (ordered["right"] != 0)
    return Outcomes(index, answer_s, in_time, right)


def _read(path: Path, begin: int, size: int) -> bytes:
    """What stands in the file from there on, in whole records."""
    with path.open("rb") as file:
        file.seek(begin)
        raw = file.read()
    return raw[: len(raw) // size * size]
