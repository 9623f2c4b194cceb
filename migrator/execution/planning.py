"""Plans a window, or what is left of one: what is seen, forecast, problem, plan, independent check, next state.

``migrator run`` and ``migrator plan CONFIG --window K`` go through here alike, so the plan that a user inspects is
the plan that a run executes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.compiled import working_s
from forecaster.forecast import Forecast
from forecaster.registry import HINDSIGHT
from migrator.errors import InfeasibleError
from migrator.execution.foresight import forecast_from
from migrator.execution.posing import (
    offered_by_feedback,
    offered_in,
    pinned,
    plan_from_step_of,
    pools_terms,
    posed,
    posed_alone,
    warm_ups_of,
)
from migrator.execution.windows import Opening, PlannedWindow, Replan
from migrator.inputs.setting import Setting
from planner.arrays import Floats
from planner.budget import Budget, EngineOptions
from planner.build import PoolTerms, slacks_s, with_forecast
from planner.bursts import Scenarios, held_to_floor
from planner.engines.physical.held_sets import HeldSets
from planner.engines.physical.static import solve_static_among
from planner.engines.schedule import WindowFacts
from planner.floors import is_better, without_multipliers
from planner.partition import Judged, Partition, choose, in_order
from planner.plan import Lifetime, MigPlan, Status
from planner.policies.policy import Knows, Policy, Window
from planner.problem import (
    Owner,
    PhysicalState,
    Problem,
    Reconfiguration,
    Task,
    without_floors,
)
from planner.replan import remaining_plan, remaining_problem, without_hopeless_retrainings
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import Rule, verify, with_proof


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
        must_meet_floors: Whether an engine's plan that misses a floor of in-time answers is none. A run takes the one
            that lacks fewest of those that cost no more than the config's ``planner.floor_costs_at_most``.
        proves: Whether work goes into proofs whatever the config's ``planner.prove`` says, which a run goes by.
        arrived_rps: The recorded rates of the steps before a second, for a policy that knows the past of each of its
            decisions; ``None``: a policy sees what had arrived as the plan was begun.
    """

    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL
    engine: str | None = None
    options: EngineOptions | None = None
    time_limit_s: float | None = None
    policy: Policy | None = None
    as_published: bool = False
    must_meet_floors: bool = True
    proves: bool = True
    arrived_rps: Callable[[float], Floats] | None = None


def plan_window(
    setting: Setting,
    opening: Opening,
    forecast: Forecast,
    state: PhysicalState | None,
    solving: Solving | None = None,
    unavailable: Sequence[Unavailable] = (),
) -> PlannedWindow:
    """The plan of one window that begins in ``state``; ``solving`` is as a run does it if ``None``.

    With an ``opening`` from before the window, ``state`` is what is promised for its start. ``unavailable`` is as
    :func:`posed` has it.

    Raises:
        PlannerError: The parts do not make a problem, or the solver failed.
    """
    how = solving or Solving(must_meet_floors=False, proves=False)
    plan_from_step, begun_s = plan_from_step_of(setting, opening, state), working_s()
    pools, judged = _pools(setting, opening, state, forecast, how, unavailable)
    problem = posed(setting, opening, state, forecast, how.reconfiguration, unavailable, pools)
    ahead = forecast_from(forecast, plan_from_step)
    chosen_s = working_s() - begun_s
    plan = _answer(setting, opening, problem, how, plan_from_step, ahead, pools=pools)
    plan = replace(plan, solve_s=plan.solve_s + chosen_s) if judged else plan  # the pools are a part of the plan
    planned = _checked(problem, plan, opening.window, plan_from_step, forecast)
    return replace(planned, pools=pools, judged=judged)


def _pools(
    setting: Setting,
    opening: Opening,
    state: PhysicalState | None,
    forecast: Forecast,
    how: Solving,
    unavailable: Sequence[Unavailable],
) -> tuple[tuple[PoolTerms, ...], tuple[Judged, ...]]:
    """The pools that the window is planned with, and what came into question: the config's, or those of most worth.

    Raises:
        InfeasibleError: No profile serves a pool that the config lists; or there are more tenants than compute slices,
            and none of them may share.
    """
    sharing, names = setting.config.sharing, [tenant.name for tenant in setting.tenants]
    has_pools = how.reconfiguration is Reconfiguration.PHYSICAL and (how.policy is None or how.policy.has_pools)
    if not sharing.may_pool or not has_pools:
        return (), ()
    terms = pools_terms(setting, warm_ups_of(setting, opening), forecast.mean_rps.mean(axis=0))

    def terms_of(partition: Partition) -> tuple[PoolTerms, ...] | None:
        found = [terms(group) for group in partition if len(group) > 1]
        return None if None in found or len(partition) > setting.gpu.compute_slices else (*filter(None, found),)

    held = {item.members for item in state.held} if state is not None else set()
    stand = in_order(map(names.index, members) for members in held)
    last = stand if sorted(m for group in stand for m in group) == list(range(len(names))) else None
    settled = None if how.policy is None else how.policy.pools_in(opening.window)
    listed = sharing.listed if settled is None else settled
    if setting.config.pins_layout and last is not None:
        listed = [[names[m] for m in group] for group in last]
    listed = [names] if setting.config.layout else listed
    if listed is not None:
        found = list[PoolTerms]()
        for group in in_order(map(names.index, pool) for pool in listed):
            if len(group) > 1:
                pool = terms(group)
                if pool is None:
                    members = [names[m] for m in group]
                    reason = setting.joint_points.of(members).infeasible
                    raise InfeasibleError(f"sharing.pools: the pool of {', '.join(members)}: {reason}")
                found.append(pool)
        return tuple(found), ()

    def pose(partition: Partition) -> Problem | None:
        pools = terms_of(partition)
        if pools is None:
            return None
        return posed(setting, opening, state, forecast, how.reconfiguration, unavailable, pools)

    must_meet = how.policy is None and how.must_meet_floors
    costs_at_most = None if must_meet else setting.config.planner.floor_costs_at_most
    judged = choose(
        len(names),
        pose,
        posed_alone(setting, opening, forecast, terms),
        lambda problem, budget: solve(problem, how.engine, budget, floor_costs_at_most=costs_at_most),
        frozenset(index for index, tenant in enumerate(setting.config.tenants) if tenant.alone),
        last,
        math.inf if costs_at_most is None else costs_at_most,
    )
    chosen = terms_of(judged[0].partition)
    if chosen is None:
        raise InfeasibleError(
            f"sharing.pools: {len(names)} tenants need {len(judged[0].partition)} compute slices and there are "
            f"{setting.gpu.compute_slices}: no profile serves any of the pools that were looked at"
        )
    return chosen, judged


def plan_rest(
    setting: Setting,
    opening: Opening,
    planned: PlannedWindow,
    forecast: Forecast,
    step: int,
    standing: PhysicalState,
    solving: Solving,
    unavailable: Sequence[Unavailable] = (),
    *,
    must: bool,
    retrained: Container[str] = (),
) -> Replan:
    """The plan of what is left of a window from ``step`` of its plan on, if the plan was followed until then.

    ``forecast`` may begin before ``step``; it ends with the window. ``standing`` is what serves, or starts to, and
    ``unavailable`` is what others hold, both in steps from ``step`` on, as is the result.
    If a tenant has nothing to serve with, nothing already done keeps the held set from changing, but ``standing``. A
    retraining that cannot be had any more is not asked for. Whose answers clients called wrong since the window began
    may be retrained in its rest, but for those that were ``retrained`` in it.

    Where there *must* be another plan, it is made with all of a window's work. Else it has the config's work for
    planning anew, and is held against what is left of the plan in force.

    Raises:
        PlannerError: As :func:`plan_window`.
    """
    ahead = forecast_from(forecast, forecast.mean_rps.shape[0] - (planned.problem.n_steps - step))
    rest = _rest(setting, opening, planned, ahead, step, standing, unavailable, retrained)
    running, budget = None, None
    if not must:
        running = _carried_on(rest, planned.plan, step)
        work = setting.config.planner.replan_schedules
        budget = Budget(max_nodes=work, time_limit_s=solving.time_limit_s, proves=False)
    from_step = planned.plan_from_step + step
    plan = _answer(setting, opening, rest, solving, from_step, ahead, budget, running, planned.pools)
    told = None if planned.plan.certificate is None else planned.plan.certificate.left(step)
    if plan.status.has_plan and plan.certificate is None:
        # Any prices are one.
        plan = replace(plan, certificate=without_multipliers(rest, told) if told and plan.missed else told)
    answer = _checked(rest, plan, opening.window, from_step, ahead)
    answer = replace(answer, pools=planned.pools)
    costs_at_most = setting.config.planner.floor_costs_at_most
    return Replan(forecast, answer, running, _is_better(answer, running, costs_at_most), told)


def _carried_on(rest: Problem, plan: MigPlan, step: int) -> MigPlan | None:
    """What is left of a plan at ``step`` of its own, by what is there and comes now; ``None`` if it breaks a rule."""
    state = rest.physical_initial or PhysicalState()
    ready = {(item.placement, item.members): item.serve_step for item in state.held}
    left = remaining_plan(plan, step)
    lifetimes = tuple(
        replace(item, serve_step=min(item.end_step, ready.get((item.placement, item.owner.members), item.serve_step)))
        if item.is_inference and item.create_step == 0
        else item
        for item in left.lifetimes
    )
    left = replace(left, lifetimes=lifetimes)
    verification = verify(rest, replace(left, certificate=None))
    # It claims nothing of its worth yet.
    if verification.objective is None or any(item.rule is not Rule.OBJECTIVE for item in verification.broken_rules):
        return None
    return replace(left, objective=verification.objective, salvage=verification.salvage)


def _is_better(answer: PlannedWindow, running: MigPlan | None, costs_at_most: float) -> bool:
    if not answer.is_planned:
        return False
    if running is None:
        return True
    if answer.plan.burst_loss is not None:
        return True  # that the running plan may lose so much is why this one was chosen
    return is_better(answer.problem, answer.plan, running, costs_at_most)


def _rest(
    setting: Setting,
    opening: Opening,
    planned: PlannedWindow,
    forecast: Forecast,
    step: int,
    standing: PhysicalState,
    unavailable: Sequence[Unavailable],
    retrained: Container[str],
) -> Problem:
    """What is left of a window's problem from ``step`` of its plan on, as :func:`plan_rest` has it."""
    rest = remaining_problem(planned.problem, planned.plan, step)
    left = rest.physical_initial or PhysicalState()
    is_served = {name for item in standing.held for name in item.members} == set(rest.tenant_names)
    epoch_step = max(left.next_epoch_step, standing.next_epoch_step) if is_served else standing.next_epoch_step
    state = pinned(setting, replace(left, held=standing.held, next_epoch_step=epoch_step), rest.n_steps)
    running = {run.tenant for run in left.retrainings}
    tenants = [
        own if is_offered or own.name in running else replace(own, options=(), salvage=own.salvage[:1])
        for own, is_offered in zip(rest.tenants, offered_in(setting, opening), strict=True)
    ]
    anew = {name for name in offered_by_feedback(setting, opening) if name not in retrained}
    if any(own.name in anew and not own.options for own in tenants):
        fresh = posed(setting, opening, None, forecast, pools=planned.pools)
        tenants = [
            replace(own, options=new.options, retraining_required=new.retraining_required, salvage=new.salvage)
            if own.name in anew and not own.options
            else own
            for own, new in zip(tenants, fresh.tenants, strict=True)
        ]
    rest = replace(rest, tenants=tuple(tenants), initial=state, unavailable=tuple(unavailable))
    return without_hopeless_retrainings(
        with_forecast(rest, setting.known_tenants, forecast, setting.config.planner.risk, planned.pools)
    )


def without_retrainings(planned: PlannedWindow, owners: Container[Owner]) -> PlannedWindow:
    """The window as if these retrainings had not been planned."""
    return planned.with_lifetimes(item for item in planned.plan.lifetimes if item.owner not in owners)


def with_begun(planned: PlannedWindow, owners: Container[Owner], step: int) -> PlannedWindow:
    """The window as if these retrainings had begun just before ``step``, if they were to begin later."""
    return planned.with_lifetimes(
        replace(
            item,
            create_step=step - 1,
            serve_step=item.serve_step - (item.create_step - step + 1),
            end_step=max(step + 1, item.end_step - (item.create_step - step + 1)),
        )
        if item.owner in owners and item.create_step >= step
        else item
        for item in planned.plan.lifetimes
    )


def with_ends(planned: PlannedWindow, end_steps: Mapping[Owner, int], step: int) -> PlannedWindow:
    """The window as if these retrainings, begun before ``step``, were to end, or had ended, at these steps.

    A change that would end one of them sooner waits for it, and those after it keep their distance to it, or an epoch.
    What then comes too late for the window is left out.
    """
    lifetimes, n_steps, epoch_steps = planned.plan.lifetimes, planned.problem.n_steps, planned.problem.epoch_steps
    known = {item: end_steps[item.owner] for item in lifetimes if item.owner in end_steps and item.create_step < step}
    made = dict[int, int]()

    def went(item: Lifetime) -> Lifetime:
        if item in known:
            return replace(item, serve_step=min(item.serve_step, known[item]), end_step=known[item])
        late = made[item.create_step] - item.create_step
        end_step = min(made.get(item.end_step, n_steps), n_steps) if item.is_inference else item.end_step + late
        return replace(item, create_step=item.create_step + late, serve_step=item.serve_step + late, end_step=end_step)

    last = -epoch_steps
    for change in sorted({at for item in lifetimes for at in (item.create_step, item.end_step) if at < n_steps}):
        ended = (went(item).end_step for item in lifetimes if item.end_step == change and not item.is_inference)
        made[change] = max(change, made.get(last, last) + min(change - last, epoch_steps), *ended)
        last = change
    return planned.with_lifetimes(item for item in map(went, lifetimes) if item.create_step < item.end_step <= n_steps)


def _answer(
    setting: Setting,
    opening: Opening,
    problem: Problem,
    how: Solving,
    from_step: int,
    forecast: Forecast,
    effort: Budget | None = None,
    running: MigPlan | None = None,
    pools: Sequence[PoolTerms] = (),
) -> MigPlan:
    """``forecast`` is of the problem's steps, the first of which is the window's ``from_step``."""
    planner = setting.config.planner
    proves = how.proves or planner.prove == "windows"
    budget = effort or Budget(max_nodes=planner.max_schedules, time_limit_s=how.time_limit_s, proves=proves)
    costs_at_most = planner.floor_costs_at_most
    knows = Knows.FORECAST if how.policy is None else how.policy.knows
    most = None if how.policy is None and how.must_meet_floors else costs_at_most
    if setting.config.pins_layout:
        return _steady(problem, budget, most)
    scenarios = _scenarios(setting, opening, problem, forecast, pools) if knows is Knows.FORECAST else None
    if how.policy is None:
        plan = solve(problem, how.engine, budget, running, options=how.options, floor_costs_at_most=most)
        return plan if how.engine not in (None, "physical") else held_to_floor(problem, plan, running, scenarios)
    begin_s = opening.window * setting.config.window_s + from_step * setting.config.step_s
    window = Window(
        number=opening.window,
        problem=problem,
        budget=budget,
        past_rps=opening.past_rps if how.arrived_rps is None else how.arrived_rps(begin_s),
        plans=opening.plans,
        as_published=how.as_published,
        running=running,
        scenarios=scenarios,
        floor_costs_at_most=costs_at_most,
    )
    return how.policy.plan(window)


def _steady(problem: Problem, budget: Budget, floor_costs_at_most: float | None) -> MigPlan:
    """One layout for the whole problem: of what stands, and more only where a tenant has nothing to serve with."""
    state, stands = problem.physical_initial, None
    if state is not None and state.next_epoch_step < problem.n_steps:
        stands = WindowFacts.of(problem).initial_held
    if stands is not None:
        held_sets = HeldSets.of(problem)
        among = [number for number in range(len(held_sets)) if {*stands} <= {*held_sets.entries(number)}]
        plan = solve_static_among(without_floors(problem), among)
        if plan.status.has_plan:
            return plan
    return solve(problem, "static", budget, floor_costs_at_most=floor_costs_at_most)


LATELY_S, APART_S = 600.0, 20.0
"""Seconds of the past from which arrivals that may come are cut, and from cut to cut."""


def _scenarios(
    setting: Setting, opening: Opening, problem: Problem, forecast: Forecast, pools: Sequence[PoolTerms]
) -> Scenarios | None:
    """What plans are held against, where the config asks for that: the forecast's paths, and cuts of the recent past.

    They reach to when the next plan may have changed what serves: the rest of the window is planned anew at its pace,
    and a change takes a warm-up. Known arrivals need none.
    """
    config = setting.config
    if not config.planner.burst_floor or forecast.method == HINDSIGHT:
        return None
    if problem.reconfiguration is not Reconfiguration.PHYSICAL:
        return None
    every_s, n_steps = config.replan_every_s, problem.n_steps
    if every_s is not None:
        n_steps = min(n_steps, math.ceil(every_s / config.step_s - 1e-9) + problem.epoch_steps)
    past_rps = opening.past_rps[-max(1, round(LATELY_S / config.step_s)) :]
    firsts = range(0, len(past_rps) - n_steps + 1, max(1, round(APART_S / config.step_s)))
    cuts = [past_rps[first : first + n_steps] for first in firsts]
    return Scenarios(np.stack([*forecast.paths_rps[:, :n_steps], *cuts]), slacks_s(setting.known_tenants, pools))


def _checked(problem: Problem, plan: MigPlan, window: int, from_step: int, forecast: Forecast) -> PlannedWindow:
    """The plan if it keeps every rule, floors of in-time answers aside.

    Else the one that changes nothing, or where nothing is there, a fixed layout.
    """
    verification = verify(problem, plan) if plan.status.has_plan else None
    rejected = plan if verification is not None and verification.broken_rules else None
    plan = kept_plan(problem, plan) if verification is None or rejected else with_proof(plan, verification)
    if rejected is not None and problem.initial is None:
        plan = replace(plan, lifetimes=_fixed_layout(problem))
    return PlannedWindow(window, from_step, forecast, problem, plan, verification, rejected)


def require_plan(planned: PlannedWindow) -> None:
    """Refuse a window without a plan of its own.

    Raises:
        InfeasibleError: Naming the tenant and the rule, that the solver found nothing in its budget, or the
            rule that its plan breaks.
    """
    if planned.is_planned:
        return
    if planned.rejected is not None and planned.verification is not None:
        broken = planned.verification.broken_rules[0]
        raise InfeasibleError(f"window {planned.window}: the plan breaks a rule: {broken}")
    reason: object = planned.plan.infeasibility
    if reason is None:
        status = f"no plan within the budget ({planned.plan.status})"
        reason = none_found(planned.plan) if planned.plan.missed else status
    raise InfeasibleError(f"window {planned.window}: {reason}{_of_which_pools(planned)}")


def _of_which_pools(planned: PlannedWindow) -> str:
    """Where the plan chooses who shares and no way got one: the way of which it is said, and how many were tried."""
    if not planned.judged or planned.judged[0].worth is not None:
        return ""
    groups = map("+".join, planned.judged[0].named(planned.problem.tenant_names))
    return f"; this is with the pools {', '.join(groups)}; none of {len(planned.judged)} ways got a plan in a short try"


def none_found(plan: MigPlan) -> str:
    """Why an answer without plan and without a reason is none, in words."""
    if not plan.missed:
        return f"engine {plan.engine} found no plan; that does not prove that there is none"
    nearest = "; ".join(plan.missed)
    return (
        f"engine {plan.engine} found no plan that keeps every floor of in-time answers, which does not prove that "
        f"there is none; the nearest: {nearest}"
    )


def _fixed_layout(problem: Problem) -> tuple[Lifetime, ...]:
    """One layout for the whole of a ``physical`` window in which nothing is there yet: engine ``static``'s.

    No retraining runs beside it. Empty where the tenants do not fit, and in ``paper``, whose plans are not carried out.
    """
    tenants = tuple(replace(tenant, retraining_required=False) for tenant in problem.tenants)
    return tuple(item for item in solve(replace(problem, tenants=tenants), "static").lifetimes if item.is_inference)


def kept_plan(problem: Problem, plan: MigPlan) -> MigPlan:
    """The plan that changes nothing: what a failed solve, or a plan that breaks a rule, leaves in force."""
    state = problem.physical_initial or PhysicalState()
    lifetimes = tuple(
        Lifetime(item.placement, Owner(item.tenant, Task.INFERENCE, item.others), 0, item.serve_step, problem.n_steps)
        for item in state.held
    )
    return MigPlan(
        status=Status.TIMEOUT if plan.status.has_plan else plan.status,
        objective=None,
        claimed_bound=plan.claimed_bound,
        solve_s=plan.solve_s,
        load_s=plan.load_s,
        engine=plan.engine,
        reconfiguration=plan.reconfiguration,
        n_steps=problem.n_steps,
        lifetimes=lifetimes,
        next_epoch_step=state.next_epoch_step,
        infeasibility=plan.infeasibility,
        missed=() if plan.status.has_plan else plan.missed,
        work=plan.work,
    )
