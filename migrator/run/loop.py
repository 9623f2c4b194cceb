"""The loop: forecast, plan, apply, serve, report, window after window.

Nothing here knows whether the GPU is simulated: it is handed an ``Applier`` on some GPU and clock.
Requests are simulated up to each change, then the change is carried out, and so on; a window is
reported when its last request is resolved, which is a moment after the next window has begun.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from executor.mig import OwnedLayout
from migrator.log.runlog import RunLog
from migrator.run import events
from migrator.run.changes import Change, changes_of, state_of
from migrator.run.instances import Applier, ChangeOutcome
from migrator.run.models_in_service import ModelsInService
from migrator.run.planning import PlannedWindow, Solving, plan_window
from migrator.run.requests import ServingRun
from migrator.setting import Setting
from planner.plan import MigPlan
from planner.problem import Owner, PhysicalState, Task
from workloads.serving.requests import Dispatch
from workloads.serving.tally import Totals

PIECE_S = 5.0
"""Seconds of the run after which a view is told how far it is."""


class View(Protocol):
    """Somebody who watches a run."""

    def planning(self, window: int) -> None:
        """A window's plan is being made."""

    def planned(self, planned: PlannedWindow) -> None:
        """The plan is there and checked."""

    def reached(self, now_s: float, totals: Totals, layout: OwnedLayout[Owner]) -> None:
        """Requests are served up to ``now_s``; ``totals`` of the run so far."""

    def settled(self, window: int, totals: Totals) -> None:
        """A window is in the log; ``totals`` are its own."""


class Loop:
    """One run in progress; ``solving`` is how its windows are planned, by default as ``plan_window`` does.

    ``dispatch`` is how requests come to a tenant's instances.
    """

    def __init__(
        self,
        setting: Setting,
        applier: Applier,
        log: RunLog,
        view: View,
        solving: Solving | None = None,
        dispatch: Dispatch = Dispatch.PULL,
    ) -> None:
        self._setting = setting
        self._solving = solving
        self._applier = applier
        self._log = log
        self._view = view
        self._serving = ServingRun(setting, dispatch)
        self._models = ModelsInService(setting.tenants, setting.config.window_s)
        self._accuracies = [0.0] * len(setting.tenants)

    def run(self, first: PlannedWindow) -> None:
        """Carry out all windows; ``first`` is the plan of window 0, made before anything was written.

        Raises:
            InfeasibleError: Window 0 has no plan, so there is no layout to keep.
            GpuError: The GPU refused a change.
            OSError: The log cannot be written.
        """
        state: PhysicalState | None = None
        plans: list[MigPlan] = []
        config = self._setting.config
        for window in range(config.windows):
            self._open_window(window)
            if window == 0:
                planned = first
            else:
                self._view.planning(window)
                planned = plan_window(self._setting, window, state, self._accuracies, self._solving, plans)
            self._view.planned(planned)
            self._log.append(
                "window_started",
                events.window_started(self._setting, planned, self._accuracies),
                wall={"solve_s": planned.plan.solve_s},
            )
            if window == 0:
                self._bring_up(planned)
            is_complete = self._carry_out(planned)
            state = planned.next_state if is_complete else self._state_at((window + 1) * config.window_s)
            plans.append(planned.plan)
        self._serve_until(float("inf"), config.windows - 1)
        self._log.append("run_finished", {"windows": config.windows})
        self._log.sync()

    def _open_window(self, window: int) -> None:
        """Set what the models in service give from the window's start on."""
        start_s = window * self._setting.config.window_s
        self._accuracies = self._models.at_start(window)
        for index, accuracy in enumerate(self._accuracies):
            self._serving.set_accuracy(index, start_s, accuracy)

    def _bring_up(self, planned: PlannedWindow) -> None:
        """Put the first layout up before the first window, so that it serves from its first second."""
        first = changes_of(planned.plan, 0.0, self._setting.config.step_s)[0]
        entries = [(placement, owner) for placement, owner in first.layout.entries if owner.task is Task.INFERENCE]
        change = Change(self._applier.now_s, OwnedLayout.of(entries), first.promised_s)
        self._record(0, self._applier.apply(change, {}))

    def _carry_out(self, planned: PlannedWindow) -> bool:
        """Serve and change the layout by turns, until the window's end; whether every change was made.

        A change that the driver's work, or a late retraining, pushes past the window's end is left out, and so are
        those after it: the next window is planned from what really stands. What follows a change that was
        held up by a retraining keeps its distance to it, up to the least one between changes of the held set, so
        that instances started ahead are ready when what they replace is dropped.
        """
        config = self._setting.config
        start_s = planned.window * config.window_s
        plan_s = start_s + planned.plan_from_step * config.step_s
        epoch_s = planned.problem.epoch_steps * config.step_s
        end_s = start_s + config.window_s
        held_up: ChangeOutcome | None = None
        for change in changes_of(planned.plan, plan_s, config.step_s):
            not_before_s = -float("inf")
            if held_up is not None:
                not_before_s = held_up.begin_s + min(change.planned_s - held_up.planned_s, epoch_s)
            free_s = max(change.planned_s, self._applier.now_s)
            begin_s = max(self._applier.begin_s(change), not_before_s)
            if begin_s >= end_s:
                self._serve_until(end_s, planned.window)
                return False
            self._serve_until(begin_s, planned.window)
            outcome = self._applier.apply(change, self._serving.busy_until_s, not_before_s)
            self._record(planned.window, outcome)
            held_up = outcome if begin_s > free_s else None
        self._serve_until(end_s, planned.window)
        return True

    def _state_at(self, start_s: float) -> PhysicalState:
        """What a window that begins at ``start_s`` starts from when the plan before it was not carried out in full."""
        return state_of(self._applier.serving_from_s, start_s, self._setting.config.step_s)

    def _serve_until(self, until_s: float, window: int) -> None:
        """Serve up to ``until_s``, in pieces that a view can follow, and log what gets settled on the way."""
        while self._serving.now_s < until_s:
            end_s = min(until_s, self._serving.now_s + PIECE_S) if until_s < float("inf") else until_s
            self._serving.advance(end_s, partial(self._applier.servers, since_s=self._serving.now_s))
            if end_s < float("inf"):
                self._view.reached(end_s, self._serving.totals, self._applier.layout)
            for settled in self._serving.settled(window):
                self._log.append("window_finished", events.window_finished(settled))
                self._log.sync()
                self._view.settled(settled.window, sum((item.totals for item in settled.counts), Totals()))

    def _record(self, window: int, outcome: ChangeOutcome) -> None:
        """Log a change, and let the retrainings that it starts take effect when they are done."""
        if outcome.is_empty:
            return
        self._log.append("change", events.change(window, outcome, self._applier.layout))
        names = [tenant.name for tenant in self._setting.tenants]
        for item in outcome.started:
            if item.finish_s is not None:
                index = names.index(item.owner.tenant)
                accuracy = self._models.retrained(index, window, item.finish_s)
                self._serving.set_accuracy(index, item.finish_s, accuracy)
