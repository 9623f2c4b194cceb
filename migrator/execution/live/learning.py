"""The models of a live run: which weights are served, what they are worth, and what a retraining would bring.

All of it is measured, by profilers beside the instances. Where nothing could be, the config's accuracies hold.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
from migrator.inputs.estimates import Estimate
from migrator.inputs.in_force import require_versions
from migrator.log import records
from migrator.log.accuracies import LASTING, Accuracies, AccuracyHistory
from migrator.log.runlog import ReadLog
from migrator.log.segments import N_LESSONS
from migrator.log.weights import FIRST, Served
from migrator.terminal.console import note, warn
from workloads.learning.course import Option, Started
from workloads.learning.curve import Correction
from workloads.learning.inbox import Inbox
from workloads.learning.profiler import Came, Found, Measured, Prepared, Refused, Tried
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

CAME_SINCE = "it has come since"
"""In place of what was measured of a tenant for a window; it learns nothing in that one."""

SPARE = 1.3
"""A retraining is taken to last so many times what the service profile says, until one has been seen."""


class Aside(Protocol):
    """Tells where profilers may compute."""

    def __call__(self, *, busy: bool) -> Mapping[str, str]:
        """As :meth:`executor.driver.DriverGpu.aside`."""


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
        taken: Those whose accuracy was noted last.
        accuracies: By the second of the run from which on it holds.
        versions: All weights that have served, by name, the oldest first.
    """

    tenant: Tenant
    config: TenantConfig
    takes: Takes
    served: Served
    taken: Served | None = field(default=None, kw_only=True)
    versions: dict[str, Served] = field(default_factory=dict, kw_only=True)
    accuracies: AccuracyHistory = field(default_factory=AccuracyHistory, kw_only=True)


@dataclass
class _Learner(_Model):
    """One that is retrained.

    Attributes:
        prepared: What it began with.
        correction: What past windows taught about estimates.
        raw: By window, the accuracy that was expected of its retraining by each option, before correction.
        slowness: By retraining, how many times as long as the profile says it took, of the newest :data:`N_LESSONS`.
    """

    prepared: Prepared
    correction: Correction = field(default_factory=Correction)
    raw: dict[int, Mapping[str, float]] = field(default_factory=dict)
    slowness: deque[float] = field(default_factory=lambda: deque(maxlen=N_LESSONS))

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


@dataclass
class _Reader(_Learner):
    """One that learns what others write into a folder.

    Attributes:
        inbox: Where they write, and where what came is kept.
        came: By window, what had come as it was measured.
        trained: The last window whose retraining has ended; −1 before the first.
    """

    inbox: Inbox = field(kw_only=True)
    came: dict[int, Came] = field(default_factory=dict)
    trained: int = -1

    def experience(self, window: int) -> int:
        return self.came[window].experience

    @property
    def spare(self) -> float:
        return SPARE


class LiveModels:
    """As :class:`migrator.execution.models.Models`, with measured accuracies.

    Attributes:
        measured: Of the window that was opened last, by tenant: what a profiler found, or why it found nothing.
        estimates: What its retrainings would bring, by tenant.
        config: The one in force.
    """

    def __init__(
        self,
        config: Config,
        tenants: Sequence[Tenant],
        site: Site,
        requests: Sequence[Requests] | None,
        aside: Aside,
        served: Mapping[str, Served] = MappingProxyType({}),
        first: Mapping[str, Path] = MappingProxyType({}),
        kept: Mapping[str, Sequence[Served]] = MappingProxyType({}),
    ) -> None:
        """Train the first weights that no file holds, which takes minutes where models are large, and try the others.

        Which of the ``requests`` ask what is written; ``None``: others ask. ``aside`` tells where profilers may
        compute. Where a run goes on, ``served`` are newer weights, by tenant, ``first`` those that it began with, and
        ``kept`` all that it has trained.

        Raises:
            ConfigError: A model or its data cannot be had, or it cannot be trained; one line says why.
            LiveError: A profiler cannot start, died, or was not done in time.
        """
        there = {entry.name: _versions(served.get(entry.name), kept.get(entry.name, ())) for entry in config.tenants}
        require_versions(config.tenants, there)
        self.config, self._site, self._requests, self._aside = config, site, requests, aside
        self.measured: dict[str, Measured | str] = {}
        self.estimates: tuple[Estimate, ...] | None = None
        self._measuring: tuple[int, Asking, tuple[str, ...]] | None = None
        environment = self._environment(busy=False)
        asked = {entry.name: self._first_of(entry, n, first.get(entry.name)) for n, entry in enumerate(config.tenants)}
        asking = {name: site.begin_asking(*one, PREPARING_S, environment) for name, one in asked.items()}
        self._models: dict[str, _Model] = {}
        self._gone: dict[str, _Model] = {}  # of those who left; their workers may still ask
        for tenant, entry in zip(tenants, config.tenants, strict=True):
            made = self._made(tenant, entry, *site.answers(asking[entry.name]))
            made.versions |= there[tenant.name]
            made.taken = made.served = served.get(tenant.name) or made.served
            self._models[tenant.name] = made
        self._coming: dict[str, _Model] = {}

    def _made(self, tenant: Tenant, entry: TenantConfig, one: Found | str) -> _Model:
        """The model of which a profiler has found this.

        Raises:
            ConfigError: It, or its data, cannot be had, or it cannot be trained.
            LiveError: The profiler died, or was not done in time.
        """
        if isinstance(one, str):
            raise LiveError(f"tenants.{entry.name}: {one}")
        if isinstance(one, Refused):
            raise ConfigError(f"tenants.{entry.name}: {one.reason}")
        made = _learner(tenant, entry, one) if isinstance(one, Prepared) else _server(tenant, entry, one)
        made = self._reader(made) if entry.reads else made
        if entry.weights_from is not None:
            note(f"tenants.{entry.name}: its weights are {entry.weights_from}")
        made.versions = {made.served.version: made.served}
        return made

    def coming(self, entries: Sequence[TenantConfig], tenants: Sequence[Tenant]) -> Iterator[bool]:
        """Make the models of who is to come, beside serving; yields whether all are there, to be asked again.

        Raises:
            ConfigError: A model or its data cannot be had, or it cannot be trained.
            LiveError: A profiler cannot start, died, or was not done in time.
        """
        environment = self._environment(busy=True)
        asking = [self._site.begin_asking(*self._first_of(one, 0, None), PREPARING_S, environment) for one in entries]
        made: dict[str, _Model] = {}
        try:
            for tenant, entry in zip(tenants, entries, strict=True):
                while (found := self._site.answered(asking[0])) is None:
                    yield False
                asking.pop(0)
                made[tenant.name] = self._made(tenant, entry, *found)
        finally:
            for one in asking:
                self._site.end_asking(one)
        self._coming |= made
        yield True

    @property
    def _learners(self) -> dict[str, _Learner]:
        """Those that are retrained."""
        return {name: one for name, one in self._models.items() if isinstance(one, _Learner)}

    # --- what the loop asks

    @property
    def accuracies(self) -> Mapping[str, AccuracyHistory]:
        """Each tenant's accuracy so far, as measured before a window and after a retraining."""
        return {name: one.accuracies for name, one in self._models.items()}

    def version(self, tenant: str) -> str:
        """Of the weights that the tenant's workers are to answer with."""
        return self.served(tenant).version

    def change_tenants(self, tenants: Sequence[Tenant], window: int, now_s: float) -> None:
        """The models of who comes were made before: see :meth:`coming`."""
        del window
        entries, before = {entry.name: entry for entry in self.config.tenants}, self._models
        self._gone |= before
        self._models = {}
        for tenant in tenants:
            one = self._models[tenant.name] = before.get(tenant.name) or self._coming[tenant.name]
            one.tenant, one.config = tenant, entries[tenant.name]
            if tenant.name not in before:
                one.accuracies.note(now_s, one.served.accuracy)
        self._coming, self._gone = {}, {name: one for name, one in self._gone.items() if name not in self._models}

    def _learner_of(self, tenant: str) -> _Learner:
        one = self._of(tenant)
        assert isinstance(one, _Learner)
        return one

    def _of(self, tenant: str) -> _Model:
        """The tenant's, which may be about to come, or have left."""
        return self._models.get(tenant) or self._coming.get(tenant) or self._gone[tenant]

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
        one = self._of(tenant)
        if one.served is not one.taken:
            one.accuracies.note(at_s, one.served.accuracy)
            one.taken = one.served
        return one.accuracies.newest

    # --- what the workers ask

    def served(self, tenant: str) -> Served:
        """The weights that the tenant's workers are to answer with."""
        return self._of(tenant).served

    def accuracy(self, tenant: str) -> float:
        """What the tenant's model in service gives, as measured last."""
        return self._of(tenant).accuracies.newest

    def serves(self, tenant: str, accuracy: float, old: Started | None) -> bool:
        """Whether new weights of this accuracy are to be served, after what their retraining told as it began."""
        return old is None or accuracy >= old.accuracy - self._learner_of(tenant).learning.worse

    def pinned(self, tenant: str) -> str | None:
        """The version of the tenant's weights that alone is to serve; ``None``: any may."""
        return next((one.pin.weights for one in self.config.tenants if one.name == tenant), None)

    def files_in_use(self, tenant: str) -> list[Path]:
        """The files of the weights that serve, and of those that are pinned."""
        one, pinned = self._of(tenant), self.pinned(tenant)
        used = [one.served, *(own for name, own in one.versions.items() if name == pinned)]
        return [own.file for own in used if own.file is not None]

    def require_versions(self, entries: Sequence[TenantConfig]) -> None:
        """Refuse pins of weights that are not there.

        Raises:
            ConfigError: Naming the tenant, the version and those that are kept.
        """
        require_versions(
            entries, {name: {one.served.version: one.served} | _kept_in(one) for name, one in self._models.items()}
        )

    def serve(self, tenant: str, served: Served) -> None:
        """From now on workers are to answer with these."""
        self._of(tenant).served = served
        self._of(tenant).versions.setdefault(served.version, served)

    def older(self, tenant: str, version: str | None) -> Served:
        """Weights of this version that are kept; ``None``: those before the ones in service.

        Raises:
            MigratorError: There are none.
        """
        if tenant not in self._models:
            raise MigratorError(f"there is no tenant {tenant!r}; there is: {', '.join(self._models)}")
        one = self._models[tenant]
        kept = _kept_in(one)
        if version is None:
            names = [*one.versions]
            before = [name for name in names[: names.index(one.served.version)] if name in kept]
            if not before:
                raise MigratorError(f"{tenant}: no weights are kept from before {one.served.version}")
            return kept[before[-1]]
        if version == one.served.version:
            raise MigratorError(f"{tenant}: answers with {version} as it is")
        if version not in kept:
            there = ", ".join(kept) or "none"
            raise MigratorError(f"{tenant}: weights {version!r} are not kept; there is: {there}")
        return kept[version]

    def roll_back(self, tenant: str, served: Served, at_s: float) -> None:
        """From this second of the run on workers are to answer with these older weights."""
        one = self._models[tenant]
        one.taken = one.served = served
        one.accuracies.note(at_s, served.accuracy)

    def ended(self, tenant: str, lesson: Taught, profile: str) -> float | None:
        """The tenant's retraining in an instance of this profile has ended so: the next estimates know it.

        Returns what was expected of it, before correction; ``None`` where nothing was.
        """
        raw = self._learner_of(tenant).raw.pop(lesson.window, {})
        expected = raw.get(lesson.option)
        self._learn(tenant, lesson, profile, expected)
        return expected

    def recall(self, log: ReadLog, first_s: float) -> None:
        """Know what the log has of retrainings and of how models drifted; the run goes on at ``first_s``.

        What the models give counts from then on, and is measured by then.
        """
        remembered = Accuracies.of(log.begins, log.entries)
        remembered.join()
        for name, one in self._models.items():
            one.accuracies = remembered.by_tenant.get(name, one.accuracies)
            one.accuracies.note(first_s, one.served.accuracy)
        for ended in log.of(records.Finished):
            if ended.tenant in self._learners and ended.trained_s is not None and ended.instance is not None:
                gave = ended.accuracy if ended.rejected is None else ended.rejected
                lesson = Taught(ended.window, ended.option or FULL, gave, ended.trained_s)
                self._learn(ended.tenant, lesson, ended.instance.partition("@")[0], ended.expected)

    def _learn(self, tenant: str, lesson: Taught, profile: str, expected: float | None) -> None:
        one = self._learner_of(tenant)
        if isinstance(one, _Reader):
            one.trained = max(one.trained, lesson.window)
        if expected is not None:
            one.correction = one.correction.learned([(expected, lesson.accuracy)])
        one.slowness.append(lesson.took_s / one.tenant.option(lesson.option).time_s[profile])

    def input_bytes(self, tenant: str) -> int:
        """Of one request."""
        return self._of(tenant).takes.input_bytes

    def input_of(self, tenant: str) -> tuple[str, tuple[int, ...]]:
        """The type of an input's numbers, and its shape."""
        takes = self._of(tenant).takes
        return takes.dtype, takes.shape

    def model_options(self, tenant: str) -> Mapping[str, Any]:
        """What the tenant's model is made with."""
        one = self._of(tenant)
        return one.takes.options(one.config)

    def job(
        self, tenant: str, window: int, out: Path, time_s: float | None = None, option: str = FULL
    ) -> RetrainingJob:
        """The retraining with a window's data by this option, from the weights that are served."""
        one = self._learner_of(tenant)
        number, file = one.experience(window), None
        if isinstance(one, _Reader):
            file = one.came[window].file
        job = self._job_of(one.config, one.served.file, experience=number, out=out, time_s=time_s, option=option)
        return job if file is None else replace(job, folder=Path(file))

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

    def _first_of(self, entry: TenantConfig, index: int, trained: Path | None) -> tuple[str, list[dict[str, Any]]]:
        """Who says what the tenant begins with, and what that is asked; the ``index`` is the tenant's.

        Where a run goes on, its first weights may have been ``trained`` before.
        """
        weights = trained if entry.weights is None else Path(entry.weights)
        if entry.learning is None or entry.reads:
            takes = _takes(entry)
            told = {"model": entry.model, "options": takes.options(entry), "input_bytes": takes.input_bytes}
            return "workloads.learning.profiler:try_out", [{**told, "weights": entry.weights}]
        job = self._job_of(entry, weights, experience=0, out=self._weights(entry.name) / "first")
        asked: dict[str, Any] = {"job": as_text(job), "requests": None, "n_by_window": []}
        if self._requests is not None:
            by_window = _by_window(self.config, self._requests[index])
            asked |= {"requests": str(self._samples(entry.name)), "n_by_window": by_window}
        return "workloads.learning.profiler:prepare", [asked]

    def _asking(self, window: int) -> Asking:
        """The profilers that measure for the window; those of a window before are stopped."""
        if self._measuring is not None:
            begun, asking, _ = self._measuring
            if begun == window:
                return asking
            self._site.end_asking(asking)
        asked = [
            {
                **self._measuring_of(one, window),
                "options": {name: _amount(way) for name, way in options_of(one.config).items()},
                "window": window,
                "budget_s": max(LEAST_ESTIMATING_S, self.config.estimates.delay_s - LOADING_S),
                "correction": asdict(one.correction),
            }
            for one in self._learners.values()
        ]
        limit_s = max(LEAST_WAIT_S, self.config.window_s)
        environment = self._environment(busy=True)
        asking = self._site.begin_asking("workloads.learning.profiler:estimate", asked, limit_s, environment)
        self._measuring = window, asking, tuple(self._learners)
        return asking

    def _reader(self, one: _Model) -> _Reader:
        """A model that was tried, to learn what others write."""
        entry, takes, served = one.config, one.takes, one.served
        assert entry.learning is not None
        assert entry.learning.folder is not None
        began = Prepared(
            str(served.file), str(served.file), served.accuracy, (), takes.dtype, takes.shape, takes.n_classes
        )
        self._weights(entry.name).mkdir(parents=True, exist_ok=True)  # its retrainings write there
        kept = self._site.folder.parent / "data" / entry.name  # a restart has another folder, and the same past
        inbox = Inbox(Path(entry.learning.folder), kept, takes.dtype, takes.shape, takes.n_classes, self.config.seed)
        return _Reader(one.tenant, entry, takes, served, began, inbox=inbox, taken=served)

    def _measuring_of(self, one: _Learner, window: int) -> dict[str, Any]:
        """What is to be measured with: the window's data, or what others have written."""
        out = self._weights(one.tenant.name)
        if not isinstance(one, _Reader):
            return {"job": as_text(self.job(one.tenant.name, window, out))}
        job = self._job_of(one.config, one.served.file, experience=0, out=out)
        return {"job": as_text(job), "inbox": as_text(one.inbox), "trained": one.trained}

    def _environment(self, *, busy: bool) -> Mapping[str, str]:
        try:
            return self._aside(busy=busy)
        except GpuError as error:
            raise LiveError(f"profilers cannot start: {error}") from None

    def _taken_in(self, window: int, found: Sequence[Found | str]) -> tuple[float, ...]:
        assert self._measuring is not None
        (_, _, names), models = self._measuring, list(self._models.values())
        self._measuring = None
        told = {name: one if isinstance(one, Measured) else str(one) for name, one in zip(names, found, strict=True)}
        self.measured = {name: told.get(name, CAME_SINCE) for name in self._learners}
        for name, measured in told.items():
            if isinstance(measured, str):
                warn(f"window {window}: nothing was measured of {name}, so the config's accuracies hold: {measured}")
        for name, learner in self._learners.items():
            if isinstance(learner, _Reader):
                self._read(learner, window, self.measured[name])
        self.estimates = tuple(self._estimate(one, window) for one in models)
        before = tuple(self._before(one, window) for one in models)
        for one, accuracy in zip(models, before, strict=True):
            one.accuracies.note(window * self.config.window_s, accuracy)
            one.accuracies.forget(window, self.config.window_s)
        return before

    def _read(self, one: _Reader, window: int, found: Measured | str) -> None:
        """Know what had come for a window, and say what of it was not taken."""
        came = found.came if isinstance(found, Measured) else None
        one.came = {n: own for n, own in one.came.items() if n >= window - LASTING}
        if came is None:
            return
        for line in came.told:
            warn(f"tenants.{one.tenant.name}.learning.folder: {line}")
        if came.is_new:
            one.came[window] = came
        else:
            note(f"window {window}: {one.tenant.name} has nothing new to learn from, so that it is not retrained")

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
            seed=self.config.seed,
            folder=None if learning.folder is None else Path(learning.folder),
            asked=learning.asked,
            model_options=_own_options(entry),
        )

    def _before(self, one: _Model, window: int) -> float:
        found = self.measured.get(one.tenant.name)
        if found == CAME_SINCE:
            return one.accuracies.newest
        before = found.accuracy_before if isinstance(found, Measured) else None
        return one.tenant.accuracy_in(window).before if before is None else before

    def _estimate(self, one: _Model, window: int) -> Estimate:
        """What the window's retraining would bring; where it could not be measured, what the config says."""
        is_untold = isinstance(one, _Reader) and window not in one.came
        if not isinstance(one, _Learner) or is_untold or self.measured[one.tenant.name] == CAME_SINCE:
            return Estimate(self._before(one, window), {}, {})
        found, gains = self.measured[one.tenant.name], {way.name: way.gain for way in one.tenant.other_options}
        after = one.tenant.accuracy_in(window).after
        if isinstance(found, str):
            source = f"the config, because nothing could be measured: {found}"
        elif found.accuracy_after is None:
            source = f"before: measured in {found.took_s:.2f} s; after: the config, because time was too short"
        else:
            after = found.accuracy_after[FULL]
            assert found.accuracy_before is not None
            gains = _gains(found.accuracy_before, found.accuracy_after)
            assert found.raw is not None
            one.raw = {n: raw for n, raw in one.raw.items() if n >= window - LASTING} | {window: found.raw}
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
    return _Model(tenant, entry, _takes(entry), Served(file, FIRST, tenant.accuracy_in(0).before))


def _learner(tenant: Tenant, entry: TenantConfig, prepared: Prepared) -> _Learner:
    """A model that is retrained."""
    if prepared.began_with.startswith("random ("):
        warn(f"tenants.{entry.name}: {entry.model} began to learn with weights that are {prepared.began_with}")
    takes = Takes(prepared.dtype, prepared.shape, prepared.n_classes)
    one = _Learner(tenant, entry, takes, Served(Path(prepared.weights), FIRST, prepared.accuracy), prepared)
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


def _versions(served: Served | None, kept: Sequence[Served]) -> dict[str, Served]:
    """What was trained before, the oldest first; what serves may be older than all that the log still has."""
    versions = {one.version: one for one in kept}
    return versions if served is None or served.version in versions else {served.version: served, **versions}


def _kept_in(one: _Model) -> dict[str, Served]:
    """By version, the model's weights that are still there."""
    return {name: own for name, own in one.versions.items() if own.file is not None and own.file.is_file()}


def learned_in(version: str) -> int:
    """The newest window whose data weights of this version have learned; −1 for first ones."""
    return -1 if version == FIRST else int(version.partition("@")[0].removeprefix("window-"))


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
