"""Whose turn it is where workers of several tenants share an instance: the simulation's rule for pools, live.

An instance is a *lane*: at any moment only the workers of one tenant have batches there, each one of its own. So a
process waits for no kernels but those of its own tenant. The rule is :mod:`workloads.serving.pool`'s, where it is
explained; on a virtual clock both give the same batches and drop the same requests. It holds where a pool serves, and
wherever workers of two tenants are, as while an instance passes from one to the other. Elsewhere each worker is a
server of its own: a tenant that has no others goes by :meth:`workloads.live.queues.TenantQueue.hand_out`.

A lane is free once every batch in it is answered, or its worker is gone. So a worker that hangs holds its lane, though
its requests wait for others meanwhile. A worker that is to take new weights has its lane kept for it once it is free,
and until they are loaded; that is the turn of no tenant. So is a loan: a lane that is lent is kept for a trainer, which
is none of its workers. It stays lent whichever of them leave, or join, until it is given back.
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
    workers: dict[str, list[str]] = field(default_factory=dict)  # by tenant
    sharing: set[str] = field(default_factory=set)  # workers that a pool has there
    holder: str | None = None  # whose turn was last
    kept_for: list[str] = field(default_factory=list)  # workers that are to have it before the next turn
    is_kept: bool = False  # the first of them has it
    lent_to: set[str] = field(default_factory=set)  # trainers that have it, or are to

    @property
    def has_turns(self) -> bool:
        """Whether its workers take turns, rather than each a batch whenever it is idle."""
        return bool(self.sharing or self.lent_to) or len(self.workers) > 1


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
        self._loading: list[str] = []  # workers that load where no turns are taken: who joins them waits
        self._groups = self._connected()

    def join(self, lane: str, tenant: str, worker: str, *, is_shared: bool) -> None:
        """Know that a worker, which its tenant's queue knows, computes in that lane, maybe as a pool's."""
        self._lanes.setdefault(lane, _Lane()).workers.setdefault(tenant, []).append(worker)
        self._lane_of[worker] = lane
        self.share(worker, is_shared=is_shared)

    def share(self, worker: str, *, is_shared: bool) -> None:
        """Know whether a pool has the worker from now on."""
        sharing = self._lanes[self._lane_of[worker]].sharing
        (sharing.add if is_shared else sharing.discard)(worker)
        self._groups = self._connected()

    def leave(self, tenant: str, worker: str) -> None:
        """Forget a worker; a lane without any is forgotten, too, unless it is lent."""
        name = self._lane_of.pop(worker)
        own = self._lanes[name].workers
        own[tenant].remove(worker)
        if not own[tenant]:
            del own[tenant]
        self._lanes[name].sharing.discard(worker)
        self._loading = [other for other in self._loading if other != worker]
        while worker in self._lanes[name].kept_for:
            self._release(self._lanes[name], worker)
        self._forget_if_empty(name)

    def lend(self, lane: str, loan: str) -> None:
        """Keep the lane for what is none of its workers, until it is given back; no worker may have this name."""
        self._lanes.setdefault(lane, _Lane()).lent_to.add(loan)
        self._lane_of[loan] = lane
        self.keep(loan)
        self._groups = self._connected()

    def give_back(self, loan: str) -> None:
        """Let the lane serve again, if it was lent; nothing otherwise."""
        name = self._lane_of.pop(loan, None)
        if name is None:
            return
        self._lanes[name].lent_to.remove(loan)
        self._release(self._lanes[name], loan)
        self._forget_if_empty(name)

    def _forget_if_empty(self, name: str) -> None:
        if not (self._lanes[name].workers or self._lanes[name].lent_to):
            del self._lanes[name]
        self._groups = self._connected()

    def has_turns(self, worker: str) -> bool:
        """Whether others may wait for the worker's lane."""
        return self._lanes[self._lane_of[worker]].has_turns

    def loads(self, worker: str) -> None:
        """Know that the worker, in whose lane no turns are taken, loads until it is :meth:`release`-d."""
        self._loading.append(worker)

    def keep(self, worker: str) -> None:
        """Let no turn begin in the worker's lane before it was :meth:`release`-d."""
        self._lanes[self._lane_of[worker]].kept_for.append(worker)

    def kept(self) -> list[str]:
        """Those for whom a lane is kept from now on, as it is free: workers, and loans."""
        found = list[str]()
        for lane in self._lanes.values():
            if lane.kept_for and not lane.is_kept and not self._is_busy(lane):
                lane.is_kept = True
                found.append(lane.kept_for[0])
        return found

    def release(self, worker: str) -> None:
        """Keep the worker's lane for it no longer, if it was; or know that it has loaded."""
        if worker in self._loading:
            self._loading.remove(worker)
        else:
            self._release(self._lanes[self._lane_of[worker]], worker)

    def _release(self, lane: _Lane, worker: str) -> None:
        if worker in lane.kept_for:
            lane.is_kept = lane.is_kept and lane.kept_for[0] != worker
            lane.kept_for.remove(worker)

    def _is_busy(self, lane: _Lane) -> bool:
        return any(
            self._queues[tenant].has_batch(own) or not set(own).isdisjoint(self._loading)
            for tenant, own in lane.workers.items()
        )

    def hand_out(self, now_s: float) -> list[Given]:
        """Drop what is too late, and give idle workers their batches; which worker got what."""
        given = list[Given]()
        for tenants, take_turns in self._groups:
            if take_turns:
                given += self._take_turns(tenants, now_s)
            else:
                given += self._queues[tenants[0]].hand_out(now_s)
        return given

    def _connected(self) -> list[tuple[tuple[str, ...], bool]]:
        """The tenants, those together that lanes connect, in the queues' order; and whether one takes turns."""
        group: dict[str, tuple[str, ...]] = {tenant: (tenant,) for tenant in self._queues}
        in_turns = set[str]()
        for lane in self._lanes.values():
            if lane.has_turns:
                in_turns |= lane.workers.keys()
                joined = {name for tenant in lane.workers for name in group[tenant]}
                together = tuple(tenant for tenant in self._queues if tenant in joined)
                group |= dict.fromkeys(together, together)
        return [(tenants, not in_turns.isdisjoint(tenants)) for tenants in dict.fromkeys(group.values())]

    def _lanes_of(self, tenants: Sequence[str]) -> dict[str, _Lane]:
        """Their lanes, by name, but for what is lent; where no turns are taken, each worker has one of its own."""
        found = dict[str, _Lane]()
        for name, lane in self._lanes.items():
            if lane.lent_to or lane.workers.keys().isdisjoint(tenants):
                continue
            if lane.has_turns:
                found[name] = lane
            else:
                found |= {one: _Lane({tenant: [one]}) for tenant, own in lane.workers.items() for one in own}
        return dict(sorted(found.items()))

    def _take_turns(self, tenants: Sequence[str], now_s: float) -> list[Given]:
        given = list[Given]()
        for tenant in tenants:
            self._queues[tenant].drop_expired(now_s)
        while any(self._queues[tenant].n_waiting for tenant in tenants):
            lanes = self._lanes_of(tenants)
            idle = [name for name, lane in lanes.items() if not (lane.kept_for or self._is_busy(lane))]
            if not idle:
                break
            floor = _Floor(lanes, idle, self._queues, self.worth, tenants, self._turn_cost)
            turns = [turn for tenant in tenants if (turn := floor.turn_of(tenant, now_s)) is not None]
            # Of equal deadlines the first tenant's: sorting keeps the order.
            urgent = next((one for one in sorted(turns, key=lambda one: one.due_s) if floor.may_go(one, now_s)), None)
            if urgent is None:
                break
            lane = lanes[urgent.lane]
            lane.holder = urgent.tenant
            given += self._queues[urgent.tenant].take(lane.workers[urgent.tenant], now_s)
        return given


class _Floor:
    """The state at a moment, for the lanes of tenants that they connect."""

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
