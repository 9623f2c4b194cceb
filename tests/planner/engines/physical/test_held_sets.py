"""Held sets as arrays: all of them, each once, with the columns that its profiles have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import paper_problem, physical_problem, with_unavailable
from windows import tenant, window

from planner.counts import feasible_multisets, joint_states, multiset_of, profiles_of, tenant_multisets
from planner.engines.physical.held_sets import HeldSets, anywhere
from planner.engines.physical.nodes import nodes_of
from planner.engines.schedule import WindowFacts
from planner.gains import gain_tables
from planner.problem import Problem, Reconfiguration


def two_tenants() -> Problem:
    return window(tenant(), tenant("b", min_profile="2g.10gb"), model=Reconfiguration.PHYSICAL, switch_s=0.0)


def test_two_tenants_on_an_a100_have_3782() -> None:
    problem = window(tenant(), tenant("b"), model=Reconfiguration.PHYSICAL, switch_s=0.0)
    assert len(HeldSets.of(problem)) == 3782


@pytest.mark.parametrize("problem", [two_tenants(), *(physical_problem(seed) for seed in range(8))])
def test_they_are_the_nodes_that_give_everybody_enough(problem: Problem) -> None:
    nodes, held_sets = nodes_of(WindowFacts.of(problem)), HeldSets.of(problem)
    wanted = {nodes.sets.entries(node) for node in np.flatnonzero(nodes.is_held)}
    found = [held_sets.entries(index) for index in range(len(held_sets))]
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_problems_that_differ_in_what_may_be_held_do_not_share_their_sets() -> None:
    first = two_tenants()
    name, rps = min(first.tenants[0].capability_rps.items())
    small = replace(first.tenants[0], capability_rps={name: rps}, min_profile=name)
    other = replace(first, tenants=(small, *first.tenants[1:]))
    sizes = [len(HeldSets.of(problem)) for problem in (first, other, first)]
    assert sizes[1] < sizes[0] == sizes[2]
    held = {place.profile.name for n in range(sizes[1]) for place, m in HeldSets.of(other).entries(n) if m == 0}
    assert held == {name}


@pytest.mark.parametrize("problem", [two_tenants(), *(paper_problem(seed) for seed in range(8))])
def test_counted_ones_are_the_joint_states(problem: Problem) -> None:
    tables, states = gain_tables(problem), joint_states(problem)
    own = [[t.column[k] for k in tenant_multisets(problem, m)] for t, m in zip(tables, problem.tenants, strict=True)]
    wanted = [tuple(own[m][column] for m, column in enumerate(state)) for state in states]
    found = HeldSets.of(problem, is_counted=True).columns(tables)
    assert sorted(map(tuple, found.tolist())) == wanted


@pytest.mark.parametrize("seed", range(12))
def test_counted_ones_fit_beside_profiles_wherever_their_counts_do(seed: int) -> None:
    problem = with_unavailable(paper_problem(seed), seed)
    names, (_, _, mask) = problem.profile_names, problem.unavailable_spans[-1]
    sets = HeldSets.of(problem, is_counted=True)
    for busy in ((), names[:1], (names[0], names[-1])):
        fits = sets.table.fits_beside(problem.gpu, [anywhere(problem.gpu, name) for name in busy], mask)
        held = [[place.profile.name for place in layout] + list(busy) for layout in sets.table.layouts]
        feasible = set(feasible_multisets(problem.gpu, names, mask))
        assert fits.tolist() == [multiset_of(problem, own) in feasible for own in held]


def test_a_counted_one_is_found_by_what_it_holds() -> None:
    problem = two_tenants()
    sets, small, large = HeldSets.of(problem, is_counted=True), "1g.5gb", "2g.10gb"
    held = [(anywhere(problem.gpu, name), m) for name, m in ((large, 1), (small, 1), (small, 0), (small, 0))]
    number = sets.index(held)
    assert number is not None
    tables = gain_tables(problem)
    columns = sets.columns(tables)[number]
    found = [profiles_of(problem, table.multisets[column]) for table, column in zip(tables, columns, strict=True)]
    assert found == [(small, small), (small, large)]
    assert sets.index(held[1:]) is None  # b has nothing as large as its min_profile


def test_columns_count_each_tenants_profiles() -> None:
    problem = two_tenants()
    tables, held_sets = gain_tables(problem), HeldSets.of(problem)
    columns = held_sets.columns(tables)
    for index in range(0, len(held_sets), 97):
        for m, table in enumerate(tables):
            own = [place.profile.name for place, owner in held_sets.entries(index) if owner == m]
            counts = tuple(own.count(name) for name in problem.profile_names)
            assert table.multisets[columns[index, m]] == counts


def test_kept_columns_count_what_both_hold() -> None:
    problem = two_tenants()
    tables, held_sets = gain_tables(problem), HeldSets.of(problem)
    other = held_sets.entries(100)
    kept = held_sets.columns(tables, kept_from=[other, other])
    for index in range(0, len(held_sets), 97):
        common = held_sets.entries(index) & other
        n_kept = [sum(tables[m].multisets[kept[index, m]]) for m in range(2)]
        assert n_kept == [sum(owner == m for _, owner in common) for m in range(2)]


def test_every_held_set_is_found_by_its_entries_and_others_are_not() -> None:
    held_sets = HeldSets.of(two_tenants())
    assert all(held_sets.index(held_sets.entries(index)) == index for index in range(0, len(held_sets), 97))
    assert held_sets.index(frozenset()) is None
    assert held_sets.index(frozenset([next(iter(held_sets.entries(0)))])) is None
