"""The multisets of profiles that tasks can hold on one GPU, alone and together.

A multiset is a tuple of counts over an agreed list of profile names (``Problem.profile_names``
unless said otherwise). Which multisets fit is derived from placements (``executor.mig``); whatever
fits still fits with instances taken away.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from executor.mig import GpuModel, Multiset, Profile, kept_by_geometry
from planner.arrays import Bools, Int64s
from planner.problem import Problem, TenantTerms

COUNT_BITS = 4
"""Bits for one profile's count in a multiset's code: no two layouts hold 16 instances together."""


def feasible_multisets(gpu: GpuModel, profile_names: Sequence[str], unavailable: int = 0) -> tuple[Multiset, ...]:
    """The multisets of all layouts of ``profile_names``, the empty one first; cached.

    Layouts touch none of the memory slices in ``unavailable``, one bit each.
    """
    return _feasible(gpu, profile_names, unavailable)[0]


@kept_by_geometry(256)
def _feasible(gpu: GpuModel, profile_names: tuple[str, ...], unavailable: int) -> tuple[tuple[Multiset, ...], Int64s]:
    """The feasible multisets, and their codes in ascending order."""
    found = gpu.multisets(profile_names, unavailable)
    return found, np.sort(codes_of(np.array(found, dtype=np.int64)))


def large_enough_profiles(problem: Problem, tenant: TenantTerms) -> tuple[Profile, ...]:
    """The profiles that may serve the tenant (rule 2) of which one must be held at every step (rule 4)."""
    least, serving = problem.gpu.profile(tenant.min_profile), problem.capability_rps(tenant)
    return tuple(profile for profile in problem.profiles if profile.name in serving and profile.is_at_least(least))


def serving_multisets(problem: Problem, tenant: TenantTerms) -> tuple[Multiset, ...]:
    """Every multiset that could serve the tenant at some moment, the empty one first; rule 4 not applied.

    These are the columns of its gain table: while it warms it may be served by less than it holds.
    """
    rates = problem.capability_rps(tenant)
    may_serve = tuple(name in rates for name in problem.profile_names)
    return _only_of(feasible_multisets(problem.gpu, problem.profile_names), may_serve)


@lru_cache(maxsize=256)
def _only_of(multisets: tuple[Multiset, ...], are_in: tuple[bool, ...]) -> tuple[Multiset, ...]:
    """The multisets that have none of the profiles that are not in."""
    return tuple(own for own in multisets if all(fits or not n for n, fits in zip(own, are_in, strict=True)))


def tenant_multisets(problem: Problem, tenant: TenantTerms) -> tuple[Multiset, ...]:
    """Every multiset that the tenant's inference, or its pool's, may hold in a step: rules 1, 2 and 4, all else empty.

    Empty when no serving profile is as large as ``min_profile``.
    """
    members = problem.partition[problem.holder_of[problem.tenant_names.index(tenant.name)]]
    large = [{p.name for p in large_enough_profiles(problem, problem.tenants[m])} for m in members]
    needs = [[index for index, name in enumerate(problem.profile_names) if name in enough] for enough in large]
    return tuple(
        multiset
        for multiset in serving_multisets(problem, tenant)
        if all(any(multiset[index] for index in indices) for indices in needs)
    )


def multiset_of(problem: Problem, profile_names: Sequence[str]) -> Multiset:
    """Counts over ``problem.profile_names`` of a list of profile names; each must be one of those."""
    return tuple(profile_names.count(name) for name in problem.profile_names)


def profiles_of(problem: Problem, multiset: Multiset) -> tuple[str, ...]:
    """The multiset as a list of profile names in catalogue order."""
    return tuple(name for name, count in zip(problem.profile_names, multiset, strict=True) for _ in range(count))


def codes_of(multisets: Int64s) -> Int64s:
    """Each multiset as one integer, ``(n, n_profiles) → (n,)``; the code of a sum of two is the sum of their codes."""
    return np.asarray(multisets @ (1 << COUNT_BITS * np.arange(multisets.shape[-1])), dtype=np.int64)


def codes_fit(gpu: GpuModel, profile_names: tuple[str, ...], codes: Int64s, unavailable: int = 0) -> Bools:
    """Whether each coded multiset fits the GPU and leaves the memory slices in ``unavailable``, one bit each, free.

    It is the sum of at most two that have fewer than 8 of each profile: what tenants hold, and the retrainings beside,
    of which there are no more than tenants.
    """
    known = _feasible(gpu, profile_names, unavailable)[1]
    return np.asarray(known[np.minimum(np.searchsorted(known, codes), len(known) - 1)] == codes)


def joint_states(problem: Problem) -> Int64s:
    """All ways to give every tenant, or pool, a multiset such that they fit together.

    Shapes:
        → ``(n_states, n_holders)`` by ``Problem.partition``, indices into :func:`tenant_multisets` of any of the
        holder's tenants; in lexicographic order. 146 states for two tenants on an A100 with its five standard profiles.
    """
    totals, states = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
    for tenant in (problem.tenants[members[0]] for members in problem.partition):
        own = np.array(tenant_multisets(problem, tenant), dtype=np.int64).reshape(-1, len(problem.profile_names))
        sums = totals[:, None] + codes_of(own)
        row, column = np.nonzero(codes_fit(problem.gpu, problem.profile_names, sums))
        states = np.column_stack([states[row], column])
        totals = sums[row, column]
    return states


def codes_of_states(problem: Problem, states: Int64s) -> Int64s:
    """The code of what tenants hold together in each of the :func:`joint_states`, ``(n_states,)``."""
    codes = np.zeros(len(states), dtype=np.int64)
    for members, own in zip(problem.partition, states.T, strict=True):
        held = tenant_multisets(problem, problem.tenants[members[0]])
        multisets = np.array(held, dtype=np.int64).reshape(-1, len(problem.profile_names))
        codes += codes_of(multisets)[own]
    return codes
