"""What no assignment's plans without pools are worth more than: one price of slices for all GPUs of a class.

At any prices every GPU is paid for its dearest layout, and every tenant, wherever it is, earns net of what it holds at
most what it earns alone on the GPU that suits it best; one that earns less than nothing is left out. The sum bounds
every assignment, whoever may not be beside whom, and needs no plan.

It is convex in the prices, and what tenants buy is a cut below each of their parts. Where the cuts found are
lowest is a linear program; the next prices are halfway between that and the best ones. A dozen rounds or two bring what
a hundred of a subgradient do not.

Source: Kelley, "The cutting-plane method for solving convex programs", 1960; smoothed as in Wentges, "Weighted
Dantzig–Wolfe decomposition for linear mixed-integer programming", 1997.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from planner.arrays import Bools, Floats
from planner.cluster.estimate import Buyer, Estimates, NetWorths, dearest, net_table, room, stretches
from planner.cluster.fleet import Fleet, FleetBound
from planner.highs import SilentHighs

MOST_ROUNDS = 24
"""Prices that are tried beside the estimates' own."""

CLOSE = 1e-4
"""Share of the bound below which nothing more is to be gained."""


def fleet_bound(estimates: Estimates) -> tuple[FleetBound, Estimates]:
    """The least bound that was found; and estimates with the prices that were tried on the way."""
    fleet, best = estimates.fleet, _lowest(estimates)
    at = np.stack([estimates.prices[c, k] for c, k in enumerate(best)])
    value = _total(fleet, estimates.costs[range(len(best)), best], estimates.nets[range(len(best)), best])
    buyers = {
        (c, i): Buyer(one) for c, own in enumerate(fleet.classes) for i, one in enumerate(own.alone) if one is not None
    }
    cuts, tried, earned, best_at = _Cuts(fleet, at, value), list[Floats](), list[Floats](), at
    for _ in range(MOST_ROUNDS):
        nets = np.full((len(fleet.classes), len(fleet.tenants)), -np.inf)
        for (c, i), buyer in buyers.items():
            nets[c, i] = buyer.net(at[c])
            cuts.add(c, i, float(nets[c, i]), at[c], buyer.bought(at.shape[1]))
        costs = np.array([dearest(own, price[None])[0] for own, price in zip(fleet.classes, at, strict=True)])
        tried.append(at)
        earned.append(nets)
        if (found := _total(fleet, costs, nets)) < value:
            value, best_at = found, at
        least, lowest_at = cuts.lowest()
        if value - least <= CLOSE * abs(value):
            break
        at = (lowest_at + best_at) / 2
    prices = tuple(tuple((float(memory), float(compute)) for memory, compute in own) for own in best_at)
    return FleetBound(value, prices), estimates.with_prices(np.stack(tried, axis=1), np.stack(earned, axis=1))


def bound_at(fleet: Fleet, bound: FleetBound, nets: NetWorths | None = None) -> float:
    """The bound that these prices prove."""
    at = [np.array([price], dtype=np.float64) for price in bound.prices]
    costs = np.array([dearest(own, price)[0] for own, price in zip(fleet.classes, at, strict=True)])
    return _total(fleet, costs, np.stack([net_table(fleet, c, price, nets)[0] for c, price in enumerate(at)]))


class _Cuts:
    """Lines below what tenants earn net of prices, and where all that is paid and earned is lowest by them.

    Variables, each relative to where it begins: by class and stretch the prices of memory and compute slices, then what
    the dearest layout costs all GPUs of the class; by tenant what it earns.
    """

    def __init__(self, fleet: Fleet, prices: Floats, value: float) -> None:
        self._fleet, self._shape = fleet, prices.shape
        self._unit, self._scale = max(float(prices.max()), 1e-9), max(1.0, abs(value))
        self._may = _may_be(fleet)
        n_prices, n_stretches = prices.size, prices.shape[1]
        self._first_earned = n_prices + len(fleet.classes) * n_stretches
        costs = np.concatenate([np.zeros(n_prices), np.ones(self._first_earned - n_prices + len(fleet.tenants))])
        self._program = SilentHighs()
        self._program.setOptionValue("threads", 1)
        self._program.addVars(len(costs), np.zeros(len(costs)), np.full(len(costs), highspy.kHighsInf))
        self._program.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)
        for c, (own, n_gpus) in enumerate(zip(fleet.classes, _n_gpus(fleet), strict=True)):
            n_steps = max((one.n_steps for one in own.alone if one is not None), default=0)
            lasting = np.bincount(stretches(n_steps, n_stretches)) if n_steps else ()
            for stretch, steps in enumerate(lasting):
                at = (c * n_stretches + stretch) * 2
                for slices in room(own):
                    paid = -n_gpus * steps * slices * self._unit / self._scale
                    self._add(0.0, [at, at + 1, n_prices + at // 2], [*paid, 1.0])

    def add(self, gpu_class: int, tenant: int, net: float, price: Floats, bought: Floats) -> None:
        """The tenant earns no less at other prices than what it bought at this one would bring it then."""
        if not self._may[gpu_class, tenant] or not np.isfinite(net):
            return
        held = np.flatnonzero(bought)
        columns = [*(gpu_class * bought.size + held).tolist(), self._first_earned + tenant]
        earned = net + float((bought * price).sum())
        self._add(earned / self._scale, columns, [*(bought.ravel()[held] * self._unit / self._scale), 1.0])

    def lowest(self) -> tuple[float, Floats]:
        """The least by all cuts, and the prices there."""
        self._program.run()
        solution = np.array(self._program.getSolution().col_value)[: int(np.prod(self._shape))]
        least = float(self._program.getInfo().objective_function_value) * self._scale
        return least, np.maximum(solution, 0.0).reshape(self._shape) * self._unit

    def _add(self, least: float, columns: Sequence[int], values: Sequence[float]) -> None:
        numbers = np.array(columns, dtype=np.int32)
        self._program.addRow(least, highspy.kHighsInf, len(columns), numbers, np.array(values, dtype=np.float64))


def _lowest(estimates: Estimates) -> list[int]:
    """By class the price with which the bound is least: one class after the other, until none can be lowered."""
    n_classes, n_prices = estimates.costs.shape

    def total(chosen: Sequence[int]) -> float:
        own = range(n_classes), list(chosen)
        return _total(estimates.fleet, estimates.costs[own], estimates.nets[own])

    best = min(([k] * n_classes for k in range(n_prices)), key=total)
    while True:
        others = [[*best[:c], k, *best[c + 1 :]] for c in range(n_classes) for k in range(n_prices)]
        lower = min(others, key=total)
        if not total(lower) < total(best):
            return best
        best = lower


def _total(fleet: Fleet, costs: Floats, nets: Floats) -> float:
    """What GPUs are paid, ``(n_classes,)``, and tenants earn net where it is most, ``(n_classes, n_tenants)``."""
    earned = np.where(_may_be(fleet), nets, -np.inf).max(axis=0)
    return float(_n_gpus(fleet).dot(costs)) + float(np.maximum(earned, 0.0).sum())


def _n_gpus(fleet: Fleet) -> Floats:
    return np.bincount([gpu.gpu_class for gpu in fleet.gpus], minlength=len(fleet.classes)).astype(np.float64)


def _may_be(fleet: Fleet) -> Bools:
    """Whether a tenant may be on some GPU of the class, ``(n_classes, n_tenants)``."""
    of_class = np.array([gpu.gpu_class for gpu in fleet.gpus])
    may: Bools = np.stack([fleet.may_go[of_class == c].any(axis=0) for c in range(len(fleet.classes))])
    return may
