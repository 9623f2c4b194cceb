"""``physical``: prices of instances (``prices``) for all tenants, begun on coarser steps.

On steps five times as long a round costs a twenty-fifth, and what it finds is nearly right: some
hundred rounds there and a few dozen on the problem's own steps bring the bound within a percent or two.
The coarse steps only give prices to begin with: bounds are always taken on the problem's own steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.arrays import Floats
from planner.engines.physical.coarse import blocks, coarse_facts
from planner.engines.prices import InstancePrices, Subgradient
from planner.engines.schedule import Schedule, WindowFacts
from planner.problem import Retraining

COARSE_ROUNDS = ((5, 250), (2, 80))
"""Steps to a coarse one, and rounds on those."""

_CAREFUL = 0.5, 15
"""Step and patience of a descent that goes on: what was found is not given up for a large step at first."""

_LEAST_STEPS = 8
"""Coarse steps that a window has at least; shorter ones are passed over."""


class PhysicalPrices:
    """The lowest bound found, its prices, and what they say of single schedules.

    Args:
        facts: The problem.
        is_over: Whether time is up.
    """

    def __init__(self, facts: WindowFacts, is_over: Callable[[], bool]) -> None:
        self._facts, self._is_over = facts, is_over
        self._dual = InstancePrices(facts)
        self._descent = Subgradient(self._dual, np.zeros(self._dual.shape), *_CAREFUL)

    @property
    def bound(self) -> float:
        """No plan is worth more."""
        return self._descent.bound

    @property
    def prices(self) -> Floats:
        """``(n_steps, n_profiles)``."""
        return self._descent.prices

    @property
    def undecided(self) -> frozenset[int]:
        """The tenants that may start a retraining of which the schedules of :meth:`lower` say nothing."""
        return self._dual.undecided

    def lower(self, value: float, n_rounds: int) -> list[Schedule]:
        """Lower the bound in ``n_rounds`` rounds towards a plan's ``value``; the best schedule in each."""
        if not self._descent.n_rounds:
            self._descent = Subgradient(self._dual, self._first_prices(value), *_CAREFUL)
        return self._descent.run(value, n_rounds, self._is_over)

    def carry(self, prices: Floats | None) -> float:
        """The bound with prices that were found before, if there are any; they are not improved."""
        if prices is not None:
            self._descent = Subgradient(self._dual, prices, *_CAREFUL)
            self._descent.run(0.0, 1, self._is_over)
        return self.bound

    def slacks(self) -> list[dict[Retraining | None, Floats]]:
        """By tenant and way: how far each start falls short of the tenant's best, ``(n_starts,)``.

        ``bound`` less a schedule's slacks bounds the schedule. Ways start at step 0, and ``None`` is not to retrain. A
        retraining in progress is the only way, with one start.
        """
        self._dual(self.prices)
        return self._dual.slacks()

    def _first_prices(self, value: float) -> Floats:
        fine = np.zeros(self._dual.shape)
        for coarse_steps, n_rounds in COARSE_ROUNDS:
            n_steps = len(fine) // coarse_steps
            if n_steps < _LEAST_STEPS:
                continue
            facts = coarse_facts(self._facts, coarse_steps)
            coarse = Subgradient(InstancePrices(facts), _joined(fine, coarse_steps), *(_CAREFUL if fine.any() else ()))
            coarse.run(value, n_rounds, self._is_over)
            fine = _spread(coarse.prices, coarse_steps, fine)
        return fine


def _joined(prices: Floats, coarse_steps: int) -> Floats:
    """Prices of steps as prices of coarse steps: sums, ``(n, P) → (n // coarse_steps, P)``."""
    n_steps = len(prices) // coarse_steps
    return np.asarray(blocks(prices[None], n_steps, coarse_steps)[0].sum(axis=1))


def _spread(coarse: Floats, coarse_steps: int, fine: Floats) -> Floats:
    """The same back again, in equal parts; ``fine`` is kept for the steps that were cut off."""
    out = fine.copy()
    parts = np.repeat(coarse / coarse_steps, coarse_steps, axis=0)
    out[: len(parts)] = parts
    return out
