"""Sharing by MIG: window by window a plan, whose lifetimes become changes of the layout, carried out in order.

When something serves follows from what its worker says, never from the plan's promise; the difference is logged as
``late_ready_s``. What the driver refuses for good, what others take or leave, and what is gone from under us is a
reason to plan the rest of the window anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar, assert_never

from executor.mig import OwnedLayout, memory_slices_in
from forecaster.forecast import Forecast
from migrator.execution import events
from migrator.execution.applier import Applier, Backend, Inline, Live
from migrator.execution.changes import NEVER_S, Change, ChangeOutcome, changes_of
from migrator.execution.happenings import (
    Asked,
    AsPromised,
    Checkpointed,
    Failed,
    Finished,
    Happened,
    Happening,
    PlannedAhead,
    Ready,
    Replanned,
    Replanning,
    Trained,
)
from migrator.execution.planning import (
    Solving,
    plan_rest,
    plan_window,
    require_plan,
    with_begun,
    with_ends,
    without_retrainings,
)
from migrator.execution.posing import Starts, posed, state_of, still_with_options, tenants_that_run
from migrator.execution.replanning import Following, RestRequest, Schedule
from migrator.execution.seams import Accounts, Note
from migrator.execution.tenancies import change_of_those, state_of_those, with_tenants
from migrator.execution.windows import Opening, PlannedWindow, Replan
from migrator.inputs.setting import Setting
from migrator.log import records
from migrator.log.records import Kept
from migrator.log.trouble import BlindSpan
from planner.build import WarmUps, largest_warm_up_s
from planner.errors import PlannerError
from planner.problem import Owner, PhysicalState, RunningRetraining, Task, steps_of
from planner.replan import state_at
from planner.unavailable import Unavailable
from workloads.serving.servers import AccuracyTimeline
from workloads.tenants import Tenant

AnswerT = TypeVar("AnswerT")


def lead_s(setting: Setting) -> float:
    """Seconds, in whole steps, before its first window at which a run begins to put instances up."""
    config = setting.config
    everybody = [tenant.name for tenant in setting.tenants]
    pools = config.sharing.listed or ([everybody] if config.sharing.may_pool else [])
    n_sharing = max((len(pool) for pool in pools), default=1)
    longest_s = largest_warm_up_s(setting.gpu, setting.tenants, config.planner.switch_s, n_sharing)
    return steps_of(longest_s, config.step_s) * config.step_s


class Instances:
    """Sharing by MIG: window by window a plan, and its changes carried out in order.

    A change that the driver's work, or a late retraining, pushes past the window's end is left out, and so are those
    after it: the next window is planned from what is there. What follows a change that was held up by a retraining
    keeps its distance to it, up to the least one between changes of the held set, so that instances started ahead are
    ready when what they replace is dropped.
    """

    kind = "instances"

    def __init__(
        self,
        setting: Setting,
        backend: Backend,
        accounts: Accounts,
        tenants: Mapping[str, Tenant],
        solving: Solving,
        first_s: float,
        start_s: float,
        n_started: int = 0,
    ) -> None:
        """``first_s`` is the second at which the first window begins; ``backend``'s clock shows ``start_s`` before.

        ``tenants`` are those that run: their retrainings take what they take, not what is estimated. ``n_started``
        instances were started before.

        Raises:
            GpuError: The driver does not list instances.
        """
        self._setting, self._accounts, self._solving = setting, accounts, solving
        self._workers, self._begin = backend.workers, backend.begin
        self._applier = Applier(backend, tenants, start_s, n_started, setting.joint_servings)
        self._names = [tenant.name for tenant in setting.tenants]
        self._opening: Opening | None = None
        self._held_for: int | None = None
        self._planned: PlannedWindow | None = None
        self._schedule = Schedule(runs_by_itself=backend.clock.runs_by_itself)
        self._following = Following()
        self._received: Sequence[Happening] = ()
        self._unproven: list[Happening] = []
        self._window_end_s = 0.0
        self._trained: set[Owner] = set()
        self._training_s: dict[Owner, float] = {}
        # Where time passes by itself, the loop goes on while plans are made. One that there must be waits for no other.
        self._solves: Executor = ThreadPoolExecutor(2, "planner") if backend.clock.runs_by_itself else Inline()
        self._starts, self._first_s = Starts(setting.config, setting.gpu, setting.known_tenants), first_s
        self._checkpoints = {name: tuple(part for part, _ in own.checkpoints) for name, own in tenants.items()}

    @property
    def layout(self) -> OwnedLayout[Owner]:
        """Which owner holds which instance."""
        return self._applier.layout

    @property
    def promised(self) -> Mapping[str, str] | None:
        """The retrainings of the plan in force."""
        return None if self._planned is None else self._planned.retrained

    @property
    def _window(self) -> int:
        """The window under way, or the one for which is held what stood before."""
        number = self._held_for if self._opening is None else self._opening.window
        assert number is not None
        return number

    @property
    def _why_replan(self) -> Asked | None:
        """Why the plan in force cannot be followed, or need not be, any more; ``None`` while a change is under way."""
        return None if self._applier.is_busy else self._following.why(self._accounts.now_s)

    @property
    def known_s(self) -> float:
        """GPU state is confirmed up to this time, where that matters to outcomes of requests."""
        return NEVER_S if self._accounts.are_real else self._applier.known_s

    def plan(self, opening: Opening, forecast: Forecast) -> PlannedWindow:
        """The window's plan, from what is there.

        Raises:
            InfeasibleError: The first window has no plan, so there is no layout to keep. Where it has one that breaks a
                rule, a fixed layout takes its place.
            PlannerError: The policy cannot answer.
        """
        state = self._state(opening.window)
        opening = replace(opening, warm_ups=self._starts.warm_ups)
        planned = plan_window(self._setting, opening, forecast, state, self._solving, self._unavailable)
        if self._planned is None and not planned.plan.lifetimes:
            require_plan(planned)
        return planned

    def plan_ahead(self, opening: Opening, forecast: Forecast) -> PlannedAhead | None:
        """Begin to plan the next window, from what the plan in force promises for its start."""
        running, unavailable = self._planned, self._unavailable
        if running is None or self._following.reasons or not self._is_followed:
            return None
        opening, state = replace(opening, warm_ups=self._starts.warm_ups), running.next_state

        pending = self._submitted(
            partial(plan_window, self._setting, opening, forecast, state, self._solving, unavailable)
        )

        def as_promised() -> AsPromised | None:
            start_s = opening.window * self._setting.config.window_s
            if self._planned is not running or self._unavailable != unavailable or not self._is_promised_at(start_s):
                return None
            planned = pending.result()
            if isinstance(planned, PlannerError):
                raise planned
            return AsPromised(planned)

        return as_promised

    def change_tenants(self, setting: Setting, opening: Opening | None, forecast: Forecast | None) -> None:
        """These are the tenants from now on; inside a window its rest must be planned anew."""
        before, tenants = set(self._names), tenants_that_run(setting)
        self._setting, self._names = setting, [*tenants]
        self._applier.change_tenants(tenants, setting.joint_servings)
        self._starts.change_tenants(setting.gpu, setting.known_tenants)
        self._checkpoints |= {name: tuple(part for part, _ in own.checkpoints) for name, own in tenants.items()}
        said = [*(f"{name} has come" for name in self._names if name not in before)]
        said += [f"{name} has gone" for name in sorted(before - tenants.keys())]
        if self._following.is_out_of_force:
            self._following.take()  # the plan that is being made is of those of before
        self._following.stray("; ".join(said) or "tenants have changed")
        self._schedule.revise(partial(change_of_those, names=tenants))
        if opening is not None and forecast is not None and self._planned is not None:
            self._opening = opening
            self._planned = with_tenants(setting, opening, self._planned, forecast)

    def begin(self, opening: Opening, forecast: Forecast, planned: PlannedWindow | None, note: Note) -> None:  # noqa: ARG002
        """Take up the window's plan; its first layout is there before second 0."""
        assert planned is not None
        config = self._setting.config
        is_first, self._opening = self._opening is None, opening
        if is_first and self._held_for is None:
            self._begin()
            self._bring_up(planned, opening.window, note)
        self._window_end_s = (opening.window + 1) * config.window_s
        self._trained = set()
        self._go_on(Kept.ENDED, note)
        for live in self._applier.give_up(opening.window):
            reason = "not done by the end of the window after its own; given up"
            note(self._failed(live, self._applier.now_s, reason))
        self._follow(planned, opening.window * config.window_s + planned.plan_from_step * config.step_s)

    def hold(self, layout: OwnedLayout[Owner], window: int, note: Note) -> None:
        """Put up what was there before; it serves until the window begins, which is planned from it."""
        self._held_for = self._schedule.changed_in = window
        self._begin()
        promised_s = tuple((placement, self._first_s) for placement, _ in layout.entries)
        change = Change(self._applier.now_s, layout, promised_s)
        self._end(self._applier.apply(change, window, self._accounts.busy_until_s, note), note)

    def wait(self, until_s: float) -> float:
        """The next change's moment, or that of what happens before it."""
        due_s = self._due_s()
        if due_s > self._accounts.now_s or not self._is_blocked:
            until_s = min(until_s, due_s)
        until_s = min(until_s, self._following.looks_s(self._accounts.now_s))
        self._received = self._workers.happenings(min(until_s, self._applier.resumes_s))
        # A clock that runs by itself may have been woken before.
        come_s = self._received[0].at_s if self._received else min(until_s, self._applier.now_s)
        return max(come_s, self._accounts.now_s)

    def serve(self, accounts: Accounts, accuracies: Mapping[str, AccuracyTimeline], until_s: float) -> float:
        """Serve with the instances that are ready."""
        accounts.serve(self._applier.servers, accuracies, until_s, self._applier.lanes, self.known_s)
        return until_s

    def act(self, now_s: float, note: Note) -> Iterator[Happened]:
        """Tell what happened, then make the changes that are due.

        A retraining that is said to have ended has done so once a look has shown its instance there until then.
        """
        if any(map(self._is_unproven, (*self._unproven, *self._received))):
            yield from self._look(note)
        # What had to wait for a look counts from now on: up to here requests are served, perhaps in another window.
        proven = [replace(one, at_s=self._accounts.now_s) for one in self._unproven if not self._is_unproven(one)]
        proven += [one for one in self._received if not self._is_unproven(one)]
        self._unproven = [one for one in (*self._unproven, *self._received) if self._is_unproven(one)]
        self._received = ()
        for happening in proven:
            yield from self._handle(happening, note)
        if self._applier.is_busy:
            self._end(self._applier.go_on(), note)
        yield from self._decide(now_s, note)
        # The clock may still be behind: before second 0, workers get ready while no request is served.
        while min(now_s, self._applier.now_s) >= self._due_s() and not self._is_blocked:
            self._make(note)
        yield from self._look(note)
        if (asked := self._why_replan) is not None:
            yield asked

    def replan(
        self, seen: Opening, forecast: Callable[[], Forecast], asked: Asked, note: Note
    ) -> Iterator[Replanning | Replanned]:
        """Plan the rest of the window anew from the step at which the plan can be there.

        Where there *may* be another plan, the one in force is followed up to that step. Where there *must* be, what it
        would have changed before is left out, and a retraining that failed, or never began, is offered again; if there
        is no other plan, the old one stays in force and another is asked for later.
        """
        assert self._planned is not None
        self._take_in(seen)
        planned, config = self._planned, self._setting.config
        # The clock may be ahead, while the driver worked. The changes of the step that begins now have been made.
        now_s = max(self._accounts.now_s, self._applier.now_s)
        plan_s = self._schedule.plan_s
        n_made = math.floor((now_s - plan_s) / config.step_s + 1e-9) + 1
        # It is there when planning has taken its time.
        takes_s = config.planning_s if asked.must else config.replanning_s
        step = n_made + math.ceil(takes_s / config.step_s - 1e-9)
        from_s = plan_s + step * config.step_s
        if asked.must and step >= planned.problem.n_steps:
            self._go_on(Kept.STRAYED, note)
            self._following.follow()  # the next window is planned from what is there
        if not 0 < step < planned.problem.n_steps or not self._can_replan(asked, from_s):
            return
        # An invalid plan starts no change after those already made.
        so_far = self._as_it_went(planned, step if asked.must else n_made, step, from_s)
        standing = self._standing(from_s) if asked.must else self._will_stand(so_far, step, from_s)
        if standing is None:
            return
        self._go_on(Kept.STRAYED if asked.must else Kept.OVERTAKEN, note)
        unavailable, retrained = self._unavailable, {owner.tenant for owner in self._trained}

        def answer() -> Replan:
            rest = self._setting, seen, so_far, forecast(), step, standing, self._solving, unavailable
            return plan_rest(*rest, must=asked.must, retrained=retrained)

        n_steps = planned.problem.n_steps - step
        self._following.ask(RestRequest(asked, self._accounts.now_s, n_steps, from_s, self._submitted(answer)))
        yield Replanning()
        if asked.must:
            yield from self._decide(now_s, note)

    def close(self) -> None:
        """Let the driver call in progress end; a plan in progress is not waited for."""
        try:
            self._applier.close()
        finally:
            self._solves.shutdown(wait=False, cancel_futures=True)

    def served_by_second(self, window: int) -> Mapping[str, Mapping[str, list[float]]]:
        """Which part of shared instances others had; the rest the log's instances show."""
        window_s = round(self._setting.config.window_s)
        shares = self._accounts.others_shares(window * window_s, (window + 1) * window_s)
        return {name: {"others_share": shares[name].tolist()} for name in self._names if name in shares}

    def _state(self, window: int) -> PhysicalState | None:
        """What a window starts from: what the last plan promises, if it was carried out in full, else what is there."""
        start_s = window * self._setting.config.window_s
        if self._planned is None and self._held_for is None:
            return None
        if self._planned is not None and self._is_promised_at(start_s):
            return self._planned.next_state
        state, runs = self._standing(start_s), list[RunningRetraining]()
        for loan in self._applier.loans:
            if loan.window >= window - 1 and loan.owner.tenant in self._names:  # else it is given up now
                trains_s, step_s = loan.worker().expected_s, self._setting.config.step_s
                left_s = self._ends_s(loan.owner, trains_s, start_s) - start_s
                end_step = min(steps_of(left_s, step_s), self._setting.config.n_steps)
                lent_from = min(max(0, math.ceil((trains_s - start_s) / step_s - 1e-9)), end_step)
                runs.append(RunningRetraining(loan.placement, loan.owner.tenant, end_step, lent_from))
        return replace(state, retrainings=tuple(runs))

    def _is_promised_at(self, start_s: float) -> bool:
        """Whether the layout as the next window begins is what the plan in force promises for then."""
        as_planned = self._following.is_as_planned and self._schedule.next is None and not self._applier.loans
        return as_planned and not self._applier.needs_replan(start_s)

    def _standing(self, start_s: float) -> PhysicalState:
        """What serves, or starts to; what would not go stays a while, unless a tenant has nothing to serve with."""
        step_s = self._setting.config.step_s
        state = state_of_those(state_of(self._applier.serving_from_s, start_s, step_s), self._names)
        if {name for item in state.held for name in item.members} != set(self._names):
            held = tuple(replace(item, serve_step=0) for item in state.held)  # what starts is not waited for
            return replace(state, held=held, next_epoch_step=0)
        stays_s = max(0.0, self._applier.stays_until_s - start_s)
        return replace(state, next_epoch_step=max(state.next_epoch_step, math.ceil(stays_s / step_s)))

    @property
    def _unavailable(self) -> tuple[Unavailable, ...]:
        """Memory slices that others hold, or that ours will not let go, for as long as is known."""
        mask = 0
        for placement in self._applier.taken:
            mask |= placement.memory_mask
        return (Unavailable(memory_slices_in(mask)),) if mask else ()

    def _submitted(self, answer: Callable[[], AnswerT]) -> Future[AnswerT | PlannerError]:
        """The answer, or why there is none; at once where time stands still meanwhile."""

        def made() -> AnswerT | PlannerError:
            try:
                return answer()
            except PlannerError as error:
                return error

        return self._solves.submit(made)

    def _take_in(self, seen: Opening) -> None:
        """Pose the window's problem with what is now measured, if its plan was made before.

        Where its rest had to be planned anew in between, that plan's problem stays as it is.
        """
        assert self._opening is not None
        assert self._planned is not None
        if self._opening.is_measured or not seen.is_measured:
            return
        own = self._opening.measured(seen.accuracies, seen.estimates)
        planned, self._opening = self._planned, own
        if not planned.plan_from_step and planned.problem.n_steps == self._setting.config.n_steps:
            was, own = planned.problem, replace(own, warm_ups=WarmUps.of(planned.problem))
            state, taken = was.physical_initial, was.unavailable
            problem = posed(self._setting, own, state, planned.forecast, unavailable=taken, pools=planned.pools)
            self._planned = replace(planned, problem=still_with_options(problem, was))

    def _can_replan(self, asked: Asked, from_s: float) -> bool:
        """Whether another plan, which counts from then on, can be asked for now.

        Where there may be one, the one in force must be in step with its changes; and one at a time, those that are
        late included.
        """
        if not asked.must:
            own = self._following
            return not (own.reasons or own.is_out_of_force or self._applier.is_busy or own.is_answering)
        change = self._schedule.next
        is_blocked = change is not None and change.planned_s < from_s and self._is_blocked
        return self._schedule.held_up is None and not is_blocked

    @property
    def _is_followed(self) -> bool:
        """Whether the GPU is as the plan in force has it, and none is being made that must take its place."""
        return self._following.is_as_planned and not self._following.is_out_of_force

    @property
    def _is_blocked(self) -> bool:
        """Whether a retraining holds up the next change."""
        return self._schedule.next is not None and self._applier.is_blocked(self._schedule.next)

    def _decide(self, now_s: float, note: Note) -> Iterator[Replanned]:
        """Take up the plan that was asked for, once it is there: at once if there must be one, else in its step.

        Raises:
            PlannerError: There must be one, and the policy cannot answer.
        """
        request = self._following.request
        if request is None:
            return
        if request.asked.must:
            if request.answer.done():
                yield self._replaced(request, note)
        elif now_s >= request.from_s - 1e-9:
            yield from self._reconsidered(request, note)

    def _replaced(self, request: RestRequest, note: Note) -> Replanned:
        """The plan that there must be, if there is one, is followed from now on."""
        self._following.take()
        newer = self._following.reasons
        replan = request.answer.result()
        if isinstance(replan, PlannerError):
            raise replan
        revised, asked = replan.planned, request.asked
        if revised.is_planned:
            note(events.plan_revised(revised, asked.reason, request.asked_s))
            self._follow(revised, request.from_s)
            self._following.replaced(newer)
        else:
            note(events.not_revised(revised, asked.reason, request.asked_s))
            self._following.unanswered(asked, newer, self._accounts.now_s)
            self._applier.reset_failures()
            if self._applier.has_idle:  # perhaps what is not in use goes now; a plan may find room then
                now_s = self._applier.now_s
                lent = tuple((loan.placement, loan.owner) for loan in self._applier.loans)
                self._schedule.put_first(Change(now_s, self._applier.layout, (), lent=lent), now_s)
        return Replanned(asked, replan.forecast, revised)

    def _reconsidered(self, request: RestRequest, note: Note) -> Iterator[Replanned]:
        """The plan that there may be is followed from now on, if it is there in time and is better."""
        if self._following.reasons:
            self._go_on(Kept.STRAYED, note)
            return
        replan = request.answer.result() if request.answer.done() else None
        if replan is None:
            self._go_on(Kept.LATE, note)
            yield Replanned(request.asked, None, None)
        elif isinstance(replan, PlannerError):
            self._go_on(Kept.ALONE, note, str(replan))
            yield Replanned(request.asked, None, None)
        elif self._is_overtaken(replan):
            self._go_on(Kept.OVERTAKEN, note)
            yield Replanned(request.asked, replan.forecast, None)
        elif not replan.is_better:
            self._go_on(Kept.BETTER if replan.planned.is_planned else Kept.ALONE, note)
            yield Replanned(request.asked, replan.forecast, None)
        else:
            self._following.take()
            fields = events.plan_changed(replan, request.asked, request.asked_s)
            note(fields, events.wall_of(replan.planned.plan))
            self._follow(replan.planned, request.from_s)
            yield Replanned(request.asked, replan.forecast, replan.planned)

    def _is_overtaken(self, replan: Replan) -> bool:
        """Whether it begins with what is no more: a retraining that has ended since, or what a change has replaced.

        A change may begin before its step, when a retraining ends a little early.
        """
        state = replan.planned.problem.physical_initial
        assert state is not None
        expected = {(item.placement, item.members) for item in state.held}
        holding = {(placement, owner.members) for placement, owner, _ in self._applier.serving_from_s}
        ended = {owner.tenant for owner in self._trained | self._applier.failed_retrainings}
        return holding != expected or not ended.isdisjoint(item.tenant for item in state.retrainings)

    def _go_on(self, why: Kept, note: Note, error: str | None = None) -> None:
        """Let the plan in force go on, if another is being made."""
        pending = self._following.take()
        if pending is None or pending.asked.must:
            return
        assert self._planned is not None
        replan = pending.answer.result() if pending.answer.done() else None
        solved = events.wall_of(replan.planned.plan) if isinstance(replan, Replan) else None
        window, n_steps = self._planned.window, pending.n_steps
        note(events.plan_kept(window, n_steps, pending.asked, pending.asked_s, why, error), solved)

    def _as_it_went(self, planned: PlannedWindow, n_followed: int, step: int, from_s: float) -> PlannedWindow:
        """The window with its retrainings as they have gone; of ``n_followed`` steps changes are made.

        One that failed, or never began, was not planned. One that has ended has done so by ``step``. One under way ends
        when it has trained for as long as planned, and if that is over, when it is late by as much again as it is now.
        """
        under_way = self._under_way(planned.window)
        step_s, lifetimes = self._setting.config.step_s, planned.plan.lifetimes
        ends = {item.owner: step for item in lifetimes if item.owner in self._trained and step < item.end_step}
        for owner, training_from_s in under_way.items():
            end_s = self._ends_s(owner, training_from_s, from_s)
            end_step = math.ceil((end_s - self._schedule.plan_s) / step_s - 1e-9)
            ends[owner] = max(step + 1, min(end_step, planned.problem.n_steps))
        went = with_begun(planned, under_way, step)  # a change may be made before its step
        went = without_retrainings(went, self._not_retraining(planned, n_followed))
        return with_ends(went, ends, step)

    def _under_way(self, window: int) -> Mapping[Owner, float]:
        """When each retraining of this window that is under way trains or should, and whichever is on a loan."""
        loans = {loan.owner: loan.worker().expected_s for loan in self._applier.loans}
        return {**self._applier.training_from_s(window), **loans}

    def _ends_s(self, owner: Owner, training_from_s: float, from_s: float) -> float:
        """When a retraining that is under way is expected to end, seen at ``from_s``."""
        end_s = training_from_s + self._training_s.get(owner, 0.0)
        late_s = max(self._setting.config.step_s, self._accounts.now_s - end_s)
        return from_s + late_s if end_s < from_s else end_s

    def _will_stand(self, planned: PlannedWindow, step: int, from_s: float) -> PhysicalState | None:
        """What will serve, or start to, at a later step of the plan in force; ``None`` if that is unknown.

        A change that waits for a late retraining is not made until then; no plan knows of one of the last window's.
        """
        step_s = self._setting.config.step_s
        standing, is_due, held_up = self._standing(from_s), self._due_s() < from_s, self._schedule.held_up
        is_blocked = is_due and self._is_blocked
        if is_blocked and self._applier.training_from_s(planned.window - 1):
            return None
        if is_due and not is_blocked:
            if held_up is not None:
                return None
            ready = {(item.placement, name): item.serve_step for item in standing.held for name in item.members}
            promised = state_at(planned.problem, planned.plan, step)
            held = tuple(
                replace(
                    item,
                    serve_step=max(item.serve_step, *(ready.get((item.placement, name), 0) for name in item.members)),
                )
                for item in promised.held
            )
            epoch_step = max([promised.next_epoch_step, *(item.serve_step for item in held)])
            return replace(promised, held=held, next_epoch_step=epoch_step)
        if held_up is None:
            return standing
        epoch_s = held_up.begin_s + planned.problem.epoch_steps * step_s
        return replace(
            standing, next_epoch_step=max(standing.next_epoch_step, math.ceil((epoch_s - from_s) / step_s - 1e-9))
        )

    def _not_retraining(self, planned: PlannedWindow, step: int) -> frozenset[Owner]:
        """Whose retraining the plan has begun before the step, and is neither under way nor done."""
        begun = {item.owner for item in planned.plan.lifetimes if not item.is_inference and item.create_step < step}
        under_way = self._under_way(planned.window)
        return (frozenset(begun) - frozenset(under_way) - self._trained) | self._applier.failed_retrainings

    def _follow(self, planned: PlannedWindow, plan_s: float) -> None:
        """From now on carry this plan out; its step 0 is at ``plan_s``."""
        self._planned, step_s = planned, self._setting.config.step_s
        changes = changes_of(planned.plan, plan_s, step_s, self._checkpoints, planned.problem)
        self._schedule.follow(changes, plan_s, planned.problem.epoch_steps * step_s, self._applier.now_s)
        self._training_s |= {
            item.owner: (item.end_step - item.serve_step) * step_s
            for item in planned.plan.lifetimes
            if item.option is not None
        }
        self._following.follow()

    def _due_s(self) -> float:
        """When the next change may begin, if no retraining holds it up; in another window it may not."""
        if self._applier.is_busy or self._following.is_out_of_force:
            return NEVER_S
        due_s = self._schedule.due_s
        return due_s if due_s < self._window_end_s else NEVER_S

    def _bring_forward(self, live: Live) -> None:
        """Let the next change begin early if it is the one with which this retraining, which is over, was to end.

        It keeps its distance to the change before, and waits until its plan is there. Where the plan has it much later
        than now, it stays there.
        """
        change = self._schedule.next
        if change is None or self._applier.is_blocked(change):
            return
        if change.layout.owner(live.placement) == live.owner or (live.placement, live.owner) in change.lent:
            return
        self._schedule.bring_forward(self._accounts.now_s)

    def _bring_up(self, planned: PlannedWindow, window: int, note: Note) -> None:
        """Put the first layout up before the first window, so that it serves from its first second."""
        start_s, step_s = window * self._setting.config.window_s, self._setting.config.step_s
        first = changes_of(planned.plan, start_s, step_s)[0]
        entries = [(placement, owner) for placement, owner in first.layout.entries if owner.task is Task.INFERENCE]
        change = Change(self._applier.now_s, OwnedLayout.of(entries), first.promised_s)
        self._schedule.changed_in = window
        self._end(self._applier.apply(change, window, self._accounts.busy_until_s, note), note)

    def _make(self, note: Note) -> None:
        """Carry out what is possible at once of the next change."""
        assert self._opening is not None
        window = self._opening.window
        change = self._schedule.begin(window, self._applier.now_s)
        self._end(self._applier.apply(change, window, self._accounts.busy_until_s, note), note)

    def _end(self, outcome: ChangeOutcome | None, note: Note) -> None:
        """Log a change that is over, and look at the one after it."""
        if outcome is None:
            return
        self._tell(outcome, note)
        if outcome.news:
            self._following.stray("; ".join(f"{item.placement}: {item}" for item in outcome.news))
        self._schedule.end(outcome, self._applier.now_s)

    def _tell(self, outcome: ChangeOutcome, note: Note) -> None:
        """Log what a change has done, in the window in which it began; what died over its last batch is lost."""
        if not outcome.is_empty:
            note(events.change(self._schedule.changed_in, outcome, self._applier.layout))
        for died in outcome.died:
            note(events.failed(self._schedule.changed_in, died.started, died.at_s, died.reason, died.tenant))
        for died in outcome.died:
            self._accounts.lose(died.tenant, died.server_ids)

    def _is_unproven(self, happening: Happening) -> bool:
        return isinstance(happening, Finished | Checkpointed) and happening.at_s > self.known_s

    def _look(self, note: Note) -> Iterator[BlindSpan]:
        """Look at what others have done to the GPU, and whether its driver answers.

        All is read anew when a window has ended, and when a retraining is said to have.
        """
        ended_s = [one.at_s for one in (*self._unproven, *self._received) if self._is_unproven(one)]
        ended_s += [self._window_end_s, self._window * self._setting.config.window_s]
        sight = self._applier.look(max((end_s for end_s in ended_s if end_s <= self._applier.now_s), default=-NEVER_S))
        if sight is None:
            return
        if sight.blind is not None:
            note(events.blind(self._window, sight.blind))
            yield sight.blind
        if not (sight.gone or sight.came or sight.left):
            return
        for live in (*sight.gone, *sight.loans):
            reason = (
                "its GPU instance is gone: somebody else has destroyed it, or the GPU was reset, or lost for a while"
            )
            for name, worker in live.workers.items():
                self._accounts.lose(name, worker.server_ids)
                note(self._failed(live, self._applier.now_s, reason, name))
        if sight.gone:
            stopped = tuple(live.stopped_at(self._applier.now_s) for live in sight.gone)
            outcome = ChangeOutcome(self._applier.now_s, self._applier.now_s, stopped=stopped)
            note(events.change(self._window, outcome, self._applier.layout))
        gone = [live.instance_id for live in sight.gone]
        note(events.others(self._window, gone, sight.came, sight.left, self._applier.taken))
        self._following.stray(str(sight))

    def _is_better(self, live: Live) -> bool:
        """Whether the retraining was expected to give more than what the window began with: so do its checkpoints."""
        assert self._planned is not None
        assert self._opening is not None
        index = self._names.index(live.owner.tenant)
        options = self._planned.problem.tenants[index].options
        after = [option.accuracy_after for option in options if option.name == live.training.option]
        return not after or after[0] > self._opening.accuracies[index]

    def _take_over(self, live: Live, at_s: float) -> None:
        """Let the servers of a retraining's tenant take its weights over."""
        self._applier.take_over(live.owner.tenant, at_s, self._accounts.busy_until_s)

    def _failed(self, live: Live, at_s: float, reason: str, tenant: str | None = None) -> records.Failed:
        """That a worker in the instance has failed: one that serves in this window, a retraining in its own."""
        window = self._window if live.is_inference else live.window
        return events.failed(window, live.started, at_s, reason, tenant)

    def _handle(self, happening: Happening, note: Note) -> Iterator[Trained | Failed]:
        """Take note of what happened to a worker."""
        window = self._window
        live = self._applier.live(happening.instance_id)
        if live is None:
            return
        if (so_far := self._applier.so_far_of_change_with(live)) is not None:
            self._tell(so_far, note)  # it starts in the log before anything becomes of it
        trained = partial(
            Trained, happening.at_s, live.owner.tenant, live.window, live.instance_id, option=live.training.option
        )
        match happening:
            case Ready():
                self._applier.ready(live, happening)
                if live.is_starting and live.is_ready:
                    live.is_starting = False
                    if live.change_s >= self._first_s:  # the bring-up is no change
                        calls_s = None if live in self._applier.loans else live.begun_s - live.change_s
                        self._starts.add(live.owner, calls_s, happening.at_s - live.begun_s)
                self._applier.hold(live, self._accounts.busy_until_s)
                note(events.ready(window, live.started, happening))
            case Checkpointed():
                if self._is_better(live):
                    self._take_over(live, happening.at_s)
                yield trained(checkpoint=happening.part)
            case Finished():
                live.end()
                self._applier.give_back(live)
                self._bring_forward(live)
                if live.window == window:  # else it is the one of the window before, which ended late
                    self._trained.add(live.owner)
                ended = trained(facts=happening.facts)
                if not ended.is_rejected:
                    self._take_over(live, happening.at_s)
                yield ended
            case Failed():
                worker = live.worker(happening.tenant)
                self._accounts.lose(worker.owner.tenant, worker.server_ids)
                note(self._failed(live, happening.at_s, happening.reason, worker.owner.tenant))
                self._applier.give_back(live)
                self._applier.failed(live, worker.owner.tenant)
                yield happening
            case _:
                assert_never(happening)
