"""Which tenants hold instances together: the partition of a window that its plans are made for.

A pool can lend a slice for a second, which no layout of exclusive instances can; but who is in it waits for others,
and has processes to start in more instances. Which is better depends on loads, so it is chosen by window. Up to
``MOST_TRIED_ALL`` tenants all partitions come into question. Beyond, they are looked for from last window's and from
all tenants in one pool by merging, splitting, moving and swapping, judged by what the pools could earn with instances
that stay; where none can be served, from groups that tenants join where they can be. Those that are left are planned
for a short while; the best of these plans decides. Work is counted, so that the same window has the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

from planner.arrays import Floats, Int64s
from planner.attainment import attainments, lacks_in_all, required
from planner.budget import Budget
from planner.counts import codes_fit, codes_of, tenant_multisets
from planner.gains import gain_tables
from planner.plan import MigPlan
from planner.problem import Problem

Members = tuple[int, ...]
"""Tenants by index, ascending."""

Partition = tuple[Members, ...]
"""Every tenant in one of the groups, by their first."""

MOST_TRIED_ALL = 3
"""Tenants up to which all partitions are planned for a short while."""

MOST_PLANNED = 3
"""Partitions that are planned for a short while where there are more tenants, beside last window's."""

MOST_JUDGED = 200
"""Partitions that are judged by instances that stay; twice as many in all where none of them can be served."""

SHORT_WORK = 250
"""Units of work (``planner.engines.physical.search``) of a short while."""

WORTHWHILE = 5e-4
"""Share of its worth by which a partition has to be better than last window's: it is known no better than that."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A partition, and the plan that was made with it in a short while.

    Attributes:
        partition: The groups.
        worth: What the plan is worth, in requests; ``None``: there was none.
        lacks: Requests that it lacks of floors of in-time answers.
    """

    partition: Partition
    worth: float | None
    lacks: float = 0.0

    def named(self, names: Sequence[str]) -> list[list[str]]:
        """The groups by name."""
        return [[names[m] for m in group] for group in self.partition]


def all_partitions(tenants: Members) -> Iterator[Partition]:
    """Every way to put these tenants into groups."""
    if not tenants:
        yield ()
        return
    first, *rest = tenants
    for n in range(len(rest) + 1):
        for others in combinations(rest, n):
            left = tuple(m for m in rest if m not in others)
            yield from (((first, *others), *more) for more in all_partitions(left))


def in_order(groups: Iterable[Iterable[int]]) -> Partition:
    """The partition of these groups, without empty ones."""
    return tuple(sorted(tuple(sorted(group)) for group in groups if group))


def choose(
    n_tenants: int,
    pose: Callable[[Partition], Problem | None],
    pose_alone: Callable[[Members], Problem | None],
    solve: Callable[[Problem, Budget], MigPlan],
    alone: frozenset[int] = frozenset(),
    last: Partition | None = None,
    floor_costs_at_most: float = math.inf,
) -> tuple[Judged, ...]:
    """The partitions that were planned for a short while, the chosen one first, then the best.

    Where there are floors, that is the one that lacks fewest requests of them, of those that cost no more than they
    may. Last window's is chosen where none is better by ``WORTHWHILE``.

    Args:
        n_tenants: How many there are.
        pose: The window's problem with a partition; ``None`` where a pool cannot be served, or groups are too many.
        pose_alone: About the problem of a group's tenants that have the GPU to themselves; ``None`` likewise.
        solve: Answers a problem within a budget.
        alone: The tenants that may be in no pool with others.
        last: Last window's.
        floor_costs_at_most: What floors may cost of the best worth, as :func:`planner.solve.solve` has it.
    """
    everyone = tuple(range(n_tenants))
    found, most, allowed = list[Judged](), -math.inf, 0.0

    def may_be(partition: Partition) -> bool:
        return all(len(group) == 1 or alone.isdisjoint(group) for group in partition)

    if n_tenants <= MOST_TRIED_ALL:
        candidates = [*all_partitions(everyone)]
    else:
        together = in_order([everyone if not alone else set(everyone) - alone, *({m} for m in alone)])
        starts = [partition for partition in (last, together) if partition is not None]
        promising = _promising(starts, may_be, pose_alone, everyone)
        candidates = list(dict.fromkeys([*starts[: last is not None], *promising]))
        candidates = candidates or [in_order({m} for m in everyone)]  # whose refusal says why nothing can be served
    for partition in filter(may_be, candidates):
        problem = pose(partition)
        plan = None if problem is None else solve(problem, Budget(max_nodes=SHORT_WORK, proves=False))
        if problem is None or plan is None or plan.objective is None:
            found.append(Judged(partition, None))
            continue
        lacks = lacks_in_all(attainments(problem, plan)) if problem.has_floors else 0.0
        found.append(Judged(partition, plan.objective, lacks))
        most = max(most, plan.objective + (plan.floor_costs or 0.0) * problem.most_goodput)
        allowed = floor_costs_at_most / 100 * problem.most_goodput

    def rank(one: Judged) -> tuple[bool, bool, float, float]:
        worth = one.worth or 0.0
        kept = WORTHWHILE * abs(worth) if one.partition == last else 0.0
        return one.worth is not None, worth >= most - allowed, -one.lacks, worth + kept

    return tuple(sorted(found, key=rank, reverse=True))


def _promising(
    starts: Sequence[Partition],
    may_be: Callable[[Partition], bool],
    pose_alone: Callable[[Members], Problem | None],
    everyone: Members,
) -> list[Partition]:
    """Partitions whose groups earn most with instances that stay, best first; ``starts`` are where it begins.

    Where that leads to none that can be served, it begins again from groups that tenants join where they can be.
    """
    worth_of, judged = cache(lambda group: standing(pose_alone(group))), dict[Partition, tuple[float, int, int]]()

    def judge(partition: Partition) -> tuple[float, int, int]:
        """What it earns; where that is −∞, how many tenants could be served, then how few groups have to fit."""
        if partition not in judged:
            found = [worth_of(group) for group in partition]
            n_served = sum(len(group) for group, own in zip(partition, found, strict=True) if own is not None)
            worth = best_together(found)
            judged[partition] = (worth, 0, 0) if worth > -np.inf else (worth, n_served, -len(partition))
        return judged[partition]

    def climb(start: Partition, n_most: int) -> None:
        best, value = start, judge(start)
        while len(judged) < n_most:
            left = n_most - len(judged)
            near = [other for other in neighbours(best) if other not in judged and may_be(other)][:left]
            found = max(near, key=judge, default=best)
            if judge(found) <= value:
                break
            best, value = found, judge(found)

    for start in starts:
        climb(start, MOST_JUDGED)
    if all(worth == -np.inf for worth, _, _ in judged.values()):
        joined = list[Members]()
        for m in everyone:
            for place, group in enumerate(joined):
                if may_be(((*group, m),)) and worth_of((*group, m)) is not None:
                    joined[place] = (*group, m)
                    break
            else:
                joined.append((m,))
        climb(in_order(joined), 2 * MOST_JUDGED)
    ranked = sorted((one for one in judged if judged[one][0] > -np.inf), key=lambda one: -judged[one][0])
    return ranked[:MOST_PLANNED]


def neighbours(partition: Partition) -> Iterator[Partition]:
    """The partitions that differ by a merge, a tenant set apart or moved, or two that change places."""
    for one, other in combinations(partition, 2):
        rest = [group for group in partition if group not in (one, other)]
        yield in_order([*rest, (*one, *other)])
        for m in one:
            yield in_order([*rest, {*one} - {m}, {*other, m}])
        for m in other:
            yield in_order([*rest, {*one, m}, {*other} - {m}])
        for m in one:
            for n in other:
                yield in_order([*rest, {*one, n} - {m}, {*other, m} - {n}])
    for group in partition:
        rest = [other for other in partition if other != group]
        yield from (in_order([*rest, {m}, {*group} - {m}]) for m in group if len(group) > 1)


Standing = tuple[Problem, Int64s, Floats]
"""A group's problem alone, the multisets that it may hold, ``(n, n_profiles)``, and what each earns, ``(n,)``."""


def standing(problem: Problem | None) -> Standing | None:
    """What a group would earn if it held one multiset throughout, at the mean of its present and best accuracies.

    A request that lacks of a floor of in-time answers costs as much as a right answer earns.
    """
    if problem is None:
        return None
    held = tenant_multisets(problem, problem.tenants[0])
    if not held:
        return None
    worth = np.zeros(len(held))
    for tenant, table in zip(problem.tenants, gain_tables(problem), strict=True):
        assert table.in_time is not None
        in_time = table.in_time[:, [table.column[multiset] for multiset in held]].sum(axis=0)
        worth += tenant.weight * (tenant.accuracy_before + max(tenant.accuracies)) / 2 * in_time
        if tenant.min_slo_attainment is not None:
            worth -= tenant.weight * np.maximum(required(tenant.min_slo_attainment, table) - in_time, 0.0)
    return problem, np.array(held, dtype=np.int64), worth


def best_together(groups: Sequence[Standing | None]) -> float:
    """The most that groups earn with multisets that fit the GPU together; −inf where one has none."""
    found = [group for group in groups if group is not None]
    if len(found) < len(groups):
        return -np.inf
    gpu = found[0][0].gpu
    names, total, best = gpu.profile_names, np.zeros(1, dtype=np.int64), np.zeros(1)
    for problem, held, worth in found:
        counts = np.zeros((len(held), len(names)), dtype=np.int64)
        counts[:, [names.index(name) for name in problem.profile_names]] = held
        codes = (total[:, None] + codes_of(counts)).reshape(-1)
        values = (best[:, None] + worth).reshape(-1)
        is_in = codes_fit(gpu, names, codes)
        codes, values = codes[is_in], values[is_in]
        order = np.lexsort((-values, codes))
        total, first = np.unique(codes[order], return_index=True)
        best = values[order][first]
    return float(best.max(initial=-np.inf))
