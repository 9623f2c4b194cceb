"""Prices of instances: dual values that split a problem into one small problem a tenant, and so bound every plan.

With a price on every profile in every step, tenants pay for what they hold and are paid together for
the dearest set that fits the GPU; no plan loses by that, and each tenant's best is a path of its own
(:class:`planner.plan.Certificate` has the formula). The bound is convex in the prices, with the
difference between what fits and what is asked for as its slope: it is lowered along the slopes,
with momentum, by Polyak's step towards the best plan known. A tenth of a millisecond a round.

Source: Lagrangian relaxation of rule 1; Polyak, "Minimization of unsmooth functionals", 1969.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from planner.engines.exact_kernel import Floats
from planner.engines.prices_kernel import best_alone
from planner.engines.schedule import RetrainingChoice, RetrainingChoices, choices_of, initial_multisets
from planner.plan import Certificate
from planner.problem import GainTable, Problem
from planner.states import feasible_multisets, tenant_multisets

_PROGRESS = 1e-4
"""Share of the gap by which a bound must fall to count as progress."""

_DIGITS = 6
"""Significant digits of a certificate's prices; any prices are valid, so these are."""


class Dual(Protocol):
    """A bound as a convex function of multipliers of any shape."""

    schedule: RetrainingChoices
    """The tenants' own best retrainings, from the last call."""

    def __call__(self, multipliers: Floats) -> tuple[float, Floats]:
        """The bound and one of its slopes there."""
        ...


@dataclass(frozen=True, slots=True)
class Descent:
    """How multipliers are improved.

    Attributes:
        step: Share of Polyak's step at first.
        momentum: Share of the last direction in the next.
        patience: Rounds without progress before the step shrinks.
        shrink: Factor of the step then.
        least: Smallest multiplier allowed; −inf where they are free.
    """

    step: float = 1.0
    momentum: float = 0.9
    patience: int = 20
    shrink: float = 0.7
    least: float = 0.0


class Lowering:
    """A descent that can be interrupted and taken up again.

    Attributes:
        bound: The lowest bound met.
        multipliers: Where it was met.
        n_rounds: Evaluations of the dual so far.
    """

    def __init__(self, dual: Dual, multipliers: Floats, descent: Descent) -> None:
        self._dual, self._rule = dual, descent
        self.bound, self.multipliers, self.n_rounds = np.inf, multipliers, 0
        self._at, self._direction = multipliers, np.zeros_like(multipliers)
        self._step, self._n_stuck = descent.step, 0

    def run(self, lower: float, n_rounds: int, is_over: Callable[[], bool]) -> list[RetrainingChoices]:
        """At most ``n_rounds`` rounds towards ``lower``, what the best known plan earns; the schedules met."""
        rule, met = self._rule, []
        for _ in range(n_rounds):
            bound, slope = self._dual(self._at)
            self.n_rounds += 1
            met.append(self._dual.schedule)
            is_progress = bound < self.bound - _PROGRESS * max(0.0, self.bound - lower)
            self._n_stuck = 0 if is_progress else self._n_stuck + 1
            if bound < self.bound:
                self.bound, self.multipliers = bound, self._at
            if is_over() or self.bound <= lower:
                break
            if self._n_stuck > rule.patience:
                self._step, self._n_stuck, self._at = self._step * rule.shrink, 0, self.multipliers
                self._direction = np.zeros_like(self._direction)
                continue
            self._direction = slope + rule.momentum * self._direction
            length = float((self._direction * self._direction).sum())
            if length == 0.0:
                break
            stride = self._step * max(bound - lower, 0.0) / length
            self._at = np.maximum(self._at - stride * self._direction, rule.least)
        return met


class PaperPrices:
    """The dual of a ``paper`` problem.

    Attributes:
        shape: Of the prices, ``(n_steps, n_profiles)``.
        switched: By tenant, from the last call: what is earned net of the retraining's price when
            the level changes at each step, ``(n_levels, n_steps + 1)``.
        schedule: The tenants' own best retrainings, from the last call.
    """

    def __init__(self, problem: Problem, tables: Sequence[GainTable]) -> None:
        self.shape = (problem.n_steps, len(problem.profile_names))
        self._room = np.array(feasible_multisets(problem.gpu, problem.profile_names), dtype=np.float64)
        initial = initial_multisets(problem)
        self._tenants = [_Alone.of(problem, m, table, initial[m]) for m, table in enumerate(tables)]
        self.switched = [tenant.switched for tenant in self._tenants]
        self.schedule: RetrainingChoices = (None,) * len(self._tenants)

    def __call__(self, multipliers: Floats) -> tuple[float, Floats]:
        """The bound with these prices, and its slope."""
        worth = multipliers @ self._room.T
        dearest = worth.argmax(axis=1)
        bound = float(worth.max(axis=1).sum())
        slope = self._room[dearest]
        for tenant in self._tenants:
            bound += tenant.best(multipliers)
            slope = slope - tenant.used
        self.schedule = tuple(tenant.choice for tenant in self._tenants)
        return bound, slope


@dataclass(frozen=True, eq=False)
class _Alone:
    """One tenant's arrays for ``best_alone``."""

    steady: Floats
    changed: Floats
    opening: Floats
    counts: Floats
    ways: NDArray[np.int64]
    is_optional: bool
    switched: Floats
    used: Floats
    taken: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem, m: int, table: GainTable, initial: tuple[int, ...] | None) -> _Alone:
        tenant = problem.tenants[m]
        multisets = tenant_multisets(problem, tenant)
        columns = [table.column[multiset] for multiset in multisets]
        assert table.changed is not None
        steady = np.ascontiguousarray(table.steady[:, :, columns])
        changed = np.ascontiguousarray(table.changed[:, :, columns])
        is_kept = np.array([initial is None or multiset == initial for multiset in multisets])
        ways = [(way.profile_index, way.option_index + 1, way.end_step) for way in choices_of(problem, tenant)]
        return cls(
            steady,
            changed,
            np.where(is_kept, steady[0, 0], changed[0, 0]),
            np.array(multisets, dtype=np.float64),
            np.array(ways, dtype=np.int64).reshape(-1, 3),
            not tenant.must_retrain,
            np.zeros((len(steady), problem.n_steps + 1)),
            np.zeros((problem.n_steps, len(problem.profile_names))),
            np.zeros(2, dtype=np.int64),
        )

    @property
    def choice(self) -> RetrainingChoice | None:
        """The retraining of the last call's best."""
        way, start = map(int, self.taken)
        if way < 0:
            return None
        profile, level, n_run = map(int, self.ways[way])
        return RetrainingChoice(level - 1, profile, start, start + n_run)

    def best(self, prices: Floats) -> float:
        return best_alone(
            self.steady,
            self.changed,
            self.opening,
            self.counts,
            prices,
            np.ascontiguousarray(prices @ self.counts.T),
            self.ways,
            self.is_optional,
            self.switched,
            self.used,
            self.taken,
        )


def certificate(problem: Problem, prices: Floats) -> Certificate:
    """The prices, rounded to a few digits, as a plan carries them."""
    magnitude = np.floor(np.log10(np.maximum(np.abs(prices), 1e-300)))
    unit = 10.0 ** (magnitude - _DIGITS + 1)
    rounded = np.where(np.abs(prices) < 1e-12, 0.0, np.round(prices / unit) * unit)
    return Certificate(problem.profile_names, np.array([[float(f"{x:.{_DIGITS}g}") for x in row] for row in rounded]))
