"""A window's problem, from what is seen and forecast, the state that it begins in, and what starts have taken.

Nothing looks ahead: a start counts once its worker is ready. Beside what was measured stand changes of one to three
instances by documented times, so that a run begins with those and no single start decides.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple, assert_never

import numpy as np

from executor.mig import GpuModel, Placement
from forecaster.forecast import Forecast
from migrator.config.sections import Config, FloorConfig
from migrator.execution.foresight import forecast_from
from migrator.execution.models import DIGITS, salvage_of, unseen
from migrator.execution.windows import Opening
from migrator.inputs.estimates import Estimate, as_carried_out, as_estimated, estimate_of
from migrator.inputs.setting import Setting
from planner.build import (
    TYPICAL_INSTANCES,
    PoolTerms,
    WarmUps,
    WindowTerms,
    documented_warm_ups,
    pool_start_s,
    window_problem,
)
from planner.lending import without_loans_on
from planner.problem import (
    AttainmentFloor,
    HeldInstance,
    InitialState,
    Owner,
    PaperState,
    Per,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    Task,
)
from planner.replan import without_hopeless_retrainings
from planner.unavailable import Unavailable, unavailable_within
from workloads.arrays import FloatArray
from workloads.profiles.operating_point import point_of
from workloads.profiles.pool_points import JointPoint
from workloads.tenants import Tenant
from workloads.training import reached

DOCUMENTED = (TYPICAL_INSTANCES - 1, TYPICAL_INSTANCES, TYPICAL_INSTANCES + 1)
"""Instances of the changes that count as if they had been measured."""

LEVEL = 0.5
"""The quantile that plans are made with: as many starts take longer as take less."""

N_REMEMBERED = 20
"""Starts of a tenant's workers, or trainers, that count; older ones are forgotten."""


class Starts:
    """What starts have taken, by whose they were: from the beginning of their change until their worker was ready."""

    def __init__(self, config: Config, gpu: GpuModel, tenants: Sequence[Tenant]) -> None:
        """``tenants`` are as planning takes them for."""
        self._switch_s, self._step_s = config.planner.switch_s, config.step_s
        self._lends = bool(config.layout)
        self._tenants, self._names = tenants, [tenant.name for tenant in tenants]
        self._documented = [documented_warm_ups(gpu, tenants, n) for n in DOCUMENTED]
        remembered = partial(deque[float], maxlen=N_REMEMBERED)
        self._calls_s: deque[float] = deque(maxlen=N_REMEMBERED)
        self._starts_s: defaultdict[Owner, deque[float]] = defaultdict(remembered)
        self._totals_s: defaultdict[Owner, deque[float]] = defaultdict(remembered)

    def change_tenants(self, gpu: GpuModel, tenants: Sequence[Tenant]) -> None:
        """These are the tenants from now on; what starts have taken is remembered by name."""
        self._tenants, self._names = tenants, [tenant.name for tenant in tenants]
        self._documented = [documented_warm_ups(gpu, tenants, n) for n in DOCUMENTED]

    def add(self, owner: Owner, calls_s: float | None, start_s: float) -> None:
        """One more: its instance stood ``calls_s`` after its change began, and was ready ``start_s`` after that.

        ``None``: it stood before, as what is lent does.
        """
        self._starts_s[owner].append(start_s)
        if calls_s is not None:
            self._calls_s.append(calls_s)
            self._totals_s[owner].append(calls_s + start_s)

    @property
    def warm_ups(self) -> WarmUps:
        """What the next window is planned with; the sum of both parts is a quantile of the starts as a whole.

        Where the config says ``switch_s``, that counts, and the rest is a quantile of start-ups. Plans round up to
        whole steps. For workers that serve the sum is the nearest whole step, as they may as well be late as early. For
        trainers it is left: who ends late holds up others.
        """
        switch_s = self._switch_s
        if switch_s is None:
            switch_s = _quantile([*(one.switch_s for one in self._documented), *self._calls_s])
        return WarmUps(
            switch_s,
            tuple(self._start_s(Owner(name, Task.INFERENCE), switch_s) for name in self._names),
            tuple(self._start_s(Owner(name, Task.RETRAINING), switch_s) for name in self._names),
        )

    def _documented_s(self, owner: Owner) -> list[float]:
        """What starts take by documented times, by instances of the change: with all members' workers at once."""
        if owner.task is Task.RETRAINING:
            index = self._names.index(owner.tenant)
            return [one.training_start_s[index] for one in self._documented]
        starts = [tenant.worker_start for tenant in self._tenants if tenant.name in owner.members]
        return [max(start.planned_s(n * len(owner.members)) for start in starts) for n in DOCUMENTED]

    def _start_s(self, owner: Owner, switch_s: float) -> float:
        is_inference, own = owner.task is Task.INFERENCE, self._documented_s(owner)
        if self._switch_s is None and not (self._lends and not is_inference):
            documented_s = [one.switch_s + start_s for one, start_s in zip(self._documented, own, strict=True)]
            total_s = _quantile([*documented_s, *self._totals_s[owner]])
        else:
            total_s = switch_s + _quantile([*own, *self._starts_s[owner]])
        if is_inference:
            total_s = max(1, math.floor(total_s / self._step_s + 0.5)) * self._step_s
        return round(max(0.0, total_s - switch_s), DIGITS)


def _quantile(seconds: Sequence[float]) -> float:
    return round(float(np.quantile(seconds, LEVEL)), DIGITS)


def posed(
    setting: Setting,
    opening: Opening,
    state: PhysicalState | None,
    forecast: Forecast,
    reconfiguration: Reconfiguration = Reconfiguration.PHYSICAL,
    unavailable: Sequence[Unavailable] = (),
    pools: Sequence[PoolTerms] = (),
) -> Problem:
    """The problem of a window's steps from when its plan is there, with the arrivals of ``forecast``.

    The tenants of each of ``pools`` hold instances together.

    Of the window's retrainings it knows the estimates, the config's or the opening's, never the truth; of batches what
    :attr:`Setting.known_tenants` says. Without the opening's warm-ups, changes take what is documented of typical ones.
    ``unavailable`` are memory slices that others hold, in steps from the window's start; it may name steps beyond the
    window's end. A retraining that cannot be had beside them is not asked for.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    plan_from_step = plan_from_step_of(setting, opening, state)
    estimates, layout = estimates_of(setting, opening), setting.config.layout
    n_steps = forecast.mean_rps.shape[0] - plan_from_step
    state = None if state is None else pinned(setting, shifted(state, plan_from_step), n_steps)
    running = () if state is None else [run.tenant for run in state.retrainings]
    problem = window_problem(
        setting.gpu,
        [as_estimated(tenant, estimate) for tenant, estimate in zip(setting.known_tenants, estimates, strict=True)],
        _window_terms(setting, opening, estimates, forecast, running),
        forecast_from(forecast, plan_from_step),
        step_s=setting.config.step_s,
        initial=None if state is None else _initial(state, reconfiguration),
        warm_ups=warm_ups_of(setting, opening),
        reconfiguration=reconfiguration,
        unavailable=unavailable_within(unavailable, plan_from_step, n_steps),
        risk=setting.config.planner.risk,
        pools=pools,
        layout=layout,
    )
    if layout:
        lending = {placement.profile.name for placement in layout}
        refused = {
            own.name: {name for name in lending if not setting.may_lend(name, own.name)} for own in problem.tenants
        }
        problem = without_loans_on(problem, refused)
    is_short = problem.unavailable or (layout and state is not None)
    return without_hopeless_retrainings(problem) if is_short else problem


def pinned(setting: Setting, state: PhysicalState, n_steps: int) -> PhysicalState:
    """The state of a problem of so many steps, in none of which what is held may change where the layout is pinned.

    It may where a tenant has nothing to serve with.
    """
    served = {name for item in state.held for name in item.members}
    if not setting.config.pins_layout or served != {tenant.name for tenant in setting.tenants}:
        return state
    return replace(state, next_epoch_step=max(state.next_epoch_step, n_steps))


_FEW_PATHS = 4
"""Of a forecast's paths: those by which groups of tenants are judged that have the GPU to themselves."""


def posed_alone(
    setting: Setting, opening: Opening, forecast: Forecast, pool_of: Callable[[Sequence[int]], PoolTerms | None]
) -> Callable[[Sequence[int]], Problem | None]:
    """About a window's problem if only these tenants were there, several in one pool, and nothing stood.

    ``None`` where there is no such pool by ``pool_of``.
    """
    estimates, warm_ups = estimates_of(setting, opening), warm_ups_of(setting, opening)
    terms, few = _window_terms(setting, opening, estimates, forecast), forecast.paths_rps[:_FEW_PATHS]
    tenants = [as_estimated(*one) for one in zip(setting.known_tenants, estimates, strict=True)]

    def pose(members: Sequence[int]) -> Problem | None:
        chosen, pool = list(members), pool_of(members) if len(members) > 1 else None
        if len(members) > 1 and pool is None:
            return None
        own = replace(
            forecast,
            mean_rps=forecast.mean_rps[:, chosen],
            quantiles_rps=forecast.quantiles_rps[:, :, chosen],
            paths_rps=few[:, :, chosen],
        )
        start_s, training_start_s = (
            tuple(own_s[m] for m in chosen) for own_s in (warm_ups.start_s, warm_ups.training_start_s)
        )
        return window_problem(
            setting.gpu,
            [tenants[m] for m in chosen],
            [terms[m] for m in chosen],
            own,
            step_s=setting.config.step_s,
            initial=None,
            warm_ups=WarmUps(warm_ups.switch_s, start_s, training_start_s),
            pools=() if pool is None else (pool,),
        )

    return pose


def warm_ups_of(setting: Setting, opening: Opening) -> WarmUps:
    """How long changes take: as the opening has seen it, else as documented."""
    return opening.warm_ups or Starts(setting.config, setting.gpu, setting.known_tenants).warm_ups


def pools_terms(
    setting: Setting, warm_ups: WarmUps, mean_rps: FloatArray
) -> Callable[[Sequence[int]], PoolTerms | None]:
    """What comes of a pool of these tenants; ``None`` where no profile serves it, or none that is large enough.

    ``mean_rps`` are arrivals that are expected of all tenants, ``(n_tenants,)``. A turn takes no more of a member's
    requests than come while one may wait, so that who brings few is served in small batches, however busy the pool is.
    It pays the turn cost as often as it follows one of another member, if turns come in whatever order.
    """
    tenants = setting.known_tenants
    taken = {own.name: cache(partial(_taken, own, float(rps))) for own, rps in zip(tenants, mean_rps, strict=True)}

    @cache
    def terms(members: Sequence[int]) -> PoolTerms | None:
        names = tuple(tenants[m].name for m in members)
        found = setting.joint_points.of(names)
        if found.infeasible is not None:
            return None
        planned_rps = {
            profile: _planned_rps(own, {name: taken[name](own[name]) for name in names})
            for profile, own in found.by_member.items()
        }
        return terms_of(setting, Pool(names, planned_rps, pool_start_s(tenants, warm_ups, members)))

    return terms


def terms_of(setting: Setting, pool: Pool) -> PoolTerms:
    """A pool as problems have it, with how long its members' requests may wait."""
    points = setting.joint_points.of(pool.members).by_member
    slack_s = {name: {profile: own[name].slack_s for profile, own in points.items()} for name in pool.members}
    return PoolTerms(pool.members, pool.capability_rps, slack_s, pool.overhead_s)


class _Taken(NamedTuple):
    """A member's turns: ``per_s`` of them a second take all that it brings.

    ``filled`` is the rate of such turns as a share of that of full ones; above 0, ≤ 1.
    """

    filled: float
    per_s: float


def _taken(tenant: Tenant, mean_rps: float, point: JointPoint) -> _Taken:
    """Turns with what comes while a request may wait."""
    most = point.batch * point.processes
    n_taken = min(float(most), max(1.0, mean_rps * point.slack_s))
    latency = point_of(point.row, tenant.rows).latency.of_processes(point.processes, point.batch)
    low, part = math.floor(n_taken), n_taken - math.floor(n_taken)
    turn_s = latency.at(low) + (part * (latency.at(low + 1) - latency.at(low)) if part else 0.0)
    return _Taken(min(1.0, n_taken / turn_s / point.rate_rps), mean_rps / n_taken)


def _planned_rps(points: Mapping[str, JointPoint], taken: Mapping[str, _Taken]) -> dict[str, float]:
    """By member of a pool, the requests a second of its turns."""
    all_per_s = sum(one.per_s for one in taken.values())
    own_shares = {name: one.per_s / all_per_s if all_per_s else 0.0 for name, one in taken.items()}
    return {name: point.mixed_rps(own_shares[name]) * taken[name].filled for name, point in points.items()}


def plan_from_step_of(setting: Setting, opening: Opening, state: PhysicalState | None) -> int:
    """The step of its window from which on a plan is: 0 where nothing is there yet, or the plan was begun before."""
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
    setting: Setting,
    opening: Opening,
    estimates: Sequence[Estimate],
    forecast: Forecast,
    running: Container[str] = (),
) -> list[WindowTerms]:
    """What the window has for each tenant; one whose last retraining is ``running`` on a loan ends that first."""
    salvages = salvages_in(setting, opening, estimates, forecast)
    return [
        WindowTerms(
            accuracy_before=opening.accuracies[m],
            accuracy_after=estimates[m].accuracy_after,
            retrains=_is_offered(tenant, opening, m, estimates[m]) or tenant.name in running,
            floor=_floor(setting.config.tenants[m].min_slo_attainment),
            required=tenant.must_retrain_in(opening.window, opening.trained_last[m]),
            salvage=salvages[m],
        )
        for m, tenant in enumerate(setting.tenants)
    ]


def salvages_in(
    setting: Setting, opening: Opening, estimates: Sequence[Estimate], forecast: Forecast
) -> list[tuple[float, ...]]:
    """By tenant and level (as it is, then after each option), what its model is worth after the window.

    In weighted right answers, :func:`migrator.execution.models.salvage_of`; empty where plans do not count that.
    """
    config = setting.config
    known = opening.outlooks or [unseen(tenant, config, opening.window) for tenant in setting.tenants]
    found: list[tuple[float, ...]] = []
    for m, tenant in enumerate(setting.tenants):
        if not _is_offered(tenant, opening, m, estimates[m]) or not tenant.counts_salvage(config.retraining.salvage):
            found.append(())
            continue
        before, after = opening.accuracies[m], estimates[m].accuracy_after
        options = as_estimated(tenant, estimates[m]).options
        accuracies = [before, *(reached(before, after, option.gain) for option in options)]
        n_requests = float(forecast.mean_rps[:, m].mean()) * config.window_s
        found.append(tuple(salvage_of(known[m], n_requests, tenant.weight, accuracies)))
    return found


def offered_in(setting: Setting, opening: Opening) -> list[bool]:
    """By tenant, whether its accuracy, and the config, let the window retrain it."""
    both = zip(setting.tenants, opening.accuracies, strict=True)
    return [tenant.is_offered(opening.window, _lowest(opening, tenant, accuracy)) for tenant, accuracy in both]


def still_with_options(problem: Problem, planned: Problem) -> Problem:
    """The problem in which who was to be retrained by the one that was ``planned`` may be: perhaps that has begun."""
    both = zip(problem.tenants, planned.tenants, strict=True)
    tenants = tuple(
        replace(own, options=old.options, retraining_required=old.retraining_required, salvage=old.salvage)
        if old.options and not own.options
        else own
        for own, old in both
    )
    return replace(problem, tenants=tenants)


def offered_by_feedback(setting: Setting, opening: Opening) -> set[str]:
    """Who may be retrained as clients say so, and not for the accuracy that was measured."""
    both = zip(setting.tenants, opening.accuracies, offered_in(setting, opening), strict=True)
    return {own.name for own, accuracy, is_now in both if is_now and not own.is_offered(opening.window, accuracy)}


def _is_offered(tenant: Tenant, opening: Opening, m: int, estimate: Estimate) -> bool:
    """Whether the window may retrain it: its accuracy asks for that, and there is something to learn from."""
    known = _lowest(opening, tenant, opening.accuracies[m])
    return tenant.is_offered(opening.window, known) and bool(estimate.retraining_s)


def _lowest(opening: Opening, tenant: Tenant, accuracy: float) -> float:
    """The lower of the accuracy that was measured and that which clients tell, where they do."""
    return min(accuracy, opening.by_feedback.get(tenant.name, 1.0))


def _floor(config: FloorConfig | None) -> AttainmentFloor | None:
    return None if config is None else AttainmentFloor(config.share, Per(config.per))


def state_of(serving_from_s: Iterable[tuple[Placement, Owner, float]], start_s: float, step_s: float) -> PhysicalState:
    """What a window that begins at ``start_s`` starts from, by what is really there: placement, owner, readiness.

    Every retraining counts as over: the plan does not know of one that takes longer than estimated.
    """
    held = tuple(
        HeldInstance(placement, own.tenant, max(0, math.ceil((ready_s - start_s) / step_s - 1e-9)), own.others)
        for placement, own, ready_s in serving_from_s
    )
    return PhysicalState(held=held, next_epoch_step=max((item.serve_step for item in held), default=0))


def shifted(state: PhysicalState, n_steps: int) -> PhysicalState:
    """The same state in steps from ``n_steps`` later, when nothing was changed meanwhile; below 0, from earlier."""
    return PhysicalState(
        held=tuple(replace(item, serve_step=max(0, item.serve_step - n_steps)) for item in state.held),
        retrainings=tuple(
            replace(
                item,
                end_step=item.end_step - n_steps,
                lent_from=None if item.lent_from is None else max(0, item.lent_from - n_steps),
            )
            for item in state.retrainings
            if item.end_step > n_steps
        ),
        next_epoch_step=max(0, state.next_epoch_step - n_steps),
    )


def tenants_that_run(setting: Setting) -> dict[str, Tenant]:
    """The tenants by name as they are, their retrainings as long as they take."""
    errors = setting.config.estimates
    return {tenant.name: as_carried_out(errors, setting.gpu, tenant) for tenant in setting.tenants}
