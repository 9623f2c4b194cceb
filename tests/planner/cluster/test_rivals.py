from dataclasses import replace

import numpy as np
import pytest
from fleets import random_fleet

from planner.cluster.fleet import Apart, Fleet, GpuClass
from planner.cluster.rivals import RIVALS, loads_of, rival
from planner.errors import PlannerError


def loaded(loads: list[float], n_gpus: int = 2, most: int = 7) -> Fleet:
    """Tenants with these loads on like GPUs."""
    fleet = random_fleet(2, len(loads), n_gpus)
    alone = []
    for i, load in enumerate(loads):
        problem = fleet.classes[0].alone[i]
        assert problem is not None
        terms = replace(problem.tenants[0], capability_rps={"4g.24gb": 100.0}, min_profile="1g.6gb")
        terms = replace(terms, arrivals_rps=np.full(problem.n_steps, 100.0 * load), options=())
        alone.append(replace(problem, tenants=(terms,)))
    gpus = tuple(replace(gpu, barred=frozenset()) for gpu in fleet.gpus)
    return replace(fleet, classes=(GpuClass("made-up", tuple(alone), most),), gpus=gpus, apart=())


def test_a_load_is_the_share_of_the_gpu_that_arrivals_take() -> None:
    assert loads_of(loaded([0.5, 0.25, 1.6])).tolist() == [[0.5, 0.25, 1.6]]


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("spread", ((3,), (0, 1, 2))),
        ("best-fit", ((1, 3), (0, 2))),
        ("first-fit", ((0, 1, 2), (3,))),
    ],
)
def test_rivals_deal_as_they_say(name: str, sets: tuple[tuple[int, ...], ...]) -> None:
    assert rival(name, loaded([0.4, 0.2, 0.3, 0.8])) == sets


@pytest.mark.parametrize("name", ["best-fit", "first-fit"])
def test_who_has_room_nowhere_goes_to_the_least_loaded(name: str) -> None:
    assert rival(name, loaded([0.9, 0.8, 0.7])) == ((0,), (1, 2))


def retraining(fleet: Fleet, who: set[int]) -> Fleet:
    """The same where these tenants retrain."""
    drawn = next(one for one in random_fleet(4, 6, 2).classes[0].alone if one is not None and one.tenants[0].options)
    (own,) = fleet.classes
    alone = []
    for i, problem in enumerate(own.alone):
        assert problem is not None
        options = drawn.tenants[0].options if i in who else ()
        alone.append(replace(problem, tenants=(replace(problem.tenants[0], options=options),)))
    return replace(fleet, classes=(replace(own, alone=tuple(alone)),))


def by_slopes(fleet: Fleet, slopes: list[float]) -> tuple[tuple[int, ...], ...]:
    return rival("mudi", fleet, slopes=lambda: np.array([slopes]))


def test_mudi_spreads_what_serves_and_trains_where_slopes_are_least() -> None:
    fleet = retraining(loaded([0.1, 0.1, 0.1, 0.4, 0.3]), {0, 1, 2})
    assert by_slopes(fleet, [1, 1, 1, 5, 2]) == ((3,), (0, 1, 2, 4))
    assert by_slopes(fleet, [1, 1, 1, 2, 5]) == ((0, 1, 2, 3), (4,))


def test_mudi_trains_first_where_nobody_is_served_and_three_on_a_gpu() -> None:
    fleet = retraining(loaded([0.1] * 6, 2), {0, 1, 2, 3, 4, 5})
    assert by_slopes(fleet, [1, 9, 1, 1, 1, 1]) == ((0, 2, 3), (1, 4, 5))
    assert by_slopes(retraining(loaded([0.1] * 7, 2), set(range(7))), [1, 9, 1, 1, 1, 1, 1]) == (
        (0, 2, 3, 6),
        (1, 4, 5),
    )


@pytest.mark.parametrize("name", RIVALS)
def test_rules_hold_for_rivals_and_who_may_not_is_left_out(name: str) -> None:
    fleet = replace(loaded([0.5, 0.4, 0.3, 0.2, 0.1], most=2), apart=(Apart(frozenset({"t0", "t1"})),))
    sets = rival(name, fleet, 3, slopes=lambda: np.ones((1, 5)))
    assert list(fleet.breaches(sets)) == []
    assert sorted(map(len, sets)) == [2, 2]


def test_random_is_of_its_seed() -> None:
    fleet = loaded([0.1] * 7, 3)
    assert rival("random", fleet, 1) == rival("random", fleet, 1) != rival("random", fleet, 2)


def test_an_unknown_rival_is_refused() -> None:
    with pytest.raises(PlannerError, match="spread, best-fit, first-fit, random"):
        rival("worst-fit", loaded([0.5]))
