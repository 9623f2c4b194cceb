"""``physical``: held sets and placed retrainings as lifetimes, read back from them, and what lifetimes are worth.

The objective is recomputed from the lifetimes alone, step by step, by code that shares nothing with the path that
found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from executor.mig import Placement
from planner.arrays import Floats
from planner.by_hand import inference, retraining
from planner.counts import large_enough_profiles
from planner.course import Course, held_by_step
from planner.engines.physical.held_sets import Entry, Held
from planner.engines.physical.nodes import Nodes
from planner.engines.physical.path import Path
from planner.engines.schedule import PlacedSchedule, WindowFacts, above
from planner.engines.ties import reserve
from planner.plan import Lifetime, MigPlan, salvage_of, with_plan
from planner.problem import Owner, Problem, Retraining, Task


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
        work=work,
    )


def tidied(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> Held:
    """What may be held instead with fewer changes, worth as much beside these retrainings or more.

    Among plans of one value a search takes any. Here an epoch is left out if what was held before it, or what comes
    after the next one, does as well in its place. What an epoch drops is kept if it may stay until an epoch that wants
    it back, or to the window's end, where the next window finds it. Each step is taken only if neither the value,
    worked out anew, nor what is held in reserve (``ties``) is lower.
    """
    least = worth(facts, held, placed)
    last: Held | None = None
    while held != last:
        last, number = held, len(held) - 1
        while number > 0:
            others = (other for other in _simpler(held, number) if may_hold(facts, other, placed))
            found = next((other for other in others if worth(facts, other, placed).is_as_good_as(least)), None)
            held, number = (held, number - 1) if found is None else (found, min(number, len(found) - 1))
    return held


class Worth(NamedTuple):
    """What a plan is worth.

    Attributes:
        objective: Goodput and salvage in requests.
        reserve: What its instances have in reserve (``ties``), which tells plans of one objective apart.
        goodput: Of the objective each tenant's goodput, ``(n_tenants,)``.
    """

    objective: float
    reserve: float
    goodput: Floats

    def is_as_good_as(self, other: Worth) -> bool:
        """Whether neither is lower."""
        return above(self.objective) >= other.objective and above(self.reserve) >= other.reserve


def worth(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> Worth:
    """What it is worth to hold these sets beside these retrainings."""
    problem, found = facts.problem, lifetimes(facts, held, placed)
    own = [*_courses(facts, found)]
    goodput = np.array([course.goodput.sum() for course in own])
    reserves = (reserve(problem, course.tenant, problem.step_s * course.capability_rps) for course in own)
    return Worth(_objective(facts, found, own), float(sum(map(np.sum, reserves))), goodput)


def _simpler(held: Held, number: int) -> Iterator[Held]:
    """Ways to hold less differently around an epoch."""
    yield merged((*held[:number], *held[number + 1 :]))  # what was held before it lasts on
    if number + 1 < len(held):  # what the next one asks for comes at once
        yield merged((*held[:number], (held[number][0], held[number + 1][1]), *held[number + 2 :]))
    for entry in sorted(held[number - 1][1] - held[number][1], key=lambda entry: entry[0].sort_key):
        back = next((later for later in range(number, len(held)) if entry in held[later][1]), len(held))
        kept = ((step, entries | {entry}) for step, entries in held[number:back])
        yield merged((*held[:number], *kept, *held[back:]))


def merged(held: Held) -> Held:
    """Without epochs at which nothing changes."""
    return (held[0], *(now for last, now in pairwise(held) if now[1] != last[1]))


def may_hold(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> bool:
    """Whether each set, while it is held, serves everybody and leaves retrainings, and what is not ours, alone."""
    problem = facts.problem
    needs = [set(large_enough_profiles(problem, tenant)) for tenant in problem.tenants]
    enough = [*zip(problem.holder_of, needs, strict=True)]
    runs, ends = (*facts.running, *placed), (*(step for step, _ in held[1:]), facts.n_steps)
    for (step, entries), end in zip(held, ends, strict=True):
        if step == end:  # the initial state's, where the window opens with an epoch
            continue
        if not all(any(m == n and p.profile in some for p, n in entries) for m, some in enough):
            return False  # an initial state need not be a held set
        own = [placement for placement, _ in entries]
        moments = {step, *(run.start_step for run, _ in runs if step < run.start_step < end)}
        busy = {tuple(place for run, place in runs if run.start_step <= at < run.end_step) for at in moments}
        if not all(problem.gpu.fits([*own, *places]) for places in busy):
            return False
        if not all(problem.is_ours(placement, step, end) for placement in own):
            return False
    return True


def lifetimes(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> tuple[Lifetime, ...]:
    """Everything that the plan holds, by create step, then placement; what never exists in a step is left out."""
    problem, tenants = facts.problem, facts.problem.tenants
    found = [*_inference(facts, held)]
    for run, place in placed:
        tenant = tenants[run.tenant]
        found.append(retraining(problem, tenant, place, run.start_step, tenant.options[run.level - 1].name))
    for run, place in facts.running:
        owner = Owner(tenants[run.tenant].name, Task.RETRAINING)
        found.append(Lifetime(place, owner, run.start_step, run.start_step, run.end_step))
    return tuple(sorted(found, key=lambda item: (item.create_step, item.placement.sort_key)))


def held_in(problem: Problem, plan: MigPlan) -> Held:
    """What inference holds in a plan; begins with the initial state's where there is one."""
    return tuple((step, frozenset(held)) for step, held in held_by_step(problem, plan.lifetimes))


def retrainings_in(problem: Problem, plan: MigPlan) -> PlacedSchedule[Placement]:
    """The retrainings that a plan starts, by tenant, without those that this problem does not know."""
    names, found = problem.tenant_names, []
    for item in plan.lifetimes:
        if item.owner.task is Task.RETRAINING and item.option is not None and item.owner.tenant in names:
            tenant = names.index(item.owner.tenant)
            if item.option in problem.tenants[tenant].ending_names[1:]:
                level, name = problem.tenants[tenant].level_of(item.option), item.placement.profile.name
                found.append((Retraining(tenant, level, name, item.create_step, item.end_step), item.placement))
    return tuple(sorted(found, key=lambda pair: pair[0]))


def objective(facts: WindowFacts, found: Sequence[Lifetime]) -> float:
    """Goodput and salvage in requests of the lifetimes, by the gain tables."""
    return _objective(facts, found, _courses(facts, found))


def _objective(facts: WindowFacts, found: Sequence[Lifetime], own: Iterable[Course]) -> float:
    goodput = chain.from_iterable(course.goodput.tolist() for course in own)
    return math.fsum((salvage_of(facts.problem, (), found), *goodput))


def _courses(facts: WindowFacts, found: Sequence[Lifetime]) -> Iterator[Course]:
    for tenant, table in zip(facts.problem.tenants, facts.gains, strict=True):
        own = [item for item in found if tenant.name in item.owner.members]
        yield Course(facts.problem, tenant, table, own)


def _inference(facts: WindowFacts, held: Held) -> Iterator[Lifetime]:
    problem = facts.problem
    alive = dict.fromkeys(held[0][1], 0)
    for step, entries in (*held[1:], (facts.n_steps, frozenset[Entry]())):
        for placement, holder in alive.keys() - entries:
            create_step = alive.pop((placement, holder))
            if create_step < step:
                first = problem.tenants[problem.partition[holder][0]]
                yield inference(problem, first, placement, create_step, step)
        alive |= dict.fromkeys(entries - alive.keys(), step)
