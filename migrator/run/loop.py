"""The loop: observe, forecast, plan, apply, report, window after window.

Nothing here knows whether the GPU is simulated, how tenants share it, or what comes. The loop is handed a
:class:`~migrator.traffic.Traffic`, which says what has arrived, and a :class:`~migrator.run.seams.Sharing`, which says
when something has happened. A window is reported when its last request is resolved, a moment after the next has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from executor.gpu import LOOK_EVERY_S
from executor.mig import OwnedLayout
from forecaster.forecast import Forecast
from migrator.log.runlog import RunLog
from migrator.log.trouble import Blind
from migrator.run import events
from migrator.run.foresight import Foresight, Opening, observe
from migrator.run.models import Models, TabledModels, last_trained
from migrator.run.outlook import Outlook, outlooks
from migrator.run.planning import PlannedWindow
from migrator.run.requests import Ledger
from migrator.run.rolling import Rolling
from migrator.run.seams import Failed, Happened, Lost, Reconsidered, Sharing, Trained
from migrator.run.watch import NoAnswerError
from migrator.setting import Setting
from migrator.traffic import Traffic
from planner.plan import MigPlan
from planner.problem import Owner
from workloads.serving.requests import Requests
from workloads.serving.tally import Totals

PIECE_S = 5.0
"""Seconds of the run after which a view hears how far it is."""


class View:
    """Watches a run; these methods do nothing, and a view overrides those that it needs."""

    def planning(self, window: int) -> None:
        """A window's plan is being made."""

    def planned(self, planned: PlannedWindow) -> None:
        """The plan is there and checked."""

    def revised(self, planned: PlannedWindow, reason: str) -> None:
        """The rest of a window was planned anew; or there is no plan for it, and what stands stays."""

    def blind(self, seen: Blind) -> None:
        """Nobody can tell what stands, or stood in these seconds, as the driver does not answer, or did not."""

    def reached(self, now_s: float, totals: Totals, layout: OwnedLayout[Owner] | None) -> None:
        """Requests are served up to ``now_s``; ``totals`` of the run so far, and who holds which instance."""

    def settled(self, window: int, totals: Totals) -> None:
        """A window is in the log; ``totals`` are its own."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Where a run that was cut off is joined again: at the begin of a window, with empty queues.

    Attributes:
        window: The window.
        void: Windows of which nobody knows what became: the one that was torn, and those that are left out.
        trained: What was learned before, in order.
        n_started: How many instances were started before.
    """

    window: int
    void: tuple[int, ...]
    trained: tuple[Trained, ...]
    n_started: int


Reviser = Callable[[float], str | None]
"""Says at a moment of a window, by the second of the run, why to plan its rest anew; ``None`` for no reason."""


class Loop:
    """One run. ``prepare`` plans its first window before anything is written; ``run`` carries all of them out.

    With ``joins``, it is the rest of one.
    """

    def __init__(
        self,
        setting: Setting,
        traffic: Traffic,
        sharing: Sharing,
        foresight: Foresight,
        view: View,
        revises: Reviser | None = None,
        joins: Joining | None = None,
        models: Models | None = None,
        ending: Callable[[], Mapping[str, object]] = dict,
        rolling: Rolling | None = None,
    ) -> None:
        """``models`` are by default those of the config; ``ending`` says what else there is to know at the end.

        With ``rolling``, the rest of a window is planned anew while its plan is followed.
        """
        self._setting, self._traffic, self._sharing, self._foresight = setting, traffic, sharing, foresight
        self._view, self._revises, self._ending, self._rolling = view, revises, ending, rolling
        self._first_window = 0 if joins is None else joins.window
        before = () if joins is None else joins.trained
        self._models = models or self._tabled(before)
        self._trained = {(one.tenant, one.window) for one in before if one.checkpoint is None}
        self._ledger = Ledger(setting, self._first_window)
        self._plans: list[MigPlan] = []
        self._served_s = self._first_window * setting.config.window_s
        self._log: RunLog | None = None
        self._first: tuple[Opening, Forecast, PlannedWindow | None] | None = None

    def _tabled(self, trained: Sequence[Trained]) -> TabledModels:
        """The config's models as the first window finds them."""
        window_s = self._setting.config.window_s
        models = TabledModels(self._setting.tenants, window_s)
        for window in range(self._first_window):
            models.open(window)
            for one in trained:
                if window * window_s <= one.at_s < (window + 1) * window_s:
                    models.trained(one.tenant, one.window, one.at_s, one.option, one.checkpoint)
        return models

    def prepare(self) -> None:
        """Plan the first window.

        Raises:
            InfeasibleError: It has no plan, so there is no layout to keep.
            PlannerError: The policy cannot answer.
            GpuError: The driver does not say what stands.
        """
        self._first = self._planned(self._first_window)

    @property
    def first_plan(self) -> PlannedWindow | None:
        """The first window's, once :meth:`prepare` has made it; ``None`` where the sharing plans no windows."""
        return None if self._first is None else self._first[2]

    def run(
        self, log: RunLog, kind: str, header: Mapping[str, object], wall: Mapping[str, object] | None = None
    ) -> None:
        """Carry out all windows; ``header``, a record of ``kind``, says in the log what the run is about.

        Raises:
            OSError: The log, or the journal of our instances, cannot be written.
            NoAnswerError: The GPU does not answer any more; the log ends with the reason.
        """
        self._log = log
        self._note(kind, header, wall)
        try:
            self._all_windows()
            ending = self._ending()
        except KeyboardInterrupt:
            self._note("interrupted", events.interrupted())
            raise
        except NoAnswerError as error:
            self._leave_out(error.blind.from_s, self._sharing.now_s)
            known_s = max(self._sharing.known_s, self._served_s)
            self._count(self._traffic.requests(self._served_s), known_s)
            self._note("interrupted", events.interrupted(error))
            raise
        finally:
            self._sharing.close()
        self._note("run_finished", {"windows": self._setting.config.windows, **ending})
        log.sync()

    def _all_windows(self) -> None:
        assert self._first is not None
        n_windows, window_s = self._setting.config.windows, self._setting.config.window_s
        for window in range(self._first_window, n_windows):
            opening, forecast, planned = self._first if window == self._first_window else self._planned(window)
            self._apply(opening, forecast, planned)
            self._serve_until((window + 1) * window_s, opening)
        longest_s = max(tenant.slo_s for tenant in self._setting.tenants)
        self._serve_until(n_windows * window_s + longest_s, None)  # by then every deadline is over
        # Service jitter may make the last answers late; those of real requests may not have been heard yet.
        while answers_s := [state.busy_until[server] for state in self._sharing.queues for server in state.batches]:
            self._serve_until(max(answers_s), None)
        while not self._ledger.knows(n_windows * round(window_s)):  # what stood is still being looked at
            self._serve_until(self._served_s + LOOK_EVERY_S, None)

    def _planned(self, window: int) -> tuple[Opening, Forecast, PlannedWindow | None]:
        """What is seen as the window begins, what is expected of it, and what is to be done in it."""
        self._view.planning(window)
        accuracies = self._models.open(window)
        opening = observe(self._setting, self._traffic, window, accuracies, self._plans, self._models.estimates)
        opening = replace(opening, last_trained=self._last_trained, outlooks=self._outlooks(window))
        forecast = self._foresight.forecast(opening)
        planned = self._sharing.plan(opening, forecast)
        if planned is not None:
            self._view.planned(planned)
            self._plans.append(planned.plan)
        return opening, forecast, planned

    @property
    def _last_trained(self) -> tuple[int, ...]:
        return tuple(last_trained(tenant.name, self._trained) for tenant in self._setting.tenants)

    def _outlooks(self, window: int) -> tuple[Outlook, ...]:
        """What is expected of each tenant's model after the window."""
        return outlooks(
            self._setting.tenants,
            self._setting.config,
            window,
            self._models.timelines,
            self._trained,
            self._ledger.in_time_shares(window - 1),
        )

    def _apply(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None) -> None:
        """Log the window's plan, and take it up."""
        self._tell_failed_forecasts()
        fields = events.window_started(self._setting, opening, forecast, planned, self._sharing.queues)
        self._note("window_started", fields, None if planned is None else events.wall_of(planned.plan))
        self._sharing.begin(opening, forecast, planned, self._note)
        if self._rolling is not None and planned is not None:
            self._rolling.begin(forecast, planned, opening.window * self._setting.config.window_s)

    def _serve_until(self, end_s: float, opening: Opening | None) -> None:
        """Serve up to ``end_s``, from one moment at which something happens or is due to the next, and report."""
        while self._served_s < end_s:
            asks_s = inf if self._rolling is None or opening is None else self._rolling.next_s(self._served_s)
            until_s = self._sharing.wait(min(end_s, self._served_s + PIECE_S, asks_s))
            requests = self._traffic.requests(until_s)
            self._served_s, outcomes = self._sharing.serve(requests, self._models.timelines, until_s)
            self._ledger.add(requests, outcomes, self._sharing.known_s)
            for happened in self._sharing.act(self._served_s, self._note):
                self._happened(happened)
            if opening is not None:
                asked = None if self._revises is None else self._revises(self._served_s)
                self._revise(opening, self._sharing.strayed or asked)
                self._reconsider(opening)
                self._tell_failed_forecasts()
            self._count(requests, self._sharing.known_s)

    def _happened(self, happened: Happened) -> None:
        """Let a retrained model answer; count answers that died with their server as dropped, and no blind seconds."""
        match happened:
            case Trained():
                accuracy = self._models.trained(
                    happened.tenant, happened.window, happened.at_s, happened.option, happened.checkpoint
                )
                if happened.checkpoint is not None:
                    self._note("checkpoint", events.checkpoint(happened, accuracy))
                    return
                self._trained.add((happened.tenant, happened.window))
                self._note("finished", events.finished(happened, accuracy))
                if self._rolling is not None:
                    self._rolling.trained(happened)
            case Lost():
                requests = self._traffic.requests(self._served_s)[happened.tenant_index]
                self._ledger.lose(happened.tenant_index, requests, happened.outcomes)
            case Failed():
                if self._rolling is not None:
                    self._rolling.failed(happened)
            case Reconsidered():
                self._reconsidered(happened)
            case Blind():
                self._view.blind(happened)
                if happened.to_s is not None:
                    self._leave_out(happened.from_s, happened.to_s)

    def _leave_out(self, from_s: float, to_s: float) -> None:
        """Count no request of these seconds, unless what became of them is known whatever stood."""
        if self._sharing.known_s < inf:
            self._ledger.blind(from_s, to_s)

    def _reconsider(self, opening: Opening) -> None:
        """Begin to plan the rest of the window anew, from what has arrived by now, if it is time to."""
        asked = None if self._rolling is None else self._rolling.asks(self._served_s)
        if self._rolling is None or asked is None:
            return
        seen = self._seen(opening)
        if self._sharing.reconsider(seen, partial(self._foresight.forecast, seen), asked, self._note):
            self._rolling.begun(self._served_s)

    def _reconsidered(self, happened: Reconsidered) -> None:
        """The newest forecast is what arrivals are held against, whether or not another plan came of it."""
        assert self._rolling is not None
        if happened.forecast is not None:
            self._rolling.foresee(happened.forecast)
        if happened.planned is not None:
            self._rolling.follow(happened.planned)
            self._view.revised(happened.planned, happened.reason)

    def _revise(self, opening: Opening, reason: str | None) -> None:
        """Plan the rest of the window anew, if there is a reason to, from what has arrived by now."""
        if reason is None:
            return
        seen = self._seen(opening)
        revised = self._sharing.revise(seen, partial(self._foresight.forecast, seen), reason, self._note)
        if revised is not None:
            self._view.revised(revised, reason)
            if self._rolling is not None and revised.is_planned:
                self._rolling.begin(revised.forecast, revised, self._served_s)

    def _seen(self, opening: Opening) -> Opening:
        """The opening with what has arrived by now."""
        config = self._setting.config
        past_rps = self._traffic.rates_before(self._served_s, config.step_s, self._setting.n_history_steps)
        return replace(opening, past_rps=past_rps)

    def _tell_failed_forecasts(self) -> None:
        """Log where the forecaster gave nothing that could be used."""
        while self._foresight.failures:
            self._note("forecast_failed", events.forecast_failed(self._foresight.failures.popleft()))

    def _count(self, requests: Sequence[Requests], known_s: float) -> None:
        """Count what is known of by now; tell the view how far the run is; log the windows that are settled now."""
        self._ledger.know(requests, known_s)
        n_windows, window_s = self._setting.config.windows, self._setting.config.window_s
        if self._served_s <= n_windows * window_s:
            self._view.reached(self._served_s, self._ledger.totals, self._sharing.layout)
        for settled in self._ledger.settled(n_windows - 1, requests, self._sharing.queues):
            capability = self._sharing.served_by_second(settled.window)
            self._note("window_finished", events.window_finished(settled, capability))
            assert self._log is not None
            self._log.sync()
            self._view.settled(settled.window, settled.totals)

    def _note(self, kind: str, fields: Mapping[str, object], wall: Mapping[str, object] | None = None) -> int:
        assert self._log is not None
        return self._log.append(kind, self._sharing.now_s, fields, wall)
