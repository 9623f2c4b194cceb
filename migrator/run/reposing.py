"""Windows of a run posed anew from its folder, so that its plans can be checked against what they were to answer.

A window's problem follows from the config (tenants, profiles, traces, forecaster) and from what the log says of its
beginning: the accuracies and the state that it began with. The forecast is made again and has to be the one in the log.
So are the accuracies, the models' ages and the outlook, from the retrainings that the log tells.
The problem of a window's rest, where that was planned anew, is the window's with another forecast, and with what the
log says was left by then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forecaster.forecast import FloatArray
from migrator.estimates import Estimate
from migrator.log.record import Record
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, ReadLog
from migrator.run import events
from migrator.run.foresight import Foresight, Opening, forecast_from, observe
from migrator.run.models import TabledModels, last_trained
from migrator.run.outlook import Outlook, outlook_of, outlooks, unseen, windows_ahead
from migrator.run.planning import Seen
from migrator.run.posing import later, posed
from migrator.setting import Setting
from migrator.traffic import Traffic
from planner.build import WarmUps, with_forecast
from planner.files.plan_file import plan_of
from planner.files.problem_file import state_of_json, unavailable_of_json
from planner.policies.policy import Knows
from planner.problem import PhysicalState, Problem, Reconfiguration, TenantTerms
from planner.unavailable import unavailable_later
from planner.verify import Verification, verify
from workloads.serving.requests import AccuracyTimeline
from workloads.tenants import Tenant
from workloads.training import FULL


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan of a run, of a window or of its rest, and what the checker says of it.

    Attributes:
        window: The window's number.
        verification: What was found; ``None`` where the plan was not checked.
        reason: Why it was not; empty where it was.
        is_planned: Whether the log holds a plan for it at all; without one the layout was kept.
        anew_from_step: Of the window, from which on the plan is one of its rest; ``None`` for the window's own.
    """

    window: int
    verification: Verification | None
    reason: str = ""
    is_planned: bool = True
    anew_from_step: int | None = None

    @property
    def name(self) -> str:
        """What it is of, in words."""
        rest = "" if self.anew_from_step is None else f", planned anew from step {self.anew_from_step}"
        return f"window {self.window}{rest}"


class RunCheck:
    """Checks the plans in a run's log against problems that are posed anew from the run's own config."""

    def __init__(self, log: ReadLog, setting: Setting, traffic: Traffic) -> None:
        """``setting`` and ``traffic`` are those of the folder's config."""
        self._log, self._setting, self._traffic = log, setting, traffic
        knows = Knows(log.header.get("knows", Knows.FORECAST))
        ahead_s = log.header.get("ahead_s")
        self._foresight = Foresight(setting, traffic, needs_hindsight=knows.needs_hindsight, ahead_s=ahead_s)
        self._misfit = _misfit(log.header, setting)
        self._objections = {} if self._misfit else _objections(log, setting)

    def plans(self, number: int | None = None) -> Iterator[CheckedPlan]:
        """Those of every window that the log began, or of the one of that number; after each, those of its rest."""
        for record in self._log.of_kind("window_started"):
            if number in (None, record["window"]):
                yield from self._checked(record)

    def _checked(self, record: Record) -> Iterator[CheckedPlan]:
        window, plan = int(record["window"]), record["plan"]
        if plan is None:
            yield CheckedPlan(window, None, f"its policy shares by {self._log.sharing}, without a plan", False)
            return
        posed_again = self._posed(record)
        if plan["objective"] is None:
            rejected = record.get("rejected_plan") is not None
            why = "the plan broke a rule and was not carried out" if rejected else f"no plan ({plan['status']})"
            yield CheckedPlan(window, None, f"{why}; the layout was kept", False)
        else:
            yield self._verified(record, posed_again)
        for revised in self._log.of_kind("plan_revised"):
            if revised["window"] == window:
                rest = posed_again if isinstance(posed_again, str) else self._posed_rest(posed_again, revised)
                yield replace(self._verified(revised, rest), anew_from_step=int(revised["from_step"]))

    def _verified(self, record: Record, posed_again: Problem | str) -> CheckedPlan:
        """The record's plan held against its problem, or why there is none."""
        window = int(record["window"])
        if isinstance(posed_again, str):
            return CheckedPlan(window, None, posed_again)
        plan = plan_of({**record["plan"], "solve_s": 0.0}, posed_again, f"{self._origin(record)}: plan")
        return CheckedPlan(window, verify(posed_again, plan))

    def _posed_rest(self, window: Problem, revised: Record) -> Problem | str:
        """The problem that a window's rest posed when it was planned anew, or why it cannot be told."""
        setting, told = self._setting, revised.get("rest", {})
        if revised.get("initial") is None or not {tenant.name for tenant in window.tenants} <= told.keys():
            return "the log does not say what was left of its window; an earlier version wrote it"
        for tenant in window.tenants:
            if not set(told[tenant.name]["options"]) <= {option.name for option in tenant.options}:
                return f"the retrainings of {tenant.name} that were left are none of its window's"
        n_steps = int(revised["plan"]["n_steps"])
        asked_s, from_step = float(revised["asked_s"]), int(revised["from_step"])
        if "cause" in revised:  # beside a plan that was followed, the forecast is of all steps from then on
            start_s = revised["window"] * setting.config.window_s
            from_step = math.floor((asked_s - start_s) / setting.config.step_s + 1e-9)
        past_rps = self._traffic.rates_before(asked_s, setting.config.step_s, setting.n_history_steps)
        accuracies = tuple(tenant.accuracy_before for tenant in window.tenants)
        opening = Opening(int(revised["window"]), past_rps, accuracies)
        forecast = self._foresight.forecast(opening, from_step)
        forecast = forecast_from(forecast, forecast.mean_rps.shape[0] - n_steps)
        tenants = tuple(
            _left(tenant, told[tenant.name], forecast.mean_rps[:, index]) for index, tenant in enumerate(window.tenants)
        )
        for tenant in tenants:
            if events.rest_of(tenant)["mean_rps"] != told[tenant.name]["mean_rps"]:
                return f"the forecast of {tenant.name} made anew is not the run's: its trace or the program has changed"
        rest = replace(
            window,
            n_steps=n_steps,
            tenants=tenants,
            gains=None,
            switch_s=window.switching_s,
            initial=state_of_json(
                revised["initial"], Reconfiguration.PHYSICAL, self._setting.gpu, self._origin(revised)
            ),
            unavailable=unavailable_of_json(revised.get("unavailable", ()), self._origin(revised)),
        )
        return with_forecast(rest, setting.known_tenants, forecast, setting.config.planner.risk)

    def _posed(self, record: Record) -> Problem | str:
        """The problem that the window posed, or why it cannot be told."""
        if self._misfit is not None:
            return self._misfit
        told = {name: item for name, item in record["forecast"]["tenants"].items() if "accuracy_before" in item}
        warm_ups = warm_ups_in(record, self._setting.tenants)
        names = {tenant.name for tenant in self._setting.tenants}
        if warm_ups is None or "initial" not in record or not names <= told.keys():
            return "the log does not say what the window began with; an earlier version wrote it"
        window, from_step = int(record["window"]), int(record.get("plan_from_step", 0))
        if window in self._objections:
            return self._objections[window]
        state = self._state(record, from_step)
        if from_step != (0 if state is None else self._setting.config.planning_steps):
            return f"it was planned from step {from_step} on, which {CONFIG_FILE} does not say"
        accuracies = [float(told[tenant.name]["accuracy_before"]) for tenant in self._setting.tenants]
        estimated = [_estimated(tenant, told[tenant.name]) for tenant in self._setting.tenants]
        known = None if self._log.header["simulated"] else estimated  # in a live run they were measured
        opening = replace(
            observe(self._setting, self._traffic, window, accuracies, (), known),
            warm_ups=warm_ups,
            last_trained=last_trained_in(record, self._setting.tenants),
            outlooks=outlooks_in(record, self._setting),
        )
        forecast = self._foresight.forecast(opening)
        for index, tenant in enumerate(self._setting.tenants):
            mean_rps = np.round(forecast.mean_rps[:, index], events.RATE_DIGITS).tolist()
            if mean_rps != told[tenant.name]["mean_rps"]:
                return f"the forecast of {tenant.name} made anew is not the log's: its trace or the program has changed"
        taken = unavailable_of_json(record.get("unavailable", ()), self._origin(record))
        taken = unavailable_later(taken, from_step)
        return posed(self._setting, opening, state, forecast, unavailable=taken)

    def _origin(self, record: Record) -> str:
        return f"{self._log.folder / EVENTS_FILE}: window {record['window']}"

    def _state(self, record: Record, from_step: int) -> PhysicalState | None:
        """What the window began with, in steps from its start."""
        if record["initial"] is None:
            return None
        state = state_of_json(record["initial"], Reconfiguration.PHYSICAL, self._setting.gpu, self._origin(record))
        assert isinstance(state, PhysicalState)
        return later(state, from_step)


def _objections(log: ReadLog, setting: Setting) -> dict[int, str]:
    """By window, what the log says of its models that does not follow from the retrainings in it; the first of each."""
    retold, found = _Retold(log, setting), dict[int, str]()
    for record in log.events:
        match record["kind"]:
            case "window_started":
                window, objection = int(record["window"]), retold.began(record)
            case "finished" | "checkpoint":
                window, objection = int(record["finish_s"] // setting.config.window_s), retold.learned(record)
            case "resumed":
                retold.resumed()
                continue
            case _:
                continue
        if objection is not None:
            found.setdefault(window, objection)
    return found


class _Retold:
    """The models of a run, made to learn again what its log says that they have learned.

    Accuracies of a live run were measured: the log's own are taken, and what follows from them is held against it.
    """

    def __init__(self, log: ReadLog, setting: Setting) -> None:
        self._setting, self._is_live = setting, not log.header["simulated"]
        self._names = [tenant.name for tenant in setting.tenants]
        self._models = TabledModels(setting.tenants, setting.config.window_s)
        self._n_opened = 0
        self._measured: list[dict[float, float]] = [{} for _ in self._names]
        self._trained: set[tuple[str, int]] = set()

    def began(self, record: Record) -> str | None:
        """What of a window's beginning does not follow; ``None`` if all does, as far as it is told."""
        window, told = int(record["window"]), record["forecast"]["tenants"]
        for left_out in range(self._n_opened, window):  # by a run that was joined again
            self._models.open(left_out)
        accuracies = self._models.open(window)
        self._n_opened = window + 1
        ages, views = record.get("model_age", {}), record.get("outlook", {})
        for index, (name, accuracy) in enumerate(zip(self._names, accuracies, strict=True)):
            known = told.get(name, {}).get("accuracy_before", accuracy)
            self._measured[index][record["start_s"]] = known
            if not self._is_live and not _are_same(known, accuracy):
                return _does_not_follow(name, "begins with an accuracy of", known, accuracy)
            age = window - last_trained(name, self._trained)
            if ages.get(name, age) != age:
                return _does_not_follow(name, "has an age of", ages[name], age)
            view = views.get(name, {})
            if {"ahead", "still"} <= view.keys():  # else an earlier version wrote it
                expected = self._outlook(window, index, float(view["in_time"])).to_json()
                for key, value in expected.items():
                    if not _are_same(view[key], value):
                        return _does_not_follow(name, f"has in its outlook {key}", view[key], value)
        return None

    def learned(self, record: Record) -> str | None:
        """Take in that a retraining ended, or came to a checkpoint; says it if that cannot give what is told."""
        name, window, at_s = record["tenant"], int(record["window"]), float(record["finish_s"])
        told, part, option = record["accuracy"], record.get("part"), record.get("option", FULL)
        if part is None:
            self._trained.add((name, window))
        if self._is_live:
            self._measured[self._names.index(name)][at_s] = float(told)
            return None
        gave = self._models.trained(name, window, at_s, option, part)
        if told is None or _are_same(told, gave):  # schema 1 does not tell it
            return None
        if at_s % self._setting.config.window_s == 0:  # seconds are rounded: it may have ended just before the window
            gave = self._models.trained(name, window, math.nextafter(at_s, 0), option, part)
        return None if _are_same(told, gave) else _does_not_follow(name, "is retrained to", told, gave)

    def resumed(self) -> None:
        """A live run that is joined again has measured nothing yet."""
        self._measured = [{} for _ in self._names]

    def _outlook(self, window: int, index: int, in_time: float) -> Outlook:
        """What was to be expected of a tenant's model; which requests were resolved by then, no log tells."""
        timeline = self._models.timelines[index]
        if self._is_live:
            own = sorted(self._measured[index].items())
            timeline = AccuracyTimeline(tuple(at for at, _ in own), tuple(value for _, value in own))
        tenant, config = self._setting.tenants[index], self._setting.config
        return outlooks([tenant], config, window, [timeline], self._trained, [in_time])[0]


def _are_same(told: Any, made: Any) -> bool:
    """Whether a value in the log is the one that was made again; of numbers, to the digits that logs have."""
    return math.isclose(told, made, abs_tol=2e-6) if isinstance(made, float) else told == made


def _does_not_follow(tenant: str, what: str, told: object, made: object) -> str:
    return f"the log says that {tenant} {what} {told}; by the retrainings in it, that is {made}"


def _left(tenant: TenantTerms, told: Mapping[str, Any], arrivals_rps: FloatArray) -> TenantTerms:
    """What is left for a tenant of its window, as :func:`migrator.run.events.rest_of` tells it."""
    options = {option.name: option for option in tenant.options}
    floor = tenant.min_slo_attainment
    return replace(
        tenant,
        arrivals_rps=arrivals_rps,
        accuracy_before=float(told["accuracy_before"]),
        options=tuple(options[name] for name in told["options"]),
        retraining_required=told["retraining_required"],
        salvage=tuple(told.get("salvage", ())),
        min_slo_attainment=None if floor is None else replace(floor, due=float(told.get("due", floor.due))),
    )


def warm_ups_in(record: Record, tenants: Sequence[Tenant]) -> WarmUps | None:
    """What the window was planned with, by its ``window_started``; ``None`` where that does not say."""
    told = record.get("warm_up")
    names = [tenant.name for tenant in tenants]
    if told is None or not set(names) <= told["start_s"].keys() & told["training_start_s"].keys():
        return None
    start_s, training_start_s = (tuple(told[key][name] for name in names) for key in ("start_s", "training_start_s"))
    return WarmUps(told["switch_s"], start_s, training_start_s)


def last_trained_in(record: Record, tenants: Sequence[Tenant]) -> tuple[int, ...] | None:
    """With which window's data each model was retrained last, by a ``window_started``; ``None`` if it does not say."""
    ages = record.get("model_age")
    return None if ages is None else tuple(record["window"] - ages[tenant.name] for tenant in tenants)


def outlooks_in(record: Record, setting: Setting) -> tuple[Outlook, ...] | None:
    """What the window's plan expected of the models, by its ``window_started``; ``None`` where it counted nothing."""
    told = record.get("outlook")
    if told is None:
        return None
    found = []
    for tenant in setting.tenants:
        blank = unseen(tenant, setting.config, int(record["window"]))
        found.append(outlook_of(told[tenant.name], len(blank.ahead)) if tenant.name in told else blank)
    return tuple(found)


def seen_in(record: Record, setting: Setting) -> Seen:
    """What the run had seen as the window began, by its ``window_started``; what lies ahead is as the config has it."""
    told = outlooks_in(record, setting)
    if told is not None:
        ahead = [windows_ahead(tenant, setting.config, int(record["window"])) for tenant in setting.tenants]
        told = tuple(replace(one, ahead=own) for one, own in zip(told, ahead, strict=True))
    return Seen(warm_ups_in(record, setting.tenants), told)


def _estimated(tenant: Tenant, told: Mapping[str, Any]) -> Estimate:
    """What a live run's plan assumed of a retraining; without one in the window, there is nothing to assume."""
    own = told.get("estimate", {"accuracy_after": told["accuracy_before"], "retraining_s": tenant.retraining_time_s})
    seconds = {name: float(seconds) for name, seconds in own["retraining_s"].items()}
    return Estimate(float(own["accuracy_after"]), seconds, dict.fromkeys(seconds, 0.0), gains=own.get("gains", {}))


def _misfit(header: Mapping[str, Any], setting: Setting) -> str | None:
    """What of the config is not what the run was made with; ``None`` if all is, as far as the log says."""
    config = setting.config
    of_config = {"seed": config.seed, "gpu": setting.gpu.name, "windows": config.windows}
    of_config |= {"window_s": config.window_s, "step_s": config.step_s}
    told = {"service_spread": 0.0, **header}  # it stands there only where latencies are misjudged
    of_config["service_spread"] = config.estimates.service_spread
    for key, value in of_config.items():
        if told[key] != value:
            return f"{CONFIG_FILE} has {key} {value}; the run was made with {told[key]}"
    names = [tenant["name"] for tenant in header["tenants"]]
    if names != [tenant.name for tenant in setting.tenants]:
        return f"{CONFIG_FILE} has other tenants than the run, which had {', '.join(names)}"
    for tenant, logged in zip(setting.tenants, header["tenants"], strict=True):
        rates = {name: round(point.rate_rps, events.RATE_DIGITS) for name, point in tenant.operating_points.items()}
        if rates != {name: point["rate_rps"] for name, point in logged["operating_points"].items()}:
            return f"the service profiles of {tenant.name} are not those that the run was made with"
    return None
