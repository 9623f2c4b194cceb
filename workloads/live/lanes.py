"""Whose turn it is where workers of several tenants share an instance: the simulation's rule for pools, live.

An instance is a *lane*: at any moment only the workers of one tenant have batches there, each one of its own. So a
process waits for no kernels but those of its own tenant. The rule is :mod:`workloads.serving.pool`'s, where it is
explained; on a virtual clock both give the same batches and drop the same requests. Workers that name no lane are
servers of their own: a tenant that has no others goes by :meth:`workloads.live.queues.TenantQueue.hand_out`.

A lane is free once every batch in it is answered, or its worker is gone. So a worker that hangs holds its lane, though
its requests wait for others meanwhile. A worker that is to take new weights has its lane kept for it once it is free,
and until they are loaded; that is the turn of no tenant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from workloads.live.queues import Held, Service, TenantQueue

Given = tuple[str, list[Held]]
"""A worker, and the requests that it is to answer."""


@dataclass(slots=True)
class _Lane:
    is_pools: bool  # not one worker's own
    workers: dict[str, list[str]] = field(default_factory=dict)  # by tenant
    holder: str | None = None  # whose turn was last
    kept_for: list[str] = field(default_factory=list)  # workers that are to have it before the next turn
    is_kept: bool = False  # the first of them has it


@dataclass(frozen=True, slots=True)
class _Turn:
    """What would be a tenant's next turn on an idle lane."""

    tenant: str
    lane: str
    due_s: float
    takes_s: float


class Lanes:
    """All lanes, and the queues of the tenants that are served there.

    Attributes:
        worth: By tenant, what a request that is answered in time is worth: its weight × the accuracy in service.
    """

    def __init__(self, queues: Mapping[str, TenantQueue], turn_cost: float = 0.0) -> None:
        """``turn_cost`` is the share by which a turn lasts longer that follows another tenant's."""
        self.worth = dict.fromkeys(queues, 1.0)
        self._queues, self._turn_cost = queues, turn_cost
        self._lanes: dict[str, _Lane] = {}
        self._lane_of: dict[str, str] = {}
        self._groups = self._connected()

    def join(self, lane: str, tenant: str, worker: str) -> None:
        """Know that a worker, which its tenant's queue knows, computes in that lane of a pool; "": by itself.

        Raises:
            ValueError: The lane is the worker's, or another worker's, own one.
        """
        name = lane or worker
        if self._lanes.get(name, _Lane(bool(lane))).is_pools != bool(lane):
            raise ValueError(f"worker {worker}: {name} is a lane and a worker")
        self._lanes.setdefault(name, _Lane(bool(lane))).workers.setdefault(tenant, []).append(worker)
        self._lane_of[worker] = name
        self._groups = self._connected()

    def leave(self, tenant: str, worker: str) -> None:
        """Forget a worker; a lane without any is forgotten, too."""
        name = self._lane_of.pop(worker)
        own = self._lanes[name].workers
        own[tenant].remove(worker)
        if not own[tenant]:
            del own[tenant]
        while worker in self._lanes[name].kept_for:
            self._release(self._lanes[name], worker)
        if not own:
            del self._lanes[name]
        self._groups = self._connected()

    def is_pooled(self, worker: str) -> bool:
        """Whether others may wait for the worker's lane."""
        return self._lanes[self._lane_of[worker]].is_pools

    def keep(self, worker: str) -> None:
        """Let no turn begin in the worker's lane before it was :meth:`release`-d."""
        self._lanes[self._lane_of[worker]].kept_for.append(worker)

    def kept(self) -> list[str]:
        """Those for whom a lane is kept from now on, as it is free."""
        found = list[str]()
        for lane in self._lanes.values():
            if lane.kept_for and not lane.is_kept and not self._is_busy(lane):
                lane.is_kept = True
                found.append(lane.kept_for[0])
        return found

    def release(self, worker: str) -> None:
        """Keep the worker's lane for it no longer, if it was."""
        self._release(self._lanes[self._lane_of[worker]], worker)

    def _release(self, lane: _Lane, worker: str) -> None:
        if worker in lane.kept_for:
            lane.is_kept = lane.is_kept and lane.kept_for[0] != worker
            lane.kept_for.remove(worker)

    def _is_busy(self, lane: _Lane) -> bool:
        return any(self._queues[tenant].has_batch(own) for tenant, own in lane.workers.items())

    def hand_out(self, now_s: float) -> list[Given]:
        """Drop what is too late, and give idle workers their batches; which worker got what."""
        given = list[Given]()
        for tenants, are_pooled in self._groups:
            if are_pooled:
                given += self._take_turns(tenants, now_s)
            else:
                given += self._queues[tenants[0]].hand_out(now_s)
        return given

    def _connected(self) -> list[tuple[tuple[str, ...], bool]]:
        """The tenants, those together that lanes connect, in the queues' order; and whether one is a pool's."""
        group: dict[str, tuple[str, ...]] = {tenant: (tenant,) for tenant in self._queues}
        pooled = set[str]()
        for lane in self._lanes.values():
            if lane.is_pools:
                pooled |= lane.workers.keys()
                joined = {name for tenant in lane.workers for name in group[tenant]}
                together = tuple(tenant for tenant in self._queues if tenant in joined)
                group |= dict.fromkeys(together, together)
        return [(tenants, not pooled.isdisjoint(tenants)) for tenants in dict.fromkeys(group.values())]

    def _is_of(self, lane: str, tenants: Sequence[str]) -> bool:
        return not self._lanes[lane].workers.keys().isdisjoint(tenants)

    def _take_turns(self, tenants: Sequence[str], now_s: float) -> list[Given]:
        given = list[Given]()
        for tenant in tenants:
            self._queues[tenant].drop_expired(now_s)
        while any(self._queues[tenant].n_waiting for tenant in tenants):
            lanes = {name: self._lanes[name] for name in sorted(self._lanes) if self._is_of(name, tenants)}
            idle = [name for name, lane in lanes.items() if not (lane.kept_for or self._is_busy(lane))]
            if not idle:
                break
            floor = _Floor(lanes, idle, self._queues, self.worth, tenants, self._turn_cost)
            turns = [turn for tenant in tenants if (turn := floor.turn_of(tenant, now_s)) is not None]
            # Of equal deadlines the first tenant's: sorting keeps the order.
            urgent = next((one for one in sorted(turns, key=lambda one: one.due_s) if floor.may_go(one, now_s)), None)
            if urgent is None:
                break
            lane = self._lanes[urgent.lane]
            lane.holder = urgent.tenant
            given += self._queues[urgent.tenant].take(lane.workers[urgent.tenant], now_s)
        return given


class _Floor:
    """How things stand at a moment, for the lanes of tenants that they connect."""

    def __init__(
        self,
        lanes: Mapping[str, _Lane],
        idle: Sequence[str],
        queues: Mapping[str, TenantQueue],
        worth: Mapping[str, float],
        tenants: Sequence[str],
        turn_cost: float,
    ) -> None:
        self._lanes, self._idle = lanes, idle
        self._queues, self._turn_cost = queues, turn_cost
        self._services: dict[str, dict[str, Service]] = {}
        for name, lane in self._lanes.items():
            services = ((tenant, queues[tenant].service(workers)) for tenant, workers in lane.workers.items())
            self._services[name] = {tenant: service for tenant, service in services if service is not None}
        rates_rps: dict[str, list[float]] = {tenant: [] for tenant in tenants}
        for services_here in self._services.values():
            for tenant, service in services_here.items():
                rates_rps[tenant].append(service.rate_rps)
        self._all_rps = {tenant: sum(own) for tenant, own in rates_rps.items()}
        self._worth = {tenant: worth[tenant] * max(own, default=0.0) for tenant, own in rates_rps.items()}

    def turn_of(self, tenant: str, now_s: float) -> _Turn | None:
        """The tenant's turn on the idle lane on which it would take least, once what is hopeless there is dropped."""
        queue, best = self._queues[tenant], None
        for name in self._idle if queue.n_waiting else ():
            if tenant in self._services[name]:
                takes_s = self._takes_s(name, tenant, queue.n_waiting)
                best = (takes_s, name) if best is None or takes_s < best[0] else best
        if best is None:
            return None
        _, name = best
        queue.drop_hopeless(lambda n_waiting: self._takes_s(name, tenant, n_waiting), now_s)
        if not queue.n_waiting:
            return None
        return _Turn(tenant, name, queue.next_deadline_s, self._takes_s(name, tenant, queue.n_waiting))

    def may_go(self, turn: _Turn, now_s: float) -> bool:
        """Whether all tenants of more worth on its lane can wait until the turn is over."""
        drained_s = 0.0
        for tenant in self._by_deadline:
            service = self._services[turn.lane].get(tenant)
            if service is not None and self._worth[tenant] > self._worth[turn.tenant]:
                n_waiting, due_s = self._queues[tenant].n_waiting, self._queues[tenant].next_deadline_s
                n_full, rest = divmod(n_waiting, service.limit)
                alone_s = n_full * service.latency_s[service.limit] + service.latency_s[rest]
                drained_s += alone_s / (self._all_rps[tenant] / service.rate_rps)
                drained_s += self._turn_cost * service.latency_s[min(n_waiting, service.limit)]
                if now_s + turn.takes_s + drained_s > due_s:
                    return False
        return True

    @cached_property
    def _by_deadline(self) -> list[str]:
        """Those for whom requests wait, by the oldest's deadline; to be asked for when no more will be dropped."""
        waiting = [tenant for tenant in self._worth if self._queues[tenant].n_waiting]
        return sorted(waiting, key=lambda tenant: self._queues[tenant].next_deadline_s)

    def _takes_s(self, lane: str, tenant: str, n_waiting: int) -> float:
        service, holder = self._services[lane][tenant], self._lanes[lane].holder
        longer = 1.0 if holder in (None, tenant) else 1.0 + self._turn_cost
        return service.latency_s[min(n_waiting, service.limit)] * longer
