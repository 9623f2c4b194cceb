from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from assignment_oracle import most_worth, most_worth_by_number
from fleets import all_sets, plain_fleet, random_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cluster.fleet import Apart, Fleet, FleetGpu, TenantSet
from planner.cluster.master import best_of_sets, most_placed
from tests.seeds import examples

NOWHERE = frozenset[str]()


def made_up(seed: int) -> tuple[Fleet, dict[TenantSet, float], np.ndarray]:
    """A fleet, worths of some of its sets, and what tenants add where they are."""
    rng = np.random.default_rng(seed)
    fleet = random_fleet(int(rng.integers(20)), 5, 3, 1 + seed % 2)
    fleet = replace(fleet, apart=tuple(replace(own, per_node=False) for own in fleet.apart))
    sets = {one for gpu in range(3) for one in all_sets(fleet, gpu)}
    worths = {one: float(rng.uniform(0, 100)) for one in sorted(sets) if rng.random() < 0.7}
    stays = np.where(rng.random((3, 5)) < 0.3, rng.uniform(0, 50, (3, 5)), 0.0)
    return fleet, worths, stays


@pytest.mark.parametrize("seed", range(30))
def test_the_best_of_known_sets_is_found(seed: int) -> None:
    fleet, worths, stays = made_up(seed)

    def worth(gpu: int, one: TenantSet) -> float:
        return worths[one] + float(stays[gpu, list(one.members)].sum())

    each = [[one for one in all_sets(fleet, gpu) if one in worths] for gpu in range(3)]
    values = [{sum(1 << i for i in one.members): worth(g, one) for one in own} for g, own in enumerate(each)]
    for n_placed, best in enumerate(most_worth_by_number(values, 5)):
        expected = max(most_worth_by_number(values, 5)[n_placed:])
        found = best_of_sets(fleet, worths, stays, n_placed)
        assert (found is None) == (not np.isfinite(expected)), (n_placed, best)
        if found is not None:
            assert list(fleet.breaches(found)) == []
            assert sum(map(len, found)) >= n_placed
            classes = [gpu.gpu_class for gpu in fleet.gpus]
            got = sum(worth(g, TenantSet(classes[g], members)) for g, members in enumerate(found) if members)
            assert got == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(10))
def test_the_oracle_is_what_trying_everything_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [{mask: float(rng.uniform(0, 9)) for mask in range(1, 16) if rng.random() < 0.5} for _ in range(3)]
    tried = [
        sum(worth for _, worth in chosen)
        for n in range(4)
        for gpus in combinations(range(3), n)
        for chosen in _choices([values[g] for g in gpus])
    ]
    assert most_worth(values, 4) == pytest.approx(max(tried))


def _choices(values: list[dict[int, float]], taken: int = 0) -> list[list[tuple[int, float]]]:
    if not values:
        return [[]]
    first = [(mask, worth) for mask, worth in values[0].items() if not mask & taken]
    return [[own, *rest] for own in first for rest in _choices(values[1:], taken | own[0])]


def _flows(fleet: Fleet) -> int:
    """How many tenants can be placed by numbers alone: augmenting paths."""
    seats = [g for g, gpu in enumerate(fleet.gpus) for _ in range(fleet.classes[gpu.gpu_class].most_tenants)]
    at: dict[int, int] = {}

    def seated(i: int, seen: set[int]) -> bool:
        for seat, g in enumerate(seats):
            if fleet.may_go[g, i] and seat not in seen:
                seen.add(seat)
                if seat not in at or seated(at[seat], seen):
                    at[seat] = i
                    return True
        return False

    return sum(seated(i, set()) for i in range(len(fleet.tenants)))


@settings(max_examples=examples(60))
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=2, max_size=2), st.integers(1, 3))
def test_as_many_tenants_are_placed_as_can_be(may: list[list[bool]], most: int) -> None:
    fleet = plain_fleet(1, 5, 2)
    barred = [frozenset(name for name, free in zip(fleet.tenants, own, strict=True) if not free) for own in may]
    gpus = tuple(FleetGpu(f"g{g}", "n", 0, own) for g, own in enumerate(barred))
    fleet = replace(fleet, gpus=gpus, classes=(replace(fleet.classes[0], most_tenants=most),))
    placed = most_placed(fleet)
    assert list(fleet.breaches(placed)) == []
    assert sum(map(len, placed)) == _flows(fleet)


@given(
    st.lists(st.integers(-1, 3), min_size=5, max_size=5),
    st.lists(st.tuples(st.sets(st.integers(0, 4), min_size=2), st.booleans(), st.integers(1, 2)), max_size=3),
)
def test_rules_allow_what_breaches_none(where: list[int], apart: list[tuple[set[int], bool, int]]) -> None:
    fleet = plain_fleet(1, 5, 4)
    gpus = tuple(FleetGpu(f"g{g}", f"n{g // 2}", 0, frozenset({"t1"} if g == 2 else NOWHERE)) for g in range(4))
    limits = tuple(Apart(frozenset(fleet.tenants[i] for i in own), per_node, most) for own, per_node, most in apart)
    fleet = replace(fleet, gpus=gpus, apart=limits)
    sets = [tuple(i for i, g in enumerate(where) if g == at) for at in range(4)]
    assert fleet.allows(sets, range(4)) == (not list(fleet.breaches(sets)))
