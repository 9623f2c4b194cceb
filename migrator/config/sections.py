"""The sections of a config, each key with its range; documented in ``docs/configuration.md``.

Unknown keys are refused with the nearest known one.
"""

from __future__ import annotations

import fractions
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, reduce
from itertools import chain, pairwise
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from executor.catalogue import gpu_model, is_catalogued
from executor.described import described, model_of
from executor.errors import ExecutorError
from executor.gpu import SILENT_S
from executor.mig import GpuModel, Placement, Variant, placed
from executor.names import nearest
from executor.opening import named_model
from migrator.extras import model_text
from planner.budget import FLOOR_COSTS_AT_MOST, planning_time_s
from planner.files.strict import Text, as_text
from planner.files.words import NAME
from workloads.errors import WorkloadError
from workloads.training import FOLDER, Curve

SHIPPED_TRACES = (
    "azure-conv",
    "azure-code",
    "apollo",
    "disb-resnet152",
    "disb-densenet201",
    "disb-vgg19",
    "disb-inceptionv3",
    "disb-distilbert",
    "alibaba-servegen",
)
"""As in ``workloads.traffic.trace_file`` and ``.servegen``, for the same reason, and held equal by the same test."""

# Limits far above any use: what exceeds them is a slip, and would fail later with less to say.
Positive = Annotated[float, Field(gt=0, le=1e6)]
NonNegative = Annotated[float, Field(ge=0, le=1e6)]
Sigma = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=1, le=10**9)]

MOST_LOAD, DOUBTFUL_LOAD = 10.0, 3.0
"""The largest ``load``, and the largest that is no cause for doubt: at 1 the tenants, in turn, would fill the GPU."""


def _percent(number: float, most: float) -> str:
    """The question whether a share that is too large is percent, where that makes it one."""
    return f"; percent? {number:g} % are {number / 100:g}" if most < number <= 100 * most else ""


def _share(most: float) -> AfterValidator:
    def validated(share: float) -> float:
        if share > most:
            raise ValueError(f"a share, at most {most:g}, is needed{_percent(share, most)}")
        return share

    return AfterValidator(validated)


Fraction = Annotated[float, Field(ge=0), _share(1)]
Load = Annotated[Positive, _share(MOST_LOAD)]

Name = Annotated[str, Field(pattern=NAME, max_length=100)]


def _either(needed: str) -> WrapValidator:
    """Says in one sentence what a key may be that takes values of two kinds."""

    def validated(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise ValueError(needed) from None

    return WrapValidator(validated)


MAX_STEPS = 100_000
"""Steps of a window, and steps of history; a run of 200 s windows has 200."""

MAX_RUN_S = 366 * 86_400
"""Seconds of a run, as long as the longest trace."""

ENDLESS = 10**8
"""Windows of a service, which goes on until it is stopped: more than any will see, and none that a config may say."""


class Section(BaseModel):
    """A part of the config: frozen, strictly typed, finite numbers only, no unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    meant = nearest(str(key), cls.model_fields)
                    hint = f"did you mean {meant!r}? " if meant else ""
                    raise ValueError(f"unknown key {as_text(key)}; {hint}known: {', '.join(cls.model_fields)}")
        return data


class GpuConfig(Section):
    """Which GPU, and whether it is simulated; ``card`` describes a model that the catalogue does not have so."""

    card: Annotated[dict[str, Any] | None, Field(exclude_if=lambda card: card is None)] = None
    """Description of a model that is not in the catalogue; ``model`` fills it in from a file or a card."""
    model: str
    """Name from ``migrator gpu models``; a ``.toml`` of ``migrator gpu describe``; or a MIG card of this machine,
    as ``gpu list`` prints it."""
    backend: Literal["sim", "nvml", "smi", "mps", "cpu"] = "sim"
    """``sim``: simulated. ``nvml``, ``smi``: a [real GPU](gpu.md) in MIG mode. ``mps``: shares of a [whole
    GPU](mps.md). ``cpu``: shares of this machine's CPU. ``run --gpu`` overrides it."""
    index: Annotated[int, Field(ge=0, le=1000)] = 0
    """Which real GPU, as in ``nvidia-smi -i``. ``run --index`` overrides it."""
    silent_s: Annotated[float, Field(ge=2, le=86400)] = SILENT_S
    """Seconds, 2 to 86400, that a run waits for a driver that does not answer. Then it ends with exit code 4."""

    @model_validator(mode="before")
    @classmethod
    def _describe_card(cls, data: object) -> object:
        """Put the card that ``model`` names by a file, or by its driver's name, into the config: it says all of it."""
        if not isinstance(data, Mapping) or not isinstance(name := data.get("model"), str):
            return data
        card = data.get("card")
        if isinstance(card, Mapping) and card.get("name") == name:
            return data
        with suppress(ExecutorError):  # which the validation of the model tells
            model = named_model(name)
            return {**data, "model": model.name, "card": None if is_catalogued(model) else described(model)}
        return {**data, "card": None}

    @field_validator("card")
    @classmethod
    def _card_can_be(cls, card: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return None if card is None else described(model_of(card))
        except ExecutorError as error:
            raise ValueError(str(error)) from None

    @field_validator("model")
    @classmethod
    def _model_is_known(cls, name: str, info: ValidationInfo) -> str:
        card = info.data.get("card")
        if card is not None and card["name"] == name:
            return name
        try:
            return named_model(name).name
        except ExecutorError as error:
            raise ValueError(str(error)) from None

    @property
    def cut(self) -> GpuModel:
        """What the GPU can be cut into: as its card is described, else as the catalogue has it."""
        if self.card is not None and self.card["name"] == self.model:
            return model_of(self.card)
        return gpu_model(self.model)


class ScaleConfig(Section):
    """How a trace becomes requests; ``factor`` may be left to ``load``, and ``method`` to the factor."""

    method: Literal["poisson", "copies", "thin"] | None = None
    """Default: by the factor. ``poisson``, ``copies`` or ``thin``; see [scaling](#scaling)."""
    factor: Positive | None = None
    """Default: from ``load``, else 1. By how much the mean rate grows."""
    smooth_s: Count = 10
    """Width of the moving average of ``poisson``, whole seconds."""


_IF_GIVEN = Field(exclude_if=lambda value: value is None)
"""A key that resolved configs have only where it says something."""


class ArrivalsConfig(Section):
    """Where a tenant's requests come from: a trace, Poisson arrivals at ``rate_rps``, or clients (``live``).

    The past of live arrivals, before any came, is the trace file ``history``, or ``expect_rps`` all along.
    """

    trace: Text | None = None
    """A [shipped trace](#shipped-traces) or a [file](traces.md). ``format`` to ``time_column`` are for files
    alone."""
    format: Literal["counts", "timestamp-counts", "rates", "plain-counts", "azure", "timestamps"] | None = None
    """Default: from header and rows. ``counts``, ``timestamp-counts``, ``rates``, ``plain-counts``, ``azure`` or
    ``timestamps``. Needed only where several fit."""
    sort: bool = False
    """Whether rows may be in any order. Otherwise a time below the one before it is refused."""
    gaps: Literal["zero", "interpolate", "refuse"] | None = None
    """Default: refuse for counts. Seconds without data: ``zero`` (no request), ``interpolate`` (a line between the
    means of up to 60 s on either side) or ``refuse``."""
    column: Text | None = None
    """Default: the only one. Which series is read: its name in the header, a Prometheus metric (``{job="api"}``)
    or the value of a label."""
    unit: Annotated[Literal["s", "ms", "us", "ns"] | None, _IF_GIVEN] = None
    """Default: by size and name. Unit of times that are no dates: ``s``, ``ms``, ``us`` or ``ns``."""
    time_column: Annotated[Text | None, _IF_GIVEN] = None
    """Default: the first. Column of the times, or key of JSON lines."""
    rate_rps: Positive | None = None
    """Instead of a trace: Poisson arrivals at so many requests a second."""
    live: Annotated[bool, Field(exclude_if=lambda live: not live)] = False
    """Instead of a trace: requests come from clients, through the front door; see [live
    arrivals](#live-arrivals)."""
    history: Annotated[Text | None, _IF_GIVEN] = None
    """For live arrivals: a trace file of what came before the service began."""
    expect_rps: Annotated[Positive | None, _IF_GIVEN] = None
    """For live arrivals: the past rate where nothing else is known."""
    offset_s: Annotated[int, Field(ge=0, le=MAX_RUN_S)] | None = None
    """Default: ``forecast.history_s``. Whole second of the trace at which window 0 begins. The forecaster needs
    ``history_s`` before it, unless ``loop`` is set."""
    loop: bool = False
    """Whether a trace that is too short starts again."""
    scale: ScaleConfig = ScaleConfig()

    @model_validator(mode="after")
    def _one_source(self) -> ArrivalsConfig:
        of_files = [key for key in ("format", "sort", "gaps", "column", "unit", "time_column") if getattr(self, key)]
        if self.live:
            return self._from_clients(of_files)
        if (self.trace is None) == (self.rate_rps is None):
            raise ValueError("give either 'trace' (a name or a file) or 'rate_rps' (Poisson arrivals)")
        if of_live := [key for key in ("history", "expect_rps") if getattr(self, key) is not None]:
            raise ValueError(f"{of_live[0]} is of live arrivals; live: true is needed, or leave it out")
        if of_files and self.trace in SHIPPED_TRACES:
            raise ValueError(f"{of_files[0]} is of trace files; {self.trace} is shipped, and its form is known")
        if self.rate_rps is not None:
            if of_files:
                raise ValueError(f"{of_files[0]} is of trace files, and 'rate_rps' reads none")
            if self.scale.method not in (None, "poisson"):
                raise ValueError(f"scale.method is {self.scale.method}; 'rate_rps' is drawn, so that it is poisson")
        return self

    def _from_clients(self, of_files: Sequence[str]) -> ArrivalsConfig:
        fields = type(self).model_fields
        of_traces = ("trace", "rate_rps", "offset_s", "loop", "scale")
        if given := [key for key in of_traces if getattr(self, key) != fields[key].default]:
            raise ValueError(f"{given[0]} is of traces, and live arrivals come from clients; leave it out")
        if of_files and self.history is None:
            raise ValueError(f"{of_files[0]} is of trace files, and there is no history")
        return self


Part = Annotated[float, Field(gt=0, lt=1)]

Windows = Annotated[int, Field(ge=0, le=10**6)]


def _rising(curve: str | list[list[float]]) -> str | list[list[float]]:
    try:
        Curve(points=() if isinstance(curve, str) else tuple((part, gain) for part, gain in curve))
    except WorkloadError as error:
        raise ValueError(str(error)) from None
    return curve


CurveConfig = Annotated[
    Literal["linear", "square-root"] | list[Annotated[list[Fraction], Field(min_length=2, max_length=2)]],
    AfterValidator(_rising),
]
"""The name of a curve, or its points: part done, gain."""


class DecisionConfig(Section):
    """Whether to retrain: what holds for all tenants. What tenants say themselves goes before it.

    ``max_skipped`` are windows in a row; ``drift_prior`` is the share of its accuracy that a model is taken to keep
    from one window to the next before anything has shown it; ``checkpoint_s`` and ``swap_s`` are seconds each.
    """

    required: bool = False
    """``false``: a plan leaves a retraining out where that pays. ``true``: every offered retraining is done."""
    max_skipped: Windows | None = None
    """At most so many windows in a row pass without a finished retraining. 0 requires it in every
    window."""
    drift: Literal["compound", "as_given"] = "compound"
    """``compound``: a model that is behind keeps a share of its accuracy in each window. ``as_given``: it falls to
    the next ``before``. See [drift](#drift)."""
    drift_prior: Annotated[float, Field(gt=0, le=1)] = 0.65
    """Share of its accuracy that a model is assumed to keep until a retraining of it, or a window, has shown one."""
    salvage: Literal["auto"] | bool = "auto"
    """Whether plans count a model's [worth](planner.md#salvage) in the next three windows. ``auto``: where drift
    compounds and the tenant has a choice."""
    ends: bool = False
    """Whether nothing counts after the run's last window."""
    curve: CurveConfig = "square-root"
    """Gain of a part of a retraining: ``square-root``, ``linear``, or points (part, gain) ``[[0.25, 0.6], [0.5,
    0.8]]`` joined by lines."""
    checkpoints: Annotated[list[Part], Field(max_length=20)] = []
    """Parts of a retraining, ``[0.25, 0.5, 0.75]``, after which its weights serve if they are better. Simulated
    runs only."""
    checkpoint_s: NonNegative = 0.0
    """Seconds that each checkpoint adds to the retraining."""
    swap_s: NonNegative = 0.0
    """Seconds that a tenant's servers pause to load new weights. Not together with floors of in-time answers."""

    @field_validator("checkpoints")
    @classmethod
    def _checkpoints_rise(cls, parts: list[float]) -> list[float]:
        if any(later <= earlier for earlier, later in pairwise(parts)):
            raise ValueError(f"parts that rise are needed, not {', '.join(map(str, parts))}")
        return parts


class OptionConfig(Section):
    """Another way to retrain a tenant; what it does not say is as in the full retraining."""

    name: Name
    """Any name but ``full`` and ``none``."""
    samples: Count | None = None
    """Default: the tenant's. Samples of this option."""
    epochs: Count | None = None
    """Default: the tenant's. Epochs of this option."""
    gain: Fraction | None = None
    """Default: by the curve. Share of what ``full`` gains. In live runs
    [micro-profiling](learning.md#micro-profiling) replaces it."""

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        taken = {"full": "the tenant's own samples and epochs", "none": "no retraining at all"}
        if name in taken:
            raise ValueError(f"{name!r} means {taken[name]}; another name is needed")
        return name


class RetrainingConfig(Section):
    """How much data one retraining goes through, and in how many of the run's windows there may be one."""

    samples: Count
    """Samples of a retraining in a window; its time follows ``samples`` × ``epochs``."""
    epochs: Count = 1
    """Passes over them."""
    windows: Annotated[int, Field(ge=0)] | None = None
    """Default: all. Retrainings are offered in the first so many windows; later there is nothing to learn."""
    required: bool | None = None
    """Default: ``retraining.required``. The tenant's own."""
    max_skipped: Windows | None = None
    """Default: ``retraining.max_skipped``. The tenant's own."""
    below: Fraction | None = None
    """Default: always. Retrainings are offered below this accuracy."""
    options: Annotated[list[OptionConfig], Field(max_length=20)] = []
    """Further ways to retrain, of which a window takes at most one: ``[{name: half, samples: 5000}]``. Samples and
    epochs alone are ``full``."""
    curve: CurveConfig | None = None
    """Default: ``retraining.curve``. The tenant's own."""

    @field_validator("options")
    @classmethod
    def _names_differ(cls, options: list[OptionConfig]) -> list[OptionConfig]:
        names = [option.name for option in options]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two are called {twice[0]!r}; names must differ")
        return options


class AccuracyConfig(Section):
    """Share of correct answers in a window, before and after its retraining ends."""

    before: Fraction
    """Share of correct answers until the window's retraining ends."""
    after: Fraction
    """Share after the whole retraining."""

    @model_validator(mode="before")
    @classmethod
    def _two_shares(cls, data: object) -> object:
        if not isinstance(data, (Mapping, list, AccuracyConfig)):
            hint = _percent(data, 1) if isinstance(data, (int, float)) else ""
            # Pydantic makes a message of ValueError alone.
            raise ValueError(f"{{before, after}} is needed, shares of at most 1{hint}")  # noqa: TRY004
        return data


class LearningConfig(Section):
    """What a tenant's model is asked and learns, where requests and workers are real."""

    benchmark: Text
    """[Source](learning.md#data-sequences-of-experiences) of samples: ``digits``, ``digits-rotated``, ``cifar10``,
    ``core50``, ``newsgroups20``, ``newsgroups20-tokens``; or ``folder``, what others label."""
    asked: Literal["new", "seen"] = "new"
    """Requests ask about the current experience (``new``) or all until then (``seen``)."""
    folder: Text | None = None
    """Default: ``~/.cache/migrator/data``. Folder of the data, or in which others write."""
    trainer: Literal["plain", "avalanche"] = "plain"
    """``plain`` (torch alone) or ``avalanche`` (the extra of that name)."""
    strategy: Literal["naive", "replay", "ewc", "lwf"] = "replay"
    """``naive``, ``replay``; with ``avalanche`` also ``ewc``, ``lwf``."""
    batch: Count = 32
    """New samples in a step."""
    learning_rate: Positive = 0.02
    """For stochastic gradient descent with momentum 0.9."""
    memory: Annotated[int, Field(ge=0, le=10**9)] = 200
    """Samples of earlier experiences that strategies other than ``naive`` keep."""
    checkpoints: list[Annotated[float, Field(gt=0, lt=1)]] = [0.5]
    """Shares of the steps after which weights are kept and measured."""
    worse: Annotated[float, Field(ge=0, le=1)] = 0.02
    """How much lower the held-out accuracy of new weights may be than that of those in service."""
    model_options: dict[str, Any] = {}
    """Passed to the model beside shape, classes and type of its inputs."""

    @model_validator(mode="after")
    def _trainer_knows_the_strategy(self) -> LearningConfig:
        if self.strategy in ("ewc", "lwf") and self.trainer != "avalanche":
            raise ValueError(f"strategy is {self.strategy!r}; trainer 'plain' knows naive and replay, 'avalanche' all")
        return self


class FloorConfig(Section):
    """The least share of requests to be answered in time, over each window or in each step."""

    share: Annotated[float, Field(gt=0), _share(1)]
    """Above 0, at most 1."""
    per: Literal["window", "step"] = "window"
    """``window``: over each window. ``step``: in each step."""

    @model_validator(mode="before")
    @classmethod
    def _share_alone(cls, data: object) -> object:
        if isinstance(data, (int, float)) and not isinstance(data, bool):
            return {"share": data}
        if not isinstance(data, (Mapping, FloorConfig)):
            # Pydantic makes a message of ValueError alone.
            raise ValueError("a number above 0 and at most 1, or {share, per}, is needed")  # noqa: TRY004
        return data


_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")
"""As numpy calls what :data:`workloads.live.open_inference.DATATYPES` has, held equal by a test."""


def _known_dtype(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"one of {', '.join(DTYPES)} is needed")
    return name


class InputConfig(Section):
    """What one request carries to a model that learns no benchmark: numbers of a type, in a shape."""

    dtype: Annotated[str, AfterValidator(_known_dtype)]
    """``bool``, ``uint8`` to ``uint64``, ``int8`` to ``int64``, ``float16``, ``float32`` or ``float64``. The
    catalogue's models take ``uint8``, ``bert_base`` ``uint16``."""
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**24)]], Field(max_length=8)]
    """Shape of one sample: ``[3, 32, 32]``."""


class TenantPinConfig(Section):
    """What of a tenant stays."""

    weights: Text | None = None
    """The version of its [weights](serve.md#keeping-it-right); nothing retrains it then."""


class TenantConfig(Section):
    """One model with its traffic; one that is to be ``alone`` shares no instance.

    ``weights`` is the file of its first ones. ``input`` and ``classes`` are those of a model that serves and does not
    learn. With ``model_options`` it is made, beside shape, classes and type of its inputs, before which they go.
    """

    name: Name
    """Letters, digits, ``.``, ``_``, ``-``; distinct."""
    model: Text
    """A model of the service profiles; shipped: ``resnet50``, ``mobilenet-v2``, ``inception-v3``, ``bert-large``,
    ``vit-b-16``, ``bert-base``, ``convnext-base``."""
    slo_ms: Positive
    """Milliseconds within which an answer counts."""
    arrivals: ArrivalsConfig
    accuracy: AccuracyConfig | Annotated[list[AccuracyConfig], Field(min_length=1)]
    """``{before, after}``, or a list with one for each window, the last for all later ones. One number is enough
    without retraining."""
    retraining: RetrainingConfig | None = None
    batch: Count | Literal["auto"] = "auto"
    """Batch limit of a worker. ``auto``: with the process count, the highest rate whose 2 × batch latency ≤
    SLO."""
    max_batch: Count | None = None
    """Largest batch size that ``auto`` considers."""
    processes: Count | Literal["auto"] = "auto"
    """Processes in an instance, or ``auto``."""
    min_profile: Text | None = None
    """Default: the smallest that meets the SLO. Inference always has an instance of at least its compute and
    memory slices."""
    weight: NonNegative = 1.0
    """Factor on the tenant's goodput in the plan."""
    load_share: Positive = 1.0
    """The tenant's part of ``load``, relative to the other tenants'."""
    worker_start_s: NonNegative | None = None
    """Default: measured. Seconds for a worker to start alone: loading libraries, then the model."""
    retraining_start_s: NonNegative | None = None
    """Default: as ``worker_start_s``. The same for the retraining's worker."""
    min_slo_attainment: FloorConfig | None = None
    """Least share of requests answered in time: ``0.99``, or ``{share: 0.99, per: step}``. It goes before goodput;
    see [floors](planner.md#floors-of-in-time-answers)."""
    learning: LearningConfig | None = None
    alone: bool = False
    """Whether the tenant shares instances with nobody, whatever ``sharing.pools`` says."""
    weights: Annotated[Text | None, _IF_GIVEN] = None
    """For a live run: safetensors file of the first weights; nothing is trained before the first request."""
    weights_from: Annotated[Text | None, _IF_GIVEN] = None
    """Where those come from, for the log; a cluster says it of tenants that moved."""
    input: Annotated[InputConfig | None, _IF_GIVEN] = None
    """For a model that [only serves](#models-that-only-serve): what a request has."""
    classes: Annotated[Annotated[int, Field(ge=1, le=2**16)] | None, _IF_GIVEN] = None
    """For a model that only serves: number of labels, at most 65,536. An answer is a label of two bytes."""
    model_options: Annotated[dict[str, Any], Field(exclude_if=lambda options: not options)] = {}
    """Passed to the served model; they override those of ``learning``."""
    pin: Annotated[TenantPinConfig, Field(exclude_if=lambda pin: pin == TenantPinConfig())] = TenantPinConfig()
    """What of the tenant stays, in a live run."""

    @model_validator(mode="before")
    @classmethod
    def _one_share_is_enough(cls, data: object) -> object:
        """A model that learns nothing has one accuracy."""
        share = data.get("accuracy") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or isinstance(share, bool) or not isinstance(share, (int, float)):
            return data
        learns = data.get("retraining") is not None or data.get("learning") is not None
        return data if learns or share > 1 else {**data, "accuracy": {"before": share, "after": share}}

    @property
    def reads(self) -> bool:
        """Whether it learns what others write into a folder."""
        return self.learning is not None and self.learning.benchmark == FOLDER

    @property
    def served_keys(self) -> list[str]:
        """What it has of the keys that only a model that is really served needs."""
        keys = ("weights", "input", "classes", "model_options")
        return [key for key in keys if getattr(self, key) not in (None, {})]

    @property
    def accuracies(self) -> list[AccuracyConfig]:
        """The accuracies as a list; its last entry holds for all later windows."""
        return self.accuracy if isinstance(self.accuracy, list) else [self.accuracy]


class ForecastConfig(Section):
    """Which forecaster, and from how much history; ``known`` is none, but the window's own arrivals.

    A ``half_life_s`` or ``season_s`` without ``method`` asks for the forecaster that has one.
    ``model`` is the folder of a fitted network, which ``informer`` and ``nhits`` need.
    """

    method: Literal[
        "auto", "window", "short-term", "lightgbm", "ewma", "seasonal-naive", "informer", "nhits", "known"
    ] = "auto"
    """``auto``, ``window``, ``short-term``, ``lightgbm``, ``ewma``, ``seasonal-naive``, ``informer``, ``nhits``
    ([methods](forecast.md)), or ``known``: hindsight."""
    model: Text | None = None
    """Folder of a fitted network, for ``informer`` and ``nhits``, which need one."""
    history_s: Positive = 600.0
    """Seconds of past arrivals that the forecaster sees; a whole number of steps."""
    half_life_s: Positive = 60.0
    """For ``ewma``; alone it selects ``ewma``."""
    season_s: Positive = 200.0
    """For ``seasonal-naive``; alone it selects that. A whole number of steps, or of seconds where steps are
    shorter."""
    n_paths: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Sample paths over which the planner averages."""

    @model_validator(mode="before")
    @classmethod
    def _a_setting_names_its_method(cls, data: object) -> object:
        if isinstance(data, Mapping) and "method" not in data:
            asked = [name for key, name in (("half_life_s", "ewma"), ("season_s", "seasonal-naive")) if key in data]
            if len(asked) > 1:
                raise ValueError("half_life_s is of method ewma, season_s of seasonal-naive; say which method")
            if asked:
                return {**data, "method": asked[0]}
        return data

    @model_validator(mode="after")
    def _networks_have_a_model(self) -> ForecastConfig:
        if self.method in ("informer", "nhits") and self.model is None:
            raise ValueError(f"method {self.method!r} needs a model: {model_text(self.method)}")
        if self.method not in ("informer", "nhits") and self.model is not None:
            raise ValueError(f"model is of methods informer and nhits, and method is {self.method!r}; say which")
        return self


REPLAN_EVERY_S = 10.0
"""The pace at which the rest of a window is planned anew, where none is given and steps are not longer.

Chosen on pieces of the first halves of three workloads' traces; ``make bench-online`` tells what it is worth.
"""


class PlannerConfig(Section):
    """How hard and how often to plan; in work, never in seconds, so that a run repeats byte for byte.

    ``replan_every_s`` is the pace at which the rest of a window is planned anew, with ``replan_schedules`` of work.
    ``prove`` says which plans of a run are proven as they are made; ``migrator verify`` proves them afterwards.
    ``burst_floor`` lets a layout that stays take the place of plans that may lose much by bursts; ``risk`` is the share
    of the worst arrivals in what a plan is worth, beside the mean. ``floor_costs_at_most`` limits what floors of
    in-time answers may cost, in hundredths of a window's forecast requests. ``layout`` has the profiles of instances
    that are made once, for one pool of all tenants; retrainings run on loans of them.
    """

    max_schedules: Count = 4000
    """Work of a search, in retraining schedules valued on counts, before it takes the best found, with its bound."""
    prove: Literal["never", "windows"] = "never"
    """``windows``: each plan is proven as it is made, for half of a run's CPU.

    ``never``: ``verify`` proves afterwards."""
    switch_s: NonNegative | None = None
    """Default: as seen. Seconds from a change's begin to a new instance: draining, driver calls; before any:
    longest batch, two destructions, two creations."""
    planning_s: NonNegative | None = None
    """Default: by size. Virtual seconds that [planning](#the-time-of-planning) a window takes."""
    replanning_s: NonNegative | None = None
    """Default: by ``planning_s``. The same for the rest of a window: ``planning_s`` if given, else its default ×
    ``replan_schedules`` / 4000, at least 1."""
    replan_every_s: Annotated[
        Positive | Literal["never"] | None, _either("a number of seconds above 0, or 'never', is needed")
    ] = None
    """Default: 10, or ``step_s``. Seconds, at least ``step_s``, between plans of a window's rest, or ``never``;
    see [planning again](#planning-again)."""
    replan_schedules: Count = 100
    """``max_schedules`` of a plan of a window's rest."""
    burst_floor: bool = False
    """Whether a layout that stays replaces a plan that may lose more than 1 % of requests by
    [bursts](planner.md#a-floor-under-bursts)."""
    risk: Fraction = 0.0
    """Share, 0 to 1, of the forecast's worst fifth of paths in a step's worth, beside the mean."""
    floor_costs_at_most: Annotated[float, Field(ge=0, le=100)] = FLOOR_COSTS_AT_MOST
    """What floors of in-time answers may cost, 0 to 100 % of a window's forecast requests."""
    layout: Annotated[
        Literal["auto"] | Annotated[list[Text], Field(min_length=1)] | None,
        _either("auto, or a list of profiles such as [2g.20gb, 2g.20gb, 3g.40gb], is needed"),
    ] = None
    """Profiles, e.g. ``[4g.40gb, 3g.40gb]``, or ``auto``: made once for one pool of all tenants, who retrain on
    [loans](engines.md#one-layout-with-loans) of them."""


class EstimatesConfig(Section):
    """What planning knows of a retraining before it runs, and of service: how wrong, at what cost, from when on.

    ``accuracy_*`` are shares of correct answers; ``time_bias`` is relative, ``time_sigma`` of a lognormal factor.
    ``service_spread`` is the half-width of a uniform factor on batch latencies.
    """

    accuracy_bias: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Share, −1 to 1, added to the accuracy after a retraining."""
    accuracy_sigma: Fraction = 0.0
    """Spread, 0 to 1, of a normal error on it; estimates are cut to [0, 1]."""
    time_bias: Annotated[float, Field(gt=-1, le=10)] = 0.0
    """Relative error of the training time, above −1: 0.1 plans 10 % more than it takes."""
    time_sigma: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Sigma, 0 to 2, of a lognormal factor (mean 1) on the training time, the same on all profiles."""
    cost_gpu_s: NonNegative = 0.0
    """GPU-seconds, of the whole GPU, that each estimate takes."""
    delay_s: NonNegative = 0.0
    """Virtual seconds from a window's start until the estimates are there. Window 0 waits for nothing."""
    service_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Half-width, 0 to below 1, of a uniform factor (mean 1) on each model's latency by profile, in plans alone."""


class DriverFaultsConfig(Section):
    """How often the simulated driver refuses what it could do: ``executor.sim.Faults``."""

    error_share: Fraction = 0.0
    """Share of creating and destroying calls refused without a reason (*Unknown Error*), after half of their
    time."""
    in_use_share: Fraction = 0.0
    """Share of instances that refuse to go when first asked (*In use by another client*) though nobody is
    there."""
    in_use_s: NonNegative = 5.0
    """Seconds that such an instance refuses, from the first attempt on."""
    half_share: Fraction = 0.25
    """Share of refusals that come too late: a GPU instance without compute instance is left. An assumption."""


class OthersInstanceConfig(Section):
    """An instance that others put on the simulated GPU and take away; by default it stays all along."""

    placement: Text
    """``1g.10gb@6``; an instance without room waits for it."""
    from_s: Annotated[float, Field(ge=0, le=MAX_RUN_S)] | None = None
    """Default: the start. Second of the run at which it comes."""
    to_s: Annotated[float, Field(ge=0, le=MAX_RUN_S)] | None = None
    """Default: the end. Second of the run at which it goes."""

    @model_validator(mode="after")
    def _goes_after_it_comes(self) -> OthersInstanceConfig:
        if self.to_s is not None and self.to_s <= (self.from_s or 0):
            raise ValueError(f"to_s is {self.to_s:g}; more than from_s ({self.from_s or 0:g}) is needed")
        return self


class SimulationConfig(Section):
    """What the simulated GPU does beyond its medians.

    Jitters are spreads (sigma) of a lognormal factor; ``service_jitter`` may also vary as measured steps of training
    do (``workloads.traffic.luck``). ``interference`` scales by how much tenants that share the GPU
    without partitions slow each other down, over 1: 0 is not at all, 1 as ``workloads.profiles.shares`` has it.
    ``driver`` and ``others`` are what makes real GPUs hard to change.
    """

    start_jitter: Sigma = 0.0
    """Sigma of a lognormal factor (median 1) on worker start-up times."""
    service_jitter: Annotated[
        Sigma | Literal["measured"], _either("a number from 0 to 10, or 'measured', is needed")
    ] = 0.0
    """Sigma, 0 to 10, of a lognormal factor (mean 1) on batch latencies, or ``measured`` as [steps of
    training](workloads.md#service-jitter)."""
    interference: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Scales how much tenants that share processors without partitions slow each other down. 0: not at all; 1: as
    Mudi measured it."""
    driver: DriverFaultsConfig = DriverFaultsConfig()
    others: Annotated[list[OthersInstanceConfig], Field(max_length=100)] = []
    """Instances that others put on the GPU, each with a process: ``[{placement: 1g.10gb@6, from_s: 250, to_s:
    430}]``."""

    @property
    def has_faults(self) -> bool:
        """Whether the GPU does anything but what it is asked to."""
        return self.driver.error_share > 0 or self.driver.in_use_share > 0 or bool(self.others)


def _named_off(value: object) -> object:
    """A bare ``off`` is false in YAML."""
    return "off" if value is False else value


Pool = Annotated[list[Name], Field(min_length=1)]


class SharingConfig(Section):
    """Whether tenants' inference may hold instances together, and what a turn after another tenant's costs there.

    ``pools`` are the pools themselves, all tenants in them, or what chooses: nothing (``off``) or the plan (``auto``).
    ``turn_cost`` is the share by which a turn lasts longer that follows another member's; ``None``: as measured.
    """

    pools: Annotated[
        Literal["off", "auto"] | list[Pool],
        _either("off, auto, or a list of pools such as [[a, b], [c]], each a list of tenants, is needed"),
        BeforeValidator(_named_off),
    ] = "auto"
    """``auto``: each window's plan chooses who shares. ``off``: nobody does. Or the pools, each tenant in one:
    ``[[a, b], [c]]``."""
    turn_cost: Fraction | None = None
    """Default: measured, else 0.05. Share, 0 to 1, by which a turn after another member's lasts longer."""

    @property
    def may_pool(self) -> bool:
        """Whether two tenants may hold an instance together."""
        return self.pools == "auto" or any(len(pool) > 1 for pool in self.listed or ())

    @property
    def listed(self) -> list[list[str]] | None:
        """The pools, where the config lists them."""
        return None if isinstance(self.pools, str) else self.pools


class FrontDoorConfig(Section):
    """Where clients from outside may ask the models of a live run; ``tokens`` are files, by tenant.

    ``origins`` are those of pages in a browser that may ask, too.
    """

    host: Text = "127.0.0.1"
    """Its address."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Its port."""
    tokens: dict[str, Text] = {}
    """By tenant, a file."""
    origins: list[Text] = []
    """Pages in a browser that may ask: ``["https://app.example"]``."""
    feedback_s: Annotated[Positive, Field(le=86_400)] = 3600.0
    """Seconds in which clients may [label](front-door.md#feedback) an answer."""


class PinConfig(Section):
    """What plans leave as it is."""

    layout: bool = False
    """Whether instances stay."""
    retraining: bool = True
    """Whether models are retrained."""


class LogConfig(Section):
    """How the log of a run is kept."""

    roll_windows: Count = 432
    """Windows of a [segment](log.md)."""
    keep_days: Count = 30
    """Of a service, until segments go."""


class Config(Section):
    """A whole run."""

    name: Name = "run"
    """Default: the file's name. Name of the run; without ``--out`` its folder is ``runs/<name>``."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Fixes arrivals, luck, forecasts' sample paths and jitter."""
    gpu: GpuConfig
    window_s: Positive = 200.0
    """Whole seconds; a whole number of steps. One plan and at most one retraining a tenant per window."""
    step_s: Positive = 1.0
    """Seconds; the planner's granularity."""
    windows: Annotated[Count, Field(exclude_if=lambda windows: windows == ENDLESS)] = 4
    """How many windows. ``--windows`` cuts or extends the run, and leaves the scale of traces as it is."""
    load: Load | None = None
    """Offered [load](#load), as a share of what the GPU can serve: at most 10 (70 % are 0.7), with a warning above
    3."""
    load_windows: Count | None = None
    """Default: all. Over how many windows, from window 0 on, the scale brings a trace to ``load``."""
    load_over: Literal["run", "segment"] = "run"
    """``run``: one scale for all segments of a comparison. ``segment``: each segment is brought to ``load`` by
    itself."""
    profiles: Text | None = None
    """Default: the shipped table. CSV file of [service profiles](profile.md#the-table)."""
    profile_variant: Literal["recorded", "launch-free"] = "recorded"
    """``recorded``: as measured. ``launch-free``: small batches as if no CPU had to
    [launch](profile.md#launch-free) them."""
    share_profiles: Annotated[Text | None, _IF_GIVEN] = None
    """CSV file of [measured shares](profile.md#shares), for policies without partitions and cards in shares."""
    forecast: ForecastConfig = ForecastConfig()
    planner: PlannerConfig = PlannerConfig()
    estimates: EstimatesConfig = EstimatesConfig()
    retraining: DecisionConfig = DecisionConfig()
    sharing: SharingConfig = SharingConfig()
    simulation: SimulationConfig = SimulationConfig()
    front_door: FrontDoorConfig | None = None
    """Where clients ask the models of a live run; see [front-door.md](front-door.md)."""
    log: LogConfig = LogConfig()
    """Of the log."""
    pin: Annotated[PinConfig, Field(exclude_if=lambda pin: pin == PinConfig())] = PinConfig()
    """What [stays](serve.md#keeping-it-right)."""
    tenants: Annotated[list[TenantConfig], Field(min_length=1)]

    @field_validator("tenants")
    @classmethod
    def _tenants_are_distinct(cls, tenants: list[TenantConfig]) -> list[TenantConfig]:
        names = [tenant.name for tenant in tenants]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tenants are called {name!r}; names must differ")
        return tenants

    @model_validator(mode="after")
    def _parts_go_together(self) -> Config:
        of_gpu = self._of_gpu(), self._of_steps(), self._of_planning(), self._of_layout()
        for objection in chain(self._of_tenants(), self._of_arrivals(), self._of_models(), self._of_pools(), *of_gpu):
            raise ValueError(objection)
        return self

    def _of_tenants(self) -> Iterator[str]:
        """What is wrong with who learns, and who has tokens."""
        names = [tenant.name for tenant in self.tenants]
        for name in self.front_door.tokens if self.front_door is not None else ():
            if name not in names:
                yield f"front_door.tokens.{name}: there is no such tenant; there is: {', '.join(names)}"
        if self.is_live and self.retraining.checkpoints:
            yield (
                "retraining.checkpoints: plans of real workers do not know them; none, or gpu.backend sim, is "
                "needed (learning.checkpoints says when weights are kept)"
            )

    def _of_arrivals(self) -> Iterator[str]:
        """Why requests cannot come from clients."""
        if not self.has_live_arrivals:
            return
        for tenant in self.tenants:
            if not tenant.arrivals.live:
                yield f"tenants.{tenant.name}.arrivals: are a trace's, and others are live; all are, or none is"
        if self.gpu.backend == "sim":
            yield "gpu.backend is sim; live arrivals need workers that are real: cpu, nvml, smi or mps"
        if self.front_door is None:
            yield "front_door: it is missing, and live arrivals come through it; front_door: {} is enough"
        if self.load is not None:
            yield "load: is of traces, and live arrivals come as they come; leave it out"
        if self.forecast.method == "known":
            yield "forecast.method is known, and nobody knows what clients ask; auto, or another forecaster, is needed"

    def _of_models(self) -> Iterator[str]:
        """Why a model cannot be served so, or is not served at all."""
        for tenant in self.tenants:
            where = f"tenants.{tenant.name}"
            given = [key for key in ("input", "classes") if getattr(tenant, key) is not None]
            if tenant.reads:
                yield from self._of_reader(tenant)
            elif tenant.learning is not None and given:
                yield f"{where}.{given[0]}: is that of learning.benchmark; leave it out"
            if tenant.pin.weights is not None and not self.is_live:
                yield f"{where}.pin.weights: simulated models have no versions; leave it out, or serve live"
            if self.gpu.backend != "sim" and not self.is_live and (keys := tenant.served_keys):
                yield f"{where}.{keys[0]}: no model is served here; arrivals {{live: true}}, or learning, is needed"
            if not self.is_live or tenant.learning is not None:
                continue
            if not self.has_live_arrivals:
                yield f"{where}: has no 'learning', whose samples are sent where a trace is played, and others have"
            if lacks := [key for key in ("input", "classes") if key not in given]:
                yield f"{where}.{lacks[0]}: it is missing, and needed of a model that serves and does not learn"
            if tenant.retraining is not None:
                yield f"{where}.retraining: the model has no 'learning', so that nothing retrains it; leave it out"

    def _of_reader(self, tenant: TenantConfig) -> Iterator[str]:
        """What is missing of a model that learns what others write."""
        where, learning = f"tenants.{tenant.name}", tenant.learning
        assert learning is not None
        if not self.has_live_arrivals:
            yield f"{where}.learning.benchmark: a folder has no samples to ask; arrivals {{live: true}} are needed"
        if learning.folder is None:
            yield f"{where}.learning.folder: it is missing; labelled samples are written there"
        for key in ("input", "classes", "weights"):
            if getattr(tenant, key) is None:
                yield f"{where}.{key}: it is missing, and needed of a model that learns from a folder"
        if tenant.input is not None and tenant.input.dtype not in ("uint8", "uint16"):
            yield f"{where}.input.dtype is {tenant.input.dtype}; uint8 or uint16 is needed to learn from a folder"

    def _of_pools(self) -> Iterator[str]:
        """Why tenants cannot share as the config lists it, or not on such a GPU."""
        names = [tenant.name for tenant in self.tenants]
        alone = {tenant.name for tenant in self.tenants if tenant.alone}
        pools = self.sharing.listed
        members = [name for pool in pools or () for name in pool]
        for pool in pools or ():
            for name in pool:
                if name not in names:
                    yield f"sharing.pools: {name!r} is no tenant; there is: {', '.join(names)}"
                if members.count(name) > 1:
                    yield f"sharing.pools: {name!r} is there {members.count(name)} times; once is allowed"
                if name in alone and len(pool) > 1:
                    yield f"sharing.pools: {name!r} is to be alone, and shares with {_others_in(pool, name)}"
        for name in names:
            if pools is not None and name not in members:
                yield f"sharing.pools: {name!r} is in no pool; each tenant is in one, one by itself as [{name}]"

    def _of_gpu(self) -> Iterator[str]:
        """What the GPU does not have."""
        gpu = self.gpu.cut
        for number, other in enumerate(self.simulation.others):
            try:
                gpu.placement(other.placement)
            except ExecutorError as error:
                yield f"simulation.others.{number}.placement: {error}"

    def _of_steps(self) -> Iterator[str]:
        """Which times are no whole steps or seconds, or too long."""
        for key, seconds in (("window_s", self.window_s), ("forecast.history_s", self.forecast.history_s)):
            n_steps = seconds / self.step_s
            if abs(n_steps - round(n_steps)) > 1e-6 or round(n_steps) < 1:
                yield f"{key} is {seconds:g}; a whole number of steps of {self.step_s:g} s is needed"
            if n_steps > MAX_STEPS:
                yield f"{key} is {seconds:g}; at most {MAX_STEPS} steps of {self.step_s:g} s are allowed"
        for key, windows in (("windows", self.windows), ("load_windows", self.n_load_windows)):
            if windows * self.window_s > MAX_RUN_S:
                yield f"{key} is {windows}; a run may last {MAX_RUN_S} s, with windows of {self.window_s:g} s"
        if self.window_s != round(self.window_s):
            yield f"window_s is {self.window_s:g}; whole seconds are needed"

    def _of_planning(self) -> Iterator[str]:
        """Why a window leaves no time to plan, or a step none to plan anew."""
        every_s, is_one = self.replan_every_s, self.windows == 1
        if every_s is not None and every_s < self.step_s:
            yield f"planner.replan_every_s is {every_s:g}; at least step_s ({self.step_s:g}), or 'never', is needed"
        if not is_one and math.ceil(self.planning_s / self.step_s - 1e-9) >= self.n_steps:
            given = "is" if self.planner.planning_s is not None else "is not given, so that it is"
            yield f"planner.planning_s {given} {self.planning_s:g}; it must leave a step of window_s to plan"
        if not is_one and self.planning_steps >= self.n_steps:
            yield (
                f"estimates.delay_s is {self.estimates.delay_s:g}; with planner.planning_s "
                f"({self.planning_s:g}) it must leave a step of window_s to plan"
            )

    def _of_layout(self) -> Iterator[str]:
        """Why one layout cannot be made and kept, with all tenants in it."""
        given, gpu = self.planner.layout, self.gpu.cut
        if given is None:
            return
        for number, name in enumerate(() if given == "auto" else given):
            if name not in gpu.profile_names:
                yield f"planner.layout.{number}: {gpu.name} has no {name!r}; it has {', '.join(gpu.profile_names)}"
        if given != "auto" and not self.layout:
            yield f"planner.layout: {', '.join(given)} do not fit {gpu.name} together; see migrator gpu layouts"
        if self.sharing.pools == "off" or len(self.sharing.listed or (0,)) > 1:
            yield "planner.layout: one pool of all tenants holds it; sharing.pools auto, or a list of one, is needed"
        for tenant in self.tenants:
            if tenant.alone:
                yield f"planner.layout: one pool of all tenants holds it, and {tenant.name!r} is to be alone"

    @property
    def layout(self) -> tuple[Placement, ...]:
        """Where the instances of ``planner.layout`` are, beside what others have from the start; none without one.

        Nor are there any of ``auto``, before :func:`migrator.execution.layout.with_layout` has chosen.
        """
        given, gpu = self.planner.layout, self.gpu.cut
        if given is None or given == "auto":
            return ()
        others = (gpu.placement(one.placement) for one in self.simulation.others if one.from_s is None)
        return _placed(gpu, tuple(given), reduce(or_, (one.memory_mask for one in others), 0))

    @property
    def pins_layout(self) -> bool:
        """Whether no plan may change the layout. None does beside a ``planner.layout``."""
        return self.pin.layout and self.planner.layout is None

    @property
    def has_live_arrivals(self) -> bool:
        """Whether requests come from clients alone."""
        return any(tenant.arrivals.live for tenant in self.tenants)

    @property
    def is_live(self) -> bool:
        """Whether requests and workers are real."""
        is_real = self.has_live_arrivals or any(tenant.learning is not None for tenant in self.tenants)
        return self.gpu.backend != "sim" and is_real

    @property
    def is_endless(self) -> bool:
        """Whether it is a service's, which goes on until it is stopped."""
        return self.windows == ENDLESS

    @property
    def n_steps(self) -> int:
        """Steps a window."""
        return round(self.window_s / self.step_s)

    @property
    def n_history_steps(self) -> int:
        """Steps before each window that the forecaster sees."""
        return round(self.forecast.history_s / self.step_s)

    @property
    def planning_s(self) -> float:
        """Seconds that planning a window takes: as given, or what it takes for so many tenants, steps and profiles."""
        if self.planner.planning_s is not None:
            return self.planner.planning_s
        # The shipped table has no profile with double memory; plans that are not proven take far less than the charge.
        may_hold = self.profiles is not None and self.planner.prove == "windows"
        has_double = may_hold and any(one.variant is Variant.DOUBLE_MEMORY for one in self.gpu.cut.profiles)
        return planning_time_s(len(self.tenants), self.n_steps, has_double_memory=has_double)

    @property
    def replanning_s(self) -> float:
        """Seconds that planning the rest of a window takes: as given, or its part of the work of a window's plan."""
        given = self.planner.planning_s if self.planner.replanning_s is None else self.planner.replanning_s
        if given is not None:
            return given
        share = min(1.0, self.planner.replan_schedules / PlannerConfig().max_schedules)
        return float(max(1, math.ceil(share * self.planning_s - 1e-9)))

    @property
    def replan_every_s(self) -> float | None:
        """Seconds from plan to plan within a window: as given, or :data:`REPLAN_EVERY_S`; ``None`` for never."""
        given = self.planner.replan_every_s
        if given is None:
            return max(REPLAN_EVERY_S, self.step_s)
        return None if given == "never" else given

    @property
    def n_load_windows(self) -> int:
        """Windows over which traces are brought to ``load``."""
        return self.load_windows or self.windows

    @property
    def planning_steps(self) -> int:
        """Steps from a window's start until its plan is there, where that is begun then: estimates are waited for."""
        return math.ceil((self.planning_s + self.estimates.delay_s) / self.step_s - 1e-9)

    @property
    def ahead_steps(self) -> int:
        """Steps before a window's start at which its plan is begun; 0 where planning takes no time.

        Arrivals are known by the second: they are whole seconds together if so many fit into a window.
        """
        least = math.ceil(self.planning_s / self.step_s - 1e-9)
        to_a_second = fractions.Fraction(self.step_s).limit_denominator(self.n_steps).denominator
        whole = math.ceil(least / to_a_second) * to_a_second
        is_whole = abs(whole * self.step_s - round(whole * self.step_s)) < 1e-9
        return whole if is_whole and whole < self.n_steps else least


@cache
def _placed(gpu: GpuModel, names: tuple[str, ...], avoided: int) -> tuple[Placement, ...]:
    """A layout with these profiles, where there is one; beside what is avoided, where that has room."""
    found = placed(gpu, Counter(names), (), (), avoided) or placed(gpu, Counter(names), (), ())
    return tuple(found or ())


def _others_in(pool: Sequence[str], name: str) -> str:
    return ", ".join(other for other in pool if other != name)


def load_doubts(load: float | None) -> tuple[str, ...]:
    """What is doubtful of a load, in a sentence; nothing of a usual one."""
    if load is None or load <= DOUBTFUL_LOAD:
        return ()
    return (f"load is {load:g}: at 1 the tenants, one after the other, would fill the GPU, so most requests are late",)
