"""``physical``: held sets and placed retrainings as lifetimes, read back from them, and what lifetimes are worth.

The objective is recomputed here from the lifetimes alone, step by step, by code that shares nothing
with the path that found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from executor.mig import Placement
from planner.counts import large_enough_profiles
from planner.engines.answer import with_plan
from planner.engines.arrays import Floats, Int64s
from planner.engines.physical.held_sets import Entries, Held
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path import Path
from planner.engines.schedule import TOLERANCE, PlacedSchedule, WindowFacts, above
from planner.levels import LevelChange, level_changes, levels_of, lowered, running_changes, shares_of, swap_shares
from planner.plan import Lifetime, MigPlan, salvage_of
from planner.problem import Owner, Problem, Retraining, Task, TenantTerms


def held_along(path: Path, nodes: Nodes) -> Held:
    """What is held along a path."""
    return tuple((step, nodes.sets.entries(node)) for step, node in path.held)


def with_held(
    facts: WindowFacts,
    held: Held,
    placed: PlacedSchedule[Placement],
    bound: float,
    engine: str,
    started_s: float,
    work: tuple[tuple[str, int], ...] = (),
) -> MigPlan:
    """The plan that holds these sets beside these retrainings, valued anew.

    Args:
        facts: The problem.
        held: What inference holds.
        placed: The retrainings that start in the window, with their placements.
        bound: What no plan exceeds.
        engine: Who made it.
        started_s: When the solve began, on ``executor.compiled.working_s``.
        work: What was done for it.
    """
    found = lifetimes(facts, held, placed)
    value = objective(facts, found)
    return with_plan(
        facts.problem,
        value,
        value if bound <= above(value) else bound,  # values are sums in different orders
        engine,
        started_s,
        lifetimes=found,
        next_epoch_step=next_epoch_step(facts, held),
        work=work,
    )


def tidied(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> Held:
    """What may be held instead with fewer changes, worth as much beside these retrainings or more.

    Among plans of one value an engine takes any. Here an epoch is left out if what was held before it, or what comes
    after the next one, does as well in its place. What an epoch drops is kept if it may stand until an epoch that wants
    it back, or to the window's end, where the next window finds it. Each step is taken only if the value, worked out
    anew, is not lower.
    """
    least = objective(facts, lifetimes(facts, held, placed))
    least -= TOLERANCE * abs(least)
    last: Held | None = None
    while held != last:
        last = held
        for number in reversed(range(1, len(last))):
            held = _tidied_at(facts, held, placed, number, least)
    return held


def _tidied_at(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement], number: int, least: float) -> Held:
    """The same of one epoch, and of those that take its place."""
    found: Held | None = held
    while found is not None:
        held = found
        others = _simpler(held, number) if number < len(held) else ()
        found = next((other for other in others if _is_worth(facts, other, placed, least)), None)
    return held


def _simpler(held: Held, number: int) -> Iterator[Held]:
    """Ways to hold less differently around an epoch."""
    yield _merged((*held[:number], *held[number + 1 :]))  # what was held before it lasts on
    if number + 1 < len(held):  # what the next one asks for comes at once
        yield _merged((*held[:number], (held[number][0], held[number + 1][1]), *held[number + 2 :]))
    for entry in sorted(held[number - 1][1] - held[number][1], key=lambda entry: entry[0].sort_key):
        back = next((later for later in range(number, len(held)) if entry in held[later][1]), len(held))
        kept = ((step, entries | {entry}) for step, entries in held[number:back])
        yield _merged((*held[:number], *kept, *held[back:]))


def _merged(held: Held) -> Held:
    """Without epochs at which nothing changes."""
    return (held[0], *(now for last, now in pairwise(held) if now[1] != last[1]))


def _may_hold(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> bool:
    """Whether each set, while it is held, serves everybody and leaves retrainings, and what is not ours, alone."""
    enough = [set(large_enough_profiles(facts.problem, tenant)) for tenant in facts.problem.tenants]
    runs, ends = (*facts.running, *placed), (*(step for step, _ in held[1:]), facts.n_steps)
    for (step, entries), end in zip(held, ends, strict=True):
        if step == end:  # the initial state's, where the window opens with an epoch
            continue
        if not all(any(m == n and p.profile in some for p, n in entries) for m, some in enumerate(enough)):
            return False  # an initial state need not be a held set
        own = [placement for placement, _ in entries]
        moments = {step, *(run.start_step for run, _ in runs if step < run.start_step < end)}
        busy = {tuple(place for run, place in runs if run.start_step <= at < run.end_step) for at in moments}
        if not all(facts.problem.gpu.fits([*own, *places]) for places in busy):
            return False
        if not all(facts.problem.is_ours(placement, step, end) for placement in own):
            return False
    return True


def _is_worth(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement], least: float) -> bool:
    """Whether this may be held, and is worth ``least``."""
    return _may_hold(facts, held, placed) and objective(facts, lifetimes(facts, held, placed)) >= least


def lifetimes(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> tuple[Lifetime, ...]:
    """Everything that the plan holds, by create step, then placement; what never exists in a step is left out."""
    found = [*_inference(facts, held), *_started(facts, placed), *_continued(facts)]
    return tuple(sorted(found, key=lambda item: (item.create_step, item.placement.sort_key)))


def held_in(facts: WindowFacts, plan: MigPlan) -> Iterator[tuple[int, Entries]]:
    """(step, what inference holds from there on) of a plan; begins with the initial state's where there is one."""
    names = facts.problem.tenant_names
    inference = [item for item in plan.lifetimes if item.is_inference]
    last = facts.initial_held
    if last is not None:
        yield 0, last
    edges = {edge for item in inference for edge in (item.create_step, item.end_step) if edge < plan.n_steps}
    for step in sorted(edges | {0}):
        alive = (item for item in inference if item.create_step <= step < item.end_step)
        held = frozenset((item.placement, names.index(item.owner.tenant)) for item in alive)
        if held != last:
            yield step, held
        last = held


def retrainings_in(problem: Problem, plan: MigPlan) -> PlacedSchedule[Placement]:
    """The retrainings that a plan starts, by tenant, without those that this problem does not know."""
    names, found = problem.tenant_names, []
    for item in plan.lifetimes:
        if item.owner.task is Task.RETRAINING and item.option is not None and item.owner.tenant in names:
            tenant = names.index(item.owner.tenant)
            options = [option.name for option in problem.tenants[tenant].options]
            if item.option in options:
                level, name = options.index(item.option) + 1, item.placement.profile.name
                found.append((Retraining(tenant, level, name, item.create_step, item.end_step), item.placement))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def next_epoch_step(facts: WindowFacts, held: Held) -> int:
    """First step at which a following window may change the held set, counted from this window's start."""
    last_epoch = max((step + facts.epoch_steps for step, _ in held[1:]), default=0)
    return max(last_epoch, facts.state.next_epoch_step)


def objective(facts: WindowFacts, found: Iterable[Lifetime]) -> float:
    """Goodput and salvage in requests of the lifetimes, by the gain tables."""
    problem, items = facts.problem, tuple(found)
    values: list[float] = []
    for tenant, table in zip(problem.tenants, facts.gains, strict=True):
        own = [item for item in items if item.owner.tenant == tenant.name]
        inference = [item for item in own if item.is_inference]
        levels, shares = _course(facts, tenant, [item for item in own if not item.is_inference])
        borders = {edge for item in own for edge in (item.serve_step, item.end_step) if 0 < edge < problem.n_steps}
        for step, until in pairwise(sorted({0, problem.n_steps} | borders)):
            names = [i.placement.profile.name for i in inference if i.serve_step <= step < i.end_step]
            column = table.column[tuple(names.count(name) for name in problem.profile_names)]
            earned = table.steady[levels[step:until], np.arange(step, until), column]
            values += lowered(earned, shares[step:until]).tolist()
    return math.fsum([*values, salvage_of(problem, (), items)])


def _course(facts: WindowFacts, tenant: TenantTerms, runs: Sequence[Lifetime]) -> tuple[Int64s, Floats]:
    """The tenant's level in each step, and what taking weights over leaves of its gains, ``(n_steps,)`` each."""
    problem = facts.problem
    changes: tuple[LevelChange, ...] = ()
    numbers = {option.name: level for level, option in enumerate(tenant.options, start=1)}
    for run in runs:
        name = run.placement.profile.name
        if run.option is None:  # in progress when the window opened: always the first option
            changes = running_changes(problem, tenant, name, run.end_step)
        else:
            own = level_changes(problem, tenant, numbers[run.option], name)
            changes = tuple((run.create_step + step, level) for step, level in own)
    n_steps = problem.n_steps
    return levels_of(changes, n_steps), shares_of(changes, swap_shares(problem, tenant), n_steps)


def _inference(facts: WindowFacts, held: Held) -> Iterable[Lifetime]:
    names = facts.problem.tenant_names
    serves_from = {(item.placement, names.index(item.tenant)): item.serve_step for item in facts.state.held}
    alive = {entry: (0, serves_from.get(entry, 0)) for entry in held[0][1]}
    for step, entries in held[1:]:
        for entry in alive.keys() - entries:
            yield from _lifetime(facts, entry, alive.pop(entry), step)
        for entry in entries - alive.keys():
            alive[entry] = (step, step + int(facts.warm_steps[entry[1]]))
    for entry, begin in alive.items():
        yield from _lifetime(facts, entry, begin, facts.n_steps)


def _lifetime(facts: WindowFacts, entry: tuple[Placement, int], begin: tuple[int, int], end: int) -> Iterable[Lifetime]:
    placement, tenant = entry
    if begin[0] < end:
        yield Lifetime(placement, Owner(facts.problem.tenant_names[tenant], Task.INFERENCE), *begin, end)


def _started(facts: WindowFacts, placed: PlacedSchedule[Placement]) -> Iterable[Lifetime]:
    for retraining, placement in placed:
        tenant = facts.problem.tenants[retraining.tenant]
        serve = retraining.start_step + facts.problem.retraining_warm_up_steps(tenant)
        yield Lifetime(
            placement,
            Owner(tenant.name, Task.RETRAINING),
            retraining.start_step,
            serve,
            retraining.end_step,
            tenant.options[retraining.level - 1].name,
        )


def _continued(facts: WindowFacts) -> Iterable[Lifetime]:
    for retraining, placement in facts.running:
        tenant = facts.problem.tenants[retraining.tenant]
        yield Lifetime(placement, Owner(tenant.name, Task.RETRAINING), 0, 0, retraining.end_step)
