"""The convex hull of the instance counts that fit a GPU, in exact integers.

The set F of feasible counts n (one coordinate a profile) holds, with every point, all smaller ones.
The hull of such a set is ``{n ≥ 0 : a·n ≤ 1 for every maximal vertex a of its anti-blocker}``, and
the anti-blocker is ``{a ≥ 0 : a·v ≤ 1 for every maximal v of F}``. Its vertices are found by the
double description method: begin with the cone a ≥ 0, t ≥ 0, cut it with t ≥ a·v for one v after the
other, and keep the extreme rays (a, t). All rays are integers without a common divisor: rounded
coefficients once made a solver return an "optimum" that was 4 % too low.

Source: Fulkerson, "Anti-blocking polyhedra", 1972; Motzkin et al., "The double description method", 1953.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import gcd

from executor.mig import GpuModel, Multiset
from planner.counts import feasible_multisets


@dataclass(frozen=True, slots=True, order=True)
class Facet:
    """``Σ coefficients[p] · n[p] ≤ bound``: integers ≥ 0 without a common divisor."""

    coefficients: Multiset
    bound: int

    def load(self, counts: Sequence[int]) -> int:
        """The left-hand side."""
        return sum(a * n for a, n in zip(self.coefficients, counts, strict=True))


@dataclass(frozen=True, slots=True)
class _Ray:
    direction: tuple[int, ...]
    tight: int
    """Bit i is set when constraint i holds with equality."""


def hull_facets(gpu: GpuModel, profile_names: Sequence[str], unavailable: int = 0) -> tuple[Facet, ...]:
    """The facets, beside n ≥ 0, of the hull of the counts of ``profile_names`` that fit; sorted, cached.

    What fits leaves the memory slices in ``unavailable``, one bit each, free. A profile for which no room is left
    has a facet of its own, n ≤ 0.

    Four on a 7-slice GPU with 1g, 2g, 3g, 4g, 7g: ``n4+n7 ≤ 1``, ``n2+n3+2·n4+3·n7 ≤ 3``,
    ``n1+2·n2+4·n3+4·n4+8·n7 ≤ 8``, ``n1+2·n2+3·n3+4·n4+7·n7 ≤ 7``.
    """
    feasible = feasible_multisets(gpu, profile_names, unavailable)
    most = tuple(map(max, zip(*feasible, strict=True)))
    possible = [p for p, count in enumerate(most) if count]
    found = _facets_of(tuple(tuple(multiset[p] for p in possible) for multiset in feasible)) if possible else ()
    facets = [Facet(_spread(facet.coefficients, possible, len(most)), facet.bound) for facet in found]
    facets += [Facet(_spread((1,), [p], len(most)), 0) for p, count in enumerate(most) if not count]
    return tuple(sorted(facets))


def _spread(coefficients: Multiset, profiles: Sequence[int], n_profiles: int) -> Multiset:
    """Coefficients of these profiles among all."""
    by_profile = dict(zip(profiles, coefficients, strict=True))
    return tuple(by_profile.get(p, 0) for p in range(n_profiles))


def maximal_multisets(multisets: Iterable[Multiset]) -> tuple[Multiset, ...]:
    """The multisets that are not contained in another one of them, sorted."""
    found = sorted(set(multisets))
    return tuple(m for m in found if not any(m != other and _is_below(m, other) for other in found))


def _is_below(lower: Sequence[int], upper: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(lower, upper, strict=True))


@cache
def _facets_of(feasible: tuple[Multiset, ...]) -> tuple[Facet, ...]:
    groups = _interchangeable(feasible)
    n_groups = max(groups) + 1
    merged = {
        tuple(sum(n for n, g in zip(m, groups, strict=True) if g == k) for k in range(n_groups)) for m in feasible
    }
    rays = _extreme_rays(maximal_multisets(merged), n_groups)
    facets = [Facet(tuple(ray.direction[group] for group in groups), ray.direction[-1]) for ray in rays]
    return tuple(sorted(facet for facet in facets if not any(_implies(other, facet) for other in facets)))


def _interchangeable(feasible: tuple[Multiset, ...]) -> tuple[int, ...]:
    """The group of each profile: within one, an instance can always be exchanged for one of the other profile.

    Then only the group's sum matters, the hull is the hull of the sums, and its facets weigh the
    group's profiles alike. An RTX PRO 6000 has 11 profiles in 6 groups: 10 ms instead of 10 s.
    """
    known, n_profiles = set(feasible), len(feasible[0])

    def exchanges(one: int, other: int) -> bool:
        return all(
            tuple(n + (i == other) - (i == one) for i, n in enumerate(multiset)) in known
            for multiset in feasible
            if multiset[one]
        )

    groups: list[int] = []
    for profile in range(n_profiles):
        same = (g for other, g in enumerate(groups) if exchanges(profile, other) and exchanges(other, profile))
        groups.append(next(same, max(groups, default=-1) + 1))
    return tuple(groups)


def _implies(stronger: Facet, weaker: Facet) -> bool:
    """Whether one vertex of the anti-blocker lies below another, which makes its inequality redundant."""
    pairs = zip(stronger.coefficients, weaker.coefficients, strict=True)
    return stronger != weaker and all(w * stronger.bound <= s * weaker.bound for s, w in pairs)


def _extreme_rays(vertices: Sequence[Multiset], dimension: int) -> list[_Ray]:
    """Extreme rays (a, t) of ``{a ≥ 0, t ≥ 0, t ≥ a·v for all v}`` with t > 0.

    Constraint i < d is a[i] ≥ 0, constraint d is t ≥ 0, constraint d + 1 + j is that of vertex j.
    """
    axes = range(dimension + 1)
    rays = [_Ray(tuple(int(i == j) for i in axes), sum(1 << i for i in axes if i != j)) for j in axes]
    for index, vertex in enumerate(vertices, start=dimension + 1):
        rays = _cut(rays, (*(-count for count in vertex), 1), index)
    return [ray for ray in rays if ray.direction[-1] > 0]


def _cut(rays: list[_Ray], normal: Sequence[int], index: int) -> list[_Ray]:
    """The extreme rays after adding ``normal · ray ≥ 0`` as constraint ``index``."""
    sides = [sum(n * r for n, r in zip(normal, ray.direction, strict=True)) for ray in rays]
    above = [(ray, side) for ray, side in zip(rays, sides, strict=True) if side > 0]
    below = [(ray, -side) for ray, side in zip(rays, sides, strict=True) if side < 0]
    kept = [ray for ray, _ in above]
    kept += [_Ray(ray.direction, ray.tight | 1 << index) for ray, side in zip(rays, sides, strict=True) if side == 0]
    all_tight = [ray.tight for ray in rays]
    for (up, up_side), (down, down_side) in product(above, below):
        if _are_adjacent(up, down, all_tight):
            mixed = [u * down_side + d * up_side for u, d in zip(up.direction, down.direction, strict=True)]
            divisor = gcd(*mixed)
            kept.append(_Ray(tuple(x // divisor for x in mixed), (up.tight & down.tight) | 1 << index))
    return kept


def _are_adjacent(one: _Ray, other: _Ray, all_tight: Sequence[int]) -> bool:
    """Whether two extreme rays span an edge: no third one is tight wherever both are."""
    common = one.tight & other.tight
    if common.bit_count() < len(one.direction) - 2:
        return False
    n_containing = 0
    for tight in all_tight:
        if common & tight == common:
            n_containing += 1
            if n_containing > 2:
                return False
    return True
