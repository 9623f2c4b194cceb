"""Salus's four schedulers: in which order the retrainings of a window have what serving leaves."""

from __future__ import annotations

import pytest

from planner.policies.registry import policy_of
from planner.policies.salus import PACKED_GAIN, Salus, in_turns, packed
from planner.policies.turns import PacedRetraining, TurnOption, TurnRetraining, TurnTenant


def tenant(work_s: float, gain: float) -> TurnTenant:
    asked = TurnRetraining((TurnOption("full", work_s, 0.5 + gain),), {1: 0.01}, {1: 1.0}, ready_s=0.0)
    return TurnTenant(10.0, 0.1, {1: 0.01}, 1.0, 0.5, retraining=asked)


def course(scheduler: str, *works_s: float) -> tuple[PacedRetraining, ...]:
    policy = policy_of("salus" if scheduler == "fifo" else f"salus-{scheduler}")
    assert isinstance(policy, Salus)
    tenants = [tenant(work_s, 0.1 * place) for place, work_s in enumerate(works_s)]
    return policy.course(tenants, window_s=60.0).retrainings


def test_fifo_trains_in_the_order_in_which_retrainings_come_whatever_they_gain() -> None:
    assert [one.tenant_index for one in course("fifo", 5.0, 4.0, 3.0)] == [0, 1, 2]


def test_fair_takes_a_part_of_each_in_turn_and_the_last_part_ends_it() -> None:
    parts = course("fair", 2.0, 3.0)
    assert [one.tenant_index for one in parts] == [0, 1, 0, 1, 1]
    assert [one.is_last for one in parts] == [False, False, True, False, True]


@pytest.mark.parametrize("works_s", [(2.0, 3.5), (0.25, 7.0, 4.0), (1.0,)])
def test_parts_are_all_of_the_work(works_s: tuple[float, ...]) -> None:
    parts = course("fair", *works_s)
    for place, work_s in enumerate(works_s):
        assert sum(one.work_s for one in parts if one.tenant_index == place) == pytest.approx(work_s)


def test_only_what_runs_beside_another_gains_by_packing() -> None:
    option = TurnOption("full", 1.0, 0.5)
    alone, short, long = (PacedRetraining(place, option, work_s, 0.1) for place, work_s in enumerate((6.0, 2.0, 10.0)))
    assert packed([alone]) == [alone]
    found = [one.work_s for one in packed([alone, short, long])]
    assert found == pytest.approx([6 / PACKED_GAIN, 2 / PACKED_GAIN, 6 / PACKED_GAIN + 4])
    assert in_turns([]) == []
