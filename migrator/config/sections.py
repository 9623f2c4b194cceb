"""The sections of a config, each key with its range; documented in ``docs/configuration.md``.

Unknown keys are refused with the nearest known one.
"""

from __future__ import annotations

import fractions
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
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
from executor.mig import GpuModel
from executor.names import nearest
from executor.opening import named_model
from migrator.extras import model_text
from planner.budget import FLOOR_COSTS_AT_MOST, planning_time_s
from planner.files.strict import Text, as_text
from planner.files.words import NAME
from workloads.errors import WorkloadError
from workloads.training import Curve

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
    model: str
    backend: Literal["sim", "nvml", "smi", "mps", "cpu"] = "sim"
    index: Annotated[int, Field(ge=0, le=1000)] = 0
    silent_s: Annotated[float, Field(ge=2, le=86400)] = SILENT_S

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
    factor: Positive | None = None
    smooth_s: Count = 10


_IF_GIVEN = Field(exclude_if=lambda value: value is None)
"""A key that resolved configs have only where it says something."""


class ArrivalsConfig(Section):
    """Where a tenant's requests come from: a trace, Poisson arrivals at ``rate_rps``, or clients (``live``).

    The past of live arrivals, before any came, is the trace file ``history``, or ``expect_rps`` all along.
    """

    trace: Text | None = None
    format: Literal["counts", "timestamp-counts", "rates", "plain-counts", "azure", "timestamps"] | None = None
    sort: bool = False
    gaps: Literal["zero", "interpolate", "refuse"] | None = None
    column: Text | None = None
    unit: Annotated[Literal["s", "ms", "us", "ns"] | None, _IF_GIVEN] = None
    time_column: Annotated[Text | None, _IF_GIVEN] = None
    rate_rps: Positive | None = None
    live: Annotated[bool, Field(exclude_if=lambda live: not live)] = False
    history: Annotated[Text | None, _IF_GIVEN] = None
    expect_rps: Annotated[Positive | None, _IF_GIVEN] = None
    offset_s: Annotated[int, Field(ge=0, le=MAX_RUN_S)] | None = None
    loop: bool = False
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
    from one window to the next before any has shown it; ``checkpoint_s`` and ``swap_s`` are seconds each.
    """

    required: bool = False
    max_skipped: Windows | None = None
    drift: Literal["compound", "as_given"] = "compound"
    drift_prior: Annotated[float, Field(gt=0, le=1)] = 0.65
    salvage: Literal["auto"] | bool = "auto"
    ends: bool = False
    curve: CurveConfig = "square-root"
    checkpoints: Annotated[list[Part], Field(max_length=20)] = []
    checkpoint_s: NonNegative = 0.0
    swap_s: NonNegative = 0.0

    @field_validator("checkpoints")
    @classmethod
    def _checkpoints_rise(cls, parts: list[float]) -> list[float]:
        if any(later <= earlier for earlier, later in pairwise(parts)):
            raise ValueError(f"parts that rise are needed, not {', '.join(map(str, parts))}")
        return parts


class OptionConfig(Section):
    """Another way to retrain a tenant; what it does not say is as in the full retraining."""

    name: Name
    samples: Count | None = None
    epochs: Count | None = None
    gain: Fraction | None = None

    @field_validator("name")
    @classmethod
    def _name_is_free(cls, name: str) -> str:
        taken = {"full": "the tenant's own samples and epochs", "none": "no retraining at all"}
        if name in taken:
            raise ValueError(f"{name!r} stands for {taken[name]}; another name is needed")
        return name


class RetrainingConfig(Section):
    """How much data one retraining goes through, and in how many of the run's windows there may be one."""

    samples: Count
    epochs: Count = 1
    windows: Annotated[int, Field(ge=0)] | None = None
    required: bool | None = None
    max_skipped: Windows | None = None
    options: Annotated[list[OptionConfig], Field(max_length=20)] = []
    curve: CurveConfig | None = None

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
    after: Fraction

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
    asked: Literal["new", "seen"] = "new"
    folder: Text | None = None
    trainer: Literal["plain", "avalanche"] = "plain"
    strategy: Literal["naive", "replay", "ewc", "lwf"] = "replay"
    batch: Count = 32
    learning_rate: Positive = 0.02
    memory: Annotated[int, Field(ge=0, le=10**9)] = 200
    checkpoints: list[Annotated[float, Field(gt=0, lt=1)]] = [0.5]
    model_options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _trainer_knows_the_strategy(self) -> LearningConfig:
        if self.strategy in ("ewc", "lwf") and self.trainer != "avalanche":
            raise ValueError(f"strategy is {self.strategy!r}; trainer 'plain' knows naive and replay, 'avalanche' all")
        return self


class FloorConfig(Section):
    """The least share of requests to be answered in time, over each window or in each step."""

    share: Annotated[float, Field(gt=0), _share(1)]
    per: Literal["window", "step"] = "window"

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
    shape: Annotated[list[Annotated[int, Field(ge=1, le=2**24)]], Field(max_length=8)]


class TenantConfig(Section):
    """One model with its traffic; one that is to be ``alone`` shares no instance.

    ``weights`` is the file of its first ones. ``input`` and ``classes`` are those of a model that serves and does not
    learn. With ``model_options`` it is made, beside shape, classes and type of its inputs, before which they go.
    """

    name: Name
    model: Text
    slo_ms: Positive
    arrivals: ArrivalsConfig
    accuracy: AccuracyConfig | Annotated[list[AccuracyConfig], Field(min_length=1)]
    retraining: RetrainingConfig | None = None
    batch: Count | Literal["auto"] = "auto"
    max_batch: Count | None = None
    processes: Count | Literal["auto"] = "auto"
    min_profile: Text | None = None
    weight: NonNegative = 1.0
    load_share: Positive = 1.0
    worker_start_s: NonNegative | None = None
    retraining_start_s: NonNegative | None = None
    min_slo_attainment: FloorConfig | None = None
    learning: LearningConfig | None = None
    alone: bool = False
    weights: Annotated[Text | None, _IF_GIVEN] = None
    input: Annotated[InputConfig | None, _IF_GIVEN] = None
    classes: Annotated[Annotated[int, Field(ge=1, le=2**16)] | None, _IF_GIVEN] = None
    model_options: Annotated[dict[str, Any], Field(exclude_if=lambda options: not options)] = {}

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
    model: Text | None = None
    history_s: Positive = 600.0
    half_life_s: Positive = 60.0
    season_s: Positive = 200.0
    n_paths: Annotated[int, Field(ge=1, le=10_000)] = 32

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
    in-time answers may cost, in hundredths of a window's forecast requests.
    """

    max_schedules: Count = 4000
    prove: Literal["never", "windows"] = "never"
    switch_s: NonNegative | None = None
    planning_s: NonNegative | None = None
    replanning_s: NonNegative | None = None
    replan_every_s: Annotated[
        Positive | Literal["never"] | None, _either("a number of seconds above 0, or 'never', is needed")
    ] = None
    replan_schedules: Count = 100
    burst_floor: bool = False
    risk: Fraction = 0.0
    floor_costs_at_most: Annotated[float, Field(ge=0, le=100)] = FLOOR_COSTS_AT_MOST


class EstimatesConfig(Section):
    """What planning knows of a retraining before it runs, and of service: how wrong, at what cost, from when on.

    ``accuracy_*`` are shares of correct answers; ``time_bias`` is relative, ``time_sigma`` of a lognormal factor.
    ``service_spread`` is the half-width of a uniform factor on batch latencies.
    """

    accuracy_bias: Annotated[float, Field(ge=-1, le=1)] = 0.0
    accuracy_sigma: Fraction = 0.0
    time_bias: Annotated[float, Field(gt=-1, le=10)] = 0.0
    time_sigma: Annotated[float, Field(ge=0, le=2)] = 0.0
    cost_gpu_s: NonNegative = 0.0
    delay_s: NonNegative = 0.0
    service_spread: Annotated[float, Field(ge=0, lt=1)] = 0.0


class DriverFaultsConfig(Section):
    """How often the simulated driver refuses what it could do: ``executor.sim.Faults``."""

    error_share: Fraction = 0.0
    in_use_share: Fraction = 0.0
    in_use_s: NonNegative = 5.0
    half_share: Fraction = 0.25


class OthersInstanceConfig(Section):
    """An instance that others put on the simulated GPU and take away; by default it stays all along."""

    placement: Text
    from_s: Annotated[float, Field(ge=0, le=MAX_RUN_S)] | None = None
    to_s: Annotated[float, Field(ge=0, le=MAX_RUN_S)] | None = None

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
    service_jitter: Annotated[
        Sigma | Literal["measured"], _either("a number from 0 to 10, or 'measured', is needed")
    ] = 0.0
    interference: Annotated[float, Field(ge=0, le=10)] = 1.0
    driver: DriverFaultsConfig = DriverFaultsConfig()
    others: Annotated[list[OthersInstanceConfig], Field(max_length=100)] = []

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
    ] = "off"
    turn_cost: Fraction | None = None

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
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    tokens: dict[str, Text] = {}
    origins: list[Text] = []


class Config(Section):
    """A whole run."""

    name: Name = "run"
    seed: Annotated[int, Field(ge=0)] = 0
    gpu: GpuConfig
    window_s: Positive = 200.0
    step_s: Positive = 1.0
    windows: Count = 4
    load: Load | None = None
    load_windows: Count | None = None
    load_over: Literal["run", "segment"] = "run"
    profiles: Text | None = None
    profile_variant: Literal["recorded", "launch-free"] = "recorded"
    forecast: ForecastConfig = ForecastConfig()
    planner: PlannerConfig = PlannerConfig()
    estimates: EstimatesConfig = EstimatesConfig()
    retraining: DecisionConfig = DecisionConfig()
    sharing: SharingConfig = SharingConfig()
    simulation: SimulationConfig = SimulationConfig()
    front_door: FrontDoorConfig | None = None
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
        of_gpu = self._of_gpu(), self._of_steps(), self._of_planning()
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

    def _of_models(self) -> Iterator[str]:
        """Why a model cannot be served so, or is not served at all."""
        for tenant in self.tenants:
            where = f"tenants.{tenant.name}"
            given = [key for key in ("input", "classes") if getattr(tenant, key) is not None]
            if tenant.learning is not None and given:
                yield f"{where}.{given[0]}: is that of learning.benchmark; leave it out"
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
                    yield f"sharing.pools: {name!r} stands there {members.count(name)} times; once is allowed"
                if name in alone and len(pool) > 1:
                    yield f"sharing.pools: {name!r} is to be alone, and shares with {_others_in(pool, name)}"
        for name in names:
            if pools is not None and name not in members:
                yield f"sharing.pools: {name!r} is in no pool; each tenant is in one, one by itself as [{name}]"
        if self.sharing.pools == "auto" and self.is_live:
            yield "sharing.pools: a live run's pools stay as they are; off, or a list of pools, is needed"

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
    def n_steps(self) -> int:
        """Steps a window."""
        return round(self.window_s / self.step_s)

    @property
    def n_history_steps(self) -> int:
        """Steps before each window that the forecaster sees."""
        return round(self.forecast.history_s / self.step_s)

    @property
    def planning_s(self) -> float:
        """Seconds that planning a window takes: as given, or what it takes for so many tenants and steps."""
        if self.planner.planning_s is not None:
            return self.planner.planning_s
        return planning_time_s(len(self.tenants), self.n_steps)

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


def _others_in(pool: Sequence[str], name: str) -> str:
    return ", ".join(other for other in pool if other != name)


def load_doubts(load: float | None) -> tuple[str, ...]:
    """What is doubtful of a load, in a sentence; nothing of a usual one."""
    if load is None or load <= DOUBTFUL_LOAD:
        return ()
    return (f"load is {load:g}: at 1 the tenants, one after the other, would fill the GPU, so most requests are late",)
