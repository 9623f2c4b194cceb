"""Layouts that stay: ``static`` and ``static-history`` for a run, ``window`` for a window, ``equal`` for all alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import ge, mul
from typing import Self

import numpy as np

from executor.mig import Multiset
from planner.arrays import Floats
from planner.counts import multiset_of
from planner.engines.answer import relaxed_bound
from planner.engines.physical.held_sets import HeldSets
from planner.engines.physical.static import best_held_set, solve_static_among
from planner.engines.schedule import WindowFacts
from planner.errors import EngineError
from planner.plan import MigPlan
from planner.policies.policy import Knows, Policy, Window
from planner.problem import Problem, with_arrivals, without_floors
from planner.replan import without_hopeless_retrainings
from planner.solve import solve


@dataclass(frozen=True)
class FixedInHindsight(Policy):
    """Holds one layout from the first second to the last: the one that the whole run's arrivals favour.

    Source: the usual deployment of MIG, given what no deployment has: the true arrivals of all windows, and the best
    retrainings beside the layout in each. Knows: the run.

    Attributes:
        held_set: The layout with its owners, by its number among all held sets.
    """

    name: str = "static"
    knows: Knows = Knows.RUN
    held_set: int | None = None

    def prepared(self, run: Sequence[Problem]) -> Self:
        """With the layout that all windows together gain most from.

        Raises:
            EngineError: No layout has room for every window's retrainings; names the first window for which none has.
        """
        held_set = best_held_set(run)
        if held_set is None:
            alone = (f"window {number}" for number, problem in enumerate(run) if best_held_set([problem]) is None)
            which = next(alone, "all windows together, though for each window's some has")
            raise EngineError(f"{self.name}: no fixed layout has room for the retrainings of {which}")
        return replace(self, held_set=held_set)

    def plan(self, window: Window) -> MigPlan:
        """The best retrainings beside the layout."""
        assert self.held_set is not None  # a policy that knows the run is prepared with it
        return solve_static_among(window.problem, [self.held_set])


@dataclass(frozen=True)
class FixedOnHistory(Policy):
    """Holds one layout from the first second on: the one that the arrivals before the run favour.

    Source: the usual deployment of MIG, sized by what was measured. Knows: the past, for the layout; the forecast, for
    when and where retrainings run beside it.
    The past is cut into windows, and the layout is the best for all of them as ``static``'s is, each with the first
    window's retrainings, and as worth min(arrivals, capability) in every step. A past shorter than that is repeated.
    A layout that later has no room for a window's retrainings is fitted anew, to the past of then; nothing else is.
    """

    name: str = "static-history"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        """The best retrainings beside the layout; without lifetimes where no fixed one has room for them."""
        problem = without_floors(window.problem)
        held = WindowFacts.of(problem).initial_held
        if held is not None and (number := HeldSets.of(problem).index(held)) is not None:
            plan = solve_static_among(problem, [number])
            if plan.status.has_plan:
                return plan
        fitted = best_held_set(_past_windows(problem, window.past_rps))
        return solve_static_among(problem, [] if fitted is None else [fitted])


def _past_windows(problem: Problem, past_rps: Floats) -> list[Problem]:
    """The problem with the arrivals of the past's windows, the newest first, each as if it were the first of a run."""
    n_steps = problem.n_steps
    if not len(past_rps):
        past_rps = np.array([tenant.arrivals_rps for tenant in problem.tenants]).T
    elif len(past_rps) < n_steps:
        past_rps = np.resize(past_rps, (n_steps, past_rps.shape[1]))
    first, ends = replace(problem, initial=None), range(len(past_rps), n_steps - 1, -n_steps)
    return [with_arrivals(first, past_rps[end - n_steps : end]) for end in ends]


@dataclass(frozen=True)
class FixedByWindow(Policy):
    """Changes the layout at the start of a window and then keeps it; retrainings run beside it.

    Source: the obvious thing to do with MIG, whose layouts are slow to change. Knows: the forecast. The layout, and
    when and where retrainings run beside it, are the best with one change (engine ``static``).
    """

    name: str = "window"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        """The best plan with at most one change, at the window's start; floors of in-time answers as ``migrator``."""
        return solve(window.problem, "static", window.budget, floor_costs_at_most=window.floor_costs_at_most)


@dataclass(frozen=True)
class Equal(Policy):
    """Holds the same multiset for every tenant: the largest one beside which all retrainings find room.

    Source: the split that needs no thought. Knows: the forecast, which it uses for nothing but when to retrain
    beside the layout. Among multisets with equally many compute slices it takes the one of fewer, larger instances.
    Retrainings that may be left out run as well. Only where no share has room for all, those required come first.
    """

    name: str = "equal"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        """The plan of the largest equal share that has one; an answer without lifetimes if none has."""
        return with_most_retrainings(
            window.problem,
            lambda problem: (solve_static_among(problem, held_sets) for held_sets in _equal_shares(problem)),
        )


def with_most_retrainings(problem: Problem, plans: Callable[[Problem], Iterable[MigPlan]]) -> MigPlan:
    """The first plan with every retraining that can be had, else with those required; without lifetimes if none is.

    ``plans`` has those of the problem it is given, in which the retrainings that a plan is to have are required.
    """
    tenants = tuple(replace(tenant, retraining_required=True) for tenant in problem.tenants)
    eager = without_hopeless_retrainings(replace(problem, tenants=tenants))
    before, now = ([tenant.retraining_required for tenant in one.tenants] for one in (problem, eager))
    asks_for_more = now != before and all(map(ge, now, before))
    for posed in (eager, problem) if asks_for_more else (problem,):
        for plan in plans(posed):
            if plan.status.has_plan:
                return plan if posed is problem else replace(plan, claimed_bound=relaxed_bound(WindowFacts.of(problem)))
    return solve_static_among(problem, [])


def _equal_shares(problem: Problem) -> Iterator[list[int]]:
    """The held sets that give every tenant the same multiset, grouped by that multiset, the largest first."""
    held_sets, shares = HeldSets.of(problem), dict[Multiset, list[int]]()
    for number in range(len(held_sets)):
        held = [(tenant, placement.profile.name) for placement, tenant in held_sets.entries(number)]
        own = [multiset_of(problem, [name for m, name in held if m == n]) for n in range(len(problem.tenants))]
        if len(set(own)) == 1:
            shares.setdefault(own[0], []).append(number)

    def size(multiset: Multiset) -> tuple[int, int]:
        slices = (profile.compute_slices for profile in problem.profiles)
        return sum(map(mul, multiset, slices)), -sum(multiset)

    for multiset in sorted(shares, key=size, reverse=True):
        yield shares[multiset]
