"""Runs of a policy, and workers that are simulated: here, and nowhere else, these are put on a simulated GPU.

:mod:`migrator.run.real` puts the same workers on a real one; :mod:`migrator.run.live` has real workers and requests.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from executor.clock import Clock, VirtualClock
from executor.errors import InstanceNotFoundError, InvalidArgumentError
from executor.gpu import GpuInstance
from executor.mig import Layout, Placement
from executor.sim import Faults, OthersInstance, SimGpu
from migrator.estimates import as_carried_out
from migrator.log.runlog import RunLog
from migrator.run import events
from migrator.run.applier import Backend
from migrator.run.changes import FULLY, Training
from migrator.run.instances import Instances
from migrator.run.loop import Joining, Loop, Reviser, View
from migrator.run.models import Models
from migrator.run.planning import FORECAST_LIMIT_S, Foresight, Solving, observe, posed
from migrator.run.requests import Queues, SimulatedQueues
from migrator.run.rolling import Rolling
from migrator.run.seams import Checkpointed, Failed, Finished, Happening, Ready, Sharing
from migrator.run.shares import Shares
from migrator.run.turns import Turns
from migrator.setting import Setting
from migrator.traffic import RecordedTraffic
from planner.policies.ours import Migrator
from planner.policies.policy import AnyPolicy, Knows, Policy
from planner.policies.shares import SharePolicy
from planner.policies.whole import Whole
from planner.problem import Owner, Problem, Task
from workloads.drift import accuracy_at_start
from workloads.serving.requests import Dispatch
from workloads.tenants import Tenant
from workloads.traffic.luck import service_jitter

_WORKERS_STREAM = 1
"""Second word of the seed of start-up times; :mod:`migrator.run.planning` and ``shares`` have others."""


ReadyAt = Callable[[Placement, Owner, float], float | None]
"""The second at which a worker started then, in that place, is ready; ``None``: it takes as long as it takes."""


@dataclass(frozen=True, slots=True)
class _Client:
    """A worker that is said to be in an instance."""

    gi_id: int
    name: str


class SimWorkers:
    """Workers that are not there: each takes its model's documented time to start, with jitter if there is any.

    On a simulated GPU each holds its instance; on a real one nobody is really there. Draws depend on (seed, window,
    placement, number of the start there in that window) alone. So a run that is resumed at a window's start draws the
    same times.
    """

    def __init__(
        self,
        gpu: SimGpu | None,
        clock: Clock,
        tenants: Mapping[str, Tenant],
        seed: int,
        window_s: float,
        ready_at: ReadyAt | None = None,
    ) -> None:
        self._gpu, self._clock, self._tenants, self._ready_at = gpu, clock, tenants, ready_at
        self._seed, self._window_s = seed, window_s
        self._clients: dict[str, _Client] = {}
        self._n_starts: Counter[tuple[int, str]] = Counter()
        self._to_come: list[tuple[float, int, Happening]] = []
        self._n_happenings = 0

    def start(
        self, instance_id: str, instance: GpuInstance, owner: Owner, n_at_once: int, training: Training = FULLY
    ) -> None:
        """Start a worker; from now on the instance cannot be destroyed under it."""
        client = _Client(instance.gi_id, str(owner))
        if self._gpu is not None:
            self._gpu.attach(client.gi_id, client.name)
        self._clients[instance_id] = client
        tenant = self._tenants[owner.tenant]
        start_up = tenant.worker_start if owner.task is Task.INFERENCE else tenant.trainer_start
        begin_s = self._clock.now_s
        ready_s = begin_s + start_up.start_s(n_at_once, self._draws(str(instance.placement), begin_s))
        asked_s = None if self._ready_at is None else self._ready_at(instance.placement, owner, begin_s)
        if asked_s is not None:
            ready_s = max(begin_s, asked_s)
        self._expect(Ready(ready_s, instance_id, *start_up.phases_s(ready_s - begin_s)))
        if owner.task is Task.RETRAINING:
            profile = instance.placement.profile.name
            takes_s = tenant.option(training.option).time_s[profile] + len(training.checkpoints) * tenant.checkpoint_s
            for part in training.checkpoints:
                self._expect(Checkpointed(ready_s + part * takes_s, instance_id, part))
            self._expect(Finished(ready_s + takes_s, instance_id))

    def drain(self, instance_id: str) -> float:  # noqa: ARG002 - the queues know the batches in service
        """Nothing: a batch in service ends when the queues say so."""
        return -math.inf

    def stop(self, instance_id: str) -> Failed | None:
        """Take the worker out of its instance."""
        client = self._clients.pop(instance_id)
        if self._gpu is not None:
            with suppress(InstanceNotFoundError, InvalidArgumentError):  # it may be gone from under the worker
                self._gpu.detach(client.gi_id, client.name)
        own = sorted(item for item in self._to_come if item[2].instance_id == instance_id)
        unheard = (happening for at_s, _, happening in own if at_s <= self._clock.now_s)
        failure = next((happening for happening in unheard if isinstance(happening, Failed)), None)
        self._to_come = [item for item in self._to_come if item[2].instance_id != instance_id]
        heapq.heapify(self._to_come)
        return failure

    def happenings(self, until_s: float) -> Sequence[Happening]:
        """What comes first, until ``until_s`` at the latest; the clock then shows when."""
        at_s = self._to_come[0][0] if self._to_come else math.inf
        self._clock.wait(min(at_s, until_s))
        if at_s > until_s or self._clock.now_s < at_s:  # a clock that runs by itself may have been woken before
            return ()
        found = []
        while self._to_come and self._to_come[0][0] == at_s:
            found.append(heapq.heappop(self._to_come)[2])
        return found

    def _expect(self, happening: Happening) -> None:
        self._n_happenings += 1
        heapq.heappush(self._to_come, (happening.at_s, self._n_happenings, happening))

    def _draws(self, placement: str, begin_s: float) -> np.random.Generator:
        window = max(-1, math.floor(begin_s / self._window_s)) + 1  # bring-up is before window 0
        number = self._n_starts[window, placement]
        self._n_starts[window, placement] += 1
        return np.random.default_rng([self._seed, _WORKERS_STREAM, window, crc32(placement.encode()), number])


def simulated_backend(setting: Setting, ready_at: ReadyAt | None = None) -> Callable[[float], Backend]:
    """Opens a simulated GPU, empty but for others' instances, on a virtual clock that stands at a second of the run.

    ``ready_at`` may have workers ready earlier or later than they would be.
    """

    def opened(start_s: float) -> Backend:
        config = setting.config
        clock = VirtualClock(start_s)
        faults = Faults(**config.simulation.driver.model_dump())
        gpu = SimGpu(setting.gpu, clock, seed=config.seed, faults=faults, others=_others(setting))
        tenants = tenants_that_run(setting)
        return Backend(gpu, clock, SimWorkers(gpu, clock, tenants, config.seed, config.window_s, ready_at))

    return opened


def _others(setting: Setting) -> list[OthersInstance]:
    return [
        OthersInstance(
            setting.gpu.placement(other.placement),
            -math.inf if other.from_s is None else other.from_s,
            math.inf if other.to_s is None else other.to_s,
        )
        for other in setting.config.simulation.others
    ]


def tenants_that_run(setting: Setting) -> dict[str, Tenant]:
    """The tenants by name as they are, their retrainings as long as they take."""
    errors = setting.config.estimates
    return {tenant.name: as_carried_out(errors, setting.gpu, tenant) for tenant in setting.tenants}


def _sharing(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy,
    how: Solving,
    backend: Callable[[float], Backend],
    joins: Joining | None,
    queues: Queues | None,
) -> Sharing:
    """What the policy's answers become on a GPU."""
    config = setting.config
    jitter = service_jitter(config.seed, config.simulation.service_jitter)
    if isinstance(policy, SharePolicy):
        return Shares(
            setting, traffic, policy, SimulatedQueues(len(setting.tenants), jitter), as_published=how.as_published
        )
    if isinstance(policy, Whole):
        return Turns(setting, policy, jitter)
    assert isinstance(policy, Policy)
    dispatch = Dispatch.PUSH if policy.traits.pushes else Dispatch.PULL
    queues = queues or SimulatedQueues(len(setting.tenants), jitter, dispatch)
    if joins is not None:
        start_s = joins.window * config.window_s
        queues.begin(traffic.requests(start_s), start_s)
    n_started = 0 if joins is None else joins.n_started
    return Instances(setting, backend, queues, tenants_that_run(setting), replace(how, policy=policy), n_started)


class SimulatedRun:
    """A run of a policy, by default our planner. All of it is simulated but for the parts that are given to it.

    A run on a real GPU gives ``backend``; a live run gives ``queues``, ``models`` and ``ending``, too. Its first window
    is planned, and nothing is written to its log yet.
    """

    def __init__(
        self,
        setting: Setting,
        traffic: RecordedTraffic,
        policy: AnyPolicy | None = None,
        view: View | None = None,
        *,
        as_published: bool = False,
        time_limit_s: float | None = None,
        backend: Callable[[float], Backend] | None = None,
        revises: Reviser | None = None,
        joins: Joining | None = None,
        queues: Queues | None = None,
        models: Models | None = None,
        ending: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """``backend`` opens the GPU, as :func:`simulated_backend` does; ``queues`` are simulated unless given.

        ``revises``, ``joins``, ``models`` and ``ending`` are the loop's.

        With ``time_limit_s``, wall seconds for a plan, another run of the same may come out otherwise; the log says so.

        Raises:
            ConfigError: The policy cannot run on what was measured.
            InfeasibleError: The first window has no plan.
            PlannerError: The policy cannot answer.
            GpuError: The driver does not say what stands.
        """
        policy = policy or Migrator()
        limit_s = None if setting.config.gpu.backend == "sim" else FORECAST_LIMIT_S
        needs_hindsight, ahead_s = policy.needs_hindsight, policy.looks_ahead_s
        foresight = Foresight(setting, traffic, needs_hindsight=needs_hindsight, ahead_s=ahead_s, limit_s=limit_s)
        if isinstance(policy, Policy) and policy.knows is Knows.RUN:
            policy = policy.prepared(true_problems(setting, traffic))
        how = Solving(as_published=as_published, time_limit_s=time_limit_s)
        every_s = _replan_every_s(setting, policy)
        rolling = None if every_s is None else Rolling(setting, traffic, every_s)
        sharing = _sharing(setting, traffic, policy, how, backend or simulated_backend(setting), joins, queues)
        if joins is None:
            header = events.run_started(
                setting, traffic.origins, foresight.name, policy, sharing.kind, time_limit_s, every_s
            )
            self._begins: tuple[str, Mapping[str, object]] = "run_started", header
        else:
            self._begins = "resumed", events.resumed(joins.window, joins.void)
        self._loop = Loop(setting, traffic, sharing, foresight, view or View(), revises, joins, models, ending, rolling)
        self._loop.prepare()

    @property
    def first_layout(self) -> Layout:
        """What is to stand as the first window begins, retrainings aside; empty where sharing needs no instances."""
        planned = self._loop.first_plan
        if planned is None:
            return Layout()
        serving = {item.placement for item in planned.plan.lifetimes if item.is_inference and item.create_step == 0}
        return Layout(tuple(sorted(serving, key=lambda placement: placement.sort_key)))

    def carry_out(self, log: RunLog, wall: Mapping[str, object] | None = None) -> None:
        """All windows, into the log.

        Raises:
            OSError: The log, or the journal of our instances, cannot be written.
        """
        self._loop.run(log, *self._begins, wall)


def _replan_every_s(setting: Setting, policy: AnyPolicy) -> float | None:
    """The pace at which the policy plans the rest of a window anew; ``None`` where it does not."""
    if not isinstance(policy, Policy) or not policy.replans:
        return None
    every_s = setting.config.planner.replan_every_s
    paces = (None if every_s == "never" else every_s, policy.looks_ahead_s)
    return min((pace for pace in paces if pace is not None), default=None)


def true_problems(setting: Setting, traffic: RecordedTraffic) -> tuple[Problem, ...]:
    """Every window's problem with its true arrivals, each as if it were the first and no retraining had been missed."""
    hindsight, found = Foresight(setting, traffic, needs_hindsight=True), []
    for window in range(setting.config.windows):
        accuracies = [accuracy_at_start(tenant, window, window - 1) for tenant in setting.tenants]
        opening = observe(setting, traffic, window, accuracies)
        found.append(posed(setting, opening, None, hindsight.forecast(opening)))
    return tuple(found)
