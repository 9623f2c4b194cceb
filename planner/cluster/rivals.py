"""Assignments that others would make: tenants by their load, one after the other, to the first GPU that suits.

A tenant's load on a class is the share of the GPU that its mean arrivals take at the highest rate that any layout
serves. Rules hold for rivals as for the search; a tenant that none allows is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from executor.names import spelled_as
from planner.arrays import Floats, Ints
from planner.cluster.fleet import Fleet
from planner.counts import feasible_multisets
from planner.errors import PlannerError
from planner.partition import Members
from planner.problem import Problem

RIVALS = ("spread", "best-fit", "first-fit", "random", "mudi")
"""``spread``: largest first, to the least loaded. ``best-fit``: largest first, to the fullest that has room, else the
least loaded. ``first-fit``: as they are named, to the first that has room, else the least loaded. ``random``: any.
``mudi``: those that retrain to where serving suffers least, see :func:`least_steep`."""

MOST_TRAININGS = 3
"""Of one GPU under ``mudi``. Source: Mudi (EuroSys '25), §5.5."""

Slopes: TypeAlias = Callable[[], Floats]
"""By class and tenant how steep its latency is by share, over its SLO; ∞ where unknown; ``(n_classes, n_tenants)``."""


def rival(name: str, fleet: Fleet, seed: int = 0, slopes: Slopes | None = None) -> tuple[Members, ...]:
    """Each GPU's tenants as the rival puts them; ``seed`` is of ``random`` alone, ``slopes`` are of ``mudi``.

    Raises:
        PlannerError: There is no such rival.
    """
    known = spelled_as(name, RIVALS)
    if known not in RIVALS:
        raise PlannerError(f"unknown rival {name!r}; known: {', '.join(RIVALS)}")
    if known == "spread":
        return spread(fleet, [()] * len(fleet.gpus))
    if known == "mudi":
        assert slopes is not None  # whoever may ask for it has them
        return _by_slopes(fleet, slopes()[[gpu.gpu_class for gpu in fleet.gpus]])
    order = _by_load(loads_of(fleet)) if known == "best-fit" else list(range(len(fleet.tenants)))
    rng = np.random.default_rng(seed)

    def choose(i: int, loaded: Floats, own: Floats, may: Sequence[int]) -> int:  # noqa: ARG001
        if known == "random":
            return int(rng.choice(list(may)))
        room = [g for g in may if loaded[g] + own[g] <= 1.0] or [_least(loaded, may)]
        return room[0] if known == "first-fit" else max(room, key=lambda g: (loaded[g], -g))

    return _dealt(fleet, order, choose)


def spread(fleet: Fleet, sets: Sequence[Members]) -> tuple[Members, ...]:
    """The tenants that no GPU has yet, largest first, each to the least loaded GPU that may have it."""
    placed = {i for members in sets for i in members}
    order = [i for i in _by_load(loads_of(fleet)) if i not in placed]
    return _dealt(fleet, order, lambda _i, loaded, _own, may: _least(loaded, may), sets)


def least_steep(steepness: Floats, n_training: Ints, loaded: Floats, may: Sequence[int]) -> int:
    """The GPU for a tenant that retrains: what is served there has the least mean slope of latency by share.

    Source: Mudi (EuroSys '25), §5.2: the mean over batches, here relative to the SLO, and over tenants where a GPU
    serves several, which the paper's do not; 0 where it serves nobody. A GPU has ``MOST_TRAININGS`` at most, while
    another one has room; of equal ones the least loaded.
    """
    open_ = [g for g in may if n_training[g] < MOST_TRAININGS]
    return min(open_ or may, key=lambda g: (bool(open_) or int(n_training[g]), steepness[g], loaded[g], g))


def _by_slopes(fleet: Fleet, slopes: Floats) -> tuple[Members, ...]:
    """Tenants that only serve are spread first, as services come before trainings; then the others, as they are named.

    ``slopes`` is by GPU, ``(n_gpus, n_tenants)``.
    """
    retrains = [
        any(one is not None and one.tenants[0].options for one in each)
        for each in zip(*(own.alone for own in fleet.classes), strict=True)
    ]
    order = [i for i in _by_load(loads_of(fleet)) if not retrains[i]] + [i for i, own in enumerate(retrains) if own]
    total, n_serving, n_training = np.zeros(len(fleet.gpus)), *np.zeros((2, len(fleet.gpus)), dtype=np.int32)

    def choose(i: int, loaded: Floats, _own: Floats, may: Sequence[int]) -> int:
        steepness = total / np.maximum(n_serving, 1)
        g = least_steep(steepness, n_training, loaded, may) if retrains[i] else _least(loaded, may)
        total[g] += slopes[g, i]
        n_serving[g] += 1
        n_training[g] += retrains[i]
        return g

    return _dealt(fleet, order, choose)


def loads_of(fleet: Fleet) -> Floats:
    """Each tenant's load by class, ∞ where it has no problem, ``(n_classes, n_tenants)``."""
    return np.array([[np.inf if one is None else _load(one) for one in own.alone] for own in fleet.classes])


def _load(alone: Problem) -> float:
    counts = np.array(feasible_multisets(alone.gpu, alone.profile_names), dtype=np.float64)
    return float(alone.tenants[0].arrivals_rps.mean() / (counts @ alone.rates_rps(alone.tenants[0])).max())


def _by_load(loads: Floats) -> list[int]:
    most = np.where(np.isinf(loads), 0.0, loads).max(axis=0)
    return sorted(range(len(most)), key=lambda i: (-most[i], i))


def _least(loaded: Floats, may: Sequence[int]) -> int:
    return min(may, key=lambda g: (loaded[g], g))


def _dealt(
    fleet: Fleet,
    order: Sequence[int],
    choose: Callable[[int, Floats, Floats, Sequence[int]], int],
    sets: Sequence[Members] | None = None,
) -> tuple[Members, ...]:
    """The sets with these tenants, one after the other where ``choose`` wants them; by GPU it knows loads.

    It knows the tenant, what is there, what the tenant would add, and the GPUs that may have it, ascending.
    """
    loads = loads_of(fleet)[[gpu.gpu_class for gpu in fleet.gpus]]
    dealt = [tuple[int, ...]() for _ in fleet.gpus] if sets is None else list(sets)
    loaded = np.array([loads[g, list(members)].sum() for g, members in enumerate(dealt)])
    for i in order:
        with_it = [tuple(sorted((*members, i))) for members in dealt]
        may = [g for g, own in enumerate(with_it) if fleet.allows([*dealt[:g], own, *dealt[g + 1 :]], (g,))]
        if may:
            g = choose(i, loaded, loads[:, i], may)
            dealt[g], loaded[g] = with_it[g], loaded[g] + loads[g, i]
    return tuple(dealt)
