"""Worker processes that are not there: simulated start-up inside a simulated GPU's instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

import numpy as np

from executor.gpu import GpuInstance
from executor.sim import SimGpu
from planner.problem import Owner, Task
from workloads.tenants import Tenant


class SimWorkers:
    """Draws start-up times from each tenant's model and holds the instance while a worker is in it.

    With jitter 0 every start takes the tenant's documented time.
    """

    def __init__(self, gpu: SimGpu, tenants: Mapping[str, Tenant], rng: np.random.Generator) -> None:
        self._gpu = gpu
        self._tenants = tenants
        self._rng = rng

    def start(self, instance: GpuInstance, owner: Owner, begin_s: float, n_at_once: int) -> float:
        """When the worker is ready; from now on the instance cannot be destroyed under it."""
        self._gpu.attach(instance.gi_id, str(owner))
        tenant = self._tenants[owner.tenant]
        match owner.task:
            case Task.INFERENCE:
                start_up = tenant.worker_start
            case Task.RETRAINING:
                start_up = tenant.trainer_start
            case _:
                assert_never(owner.task)
        return begin_s + start_up.start_s(n_at_once, self._rng)

    def stop(self, instance: GpuInstance, owner: Owner) -> None:
        """Take the worker out of the instance."""
        self._gpu.detach(instance.gi_id, str(owner))
