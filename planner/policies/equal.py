"""``equal``: the same instances for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from executor.mig import Multiset
from planner.counts import unit_multiset
from planner.engines.physical.held_sets import HeldSets
from planner.engines.static import solve_static_among
from planner.plan import MigPlan
from planner.policies.policy import Knows, Window
from planner.problem import Problem


@dataclass(frozen=True)
class Equal:
    """Holds the same multiset for every tenant, the largest beside which all retrainings find room.

    Source: the split that needs no thought. Knows: the forecast, which it uses for nothing but when to retrain
    beside the layout. Of multisets with as many compute slices the one of fewer, larger instances is taken.
    """

    name: str = "equal"
    knows: Knows = Knows.FORECAST

    def prepared(self, run: Sequence[Problem]) -> Self:  # noqa: ARG002 (what is equal depends on nothing)
        """Itself."""
        return self

    def plan(self, window: Window) -> MigPlan:
        """The plan of the largest equal share that has one; that of the smallest, without lifetimes, if none has."""
        plan: MigPlan | None = None
        for held_sets in _equal_shares(window.problem):
            plan = solve_static_among(window.problem, held_sets)
            if plan.status.has_plan:
                return plan
        return plan or solve_static_among(window.problem, [])


def _equal_shares(problem: Problem) -> Iterator[list[int]]:
    """Held sets that give everybody the same, by what that is, the largest first."""
    held_sets, shares = HeldSets.of(problem), dict[Multiset, list[int]]()
    for number in range(len(held_sets)):
        held = [(0,) * len(problem.profile_names)] * len(problem.tenants)
        for placement, tenant in held_sets.entries(number):
            unit = unit_multiset(problem, placement.profile.name)
            held[tenant] = tuple(map(sum, zip(held[tenant], unit, strict=True)))
        if len(set(held)) == 1:
            shares.setdefault(held[0], []).append(number)
    slices = [problem.gpu.profile(name).compute_slices for name in problem.profile_names]

    def size(multiset: Multiset) -> tuple[int, int]:
        return sum(n * own for n, own in zip(multiset, slices, strict=True)), -sum(multiset)

    for multiset in sorted(shares, key=size, reverse=True):
        yield shares[multiset]
