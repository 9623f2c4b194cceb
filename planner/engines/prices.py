"""Prices of instances: dual values that split a problem into one small problem a tenant, and so bound every plan.

Every profile has a price in every step. Tenants pay for what they hold, and together they are paid for the
dearest set that fits the GPU. No plan loses by that, and each tenant's best is then a path of its own
(:class:`planner.plan.Certificate` has the formula). The bound is convex in the prices; its slope is the
difference between what fits and what is asked for. It is lowered along the slopes, with momentum, by
Polyak's step towards the best plan known. A round takes a tenth of a millisecond.

Source: Lagrangian relaxation of rule 1; Polyak, "Minimization of unsmooth functionals", 1969.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.arrays import Floats
from planner.counts import codes_fit, codes_of, feasible_multisets
from planner.engines.alone import TenantSubproblem
from planner.engines.pooled import PoolSubproblem
from planner.engines.schedule import Schedule, WindowFacts
from planner.problem import Retraining

_PROGRESS = 1e-4
"""Share of the gap by which a bound must fall to count as progress."""

_MOMENTUM, _SHRINK = 0.9, 0.7
"""Share of the last direction in the next, and factor of a step that has brought no progress."""

_DIGITS = 6
"""Significant digits of a certificate's prices; any prices are valid, so these are."""

_LEAST_PRICE = 1e-12
"""Prices below this are left out of a certificate."""


class InstancePrices:
    """The dual of a problem whose tenants are tied together only by what fits the GPU.

    Attributes:
        shape: Of the prices, ``(n_steps, n_profiles)``.
        holders: By place in ``Problem.partition``, the problem of each tenant that holds its own instances, and of each
            pool; it has what they found with the prices of the last call.
    """

    def __init__(self, facts: WindowFacts) -> None:
        problem = facts.problem
        self.shape = (problem.n_steps, len(problem.profile_names))
        feasible = feasible_multisets(problem.gpu, problem.profile_names)
        self._room = np.array(feasible, dtype=np.float64)
        self._barred = np.zeros((problem.n_steps, len(feasible)))
        for begin, end, mask in problem.unavailable_spans:
            is_left = codes_fit(problem.gpu, problem.profile_names, codes_of(np.array(feasible)), mask)
            self._barred[begin:end, ~is_left] = -np.inf
        self.holders = [
            TenantSubproblem(facts, members[0]) if len(members) == 1 else PoolSubproblem(facts, members)
            for members in problem.partition
        ]

    @property
    def schedule(self) -> Schedule:
        """The tenants' own best retrainings, from the last call."""
        return tuple(sorted(choice for holder in self.holders for choice in holder.choices))

    @property
    def undecided(self) -> frozenset[int]:
        """The tenants that may start a retraining of which ``schedule`` says nothing."""
        pools = (holder for holder in self.holders if isinstance(holder, PoolSubproblem))
        return frozenset(m for pool in pools for m in pool.undecided)

    @property
    def switched(self) -> list[Floats]:
        """``TenantSubproblem.switched`` of each tenant, from the last call; there are no pools."""
        return [holder.switched for holder in self.holders if isinstance(holder, TenantSubproblem)]

    def slacks(self) -> list[dict[Retraining | None, Floats]]:
        """By tenant and way, from the last call: how far each start falls short of its best, ``(n_starts,)``."""
        found = {m: own for holder in self.holders for m, own in holder.slacks().items()}
        return [found[m] for m in range(len(found))]

    def __call__(self, prices: Floats) -> tuple[float, Floats]:
        """The bound with these prices, and its slope."""
        worth = prices @ self._room.T + self._barred
        bound = float(worth.max(axis=1).sum())
        slope = self._room[worth.argmax(axis=1)]
        for holder in self.holders:
            bound += holder.best(prices)
            slope = slope - holder.used
        return bound, slope


class Subgradient:
    """A descent that can be interrupted and taken up again.

    Args:
        dual: What is lowered.
        prices: To begin with.
        step: Share of Polyak's step at first.
        patience: Rounds without progress before the step shrinks.

    Attributes:
        bound: The lowest bound found.
        prices: The prices behind it.
        n_rounds: Evaluations of the dual.
    """

    def __init__(self, dual: InstancePrices, prices: Floats, step: float = 1.0, patience: int = 20) -> None:
        self._dual, self._step, self._patience = dual, step, patience
        self.bound, self.prices, self.n_rounds = np.inf, prices, 0
        self._at, self._direction, self._n_stuck = prices, np.zeros_like(prices), 0

    def run(self, lower: float, n_rounds: int, is_over: Callable[[], bool]) -> list[Schedule]:
        """At most ``n_rounds`` rounds towards ``lower``, what the best known plan earns; the best schedule in each."""
        schedules = []
        for _ in range(n_rounds):
            bound, slope = self._dual(self._at)
            self.n_rounds += 1
            schedules.append(self._dual.schedule)
            # The first bound counts as progress: the gap before it was infinite.
            is_progress = np.isinf(self.bound) or bound < self.bound - _PROGRESS * max(0.0, self.bound - lower)
            self._n_stuck = 0 if is_progress else self._n_stuck + 1
            if bound < self.bound:
                self.bound, self.prices = bound, self._at
            if is_over() or self.bound <= lower:
                break
            if self._n_stuck > self._patience:
                self._step, self._n_stuck, self._at = self._step * _SHRINK, 0, self.prices
                self._direction = np.zeros_like(self._direction)
                continue
            self._direction = slope + _MOMENTUM * self._direction
            length = float((self._direction * self._direction).sum())
            if length == 0.0:
                break
            stride = self._step * max(bound - lower, 0.0) / length
            self._at = np.maximum(self._at - stride * self._direction, 0.0)
        return schedules


def rounded(prices: Floats) -> Floats:
    """Prices with a few digits, as a certificate has them."""
    kept = np.where(np.abs(prices) < _LEAST_PRICE, 0.0, prices)
    return np.array([float(f"{x:.{_DIGITS}g}") for x in kept.flat]).reshape(kept.shape)
