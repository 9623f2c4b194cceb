"""Push dispatch with lists, moment by moment: what :mod:`workloads.serving.push` must give, bit by bit."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np
from serving_cases import factor

from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Server, in_rank_order, latency_table
from workloads.traffic.luck import ServiceJitter


def advance(
    requests: Requests,
    state: QueueState,
    servers: Sequence[Server],
    accuracy: AccuracyTimeline,
    until_s: float,
    service_jitter: ServiceJitter | None = None,
) -> tuple[QueueState, Outcomes]:
    floor = _Floor(requests, state, in_rank_order(servers, requests.tenant), accuracy, service_jitter)
    now_s = state.now_s  # also a moment: servers may have left or joined
    while now_s < until_s:
        floor.settle(now_s)
        now_s = floor.next_moment_s(now_s)
    floor.drop_expired(until_s)
    return floor.state(until_s), floor.outcomes()


class _Floor:
    """One tenant's servers by rank, and who waits where, during one piece."""

    def __init__(
        self,
        requests: Requests,
        state: QueueState,
        ordered: Sequence[Server],
        accuracy: AccuracyTimeline,
        jitter: ServiceJitter | None,
    ) -> None:
        self._requests, self._accuracy, self._jitter = requests, accuracy, jitter
        self._servers = ordered
        self._latency_s = [latency_table(server.latency, server.batch_limit) for server in ordered]
        self._busy_until = [state.busy_until.get(server.server_id, -math.inf) for server in ordered]
        self._queues = [list(state.queues.get(server.server_id, ())) for server in ordered]
        sent = {index for queue in self._queues for index in queue}
        self._unsent = sorted(index for queue in state.queues.values() for index in queue if index not in sent)
        self._seen = state.tail
        self._n_batches = state.n_batches
        self._answers: dict[int, tuple[float, bool]] = {}  # by request: when, and whether right; NaN: dropped

    def settle(self, now_s: float) -> None:
        """Do all that happens at this moment."""
        arrival_s = self._requests.arrival_s
        while self._seen < len(arrival_s) and arrival_s[self._seen] <= now_s:
            self._unsent.append(self._seen)
            self._seen += 1
        is_open = [rank for rank, server in enumerate(self._servers) if server.ready_s <= now_s < server.end_s]
        for rank, queue in enumerate(self._queues):
            if rank not in is_open:
                self._unsent += queue
                queue.clear()
        self.drop_expired(now_s)
        if is_open:
            for index in sorted(self._unsent):
                _, rank = min((self._would_answer_s(rank, now_s), rank) for rank in is_open)
                insort(self._queues[rank], index)
            self._unsent = []
        for rank in is_open:
            if self._busy_until[rank] <= now_s:
                self._begin(rank, now_s)

    def next_moment_s(self, now_s: float) -> float:
        """The first moment after ``now_s`` at which anything may happen; ``inf``: none will come."""
        moments: list[float] = [math.inf, *self._requests.arrival_s[self._seen : self._seen + 1].tolist()]
        for server, busy_until, queue in zip(self._servers, self._busy_until, self._queues, strict=True):
            if queue:
                moments += [busy_until, server.end_s]
            if self._unsent and server.ready_s > now_s:
                moments.append(server.ready_s)
        return min(moments)

    def drop_expired(self, now_s: float) -> None:
        """Drop all whose deadline has passed."""
        for queue in (self._unsent, *self._queues):
            for index in [index for index in queue if self._requests.deadline_s[index] <= now_s]:
                queue.remove(index)
                self._answers[index] = (math.nan, False)

    def state(self, until_s: float) -> QueueState:
        """What is handed to the next piece."""
        ids = [server.server_id for server in self._servers]
        queues = {name: tuple(queue) for name, queue in zip((None, *ids), (self._unsent, *self._queues), strict=True)}
        busy_until = {name: end_s for name, end_s in zip(ids, self._busy_until, strict=True) if end_s > until_s}
        return QueueState(
            head=min((index for queue in queues.values() for index in queue), default=self._seen),
            tail=self._seen,
            busy_until=MappingProxyType(busy_until),
            now_s=until_s,
            n_batches=self._n_batches,
            queues=MappingProxyType({name: queue for name, queue in queues.items() if queue}),
        )

    def outcomes(self) -> Outcomes:
        """Of all requests that were resolved."""
        index = np.array(sorted(self._answers), dtype=np.int64)
        answer_s = np.array([self._answers[one][0] for one in index.tolist()], dtype=np.float64)
        correct = np.array([self._answers[one][1] for one in index.tolist()], dtype=np.bool_)
        return Outcomes(index, answer_s, answer_s <= self._requests.deadline_s[index], correct)

    def _would_answer_s(self, rank: int, now_s: float) -> float:
        """When a request that is sent to this server would be answered, if nothing else comes and nothing is dropped.

        The end of the batch in service is known, jitter included.
        """
        latency_s = self._latency_s[rank]
        limit = len(latency_s) - 1
        n_full, n_rest = divmod(len(self._queues[rank]), limit)
        begin_s = max(self._busy_until[rank], now_s)
        return begin_s + n_full * latency_s[limit] + latency_s[n_rest + 1]

    def _begin(self, rank: int, now_s: float) -> None:
        """Let an idle server drop whom it cannot answer in time, and take its next batch if anybody is left."""
        queue, latency_s = self._queues[rank], self._latency_s[rank]
        limit = len(latency_s) - 1
        while queue and self._requests.deadline_s[queue[0]] < now_s + latency_s[min(len(queue), limit)]:
            self._answers[queue.pop(0)] = (math.nan, False)
        if queue:
            taken, queue[:] = queue[:limit], queue[limit:]
            service_s = latency_s[len(taken)] * factor(self._jitter, self._requests.tenant, self._n_batches)
            right_below = self._accuracy.at(now_s)
            for index in taken:
                self._answers[index] = (now_s + service_s, bool(self._requests.luck[index] < right_below))
            self._busy_until[rank] = now_s + service_s
            self._n_batches += 1
