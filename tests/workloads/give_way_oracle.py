"""Trainings that give way, request by request, moment by moment: what ``pool.give_way`` must give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pool_oracle import INF, Course, Problem, Process, _Floor

from workloads.profiles.latency import LatencyCurve
from workloads.serving.pool import Beside, LaneMemory, TrainingJob


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


class Models:
    """A lane's memory by Algorithm 1: models by when they were used, the coldest first."""

    def __init__(self, memory: LaneMemory) -> None:
        self.m, self.ours_mib = memory, 0.0
        self.active: dict[int, float] = {}
        self.reserved: list[int] = []

    def mib(self, members: Iterable[int]) -> float:
        return sum(self.m.weights_mib[member] for member in members)

    @property
    def reserve_mib(self) -> float:
        return self.ours_mib - self.mib(self.active)

    @property
    def free_mib(self) -> float:
        return self.reserve_mib - self.mib(self.reserved)

    def is_gone(self, member: int) -> bool:
        return member not in self.active and member not in self.reserved

    def load_s(self, member: int) -> float:
        return self.m.load_s[member] if self.is_gone(member) else 0.0

    def pass_to(self, now_s: float) -> None:
        """InferRelease of whatever has been idle."""
        while self.active and (first := next(iter(self.active))) is not None:
            if self.active[first] + self.m.idle_s > now_s:
                break
            del self.active[first]
            self.reserved.append(first)
            if self.reserve_mib >= 2 * self.m.watermark_mib:
                given_mib = self.reserve_mib - self.m.watermark_mib
                while self.free_mib < given_mib and self.reserved:
                    self.reserved.pop(0)
                self.ours_mib -= min(given_mib, self.free_mib)

    def taken_mib(self, member: int) -> float:
        """What InferRequire takes from trainings."""
        missing_mib = self.m.weights_mib[member] - self.reserve_mib
        if not self.is_gone(member) or missing_mib <= 0:
            return 0.0
        return min(missing_mib + self.m.watermark_mib, self.m.capacity_mib - self.ours_mib)

    def require(self, member: int, now_s: float) -> None:
        """InferRequire."""
        self.ours_mib += self.taken_mib(member)
        if self.is_gone(member):
            while self.free_mib < self.m.weights_mib[member]:
                if self.reserved:
                    self.reserved.pop(0)
                else:
                    del self.active[next(iter(self.active))]
        self.active.pop(member, None)
        if member in self.reserved:
            self.reserved.remove(member)
        self.active[member] = now_s


def gives_way(problem: Problem, beside: Beside) -> tuple[Course, list[int], float]:
    """The course, the units that each batch holds, in the order of their begin, and the work lost; no process fails."""
    floor = _GivesWay(problem, beside)
    while floor.moments:
        until_s = min(floor.moments)
        floor.train(until_s)
        floor.moments.remove(until_s)
        floor.now_s = until_s
        floor.arrive()
        for models in floor.models:
            models.pass_to(until_s)
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
        self.models = [Models(beside.memory) for _ in problem.lanes] if beside.memory else []
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

    def takes(self, rank: int, member: int) -> bool:
        """Whether a batch would have memory from a training."""
        return bool(self.models) and self.models[rank].taken_mib(member) > 0

    def way_s(self, rank: int, member: int) -> float:
        from_training = self.takes(rank, member) and self.training(rank, self.now_s) is not None
        leaves_s = self.b.give_way_s if self.sides[rank].stretch_s > 0 or from_training else 0.0
        return leaves_s + (self.models[rank].load_s(member) if self.models else 0.0)

    def longest_load_s(self, rank: int) -> float:
        members = range(len(self.p.requests))
        return max(self.models[rank].load_s(member) for member in members) if self.models else 0.0

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
        return super()._batch_s(rank, member) + self.way_s(rank, member)

    def _serve(self, rank: int, member: int) -> bool:
        until_s = self.now_s + self.b.slack_s
        if (
            self.b.slack_s
            and self.training(rank, self.now_s)
            and self._can_wait(rank, -INF, until_s + self.b.give_way_s + self.longest_load_s(rank))
        ):
            self.free_s[rank] = until_s
            self.moments.add(until_s)
            return True
        side, way_s = self.sides[rank], self.way_s(rank, member)
        discard_s = self.b.discard_s
        if self.b.memory:
            if self.takes(rank, member):
                discard_s = max(discard_s, self.b.memory.discard_s)
            self.models[rank].require(member, self.now_s)
        if side.stretch_s > 0:
            assert side.full is not None
            lost_s = min(discard_s, side.stretch_s)
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
