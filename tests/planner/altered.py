"""Plans of ``physical`` problems with something altered, at random: most break a rule, some keep all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.by_hand import inference
from planner.plan import Lifetime, MigPlan
from planner.problem import Owner, Problem, Task

Lifetimes = tuple[Lifetime, ...]


def altered(rng: np.random.Generator, problem: Problem, plan: MigPlan) -> MigPlan:
    """The plan after one alteration or two."""
    items = plan.lifetimes
    for _ in range(int(rng.integers(1, 3))):
        kind = ALTERATIONS[int(rng.integers(len(ALTERATIONS)))]
        items = kind(rng, problem, items) if items else items
    steps = plan.next_epoch_step if rng.random() < 0.95 else int(rng.integers(0, plan.next_epoch_step + 1))
    later = max([steps, *(item.create_step + problem.epoch_steps for item in items)])
    return replace(plan, lifetimes=items, next_epoch_step=steps if rng.random() < 0.1 else later)


def _with_one(rng: np.random.Generator, items: Lifetimes, change: Callable[[Lifetime], list[Lifetime]]) -> Lifetimes:
    at = int(rng.integers(len(items)))
    return (*items[:at], *change(items[at]), *items[at + 1 :])


def _shifted(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """One end of a lifetime, or all of it, is a step or two from where it was."""
    by = int(rng.choice([-2, -1, 1, 2]))
    shifts = [(by, by, by), (by, by, 0), (0, 0, by), (0, by, 0), (by, 0, 0)][int(rng.integers(5))]
    del problem

    def moved(item: Lifetime) -> list[Lifetime]:
        create, serve, end = (
            at + more for at, more in zip((item.create_step, item.serve_step, item.end_step), shifts, strict=True)
        )
        return [replace(item, create_step=create, serve_step=serve, end_step=end)]

    return _with_one(rng, items, moved)


def _epoch_moved(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """All that begins or ends at a step does so a step earlier or later."""
    edges = sorted({at for item in items for at in (item.create_step, item.end_step) if 0 < at < problem.n_steps})
    if not edges:
        return items
    step, by = edges[int(rng.integers(len(edges)))], int(rng.choice([-1, 1]))
    out = []
    for item in items:
        begins, ends = item.create_step == step, item.end_step == step
        serve = item.serve_step + by * begins
        out.append(
            replace(
                item, create_step=item.create_step + by * begins, serve_step=serve, end_step=item.end_step + by * ends
            )
        )
    return tuple(out)


def _of_others(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """Somebody else holds it: another pool, a tenant alone, or some that are no pool."""
    names = problem.tenant_names
    some = [name for name in names if rng.random() < 0.5] or [names[0]]
    owners = [problem.owner(holder).members for holder in range(len(problem.partition))]
    members = [*owners, *((name,) for name in names), tuple(some)][int(rng.integers(len(owners) + len(names) + 1))]

    def given(item: Lifetime) -> list[Lifetime]:
        return [replace(item, owner=Owner(members[0], item.owner.task, members[1:]))]

    return _with_one(rng, items, given)


def _elsewhere(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    places = problem.gpu.placements(problem.profile_names)
    place = places[int(rng.integers(len(places)))]
    return _with_one(rng, items, lambda item: [replace(item, placement=place)])


def _dropped(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    del problem
    return _with_one(rng, items, lambda _: [])


def _cut(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """It ends earlier, or ends and begins again."""
    is_back, step = rng.random() < 0.3, int(rng.integers(0, problem.n_steps + 1))

    def parts(item: Lifetime) -> list[Lifetime]:
        if not item.create_step < step < item.end_step:
            return [item]
        again = replace(item, create_step=step, serve_step=max(step, item.serve_step))
        return [replace(item, end_step=step), *([again] if is_back else [])]

    return _with_one(rng, items, parts)


def _lasting(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """It is there from the window's beginning, or to its end."""
    if rng.random() < 0.5:
        return _with_one(rng, items, lambda item: [replace(item, end_step=problem.n_steps)])
    return _with_one(rng, items, lambda item: [replace(item, create_step=0, serve_step=0)])


def _added(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """An instance more, mostly from a step with a change on."""
    places = problem.gpu.placements(problem.profile_names)
    place, tenant = places[int(rng.integers(len(places)))], problem.tenants[int(rng.integers(len(problem.tenants)))]
    edges = sorted({0, *(item.create_step for item in items), *(item.end_step for item in items)} - {problem.n_steps})
    step = edges[int(rng.integers(len(edges)))] if rng.random() < 0.8 else int(rng.integers(problem.n_steps))
    if step < 0:
        return items
    return (*items, inference(problem, tenant, place, step))


def _retrained_otherwise(rng: np.random.Generator, problem: Problem, items: Lifetimes) -> Lifetimes:
    """A retraining has another option or task."""
    runs = [n for n, item in enumerate(items) if not item.is_inference]
    if not runs:
        return items
    at = runs[int(rng.integers(len(runs)))]
    names = [None, "another", *(option.name for tenant in problem.tenants for option in tenant.options)]
    if rng.random() < 0.2:
        owner = problem.owner(problem.holder_of[problem.tenant_names.index(items[at].owner.tenant)])
        return (*items[:at], replace(items[at], owner=replace(owner, task=Task.INFERENCE)), *items[at + 1 :])
    return (*items[:at], replace(items[at], option=names[int(rng.integers(len(names)))]), *items[at + 1 :])


ALTERATIONS = (
    _shifted,
    _epoch_moved,
    _of_others,
    _elsewhere,
    _dropped,
    _cut,
    _lasting,
    _added,
    _added,
    _retrained_otherwise,
)
