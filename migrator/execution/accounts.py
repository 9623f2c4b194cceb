"""The outcomes of a run's requests, kept behind one seam: the loop and what shares the GPU never see a request.

:class:`QueueAccounts` counts requests that wait in queues, simulated ones or a live generator's. It draws them window
by window and lets go of those that are settled, so that its memory does not grow with the run.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from migrator.errors import MigratorError
from migrator.execution.feedback import Feedback
from migrator.execution.requests import Ledger, Queues
from migrator.inputs.traffic import RecordedTraffic, Traffic
from migrator.log.records import Queue
from migrator.log.runlog import TIME_DIGITS
from workloads.arrays import FloatArray
from workloads.serving.pool import Kernel, Lane, Piece, PoolState
from workloads.serving.requests import QueueState, Requests
from workloads.serving.servers import AccuracyTimeline, Server
from workloads.serving.tally import SettledWindow, Totals
from workloads.tenants import Tenant


class _OpenRequests:
    """The requests that are not settled, by tenant, drawn a window at a time as time comes to them."""

    def __init__(self, traffic: RecordedTraffic, window_s: int, from_s: int) -> None:
        self._traffic, self._window_s, self._drawn_s = traffic, window_s, from_s
        self._kept = {own.tenant: own for own in traffic.requests(from_s, from_s)}

    def change(self, traffic: RecordedTraffic, tenants: Container[str], now_s: float, from_s: int) -> None:
        """Other tenants have requests from now on; ``from_s`` is the first second that is kept."""
        own = {name: kept if name in tenants else kept.before(now_s) for name, kept in self._kept.items()}
        drawn = (one for one in traffic.requests(from_s, self._drawn_s) if one.tenant not in own)
        self._traffic, self._kept = traffic, own | {one.tenant: one.since(now_s) for one in drawn}

    def first(self, tenant: str) -> int:
        """Index of the tenant's first request that is kept; nothing is drawn for it."""
        return self._kept[tenant].first

    def has(self, tenant: str) -> bool:
        """Whether a request of the tenant is kept."""
        return len(self._kept[tenant]) > 0

    def leave(self, tenant: str) -> None:
        """Forget the requests of a tenant that is gone."""
        del self._kept[tenant]

    def until(self, until_s: float) -> dict[str, Requests]:
        """Those that arrived before; arrays are shared, not copied."""
        while self._drawn_s < until_s and not self._traffic.is_over(self._drawn_s):
            drawn = self._traffic.requests(self._drawn_s, self._drawn_s + self._window_s)
            self._kept |= {own.tenant: self._kept[own.tenant].then(own) for own in drawn}
            self._drawn_s += self._window_s
        return {name: own.before(until_s) for name, own in self._kept.items()}

    def let_go(self, before_s: int) -> None:
        """Forget those that arrived before."""
        self._kept = {name: own.since(before_s) for name, own in self._kept.items()}


class QueueAccounts:
    """As :class:`migrator.execution.seams.Accounts`: queues, a ledger of what came out of them, and the requests.

    Attributes:
        are_real: Whether requests really were answered, or not.
        feedback: Nothing: no client says which label was right.
    """

    def __init__(
        self,
        traffic: RecordedTraffic,
        tenants: Sequence[Tenant],
        window_s: float,
        queues: Queues,
        first_window: int = 0,
    ) -> None:
        """Requests that arrived before ``first_window`` are in no queue."""
        self._queues, self.are_real, self.feedback = queues, queues.are_real, Feedback()
        first_s = first_window * round(window_s)
        self._kept = _OpenRequests(traffic, round(window_s), first_s)
        self._window_s, self._tenants = round(window_s), [tenant.name for tenant in tenants]
        self._ledger = Ledger({tenant.name: tenant.slo_s for tenant in tenants}, window_s, first_window)
        if first_window:
            queues.begin({name: own.end for name, own in self._kept.until(first_s).items()}, first_s)

    @property
    def now_s(self) -> float:
        """How far all queues have come."""
        return self._queues.now_s

    @property
    def busy_until_s(self) -> Mapping[str, float]:
        """By server id, when the batch in service ends, where that is known."""
        return self._queues.busy_until_s

    @property
    def last_answer_s(self) -> float | None:
        """When the last answer that is under way is there; ``None`` where none is."""
        states = self._queues.states.values()
        return max((state.busy_until[server] for state in states for server in state.batches), default=None)

    @property
    def totals(self) -> Totals:
        """Everything resolved, all tenants together."""
        return self._ledger.totals

    @property
    def open_totals(self) -> Mapping[str, Totals]:
        """By tenant, those of windows that are not settled."""
        return self._ledger.open_totals

    @property
    def queues(self) -> Mapping[str, Queue]:
        """By tenant, who waits, and until when servers are busy: what a resumed run begins with."""
        return {name: _queue(state) for name, state in self._queues.states.items()}

    def in_time_shares(self, window: int) -> Mapping[str, float]:
        """By tenant, the share of the window's resolved requests that were answered in time; 1 without any."""
        return self._ledger.in_time_shares(window)

    def others_shares(self, first_s: int, end_s: int) -> Mapping[str, FloatArray]:
        """By tenant that shared lanes in these seconds, which part of them others had, ``(end_s − first_s,)``."""
        return self._queues.others_shares(first_s, end_s)

    def serve(
        self,
        servers: Mapping[str, Sequence[Server]],
        accuracies: Mapping[str, AccuracyTimeline],
        until_s: float,
        lanes: Sequence[Lane] = (),
        known_s: float = math.inf,
    ) -> None:
        """Serve all that arrives before ``until_s`` with what is there; of what comes after ``known_s`` none counts.

        ``servers`` are those that each tenant has alone, ``lanes`` those of pools.
        """
        requests = self._kept.until(until_s)
        self._ledger.add(requests, self._queues.advance(requests, servers, accuracies, until_s, lanes), known_s)

    def serve_by(
        self, kernel: Kernel, state: PoolState, accuracies: Mapping[str, AccuracyTimeline], until_s: float
    ) -> tuple[PoolState, Piece]:
        """Serve all tenants together by this kernel, up to ``until_s`` or until it stops itself."""
        requests = self._kept.until(until_s)
        state, piece = self._queues.serve_by(kernel, state, requests, accuracies, until_s)
        self._ledger.add(requests, dict(zip(requests, piece.outcomes, strict=True)))
        return state, piece

    def lose(self, tenant: str, server_ids: Iterable[str]) -> None:
        """Count as dropped what the tenant's servers had in service: they died over it."""
        state = self._queues.states.get(tenant)
        if state is None:
            return  # it has gone, and all is answered
        requests = self._kept.until(self.now_s)[tenant]
        for server_id in server_ids:
            self._ledger.lose(requests, state.in_service(server_id))

    def leave_out(self, from_s: float, to_s: float) -> None:
        """Count no request of these seconds: the GPU's state, or what answered, is unknown."""
        self._ledger.blind(from_s, to_s)

    def know(self, known_s: float) -> None:
        """Count what waited for GPU state to be confirmed up to here."""
        self._ledger.know(self._kept.until(self.now_s), known_s)

    def knows(self, until_s: float) -> bool:
        """Whether every resolved request that arrived before is counted or left out."""
        return self._ledger.knows(until_s)

    def outside(self) -> tuple[()]:
        """Nothing: requests are drawn from the first window on."""
        return ()

    def settled(self, through_window: int) -> list[SettledWindow]:
        """The windows up to ``through_window`` that have become settled since last asked, in order."""
        done = self._ledger.settled(through_window, self._kept.until(self.now_s), self._queues.states)
        if done:
            self._kept.let_go(self._ledger.settled_s)
            self._let_go()
        return done

    def change_tenants(self, tenants: Sequence[Tenant], traffic: Traffic) -> None:
        """These are the tenants from now on: who comes has requests from here on, who goes has none any more."""
        assert isinstance(traffic, RecordedTraffic)  # what is simulated is
        now_s, there = self.now_s, self._queues.states
        names = [tenant.name for tenant in tenants]
        if again := [name for name in names if name in there and name not in self._tenants]:
            raise MigratorError(f"{again[0]} left, and comes again before its last window is settled")
        self._kept.change(traffic, names, now_s, self._ledger.settled_s)
        for tenant in tenants:
            if tenant.name not in there:
                self._queues.join(tenant.name, tenant.weight, self._kept.first(tenant.name))
                self._ledger.join(tenant.name, tenant.slo_s, math.floor(now_s / self._window_s))
        self._tenants = names

    def _let_go(self) -> None:
        """Forget who has gone, once all windows that they were in are settled."""
        for name, state in self._queues.states.items():
            is_gone = name not in self._tenants and state.head == state.tail and not state.batches
            if is_gone and not self._kept.has(name):
                self._queues.leave(name)
                self._ledger.leave(name)
                self._kept.leave(name)


def _queue(state: QueueState) -> Queue:
    """How many wait, until when servers are busy, and how many batches there were."""
    waiting = state.queues.values()
    return Queue(
        waiting=sum(map(len, waiting)) if waiting else state.tail - state.head,
        busy_until_s={server_id: round(end_s, TIME_DIGITS) for server_id, end_s in sorted(state.busy_until.items())},
        batches=state.n_batches,
    )
