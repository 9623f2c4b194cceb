"""Which tenants share: all partitions of few, near ones of many, and the best of what was planned for a short while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from executor.catalogue import gpu_model
from planner.budget import Budget
from planner.counts import tenant_multisets
from planner.gains import gain_tables
from planner.partition import (
    MOST_PLANNED,
    WORTHWHILE,
    Judged,
    Members,
    Partition,
    all_partitions,
    best_together,
    choose,
    in_order,
    neighbours,
    standing,
)
from planner.plan import MigPlan
from planner.problem import (
    AttainmentFloor,
    Per,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    TenantTerms,
)
from planner.solve import solve
from tests.seeds import daily

GPU = gpu_model("a30-24gb")
PROFILES = ("1g.6gb", "2g.12gb", "4g.24gb")


def tenants_of(seed: int, n: int, n_steps: int = 12) -> tuple[TenantTerms, ...]:
    rng, found = np.random.default_rng([seed, 31]), []
    for index in range(n):
        rates = np.cumsum(rng.uniform(10, 30, len(PROFILES)))
        arrivals = rng.uniform(0, rates[-1] * 1.2 / n, n_steps) * rng.choice([0.2, 1.0, 2.0], n_steps)
        options = (RetrainingOption("full", {"1g.6gb": 3.0, "2g.12gb": 2.0}, 0.9),) if rng.random() < 0.7 else ()
        terms = dict(zip(PROFILES, rates.tolist(), strict=True))
        found.append(TenantTerms(f"t{index}", arrivals, terms, 0.6, 1.0, "1g.6gb", options, retraining_required=False))
    return tuple(found)


def posing(tenants: tuple[TenantTerms, ...], most: int = 3) -> Callable[[Partition], Problem | None]:
    """Pools of up to so many, each member of which is served at nine tenths of its own rate."""

    def pose(partition: Partition) -> Problem | None:
        if len(partition) > GPU.compute_slices or any(len(group) > most for group in partition):
            return None
        pools = tuple(
            Pool(
                tuple(tenants[m].name for m in group),
                {name: {tenants[m].name: 0.9 * tenants[m].capability_rps[name] for m in group} for name in PROFILES},
                1.5,
            )
            for group in partition
            if len(group) > 1
        )
        n_steps = len(tenants[0].arrivals_rps)
        return Problem(GPU, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=0.5, pools=pools)

    return pose


def posing_alone(tenants: tuple[TenantTerms, ...], most: int = 3) -> Callable[[Members], Problem | None]:
    def pose(members: Members) -> Problem | None:
        own = tuple(tenants[m] for m in members)
        return posing(own, most)((tuple(range(len(members))),))

    return pose


def test_all_partitions_are_each_of_them_once() -> None:
    bell = {1: 1, 2: 2, 3: 5, 4: 15, 5: 52}
    for n, n_partitions in bell.items():
        found = list(all_partitions(tuple(range(n))))
        assert len(set(found)) == len(found) == n_partitions
        assert all(partition == in_order(partition) for partition in found)
        assert all(sorted(m for group in partition for m in group) == list(range(n)) for partition in found)


def test_neighbours_are_partitions_and_lead_to_all_others() -> None:
    start, everything = in_order([[0, 1, 2, 3, 4]]), set(all_partitions((0, 1, 2, 3, 4)))
    seen, waiting = {start}, [start]
    while waiting:
        for other in neighbours(waiting.pop()):
            assert other in everything
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    assert seen == everything


@pytest.mark.parametrize("seed", daily(range(6), (0, 1, 3)))
def test_what_is_chosen_of_few_is_the_best_of_all(seed: int) -> None:
    tenants, rng = tenants_of(seed, 3), np.random.default_rng(seed)
    pose, alone = posing(tenants), frozenset({int(rng.integers(3))} if seed % 3 == 0 else ())
    found = choose(3, pose, posing_alone(tenants), lambda problem, budget: solve(problem, budget=budget), alone)
    allowed = [p for p in all_partitions((0, 1, 2)) if all(len(g) == 1 or alone.isdisjoint(g) for g in p)]
    assert sorted(one.partition for one in found) == sorted(allowed)
    best = {p: solve(problem).objective for p in allowed if (problem := pose(p)) is not None}
    assert best[found[0].partition] >= (1 - 1e-3) * max(best.values())
    worths = [one.worth for one in found if one.worth is not None]
    assert worths == sorted(worths, reverse=True)
    # Last window's stays where nothing is better by more than a trifle.
    last = next(one.partition for one in found if one.worth == min(worths))
    again = choose(3, pose, posing_alone(tenants), lambda p, budget: solve(p, budget=budget), alone, last)
    is_near = worths[0] - min(worths) <= WORTHWHILE * min(worths)
    assert again[0].partition == (last if is_near else found[0].partition)


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_judged_by_the_best_that_fits_together(seed: int) -> None:
    tenants = tenants_of(seed, 4)
    for partition in all_partitions((0, 1, 2, 3)):
        problems = [posing_alone(tenants)(group) for group in partition]
        if any(problem is None for problem in problems):
            continue
        earned: list[list[tuple[tuple[str, ...], float]]] = []
        for problem in problems:
            assert problem is not None
            own = []
            for multiset in tenant_multisets(problem, problem.tenants[0]):
                worth = 0.0
                for tenant, table in zip(problem.tenants, gain_tables(problem), strict=True):
                    assert table.in_time is not None
                    mean = (tenant.accuracy_before + max(tenant.accuracies)) / 2
                    worth += tenant.weight * mean * table.in_time[:, table.column[multiset]].sum()
                pairs = zip(problem.profile_names, multiset, strict=True)
                own.append((tuple(name for name, count in pairs for _ in range(count)), worth))
            earned.append(own)
        best, feasible = -np.inf, set(GPU.multisets(PROFILES))
        for chosen in product(*earned):
            names = [name for held, _ in chosen for name in held]
            counts = tuple(names.count(name) for name in PROFILES)
            if counts in feasible:
                best = max(best, sum(worth for _, worth in chosen))
        assert best_together([standing(problem) for problem in problems]) == pytest.approx(best)


@pytest.mark.parametrize("seed", daily(range(3), (0,)))
def test_of_many_a_few_are_planned_and_nobody_shares_who_is_to_be_alone(seed: int) -> None:
    tenants = tenants_of(seed, 6)
    alone = frozenset({5})
    last = in_order([[0, 1], [2, 3, 4], [5]])
    planned: list[Problem] = []

    def solved(problem: Problem, budget: Budget) -> MigPlan:
        planned.append(problem)
        return solve(problem, budget=replace(budget, max_nodes=20))

    found = choose(6, posing(tenants), posing_alone(tenants), solved, alone, last)
    assert len(planned) <= MOST_PLANNED + 1
    assert last in [one.partition for one in found]
    assert all((5,) in one.partition for one in found)
    assert found[0].worth is not None


@pytest.mark.parametrize(("n", "most"), [(4, 1), (7, 2), (6, 1)])
def test_where_all_cannot_share_smaller_groups_are_found(n: int, most: int) -> None:
    tenants = tenants_of(1, n)

    def pose(partition: Partition) -> Problem | None:
        return posing(tenants)(partition) if all(len(group) <= most for group in partition) else None

    def pose_alone(members: Members) -> Problem | None:
        return posing_alone(tenants)(members) if len(members) <= most else None

    chosen = choose(n, pose, pose_alone, lambda problem, _: solve(problem, budget=Budget(max_nodes=20)))[0]
    if n > most * GPU.compute_slices:
        assert chosen == Judged(in_order([m] for m in range(n)), None)
    else:
        assert chosen.worth is not None


@pytest.mark.parametrize("kinds", ["aaaaaaaabbbbbbbb", "abababababababab", "aaaaaaaaaabbbb", "abbbbbbbbbbbbbbc"])
def test_tenants_of_kinds_that_cannot_share_are_told_apart_in_whatever_order(kinds: str) -> None:
    n = len(kinds)
    tenants = tenants_of(1, n)

    def pose(partition: Partition) -> Problem | None:
        is_told_apart = all(len({kinds[m] for m in group}) == 1 for group in partition)
        return posing(tenants, n)(partition) if is_told_apart else None

    def pose_alone(members: Members) -> Problem | None:
        return posing_alone(tenants, n)(members) if len({kinds[m] for m in members}) == 1 else None

    chosen = choose(n, pose, pose_alone, lambda problem, _: solve(problem, "greedy"))[0]
    assert chosen.worth is not None


@pytest.mark.parametrize("seed", daily([0, 1, 12, 23, 29, 30, 36], [30]))
def test_under_floors_that_is_chosen_which_lacks_fewest_of_what_they_may_cost(seed: int) -> None:
    first, *others = tenants_of(seed, 3)
    # Its requests are worth least, so that its floor costs something.
    tenants = (replace(first, min_slo_attainment=AttainmentFloor(0.97, Per.WINDOW), weight=0.4), *others)
    pose = posing(tenants)

    def chosen(costs_at_most: float) -> tuple[Judged, ...]:
        def solved(problem: Problem, budget: Budget) -> MigPlan:
            return solve(problem, budget=budget, floor_costs_at_most=costs_at_most)

        return choose(3, pose, posing_alone(tenants), solved, floor_costs_at_most=costs_at_most)

    free, held, unlimited = (chosen(costs) for costs in (0.0, 5.0, 100.0))
    most = max(one.worth for one in free if one.worth is not None)
    asked = next(problem for problem in map(pose, all_partitions((0, 1, 2))) if problem is not None).most_goodput
    for costs, found in ((0.0, free), (5.0, held), (100.0, unlimited)):
        least = most - costs / 100 * asked - 1e-6 * most
        affordable = [one for one in found if one.worth is not None and one.worth >= least]
        assert found[0].lacks == pytest.approx(min(one.lacks for one in affordable))
        assert found[0].worth is not None
        assert found[0].worth >= least
    assert unlimited[0].lacks <= held[0].lacks <= free[0].lacks
