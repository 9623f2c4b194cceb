"""``paper``: one tenant alone, paying for every instance that it holds (``prices``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.counts import tenant_multisets
from planner.engines.arrays import Floats
from planner.engines.paper.alone_kernel import best_alone
from planner.engines.schedule import RetrainingChoice, choices_of, initial_multisets
from planner.problem import GainTable, Problem


@dataclass(frozen=True, eq=False)
class TenantSubproblem:
    """One tenant's arrays for ``best_alone``.

    Attributes:
        switched: From the last call: what is earned net of the retraining's own price when the level
            changes at each step, ``(n_levels, n_steps + 1)``.
        used: From the last call: instances held by profile, ``(n_steps, n_profiles)``.
    """

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
    def of(cls, problem: Problem, m: int, table: GainTable) -> TenantSubproblem:
        """Tenant ``m`` of a problem with its gain table, which has ``changed``."""
        tenant, initial = problem.tenants[m], initial_multisets(problem)[m]
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
        """The most that it earns net of prices, ``(n_steps, n_profiles)``."""
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
