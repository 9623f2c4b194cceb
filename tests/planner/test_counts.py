"""What tasks can hold: multisets of one tenant, and of all tenants together."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problems import paper_problem
from windows import NAMES, tenant, window

from executor.catalogue import gpu_model, gpu_model_names
from planner.counts import (
    codes_fit,
    codes_of,
    feasible_multisets,
    joint_states,
    large_enough_profiles,
    multiset_of,
    profiles_of,
    serving_multisets,
    tenant_multisets,
)


def total(*multisets: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*multisets, strict=True)))


def test_a_7_slice_gpu_has_38_multisets_of_its_standard_profiles() -> None:
    assert len(feasible_multisets(gpu_model("a100-40gb"), NAMES)) == 38


@pytest.mark.parametrize("name", gpu_model_names())
def test_whatever_fits_still_fits_with_one_instance_less(name: str) -> None:
    gpu = gpu_model(name)
    feasible = set(feasible_multisets(gpu, gpu.profile_names))
    smaller = {(*m[:i], m[i] - 1, *m[i + 1 :]) for m in feasible for i in range(len(m)) if m[i]}
    assert smaller <= feasible


def test_gpu_models_that_differ_only_in_starts_have_their_own_multisets() -> None:
    gpu = gpu_model("a100-40gb")
    narrow = replace(gpu, profiles=tuple(replace(profile, starts=profile.starts[:1]) for profile in gpu.profiles))
    feasible_multisets(gpu, NAMES)
    assert max(multiset[0] for multiset in feasible_multisets(narrow, NAMES)) == 1


def test_serving_multisets_begin_with_the_empty_one_and_use_capability_keys_only() -> None:
    problem = window(tenant(capability_rps={"1g.5gb": 40.0, "3g.20gb": 120.0}))
    multisets = serving_multisets(problem, problem.tenants[0])
    assert multisets[0] == (0, 0, 0)
    assert all(multiset[1] == 0 for multiset in multisets)


def test_every_multiset_of_a_tenant_holds_one_instance_as_large_as_its_min_profile() -> None:
    problem = window(tenant(min_profile="3g.20gb", retraining_s={}))
    expected = {m for m in feasible_multisets(problem.gpu, NAMES) if m[2] or m[3] or m[4]}
    assert set(tenant_multisets(problem, problem.tenants[0])) == expected


def test_an_instance_with_too_little_memory_is_not_as_large_as_min_profile() -> None:
    problem = window(tenant(capability_rps={"1g.5gb": 40.0, "1g.10gb": 45.0}, min_profile="1g.10gb", retraining_s={}))
    assert [profile.name for profile in large_enough_profiles(problem, problem.tenants[0])] == ["1g.10gb"]


def test_a_list_of_profile_names_is_its_multiset_and_back() -> None:
    problem = window()
    multiset = multiset_of(problem, ("2g.10gb", "1g.5gb", "1g.5gb"))
    assert (multiset, profiles_of(problem, multiset)) == ((2, 1, 0, 0, 0), ("1g.5gb", "1g.5gb", "2g.10gb"))


@pytest.mark.parametrize("name", gpu_model_names())
def test_coded_sums_of_two_feasible_multisets_fit_exactly_when_they_are_feasible(name: str) -> None:
    gpu = gpu_model(name)
    names = gpu.profile_names[:7]
    feasible = feasible_multisets(gpu, names)
    codes = codes_of(np.array(feasible))
    fits = codes_fit(gpu, names, codes[:, None] + codes[None, :])
    expected = [[total(one, other) in set(feasible) for other in feasible] for one in feasible]
    assert fits.tolist() == expected


def test_two_tenants_have_146_joint_states_and_three_have_225() -> None:
    tenants = [tenant(name, retraining_s={}) for name in "abc"]
    assert [len(joint_states(window(*tenants[:n]))) for n in (2, 3)] == [146, 225]


@pytest.mark.parametrize("seed", range(12))
def test_joint_states_are_all_combinations_that_fit(seed: int) -> None:
    problem = paper_problem(seed)
    feasible = set(feasible_multisets(problem.gpu, problem.profile_names))
    own = [tenant_multisets(problem, terms) for terms in problem.tenants]
    expected = [c for c in product(*(range(len(m)) for m in own))
                if total(*(m[k] for m, k in zip(own, c, strict=True))) in feasible]  # fmt: skip
    assert list(map(tuple, joint_states(problem).tolist())) == expected
