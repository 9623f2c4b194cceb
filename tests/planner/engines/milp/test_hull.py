"""The hull of feasible counts: known facets, and its defining properties on every catalogued GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.mig import GpuModel
from planner.counts import feasible_multisets
from planner.engines.milp.hull import Facet, _facets_of, hull_facets, maximal_multisets

SEVEN_SLICE = ("a100-40gb", "a100-80gb", "b200-180gb", "h100-80gb", "h100-nvl-94gb", "h200-141gb")


def profile_sets(gpu: GpuModel) -> list[tuple[str, ...]]:
    """Every set of one or two profiles, every set without two, the standard ones, and all."""
    names = gpu.profile_names
    sizes = {1, 2, len(names) - 2, len(names) - 1, len(names)}
    sets = [chosen for size in sorted(sizes) for chosen in combinations(names, size)]
    return [*sets, gpu.standard_profile_names]


def affine_rank(points: Iterable[Sequence[int]]) -> int:
    """How many of the points are affinely independent at most, by exact elimination."""
    rows = [[*point, 1] for point in points]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in rows[rank:] if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        rows.insert(rank, pivot)
        for i in range(rank + 1, len(rows)):
            rows[i] = [pivot[column] * x - rows[i][column] * p for x, p in zip(rows[i], pivot, strict=True)]
        rank += 1
    return rank


def admitted(facets: Sequence[Facet], most: Sequence[int]) -> set[tuple[int, ...]]:
    """The counts up to ``most`` that satisfy every facet."""
    points: list[tuple[int, ...]] = [()]
    for n_most in most:
        # A prefix beyond a facet stays beyond it: coefficients and counts are ≥ 0.
        longer = [(*prefix, count) for prefix, count in product(points, range(n_most + 1))]
        points = [p for p in longer if all(f.load((*p, *(0,) * (len(most) - len(p)))) <= f.bound for f in facets)]
    return set(points)


@pytest.mark.parametrize("name", SEVEN_SLICE)
def test_a_7_slice_gpu_has_the_four_facets_of_the_design(name: str) -> None:
    gpu = gpu_model(name)
    assert set(hull_facets(gpu, gpu.standard_profile_names)) == {
        Facet((0, 0, 0, 1, 1), 1),
        Facet((0, 1, 1, 2, 3), 3),
        Facet((1, 2, 4, 4, 8), 8),
        Facet((1, 2, 3, 4, 7), 7),
    }


@pytest.mark.parametrize("name", gpu_model_names())
def test_every_feasible_count_satisfies_every_facet(name: str) -> None:
    gpu = gpu_model(name)
    for names in profile_sets(gpu):
        feasible = feasible_multisets(gpu, names)
        assert all(facet.load(counts) <= facet.bound for facet in hull_facets(gpu, names) for counts in feasible), names


@pytest.mark.parametrize("name", gpu_model_names())
def test_every_facet_is_tight_on_as_many_independent_counts_as_there_are_profiles(name: str) -> None:
    gpu = gpu_model(name)
    for names in profile_sets(gpu):
        feasible = feasible_multisets(gpu, names)
        for facet in hull_facets(gpu, names):
            tight = [counts for counts in feasible if facet.load(counts) == facet.bound]
            assert affine_rank(tight) == len(names), (names, facet)


@pytest.mark.parametrize("name", gpu_model_names())
def test_no_catalogued_gpu_needs_more_than_its_facets(name: str) -> None:
    # A subset of the profiles has a face of this hull as its own, so all profiles together stand for every subset.
    gpu = gpu_model(name)
    feasible = feasible_multisets(gpu, gpu.profile_names)
    most = [max(counts) for counts in zip(*feasible, strict=True)]
    assert admitted(hull_facets(gpu, gpu.profile_names), most) == set(feasible)


@pytest.mark.parametrize("name", gpu_model_names())
def test_facets_suffice_for_whatever_memory_slices_others_leave(name: str) -> None:
    gpu = gpu_model(name)
    names = gpu.standard_profile_names
    whole = [max(counts) for counts in zip(*feasible_multisets(gpu, names), strict=True)]
    by_room = {frozenset(gpu.multisets(names, mask)): mask for mask in range(1 << gpu.memory_slices)}
    for feasible, mask in by_room.items():
        assert admitted(hull_facets(gpu, names, mask), whole) == feasible, mask


def test_a_profile_without_room_has_a_facet_of_its_own() -> None:
    gpu = gpu_model("a30-24gb")
    assert hull_facets(gpu, ["1g.6gb", "4g.24gb"], 0b1) == (Facet((0, 1), 0), Facet((1, 0), 3))


def test_a_facet_of_two_profiles_is_found_by_hand() -> None:
    feasible = tuple((a, b) for a in range(3) for b in range(2) if a + 2 * b <= 2)
    assert _facets_of(feasible) == (Facet((1, 2), 2),)


def test_maximal_multisets_are_those_inside_no_other() -> None:
    assert maximal_multisets([(0, 0), (1, 0), (0, 2), (0, 1), (1, 1)]) == ((0, 2), (1, 1))


def test_affine_rank_counts_independent_points() -> None:
    assert [affine_rank([(0, 0)]), affine_rank([(0, 0), (1, 1), (2, 2)]), affine_rank([(0, 0), (1, 0), (0, 1)])] == [
        1,
        2,
        3,
    ]
