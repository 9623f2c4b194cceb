"""``paper``: one tenant alone, paying for every instance that it holds (``prices``).

Symbols of the compiled functions: k a column (a multiset that the tenant may hold), l its level, s a step;
F[s][k] the best net value of the steps before s with k held in step s − 1; B[l][s][k] that of the steps from
s on at level l, given k held in step s − 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from executor.compiled import compiled
from planner.counts import tenant_multisets
from planner.engines.arrays import Floats, Int64s, Ints
from planner.engines.paper.plan import initial_multisets
from planner.engines.schedule import WindowFacts
from planner.problem import Retraining


@dataclass(frozen=True, eq=False)
class TenantSubproblem:
    """One tenant's arrays for ``_best_alone``.

    Attributes:
        ways: Its retrainings from step 0.
        switched: From the last call: what is earned net of the retraining's own price when the level
            changes at each step, ``(n_levels, n_steps + 1)``.
        used: From the last call: instances held by profile, ``(n_steps, n_profiles)``.
    """

    ways: tuple[Retraining, ...]
    steady: Floats
    changed: Floats
    opening: Floats
    counts: Floats
    way_rows: Int64s
    added: Floats
    idle: float
    switched: Floats
    used: Floats
    taken: Int64s

    @classmethod
    def of(cls, facts: WindowFacts, m: int) -> TenantSubproblem:
        """Tenant ``m`` of a problem whose gain tables have ``changed``."""
        problem, table, initial = facts.problem, facts.gains[m], initial_multisets(facts.problem)[m]
        multisets = tenant_multisets(problem, problem.tenants[m])
        columns = [table.column[multiset] for multiset in multisets]
        assert table.changed is not None
        n_levels = 1 + len(problem.tenants[m].options)  # checkpoints count by ``WindowFacts.added``
        steady = np.ascontiguousarray(table.steady[:n_levels, :, columns])
        changed = np.ascontiguousarray(table.changed[:n_levels, :, columns])
        is_kept = np.array([initial is None or multiset == initial for multiset in multisets])
        rows = [(problem.profile_names.index(way.profile), way.level, way.n_steps) for way in facts.ways(m)]
        return cls(
            facts.ways(m),
            steady,
            changed,
            np.where(is_kept, steady[0, 0], changed[0, 0]),
            np.array(multisets, dtype=np.float64),
            np.array(rows, dtype=np.int64).reshape(-1, 3),
            _added(facts, m),
            problem.tenants[m].salvages[0] if None in facts.choices[m] else -np.inf,
            np.zeros((len(steady), problem.n_steps + 1)),
            np.zeros((problem.n_steps, len(problem.profile_names))),
            np.zeros(2, dtype=np.int64),
        )

    @property
    def choice(self) -> Retraining | None:
        """The retraining of the last call's best."""
        way, start = map(int, self.taken)
        return None if way < 0 else self.ways[way].at(start)

    def best(self, prices: Floats) -> float:
        """The most that it earns net of prices, ``(n_steps, n_profiles)``."""
        return _best_alone(
            self.steady,
            self.changed,
            self.opening,
            self.counts,
            prices,
            np.ascontiguousarray(prices @ self.counts.T),
            self.way_rows,
            self.added,
            self.idle,
            self.switched,
            self.used,
            self.taken,
        )


def _added(facts: WindowFacts, m: int) -> Floats:
    """``WindowFacts.added`` of each way by start, ``(n_ways, n_steps)``."""
    out = np.zeros((len(facts.ways(m)), facts.n_steps))
    for row, way in zip(out, facts.ways(m), strict=True):
        added = facts.added(way)
        row[: len(added)] = added
    return out


@compiled
def _ahead(steady: Floats, changed: Floats, opening: Floats, cost: Floats) -> tuple[Floats, Ints]:
    """F, and the column held in the step before, ``(n_steps + 1, K)`` each."""
    n_steps, n_columns = steady.shape
    ahead = np.full((n_steps + 1, n_columns), -np.inf)
    source = np.zeros((n_steps + 1, n_columns), np.int32)
    ahead[1] = opening - cost[0]
    for s in range(1, n_steps):
        best = int(np.argmax(ahead[s]))
        for k in range(n_columns):
            stay, change = ahead[s, k] + steady[s, k], ahead[s, best] + changed[s, k]
            source[s + 1, k] = k if stay >= change else best
            ahead[s + 1, k] = max(stay, change) - cost[s, k]
    return ahead, source


@compiled
def _back(steady: Floats, changed: Floats, cost: Floats) -> tuple[Floats, Ints]:
    """B at one level, and the column held in step s, ``(n_steps + 1, K)`` each."""
    n_steps, n_columns = steady.shape
    back = np.zeros((n_steps + 1, n_columns))
    target = np.zeros((n_steps + 1, n_columns), np.int32)
    for s in range(n_steps - 1, 0, -1):
        best, most = 0, -np.inf
        for k in range(n_columns):
            value = back[s + 1, k] + changed[s, k] - cost[s, k]
            if value > most:
                best, most = k, value
        for k in range(n_columns):
            stay = back[s + 1, k] + steady[s, k] - cost[s, k]
            target[s, k] = k if stay >= most else best
            back[s, k] = max(stay, most)
    return back, target


@compiled
def _best_way(ways: Int64s, prices: Floats, switched: Floats, added: Floats, least: float) -> tuple[float, int, int]:
    """The best retraining's net value with salvage, way and start; ``least`` and −1 if none is worth more."""
    n_steps, n_profiles = prices.shape
    paid = np.zeros((n_profiles, n_steps + 1))
    for p in range(n_profiles):
        for s in range(n_steps):
            paid[p, s + 1] = paid[p, s] + prices[s, p]
    total, way, start = least, -1, 0
    for w in range(len(ways)):
        profile, level, n_run = ways[w]
        for s in range(n_steps - n_run + 1):
            value = switched[level, s + n_run] - (paid[profile, s + n_run] - paid[profile, s]) + added[w, s]
            if value > total:
                total, way, start = value, w, s
    return total, way, start


@compiled
def _best_alone(
    steady: Floats,
    changed: Floats,
    opening: Floats,
    counts: Floats,
    prices: Floats,
    cost: Floats,
    ways: Int64s,
    added: Floats,
    idle: float,
    switched: Floats,
    used: Floats,
    taken: Int64s,
) -> float:
    """The most that the tenant earns net of prices, with salvage; what it then holds is left in ``used``.

    Beside the symbols above:
        steady: ``(n_levels, n_steps, K)``; likewise ``changed``.
        opening: What each column earns in step 0, ``(K,)``.
        counts: Instances of each profile in each column, ``(K, P)``.
        prices: ``(n_steps, P)``.
        cost: What each column costs in each step, ``prices @ counts.T``.
        ways: Profile, level and steps of every way to retrain, ``(n, 3)``.
        added: What each way adds at each start, ``(n, n_steps)``.
        idle: What not retraining adds; −inf where it has to.
        switched: Out: the best net value without its retraining's own price when the level changes
            at each step, ``(n_levels, n_steps + 1)``.
        used: Out: instances held by profile, inference and retraining, ``(n_steps, P)``.
        taken: Out: the way to retrain, −1 for none, and its start.
    """
    n_levels, n_steps, n_columns = steady.shape
    ahead, source = _ahead(steady[0], changed[0], opening, cost)
    back = np.zeros((n_levels, n_steps + 1, n_columns))
    target = np.zeros((n_levels, n_steps + 1, n_columns), np.int32)
    switched[:] = -np.inf
    for level in range(1, n_levels):
        back[level], target[level] = _back(steady[level], changed[level], cost)
        for s in range(1, n_steps + 1):
            switched[level, s] = (ahead[s] + back[level, s]).max()
    least = ahead[n_steps].max() + idle
    total, way, start = _best_way(ways, prices, switched, added, least)
    taken[0], taken[1] = way, start
    used[:] = 0.0
    end, level = n_steps, 0
    if way >= 0:
        level, end = ways[way, 1], start + ways[way, 2]
        used[start:end, ways[way, 0]] += 1.0
    # Level 0 has no way back of its own: ``back[0]`` is all 0, and it ends with the window.
    column = int(np.argmax(ahead[end] + back[level, end]))
    k = column
    for s in range(end - 1, -1, -1):
        used[s] += counts[k]
        k = source[s + 1, k]
    for s in range(end, n_steps):
        column = target[level, s, column]
        used[s] += counts[column]
    return float(total)
