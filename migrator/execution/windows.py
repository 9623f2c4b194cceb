"""Windows as values: what is seen as one begins, its plan, and the plan of its rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forecaster.forecast import FloatArray, Forecast
from migrator.inputs.estimates import Estimate
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Filled
from migrator.log.records import Outlook
from planner.build import PoolTerms, WarmUps
from planner.partition import Judged
from planner.plan import AnyCertificate, Lifetime, MigPlan, next_epoch_step
from planner.problem import HeldInstance, PhysicalState, Problem, Task
from planner.verify import Verification


def begun_s(setting: Setting, window: int) -> float:
    """The second at which a window's plan is begun: ``planner.planning_s``, or some steps more, before the window."""
    return window * setting.config.window_s - setting.config.ahead_steps * setting.config.step_s


@dataclass(frozen=True, eq=False)
class Opening:
    """What is seen when a window begins, or some steps before: nothing of what will come.

    Attributes:
        window: Its number.
        past_rps: Arrival rates of the steps before that, oldest first, ``(n_history_steps, n_tenants)``.
        accuracies: What the models in service give, by tenant; expected, where they are not measured yet.
        plans: What was in force in the windows before, oldest first.
        estimates: What is estimated of the retrainings, by tenant; ``None`` where the config says it.
        warm_ups: What changes take, as the run has seen; ``None`` for documented times.
        last_trained: By tenant, with which window's data its model was retrained last; ``None``: each with the last.
        outlooks: What is expected of the models after the window, by tenant; ``None``: as if nothing was seen yet.
        ahead_steps: Steps before the window's start at which it was seen; its plan is there as the window begins.
        is_measured: Whether ``accuracies`` and ``estimates`` are the window's own.
        by_feedback: By tenant whose retraining depends on it, which share of answers clients called right, if known.
        filled: What of ``past_rps`` nobody has counted.
    """

    window: int
    past_rps: FloatArray
    accuracies: tuple[float, ...]
    plans: tuple[MigPlan, ...] = ()
    estimates: Sequence[Estimate] | None = None
    warm_ups: WarmUps | None = None
    last_trained: tuple[int, ...] | None = None
    outlooks: tuple[Outlook, ...] | None = None
    ahead_steps: int = 0
    is_measured: bool = True
    by_feedback: Mapping[str, float] = field(default_factory=dict)
    filled: Filled = field(default_factory=Filled)

    @property
    def trained_last(self) -> tuple[int, ...]:
        """By tenant, with which window's data its model was retrained last."""
        return self.last_trained or (self.window - 1,) * len(self.accuracies)

    def measured(self, accuracies: Sequence[float], estimates: Sequence[Estimate] | None) -> Opening:
        """The opening with what is measured in place of what was expected."""
        return replace(self, accuracies=tuple(accuracies), estimates=estimates, is_measured=True)


def state_after(plan: MigPlan) -> PhysicalState:
    """What the plan leaves to the next window, in steps from that window's start.

    Instances that outlive the window are held on, those still warming with the step from which
    they serve. Retrainings end inside their window, so none is running.
    """
    outliving = [item for item in plan.lifetimes if item.end_step >= plan.n_steps and item.is_inference]
    return PhysicalState(
        held=tuple(
            HeldInstance(item.placement, item.owner.tenant, max(0, item.serve_step - plan.n_steps), item.owner.others)
            for item in outliving
        ),
        next_epoch_step=max(0, plan.next_epoch_step - plan.n_steps),
    )


@dataclass(frozen=True)
class PlannedWindow:
    """One window's forecast and plan.

    Attributes:
        window: Its number.
        plan_from_step: First step that the plan covers; before it, while planning takes its time,
            the old layout serves.
        forecast: Of the whole window.
        problem: Of the steps from ``plan_from_step`` on.
        plan: The plan in force; one that changes nothing where the solve gave none. Where nothing is there yet, as in
            window 0, and the solve's plan was refused: one fixed layout.
        verification: What the independent checker says of the solve's plan; ``None`` where there is none.
        rejected: The solve's plan where the checker refused it; it is not carried out.
        pools: Those of its problem, with what they were posed by.
        judged: The partitions that came into question for the window, where that was asked, the chosen one first.
    """

    window: int
    plan_from_step: int
    forecast: Forecast = field(repr=False)
    problem: Problem = field(repr=False)
    plan: MigPlan
    verification: Verification | None = field(repr=False)
    rejected: MigPlan | None = None
    pools: tuple[PoolTerms, ...] = field(default=(), repr=False)
    judged: tuple[Judged, ...] = field(default=(), repr=False)

    @property
    def is_planned(self) -> bool:
        """Whether ``plan`` is the solve's own, checked and valid."""
        return self.verification is not None and self.rejected is None

    @property
    def retrained(self) -> dict[str, str]:
        """By tenant whose retraining the plan ends within the window, the option by which that is done."""
        runs = {tenant.name: tenant.options[0].name for tenant in self.problem.tenants if tenant.options}
        return {
            item.owner.tenant: item.option or runs[item.owner.tenant]
            for item in self.plan.lifetimes
            if item.owner.task is Task.RETRAINING
        }

    @property
    def next_state(self) -> PhysicalState:
        """What the plan leaves to the next window."""
        return state_after(self.plan)

    def with_lifetimes(self, lifetimes: Iterable[Lifetime]) -> PlannedWindow:
        """The window as if its plan had these."""
        own = tuple(lifetimes)
        epoch_step = max(self.plan.next_epoch_step, next_epoch_step(self.problem, own, self.problem.n_steps))
        return replace(self, plan=replace(self.plan, lifetimes=own, next_epoch_step=epoch_step))


@dataclass(frozen=True)
class Replan:
    """The rest of a window planned anew.

    Attributes:
        forecast: Of the window's steps from the moment on from which it was seen.
        planned: What was answered; it covers the window's last steps.
        running: What is left of the plan in force, with its worth by the new forecast as ``objective``; ``None`` where
            it cannot be followed, or keeps the rules no more.
        is_better: Whether the answer is worth more than going on: it lacks fewer requests of floors of in-time answers,
            or as many and is worth more, or floors would cost too much by going on.
        logged: What is left of the certificate of the plan in force, whose prices the log has.
    """

    forecast: Forecast
    planned: PlannedWindow
    running: MigPlan | None
    is_better: bool
    logged: AnyCertificate | None = None

    @property
    def gain(self) -> float | None:
        """Requests that the answer is expected to gain over going on; ``None`` if either is unknown."""
        objective = self.planned.plan.objective
        if self.running is None or self.running.objective is None or objective is None:
            return None
        return objective - self.running.objective
