"""What ``time-sharing`` settles when a window begins: the best course of its fluid model, against all there are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.arrays import Floats
from planner.policies.registry import policy_of
from planner.policies.time_sharing import MARGIN_S, MOST_PATHS, MOST_SEARCHED, N_PARTS, TimeSharing
from planner.policies.turns import TurnOption, TurnRetraining, TurnSchedule, TurnTenant
from tests.seeds import examples

WINDOW_S = 41.0  # a part is a second
FREE = TimeSharing(turn_cost=0.0)

ONE_BY_ONE = {1: 0.01}
TEN_SECONDS = TurnOption("full", 10.0, 0.9)
TRAINING = TurnRetraining((TEN_SECONDS,), step_s={1: 0.03}, rate_rps={1: 100.0}, ready_s=0.0)


def tenant(rate_rps: float = 30.0, before: float = 0.5, **others: Any) -> TurnTenant:
    terms: dict[str, Any] = {"slo_s": 0.1, "serving_s": ONE_BY_ONE, "weight": 1.0, "retraining": TRAINING} | others
    return TurnTenant(rate_rps=rate_rps, accuracy_before=before, **terms)


def retraining(*options: TurnOption, required: bool = True) -> TurnRetraining:
    return replace(TRAINING, options=options, is_required=required)


def full(work_s: float = 10.0, after: float = 0.9, salvage: float = 0.0) -> TurnOption:
    return TurnOption("full", work_s, after, salvage)


# --- the fluid model written anew: every order, every pace and every way of every choice of retrainings

Accuracies = tuple[float, ...]
Ordered = tuple[tuple[int, TurnOption], ...]


class Fluid:
    """The window part by part, on every path."""

    def __init__(self, tenants: Sequence[TurnTenant]) -> None:
        self.tenants = tenants
        paths = [np.full((1, N_PARTS), one.rate_rps) if one.paths_rps is None else one.paths_rps for one in tenants]
        rates_rps = np.stack(np.broadcast_arrays(*(own[:, :N_PARTS] for own in paths)), axis=2)
        self.rates_rps: list[list[list[float]]] = rates_rps.tolist()
        self._known: dict[tuple[int, float, float, Accuracies, float], float] = {}

    def served(self, path: int, begin: float, end: float, accuracies: Accuracies, work_s: float = 0.0) -> float:
        """What is served on a path between two moments beside so many seconds of training."""
        asked = (path, begin, end, accuracies, work_s)
        if asked not in self._known:
            self._known[asked] = self._served(*asked)
        return self._known[asked]

    def _served(self, path: int, begin: float, end: float, accuracies: Accuracies, work_s: float) -> float:
        earned = [one.weight * accuracy for one, accuracy in zip(self.tenants, accuracies, strict=True)]
        order = sorted(range(len(earned)), key=lambda m: -earned[m])
        seconds = [0.0] * len(earned)
        for part in range(math.floor(begin), math.ceil(end)):
            left = 1.0  # what comes in a part is served in it or not at all; one request takes as long as another
            for m in order:
                used = min(self.rates_rps[path][part][m] * ONE_BY_ONE[1], left)
                seconds[m] += used * (min(part + 1, end) - max(part, begin))
                left -= used
        total, left = 0.0, end - begin - work_s
        for m in order:
            used = min(seconds[m], left)
            total += earned[m] * used / ONE_BY_ONE[1]
            left -= used
        return total

    def done_in_gaps(self, path: int, begin: int, work_s: float) -> float:
        """When the seconds that nobody can use have been so many."""
        for part in range(begin, N_PARTS):
            gap_s = max(0.0, 1.0 - sum(self.rates_rps[path][part]) * ONE_BY_ONE[1])
            if gap_s > 0 and gap_s >= work_s:
                return part + work_s / gap_s
            work_s -= gap_s
        return math.inf

    def value(self, order: Ordered, n_parts: Sequence[int]) -> float:
        found = [self._value(path, order, n_parts) for path in range(len(self.rates_rps))]
        trained = dict(order)
        salvage = sum(trained[m].salvage if m in trained else one.salvage for m, one in enumerate(self.tenants))
        return sum(found) / len(found) + salvage

    def _value(self, path: int, order: Ordered, n_parts: Sequence[int]) -> float:
        total, begin = 0.0, 0
        accuracies = tuple(one.accuracy_before for one in self.tenants)
        for (m, option), n in zip(order, n_parts, strict=True):
            now, done = float(begin), 0.0
            for part, accuracy in (*option.checkpoints, (1.0, option.accuracy_after)):
                end = min(begin + part * n, self.done_in_gaps(path, begin, part * option.work_s))
                total += self.served(path, now, end, accuracies, (part - done) * option.work_s)
                if part == 1 or accuracy > accuracies[m]:
                    accuracies = (*accuracies[:m], accuracy, *accuracies[m + 1 :])
                now, done = end, part
            begin += n
            total += self.served(path, now, begin, accuracies)
        return total + self.served(path, begin, N_PARTS, accuracies)


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


def settled(course: TurnSchedule) -> tuple[Ordered, tuple[int, ...]]:
    whole = [one for one in course.retrainings if one.checkpoint is None]
    order = tuple((one.tenant_index, one.option) for one in whole)
    ends = [0, *(round(one.due_s) for one in whole)]
    return order, tuple(b - a for a, b in pairwise(ends))


ACCURACIES = st.sampled_from([0.3, 0.7, 0.9])


@st.composite
def options(draw: st.DrawFn, parts: tuple[float, ...] = ()) -> tuple[TurnOption, ...]:
    found = []
    for name in draw(st.sampled_from(["a", "ab"])):
        work_s, salvage = float(draw(st.integers(2, 15))), draw(st.sampled_from([0.0, 100.0, 300.0]))
        reached = sorted(draw(st.lists(ACCURACIES, min_size=len(parts), max_size=len(parts))))
        found.append(TurnOption(name, work_s, draw(ACCURACIES), salvage, tuple(zip(parts, reached, strict=True))))
    return tuple(found)


def tenants(options: st.SearchStrategy[tuple[TurnOption, ...]], **others: Any) -> st.SearchStrategy[TurnTenant]:
    return st.builds(
        tenant,
        rate_rps=st.integers(5, 90).map(float),
        before=st.sampled_from([0.4, 0.5, 0.6]),
        weight=st.sampled_from([1.0, 1.5]),
        salvage=st.sampled_from([0.0, 100.0, 300.0]),
        retraining=st.builds(replace, st.just(TRAINING), options=options, is_required=st.booleans()),
        **others,
    )


@st.composite
def paths_rps(draw: st.DrawFn, n_paths: int) -> Floats:
    """On each path one rate, and from some second on another."""
    found = np.empty((n_paths, round(WINDOW_S)))
    for path in found:
        path[:] = draw(st.integers(0, 150))
        path[draw(st.integers(0, N_PARTS)) :] = draw(st.integers(0, 150))
    return found


@st.composite
def windows(draw: st.DrawFn) -> list[TurnTenant]:
    """One or two tenants with a forecast; perhaps one has checkpoints."""
    n_paths, parts = draw(st.integers(1, 3)), draw(st.sampled_from([(), (0.5,), (0.25, 0.6)]))
    own = [tenants(options(some), paths_rps=paths_rps(n_paths)) for some in (parts, ())]
    return [draw(one) for one in own[: draw(st.integers(1, 2))]]


def assert_best(window: list[TurnTenant]) -> None:
    fluid = Fluid(window)
    best = max(fluid.value(order, n_parts) for order, n_parts in courses(window))
    assert fluid.value(*settled(FREE.course(window, WINDOW_S))) == pytest.approx(best)


@settings(derandomize=True, max_examples=examples(30))
@given(st.lists(tenants(options()), min_size=1, max_size=2))
def test_no_order_pace_or_choice_of_retrainings_is_better(window: list[TurnTenant]) -> None:
    assert_best(window)


@settings(derandomize=True, max_examples=examples(30))
@given(windows())
def test_none_is_better_over_all_ways_the_window_may_go_with_checkpoints(window: list[TurnTenant]) -> None:
    assert_best(window)


def test_a_course_is_not_the_one_of_the_mean_of_all_ways_the_window_may_go() -> None:
    going = np.repeat([[20.0], [160.0]], round(WINDOW_S), axis=1)
    asked = retraining(full(30.0, after=0.62))
    window = [tenant(90.0, retraining=asked, paths_rps=going)]
    by_paths, by_mean = (settled(FREE.course([replace(window[0], paths_rps=p)], WINDOW_S)) for p in (going, None))
    assert Fluid(window).value(*by_paths) > Fluid(window).value(*by_mean)


def test_a_pace_is_for_the_ways_with_few_gaps_as_a_retraining_ends_earlier_on_the_others() -> None:
    other_rps = np.zeros((2, round(WINDOW_S)))
    other_rps[1, : N_PARTS // 2] = 50.0  # a full GPU, and then half a one
    slow, other = tenant(50.0, retraining=retraining(full(after=0.7))), tenant(before=0.3, retraining=None)
    (on_both,) = FREE.course([slow, replace(other, paths_rps=other_rps)], WINDOW_S).retrainings
    (on_light,) = FREE.course([slow, replace(other, paths_rps=other_rps[:1])], WINDOW_S).retrainings
    assert (on_both.due_s, on_light.due_s) == (N_PARTS, N_PARTS // 2)


def test_of_very_many_ways_the_window_may_go_some_evenly_spaced_ones_count() -> None:
    going = np.linspace(0.0, 150.0, 10 * MOST_PATHS)[:, None].repeat(round(WINDOW_S), axis=1)
    few = going[np.linspace(0, len(going) - 1, MOST_PATHS).round().astype(int)]
    courses = [FREE.course([tenant(paths_rps=own), tenant(50.0)], WINDOW_S) for own in (going, few)]
    assert courses[0] == courses[1]


def test_a_forecast_in_steps_longer_than_a_part_counts_part_by_part() -> None:
    going = np.array([[10.0] * 20 + [90.0] * 20 + [0.0]])
    by_step, by_ten = (FREE.course([tenant(paths_rps=own)], 40 + MARGIN_S) for own in (going, going[:, ::5]))
    assert by_step.retrainings[0].due_s == pytest.approx(by_ten.retrainings[0].due_s, abs=2.0)


# --- checkpoints

HALVES = TurnOption("full", 10.0, 0.9, checkpoints=((0.3, 0.4), (0.5, 0.7)))


def test_a_retraining_goes_from_checkpoint_to_checkpoint_at_one_pace() -> None:
    (plain,) = FREE.course([tenant(retraining=retraining(full()))], WINDOW_S).retrainings
    first, second, last = FREE.course([tenant(retraining=retraining(HALVES))], WINDOW_S).retrainings
    assert [one.checkpoint for one in (first, second, last)] == [0.3, 0.5, None]
    assert [one.work_s / plain.work_s for one in (first, second, last)] == pytest.approx([0.3, 0.2, 0.5])
    assert first.pace == second.pace == last.pace
    assert [first.due_s, second.due_s] == pytest.approx([0.3 * last.due_s, 0.5 * last.due_s])


def test_a_turn_is_worth_more_from_a_checkpoint_on_if_that_is_better() -> None:
    course = FREE.course([tenant(retraining=retraining(HALVES)), tenant(retraining=None)], WINDOW_S)
    assert [[round(worth) for worth in own] for own in course.worth] == [[50, 50, 70, 90], [50]]
    assert [one.worth for one in course.retrainings] == [50.0, 50.0, 50.0]


def test_a_retraining_for_which_there_is_no_time_has_its_checkpoints_in_the_gaps() -> None:
    endless = replace(HALVES, work_s=3 * WINDOW_S)
    course = FREE.course([tenant(retraining=retraining(endless))], WINDOW_S)
    assert [(one.checkpoint, one.pace) for one in course.retrainings] == [(0.3, 0.0), (0.5, 0.0), (None, 0.0)]
    assert sum(one.work_s for one in course.retrainings) == pytest.approx(3 * WINDOW_S)


def test_of_two_ways_one_may_be_better_by_its_checkpoints_alone() -> None:
    late, early = (replace(HALVES, name=name, checkpoints=((0.5, own),)) for name, own in (("a", 0.5), ("b", 0.8)))
    (first, _) = FREE.course([tenant(90.0, retraining=retraining(late, early))], WINDOW_S).retrainings
    assert first.option.name == "b"


# --- what else a course has


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


def many(n_tenants: int) -> list[TurnTenant]:
    """Each gains a little more for a second of work than the one before."""
    ways = [retraining(full(2.0, 0.6 + 0.01 * place), required=False) for place in range(n_tenants)]
    return [tenant(1.0, retraining=way) for way in ways]


def test_of_many_retrainings_those_are_searched_that_gain_most_and_the_others_follow() -> None:
    window = many(20)
    course = FREE.course(window, WINDOW_S)
    paced = [one.tenant_index for one in course.retrainings if one.pace > 0]
    later = [one for one in course.retrainings if one.pace == 0]
    assert sorted(paced) == list(range(20 - MOST_SEARCHED, 20))
    assert [one.tenant_index for one in course.retrainings] == [*paced, *range(12, -1, -1)]
    assert {(one.due_s, one.work_s) for one in later} == {(WINDOW_S, 2.0)}
    assert [len(worths) for worths in course.worth] == [2] * 20


def test_of_those_that_are_not_searched_one_that_gains_nothing_is_done_only_if_it_must() -> None:
    window = [
        *many(MOST_SEARCHED),
        tenant(1.0, before=0.8, retraining=retraining(full(2.0, 0.5), required=False)),
        tenant(1.0, before=0.8, retraining=retraining(full(2.0, 0.4), required=True)),
    ]
    course = FREE.course(window, WINDOW_S)
    assert [one.tenant_index for one in course.retrainings][MOST_SEARCHED:] == [MOST_SEARCHED + 1]
    assert [len(worths) for worths in course.worth] == [*[2] * MOST_SEARCHED, 1, 2]


def test_what_is_not_searched_has_its_checkpoints_in_the_gaps() -> None:
    stepwise = TurnOption("full", 2.0, 0.55, 0.0, ((0.5, 0.52),))
    window = [*many(MOST_SEARCHED), tenant(1.0, retraining=retraining(stepwise, required=False))]
    last = [one for one in FREE.course(window, WINDOW_S).retrainings if one.tenant_index == MOST_SEARCHED]
    assert [(one.work_s, one.checkpoint, one.pace) for one in last] == [(1.0, 0.5, 0.0), (1.0, None, 0.0)]


def test_up_to_so_many_retrainings_all_are_searched() -> None:
    assert all(one.pace > 0 for one in FREE.course(many(MOST_SEARCHED), WINDOW_S).retrainings)


def test_nothing_is_settled_of_a_window_that_ends_before_trainers_stand() -> None:
    late = replace(TRAINING, ready_s=WINDOW_S)
    assert FREE.course([tenant(retraining=late)], WINDOW_S).retrainings[0].pace == 0.0


def test_training_makes_worthier_requests_late_only_where_some_of_them_are_to_be_left() -> None:
    rich, poor = tenant(20.0, 0.9, retraining=None), tenant(60.0, 0.5)
    course = FREE.course([rich, poor], WINDOW_S)
    assert course.retrainings[0].worth == course.worth[1][0] < course.worth[0][0]


def test_training_does_not_make_all_late_of_whom_it_leaves_a_few_unserved() -> None:
    rich, poor = tenant(70.0, 0.9, retraining=None), tenant(30.0, 0.1, retraining=retraining(full(15.0, 0.2)))
    course = FREE.course([rich, poor], WINDOW_S)
    (done,) = course.retrainings
    assert 1 - done.pace < 0.7
    assert done.worth == course.worth[1][0]


@settings(derandomize=True, max_examples=examples(60))
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
