"""What ``time-sharing`` settles when a window begins: the best course of its fluid model, against all there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policies.registry import policy_of
from planner.policies.time_sharing import MARGIN_S, N_PARTS, TimeSharing
from planner.policies.turns import Course, TurnRetraining, TurnTenant

WINDOW_S = 41.0  # a part is a second
FREE = TimeSharing(turn_cost=0.0)

ONE_BY_ONE = {1: 0.01}
TRAINING = TurnRetraining(work_s=10.0, step_s={1: 0.03}, rate_rps={1: 100.0}, ready_s=0.0)


def tenant(rate_rps: float = 30.0, before: float = 0.5, after: float = 0.9, **others: object) -> TurnTenant:
    terms = {"slo_s": 0.1, "serving_s": ONE_BY_ONE, "weight": 1.0, "retraining": TRAINING} | others
    return TurnTenant(rate_rps=rate_rps, accuracy_before=before, accuracy_after=after, **terms)  # type: ignore[arg-type]


def optional(asked: TurnRetraining = TRAINING) -> TurnRetraining:
    return replace(asked, is_required=False)


# --- the fluid model written anew: every order and every pace of every choice of retrainings


def served(tenants: Sequence[TurnTenant], trained: set[int], seconds: float, share: float) -> float:
    earned = [
        one.weight * (one.accuracy_after if m in trained else one.accuracy_before) for m, one in enumerate(tenants)
    ]
    total = 0.0
    for m in sorted(range(len(tenants)), key=lambda m: -earned[m]):  # one request takes as long as another
        rate_rps = min(tenants[m].rate_rps, share / ONE_BY_ONE[1])
        total += earned[m] * rate_rps * seconds
        share -= rate_rps * ONE_BY_ONE[1]
    return total


def value(tenants: Sequence[TurnTenant], order: Sequence[int], n_parts: Sequence[int]) -> float:
    total, trained = 0.0, set[int]()
    for m, n in zip(order, n_parts, strict=True):
        asked = tenants[m].retraining
        assert asked is not None
        total += served(tenants, trained, n, 1 - asked.work_s / n)
        trained.add(m)
    total += served(tenants, trained, N_PARTS - sum(n_parts), 1.0)
    return total + sum(one.salvage[m in trained] for m, one in enumerate(tenants))


def courses(tenants: Sequence[TurnTenant]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Orders and parts of all choices with the required retrainings, where there are such; else of all."""
    asked = {m: one.retraining for m, one in enumerate(tenants) if one.retraining is not None}
    required = {m for m, one in asked.items() if one.is_required}
    for n in range(len(asked) + 1):
        for order in permutations(asked, n):
            if required <= set(order):
                yield from (
                    (order, n_parts)
                    for n_parts in product(range(1, N_PARTS + 1), repeat=n)
                    if sum(n_parts) <= N_PARTS
                    and all(k >= asked[m].work_s for m, k in zip(order, n_parts, strict=True))
                )


def settled(course: Course) -> tuple[tuple[int, ...], tuple[int, ...]]:
    order = tuple(one.tenant_index for one in course.retrainings)
    ends = [0, *(round(one.due_s) for one in course.retrainings)]
    return order, tuple(b - a for a, b in pairwise(ends))


tenants = st.builds(
    tenant,
    rate_rps=st.integers(5, 90).map(float),
    before=st.sampled_from([0.4, 0.5, 0.6]),
    after=st.sampled_from([0.3, 0.7, 0.9]),
    weight=st.sampled_from([1.0, 1.5]),
    salvage=st.sampled_from([(0.0, 0.0), (100.0, 300.0), (300.0, 100.0)]),
    retraining=st.builds(replace, st.just(TRAINING), work_s=st.integers(2, 15).map(float), is_required=st.booleans()),
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(tenants, min_size=1, max_size=2))
def test_no_order_pace_or_choice_of_retrainings_is_better(window: list[TurnTenant]) -> None:
    best = max(value(window, order, n_parts) for order, n_parts in courses(window))
    assert value(window, *settled(FREE.course(window, WINDOW_S))) == pytest.approx(best)


def test_a_pace_gives_its_work_until_it_is_due() -> None:
    course = FREE.course([tenant(), tenant(50.0)], WINDOW_S)
    first, second = course.retrainings
    assert first.pace * first.due_s == pytest.approx(first.work_s)
    assert second.pace * (second.due_s - first.due_s) == pytest.approx(second.work_s)
    assert second.due_s <= WINDOW_S - MARGIN_S


def test_a_retraining_that_does_not_pay_is_left_out_unless_it_is_required() -> None:
    useless = tenant(after=0.4)
    assert len(FREE.course([useless], WINDOW_S).retrainings) == 1
    assert FREE.course([replace(useless, retraining=optional())], WINDOW_S).retrainings == ()


def test_what_a_model_is_worth_later_pays_for_its_retraining() -> None:
    useless = tenant(after=0.4, retraining=optional())
    assert len(FREE.course([replace(useless, salvage=(0.0, 1e6))], WINDOW_S).retrainings) == 1


def test_a_required_retraining_for_which_there_is_no_time_is_done_in_the_gaps() -> None:
    endless = replace(TRAINING, work_s=2 * WINDOW_S)
    course = FREE.course([tenant(), tenant(retraining=endless)], WINDOW_S)
    assert [(one.tenant_index, one.pace > 0) for one in course.retrainings] == [(0, True), (1, False)]


def test_nothing_is_settled_of_a_window_that_ends_before_trainers_stand() -> None:
    late = replace(TRAINING, ready_s=WINDOW_S)
    assert FREE.course([tenant(retraining=late)], WINDOW_S).retrainings[0].pace == 0.0


def test_training_makes_worthier_requests_late_only_where_some_of_them_are_to_be_left() -> None:
    rich, poor = tenant(20.0, 0.9, retraining=None), tenant(60.0, 0.5)
    course = FREE.course([rich, poor], WINDOW_S)
    assert course.retrainings[0].worth == course.worth[1][0] < course.worth[0][0]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.lists(st.dictionaries(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8).map(float), min_size=1), min_size=1),
    st.integers(4, 40),
    st.sampled_from([0.0, 0.25]),
)
def test_a_request_can_wait_for_a_step_and_the_longest_turn_before_its_own(
    tables: list[dict[int, float]], slo_s: int, cost: float
) -> None:
    window = [tenant(serving_s=table, slo_s=float(slo_s)) for table in tables[:3]]
    course = TimeSharing(turn_cost=cost).course(window, WINDOW_S)
    full_s = [(1 + cost) * table[limit] for table, limit in zip(tables[:3], course.limits, strict=True)]
    step_s = (1 + cost) * 0.03
    if any(limit != min(table) for table, limit in zip(tables[:3], course.limits, strict=True)):
        assert max(full_s) + step_s + max(full_s) <= slo_s + 1e-9


def test_dear_turns_leave_less_room_for_training() -> None:
    asked = replace(TRAINING, work_s=0.9 * WINDOW_S)
    cheap, dear = (TimeSharing(turn_cost=cost).course([tenant(retraining=asked)], WINDOW_S) for cost in (0.0, 0.25))
    assert cheap.retrainings[0].pace > 0.0 == dear.retrainings[0].pace


@pytest.mark.parametrize(("name", "cost"), [("time-sharing", 0.05), ("time-sharing-0", 0.0), ("time-sharing-10", 0.1)])
def test_what_a_turn_costs_stands_in_the_name(name: str, cost: float) -> None:
    policy = policy_of(name)
    assert isinstance(policy, TimeSharing)
    assert (policy.name, policy.turn_cost) == (name, cost)


@pytest.mark.parametrize("cost", [-0.1, float("nan"), float("inf")])
def test_a_turn_costs_nothing_or_more(cost: float) -> None:
    with pytest.raises(ValueError, match="turn_cost"):
        TimeSharing(turn_cost=cost)
