from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fleets import Engine, random_fleet

from planner.cluster.check import violations
from planner.cluster.fleet import Apart, Assignment, Fleet, FleetBound, Unplaced
from planner.cluster.search import assign

Mutation = Callable[[np.random.Generator, Assignment], Assignment]


def _sets(found: Assignment) -> list[list[str]]:
    return [list(members) for members in found.sets]


def _with_sets(found: Assignment, sets: list[list[str]]) -> Assignment:
    return replace(found, sets=tuple(tuple(sorted(members)) for members in sets))


def tenant_twice(rng: np.random.Generator, found: Assignment) -> Assignment:
    sets = _sets(found)
    sets[int(rng.integers(len(sets)))].append(str(rng.choice([name for members in sets for name in members])))
    return _with_sets(found, sets)


def forbidden_gpu(rng: np.random.Generator, found: Assignment) -> Assignment:
    sets = [[name for name in members if name != "t0"] for members in found.sets]
    sets[int(rng.choice([1, 2]))].append("t0")
    return _with_sets(found, sets)


def value_changed(rng: np.random.Generator, found: Assignment) -> Assignment:
    worths, g = list(found.worths), int(rng.integers(len(found.worths)))
    worths[g] += float(rng.choice([-1, 1]) * rng.uniform(0.01, 50.0))
    return replace(found, worths=tuple(worths))


def bound_changed(rng: np.random.Generator, found: Assignment) -> Assignment:
    factor = 1 + float(rng.choice([-1, 1]) * rng.uniform(1e-4, 0.3))
    return replace(found, bound=replace(found.bound, value=found.bound.value * factor))


def prices_changed(rng: np.random.Generator, found: Assignment) -> Assignment:
    dearer = float(found.bound.value * rng.uniform(0.5, 2))
    prices = tuple(tuple((memory + dearer, compute) for memory, compute in own) for own in found.bound.prices)
    return replace(found, bound=FleetBound(found.bound.value, prices))


def count_exceeded(rng: np.random.Generator, found: Assignment) -> Assignment:
    sets, g = _sets(found), int(rng.integers(len(found.sets)))
    sets[g] = sorted(name for members in sets for name in members)
    return _with_sets(found, [members if at == g else [] for at, members in enumerate(sets)])


def kept_apart_together(rng: np.random.Generator, found: Assignment) -> Assignment:
    sets = [[name for name in members if name not in {"t1", "t2"}] for members in found.sets]
    sets[int(rng.integers(len(sets)))] += ["t1", "t2"]
    return _with_sets(found, sets)


def tenant_lost(rng: np.random.Generator, found: Assignment) -> Assignment:
    lost = str(rng.choice([name for members in found.sets for name in members]))
    return _with_sets(found, [[name for name in members if name != lost] for members in found.sets])


def unplaced_though_placed(rng: np.random.Generator, found: Assignment) -> Assignment:
    name = str(rng.choice([name for members in found.sets for name in members]))
    return replace(found, unplaced=(*found.unplaced, Unplaced(name, "said so")))


def unknown_tenant(rng: np.random.Generator, found: Assignment) -> Assignment:
    sets = _sets(found)
    sets[int(rng.integers(len(sets)))].append("nobody")
    return _with_sets(found, sets)


MUTATIONS: tuple[Mutation, ...] = (
    tenant_twice,
    forbidden_gpu,
    value_changed,
    bound_changed,
    prices_changed,
    count_exceeded,
    kept_apart_together,
    tenant_lost,
    unplaced_though_placed,
    unknown_tenant,
)


@pytest.fixture(scope="module")
def answered() -> tuple[Fleet, Assignment, Engine]:
    fleet = replace(random_fleet(21, 5, 3), apart=(Apart(frozenset({"t1", "t2"})),))
    gpus = tuple(replace(gpu, barred=frozenset({"t0"} if g else ())) for g, gpu in enumerate(fleet.gpus))
    fleet = replace(fleet, gpus=gpus)
    return fleet, assign(fleet, worths := Engine(fleet)), worths


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutated_answers_are_refused(mutation: Mutation, answered: tuple[Fleet, Assignment, Engine]) -> None:
    fleet, found, worths = answered
    assert violations(fleet, found, worths) == ()
    for seed in range(200 // len(MUTATIONS)):
        mutated = mutation(np.random.default_rng(seed), found)
        assert violations(fleet, mutated, worths), seed


def test_what_is_wrong_is_told(answered: tuple[Fleet, Assignment, Engine]) -> None:
    fleet, found, worths = answered
    assert violations(fleet, replace(found, worths=found.worths[1:]), worths) == (
        "3 sets and 2 worths are given; the fleet has 3 GPUs",
    )
    no_prices = replace(found, bound=replace(found.bound, prices=()))
    assert "prices of 0 classes" in violations(fleet, no_prices, worths)[0]
    infinite = replace(found, bound=FleetBound(found.bound.value, (((float("inf"), 0.0),),)))
    assert violations(fleet, infinite, worths) == ("the bound's prices are not finite",)
