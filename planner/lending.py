"""What all tenants of a problem with one layout hold, step by step, and which of it may be lent to retrainings.

The layout is there from the first step at which it can be: at once where the first layout is free, else from the first
epoch on. What exists already stays. A loan takes an instance from every tenant from its ``serve_step`` to its end; its
trainer starts Ω_r steps before, beside the processes that serve. One runs at a time, the others go on with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from executor.mig import Placement
from planner.plan import Infeasibility, Lifetime, Rule
from planner.problem import Owner, Problem, Task, TenantTerms


def standing_lifetimes(problem: Problem) -> tuple[Lifetime, ...]:
    """All that inference holds in a problem with a layout, by create step, then placement: there is no choice."""
    n_steps, owner, first = problem.n_steps, problem.owner(0), problem.opening.next_epoch_step
    layout, found = {*problem.layout}, list[Lifetime]()
    kept = {placement: item.serve_step for (placement, _), item in problem.kept_at_start.items()}
    for placement, serve_step in kept.items():
        end_step = n_steps if placement in layout else min(first, n_steps)
        if end_step > 0:
            found.append(Lifetime(placement, owner, 0, serve_step, end_step))
    create_step = 0 if problem.initial is None else first
    if create_step < n_steps:
        warm_up = 0 if problem.initial is None else problem.warm_up_steps(problem.tenants[0])
        new = (placement for placement in problem.layout if placement not in kept)
        found += [Lifetime(place, owner, create_step, create_step + warm_up, n_steps) for place in new]
    return tuple(sorted(found, key=lambda item: (item.create_step, item.placement.sort_key)))


def loans_from(problem: Problem) -> int:
    """The first step in which a loan may begin: the layout serves all tenants, and no loan is left from before."""
    ready, standing = [run.end_step for run in problem.opening.retrainings], standing_lifetimes(problem)
    for item in standing:
        ready += [item.serve_step] if item.end_step == problem.n_steps else [item.end_step]
        if item.create_step == 0:
            ready += [problem.joins_at(item.placement, tenant) for tenant in problem.tenants]
    is_there = {item.placement for item in standing} >= {*problem.layout}
    return max(ready, default=0) if is_there else problem.n_steps


def may_be_lent(problem: Problem, placement: Placement) -> bool:
    """Whether the rest of the layout meets every tenant's ``min_profile``."""
    rest = [other.profile for other in problem.layout if other != placement]
    least = [problem.gpu.profile(tenant.min_profile) for tenant in problem.tenants]
    return all(any(profile.is_at_least(own) for profile in rest) for own in least)


def without_loans_on(problem: Problem, refused: Mapping[str, Container[str]]) -> Problem:
    """The problem in which no tenant retrains on the profiles that are refused to it; the same where none are."""
    if not any(name in own for own in refused.values() for name in {place.profile.name for place in problem.layout}):
        return problem
    tenants = (
        replace(
            tenant,
            options=tuple(
                replace(one, time_s={name: s for name, s in one.time_s.items() if name not in refused[tenant.name]})
                for one in tenant.options
            ),
        )
        for tenant in problem.tenants
    )
    return replace(problem, tenants=tuple(tenants))


def without_layout_for(problem: Problem) -> Iterator[Infeasibility]:
    """Why the layout alone shows that a problem with one has no plan."""
    for tenant in problem.tenants:
        rates, least = problem.capability_rps(tenant), problem.gpu.profile(tenant.min_profile)
        for placement in dict.fromkeys((*problem.layout, *(item.placement for item in standing_lifetimes(problem)))):
            if placement.profile.name not in rates:
                text = f"it would hold {placement}, and may be served on {', '.join(rates)}"
                yield Infeasibility(tenant.name, Rule.PROFILE, text)
        shown = ", ".join(map(str, problem.layout))
        if not any(placement.profile.is_at_least(least) for placement in problem.layout):
            text = f"the layout {shown} has nothing as large as min_profile {tenant.min_profile}"
            yield Infeasibility(tenant.name, Rule.MIN_PROFILE, text)
    if not all(
        problem.is_ours(item.placement, item.create_step, item.end_step) for item in standing_lifetimes(problem)
    ):
        yield Infeasibility(None, Rule.LAYOUT, "the layout lies on memory slices that are not ours")
    running = {run.tenant for run in problem.opening.retrainings}
    needed = [own for own in problem.tenants if own.must_retrain and own.name not in running]
    for tenant in needed:
        if _least_steps(problem, tenant) > problem.n_steps - loans_from(problem):
            shown = ", ".join(map(str, problem.layout))
            text = (
                f"its retraining fits no loan: of {shown}, none that it can run on leaves every tenant what it needs "
                f"for as long as it takes, from step {loans_from(problem)} to {problem.n_steps}"
            )
            yield Infeasibility(tenant.name, Rule.RETRAINING, text)
            return
    takes = {own.name: _least_steps(problem, own) for own in needed}
    if takes and sum(takes.values()) > problem.n_steps - loans_from(problem):
        longest = max(takes, key=lambda name: takes[name])
        text = "there is no time for all required retrainings one after the other"
        yield Infeasibility(longest, Rule.RETRAINING, text)


def _least_steps(problem: Problem, tenant: TenantTerms) -> float:
    """How long a loan for the tenant's retraining lasts at least; infinite where there is none."""
    steps = (
        problem.occupied_steps(tenant, option, placement.profile.name)
        for option in tenant.options
        for placement in problem.layout
        if placement.profile.name in option.time_s and may_be_lent(problem, placement)
    )
    return min(steps, default=math.inf)


def loan(problem: Problem, name: str, option: str, placement: Placement, start_step: int) -> Lifetime:
    """The loan of an instance to a tenant's retraining that begins to start up there."""
    tenant = problem.tenant(name)
    own = tenant.options[tenant.level_of(option) - 1]
    serve_step = start_step + problem.retraining_warm_up_steps(tenant)
    end_step = start_step + problem.occupied_steps(tenant, own, placement.profile.name)
    return Lifetime(placement, Owner(name, Task.RETRAINING), start_step, serve_step, end_step, option, lent=True)
