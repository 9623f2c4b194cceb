"""The GPU shared by turns with lists, moment by moment: what :mod:`workloads.serving.turns` must give, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from serving_cases import factor

from workloads.serving.requests import AccuracyTimeline, Outcomes, Requests, latency_table
from workloads.serving.turns import Batches, BatchServing, Piece, TrainingJob, TurnsState
from workloads.traffic.luck import ServiceJitter


def advance(
    requests: Sequence[Requests],
    state: TurnsState,
    servings: Sequence[BatchServing],
    accuracy: Sequence[AccuracyTimeline],
    until_s: float,
    service_jitter: ServiceJitter | None = None,
    *,
    trains_in_slack: bool = False,
    turn_cost: float = 0.0,
) -> tuple[TurnsState, Piece]:
    floor = _Floor(requests, state, servings, accuracy, service_jitter, turn_cost)
    finished = None
    while finished is None and (now_s := floor.next_moment_s()) < until_s:
        finished = floor.settle(now_s, trains_in_slack)
    if finished is None:
        floor.now_s = until_s
        floor.drop_expired()
    return floor.state(), Piece(floor.outcomes(), floor.batches(), finished)


class _Floor:
    """The GPU and all queues during one piece."""

    def __init__(
        self,
        requests: Sequence[Requests],
        state: TurnsState,
        servings: Sequence[BatchServing],
        accuracy: Sequence[AccuracyTimeline],
        jitter: ServiceJitter | None,
        turn_cost: float,
    ) -> None:
        self._requests, self._accuracy, self._jitter = requests, accuracy, jitter
        self._arrival_s = [one.arrival_s.tolist() for one in requests]
        self._deadline_s = [one.deadline_s.tolist() for one in requests]
        self._worth, self._turn_cost, self._holder = [one.worth for one in servings], turn_cost, state.holder
        self._latency_s = [latency_table(one.latency, one.batch_limit) for one in servings]
        self._first, self._heads = state.heads, list(state.heads)
        self._n_batches, self._jobs = list(state.n_batches), list(state.jobs)
        self._answers: list[dict[int, tuple[float, bool]]] = [{} for _ in requests]
        self._begun: list[tuple[int, float, float]] = []
        self._busy_until_s = state.busy_until_s
        self.now_s = state.now_s

    def next_moment_s(self) -> float:
        """The first moment at which the GPU is free and something waits; ``inf``: none will come."""
        waits_s = [job.ready_s for job in self._jobs]
        waits_s += [own[head] for own, head in zip(self._arrival_s, self._heads, strict=True) if head < len(own)]
        return max(self.now_s, self._busy_until_s, min(waits_s, default=math.inf))

    def settle(self, now_s: float, in_slack: bool) -> TrainingJob | None:
        """Do what happens at this moment; the retraining whose last piece begins."""
        self.now_s = now_s
        waiting = [(self._deadline_s[index][self._heads[index]], index) for index in self._who_waits()]
        ready = [place for place, job in enumerate(self._jobs) if job.ready_s <= now_s]
        above = -math.inf
        if ready:
            job = self._jobs[ready[0]]
            until_s = now_s + self._longer(len(self._heads) + job.tenant_index) * min(job.left_s, job.piece_s)
            if not waiting or (in_slack and self._can_wait(above, until_s)):
                return self._train(ready[0])
            if job.pace > 0 and job.left_s > job.pace * (job.due_s - now_s):
                above = job.worth
                would_be_late = now_s + (1.0 + self._turn_cost) * job.left_s + job.piece_s >= job.due_s
                if would_be_late or self._can_wait(above, until_s):
                    return self._train(ready[0])
        can_go = [(due_s, index) for due_s, index in waiting if self._worth[index] > above and self._may_go(index)]
        if can_go:
            self._serve(min(can_go)[1])
        return None

    def _may_go(self, index: int) -> bool:
        """Whether those of more worth can wait for a batch of the tenant's."""
        n_taken = min(self._n_waiting(index), len(self._latency_s[index]) - 1)
        until_s = self.now_s + self._latency_s[index][n_taken] * self._longer(index)
        return self._can_wait(self._worth[index], until_s)

    def _can_wait(self, above: float, until_s: float) -> bool:
        """Whether all that waits of more worth could be answered in time if the GPU were busy until then."""
        drained_s, due_s = 0.0, math.inf
        for index, latency_s in enumerate(self._latency_s):
            n_waiting, limit = self._n_waiting(index), len(latency_s) - 1
            if self._worth[index] > above and n_waiting > 0:
                n_full, n_rest = divmod(n_waiting, limit)
                drained_s += n_full * latency_s[limit] + latency_s[n_rest]
                drained_s += self._turn_cost * latency_s[min(n_waiting, limit)]
                due_s = min(due_s, self._deadline_s[index][self._heads[index]])
        return until_s + drained_s <= due_s

    def _longer(self, holder: int) -> float:
        """What the next thing's time is multiplied by, if it is this one's."""
        return 1.0 if holder == self._holder else 1.0 + self._turn_cost

    def _who_waits(self) -> list[int]:
        """The tenants of whom somebody waits once those are dropped whom they cannot answer."""
        return [index for index in range(len(self._heads)) if self._n_waiting_after_drops(index) > 0]

    def _n_waiting_after_drops(self, index: int) -> int:
        deadline_s, latency_s = self._deadline_s[index], self._latency_s[index]
        limit = len(latency_s) - 1
        while (n_waiting := self._n_waiting(index)) > 0:
            batch_s = self._longer(index) * latency_s[min(n_waiting, limit)]
            if deadline_s[self._heads[index]] >= self.now_s + batch_s:
                break
            self._heads[index] += 1
        return n_waiting

    def _n_waiting(self, index: int) -> int:
        n_waiting = 0
        for arrival_s in self._arrival_s[index][self._heads[index] :]:
            if arrival_s > self.now_s:
                break
            n_waiting += 1
        return n_waiting

    def _serve(self, index: int) -> None:
        """Begin a batch of the tenant's."""
        latency_s, head = self._latency_s[index], self._heads[index]
        n_taken = min(self._n_waiting(index), len(latency_s) - 1)
        service_s = latency_s[n_taken] * factor(self._jitter, self._requests[index].tenant, self._n_batches[index])
        self._busy_until_s = self.now_s + service_s * self._longer(index)
        self._holder = index
        right_below = self._accuracy[index].at(self.now_s)
        for request in range(head, head + n_taken):
            is_right = bool(self._requests[index].luck[request] < right_below)
            self._answers[index][request] = (self._busy_until_s, is_right)
        self._begun.append((index, self.now_s, self._busy_until_s))
        self._n_batches[index] += 1
        self._heads[index] += n_taken

    def _train(self, place: int) -> TrainingJob | None:
        """Begin a piece of the job; the job if it is the last one."""
        job, holder = self._jobs[place], len(self._heads) + self._jobs[place].tenant_index
        longer, self._holder = self._longer(holder), holder
        if job.left_s <= job.piece_s:
            self._busy_until_s = self.now_s + job.left_s * longer
            return self._jobs.pop(place)
        self._busy_until_s = self.now_s + job.piece_s * longer
        self._jobs[place] = replace(job, left_s=job.left_s - job.piece_s, has_begun=True)
        return None

    def drop_expired(self) -> None:
        """Drop all whose deadline has come."""
        for index, deadline_s in enumerate(self._deadline_s):
            while self._heads[index] < len(deadline_s) and deadline_s[self._heads[index]] <= self.now_s:
                self._heads[index] += 1

    def state(self) -> TurnsState:
        """What is handed to the next piece."""
        return TurnsState(
            tuple(self._heads),
            tuple(self._n_batches),
            tuple(self._jobs),
            self.now_s,
            self._busy_until_s,
            self._holder,
        )

    def outcomes(self) -> tuple[Outcomes, ...]:
        """Of each tenant's requests that left the queue: those in a batch are answered, all others dropped."""
        found = []
        for requests, first, head, answers in zip(self._requests, self._first, self._heads, self._answers, strict=True):
            index = np.arange(first, head, dtype=np.int64)
            known = [answers.get(request, (math.nan, False)) for request in range(first, head)]
            answer_s = np.array([at_s for at_s, _ in known], dtype=np.float64)
            correct = np.array([is_right for _, is_right in known], dtype=np.bool_)
            found.append(Outcomes(index, answer_s, answer_s <= requests.deadline_s[index], correct))
        return tuple(found)

    def batches(self) -> Batches:
        """Those that began, as columns."""
        return Batches(
            np.array([index for index, _, _ in self._begun], dtype=np.int64),
            np.array([begin_s for _, begin_s, _ in self._begun], dtype=np.float64),
            np.array([end_s for _, _, end_s in self._begun], dtype=np.float64),
        )
