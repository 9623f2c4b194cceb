"""``paper``: the proven best plan, without a solver.

At most two tenants that retrain: every schedule is valued or bounded from shared prefixes and suffixes
(``exact_pair``). More: moves that are exact for two tenants at a time, a tight bound from prices of
statuses, and an enumeration of what is left between both (``exact_many``). Prices of instances
(``prices``) come along as a certificate.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from planner.budget import Budget
from planner.engines.answer import require_paper, with_plan, without_plan
from planner.engines.effort import N_THREADS
from planner.engines.paper.alone import TenantSubproblem
from planner.engines.paper.exact_many import ManySearch
from planner.engines.paper.greedy import earliest_choices, schedules_to_try
from planner.engines.paper.holding_path import HoldingPaths
from planner.engines.paper.pairs import Found, PairSearch, actors_of
from planner.engines.paper.states import Joint
from planner.engines.paper.statuses import Statuses, from_prices
from planner.engines.prices import Descent, InstancePrices, Subgradient, certificate
from planner.engines.schedule import RetrainingChoices, decisions_of, value_of
from planner.feasibility import RULE_RETRAINING, infeasibility
from planner.gains import gain_tables
from planner.plan import Infeasibility, MigPlan, Status
from planner.problem import Problem

ENGINE = "exact"

_PRICE_ROUNDS = 600
"""Rounds of the prices of instances: a tenth of a second for two tenants over 200 steps."""

_FIRST_ROUNDS = 300
"""Those of them that statuses begin with: sweeps lower a bound faster than more rounds do."""


def solve_exact(problem: Problem, budget: Budget | None = None, initial: MigPlan | None = None) -> MigPlan:
    """The best plan of a ``paper`` problem: proven for at most two tenants that retrain, else with its gap.

    Args:
        problem: A ``paper`` problem.
        budget: ``time_limit_s`` ends the search with the best plan so far and its bound;
            ``max_nodes`` counts the schedules that are valued one by one. A proof is always looked for:
            ``rel_gap`` is not used.
        initial: A plan of an earlier solve; the search begins with it where it still is one.

    Raises:
        EngineError: The problem is not ``paper``.
    """
    started_s = time.perf_counter()
    require_paper(problem, ENGINE)
    reason = infeasibility(problem)
    if reason is not None:
        return replace(without_plan(problem, Status.INFEASIBLE, ENGINE, started_s), infeasibility=reason)
    with ThreadPoolExecutor(N_THREADS) as pool:
        return _Solve(problem, budget or Budget(), initial, pool, started_s).run()


class _Solve:
    """One solve: the joint states, the prices, and the search that fits the number of tenants."""

    def __init__(
        self, problem: Problem, budget: Budget, initial: MigPlan | None, pool: Executor, started_s: float
    ) -> None:
        self._problem, self._budget, self._initial, self._pool = problem, budget, initial, pool
        self._started_s = started_s
        self._tables = gain_tables(problem)
        self._joint = Joint(problem, self._tables)
        self._alone = [TenantSubproblem.of(problem, m, table) for m, table in enumerate(self._tables)]
        self._dual = InstancePrices(problem, self._alone)
        self._prices = Subgradient(self._dual, np.zeros(self._dual.shape), Descent())

    def run(self) -> MigPlan:
        problem, actors = self._problem, actors_of(self._joint)
        known = self._known()
        if len(actors) <= 2:
            found, work = self._pair(actors, known)
        else:
            found, work = self._many(actors, known)
        if not np.isfinite(found.value):
            return self._no_plan(is_proven=bool(np.isneginf(found.bound)))
        decisions = self._joint.path(found.choices)
        assert decisions is not None
        value = value_of(problem, self._tables, decisions)
        # Up to here values were summed in another order.
        bound = value if found.bound <= found.value else max(value, found.bound)
        plan = with_plan(problem, (value, decisions), bound, ENGINE, self._started_s, work)
        return replace(plan, certificate=certificate(problem, self._prices.multipliers))

    def _pair(self, actors: tuple[int, ...], known: Found) -> tuple[Found, tuple[tuple[str, int], ...]]:
        prices = self._pool.submit(self._lower_prices, known.value)
        found = PairSearch(self._joint, actors, self._pool, known).run(self._is_over)
        prices.result()
        found = replace(found, bound=min(found.bound, max(found.value, self._prices.bound)))
        return found, (("states", self._joint.n_states), ("schedules", found.n_valued))

    def _many(self, actors: tuple[int, ...], known: Found) -> tuple[Found, tuple[tuple[str, int], ...]]:
        self._lower_prices(known.value, _FIRST_ROUNDS)
        if self._is_over():
            return replace(known, bound=max(known.value, self._prices.bound)), ()
        self._dual(self._prices.multipliers)
        switched = [alone.switched for alone in self._alone]
        multipliers = from_prices(self._joint, actors, self._prices.multipliers, switched)
        statuses = Statuses(self._joint, actors, multipliers)
        search = ManySearch(
            self._joint,
            statuses,
            actors,
            self._pool,
            known,
            self._is_over,
            self._budget.max_nodes,
            is_timed=self._budget.time_limit_s is not None,
        )
        found = search.run(self._starts(known.value))
        found = replace(found, bound=min(found.bound, max(found.value, self._prices.bound)))
        work = (("states", self._joint.n_states), ("schedules", found.n_valued), ("sweeps", search.n_sweeps))
        return found, work

    def _starts(self, lower: float) -> Iterator[RetrainingChoices]:
        """Schedules that look good; then the rest of the prices."""
        yield from schedules_to_try(HoldingPaths(self._problem, self._tables, self._joint), self._tables)
        self._lower_prices(lower, _PRICE_ROUNDS - _FIRST_ROUNDS)

    def _lower_prices(self, lower: float, n_rounds: int = _PRICE_ROUNDS) -> None:
        # Without a plan to aim at, half of the first bound will do.
        aim = lower if np.isfinite(lower) else 0.0
        self._prices.run(aim, n_rounds, self._is_over)

    def _known(self) -> Found:
        """The best of the schedules that are at hand."""
        nothing = Found(-np.inf, (None,) * len(self._problem.tenants), np.inf)
        return self._better(nothing, self._at_hand())

    def _better(self, best: Found, others: Iterable[RetrainingChoices]) -> Found:
        for choices in others:
            value = self._joint.value(choices)
            if value > best.value:
                best = Found(value, choices, np.inf)
        return best

    def _at_hand(self) -> Iterator[RetrainingChoices]:
        problem = self._problem
        if self._initial is not None:
            decisions = decisions_of(problem, self._initial)
            if decisions is not None:
                yield tuple(decision.retraining for decision in decisions)
        earliest = earliest_choices(problem)
        if earliest is not None:
            yield earliest

    def _is_over(self) -> bool:
        limit_s = self._budget.time_limit_s
        return limit_s is not None and time.perf_counter() - self._started_s >= limit_s

    def _no_plan(self, *, is_proven: bool) -> MigPlan:
        if not is_proven:
            return without_plan(self._problem, Status.TIMEOUT, ENGINE, self._started_s, self._prices.bound)
        text = "no schedule of the required retrainings fits beside every tenant's min_profile"
        plan = without_plan(self._problem, Status.INFEASIBLE, ENGINE, self._started_s)
        return replace(plan, infeasibility=Infeasibility(None, RULE_RETRAINING, text))
