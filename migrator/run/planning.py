"""Plans a run's windows one after the other: forecast, problem, plan, independent check, next state.

``migrator run`` and ``migrator plan CONFIG --window K`` go through here alike, so the plan that a
user inspects is the plan that a run executes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from forecaster.forecast import Forecast
from migrator.errors import InfeasibleError
from migrator.estimates import Estimate, as_estimated, estimate_of
from migrator.run.changes import kept_plan, shifted, state_after
from migrator.setting import Setting
from planner.budget import Budget, EngineOptions
from planner.build import WindowTerms, window_problem
from planner.plan import MigPlan
from planner.policies.policy import Policy, Window
from planner.problem import InitialState, PaperState, PhysicalState, Problem, Reconfiguration, Task
from planner.solve import solve
from planner.verify import Verification, verify
from workloads.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Solving:
    """How a window's problem is posed and answered; by default as a run does it.

    Attributes:
        reconfiguration: The cost model.
        engine: One of :func:`planner.solve.engine_names`; the model's default if ``None``.
        options: What only some engines know.
        time_limit_s: Wall seconds, beside the config's limit of work; ``None`` for no limit.
        policy: Answers instead of an engine, if given.
        as_published: Whether the policy forecasts and switches as its source does.
    """

    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL
    engine: str | None = None
    options: EngineOptions | None = None
    time_limit_s: float | None = None
    policy: Policy | None = None
    as_published: bool = False


@dataclass(frozen=True)
class PlannedWindow:
    """One window's forecast and plan.

    Attributes:
        window: Its number.
        plan_from_step: First step that the plan covers; before it, while planning takes its time,
            the old layout serves.
        forecast: Of the whole window.
        problem: Of the steps from ``plan_from_step`` on.
        plan: The plan in force; one that changes nothing where the solve gave none.
        verification: What the independent checker says of the solve's plan; ``None`` where there is none.
        rejected: The solve's plan where the checker refused it; it is not carried out.
    """

    window: int
    plan_from_step: int
    forecast: Forecast
    problem: Problem
    plan: MigPlan
    verification: Verification | None
    rejected: MigPlan | None = None

    @property
    def is_planned(self) -> bool:
        """Whether ``plan`` is the solve's own, checked and valid."""
        return self.verification is not None and self.rejected is None

    @property
    def retrained(self) -> frozenset[str]:
        """Tenants whose retraining the plan ends within the window."""
        lifetimes = self.plan.lifetimes
        return frozenset(item.owner.tenant for item in lifetimes if item.owner.task is Task.RETRAINING)

    @property
    def next_state(self) -> PhysicalState:
        """What the plan leaves to the next window."""
        return state_after(self.plan)


def plan_window(
    setting: Setting,
    window: int,
    state: PhysicalState | None,
    accuracy_before: Sequence[float],
    solving: Solving | None = None,
    plans: Sequence[MigPlan] = (),
) -> PlannedWindow:
    """The plan of one window, from the arrivals before it alone unless the config has them known.

    ``accuracy_before`` ``(n_tenants,)`` is what the models in service give at its start; ``solving`` is
    as a run does it if ``None``; ``plans`` are those of the windows before.

    Raises:
        PlannerError: The parts do not make a problem, or the solver failed.
    """
    how = solving or Solving()
    forecast = setting.forecast(window)
    plan_from_step = 0 if state is None else setting.planning_steps
    problem = posed(setting, window, state, accuracy_before, forecast, how.reconfiguration)
    budget = Budget(max_nodes=setting.config.planner.max_schedules, time_limit_s=how.time_limit_s)
    if how.policy is None:
        plan = solve(problem, engine=how.engine, budget=budget, options=how.options)
    else:
        past_rps = setting.history_rps(window)
        plan = how.policy.plan(Window(window, problem, budget, past_rps, tuple(plans), how.as_published))
    verification = verify(problem, plan) if plan.status.has_plan else None
    rejected = plan if verification is not None and verification.violations else None
    if verification is None or rejected is not None:
        plan = kept_plan(problem, plan)
    return PlannedWindow(window, plan_from_step, forecast, problem, plan, verification, rejected)


def posed(
    setting: Setting,
    window: int,
    state: PhysicalState | None,
    accuracy_before: Sequence[float],
    forecast: Forecast,
    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL,
) -> Problem:
    """The problem of a window's steps from when its plan is there, with the arrivals of ``forecast``.

    Of the window's retrainings it knows the estimates, never the truth.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    plan_from_step = 0 if state is None else setting.planning_steps
    estimates = estimates_in(setting, window)
    return window_problem(
        setting.gpu,
        [as_estimated(tenant, estimate) for tenant, estimate in zip(setting.tenants, estimates, strict=True)],
        _window_terms(setting, window, accuracy_before, estimates),
        _from_step(forecast, plan_from_step),
        step_s=setting.config.step_s,
        initial=None if state is None else _initial(shifted(state, plan_from_step), reconfiguration),
        switch_s=setting.config.planner.switch_s,
        reconfiguration=reconfiguration,
    )


def _initial(state: PhysicalState, reconfiguration: Reconfiguration) -> InitialState:
    """What a window of the model starts from; ``paper`` knows only the profiles held."""
    match reconfiguration:
        case Reconfiguration.PHYSICAL:
            return state
        case Reconfiguration.PAPER:
            held: dict[str, tuple[str, ...]] = {}
            for item in state.held:
                held[item.tenant] = (*held.get(item.tenant, ()), item.placement.profile.name)
            return PaperState(held)
        case _:
            assert_never(reconfiguration)


def estimates_in(setting: Setting, window: int) -> list[Estimate]:
    """What is estimated of each tenant's retraining in ``window``, in the config's order."""
    config = setting.config
    return [estimate_of(config.estimates, config.seed, setting.gpu, tenant, window) for tenant in setting.tenants]


def _window_terms(
    setting: Setting, window: int, accuracy_before: Sequence[float], estimates: Sequence[Estimate]
) -> list[WindowTerms]:
    return [
        WindowTerms(before, estimate.accuracy_after, tenant.retrains_in(window))
        for tenant, before, estimate in zip(setting.tenants, accuracy_before, estimates, strict=True)
    ]


def _from_step(forecast: Forecast, step: int) -> Forecast:
    if step == 0:
        return forecast
    return Forecast(
        method=forecast.method,
        mean_rps=forecast.mean_rps[step:].copy(),
        quantile_levels=forecast.quantile_levels,
        quantiles_rps=forecast.quantiles_rps[:, step:].copy(),
        paths_rps=forecast.paths_rps[:, step:].copy(),
    )


def accuracy_at_start(tenant: Tenant, window: int, last_retrained: int) -> float:
    """What the model in service gives at the start of ``window``, last retrained in window ``last_retrained``.

    The model deployed at first counts as retrained in window −1. A retrained model starts the next
    window at the config's ``before``. While a retraining that was asked for is missing, the model falls
    behind: its accuracy goes on from window to window, or falls to a window's ``before`` where that is lower.
    """
    accuracy = tenant.accuracy_in(last_retrained + 1).before
    is_behind = False
    for passed in range(last_retrained + 1, window):
        is_behind = is_behind or tenant.retrains_in(passed)
        before = tenant.accuracy_in(passed + 1).before
        accuracy = min(accuracy, before) if is_behind else before
    return accuracy


def plan_through(setting: Setting, last_window: int, solving: Solving | None = None) -> list[PlannedWindow]:
    """The plans of windows 0 … ``last_window``, each from the state that the one before promises.

    ``solving`` is how the last one is solved; those before it are planned as a run does it.
    """
    state: PhysicalState | None = None
    last_retrained = dict.fromkeys((tenant.name for tenant in setting.tenants), -1)
    planned: list[PlannedWindow] = []
    for window in range(last_window + 1):
        accuracies = [accuracy_at_start(tenant, window, last_retrained[tenant.name]) for tenant in setting.tenants]
        how = solving if window == last_window else None
        planned.append(plan_window(setting, window, state, accuracies, how))
        state = planned[-1].next_state
        last_retrained |= dict.fromkeys(planned[-1].retrained, window)
    return planned


def require_plan(planned: PlannedWindow) -> None:
    """Refuse a window without a plan of its own.

    Raises:
        InfeasibleError: Naming the tenant and the rule, that the solver found nothing in its budget, or the
            rule that its plan breaks.
    """
    if planned.is_planned:
        return
    if planned.rejected is not None and planned.verification is not None:
        raise InfeasibleError(f"window {planned.window}: the plan breaks a rule: {planned.verification.violations[0]}")
    reason = planned.plan.infeasibility
    if reason is None:
        raise InfeasibleError(f"window {planned.window}: no plan within the budget ({planned.plan.status})")
    raise InfeasibleError(f"window {planned.window}: {reason}")
