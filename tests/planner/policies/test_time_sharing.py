"""What ``time-sharing`` settles when a window begins: the best course of its fluid model, against all there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policies.registry import policy_of
from planner.policies.time_sharing import MARGIN_S, N_PARTS, TimeSharing
from planner.policies.turns import Course, TurnOption, TurnRetraining, TurnTenant

WINDOW_S = 41.0  # a part is a second
FREE = TimeSharing(turn_cost=0.0)

ONE_BY_ONE = {1: 0.01}
TEN_SECONDS = TurnOption("full", 10.0, 0.9)
TRAINING = TurnRetraining((TEN_SECONDS,), step_s={1: 0.03}, rate_rps={1: 100.0}, ready_s=0.0)


def tenant(rate_rps: float = 30.0, before: float = 0.5, **others: Any) -> TurnTenant:
    terms = {"slo_s": 0.1, "serving_s": ONE_BY_ONE, "weight": 1.0, "retraining": TRAINING} | others
    return TurnTenant(rate_rps=rate_rps, accuracy_before=before, **terms)


def retraining(*options: TurnOption, required: bool = True) -> TurnRetraining:
    return replace(TRAINING, options=options, is_required=required)


def full(work_s: float = 10.0, after: float = 0.9, salvage: float = 0.0) -> TurnOption:
    return TurnOption("full", work_s, after, salvage)


# --- the fluid model written anew: every order, every pace and every way of every choice of retrainings

Trained = dict[int, TurnOption]


def served(tenants: Sequence[TurnTenant], trained: Trained, seconds: float, share: float) -> float:
    earned = [
        one.weight * (trained[m].accuracy_after if m in trained else one.accuracy_before)
        for m, one in enumerate(tenants)
    ]
    total = 0.0
    for m in sorted(range(len(tenants)), key=lambda m: -earned[m]):  # one request takes as long as another
        rate_rps = min(tenants[m].rate_rps, share / ONE_BY_ONE[1])
        total += earned[m] * rate_rps * seconds
        share -= rate_rps * ONE_BY_ONE[1]
    return total


def value(tenants: Sequence[TurnTenant], order: Sequence[tuple[int, TurnOption]], n_parts: Sequence[int]) -> float:
    total, trained = 0.0, Trained()
    for (m, option), n in zip(order, n_parts, strict=True):
        total += served(tenants, trained, n, 1 - option.work_s / n)
        trained[m] = option
    total += served(tenants, trained, N_PARTS - sum(n_parts), 1.0)
    return total + sum(trained[m].salvage if m in trained else one.salvage for m, one in enumerate(tenants))


Ordered = tuple[tuple[int, TurnOption], ...]


def courses(tenants: Sequence[TurnTenant]) -> Iterator[tuple[Ordered, tuple[int, ...]]]:
    """Orders, ways and parts of all choices with the required retrainings, where there are such; else of all."""
    asked = {m: one.retraining for m, one in enumerate(tenants) if one.retraining is not None}
    required = {m for m, one in asked.items() if one.is_required}
    for n in range(len(asked) + 1):
        for order in permutations(asked, n):
            if not required <= set(order):
                continue
            for ways in product(*(asked[m].options for m in order)):
                yield from (
                    (tuple(zip(order, ways, strict=True)), n_parts)
                    for n_parts in product(range(1, N_PARTS + 1), repeat=n)
                    if sum(n_parts) <= N_PARTS and all(k >= way.work_s for way, k in zip(ways, n_parts, strict=True))
                )


def settled(course: Course) -> tuple[Ordered, tuple[int, ...]]:
    order = tuple((one.tenant_index, one.option) for one in course.retrainings)
    ends = [0, *(round(one.due_s) for one in course.retrainings)]
    return order, tuple(b - a for a, b in pairwise(ends))


tenants = st.builds(
    tenant,
    rate_rps=st.integers(5, 90).map(float),
    before=st.sampled_from([0.4, 0.5, 0.6]),
    weight=st.sampled_from([1.0, 1.5]),
    salvage=st.sampled_from([0.0, 100.0, 300.0]),
    retraining=st.builds(
        replace,
        st.just(TRAINING),
        options=st.lists(
            st.builds(
                TurnOption,
                st.sampled_from("abcdef"),
                st.integers(2, 15).map(float),
                st.sampled_from([0.3, 0.7, 0.9]),
                st.sampled_from([0.0, 100.0, 300.0]),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda option: option.name,
        ).map(tuple),
        is_required=st.booleans(),
    ),
)


@settings(derandomize=True, max_examples=60)
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
    n_done = [
        len(FREE.course([tenant(retraining=retraining(full(after=0.4), required=required))], WINDOW_S).retrainings)
        for required in (True, False)
    ]
    assert n_done == [1, 0]


def test_what_a_model_is_worth_later_pays_for_its_retraining() -> None:
    asked = retraining(full(after=0.4, salvage=1e6), required=False)
    assert len(FREE.course([tenant(retraining=asked)], WINDOW_S).retrainings) == 1


@pytest.mark.parametrize(
    ("work_s", "salvage", "taken"), [(3.0, 0.0, "full"), (38.0, 0.0, "quick"), (38.0, 1e6, "full")]
)
def test_of_two_ways_to_retrain_the_course_takes_the_better(work_s: float, salvage: float, taken: str) -> None:
    asked = retraining(full(work_s, salvage=salvage), TurnOption("quick", 2.0, 0.8))
    (done,) = FREE.course([tenant(rate_rps=60.0, retraining=asked)], WINDOW_S).retrainings
    assert (done.option.name, done.pace > 0) == (taken, True)


def test_the_way_of_the_course_says_what_a_turn_is_worth_afterwards() -> None:
    asked = retraining(full(38.0), TurnOption("quick", 2.0, 0.8))
    course = FREE.course([tenant(rate_rps=60.0, retraining=asked)], WINDOW_S)
    assert course.worth == ((0.5 / 0.01, 0.8 / 0.01),)


def test_a_required_retraining_for_which_there_is_no_time_is_done_in_the_gaps_in_the_way_of_the_least_work() -> None:
    endless = retraining(full(3 * WINDOW_S), TurnOption("less", 2 * WINDOW_S, 0.6))
    course = FREE.course([tenant(), tenant(retraining=endless)], WINDOW_S)
    found = [(one.tenant_index, one.option.name, one.pace > 0) for one in course.retrainings]
    assert found == [(0, "full", True), (1, "less", False)]


def test_of_very_many_ways_some_are_passed_over_but_never_all() -> None:
    many = [TurnOption(f"way{k}", 10.0 - k / 4, 0.9 - k / 100) for k in range(20)]
    course = FREE.course([tenant(10.0 + k, retraining=retraining(*many)) for k in range(3)], WINDOW_S)
    assert sorted(one.tenant_index for one in course.retrainings) == [0, 1, 2]


def test_nothing_is_settled_of_a_window_that_ends_before_trainers_stand() -> None:
    late = replace(TRAINING, ready_s=WINDOW_S)
    assert FREE.course([tenant(retraining=late)], WINDOW_S).retrainings[0].pace == 0.0


def test_training_makes_worthier_requests_late_only_where_some_of_them_are_to_be_left() -> None:
    rich, poor = tenant(20.0, 0.9, retraining=None), tenant(60.0, 0.5)
    course = FREE.course([rich, poor], WINDOW_S)
    assert course.retrainings[0].worth == course.worth[1][0] < course.worth[0][0]


@settings(derandomize=True, max_examples=60)
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
    asked = retraining(full(0.9 * WINDOW_S))
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
