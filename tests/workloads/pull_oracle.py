"""Pull dispatch request by request, visiting every moment: what :mod:`workloads.serving.pull` must give, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from serving_cases import factor

from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.traffic.luck import ServiceJitter


@dataclass(frozen=True)
class Batch:
    server_id: str
    begin_s: float
    end_s: float
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Course:
    """All that happens until every request is resolved: batches in order, and when which request was dropped."""

    requests: Requests
    batches: Sequence[Batch]
    dropped_s: dict[int, float]

    def outcomes(self, accuracy: AccuracyTimeline) -> Outcomes:
        answer_s, correct = np.full(len(self.requests), np.nan), np.zeros(len(self.requests), np.bool_)
        for batch in self.batches:
            for index in batch.indices:
                answer_s[index] = batch.end_s
                correct[index] = self.requests.luck[index] < accuracy.at(batch.begin_s)
        return Outcomes(np.arange(len(answer_s)), answer_s, answer_s <= self.requests.deadline_s, correct)

    def state(self, now_s: float) -> QueueState:
        begun = [batch for batch in self.batches if batch.begin_s < now_s]
        resolved = {index for batch in begun for index in batch.indices}
        resolved |= {index for index, dropped_s in self.dropped_s.items() if dropped_s < now_s}
        resolved |= set(np.flatnonzero(self.requests.deadline_s <= now_s).tolist())
        return QueueState(
            head=len(resolved),
            tail=int((self.requests.arrival_s < now_s).sum()),
            busy_until={batch.server_id: batch.end_s for batch in begun if batch.end_s > now_s},
            now_s=now_s,
            n_batches=len(begun),
        )

    def in_service(self, server_id: str, now_s: float) -> list[int]:
        running = (batch for batch in self.batches if batch.begin_s < now_s < batch.end_s)
        return [index for batch in running if batch.server_id == server_id for index in batch.indices]


def one_by_one(
    requests: Requests,
    servers: Sequence[Server],
    jitter: ServiceJitter | None = None,
    *,
    expire: bool = True,
    batch_of_one: bool = False,
) -> Course:
    """The rule, or a variant: the expired are dropped only when looked at; drops are judged on a batch of one."""
    batches: list[Batch] = []
    dropped_s: dict[int, float] = {}
    arrival_s, deadline_s = requests.arrival_s.tolist(), requests.deadline_s.tolist()
    moments = {*arrival_s, *(one.ready_s for one in servers)}
    free_at = {one.server_id: one.ready_s for one in servers}
    queue: list[int] = []
    seen = 0
    while moments:
        now_s = min(moments)
        moments.remove(now_s)
        while seen < len(requests) and arrival_s[seen] <= now_s:
            queue.append(seen)
            seen += 1
        while expire and queue and deadline_s[queue[0]] <= now_s:
            dropped_s[queue.pop(0)] = now_s
        idle = [one for one in servers if one.ready_s <= now_s < one.end_s and free_at[one.server_id] <= now_s]
        while idle and queue:
            n_now = len(queue)
            first = min(idle, key=lambda one: (one.latency.at(min(n_now, one.batch_limit)), one.server_id))
            idle.remove(first)
            while queue:
                judged = 1 if batch_of_one else min(len(queue), first.batch_limit)
                if deadline_s[queue[0]] >= now_s + first.latency.at(judged):
                    break
                dropped_s[queue.pop(0)] = now_s
            taken, queue = queue[: first.batch_limit], queue[first.batch_limit :]
            if taken:
                end_s = now_s + first.latency.at(len(taken)) * factor(jitter, requests.tenant, len(batches))
                batches.append(Batch(first.server_id, now_s, end_s, tuple(taken)))
                free_at[first.server_id] = end_s
                moments.add(end_s)
    return Course(requests, batches, dropped_s)
