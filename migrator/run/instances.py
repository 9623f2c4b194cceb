"""MIG instances: a plan's lifetimes become changes of the layout, and an :class:`Applier` carries them out.

The order of one change: workers that end take no new batch, but finish the one in service. Instances are destroyed,
then created, one driver call after the other. A worker starts in each as soon as the instance is free. When something
serves follows from what its worker says, never from the plan's promise; the difference is logged as ``late_ready_s``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, assert_never

from executor.clock import Clock
from executor.errors import GpuError
from executor.gpu import Gpu, GpuInstance
from executor.mig import OwnedLayout, Placement
from executor.transition import OwnedTransition, owned_transition
from forecaster.forecast import Forecast
from migrator.run import events
from migrator.run.changes import Change, ChangeOutcome, Died, DriverCall, Started, Stopped, changes_of
from migrator.run.planning import (
    Opening,
    PlannedWindow,
    Solving,
    plan_rest,
    plan_window,
    require_plan,
    state_of,
    without_retrainings,
)
from migrator.run.requests import Queues
from migrator.run.seams import Failed, Finished, Happening, Lost, Note, Ready, Trained, Workers
from migrator.setting import Setting
from planner.problem import Owner, PhysicalState, Task
from workloads.serving.requests import AccuracyTimeline, Outcomes, QueueState, Requests, Server
from workloads.tenants import Tenant

NEVER_S = math.inf

MAX_STARTS = 3
"""How often a serving worker is started in a row without getting ready; then its instance is left as it is."""


@dataclass(eq=False)
class _Live:
    """An instance in use.

    Attributes:
        started: Who got it, and what the plan promises of it.
        gpu_instance: On the GPU.
        window: In which it was started.
        expected_s: When its worker is ready if the start takes as long as planned.
        servers: Those that serve; none until the worker is ready.
        is_over: Whether nothing runs in it any more: its retraining has ended or failed, or its worker was given up.
        has_failed: Whether its worker died since it was last ready.
        n_starts: Starts of its worker since it was last ready.
    """

    started: Started
    gpu_instance: GpuInstance
    window: int
    expected_s: float
    servers: tuple[Server, ...] = ()
    is_over: bool = False
    has_failed: bool = False
    n_starts: int = 1

    @property
    def instance_id(self) -> str:
        """Unique over the run."""
        return self.started.instance_id

    @property
    def owner(self) -> Owner:
        """Whose task."""
        return self.started.owner

    @property
    def placement(self) -> Placement:
        """Where the instance sits."""
        return self.started.placement

    @property
    def is_inference(self) -> bool:
        """Whether it serves, rather than trains."""
        return self.owner.task is Task.INFERENCE

    @property
    def holds_up(self) -> bool:
        """Whether a retraining is under way in it, which no change may end."""
        return not self.is_inference and not self.is_over

    @property
    def has_worker(self) -> bool:
        """Whether a worker is in it, idle ones too: not after a failure after which it was not started again."""
        return not (self.has_failed and self.is_over)


class Applier:
    """Owns what happens on one GPU: the instances in use, their owners and their servers."""

    def __init__(self, gpu: Gpu, clock: Clock, workers: Workers, tenants: Mapping[str, Tenant]) -> None:
        self._gpu = gpu
        self._clock = clock
        self._workers = workers
        self._tenants = tenants
        self._live: dict[Placement, _Live] = {}
        self._failed_retrainings: set[Owner] = set()
        self._n_started = 0

    @property
    def now_s(self) -> float:
        """The clock's time; the applier is busy with driver calls until then."""
        return self._clock.now_s

    @property
    def layout(self) -> OwnedLayout[Owner]:
        """Who holds what now."""
        return OwnedLayout.of((placement, live.owner) for placement, live in self._live.items())

    @property
    def servers(self) -> Mapping[str, Sequence[Server]]:
        """By tenant, what serves now."""
        found: dict[str, list[Server]] = {}
        for live in self._live.values():
            if live.servers:
                found.setdefault(live.owner.tenant, []).extend(live.servers)
        return found

    def serving_from_s(self, now_s: float) -> tuple[tuple[Placement, str, float], ...]:
        """Of each instance that serves or starts to: where it is, whose, and when it is or should be ready."""
        lives = sorted(self._live.values(), key=lambda live: live.placement.sort_key)
        return tuple(
            (live.placement, live.owner.tenant, self._expected_s(live, now_s))
            for live in lives
            if live.is_inference and not live.is_over
        )

    def has_strayed(self, now_s: float) -> bool:
        """Whether a serving worker failed and is not back, or is not ready though the plan lets it serve by now."""
        serving = [live for live in self._live.values() if live.is_inference]
        return any(live.has_failed or (not live.servers and live.started.promised_s <= now_s) for live in serving)

    @property
    def failed_retrainings(self) -> frozenset[Owner]:
        """Those whose last retraining died before it was done, whether or not it still holds its instance."""
        return frozenset(self._failed_retrainings)

    def live(self, instance_id: str) -> _Live | None:
        """The instance of that id, if it is in use."""
        return next((live for live in self._live.values() if live.instance_id == instance_id), None)

    def is_blocked(self, change: Change) -> bool:
        """Whether the change would end a retraining that is not done.

        A retraining that takes longer than planned is neither killed nor moved, until :meth:`give_up`. The whole change
        waits for it, so that no instance stops serving for one that cannot be created yet.
        """
        leaving = self._leaving(owned_transition(self.layout, change.layout), change)
        return any(self._live[placement].holds_up for placement in leaving)

    def apply(self, change: Change, window: int, busy_until_s: Mapping[str, float], note: Note) -> ChangeOutcome:
        """Carry the change out; the clock then stands behind its last driver call.

        ``busy_until_s`` says, by server id, until when a batch is in service. Each driver call is noted before it is
        made and after it. A call that the driver refuses ends the change; what was done before stays done.
        """
        begin_s = self._clock.now_s
        step = owned_transition(self.layout, change.layout)
        doing = _Doing(window, note, dict(change.promised_s))
        try:
            self._carry_out(step, change, busy_until_s, doing)
        except GpuError as error:
            doing.error = error
        calls, started, stopped = tuple(doing.calls), tuple(doing.started), tuple(doing.stopped)
        return ChangeOutcome(change.planned_s, begin_s, calls, started, stopped, tuple(doing.died), doing.error)

    def ready(self, live: _Live, happening: Ready) -> None:
        """The instance's worker serves, or trains."""
        live.n_starts, live.has_failed = 0, False
        live.expected_s = happening.at_s
        if live.is_inference:
            live.servers = _servers_of(self._tenants[live.owner.tenant], live, happening.at_s)

    def failed(self, live: _Live) -> None:
        """The instance's worker is gone: one that served is started again, a few times in a row at most."""
        live.servers, live.has_failed = (), True
        if not live.is_inference and not live.is_over:
            self._failed_retrainings.add(live.owner)
        if not live.is_inference or live.n_starts >= MAX_STARTS:
            live.is_over = True
            return
        live.n_starts += 1
        live.expected_s = self._start(live, 1)

    def give_up(self, window: int) -> list[_Live]:
        """Stop the retrainings that began two windows before this one or earlier and are not done.

        A trainer that hangs would hold up every change for ever.
        """
        overdue = [live for live in self._live.values() if live.holds_up and live.window < window - 1]
        for live in overdue:
            self._workers.stop(live.instance_id)
            self.failed(live)
        return overdue

    def _expected_s(self, live: _Live, now_s: float) -> float:
        """When it is ready; one that should be ready by now and is not takes another start from now on."""
        if live.servers or live.expected_s >= now_s:
            return live.expected_s
        return now_s + self._tenants[live.owner.tenant].worker_start.planned_s(1)

    def _leaving(self, step: OwnedTransition[Owner], change: Change) -> list[Placement]:
        """Where the change ends what runs in an instance."""
        leaving = [placement for placement, _ in step.destroyed] + [item.placement for item in step.handed_over]
        begun = {placement for placement, _ in change.promised_s}
        # A retraining may begin where the tenant's last one has just ended, and what was given up may be tried again:
        # the instance stays, the worker is new.
        return leaving + [p for p, _ in step.kept if p in begun and self._has_new_worker(self._live[p])]

    def _has_new_worker(self, live: _Live) -> bool:
        return live.is_over or not live.is_inference

    def _carry_out(
        self, step: OwnedTransition[Owner], change: Change, busy_until_s: Mapping[str, float], doing: _Doing
    ) -> None:
        begin_s = self._clock.now_s
        leaving = self._leaving(step, change)
        heirs = {placement: owner for placement in leaving if (owner := change.layout.owner(placement)) is not None}
        n_at_once = len(heirs) + len(step.created)
        for live, drained_s in self._close(leaving, begin_s, busy_until_s):
            self._clock.sleep_until(drained_s)
            failure = self._workers.stop(live.instance_id) if live.has_worker else None
            if failure is not None:
                server_ids = tuple(server.server_id for server in live.servers)
                doing.died.append(Died(live.started, server_ids, failure.at_s, failure.reason))
            heir = heirs.get(live.placement)
            if heir is None:
                self._destroy(live.gpu_instance, doing)
            gone_s = self._clock.now_s
            doing.stopped.append(Stopped(live.instance_id, live.placement, live.owner, begin_s, drained_s, gone_s))
            if heir is not None:
                self._hand(live.gpu_instance, heir, gone_s, n_at_once, doing)
        for placement, owner in step.created:
            taken_s = self._clock.now_s
            self._hand(self._create(placement, doing), owner, taken_s, n_at_once, doing)

    def _close(
        self, placements: Iterable[Placement], now_s: float, busy_until_s: Mapping[str, float]
    ) -> list[tuple[_Live, float]]:
        """Take the instances out of use at ``now_s``; each with the time at which it is idle, earliest first."""
        closed = []
        for placement in placements:
            live = self._live.pop(placement)
            busy = [busy_until_s.get(server.server_id, now_s) for server in live.servers]
            closed.append((live, max([now_s, *busy])))
        return sorted(closed, key=lambda item: (item[1], item[0].placement.sort_key))

    def _destroy(self, instance: GpuInstance, doing: _Doing) -> None:
        with _Call(self._clock, doing, "destroy", instance.placement, instance.gi_id):
            self._gpu.destroy(instance.gi_id)

    def _create(self, placement: Placement, doing: _Doing) -> GpuInstance:
        with _Call(self._clock, doing, "create", placement, None) as call:
            instance = self._gpu.create(placement)
            call.gi_id = instance.gi_id
        return instance

    def _hand(self, instance: GpuInstance, owner: Owner, taken_s: float, n_at_once: int, doing: _Doing) -> None:
        """Give the instance, which is free, to its new owner."""
        self._n_started += 1
        placement = instance.placement
        promised_s = doing.promised_s.get(placement, self._clock.now_s)
        started = Started(f"{placement}#{self._n_started}", placement, owner, taken_s, promised_s)
        live = _Live(started, instance, doing.window, promised_s)
        self._live[placement] = live
        self._failed_retrainings.discard(owner)
        doing.started.append(started)
        live.expected_s = self._start(live, n_at_once)

    def _start(self, live: _Live, n_at_once: int) -> float:
        """Start the instance's worker; when it is ready if that takes as long as planned."""
        tenant = self._tenants[live.owner.tenant]
        self._workers.start(live.instance_id, live.gpu_instance, live.owner, n_at_once)
        start_up = tenant.worker_start if live.is_inference else tenant.trainer_start
        return self._clock.now_s + start_up.planned_s(n_at_once)


@dataclass(eq=False)
class _Doing:
    """What a change in progress has done so far."""

    window: int
    note: Note
    promised_s: Mapping[Placement, float]
    calls: list[DriverCall] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    died: list[Died] = field(default_factory=list)
    error: GpuError | None = None


class _Call:
    """A driver call in progress: noted before it is made, and after it with what came of it."""

    def __init__(
        self, clock: Clock, doing: _Doing, call: Literal["create", "destroy"], placement: Placement, gi_id: int | None
    ) -> None:
        self._clock, self._doing, self._call, self._placement = clock, doing, call, placement
        self.gi_id = gi_id

    def __enter__(self) -> Self:
        self._begin_s = self._clock.now_s
        fields = events.intent(self._doing.window, self._call, self._placement, self.gi_id)
        self._intent = self._doing.note("intent", fields)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and not isinstance(error, GpuError):
            return  # interrupted: what came of the call is not known
        end_s = self._clock.now_s
        fields = events.outcome(self._doing.window, self._intent, self.gi_id, self._begin_s, end_s, error)
        self._doing.note("outcome", fields)
        if error is None and self.gi_id is not None:
            self._doing.calls.append(DriverCall(self._call, self._placement, self.gi_id, self._begin_s, end_s))


def _servers_of(tenant: Tenant, live: _Live, ready_s: float) -> tuple[Server, ...]:
    """One server for each process that the operating point runs in the instance."""
    point = tenant.operating_points[live.placement.profile.name]
    return tuple(
        Server(
            tenant=tenant.name,
            server_id=f"{live.instance_id}/{process}",
            ready_s=ready_s,
            end_s=NEVER_S,
            latency=point.latency,
            batch_limit=point.batch,
        )
        for process in range(point.processes)
    )


@dataclass(frozen=True)
class Backend:
    """One GPU, simulated or real, with its clock and its workers; the clock shows seconds of the run."""

    gpu: Gpu
    clock: Clock
    workers: Workers


class Instances:
    """Sharing by MIG: window by window a plan, and its changes carried out in order.

    A change that the driver's work, or a late retraining, pushes past the window's end is left out, and so are those
    after it: the next window is planned from what really stands. What follows a change that was held up by a retraining
    keeps its distance to it, up to the least one between changes of the held set, so that instances started ahead are
    ready when what they replace is dropped.
    """

    kind = "instances"

    def __init__(
        self,
        setting: Setting,
        backend: Callable[[float], Backend],
        queues: Queues,
        tenants: Mapping[str, Tenant],
        solving: Solving,
    ) -> None:
        """``backend`` is called once, with the second of the run at which its clock is to stand; below 0.

        ``tenants`` are those that run: their retrainings take what they take, not what is estimated.
        """
        self._setting, self._open_backend, self._queues = setting, backend, queues
        self._tenants, self._solving = tenants, solving
        self._names = [tenant.name for tenant in setting.tenants]
        self._opening: Opening | None = None
        self._planned: PlannedWindow | None = None
        self._due: deque[Change] = deque()
        self._free_s = -NEVER_S
        self._held_up: ChangeOutcome | None = None
        self._heard: list[Happening] = []
        self._window_end_s = 0.0

    @property
    def now_s(self) -> float:
        """The run's clock."""
        return self._applier.now_s

    @property
    def layout(self) -> OwnedLayout[Owner]:
        """Who holds which instance."""
        return self._applier.layout

    @property
    def queues(self) -> Sequence[QueueState]:
        """How the requests of each tenant stand."""
        return self._queues.states

    def plan(self, opening: Opening, forecast: Forecast) -> PlannedWindow:
        """The window's plan, from what stands.

        Raises:
            InfeasibleError: Window 0 has no plan, so there is no layout to keep. Where it has one that breaks a rule,
                a fixed layout takes its place.
            PlannerError: The policy cannot answer.
        """
        planned = plan_window(self._setting, opening, forecast, self._state(opening.window), self._solving)
        if opening.window == 0:
            if not planned.plan.lifetimes:
                require_plan(planned)
            # The first layout goes up before second 0; the clock starts early enough for all of it.
            backend = self._open_backend(-planned.problem.epoch_steps * self._setting.config.step_s)
            self._workers = backend.workers
            self._applier = Applier(backend.gpu, backend.clock, backend.workers, self._tenants)
        return planned

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:  # noqa: ARG002
        """Take up the window's plan; its first layout stands before second 0."""
        assert planned is not None
        config = self._setting.config
        if opening.window == 0:
            self._bring_up(planned, note)
        self._window_end_s = (opening.window + 1) * config.window_s
        self._opening = opening
        for live in self._applier.give_up(opening.window):
            reason = "not done by the end of the window after its own; given up"
            note("failed", events.failed(opening.window, live.started, self.now_s, reason))
        self._follow(planned, opening.window * config.window_s + planned.plan_from_step * config.step_s)

    def wait(self, until_s: float) -> float:
        """The next change's moment, or that of what happens before it."""
        due_s = self._due_s()
        if due_s > self._queues.now_s or not self._applier.is_blocked(self._due[0]):
            until_s = min(until_s, due_s)
        self._heard = list(self._workers.happenings(until_s))
        return max(self._heard[0].at_s if self._heard else until_s, self._queues.now_s)

    def serve(
        self, requests: Sequence[Requests], accuracies: Sequence[AccuracyTimeline], until_s: float
    ) -> tuple[float, Sequence[Outcomes]]:
        """Serve with the instances that are ready."""
        return until_s, self._queues.advance(requests, self._applier.servers, accuracies, until_s)

    def act(self, now_s: float, note: Note) -> Iterator[Trained | Lost]:
        """Tell what happened, then make the changes that are due."""
        for happening in self._heard:
            yield from self._hear(happening, note)
        self._heard = []
        # The clock may still be behind: before second 0, workers get ready while no request is served.
        while min(now_s, self.now_s) >= self._due_s() and not self._applier.is_blocked(self._due[0]):
            yield from self._make(self._due.popleft(), note)

    def revise(self, seen: Opening, forecast_from: Callable[[int], Forecast], reason: str, note: Note) -> bool:
        """Plan the window anew from the next step that has not begun; not while a change that is due waits.

        A retraining that failed is offered again. The old plan stays in force where there is no new one.
        """
        assert self._planned is not None
        planned, step_s = self._planned, self._setting.config.step_s
        # Not the step that begins now: its changes have been made.
        step = math.floor((self._queues.now_s - self._plan_s) / step_s + 1e-9) + 1
        from_s = self._plan_s + step * step_s
        is_followed = self._held_up is None and not (self._due and self._due[0].planned_s < from_s)
        if not 0 < step < planned.problem.n_steps or not is_followed:
            return False
        standing = state_of(self._applier.serving_from_s(from_s), from_s, step_s)
        followed = without_retrainings(planned, self._applier.failed_retrainings)
        forecast = forecast_from(planned.plan_from_step + step)
        revised = plan_rest(self._setting, seen, followed, forecast, step, standing, self._solving)
        if not revised.is_planned:
            return False
        note("plan_revised", events.plan_revised(revised, reason))
        self._follow(revised, from_s)
        return True

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:  # noqa: ARG002
        """Always ``None``: the log's instances show it."""
        return {}

    def _state(self, window: int) -> PhysicalState | None:
        """What a window starts from: what the last plan promises, if it was carried out in full, else what stands."""
        if self._planned is None:
            return None
        start_s = window * self._setting.config.window_s
        if not self._due and not self._applier.has_strayed(start_s):
            return self._planned.next_state
        return state_of(self._applier.serving_from_s(start_s), start_s, self._setting.config.step_s)

    def _follow(self, planned: PlannedWindow, plan_s: float) -> None:
        """From now on carry this plan out; its step 0 is at ``plan_s``."""
        self._planned, self._plan_s = planned, plan_s
        self._due = deque(changes_of(planned.plan, plan_s, self._setting.config.step_s))
        self._held_up = None
        self._look_ahead()

    def _look_ahead(self) -> None:
        """From when on the next change is held up, if it does not begin: it is due and the driver is free."""
        self._free_s = max(self._due[0].planned_s, self._applier.now_s) if self._due else -NEVER_S

    def _due_s(self) -> float:
        """When the next change may begin, if no retraining holds it up; in another window it may not."""
        if not self._due:
            return NEVER_S
        due_s = self._free_s
        if self._held_up is not None:
            assert self._planned is not None
            epoch_s = self._planned.problem.epoch_steps * self._setting.config.step_s
            distance_s = min(self._due[0].planned_s - self._held_up.planned_s, epoch_s)
            due_s = max(due_s, self._held_up.begin_s + distance_s)
        return due_s if due_s < self._window_end_s else NEVER_S

    def _bring_up(self, planned: PlannedWindow, note: Note) -> None:
        """Put the first layout up before the first window, so that it serves from its first second."""
        first = changes_of(planned.plan, 0.0, self._setting.config.step_s)[0]
        entries = [(placement, owner) for placement, owner in first.layout.entries if owner.task is Task.INFERENCE]
        self._apply(Change(self.now_s, OwnedLayout.of(entries), first.promised_s), 0, note)

    def _make(self, change: Change, note: Note) -> Iterator[Lost]:
        """Carry the next change out, and look at the one after it; what died over its last batch."""
        assert self._opening is not None
        begin_s = self.now_s
        outcome = self._apply(change, self._opening.window, note)
        self._held_up = outcome if begin_s > self._free_s else None
        self._look_ahead()
        for died in outcome.died:
            index = self._names.index(died.started.owner.tenant)
            yield from (Lost(index, self._queues.states[index].in_service(name)) for name in died.server_ids)

    def _apply(self, change: Change, window: int, note: Note) -> ChangeOutcome:
        """Carry a change out and log it.

        Raises:
            GpuError: The driver refused a call; what was done is in the log.
        """
        outcome = self._applier.apply(change, window, self._queues.busy_until_s, note)
        if not outcome.is_empty:
            note("change", events.change(window, outcome, self._applier.layout))
        for died in outcome.died:
            note("failed", events.failed(window, died.started, died.at_s, died.reason))
        if outcome.error is not None:
            raise outcome.error
        return outcome

    def _hear(self, happening: Happening, note: Note) -> Iterator[Trained | Lost]:
        """Take note of what happened to a worker."""
        assert self._opening is not None
        window = self._opening.window
        live = self._applier.live(happening.instance_id)
        if live is None:
            return
        match happening:
            case Ready():
                self._applier.ready(live, happening)
                note("ready", events.ready(window, live.started, happening))
            case Finished():
                live.is_over = True
                yield Trained(happening.at_s, live.owner.tenant, live.window, live.instance_id)
            case Failed():
                index = self._names.index(live.owner.tenant)
                queue = self._queues.states[index]
                lost = [Lost(index, queue.in_service(server.server_id)) for server in live.servers]
                note("failed", events.failed(window, live.started, happening.at_s, happening.reason))
                self._applier.failed(live)
                yield from lost
            case _:
                assert_never(happening)
