"""One tenant's queue brought forward in time, whichever way requests are dispatched.

The rules and their compiled loops are :mod:`workloads.serving.pull` and :mod:`workloads.serving.push`. Here one piece's
values become arrays and back. A piece often has a few hundred requests only, and then this takes longer than the loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import assert_never

import numpy as np

from workloads.arrays import FloatArray, IntArray
from workloads.profiles.latency import LatencyCurve
from workloads.serving.pull import pull
from workloads.serving.push import COUNT, FIRST, push
from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Dispatch, Server, in_rank_order, latency_table
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter

Queues = Mapping[str | None, tuple[int, ...]]

_NO_QUEUES: Queues = MappingProxyType({})
_NO_FACTORS = np.empty(0)
_NO_FACTORS.setflags(write=False)


def advance(
    requests: Requests,
    state: QueueState,
    servers: Sequence[Server],
    accuracy: AccuracyTimeline,
    until_s: float,
    service_jitter: ServiceJitter | None = None,
    dispatch: Dispatch = Dispatch.PULL,
) -> tuple[QueueState, Outcomes]:
    """The state at ``until_s``, and the outcomes of all requests resolved in ``[state.now_s, until_s)``.

    A batch is recorded when it begins; its answer may come after ``until_s``. Every request with a deadline ≤
    ``until_s`` is resolved, so ``until_s = inf`` drains the queue. With push dispatch requests are not resolved in the
    order of their arrival: the outcomes of a piece may have gaps, which later pieces fill.

    Any pieces give the same outcomes, also when a piece does not know yet of servers with ``ready_s`` ≥ its end, or of
    ends ≥ its end. Servers that have ended may be left out. Servers of other tenants are passed over. All pieces of a
    run need the same ``dispatch``.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN, or two of the tenant's servers share an id.
    """
    if not until_s >= state.now_s:
        raise ValueError(f"cannot advance {requests.tenant} to {until_s} s: it is at {state.now_s} s")
    piece = _Piece(requests, state, in_rank_order(servers, requests.tenant), accuracy, until_s, service_jitter)
    match dispatch:
        case Dispatch.PULL:
            return piece.pulled()
        case Dispatch.PUSH:
            return piece.pushed()
        case _:
            assert_never(dispatch)


class _Piece:
    """One piece as the arrays that go into a kernel, and what came out of it."""

    def __init__(
        self,
        requests: Requests,
        state: QueueState,
        ordered: Sequence[Server],
        accuracy: AccuracyTimeline,
        until_s: float,
        jitter: ServiceJitter | None,
    ) -> None:
        self._tenant, self._state, self._ordered = requests.tenant, state, ordered
        self._until_s, self._jitter = until_s, jitter
        latency_s, limits = _tables(tuple((server.latency, server.batch_limit) for server in ordered))
        self._times_s = _server_times_s(ordered, state)
        self._tail = requests.n_before(until_s)
        # The kernels see open requests alone: place 0 is the oldest one.
        is_open = slice(state.head - requests.first, self._tail - requests.first)
        columns = requests.arrival_s[is_open], requests.deadline_s[is_open], requests.luck[is_open]
        self._known = (*columns, self._times_s, latency_s, limits)
        self._eras = np.array((accuracy.from_s, accuracy.accuracy), dtype=np.float64)
        self._eras.setflags(write=False)
        n_open = self._tail - state.head
        self._answer_s = np.full(n_open, np.nan)
        self._in_time, self._correct = np.zeros((2, n_open), dtype=np.bool_)

    def pulled(self) -> tuple[QueueState, Outcomes]:
        """The piece with one queue for all servers."""
        origin, n_batches, now_s, n_resolved = self._state.head, self._state.n_batches, -math.inf, 0
        taken = np.zeros((2, len(self._ordered)), dtype=np.int64)
        while now_s < self._until_s:
            n_resolved, n_begun, now_s = pull(
                *self._known,
                self._factors_from(n_batches),
                self._eras,
                taken,
                n_resolved,
                self._tail - origin,
                now_s,
                float(self._until_s),
                self._answer_s,
                self._in_time,
                self._correct,
            )
            n_batches += n_begun
        head = origin + n_resolved
        outcomes = Outcomes(
            index=np.arange(origin, head, dtype=np.int64),
            answer_s=self._answer_s[:n_resolved],
            in_time=self._in_time[:n_resolved],
            correct=self._correct[:n_resolved],
        )
        begun = [range(origin + first, origin + first + size) for first, size in taken.T.tolist()]
        return self._state_after(head, n_batches, _NO_QUEUES, outcomes, begun), outcomes

    def pushed(self) -> tuple[QueueState, Outcomes]:
        """The piece with a queue for each server."""
        origin, n_batches, now_s = self._state.head, self._state.n_batches, self._state.now_s
        seen = self._state.tail - origin
        ids = [*(server.server_id for server in self._ordered), None]
        queues, follows = _linked(self._state.queues, ids, origin, self._tail)
        is_resolved = np.zeros(self._tail - origin, dtype=np.bool_)
        taken = np.zeros((len(self._ordered), self._known[4].shape[1]), dtype=np.int64)
        is_done = False
        while not is_done:
            seen, n_begun, now_s = push(
                *self._known,
                self._factors_from(n_batches),
                self._eras,
                queues,
                follows,
                taken,
                seen,
                self._tail - origin,
                float(now_s),
                float(self._until_s),
                self._answer_s,
                self._in_time,
                self._correct,
                is_resolved,
            )
            n_batches += n_begun
            is_done = now_s == self._until_s
        waiting = _unlinked(queues, follows, ids, origin)
        head = min((indices[0] for indices in waiting.values()), default=self._tail)
        place = np.flatnonzero(is_resolved)
        outcomes = Outcomes(
            index=origin + place,
            answer_s=self._answer_s[place],
            in_time=self._in_time[place],
            correct=self._correct[place],
        )
        begun = [origin + row[1 : row[0] + 1] for row in taken]
        return self._state_after(head, n_batches, waiting, outcomes, begun), outcomes

    def _factors_from(self, batch_number: int) -> FloatArray:
        """What latencies are multiplied by from this batch on, to the end of its block; empty without jitter."""
        if self._jitter is None:
            return _NO_FACTORS
        block, place = divmod(batch_number, JITTER_BLOCK)
        return self._jitter.factors(self._tenant, block)[place:]

    def _state_after(
        self, head: int, n_batches: int, queues: Queues, outcomes: Outcomes, begun: Sequence[range | IntArray]
    ) -> QueueState:
        """``begun`` has the requests of the last batch that each server began in this piece; empty: it began none."""
        busy_until, batches = {}, {}
        for server, end_s, indices in zip(self._ordered, self._times_s[1].tolist(), begun, strict=True):
            if end_s > self._until_s:
                busy_until[server.server_id] = end_s
                is_old = len(indices) == 0
                batches[server.server_id] = self._state.batches[server.server_id] if is_old else (outcomes, indices)
        return QueueState(
            head, self._tail, MappingProxyType(busy_until), self._until_s, n_batches, queues, MappingProxyType(batches)
        )


def _server_times_s(ordered: Sequence[Server], state: QueueState) -> FloatArray:
    """The ``servers`` of :mod:`workloads.serving.pull`.

    A server that joins late cannot act in the past: it is free from ``state.now_s`` at the earliest.
    """
    known = state.busy_until
    return np.array(
        (
            [max(server.ready_s, known.get(server.server_id, state.now_s)) for server in ordered],
            [known.get(server.server_id, -math.inf) for server in ordered],
            [server.end_s for server in ordered],
            [server.ready_s for server in ordered],
        ),
        dtype=np.float64,
    )


@lru_cache(maxsize=256)
def _tables(curves: tuple[tuple[LatencyCurve, int], ...]) -> tuple[FloatArray, IntArray]:
    """Seconds by server and batch size, ``(n_servers, most + 1)``, and the servers' batch limits. Read-only."""
    limits = np.array([limit for _, limit in curves], dtype=np.int64)
    latency_s = np.zeros((len(curves), max(limits, default=0) + 1))
    for row, (curve, limit) in zip(latency_s, curves, strict=True):
        row[: limit + 1] = latency_table(curve, limit)
    for array in (latency_s, limits):
        array.setflags(write=False)
    return latency_s, limits


def _linked(queues: Queues, ids: Sequence[str | None], origin: int, tail: int) -> tuple[IntArray, IntArray]:
    """The ``queues`` and ``follows`` of :mod:`workloads.serving.push`.

    Requests that waited at servers which are no longer there were sent to no server.
    """
    at: dict[str | None, list[int]] = {}
    for name, indices in queues.items():
        at.setdefault(name if name in ids else None, []).extend(index - origin for index in indices)
    heads, follows = np.full((3, len(ids)), -1, dtype=np.int64), np.full(tail - origin, -1, dtype=np.int64)
    heads[COUNT] = 0
    for name, unordered in at.items():
        places = sorted(unordered)
        heads[:, ids.index(name)] = places[0], places[-1], len(places)
        follows[places[:-1]] = places[1:]
    return heads, follows


def _unlinked(heads: IntArray, follows: IntArray, ids: Sequence[str | None], origin: int) -> Queues:
    """The queues that are not empty, by server id."""
    queues: dict[str | None, tuple[int, ...]] = {}
    for name, first in zip(ids, heads[FIRST].tolist(), strict=True):
        indices, place = [], first
        while place >= 0:
            indices.append(origin + place)
            place = int(follows[place])
        if indices:
            queues[name] = tuple(indices)
    return MappingProxyType(queues)
