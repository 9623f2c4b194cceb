"""Lanes that all members of a pool share by turns: earliest deadline first, training in the gaps.

A lane is an instance of a pool, or the whole GPU. It does one thing at a time: a batch of one member's requests, or a
piece of one retraining. Each member has one queue for all lanes. A lane serves a member from that member's ``ready_s``
there until its ``end_s``; a batch in service is finished even after that. What happens at a moment at which a lane is
idle and a request waits that it serves, or a retraining that is done there, in this order, until no such lane is left:

1. Each member's lane is that of the idle ones that serve it on which the batch of min(queue length, batch limit) would
   last least (ties: by rank). Its oldest request is dropped while its deadline has passed, or is before the end of that
   batch on that lane.
2. The first retraining that is ready, and whose lane is idle, does a piece if it lags: if more of it is left than its
   pace times the seconds until it is due. On its lane it first lets members of more worth be served that, after the
   piece, could not wait (below). (It does not where it would be late without all of the time from now on, but for a
   piece.)
3. Of the members with requests that still wait, the one whose oldest has the earliest deadline (ties: the order of the
   members) is served min(queue length, batch limit) of its oldest on its lane. A member is passed over where, after its
   batch, those of more worth on that lane could not wait.
4. If no member is served, the retraining of step 2 does a piece. With ``trains_in_slack`` it also does so before step 3
   if, after the piece, all could wait that the lane serves. Requests then wait, and are served in larger batches.

Members *can wait* until a lane is free again if from that moment on, one member after the other by their oldest
requests' deadlines, all that waits of each could be answered by the deadline of its oldest, each in turns of its own:
in full batches at the rate of all lanes that serve the member now, idle or busy. So the seconds that this lane alone
would take are divided by how many times its rate all of these lanes have together (a lane's rate is its batch limit
over the seconds of such a batch), and what a turn costs is added once, as all lanes turn at the same time. Lanes that
are idle count for no more than others, and what they answer before this lane is free does not count. A member that
this lane does not serve now loses nothing by what the lane does, and does not count. Of those with a lane the member
of most worth is never passed over, so no lane is idle while a request waits that it serves. (Were all of it asked for
by the earliest deadline of all, hardly anything could wait where many are members, and worth alone would decide.)

A turn, or a piece of training, lasts longer by the share ``turn_cost`` if it does not follow something of the same
member and task on its lane. What a lane does first does not, unless the state says that others had it before.

What a second is worth that is spent on a member is its weight × its accuracy in service × its rate on the lane that
has the highest of those that serve it, all at that moment: so worth follows the accuracy, in the middle of a piece,
too, and is the same on all lanes. (By each lane's own rate, two lanes could wait for each other.) Where a caller has
worths, as turns of a whole GPU do, they stay as they are.

Nothing is pre-empted. A request whose deadline has passed would be dropped by any later decision before anything is
taken, so it does not matter when it goes, and outcomes do not depend on the pieces of time. With one member a pool is
:mod:`workloads.serving.pull`; members in one lane are a GPU that is shared by turns.

**Giving way.** :func:`give_way` is a second entry, in which requests always go first and wait for no piece of a
training. It serves by the rule above as if there were no trainings. The first ready one of a lane has all of it while
no batch is served there. A batch that finds one training lasts longer by the time in which that leaves, and what the
training did last may be lost. Beside a batch the training goes on at the speed of the units of the GPU that are left of
the batch's *floor*: the largest floor of all batches of the lane in a sliding window, up to this one.

**Memory** (:class:`LaneMemory`), where it is given, changes hands between serving and trainings by Sirius's Algorithm
1, as models are indivisible. A model is active from the begin of a batch on, for ``idle_s``, and then kept in reserve.
The reserve is what serving has beyond its active models. Once it reaches twice the watermark, the coldest models in it
go, whole, until the watermark is left; only what they held beyond that goes to trainings. A model that is gone comes
back before its batch. If the reserve is smaller than it, serving takes what is missing and the watermark from
trainings, as much of that as they have; then the coldest models in reserve make room, or, where there are none, active
ones.

In the compiled loops a piece's open requests, all members' one after the other, are arrays, which :class:`_Floor`
describes. A *place* is an index into the requests of all members, a *rank* one into the lanes, by id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from executor.compiled import compiled, inlined
from workloads.arrays import BoolArray, FloatArray, IntArray
from workloads.profiles.latency import LatencyCurve
from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Server, latency_table
from workloads.traffic.luck import JITTER_BLOCK, ServiceJitter
from workloads.training import FULL

_Value = TypeVar("_Value")

_REACHED, _NEEDS_FACTORS, _MODELS_CHANGE = -1, -2, -3
"""Why the loop ended, if not because of a job."""

_OTHERS, _NOBODYS = -1, -2
"""Whose turn it was, if no member's."""

_TRAINING, _NOTHING = -1, -2
"""What a lane began last, if no member's batch."""

_GONE, _RESERVED, _ACTIVE = 0, 1, 2
"""Where a model is."""

_LOAD_S, _WAY_S, _LOST_S, _CALLS_S, _USED_S = range(5)
"""What is known of a model."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An instance that serves all members of a pool, batches of one member at a time.

    Attributes:
        lane_id: Unique in the pool; the same in every piece. Lanes are ranked by it.
        servers: How it serves each member, and from when until when; at most one a member. A member without one is not
            served here.

    Raises:
        ValueError: Two servers are of one tenant.
    """

    lane_id: str
    servers: tuple[Server, ...]

    def __post_init__(self) -> None:
        tenants = [one.tenant for one in self.servers]
        if len(set(tenants)) < len(tenants):
            raise ValueError(f"lane {self.lane_id}: one server a tenant, got those of {tenants}")


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A retraining that is not done, or what of it lies between two checkpoints.

    Attributes:
        tenant_index: The tenant of the model.
        window: The window of the data.
        left_s: Seconds of the lane that it still needs, > 0.
        piece_s: Seconds after which requests may go first, > 0; the last piece may be shorter.
        ready_s: Earliest begin.
        has_begun: Whether a piece was done.
        pace: Share of the time that it is to have until it is due, in [0, 1]; 0: it never goes before requests.
        due_s: When it is to be done.
        worth: Members whose requests are of more worth do not come to be late by its going first.
        option: How the model is retrained.
        checkpoint: The part of the retraining that is done with it; ``None`` for all of it.
        lane_id: Where it is done; ``None``: on the first lane. Without that lane it waits.
        is_last: Whether the retraining, or the checkpoint, is done with it; else another part follows.
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
    lane_id: str | None = None
    is_last: bool = True

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
class LaneMemory:
    """What of a lane's memory serving has, by Sirius's Algorithm 1; trainings have the rest, at the same speed.

    At first all models are gone, and trainings have all memory.

    Attributes:
        weights_mib: By member, of its model.
        load_s: By member, by how much a batch lasts longer that finds its model gone; trainings wait for that as well.
        capacity_mib: What serving and trainings have together; may be infinite.
        idle_s: For how long after its last batch began a model stays active (T_idle).
        watermark_mib: What serving keeps, or takes, beyond active models (W).
        discard_s: Seconds of a training's work that are lost where memory is taken from it, as ``Beside.discard_s``.
    """

    weights_mib: tuple[float, ...]
    load_s: tuple[float, ...]
    capacity_mib: float
    idle_s: float
    watermark_mib: float
    discard_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("idle_s", "watermark_mib", "discard_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"memory: {name} {getattr(self, name)}: must be finite and not below 0")
        if not max(self.weights_mib) <= self.capacity_mib:
            raise ValueError(f"memory: a model of {max(self.weights_mib):g} MiB in {self.capacity_mib:g} MiB")


@dataclass(frozen=True, slots=True)
class Beside:
    """How trainings give way to requests, and go on beside them.

    Attributes:
        floors: By member and requests in a batch, from none on: units of the GPU that the batch needs.
        speeds: By member, of its training by units that are left, from 0 on to all: the part of full speed, in [0, 1].
        give_way_s: By how much a batch lasts longer that finds a training at full speed on its lane.
        discard_s: Seconds of that training's work that are lost then, of those since a batch was last served there.
        window_s: For how long a floor holds after its batch; 0: while it is served.
        slowdowns: As ``floors``, what latencies are multiplied by while a training is to be done on the lane; empty: 1.
        slack_s: For how long requests leave a training alone if all of them can wait until it has given way after that;
            then it is asked anew. 0: they never do.
        memory: Which models are there, and how memory changes hands; ``None``: all models are resident.
    """

    floors: tuple[tuple[int, ...], ...]
    speeds: tuple[tuple[float, ...], ...]
    give_way_s: float = 0.0
    discard_s: float = 0.0
    window_s: float = 0.0
    slowdowns: tuple[tuple[float, ...], ...] = ()
    slack_s: float = 0.0
    memory: LaneMemory | None = None

    def __post_init__(self) -> None:
        for name in ("give_way_s", "discard_s", "window_s", "slack_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"giving way: {name} {getattr(self, name)}: must be finite and not below 0")


@dataclass(frozen=True, slots=True)
class LaneTraining:
    """What a lane's training is in the midst of, where it yields.

    Attributes:
        marked_s: Up to when its work is counted; after ``now_s`` where a batch is served.
        stretch_s: Seconds of it since the lane was last a batch's.
        runs: Tenant index and window of the retraining that has the lane; ``None``: none has all of it.
        held_s: By floor in units, until when it holds.
        ours_mib: Where memory changes hands, what serving has of it.
        places: By member, whether its model is gone, in reserve or active,
        used_s: and when its last batch began.
    """

    marked_s: float
    stretch_s: float
    runs: tuple[int, int] | None
    held_s: tuple[float, ...]
    ours_mib: float = 0.0
    places: tuple[int, ...] = ()
    used_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolState:
    """What one piece hands to the next. Everything before ``now_s`` has happened, nothing after it.

    Attributes:
        queues: By member, at least one, all at the same time. What is in service there goes by ``server_id``.
        jobs: Retrainings to be done, the first one first.
        busy_until: By ``lane_id``, when the lane has finished what it does; idle lanes are absent.
        holders: By ``lane_id``, whose turn it is: a member's requests; from ``len(queues)`` on, its training; −1: of
            another holder. Lanes that did nothing yet are absent.
        serving: By ``lane_id``, the member and the ``server_id`` of the batch in service, if there is one.
        trainings: By ``lane_id``, of trainings that give way.
    """

    queues: tuple[QueueState, ...]
    jobs: tuple[TrainingJob, ...] = ()
    busy_until: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    holders: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    serving: Mapping[str, tuple[int, str]] = field(default_factory=lambda: MappingProxyType({}))
    trainings: Mapping[str, LaneTraining] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def at_start(cls, n_members: int, others: Sequence[str] = ()) -> PoolState:
        """Idle lanes before the first request; another holder had those of ``others``, so that a first turn costs."""
        return cls((QueueState(),) * n_members, holders=MappingProxyType(dict.fromkeys(others, _OTHERS)))

    @property
    def now_s(self) -> float:
        """The time reached."""
        return self.queues[0].now_s

    def in_service(self, lane_id: str) -> tuple[int, Outcomes] | None:
        """The member whose batch the lane has in service, and the outcomes already recorded for it; or ``None``.

        These answers are lost if the lane, or the member's process there, fails at ``now_s``.
        """
        if lane_id not in self.serving:
            return None
        member, server_id = self.serving[lane_id]
        return member, self.queues[member].in_service(server_id)

    def freed(self, lane_id: str) -> PoolState:
        """The state if what the lane does ends now: a member's process failed there, and the others go on."""
        queues = list(self.queues)
        if lane_id in self.serving:
            member, server_id = self.serving[lane_id]
            own = queues[member]
            queues[member] = replace(
                own, busy_until=_without(own.busy_until, server_id), batches=_without(own.batches, server_id)
            )
        busy_until, serving = _without(self.busy_until, lane_id), _without(self.serving, lane_id)
        return replace(self, queues=tuple(queues), busy_until=busy_until, serving=serving)


def _without(values: Mapping[str, _Value], name: str) -> Mapping[str, _Value]:
    return MappingProxyType({key: value for key, value in values.items() if key != name})


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of requests in the order in which they began. All arrays are ``(k,)`` and read-only.

    Attributes:
        tenant_index: The tenant of each.
        begin_s: When each begins.
        end_s: When it is answered.
        rank: Its lane's place among the piece's, by id.
    """

    tenant_index: IntArray
    begin_s: FloatArray
    end_s: FloatArray
    rank: IntArray

    def __post_init__(self) -> None:
        for array in (self.tenant_index, self.begin_s, self.end_s, self.rank):
            array.setflags(write=False)


def busy_shares(begin_s: FloatArray, end_s: FloatArray, first_s: int, last_s: int, before_s: float = 0.0) -> FloatArray:
    """Which share of each second from ``first_s`` to ``last_s`` lies within batches that follow one another.

    ``before_s`` are the seconds of batches before these, so that sums are rounded as if all were given.
    """
    if not begin_s.size:
        return np.zeros(last_s - first_s)
    # Busy seconds: level between batches, rising in them.
    moments_s = np.stack([begin_s, end_s], axis=1).ravel()
    lasts_s = np.stack([np.zeros_like(begin_s), end_s - begin_s], axis=1).ravel()
    so_far_s = np.cumsum(np.concatenate([[before_s], lasts_s[1:]]))
    shares: FloatArray = np.diff(np.interp(np.arange(first_s, last_s + 1.0), moments_s, so_far_s))
    return shares


@dataclass(frozen=True, eq=False)
class Piece:
    """What happened in a piece of time.

    Attributes:
        outcomes: By member, of the requests that were resolved; without gaps, also from piece to piece.
        batches: Those that began.
        finished: The retraining whose last piece began, and so ended this piece.
        finished_s: When it is done.
        floors: Where trainings give way, units of the GPU that each batch holds, ``(k,)``; else empty.
        n_handovers: How often one yielded at full speed,
        lost_s: and what work it lost by that.
    """

    outcomes: tuple[Outcomes, ...]
    batches: Batches
    finished: TrainingJob | None = None
    finished_s: float = math.inf
    floors: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_handovers: int = 0
    lost_s: float = 0.0


class Kernel(Protocol):
    """:func:`advance` with all else given."""

    def __call__(
        self,
        requests: Sequence[Requests],
        state: PoolState,
        *,
        accuracies: Sequence[AccuracyTimeline],
        until_s: float,
    ) -> tuple[PoolState, Piece]:
        """The state at ``until_s``, or earlier where it has to stop, and what happened before."""


class _Floor(NamedTuple):
    """What the loop reads and writes; what it updates, or sets anew at each moment, is named last.

    Attributes:
        latency_s: ``(n_lanes, n_members, most + 1)``: seconds by batch size.
        limits: ``(n_lanes, n_members)``: most requests in one batch.
        rates_rps: ``(n_lanes, n_members)``: requests a second in full batches.
        served_s: ``(2, n_lanes, n_members)``: from when, and until when, the lane serves the member.
        worth: ``(n_lanes, n_members)``: of the lanes that serve the member now, the highest is what a second spent
            on its requests is worth, but for ``eras``.
        from_s: ``(n_members, n_eras)``: begins of eras; times that never come fill it up.
        eras: ``(2, n_members, n_eras)``: accuracy, and what worth is multiplied by.
        requests: ``(3, N)``: arrival, deadline and luck.
        in_slack: As ``trains_in_slack`` of :func:`advance`, as is ``turn_cost``.
        way_s: ``(n_lanes, n_members)``: seconds by which the next batch is longer, as a training leaves the lane first
            or the model comes; 0 but in :func:`give_way`, which updates it.
        bounds: ``(3, n_members)``: place of the oldest unresolved, of the first that has not arrived, and the member's
            end. The first two are updated.
        jobs: ``(8, n_jobs)``: seconds left (updated) and of a piece, ready from, pace, due, worth, holder of its turns,
            and rank (−1: nowhere).
        free_s: ``(n_lanes,)``: when the lane has finished what it does.
        holders: ``(n_lanes,)``: whose turn it is: a member's requests; from ``n_members`` on, its training; −1: of
            another holder; −2: of none yet.
        taken: ``(3, n_lanes)``: what each lane began last: member (−1: a piece of training), first place and size.
        answer_s: ``(N,)``: by place. As it was where a request is dropped, and so ``in_time`` and ``correct``.
        batches: ``(4, N)``: tenant, begin, end and rank of each batch.
        era: ``(n_members,)``: place of the era.
        now: ``(2, n_lanes, n_members)``: worth at this moment (−inf: the lane does not serve the member now), and how
            many times the lane's rate all lanes have together.
        lanes: ``(n_members,)``: rank of each member's lane; −1: it has none, or nothing waits.
        order: ``(n_members,)``: the members by the deadline of what waits (ties: their own order), those last for whom
            nothing does.
    """

    latency_s: FloatArray
    limits: IntArray
    rates_rps: FloatArray
    served_s: FloatArray
    worth: FloatArray
    from_s: FloatArray
    eras: FloatArray
    requests: FloatArray
    in_slack: bool
    turn_cost: float
    way_s: FloatArray
    bounds: IntArray
    jobs: FloatArray
    free_s: FloatArray
    holders: IntArray
    taken: IntArray
    answer_s: FloatArray
    in_time: BoolArray
    correct: BoolArray
    batches: FloatArray
    era: IntArray
    now: FloatArray
    lanes: IntArray
    order: IntArray


@inlined
def _first_after(times_s: FloatArray, row: int, first: int, end: int, time_s: float) -> int:
    """The first place of the row in ``[first, end)`` with a time after ``time_s``; or ``end``. Times ascend."""
    while first < end and times_s[row, first] <= time_s:
        first += 1
    return first


@inlined
def _next_chance(floor: _Floor, from_s: float) -> float:
    """The first moment from ``from_s`` on at which a lane is idle and something waits for it; inf: never."""
    chance_s = np.inf
    for member in range(floor.bounds.shape[1]):
        if floor.bounds[0, member] < floor.bounds[2, member]:
            oldest_s = max(from_s, floor.requests[0, floor.bounds[0, member]])
            for rank in range(len(floor.free_s)):
                at_s = max(oldest_s, floor.free_s[rank], floor.served_s[0, rank, member])
                if at_s < floor.served_s[1, rank, member]:
                    chance_s = min(chance_s, at_s)
    for job in range(floor.jobs.shape[1]):
        rank = int(floor.jobs[7, job])
        if rank >= 0:
            chance_s = min(chance_s, max(from_s, floor.free_s[rank], floor.jobs[2, job]))
    return chance_s


@inlined
def _look_up(floor: _Floor, now_s: float) -> float:
    """Set ``era`` and ``now``; the next moment at which they may not be the same."""
    changes_s, n_eras = np.inf, floor.from_s.shape[1]
    for member in range(len(floor.era)):
        era = _first_after(floor.from_s, member, floor.era[member] + 1, n_eras, now_s) - 1
        floor.era[member], all_rps, worth = era, 0.0, -np.inf
        if era + 1 < n_eras:
            changes_s = min(changes_s, floor.from_s[member, era + 1])
        for rank in range(len(floor.free_s)):
            ready_s, end_s = floor.served_s[0, rank, member], floor.served_s[1, rank, member]
            if ready_s <= now_s < end_s:
                worth = max(worth, floor.worth[rank, member] * floor.eras[1, member, era])
                all_rps += floor.rates_rps[rank, member]
            if now_s < end_s:
                changes_s = min(changes_s, end_s if ready_s <= now_s else ready_s)
        for rank in range(len(floor.free_s)):
            is_served = floor.served_s[0, rank, member] <= now_s < floor.served_s[1, rank, member]
            floor.now[0, rank, member] = worth if is_served else -np.inf
            floor.now[1, rank, member] = all_rps / floor.rates_rps[rank, member]
    return changes_s


@inlined
def _longer(floor: _Floor, rank: int, holder: int) -> float:
    """What the time of the lane's next turn is multiplied by if it is this holder's."""
    return 1.0 if floor.holders[rank] == holder or floor.holders[rank] == _NOBODYS else 1.0 + floor.turn_cost


@inlined
def _batch_s(floor: _Floor, rank: int, member: int, n_waiting: int) -> float:
    """Seconds that the lane's next turn would last if so many requests of the member wait."""
    n_taken = min(n_waiting, floor.limits[rank, member])
    return float(floor.latency_s[rank, member, n_taken] * _longer(floor, rank, member) + floor.way_s[rank, member])


@inlined
def _drop_the_late(floor: _Floor, now_s: float) -> None:
    """Set ``lanes``, and drop each member's oldest requests that cannot be answered there in time."""
    for member in range(len(floor.lanes)):
        end = floor.bounds[2, member]
        head = _first_after(floor.requests, 1, floor.bounds[0, member], end, now_s)
        seen = _first_after(floor.requests, 0, max(floor.bounds[1, member], head), end, now_s)
        best, best_s = -1, np.inf
        for rank in range(len(floor.free_s)):
            if head < seen and floor.free_s[rank] <= now_s and floor.now[0, rank, member] > -np.inf:
                batch_s = _batch_s(floor, rank, member, seen - head)
                if batch_s < best_s:
                    best, best_s = rank, batch_s
        while best >= 0 and head < seen:
            if floor.requests[1, head] >= now_s + _batch_s(floor, best, member, seen - head):
                break
            head += 1
        floor.bounds[0, member], floor.bounds[1, member] = head, seen
        floor.lanes[member] = best if head < seen else -1


@inlined
def _due_s(floor: _Floor, member: int) -> float:
    """The deadline of the member's oldest request that waits; inf: none does."""
    head = floor.bounds[0, member]
    return float(floor.requests[1, head]) if head < floor.bounds[1, member] else np.inf


@inlined
def _put_in_order(floor: _Floor) -> None:
    """Set ``order``. From one moment to the next little of it changes."""
    order = floor.order
    for end in range(1, len(order)):
        member, place = order[end], end
        due_s = _due_s(floor, member)
        while place > 0:
            before, before_s = order[place - 1], _due_s(floor, order[place - 1])
            if before_s < due_s or (before_s == due_s and before < member):
                break
            order[place] = before
            place -= 1
        order[place] = member


@inlined
def _can_wait(floor: _Floor, rank: int, above: float, until_s: float) -> bool:
    """Whether all members of more worth on this lane can wait if it is busy until then."""
    drained_s = 0.0
    for member in floor.order:
        n_waiting, limit = floor.bounds[1, member] - floor.bounds[0, member], floor.limits[rank, member]
        if floor.now[0, rank, member] > above and n_waiting > 0:
            n_full, latency_s = n_waiting // limit, floor.latency_s
            alone_s = n_full * latency_s[rank, member, limit] + latency_s[rank, member, n_waiting - n_full * limit]
            drained_s += alone_s / floor.now[1, rank, member]
            drained_s += floor.turn_cost * latency_s[rank, member, min(n_waiting, limit)]
            if until_s + drained_s > _due_s(floor, member):
                return False
    return True


@inlined
def _next_served(floor: _Floor, kept_rank: int, above: float, now_s: float) -> int:
    """Of the members that need not be passed over, the one with the earliest deadline; −1: no such.

    The lane of ``kept_rank`` is kept for those of more worth than ``above``.
    """
    for member in floor.order:
        rank, head = floor.lanes[member], floor.bounds[0, member]
        if rank >= 0:
            worth = floor.now[0, rank, member]
            until_s = now_s + _batch_s(floor, rank, member, floor.bounds[1, member] - head)
            if (rank != kept_rank or worth > above) and _can_wait(floor, rank, worth, until_s):
                return int(member)
    return -1


@inlined
def _lanes_without(floor: _Floor, kept_rank: int, now_s: float) -> None:
    """Set ``lanes`` anew where that is the kept one: another idle lane on which the batch is in time, or -1."""
    for member in range(len(floor.lanes)):
        if floor.lanes[member] == kept_rank:
            head, seen = floor.bounds[0, member], floor.bounds[1, member]
            best, best_s = -1, np.inf
            for rank in range(len(floor.free_s)):
                if rank != kept_rank and floor.free_s[rank] <= now_s and floor.now[0, rank, member] > -np.inf:
                    batch_s = _batch_s(floor, rank, member, seen - head)
                    if batch_s < best_s and floor.requests[1, head] >= now_s + batch_s:
                        best, best_s = rank, batch_s
            floor.lanes[member] = best


@inlined
def _first_ready(floor: _Floor, now_s: float) -> int:
    """The first job that is ready and whose lane is idle; −1: none is."""
    for job in range(floor.jobs.shape[1]):
        rank = int(floor.jobs[7, job])
        if floor.jobs[2, job] <= now_s and rank >= 0 and floor.free_s[rank] <= now_s:
            return job
    return -1


@inlined
def _yields_to(floor: _Floor, job: FloatArray, now_s: float) -> float:
    """Those of more worth than this are served before a piece of the job, a column of ``jobs``; inf: none is."""
    rank = int(job[7])
    trained_s = now_s + _longer(floor, rank, int(job[6])) * min(job[0], job[1])
    if floor.in_slack and _can_wait(floor, rank, -np.inf, trained_s):
        return np.inf
    if not (job[3] > 0.0 and job[0] > job[3] * (job[4] - now_s)):
        return -np.inf
    would_be_late = now_s + (1.0 + floor.turn_cost) * job[0] + job[1] >= job[4]
    return np.inf if would_be_late or _can_wait(floor, rank, job[5], trained_s) else float(job[5])


@inlined
def _serve(floor: _Floor, member: int, n_begun: int, now_s: float, factor: float) -> None:
    """Begin a batch of the member on its lane."""
    rank, head = floor.lanes[member], floor.bounds[0, member]
    n_taken = min(floor.bounds[1, member] - head, floor.limits[rank, member])
    lasts_s = floor.latency_s[rank, member, n_taken] * factor * _longer(floor, rank, member)
    end_s = now_s + (lasts_s + floor.way_s[rank, member])
    for place in range(head, head + n_taken):
        floor.answer_s[place] = end_s
        floor.in_time[place] = end_s <= floor.requests[1, place]
        floor.correct[place] = floor.requests[2, place] < floor.eras[0, member, floor.era[member]]
    floor.batches[0, n_begun], floor.batches[1, n_begun] = member, now_s
    floor.batches[2, n_begun], floor.batches[3, n_begun] = end_s, rank
    floor.free_s[rank], floor.holders[rank] = end_s, member
    floor.taken[0, rank], floor.taken[1, rank], floor.taken[2, rank] = member, head, n_taken
    floor.bounds[0, member] += n_taken


@inlined
def _train(floor: _Floor, job: int, now_s: float) -> bool:
    """Begin a piece of the job; whether it is the last."""
    rank, holder = int(floor.jobs[7, job]), int(floor.jobs[6, job])
    piece_s = min(floor.jobs[0, job], floor.jobs[1, job])
    floor.free_s[rank] = now_s + piece_s * _longer(floor, rank, holder)
    floor.holders[rank], floor.taken[0, rank] = holder, _TRAINING
    is_last = floor.jobs[0, job] <= floor.jobs[1, job]
    if not is_last:
        floor.jobs[0, job] -= piece_s
    return bool(is_last)


@compiled
def take_turns(
    floor: _Floor, factors: FloatArray, n_used: IntArray, now_s: float, until_s: float, n_begun: int
) -> tuple[float, int, int]:
    """The time reached, the batches begun, and why the loop ended.

    The reason is the job whose last piece began, −1 (``until_s`` is reached) or −2 (a member's factors are used up).
    After −2 call again with further factors.

    Beside what is on the floor:
        factors: ``(n_members, n_factors)``: what the latencies of the batches to come are multiplied by; perhaps empty.
        n_used: ``(n_members,)``: how many of the factors, which is to say batches. Updated.
        n_begun: Batches recorded.
    """
    changes_s, n_factors = -np.inf, factors.shape[1]
    while True:
        chance_s = _next_chance(floor, now_s)
        if chance_s >= until_s:
            break
        now_s = chance_s
        if now_s >= changes_s:
            changes_s = _look_up(floor, now_s)
        _drop_the_late(floor, now_s)
        _put_in_order(floor)
        job, kept_rank, above = _first_ready(floor, now_s), -1, -np.inf
        if job >= 0:
            kept_rank, above = int(floor.jobs[7, job]), _yields_to(floor, floor.jobs[:, job], now_s)
            if above == np.inf:
                _lanes_without(floor, kept_rank, now_s)
        urgent = _next_served(floor, kept_rank, above, now_s)
        if urgent >= 0:
            if n_used[urgent] == n_factors > 0:
                return now_s, n_begun, _NEEDS_FACTORS
            _serve(floor, urgent, n_begun, now_s, factors[urgent, n_used[urgent]] if n_factors > 0 else 1.0)
            n_begun += 1
            n_used[urgent] += 1
        elif job >= 0 and _train(floor, job, now_s):
            return now_s, n_begun, job
    for member in range(len(floor.lanes)):
        head, end = floor.bounds[0, member], floor.bounds[2, member]
        floor.bounds[0, member] = _first_after(floor.requests, 1, head, end, until_s)
    return until_s, n_begun, _REACHED


class _Trainers(NamedTuple):
    """What the loop with giving way reads and updates of trainings, beside the floor, which has no jobs.

    Attributes:
        latency_s: ``(2, n_lanes, n_members, most + 1)``: the floor's, without and with a training on the lane.
        floors: ``(n_members, most + 1)``, and ``speeds``, ``(n_members, n_units + 1)``: as in :class:`Beside`, as are
            ``give_way_s``, ``window_s`` and ``slack_s``.
        jobs: ``(4, n_jobs)``: seconds left (updated; 0: done), ready from, rank and member.
        ends_s: ``(n_jobs,)``: when each is done, if it is. Updated, as all below.
        marks_s: ``(n_lanes,)``: up to when training is counted.
        stretch_s: ``(n_lanes,)``: seconds at full speed since the last batch,
        runs: and of which job; −1: of none.
        beside: ``(n_lanes,)``: which of both latencies is on the floor.
        held_s: ``(n_lanes, n_units + 1)``: until when each floor holds.
        held: ``(N,)``: by batch begun, the units that it holds.
        lost: ``(3,)``: handovers, seconds lost, and when the next model is idle or has come, at the earliest.
        has_memory: Whether memory changes hands.
        keeps_s: As ``idle_s`` of :class:`LaneMemory`.
        models: ``(5, n_lanes, n_members)``: how long the member's model takes to come; ``give_way_s`` if memory is
            taken from a training for it, else 0; what that loses when it yields; −inf where the model is gone, else
            inf; and, updated, when its last batch began. Where the others change, the loop ends first.
    """

    latency_s: FloatArray
    floors: IntArray
    speeds: FloatArray
    give_way_s: float
    window_s: float
    slack_s: float
    jobs: FloatArray
    ends_s: FloatArray
    marks_s: FloatArray
    stretch_s: FloatArray
    runs: IntArray
    beside: IntArray
    held_s: FloatArray
    held: IntArray
    lost: FloatArray
    has_memory: bool
    keeps_s: float
    models: FloatArray


@inlined
def _trains(trainers: _Trainers, rank: int, at_s: float) -> int:
    """The first job of the lane that is ready and not done; −1: none is."""
    for job in range(trainers.jobs.shape[1]):
        if trainers.jobs[2, job] == rank and trainers.jobs[0, job] > 0.0 and trainers.jobs[1, job] <= at_s:
            return job
    return -1


@inlined
def _next_change(trainers: _Trainers, until_s: float) -> float:
    """When the next job ends, or becomes ready, on a lane that is idle; at most ``until_s``."""
    for rank in range(len(trainers.marks_s)):
        mark_s = trainers.marks_s[rank]
        if mark_s < until_s:
            for job in range(trainers.jobs.shape[1]):
                is_here = trainers.jobs[2, job] == rank and trainers.jobs[0, job] > 0.0
                if is_here and trainers.jobs[1, job] > mark_s:
                    until_s = min(until_s, trainers.jobs[1, job])
            job = _trains(trainers, rank, mark_s)
            if job >= 0:
                until_s = min(until_s, mark_s + trainers.jobs[0, job])
    return until_s


@inlined
def _train_on(trainers: _Trainers, until_s: float) -> int:
    """Train on idle lanes up to then, or to the first end of a job, which it is; else −1."""
    while True:
        next_s, ended = _next_change(trainers, until_s), -1
        for rank in range(len(trainers.marks_s)):
            mark_s = trainers.marks_s[rank]
            if mark_s < next_s:
                job = _trains(trainers, rank, mark_s)
                is_over = job >= 0 and mark_s + trainers.jobs[0, job] <= next_s
                if is_over and ended >= 0:
                    continue
                if job != trainers.runs[rank]:
                    trainers.runs[rank], trainers.stretch_s[rank] = job, 0.0
                if is_over:
                    ended, trainers.jobs[0, job], trainers.ends_s[job] = job, 0.0, next_s
                    trainers.runs[rank], trainers.stretch_s[rank] = -1, 0.0
                elif job >= 0:
                    trainers.jobs[0, job] -= next_s - mark_s
                    trainers.stretch_s[rank] += next_s - mark_s
                trainers.marks_s[rank] = next_s
        if ended >= 0 or next_s >= until_s:
            return ended


@inlined
def _look_at_trainers(floor: _Floor, trainers: _Trainers, now_s: float) -> None:
    """Set how long batches last now."""
    for rank in range(len(floor.free_s)):
        way_s = trainers.give_way_s if trainers.stretch_s[rank] > 0.0 else 0.0
        beside = 1 if _trains(trainers, rank, now_s) >= 0 else 0
        if beside != trainers.beside[rank]:
            trainers.beside[rank] = beside
            for member in range(floor.latency_s.shape[1]):
                for size in range(floor.latency_s.shape[2]):
                    floor.latency_s[rank, member, size] = trainers.latency_s[beside, rank, member, size]
        if trainers.has_memory:
            for member in range(floor.way_s.shape[1]):
                own_s = max(way_s, trainers.models[_WAY_S, rank, member]) if beside == 1 else way_s
                floor.way_s[rank, member] = own_s + trainers.models[_LOAD_S, rank, member]
        elif floor.way_s[rank, 0] != way_s:
            for member in range(floor.way_s.shape[1]):
                floor.way_s[rank, member] = way_s


@inlined
def _is_left_alone(floor: _Floor, trainers: _Trainers, rank: int, now_s: float) -> bool:
    """Whether a training has the lane for a while longer, as all requests can wait."""
    if trainers.slack_s == 0.0 or trainers.beside[rank] == 0:
        return False
    load_s = 0.0
    for member in range(trainers.models.shape[2]):
        load_s = max(load_s, trainers.models[_LOAD_S, rank, member])
    return _can_wait(floor, rank, -np.inf, now_s + trainers.slack_s + trainers.give_way_s + load_s)


@inlined
def _serve_beside(floor: _Floor, trainers: _Trainers, member: int, n_begun: int, now_s: float, factor: float) -> int:
    """Begin a batch; the training yields, and goes on beside it. The job that ends by its end; −1: none does."""
    rank, ended = floor.lanes[member], -1
    if trainers.stretch_s[rank] > 0.0:
        lost_s = min(trainers.models[_LOST_S, rank, member], trainers.stretch_s[rank])
        trainers.jobs[0, trainers.runs[rank]] += lost_s
        trainers.lost[0] += 1.0
        trainers.lost[1] += lost_s
    trainers.models[_USED_S, rank, member] = now_s
    change_s = min(now_s + trainers.keeps_s, trainers.models[_CALLS_S, rank, member])
    trainers.lost[2] = min(trainers.lost[2], change_s)
    from_s = now_s + floor.way_s[rank, member]
    _serve(floor, member, n_begun, now_s, factor)
    end_s, n_units = floor.free_s[rank], trainers.held_s.shape[1] - 1
    held = trainers.floors[member, floor.taken[2, rank]]
    trainers.held_s[rank, held] = end_s + trainers.window_s
    for units in range(held + 1, n_units + 1):
        if trainers.held_s[rank, units] > now_s:
            held = units
    trainers.held[n_begun] = held
    job = _trains(trainers, rank, now_s)
    if job >= 0:
        speed = trainers.speeds[int(trainers.jobs[3, job]), n_units - held]
        done_s = speed * (end_s - from_s)
        if trainers.jobs[0, job] <= done_s:
            ended, trainers.ends_s[job] = job, from_s + trainers.jobs[0, job] / speed
            trainers.jobs[0, job] = 0.0
        else:
            trainers.jobs[0, job] -= done_s
    trainers.marks_s[rank], trainers.stretch_s[rank], trainers.runs[rank] = end_s, 0.0, -1
    return ended


@compiled
def take_turns_and_give_way(
    floor: _Floor,
    trainers: _Trainers,
    factors: FloatArray,
    n_used: IntArray,
    now_s: float,
    until_s: float,
    n_begun: int,
) -> tuple[float, int, int]:
    """As :func:`take_turns`, where trainings give way; a job may end after the time reached, beside a batch."""
    changes_s, n_factors = -np.inf, factors.shape[1]
    while True:
        chance_s = min(_next_chance(floor, now_s), until_s)
        ended = _train_on(trainers, chance_s)
        if ended >= 0:
            return trainers.ends_s[ended], n_begun, ended
        if chance_s >= until_s:
            break
        now_s = chance_s
        if trainers.lost[2] <= now_s:
            return now_s, n_begun, _MODELS_CHANGE
        if now_s >= changes_s:
            changes_s = _look_up(floor, now_s)
        _look_at_trainers(floor, trainers, now_s)
        _drop_the_late(floor, now_s)
        _put_in_order(floor)
        urgent = _next_served(floor, -1, -np.inf, now_s)
        if urgent >= 0 and _is_left_alone(floor, trainers, floor.lanes[urgent], now_s):
            rank = floor.lanes[urgent]
            floor.free_s[rank], floor.taken[0, rank] = now_s + trainers.slack_s, _TRAINING
        elif urgent >= 0:
            if n_used[urgent] == n_factors > 0:
                return now_s, n_begun, _NEEDS_FACTORS
            factor = factors[urgent, n_used[urgent]] if n_factors > 0 else 1.0
            ended = _serve_beside(floor, trainers, urgent, n_begun, now_s, factor)
            n_begun += 1
            n_used[urgent] += 1
            if ended >= 0:
                return now_s, n_begun, ended
    for member in range(len(floor.lanes)):
        head, end = floor.bounds[0, member], floor.bounds[2, member]
        floor.bounds[0, member] = _first_after(floor.requests, 1, head, end, until_s)
    return until_s, n_begun, _REACHED


def advance(
    requests: Sequence[Requests],
    state: PoolState,
    lanes: Sequence[Lane],
    accuracies: Sequence[AccuracyTimeline],
    until_s: float,
    service_jitter: ServiceJitter | None = None,
    *,
    weights: Sequence[float] | None = None,
    worths: Sequence[float] | None = None,
    trains_in_slack: bool = False,
    turn_cost: float = 0.0,
) -> tuple[PoolState, Piece]:
    """The state at ``until_s``, or at the moment at which the last piece of a retraining begins, if that is earlier.

    The caller may then say what accuracy the new model has from ``finished_s`` on, and call again. A batch is
    recorded when it begins; its answer may come after ``until_s``. At ``until_s`` every request whose deadline has
    come is resolved, so ``until_s = inf`` drains the queues. Any pieces give the same, if jobs are added before they
    are ready, also when a piece does not know yet of servers with ``ready_s`` ≥ its end, or of ends ≥ its end. Servers,
    and lanes, that have ended may be left out. ``requests``, ``accuracies``, ``weights`` and ``worths`` have one entry
    a member, in the same order; servers of other tenants are passed over.

    Args:
        requests: Of each member.
        state: Where the piece begins.
        lanes: All in the piece.
        accuracies: Of each member's models.
        until_s: Where the piece ends.
        service_jitter: Makes batches shorter and longer than planned.
        weights: What a right answer in time is worth; 1 by default. With accuracies and rates it makes members' worth.
        worths: What a second of any lane is worth that is spent on each, whatever the accuracy, in place of that; only
            which is higher matters.
        trains_in_slack: Whether a retraining also does a piece while requests wait, if all of them can.
        turn_cost: The share ≥ 0 by which what does not follow something of the same member and task lasts longer; a
            retraining's piece does no more for it.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN, or two lanes share an id.
    """
    piece = _Piece(requests, state, _in_order(state, lanes, until_s), until_s)
    piece.set_up(accuracies, weights, worths, in_slack=trains_in_slack, turn_cost=turn_cost)
    return piece.advanced(service_jitter)


def give_way(
    requests: Sequence[Requests],
    state: PoolState,
    lanes: Sequence[Lane],
    accuracies: Sequence[AccuracyTimeline],
    until_s: float,
    service_jitter: ServiceJitter | None = None,
    *,
    beside: Beside,
    weights: Sequence[float] | None = None,
    worths: Sequence[float] | None = None,
    turn_cost: float = 0.0,
) -> tuple[PoolState, Piece]:
    """As :func:`advance`, where trainings give way; a piece also ends where one ends, or will beside a new batch.

    Without trainings it is :func:`advance`, to the bit. Trainings have no pieces, paces or worths here, and take no
    turns. Where time is cut into pieces what is left of them may differ by roundings.

    Raises:
        ValueError: As :func:`advance`.
    """
    piece = _PieceBeside(requests, state, _in_order(state, lanes, until_s), until_s)
    piece.set_up(accuracies, weights, worths, in_slack=False, turn_cost=turn_cost)
    piece.set_up_trainers(beside)
    return piece.advanced(service_jitter)


def _in_order(state: PoolState, lanes: Sequence[Lane], until_s: float) -> Sequence[Lane]:
    """The lanes by id.

    Raises:
        ValueError: ``until_s`` is before ``state.now_s`` or NaN, or two lanes share an id.
    """
    if not until_s >= state.now_s:
        raise ValueError(f"cannot advance the pool to {until_s} s: it is at {state.now_s} s")
    ordered = sorted(lanes, key=attrgetter("lane_id"))
    if len({one.lane_id for one in ordered}) < len(ordered):
        raise ValueError(f"lane ids must differ within a pool, got {[one.lane_id for one in ordered]}")
    return ordered


class _Piece:
    """One piece as the arrays that go into the loop, and what came out of it."""

    def __init__(self, requests: Sequence[Requests], state: PoolState, lanes: Sequence[Lane], until_s: float) -> None:
        self._requests, self._state, self._lanes, self._until_s = requests, state, lanes, until_s
        self._spans = [
            slice(queue.head - own.first, own.n_before(until_s) - own.first)
            for queue, own in zip(state.queues, requests, strict=True)
        ]
        self._ends = list(accumulate(span.stop - span.start for span in self._spans))
        self._starts = [0, *self._ends[:-1]]
        by_tenant = [{server.tenant: server for server in lane.servers} for lane in lanes]
        self._servers = [[servers.get(own.tenant) for own in requests] for servers in by_tenant]

    def set_up(
        self,
        accuracies: Sequence[AccuracyTimeline],
        weights: Sequence[float] | None,
        worths: Sequence[float] | None,
        *,
        in_slack: bool,
        turn_cost: float,
    ) -> None:
        """Put everything on the floor."""
        state, ids, shape = self._state, [one.lane_id for one in self._lanes], (len(self._lanes), len(self._requests))
        curves = tuple(tuple(one and (one.latency, one.batch_limit) for one in servers) for servers in self._servers)
        latency_s, limits, rates_rps = _tables(len(self._requests), curves)
        from_s, eras = _eras(tuple(accuracies), worths is None)
        if worths is None:
            worth = rates_rps * np.array(weights or [1.0] * len(self._requests), dtype=np.float64)
        else:
            worth = np.array([list(worths)] * len(ids), dtype=np.float64).reshape(shape)
        served = [one for servers in self._servers for one in servers]
        served_s = [
            [one.ready_s if one else math.inf for one in served],
            [one.end_s if one else -math.inf for one in served],
        ]
        n_open = int(self._ends[-1])
        requests = np.empty((3, n_open))
        for own, span, start, end in zip(self._requests, self._spans, self._starts, self._ends, strict=True):
            for row, column in zip(requests, (own.arrival_s, own.deadline_s, own.luck), strict=True):
                row[start:end] = column[span]
        in_time, correct = np.zeros((2, n_open), dtype=np.bool_)
        jobs = [self._column(job, ids) for job in self._jobs_on_floor()]
        self._floor = _Floor(
            latency_s=latency_s,
            limits=limits,
            rates_rps=rates_rps,
            served_s=np.array(served_s, dtype=np.float64).reshape(2, *shape),
            worth=worth,
            from_s=from_s,
            eras=eras,
            requests=requests,
            in_slack=in_slack,
            turn_cost=float(turn_cost),
            way_s=np.zeros(shape),
            bounds=np.array([self._starts, self._starts, self._ends], dtype=np.int64),
            jobs=np.array(jobs, dtype=np.float64).reshape(-1, 8).T.copy(),
            free_s=np.array([state.busy_until.get(one, state.now_s) for one in ids], dtype=np.float64),
            holders=np.array([state.holders.get(one, _NOBODYS) for one in ids], dtype=np.int64),
            taken=np.full((3, len(ids)), _NOTHING, dtype=np.int64),
            answer_s=np.full(n_open, np.nan),
            in_time=in_time,
            correct=correct,
            batches=np.empty((4, n_open)),
            era=np.zeros(len(self._requests), dtype=np.int64),
            now=np.empty((2, *shape)),
            lanes=np.empty(len(self._requests), dtype=np.int64),
            order=np.arange(len(self._requests), dtype=np.int64),
        )

    def advanced(self, jitter: ServiceJitter | None) -> tuple[PoolState, Piece]:
        """The piece, its loop begun anew with every block of jitter."""
        floor, n_batches = self._floor, np.array([queue.n_batches for queue in self._state.queues], dtype=np.int64)
        now_s, n_begun, ending = self._state.now_s, 0, _NEEDS_FACTORS
        while ending == _NEEDS_FACTORS:
            blocks, n_used = np.divmod(n_batches, JITTER_BLOCK)
            factors = self._factors(jitter, blocks.tolist())
            now_s, n_begun, ending = self._taken(factors, n_used, float(now_s), n_begun)
            n_batches = blocks * JITTER_BLOCK + n_used
        jobs = [self._job(place) for place in range(len(self._state.jobs))]
        finished, finished_s = None, math.inf
        if ending >= 0:
            finished, finished_s = jobs.pop(ending), self._ended_s(ending)
        tenants, begin_s, end_s, ranks = floor.batches[:, :n_begun].copy()
        begun = Batches(tenants.astype(np.int64), begin_s, end_s, ranks.astype(np.int64))
        outcomes = self._outcomes()
        piece = Piece(outcomes, begun, finished, finished_s)
        return self._state_after(now_s, n_batches.tolist(), outcomes, jobs), piece

    def _jobs_on_floor(self) -> Sequence[TrainingJob]:
        return self._state.jobs

    def _taken(self, factors: FloatArray, n_used: IntArray, now_s: float, n_begun: int) -> tuple[float, int, int]:
        return take_turns(self._floor, factors, n_used, now_s, float(self._until_s), n_begun)

    def _ended_s(self, place: int) -> float:
        return float(self._floor.free_s[int(self._floor.jobs[7, place])])

    def _left_s(self, place: int) -> float:
        return float(self._floor.jobs[0, place])

    def _factors(self, jitter: ServiceJitter | None, blocks: Sequence[int]) -> FloatArray:
        """What latencies are multiplied by, by member and place in its block; empty without jitter."""
        if jitter is None:
            return np.empty((len(blocks), 0))
        return np.stack([jitter.factors(own.tenant, block) for own, block in zip(self._requests, blocks, strict=True)])

    def _column(self, job: TrainingJob, ids: Sequence[str]) -> list[float]:
        """The job's in ``jobs``."""
        lane_id = next(iter(ids), None) if job.lane_id is None else job.lane_id
        rank, holder = ids.index(lane_id) if lane_id in ids else -1, len(self._requests) + job.tenant_index
        return [job.left_s, job.piece_s, job.ready_s, job.pace, job.due_s, job.worth, holder, rank]

    def _job(self, place: int) -> TrainingJob:
        job, left_s = self._state.jobs[place], self._left_s(place)
        return job if left_s in (job.left_s, 0.0) else replace(job, left_s=left_s, has_begun=True)

    def _outcomes(self) -> tuple[Outcomes, ...]:
        found, floor = [], self._floor
        heads = (queue.head for queue in self._state.queues)
        for head, start, stop in zip(heads, self._starts, floor.bounds[0].tolist(), strict=True):
            places, index = slice(start, stop), np.arange(head, head + stop - start, dtype=np.int64)
            found.append(Outcomes(index, floor.answer_s[places], floor.in_time[places], floor.correct[places]))
        return tuple(found)

    def _state_after(
        self, now_s: float, n_batches: Sequence[int], outcomes: Sequence[Outcomes], jobs: Sequence[TrainingJob]
    ) -> PoolState:
        before, busy_until, holders, serving = self._state, {}, {}, {}
        ends_s: list[dict[str, float]] = [{} for _ in outcomes]
        batches: list[dict[str, tuple[Outcomes, range | IntArray]]] = [{} for _ in outcomes]
        lasts = zip(
            *(own.tolist() for own in (self._floor.free_s, self._floor.holders, *self._floor.taken)), strict=True
        )
        for lane, servers, (free_s, holder, member, place, size) in zip(self._lanes, self._servers, lasts, strict=True):
            name = lane.lane_id
            if holder != _NOBODYS:
                holders[name] = holder
            if free_s <= now_s:
                continue
            busy_until[name] = free_s
            if member >= 0 and (server := servers[member]) is not None:
                first = before.queues[member].head + place - self._starts[member]
                serving[name] = member, server.server_id
                batches[member][server.server_id] = outcomes[member], range(first, first + size)
            elif member == _NOTHING and name in before.serving:
                serving[name] = owner, server_id = before.serving[name]
                batches[owner][server_id] = before.queues[owner].batches[server_id]
            if name in serving:
                owner, server_id = serving[name]
                ends_s[owner][server_id] = free_s
        queues = [
            QueueState(
                queue.head + len(own.index),
                requests.n_before(now_s),
                MappingProxyType(ends_s[member]),
                now_s,
                n_batches[member],
                batches=MappingProxyType(batches[member]),
            )
            for member, (queue, own, requests) in enumerate(zip(before.queues, outcomes, self._requests, strict=True))
        ]
        by_lane = (MappingProxyType(busy_until), MappingProxyType(holders), MappingProxyType(serving))
        return PoolState(tuple(queues), tuple(jobs), *by_lane)


class _Models:
    """A lane's models by Algorithm 1."""

    def __init__(self, memory: LaneMemory, lane: LaneTraining) -> None:
        self.memory, self.ours_mib = memory, lane.ours_mib
        self.places = list(lane.places or (_GONE,) * len(memory.weights_mib))
        self.used_s = list(lane.used_s or (-math.inf,) * len(memory.weights_mib))

    @property
    def handed_on(self) -> tuple[float, tuple[int, ...], tuple[float, ...]]:
        """To the next piece."""
        return self.ours_mib, tuple(self.places), tuple(self.used_s)

    def follow(self, used_s: Sequence[float], now_s: float) -> None:
        """Take in when each was last used, the last one perhaps gone, and release those that are now idle."""
        for at_s, member in sorted((at_s, member) for member, at_s in enumerate(used_s) if at_s > self.used_s[member]):
            if self.places[member] == _GONE:
                self.bring(member)
            self.places[member], self.used_s[member] = _ACTIVE, at_s
        self.release(now_s)

    def those(self, place: int) -> list[int]:
        """The models there, the coldest first."""
        members = [member for member, own in enumerate(self.places) if own == place]
        return sorted(members, key=lambda member: self.used_s[member])

    def beyond_mib(self, least: int) -> float:
        """What serving has beyond the models in this place or a better one."""
        known = zip(self.memory.weights_mib, self.places, strict=True)
        return self.ours_mib - sum(own_mib for own_mib, place in known if place >= least)

    def release(self, now_s: float) -> None:
        """Keep in reserve what is now idle, one model after the other, and give away what is too much."""
        watermark_mib = self.memory.watermark_mib
        for idle in self.those(_ACTIVE):
            if self.used_s[idle] + self.memory.idle_s > now_s:
                return
            self.places[idle] = _RESERVED
            given_mib = self.beyond_mib(_ACTIVE) - watermark_mib
            if given_mib >= watermark_mib:
                self._make_room(given_mib, self.those(_RESERVED))
                self.ours_mib -= min(given_mib, self.beyond_mib(_RESERVED))

    def taken_mib(self, member: int) -> float:
        """What serving would take from trainings for the next batch of the member, whose model is gone."""
        missing_mib = self.memory.weights_mib[member] - self.beyond_mib(_ACTIVE)
        left_mib = self.memory.capacity_mib - self.ours_mib
        return min(missing_mib + self.memory.watermark_mib, left_mib) if missing_mib > 0 else 0.0

    def bring(self, member: int) -> None:
        """Have the member's model there, which is gone."""
        self.ours_mib += self.taken_mib(member)
        self._make_room(self.memory.weights_mib[member], [*self.those(_RESERVED), *self.those(_ACTIVE)])
        self.places[member] = _ACTIVE

    def _make_room(self, size_mib: float, models: Sequence[int]) -> None:
        """Let these models go, the first ones first, until so much is free."""
        for one in models:
            if self.beyond_mib(_RESERVED) >= size_mib:
                return
            self.places[one] = _GONE


class _PieceBeside(_Piece):
    """A piece in which trainings give way."""

    def set_up_trainers(self, own: Beside) -> None:
        """Put trainings beside the floor, which has all else."""
        state, alone_s = self._state, self._floor.latency_s
        n_lanes, n_members, n_sizes = alone_s.shape
        self._floor = self._floor._replace(latency_s=alone_s.copy())
        self._ids = [one.lane_id for one in self._lanes]
        floors = np.zeros((n_members, n_sizes), dtype=np.int64)
        slowdowns = np.ones((n_members, n_sizes))
        for member, units in enumerate(own.floors):
            floors[member, : len(units)] = units[:n_sizes]
        for member, factors in enumerate(own.slowdowns):
            slowdowns[member, : len(factors)] = factors[:n_sizes]
        new = LaneTraining(state.now_s, 0.0, None, (-math.inf,) * len(own.speeds[0]))
        lanes = [
            state.trainings.get(one) or replace(new, marked_s=state.busy_until.get(one, state.now_s))
            for one in self._ids
        ]
        keys = [(job.tenant_index, job.window) for job in state.jobs]
        runs = [keys.index(one.runs) if one.runs in keys else -1 for one in lanes]
        stretch_s = [one.stretch_s if place >= 0 else 0.0 for one, place in zip(lanes, runs, strict=True)]
        jobs = [[job.left_s, job.ready_s, self._column(job, self._ids)[-1], job.tenant_index] for job in state.jobs]
        self._own = own
        self._models = [_Models(own.memory, one) for one in lanes] if own.memory else []
        self._trainers = _Trainers(
            latency_s=np.stack([alone_s, alone_s * slowdowns]),
            floors=floors,
            speeds=np.array(own.speeds, dtype=np.float64),
            give_way_s=float(own.give_way_s),
            window_s=float(own.window_s),
            slack_s=float(own.slack_s),
            jobs=np.array(jobs, dtype=np.float64).reshape(-1, 4).T.copy(),
            ends_s=np.full(len(jobs), math.inf),
            marks_s=np.array([one.marked_s for one in lanes], dtype=np.float64),
            stretch_s=np.array(stretch_s, dtype=np.float64),
            runs=np.array(runs, dtype=np.int64),
            beside=np.zeros(n_lanes, dtype=np.int64),
            held_s=np.array([one.held_s for one in lanes], dtype=np.float64).reshape(n_lanes, len(own.speeds[0])),
            held=np.zeros(int(self._ends[-1]), dtype=np.int64),
            lost=np.array([0.0, 0.0, math.inf]),
            has_memory=own.memory is not None,
            keeps_s=own.memory.idle_s if own.memory else math.inf,
            models=np.zeros((5, n_lanes, n_members)),
        )
        for rank, models in enumerate(self._models):
            self._trainers.models[_USED_S, rank] = models.used_s

    def advanced(self, jitter: ServiceJitter | None) -> tuple[PoolState, Piece]:
        """The piece, and what trainings did in it."""
        state, piece = super().advanced(jitter)
        own = self._trainers
        keys = [(job.tenant_index, job.window) for job in self._state.jobs]
        lanes = zip(own.marks_s.tolist(), own.stretch_s.tolist(), own.runs.tolist(), own.held_s.tolist(), strict=True)
        trainings = {
            name: LaneTraining(
                *(mark_s, stretch_s, None if place < 0 else keys[place], tuple(held_s)),
                *(self._models[rank].handed_on if self._models else ()),
            )
            for rank, (name, (mark_s, stretch_s, place, held_s)) in enumerate(zip(self._ids, lanes, strict=True))
        }
        n_handovers, lost_s, _ = own.lost.tolist()
        held = own.held[: len(piece.batches.begin_s)].copy()
        piece = replace(piece, floors=held, n_handovers=int(n_handovers), lost_s=lost_s)
        return replace(state, trainings=MappingProxyType(trainings)), piece

    def _jobs_on_floor(self) -> Sequence[TrainingJob]:
        return ()

    def _taken(self, factors: FloatArray, n_used: IntArray, now_s: float, n_begun: int) -> tuple[float, int, int]:
        until_s, ending = float(self._until_s), _MODELS_CHANGE
        while ending == _MODELS_CHANGE:
            self._settle_models(now_s)
            now_s, n_begun, ending = take_turns_and_give_way(
                self._floor, self._trainers, factors, n_used, now_s, until_s, n_begun
            )
        self._settle_models(now_s)
        return now_s, n_begun, ending

    def _settle_models(self, now_s: float) -> None:
        """Bring the models that are to come, release those that are now idle, and say what the next ones take."""
        own, beside = self._trainers, self._own
        own.models[_LOST_S], own.models[_CALLS_S] = beside.discard_s, math.inf
        idle_s = math.inf
        for rank, models in enumerate(self._models):
            models.follow(own.models[_USED_S, rank].tolist(), now_s)
            own.models[_USED_S, rank] = models.used_s
            idle_s = min([idle_s, *(models.used_s[one] + models.memory.idle_s for one in models.those(_ACTIVE))])
            for member in models.those(_GONE):
                is_taken = models.taken_mib(member) > 0
                lost_s = max(beside.discard_s, models.memory.discard_s) if is_taken else beside.discard_s
                way_s = beside.give_way_s if is_taken else 0.0
                own.models[:_USED_S, rank, member] = models.memory.load_s[member], way_s, lost_s, -math.inf
            for member in (*models.those(_RESERVED), *models.those(_ACTIVE)):
                own.models[:_USED_S, rank, member] = 0.0, 0.0, beside.discard_s, math.inf
        own.lost[2] = idle_s

    def _ended_s(self, place: int) -> float:
        return float(self._trainers.ends_s[place])

    def _left_s(self, place: int) -> float:
        return float(self._trainers.jobs[0, place])


@lru_cache(maxsize=256)
def _tables(
    n_members: int, curves: tuple[tuple[tuple[LatencyCurve, int] | None, ...], ...]
) -> tuple[FloatArray, IntArray, FloatArray]:
    """``latency_s``, ``limits`` and ``rates_rps`` of the floor, read-only; 1 where a lane does not serve a member."""
    most = max((one[1] for lane in curves for one in lane if one), default=1)
    latency_s = np.ones((len(curves), n_members, most + 1))
    limits = np.ones((len(curves), n_members), dtype=np.int64)
    for rank, lane in enumerate(curves):
        for member, one in enumerate(lane):
            if one is not None:
                limits[rank, member] = one[1]
                latency_s[rank, member, : one[1] + 1] = latency_table(*one)
    rates_rps = limits / np.take_along_axis(latency_s, limits[:, :, None], axis=2)[:, :, 0]
    for array in (latency_s, limits, rates_rps):
        array.setflags(write=False)
    return latency_s, limits, rates_rps


@lru_cache(maxsize=256)
def _eras(accuracies: tuple[AccuracyTimeline, ...], worth_changes: bool) -> tuple[FloatArray, FloatArray]:
    """``from_s`` and ``eras`` of the floor, read-only."""
    n_eras = max(len(one.from_s) for one in accuracies)
    from_s, eras = np.full((len(accuracies), n_eras), math.inf), np.ones((2, len(accuracies), n_eras))
    for member, one in enumerate(accuracies):
        from_s[member, : len(one.from_s)] = one.from_s
        eras[: 1 + worth_changes, member, : len(one.from_s)] = one.accuracy
    for array in (from_s, eras):
        array.setflags(write=False)
    return from_s, eras
