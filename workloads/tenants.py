"""A tenant: one model, how it is served and retrained, and what its answers are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from executor.mig import GpuModel
from workloads.errors import WorkloadError
from workloads.profiles.operating_point import OperatingPoint
from workloads.worker_start import WorkerStart


@dataclass(frozen=True, slots=True)
class WindowAccuracy:
    """Share of correct answers in one window, before and after its retraining, each in [0, 1]."""

    before: float
    after: float

    def __post_init__(self) -> None:
        for key, value in (("before", self.before), ("after", self.after)):
            if not 0 <= value <= 1:
                raise WorkloadError(f"accuracy.{key} is {value}; a number from 0 to 1 is needed")


@dataclass(frozen=True)
class Tenant:
    """One tenant of the GPU, over all windows of a run.

    Attributes:
        name: Distinct among the tenants.
        model: The served model.
        slo_s: Seconds within which an answer counts.
        operating_points: How an instance serves it, by profile name; at least one.
        retraining_time_s: Seconds of training by profile name, start-up apart; empty for none.
        accuracy: By window; the last one holds for all later windows.
        min_profile: Name of the profile that it must always hold an instance at least as large as.
        weight: What a correct answer in time is worth, ≥ 0.
        worker_start: Start-up of its inference workers.
        retraining_start: Start-up of its retraining worker; ``None`` for that of inference.
        n_retraining_windows: In how many windows, from the first on, it is retrained; ``None`` for all.

    Raises:
        WorkloadError: Naming the tenant, the key, the value and what is allowed.
    """

    name: str
    model: str
    slo_s: float
    operating_points: Mapping[str, OperatingPoint]
    retraining_time_s: Mapping[str, float]
    accuracy: tuple[WindowAccuracy, ...]
    min_profile: str
    worker_start: WorkerStart
    weight: float = 1.0
    retraining_start: WorkerStart | None = None
    n_retraining_windows: int | None = None

    def __post_init__(self) -> None:
        for attribute in ("operating_points", "retraining_time_s"):
            object.__setattr__(self, attribute, MappingProxyType(dict(getattr(self, attribute))))
        _check(self)

    @property
    def capability_rps(self) -> Mapping[str, float]:
        """Requests a second that one instance serves within the SLO, by profile name."""
        return MappingProxyType({name: point.rate_rps for name, point in self.operating_points.items()})

    def accuracy_in(self, window: int) -> WindowAccuracy:
        """The accuracy of ``window``, counted from 0."""
        return self.accuracy[min(window, len(self.accuracy) - 1)]

    def overhead_s(self, gpu: GpuModel) -> float:
        """Planned seconds of a worker start: with as many at once as ``gpu`` can hold instances.

        Conservative: a change seldom starts all workers anew, and fewer at once are ready earlier.
        """
        return self.worker_start.planned_s(most_instances(gpu))

    @property
    def trainer_start(self) -> WorkerStart:
        """Start-up of the retraining worker."""
        return self.worker_start if self.retraining_start is None else self.retraining_start

    def retraining_overhead_s(self, gpu: GpuModel) -> float:
        """Planned seconds of a retraining worker's start, under the same assumption as :meth:`overhead_s`."""
        return self.trainer_start.planned_s(most_instances(gpu))

    def retrains_in(self, window: int) -> bool:
        """Whether ``window``, counted from 0, asks for a retraining."""
        if not self.retraining_time_s:
            return False
        return self.n_retraining_windows is None or window < self.n_retraining_windows


def most_instances(gpu: GpuModel) -> int:
    """How many instances the GPU can hold at most: 7 on an A100, 4 on an A30."""
    return gpu.compute_slices // min(profile.compute_slices for profile in gpu.profiles)


def _check(tenant: Tenant) -> None:
    where = f"tenants.{tenant.name}"
    if not tenant.name:
        raise WorkloadError("tenants: a name is empty")
    if not tenant.operating_points:
        raise WorkloadError(f"{where}: no profile can serve {tenant.model}; at least one operating point is needed")
    if not tenant.accuracy:
        raise WorkloadError(f"{where}.accuracy is empty; at least one window is needed")
    _check_number(f"{where}.slo_s", tenant.slo_s, above_zero=True)
    _check_number(f"{where}.weight", tenant.weight)
    for profile, seconds in tenant.retraining_time_s.items():
        _check_number(f"{where}.retraining_time_s.{profile}", seconds, above_zero=True)
    if tenant.n_retraining_windows is not None:
        _check_number(f"{where}.n_retraining_windows", tenant.n_retraining_windows)


def _check_number(where: str, value: float, *, above_zero: bool = False) -> None:
    if not (math.isfinite(value) and (value > 0 if above_zero else value >= 0)):
        raise WorkloadError(f"{where} is {value}; a finite number {'> 0' if above_zero else '≥ 0'} is needed")
