"""Who the tenants are, from a moment on, and what of a window is left as some come and others go.

Inside a plan arrays keep an order, that of the setting's tenants. What outlives a window goes by name.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

import numpy as np

from executor.mig import OwnedLayout
from forecaster.forecast import QUANTILE_LEVELS, Forecast
from migrator.execution.changes import Change
from migrator.execution.foresight import rates_before_step
from migrator.execution.models import Lessons, Models, unseen
from migrator.execution.posing import pools_terms, posed, warm_ups_of
from migrator.execution.windows import Opening, PlannedWindow
from migrator.inputs.estimates import Estimate
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import Traffic
from planner.plan import Lifetime
from planner.problem import HeldInstance, Owner, PhysicalState, TenantTerms


@dataclass(frozen=True, eq=False)
class Tenancy:
    """The tenants from a moment of the run on.

    Attributes:
        from_s: When it begins, > 0: its setting has who is there as the run begins.
        setting: What the run is about from then on: all but the tenants is as before.
        traffic: Their arrivals, with all of their past.
        begins: What else is done as it begins, before all else.
    """

    from_s: float
    setting: Setting
    traffic: Traffic
    begins: Callable[[], object] = lambda: None


def reopened(
    opening: Opening, before: Setting, tenancy: Tenancy, models: Models, trained: Lessons, step: int
) -> Opening:
    """The window as it is seen at one of its steps with other tenants: of who stays it is known what was known.

    Of who comes nothing was measured for this window, and it learns nothing in it.
    """
    was, setting = {tenant.name: m for m, tenant in enumerate(before.tenants)}, tenancy.setting
    window, last, known = opening.window, opening.trained_last, opening.outlooks
    return replace(
        opening,
        past_rps=rates_before_step(setting, tenancy.traffic, window, step),
        accuracies=tuple(
            opening.accuracies[was[one.name]] if one.name in was else models.accuracies[one.name].newest
            for one in setting.tenants
        ),
        estimates=None
        if opening.estimates is None
        else tuple(
            opening.estimates[was[one.name]]
            if one.name in was
            else Estimate(models.accuracies[one.name].newest, {}, {})
            for one in setting.tenants
        ),
        plans=(),
        warm_ups=None,
        last_trained=tuple(
            last[was[one.name]] if one.name in was else max(trained.last(one.name), window - 1)
            for one in setting.tenants
        ),
        outlooks=tuple(
            known[was[one.name]] if known and one.name in was else unseen(one, setting.config, window)
            for one in setting.tenants
        ),
        ahead_steps=0,
    )


def with_tenants(setting: Setting, opening: Opening, planned: PlannedWindow, forecast: Forecast) -> PlannedWindow:
    """The window as if it had been planned for the setting's tenants; ``forecast`` is of its last steps.

    Who stays goes on as planned. Who comes holds nothing yet, and learns nothing in this window. Of who has gone
    nothing is left; pools keep the members that stay.

    Raises:
        ProblemError: The parts do not make a problem.
    """
    names, before = [tenant.name for tenant in setting.tenants], planned.problem
    whole = _padded(forecast, setting.config.n_steps)
    groups = [[names.index(name) for name in names if name in pool.members] for pool in before.pools]
    groups = [[*range(len(names))]] if before.layout else groups
    terms = pools_terms(setting, warm_ups_of(setting, opening), forecast.mean_rps.mean(axis=0))
    pools = tuple(pool for group in groups if len(group) > 1 and (pool := terms(tuple(group))) is not None)
    fresh = posed(setting, opening, None, whole, pools=pools)
    problem = replace(
        before,
        tenants=tuple(
            before.tenant(own.name) if own.name in before.tenant_names else _without_retraining(own, before.n_steps)
            for own in fresh.tenants
        ),
        initial=None if before.physical_initial is None else state_of_those(before.physical_initial, names),
        gains=None,
        pools=fresh.pools,
    )
    plan = replace(planned.plan, lifetimes=tuple(_of_those(planned.plan.lifetimes, names)), certificate=None)
    return replace(planned, forecast=whole, problem=problem, plan=plan, pools=pools, judged=())


def state_of_those(state: PhysicalState, names: Container[str]) -> PhysicalState:
    """The state without what others held; what they shared is held by the members that are among these."""
    held = (
        HeldInstance(item.placement, members[0], item.serve_step, tuple(members[1:]))
        for item in state.held
        if (members := [name for name in item.members if name in names])
    )
    retrainings = tuple(item for item in state.retrainings if item.tenant in names)
    return replace(state, held=tuple(held), retrainings=retrainings)


def _of_those(lifetimes: Iterable[Lifetime], names: Container[str]) -> Iterable[Lifetime]:
    for item in lifetimes:
        if members := [name for name in item.owner.members if name in names]:
            yield replace(item, owner=Owner(members[0], item.owner.task, tuple(members[1:])))


def change_of_those(change: Change, names: Container[str]) -> Change:
    """The change without what it would have others hold, or be lent."""
    held = (
        (placement, Owner(members[0], owner.task, tuple(members[1:])))
        for placement, owner in change.layout.entries
        if (members := [name for name in owner.members if name in names])
    )
    return replace(
        change,
        layout=OwnedLayout.of(held),
        lent=tuple((placement, owner) for placement, owner in change.lent if owner.tenant in names),
        loans=tuple(loan for loan in change.loans if loan.owner.tenant in names),
    )


def _without_retraining(own: TenantTerms, n_steps: int) -> TenantTerms:
    """The tenant in the window's last steps."""
    return replace(own, arrivals_rps=own.arrivals_rps[-n_steps:], options=(), retraining_required=False, salvage=())


def _padded(forecast: Forecast, n_steps: int) -> Forecast:
    """The forecast as one of a whole window, of whose steps before nothing was expected."""
    n_paths, n_known, n_tenants = forecast.paths_rps.shape
    nothing = np.zeros((n_steps - n_known, n_tenants))
    levels, paths = (np.broadcast_to(nothing, (n, *nothing.shape)) for n in (len(QUANTILE_LEVELS), n_paths))
    return replace(
        forecast,
        mean_rps=np.concatenate([nothing, forecast.mean_rps]),
        quantiles_rps=np.concatenate([levels, forecast.quantiles_rps], axis=1),
        paths_rps=np.concatenate([paths, forecast.paths_rps], axis=1),
    )
