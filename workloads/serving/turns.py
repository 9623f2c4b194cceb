"""One GPU that all tenants share by turns: earliest deadline first, training in the gaps.

The GPU does one thing at a time: a batch of one tenant's requests, or a piece of one retraining. Each tenant has its
queue. What happens at a moment at which the GPU is free and a request or a retraining waits, in this order:

1. Each tenant's oldest request is dropped while its deadline is before now + latency(min(queue length, batch limit)).
2. The first retraining that is ready does a piece if it lags: if more of it is left than its pace times the seconds
   until it is due. It first lets tenants of more worth be served where, after the piece, not all of their waiting
   requests could be answered by the earliest deadline of these, in full batches of one tenant after the other. (It
   does not where it would be late without all of the time from now on, but for a piece.)
3. Of the tenants with requests that still wait, the one whose oldest has the earliest deadline (ties: the order of the
   tenants) is served min(queue length, batch limit) of its oldest. A tenant is passed over where the same would come
   to those of more worth after its batch. Unless it is set, the worth of all is the same.
4. If no request waits, the first retraining that is ready does a piece. With ``trains_in_slack`` it also does so before
   step 3 if, after the piece, the waiting requests of all could be answered like that. Requests then wait, and are
   served in larger batches.

What does not follow something of the same tenant and task lasts longer by the share ``turn_cost``.

Nothing is pre-empted. A request whose deadline has passed would be dropped by any later decision before anything is
taken, so it does not matter when it goes, and outcomes do not depend on the pieces of time.

In the compiled loop a piece's open requests, all tenants' one after the other, are arrays. Symbols (a *place* is an
index into the requests of all tenants):

=========  ====================================================================================================
requests   ``(3, N)``: arrival, deadline and luck
bounds     ``(3, n_tenants)``: place of the oldest unresolved, of the first that has not arrived, and the tenant's
           end. The first two are updated
latency_s  ``(n_tenants, most + 1)``: seconds by batch size
limits     ``(n_tenants,)``: most requests in one batch
factors    ``(n_tenants, n_factors)``: what the latencies of the batches to come are multiplied by; empty: nothing
n_used     ``(n_tenants,)``: how many of the factors, which is to say batches. Updated
eras       ``(2, n_tenants, n_eras)``: from when, and how much; times that never come fill it up
worth      ``(n_tenants,)``: what a second spent on the tenant's requests is worth
jobs       ``(7, n_jobs)``: seconds left (updated) and of a piece, ready from, pace, due, worth, and holder of its turns
holder     Whose turn it is: a tenant's requests; from ``n_tenants`` on, its training; −1: nobody's yet
=========  ====================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.compiled import compiled, inlined
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import AccuracyTimeline, Outcomes, Requests, latency_table
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter
from workloads.training import FULL

_REACHED, _NEEDS_FACTORS = -1, -2
"""Why the loop ended, if not because of a job."""


@dataclass(frozen=True, slots=True)
class BatchServing:
    """How the GPU answers one tenant's requests.

    Attributes:
        latency: Seconds by batch size.
        batch_limit: Most requests in one batch, ≥ 1.
        worth: What a second of the GPU is worth that is spent on its requests; only which is higher matters.
    """

    latency: LatencyCurve
    batch_limit: int
    worth: float = 0.0

    def __post_init__(self) -> None:
        if self.batch_limit < 1:
            raise ValueError(f"batch_limit {self.batch_limit}: must be at least 1")
        latency_table(self.latency, self.batch_limit)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A retraining that is not done, or what of it lies between two checkpoints.

    Attributes:
        tenant_index: The tenant of the model.
        window: The window of the data.
        left_s: Seconds of the GPU that it still needs, > 0.
        piece_s: Seconds after which requests may go first, > 0; the last piece may be shorter.
        ready_s: Earliest begin.
        has_begun: Whether a piece was done.
        pace: Share of the time that it is to have until it is due, in [0, 1]; 0: it never goes before requests.
        due_s: When it is to be done.
        worth: Tenants whose requests are of more worth do not come to be late by its going first.
        option: How the model is retrained.
        checkpoint: The part of the retraining that is done with it; ``None`` for all of it.
    """

    tenant_index: int
    window: int
    left_s: float
    piece_s: float
    ready_s: float
    has_begun: bool = False
    pace: float = 0.0
    due_s: float = math.inf
    worth: float = 0.0
    option: str = FULL
    checkpoint: float | None = None

    def __post_init__(self) -> None:
        for name in ("left_s", "piece_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"training job: {name} {getattr(self, name)}: must be finite and above 0")
        if math.isnan(self.ready_s):
            raise ValueError("training job: ready_s must be a number")
        if not 0 <= self.pace <= 1:
            raise ValueError(f"training job: pace {self.pace}: must be from 0 to 1")
        if math.isnan(self.due_s):
            raise ValueError("training job: due_s must be a number")


@dataclass(frozen=True, slots=True)
class TurnsState:
    """What one piece hands to the next. Everything before ``now_s`` has happened, nothing after it.

    Attributes:
        heads: By tenant, index of the oldest request that is not resolved.
        n_batches: By tenant, batches begun so far.
        jobs: Retrainings to be done, the first one first.
        now_s: The time reached.
        busy_until_s: When the GPU has finished what it does.
        holder: Whose turn it is, as in the symbols above.
    """

    heads: tuple[int, ...]
    n_batches: tuple[int, ...]
    jobs: tuple[TrainingJob, ...] = ()
    now_s: float = 0.0
    busy_until_s: float = 0.0
    holder: int = -1

    @classmethod
    def at_start(cls, n_tenants: int) -> TurnsState:
        """An idle GPU before the first request."""
        return cls((0,) * n_tenants, (0,) * n_tenants)


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of requests in the order in which they were served. All arrays are ``(k,)`` and read-only.

    Attributes:
        tenant_index: The tenant of each.
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


@inlined
def _first_after(times_s: FloatArray, first: int, end: int, time_s: float) -> int:
    """The first place in ``[first, end)`` with a time after ``time_s``; or ``end``. Times ascend."""
    while first < end and times_s[first] <= time_s:
        first += 1
    return first


@inlined
def _next_chance(arrival_s: FloatArray, bounds: IntArray, jobs: FloatArray, from_s: float) -> float:
    """The first moment from ``from_s`` on at which something waits; inf: never."""
    wait_s = np.inf
    for tenant in range(bounds.shape[1]):
        if bounds[0, tenant] < bounds[2, tenant]:
            wait_s = min(wait_s, arrival_s[bounds[0, tenant]])
    for job in range(jobs.shape[1]):
        wait_s = min(wait_s, jobs[2, job])
    return max(from_s, wait_s)


@inlined
def _drop_the_late(
    requests: FloatArray,
    bounds: IntArray,
    now_s: float,
    latency_s: FloatArray,
    limits: IntArray,
    holder: int,
    turn_cost: float,
) -> None:
    """Drop the oldest requests that cannot be answered in time, were it their tenant's turn now."""
    for tenant in range(bounds.shape[1]):
        head, end, limit = bounds[0, tenant], bounds[2, tenant], limits[tenant]
        longer = 1.0 if tenant == holder else 1.0 + turn_cost
        seen = _first_after(requests[0], max(bounds[1, tenant], head), end, now_s)
        while head < seen and requests[1, head] < now_s + longer * latency_s[tenant, min(seen - head, limit)]:
            head += 1
        bounds[0, tenant], bounds[1, tenant] = head, seen


@inlined
def _can_wait(
    above: float,
    until_s: float,
    requests: FloatArray,
    bounds: IntArray,
    latency_s: FloatArray,
    limits: IntArray,
    worth: FloatArray,
    turn_cost: float,
) -> bool:
    """Whether all that waits of more worth could be answered by its earliest deadline if the GPU were busy until then.

    It would be answered in full batches of one tenant after the other, each in a turn of its own.
    """
    drained_s, due_s = 0.0, np.inf
    for tenant in range(bounds.shape[1]):
        n_waiting, limit = bounds[1, tenant] - bounds[0, tenant], limits[tenant]
        if worth[tenant] > above and n_waiting > 0:
            n_full = n_waiting // limit
            drained_s += n_full * latency_s[tenant, limit] + latency_s[tenant, n_waiting - n_full * limit]
            drained_s += turn_cost * latency_s[tenant, min(n_waiting, limit)]
            due_s = min(due_s, requests[1, bounds[0, tenant]])
    return bool(until_s + drained_s <= due_s)


@inlined
def _next_served(
    above: float,
    requests: FloatArray,
    bounds: IntArray,
    now_s: float,
    latency_s: FloatArray,
    limits: IntArray,
    worth: FloatArray,
    holder: int,
    turn_cost: float,
) -> int:
    """Of the tenants of more worth that need not be passed over, the one with the earliest deadline; −1: no such."""
    chosen, chosen_s = -1, np.inf
    for tenant in range(bounds.shape[1]):
        head, n_waiting = bounds[0, tenant], bounds[1, tenant] - bounds[0, tenant]
        if n_waiting > 0 and worth[tenant] > above and requests[1, head] < chosen_s:
            served_s = latency_s[tenant, min(n_waiting, limits[tenant])] * (
                1.0 if tenant == holder else 1.0 + turn_cost
            )
            if _can_wait(worth[tenant], now_s + served_s, requests, bounds, latency_s, limits, worth, turn_cost):
                chosen, chosen_s = tenant, requests[1, head]
    return chosen


@inlined
def _first_ready(jobs: FloatArray, now_s: float) -> int:
    """The first job that is ready; −1: none is."""
    for job in range(jobs.shape[1]):
        if jobs[2, job] <= now_s:
            return job
    return -1


@inlined
def _yields_to(
    job: FloatArray,
    in_slack: bool,
    requests: FloatArray,
    bounds: IntArray,
    now_s: float,
    latency_s: FloatArray,
    limits: IntArray,
    worth: FloatArray,
    holder: int,
    turn_cost: float,
) -> float:
    """Those of more worth than this are served before a piece of the job, a column of ``jobs``; inf: nobody is."""
    longer = 1.0 if job[6] == holder else 1.0 + turn_cost
    trained_s = now_s + longer * min(job[0], job[1])
    if in_slack and _can_wait(-np.inf, trained_s, requests, bounds, latency_s, limits, worth, turn_cost):
        return np.inf
    if not (job[3] > 0.0 and job[0] > job[3] * (job[4] - now_s)):
        return -np.inf
    would_be_late = now_s + (1.0 + turn_cost) * job[0] + job[1] >= job[4]
    if would_be_late or _can_wait(job[5], trained_s, requests, bounds, latency_s, limits, worth, turn_cost):
        return np.inf
    return float(job[5])


@compiled
def take_turns(  # noqa: PLR0917 (compiled code takes arrays by position)
    requests: FloatArray,
    bounds: IntArray,
    latency_s: FloatArray,
    limits: IntArray,
    factors: FloatArray,
    n_used: IntArray,
    eras: FloatArray,
    worth: FloatArray,
    jobs: FloatArray,
    now_s: float,
    busy_until_s: float,
    holder: int,
    until_s: float,
    n_begun: int,
    in_slack: bool,
    turn_cost: float,
    answer_s: FloatArray,
    in_time: BoolArray,
    correct: BoolArray,
    batches: FloatArray,
) -> tuple[float, float, int, int, int]:
    """The time reached, until when the GPU is busy, whose turn it is, the batches begun, and why the loop ended.

    The reason is the job whose last piece began, −1 (``until_s`` is reached) or −2 (a tenant's factors are used up).
    After −2 call again with further factors.

    Beside the symbols above:
        n_begun: Batches recorded so far.
        in_slack: As ``trains_in_slack`` of :func:`advance`, as is ``turn_cost``.
        answer_s: Out, ``(N,)``: by place. As it was where a request is dropped, and so ``in_time`` and ``correct``.
        batches: Out, ``(3, N)``: tenant, begin and end of each batch.
    """
    n_eras, n_factors = eras.shape[2], factors.shape[1]
    era = np.zeros(bounds.shape[1], np.int64)
    while True:
        chance_s = _next_chance(requests[0], bounds, jobs, max(now_s, busy_until_s))
        if chance_s >= until_s:
            break
        now_s = chance_s
        _drop_the_late(requests, bounds, now_s, latency_s, limits, holder, turn_cost)
        above, job = -np.inf, _first_ready(jobs, now_s)
        if job >= 0:
            above = _yields_to(
                jobs[:, job], in_slack, requests, bounds, now_s, latency_s, limits, worth, holder, turn_cost
            )
        urgent = _next_served(above, requests, bounds, now_s, latency_s, limits, worth, holder, turn_cost)
        if urgent >= 0:
            if n_used[urgent] == n_factors > 0:
                return now_s, busy_until_s, holder, n_begun, _NEEDS_FACTORS
            head = bounds[0, urgent]
            n_taken = min(bounds[1, urgent] - head, limits[urgent])
            service_s = latency_s[urgent, n_taken]
            if n_factors > 0:
                service_s *= factors[urgent, n_used[urgent]]
            busy_until_s = now_s + service_s * (1.0 if urgent == holder else 1.0 + turn_cost)
            holder = urgent
            era[urgent] = _first_after(eras[0, urgent], era[urgent] + 1, n_eras, now_s) - 1
            for place in range(head, head + n_taken):
                answer_s[place] = busy_until_s
                in_time[place] = busy_until_s <= requests[1, place]
                correct[place] = requests[2, place] < eras[1, urgent, era[urgent]]
            batches[0, n_begun], batches[1, n_begun], batches[2, n_begun] = urgent, now_s, busy_until_s
            n_begun += 1
            n_used[urgent] += 1
            bounds[0, urgent] += n_taken
        elif job >= 0:
            longer = 1.0 if jobs[6, job] == holder else 1.0 + turn_cost
            holder = int(jobs[6, job])
            if jobs[0, job] <= jobs[1, job]:
                busy_until_s = now_s + jobs[0, job] * longer
                return now_s, busy_until_s, holder, n_begun, job
            busy_until_s = now_s + jobs[1, job] * longer
            jobs[0, job] -= jobs[1, job]
    for tenant in range(bounds.shape[1]):
        bounds[0, tenant] = _first_after(requests[1], bounds[0, tenant], bounds[2, tenant], until_s)
    return until_s, busy_until_s, holder, n_begun, _REACHED


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
    """The state at ``until_s``, or at the moment at which the last piece of a retraining begins, if that is earlier.

    The caller may then say what accuracy the new model gives from ``busy_until_s`` on, and call again. A batch is
    recorded when it begins; its answer may come after ``until_s``. At ``until_s`` every request whose deadline has
    come is resolved. Any pieces give the same, if jobs are added before they are ready. ``requests``, ``servings`` and
    ``accuracy`` have one entry a tenant, in the same order. ``turn_cost`` ≥ 0 is the share by which what
    does not follow something of the same tenant and task lasts longer; a retraining's piece does no more for it.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN.
    """
    if not until_s >= state.now_s:
        raise ValueError(f"cannot advance the GPU to {until_s} s: it stands at {state.now_s} s")
    return _Arrays(requests, state, servings, accuracy, until_s, service_jitter).advanced(trains_in_slack, turn_cost)


class _Arrays:
    """One piece as the arrays that go into the loop, and what came out of it."""

    def __init__(
        self,
        requests: Sequence[Requests],
        state: TurnsState,
        servings: Sequence[BatchServing],
        accuracy: Sequence[AccuracyTimeline],
        until_s: float,
        jitter: ServiceJitter | None,
    ) -> None:
        self._names, self._state, self._until_s, self._jitter = [one.tenant for one in requests], state, until_s, jitter
        tails = [int(own.arrival_s.searchsorted(until_s)) for own in requests]
        spans = [slice(head, tail) for head, tail in zip(state.heads, tails, strict=True)]
        n_open = np.array([span.stop - span.start for span in spans], dtype=np.int64)
        self._starts = np.cumsum(n_open) - n_open
        self._bounds = np.stack([self._starts, self._starts, self._starts + n_open])
        self._requests = np.stack(
            [
                np.concatenate([getattr(one, name)[span] for one, span in zip(requests, spans, strict=True)])
                for name in ("arrival_s", "deadline_s", "luck")
            ]
        )
        self._latency_s, self._limits = _tables(servings)
        self._worth = np.array([one.worth for one in servings], dtype=np.float64)
        self._eras = _eras(accuracy)
        columns = [
            [job.left_s, job.piece_s, job.ready_s, job.pace, job.due_s, job.worth, len(servings) + job.tenant_index]
            for job in state.jobs
        ]
        self._jobs = np.array(columns, dtype=np.float64).reshape(-1, 7).T.copy()
        self._answer_s = np.full(n_open.sum(), np.nan)
        self._in_time, self._correct = np.zeros((2, n_open.sum()), dtype=np.bool_)
        self._batches = np.empty((3, n_open.sum()))

    def advanced(self, in_slack: bool, turn_cost: float) -> tuple[TurnsState, Piece]:
        """The piece, its loop begun anew with every block of jitter."""
        n_batches = np.array(self._state.n_batches, dtype=np.int64)
        now_s, busy_until_s, holder = self._state.now_s, self._state.busy_until_s, self._state.holder
        n_begun, ending = 0, _NEEDS_FACTORS
        while ending == _NEEDS_FACTORS:
            blocks, n_used = np.divmod(n_batches, JITTER_BLOCK)
            now_s, busy_until_s, holder, n_begun, ending = take_turns(
                self._requests,
                self._bounds,
                self._latency_s,
                self._limits,
                self._factors(blocks.tolist()),
                n_used,
                self._eras,
                self._worth,
                self._jobs,
                float(now_s),
                float(busy_until_s),
                int(holder),
                float(self._until_s),
                n_begun,
                in_slack,
                float(turn_cost),
                self._answer_s,
                self._in_time,
                self._correct,
                self._batches,
            )
            n_batches = blocks * JITTER_BLOCK + n_used
        n_resolved = (self._bounds[0] - self._starts).tolist()
        heads = tuple(first + n for first, n in zip(self._state.heads, n_resolved, strict=True))
        jobs = [self._job(place) for place in range(len(self._state.jobs))]
        finished = jobs.pop(ending) if ending >= 0 else None
        after = TurnsState(heads, tuple(n_batches.tolist()), tuple(jobs), now_s, busy_until_s, int(holder))
        tenants, begin_s, end_s = self._batches[:, :n_begun].copy()
        return after, Piece(self._outcomes(heads), Batches(tenants.astype(np.int64), begin_s, end_s), finished)

    def _factors(self, blocks: Sequence[int]) -> FloatArray:
        """What latencies are multiplied by, by tenant and place in its block; empty without jitter."""
        if self._jitter is None:
            return np.empty((len(self._names), 0))
        return np.stack([self._jitter.factors(name, block) for name, block in zip(self._names, blocks, strict=True)])

    def _job(self, place: int) -> TrainingJob:
        job, left_s = self._state.jobs[place], float(self._jobs[0, place])
        return job if left_s == job.left_s else replace(job, left_s=left_s, has_begun=True)

    def _outcomes(self, heads: Sequence[int]) -> tuple[Outcomes, ...]:
        found = []
        for first, head, start in zip(self._state.heads, heads, self._starts.tolist(), strict=True):
            places = slice(start, start + head - first)
            index = np.arange(first, head, dtype=np.int64)
            found.append(Outcomes(index, self._answer_s[places], self._in_time[places], self._correct[places]))
        return tuple(found)


def _tables(servings: Sequence[BatchServing]) -> tuple[FloatArray, IntArray]:
    """Seconds by tenant and batch size, ``(n_tenants, most + 1)``, and the batch limits."""
    limits = np.array([one.batch_limit for one in servings], dtype=np.int64)
    latency_s = np.zeros((len(servings), int(limits.max()) + 1))
    for row, one in zip(latency_s, servings, strict=True):
        row[: one.batch_limit + 1] = latency_table(one.latency, one.batch_limit)
    return latency_s, limits


def _eras(accuracy: Sequence[AccuracyTimeline]) -> FloatArray:
    """From when, and how much, by tenant, ``(2, n_tenants, n_eras)``; filled up with times that never come."""
    eras = np.zeros((2, len(accuracy), max(len(one.from_s) for one in accuracy)))
    eras[0] = math.inf
    for tenant, one in enumerate(accuracy):
        eras[:, tenant, : len(one.from_s)] = one.from_s, one.accuracy
    return eras
