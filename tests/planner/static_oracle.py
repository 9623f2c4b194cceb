"""The best plan whose inference holdings never change, by trying every layout with every retraining of everybody.

Written straight from the rules of the design's section 4, to judge ``static``; for problems without
gain tables of their own. What never changes lies on memory slices that are ours in all steps in which it is held.
Shares no code with ``planner`` beyond values and warm-up times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from executor.mig import Placement
from planner.problem import Problem, Reconfiguration, TenantTerms

LIMIT = 30_000
"""Layouts × retrainings up to which everything is tried."""


class Run(NamedTuple):
    """A retraining: what it occupies (profile name or placement) over [start, end), and the accuracy after it."""

    token: object
    start: int
    end: int
    accuracy: float


def best_static(problem: Problem) -> float | None:
    """Goodput in requests of the best one; −inf if there is none, ``None`` if there is too much to try."""
    is_paper = problem.reconfiguration is Reconfiguration.PAPER
    runs = [list(_runs(problem, tenant)) for tenant in problem.tenants]
    layouts = list(_paper_layouts(problem) if is_paper else _physical_layouts(problem))
    if len(layouts) * np.prod([len(own) for own in runs]) > LIMIT:
        return None
    fits = cache(_counts_fit(problem) if is_paper else _places_fit(problem))
    together = [chosen for chosen in product(*runs) if _can_stand(problem, chosen, fits)]
    return max((_best_of(problem, layout, together, fits) for layout in layouts), default=-np.inf)


class _Layout(NamedTuple):
    """What is occupied by step, and each tenant's capacity by step (what is served if enough arrives)."""

    busy: tuple[tuple[object, ...], ...]
    capacity: tuple[np.ndarray, ...]


def _best_of(problem, layout, together, fits) -> float:
    best = -np.inf
    for chosen in together:
        value = sum(map(_value, [problem] * len(chosen), problem.tenants, layout.capacity, chosen))
        if value > best and all(
            fits(
                (*busy, *(run.token for run in chosen if run and run.start <= s < run.end)),
                _not_ours(problem, s, s + 1),
            )
            for s, busy in enumerate(layout.busy)
        ):
            best = value
    return best


def _value(problem: Problem, tenant: TenantTerms, capacity: np.ndarray, run: Run | None) -> float:
    steps = np.arange(problem.n_steps)
    accuracy = np.where(steps >= run.end, run.accuracy, tenant.accuracy_before) if run else tenant.accuracy_before
    return float((tenant.weight * accuracy * np.minimum(tenant.arrivals_rps * problem.step_s, capacity)).sum())


def _can_stand(problem: Problem, chosen: Sequence[Run | None], fits) -> bool:
    return all(
        fits(tuple(run.token for run in chosen if run and run.start <= s < run.end), _not_ours(problem, s, s + 1))
        for s in range(problem.n_steps)
    )


def _not_ours(problem: Problem, begin: int, end: int) -> frozenset[int]:
    """The memory slices that others hold in some step of [begin, end)."""
    return frozenset(
        number
        for item in problem.unavailable
        for number in item.memory_slices
        if item.from_step < end and begin < (problem.n_steps if item.to_step is None else item.to_step)
    )


def _is_off(placements: Sequence[Placement], not_ours: frozenset[int]) -> bool:
    return all(not_ours.isdisjoint(range(place.start, place.end)) for place in placements)


def _places_fit(problem: Problem):
    return lambda placements, not_ours: problem.gpu.fits(placements) and _is_off(placements, not_ours)


def _runs(problem: Problem, tenant: TenantTerms) -> Iterator[Run | None]:
    state = problem.physical_initial
    for item in state.retrainings if state else ():
        if item.tenant == tenant.name:
            yield Run(item.placement, 0, item.end_step, tenant.options[0].accuracy_after)
            return
    if not tenant.must_retrain:
        yield None
    for option in tenant.options:
        for name in option.time_s:
            n = problem.occupied_steps(tenant, option, name)
            tokens = (name,) if problem.reconfiguration is Reconfiguration.PAPER else problem.gpu.placements([name])
            for token, start in product(tokens, range(problem.n_steps - n + 1)):
                yield Run(token, start, start + n, option.accuracy_after)


def _counts_fit(problem: Problem):
    layouts = problem.gpu.layouts(problem.profile_names)

    @cache
    def known(not_ours: frozenset[int]) -> set[tuple[str, ...]]:
        return {tuple(sorted(_names(layout.placements))) for layout in layouts if _is_off(layout.placements, not_ours)}

    return lambda names, not_ours: tuple(sorted(names)) in known(not_ours)


def _names(placements: Sequence[Placement]) -> tuple[str, ...]:
    return tuple(placement.profile.name for placement in placements)


def _enough(problem: Problem, tenant: TenantTerms, names: Sequence[str]) -> bool:
    least = problem.gpu.profile(tenant.min_profile)
    serves = all(name in tenant.capability_rps for name in names)
    return serves and any(problem.gpu.profile(name).is_at_least(least) for name in names)


def _paper_layouts(problem: Problem) -> Iterator[_Layout]:
    fits = _counts_fit(problem)
    multisets = {tuple(sorted(names)) for names in map(_names, problem.gpu.layouts(problem.profile_names))}
    own = [[names for names in multisets if _enough(problem, tenant, names)] for tenant in problem.tenants]
    for held in product(*own):
        if fits(sum(held, ()), _not_ours(problem, 0, problem.n_steps)):
            capacity = tuple(_paper_capacity(problem, *pair) for pair in zip(problem.tenants, held, strict=True))
            yield _Layout((sum(held, ()),) * problem.n_steps, capacity)


def _paper_capacity(problem: Problem, tenant: TenantTerms, names: tuple[str, ...]) -> np.ndarray:
    capacity = np.full(problem.n_steps, problem.step_s * sum(tenant.capability_rps[name] for name in names))
    state = problem.paper_initial
    if state is not None and Counter(state.held.get(tenant.name, ())) != Counter(names):
        capacity[0] -= tenant.overhead_s / problem.step_s / len(names) * capacity[0]
    return capacity


def _physical_layouts(problem: Problem) -> Iterator[_Layout]:
    state, names = problem.physical_initial, problem.tenant_names
    first = {(item.placement, item.tenant): item.serve_step for item in state.held} if state else {}
    change = min(state.next_epoch_step, problem.n_steps) if state else 0
    serving = sorted({name for tenant in problem.tenants for name in tenant.capability_rps})
    for layout in problem.gpu.layouts(serving):
        for owners in product(names, repeat=len(layout)):
            held = dict(zip(layout.placements, owners, strict=True))
            own = {name: _names([p for p in held if held[p] == name]) for name in names}
            if all(_enough(problem, tenant, own[tenant.name]) for tenant in problem.tenants):
                if change == problem.n_steps and set(held.items()) != set(first):
                    continue
                if not _is_off(list(held), _not_ours(problem, change, problem.n_steps)):
                    continue
                busy = [tuple(p for p, _ in first)] * change + [tuple(held)] * (problem.n_steps - change)
                capacity = tuple(_physical_capacity(problem, t, held, first, change) for t in problem.tenants)
                yield _Layout(tuple(busy), capacity)


def _physical_capacity(problem: Problem, tenant: TenantTerms, held, first, change: int) -> np.ndarray:
    capacity = np.zeros(problem.n_steps)
    warm = change + problem.warm_up_steps(tenant) if problem.initial is not None else 0
    for step in range(problem.n_steps):
        if step < change:
            serving = [p for (p, name), serve in first.items() if name == tenant.name and serve <= step]
        else:
            own = [p for p, name in held.items() if name == tenant.name]
            serving = [p for p in own if step >= warm or (p, tenant.name) in first]
        capacity[step] = problem.step_s * sum(tenant.capability_rps[name] for name in _names(serving))
    return capacity
