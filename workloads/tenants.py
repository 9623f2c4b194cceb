"""A tenant: one model, how it is served and retrained, how long both take to start, and what its answers are worth."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Literal, assert_never

import numpy as np

from executor.files import read_shipped
from executor.mig import GpuModel
from workloads.errors import ProfileTableError, WorkloadError
from workloads.profiles.operating_point import OperatingPoint
from workloads.profiles.table import ServiceProfiles, ServiceRow
from workloads.training import FULL, TrainingOption

_ANY_MODEL = "*"

RETRAINING_TO_INFERENCE = 3.0
"""Training time over inference time for the same data: a forward pass, and a backward pass twice as long."""


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """How long one tenant's workers take from their start until they serve. A worker is all that runs in one instance.

    A start has two phases: loading libraries, then loading the model. The paper (Figure 5) tells four phases of a
    change apart; the first two, destroying and creating instances, are driver calls and belong to the GPU
    (``executor``).

    Attributes:
        base_s: Median seconds when one worker starts alone, ≥ 0.
        slowdown_per_other: Share of ``base_s`` added for each other worker that starts at the same
            time, ≥ 0.
        jitter: Sigma of the lognormal factor around the planned time, ≥ 0; with 0 starts are exact.
        source: Who measured it.
        library_s: The part of ``base_s`` that loads libraries; the rest loads the model.
        assumed: What of it was not measured for the model: ``times``, ``slowdown``, or both.
        gpu: The GPU model that it was measured on; ``a100`` stands for all of this kind.

    Raises:
        WorkloadError: A figure is not a finite number ≥ 0, or ``library_s`` exceeds ``base_s``.
    """

    base_s: float
    slowdown_per_other: float = 0.0
    jitter: float = 0.0
    source: str = "config"
    library_s: float = 0.0
    assumed: tuple[str, ...] = ()
    gpu: str = "a100"

    def __post_init__(self) -> None:
        keys = ("base_s", "slowdown_per_other", "jitter", "library_s")
        figures = {key: getattr(self, key) for key in keys}
        for key, value in figures.items():
            if not (math.isfinite(value) and value >= 0):
                raise WorkloadError(f"worker_start.{key} is {value}; a finite number ≥ 0 is needed")
        if self.library_s > self.base_s:
            raise WorkloadError(
                f"worker_start.library_s is {self.library_s}; at most base_s, {self.base_s}, is allowed"
            )

    def lasting(self, base_s: float, source: str) -> WorkerStart:
        """The same start-up with another length, divided into its phases in the same proportion."""
        library_s, _ = self.phases_s(base_s)
        assumed = tuple(what for what in self.assumed if what != "times")
        return replace(self, base_s=base_s, library_s=library_s, source=source, assumed=assumed)

    def phases_s(self, start_s: float) -> tuple[float, float]:
        """``(library load, model load)`` of a start that took ``start_s``: each stretched alike."""
        library_s = start_s * self.library_s / self.base_s if self.base_s > 0 else 0.0
        return library_s, start_s - library_s

    def planned_s(self, n_at_once: int) -> float:
        """Seconds when ``n_at_once`` ≥ 1 workers start together, this one included, without jitter."""
        if n_at_once < 1:
            raise ValueError(f"n_at_once is {n_at_once}; the worker itself counts, so at least 1 is needed")
        return self.base_s * (1.0 + self.slowdown_per_other * (n_at_once - 1))

    def start_s(self, n_at_once: int, rng: np.random.Generator) -> float:
        """Seconds that one start takes: :meth:`planned_s` times a lognormal factor with median 1.

        One draw is taken from ``rng`` for each call, with or without jitter.
        """
        return self.planned_s(n_at_once) * math.exp(self.jitter * float(rng.standard_normal()))


def worker_start(profiles: ServiceProfiles, gpu: str, model: str) -> WorkerStart:
    """How long the model's workers take to start: as the table says, else :func:`default_worker_start`.

    Raises:
        ProfileTableError: Unknown GPU or model.
    """
    measured = profiles.start(gpu, model)
    if measured is None:
        return default_worker_start(model)
    start, source = measured
    return WorkerStart(
        base_s=start.library_s + start.model_s,
        slowdown_per_other=start.slowdown_per_other,
        source=source,
        library_s=start.library_s,
        gpu=gpu,
    )


def default_worker_start(model: str) -> WorkerStart:
    """The shipped median for ``model``; for a model that the source lacks, the median over its models."""
    table = _shipped()
    return table.get(model, table[_ANY_MODEL])


@cache
def _shipped() -> dict[str, WorkerStart]:
    text = read_shipped("workloads.data", "worker_start.csv").decode()
    return {
        row["model"]: WorkerStart(
            base_s=float(row["library_s"]) + float(row["model_s"]),
            slowdown_per_other=float(row["slowdown_per_other"]),
            source=row["source"],
            library_s=float(row["library_s"]),
            assumed=tuple(what for what in ("times", "slowdown") if what in row["assumed"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


class Drift(StrEnum):
    """How a model that is behind loses accuracy as a window ends."""

    COMPOUND = "compound"
    """By the window's factor (:func:`workloads.tenants.drift_in`): what is not learned now is missing from then on."""
    AS_GIVEN = "as_given"
    """To the next window's ``before``, if that is lower: who has fallen as low as the config says falls no further."""


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
        measured_retraining: Profiles whose training time follows from a measured pace; the others' is by rule.
        retraining_required: Whether it has to be retrained in each of these windows, also when that does not pay.
        max_skipped: So many of them in a row may pass without a retraining that ended, no more; ``None`` for all.
        retrain_below: It is retrained only in windows that begin with an accuracy below this; ``None`` for all.
        drift: How its accuracy falls while it is behind.
        other_options: Ways to retrain beside ``full``, whose times are ``retraining_time_s``.
        checkpoints: Of every option: parts that are done, and their gains as a share of the option's own.
        checkpoint_s: Seconds by which each checkpoint makes a retraining longer.
        swap_s: Seconds for which its servers pause to take over a checkpoint's weights.
        rows: What was measured of its model, batches and processes, from which a pool's points are chosen.
        alone: Whether it shares no instance.

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
    measured_retraining: frozenset[str] = frozenset()
    retraining_required: bool = True
    max_skipped: int | None = None
    retrain_below: float | None = None
    drift: Drift = Drift.AS_GIVEN
    other_options: tuple[TrainingOption, ...] = ()
    checkpoints: tuple[tuple[float, float], ...] = ()
    checkpoint_s: float = 0.0
    swap_s: float = 0.0
    rows: tuple[ServiceRow, ...] = field(default=(), repr=False)
    alone: bool = False

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

    @property
    def trainer_start(self) -> WorkerStart:
        """Start-up of the retraining worker."""
        return self.worker_start if self.retraining_start is None else self.retraining_start

    def retrains_in(self, window: int) -> bool:
        """Whether ``window``, counted from 0, asks for a retraining."""
        if not self.retraining_time_s:
            return False
        return self.n_retraining_windows is None or window < self.n_retraining_windows

    def is_offered(self, window: int, accuracy: float) -> bool:
        """Whether ``window`` may retrain it, whose model begins that with this accuracy."""
        return self.retrains_in(window) and (self.retrain_below is None or accuracy < self.retrain_below)

    def counts_salvage(self, asked: Literal["auto"] | bool) -> bool:
        """Whether plans count what its model is worth after the window; ``asked`` is ``retraining.salvage``.

        By default they do where that decides something, and what is not learned is missing later.
        """
        if asked != "auto":
            return asked
        return self.drift is Drift.COMPOUND and (not self.retraining_required or bool(self.other_options))

    @property
    def options(self) -> tuple[TrainingOption, ...]:
        """Ways to retrain, ``full`` first; empty where there is no retraining at all."""
        if not self.retraining_time_s:
            return ()
        return (TrainingOption(FULL, self.retraining_time_s), *self.other_options)

    def option(self, name: str) -> TrainingOption:
        """The way to retrain of that name.

        Raises:
            KeyError: There is none.
        """
        for option in self.options:
            if option.name == name:
                return option
        raise KeyError(name)

    def skipped(self, window: int, last_retrained: int) -> int:
        """How many windows in a row, up to ``window``, might have retrained it and did not."""
        return sum(self.retrains_in(passed) for passed in range(last_retrained + 1, window))

    def must_retrain_in(self, window: int, last_retrained: int) -> bool:
        """Whether ``window`` has to retrain it, last retrained with the data of window ``last_retrained``."""
        if not self.retrains_in(window):
            return False
        is_overdue = self.max_skipped is not None and self.skipped(window, last_retrained) >= self.max_skipped
        return self.retraining_required or is_overdue


def retraining_times_s(
    profiles: ServiceProfiles, gpu: str, model: str, *, n_samples: int, n_epochs: int
) -> Mapping[str, float]:
    """Seconds to train the model on ``n_samples`` × ``n_epochs``, by profile name; start-up not included.

    By the table's ``training_rps`` where it has one. Else three times the inference time of the same
    data, at the batch size with the highest throughput of a single process: a retraining is one process,
    and no SLO bounds its batch. A profile on which the model never ran with one process is absent.

    Source: MIGRator's paper, at its formulas 3a-3f ("three times the inference latency with the same
    volume of data and the same amount of GPU resources"); the best batch is this project's choice.

    Raises:
        ProfileTableError: Unknown GPU or model, counts below 1, or it never ran with one process.
    """
    if n_samples < 1 or n_epochs < 1:
        raise ProfileTableError(f"retraining of {model}: {n_samples} samples × {n_epochs} epochs; both must be ≥ 1")
    rate_rps: dict[str, float] = {}
    for row in profiles.of(gpu, model):
        if row.processes == 1:
            rate_rps[row.profile] = max(rate_rps.get(row.profile, 0.0), row.throughput_rps)
    if not rate_rps:
        raise ProfileTableError(f"{profiles.name}: {model} on {gpu} has no row with processes 1; retraining needs one")
    work = n_samples * n_epochs
    by_rule = {profile: RETRAINING_TO_INFERENCE * work / rate for profile, rate in rate_rps.items()}
    measured = {profile: work / rate for profile, rate in profiles.training_rps(gpu, model).items()}
    return MappingProxyType(by_rule | measured)


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
    names = [option.name for option in (TrainingOption(FULL, {}), *tenant.other_options)]
    for name in names:
        if names.count(name) > 1:
            raise WorkloadError(f"{where}.options: two are called {name!r}; names must differ")
    if tenant.n_retraining_windows is not None:
        _check_number(f"{where}.n_retraining_windows", tenant.n_retraining_windows)


def _check_number(where: str, value: float, *, above_zero: bool = False) -> None:
    if not (math.isfinite(value) and (value > 0 if above_zero else value >= 0)):
        raise WorkloadError(f"{where} is {value}; a finite number {'> 0' if above_zero else '≥ 0'} is needed")


def drift_in(tenant: Tenant, window: int) -> float:
    """r_w, in [0, 1]: the part of its accuracy that a model keeps as the window ends.

    It is ``before`` of the next window over ``after`` of this one, if the config says that the retrained model
    loses; 1 where the window has nothing to learn.
    """
    after = tenant.accuracy_in(window).after
    if after == 0 or not tenant.retrains_in(window):
        return 1.0
    return min(1.0, tenant.accuracy_in(window + 1).before / after)


def accuracy_at_start(tenant: Tenant, window: int, last_retrained: int, gave: float | None = None) -> float:
    """The accuracy of the model in service at the start of ``window``, last retrained with data of ``last_retrained``.

    The model deployed at first counts as retrained in window −1. ``gave`` is what the last retraining came to, where
    that is not what the config says of it: by another option, or by a part of one.
    """
    is_behind = gave is not None
    accuracy = tenant.accuracy_in(last_retrained + 1).before if gave is None else _fallen(tenant, last_retrained, gave)
    for passed in range(last_retrained + 1, window):
        is_behind = is_behind or tenant.retrains_in(passed)
        accuracy = _fallen(tenant, passed, accuracy) if is_behind else tenant.accuracy_in(passed + 1).before
    return accuracy


def _fallen(tenant: Tenant, window: int, accuracy: float) -> float:
    """The accuracy, as a window begins, of a model that is behind and had ``accuracy`` as the last one ended."""
    match tenant.drift:
        case Drift.COMPOUND:
            return accuracy * drift_in(tenant, window)
        case Drift.AS_GIVEN:
            return min(accuracy, tenant.accuracy_in(window + 1).before)
        case _:
            assert_never(tenant.drift)
