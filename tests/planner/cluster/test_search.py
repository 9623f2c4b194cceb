from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from assignment_oracle import most_worth, most_worth_by_number
from fleets import Engine, plain_fleet, random_fleet, values_by_gpu

from planner.cluster.check import violations
from planner.cluster.fleet import Apart, Assignment, Fleet, FleetGpu, Present, TenantSet
from planner.cluster.master import most_placed
from planner.cluster.rivals import rival
from planner.cluster.search import SearchEffort, assign
from tests.seeds import daily


@pytest.mark.parametrize("seed", daily(range(40), {*range(0, 40, 8), 7, 19}))
def test_an_assignment_is_the_best_that_places_as_many_and_no_dearer_than_the_bound(seed: int) -> None:
    fleet = random_fleet(seed, 5, 3, 1 + seed % 2)
    fleet = replace(fleet, apart=tuple(replace(own, per_node=False) for own in fleet.apart))
    worths = Engine(fleet)
    values = values_by_gpu(fleet, worths)
    by_number, found = most_worth_by_number(values, 5), assign(fleet, worths)
    n_placed = 5 - len(found.unplaced)
    assert found.bound.value >= most_worth(values, 5) - 1e-6
    assert n_placed == max(n for n, worth in enumerate(by_number) if np.isfinite(worth))
    assert found.worth == pytest.approx(by_number[n_placed])
    assert violations(fleet, found, worths) == ()


def _worths_by_set(found: Assignment) -> dict[tuple[str, ...], float]:
    return dict(zip(found.sets, found.worths, strict=True))


def test_names_of_gpus_decide_nothing() -> None:
    fleet = plain_fleet(5, 4, 3)
    swapped = tuple(replace(gpu, name=name) for gpu, name in zip(fleet.gpus, ("g2", "g0", "g1"), strict=True))
    other = replace(fleet, gpus=swapped)
    assert assign(other, Engine(other)).sets == assign(fleet, Engine(fleet)).sets


def test_the_same_fleet_has_the_same_answer_however_batches_are_valued() -> None:
    fleet = plain_fleet(6, 4, 2)
    engine = Engine(fleet)

    def backwards(wanted: Sequence[TenantSet]) -> list[float | None]:
        return [worth for one in reversed(wanted) for worth in engine([one])][::-1]

    assert assign(fleet, backwards) == assign(fleet, Engine(fleet))


def test_no_set_is_asked_for_twice_or_empty() -> None:
    engine = Engine(fleet := plain_fleet(7, 5, 4))
    found = assign(fleet, engine)
    asked = [one for batch in engine.asked for one in batch]
    assert len(asked) == len(set(asked)) == found.evaluations
    assert all(one.members for one in asked)


def test_effort_is_counted_in_sets() -> None:
    found = assign(fleet := plain_fleet(8), Engine(fleet), effort=SearchEffort(sets=3, per_round=1))
    assert 3 <= found.evaluations <= 3 + 3 + 1


def test_rules_are_kept_where_one_alone_would_not() -> None:
    fleet = plain_fleet(9, 4, 4)
    gpus = tuple(FleetGpu(f"g{g}", f"n{g // 2}", 0, frozenset({"t0"} if g < 3 else ())) for g in range(4))
    apart = (Apart(frozenset({"t0", "t1", "t2"})), Apart(frozenset({"t0", "t1"}), per_node=True))
    fleet = replace(fleet, gpus=gpus, apart=apart)
    found = assign(fleet, Engine(fleet))
    at = {name: g for g, members in enumerate(found.sets) for name in members}
    assert found.unplaced == ()
    assert at["t0"] == 3
    assert at["t1"] in (0, 1)
    assert len({at["t0"], at["t1"], at["t2"]}) == 3


def test_tenants_that_rivals_leave_out_are_placed_where_rules_allow() -> None:
    fleet = plain_fleet(10, 6, 2)
    picky = frozenset(fleet.tenants[:3])
    fleet = replace(fleet, gpus=(fleet.gpus[0], replace(fleet.gpus[1], barred=picky)))
    assert most_placed(fleet) == ((0, 1, 2), (3, 4, 5))
    assert assign(fleet, Engine(fleet)).sets == (fleet.tenants[:3], fleet.tenants[3:])


def test_who_may_go_nowhere_is_told() -> None:
    fleet = plain_fleet(11, 4, 2)
    fleet = replace(fleet, gpus=tuple(replace(gpu, barred=frozenset({"t2"})) for gpu in fleet.gpus))
    (missing,) = assign(fleet, Engine(fleet)).unplaced
    assert missing.tenant == "t2"
    assert "no GPU may have it" in missing.reason


def test_where_tenants_are_left_no_set_is_valued_that_rules_forbid() -> None:
    fleet = plain_fleet(11, 8, 2)
    fleet = replace(fleet, apart=(Apart(frozenset(fleet.tenants)),))
    found = assign(fleet, Engine(fleet))
    assert (len(found.unplaced), found.evaluations) == (6, 8)


def test_one_gpu_has_all_tenants() -> None:
    fleet = plain_fleet(12, 3, 1)
    engine = Engine(fleet)
    found = assign(fleet, engine)
    assert found.sets == (fleet.tenants,)
    assert engine.asked == [(TenantSet(0, (0, 1, 2)),)]


def present_at(fleet: Fleet, sets: Sequence[Sequence[int]], cost: float, windows: float = 1.0) -> Present:
    gpu_of = {fleet.tenants[i]: gpu.name for gpu, members in zip(fleet.gpus, sets, strict=True) for i in members}
    return Present(gpu_of, dict.fromkeys(fleet.tenants, cost), windows)


def test_moves_that_cost_more_than_they_bring_are_not_made() -> None:
    fleet = plain_fleet(13, 4, 2)
    found = assign(fleet, Engine(fleet), present=present_at(fleet, sets := rival("random", fleet, 1), 1e7))
    assert found.moved == ()
    assert found.sets == tuple(tuple(fleet.tenants[i] for i in members) for members in sets)


@pytest.mark.parametrize("seed", [1, 3, 13, 29])
def test_moves_that_pay_by_estimates_alone_are_not_kept(seed: int) -> None:
    fleet = plain_fleet(seed, 8, 4)
    free = assign(fleet, Engine(fleet))
    gpu_of = {name: gpu.name for gpu, own in zip(fleet.gpus, free.sets, strict=True) for name in own}
    present = Present(gpu_of, dict.fromkeys(fleet.tenants, 1.0), 6.0)
    found = assign(fleet, Engine(fleet), present=present, effort=SearchEffort(sets=4))
    assert found.worth >= free.worth + len(found.moved) / 6 - 1e-6


def test_moves_for_nothing_lead_to_the_best() -> None:
    fleet = plain_fleet(13, 4, 2)
    free = assign(fleet, Engine(fleet))
    found = assign(fleet, Engine(fleet), present=present_at(fleet, rival("random", fleet, 1), 0.0))
    assert found.worth == pytest.approx(free.worth)


def test_gains_count_over_the_horizon() -> None:
    fleet = plain_fleet(13, 4, 2)
    sets, worths = rival("random", fleet, 1), Engine(fleet)
    stayed = sum(worth or 0.0 for worth in worths([TenantSet(0, members) for members in sets if members]))
    gain = assign(fleet, Engine(fleet)).worth - stayed
    assert gain > 0
    for windows, moves in ((0.5, False), (50.0, True)):
        found = assign(fleet, Engine(fleet), present=present_at(fleet, sets, gain, windows))
        assert (found.moved != ()) == moves
        assert found.worth + gain / windows * (4 - len(found.moved)) >= stayed + gain / windows * 4 - 1e-6


def test_tenants_of_a_gpu_that_is_gone_find_another() -> None:
    fleet = plain_fleet(14, 5, 4)
    sets = rival("spread", fleet)
    present = present_at(fleet, sets, 1e7)
    alive = replace(fleet, gpus=fleet.gpus[1:])
    found = assign(alive, Engine(alive), present=present)
    lost = {fleet.tenants[i] for i in sets[0]}
    assert lost
    assert {name for members in found.sets for name in members} == set(fleet.tenants)
    assert set(found.moved) == lost
