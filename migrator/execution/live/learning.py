"""The models of a live run: which weights are served, what they are worth, and what a retraining would bring.

All of it is measured, by profilers beside the instances. Where nothing could be, the config's accuracies hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from executor.errors import GpuError
from executor.files import MOST_BYTES, read_arrays
from executor.messages import as_text
from migrator.config.sections import Config, LearningConfig, TenantConfig
from migrator.errors import ConfigError, LiveError, MigratorError
from migrator.execution.events import RATE_DIGITS
from migrator.execution.live.site import Asking, Site
from migrator.execution.models import AccuracyHistory
from migrator.inputs.estimates import Estimate
from migrator.terminal.console import warn
from workloads.learning.course import Option
from workloads.learning.curve import Correction
from workloads.learning.profiler import Found, Measured, Prepared, Refused, Tried
from workloads.learning.retraining import RetrainingJob
from workloads.live.generator import Stream
from workloads.serving.requests import Requests
from workloads.tenants import Tenant
from workloads.training import FULL

LOADING_S, LEAST_ESTIMATING_S = 2.0, 1.0
"""Of ``estimates.delay_s``, what profilers take to load data and weights; the rest, or this, is micro-profiling's."""

PREPARING_S = 3600.0
"""What training the first weights may take: on one thread of a CPU, where the GPU is cut into instances."""

LEAST_WAIT_S = 30.0
"""Profilers that estimate are waited for a window long, or so long where windows are shorter."""

SPARE = 1.3
"""A retraining is taken to last so many times what the service profile says, until one has been seen."""


class Aside(Protocol):
    """Tells where profilers may compute."""

    def __call__(self, *, busy: bool) -> Mapping[str, str]:
        """As :meth:`executor.driver.DriverGpu.aside`."""


@dataclass(frozen=True, slots=True)
class Served:
    """The weights that a tenant's workers are to answer with; without a ``file`` those that the model is made with."""

    file: Path | None
    version: str
    accuracy: float


@dataclass(frozen=True, slots=True)
class Takes:
    """What a tenant's model is asked: inputs of this type and shape, each of one of so many classes."""

    dtype: str
    shape: tuple[int, ...]
    n_classes: int

    @property
    def input_bytes(self) -> int:
        """Of one request."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def options(self, entry: TenantConfig) -> dict[str, Any]:
        """What the tenant's model is made with."""
        asked = {"shape": list(self.shape), "n_classes": self.n_classes, "dtype": self.dtype}
        return {**asked, **_own_options(entry)}


@dataclass(frozen=True, slots=True)
class Taught:
    """A retraining that has ended: of which window, by which option, what it answers right, and what it took."""

    window: int
    option: str
    accuracy: float
    took_s: float


@dataclass
class _Model:
    """One tenant's model over the run; by itself one that only serves, and is as accurate as the config says.

    Attributes:
        takes: Shape, classes and type of its inputs, as the model is told them.
        served: The weights that its workers are to answer with.
        accuracies: By the second of the run from which on it holds.
    """

    tenant: Tenant
    config: TenantConfig
    takes: Takes
    served: Served
    accuracies: AccuracyHistory = field(default_factory=AccuracyHistory, kw_only=True)


@dataclass
class _Learner(_Model):
    """One that is retrained.

    Attributes:
        prepared: What it began with.
        correction: What past windows taught about estimates.
        raw: By window, the accuracy that was expected of its retraining by each option, before correction.
        slowness: By retraining, how many times as long as the profile says it took.
    """

    prepared: Prepared
    correction: Correction = field(default_factory=Correction)
    raw: dict[int, Mapping[str, float]] = field(default_factory=dict)
    slowness: list[float] = field(default_factory=list)

    @property
    def learning(self) -> LearningConfig:
        assert self.config.learning is not None
        return self.config.learning

    def experience(self, window: int) -> int:
        """Whose data the window's retraining takes."""
        return min(window + 1, len(self.prepared.n_samples) - 1)

    @property
    def n_there(self) -> int:
        """How many samples the first window's data has."""
        return self.prepared.n_samples[self.experience(0)]

    @property
    def n_fewest(self) -> int:
        """The fewest samples that one of its retrainings is to take; of those that say none, all that there are."""
        return min(way.n_samples or self.n_there for way in options_of(self.config).values())

    @property
    def spare(self) -> float:
        """How many times as long as the profile says a retraining is taken to last before one has been seen.

        Less than :data:`SPARE` where the data has fewer samples than any is to take.
        """
        return SPARE * min(1.0, self.n_there / self.n_fewest)


class LiveModels:
    """As :class:`migrator.execution.models.Models`, with measured accuracies.

    Attributes:
        measured: Of the window that was opened last, by tenant: what a profiler found, or why it found nothing.
        estimates: What its retrainings would bring, by tenant.
    """

    def __init__(
        self,
        config: Config,
        tenants: Sequence[Tenant],
        site: Site,
        requests: Sequence[Requests] | None,
        served: Mapping[str, Served],
        aside: Aside,
    ) -> None:
        """Train the first weights that no file holds, which takes minutes where models are large, and try the others.

        Which of the ``requests`` ask what is written; ``None``: others ask. ``served`` are newer weights, by tenant,
        where a run goes on; ``aside`` tells where profilers may compute.

        Raises:
            ConfigError: A model or its data cannot be had, or it cannot be trained; one line says why.
            LiveError: A profiler cannot start, died, or was not done in time.
        """
        self._config, self._site, self._requests, self._aside = config, site, requests, aside
        self.measured: dict[str, Measured | str] = {}
        self.estimates: tuple[Estimate, ...] | None = None
        self._measuring: tuple[int, Asking] | None = None
        environment = self._environment(busy=False)
        asking = {
            entry.name: site.begin_asking(*self._first_of(entry, index), PREPARING_S, environment)
            for index, entry in enumerate(config.tenants)
        }
        self._models: dict[str, _Model] = {}
        for tenant, entry in zip(tenants, config.tenants, strict=True):
            (one,) = site.answers(asking[entry.name])
            if isinstance(one, str):
                raise LiveError(f"tenants.{entry.name}: {one}")
            if isinstance(one, Refused):
                raise ConfigError(f"tenants.{entry.name}: {one.reason}")
            made = _learner(tenant, entry, one) if isinstance(one, Prepared) else _server(tenant, entry, one)
            made.served = served.get(tenant.name) or made.served
            self._models[tenant.name] = made

    @property
    def _learners(self) -> dict[str, _Learner]:
        """Those that are retrained."""
        return {name: one for name, one in self._models.items() if isinstance(one, _Learner)}

    # --- what the loop asks

    @property
    def accuracies(self) -> Mapping[str, AccuracyHistory]:
        """Each tenant's accuracy so far, as measured before a window and after a retraining."""
        return {name: one.accuracies for name, one in self._models.items()}

    def change_tenants(self, tenants: Sequence[Tenant], window: int, now_s: float) -> None:
        """Never: the first weights of all are trained before the run.

        Raises:
            MigratorError: Always.
        """
        del tenants, window, now_s
        raise MigratorError("tenants cannot come and go in a live run")

    def open(self, window: int) -> tuple[float, ...]:
        """What the models in service give from the window's start on, measured on its new training data.

        Raises:
            LiveError: A process that the run cannot do without is gone.
        """
        return self._taken_in(window, self._site.answers(self._asking(window)))

    def opened(self, window: int) -> tuple[float, ...] | None:
        """The same; ``None`` while it is being measured, to be asked again.

        Raises:
            LiveError: A process that the run cannot do without is gone.
        """
        found = self._site.answered(self._asking(window))
        return None if found is None else self._taken_in(window, found)

    def trained(
        self,
        tenant: str,
        window: int,  # noqa: ARG002 - as the simulation's, and so are the last two
        at_s: float,
        option: str = FULL,  # noqa: ARG002
        checkpoint: float | None = None,  # noqa: ARG002
    ) -> float:
        """What the retrained model gives, as measured at its end."""
        one = self._models[tenant]
        one.accuracies.note(at_s, one.served.accuracy)
        return one.served.accuracy

    # --- what the workers ask

    def served(self, tenant: str) -> Served:
        """The weights that the tenant's workers are to answer with."""
        return self._models[tenant].served

    def accuracy(self, tenant: str) -> float:
        """What the tenant's model in service gives, as measured last."""
        return self._models[tenant].accuracies.newest

    def serve(self, tenant: str, served: Served) -> None:
        """From now on workers are to answer with these."""
        self._models[tenant].served = served

    def ended(self, tenant: str, lesson: Taught, profile: str) -> None:
        """The tenant's retraining in an instance of this profile has ended so: the next estimates know it."""
        one = self._learners[tenant]
        if lesson.window in one.raw:
            expected = one.raw.pop(lesson.window)[lesson.option]
            one.correction = one.correction.learned([(expected, lesson.accuracy)])
        one.slowness.append(lesson.took_s / one.tenant.option(lesson.option).time_s[profile])

    def input_bytes(self, tenant: str) -> int:
        """Of one request."""
        return self._models[tenant].takes.input_bytes

    def input_of(self, tenant: str) -> tuple[str, tuple[int, ...]]:
        """The type of an input's numbers, and its shape."""
        takes = self._models[tenant].takes
        return takes.dtype, takes.shape

    def model_options(self, tenant: str) -> Mapping[str, Any]:
        """What the tenant's model is made with."""
        one = self._models[tenant]
        return one.takes.options(one.config)

    def job(
        self, tenant: str, window: int, out: Path, time_s: float | None = None, option: str = FULL
    ) -> RetrainingJob:
        """The retraining with a window's data by this option, from the weights that are served."""
        one = self._learners[tenant]
        number = one.experience(window)
        return self._job_of(one.config, one.served.file, experience=number, out=out, time_s=time_s, option=option)

    def out(self, tenant: str, window: int, attempt: int) -> Path:
        """Where a retraining's weights go."""
        return self._weights(tenant) / f"window-{window}-{attempt}"

    def streams(self, from_s: float) -> list[Stream]:
        """All requests of the run from a second on, each with its payload and the right answer.

        Raises:
            LiveError: What the profilers wrote cannot be read.
        """
        assert self._requests is not None
        return [
            _stream(self._samples(name), own, from_s) for name, own in zip(self._models, self._requests, strict=True)
        ]

    # --- inside

    def _first_of(self, entry: TenantConfig, index: int) -> tuple[str, list[dict[str, Any]]]:
        """Who says what the tenant begins with, and what that is asked; the ``index`` is the tenant's."""
        weights = None if entry.weights is None else Path(entry.weights)
        if entry.learning is None:
            takes = _takes(entry)
            told = {"model": entry.model, "options": takes.options(entry), "input_bytes": takes.input_bytes}
            return "workloads.learning.profiler:try_out", [{**told, "weights": entry.weights}]
        job = self._job_of(entry, weights, experience=0, out=self._weights(entry.name) / "first")
        asked: dict[str, Any] = {"job": as_text(job), "requests": None, "n_by_window": []}
        if self._requests is not None:
            by_window = _by_window(self._config, self._requests[index])
            asked |= {"requests": str(self._samples(entry.name)), "n_by_window": by_window}
        return "workloads.learning.profiler:prepare", [asked]

    def _asking(self, window: int) -> Asking:
        """The profilers that measure for the window; those of a window before are stopped."""
        if self._measuring is not None:
            begun, asking = self._measuring
            if begun == window:
                return asking
            self._site.end_asking(asking)
        asked = [
            {
                "job": as_text(self.job(one.tenant.name, window, self._weights(one.tenant.name))),
                "options": {name: _amount(way) for name, way in options_of(one.config).items()},
                "window": window,
                "budget_s": max(LEAST_ESTIMATING_S, self._config.estimates.delay_s - LOADING_S),
                "correction": asdict(one.correction),
            }
            for one in self._learners.values()
        ]
        limit_s = max(LEAST_WAIT_S, self._config.window_s)
        environment = self._environment(busy=True)
        asking = self._site.begin_asking("workloads.learning.profiler:estimate", asked, limit_s, environment)
        self._measuring = window, asking
        return asking

    def _environment(self, *, busy: bool) -> Mapping[str, str]:
        try:
            return self._aside(busy=busy)
        except GpuError as error:
            raise LiveError(f"profilers cannot start: {error}") from None

    def _taken_in(self, window: int, found: Sequence[Found | str]) -> tuple[float, ...]:
        self._measuring, models = None, list(self._models.values())
        self.measured = {
            name: one if isinstance(one, Measured) else str(one)
            for name, one in zip(self._learners, found, strict=True)
        }
        for name, measured in self.measured.items():
            if isinstance(measured, str):
                warn(f"window {window}: nothing was measured of {name}, so the config's accuracies hold: {measured}")
        self.estimates = tuple(self._estimate(one, window) for one in models)
        before = tuple(self._before(one, window) for one in models)
        for one, accuracy in zip(models, before, strict=True):
            one.accuracies.note(window * self._config.window_s, accuracy)
            one.accuracies.forget(window, self._config.window_s)
        return before

    def _weights(self, tenant: str) -> Path:
        return self._site.folder / "weights" / tenant

    def _samples(self, tenant: str) -> Path:
        return self._site.folder / f"samples-{tenant}.npz"

    def _job_of(
        self,
        entry: TenantConfig,
        weights: Path | None,
        *,
        experience: int,
        out: Path,
        time_s: float | None = None,
        option: str = FULL,
    ) -> RetrainingJob:
        learning = entry.learning
        assert learning is not None
        return RetrainingJob(
            model=entry.model,
            benchmark=learning.benchmark,
            experience=experience,
            option=options_of(entry)[option],
            out=out,
            weights=weights,
            time_s=time_s,
            seed=self._config.seed,
            folder=None if learning.folder is None else Path(learning.folder),
            asked=learning.asked,
            model_options=_own_options(entry),
        )

    def _before(self, one: _Model, window: int) -> float:
        found = self.measured.get(one.tenant.name)
        return found.accuracy_before if isinstance(found, Measured) else one.tenant.accuracy_in(window).before

    def _estimate(self, one: _Model, window: int) -> Estimate:
        """What the window's retraining would bring; where it could not be measured, what the config says."""
        if not isinstance(one, _Learner):
            return Estimate(one.tenant.accuracy_in(window).before, {}, {})
        found, gains = self.measured[one.tenant.name], {way.name: way.gain for way in one.tenant.other_options}
        after = one.tenant.accuracy_in(window).after
        if isinstance(found, str):
            source = f"the config, because nothing could be measured: {found}"
        elif found.accuracy_after is None:
            source = f"before: measured in {found.took_s:.2f} s; after: the config, because time was too short"
        else:
            after = found.accuracy_after[FULL]
            gains = _gains(found.accuracy_before, found.accuracy_after)
            assert found.raw is not None
            one.raw[window] = found.raw
            source = f"measured in {found.took_s:.2f} s"
        factor = median(one.slowness) if one.slowness else one.spare
        # As the log has it, so that plans can be checked from there.
        seconds = {name: round(factor * s, RATE_DIGITS) for name, s in one.tenant.retraining_time_s.items()}
        profiling_s = MappingProxyType(dict.fromkeys(seconds, 0.0))
        return Estimate(after, MappingProxyType(seconds), profiling_s, source, gains)


def _server(tenant: Tenant, entry: TenantConfig, found: Found) -> _Model:
    """A model that only serves."""
    assert isinstance(found, Tried)
    if found.weights.startswith("random"):
        what = f"weights that are {found.weights}, so no better than chance"
        warn(f"tenants.{entry.name}: {entry.model} answers with {what}")
    elif found.weights == "pretrained":
        warn(
            f"tenants.{entry.name}: {entry.model} answers with the library's weights; the last layer is random unless "
            "these are its classes"
        )
    file = None if entry.weights is None else Path(entry.weights)
    return _Model(tenant, entry, _takes(entry), Served(file, "first", tenant.accuracy_in(0).before))


def _learner(tenant: Tenant, entry: TenantConfig, prepared: Prepared) -> _Learner:
    """A model that is retrained."""
    if prepared.began_with.startswith("random ("):
        warn(f"tenants.{entry.name}: {entry.model} began to learn with weights that are {prepared.began_with}")
    takes = Takes(prepared.dtype, prepared.shape, prepared.n_classes)
    one = _Learner(tenant, entry, takes, Served(Path(prepared.weights), "first", prepared.accuracy), prepared)
    if one.n_there < one.n_fewest:
        least, data = f"{one.n_fewest:,} samples or more", one.learning.benchmark
        warn(
            f"tenants.{entry.name}: retrainings are to take {least}; {data} has {one.n_there:,} for a window, and they "
            "take no more"
        )
    return one


def _takes(entry: TenantConfig) -> Takes:
    """What the model of a tenant that only serves is asked."""
    assert entry.input is not None
    assert entry.classes is not None
    return Takes(entry.input.dtype, tuple(entry.input.shape), entry.classes)


def _own_options(entry: TenantConfig) -> dict[str, Any]:
    """What the tenant has its model made with beside, or in place of, what inputs are."""
    return {**(entry.learning.model_options if entry.learning is not None else {}), **entry.model_options}


def options_of(entry: TenantConfig) -> dict[str, Option]:
    """The ways in which the tenant's model may be retrained, by name: the full one first.

    Raises:
        LearningError: So it cannot be.
    """
    learning, own = entry.learning, entry.retraining
    assert learning is not None
    full = Option(
        name=FULL,
        strategy=learning.strategy,
        trainer=learning.trainer,
        n_samples=None if own is None else own.samples,
        n_epochs=1 if own is None else own.epochs,
        batch=learning.batch,
        learning_rate=learning.learning_rate,
        memory=learning.memory,
        checkpoints=tuple(learning.checkpoints),
    )
    others = {
        one.name: replace(
            full, name=one.name, n_samples=one.samples or full.n_samples, n_epochs=one.epochs or full.n_epochs
        )
        for one in (own.options if own is not None else ())
    }
    return {FULL: full, **others}


def _amount(option: Option) -> Mapping[str, int | None]:
    """In what an option differs from the tenant's others."""
    return {"n_samples": option.n_samples, "n_epochs": option.n_epochs}


def _gains(before: float, after: Mapping[str, float]) -> dict[str, float]:
    """What the other options gain of the full one, which is all that a plan counts on: never below 0 or above 1."""
    whole = after[FULL] - before
    shares = {name: (own - before) / whole if whole else 0.0 for name, own in after.items() if name != FULL}
    return {name: round(min(1.0, max(0.0, share)), RATE_DIGITS) for name, share in shares.items()}


def _by_window(config: Config, requests: Requests) -> list[int]:
    """How many requests arrive in each window."""
    edges_s = config.window_s * np.arange(config.windows + 1)
    n_by_window: list[int] = np.diff(np.searchsorted(requests.arrival_s, edges_s)).tolist()
    return n_by_window


def _stream(path: Path, requests: Requests, from_s: float) -> Stream:
    first = len(requests.before(from_s))
    try:
        found = read_arrays(path, MOST_BYTES)
        payloads = tuple(row.tobytes() for row in found["payloads"])
        expected = tuple(row.tobytes() for row in found["expected"])
        samples = tuple(found["samples"][first:].tolist())
    except (OSError, KeyError) as error:
        raise LiveError(f"the requests of {requests.tenant}: {path}: {error}") from error
    arrival_s = tuple(requests.arrival_s[first:].tolist())
    return Stream(requests.tenant, requests.slo_s, arrival_s, samples, payloads, expected)
