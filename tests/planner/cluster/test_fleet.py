from dataclasses import replace

import pytest
from problems import physical_problem

from planner.cluster.fleet import Apart, Fleet, FleetGpu, GpuClass
from planner.errors import ProblemError

ALONE = physical_problem(1, 6, 1)
"""Any problem of one tenant."""


def fleet(n_gpus: int = 2, n_tenants: int = 4, most: int = 3) -> Fleet:
    """Like GPUs, two a node."""
    tenants = tuple(f"t{i}" for i in range(n_tenants))
    gpus = tuple(FleetGpu(f"g{g}", f"n{g // 2}", 0) for g in range(n_gpus))
    return Fleet(tenants, (GpuClass("a30", (ALONE,) * n_tenants, most),), gpus)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tenants": ("t1", "t0", "t2", "t3")}, "ascending"),
        ({"tenants": ("t0", "t0", "t2", "t3")}, "different"),
        ({"tenants": ("t0", "t1")}, "4 problems for 2 tenants"),
        ({"gpus": ()}, "at least one GPU"),
        ({"gpus": (FleetGpu("g", "n", 0), FleetGpu("g", "m", 0))}, "two GPUs 'g'"),
        ({"apart": (Apart(frozenset({"t0", "x"})),)}, "'x'"),
        ({"apart": (Apart(frozenset({"t0"}), most=0),)}, "too few"),
        ({"classes": (GpuClass("a30", (ALONE,) * 4, 0),)}, "takes 0 tenants"),
        ({"classes": (GpuClass("a30", (physical_problem(1, 6, 2),) * 4, 3),)}, "one tenant"),
    ],
)
def test_a_fleet_that_is_none_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        replace(fleet(), **changes)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([(0, 1), (2, 3)], []),
        ([(0, 1, 2, 4), ()], ["GPU g0 has 4 tenants; at most 3 are allowed"]),
        ([(0, 1), (1, 2)], ["tenant t1 is assigned 2 times"]),
        ([(0, 3), ()], ["tenants t0, t3 are on one GPU, g0; at most 1 of them may be"]),
        ([(1,), (0,)], ["tenant t0 is on GPU g1, where it may not be"]),
    ],
)
def test_breaches_of_rules_are_told(sets: list[tuple[int, ...]], said: list[str]) -> None:
    found = replace(
        fleet(n_tenants=5),
        gpus=(FleetGpu("g0", "n", 0), FleetGpu("g1", "n", 0, frozenset({"t0"}))),
        apart=(Apart(frozenset({"t0", "t3"})),),
    )
    assert list(found.breaches(sets)) == said
    assert found.allows(sets, range(2)) == (not said or "assigned" in said[0])


def test_tenants_are_kept_apart_by_node() -> None:
    found = replace(fleet(4), apart=(Apart(frozenset({"t0", "t1", "t2"}), per_node=True),))
    sets = [(0,), (1,), (2,), ()]
    assert not found.allows(sets, [1])
    assert found.allows(sets, [2, 3])
    assert list(found.breaches(sets)) == ["tenants t0, t1 are on one node, n0; at most 1 of them may be"]


def test_gpus_are_alike_where_nothing_tells_them_apart() -> None:
    assert fleet(4).alike == ((0, 1, 2, 3),)
    assert replace(fleet(4), apart=(Apart(frozenset({"t0"}), per_node=True),)).alike == ((0, 1), (2, 3))
    gpus = tuple(FleetGpu(f"g{g}", "n", 0, frozenset({"t0"} if g == 2 else ())) for g in range(4))
    assert replace(fleet(4), gpus=gpus).alike == ((2,), (0, 1, 3))
