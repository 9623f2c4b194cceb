"""What goes into the log: every value of the loop as the record, or the part of one, that tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import convert, structs
from numpy.typing import NDArray

from executor.catalogue import is_catalogued
from executor.described import described
from executor.journal import Verb
from executor.mig import OwnedLayout, Placement
from executor.reconcile import Call
from forecaster.forecast import QUANTILE_LEVELS, Forecast
from migrator import __version__
from migrator.config.sections import Config, EstimatesConfig, FloorConfig, SimulationConfig
from migrator.execution.changes import ChangeOutcome, Made, Started, Stopped
from migrator.execution.happenings import Asked, Ready, Trained
from migrator.execution.watch import NoAnswerError
from migrator.execution.windows import Opening, PlannedWindow, Replan, begun_s
from migrator.inputs.assumed import assumed_in, is_disturbed
from migrator.inputs.estimates import Estimate, estimate_of
from migrator.inputs.provenance import without_folder
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Origin
from migrator.log import records
from migrator.log.records import Kept, Wall
from migrator.log.runlog import SCHEMA, TIME_DIGITS
from migrator.log.trouble import BlindSpan
from planner.attainment import attainments
from planner.build import WarmUps
from planner.course import Course, courses
from planner.files.plan_file import WALL_KEYS, plan_to_json
from planner.files.problem_file import state_to_json, unavailable_to_json
from planner.plan import AnyCertificate, MigPlan
from planner.policies.policy import AnyPolicy, Knows
from planner.policies.shares import Answer
from planner.problem import Owner, Pool, Problem, TenantTerms
from workloads.profiles.operating_point import OperatingPoint
from workloads.serving.tally import COUNTED, SecondCounts, SettledWindow
from workloads.tenants import Tenant
from workloads.training import FULL

RATE_DIGITS = 4
"""Forecast rates are logged to a ten-thousandth of a request a second."""


def wall(config_sum: str, given: Wall | None = None) -> Wall:
    """When, with which version and which config a run was started, beside what is ``given``.

    It is left out of comparisons.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = given or Wall()
    return structs.replace(facts, started_at=started_at, version=__version__, config_sum=config_sum)


def run_started(
    setting: Setting,
    origins: Sequence[Origin],
    forecaster: str,
    policy: AnyPolicy,
    sharing: str,
    time_limit_s: float | None = None,
    replan_every_s: float | None = None,
    turns_by: str | None = None,
) -> records.RunStarted:
    """The log's first record: what the run is about, enough to read the rest without the config."""
    config = setting.config
    jitter, is_real = config.simulation.service_jitter, config.gpu.backend != "sim"
    is_planned = sharing == "instances" or (sharing == "turns" and policy.knows is Knows.FORECAST)
    return records.RunStarted(
        schema=SCHEMA,
        name=config.name,
        seed=config.seed,
        simulated=not config.is_live,  # requests and workers are, on every GPU
        backend=config.gpu.backend if is_real else None,
        index=config.gpu.index if is_real else None,
        gpu=setting.gpu.name,
        card=None if is_catalogued(setting.gpu) else described(setting.gpu),
        compute_slices=setting.gpu.compute_slices,
        memory_slices=setting.gpu.memory_slices,
        window_s=config.window_s,
        step_s=config.step_s,
        windows=config.windows,
        service=config.is_endless,
        policy=policy.name,
        knows=policy.knows.value,
        ahead_s=policy.looks_ahead_s,
        sharing=sharing,
        forecaster=forecaster,
        profiles=without_folder(setting.profiles.name),
        profile_variant=config.profile_variant,
        service_jitter=jitter if isinstance(jitter, str) else None,
        service_spread=config.estimates.service_spread or None,
        interference=config.simulation.interference if is_disturbed(sharing, policy) else None,
        simulated_faults=_simulated_faults(config.simulation) if sharing == "instances" else None,
        planning_s=config.planning_s if is_planned else None,
        replan_every_s=replan_every_s,
        time_limit_s=time_limit_s,
        turns_by=turns_by,
        pinned=_pinned(config),
        repeatable=time_limit_s is None and not is_real,
        assumed=assumed_in(setting, sharing, policy, is_planned=is_planned),
        tenants=_tenants(setting, origins),
    )


def tenants_changed(
    setting: Setting, origins: Sequence[Origin], window: int, came: Mapping[str, float]
) -> records.TenantsChanged:
    """Who the tenants are from now on, and what the models give of those who ``came``."""
    return records.TenantsChanged(
        window=window, tenants=_tenants(setting, origins), pinned=_pinned(setting.config), accuracies=dict(came)
    )


def _pinned(config: Config) -> tuple[str, ...]:
    """What the config has plans leave as it is, in words."""
    told = {"layout": config.pin.layout, "retraining": not config.pin.retraining}
    weights = {one.name: one.pin.weights for one in config.tenants if one.pin.weights is not None}
    of_all = (what for what, is_pinned in told.items() if is_pinned)
    return *of_all, *(f"weights of {name} ({version})" for name, version in weights.items())


def _tenants(setting: Setting, origins: Sequence[Origin]) -> tuple[records.Tenant, ...]:
    return tuple(
        _tenant(tenant, origin, entry.min_slo_attainment)
        for tenant, origin, entry in zip(setting.tenants, origins, setting.config.tenants, strict=True)
    )


def _simulated_faults(simulation: SimulationConfig) -> records.SimulatedFaults | None:
    if not simulation.has_faults:
        return None
    return convert(simulation, records.SimulatedFaults, from_attributes=True)


def _tenant(tenant: Tenant, origin: Origin, floor: FloorConfig | None) -> records.Tenant:
    start = tenant.worker_start
    return records.Tenant(
        name=tenant.name,
        model=tenant.model,
        slo_ms=tenant.slo_s * 1000,
        load=round(origin.load, RATE_DIGITS),
        trace=without_folder(origin.source),
        scale=convert(origin.scale, records.Scale, from_attributes=True),
        notes=tuple(origin.notes),
        dispersion_before=round(origin.dispersion_before, RATE_DIGITS),
        dispersion_after=round(origin.dispersion_after, RATE_DIGITS),
        operating_points={name: _operating_point(point) for name, point in tenant.operating_points.items()},
        retraining_s=_seconds_by_profile(tenant.retraining_time_s),
        worker_start=records.WorkerStart(seconds=start.base_s, library_s=start.library_s, source=start.source),
        min_slo_attainment=None if floor is None else convert(floor, records.Floor, from_attributes=True),
    )


def _operating_point(point: OperatingPoint) -> records.OperatingPoint:
    return records.OperatingPoint(
        batch=point.batch,
        processes=point.processes,
        rate_rps=round(point.rate_rps, RATE_DIGITS),
        derived=point.derived,
    )


def window_started(
    setting: Setting,
    opening: Opening,
    forecast: Forecast,
    planned: PlannedWindow | None,
    queues: Mapping[str, records.Queue],
) -> records.WindowStarted:
    """A window's queues, forecast and plan, before any of it is carried out."""
    problem = None if planned is None else planned.problem
    return records.WindowStarted(
        window=opening.window,
        start_s=opening.window * setting.config.window_s,
        queues=dict(queues),
        forecast=_forecast(setting, opening, forecast),
        plan_from_step=0 if planned is None else planned.plan_from_step,
        expected=None if planned is None else _expected(planned),
        **_of_plan(planned),
        warm_up=None if problem is None else _warm_up(problem),
        model_age={
            tenant.name: opening.window - last
            for tenant, last in zip(setting.tenants, opening.trained_last, strict=True)
        },
        outlook={} if problem is None else _outlook(setting, opening),
        in_time=_in_time(planned) if planned is not None and planned.problem.has_floors else None,
        asked_s=_moment(begun_s(setting, opening.window)) if opening.ahead_steps else None,
        pools=() if problem is None else tuple(map(_pool, problem.pools)),
    )


def _pool(pool: Pool) -> records.Pool:
    rates = {profile: dict(by_member) for profile, by_member in pool.capability_rps.items()}
    return records.Pool(members=pool.members, overhead_s=pool.overhead_s, capability_rps=rates)


def measured(setting: Setting, opening: Opening, at_s: float) -> records.Measured:
    """What the window's models give, and what retraining them would bring, now that it is known."""
    return records.Measured(
        window=opening.window,
        measured_s=_moment(at_s),
        tenants={
            tenant.name: records.MeasuredModel(
                accuracy_before=accuracy, estimate=_estimated(setting, tenant, opening, index)
            )
            for index, (tenant, accuracy) in enumerate(zip(setting.tenants, opening.accuracies, strict=True))
        },
    )


def judged(window: int, tenant: str, labels: tuple[int, int], at_s: float) -> records.Judged:
    """Clients called too many of the tenant's answers wrong: of so many labels so few agreed."""
    return records.Judged(window=window, judged_s=_moment(at_s), tenant=tenant, labels=labels[0], right=labels[1])


def _forecast(setting: Setting, opening: Opening, forecast: Forecast) -> records.Forecast:
    return records.Forecast(
        method=forecast.method,
        low_level=QUANTILE_LEVELS[0],
        high_level=QUANTILE_LEVELS[-1],
        tenants={
            tenant.name: records.TenantForecast(
                accuracy_before=opening.accuracies[index],
                # In a live run retrainings are estimated as it goes: what they bring is not known before.
                accuracy_after=None if setting.config.is_live else tenant.accuracy_in(opening.window).after,
                estimate=_estimated(setting, tenant, opening, index),
                by_feedback=opening.by_feedback.get(tenant.name),
                mean_rps=_rates(forecast.mean_rps[:, index]),
                low_rps=_rates(forecast.quantiles_rps[0, :, index]),
                high_rps=_rates(forecast.quantiles_rps[-1, :, index]),
            )
            for index, tenant in enumerate(setting.tenants)
        },
        **asdict(opening.filled),
    )


def _of_plan(planned: PlannedWindow | None, old: AnyCertificate | None = None) -> dict[str, Any]:
    """What records of a window, or of its rest, say of the plan; ``old`` is what is left of a certificate in the log.

    It begins with ``initial``. The slices that are ``unavailable`` it may not touch, in its own steps. The plan that is
    ``rejected`` is not carried out because it breaks a rule.
    """
    if planned is None:
        return {"initial": None, "plan": None, "violations": ()}
    problem, verification = planned.problem, planned.verification
    return {
        "initial": None if problem.initial is None else state_to_json(problem.initial),
        "plan": _plan(planned.plan, old),
        "violations": () if verification is None else tuple(map(str, verification.violations)),
        "rejected_plan": None if planned.rejected is None else _plan(planned.rejected),
        "unavailable": tuple(map(unavailable_to_json, problem.unavailable)),
    }


def _warm_up(problem: Problem) -> records.WarmUp:
    """What the plan reckons a change to take until what it starts serves, or trains."""
    found = WarmUps.of(problem)
    return records.WarmUp(
        switch_s=found.switch_s,
        start_s=dict(zip(problem.tenant_names, found.start_s, strict=True)),
        training_start_s=dict(zip(problem.tenant_names, found.training_start_s, strict=True)),
    )


def _outlook(setting: Setting, opening: Opening) -> dict[str, records.Outlook]:
    """What is expected of the models after the window, by tenant whose plan counts what they are worth then."""
    if opening.outlooks is None:
        return {}
    pairs = zip(setting.tenants, opening.outlooks, strict=True)
    return {tenant.name: one for tenant, one in pairs if tenant.counts_salvage(setting.config.retraining.salvage)}


def _in_time(planned: PlannedWindow) -> dict[str, records.InTime]:
    """What the plan promises each tenant in time, over the steps that it covers, and what it lacks of a floor."""
    return {
        one.tenant: records.InTime(
            promised=None if one.share is None else round(one.share, TIME_DIGITS),
            missed=None if one.is_met else str(one),
        )
        for one in attainments(planned.problem, planned.plan)
    }


def _expected(planned: PlannedWindow) -> dict[str, records.Promise] | None:
    """What the plan in force promises each tenant from its first step on, in requests; ``None`` without a promise."""
    if not planned.is_planned:
        return None
    problem = planned.problem
    return {course.tenant.name: _promise(course, problem.step_s) for course in courses(problem, planned.plan)}


def _promise(course: Course, step_s: float) -> records.Promise:
    """Requests that come, are answered in time, and right as well; ``None`` where gain tables or weight do not tell."""
    tenant = course.tenant
    return records.Promise(
        arrivals=round(float(tenant.arrivals_rps.sum()) * step_s, RATE_DIGITS),
        in_time=None if course.in_time is None else round(float(course.in_time.sum()), RATE_DIGITS),
        goodput=None if tenant.weight == 0 else round(float(course.goodput.sum()) / tenant.weight, RATE_DIGITS),
    )


def plan_revised(revised: PlannedWindow, reason: str, asked_s: float) -> records.PlanRevised:
    """The plan of a window's rest, and why there is a new one; with what the rest is, beside the window, to pose it."""
    return records.PlanRevised(**_of_rest(revised, reason, asked_s))


def _of_rest(planned: PlannedWindow, reason: str, asked_s: float, old: AnyCertificate | None = None) -> dict[str, Any]:
    """What records of a window's rest have in common; ``old`` is what is left of a certificate in the log."""
    return {
        "window": planned.window,
        "from_step": planned.plan_from_step,
        "reason": reason,
        "asked_s": _moment(asked_s),
        "rest": {tenant.name: rest_of(tenant) for tenant in planned.problem.tenants},
        **_of_plan(planned, old),
    }


def rest_of(tenant: TenantTerms) -> records.Rest:
    """What is left for a tenant: its accuracy, its retrainings and their salvage, what it owes, its mean rate."""
    return records.Rest(
        accuracy_before=tenant.accuracy_before,
        options=tuple(option.name for option in tenant.options),
        retraining_required=tenant.retraining_required,
        due=None if tenant.min_slo_attainment is None else tenant.min_slo_attainment.due,
        salvage=tuple(tenant.salvage),
        mean_rps=round(float(tenant.arrivals_rps.mean()), RATE_DIGITS),
    )


def plan_changed(replan: Replan, asked: Asked, asked_s: float) -> records.PlanRevised:
    """Another plan of a window's rest is followed from now on, and what it is worth more than the running one."""
    gain = None if replan.gain is None else round(replan.gain, RATE_DIGITS)
    common = _of_rest(replan.planned, asked.reason, asked_s, replan.logged)
    return records.PlanRevised(**common, cause=asked.cause, gain=gain)


def plan_kept(
    window: int, n_steps: int, asked: Asked, asked_s: float, why: Kept, error: str | None
) -> records.PlanKept:
    """The plan in force goes on; ``n_steps`` are those of the rest that there might have been another plan for."""
    assert asked.cause is not None  # where there must be another plan, the one in force cannot go on
    return records.PlanKept(
        window=window,
        cause=asked.cause,
        reason=asked.reason,
        asked_s=_moment(asked_s),
        n_steps=n_steps,
        why=why,
        error=error,
    )


def not_revised(kept: PlannedWindow, reason: str, asked_s: float) -> records.NotRevised:
    """There is a reason to plan a window's rest anew, and no plan: what stands, and what the answer was."""
    return records.NotRevised(**_of_rest(kept, reason, asked_s))


def _estimated(setting: Setting, tenant: Tenant, opening: Opening, index: int) -> records.Estimate | None:
    """What the plan assumed of the window's retraining, where that may be something else than what it brings."""
    config, window = setting.config, opening.window
    if not tenant.retrains_in(window):
        return None
    if opening.estimates is not None:
        return _estimate(opening.estimates[index])
    if config.estimates == EstimatesConfig():
        return None
    return _estimate(estimate_of(config.estimates, config.seed, setting.gpu, tenant, window))


def _estimate(estimate: Estimate) -> records.Estimate:
    return records.Estimate(
        accuracy_after=estimate.accuracy_after,
        source=estimate.source or None,
        retraining_s=_seconds_by_profile(estimate.retraining_s),
        profiling_s=_seconds_by_profile(estimate.profiling_s),
        gains=dict(estimate.gains),
    )


def _seconds_by_profile(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, RATE_DIGITS) for name, value in seconds.items()}


def _plan(plan: MigPlan, old: AnyCertificate | None = None) -> records.Plan:
    """The plan without its wall-clock times, and without prices that are those of the ``old`` certificate."""
    found = convert({key: value for key, value in plan_to_json(plan).items() if key not in WALL_KEYS}, records.Plan)
    own = plan.certificate
    if found.certificate is None or own is None or old is None or not np.array_equal(own.prices, old.prices):
        return found
    kept = {key: value for key, value in found.certificate.items() if key != "prices"}
    return structs.replace(found, certificate=kept)


def wall_of(plan: MigPlan) -> Wall:
    """The plan's wall-clock times."""
    return Wall(**{key: getattr(plan, key) for key in WALL_KEYS})


def intent(window: int, call: Verb, placement: Placement, gi_id: int | None) -> records.Intent:
    """A driver call that is about to be made."""
    return records.Intent(window=window, call=call, placement=str(placement), gi_id=gi_id)


def outcome(window: int, intent_n: int, call: Call, made: Made) -> records.Outcome:
    """The outcome of a driver call; ``intent_n`` is the number of its intent's record."""
    return records.Outcome(
        window=window,
        intent=intent_n,
        gi_id=call.gi_id if made.instance is None else made.instance.gi_id,
        begin_s=_moment(made.begin_s),
        end_s=_moment(made.end_s),
        error=None if made.error is None else str(made.error),
    )


def change(window: int, outcome: ChangeOutcome, layout: OwnedLayout[Owner]) -> records.Change:
    """One change of the layout: which owners stopped, which got an instance, and which hold what afterwards."""
    return records.Change(
        window=window,
        planned_s=_moment(outcome.planned_s),
        begin_s=_moment(outcome.begin_s),
        stopped=tuple(
            records.Stopped(
                **_instance(item),
                end_s=_moment(item.end_s),
                drained_s=_moment(item.drained_s),
                gone_s=_moment(item.gone_s),
            )
            for item in outcome.stopped
        ),
        started=tuple(map(_started, outcome.started)),
        layout=held(layout),
        undone=tuple(f"{item.placement}: {item}" for item in outcome.undone),
        passed=tuple(map(_started, outcome.passed)),
        loans=tuple(map(_started, outcome.lent)),
    )


def held(layout: OwnedLayout[Owner]) -> tuple[tuple[str, records.Holder, records.Task], ...]:
    """Which instance each holder has."""
    return tuple((str(placement), _named(owner), owner.task.value) for placement, owner in layout.entries)


def _started(item: Started) -> records.Started:
    return records.Started(**_instance(item), begin_s=_moment(item.begin_s), promised_s=_moment(item.promised_s))


def _named(owner: Owner) -> records.Holder:
    """The holder of an instance: a tenant, or the members of a pool."""
    return owner.members if owner.others else owner.tenant


def others(
    window: int, gone: Sequence[str], came: Sequence[Placement], left: Sequence[Placement], taken: Sequence[Placement]
) -> records.Others:
    """What others have done to the GPU, and where others now have instances that no plan may count on."""
    return records.Others(
        window=window,
        gone=tuple(gone),
        came=tuple(map(str, came)),
        left=tuple(map(str, left)),
        taken=tuple(map(str, taken)),
    )


def blind(window: int, seen: BlindSpan) -> records.Blind:
    """It is unknown what stood since then, up to when the driver said so again: ``None`` while it does not."""
    to_s = None if seen.to_s is None else _moment(seen.to_s)
    return records.Blind(window=window, from_s=_moment(seen.from_s), to_s=to_s, reason=seen.reason)


def interrupted(error: NoAnswerError) -> records.Interrupted:
    """The run ends before its time: its GPU does not answer any more."""
    return records.Interrupted(reason=str(error), blind_from_s=_moment(error.blind.from_s))


def shares(window: int, answer: Answer) -> records.Shares:
    """Shares of the GPU that come into force, in twentieths of its processors, or of its time."""
    entries = tuple((owner.tenant, owner.task.value, quanta) for owner, quanta in answer.shares.items())
    batches = tuple((name, own.most) for name, own in answer.batches.items())
    return records.Shares(window=window, shares=entries, in_turns=answer.in_turns, batches=batches)


def ready(window: int, started: Started, happening: Ready) -> records.Ready:
    """A worker serves, or trains, from now on."""
    return records.Ready(
        window=window,
        **_worker(started, happening.tenant),
        ready_s=_moment(happening.at_s),
        late_ready_s=_moment(max(0.0, happening.at_s - started.promised_s)),
        library_s=_moment(happening.library_s),
        model_s=_moment(happening.model_s),
    )


def trained(ended: Trained, accuracy: float) -> records.Finished:
    """A retraining that ended, or came to a checkpoint; its weights answer with this accuracy from then on."""
    common: dict[str, Any] = {
        "window": ended.window,
        "instance": ended.instance_id,
        "tenant": ended.tenant,
        "finish_s": _moment(ended.at_s),
        "accuracy": accuracy,
        "option": None if ended.option == FULL else ended.option,
        **ended.facts,
    }
    return (
        records.Finished(**common) if ended.checkpoint is None else records.Checkpoint(**common, part=ended.checkpoint)
    )


def failed(window: int, started: Started, at_s: float, reason: str, tenant: str | None = None) -> records.Failed:
    """A worker that is gone; ``tenant`` is the pool's member whose it was."""
    return records.Failed(window=window, **_worker(started, tenant), failed_s=_moment(at_s), reason=reason)


def _worker(started: Started, tenant: str | None) -> dict[str, Any]:
    owner = started.owner
    return {"instance": started.instance_id, "tenant": tenant or owner.tenant, "task": owner.task.value}


def _instance(item: Started | Stopped) -> dict[str, Any]:
    """Which instance, where, and whose."""
    return {
        "instance": item.instance_id,
        "placement": str(item.placement),
        "compute_slices": item.placement.profile.compute_slices,
        "tenant": _named(item.owner),
        "task": item.owner.task.value,
    }


def window_finished(
    settled: SettledWindow, served: Mapping[str, Mapping[str, Any]], sums: Mapping[str, str] = MappingProxyType({})
) -> records.WindowFinished:
    """The outcome of every request that arrived in the window, by tenant and second of arrival.

    ``served`` has by tenant what could have been served in each second, where instances do not show it; ``sums`` are
    those of its seconds in the run's store of arrivals.
    """
    return records.WindowFinished(
        window=settled.window,
        tenants={counts.tenant: _counts(counts, served.get(counts.tenant, {})) for counts in settled.counts},
        blind=tuple(settled.blind),
        arrival_sums=dict(sums),
    )


def outside(window: int, counts: Sequence[SecondCounts]) -> records.Outside:
    """Outcomes of requests before the window, the first after a start, by tenant."""
    names = ("arrivals", "in_time", "late", "dropped", "refused", "failed")
    return records.Outside(
        window=window,
        tenants={
            one.tenant: records.OutsideCounts(**{name: getattr(one.totals, name) for name in names}) for one in counts
        },
    )


def _counts(counts: SecondCounts, served: Mapping[str, Any]) -> records.Counts:
    names = COUNTED if counts.refused is None else (*COUNTED[:4], "refused")
    names = names if counts.failed is None or not counts.failed.any() else (*names, "failed")
    by_second = {name: getattr(counts, name).tolist() for name in names}
    latency_ms = list(counts.latency_ms.items())
    return records.Counts(**by_second, latency_ms=latency_ms, judged=counts.judged, **served)


def _rates(values: NDArray[np.float64]) -> list[float]:
    rounded: list[float] = np.round(values, RATE_DIGITS).tolist()
    return rounded


def _moment(seconds: float) -> float:
    return round(seconds, TIME_DIGITS)
