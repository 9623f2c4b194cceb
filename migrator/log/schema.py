"""What the records of a log must hold: by kind, the fields that readers rely on; ``docs/log.md`` has them all."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from migrator.errors import LogError
from migrator.log.record import Record

# Numbers far above any use, with which sums and shares could not be computed, are no numbers of ours.
Count = Annotated[int, Field(ge=0, le=10**15)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Seconds = Annotated[float, Field(ge=1e-6, le=1e9)]
Share = Annotated[list[str | int], Field(min_length=3, max_length=3)]
Bin = Annotated[list[Count], Field(min_length=2, max_length=2)]
Sharing = Literal["instances", "shares", "turns"]


class Cause(StrEnum):
    """Why another plan was asked for."""

    PACE = "pace"
    """The pace of the config's ``planner.replan_every_s``."""

    BAND = "band"
    """Arrivals left the band of the forecast."""

    TRAINED = "retraining"
    """A retraining ended earlier or later than planned."""

    FAILED = "failure"
    """A worker failed."""


class _Fields(BaseModel):
    """Some of a record's fields; others are left alone."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _OperatingPoint(_Fields):
    rate_rps: Number
    derived: str = ""


class _Scale(_Fields):
    method: str
    factor: Number
    smooth_s: int | None = None


class _Floor(_Fields):
    share: Number
    per: Literal["window", "step"]


class _Tenant(_Fields):
    name: str
    model: str
    slo_ms: Number
    load: Number
    trace: str
    scale: _Scale
    notes: list[str] = []
    dispersion_before: Number
    dispersion_after: Number
    operating_points: dict[str, _OperatingPoint]
    min_slo_attainment: _Floor | None = None


class _Assumed(_Fields):
    tenant: str | None
    what: str
    value: Number | Annotated[dict[str, Number], Field(min_length=1)]
    unit: str
    source: str


class _Driver(_Fields):
    error_share: Number
    in_use_share: Number
    in_use_s: Number
    half_share: Number


class _Other(_Fields):
    placement: str
    from_s: Number | None
    to_s: Number | None


class _SimulatedFaults(_Fields):
    driver: _Driver
    others: list[_Other]


class _RunStarted(_Fields):
    name: str
    seed: int
    simulated: bool
    backend: str = "sim"
    index: Count = 0
    gpu: str
    compute_slices: Annotated[int, Field(gt=0, le=1000)]
    memory_slices: Count = 0
    window_s: Seconds
    step_s: Seconds
    windows: Count
    forecaster: str
    knows: Literal["forecast", "past", "ahead", "window", "run"] = "forecast"
    ahead_s: Seconds | None = None
    sharing: Sharing = "instances"
    policy: str = "migrator"
    profiles: str = ""
    profile_variant: str = "recorded"
    service_jitter: str | Number = ""
    service_spread: Number = 0.0
    interference: Number = 0.0
    simulated_faults: _SimulatedFaults | None = None
    assumed: list[_Assumed] = []
    planning_s: Annotated[float, Field(ge=0, le=1e15)] | None = None
    replan_every_s: Seconds | None = None
    repeatable: bool = True
    time_limit_s: Number | None = None
    tenants: list[_Tenant]


class _Forecast(_Fields):
    mean_rps: list[Number]
    accuracy_before: Number | None = None


class _Forecasts(_Fields):
    tenants: dict[str, _Forecast]


class _Plan(_Fields):
    status: str
    objective: Number | None
    gap: Number | None


class _Wall(_Fields):
    solve_s: Number = 0.0


class _InWindow(_Fields):
    window: Count
    wall: _Wall | None = None


class _Expected(_Fields):
    arrivals: Number
    in_time: Number | None
    goodput: Number | None


class _InTime(_Fields):
    promised: Number | None
    missed: str | None


class _WarmUp(_Fields):
    switch_s: Number
    start_s: dict[str, Number]
    training_start_s: dict[str, Number]


class _Outlook(_Fields):
    drift: Number
    stays: Number
    in_time: Number
    ahead: list[bool] | None = None
    still: Number | None = None


class _WindowStarted(_InWindow):
    start_s: Number
    plan_from_step: Count = 0
    expected: dict[str, _Expected] | None = None
    forecast: _Forecasts
    initial: dict[str, object] | None = None
    plan: _Plan | None
    unavailable: list[dict[str, object]] = []
    warm_up: _WarmUp | None = None
    model_age: dict[str, Count] = {}
    outlook: dict[str, _Outlook] = {}
    in_time: dict[str, _InTime] | None = None
    violations: list[str] = []


class _Intent(_InWindow):
    call: Literal["create", "destroy", "repair"]
    placement: str


class _Outcome(_InWindow):
    intent: Count
    begin_s: Number
    end_s: Number
    error: str | None


class _Stopped(_Fields):
    instance: str
    end_s: Number
    gone_s: Number


class _Started(_Fields):
    instance: str
    placement: str
    compute_slices: Count
    tenant: str
    task: Literal["inference", "retraining"]
    begin_s: Number


class _Change(_InWindow):
    begin_s: Number
    stopped: list[_Stopped]
    started: list[_Started]
    undone: list[str] = []


class _Resumed(_InWindow):
    void: list[Count]


_Cause = Annotated[Cause, Field(strict=False)]  # a record holds its value


class _Rest(_Fields):
    accuracy_before: Number
    options: list[str]
    retraining_required: bool
    due: Number = 0.0
    salvage: list[Number] = []
    mean_rps: Number


class _Revised(_InWindow):
    from_step: Count = 0
    cause: _Cause | None = None
    asked_s: Number | None = None
    initial: dict[str, object] | None = None
    rest: dict[str, _Rest] = {}


class _Kept(_InWindow):
    cause: _Cause
    n_steps: Count
    why: str


class _ForecastFailed(_InWindow):
    from_step: Count
    forecaster: str
    reason: str
    instead: str


class _Others(_InWindow):
    gone: list[str]
    came: list[str]
    left: list[str]
    taken: list[str]


class _Blind(_InWindow):
    from_s: Number
    to_s: Number | None
    reason: str


class _Interrupted(_Fields):
    reason: str | None = None


class _Shares(_InWindow):
    at_s: Number
    shares: list[Share]
    in_turns: bool = False


class _OfWorker(_InWindow):
    instance: str | None
    tenant: str


class _Ready(_OfWorker):
    ready_s: Number
    late_ready_s: Number
    library_s: Number | None
    model_s: Number | None


class _Finished(_OfWorker):
    finish_s: Number


class _Checkpoint(_Finished):
    part: Number


class _Failed(_OfWorker):
    failed_s: Number


class _Counts(_Fields):
    arrivals: list[Count]
    in_time: list[Count]
    late: list[Count]
    dropped: list[Count]
    correct: list[Count]
    correct_late: list[Count]
    latency_ms: list[Bin]
    could_serve: list[Number] | None = None
    changing: list[Number] | None = None


class _WindowFinished(_InWindow):
    tenants: dict[str, _Counts]
    blind: list[Bin] = []


_FIELDS: Mapping[str, type[_Fields]] = {
    "run_started": _RunStarted,
    "window_started": _WindowStarted,
    "intent": _Intent,
    "outcome": _Outcome,
    "change": _Change,
    "others": _Others,
    "blind": _Blind,
    "resumed": _Resumed,
    "shares": _Shares,
    "ready": _Ready,
    "checkpoint": _Checkpoint,
    "finished": _Finished,
    "failed": _Failed,
    "plan_revised": _Revised,
    "plan_kept": _Kept,
    "forecast_failed": _ForecastFailed,
    "not_revised": _InWindow,
    "window_finished": _WindowFinished,
    "run_finished": _Fields,
    "interrupted": _Interrupted,
}


def check_fields(record: Record) -> None:
    """Raise unless the record holds what readers need of its kind.

    Raises:
        LogError: Its kind is unknown, or a field is missing or of another type.
    """
    kind = record["kind"]
    if kind not in _FIELDS:
        raise LogError(f"kind {kind!r} is unknown; another version wrote it, or the file was altered")
    try:
        _FIELDS[kind].model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        message = f"{kind}.{where}: {reason}; another version wrote it, or the file was altered"
        raise LogError(message) from None
