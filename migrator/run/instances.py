"""Carries a plan's changes out on a GPU, and keeps the timeline of servers that results.

The order of one change: workers that end take no new batch; each is left to finish the batch in
service; instances are destroyed, then created, one driver call after the other; workers start in
the new ones. When something serves follows from the clock, never from the plan's promise; the
difference is in the outcome as ``late_s``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, assert_never

from executor.clock import Clock
from executor.gpu import Gpu, GpuInstance
from executor.mig import OwnedLayout, Placement
from executor.transition import owned_transition
from migrator.run.changes import Change
from planner.problem import Owner, Task
from workloads.serving.requests import Server
from workloads.tenants import Tenant

NEVER_S = float("inf")


class Workers(Protocol):
    """Starts and stops the worker processes inside GPU instances."""

    def start(self, instance: GpuInstance, owner: Owner, begin_s: float, n_at_once: int) -> float:
        """Start the owner's workers at ``begin_s``, with ``n_at_once`` instances starting; when they are ready."""
        ...

    def stop(self, instance: GpuInstance, owner: Owner) -> None:
        """End the owner's workers, which must be idle."""
        ...


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One creation or destruction of a GPU instance, in seconds of the run."""

    call: Literal["create", "destroy"]
    placement: Placement
    gi_id: int
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Started:
    """A task that got an instance: its slices are taken from ``begin_s``; it serves, or trains, from ``ready_s``.

    The last ``library_s`` + ``model_s`` seconds before ``ready_s`` its worker loaded libraries, then the model.
    """

    instance_id: str
    placement: Placement
    owner: Owner
    begin_s: float
    ready_s: float
    late_s: float
    finish_s: float | None
    library_s: float = 0.0
    model_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task that lost its instance: its last batch began before ``end_s``, ended by ``drained_s``."""

    instance_id: str
    placement: Placement
    owner: Owner
    end_s: float
    drained_s: float
    gone_s: float


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What one change did: when it was due and when it began, its driver calls, and who started and stopped."""

    planned_s: float
    begin_s: float
    calls: tuple[DriverCall, ...] = ()
    started: tuple[Started, ...] = ()
    stopped: tuple[Stopped, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing had to be done."""
        return not (self.started or self.stopped)


@dataclass(frozen=True, slots=True)
class _Live:
    """An instance in use; ``finish_s`` is when its retraining is done, ``None`` for inference."""

    instance_id: str
    gpu_instance: GpuInstance
    owner: Owner
    servers: tuple[Server, ...]
    finish_s: float | None

    @property
    def placement(self) -> Placement:
        """Where the instance sits."""
        return self.gpu_instance.placement


@dataclass(frozen=True, slots=True)
class _Claim:
    """A GPU instance for a new owner: slices taken from ``taken_s``, worker may start at ``free_s``."""

    instance: GpuInstance
    owner: Owner
    taken_s: float
    free_s: float


class Applier:
    """Owns what happens on one GPU: the instances in use, their owners and their servers."""

    def __init__(self, gpu: Gpu, clock: Clock, workers: Workers, tenants: Mapping[str, Tenant]) -> None:
        self._gpu = gpu
        self._clock = clock
        self._workers = workers
        self._tenants = tenants
        self._live: dict[Placement, _Live] = {}
        self._retired: list[Server] = []
        self._n_started = 0

    @property
    def now_s(self) -> float:
        """The clock's time; the applier is busy with driver calls until then."""
        return self._clock.now_s

    @property
    def layout(self) -> OwnedLayout[Owner]:
        """Who holds what now."""
        return OwnedLayout.of((placement, live.owner) for placement, live in self._live.items())

    def servers(self, tenant: str, since_s: float = -NEVER_S) -> tuple[Server, ...]:
        """The tenant's servers: those in use, and those that ended after ``since_s``."""
        current = (server for live in self._live.values() for server in live.servers)
        retired = (server for server in self._retired if server.end_s > since_s)
        return tuple(server for server in (*retired, *current) if server.tenant == tenant)

    @property
    def serving_from_s(self) -> tuple[tuple[Placement, str, float], ...]:
        """Of each instance that serves or starts to: where it is, whose, and when it is ready; by placement."""
        lives = sorted(self._live.values(), key=lambda live: live.placement.sort_key)
        return tuple((live.placement, live.owner.tenant, live.servers[0].ready_s) for live in lives if live.servers)

    def begin_s(self, change: Change) -> float:
        """When the change can begin: when it is due, the driver free, and every retraining done that it ends.

        A retraining that takes longer than planned is neither killed nor moved. The whole change waits for it, so
        that nobody stops serving for instances that cannot be created yet.
        """
        finishes = [self._live[placement].finish_s for placement in self._leaving(change)]
        return max(change.planned_s, self._clock.now_s, *(finish_s for finish_s in finishes if finish_s is not None))

    def apply(self, change: Change, busy_until_s: Mapping[str, float], not_before_s: float = -NEVER_S) -> ChangeOutcome:
        """Carry the change out; the clock then stands behind its last driver call.

        ``busy_until_s`` tells, by server id, until when a batch is in service as of the beginning: :meth:`begin_s`,
        or ``not_before_s`` if that is later.

        Raises:
            GpuError: The driver refused a call; what was done before stays done and is lost to the outcome.
        """
        self._clock.sleep_until(max(self.begin_s(change), not_before_s))
        begin_s = self._clock.now_s
        step = owned_transition(self.layout, change.layout)
        calls: list[DriverCall] = []
        claims: list[_Claim] = []
        stopped: list[Stopped] = []
        promised = dict(change.promised_s)
        for live, drained_s in self._close(self._leaving(change), begin_s, busy_until_s):
            self._clock.sleep_until(drained_s)
            self._workers.stop(live.gpu_instance, live.owner)
            heir = change.layout.owner(live.placement)
            if heir is None:
                calls.append(self._destroy(live.gpu_instance))
            else:
                claims.append(_Claim(live.gpu_instance, heir, self._clock.now_s, self._clock.now_s))
            stopped.append(Stopped(live.instance_id, live.placement, live.owner, begin_s, drained_s, self._clock.now_s))
        for placement, owner in step.created:
            claim, call = self._create(placement, owner)
            claims.append(claim)
            calls.append(call)
        started = [self._start(claim, len(claims), promised[claim.instance.placement]) for claim in claims]
        return ChangeOutcome(change.planned_s, begin_s, tuple(calls), tuple(started), tuple(stopped))

    def _leaving(self, change: Change) -> list[Placement]:
        """Where the change ends what runs in an instance."""
        step, begun = owned_transition(self.layout, change.layout), {placement for placement, _ in change.promised_s}
        leaving = [placement for placement, _ in step.destroyed] + [item.placement for item in step.handed_over]
        # A retraining may begin where the tenant's last one has just ended: the instance stays, the worker is new.
        return leaving + [p for p, _ in step.kept if self._live[p].finish_s is not None and p in begun]

    def _close(
        self, placements: Iterable[Placement], now_s: float, busy_until_s: Mapping[str, float]
    ) -> list[tuple[_Live, float]]:
        """Take the instances out of use at ``now_s``; each with the time at which it is idle, earliest first."""
        closed = []
        for placement in placements:
            live = self._live.pop(placement)
            self._retired.extend(replace(server, end_s=now_s) for server in live.servers)
            busy = [busy_until_s.get(server.server_id, now_s) for server in live.servers]
            closed.append((live, max([now_s, live.finish_s or now_s, *busy])))
        return sorted(closed, key=lambda item: (item[1], item[0].placement.sort_key))

    def _destroy(self, instance: GpuInstance) -> DriverCall:
        begin_s = self._clock.now_s
        self._gpu.destroy(instance.gi_id)
        return DriverCall("destroy", instance.placement, instance.gi_id, begin_s, self._clock.now_s)

    def _create(self, placement: Placement, owner: Owner) -> tuple[_Claim, DriverCall]:
        begin_s = self._clock.now_s
        instance = self._gpu.create(placement)
        end_s = self._clock.now_s
        call = DriverCall("create", placement, instance.gi_id, begin_s, end_s)
        return _Claim(instance, owner, begin_s, end_s), call

    def _start(self, claim: _Claim, n_at_once: int, promised_s: float) -> Started:
        placement, owner, tenant = claim.instance.placement, claim.owner, self._tenants[claim.owner.tenant]
        ready_s = self._workers.start(claim.instance, owner, claim.free_s, n_at_once)
        self._n_started += 1
        instance_id = f"{placement}#{self._n_started}"
        servers: tuple[Server, ...] = ()
        finish_s: float | None = None
        match owner.task:
            case Task.INFERENCE:
                start_up = tenant.worker_start
                servers = _servers_of(tenant, placement, instance_id, ready_s)
            case Task.RETRAINING:
                start_up = tenant.trainer_start
                finish_s = ready_s + tenant.retraining_time_s[placement.profile.name]
            case _:
                assert_never(owner.task)
        self._live[placement] = _Live(instance_id, claim.instance, owner, servers, finish_s)
        late_s = max(0.0, ready_s - promised_s)
        phases_s = start_up.phases_s(ready_s - claim.free_s)
        return Started(instance_id, placement, owner, claim.taken_s, ready_s, late_s, finish_s, *phases_s)


def _servers_of(tenant: Tenant, placement: Placement, instance_id: str, ready_s: float) -> tuple[Server, ...]:
    """One server for each process that the operating point runs in the instance."""
    point = tenant.operating_points[placement.profile.name]
    return tuple(
        Server(
            tenant=tenant.name,
            server_id=f"{instance_id}/{process}",
            ready_s=ready_s,
            end_s=NEVER_S,
            latency=point.latency,
            batch_limit=point.batch,
        )
        for process in range(point.processes)
    )
