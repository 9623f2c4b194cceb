"""What goes into the log: every value of the loop as a JSON object. The fields are documented in ``docs/log.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from executor.journal import Verb
from executor.mig import OwnedLayout, Placement
from executor.reconcile import Call
from forecaster.forecast import Forecast
from migrator import __version__
from migrator.assumed import assumed_in, assumed_to_json
from migrator.config import EstimatesConfig, FloorConfig, SimulationConfig
from migrator.estimates import Estimate, estimate_of
from migrator.log.replans import Kept
from migrator.log.runlog import SCHEMA
from migrator.log.trouble import Blind
from migrator.run.changes import ChangeOutcome, Made, Started, Stopped
from migrator.run.foresight import FailedForecast, Opening
from migrator.run.planning import PlannedWindow, Replan
from migrator.run.requests import SettledWindow
from migrator.run.seams import Asked, Ready, Trained
from migrator.run.watch import NoAnswerError
from migrator.setting import Setting, counts_salvage
from migrator.traffic import Origin
from planner.attainment import attainments
from planner.course import Course, courses
from planner.files.plan_file import WALL_KEYS, plan_to_json
from planner.files.problem_file import state_to_json, unavailable_to_json
from planner.plan import MigPlan
from planner.policies.policy import AnyPolicy
from planner.problem import Owner, Problem, TenantTerms
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.requests import QueueState
from workloads.serving.tally import SecondCounts
from workloads.tenants import Tenant
from workloads.training import FULL

Json = Mapping[str, object]

RATE_DIGITS = 4
"""Forecast rates are logged to a ten-thousandth of a request a second."""

TIME_DIGITS = 6
"""Moments are logged to the microsecond."""


def wall() -> Json:
    """When and with which version a run was started: wall-clock facts, left out of comparisons."""
    return {"started_at": datetime.now(UTC).isoformat(timespec="seconds"), "version": __version__}


def run_started(
    setting: Setting,
    origins: Sequence[Origin],
    forecaster: str,
    policy: AnyPolicy,
    sharing: str,
    time_limit_s: float | None = None,
    replan_every_s: float | None = None,
) -> Json:
    """The log's first record: what the run is about, enough to read the rest without the config."""
    config = setting.config
    jitter, spread = config.simulation.service_jitter, config.estimates.service_spread
    return {
        "schema": SCHEMA,
        "name": config.name,
        "seed": config.seed,
        "simulated": not config.is_live,  # requests and workers are, on every GPU
        **({} if config.gpu.backend == "sim" else {"backend": config.gpu.backend, "index": config.gpu.index}),
        "gpu": setting.gpu.name,
        "compute_slices": setting.gpu.compute_slices,
        "memory_slices": setting.gpu.memory_slices,
        "window_s": config.window_s,
        "step_s": config.step_s,
        "windows": config.windows,
        "policy": policy.name,
        "knows": policy.knows.value,
        **({} if policy.looks_ahead_s is None else {"ahead_s": policy.looks_ahead_s}),
        "sharing": sharing,
        "forecaster": forecaster,
        "profiles": _without_folder(setting.profiles_name),
        "profile_variant": config.profile_variant,
        **({"service_jitter": jitter} if jitter == "measured" else {}),
        **({"service_spread": spread} if spread else {}),
        **({"interference": config.simulation.interference} if sharing == "shares" else {}),
        **(_simulated_faults(config.simulation) if sharing == "instances" else {}),
        **({"planning_s": config.planning_s} if sharing == "instances" else {}),
        **({"replan_every_s": replan_every_s} if replan_every_s is not None else {}),
        **({"time_limit_s": time_limit_s} if time_limit_s is not None else {}),
        **({"repeatable": False} if time_limit_s is not None or config.gpu.backend != "sim" else {}),
        "assumed": assumed_to_json(assumed_in(setting, sharing)),
        "tenants": [
            _tenant(tenant, origin) | _floor(entry.min_slo_attainment)
            for tenant, origin, entry in zip(setting.tenants, origins, config.tenants, strict=True)
        ],
    }


def _simulated_faults(simulation: SimulationConfig) -> Json:
    if not simulation.has_faults:
        return {}
    others = [other.model_dump() for other in simulation.others]
    return {"simulated_faults": {"driver": simulation.driver.model_dump(), "others": others}}


def _floor(floor: FloorConfig | None) -> dict[str, object]:
    return {} if floor is None else {"min_slo_attainment": floor.model_dump()}


def _without_folder(name: str) -> str:
    """The name of a table or trace; where that is a file, its name alone: logs are shown to others."""
    return Path(name).name if Path(name).is_absolute() else name


def _tenant(tenant: Tenant, origin: Origin) -> dict[str, object]:
    return {
        "name": tenant.name,
        "model": tenant.model,
        "slo_ms": tenant.slo_s * 1000,
        "load": round(origin.load, RATE_DIGITS),
        "trace": _without_folder(origin.source),
        "scale": {
            "method": origin.scale.method.value,
            "factor": origin.scale.factor,
            "smooth_s": origin.scale.smooth_s,
        },
        **({"notes": list(origin.notes)} if origin.notes else {}),
        "dispersion_before": round(origin.dispersion_before, RATE_DIGITS),
        "dispersion_after": round(origin.dispersion_after, RATE_DIGITS),
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


def resumed(window: int, void: Sequence[int]) -> Json:
    """A run on a real GPU that was cut off goes on with this window; of those that are void nothing is known."""
    return {"window": window, "void": list(void)}


def window_started(
    setting: Setting,
    opening: Opening,
    forecast: Forecast,
    planned: PlannedWindow | None,
    queues: Sequence[QueueState],
) -> Json:
    """A window's queues, forecast and plan, before any of it is carried out."""
    low, high = 0, len(forecast.quantile_levels) - 1
    initial = None if planned is None else planned.problem.initial
    by_tenant = {
        tenant.name: {
            "accuracy_before": opening.accuracies[index],
            **_accuracy_after(setting, tenant, opening, index),
            "mean_rps": _rates(forecast.mean_rps[:, index]),
            "low_rps": _rates(forecast.quantiles_rps[low, :, index]),
            "high_rps": _rates(forecast.quantiles_rps[high, :, index]),
        }
        for index, tenant in enumerate(setting.tenants)
    }
    return {
        "window": opening.window,
        "start_s": opening.window * setting.config.window_s,
        "queues": {tenant.name: _queue(state) for tenant, state in zip(setting.tenants, queues, strict=True)},
        "forecast": {
            "method": forecast.method,
            "low_level": forecast.quantile_levels[low],
            "high_level": forecast.quantile_levels[high],
            "tenants": by_tenant,
        },
        "plan_from_step": 0 if planned is None else planned.plan_from_step,
        "initial": None if initial is None else state_to_json(initial),
        "expected": None if planned is None else _expected(planned),
        "plan": None if planned is None else _plan(planned.plan),
        "violations": [] if planned is None else _violations(planned),
        "rejected_plan": None if planned is None or planned.rejected is None else _plan(planned.rejected),
        **({} if planned is None else _unavailable(planned.problem)),
        **({} if planned is None else {"warm_up": _warm_up(planned.problem)}),
        "model_age": {
            tenant.name: opening.window - last
            for tenant, last in zip(setting.tenants, opening.trained_last, strict=True)
        },
        **({} if planned is None else _outlook(setting, opening)),
        **({"in_time": _in_time(planned)} if planned is not None and planned.problem.has_floors else {}),
    }


def _unavailable(problem: Problem) -> Json:
    """Memory slices that the plan may not touch, in its own steps; nothing where it may use all."""
    return {"unavailable": list(map(unavailable_to_json, problem.unavailable))} if problem.unavailable else {}


def _warm_up(problem: Problem) -> Json:
    """What the plan reckons a change to take until what it starts serves, or trains."""
    return {
        "switch_s": problem.switch_s,
        "start_s": {tenant.name: tenant.overhead_s for tenant in problem.tenants},
        "training_start_s": {tenant.name: tenant.retraining_start_s for tenant in problem.tenants},
    }


def _outlook(setting: Setting, opening: Opening) -> Json:
    """What is expected of the models after the window, by tenant whose plan counts what they are worth then."""
    if opening.outlooks is None:
        return {}
    pairs = zip(setting.tenants, opening.outlooks, strict=True)
    told = {t.name: one.to_json() for t, one in pairs if counts_salvage(t, setting.config.retraining)}
    return {"outlook": told} if told else {}


def _in_time(planned: PlannedWindow) -> Json:
    """What the plan promises each tenant in time, over the steps that it covers, and what it lacks of a floor."""
    return {
        one.tenant: {
            "promised": None if one.share is None else round(one.share, TIME_DIGITS),
            "missed": None if one.is_met else str(one),
        }
        for one in attainments(planned.problem, planned.plan)
    }


def _expected(planned: PlannedWindow) -> Json | None:
    """What the plan in force promises each tenant from its first step on, in requests; ``None`` without a promise."""
    if not planned.is_planned:
        return None
    problem = planned.problem
    return {course.tenant.name: _promise(course, problem.step_s) for course in courses(problem, planned.plan)}


def _promise(course: Course, step_s: float) -> Json:
    """Requests that come, are answered in time, and right as well; ``None`` where gain tables or weight do not tell."""
    tenant = course.tenant
    arrivals = {"arrivals": round(float(tenant.arrivals_rps.sum()) * step_s, RATE_DIGITS)}
    in_time = None if course.in_time is None else round(float(course.in_time.sum()), RATE_DIGITS)
    right = None if tenant.weight == 0 else round(float(course.goodput.sum()) / tenant.weight, RATE_DIGITS)
    return {**arrivals, "in_time": in_time, "goodput": right}


def _queue(state: QueueState) -> Json:
    """Who waits, until when servers are busy, and how many batches there were: what a resumed run begins with."""
    waiting = state.queues.values()
    n_waiting = sum(map(len, waiting)) if waiting else state.tail - state.head
    busy_until_s = {server_id: _moment(end_s) for server_id, end_s in sorted(state.busy_until.items())}
    return {"waiting": n_waiting, "busy_until_s": busy_until_s, "batches": state.n_batches}


def _violations(planned: PlannedWindow) -> list[str]:
    return [] if planned.verification is None else list(map(str, planned.verification.violations))


def plan_revised(revised: PlannedWindow, reason: str, asked_s: float) -> Json:
    """The plan of a window's rest, and why there is a new one; with what the rest is, beside the window, to pose it."""
    initial = revised.problem.initial
    return {
        "window": revised.window,
        "from_step": revised.plan_from_step,
        "reason": reason,
        **_moments(asked_s=asked_s),
        "initial": None if initial is None else state_to_json(initial),
        "rest": {tenant.name: rest_of(tenant) for tenant in revised.problem.tenants},
        "plan": _plan(revised.plan),
        "violations": _violations(revised),
        **_unavailable(revised.problem),
    }


def rest_of(tenant: TenantTerms) -> Json:
    """What is left for a tenant: its accuracy, its retrainings and their salvage, what it owes, its mean rate."""
    floor = tenant.min_slo_attainment
    return {
        "accuracy_before": tenant.accuracy_before,
        "options": [option.name for option in tenant.options],
        "retraining_required": tenant.retraining_required,
        **({} if floor is None else {"due": floor.due}),
        **({"salvage": list(tenant.salvage)} if tenant.salvage else {}),
        "mean_rps": round(float(tenant.arrivals_rps.mean()), RATE_DIGITS),
    }


def plan_changed(replan: Replan, asked: Asked, asked_s: float) -> Json:
    """Another plan of a window's rest is followed from now on, and what it is worth more than the running one."""
    return {
        **plan_revised(replan.planned, asked.reason, asked_s),
        "cause": asked.cause.value,
        "gain": None if replan.gain is None else round(replan.gain, RATE_DIGITS),
    }


def forecast_failed(failure: FailedForecast) -> Json:
    """A forecaster that gave nothing that can be used, and what took its place."""
    return asdict(failure)


def plan_kept(window: int, n_steps: int, asked: Asked, asked_s: float, why: Kept, error: str | None) -> Json:
    """The plan in force goes on; ``n_steps`` are those of the rest that another plan was asked for."""
    return {
        "window": window,
        "cause": asked.cause.value,
        "reason": asked.reason,
        **_moments(asked_s=asked_s),
        "n_steps": n_steps,
        "why": why.value,
        **({} if error is None else {"error": error}),
    }


def not_revised(kept: PlannedWindow, reason: str, asked_s: float) -> Json:
    """There is a reason to plan a window's rest anew, and no plan: what stands, and what the answer was."""
    return {
        **plan_revised(kept, reason, asked_s),
        "rejected_plan": None if kept.rejected is None else _plan(kept.rejected),
    }


def _accuracy_after(setting: Setting, tenant: Tenant, opening: Opening, index: int) -> Json:
    """What the retraining brings, where that is known, and what the plan assumed, where that may be something else."""
    config, window = setting.config, opening.window
    if opening.estimates is not None:
        return _estimate(opening.estimates[index]) if tenant.retrains_in(window) else {}
    known = {"accuracy_after": tenant.accuracy_in(window).after}
    if config.estimates == EstimatesConfig() or not tenant.retrains_in(window):
        return known
    return {**known, **_estimate(estimate_of(config.estimates, config.seed, setting.gpu, tenant, window))}


def _estimate(estimate: Estimate) -> Json:
    return {
        "estimate": {
            "accuracy_after": estimate.accuracy_after,
            **({"source": estimate.source} if estimate.source else {}),
            "retraining_s": _seconds_by_profile(estimate.retraining_s),
            "profiling_s": _seconds_by_profile(estimate.profiling_s),
            **({"gains": dict(estimate.gains)} if estimate.gains else {}),
        }
    }


def _seconds_by_profile(seconds: Mapping[str, float]) -> Json:
    return {name: round(value, RATE_DIGITS) for name, value in seconds.items()}


def _plan(plan: MigPlan) -> Json:
    """The plan without its wall-clock times."""
    return {key: value for key, value in plan_to_json(plan).items() if key not in WALL_KEYS}


def wall_of(plan: MigPlan) -> Json:
    """The plan's wall-clock times."""
    return {key: getattr(plan, key) for key in WALL_KEYS}


def intent(window: int, call: Verb, placement: Placement, gi_id: int | None) -> Json:
    """A driver call that is about to be made."""
    return {"window": window, "call": call, "placement": str(placement), "gi_id": gi_id}


def outcome(window: int, intent_n: int, call: Call, made: Made) -> Json:
    """What came of a driver call; ``intent_n`` is the number of its intent's record."""
    return {
        "window": window,
        "intent": intent_n,
        "gi_id": call.gi_id if made.instance is None else made.instance.gi_id,
        **_moments(begin_s=made.begin_s, end_s=made.end_s),
        "error": None if made.error is None else str(made.error),
    }


def change(window: int, outcome: ChangeOutcome, layout: OwnedLayout[Owner]) -> Json:
    """One change of the layout: who stopped, who got an instance, and who holds what afterwards."""
    return {
        "window": window,
        "planned_s": _moment(outcome.planned_s),
        "begin_s": _moment(outcome.begin_s),
        "stopped": [
            _instance(item) | _moments(end_s=item.end_s, drained_s=item.drained_s, gone_s=item.gone_s)
            for item in outcome.stopped
        ],
        "started": [
            _instance(item) | _moments(begin_s=item.begin_s, promised_s=item.promised_s) for item in outcome.started
        ],
        "layout": [[str(placement), owner.tenant, owner.task.value] for placement, owner in layout.entries],
        **({"undone": [f"{item.placement}: {item}" for item in outcome.undone]} if outcome.undone else {}),
    }


def others(
    window: int, gone: Sequence[str], came: Sequence[Placement], left: Sequence[Placement], taken: Sequence[Placement]
) -> Json:
    """What others have done to the GPU, and where instances stand now that no plan may count on."""
    return {
        "window": window,
        "gone": list(gone),
        "came": list(map(str, came)),
        "left": list(map(str, left)),
        "taken": list(map(str, taken)),
    }


def blind(window: int, seen: Blind) -> Json:
    """Nobody can tell what stood since then, up to when the driver said so again: ``None`` while it does not."""
    to_s = None if seen.to_s is None else _moment(seen.to_s)
    return {"window": window, "from_s": _moment(seen.from_s), "to_s": to_s, "reason": seen.reason}


def interrupted(error: NoAnswerError | None = None) -> Json:
    """The run ends before its time: it was told to, or its GPU does not answer any more."""
    if error is None:
        return {}
    return {"reason": str(error), **_moments(blind_from_s=error.blind.from_s)}


def shares(window: int, held: Mapping[Owner, int], *, in_turns: bool) -> Json:
    """Shares of the GPU that come into force, in twentieths of its processors, or of its time."""
    entries = [[owner.tenant, owner.task.value, quanta] for owner, quanta in held.items()]
    return {"window": window, "shares": entries, **({"in_turns": True} if in_turns else {})}


def ready(window: int, started: Started, happening: Ready) -> Json:
    """A worker serves, or trains, from now on."""
    late_s = max(0.0, happening.at_s - started.promised_s)
    return {
        "window": window,
        **_worker(started),
        **_moments(
            ready_s=happening.at_s, late_ready_s=late_s, library_s=happening.library_s, model_s=happening.model_s
        ),
    }


def finished(trained: Trained, accuracy: float) -> Json:
    """A retraining that ended; the model answers with this accuracy from then on."""
    return {
        "window": trained.window,
        "instance": trained.instance_id,
        "tenant": trained.tenant,
        "finish_s": _moment(trained.at_s),
        "accuracy": accuracy,
        **({} if trained.option == FULL else {"option": trained.option}),
        **trained.facts,
    }


def checkpoint(trained: Trained, accuracy: float) -> Json:
    """A retraining has done ``part`` of its work, and its weights answer with this accuracy from then on."""
    return {**finished(trained, accuracy), "part": trained.checkpoint}


def failed(window: int, started: Started, at_s: float, reason: str) -> Json:
    """A worker that is gone."""
    return {"window": window, **_worker(started), "failed_s": _moment(at_s), "reason": reason}


def _worker(started: Started) -> dict[str, object]:
    return {"instance": started.instance_id, "tenant": started.owner.tenant, "task": started.owner.task.value}


def _instance(item: Started | Stopped) -> dict[str, object]:
    """Which instance, where, and whose."""
    return {
        "instance": item.instance_id,
        "placement": str(item.placement),
        "compute_slices": item.placement.profile.compute_slices,
        "tenant": item.owner.tenant,
        "task": item.owner.task.value,
    }


def window_finished(settled: SettledWindow, served: Mapping[str, Mapping[str, list[float]]]) -> Json:
    """What became of every request that arrived in the window, by tenant and second of arrival.

    ``served`` has by tenant what could have been served in each second, where instances do not show it.
    """
    by_tenant = {counts.tenant: {**_counts(counts), **served.get(counts.tenant, {})} for counts in settled.counts}
    blind = {"blind": [list(seconds) for seconds in settled.blind]} if settled.blind else {}
    return {"window": settled.window, "tenants": by_tenant, **blind}


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


def _moments(**seconds: float) -> dict[str, float]:
    return {name: _moment(at_s) for name, at_s in seconds.items()}
