"""What goes into the log: every value of the loop as a JSON object. The fields are documented in ``docs/log.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from executor.mig import OwnedLayout
from migrator.config import EstimatesConfig
from migrator.estimates import estimate_of
from migrator.log.runlog import SCHEMA
from migrator.run.instances import ChangeOutcome, DriverCall, Started, Stopped
from migrator.run.planning import PlannedWindow
from migrator.run.requests import SettledWindow
from migrator.setting import Setting
from planner.files.plan_file import plan_to_json
from planner.plan import MigPlan
from planner.problem import Owner
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.tally import SecondCounts
from workloads.tenants import Tenant
from workloads.traffic.scaling import Arrivals

Json = Mapping[str, object]

RATE_DIGITS = 4
"""Forecast rates are logged to a ten-thousandth of a request a second."""

TIME_DIGITS = 6
"""Moments are logged to the microsecond."""


def wall() -> Json:
    """When and with which version a run was started: wall-clock facts, left out of comparisons."""
    return {"started_at": datetime.now(UTC).isoformat(timespec="seconds"), "version": version("migrator")}


def run_started(setting: Setting) -> Json:
    """The log's first event: what the run is about, enough to read the rest without the config."""
    config = setting.config
    parts = zip(setting.tenants, setting.arrivals, setting.loads, strict=True)
    jitter = config.simulation.service_jitter
    return {
        "schema": SCHEMA,
        "policy": "migrator",
        "knows": "forecast",
        "sharing": "instances",
        "name": config.name,
        "seed": config.seed,
        "simulated": config.gpu.backend == "sim",
        "gpu": setting.gpu.name,
        "compute_slices": setting.gpu.compute_slices,
        "memory_slices": setting.gpu.memory_slices,
        "window_s": config.window_s,
        "step_s": config.step_s,
        "windows": config.windows,
        "forecaster": setting.forecaster_name,
        "profiles": setting.profiles_name,
        "profile_variant": config.profile_variant,
        **({"service_jitter": jitter} if jitter == "measured" else {}),
        "tenants": [_tenant(tenant, arrivals, load) for tenant, arrivals, load in parts],
    }


def _tenant(tenant: Tenant, arrivals: Arrivals, load: float) -> Json:
    return {
        "name": tenant.name,
        "model": tenant.model,
        "slo_ms": tenant.slo_s * 1000,
        "load": round(load, RATE_DIGITS),
        "trace": arrivals.source,
        "scale": {
            "method": arrivals.scale.method.value,
            "factor": arrivals.scale.factor,
            "smooth_s": arrivals.scale.smooth_s,
        },
        "dispersion_before": round(arrivals.dispersion_before, RATE_DIGITS),
        "dispersion_after": round(arrivals.dispersion_after, RATE_DIGITS),
        "operating_points": {name: _operating_point(point) for name, point in tenant.operating_points.items()},
        "retraining_s": _seconds_by_profile(tenant.retraining_time_s),
        "worker_start": {
            "seconds": tenant.worker_start.base_s,
            "library_s": tenant.worker_start.library_s,
            "source": tenant.worker_start.source,
        },
    }


def _operating_point(point: OperatingPoint) -> Json:
    return {
        "batch": point.batch,
        "processes": point.processes,
        "rate_rps": round(point.rate_rps, RATE_DIGITS),
        "derived": point.derived,
    }


def window_started(setting: Setting, planned: PlannedWindow, accuracies: Sequence[float]) -> Json:
    """A window's forecast and plan, before any of it is carried out."""
    forecast = planned.forecast
    low, high = 0, len(forecast.quantile_levels) - 1
    by_tenant = {
        tenant.name: {
            "accuracy_before": accuracies[index],
            "accuracy_after": tenant.accuracy_in(planned.window).after,
            **_estimate(setting, tenant, planned.window),
            "mean_rps": _rates(forecast.mean_rps[:, index]),
            "low_rps": _rates(forecast.quantiles_rps[low, :, index]),
            "high_rps": _rates(forecast.quantiles_rps[high, :, index]),
        }
        for index, tenant in enumerate(setting.tenants)
    }
    return {
        "window": planned.window,
        "start_s": planned.window * setting.config.window_s,
        "forecast": {
            "method": forecast.method,
            "low_level": forecast.quantile_levels[low],
            "high_level": forecast.quantile_levels[high],
            "tenants": by_tenant,
        },
        "plan_from_step": planned.plan_from_step,
        "plan": _plan(planned.plan),
        "violations": [] if planned.verification is None else list(map(str, planned.verification.violations)),
        "rejected_plan": None if planned.rejected is None else _plan(planned.rejected),
    }


def _estimate(setting: Setting, tenant: Tenant, window: int) -> Json:
    """What the plan was told of the tenant's retraining, where that may differ from the truth."""
    config = setting.config
    if config.estimates == EstimatesConfig() or not tenant.retrains_in(window):
        return {}
    estimate = estimate_of(config.estimates, config.seed, setting.gpu, tenant, window)
    return {
        "estimate": {
            "accuracy_after": estimate.accuracy_after,
            "retraining_s": _seconds_by_profile(estimate.retraining_s),
            "profiling_s": _seconds_by_profile(estimate.profiling_s),
        }
    }


def _seconds_by_profile(seconds: Mapping[str, float]) -> Json:
    return {name: round(value, RATE_DIGITS) for name, value in seconds.items()}


def _plan(plan: MigPlan) -> Json:
    """The plan without its wall-clock time."""
    return {key: value for key, value in plan_to_json(plan).items() if key != "solve_s"}


def change(window: int, outcome: ChangeOutcome, layout: OwnedLayout[Owner]) -> Json:
    """One change of the layout: driver calls, who stopped, who started, and who holds what afterwards."""
    return {
        "window": window,
        "planned_s": _moment(outcome.planned_s),
        "begin_s": _moment(outcome.begin_s),
        "stopped": [_stopped(item) for item in outcome.stopped],
        "started": [_started(item) for item in outcome.started],
        "layout": [[str(placement), owner.tenant, owner.task.value] for placement, owner in layout.entries],
    }


def intent(window: int, call: DriverCall) -> Json:
    """A driver call before it is made."""
    gi_id = None if call.call == "create" else call.gi_id
    return {"window": window, "call": call.call, "placement": str(call.placement), "gi_id": gi_id}


def call_outcome(window: int, intent_n: int, call: DriverCall) -> Json:
    """What came of a driver call."""
    moments = {"begin_s": _moment(call.begin_s), "end_s": _moment(call.end_s)}
    return {"window": window, "intent": intent_n, "gi_id": call.gi_id, **moments, "error": None}


def ready(window: int, item: Started) -> Json:
    """A worker is ready."""
    return {
        "window": window,
        "instance": item.instance_id,
        "tenant": item.owner.tenant,
        "task": item.owner.task.value,
        "ready_s": _moment(item.ready_s),
        "late_ready_s": _moment(item.late_s),
        "library_s": _moment(item.library_s),
        "model_s": _moment(item.model_s),
    }


def finished(window: int, item: Started, finish_s: float, accuracy: float) -> Json:
    """A retraining ended."""
    who = {"window": window, "instance": item.instance_id, "tenant": item.owner.tenant}
    return {**who, "finish_s": _moment(finish_s), "accuracy": accuracy}


def _instance(item: Started | Stopped) -> dict[str, object]:
    """Which instance, where, and whose."""
    return {
        "instance": item.instance_id,
        "placement": str(item.placement),
        "compute_slices": item.placement.profile.compute_slices,
        "tenant": item.owner.tenant,
        "task": item.owner.task.value,
    }


def _stopped(item: Stopped) -> Json:
    moments = {"end_s": item.end_s, "drained_s": item.drained_s, "gone_s": item.gone_s}
    return {**_instance(item), **{key: _moment(at_s) for key, at_s in moments.items()}}


def _started(item: Started) -> Json:
    return {**_instance(item), "begin_s": _moment(item.begin_s), "promised_s": _moment(item.ready_s - item.late_s)}


def window_finished(settled: SettledWindow) -> Json:
    """What became of every request that arrived in the window, by tenant and second of arrival."""
    return {"window": settled.window, "tenants": {counts.tenant: _counts(counts) for counts in settled.counts}}


def _counts(counts: SecondCounts) -> Json:
    return {
        "arrivals": counts.arrivals.tolist(),
        "in_time": counts.in_time.tolist(),
        "late": counts.late.tolist(),
        "dropped": counts.dropped.tolist(),
        "correct": counts.correct.tolist(),
        "correct_late": counts.correct_late.tolist(),
        "latency_ms": [[upper_ms, n] for upper_ms, n in counts.latency_ms.items()],
    }


def _rates(values: NDArray[np.float64]) -> list[float]:
    rounded: list[float] = np.round(values, RATE_DIGITS).tolist()
    return rounded


def _moment(seconds: float) -> float:
    return round(seconds, TIME_DIGITS)
