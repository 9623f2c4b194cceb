"""Windows of a run posed anew from its folder, so that its plans can be checked against what they were to answer.

A window's problem follows from the config (tenants, profiles, traces, forecaster) and from what the log says of its
beginning: the accuracies and the state that it began with. The forecast is made again and has to be the one in the log.
So are the accuracies, the models' ages and the outlook, from the retrainings that the log tells.
The problem of a window's rest, where that was planned anew, is the window's with another forecast, and with what the
log says was left then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from msgspec import structs, to_builtins

from forecaster.forecast import FloatArray, Forecast
from migrator.config.sections import Config
from migrator.execution import events
from migrator.execution.ahead import Seen, fallen
from migrator.execution.feedback import share_of
from migrator.execution.foresight import Foresight, forecast_from, observe, rates_before_step, seen_step
from migrator.execution.layout import with_layout
from migrator.execution.models import Lessons, TabledModels, outlooks, unseen, windows_ahead
from migrator.execution.posing import (
    estimates_in,
    plan_from_step_of,
    pools_terms,
    posed,
    shifted,
    still_with_options,
    terms_of,
)
from migrator.execution.windows import Opening, begun_s
from migrator.inputs.arrivals import LiveTraffic
from migrator.inputs.estimates import Estimate
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from migrator.log import records
from migrator.log.accuracies import Accuracies, AccuracyHistory
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, TIME_DIGITS, ReadLog
from planner.budget import Budget
from planner.build import PoolTerms, WarmUps, with_forecast
from planner.files.plan_file import plan_of
from planner.files.problem_file import state_of_json, unavailable_of_json
from planner.floors import without_multipliers
from planner.plan import AnyCertificate, MigPlan, Rule
from planner.policies.policy import Knows
from planner.problem import PhysicalState, Problem, Reconfiguration, TenantTerms
from planner.solve import solve
from planner.unavailable import unavailable_later
from planner.verify import Verification, verify
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
        tells_floors: Whether the log names every tenant whose floor of in-time answers the plan misses.
    """

    window: int
    verification: Verification | None
    reason: str = ""
    is_planned: bool = True
    anew_from_step: int | None = None
    tells_floors: bool = True

    @property
    def name(self) -> str:
        """What it is of, in words."""
        rest = "" if self.anew_from_step is None else f", planned anew from step {self.anew_from_step}"
        return f"window {self.window}{rest}"


class RunCheck:
    """Checks the plans in a run's log against problems that are posed anew from the run's own config.

    Where a window was planned without proofs, its problem is solved once more, for a certificate of its plan.
    """

    def __init__(self, log: ReadLog, setting: Setting, traffic: Traffic) -> None:
        """``setting`` and ``traffic`` are those of the folder's config."""
        setting = with_layout(setting, traffic)
        self._log, self._setting, self._traffic = log, setting, traffic
        needs_hindsight, ahead_s = Knows(log.header.knows).needs_hindsight, log.header.ahead_s
        self._foresight = Foresight(setting, traffic, needs_hindsight=needs_hindsight, ahead_s=ahead_s)
        self._misfit = _misfit(log.header, setting)
        self._objections = {} if self._misfit else _objections(log, setting)

    def plans(self, number: int | None = None) -> Iterator[CheckedPlan]:
        """Those of every window that the log began, or of the one of that number; after each, those of its rest."""
        for started in self._log.of(records.WindowStarted):
            if number in (None, started.window):
                yield from self._checked(started)

    def _checked(self, started: records.WindowStarted) -> Iterator[CheckedPlan]:
        window, plan = started.window, started.plan
        if plan is None:
            yield CheckedPlan(window, None, f"its policy shares by {self._log.header.sharing}, without a plan", False)
            return
        posed_again, proof = self._posed(started), None
        if plan.objective is None:
            rejected = started.rejected_plan is not None
            why = "the plan broke a rule and was not carried out" if rejected else f"no plan ({plan.status})"
            yield CheckedPlan(window, None, f"{why}; the layout was kept", False)
        else:
            proof = self._proof(started, plan, posed_again)
            yield self._verified(started, plan, posed_again, proof)
        certificate = plan.certificate
        revisions = [revised for revised in self._log.of(records.PlanRevised) if revised.window == window]
        measured = next((one for one in self._log.of(records.Measured) if one.window == window), None)
        if measured is not None and any(revised.asked_s < measured.measured_s for revised in revisions):
            measured = None
        whole = posed_again
        if measured is not None:
            posed_again = _with_options_of(self._posed(started, measured), whole)
        judged = [one for one in self._log.of(records.Judged) if one.window == window]
        for revised in revisions:
            if before := [one for one in judged if one.judged_s <= revised.asked_s]:
                posed_again = _with_options_of(self._posed(started, measured, before), whole)
            rest = posed_again if isinstance(posed_again, str) else self._posed_rest(posed_again, revised)
            told = revised.plan.with_prices(certificate)
            certificate = told.certificate or certificate
            yield replace(self._verified(revised, told, rest, proof), anew_from_step=revised.from_step)

    def _proof(
        self, started: records.WindowStarted, logged: records.Plan, problem: Problem | str
    ) -> AnyCertificate | None:
        """A certificate for a window's plan that was made without one, if a search finds one."""
        if isinstance(problem, str) or logged.certificate is not None:
            return None
        planner = self._setting.config.planner
        plan = self._plan(started.window, logged, problem)
        work, most = Budget(max_nodes=planner.max_schedules), planner.floor_costs_at_most
        return solve(problem, budget=work, initial=plan, floor_costs_at_most=most).certificate

    def _plan(self, window: int, logged: records.Plan, problem: Problem) -> MigPlan:
        return plan_of({**to_builtins(logged), "solve_s": 0.0}, problem, f"{self._origin(window)}: plan")

    def _verified(
        self,
        record: records.WindowStarted | records.PlanRevised,
        logged: records.Plan,
        posed_again: Problem | str,
        proof: AnyCertificate | None,
    ) -> CheckedPlan:
        """The log's plan held against its problem, or why there is none; ``proof`` is of the window's whole plan."""
        window = record.window
        if isinstance(posed_again, str):
            return CheckedPlan(window, None, posed_again)
        plan = self._plan(window, logged, posed_again)
        if proof is not None and plan.certificate is None:  # any prices are one
            left = proof.left(len(proof.prices) - plan.n_steps)
            plan = replace(plan, certificate=without_multipliers(posed_again, left) if plan.missed else left)
        found = verify(posed_again, plan)
        missed = {f"{item.rule}: {item.tenant}" for item in found.violations if item.rule is Rule.FLOOR}
        is_told = all(any(told.startswith((f"{one}:", f"{one},")) for told in record.violations) for one in missed)
        return CheckedPlan(window, found, tells_floors=is_told)

    def _posed_rest(self, window: Problem, revised: records.PlanRevised) -> Problem | str:
        """The problem that a window's rest posed when it was planned anew, or why it cannot be told."""
        setting, told, origin = self._setting, revised.rest, self._origin(revised.window)
        if revised.initial is None or not {tenant.name for tenant in window.tenants} <= told.keys():
            return "the log does not say what was left of its window"
        for tenant in window.tenants:
            if not set(told[tenant.name].options) <= {option.name for option in tenant.options}:
                return f"the retrainings of {tenant.name} that were left are none of its window's"
        n_steps = revised.plan.n_steps
        seen = seen_step(setting.config, revised.window, revised.asked_s)
        past_rps = rates_before_step(setting, self._traffic, revised.window, seen)
        accuracies = tuple(tenant.accuracy_before for tenant in window.tenants)
        opening = Opening(revised.window, past_rps, accuracies)
        forecast = self._foresight.forecast(opening, seen)
        forecast = forecast_from(forecast, forecast.mean_rps.shape[0] - n_steps)
        tenants = tuple(
            _left(tenant, told[tenant.name], forecast.mean_rps[:, index]) for index, tenant in enumerate(window.tenants)
        )
        for tenant in tenants:
            if events.rest_of(tenant).mean_rps != told[tenant.name].mean_rps:
                return f"the forecast of {tenant.name} made anew is not the run's: its trace or the program has changed"
        rest = replace(
            window,
            n_steps=n_steps,
            tenants=tenants,
            gains=None,
            switch_s=window.switching_s,
            initial=state_of_json(revised.initial, Reconfiguration.PHYSICAL, setting.gpu, origin),
            unavailable=unavailable_of_json(revised.unavailable, origin),
        )
        pools = [terms_of(setting, pool) for pool in window.pools]
        return with_forecast(rest, setting.known_tenants, forecast, setting.config.planner.risk, pools)

    def _posed(
        self,
        started: records.WindowStarted,
        measured: records.Measured | None = None,
        judged: Sequence[records.Judged] = (),
    ) -> Problem | str:
        """The problem that the window posed, or why it cannot be told; with what was ``measured`` and ``judged``."""
        objection = self._misfit or self._objections.get(started.window)
        if objection is not None:
            return objection
        told, names = started.forecast.tenants, {tenant.name for tenant in self._setting.tenants}
        warm_ups = warm_ups_in(started, self._setting.tenants)
        if warm_ups is None or not names <= started.model_age.keys():
            return "the log does not say what the window began with"
        window, from_step = started.window, started.plan_from_step
        if started.asked_s not in (None, round(begun_s(self._setting, window), TIME_DIGITS)):
            return f"its plan was begun at second {started.asked_s}, which {CONFIG_FILE} does not say"
        state, opening = self._state(started), self._opening(started, warm_ups, measured)
        opening = replace(opening, by_feedback={**opening.by_feedback, **_shares(judged)})
        if from_step != plan_from_step_of(self._setting, opening, state):
            return f"it was planned from step {from_step} on, which {CONFIG_FILE} does not say"
        forecast = self._foresight.forecast(opening)
        for index, tenant in enumerate(self._setting.tenants):
            mean_rps = np.round(forecast.mean_rps[:, index], events.RATE_DIGITS).tolist()
            if mean_rps != told[tenant.name].mean_rps:
                return f"the forecast of {tenant.name} made anew is not the log's: its trace or the program has changed"
        taken = unavailable_of_json(started.unavailable, self._origin(window))
        taken = unavailable_later(taken, from_step)
        pools = self._pools(started, forecast)
        pose = partial(posed, self._setting, opening, state, forecast, unavailable=taken)
        return pools if isinstance(pools, str) else pose(pools=pools)

    def _pools(self, started: records.WindowStarted, forecast: Forecast) -> tuple[PoolTerms, ...] | str:
        """Those that the window was planned with, or why they cannot be told."""
        names, warm_ups = [tenant.name for tenant in self._setting.tenants], warm_ups_in(started, self._setting.tenants)
        assert warm_ups is not None
        terms_by_members = pools_terms(self._setting, warm_ups, forecast.mean_rps.mean(axis=0))
        found = list[PoolTerms]()
        for pool in started.pools:
            if not set(pool.members) <= set(names):
                return f"it has a pool of {', '.join(pool.members)}, not all of whom are tenants"
            terms = terms_by_members(tuple(names.index(name) for name in pool.members))
            if terms is None or terms.planned_rps != pool.capability_rps:
                return (
                    f"the rates of the pool of {', '.join(pool.members)} are not those that the window was planned with"
                )
            found.append(terms)
        return tuple(found)

    def _opening(self, started: records.WindowStarted, warm_ups: WarmUps, measured: records.Measured | None) -> Opening:
        """What the window's plan was told of it, or what was measured since."""
        window, is_ahead = started.window, started.asked_s is not None
        of_models: Mapping[str, records.TenantForecast | records.MeasuredModel]
        of_models = started.forecast.tenants if measured is None else measured.tenants
        accuracies = [of_models[tenant.name].accuracy_before for tenant in self._setting.tenants]
        estimates: Sequence[Estimate] | None = None
        if not self._log.header.simulated:  # they were measured
            estimates = [_estimated(tenant, of_models[tenant.name]) for tenant in self._setting.tenants]
        elif is_ahead and measured is None:
            estimates = estimates_in(self._setting, window - 1)
        ahead_steps = self._setting.config.ahead_steps if is_ahead else 0
        traffic, known_s = self._traffic, started.forecast.known_s
        if known_s is not None and isinstance(traffic, LiveTraffic):
            traffic = traffic.up_to(known_s)
        return replace(
            observe(self._setting, traffic, window, accuracies, (), estimates, ahead_steps),
            warm_ups=warm_ups,
            last_trained=tuple(window - started.model_age[tenant.name] for tenant in self._setting.tenants),
            outlooks=outlooks_in(started, self._setting.config, self._setting.tenants),
            by_feedback={
                name: own.by_feedback for name, own in started.forecast.tenants.items() if own.by_feedback is not None
            },
        )

    def _origin(self, window: int) -> str:
        return f"{self._log.folder / EVENTS_FILE}: window {window}"

    def _state(self, started: records.WindowStarted) -> PhysicalState | None:
        """What the window began with, in steps from its start."""
        if started.initial is None:
            return None
        origin = self._origin(started.window)
        state = state_of_json(started.initial, Reconfiguration.PHYSICAL, self._setting.gpu, origin)
        assert isinstance(state, PhysicalState)
        return shifted(state, -started.plan_from_step)


def _objections(log: ReadLog, setting: Setting) -> dict[int, str]:
    """By window, what the log says of its models that does not follow from the retrainings in it; the first of each."""
    retold, found = _Retold(log, setting), dict[int, str]()
    n_known = 0 if log.begins is None or not log.begins.accuracies else len(log.begins.entries)
    for place, entry in enumerate(log.entries):
        retold.is_known = place < n_known
        match entry.record:
            case records.WindowStarted() as started:
                window, objection = started.window, retold.began(started)
            case records.Measured() as measured:
                window, objection = measured.window, retold.measured(measured)
            case records.Judged() as judged:
                window, objection = judged.window, _misjudged(judged, setting)
            case records.Finished() as ended:
                window, objection = int(ended.finish_s // setting.config.window_s), retold.learned(ended)
            case records.RolledBack() as back:
                retold.rolled_back(back)
                continue
            case records.Resumed():
                retold.resumed()
                continue
            case _:
                continue
        if objection is not None:
            found.setdefault(window, objection)
    return found


def _with_options_of(posed_again: Problem | str, whole: Problem | str) -> Problem | str:
    if isinstance(posed_again, str) or isinstance(whole, str):
        return posed_again
    return still_with_options(posed_again, whole)


def _shares(judged: Iterable[records.Judged]) -> dict[str, float]:
    """By tenant, which share of answers clients called right."""
    told = ((one.tenant, share_of(one.labels, one.right)) for one in judged)
    return {name: share for name, share in told if share is not None}


def _misjudged(judged: records.Judged, setting: Setting) -> str | None:
    """Why clients' labels ask for no retraining, though the log says that they do."""
    own = {tenant.name: tenant for tenant in setting.tenants}.get(judged.tenant)
    share = share_of(judged.labels, judged.right)
    if own is not None and share is not None and own.is_offered(judged.window, share):
        return None
    what = f"clients call {judged.right} of {judged.labels} answers of {judged.tenant} right"
    return f"the log says that {what}; that asks for no retraining"


class _Retold:
    """The models of a run, made to learn again what its log says that they have learned.

    AccuracyHistory of a live run were measured: the log's own are taken, and what follows from them is held against it.
    So they are where the log does not reach back to the run's begin; its snapshot has what drift was seen before.

    Attributes:
        is_known: Whether the snapshot has what the next record says of accuracies, and of what came later.
    """

    is_known = False

    def __init__(self, log: ReadLog, setting: Setting) -> None:
        self._setting, self._is_live = setting, not log.header.simulated or log.begins is not None
        is_tabled = log.header.simulated and bool(log.of(records.Resumed))  # such models also know what they missed
        self._knows_drift = log.begins is None or (bool(log.begins.accuracies) and not is_tabled)
        self._names = [tenant.name for tenant in setting.tenants]
        self._models = TabledModels(setting.tenants, setting.config.window_s)
        self._n_opened, self._opened = log.first_window, tuple[float, ...]()
        remembered = Accuracies.of(log.begins, ()).by_tenant
        self._measured = {name: remembered.get(name, AccuracyHistory()) for name in self._names}
        self._is_anew = all(own.is_unknown for own in self._measured.values())  # no window has begun since the start
        self._trained = Lessons((), {} if log.begins is None else log.begins.n_trained)

    def began(self, started: records.WindowStarted) -> str | None:
        """What of a window's beginning does not follow; ``None`` if all does, as far as it is told."""
        window, told = started.window, started.forecast.tenants
        for left_out in range(self._n_opened, window):  # by a run that was joined again
            self._models.open(left_out)
        is_ahead, objection = started.asked_s is not None and not self._is_anew, None
        self._is_anew = False
        before = deepcopy(self._accuracies) if is_ahead else {}  # as it was
        self._opened, self._n_opened = self._models.open(window), window + 1
        if not is_ahead:
            objection = self._begins(started.start_s, {name: told[name].accuracy_before for name in self._names})
            before = self._accuracies
        for index, name in enumerate(self._names):
            age = window - self._trained.last(name)
            if started.model_age.get(name, age) != age:
                return objection or _does_not_follow(name, "has an age of", started.model_age[name], age)
            view = started.outlook.get(name)
            expected = self._outlook(window, index, before[name], 1.0 if view is None else view.in_time)
            if view is not None and (self.is_known or not self._knows_drift):
                expected = structs.replace(expected, drift=view.drift)
            for key in () if view is None else expected.__struct_fields__:
                if not _are_same(getattr(view, key), getattr(expected, key)):
                    what = f"has in its outlook {key}"
                    return objection or _does_not_follow(name, what, getattr(view, key), getattr(expected, key))
            if is_ahead and objection is None and not self.is_known and (self._knows_drift or view is not None):
                objection = self._expected(started, index, before[name], expected.drift)
        return objection

    def measured(self, measured: records.Measured) -> str | None:
        """What of a window's beginning does not follow, of a window whose plan was made before."""
        if not set(self._names) <= measured.tenants.keys():
            return "the log does not say what the models of all tenants were measured to be"
        start_s = measured.window * self._setting.config.window_s
        return self._begins(start_s, {name: measured.tenants[name].accuracy_before for name in self._names})

    def _begins(self, start_s: float, known: Mapping[str, float]) -> str | None:
        """The window that was opened last begins with these accuracies."""
        for name, accuracy in zip(self._names, self._opened, strict=True):
            self._measured[name].note(start_s, known[name])
            if not self._is_live and not _are_same(known[name], accuracy):
                return _does_not_follow(name, "begins with an accuracy of", known[name], accuracy)
        return None

    def _expected(self, started: records.WindowStarted, index: int, seen: AccuracyHistory, drift: float) -> str | None:
        """What a plan made ahead takes a model for, where nothing was learned between then and the window's start."""
        assert started.asked_s is not None
        name, tenant = self._names[index], self._setting.tenants[index]
        if started.asked_s < seen.timeline.from_s[-1]:
            return None
        loses = drift if tenant.retrains_in(started.window - 1) else 1.0
        told, made = started.forecast.tenants[name].accuracy_before, fallen(seen.timeline.at(started.asked_s), loses)
        return None if _are_same(told, made) else _does_not_follow(name, "is expected to begin with", told, made)

    def learned(self, ended: records.Finished) -> str | None:
        """Take in that a retraining ended, or came to a checkpoint; says it if that cannot give what is told."""
        name, window, at_s, told = ended.tenant, ended.window, ended.finish_s, ended.accuracy
        part, option = ended.part if isinstance(ended, records.Checkpoint) else None, ended.option or FULL
        if part is None and ended.rejected is None:
            self._trained.add(name, window)
        if self._is_live:
            if not self.is_known:
                self._measured[name].note(at_s, told)
            return None
        gave = self._models.trained(name, window, at_s, option, part)
        if not _are_same(told, gave) and at_s % self._setting.config.window_s == 0:
            # Seconds are rounded: it may have ended just before the window.
            gave = self._models.trained(name, window, math.nextafter(at_s, 0), option, part)
        return None if _are_same(told, gave) else _does_not_follow(name, "is retrained to", told, gave)

    def rolled_back(self, back: records.RolledBack) -> None:
        """Take in that older weights answer again."""
        self._trained.roll_back(back.tenant, back.learned)
        self._measured[back.tenant].note(back.served_s, back.accuracy)

    def resumed(self) -> None:
        """A live run that is joined again has measured nothing yet."""
        if self.is_known:
            return
        self._is_anew = True
        for own in self._measured.values():
            own.join(self._setting.config.window_s)

    @property
    def _accuracies(self) -> Mapping[str, AccuracyHistory]:
        """Each tenant's accuracy, by name."""
        return self._measured if self._is_live else self._models.accuracies

    def _outlook(self, window: int, index: int, seen: AccuracyHistory, in_time: float) -> records.Outlook:
        """What was to be expected of a tenant's model; which requests were resolved until then, no log tells."""
        tenant, config = self._setting.tenants[index], self._setting.config
        return outlooks([tenant], config, window, {tenant.name: seen}, self._trained, {tenant.name: in_time})[0]


def _are_same(told: object, made: object) -> bool:
    """Whether a value in the log is the one that was made again; of numbers, to the digits that logs have."""
    if isinstance(told, float) and isinstance(made, float):
        return math.isclose(told, made, abs_tol=2e-6)
    return told == made


def _does_not_follow(tenant: str, what: str, told: object, made: object) -> str:
    return f"the log says that {tenant} {what} {told}; by the retrainings in it, that is {made}"


def _left(tenant: TenantTerms, told: records.Rest, arrivals_rps: FloatArray) -> TenantTerms:
    """What is left for a tenant of its window, as :func:`migrator.execution.events.rest_of` tells it."""
    options = {option.name: option for option in tenant.options}
    floor = tenant.min_slo_attainment
    return replace(
        tenant,
        arrivals_rps=arrivals_rps,
        accuracy_before=told.accuracy_before,
        options=tuple(options[name] for name in told.options),
        retraining_required=told.retraining_required,
        salvage=told.salvage,
        min_slo_attainment=None if floor is None else replace(floor, due=floor.due if told.due is None else told.due),
    )


def warm_ups_in(started: records.WindowStarted, tenants: Sequence[Tenant]) -> WarmUps | None:
    """What the window was planned with; ``None`` where that is unknown."""
    told, names = started.warm_up, [tenant.name for tenant in tenants]
    if told is None or not set(names) <= told.start_s.keys() & told.training_start_s.keys():
        return None
    start_s, training_start_s = (tuple(by[name] for name in names) for by in (told.start_s, told.training_start_s))
    pool_start_s = {pool.members: pool.overhead_s for pool in started.pools}
    return WarmUps(told.switch_s, start_s, training_start_s, pool_start_s)


def outlooks_in(
    started: records.WindowStarted, config: Config, tenants: Sequence[Tenant]
) -> tuple[records.Outlook, ...] | None:
    """What the window's plan expected of the models; ``None`` where it counted nothing."""
    if not started.outlook:
        return None
    return tuple(started.outlook.get(tenant.name) or unseen(tenant, config, started.window) for tenant in tenants)


def seen_in(started: records.WindowStarted, config: Config, tenants: Sequence[Tenant]) -> Seen:
    """What the run had seen as the window began; what lies ahead is as the config has it."""
    told = outlooks_in(started, config, tenants)
    if told is not None:
        ahead = [windows_ahead(tenant, config, started.window) for tenant in tenants]
        told = tuple(structs.replace(one, ahead=own) for one, own in zip(told, ahead, strict=True))
    return Seen(warm_ups_in(started, tenants), told)


def _estimated(tenant: Tenant, told: records.TenantForecast | records.MeasuredModel) -> Estimate:
    """What a live run's plan assumed of a retraining; without one in the window, there is nothing to assume."""
    own = told.estimate
    after, seconds = told.accuracy_before, tenant.retraining_time_s
    if own is not None:
        after, seconds = own.accuracy_after, own.retraining_s
    return Estimate(after, seconds, dict.fromkeys(seconds, 0.0), gains={} if own is None else own.gains)


def _misfit(header: records.RunStarted, setting: Setting) -> str | None:
    """What of the config is not what the run was made with; ``None`` if all is, by what the log says."""
    config = setting.config
    of_config = {"seed": config.seed, "gpu": setting.gpu.name, "windows": config.windows}
    of_config |= {"window_s": config.window_s, "step_s": config.step_s}
    of_config["service_spread"] = config.estimates.service_spread
    for key, value in of_config.items():
        told = getattr(header, key) or 0.0  # the spread is there only where latencies are misjudged
        if told != value:
            return f"{CONFIG_FILE} has {key} {value}; the run was made with {told}"
    names = [tenant.name for tenant in header.tenants]
    if names != [tenant.name for tenant in setting.tenants]:
        return f"{CONFIG_FILE} has other tenants than the run, which had {', '.join(names)}"
    for tenant, logged in zip(setting.tenants, header.tenants, strict=True):
        rates = {name: round(point.rate_rps, events.RATE_DIGITS) for name, point in tenant.operating_points.items()}
        if rates != {name: point.rate_rps for name, point in logged.operating_points.items()}:
            return f"the service profiles of {tenant.name} are not those that the run was made with"
    return None
