"""``physical``: prices of instances (``prices``) for all tenants, begun on coarser steps.

On steps five times as long a round costs a twenty-fifth, and what it finds is nearly right: some
hundred rounds there and a few dozen on the problem's own steps bring the bound within a percent or two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from planner.engines.arrays import Floats
from planner.engines.physical.alone import PhysicalAlone
from planner.engines.physical.coarse import coarse_problem, joined, spread
from planner.engines.placed_schedule import Schedule, Terms, Training
from planner.engines.prices import Descent, InstancePrices, Lowering
from planner.problem import PhysicalState

COARSE_ROUNDS = ((5, 250), (2, 80))
"""Steps to a coarse one, and rounds on those."""

DESCENT = Descent(step=0.5, patience=15)
"""What the coarse steps found is not given up for a large step at first."""

_LEAST_STEPS = 8
"""Coarse steps that a window has at least; shorter ones are passed over."""


class PhysicalPrices:
    """The lowest bound found so far, its prices, and what they say of single schedules.

    Args:
        terms: The problem.
        is_over: Whether time is up.
    """

    def __init__(self, terms: Terms, is_over: Callable[[], bool]) -> None:
        self._terms, self._is_over = terms, is_over
        self._alone = [PhysicalAlone(terms, m) for m in range(len(terms.gains))]
        self._dual = InstancePrices(terms.problem, self._alone)
        self._lowering: Lowering[Training] | None = None

    @property
    def bound(self) -> float:
        """No plan is worth more."""
        return np.inf if self._lowering is None else self._lowering.bound

    @property
    def prices(self) -> Floats:
        """``(n_steps, n_profiles)``."""
        return np.zeros(self._dual.shape) if self._lowering is None else self._lowering.multipliers

    def lower(self, value: float, n_rounds: int) -> list[Schedule]:
        """Lower the bound in ``n_rounds`` rounds towards a plan's ``value``; the schedules met on the way."""
        if self._lowering is None:
            self._lowering = Lowering(self._dual, self._first_prices(value), DESCENT)
        met = self._lowering.run(value, n_rounds, self._is_over)
        return [tuple(training for training in schedule if training is not None) for schedule in met]

    def slacks(self) -> list[dict[Training | None, Floats]]:
        """By tenant and way: how far each start falls short of the tenant's best, ``(n_starts,)``.

        ``bound`` less a schedule's slacks bounds the schedule. Ways start at step 0; ``None`` is not to
        retrain; a retraining in progress is the only way, with one start.
        """
        self._dual(self.prices)
        found = []
        for alone in self._alone:
            worths: dict[Training | None, Floats] = dict(zip(alone.ways, alone.worths, strict=True))
            if not alone.ways or np.isfinite(alone.unchanged):
                worths[None] = np.array([alone.unchanged])
            best = max(float(worth.max()) for worth in worths.values())
            found.append({way: best - worth for way, worth in worths.items()})
        return found

    def _first_prices(self, value: float) -> Floats:
        fine = np.zeros(self._dual.shape)
        for coarse_steps, n_rounds in COARSE_ROUNDS:
            n_steps = len(fine) // coarse_steps
            if n_steps < _LEAST_STEPS:
                continue
            terms = coarse_terms(self._terms, coarse_steps)
            dual = InstancePrices(terms.problem, [PhysicalAlone(terms, m) for m in range(len(terms.gains))])
            rule = DESCENT if fine.any() else Descent()
            lowering: Lowering[Training] = Lowering(dual, joined(fine, coarse_steps), rule)
            lowering.run(value, n_rounds, self._is_over)
            fine = spread(lowering.multipliers, coarse_steps, fine)
        return fine


def coarse_terms(terms: Terms, coarse_steps: int) -> Terms:
    """About the same problem on steps ``coarse_steps`` times as long, its initial state moved to whole ones."""
    problem = terms.problem
    n_steps = problem.n_steps // coarse_steps
    slowest_s = max(tenant.overhead_s for tenant in problem.tenants)
    longest_s = (n_steps - 2) * coarse_steps * problem.step_s - problem.switching_s - slowest_s
    initial = _coarse_state(terms, n_steps, coarse_steps)
    coarse = coarse_problem(problem, terms.gains, coarse_steps, initial, longest_s)
    assert coarse.gains is not None
    return Terms(coarse, coarse.gains)


def _coarse_state(terms: Terms, n_steps: int, coarse_steps: int) -> PhysicalState | None:
    if terms.is_free:
        return None
    state = terms.state
    first = -(-state.next_epoch_step // coarse_steps)
    held = tuple(replace(item, serve_step=min(item.serve_step // coarse_steps, first)) for item in state.held)
    running = tuple(
        replace(item, end_step=max(1, min(item.end_step // coarse_steps, n_steps))) for item in state.retrainings
    )
    return PhysicalState(held, running, first)
