"""Nodes of the placed program, and the program against plain search over pairs of held sets."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from executor.catalogue import gpu_model
from executor.mig import Layout
from planner.counts import joint_states, serving_multisets
from planner.engines.physical.held_sets import HeldSets, anywhere
from planner.engines.physical.nodes import nodes_of
from planner.engines.physical.path import HeldSetPath
from planner.engines.schedule import WindowFacts
from planner.gains import gain_tables
from planner.problem import (
    HeldInstance,
    PhysicalState,
    Problem,
    Reconfiguration,
    Retraining,
    RetrainingOption,
    TenantTerms,
)


def problem_of(n_tenants, gpu_name="a100-80gb", n_steps=2):
    gpu = gpu_model(gpu_name)
    rates = {name: 10.0 * gpu.profile(name).compute_slices for name in gpu.standard_profile_names}
    arrivals = np.linspace(5, 60, n_steps)
    tenants = tuple(
        TenantTerms(f"t{i}", np.roll(arrivals, i), rates, 0.5, 1.0, gpu.profiles[0].name) for i in range(n_tenants)
    )
    return Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=0.0)


@cache
def nodes_with(n_tenants):
    return nodes_of(WindowFacts.of(problem_of(n_tenants)))


@pytest.mark.parametrize(("n_tenants", "n_sets", "n_held"), [(1, 298, 297), (2, 4377, 3782), (3, 28996, 16758)])
def test_an_a100_has_as_many_sets_of_placement_and_tenant_as_counted_by_hand(n_tenants, n_sets, n_held):
    nodes = nodes_with(n_tenants)
    assert sum(n_tenants ** len(layout) for layout in nodes.sets.table.layouts) == n_sets
    assert nodes.is_held.sum() == n_held


def test_the_nodes_are_the_held_sets_and_their_parts():
    nodes, held_sets = nodes_with(2), HeldSets.of(problem_of(2))
    parts = {part for index in range(len(held_sets)) for part in _parts(held_sets.entries(index))}
    assert {nodes.sets.entries(i) for i in range(len(nodes))} == parts


def _parts(entries):
    return {
        frozenset(entry for entry, kept in zip(entries, mask, strict=True) if kept)
        for mask in product((0, 1), repeat=len(entries))
    }


def test_a_removal_takes_exactly_one_instance_away():
    nodes = nodes_with(2)
    for node in range(len(nodes)):
        entries = sorted(nodes.sets.entries(node), key=lambda entry: entry[0].sort_key)
        fewer = [nodes.sets.entries(part) for part in nodes.removal[node] if part >= 0]
        assert fewer == [frozenset(entries[:i] + entries[i + 1 :]) for i in range(len(entries))]


def test_a_node_is_found_by_its_entries():
    nodes = nodes_with(3)
    some = range(0, len(nodes), 97)
    assert [nodes.sets.index(nodes.sets.entries(node)) for node in some] == list(some)


def test_a_part_comes_before_the_whole():
    nodes = nodes_with(3)
    assert (nodes.removal < np.arange(len(nodes))[:, None]).all()


def test_columns_are_the_tenants_multisets():
    problem, nodes = problem_of(2), nodes_with(2)
    multisets = serving_multisets(problem, problem.tenants[1])
    for node in range(len(nodes)):
        own = Layout(tuple(place for place, owner in nodes.sets.entries(node) if owner == 1))
        assert multisets[nodes.column[1, node]] == own.multiset(problem.profile_names)


def test_compatible_nodes_form_a_layout_with_what_is_busy():
    nodes, gpu = nodes_with(2), gpu_model("a100-80gb")
    busy = [gpu.placement("3g.40gb@4"), gpu.placement("1g.10gb@1")]
    fits = [gpu.fits([*busy, *(place for place, _ in nodes.sets.entries(i))]) for i in range(len(nodes))]
    assert nodes.compatible(busy).tolist() == fits


def test_a_profile_is_not_held_more_often_than_the_driver_allows():
    problem = problem_of(1)
    media = replace(problem.tenants[0], capability_rps={"1g.10gb": 10.0, "1g.10gb+me": 10.0})
    problem = replace(problem, tenants=(media,))
    nodes = nodes_of(WindowFacts.of(problem))
    beside = nodes.compatible([problem.gpu.placement("1g.10gb+me@6")])
    names = [{place.profile.name for place, _ in nodes.sets.entries(i)} for i in np.flatnonzero(beside)]
    assert set().union(*names) == {"1g.10gb"}


def test_nothing_is_compatible_with_placements_that_exclude_each_other():
    nodes, gpu = nodes_with(2), gpu_model("a100-80gb")
    assert not nodes.compatible([gpu.placement("1g.10gb@1"), gpu.placement("1g.10gb@1")]).any()


def test_counted_nodes_are_the_joint_multisets():
    problem = problem_of(2)
    counted = nodes_of(WindowFacts.of(problem), is_counted=True)
    assert counted.is_held.sum() == len(joint_states(problem)) == 146


def column_of(nodes):
    return np.unique(nodes.column.T, axis=0)


@pytest.mark.parametrize("n_tenants", [1, 2, 3])
def test_counted_nodes_are_the_placed_ones_with_their_placements_forgotten(n_tenants):
    counted = nodes_of(WindowFacts.of(problem_of(n_tenants)), is_counted=True)
    assert np.array_equal(column_of(counted), column_of(nodes_with(n_tenants)))
    assert len(counted) == len(column_of(counted))


def test_a_removal_of_a_counted_node_takes_exactly_one_instance_away():
    counted = nodes_of(WindowFacts.of(problem_of(2)), is_counted=True)
    sizes = np.array([sum(multiset) for multiset in serving_multisets(problem_of(2), problem_of(2).tenants[0])])
    size = sizes[counted.column].sum(axis=0)
    for node, parts in enumerate(counted.removal):
        assert all(size[part] == size[node] - 1 for part in parts if part >= 0)


def test_an_initial_set_that_serves_nobody_is_a_counted_node_all_the_same():
    problem = problem_of(2)
    held = (HeldInstance(problem.gpu.placement("4g.40gb@0"), "t0", 0),)
    counted = nodes_of(WindowFacts.of(replace(problem, initial=PhysicalState(held))), is_counted=True)
    assert not counted.is_held[counted.initial]


@pytest.mark.parametrize("busy", [(), ("3g.40gb",), ("1g.10gb", "2g.20gb"), ("7g.80gb",), ("4g.40gb", "4g.40gb")])
def test_what_fits_on_placements_fits_on_counts(busy):
    nodes, gpu = nodes_with(2), gpu_model("a100-80gb")
    counted = nodes_of(WindowFacts.of(problem_of(2)), is_counted=True)
    ways = product(*(gpu.placements([name]) for name in busy))
    placed = np.any([nodes.compatible(way) for way in ways], axis=0)
    number = {tuple(column): node for node, column in enumerate(counted.column.T)}
    by_count = np.zeros(len(counted), dtype=bool)
    by_count[[number[tuple(column)] for column in nodes.column[:, placed].T]] = True
    # On counts more may fit than any single placing of a node's instances would show, never less.
    assert (counted.compatible([anywhere(gpu, name) for name in busy]) | ~by_count).all()


def small_problem(seed):
    """Two tenants on an A30 with unequal warm-ups, one of them with a retraining."""
    rng = np.random.default_rng(seed)
    gpu, n_steps = gpu_model("a30-24gb"), 7
    tenants = tuple(
        TenantTerms(
            f"t{index}",
            rng.uniform(0, 60, n_steps),
            {"1g.6gb": 14.0, "2g.12gb": 30.0},
            0.5,
            float(overhead_s),
            "1g.6gb",
            (RetrainingOption("full", {"1g.6gb": 1.0, "2g.12gb": 1.0}, 0.9),) if index else (),
            retraining_start_s=1.0,
        )
        for index, overhead_s in enumerate(rng.permutation([1, 2]))
    )
    return Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, tenants, switch_s=0.0)


def best_by_pairs(problem, nodes, retraining, place):
    """The best goodput with one retraining, by trying every pair of held sets at every step."""
    gains, facts, n = gain_tables(problem), WindowFacts.of(problem), problem.n_steps
    sets = [frozenset(nodes.sets.entries(node)) for node in np.flatnonzero(nodes.is_held)]

    def gain(s, held):
        total = 0.0
        for m, table in enumerate(gains):
            names = [p.profile.name for p, owner in held if owner == m]
            level = 1 if m == retraining.tenant and s >= retraining.end_step else 0
            total += table.steady[level, s, table.column[tuple(map(names.count, problem.profile_names))]]
        return total

    def fits(held, begin, end):
        is_beside = begin < retraining.end_step and retraining.start_step < end
        return not (is_beside and any(p.overlaps(place) for p, _ in held))

    best = {n: dict.fromkeys(sets, 0.0)}
    for t in range(n - 1, -1, -1):
        end = min(t + facts.epoch_steps, n)
        stay = {held: gain(t, held) + best[t + 1][held] if fits(held, t, t + 1) else -np.inf for held in sets}
        best[t] = dict(stay)
        for old, new in product(sets, sets) if t > 0 else ():
            if fits(new, t, end):
                serving = [{e for e in new if e in old or s >= t + facts.warm_steps[e[1]]} for s in range(t, end)]
                value = sum(gain(s, held) for s, held in zip(range(t, end), serving, strict=True)) + best[end][new]
                best[t][old] = max(best[t][old], value)
    return max(best[0].values())


@pytest.mark.parametrize("seed", range(3))
def test_the_program_finds_the_best_of_all_held_sets_and_epochs(seed):
    problem = small_problem(seed)
    facts = WindowFacts.of(problem)
    nodes = nodes_of(facts)
    name = ("1g.6gb", "2g.12gb")[seed % 2]
    retraining, place = Retraining(1, 1, name, 1 + seed, 3 + seed), problem.gpu.placement(f"{name}@2")
    program = HeldSetPath(facts, nodes)
    assert program.value(((retraining, place),)) == pytest.approx(best_by_pairs(problem, nodes, retraining, place))
