"""One tenant's requests and workers: the simulation's pull rule, with the time handed in and nothing else to wait for.

The rule is :mod:`workloads.serving.pull`'s, where it is explained: the expired are dropped; the idle worker with the
least latency goes first, ties by name; while the oldest request could not be answered in time in the batch that would
be taken, it is dropped; then a batch of the oldest is taken. Here a worker is idle while it has credit.

Beyond the simulation, workers come and go as they please, and no request is lost by it. A request is kept until its
answer is there. One that a worker took and did not answer waits again, ahead of all that came after it. The first
answer counts, whichever worker sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import ceil, floor, inf
from typing import Any

from workloads.live.messages import MOST_BATCH, Counts, Status
from workloads.profiles.latency import LatencyCurve
from workloads.serving.servers import latency_table

MOST_ATTEMPTS = 3
"""Workers that may die or hang with a request before it is answered as failed."""

MOST_SECONDS = 7200
"""Seconds whose counts are kept; of older ones only those with requests that wait."""

_OVERHEAD_BYTES = 512
"""What a request takes beside its payload, roughly."""


@dataclass(frozen=True, slots=True)
class Held:
    """A request in the dispatcher's keeping.

    Attributes:
        number: In order of arrival, unique within the tenant.
        client: Whom to answer; ``id`` is the client's number for it.
        second: In which it counts.
    """

    number: int
    client: bytes
    id: int
    arrival_s: float
    deadline_s: float
    second: int
    payload: bytes
    expected: bytes | None

    @property
    def size_bytes(self) -> int:
        """Of memory, roughly."""
        return _OVERHEAD_BYTES + len(self.payload) + len(self.expected or b"")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcome of a request; ``answer`` is the model's, or why there is none."""

    request: Held
    status: Status
    at_s: float
    answer: bytes | str
    version: str = ""


@dataclass(slots=True)
class _Worker:
    latency_s: Sequence[float]
    limit: int
    credit: int = 0
    paused: bool = False
    leaving: bool = False
    batch: dict[int, Held] = field(default_factory=dict)
    begun_s: float = 0.0

    @property
    def takes_batches(self) -> bool:
        return bool(self.credit or self.batch) and not (self.paused or self.leaving)

    @property
    def is_idle(self) -> bool:
        return self.takes_batches and not self.batch


@dataclass(slots=True)
class _Second:
    arrived: int = 0
    in_time: int = 0
    late: int = 0
    dropped: int = 0
    refused: int = 0
    failed: int = 0
    judged: int = 0
    correct: int = 0
    goodput: int = 0
    turned_away: int = 0
    latency_ms: dict[int, int] = field(default_factory=dict)

    def of(self, tenant: str, second: int) -> Counts:
        counts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return Counts(tenant, second, **{**counts, "latency_ms": tuple(sorted(self.latency_ms.items()))})

    @property
    def is_settled(self) -> bool:
        return self.arrived == self.in_time + self.late + self.dropped


@dataclass(frozen=True, slots=True)
class Service:
    """How some workers of a tenant answer a turn together, each an equal part of it.

    Attributes:
        limit: Most requests of a turn.
        latency_s: By the requests of a turn, 0 … ``limit``, how long it takes: as the largest part does.
    """

    limit: int
    latency_s: Sequence[float]

    @property
    def rate_rps(self) -> float:
        """In full turns."""
        return self.limit / self.latency_s[self.limit]


def _limited(name: str, latency: LatencyCurve, batch_limit: int) -> tuple[Sequence[float], int]:
    """How long the worker's batches take, by their size, up to the largest."""
    if not 1 <= batch_limit <= MOST_BATCH:
        raise ValueError(f"worker {name}: batch_limit {batch_limit}: must lie in 1–{MOST_BATCH}")
    return latency_table(latency, batch_limit), batch_limit


@lru_cache(maxsize=1024)
def _service(n_workers: int, limit: int, latency_s: tuple[float, ...]) -> Service:
    turns_s = (latency_s[-(-n_requests // n_workers)] for n_requests in range(n_workers * limit + 1))
    return Service(n_workers * limit, tuple(turns_s))


class TenantQueue:
    """The requests of one tenant that are not resolved, and the workers that may take them.

    Each request that arrives is resolved exactly once: it comes out of :meth:`resolved` and is in the counts.

    Attributes:
        tenant: Whose requests they are.
        n_repeated: Answers that came when there was one already.
        closed: Why no further request is taken; empty while they are.
    """

    def __init__(
        self, tenant: str, origin_s: float = 0.0, most_bytes: int = 2**28, closes_s: float | None = None
    ) -> None:
        """No request counts in a second that ended ``closes_s`` ago; ``None``: it counts when it was to arrive."""
        self.tenant, self.n_repeated, self.closed = tenant, 0, ""
        self._origin_s, self._most_bytes, self._closes_s = origin_s, most_bytes, closes_s
        self._n_arrived = self._bytes = self._first_second = 0
        self._waiting: list[tuple[float, int, Held]] = []
        self._holder: dict[int, str] = {}
        self._open: dict[int, Held] = {}
        self._attempts: dict[int, int] = {}
        self._workers: dict[str, _Worker] = {}
        self._resolved: list[Resolved] = []
        self._seconds: dict[int, _Second] = {}
        self._changed: set[int] = set()

    @property
    def n_waiting(self) -> int:
        """Requests that no worker has."""
        return len(self._waiting)

    @property
    def n_open(self) -> int:
        """Requests that are not resolved."""
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """What all open requests take, roughly."""
        return self._bytes

    @property
    def next_deadline_s(self) -> float:
        """When the next of the waiting requests expires; inf without any."""
        return self._waiting[0][0] if self._waiting else inf

    def check_integrity(self) -> None:
        """Raise ``AssertionError`` unless every open request is at exactly one place; for tests."""
        waiting = [number for _, number, _ in self._waiting]
        assert len(set(waiting)) == len(waiting)
        assert all(self._waiting[(place - 1) // 2] <= one for place, one in enumerate(self._waiting) if place)
        assert set(waiting) | self._holder.keys() == self._open.keys()
        assert not set(waiting) & self._holder.keys()
        assert all(number in self._workers[name].batch for number, name in self._holder.items())
        assert self._bytes == sum(one.size_bytes for one in self._open.values())
        assert self._attempts.keys() <= self._open.keys()
        assert sum(one.arrived - one.in_time - one.late - one.dropped for one in self._seconds.values()) == self.n_open

    # --- requests

    def arrive(
        self,
        client: bytes,
        request_id: int,
        arrival_s: float,
        deadline_s: float,
        payload: bytes,
        now_s: float,
        expected: bytes | None = None,
    ) -> None:
        """Take a request in; or refuse it, where the tenant's requests take too much memory already, or none is taken.

        It counts in the second of ``arrival_s``, but not in one before the origin or after now.
        """
        second = self._second(arrival_s, now_s)
        request = Held(self._n_arrived, client, request_id, arrival_s, deadline_s, second, payload, expected)
        self._n_arrived += 1
        self._count(second).arrived += 1
        if self.closed or self._bytes + request.size_bytes > self._most_bytes:
            self._tell(request, Status.REFUSED, now_s, self.closed or f"the queue of {self.tenant} is full")
            return
        self._open[request.number] = request
        self._bytes += request.size_bytes
        heappush(self._waiting, (deadline_s, request.number, request))

    def turned_away(self, arrival_s: float, n_requests: int, now_s: float) -> None:
        """Count requests that were refused before they came here."""
        self._count(self._second(arrival_s, now_s)).turned_away += n_requests

    def closed_before(self, now_s: float) -> int:
        """No further request counts in a second before this one."""
        closed = 0 if self._closes_s is None else floor(now_s - self._closes_s - self._origin_s)
        return max(closed, self._first_second)

    def _second(self, arrival_s: float, now_s: float) -> int:
        return max(floor(min(arrival_s, now_s) - self._origin_s), self.closed_before(now_s))

    def hand_out(self, now_s: float) -> list[tuple[str, list[Held]]]:
        """Drop what is too late, and give idle workers their batches; which worker got what."""
        waiting, given = self._waiting, list[tuple[str, list[Held]]]()
        self.drop_expired(now_s)
        while waiting:
            name = self._fastest()
            if name is None:
                break
            worker = self._workers[name]
            limit, latency_s = min(worker.limit, worker.credit), worker.latency_s
            self.drop_hopeless(lambda n_waiting: latency_s[min(n_waiting, limit)], now_s)  # noqa: B023
            given += self.take([name], now_s)
        return given

    def drop_expired(self, now_s: float) -> None:
        """Drop the waiting requests whose deadline has come."""
        self._drop_while(lambda: self._waiting[0][0] <= now_s, now_s)

    def drop_hopeless(self, takes_s: Callable[[int], float], now_s: float) -> None:
        """Drop the oldest while it could not be answered in time; ``takes_s`` by how many requests wait."""
        self._drop_while(lambda: self._waiting[0][0] < now_s + takes_s(len(self._waiting)), now_s)

    def take(self, workers: Sequence[str], now_s: float) -> list[tuple[str, list[Held]]]:
        """Give those of the workers that are idle equal parts of the oldest requests, as many as they may take."""
        idle = [(name, worker) for name in workers if (worker := self._workers[name]).is_idle]
        most, given = min((min(worker.limit, worker.credit) for _, worker in idle), default=0), []
        part = min(-(-len(self._waiting) // max(1, len(idle))), most)
        for name, worker in idle:
            batch = [heappop(self._waiting)[2] for _ in range(min(len(self._waiting), part))]
            if batch:
                worker.batch = {request.number: request for request in batch}
                worker.credit, worker.begun_s = 0, now_s
                self._holder.update(dict.fromkeys(worker.batch, name))
                given.append((name, batch))
        return given

    def service(self, workers: Sequence[str]) -> Service | None:
        """How those of the workers that take batches now, or have one, answer a turn together; ``None``: none does."""
        able = [one for name in workers if (one := self._workers[name]).takes_batches]
        if not able:
            return None
        limit = min(one.limit for one in able)
        slowest = max((one.latency_s for one in able), key=lambda latency_s: latency_s[limit])
        return _service(len(able), limit, tuple(slowest[: limit + 1]))

    def has_batch(self, workers: Sequence[str]) -> bool:
        """Whether one of the workers has not answered all that it was given."""
        return any(self._workers[name].batch for name in workers)

    def drop_all(self, now_s: float, reason: str) -> None:
        """Drop every request, taken or not: nothing answers any more."""
        for request in list(self._open.values()):
            self._settle(request, Status.DROPPED, now_s, reason)
        self._waiting.clear()
        self._holder.clear()

    # --- workers

    def join(self, name: str, latency: LatencyCurve, batch_limit: int) -> None:
        """Know a worker; it is idle once it has credit.

        Raises:
            ValueError: It is known, its limit is none, or a batch within it takes no time.
        """
        if name in self._workers:
            raise ValueError(f"worker {name}: {self.tenant} has one of this name")
        self._workers[name] = _Worker(*_limited(name, latency, batch_limit))

    def serve_by(self, name: str, latency: LatencyCurve, batch_limit: int) -> None:
        """Know how large the worker's batches may be from now on, and how long they take.

        Raises:
            ValueError: As of :meth:`join`.
        """
        worker = self._workers[name]
        worker.latency_s, worker.limit = _limited(name, latency, batch_limit)

    def credit(self, name: str, requests: int) -> None:
        """The worker takes a batch of up to so many requests."""
        self._workers[name].credit = requests

    def pause(self, name: str, paused: bool = True) -> None:
        """Give the worker no further batch, or go on."""
        self._workers[name].paused = paused

    def drain(self, name: str) -> bool:
        """Give the worker no further batch, for good; whether it has one."""
        worker = self._workers[name]
        worker.leaving = True
        return bool(worker.batch)

    def answer(
        self, name: str, numbers: Sequence[int], answers: Sequence[bytes | str], version: str, now_s: float
    ) -> None:
        """Take a worker's answers; what it had and did not answer waits again.

        Numbers that it was not given are passed over, and so are those that have an answer already.
        """
        worker = self._workers[name]
        for number, answer in zip(numbers, answers, strict=True):
            request = worker.batch.pop(number, None)
            if request is None or number not in self._open:
                self.n_repeated += 1
                continue
            if self._holder.pop(number, None) is None:  # it had been given back, and waits
                self._waiting.remove((request.deadline_s, number, request))
                heapify(self._waiting)
            if isinstance(answer, str):
                status = Status.FAILED
            else:
                status = Status.IN_TIME if now_s <= request.deadline_s else Status.LATE
            self._settle(request, status, now_s, answer, version)
        self._put_back(name, now_s, to_blame=False)
        worker.batch = {}

    def overdue(self, now_s: float, limit_s: Callable[[float], float]) -> list[tuple[str, float]]:
        """Workers that still have a batch after ``limit_s(its latency)``, and since when."""
        return [
            (name, worker.begun_s)
            for name, worker in self._workers.items()
            if any(self._holder.get(number) == name for number in worker.batch)
            and now_s - worker.begun_s > limit_s(worker.latency_s[min(len(worker.batch), worker.limit)])
        ]

    def give_back(self, name: str, now_s: float) -> int:
        """What a worker has waits again, though it may still answer; how many requests that are."""
        return self._put_back(name, now_s, to_blame=True)

    def leave(self, name: str, now_s: float, *, to_blame: bool) -> int:
        """Forget a worker; what it has waits again. How many requests that are.

        ``to_blame``: it died or fell silent, maybe because of what it had.
        """
        n_back = self._put_back(name, now_s, to_blame=to_blame)
        del self._workers[name]
        return n_back

    # --- outcomes

    def resolved(self) -> list[Resolved]:
        """Those resolved since the last call."""
        resolved, self._resolved = self._resolved, []
        return resolved

    def changed_counts(self) -> list[Counts]:
        """Of the seconds in which something changed since the last call, ascending."""
        changed = [self._seconds[second].of(self.tenant, second) for second in sorted(self._changed)]
        self._changed = set()
        for second in sorted(self._seconds)[: max(len(self._seconds) - MOST_SECONDS, 0)]:
            if self._seconds[second].is_settled:
                del self._seconds[second]
                self._first_second = max(self._first_second, second + 1)
        return changed

    def all_counts(self) -> list[Counts]:
        """Of all seconds that are kept, ascending."""
        return [self._seconds[second].of(self.tenant, second) for second in sorted(self._seconds)]

    # ---

    def _fastest(self) -> str | None:
        """The idle worker with the least latency for the batch that it would take, ties by name."""
        n_waiting = len(self._waiting)
        idle = (
            (worker.latency_s[min(n_waiting, worker.limit, worker.credit)], name)
            for name, worker in self._workers.items()
            if worker.is_idle
        )
        return min(idle, default=(0.0, None))[1]

    def _drop_while(self, is_hopeless: Callable[[], bool], now_s: float) -> None:
        while self._waiting and is_hopeless():
            self._settle(heappop(self._waiting)[2], Status.DROPPED, now_s, "it could not be answered in time")

    def _put_back(self, name: str, now_s: float, *, to_blame: bool) -> int:
        worker = self._workers[name]
        taken = [request for number, request in worker.batch.items() if self._holder.get(number) == name]
        for request in taken:
            del self._holder[request.number]
            if to_blame:
                attempts = self._attempts[request.number] = self._attempts.get(request.number, 0) + 1
                if attempts >= MOST_ATTEMPTS:
                    self._settle(request, Status.FAILED, now_s, f"{attempts} workers died or hung with it")
                    continue
            heappush(self._waiting, (request.deadline_s, request.number, request))
        return len(taken)

    def _settle(self, request: Held, status: Status, now_s: float, answer: bytes | str, version: str = "") -> None:
        del self._open[request.number]
        self._attempts.pop(request.number, None)
        self._bytes -= request.size_bytes
        self._tell(request, status, now_s, answer, version)

    def _tell(self, request: Held, status: Status, now_s: float, answer: bytes | str, version: str = "") -> None:
        self._resolved.append(Resolved(request, status, now_s, answer, version))
        count = self._count(request.second)
        match status:
            case Status.IN_TIME:
                count.in_time += 1
            case Status.LATE:
                count.late += 1
            case Status.DROPPED:
                count.dropped += 1
            case Status.REFUSED:
                count.dropped += 1
                count.refused += 1
            case Status.FAILED:
                count.dropped += 1
                count.failed += 1
        if self._closes_s is not None and isinstance(answer, bytes):
            took_ms = max(0, ceil(1000 * (now_s - request.arrival_s)))
            count.latency_ms[took_ms] = count.latency_ms.get(took_ms, 0) + 1
        if request.expected is not None and isinstance(answer, bytes):
            is_right = answer == request.expected
            count.judged += 1
            count.correct += is_right
            count.goodput += is_right and status is Status.IN_TIME

    def _count(self, second: int) -> _Second:
        self._changed.add(second)
        return self._seconds.setdefault(second, _Second())
