"""What the records of a log must hold: by kind, the fields that readers rely on; ``docs/log.md`` has them all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from migrator.errors import LogError
from migrator.log.record import Record

Count = Annotated[int, Field(ge=0)]
Bin = Annotated[list[Count], Field(min_length=2, max_length=2)]
Sharing = Literal["instances", "shares", "turns"]


class _Fields(BaseModel):
    """Some of a record's fields; others are left alone."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _OperatingPoint(_Fields):
    rate_rps: float


class _Scale(_Fields):
    method: str
    factor: float
    smooth_s: int | None = None


class _Floor(_Fields):
    share: float
    per: Literal["window", "step"]


class _Tenant(_Fields):
    name: str
    model: str
    slo_ms: float
    load: float
    trace: str
    scale: _Scale
    notes: list[str] = []
    dispersion_before: float
    dispersion_after: float
    operating_points: dict[str, _OperatingPoint]
    min_slo_attainment: _Floor | None = None


class _Assumed(_Fields):
    tenant: str | None
    what: str
    value: float | Annotated[dict[str, float], Field(min_length=1)]
    unit: str
    source: str


class _RunStarted(_Fields):
    name: str
    seed: int
    simulated: bool
    gpu: str
    compute_slices: Annotated[int, Field(gt=0)]
    window_s: Annotated[float, Field(gt=0)]
    step_s: Annotated[float, Field(gt=0)]
    windows: Count
    forecaster: str
    knows: Literal["forecast", "past", "window", "run"] = "forecast"
    sharing: Sharing = "instances"
    assumed: list[_Assumed] = []
    planning_s: float | None = None
    repeatable: bool = True
    time_limit_s: float | None = None
    tenants: list[_Tenant]


class _Forecast(_Fields):
    mean_rps: list[float]
    accuracy_before: float | None = None


class _Forecasts(_Fields):
    tenants: dict[str, _Forecast]


class _Plan(_Fields):
    status: str
    objective: float | None
    gap: float | None


class _InWindow(_Fields):
    window: Count


class _Expected(_Fields):
    arrivals: float
    in_time: float | None
    goodput: float | None


class _InTime(_Fields):
    promised: float | None
    missed: str | None


class _WindowStarted(_InWindow):
    start_s: float
    plan_from_step: Count = 0
    expected: dict[str, _Expected] | None = None
    forecast: _Forecasts
    initial: dict[str, object] | None = None
    plan: _Plan | None
    in_time: dict[str, _InTime] | None = None
    violations: list[str] = []


class _Intent(_InWindow):
    call: Literal["create", "destroy"]
    placement: str


class _Outcome(_InWindow):
    intent: Count
    begin_s: float
    end_s: float
    error: str | None


class _Stopped(_Fields):
    instance: str
    end_s: float
    gone_s: float


class _Started(_Fields):
    instance: str
    placement: str
    compute_slices: Count
    tenant: str
    task: Literal["inference", "retraining"]
    begin_s: float


class _Change(_InWindow):
    begin_s: float
    stopped: list[_Stopped]
    started: list[_Started]


class _Shares(_InWindow):
    at_s: float
    shares: list[list[str | int]]


class _OfWorker(_InWindow):
    instance: str | None
    tenant: str


class _Ready(_OfWorker):
    ready_s: float
    late_ready_s: float
    library_s: float | None
    model_s: float | None


class _Finished(_OfWorker):
    finish_s: float


class _Failed(_OfWorker):
    failed_s: float


class _Counts(_Fields):
    arrivals: list[Count]
    in_time: list[Count]
    late: list[Count]
    dropped: list[Count]
    correct: list[Count]
    correct_late: list[Count]
    latency_ms: list[Bin]
    could_serve: list[float] | None = None
    changing: list[float] | None = None


class _WindowFinished(_InWindow):
    tenants: dict[str, _Counts]


_FIELDS: Mapping[str, type[_Fields]] = {
    "run_started": _RunStarted,
    "window_started": _WindowStarted,
    "intent": _Intent,
    "outcome": _Outcome,
    "change": _Change,
    "shares": _Shares,
    "ready": _Ready,
    "finished": _Finished,
    "failed": _Failed,
    "plan_revised": _InWindow,
    "window_finished": _WindowFinished,
    "run_finished": _Fields,
    "interrupted": _Fields,
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
