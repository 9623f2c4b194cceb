"""The retrainings beside one layout that stays, on loans of its instances: a dynamic program over steps and levels.

A state is the level of each tenant that may start a retraining. In each step either a loan begins (whose, by which
option, in which instance) or none does. As one runs at a time, that is all there is to decide, so the answer is the
best one for up to ``MOST_ACTORS`` such tenants, and ``MOST_STATES`` states. Beyond, those that are required and then
those with most to gain are chosen; in the bound the others have their best level in every step, for no loan.

What a tenant earns in a step goes by its own level and by what is lent. What taking weights over costs falls into the
steps after a loan's end. In those the next one has only begun to start up, so that the whole layout serves; what goes
on for longer than that is left out of the bound, and taken for what it would be without a next one in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from executor.compiled import working_s
from executor.mig import Placement
from planner.arrays import Floats, Int64s, sums_before
from planner.budget import Budget
from planner.course import column_of, courses
from planner.engines.answer import require_model
from planner.feasibility import infeasibility
from planner.gains import gain_tables
from planner.lending import loan, loans_from, may_be_lent, standing_lifetimes
from planner.levels import level_changes, levels_of, lowered, running_changes, shares_of, swap_shares
from planner.plan import (
    Certificate,
    Infeasibility,
    Lifetime,
    MigPlan,
    Rule,
    Status,
    salvage_of,
    with_plan,
    without_plan,
)
from planner.problem import GainTable, Owner, Problem, Reconfiguration, Task, TenantTerms

ENGINE = "physical"
"""The name in its plans, whichever engine was asked for: there is one layout, so nothing else is left to plan."""

MOST_ACTORS, MOST_STATES = 4, 256
"""Tenants whose levels are distinguished, and combinations of them."""


class _Loan(NamedTuple):
    """One way to lend: by its tenant's place among the actors, level and placement, with lengths in steps.

    ``worth`` is what the tenant itself earns by start, ``(n_steps + 1,)``, from there to its end, less what its swap
    takes after; −inf where it has no room.
    """

    actor: int
    level: int
    placement: Placement
    n_warming: int
    n_steps: int
    worth: Floats


class _Tables(NamedTuple):
    """What tenants earn by level and step, ``(n_levels, n_steps)`` each, with the whole layout, and by what is lent."""

    whole: list[Floats]
    lent: dict[Placement, list[Floats]]


def solve_lent(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best loans beside the problem's layout: no budget limits the search, and it starts from no plan.

    Raises:
        EngineError: The problem is ``paper``.
    """
    del budget, initial
    begun_s = working_s()
    require_model(problem, Reconfiguration.PHYSICAL, ENGINE)
    if (reason := infeasibility(problem)) is not None:
        return without_plan(problem, Status.INFEASIBLE, ENGINE, begun_s, infeasibility=reason)
    tables, may_start = _tables(problem), _may_start(problem)
    actors = _chosen(problem, tables, may_start)
    own = [problem.tenants[m] for m in actors]
    longest = max((len(swap_shares(problem, tenant)) for tenant in own), default=0)
    shortest = min(map(problem.retraining_warm_up_steps, own), default=0)
    value, loans = _best(problem, tables, actors, longest)
    if np.isneginf(value):
        needed = [tenant.name for tenant in problem.tenants if tenant.must_retrain]
        text = "there is no time for all required retrainings one after the other"
        reason = Infeasibility(needed[0], Rule.RETRAINING, text)
        if len(actors) == len(may_start):
            return without_plan(problem, Status.INFEASIBLE, ENGINE, begun_s, infeasibility=reason)
        return without_plan(problem, Status.TIMEOUT, ENGINE, begun_s)
    left, bound = frozenset(may_start) - frozenset(actors), value
    if left or longest > shortest:
        bound = _best(problem, _at_best(tables, left), actors, shortest, left)[0]
    held = [*standing_lifetimes(problem), *_running(problem), *loans]
    lifetimes = tuple(sorted(held, key=lambda item: (item.create_step, item.placement.sort_key, item.lent)))
    without = with_plan(problem, 0.0, math.inf, ENGINE, begun_s, lifetimes=lifetimes)
    goodput = (gain for course in courses(problem, without) for gain in course.goodput.tolist())
    worth = math.fsum([salvage_of(problem, (), lifetimes), *goodput])
    bound = worth if abs(bound - worth) <= 1e-9 * max(1.0, abs(worth)) else max(worth, bound)
    plan = with_plan(problem, worth, bound, ENGINE, begun_s, lifetimes=lifetimes, work=(("loans", len(loans)),))
    # What is held is given, so that the bound needs no prices.
    return replace(plan, certificate=Certificate((), np.zeros((problem.n_steps, 0))))


def _at_best(tables: _Tables, left: frozenset[int]) -> _Tables:
    """The tables as if these tenants had their best level in each step."""

    def best(own: Sequence[Floats]) -> list[Floats]:
        return [gains.max(axis=0, keepdims=True) if m in left else gains for m, gains in enumerate(own)]

    return _Tables(best(tables.whole), {place: best(own) for place, own in tables.lent.items()})


def _running(problem: Problem) -> list[Lifetime]:
    """What is left of the loan that was running when the window opened."""
    return [
        Lifetime(run.placement, Owner(run.tenant, Task.RETRAINING), 0, run.lent_from or 0, run.end_step, lent=True)
        for run in problem.opening.retrainings
    ]


def _may_start(problem: Problem) -> tuple[int, ...]:
    running = {run.tenant for run in problem.opening.retrainings}
    return tuple(m for m, own in enumerate(problem.tenants) if own.options and own.name not in running)


def _tables(problem: Problem) -> _Tables:
    """What each tenant earns; of one that was retraining when the window opened the course that it takes."""
    names, n_steps = problem.profile_names, problem.n_steps
    whole, lent = list[Floats](), {place: list[Floats]() for place in problem.layout if may_be_lent(problem, place)}
    for tenant, table in zip(problem.tenants, gain_tables(problem), strict=True):
        counts = np.zeros((n_steps, len(names)), dtype=np.int64)
        for item in standing_lifetimes(problem):
            since = max(item.serve_step, 0 if item.create_step else problem.joins_at(item.placement, tenant))
            if item.placement.profile.name in problem.capability_rps(tenant):
                counts[since : item.end_step, names.index(item.placement.profile.name)] += 1
        rest = {place: counts.copy() for place in lent}
        for place, own in rest.items():
            own[loans_from(problem) :, names.index(place.profile.name)] -= 1
        for run in problem.opening.retrainings:
            for own in (counts, *rest.values()):
                own[run.lent_from or 0 : run.end_step, names.index(run.placement.profile.name)] -= 1

        whole.append(_earned(problem, tenant, table, counts))
        for place, own in rest.items():
            lent[place].append(_earned(problem, tenant, table, own))
    return _Tables(whole, lent)


def _earned(problem: Problem, tenant: TenantTerms, table: GainTable, counts: Int64s) -> Floats:
    """What a tenant earns with what serves it, by level; of one that runs on a loan already there is one course."""
    at = np.arange(problem.n_steps)
    own: Floats = table.steady[:, at, column_of(problem, table, np.maximum(counts, 0))]
    for run in problem.opening.retrainings:
        if run.tenant == tenant.name:
            changes = running_changes(problem, tenant, run.placement.profile.name, run.end_step)
            shares = shares_of(changes, swap_shares(problem, tenant), problem.n_steps)
            return lowered(own[levels_of(changes, problem.n_steps), at], shares)[None]
    return own


def _chosen(problem: Problem, tables: _Tables, may_start: Sequence[int]) -> tuple[int, ...]:
    """The tenants whose levels are distinguished, ascending: those required first, then those with most to gain."""

    def rank(m: int) -> tuple[bool, float]:
        tenant, own = problem.tenants[m], tables.whole[m]
        rises = own[1 : 1 + len(tenant.options)].sum(axis=1) - own[0].sum()
        rises += np.array(tenant.salvages[1:]) - tenant.salvages[0]
        return not tenant.must_retrain, -float(rises.max())

    found, n_states = list[int](), 1
    for m in sorted(may_start, key=lambda m: (*rank(m), m)):
        n_levels = 1 + len(problem.tenants[m].options)
        if len(found) < MOST_ACTORS and n_states * n_levels <= MOST_STATES:
            found.append(m)
            n_states *= n_levels
    return tuple(sorted(found))


def _ways(problem: Problem, tables: _Tables, actors: Sequence[int], most_after: int) -> list[_Loan]:
    """All ways to lend, with what their tenants earn meanwhile, and lose in so many steps after at most."""
    n, found, first = problem.n_steps, list[_Loan](), loans_from(problem)
    for (actor, m), place in product(enumerate(actors), tables.lent):
        tenant, name = problem.tenants[m], place.profile.name
        n_warming, swap = problem.retraining_warm_up_steps(tenant), swap_shares(problem, tenant)
        for number, option in enumerate(tenant.options):
            if name not in option.time_s:
                continue
            level, n_held = 1 + number, problem.occupied_steps(tenant, option, name)
            changes = level_changes(problem, tenant, level, name)
            n_after = min(len(swap), most_after)
            levels = levels_of(changes, n_held + n_after)
            shares = shares_of(changes, swap, n_held + n_after)
            starts = np.arange(max(0, n - n_held + 1))
            worth = np.zeros(len(starts))
            for j in range(n_held + n_after):
                at = starts + j
                own = tables.lent[place] if n_warming <= j < n_held else tables.whole
                gains = own[m][levels[j], np.minimum(at, n - 1)]
                now = lowered(gains, float(shares[j]))
                # After its end the level itself is the state's; here counts what taking weights over costs.
                worth += np.where(at < n, now if j < n_held else now - gains, 0.0)
            by_start = np.full(n + 1, -np.inf)
            by_start[first : len(starts)] = worth[first:]
            found.append(_Loan(actor, level, place, n_warming, n_held, by_start))
    return found


def _best(
    problem: Problem, tables: _Tables, actors: Sequence[int], most_after: int, left: frozenset[int] = frozenset()
) -> tuple[float, list[Lifetime]]:
    """The most that can be earned, and the loans of it; those ``left`` have their best levels for nothing."""
    n, tenants = problem.n_steps, problem.tenants
    states = [*product(*(range(1 + len(tenants[m].options)) for m in actors))]
    number = {state: place for place, state in enumerate(states)}
    after = _levels_after(problem, actors)
    names = [*tables.lent]

    def summed(own: Sequence[Floats]) -> Floats:
        """What all earn by state in the steps before each, ``(n_states, n_steps + 1)``."""
        fixed = sum((own[m][0] for m in range(len(tenants)) if m not in actors), np.zeros(n))
        of_states = ([own[m][after[m][level]] for m, level in zip(actors, state, strict=True)] for state in states)
        return sums_before(np.stack([fixed + sum(rows, np.zeros(n)) for rows in of_states]), axis=1)

    whole, lent = summed(tables.whole), {place: summed(tables.lent[place]) for place in names}
    ways = _ways(problem, tables, actors, most_after)
    alone = {m: sums_before(tables.whole[m], axis=1) for m in actors}
    alone_lent = {(m, place): sums_before(tables.lent[place][m], axis=1) for m in actors for place in names}
    moves = [
        (way, number[state], number[(*state[: way.actor], way.level, *state[way.actor + 1 :])])
        for way in ways
        for state in states
        if state[way.actor] == 0
    ]
    value, chosen = np.full((n + 1, len(states)), -np.inf), np.full((n, len(states)), -1, dtype=np.int64)
    value[n] = _beyond(problem, actors, states, left)
    # What a loan earns by start: all others by its state, and its own tenant's course.
    earned = np.full((len(moves), n), -np.inf)
    for row, (way, source, _) in enumerate(moves):
        m, starts = actors[way.actor], np.arange(max(0, n - way.n_steps + 1))
        serve, end = starts + way.n_warming, starts + way.n_steps
        others = whole[source] - alone[m][0]
        others_lent = lent[way.placement][source] - alone_lent[m, way.placement][0]
        both = others[serve] - others[starts] + others_lent[end] - others_lent[serve]
        earned[row, : len(starts)] = both + way.worth[: len(starts)]
    table = [(way.n_steps, source, target) for way, source, target in moves]
    lengths, sources, targets = np.array(table, dtype=np.int64).reshape(-1, 3).T
    for s in range(n - 1, -1, -1):
        value[s] = value[s + 1] + whole[:, s + 1] - whole[:, s]
        worth = earned[:, s] + value[np.minimum(s + lengths, n), targets]
        for row in np.flatnonzero(worth > value[s, sources]).tolist():
            if worth[row] > value[s, sources[row]]:
                value[s, sources[row]], chosen[s, sources[row]] = worth[row], row
    found, s, state_at = list[Lifetime](), 0, 0
    while s < n and not np.isneginf(value[0, 0]):
        row = int(chosen[s, state_at])
        if row < 0:
            s += 1
            continue
        way, _, state_at = moves[row]
        own_tenant = tenants[actors[way.actor]]
        found.append(loan(problem, own_tenant.name, own_tenant.options[way.level - 1].name, way.placement, s))
        s += way.n_steps
    return float(value[0, 0]), found


def _beyond(problem: Problem, actors: Sequence[int], states: Sequence[tuple[int, ...]], left: frozenset[int]) -> Floats:
    """All tenants' salvage by the state at the end, ``(n_states,)``; −inf where a required retraining is missing."""
    tenants, running = problem.tenants, {run.tenant for run in problem.opening.retrainings}
    others = [m for m in range(len(tenants)) if m not in actors and m not in left]
    fixed = sum(max(tenants[m].salvages) for m in left)
    fixed += sum(tenants[m].salvages[1 if tenants[m].name in running else 0] for m in others)
    if any(tenants[m].must_retrain and tenants[m].name not in running for m in others):
        return np.full(len(states), -np.inf)

    def worth(state: tuple[int, ...]) -> float:
        own = [(tenants[m], level) for m, level in zip(actors, state, strict=True)]
        is_missing = any(tenant.must_retrain and not level for tenant, level in own)
        return -math.inf if is_missing else fixed + sum(tenant.salvages[level] for tenant, level in own)

    return np.array([*map(worth, states)])


def _levels_after(problem: Problem, actors: Sequence[int]) -> dict[int, list[int]]:
    """By actor, the level of its gains for each level of its state: where a last checkpoint is better than the end."""
    found = dict[int, list[int]]()
    for m in actors:
        tenant = problem.tenants[m]
        found[m] = [0]
        for level, option in enumerate(tenant.options, start=1):
            kept = tenant.kept_checkpoints(level)
            found[m].append(kept[-1][0] if kept and option.accuracy_after <= kept[-1][1].accuracy else level)
    return found
