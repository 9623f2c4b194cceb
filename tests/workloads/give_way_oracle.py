"""Trainings that give way, request by request, moment by moment: what ``pool.give_way`` must give."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pool_oracle import INF, Course, Problem, Process, _Floor

from workloads.profiles.latency import LatencyCurve
from workloads.serving.pool import Beside, TrainingJob


@dataclass(eq=False)
class Work:
    """A training, and what is left of it."""

    job: TrainingJob
    left_s: float


@dataclass
class Side:
    """A lane as its trainings see it: up to when they are counted, who had all of it since the last batch, how long."""

    marked_s: float = 0.0
    full: Work | None = None
    stretch_s: float = 0.0
    batches: list[tuple[float, int]] = field(default_factory=list)


def gives_way(problem: Problem, beside: Beside) -> tuple[Course, list[int], float]:
    """The course, the units that each batch holds, in the order of their begin, and the work lost; no process fails."""
    floor = _GivesWay(problem, beside)
    while floor.moments:
        until_s = min(floor.moments)
        floor.train(until_s)
        floor.moments.remove(until_s)
        floor.now_s = until_s
        floor.arrive()
        while floor.decide():
            pass
    floor.train(INF)
    return floor.course, floor.held, floor.lost_s


class _GivesWay(_Floor):
    """All lanes and queues at one moment, and what trains beside."""

    def __init__(self, problem: Problem, beside: Beside) -> None:
        super().__init__(problem)
        self.b, self.jobs = beside, []
        self.works = [Work(job, job.left_s) for job in problem.jobs]
        self.sides = [Side() for _ in problem.lanes]
        self.held: list[int] = []
        self.lost_s = 0.0

    def train(self, until_s: float) -> None:
        """Whatever trains on idle lanes up to then."""
        for rank, side in enumerate(self.sides):
            while side.marked_s < until_s:
                work = self.training(rank, side.marked_s)
                others = [one.job.ready_s for one in self.works if one.job.ready_s > side.marked_s]
                next_s = min([until_s, *others, *([side.marked_s + work.left_s] if work else [])])
                if work is not side.full:
                    side.full, side.stretch_s = work, 0.0
                if work is not None:
                    side.stretch_s += next_s - side.marked_s
                    work.left_s -= next_s - side.marked_s
                    if work.left_s == 0:
                        self.end(work, next_s)
                        side.full, side.stretch_s = None, 0.0
                side.marked_s = next_s

    def training(self, rank: int, at_s: float) -> Work | None:
        ready = [one for one in self.works if self._rank(one.job) == rank and one.job.ready_s <= at_s]
        return ready[0] if ready else None

    def end(self, work: Work, at_s: float) -> None:
        self.works.remove(work)
        self.course.trained.append((work.job.tenant_index, work.job.window, at_s))

    def way_s(self, rank: int) -> float:
        return self.b.give_way_s if self.sides[rank].stretch_s > 0 else 0.0

    def process(self, rank: int, member: int) -> Process | None:
        """As slow as it is beside a training."""
        own = super().process(rank, member)
        if own is None or not self.training(rank, self.now_s):
            return own
        sizes = tuple(range(1, own.limit + 1))
        slower = [own.latency.at(size) * self.b.slowdowns[member][size] for size in sizes]
        return replace(own, latency=LatencyCurve(sizes, tuple(slower)))

    def _rate_rps(self, rank: int, member: int) -> float:
        own = super().process(rank, member)
        return 0.0 if own is None else own.limit / own.latency.at(own.limit)

    def _batch_s(self, rank: int, member: int) -> float:
        return super()._batch_s(rank, member) + self.way_s(rank)

    def _serve(self, rank: int, member: int) -> bool:
        until_s = self.now_s + self.b.slack_s
        if (
            self.b.slack_s
            and self.training(rank, self.now_s)
            and self._can_wait(rank, -INF, until_s + self.b.give_way_s)
        ):
            self.free_s[rank] = until_s
            self.moments.add(until_s)
            return True
        side, way_s = self.sides[rank], self.way_s(rank)
        if side.stretch_s > 0:
            assert side.full is not None
            lost_s = min(self.b.discard_s, side.stretch_s)
            side.full.left_s += lost_s
            self.lost_s += lost_s
        super()._serve(rank, member)
        turn = self.course.turns.pop()
        end_s = turn.end_s + way_s
        self._begin(replace(turn, end_s=end_s))
        side.batches.append((end_s, self.b.floors[member][len(turn.indices)]))
        in_window = [units for until_s, units in side.batches[:-1] if until_s + self.b.window_s > self.now_s]
        units = max([side.batches[-1][1], *in_window])
        self.held.append(units)
        work = self.training(rank, self.now_s)
        if work is not None:
            speed = self.b.speeds[work.job.tenant_index][len(self.b.speeds[0]) - 1 - units]
            begin_s = self.now_s + way_s
            if speed > 0 and work.left_s <= speed * (end_s - begin_s):
                self.end(work, begin_s + work.left_s / speed)
            else:
                work.left_s -= speed * (end_s - begin_s)
        side.marked_s, side.stretch_s, side.full = end_s, 0.0, None
        return True
