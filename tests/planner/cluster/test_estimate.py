from dataclasses import replace

import numpy as np
import pytest
from fleets import Engine, all_sets, random_fleet

from planner.cluster.bound import bound_at, fleet_bound
from planner.cluster.estimate import Estimates, dearest, net_worths, stretches
from planner.cluster.fleet import Fleet
from planner.plan import Certificate
from planner.verify.certificate import certified_bound
from tests.seeds import daily


@pytest.mark.parametrize("seed", daily(range(12), range(3)))
def test_no_plan_of_a_set_is_worth_more_than_its_estimate(seed: int) -> None:
    fleet = random_fleet(seed, 3, 2, 2)
    _, estimates = fleet_bound(Estimates.of(fleet))
    proven = Engine(fleet, budget=None)
    for gpu in range(2):
        sets = all_sets(fleet, gpu)
        for one, worth in zip(sets, proven(sets), strict=True):
            assert worth is None or worth <= estimates.of_set(*one) * (1 + 1e-9) + 1e-6, one


@pytest.mark.parametrize("seed", range(6))
def test_what_a_tenant_earns_net_is_what_the_checker_finds(seed: int) -> None:
    alone = random_fleet(seed).classes[0].alone[0]
    assert alone is not None
    prices = np.random.default_rng(seed).uniform(0, 20, (2, 4, 2))
    profiles = [alone.gpu.profile(name) for name in alone.profile_names]
    for net, price in zip(net_worths(alone, prices), prices, strict=True):
        by_profile = np.array([[m * p.memory_slices + c * p.compute_slices for p in profiles] for m, c in price])
        counts = np.array(alone.gpu.multisets(alone.profile_names))
        paid = float((by_profile @ counts.T).max(axis=1).sum())
        assert certified_bound(alone, Certificate(alone.profile_names, by_profile)) - paid == pytest.approx(net)


def test_stretches_cover_the_window_in_order() -> None:
    assert stretches(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert stretches(4, 4).tolist() == [0, 1, 2, 3]


def test_the_dearest_layout_is_that_of_most_slices() -> None:
    own = random_fleet(0, 5).classes[0]
    prices = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[2.0, 3.0]]])
    assert dearest(own, prices).tolist() == [4 * 4, 4 * 4, 4 * (2 * 4 + 3 * 4)]


def test_a_tenant_without_a_problem_on_a_class_earns_nothing_there() -> None:
    fleet = random_fleet(3, 4, 2, 2)
    first = replace(fleet.classes[1], alone=(None, *fleet.classes[1].alone[1:]))
    estimates = Estimates.of(replace(fleet, classes=(fleet.classes[0], first)))
    assert np.isneginf(estimates.nets[1, :, 0]).all()
    assert estimates.of_set(1, (0, 1)) == -np.inf


def test_more_prices_never_raise_an_estimate() -> None:
    few = Estimates.of(random_fleet(2))
    _, more = fleet_bound(few)
    assert more.costs.shape[1] > few.costs.shape[1]
    for one in all_sets(few.fleet, 0):
        assert more.of_set(*one) <= few.of_set(*one)


def _uniform(estimates: Estimates) -> float:
    """The bound by the prices that hold all window."""
    nets, costs = np.maximum(estimates.nets[0], 0).sum(axis=1), estimates.costs[0]
    return float((len(estimates.fleet.gpus) * costs + nets).min())


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_what_its_prices_prove_and_below_that_of_uniform_ones(seed: int) -> None:
    fleet: Fleet = replace(random_fleet(seed), apart=())
    fleet = replace(fleet, gpus=tuple(replace(gpu, barred=frozenset()) for gpu in fleet.gpus))
    estimates = Estimates.of(fleet)
    bound, _ = fleet_bound(estimates)
    assert bound_at(fleet, bound) == pytest.approx(bound.value, rel=1e-12)
    assert bound.value <= _uniform(estimates)
