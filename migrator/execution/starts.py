"""What a run's starts have taken so far, and from it the warm-ups that its next window is planned with.

Nothing looks ahead: a start counts once its worker is ready. Beside what was measured stand changes of one to three
instances by documented times, so that a run begins with those and no single start decides.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial

import numpy as np

from executor.mig import GpuModel
from migrator.config import Config
from planner.build import TYPICAL_INSTANCES, WarmUps, documented_warm_ups
from planner.problem import Owner, Task
from workloads.tenants import Tenant

DOCUMENTED = (TYPICAL_INSTANCES - 1, TYPICAL_INSTANCES, TYPICAL_INSTANCES + 1)
"""Instances of the changes that count as if they had been measured."""

LEVEL = 0.5
"""The quantile that plans are made with: as many starts take longer as take less."""

N_REMEMBERED = 20
"""Starts of a tenant's workers, or trainers, that count; older ones are forgotten."""

DIGITS = 6
"""Seconds are kept to the microsecond, as the log has them, so that a window can be posed anew from it."""


class Starts:
    """What starts have taken, by whose they were: from the beginning of their change until their worker was ready."""

    def __init__(self, config: Config, gpu: GpuModel, tenants: Sequence[Tenant]) -> None:
        """``tenants`` are as planning takes them for."""
        self._switch_s, self._step_s = config.planner.switch_s, config.step_s
        self._names = [tenant.name for tenant in tenants]
        self._documented = [documented_warm_ups(gpu, tenants, n) for n in DOCUMENTED]
        remembered = partial(deque[float], maxlen=N_REMEMBERED)
        self._calls_s: deque[float] = deque(maxlen=N_REMEMBERED)
        self._starts_s: defaultdict[Owner, deque[float]] = defaultdict(remembered)
        self._totals_s: defaultdict[Owner, deque[float]] = defaultdict(remembered)

    def add(self, owner: Owner, calls_s: float, start_s: float) -> None:
        """One more: its instance stood ``calls_s`` after its change began, and was ready ``start_s`` after that."""
        self._calls_s.append(calls_s)
        self._starts_s[owner].append(start_s)
        self._totals_s[owner].append(calls_s + start_s)

    @property
    def warm_ups(self) -> WarmUps:
        """What the next window is planned with; the sum of both parts is a quantile of the starts as a whole.

        Where the config says ``switch_s``, that counts, and the rest is a quantile of start-ups. Plans round up to
        whole steps. For workers that serve the sum is the nearest whole step, as they may as well be late as early. For
        trainers it is left: who ends late holds up others.
        """
        switch_s = self._switch_s
        if switch_s is None:
            switch_s = _quantile([*(one.switch_s for one in self._documented), *self._calls_s])
        return WarmUps(
            switch_s,
            tuple(self._start_s(Owner(name, Task.INFERENCE), switch_s) for name in self._names),
            tuple(self._start_s(Owner(name, Task.RETRAINING), switch_s) for name in self._names),
        )

    def _start_s(self, owner: Owner, switch_s: float) -> float:
        index = self._names.index(owner.tenant)
        is_inference = owner.task is Task.INFERENCE
        own = [(one.start_s if is_inference else one.training_start_s)[index] for one in self._documented]
        if self._switch_s is None:
            documented_s = [one.switch_s + start_s for one, start_s in zip(self._documented, own, strict=True)]
            total_s = _quantile([*documented_s, *self._totals_s[owner]])
        else:
            total_s = switch_s + _quantile([*own, *self._starts_s[owner]])
        if is_inference:
            total_s = max(1, math.floor(total_s / self._step_s + 0.5)) * self._step_s
        return round(max(0.0, total_s - switch_s), DIGITS)


def _quantile(seconds: Sequence[float]) -> float:
    return round(float(np.quantile(seconds, LEVEL)), DIGITS)
