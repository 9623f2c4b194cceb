"""All tenants' requests over a run, and their outcomes, window by window."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workloads.arrays import BoolArray, FloatArray
from workloads.serving.advance import advance
from workloads.serving.pool import Batches, Kernel, Lane, Piece, PoolState, busy_shares
from workloads.serving.pool import advance as advance_pool
from workloads.serving.requests import Outcomes, QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Dispatch, Server
from workloads.serving.tally import SettledWindow, Tally, Totals
from workloads.traffic.luck import ServiceJitter


class Queues(ABC):
    """Each tenant's queue by its name, from second 0 on unless it begins later.

    Attributes:
        are_real: Whether requests really were answered, or not: then it does not matter what is known of the GPU.
    """

    are_real: bool

    def __init__(self, tenants: Iterable[str]) -> None:
        self._states = {name: QueueState() for name in tenants}

    def begin(self, n_before: Mapping[str, int], start_s: float) -> None:
        """Begin at a later second; so many requests arrived before it, and are in no queue."""
        self._states = {name: QueueState(head=n, tail=n, now_s=start_s) for name, n in n_before.items()}

    def join(self, tenant: str, weight: float, n_before: int) -> None:
        """A tenant comes, of whose requests so many arrived before and are in no queue."""
        del weight
        self._states[tenant] = QueueState(head=n_before, tail=n_before, now_s=self.now_s)

    def leave(self, tenant: str) -> None:
        """Forget a tenant, all of whose requests are resolved and answered."""
        del self._states[tenant]

    @property
    def states(self) -> Mapping[str, QueueState]:
        """Each queue's state."""
        return dict(self._states)

    @property
    def now_s(self) -> float:
        """How far all queues have come."""
        return next(iter(self._states.values())).now_s

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """By server id, when the batch in service at :attr:`now_s` ends, if known."""
        states = self._states.values()
        return {server_id: end_s for state in states for server_id, end_s in state.busy_until.items()}

    @abstractmethod
    def advance(
        self,
        requests: Mapping[str, Requests],
        servers: Mapping[str, Sequence[Server]],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
    ) -> dict[str, Outcomes]:
        """Bring every queue to ``until_s``; outcomes by tenant, if known.

        ``servers`` are those that each tenant has alone, ``lanes`` those of pools.
        """

    def serve_by(
        self,
        kernel: Kernel,
        state: PoolState,
        requests: Mapping[str, Requests],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
    ) -> tuple[PoolState, Piece]:
        """Bring all queues forward with a kernel that serves them together."""
        names = [*self._states]
        state, piece = kernel(
            [requests[name] for name in names],
            state,
            accuracies=[accuracies[name] for name in names],
            until_s=until_s,
        )
        for name, own in zip(names, state.queues, strict=True):
            tail = requests[name].end
            self._states[name] = QueueState(own.head, tail, state.busy_until, state.now_s, own.n_batches)
        return state, piece

    @abstractmethod
    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:
        """By tenant that shared lanes in these seconds, which part others had, ``(end_s − first_s,)``.

        From 0 to 1; a lane counts by its rate. What was before is forgotten.
        """


@dataclass(frozen=True, eq=False)
class _Turns:
    """A piece of time of members that share lanes.

    Attributes:
        members: Their names, in the order of the batches' indices.
        lanes: In the order of their ranks.
        from_s: The piece's begin.
        until_s: Its end.
        batches: Those that began in it.
    """

    members: Sequence[str]
    lanes: Sequence[Lane]
    from_s: float
    until_s: float
    batches: Batches

    def add(self, member: str, could: FloatArray, given: FloatArray, first_s: int) -> None:
        """Add the requests of a member that lanes could have answered in each second, and what of that others had."""
        others = self.batches.tenant_index != self.members.index(member)
        seconds = np.arange(first_s, first_s + len(could) + 1.0)
        for rank, lane in enumerate(self.lanes):
            own = next((one for one in lane.servers if one.tenant == member), None)
            if own is not None:
                rate_rps = own.batch_limit / own.latency.at(own.batch_limit)
                served = np.clip(seconds, max(self.from_s, own.ready_s), max(self.from_s, min(self.until_s, own.end_s)))
                could += rate_rps * np.diff(served)
                theirs = others & (self.batches.rank == rank)
                begin_s, end_s = self.batches.begin_s[theirs], self.batches.end_s[theirs]
                given += rate_rps * busy_shares(begin_s, end_s, first_s, first_s + len(could))


class SimulatedQueues(Queues):
    """Each tenant's queue, served by what is there at the moment.

    Tenants are brought forward together if one lane serves both, or a chain of lanes connects them. Of what stands,
    a tenant's own servers are lanes of its own then. So it is while one member alone is ready in a pool's lanes: they
    remember whose batches they had, as lanes of live workers do.
    """

    are_real = False

    def __init__(
        self,
        weights: Mapping[str, float],
        jitter: ServiceJitter | None,
        dispatch: Dispatch = Dispatch.PULL,
        *,
        turn_cost: float = 0.0,
    ) -> None:
        """``weights``, by tenant, are what answers are worth; ``turn_cost`` is as in ``pool.advance``."""
        super().__init__(weights)
        self._jitter, self._dispatch = jitter, dispatch
        self._weights, self._turn_cost = dict(weights), turn_cost
        self._turns: dict[str, str] = {}  # by lane, whose turn it was last
        self._taken: list[_Turns] = []

    def join(self, tenant: str, weight: float, n_before: int) -> None:
        """A tenant comes, whose right answers are worth ``weight``."""
        super().join(tenant, weight, n_before)
        self._weights[tenant] = weight

    def advance(
        self,
        requests: Mapping[str, Requests],
        servers: Mapping[str, Sequence[Server]],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
    ) -> dict[str, Outcomes]:
        """Bring every queue to ``until_s``; outcomes by tenant."""
        found = dict[str, Outcomes]()
        # A tenant that has gone keeps its workers until the next change, and has no request any more.
        known = ((lane.lane_id, tuple(one for one in lane.servers if one.tenant in requests)) for lane in lanes)
        lanes = [Lane(lane_id, servers_here) for lane_id, servers_here in known if servers_here]
        for members in connected([*requests], lanes):
            shared = [lane for lane in lanes if lane.servers[0].tenant in members]
            if shared:
                own_lanes = [Lane(one.server_id, (one,)) for name in members for one in servers.get(name, ())]
                found |= self._advance_together(requests, members, own_lanes + shared, accuracies, until_s)
                continue
            (name,) = members
            alone, state = servers.get(name, ()), self._states[name]
            self._states[name], found[name] = advance(
                requests[name], state, alone, accuracies[name], until_s, self._jitter, self._dispatch
            )
        return {name: found[name] for name in requests}

    def _advance_together(
        self,
        requests: Mapping[str, Requests],
        members: Sequence[str],
        lanes: Sequence[Lane],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
    ) -> dict[str, Outcomes]:
        """Bring the members' queues to ``until_s`` in turns; their outcomes."""
        assert self._dispatch is Dispatch.PULL
        state, piece = advance_pool(
            [requests[name] for name in members],
            self._pool_of(members, lanes),
            lanes,
            [accuracies[name] for name in members],
            until_s,
            self._jitter,
            weights=[self._weights[name] for name in members],
            turn_cost=self._turn_cost,
        )
        self._turns |= {lane_id: members[place] for lane_id, place in state.holders.items() if place >= 0}
        ranked = sorted(lanes, key=lambda lane: lane.lane_id)
        from_s = self._states[members[0]].now_s
        self._taken.append(_Turns(members, ranked, from_s, until_s, piece.batches))
        self._states |= dict(zip(members, state.queues, strict=True))
        return dict(zip(members, piece.outcomes, strict=True))

    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:
        """By tenant that shared lanes in these seconds, which part of them others had."""
        found = dict[str, tuple[FloatArray, FloatArray]]()
        for turns in self._taken:
            for name in turns.members if turns.from_s < end_s else ():
                both = found.setdefault(name, (np.zeros(end_s - first_s), np.zeros(end_s - first_s)))
                turns.add(name, *both, first_s)
        # A batch may last longer than the piece in which it began.
        self._taken = [one for one in self._taken if one.batches.end_s.max(initial=one.until_s) > end_s]
        return {
            name: np.minimum(np.divide(given, could, out=np.zeros_like(given), where=could > 0), 1.0)
            for name, (could, given) in found.items()
        }

    def _pool_of(self, names: Sequence[str], lanes: Sequence[Lane]) -> PoolState:
        """The lanes' state: busy with the batches that their servers have in service."""
        queues = tuple(self._states[name] for name in names)
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


def connected(tenants: Sequence[str], lanes: Sequence[Lane]) -> list[tuple[str, ...]]:
    """The tenants, those together that lanes connect, in their order."""
    group = {name: frozenset((name,)) for name in tenants}
    for lane in lanes:
        together = frozenset().union(*(group[server.tenant] for server in lane.servers))
        group |= dict.fromkeys(together, together)
    groups = dict.fromkeys(group[name] for name in tenants)
    return [tuple(name for name in tenants if name in own) for own in groups]


class Ledger:
    """Outcomes of all requests, tallied by window; a window is set apart once it is settled.

    Where it is not known yet whether that stood which answered, outcomes wait: see :meth:`know`. Windows before
    ``first_window`` are not asked for.
    """

    def __init__(self, slos_s: Mapping[str, float], window_s: float, first_window: int = 0) -> None:
        """``slos_s`` are the tenants' SLOs by name."""
        self._names = [*slos_s]
        self._window_s = round(window_s)
        self._longest_s = max(slos_s.values())
        self._tallies: dict[int, dict[str, Tally]] = {}
        self._n_settled = first_window
        self._settled_totals = Totals()
        self._last_settled: Mapping[str, Totals] = {}
        self._waiting = {name: Outcomes.all_dropped(np.empty(0, np.int64)) for name in self._names}
        self._counted_s = np.inf
        self._blind: list[tuple[int, int]] = []

    def join(self, tenant: str, slo_s: float, window: int) -> None:
        """A tenant comes in this window."""
        self._names.append(tenant)
        self._longest_s = max(self._longest_s, slo_s)
        self._waiting[tenant] = Outcomes.all_dropped(np.empty(0, np.int64))
        for number, tallies in self._tallies.items():
            if number >= window:
                tallies.setdefault(tenant, self._tally(tenant, number))

    def leave(self, tenant: str) -> None:
        """Count nothing any more of a tenant that is gone, in windows that are not begun."""
        self._names.remove(tenant)
        del self._waiting[tenant]

    @property
    def settled_s(self) -> int:
        """All requests that arrived before are settled."""
        return self._n_settled * self._window_s

    @property
    def totals(self) -> Totals:
        """Everything resolved, all tenants together."""
        return sum(self.open_totals.values(), self._settled_totals)

    @property
    def open_totals(self) -> Mapping[str, Totals]:
        """By tenant, what is counted in windows that are not settled."""
        found = dict.fromkeys(self._names, Totals())
        for tallies in self._tallies.values():
            found |= {name: found.get(name, Totals()) + tally.totals for name, tally in tallies.items()}
        return found

    def in_time_shares(self, window: int) -> Mapping[str, float]:
        """By tenant, the share of the window's resolved requests that were answered in time; 1 without any.

        The window is open, or the one that was settled last.
        """
        totals = {name: tally.totals for name, tally in self._tallies.get(window, {}).items()}
        if window == self._n_settled - 1:
            totals = dict(self._last_settled)
        shares = dict.fromkeys(self._names, 1.0)
        return shares | {
            name: one.in_time / n for name, one in totals.items() if (n := one.in_time + one.late + one.dropped)
        }

    def add(self, requests: Mapping[str, Requests], outcomes: Mapping[str, Outcomes], known_s: float = np.inf) -> None:
        """Count the outcomes of each tenant's requests in a piece of time, or let it wait if not all is known of it."""
        for name, found in outcomes.items():
            if known_s == np.inf:
                self._count(requests[name], found)
            else:
                self._waiting[name] = _together(self._waiting[name], found)

    def know(self, requests: Mapping[str, Requests], known_s: float) -> None:
        """Count the requests of all seconds of confirmed GPU state, up to ``known_s``; not those of blind ones.

        A second is over when the last request in it can be answered in time no more. So what is told to be blind after
        this was not counted.
        """
        if known_s == np.inf:
            return
        self._counted_s = np.floor(known_s - self._longest_s)
        for name, waiting in self._waiting.items():
            own = requests[name]
            arrival_s = own.arrival_s[waiting.index - own.first]
            is_over = arrival_s < self._counted_s
            self._count(own, waiting.where(is_over & ~self._is_blind(arrival_s)))
            self._waiting[name] = waiting.where(~is_over)

    def blind(self, from_s: float, to_s: float) -> None:
        """Leave out the requests of all seconds of unknown GPU state or answers."""
        self._blind.append((math.floor(from_s - self._longest_s), math.ceil(to_s)))

    def knows(self, until_s: float) -> bool:
        """Whether all that arrived before is counted, or left out, if it is resolved."""
        return bool(self._counted_s >= until_s)

    def lose(self, requests: Requests, outcomes: Outcomes) -> None:
        """Count a tenant's answers that were added before, and never came, as dropped."""
        name, waiting = requests.tenant, self._waiting[requests.tenant]
        self._waiting[name] = waiting.without_answers(outcomes.index)
        arrival_s = requests.arrival_s[outcomes.index - requests.first]
        is_counted = ~np.isin(outcomes.index, waiting.index) & ~self._is_blind(arrival_s)
        for tallies in self._tallies.values():
            if name in tallies:
                tallies[name].lose(requests, outcomes.where(is_counted))

    def _count(self, own: Requests, found: Outcomes) -> None:
        if found.index.size:
            ends_s = own.arrival_s[found.index[[0, -1]] - own.first]  # outcomes are in the order of arrival
            first, last = np.floor(ends_s / self._window_s).astype(np.int64).tolist()
            for window in range(first, last + 1):
                self._tallies_of(window)[own.tenant].add(own, found)

    def _is_blind(self, arrival_s: FloatArray) -> BoolArray:
        found = np.zeros(len(arrival_s), np.bool_)
        for first, end in self._blind:
            found |= (first <= arrival_s) & (arrival_s < end)
        return found

    def settled(
        self, through_window: int, requests: Mapping[str, Requests], queues: Mapping[str, QueueState]
    ) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        done: list[SettledWindow] = []
        while self._n_settled <= through_window and self._is_settled(self._n_settled, requests, queues):
            tallies = self._tallies_of(self._n_settled)
            del self._tallies[self._n_settled]
            counts = tuple(tally.counts for tally in tallies.values())
            done.append(SettledWindow(self._n_settled, counts, self._blind_in(self._n_settled)))
            self._settled_totals += done[-1].totals
            self._last_settled = {own.tenant: own.totals for own in counts}
            self._n_settled += 1
            self._blind = [one for one in self._blind if one[1] > self.settled_s]
        return done

    def _is_settled(self, window: int, requests: Mapping[str, Requests], queues: Mapping[str, QueueState]) -> bool:
        end_s = (window + 1) * self._window_s
        return self.knows(end_s) and all(
            state.now_s >= end_s and _oldest_open(state) >= requests[name].n_before(end_s)
            for name, state in queues.items()
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

    def _tallies_of(self, window: int) -> dict[str, Tally]:
        """The window's, by tenant; a quiet window has them too."""
        if window not in self._tallies:
            self._tallies[window] = {name: self._tally(name, window) for name in self._names}
        return self._tallies[window]

    def _tally(self, tenant: str, window: int) -> Tally:
        return Tally(tenant, self._window_s, window * self._window_s)


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
