"""The reference simulation of one GPU that all tenants share by turns: earliest deadline first, training in the gaps.

The GPU does one thing at a time: a batch of one tenant's requests, or a piece of one retraining. Each tenant has its
queue. What happens at a moment at which the GPU is free and a request or a retraining waits, in this order:

1. Each tenant's oldest request is dropped while its deadline is before now + latency(min(queue length, batch limit)).
2. Of the tenants of whom somebody still waits, the one whose oldest has the earliest deadline (ties: the order of the
   tenants) is served min(queue length, batch limit) of its oldest.
3. If nobody waits, the first retraining that is ready does a piece. With ``trains_in_slack`` it does so before the
   second step too, if after the piece all that waits could be answered by the earliest deadline of all, in full
   batches of one tenant after the other: requests then wait, and are served in larger batches.

Nothing is pre-empted. A request whose deadline has passed would be dropped by any later decision before anything is
taken, so it does not matter when it goes, and outcomes do not depend on the pieces of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, FloatArray, IntArray, Outcomes, Requests, latency_table
from workloads.traffic.luck import ServiceJitter


@dataclass(frozen=True, slots=True)
class BatchServing:
    """How the GPU answers one tenant's requests.

    Attributes:
        latency: Seconds by batch size.
        batch_limit: Most requests in one batch, ≥ 1.
    """

    latency: LatencyCurve
    batch_limit: int

    def __post_init__(self) -> None:
        if self.batch_limit < 1:
            raise ValueError(f"batch_limit {self.batch_limit}: must be at least 1")
        latency_table(self.latency, self.batch_limit)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A retraining that is not done.

    Attributes:
        tenant_index: Whose model it is.
        window: With whose data it trains.
        left_s: Seconds of the GPU still to be done, > 0.
        piece_s: Seconds after which it lets others go first, > 0; the last piece may be shorter.
        ready_s: It does not begin before.
        has_begun: Whether a piece was done.
    """

    tenant_index: int
    window: int
    left_s: float
    piece_s: float
    ready_s: float
    has_begun: bool = False

    def __post_init__(self) -> None:
        for name in ("left_s", "piece_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"training job: {name} {getattr(self, name)}: must be finite and above 0")
        if math.isnan(self.ready_s):
            raise ValueError("training job: ready_s must be a number")


@dataclass(frozen=True, slots=True)
class WholeState:
    """What one piece hands to the next. Everything before ``now_s`` has happened, nothing after it.

    Attributes:
        heads: By tenant, index of the oldest request that is not resolved.
        n_batches: By tenant, batches begun so far.
        jobs: Retrainings to be done, the first one first.
        now_s: The time reached.
        busy_until_s: When the GPU has finished what it does.
    """

    heads: tuple[int, ...]
    n_batches: tuple[int, ...]
    jobs: tuple[TrainingJob, ...] = ()
    now_s: float = 0.0
    busy_until_s: float = 0.0

    @classmethod
    def at_start(cls, n_tenants: int) -> WholeState:
        """An idle GPU before the first request."""
        return cls((0,) * n_tenants, (0,) * n_tenants)


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of requests in the order in which they were served. All arrays are ``(k,)`` and read-only.

    Attributes:
        tenant_index: Whose.
        begin_s: When each begins.
        end_s: When it is answered.
    """

    tenant_index: IntArray
    begin_s: FloatArray
    end_s: FloatArray

    def __post_init__(self) -> None:
        for array in (self.tenant_index, self.begin_s, self.end_s):
            array.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Piece:
    """What happened in a piece of time.

    Attributes:
        outcomes: By tenant, of the requests that were resolved; without gaps, also from piece to piece.
        batches: Those that began.
        finished: The retraining whose last piece began, and so ended this piece; it is done at ``busy_until_s``.
    """

    outcomes: tuple[Outcomes, ...]
    batches: Batches
    finished: TrainingJob | None = None


def advance(
    requests: Sequence[Requests],
    state: WholeState,
    servings: Sequence[BatchServing],
    accuracy: Sequence[AccuracyTimeline],
    until_s: float,
    service_jitter: ServiceJitter | None = None,
    *,
    trains_in_slack: bool = False,
) -> tuple[WholeState, Piece]:
    """The state at ``until_s``, or at the moment at which the last piece of a retraining begins, if that is earlier.

    Whoever calls may then say what accuracy the new model gives from ``busy_until_s`` on, and goes on. A batch is
    recorded when it begins; its answer may come after ``until_s``. At ``until_s`` every request whose deadline has
    come is resolved. Any pieces give the same, if jobs are added before they are ready. ``requests``, ``servings`` and
    ``accuracy`` have one entry a tenant, in the same order.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN.
    """
    check_time(state, until_s)
    floor = _Floor(requests, state, servings, accuracy, service_jitter)
    finished = None
    while finished is None and (now_s := floor.next_moment_s()) < until_s:
        finished = floor.settle(now_s, trains_in_slack)
    if finished is None:
        floor.now_s = until_s
        floor.drop_expired()
    return floor.state(), Piece(floor.outcomes(), floor.batches(), finished)


def check_time(state: WholeState, until_s: float) -> None:
    """Refuse to go back.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN.
    """
    if not until_s >= state.now_s:
        raise ValueError(f"cannot advance the GPU to {until_s} s: it stands at {state.now_s} s")


class _Floor:
    """The GPU and all queues during one piece."""

    def __init__(
        self,
        requests: Sequence[Requests],
        state: WholeState,
        servings: Sequence[BatchServing],
        accuracy: Sequence[AccuracyTimeline],
        jitter: ServiceJitter | None,
    ) -> None:
        self._requests, self._accuracy, self._jitter = requests, accuracy, jitter
        self._arrival_s = [one.arrival_s.tolist() for one in requests]
        self._deadline_s = [one.deadline_s.tolist() for one in requests]
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
        if ready and (not waiting or (in_slack and self._can_wait(ready[0], min(waiting)[0]))):
            return self._train(ready[0])
        if waiting:
            self._serve(min(waiting)[1])
        return None

    def _can_wait(self, place: int, due_s: float) -> bool:
        """Whether all that waits could be answered by ``due_s`` if the job did a piece first."""
        job, drained_s = self._jobs[place], 0.0
        for index, latency_s in enumerate(self._latency_s):
            limit = len(latency_s) - 1
            n_full, n_rest = divmod(self._n_waiting(index), limit)
            drained_s += n_full * latency_s[limit] + latency_s[n_rest]
        return self.now_s + min(job.left_s, job.piece_s) + drained_s <= due_s

    def _who_waits(self) -> list[int]:
        """The tenants of whom somebody waits once those are dropped whom they cannot answer."""
        return [index for index in range(len(self._heads)) if self._n_waiting_after_drops(index) > 0]

    def _n_waiting_after_drops(self, index: int) -> int:
        deadline_s, latency_s = self._deadline_s[index], self._latency_s[index]
        limit = len(latency_s) - 1
        while (n_waiting := self._n_waiting(index)) > 0:
            if deadline_s[self._heads[index]] >= self.now_s + latency_s[min(n_waiting, limit)]:
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
        service_s = latency_s[n_taken]
        if self._jitter is not None:
            service_s *= self._jitter.factor(self._requests[index].tenant, self._n_batches[index])
        self._busy_until_s = self.now_s + service_s
        right_below = self._accuracy[index].at(self.now_s)
        for request in range(head, head + n_taken):
            is_right = bool(self._requests[index].luck[request] < right_below)
            self._answers[index][request] = (self._busy_until_s, is_right)
        self._begun.append((index, self.now_s, self._busy_until_s))
        self._n_batches[index] += 1
        self._heads[index] += n_taken

    def _train(self, place: int) -> TrainingJob | None:
        """Begin a piece of the job; the job if it is the last one."""
        job = self._jobs[place]
        if job.left_s <= job.piece_s:
            self._busy_until_s = self.now_s + job.left_s
            return self._jobs.pop(place)
        self._busy_until_s = self.now_s + job.piece_s
        self._jobs[place] = replace(job, left_s=job.left_s - job.piece_s, has_begun=True)
        return None

    def drop_expired(self) -> None:
        """Drop all whose deadline has come."""
        for index, deadline_s in enumerate(self._deadline_s):
            while self._heads[index] < len(deadline_s) and deadline_s[self._heads[index]] <= self.now_s:
                self._heads[index] += 1

    def state(self) -> WholeState:
        """What is handed to the next piece."""
        return WholeState(tuple(self._heads), tuple(self._n_batches), tuple(self._jobs), self.now_s, self._busy_until_s)

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
