"""Runs that are simulated: workers, and under them a GPU or what shares one without instances.

:mod:`migrator.execution.real` puts the same workers on a real one; :mod:`migrator.execution.live` has real workers and
requests.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from zlib import crc32

import numpy as np

from executor.clock import Clock, VirtualClock
from executor.errors import InstanceNotFoundError, InvalidArgumentError
from executor.gpu import GpuInstance
from executor.mig import Placement
from executor.sim import Faults, OthersInstance, SimGpu
from migrator.execution.accounts import QueueAccounts
from migrator.execution.applier import Backend
from migrator.execution.changes import FULLY, Training
from migrator.execution.happenings import Checkpointed, Failed, Finished, Happening, Ready
from migrator.execution.parts import Parts, jitter_of, parts_on_instances, simulated_queues, tabled_models
from migrator.execution.posing import tenants_that_run
from migrator.execution.shares import Shares
from migrator.execution.turns import Turns
from migrator.inputs.pools import as_shared
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from planner.policies.ours import Migrator
from planner.policies.policy import AnyPolicy, Policy
from planner.policies.shares import SharePolicy
from planner.policies.turns import TurnPolicy
from planner.problem import Owner, Task
from workloads.profiles.operating_point import OperatingPoint
from workloads.tenants import Tenant

_WORKERS_STREAM = 1
"""Second word of the seed of start-up times; :mod:`migrator.execution.foresight` and ``shares`` have others."""


ReadyAt = Callable[[Placement, Owner, float], float | None]
"""The second at which a worker started then, in that place, is ready; ``None``: it takes as long as it takes."""


class SimWorkers:
    """Workers that are not there: each takes its model's documented time to start, with jitter if there is any.

    On a simulated GPU each holds its instance; on a real one no process is really there. Draws depend on (seed, window,
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
        # By instance and tenant, of the GPU instance, and whose worker.
        self._clients: dict[tuple[str, str], tuple[int, str]] = {}
        self._n_starts: Counter[tuple[int, str]] = Counter()
        self._to_come: list[tuple[float, int, Happening]] = []
        self._n_happenings = 0

    def start(
        self,
        instance_id: str,
        instance: GpuInstance,
        owner: Owner,
        n_at_once: int,
        training: Training = FULLY,
        joint: OperatingPoint | None = None,  # noqa: ARG002 - who serves is the queues' business
    ) -> None:
        """Start a worker; from now on the instance cannot be destroyed under it."""
        client = self._clients[instance_id, owner.tenant] = instance.gi_id, str(owner)
        if self._gpu is not None:
            self._gpu.attach(*client)
        tenant = self._tenants[owner.tenant]
        start_up = tenant.worker_start if owner.task is Task.INFERENCE else tenant.trainer_start
        begin_s = self._clock.now_s
        ready_s = begin_s + start_up.start_s(n_at_once, self._draws(str(instance.placement), begin_s))
        asked_s = None if self._ready_at is None else self._ready_at(instance.placement, owner, begin_s)
        if asked_s is not None:
            ready_s = max(begin_s, asked_s)
        self._expect(Ready(ready_s, instance_id, *start_up.phases_s(ready_s - begin_s), owner.tenant))
        if owner.task is Task.RETRAINING:
            profile = instance.placement.profile.name
            takes_s = tenant.option(training.option).time_s[profile] + len(training.checkpoints) * tenant.checkpoint_s
            for part in training.checkpoints:
                self._expect(Checkpointed(ready_s + part * takes_s, instance_id, part))
            self._expect(Finished(ready_s + takes_s, instance_id))

    def serve_by(self, instance_id: str, tenant: str, joint: OperatingPoint | None) -> None:
        """Nothing: how requests are served is the queues' business."""

    def change_tenants(self, tenants: Mapping[str, Tenant]) -> None:
        """Workers of these may be started from now on, too."""
        self._tenants = {**self._tenants, **tenants}

    def hold(self, instance_id: str, for_s: float) -> None:
        """All that is still to come in it comes so much later."""
        held = [item for item in self._to_come if item[2].instance_id == instance_id]
        self._to_come = [item for item in self._to_come if item[2].instance_id != instance_id]
        self._to_come += [(at_s + for_s, n, replace(one, at_s=at_s + for_s)) for at_s, n, one in held]
        heapq.heapify(self._to_come)

    def drain(self, instance_id: str, tenant: str) -> float:  # noqa: ARG002 - the queues know the batches in service
        """Nothing: a batch in service ends when the queues say so."""
        return -math.inf

    def stop(self, instance_id: str, tenant: str) -> Failed | None:
        """Take the worker out of its instance."""
        client = self._clients.pop((instance_id, tenant))
        if self._gpu is not None:
            with suppress(InstanceNotFoundError, InvalidArgumentError):  # it may be gone from under the worker
                self._gpu.detach(*client)
        own = sorted(item for item in self._to_come if _is_of(item[2], instance_id, tenant))
        unheard = (happening for at_s, _, happening in own if at_s <= self._clock.now_s)
        failure = next((happening for happening in unheard if isinstance(happening, Failed)), None)
        self._to_come = [item for item in self._to_come if not _is_of(item[2], instance_id, tenant)]
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


def _is_of(happening: Happening, instance_id: str, tenant: str) -> bool:
    whose = happening.tenant if isinstance(happening, Ready | Failed) else None
    return happening.instance_id == instance_id and whose in {None, tenant}


def simulated_parts(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy | None = None,
    *,
    backend: Callable[[float], Backend] | None = None,
    as_published: bool = False,
    time_limit_s: float | None = None,
) -> Parts:
    """The parts of a run in which all is simulated, under a policy, by default our planner.

    ``backend`` opens another GPU than :func:`simulated_backend` does. With ``as_published``, the policy forecasts and
    switches as its source does. ``time_limit_s`` are wall seconds for a plan.

    Raises:
        ConfigError: The policy cannot run on what was measured, or has no pools and the config lists some.
        InfeasibleError: There are more tenants, or pools, than compute slices.
    """
    policy = policy or Migrator()
    setting = as_shared(setting, policy)
    if isinstance(policy, SharePolicy):
        accounts = QueueAccounts(traffic, setting.tenants, setting.config.window_s, simulated_queues(setting))
        shares = Shares(setting, traffic, policy, accounts, as_published=as_published)
        return Parts(traffic, policy, shares, accounts, accounts, tabled_models(setting))
    if isinstance(policy, TurnPolicy):
        turns = Turns(setting, policy, jitter_of(setting))
        accounts = QueueAccounts(traffic, setting.tenants, setting.config.window_s, simulated_queues(setting))
        return Parts(traffic, policy, turns, turns, accounts, tabled_models(setting))
    assert isinstance(policy, Policy)
    opens = backend or simulated_backend(setting)
    return parts_on_instances(setting, traffic, policy, opens, as_published=as_published, time_limit_s=time_limit_s)


def simulated_backend(setting: Setting, ready_at: ReadyAt | None = None) -> Callable[[float], Backend]:
    """Opens a simulated GPU, empty but for others' instances, on a virtual clock at a second of the run.

    ``ready_at`` may have workers ready earlier or later than they would be.
    """

    def opened(start_s: float) -> Backend:
        config = setting.config
        clock = VirtualClock(start_s)
        faults = Faults(**config.simulation.driver.model_dump())
        gpu = SimGpu(setting.gpu, clock, seed=config.seed, faults=faults, others=_others(setting))
        tenants = tenants_that_run(setting)
        workers = SimWorkers(gpu, clock, tenants, config.seed, config.window_s, ready_at)
        return Backend(gpu, clock, workers)

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
