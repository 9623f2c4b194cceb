"""The hull of feasible counts: known facets, and its defining properties on every catalogued GPU."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from executor.catalogue import gpu_model, gpu_model_names
from executor.mig import GpuModel
from planner.counts import feasible_multisets
from planner.engines.milp.hull import (
    Facet,
    _extra_points,
    _facets_of,
    affine_rank,
    extra_integer_points,
    hull_facets,
    maximal_multisets,
)

SEVEN_SLICE = ("a100-40gb", "a100-80gb", "b200-180gb", "h100-80gb", "h100-nvl-94gb", "h200-141gb")


def profile_sets(gpu: GpuModel) -> list[tuple[str, ...]]:
    """Every set of one or two profiles, every set without two, the standard ones, and all."""
    names = gpu.profile_names
    sizes = {1, 2, len(names) - 2, len(names) - 1, len(names)}
    sets = [chosen for size in sorted(sizes) for chosen in combinations(names, size)]
    return [*sets, gpu.standard_profile_names]


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
        assert all(facet.admits(counts) for facet in hull_facets(gpu, names) for counts in feasible), names


@pytest.mark.parametrize("name", gpu_model_names())
def test_every_facet_is_tight_on_as_many_independent_counts_as_there_are_profiles(name: str) -> None:
    gpu = gpu_model(name)
    for names in profile_sets(gpu):
        feasible = feasible_multisets(gpu, names)
        for facet in hull_facets(gpu, names):
            tight = [counts for counts in feasible if facet.load(counts) == facet.bound]
            assert affine_rank(tight) == len(names), (names, facet)


@pytest.mark.parametrize("name", gpu_model_names())
def test_extra_points_are_the_admitted_counts_that_fit_no_layout(name: str) -> None:
    gpu = gpu_model(name)
    for names in [*profile_sets(gpu)[:30], gpu.standard_profile_names]:
        feasible = feasible_multisets(gpu, names)
        most = [max(counts) for counts in zip(*feasible, strict=True)]
        admitted = {
            c for c in product(*(range(n + 1) for n in most)) if all(f.admits(c) for f in hull_facets(gpu, names))
        }
        assert set(extra_integer_points(gpu, names)) == admitted - set(feasible), names


@pytest.mark.parametrize("name", gpu_model_names())
def test_no_catalogued_gpu_needs_more_than_its_facets(name: str) -> None:
    gpu = gpu_model(name)
    assert not any(extra_integer_points(gpu, names) for names in profile_sets(gpu))


def test_counts_with_a_hole_in_their_hull_are_told() -> None:
    feasible = {(a, b) for a, b in product(range(4), range(4)) if a == 0 or b == 0 or a + b <= 2} - {(1, 1)}
    assert _extra_points(tuple(sorted(feasible))) == ((1, 1), (1, 2), (2, 1))


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
