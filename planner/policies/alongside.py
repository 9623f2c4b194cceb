"""What a plan holds and what it retrains alongside, in the form in which a policy goes on from it."""

from __future__ import annotations

from collections.abc import Iterator

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries
from planner.engines.schedule import PlacedSchedule, WindowFacts
from planner.plan import MigPlan
from planner.problem import Problem, Retraining, Task

Occupied = PlacedSchedule[Placement]
"""Retrainings with where they sit."""


def initial_held(terms: WindowFacts) -> Entries | None:
    """What inference holds when the window opens; ``None`` without an initial state."""
    if terms.is_free:
        return None
    names = terms.problem.tenant_names
    return frozenset((item.placement, names.index(item.tenant)) for item in terms.state.held)


def retrainings_of(problem: Problem, plan: MigPlan) -> Iterator[tuple[Retraining, Placement]]:
    """The retrainings that the plan starts."""
    for item in plan.lifetimes:
        if item.owner.task is Task.RETRAINING and item.option is not None:
            tenant = problem.tenant_names.index(item.owner.tenant)
            level = 1 + [option.name for option in problem.tenants[tenant].options].index(item.option)
            run = Retraining(tenant, level, item.placement.profile.name, item.create_step, item.end_step)
            yield run, item.placement


def held_by(terms: WindowFacts, plan: MigPlan) -> Iterator[tuple[int, Entries]]:
    """(step, what inference holds from there on) of a plan; begins with the initial state's where there is one."""
    names = terms.problem.tenant_names
    inference = [item for item in plan.lifetimes if item.is_inference]
    last = initial_held(terms)
    if last is not None:
        yield 0, last
    edges = {edge for item in inference for edge in (item.create_step, item.end_step) if edge < plan.n_steps}
    for step in sorted(edges | {0}):
        alive = (item for item in inference if item.create_step <= step < item.end_step)
        held = frozenset((item.placement, names.index(item.owner.tenant)) for item in alive)
        if held != last:
            yield step, held
        last = held
