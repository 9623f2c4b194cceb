"""A pool request by request, moment by moment, at once: what :mod:`workloads.serving.pool` must give, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from serving_cases import factor

from workloads.profiles.latency import LatencyCurve
from workloads.serving.pool import TrainingJob
from workloads.serving.requests import Outcomes, Requests
from workloads.serving.servers import AccuracyTimeline
from workloads.traffic.luck import ServiceJitter

INF = math.inf


@dataclass(frozen=True)
class Process:
    """A member's process on a lane: it begins batches in ``[ready_s, end_s)``; where it fails, its batch is lost."""

    ready_s: float
    end_s: float
    latency: LatencyCurve
    limit: int
    fails: bool = False


@dataclass(frozen=True)
class Problem:
    """All there is to know: ``lanes`` by rank and member, one process after the other.

    A job's ``lane_id`` is ``str(rank)``. Without ``worths`` members are worth what weights, accuracies and rates make.
    """

    requests: Sequence[Requests]
    lanes: Sequence[Sequence[Sequence[Process]]]
    accuracies: Sequence[AccuracyTimeline]
    weights: Sequence[float] | None = None
    worths: Sequence[float] | None = None
    jobs: Sequence[TrainingJob] = ()
    jitter: ServiceJitter | None = None
    in_slack: bool = False
    turn_cost: float = 0.0
    first_turn_costs: bool = False


@dataclass(frozen=True)
class Turn:
    """What a lane does from ``begin_s`` to ``end_s``; ``indices`` are empty in training."""

    rank: int
    holder: int
    begin_s: float
    end_s: float
    indices: tuple[int, ...] = ()
    is_right: tuple[bool, ...] = ()
    lost_s: float = INF

    def is_under_way(self, now_s: float) -> bool:
        return self.begin_s < now_s < self.end_s and now_s <= self.lost_s


@dataclass
class Course:
    """All that happens until every request is resolved and every job done that can be."""

    problem: Problem
    turns: list[Turn] = field(default_factory=list)
    dropped_s: list[dict[int, float]] = field(default_factory=list)
    trained: list[tuple[int, int, float]] = field(default_factory=list)

    def outcomes(self, member: int) -> Outcomes:
        """Of all requests, the lost ones not answered."""
        own = self.problem.requests[member]
        answer_s, correct = np.full(len(own), np.nan), np.zeros(len(own), np.bool_)
        for turn in self.turns:
            if turn.holder == member and turn.lost_s == INF:
                answer_s[list(turn.indices)] = turn.end_s
                correct[list(turn.indices)] = turn.is_right
        return Outcomes(np.arange(len(own)), answer_s, answer_s <= own.deadline_s, correct)

    def head(self, member: int, now_s: float) -> int:
        """How many are resolved."""
        begun = [turn for turn in self.turns if turn.holder == member and turn.begin_s < now_s]
        resolved = {index for turn in begun for index in turn.indices}
        resolved |= {index for index, at_s in self.dropped_s[member].items() if at_s < now_s}
        return len(resolved | set(np.flatnonzero(self.problem.requests[member].deadline_s <= now_s).tolist()))


def one_by_one(problem: Problem) -> Course:
    """The rule."""
    floor = _Floor(problem)
    while floor.moments:
        floor.now_s = min(floor.moments)
        floor.moments.remove(floor.now_s)
        floor.fail()
        floor.arrive()
        while floor.decide():
            pass
    return floor.course


class _Floor:
    """All lanes and all queues at one moment."""

    def __init__(self, problem: Problem) -> None:
        self.p, self.course = problem, Course(problem)
        self.course.dropped_s = [{} for _ in problem.requests]
        self.now_s = 0.0
        self.moments = {float(at_s) for own in problem.requests for at_s in own.arrival_s}
        self.moments |= {
            time_s for lane in problem.lanes for own in lane for one in own for time_s in (one.ready_s, one.end_s)
        }
        self.moments |= {job.ready_s for job in problem.jobs}
        self.moments.discard(INF)
        self.moments = {max(at_s, 0.0) for at_s in self.moments}
        self.waiting: list[list[int]] = [[] for _ in problem.requests]
        self.n_seen, self.n_batches = [0] * len(problem.requests), [0] * len(problem.requests)
        self.jobs = list(problem.jobs)
        self.last: list[Turn | None] = [None] * len(problem.lanes)
        self.free_s = [0.0] * len(problem.lanes)

    def fail(self) -> None:
        for rank, lane in enumerate(self.p.lanes):
            for member, processes in enumerate(lane):
                last = self.last[rank]
                fails_now = any(one.fails and one.end_s == self.now_s for one in processes)
                if fails_now and last is not None and last.holder == member and last.end_s > self.now_s:
                    lost = replace(last, lost_s=self.now_s)
                    self.course.turns[self.course.turns.index(last)] = self.last[rank] = lost
                    self.free_s[rank] = self.now_s

    def arrive(self) -> None:
        for member, own in enumerate(self.p.requests):
            while self.n_seen[member] < len(own) and own.arrival_s[self.n_seen[member]] <= self.now_s:
                self.waiting[member].append(self.n_seen[member])
                self.n_seen[member] += 1

    def process(self, rank: int, member: int) -> Process | None:
        """The one that serves now."""
        serving = [one for one in self.p.lanes[rank][member] if one.ready_s <= self.now_s < one.end_s]
        return serving[0] if serving else None

    def decide(self) -> bool:
        """Do one thing; whether there was one."""
        lanes = [self._lane_after_drops(member) for member in range(len(self.waiting))]
        due = [
            (float(self.p.requests[member].deadline_s[self.waiting[member][0]]), member)
            for member, rank in enumerate(lanes)
            if rank is not None
        ]
        ready = [
            place
            for place, job in enumerate(self.jobs)
            if job.ready_s <= self.now_s and self.free_s[self._rank(job)] <= self.now_s
        ]
        kept, above = None, -INF
        if ready:
            job = self.jobs[ready[0]]
            kept = self._rank(job)
            longer = self._longer(kept, len(self.waiting) + job.tenant_index)
            until_s = self.now_s + longer * min(job.left_s, job.piece_s)
            if self.p.in_slack and self._can_wait(kept, -INF, until_s):
                return self._train(ready[0])
            if job.pace > 0 and job.left_s > job.pace * (job.due_s - self.now_s):
                above = job.worth
                would_be_late = self.now_s + (1.0 + self.p.turn_cost) * job.left_s + job.piece_s >= job.due_s
                if would_be_late or self._can_wait(kept, above, until_s):
                    return self._train(ready[0])
        for _, member in sorted(due):
            rank = lanes[member]
            assert rank is not None
            worth = self._worth(member)
            if (rank != kept or worth > above) and self._can_wait(
                rank, worth, self.now_s + self._batch_s(rank, member)
            ):
                return self._serve(rank, member)
        return self._train(ready[0]) if ready else False

    def _rank(self, job: TrainingJob) -> int:
        return int(job.lane_id or 0)

    def _lane_after_drops(self, member: int) -> int | None:
        """The lane that would serve the member, if a request waits that can be answered in time."""
        deadline_s, waiting = self.p.requests[member].deadline_s, self.waiting[member]
        while waiting and deadline_s[waiting[0]] <= self.now_s:
            self.course.dropped_s[member][waiting.pop(0)] = self.now_s
        idle = [
            rank
            for rank, free_s in enumerate(self.free_s)
            if free_s <= self.now_s and self.process(rank, member) is not None
        ]
        if not waiting or not idle:
            return None
        rank = min(idle, key=lambda one: (self._batch_s(one, member), one))
        while waiting and deadline_s[waiting[0]] < self.now_s + self._batch_s(rank, member):
            self.course.dropped_s[member][waiting.pop(0)] = self.now_s
        return rank if waiting else None

    def _batch_s(self, rank: int, member: int) -> float:
        """As planned, of what waits."""
        process = self.process(rank, member)
        assert process is not None
        n_taken = min(len(self.waiting[member]), process.limit)
        return process.latency.at(n_taken) * self._longer(rank, member)

    def _longer(self, rank: int, holder: int) -> float:
        last = self.last[rank]
        is_free = not self.p.first_turn_costs if last is None else last.holder == holder
        return 1.0 if is_free else 1.0 + self.p.turn_cost

    def _rate_rps(self, rank: int, member: int) -> float:
        process = self.process(rank, member)
        return 0.0 if process is None else process.limit / process.latency.at(process.limit)

    def _worth(self, member: int) -> float:
        if self.p.worths is not None:
            return self.p.worths[member]
        weight = 1.0 if self.p.weights is None else self.p.weights[member]
        most_rps = max(self._rate_rps(rank, member) for rank in range(len(self.p.lanes)))
        return most_rps * weight * self.p.accuracies[member].at(self.now_s)

    def _can_wait(self, rank: int, above: float, until_s: float) -> bool:
        due = [(float(self.p.requests[i].deadline_s[own[0]]), i) for i, own in enumerate(self.waiting) if own]
        drained_s = 0.0
        for due_s, member in sorted(due):
            process, n_waiting = self.process(rank, member), len(self.waiting[member])
            if process is None or self._worth(member) <= above:
                continue
            n_full, n_rest = divmod(n_waiting, process.limit)
            alone_s = n_full * process.latency.at(process.limit) + (process.latency.at(n_rest) if n_rest else 0.0)
            all_rps = sum(self._rate_rps(other, member) for other in range(len(self.p.lanes)))
            drained_s += alone_s / (all_rps / self._rate_rps(rank, member))
            drained_s += self.p.turn_cost * process.latency.at(min(n_waiting, process.limit))
            if until_s + drained_s > due_s:
                return False
        return True

    def _begin(self, turn: Turn) -> None:
        self.course.turns.append(turn)
        self.last[turn.rank], self.free_s[turn.rank] = turn, turn.end_s
        self.moments.add(turn.end_s)

    def _serve(self, rank: int, member: int) -> bool:
        process, own = self.process(rank, member), self.p.requests[member]
        assert process is not None
        taken = tuple(self.waiting[member][: process.limit])
        del self.waiting[member][: process.limit]
        service_s = process.latency.at(len(taken)) * factor(self.p.jitter, own.tenant, self.n_batches[member])
        self.n_batches[member] += 1
        accuracy = self.p.accuracies[member].at(self.now_s)
        is_right = tuple(bool(own.luck[index] < accuracy) for index in taken)
        end_s = self.now_s + service_s * self._longer(rank, member)
        self._begin(Turn(rank, member, self.now_s, end_s, taken, is_right))
        return True

    def _train(self, place: int) -> bool:
        job = self.jobs[place]
        rank, holder = self._rank(job), len(self.waiting) + job.tenant_index
        lasts_s = min(job.left_s, job.piece_s)
        end_s = self.now_s + lasts_s * self._longer(rank, holder)
        self._begin(Turn(rank, holder, self.now_s, end_s))
        if job.left_s <= job.piece_s:
            self.course.trained.append((job.tenant_index, job.window, end_s))
            del self.jobs[place]
        else:
            self.jobs[place] = replace(job, left_s=job.left_s - job.piece_s)
        return True
