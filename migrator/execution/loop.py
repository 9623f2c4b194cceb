"""The loop: observe, forecast, plan, apply, report, window after window.

Nothing here knows whether the GPU is simulated, how tenants share it, or what comes. The loop is handed a
:class:`~migrator.inputs.traffic.Traffic`, which says what has arrived, and a
:class:`~migrator.execution.seams.Sharing`, which says when something has happened. A window is reported when its last
request is resolved, a moment after the next has begun.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from math import floor, inf
from pathlib import Path
from tempfile import TemporaryDirectory

from executor.gpu import LOOK_EVERY_S
from executor.mig import Layout, OwnedLayout
from forecaster.forecast import Forecast
from migrator.config.reading import config_yaml
from migrator.config.sections import Config
from migrator.errors import StoppedError
from migrator.execution import events
from migrator.execution.ahead import expected_opening
from migrator.execution.foresight import FORECAST_LIMIT_S, Foresight, observe, rates_before_step, seen_step
from migrator.execution.happenings import Asked, Failed, Happened, PlannedAhead, Replanned, Replanning, Trained
from migrator.execution.models import Lessons, outlooks, timelines
from migrator.execution.parts import Parts, begins_s
from migrator.execution.posing import offered_by_feedback
from migrator.execution.rolling import Rolling
from migrator.execution.seams import Counted
from migrator.execution.tenancies import reopened
from migrator.execution.watch import NoAnswerError
from migrator.execution.windows import Opening, PlannedWindow, begun_s
from migrator.inputs.pools import as_shared
from migrator.inputs.setting import Setting
from migrator.log.records import Interrupted, Outlook, Record, Resumed, RolledBack, RunFinished, ServiceStopped, Wall
from migrator.log.runlog import ReadLog, RunLog, config_sum, read_log
from migrator.log.trouble import BlindSpan
from migrator.terminal.signals import Interruption
from planner.plan import MigPlan
from planner.policies.policy import AnyPolicy, Policy
from planner.problem import Owner
from workloads.serving.tally import Totals

_EPS = 1e-9

PIECE_S = 5.0
"""Seconds of the run after which a view hears how far it is."""

STOP_S = 0.5
"""The same, of a run in real time, and of one that its program may stop: so often it looks whether it is to end."""


class View:
    """Watches a run; these methods do nothing, and a view overrides those that it needs."""

    def begun(self, folder: Path) -> None:
        """Records follow, in the log of the run in the folder; the first is written."""

    def planning(self, window: int) -> None:
        """A window's plan is being made."""

    def planned(self, planned: PlannedWindow) -> None:
        """The plan is there and checked."""

    def revised(self, planned: PlannedWindow, reason: str) -> None:
        """The rest of a window was planned anew; or there is no plan for it, and the layout stays."""

    def blind(self, seen: BlindSpan) -> None:
        """It is unknown what stands, or stood in these seconds, as the driver does not answer, or did not."""

    def reached(self, now_s: float, counted: Counted, layout: OwnedLayout[Owner] | None, n_records: int) -> None:
        """Requests are served up to ``now_s``: what is counted, who holds which instance, and how long the log is."""

    def settled(self, window: int, totals: Totals) -> None:
        """A window is in the log; ``totals`` are its own."""

    def draining(self) -> None:
        """No further request is taken, as the service is to stop."""


class Views(View):
    """Several views that watch the same run."""

    def __init__(self, *views: View) -> None:
        self._views = views

    def begun(self, folder: Path) -> None:
        """Tell all."""
        for view in self._views:
            view.begun(folder)

    def planning(self, window: int) -> None:
        """Tell all."""
        for view in self._views:
            view.planning(window)

    def planned(self, planned: PlannedWindow) -> None:
        """Tell all."""
        for view in self._views:
            view.planned(planned)

    def revised(self, planned: PlannedWindow, reason: str) -> None:
        """Tell all."""
        for view in self._views:
            view.revised(planned, reason)

    def blind(self, seen: BlindSpan) -> None:
        """Tell all."""
        for view in self._views:
            view.blind(seen)

    def reached(self, now_s: float, counted: Counted, layout: OwnedLayout[Owner] | None, n_records: int) -> None:
        """Tell all."""
        for view in self._views:
            view.reached(now_s, counted, layout, n_records)

    def settled(self, window: int, totals: Totals) -> None:
        """Tell all."""
        for view in self._views:
            view.settled(window, totals)

    def draining(self) -> None:
        """Tell all."""
        for view in self._views:
            view.draining()


class Loop:
    """One run, or the rest of one; its first window is planned, and nothing is written to its log yet."""

    def __init__(
        self, setting: Setting, parts: Parts, view: View | None = None, interruption: Interruption | None = None
    ) -> None:
        """Plan the first window; ``interruption`` is what may end the run before its end.

        Raises:
            ConfigError: The policy, or the config's forecast, needs arrivals before they come, and they are unknown.
            InfeasibleError: The first window has no plan, so there is no layout to keep.
            PlannerError: The policy cannot answer.
            GpuError: The driver does not list instances.
        """
        policy = parts.policy
        self._setting, self._parts, self._view = setting, parts, view or View()
        self._interruption = interruption or Interruption()
        is_paced = setting.config.gpu.backend != "sim"
        self._piece_s = STOP_S if is_paced or self._interruption.stop is not None else PIECE_S
        self._n_windows = setting.config.windows
        self._traffic, self._sharing, self._models = parts.traffic, parts.sharing, parts.models
        self._accounts = parts.accounts
        self._foresight = Foresight(
            setting,
            parts.traffic,
            needs_hindsight=policy.needs_hindsight,
            ahead_s=policy.looks_ahead_s,
            limit_s=FORECAST_LIMIT_S if is_paced else None,
        )
        self._replan_every_s = _replan_every_s(setting, policy)
        self._rolling = Rolling(setting.config, parts.traffic, self._replan_every_s)
        before = () if parts.joins is None else parts.joins.trained
        n_before = {} if parts.joins is None else parts.joins.n_trained
        self._trained = Lessons(((one.tenant, one.window) for one in before if one.checkpoint is None), n_before)
        for name, learned in (parts.joins.rolled_back if parts.joins is not None else {}).items():
            self._trained.roll_back(name, learned)
        recalls_all = isinstance(policy, Policy) and policy.recalls_all
        self._plans = deque[MigPlan](maxlen=None if recalls_all else 2)
        held = None if parts.joins is None else parts.joins.held
        self._served_s, _ = begins_s(setting, parts.joins)
        self._is_draining = False
        self._log: RunLog | None = None
        self._opening: Opening | None = None
        self._awaits_plan = False
        self._found: tuple[float, ...] | None = None
        self._ahead: tuple[Opening, Forecast, PlannedAhead] | None = None
        self._first = None if held is not None else self._planned(parts.first_window)

    @property
    def first_layout(self) -> Layout:
        """What is to stand as the first window begins, retrainings aside; empty where sharing needs no instances."""
        _, _, planned = self._first or (None, None, None)
        if planned is None:
            return Layout()
        serving = {item.placement for item in planned.plan.lifetimes if item.is_inference and item.create_step == 0}
        return Layout(tuple(sorted(serving, key=lambda placement: placement.sort_key)))

    def carry_out(self, log: RunLog, wall: Wall | None = None) -> None:
        """Carry out all windows, into the log; ``wall`` are facts of the wall clock about its begin.

        Raises:
            KeyboardInterrupt: A signal has ended the run; the log says so.
            StoppedError: Its program has.
            OSError: The log, or the journal of our instances, cannot be written.
            NoAnswerError: The GPU does not answer any more; the log ends with the reason.
        """
        self._log = log
        try:
            self._note(self._begins(), wall)
            for record in () if self._parts.joins is None else self._parts.joins.told:
                self._note(record)
            self._view.begun(log.folder)
            self._all_windows()
            ending = self._parts.ending
            finished: RunFinished | ServiceStopped = (
                RunFinished(windows=self._n_windows) if ending is None else ending()
            )
            self._interruption.put_off()
        except (KeyboardInterrupt, StoppedError):
            self._interruption.put_off()
            if not log.is_empty:
                self._note(Interrupted())
            raise
        except NoAnswerError as error:
            self._interruption.put_off()
            self._leave_out(error.blind.from_s, self._parts.clock.now_s)
            known_s = max(self._sharing.known_s, self._served_s)
            self._count(known_s)
            self._note(events.interrupted(error))
            raise
        finally:
            self._interruption.put_off()
            self._sharing.close()
        self._note(finished)
        log.sync()

    def _begins(self) -> Record:
        """What the run is about, or where it is joined again."""
        parts = self._parts
        if parts.joins is not None:
            return Resumed(window=parts.joins.window, void=parts.joins.void, unknown=dict(parts.joins.unknown))
        return events.run_started(
            self._setting,
            parts.traffic.origins,
            self._foresight.name,
            parts.policy,
            self._sharing.kind,
            parts.time_limit_s,
            self._replan_every_s,
            parts.turns_by,
        )

    def _all_windows(self) -> None:
        window_s, first_window = self._setting.config.window_s, self._parts.first_window
        if self._parts.drain is not None:
            self._interruption.let_serve()
        joins = self._parts.joins
        if joins is not None and joins.held is not None:
            self._hold(joins.held, joins.from_s, first_window)
        for window in range(first_window, self._n_windows):
            if self._interruption.drains:
                self._drain(window)
                break
            if window > first_window and self._tenancy_s <= window * window_s:
                self._change_tenants(window)
            opening, forecast, planned = self._first or self._planned(window)
            self._first = None
            self._apply(opening, forecast, planned)
            self._serve_until((window + 1) * window_s, window)
        else:
            longest_s = max(tenant.slo_s for tenant in self._setting.tenants)
            self._serve_until(self._n_windows * window_s + longest_s)  # every deadline is then over
        # Service jitter may make the last answers late; those of real requests may not have been heard yet.
        while (answer_s := self._accounts.last_answer_s) is not None:
            self._serve_until(answer_s)
        while not self._accounts.knows(self._n_windows * round(window_s)):  # GPU state is still being looked at
            self._serve_until(self._served_s + LOOK_EVERY_S)

    def _hold(self, layout: OwnedLayout[Owner], from_s: float, window: int) -> None:
        """Serve with what was there before until the window is planned and begins: no window counts it."""
        config, self._served_s = self._setting.config, from_s
        self._sharing.hold(layout, window, self._note)
        plan_s = begun_s(self._setting, window)
        self._serve_until(plan_s - config.estimates.delay_s)
        if self._interruption.drains:
            return
        if self._tenancy_s <= self._served_s:
            self._change_tenants(window)
        self._view.planning(window)
        accuracies = self._models.open(window)
        given = self._models.estimates
        opening = observe(self._setting, self._traffic, window, accuracies, (), given, config.ahead_steps)
        opening = replace(opening, is_measured=True, last_trained=self._last_trained, outlooks=self._outlooks(window))
        opening = replace(opening, by_feedback=self._by_feedback)
        forecast = self._foresight.forecast(opening)
        planned = self._sharing.plan(opening, forecast)
        if planned is not None:
            self._view.planned(planned)
            self._plans.append(planned.plan)
        self._first = opening, forecast, planned
        self._serve_until(window * config.window_s)

    def _drain(self, window: int) -> None:
        """Take no further request; this window does not begin any more."""
        assert self._parts.drain is not None
        self._view.draining()
        self._is_draining, self._n_windows = True, window
        self._parts.drain(floor(self._served_s) + 1, window)

    def _planned(self, window: int) -> tuple[Opening, Forecast, PlannedWindow | None]:
        """What is seen as the window begins, or was before, what is expected of it, and what is to be done in it."""
        if (ahead := self._taken_ahead()) is not None:
            self._found = self._models.opened(window)
            opening, forecast, planned = ahead
        else:
            self._view.planning(window)
            accuracies = self._models.open(window)
            opening = observe(
                self._setting, self._traffic, window, accuracies, tuple(self._plans), self._models.estimates
            )
            opening = replace(opening, last_trained=self._last_trained, outlooks=self._outlooks(window))
            opening = replace(opening, by_feedback=self._by_feedback)
            forecast = self._foresight.forecast(opening)
            planned = self._sharing.plan(opening, forecast)
        if planned is not None:
            self._view.planned(planned)
            self._plans.append(planned.plan)
        return opening, forecast, planned

    def _plan_ahead(self, window: int) -> None:
        """Begin to plan the window, from what is expected of it, if plans are made ahead and it is time."""
        opening = self._opening
        if opening is None or not self._awaits_plan or self._served_s < self._ahead_s(window) - _EPS:
            return
        self._awaits_plan = False
        promised = self._sharing.promised
        if promised is None:
            return
        opening = expected_opening(
            self._setting,
            self._traffic,
            opening,
            promised,
            self._models.accuracies,
            self._trained,
            self._accounts.in_time_shares(window - 1),
            tuple(self._plans),
        )
        opening = replace(opening, by_feedback=self._by_feedback)
        forecast = self._foresight.forecast(opening)
        taken = self._sharing.plan_ahead(opening, forecast)
        if taken is not None:
            self._view.planning(window)
            self._ahead = opening, forecast, taken

    def _ahead_s(self, window: int) -> float:
        """When the window's plan is to be begun; never where the run has no such window, or it takes no time."""
        config = self._setting.config
        return begun_s(self._setting, window) if window < self._n_windows and config.ahead_steps else inf

    def _taken_ahead(self) -> tuple[Opening, Forecast, PlannedWindow | None] | None:
        """What was planned before the window, if the window begins with what that counts on."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0].last_trained != self._last_trained:
            return None
        opening, forecast, taken = ahead
        as_promised = taken()
        return None if as_promised is None else (opening, forecast, as_promised.planned)

    def _measure(self) -> None:
        """Take in what the window's models give, once that is measured: ``estimates.delay_s`` later."""
        opening, config = self._opening, self._setting.config
        if opening is None or opening.is_measured:
            return
        if self._found is None:
            self._found = self._models.opened(opening.window)
        due_s = opening.window * config.window_s + (0.0 if config.is_live else config.estimates.delay_s)
        if self._found is None or self._served_s < due_s - _EPS:
            return
        self._opening = opening.measured(self._found, self._models.estimates)
        self._note(events.measured(self._setting, self._opening, self._served_s))
        self._rolling.measured()

    @property
    def _by_feedback(self) -> dict[str, float]:
        """By tenant whose retraining depends on it, which share of answers clients called right, where they did."""
        asked = [tenant.name for tenant in self._setting.tenants if tenant.retrain_below]
        shares = {name: self._accounts.feedback.share(name, self._models.version(name)) for name in asked}
        return {name: share for name, share in shares.items() if share is not None}

    def _judge(self) -> None:
        """Let a tenant be retrained in the window's rest whose answers clients began to call wrong in it."""
        opening, now = self._opening, self._by_feedback
        if opening is None or not opening.is_measured or now == opening.by_feedback:
            return
        before = offered_by_feedback(self._setting, opening)
        for name in sorted(offered_by_feedback(self._setting, replace(opening, by_feedback=now)) - before):
            self._opening = opening = replace(opening, by_feedback={**opening.by_feedback, name: now[name]})
            labels = self._accounts.feedback.newest(name, self._models.version(name))
            self._note(events.judged(opening.window, name, labels, self._served_s))
            self._rolling.judged(name, now[name])

    @property
    def _last_trained(self) -> tuple[int, ...]:
        return tuple(self._trained.last(tenant.name) for tenant in self._setting.tenants)

    def _outlooks(self, window: int) -> tuple[Outlook, ...]:
        """What is expected of each tenant's model after the window."""
        return outlooks(
            self._setting.tenants,
            self._setting.config,
            window,
            self._models.accuracies,
            self._trained,
            self._accounts.in_time_shares(window - 1),
        )

    def _apply(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None) -> None:
        """Log the window's plan, and take it up."""
        self._tell_failed_forecasts()
        started = events.window_started(self._setting, opening, forecast, planned, self._accounts.queues)
        assert self._log is not None
        if self._log.n_windows >= self._setting.config.log.roll_windows:
            self._log.begin_segment(opening.window, self._parts.clock.now_s)
            self._parts.forget(self._parts.clock.now_s)
        self._note(started, None if planned is None else events.wall_of(planned.plan))
        self._sharing.begin(opening, forecast, planned, self._note)
        if planned is not None:
            self._rolling.begin(forecast, planned, opening.window * self._setting.config.window_s)
        self._opening, self._awaits_plan = opening, True
        self._measure()

    def _serve_until(self, end_s: float, window: int | None = None) -> None:
        """Serve up to ``end_s``, from one moment at which something happens or is due to the next, and report.

        ``window`` is the one that ends then; ``None`` where all have ended.
        """
        if window is None:
            self._opening = None
        while self._served_s < end_s:
            self._interruption.check()
            if self._interruption.drains and not self._is_draining:
                return
            self._attend()
            coming_s = inf if window is None else max(self._tenancy_s, self._served_s)
            due_s = min(self._next_s(), self._served_s + self._piece_s, coming_s, end_s)
            until_s = self._sharing.wait(due_s)
            self._served_s = self._sharing.serve(self._accounts, timelines(self._models), until_s)
            self._measure()
            for happened in self._sharing.act(self._served_s, self._note):
                self._happened(happened)
            if window is not None:
                if self._tenancy_s <= self._served_s < end_s:
                    self._change_tenants(window)
                if self._served_s < end_s:
                    self._plan_ahead(window + 1)
                    self._judge()
                self._replan(self._rolling.asks(self._served_s))
                self._tell_failed_forecasts()
            self._count(self._sharing.known_s)

    def _attend(self) -> None:
        """Carry out a service's orders, unless it drains."""
        if self._parts.drain is not None and not self._is_draining:
            for answer, wall in self._parts.attend(self._interruption.asked_anew()):
                self._note(answer, wall)
                if isinstance(answer, RolledBack):
                    self._trained.roll_back(answer.tenant, answer.learned)
                    self._accounts.feedback.forget(answer.tenant)

    @property
    def _tenancy_s(self) -> float:
        """When the set of tenants changes next, if that is known; never where it is not."""
        return self._parts.coming[0].from_s if self._parts.coming else inf

    def _change_tenants(self, window: int) -> None:
        """From now on the tenants are others; a window that is under way is planned anew.

        Raises:
            MigratorError: Tenants cannot come and go here.
        """
        tenancy = self._parts.coming.popleft()
        tenancy = replace(tenancy, setting=as_shared(tenancy.setting, self._parts.policy))
        before, config, step = self._setting, self._setting.config, 0
        tenancy.begins()
        self._setting, self._traffic, self._ahead = tenancy.setting, tenancy.traffic, None
        self._models.change_tenants(tenancy.setting.tenants, window, self._served_s)
        self._accounts.change_tenants(tenancy.setting.tenants, tenancy.traffic)
        self._foresight.change_tenants(tenancy.setting, tenancy.traffic)
        self._rolling.change_tenants(tenancy.setting.config, tenancy.traffic)
        there = {tenant.name for tenant in before.tenants}
        known, came = self._models.accuracies, [one.name for one in self._setting.tenants if one.name not in there]
        accuracies = {name: known[name].newest for name in came}
        if self._found is not None:
            found = dict(zip((one.name for one in before.tenants), self._found, strict=True)) | accuracies
            self._found = tuple(found[one.name] for one in self._setting.tenants)
        self._note(events.tenants_changed(tenancy.setting, tenancy.traffic.origins, window, accuracies))
        opening, forecast = None, None
        if self._opening is not None and self._opening.window == window:  # it has begun
            step = seen_step(config, window, self._served_s)
            opening = reopened(self._opening, before, tenancy, self._models, self._trained, step)
            self._opening, forecast = opening, self._foresight.forecast(opening, step)
        self._sharing.change_tenants(tenancy.setting, opening, forecast)

    def _next_s(self) -> float:
        """When to look next, should nothing happen before: to plan anew, to plan ahead, or for what was measured."""
        if self._opening is None:
            return inf
        window = self._opening.window
        ahead_s = self._ahead_s(window + 1) if self._awaits_plan else inf
        measured_s = inf
        if not self._opening.is_measured and self._found is not None:
            measured_s = window * self._setting.config.window_s + self._setting.config.estimates.delay_s
        return min(self._rolling.next_s(self._served_s), ahead_s, measured_s)

    def _happened(self, happened: Happened) -> None:
        """Let a retrained model answer, plan anew where that is asked for, and count no blind seconds."""
        match happened:
            case Trained():
                accuracy = self._models.trained(
                    happened.tenant, happened.window, happened.at_s, happened.option, happened.checkpoint
                )
                self._note(events.trained(happened, accuracy))
                if happened.checkpoint is None:
                    if not happened.is_rejected:
                        self._trained.add(happened.tenant, happened.window)
                        self._accounts.feedback.forget(happened.tenant)
                    self._rolling.trained(happened)
            case Failed():
                self._rolling.failed(happened)
            case Asked():
                self._replan(happened)
            case Replanning():
                self._rolling.begun(self._served_s)
            case Replanned():
                self._replanned(happened)
            case BlindSpan():
                self._view.blind(happened)
                if happened.to_s is not None:
                    self._leave_out(happened.from_s, happened.to_s)

    def _leave_out(self, from_s: float, to_s: float) -> None:
        """Count no request of these seconds, unless their outcomes are known in any case."""
        if self._sharing.known_s < inf:
            self._accounts.leave_out(from_s, to_s)

    def _replan(self, asked: Asked | None) -> None:
        """Begin to plan the rest of the window anew, from what has arrived, if that is asked for.

        A plan that there may be is not asked for before the window's models are measured, nor while the next window is
        being planned or about to be.
        """
        opening = self._opening
        if opening is None or asked is None or (not asked.must and self._rests(opening)):
            return
        step = seen_step(self._setting.config, opening.window, self._served_s)
        past_rps = rates_before_step(self._setting, self._traffic, opening.window, step)
        seen = replace(opening, past_rps=past_rps, ahead_steps=0)
        for happened in self._sharing.replan(seen, partial(self._foresight.forecast, seen, step), asked, self._note):
            self._happened(happened)

    def _rests(self, opening: Opening) -> bool:
        """Whether no other plan is asked for that there may be."""
        config = self._setting.config
        there_s = self._served_s + config.step_s + config.replanning_s
        return not opening.is_measured or there_s > self._ahead_s(opening.window + 1)

    def _replanned(self, happened: Replanned) -> None:
        """The newest forecast is what arrivals are held against, whether or not another plan came of it."""
        if happened.forecast is not None:
            self._rolling.set_forecast(happened.forecast)
        if happened.planned is not None:
            self._view.revised(happened.planned, happened.asked.reason)
            if happened.planned.is_planned:
                self._rolling.follow(happened.planned)

    def _tell_failed_forecasts(self) -> None:
        """Log where the forecaster returned nothing usable."""
        while self._foresight.failures:
            self._note(self._foresight.failures.popleft())

    def _count(self, known_s: float) -> None:
        """Count what is known now; tell the view how far the run is; log the windows that are settled now."""
        self._accounts.know(known_s)
        assert self._log is not None
        window_s = self._setting.config.window_s
        if self._served_s <= self._n_windows * window_s:
            self._view.reached(self._served_s, self._accounts, self._sharing.layout, self._log.n_records)
        if outside := self._accounts.outside():
            self._note(events.outside(self._parts.first_window, outside))
        for settled in self._accounts.settled(self._n_windows - 1):
            capability = self._sharing.served_by_second(settled.window)
            first_s, end_s = (round(window * window_s) for window in (settled.window, settled.window + 1))
            # A service that is stopped inside a window may go on in it.
            sums = self._traffic.sums(first_s, end_s) if self._served_s >= end_s else {}
            self._note(events.window_finished(settled, capability, sums))
            self._log.sync()
            self._view.settled(settled.window, settled.totals)

    def _note(self, record: Record, wall: Wall | None = None) -> int:
        assert self._log is not None
        return self._log.append(record, self._parts.clock.now_s, wall)


def log_of(run: Loop, config: Config, into: Path | None = None) -> ReadLog:
    """The log of a run that is carried out now; it lies in the new folder ``into``, if one is given, else nowhere.

    Only one that lies somewhere tells when it was begun and by which version.
    """
    with TemporaryDirectory() as folder:
        path = into or Path(folder) / "run"
        text = config_yaml(config)
        with RunLog(path, text) as log:
            run.carry_out(log, None if into is None else events.wall(config_sum(text)))
        return read_log(path)


def _replan_every_s(setting: Setting, policy: AnyPolicy) -> float | None:
    """The pace at which the policy plans the rest of a window anew; ``None`` where it does not."""
    if not isinstance(policy, Policy) or not policy.replans:
        return None
    paces = (setting.config.replan_every_s, policy.looks_ahead_s)
    return min((pace for pace in paces if pace is not None), default=None)
