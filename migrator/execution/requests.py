"""All tenants' requests over a run, and what became of them, window by window."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workloads.arrays import BoolArray, FloatArray
from workloads.serving.advance import advance
from workloads.serving.pool import Batches, Lane, PoolState, busy_shares
from workloads.serving.pool import advance as advance_pool
from workloads.serving.requests import AccuracyTimeline, Dispatch, Outcomes, QueueState, Requests, Server
from workloads.serving.tally import SecondCounts, Tally, Totals
from workloads.tenants import Tenant
from workloads.traffic.luck import ServiceJitter


class Queues(ABC):
    """Every tenant's queue, from second 0 on unless it begins later.

    Attributes:
        are_real: Whether requests really were answered, or not: then it does not matter what is known of the GPU.
    """

    are_real: bool

    def __init__(self, n_tenants: int) -> None:
        self._states = [QueueState() for _ in range(n_tenants)]

    def begin(self, requests: Sequence[Requests], start_s: float) -> None:
        """Begin at a later second; ``requests`` arrived before it, and are in no queue."""
        self._states = [QueueState(head=len(own), tail=len(own), now_s=start_s) for own in requests]

    @property
    def states(self) -> Sequence[QueueState]:
        """How each queue stands."""
        return tuple(self._states)

    @property
    def now_s(self) -> float:
        """How far all queues have come."""
        return self._states[0].now_s

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """By server id, when the batch in service at :attr:`now_s` ends, as far as known."""
        return {server_id: end_s for state in self._states for server_id, end_s in state.busy_until.items()}

    @abstractmethod
    def advance(
        self,
        requests: Sequence[Requests],
        servers: Mapping[str, Sequence[Server]],
        accuracies: Sequence[AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
    ) -> list[Outcomes]:
        """Bring every queue to ``until_s``; outcomes by tenant, as far as known.

        ``servers`` are those that each tenant has alone, ``lanes`` those of pools.
        """

    @abstractmethod
    def others_shares(self, first_s: int, end_s: int) -> Mapping[int, FloatArray]:
        """By place of a tenant that shared lanes in these seconds, which part others had, ``(end_s − first_s,)``.

        From 0 to 1; a lane counts by its rate. What was before is forgotten.
        """


@dataclass(frozen=True, eq=False)
class _Turns:
    """A piece of time of members that share lanes.

    Attributes:
        members: By place, their names.
        lanes: In the order of their ranks.
        from_s: The piece's begin.
        until_s: Its end.
        batches: Those that began in it.
    """

    members: Mapping[int, str]
    lanes: Sequence[Lane]
    from_s: float
    until_s: float
    batches: Batches

    def add(self, index: int, could: FloatArray, given: FloatArray, first_s: int) -> None:
        """Add the requests of a member that lanes could have answered in each second, and what of that others had."""
        others = self.batches.tenant_index != [*self.members].index(index)
        seconds = np.arange(first_s, first_s + len(could) + 1.0)
        for rank, lane in enumerate(self.lanes):
            own = next((one for one in lane.servers if one.tenant == self.members[index]), None)
            if own is not None:
                rate_rps = own.batch_limit / own.latency.at(own.batch_limit)
                served = np.clip(seconds, max(self.from_s, own.ready_s), max(self.from_s, min(self.until_s, own.end_s)))
                could += rate_rps * np.diff(served)
                theirs = others & (self.batches.rank == rank)
                begin_s, end_s = self.batches.begin_s[theirs], self.batches.end_s[theirs]
                given += rate_rps * busy_shares(begin_s, end_s, first_s, first_s + len(could))


class SimulatedQueues(Queues):
    """Every tenant's queue, served by whatever stands at the moment.

    Tenants are brought forward together if one lane serves both, or a chain of lanes connects them. Of what stands,
    a tenant's own servers are lanes of its own then. So it is while one member alone is ready in a pool's lanes: they
    remember whose batches they had, as lanes of live workers do.
    """

    are_real = False

    def __init__(
        self,
        n_tenants: int,
        jitter: ServiceJitter | None,
        dispatch: Dispatch = Dispatch.PULL,
        *,
        weights: Sequence[float] | None = None,
        turn_cost: float = 0.0,
    ) -> None:
        """``weights`` are what tenants' answers are worth, 1 by default; ``turn_cost`` is as in ``pool.advance``."""
        super().__init__(n_tenants)
        self._jitter, self._dispatch = jitter, dispatch
        self._weights, self._turn_cost = weights or [1.0] * n_tenants, turn_cost
        self._turns: dict[str, str] = {}  # by lane, whose turn it was last
        self._taken: list[_Turns] = []

    def advance(
        self,
        requests: Sequence[Requests],
        servers: Mapping[str, Sequence[Server]],
        accuracies: Sequence[AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
    ) -> list[Outcomes]:
        """Bring every queue to ``until_s``; outcomes by tenant."""
        found = dict[int, Outcomes]()
        for members in connected([own.tenant for own in requests], lanes):
            names = [requests[index].tenant for index in members]
            shared = [lane for lane in lanes if lane.servers[0].tenant in names]
            if shared:
                own_lanes = [Lane(one.server_id, (one,)) for name in names for one in servers.get(name, ())]
                found |= self._advance_together(requests, members, own_lanes + shared, accuracies, until_s)
                continue
            (index,) = members
            alone, state = servers.get(names[0], ()), self._states[index]
            self._states[index], found[index] = advance(
                requests[index], state, alone, accuracies[index], until_s, self._jitter, self._dispatch
            )
        return [found[index] for index in range(len(requests))]

    def _advance_together(
        self,
        requests: Sequence[Requests],
        members: Sequence[int],
        lanes: Sequence[Lane],
        accuracies: Sequence[AccuracyTimeline],
        until_s: float,
    ) -> dict[int, Outcomes]:
        """Bring the members' queues to ``until_s`` in turns; their outcomes."""
        assert self._dispatch is Dispatch.PULL
        names = [requests[index].tenant for index in members]
        state, piece = advance_pool(
            [requests[index] for index in members],
            self._pool_of(names, members, lanes),
            lanes,
            [accuracies[index] for index in members],
            until_s,
            self._jitter,
            weights=[self._weights[index] for index in members],
            turn_cost=self._turn_cost,
        )
        self._turns |= {lane_id: names[member] for lane_id, member in state.holders.items() if member >= 0}
        ranked = sorted(lanes, key=lambda lane: lane.lane_id)
        from_s = self._states[members[0]].now_s
        self._taken.append(_Turns(dict(zip(members, names, strict=True)), ranked, from_s, until_s, piece.batches))
        for index, queue in zip(members, state.queues, strict=True):
            self._states[index] = queue
        return dict(zip(members, piece.outcomes, strict=True))

    def others_shares(self, first_s: int, end_s: int) -> Mapping[int, FloatArray]:
        """By place of a tenant that shared lanes in these seconds, which part of them others had."""
        found = dict[int, tuple[FloatArray, FloatArray]]()
        for turns in self._taken:
            for index in turns.members if turns.from_s < end_s else ():
                both = found.setdefault(index, (np.zeros(end_s - first_s), np.zeros(end_s - first_s)))
                turns.add(index, *both, first_s)
        # A batch may last longer than the piece in which it began.
        self._taken = [one for one in self._taken if one.batches.end_s.max(initial=one.until_s) > end_s]
        return {
            index: np.minimum(np.divide(given, could, out=np.zeros_like(given), where=could > 0), 1.0)
            for index, (could, given) in found.items()
        }

    def _pool_of(self, names: Sequence[str], members: Sequence[int], lanes: Sequence[Lane]) -> PoolState:
        """How the lanes stand: busy with the batches that their servers have in service."""
        queues = tuple(self._states[index] for index in members)
        serving = {
            lane.lane_id: (member, server.server_id)
            for lane in lanes
            for server in lane.servers
            if server.server_id in queues[member := names.index(server.tenant)].busy_until
        }
        busy_until = {lane_id: queues[member].busy_until[server] for lane_id, (member, server) in serving.items()}
        turns = {lane.lane_id: self._turns[lane.lane_id] for lane in lanes if lane.lane_id in self._turns}
        fresh = PoolState.at_start(len(names), [lane_id for lane_id, name in turns.items() if name not in names])
        own = {lane_id: names.index(name) for lane_id, name in turns.items() if name in names}
        return replace(fresh, queues=queues, busy_until=busy_until, holders={**fresh.holders, **own}, serving=serving)


def connected(tenants: Sequence[str], lanes: Sequence[Lane]) -> list[tuple[int, ...]]:
    """The tenants' places, those together that lanes connect, by their first."""
    group = {name: frozenset((index,)) for index, name in enumerate(tenants)}
    for lane in lanes:
        together = frozenset().union(*(group[server.tenant] for server in lane.servers))
        group |= {tenants[index]: together for index in together}
    return sorted({tuple(sorted(own)) for own in group.values()})


@dataclass(frozen=True)
class SettledWindow:
    """A window of which every request is resolved, with one tally a tenant.

    ``blind`` are its seconds, half-open, of which it is unknown what stood: nothing is counted in them.
    """

    window: int
    counts: tuple[SecondCounts, ...]
    blind: tuple[tuple[int, int], ...] = ()

    @property
    def totals(self) -> Totals:
        """All tenants together."""
        return sum((item.totals for item in self.counts), Totals())


class Ledger:
    """What became of all requests, tallied by window; a window is set apart once it is settled.

    Where it is not known yet whether that stood which answered, outcomes wait: see :meth:`know`. Windows before
    ``first_window`` are not asked for.
    """

    def __init__(self, tenants: Sequence[Tenant], window_s: float, first_window: int = 0) -> None:
        self._names = [tenant.name for tenant in tenants]
        self._window_s = round(window_s)
        self._longest_s = max(tenant.slo_s for tenant in tenants)
        self._tallies: dict[int, tuple[Tally, ...]] = {}
        self._n_settled = first_window
        self._settled_totals = Totals()
        self._settled: dict[int, tuple[Totals, ...]] = {}
        self._waiting = [Outcomes.all_dropped(np.empty(0, np.int64)) for _ in self._names]
        self._counted_s = np.inf
        self._blind: list[tuple[int, int]] = []

    @property
    def totals(self) -> Totals:
        """Everything resolved so far, all tenants together."""
        open_ = (tally.totals for tallies in self._tallies.values() for tally in tallies)
        return sum(open_, self._settled_totals)

    def in_time_shares(self, window: int) -> tuple[float, ...]:
        """By tenant, the share of the window's requests resolved so far that were answered in time; 1 without any."""
        open_ = [tally.totals for tally in self._tallies.get(window, ())]
        totals = self._settled.get(window) or open_ or [Totals()] * len(self._names)
        return tuple(one.in_time / n if (n := one.in_time + one.late + one.dropped) else 1.0 for one in totals)

    def add(self, requests: Sequence[Requests], outcomes: Iterable[Outcomes], known_s: float = np.inf) -> None:
        """Count what became of each tenant's requests in a piece of time, or let it wait if not all is known of it."""
        for index, (own, found) in enumerate(zip(requests, outcomes, strict=True)):
            if known_s == np.inf:
                self._count(index, own, found)
            else:
                self._waiting[index] = _together(self._waiting[index], found)

    def know(self, requests: Sequence[Requests], known_s: float) -> None:
        """Count the requests of all seconds over which is known what stood, up to ``known_s``; not those of blind ones.

        A second is over when the last request in it can be answered in time no more. So what is told to be blind after
        this was not counted.
        """
        if known_s == np.inf:
            return
        self._counted_s = np.floor(known_s - self._longest_s)
        for index, own in enumerate(requests):
            waiting = self._waiting[index]
            arrival_s = own.arrival_s[waiting.index]
            is_over = arrival_s < self._counted_s
            self._count(index, own, waiting.where(is_over & ~self._is_blind(arrival_s)))
            self._waiting[index] = waiting.where(~is_over)

    def blind(self, from_s: float, to_s: float) -> None:
        """Leave out the requests of all seconds of which it is unknown what stood, or what answered."""
        self._blind.append((math.floor(from_s - self._longest_s), math.ceil(to_s)))

    def knows(self, until_s: float) -> bool:
        """Whether all that arrived before is counted, or left out, as far as it is resolved."""
        return bool(self._counted_s >= until_s)

    def lose(self, tenant_index: int, requests: Requests, outcomes: Outcomes) -> None:
        """Count answers that were added before, and never came, as dropped."""
        waiting = self._waiting[tenant_index]
        self._waiting[tenant_index] = waiting.without_answers(outcomes.index)
        is_counted = ~np.isin(outcomes.index, waiting.index) & ~self._is_blind(requests.arrival_s[outcomes.index])
        for tallies in self._tallies.values():
            tallies[tenant_index].lose(requests, outcomes.where(is_counted))

    def _count(self, index: int, own: Requests, found: Outcomes) -> None:
        if found.index.size:
            ends_s = own.arrival_s[found.index[[0, -1]]]  # outcomes are in the order of arrival
            first, last = np.floor(ends_s / self._window_s).astype(np.int64).tolist()
            for window in range(first, last + 1):
                self._tallies_of(window)[index].add(own, found)

    def _is_blind(self, arrival_s: FloatArray) -> BoolArray:
        found = np.zeros(len(arrival_s), np.bool_)
        for first, end in self._blind:
            found |= (first <= arrival_s) & (arrival_s < end)
        return found

    def settled(
        self, through_window: int, requests: Sequence[Requests], queues: Sequence[QueueState]
    ) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        done: list[SettledWindow] = []
        while self._n_settled <= through_window and self._is_settled(self._n_settled, requests, queues):
            tallies = self._tallies_of(self._n_settled)
            del self._tallies[self._n_settled]
            counts = tuple(tally.counts for tally in tallies)
            done.append(SettledWindow(self._n_settled, counts, self._blind_in(self._n_settled)))
            self._settled_totals += done[-1].totals
            self._settled[self._n_settled] = tuple(own.totals for own in counts)
            self._n_settled += 1
        return done

    def _is_settled(self, window: int, requests: Sequence[Requests], queues: Sequence[QueueState]) -> bool:
        end_s = (window + 1) * self._window_s
        return self.knows(end_s) and all(
            state.now_s >= end_s and _oldest_open(state) >= np.searchsorted(own.arrival_s, end_s, side="left")
            for own, state in zip(requests, queues, strict=True)
        )

    def _blind_in(self, window: int) -> tuple[tuple[int, int], ...]:
        """The window's seconds that are in no count: stretches of the run's seconds that do not touch, half-open."""
        start_s, found = window * self._window_s, list[tuple[int, int]]()
        for first, end in sorted(self._blind):
            own = max(first, start_s), min(end, start_s + self._window_s)
            if found and own[0] <= found[-1][1]:
                found[-1] = found[-1][0], max(own[1], found[-1][1])
            elif own[0] < own[1]:
                found.append(own)
        return tuple(found)

    def _tallies_of(self, window: int) -> tuple[Tally, ...]:
        """The window's, by tenant; a quiet window has them too."""
        if window not in self._tallies:
            self._tallies[window] = tuple(Tally(name, self._window_s, window * self._window_s) for name in self._names)
        return self._tallies[window]


def _together(first: Outcomes, second: Outcomes) -> Outcomes:
    """The outcomes of both, in the order of arrival."""
    index = np.concatenate([first.index, second.index])
    order = np.argsort(index, kind="stable")
    return Outcomes(
        index[order],
        np.concatenate([first.answer_s, second.answer_s])[order],
        np.concatenate([first.in_time, second.in_time])[order],
        np.concatenate([first.correct, second.correct])[order],
    )


def _oldest_open(state: QueueState) -> int:
    """The oldest request whose answer is not there yet: it waits, or its server may still die over it."""
    return min([state.head, *(int(indices[0]) for _, indices in state.batches.values())])
