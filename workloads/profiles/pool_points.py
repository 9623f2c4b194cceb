"""Joint operating points: how tenants that hold an instance together are served on each profile.

A pool's instance answers one member's batch at a time, each process of that member one of its own: a *turn*. A request
that just missed its turn waits for the longest turn of any member, then for its own. A turn that follows another
member's lasts longer by the turn cost, which points count in every turn.

==========  ====================================================================================
symbol      meaning
==========  ====================================================================================
t           turn cost
ℓ_i         seconds of a turn of member i: a full batch in each of its processes
L           what the longest turn is taken to last, tried for every row's latency
c_i         requests a second of member i if all turns were its own: batch · processes / ℓ_i
ĉ_i         the same of i's best row alone, 2 ℓ ≤ SLO
==========  ====================================================================================

Member i takes its highest rate with ℓ_i ≤ L and (1 + t)(ℓ_i + L) ≤ SLO_i. The L with the largest least share c_i/ĉ_i
wins, then that with the largest sum of shares, then the smaller L. An L counts only if what rows tell of memory fits
the instance: Σ processes · (weights + context) + the largest batch. Where memory rules one out, fewer processes are
tried, too, at most so many for each member, by the same order, and then the more processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from executor.mig import GpuModel, Profile
from workloads.profiles.operating_point import BATCHES_PER_SLO
from workloads.profiles.table import ServiceRow

CONTEXT_MIB = 400.0
"""What a process on CUDA takes beside weights and batches, until it is measured."""

MIB_PER_GIB = 1024

DIGITS = 12
"""Of shares, beyond which they are equal."""


class Member(Protocol):
    """What is to be known of a tenant; :class:`workloads.tenants.Tenant` has it."""

    @property
    def name(self) -> str:
        """The tenant's."""

    @property
    def slo_s(self) -> float:
        """Seconds within which an answer counts."""

    @property
    def min_profile(self) -> str:
        """The pool is to hold an instance at least as large."""

    @property
    def rows(self) -> Sequence[ServiceRow]:
        """In which it may be served, with their memory."""


@dataclass(frozen=True, slots=True)
class JointPoint:
    """How one member of a pool is served on one profile.

    Attributes:
        row: Its batch, processes and latency, as measured.
        rate_rps: Requests a second if all turns were its own and followed each other: c_i.
        planned_rps: The same with the turn cost in every turn: c_i / (1 + t). In a pool of one, ``rate_rps``.
        slack_s: What its SLO leaves beside a turn: SLO_i − (1 + t) ℓ_i, > 0. In a pool of one, SLO − ℓ.
    """

    row: ServiceRow
    rate_rps: float
    planned_rps: float
    slack_s: float

    @property
    def batch(self) -> int:
        """Most requests that a process takes in a turn."""
        return self.row.batch

    @property
    def processes(self) -> int:
        """Processes of the member in each instance."""
        return self.row.processes

    @property
    def latency_s(self) -> float:
        """Seconds of a full turn after one of its own: ℓ_i."""
        return self.row.latency_s

    def mixed_rps(self, own_share: float) -> float:
        """Requests a second where this share of all turns are its own, in whatever order: c_i / (1 + t (1 − share))."""
        turn_cost = self.rate_rps / self.planned_rps - 1.0
        return self.rate_rps / (1.0 + turn_cost * (1.0 - own_share))


@dataclass(frozen=True)
class PoolPoints:
    """How a pool is served.

    Attributes:
        members: Their names, in order.
        points: By profile that serves the pool, in the GPU's order, each member's point in their order.
        unserved: Why a profile does not serve it, by its name; the member and the rule.
        infeasible: Why the pool cannot be: no profile serves it, or none of those is large enough for a member's
            ``min_profile``; ``None`` where it can.
        unknown: Members of whose memory rows do not tell all; what is not known counts as nothing, a context as
            :data:`CONTEXT_MIB`.
    """

    members: tuple[str, ...]
    points: Mapping[str, tuple[JointPoint, ...]]
    unserved: Mapping[str, str]
    infeasible: str | None
    unknown: tuple[str, ...]

    @property
    def by_member(self) -> Mapping[str, Mapping[str, JointPoint]]:
        """``points`` by profile, then by member."""
        return {profile: dict(zip(self.members, own, strict=True)) for profile, own in self.points.items()}


class JointPoints:
    """The points of all pools that some tenants may form; each is found once."""

    def __init__(self, gpu: GpuModel, tenants: Sequence[Member], turn_cost: float) -> None:
        """``tenants`` are in the config's order; ``turn_cost`` is the share by which a turn lasts longer, ≥ 0."""
        self._gpu, self._longer = gpu, 1.0 + turn_cost
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._rows = {
            (tenant.name, profile.name): _Rows.of(tenant, profile.name)
            for tenant in tenants
            for profile in gpu.profiles
        }
        self._numbers = {name: number for number, name in enumerate(self._tenants)}
        self._board = cache(self._board_of)
        self._known: dict[frozenset[str], PoolPoints] = {}

    def of(self, members: Sequence[str]) -> PoolPoints:
        """How the pool of these tenants is served, at least one; in whatever order they are named."""
        key = frozenset(members)
        if key not in self._known:
            self._known[key] = self._found([tenant for name, tenant in self._tenants.items() if name in key])
        return self._known[key]

    def _found(self, pool: Sequence[Member]) -> PoolPoints:
        points: dict[str, tuple[JointPoint, ...]] = {}
        unserved: dict[str, str] = {}
        for profile in self._gpu.profiles:
            rows = [self._rows[tenant.name, profile.name] for tenant in pool]
            chosen = self._alone(rows[0]) if len(rows) == 1 else self._together(rows, profile)
            if chosen is None:
                unserved[profile.name] = self._reason(rows, profile)
            else:
                points[profile.name] = tuple(chosen)
        return PoolPoints(
            members=tuple(tenant.name for tenant in pool),
            points=MappingProxyType(points),
            unserved=MappingProxyType(unserved),
            infeasible=self._infeasible(pool, points, unserved),
            unknown=tuple(tenant.name for tenant in pool if not all(map(_is_told, tenant.rows))),
        )

    def _alone(self, rows: _Rows) -> list[JointPoint] | None:
        """A pool of one has the ordinary operating point."""
        meeting = [row for row in rows.all if BATCHES_PER_SLO * row.latency_s <= rows.slo_s]
        if not meeting:
            return None
        row = max(meeting, key=lambda one: (one.throughput_rps, -one.latency_s, -one.processes))
        return [JointPoint(row, row.throughput_rps, row.throughput_rps, rows.slo_s - row.latency_s)]

    def _together(self, pool: Sequence[_Rows], profile: Profile) -> list[JointPoint] | None:
        """Each member's point; ``None`` where the profile does not serve the pool."""
        best: tuple[float, float, float] | None = None
        chosen: Sequence[ServiceRow] = ()
        for choices in self._choices(pool, profile.name):
            fitting = choices.memory_mib <= _memory_mib(profile)
            key, rows = choices.best(fitting)
            if key is not None and (best is None or key > best):
                best, chosen = key, rows
            if fitting.all():  # fewer processes do no better then
                break
        if best is None:
            return None
        return [self._point(row, rows) for row, rows in zip(chosen, pool, strict=True)]

    def _point(self, row: ServiceRow, rows: _Rows) -> JointPoint:
        rate_rps = _rate_rps(row)
        return JointPoint(row, rate_rps, rate_rps / self._longer, rows.slo_s - self._longer * row.latency_s)

    def _choices(self, pool: Sequence[_Rows], profile: str) -> Iterator[_Choices]:
        """What members take for each L that all SLOs leave; with as many processes as there are, then with fewer."""
        if any(rows.best_rps == 0 for rows in pool):
            return
        chosen = [self._numbers[rows.name] for rows in pool]
        for most in sorted({row.processes for rows in pool for row in rows.all}, reverse=True):
            board = self._board(profile, most)
            if not all(board.lanes[own].rows for own in chosen):
                return
            may_be = board.is_own[chosen].any(axis=0) & (board.places[chosen] >= 0).all(axis=0)
            places, shares, resident, batch = (
                own[chosen][:, may_be] for own in (board.places, board.shares, board.resident_mib, board.batch_mib)
            )
            yield _Choices(
                taken=[(board.lanes[own], place) for own, place in zip(chosen, places, strict=True)],
                longest_s=board.longest_s[may_be],
                least=shares.min(axis=0).round(DIGITS),
                total=shares.sum(axis=0).round(DIGITS),
                memory_mib=resident.sum(axis=0) + batch.max(axis=0),
            )

    def _board_of(self, profile: str, most: int) -> _Board:
        all_rows = [self._rows[name, profile] for name in self._tenants]
        lanes = [rows.up_to(most) for rows in all_rows]
        longest_s = np.unique(np.concatenate([lane.latencies_s for lane in lanes]))
        places = np.full((len(lanes), len(longest_s)), -1)
        shares, resident, batch = (np.zeros(places.shape) for _ in range(3))
        for own, (lane, rows) in enumerate(zip(lanes, all_rows, strict=True)):
            if not lane.rows or rows.best_rps == 0:
                continue
            meets = self._longer * (lane.frontier_s + longest_s[:, None]) <= rows.slo_s
            # Latencies ascend, so those that meet come first, and the last of them has the highest rate.
            places[own] = np.count_nonzero(meets & (lane.frontier_s <= longest_s[:, None]), axis=1) - 1
            shares[own] = lane.frontier_rps[places[own]] / rows.best_rps
            resident[own], batch[own] = lane.resident_mib[places[own]], lane.batch_mib[places[own]]
        is_own = np.stack([np.isin(longest_s, lane.latencies_s) for lane in lanes])
        return _Board(lanes, longest_s, is_own, places, shares, resident, batch)

    def _reason(self, pool: Sequence[_Rows], profile: Profile) -> str:
        """Why the profile does not serve the pool: the member and the rule."""
        for rows in pool:
            if not rows.all:
                return f"{rows.name}: nothing was measured of its model there"
        shortest = [min(rows.all, key=lambda row: row.latency_s) for rows in pool]
        longest = max(zip(pool, shortest, strict=True), key=lambda pair: pair[1].latency_s)
        for rows, row in zip(pool, shortest, strict=True):
            need_s = self._longer * (row.latency_s + longest[1].latency_s)
            if len(pool) == 1:
                need_s = BATCHES_PER_SLO * row.latency_s
            if need_s > rows.slo_s:
                beside = "itself" if len(pool) == 1 else longest[0].name
                return (
                    f"{rows.name}: its SLO is {rows.slo_s * 1000:,g} ms, and its shortest batch after that of {beside} "
                    f"takes {need_s * 1000:,.4g} ms"
                )
        needed_mib = (choices.memory_mib for choices in self._choices(pool, profile.name))
        least_mib = min(float(own.min()) for own in needed_mib if own.size)
        largest = max(zip(pool, shortest, strict=True), key=lambda pair: _resident_mib(pair[1]))[0].name
        return (
            f"{largest}, the largest of {len(pool)} members: an instance has {_memory_mib(profile):,.0f} MiB of "
            f"memory, and they take {least_mib:,.0f} at least"
        )

    def _infeasible(
        self, pool: Sequence[Member], points: Mapping[str, object], unserved: Mapping[str, str]
    ) -> str | None:
        served = [self._gpu.profile(name) for name in points]
        if not served:
            largest = max(self._gpu.profiles, key=lambda one: (one.compute_slices, one.memory_slices)).name
            return f"no profile serves it; on {largest}, {unserved[largest]}"
        for tenant in pool:
            least = self._gpu.profile(tenant.min_profile)
            if not any(profile.is_at_least(least) for profile in served):
                return f"{tenant.name}: its min_profile is {least}, and of that size no profile serves the pool"
        return None


def memory_mib(rows: Sequence[ServiceRow]) -> float:
    """What the members' rows take in an instance: all processes' weights and contexts, and the largest batch.

    What is not known counts as nothing, but a context beside known weights as :data:`CONTEXT_MIB`.
    """
    return sum(map(_resident_mib, rows)) + max(row.batch_mib or 0.0 for row in rows)


def lends(profile: Profile, serving: Sequence[ServiceRow], trainer: ServiceRow) -> bool:
    """Whether an instance has memory for a trainer beside those who serve there by these rows.

    ``trainer`` is a row of the profile that tells what is known of the model's memory.
    """
    needed_mib = memory_mib(serving) + _resident_mib(replace(trainer, processes=1)) + (trainer.training_mib or 0.0)
    return needed_mib <= _memory_mib(profile)


def _memory_mib(profile: Profile) -> float:
    """What an instance has; without limit where no source states it."""
    return math.inf if profile.memory_gib is None else profile.memory_gib * MIB_PER_GIB


def _is_told(row: ServiceRow) -> bool:
    return row.weights_mib is not None and row.context_mib is not None and row.batch_mib is not None


def _resident_mib(row: ServiceRow) -> float:
    if row.weights_mib is None:
        return 0.0
    return row.processes * (row.weights_mib + (CONTEXT_MIB if row.context_mib is None else row.context_mib))


def _rate_rps(row: ServiceRow) -> float:
    return row.batch * row.processes / row.latency_s


@dataclass(frozen=True, eq=False)
class _Lane:
    """A member's rows with at most so many processes: by latency, those that no shorter one equals in rate.

    ``latencies_s`` are those of all rows.
    """

    rows: tuple[ServiceRow, ...]
    frontier_s: NDArray[np.float64]
    frontier_rps: NDArray[np.float64]
    resident_mib: NDArray[np.float64]
    batch_mib: NDArray[np.float64]
    latencies_s: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Board:
    """What each tenant would take on one profile, with at most so many processes, by what L is.

    ``lanes`` are one a tenant, ``longest_s`` all their rows' latencies, ascending. The others are ``(n_tenants, n)``:
    whether it is a latency of the tenant's own, the place in its lane (−1: none meets its SLO), the share of its best
    rate there, and memory.
    """

    lanes: Sequence[_Lane]
    longest_s: NDArray[np.float64]
    is_own: NDArray[np.bool_]
    places: NDArray[np.int64]
    shares: NDArray[np.float64]
    resident_mib: NDArray[np.float64]
    batch_mib: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Choices:
    """What members take with at most so many processes each, by what L is, ascending, ``(n,)``.

    ``taken`` has each member's lane and the places in it, ``(n,)``.
    """

    taken: Sequence[tuple[_Lane, NDArray[np.int64]]]
    longest_s: NDArray[np.float64]
    least: NDArray[np.float64]
    total: NDArray[np.float64]
    memory_mib: NDArray[np.float64]

    def best(self, among: NDArray[np.bool_]) -> tuple[tuple[float, float, float] | None, Sequence[ServiceRow]]:
        """The best among these, how good it is and the rows; nothing without any."""
        if not among.any():
            return None, ()
        ranked = np.lexsort((self.longest_s, -self.total, -self.least))
        place = ranked[among[ranked]][0]
        key = (float(self.least[place]), float(self.total[place]), -float(self.longest_s[place]))
        return key, [lane.rows[own[place]] for lane, own in self.taken]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A tenant's rows on one profile.

    Attributes:
        name: The tenant's.
        slo_s: Its own.
        all: The rows.
        best_rps: ĉ_i; 0 where no row meets the SLO alone.
        lanes: What was asked for before, by most processes.
    """

    name: str
    slo_s: float
    all: tuple[ServiceRow, ...]
    best_rps: float
    lanes: dict[int, _Lane]

    @classmethod
    def of(cls, tenant: Member, profile: str) -> _Rows:
        """Those of the tenant."""
        rows = tuple(row for row in tenant.rows if row.profile == profile)
        meeting = (row for row in rows if BATCHES_PER_SLO * row.latency_s <= tenant.slo_s)
        return cls(tenant.name, tenant.slo_s, rows, max(map(_rate_rps, meeting), default=0.0), {})

    def up_to(self, most: int) -> _Lane:
        """The rows with at most so many processes."""
        if most not in self.lanes:
            rows = [row for row in self.all if row.processes <= most]
            frontier: list[ServiceRow] = []
            for row in sorted(rows, key=lambda one: (one.latency_s, -_rate_rps(one), one.processes)):
                if not frontier or _rate_rps(row) > _rate_rps(frontier[-1]) * (1 + 10**-DIGITS):
                    frontier.append(row)
            self.lanes[most] = _Lane(
                tuple(frontier),
                np.array([row.latency_s for row in frontier]),
                np.array([_rate_rps(row) for row in frontier]),
                np.array([_resident_mib(row) for row in frontier]),
                np.array([row.batch_mib or 0.0 for row in frontier]),
                np.array([row.latency_s for row in rows]),
            )
        return self.lanes[most]
