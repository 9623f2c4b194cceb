"""``physical``: a path over held sets as lifetimes, and what lifetimes are worth.

The objective is recomputed here from the lifetimes alone, step by step, by code that shares nothing
with the program that found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from executor.mig import Placement
from planner.engines.physical.held_sets import Entries
from planner.engines.physical.nodes import PlacedNodes
from planner.engines.physical.path import Path
from planner.engines.schedule import Schedule, Terms
from planner.plan import Lifetime
from planner.problem import Owner, Task


def held_sets(nodes: PlacedNodes, path: Path) -> tuple[tuple[int, Entries], ...]:
    """(step, what is held from there on): the window's start, then every epoch."""
    changes = ((0, path.first_node), *path.epochs)
    return tuple((step, frozenset(nodes.entries(node))) for step, node in changes)


def lifetimes(
    terms: Terms, held: Sequence[tuple[int, Entries]], schedule: Schedule, places: Sequence[Placement]
) -> tuple[Lifetime, ...]:
    """Everything that the plan holds, by create step, then placement; what never exists in a step is left out."""
    found = [*_inference(terms, held), *_started(terms, schedule, places), *_continued(terms)]
    return tuple(sorted(found, key=lambda item: (item.create_step, item.placement.sort_key)))


def next_epoch_step(terms: Terms, held: Sequence[tuple[int, Entries]]) -> int:
    """First step at which a following window may change the held set, counted from this window's start."""
    last_epoch = max((step + terms.epoch_steps for step, _ in held[1:]), default=0)
    return max(last_epoch, terms.state.next_epoch_step)


def objective(terms: Terms, found: Iterable[Lifetime]) -> float:
    """Goodput in requests of the lifetimes, by the gain tables."""
    problem, items = terms.problem, tuple(found)
    values = []
    for tenant, table in zip(problem.tenants, terms.gains, strict=True):
        own = [item for item in items if item.owner.tenant == tenant.name]
        inference = [item for item in own if item.is_inference]
        training = [item for item in own if not item.is_inference]
        levels = {option.name: level for level, option in enumerate(tenant.options, start=1)}
        for step in range(problem.n_steps):
            # A retraining without an option's name was in progress: always the first option.
            level = max((levels[i.option] if i.option else 1 for i in training if i.end_step <= step), default=0)
            names = [i.placement.profile.name for i in inference if i.serve_step <= step < i.end_step]
            column = table.column[tuple(names.count(name) for name in problem.profile_names)]
            values.append(float(table.steady[level, step, column]))
    return math.fsum(values)


def _inference(terms: Terms, held: Sequence[tuple[int, Entries]]) -> Iterable[Lifetime]:
    names = terms.problem.tenant_names
    serves_from = {(item.placement, names.index(item.tenant)): item.serve_step for item in terms.state.held}
    alive = {entry: (0, serves_from.get(entry, 0)) for entry in held[0][1]}
    for step, entries in held[1:]:
        for entry in alive.keys() - entries:
            yield from _lifetime(terms, entry, alive.pop(entry), step)
        for entry in entries - alive.keys():
            alive[entry] = (step, step + int(terms.warm_steps[entry[1]]))
    for entry, begin in alive.items():
        yield from _lifetime(terms, entry, begin, terms.n_steps)


def _lifetime(terms: Terms, entry: tuple[Placement, int], begin: tuple[int, int], end: int) -> Iterable[Lifetime]:
    placement, tenant = entry
    if begin[0] < end:
        yield Lifetime(placement, Owner(terms.problem.tenant_names[tenant], Task.INFERENCE), *begin, end)


def _started(terms: Terms, schedule: Schedule, places: Sequence[Placement]) -> Iterable[Lifetime]:
    for training, placement in zip(schedule, places, strict=True):
        tenant = terms.problem.tenants[training.tenant]
        serve = training.start_step + terms.problem.retraining_warm_up_steps(tenant)
        yield Lifetime(
            placement,
            Owner(tenant.name, Task.RETRAINING),
            training.start_step,
            serve,
            training.end_step,
            tenant.options[training.level - 1].name,
        )


def _continued(terms: Terms) -> Iterable[Lifetime]:
    for training, placement in terms.running:
        tenant = terms.problem.tenants[training.tenant]
        yield Lifetime(placement, Owner(tenant.name, Task.RETRAINING), 0, 0, training.end_step)
