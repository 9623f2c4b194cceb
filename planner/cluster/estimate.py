"""What a set of tenants can be worth at most without pools, in microseconds: the least over a few prices of slices.

At any prices of memory and compute slices a GPU's plan is worth no more than what the dearest layout costs and what
each of its tenants, alone on the GPU, earns net of what it holds (``planner.engines.prices``). Here a price holds for a
stretch of the window: one for all of it at eleven heights of memory slices and eleven of compute slices, then those
that the bound finds (:mod:`planner.cluster.bound`). What a tenant earns net at each of them is worked out once; the
estimate of a set is then a sum and a minimum.

Symbols: p a price; cost[c, p] of the dearest layout; net[c, p, i]; est_c(S) = min_p cost[c, p] + Σ_{i∈S} net[c, p, i].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np

from executor.mig import GpuModel
from planner.arrays import Floats, Int64s
from planner.cluster.fleet import Fleet, GpuClass
from planner.counts import feasible_multisets
from planner.engines.alone import TenantSubproblem
from planner.engines.schedule import WindowFacts
from planner.problem import Problem

HEIGHTS = (0.0, *np.geomspace(0.02, 1.5, 10).tolist())
"""Prices of a whole GPU in a step, as shares of what a GPU's part of all requests would earn in it."""

N_STRETCHES = 10
"""Stretches of the window in which prices may differ: retrainings crowd its beginning."""

NetWorths: TypeAlias = "Callable[[Sequence[tuple[int, int]], Floats], Floats]"
"""What tenants earn net: (class, tenant) pairs and prices, ``(n_prices, n_stretches, 2)``, to ``(n_pairs, n_prices)``.

By :func:`net_worths`, in whatever processes.
"""


def net_worths(alone: Problem, prices: Floats) -> Floats:
    """The most that a tenant alone earns net of (memory, compute) slices at each of the prices, ``(n_prices,)``.

    −inf where its retraining is required and has no time. ``prices`` are ``(n_prices, n_stretches, 2)``, of a slice in
    each step of a stretch.
    """
    buyer = Buyer(alone)
    return np.array([buyer.net(price) for price in prices])


class Buyer:
    """A tenant that has a GPU to itself and pays for the slices of all that it holds."""

    def __init__(self, alone: Problem) -> None:
        self._subproblem, self._n_steps = TenantSubproblem(WindowFacts.of(alone), 0), alone.n_steps
        self._slices = slices_of(alone.gpu, alone.profile_names)

    def net(self, price: Floats) -> float:
        """The most that it earns net of the price, ``(n_stretches, 2)``."""
        return self._subproblem.best(price[stretches(self._n_steps, len(price))] @ self._slices.T)

    def bought(self, n_stretches: int) -> Floats:
        """From the last call: slices times steps that it holds in each stretch, ``(n_stretches, 2)``."""
        starts = np.searchsorted(stretches(self._n_steps, n_stretches), np.arange(n_stretches))
        held: Floats = np.add.reduceat(self._subproblem.used @ self._slices, starts)
        return held


def stretches(n_steps: int, n_stretches: int) -> Int64s:
    """The stretch of each step; each of them has one, ``n_stretches`` ≤ ``n_steps``."""
    own: Int64s = np.arange(n_steps, dtype=np.int64) * n_stretches // n_steps
    return own


def slices_of(gpu: GpuModel, profile_names: Iterable[str]) -> Floats:
    """The memory and compute slices of each profile, ``(n_profiles, 2)``."""
    profiles = [gpu.profile(name) for name in profile_names]
    return np.array([(profile.memory_slices, profile.compute_slices) for profile in profiles], dtype=np.float64)


def dearest(own: GpuClass, prices: Floats) -> Floats:
    """What the dearest layouts of a GPU of the class cost over the window at each of the prices, ``(n_prices,)``."""
    n_steps = max((one.n_steps for one in own.alone if one is not None), default=0)
    if not n_steps:
        return np.zeros(len(prices))
    lasting = np.bincount(stretches(n_steps, prices.shape[1]))
    most: Floats = (prices @ room(own).T).max(axis=2) @ lasting
    return most


def room(own: GpuClass) -> Floats:
    """The (memory, compute) slices of layouts of the tenants' profiles, those that no other exceeds, ``(n, 2)``."""
    problems = [one for one in own.alone if one is not None]
    gpu, used = problems[0].gpu, {name for one in problems for name in one.profile_names}
    names = tuple(name for name in gpu.profile_names if name in used)
    found = np.unique(np.array(feasible_multisets(gpu, names), dtype=np.float64) @ slices_of(gpu, names), axis=0)
    is_exceeded = [bool(((found >= one).all(axis=1) & (found > one).any(axis=1)).any()) for one in found]
    largest: Floats = found[~np.array(is_exceeded)]
    return largest


@dataclass(frozen=True, eq=False)
class Estimates:
    """A fleet's prices, and what sets of its tenants can earn at most by them.

    Attributes:
        fleet: The fleet; a tenant whose retraining has no time on a class counts as one without a problem there.
        prices: Of a memory and a compute slice in each step of a stretch, ``(n_classes, n_prices, n_stretches, 2)``.
        costs: ``(n_classes, n_prices)``.
        nets: −inf where it has no problem, ``(n_classes, n_prices, n_tenants)``.
    """

    fleet: Fleet
    prices: Floats
    costs: Floats
    nets: Floats

    @classmethod
    def of(cls, fleet: Fleet, nets: NetWorths | None = None) -> Self:
        """The estimates of a fleet; ``nets`` is as :data:`NetWorths` has it, by default in this process."""
        prices = np.stack([_prices(fleet, own) for own in fleet.classes])
        costs = np.stack([dearest(own, at) for own, at in zip(fleet.classes, prices, strict=True)])
        found = np.stack([net_table(fleet, c, at, nets) for c, at in enumerate(prices)])
        classes = tuple(
            replace(own, alone=tuple(one if finite else None for one, finite in zip(own.alone, row, strict=True)))
            for own, row in zip(fleet.classes, np.isfinite(found[:, 0]), strict=True)
        )
        return cls(replace(fleet, classes=classes), prices, costs, found)

    def with_prices(self, prices: Floats, nets: Floats) -> Self:
        """The same with more prices, ``(n_classes, n_more, n_stretches, 2)``, and what tenants earn net of them."""
        costs = np.stack([dearest(own, at) for own, at in zip(self.fleet.classes, prices, strict=True)])
        return replace(
            self,
            prices=np.concatenate([self.prices, prices], axis=1),
            costs=np.concatenate([self.costs, costs], axis=1),
            nets=np.concatenate([self.nets, nets], axis=1),
        )

    def of_set(self, gpu_class: int, members: Sequence[int]) -> float:
        """What the set is worth at most on a GPU of the class."""
        if not members:
            return 0.0
        return float((self.costs[gpu_class] + self.nets[gpu_class][:, list(members)].sum(axis=1)).min())


def net_table(fleet: Fleet, gpu_class: int, prices: Floats, nets: NetWorths | None = None) -> Floats:
    """What every tenant earns net on the class at these prices; −inf where it cannot be, ``(n_prices, n_tenants)``."""
    alone = fleet.classes[gpu_class].alone
    found = np.full((len(prices), len(alone)), -np.inf)
    there = [i for i, one in enumerate(alone) if one is not None]
    pairs = [(gpu_class, i) for i in there]
    if pairs:
        found[:, there] = (nets or serial(fleet))(pairs, prices).T
    return found


def serial(fleet: Fleet) -> NetWorths:
    """The net worths of the fleet's tenants, one after the other in this process."""

    def nets(pairs: Sequence[tuple[int, int]], prices: Floats) -> Floats:
        problems = (fleet.classes[c].alone[i] for c, i in pairs)
        return np.stack([net_worths(one, prices) for one in problems if one is not None])

    return nets


def _prices(fleet: Fleet, own: GpuClass) -> Floats:
    """The prices of the class: the heights of memory slices, then of compute slices, ``(n_prices, n_stretches, 2)``."""
    gpu = next((one.gpu for one in own.alone if one is not None), None)
    each = zip(*(known.alone for known in fleet.classes), strict=True)
    alone = [next((one for one in found if one is not None), None) for found in each]
    earned = sum(one.most_goodput / one.n_steps for one in alone if one is not None) / len(fleet.gpus)
    n_slices = (1, 1) if gpu is None else (gpu.memory_slices, gpu.compute_slices)
    of_slice = np.outer(np.array(HEIGHTS) * earned, 1 / np.array(n_slices))
    prices = np.concatenate([of_slice * (1, 0), of_slice * (0, 1)])
    n_stretches = min([N_STRETCHES, *(one.n_steps for one in alone if one is not None)])
    return np.repeat(prices[:, None, :], n_stretches, axis=1)
