"""A window's problem, from what is seen and forecast, and the state that it begins in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import assert_never

from executor.mig import Placement
from forecaster.forecast import Forecast
from migrator.config import FloorConfig
from migrator.estimates import Estimate, as_estimated, estimate_of
from migrator.execution.foresight import Opening, forecast_from
from migrator.execution.outlook import salvage_of, unseen
from migrator.execution.starts import Starts
from migrator.setting import Setting
from planner.build import WindowTerms, window_problem
from planner.plan import MigPlan
from planner.problem import (
    AttainmentFloor,
    HeldInstance,
    InitialState,
    PaperState,
    Per,
    PhysicalState,
    Problem,
    Reconfiguration,
    RunningRetraining,
)
from planner.replan import without_hopeless_retrainings
from planner.unavailable import Unavailable, unavailable_within
from workloads.training import reached


def posed(
    setting: Setting,
    opening: Opening,
    state: PhysicalState | None,
    forecast: Forecast,
    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL,
    unavailable: Sequence[Unavailable] = (),
) -> Problem:
    """The problem of a window's steps from when its plan is there, with the arrivals of ``forecast``.

    Of the window's retrainings it knows the estimates, the config's or the opening's, never the truth; of batches what
    :attr:`Setting.known_tenants` says. Without the opening's warm-ups, changes take what is documented of typical ones.
    ``unavailable`` are memory slices that others hold, in steps from the window's start; it may name steps beyond the
    window's end. A retraining that cannot be had beside them is not asked for.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    plan_from_step = plan_from_step_of(setting, opening, state)
    estimates = estimates_of(setting, opening)
    n_steps = forecast.mean_rps.shape[0] - plan_from_step
    problem = window_problem(
        setting.gpu,
        [as_estimated(tenant, estimate) for tenant, estimate in zip(setting.known_tenants, estimates, strict=True)],
        _window_terms(setting, opening, estimates, forecast),
        forecast_from(forecast, plan_from_step),
        step_s=setting.config.step_s,
        initial=None if state is None else _initial(shifted(state, plan_from_step), reconfiguration),
        warm_ups=opening.warm_ups or Starts(setting.config, setting.gpu, setting.known_tenants).warm_ups,
        reconfiguration=reconfiguration,
        unavailable=unavailable_within(unavailable, plan_from_step, n_steps),
        risk=setting.config.planner.risk,
    )
    return without_hopeless_retrainings(problem) if problem.unavailable else problem


def plan_from_step_of(setting: Setting, opening: Opening, state: PhysicalState | None) -> int:
    """The step of its window from which on a plan is: 0 where nothing stands yet, or the plan was begun before."""
    return 0 if state is None or opening.ahead_steps else setting.config.planning_steps


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


def estimates_of(setting: Setting, opening: Opening) -> Sequence[Estimate]:
    """The same as its opening has it: the config's, unless it has been measured or is expected."""
    return estimates_in(setting, opening.window) if opening.estimates is None else opening.estimates


def _window_terms(
    setting: Setting, opening: Opening, estimates: Sequence[Estimate], forecast: Forecast
) -> list[WindowTerms]:
    floors = [_floor(entry.min_slo_attainment) for entry in setting.config.tenants]
    salvages = salvages_in(setting, opening, estimates, forecast)
    return [
        WindowTerms(
            accuracy_before=opening.accuracies[m],
            accuracy_after=estimates[m].accuracy_after,
            retrains=tenant.retrains_in(opening.window),
            floor=floors[m],
            required=tenant.must_retrain_in(opening.window, opening.trained_last[m]),
            salvage=salvages[m],
        )
        for m, tenant in enumerate(setting.tenants)
    ]


def salvages_in(
    setting: Setting, opening: Opening, estimates: Sequence[Estimate], forecast: Forecast
) -> list[tuple[float, ...]]:
    """By tenant and level (as it is, then after each option), what its model is worth after the window.

    In weighted right answers, :func:`migrator.execution.outlook.salvage_of`; empty where plans do not count that.
    """
    config = setting.config
    known = opening.outlooks or [unseen(tenant, config, opening.window) for tenant in setting.tenants]
    found: list[tuple[float, ...]] = []
    for m, tenant in enumerate(setting.tenants):
        if not tenant.retrains_in(opening.window) or not tenant.counts_salvage(config.retraining.salvage):
            found.append(())
            continue
        before, after = opening.accuracies[m], estimates[m].accuracy_after
        options = as_estimated(tenant, estimates[m]).options
        accuracies = [before, *(reached(before, after, option.gain) for option in options)]
        n_requests = float(forecast.mean_rps[:, m].mean()) * config.window_s
        found.append(tuple(salvage_of(known[m], n_requests, tenant.weight, accuracies)))
    return found


def _floor(config: FloorConfig | None) -> AttainmentFloor | None:
    return None if config is None else AttainmentFloor(config.share, Per(config.per))


def state_after(plan: MigPlan) -> PhysicalState:
    """What the plan leaves to the next window, in steps from that window's start.

    Instances that outlive the window are held on, those still warming with the step from which
    they serve. Retrainings end inside their window, so none is running.
    """
    outliving = [item for item in plan.lifetimes if item.end_step >= plan.n_steps and item.is_inference]
    return PhysicalState(
        held=tuple(
            HeldInstance(item.placement, item.owner.tenant, max(0, item.serve_step - plan.n_steps))
            for item in outliving
        ),
        next_epoch_step=max(0, plan.next_epoch_step - plan.n_steps),
    )


def state_of(serving_from_s: Iterable[tuple[Placement, str, float]], start_s: float, step_s: float) -> PhysicalState:
    """What a window that begins at ``start_s`` starts from, by what really stands: placement, tenant, readiness.

    Every retraining counts as over: the plan does not know of one that takes longer than estimated.
    """
    held = tuple(
        HeldInstance(placement, tenant, max(0, math.ceil((ready_s - start_s) / step_s - 1e-9)))
        for placement, tenant, ready_s in serving_from_s
    )
    return PhysicalState(held=held, next_epoch_step=max((item.serve_step for item in held), default=0))


def shifted(state: PhysicalState, n_steps: int) -> PhysicalState:
    """The same state in steps from ``n_steps`` later, when nothing was changed meanwhile."""
    return PhysicalState(
        held=tuple(HeldInstance(item.placement, item.tenant, max(0, item.serve_step - n_steps)) for item in state.held),
        retrainings=tuple(
            RunningRetraining(item.placement, item.tenant, item.end_step - n_steps)
            for item in state.retrainings
            if item.end_step > n_steps
        ),
        next_epoch_step=max(0, state.next_epoch_step - n_steps),
    )


def later(state: PhysicalState, n_steps: int) -> PhysicalState:
    """The state in steps from ``n_steps`` earlier: what :func:`shifted` by as many steps makes into ``state``."""
    return PhysicalState(
        held=tuple(HeldInstance(item.placement, item.tenant, item.serve_step + n_steps) for item in state.held),
        retrainings=tuple(
            RunningRetraining(item.placement, item.tenant, item.end_step + n_steps) for item in state.retrainings
        ),
        next_epoch_step=state.next_epoch_step + n_steps,
    )
