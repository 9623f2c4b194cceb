"""Whether an assignment is what it says: its rules, what its sets are worth, and its bound.

The bound is recomputed as that of a plan is (``planner.verify``), each tenant alone at the stated prices; nothing here
shares code with the search or with how its bound was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from planner.arrays import Floats
from planner.cluster.fleet import Assignment, Fleet, TenantSet, Worths
from planner.partition import Members
from planner.plan import Certificate
from planner.problem import Problem
from planner.verify.certificate import certified_bound
from planner.verify.verification import TOLERANCE


def violations(fleet: Fleet, found: Assignment, worths: Worths) -> tuple[str, ...]:
    """What is wrong with the assignment, a sentence each; nothing where it holds.

    ``worths`` says anew what its sets are worth.
    """
    unreadable = tuple(_unreadable(fleet, found))
    if unreadable:
        return unreadable
    index = {name: i for i, name in enumerate(fleet.tenants)}
    sets = [tuple(sorted(index[name] for name in members)) for members in found.sets]
    return (
        *fleet.breaches(sets),
        *_missing(fleet, found),
        *_wrong_worths(fleet, found, sets, worths),
        *_bound(fleet, found),
    )


def _unreadable(fleet: Fleet, found: Assignment) -> Iterator[str]:
    if not len(found.sets) == len(found.worths) == len(fleet.gpus):
        yield f"{len(found.sets)} sets and {len(found.worths)} worths are given; the fleet has {len(fleet.gpus)} GPUs"
    named = {name for members in found.sets for name in members} | {one.tenant for one in found.unplaced}
    yield from (f"{name!r} is no tenant of the fleet" for name in sorted(named.difference(fleet.tenants)))
    if len(found.bound.prices) != len(fleet.classes) or not all(found.bound.prices):
        yield f"the bound has prices of {len(found.bound.prices)} classes of GPUs; the fleet has {len(fleet.classes)}"
    elif not all(np.isfinite(own).all() for own in found.bound.prices):
        yield "the bound's prices are not finite"


def _missing(fleet: Fleet, found: Assignment) -> Iterator[str]:
    placed, without = {name for members in found.sets for name in members}, {one.tenant for one in found.unplaced}
    for name in fleet.tenants:
        if (name in placed) == (name in without):
            yield f"tenant {name} is {'on a GPU and unplaced' if name in placed else 'neither on a GPU nor unplaced'}"


def _wrong_worths(fleet: Fleet, found: Assignment, sets: Sequence[Members], worths: Worths) -> Iterator[str]:
    """Stated worths that are not what the sets are worth; sets that break rules of their own are not asked for."""
    asked = {
        g: TenantSet(fleet.gpus[g].gpu_class, members)
        for g, members in enumerate(sets)
        if members and len(set(members)) == len(members) and fleet.may_hold(g, members)
    }
    known = dict(zip(asked_for := list(dict.fromkeys(asked.values())), worths(asked_for), strict=True))
    for g, (gpu, claimed) in enumerate(zip(fleet.gpus, found.worths, strict=True)):
        worth = known[asked[g]] if g in asked else 0.0 if not sets[g] else claimed
        if worth is None:
            yield f"GPU {gpu.name} cannot serve {', '.join(found.sets[g])} together"
        elif not abs(claimed - worth) <= TOLERANCE * max(1.0, abs(worth)):
            yield f"GPU {gpu.name} is said to be worth {claimed:,} requests; recomputed {worth:,}"


def _bound(fleet: Fleet, found: Assignment) -> Iterator[str]:
    """A bound that its prices do not prove, or that is not the one that they prove."""
    proven, claimed = _proven(fleet, found), found.bound.value
    if not abs(claimed - proven) <= TOLERANCE * max(1.0, abs(proven)):
        yield f"the bound is said to be {claimed:,}; its prices prove {proven:,}"


def _proven(fleet: Fleet, found: Assignment) -> float:
    paid = 0.0
    most = np.zeros(len(fleet.tenants))
    for c, (own, given) in enumerate(zip(fleet.classes, found.bound.prices, strict=True)):
        gpus = [g for g, gpu in enumerate(fleet.gpus) if gpu.gpu_class == c]
        problems = [one for one in own.alone if one is not None]
        if not gpus or not problems:
            continue
        used = {name for one in problems for name in one.profile_names}
        paid += len(gpus) * _dearest(problems[0], used, given)
        for i, alone in enumerate(own.alone):
            if alone is not None and fleet.may_go[gpus, i].any():
                names, prices = alone.profile_names, _by_step(alone, alone.profile_names, given)
                net = certified_bound(alone, Certificate(names, prices)) - _dearest(alone, set(names), given)
                most[i] = max(most[i], net)
    return paid + float(most.sum())


def _by_step(alone: Problem, names: Sequence[str], given: Sequence[tuple[float, float]]) -> Floats:
    """Prices of profiles in each step, ``(n_steps, n_profiles)``."""
    profiles = [alone.gpu.profile(name) for name in names]
    at = [given[step * len(given) // alone.n_steps] for step in range(alone.n_steps)]
    return np.array(
        [[memory * p.memory_slices + compute * p.compute_slices for p in profiles] for memory, compute in at]
    )


def _dearest(alone: Problem, used: set[str], given: Sequence[tuple[float, float]]) -> float:
    """What the dearest counts of these profiles that fit the GPU cost over the window."""
    names = tuple(name for name in alone.gpu.profile_names if name in used)
    counts = np.array(alone.gpu.multisets(names))
    return float((_by_step(alone, names, given) @ counts.T).max(axis=1).sum())
