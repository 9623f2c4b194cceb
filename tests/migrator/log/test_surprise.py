"""A window far from its plan is told with its largest cause; logs made by hand, one window of 100 s unless said."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.log.runlog import ReadLog
from migrator.log.surprise import Surprise, surprises
from tests.migrator.log import records
from tests.migrator.log.records import Json, change, ready, started

SECONDS = 100
Promise = tuple[float, float | None, float | None]
"""Arrivals, in time, right; of a tenant, in all."""

Came = tuple[int, int, int]
"""Arrivals, in time, right; of a tenant, in each second."""


def window(promises: dict[str, Promise], came: dict[str, Came], **fields: Any) -> tuple[Json, Json]:
    expected = {
        name: {"arrivals": arrivals, "in_time": in_time, "goodput": goodput}
        for name, (arrivals, in_time, goodput) in promises.items()
    }
    begun = records.window_started(0, SECONDS, *promises)
    begun["forecast"]["tenants"] = {
        name: records.tenant_forecast([arrivals / SECONDS] * SECONDS) for name, (arrivals, _, _) in promises.items()
    }
    counts = {
        name: {"arrivals": [all_] * SECONDS, "in_time": [in_time] * SECONDS, "correct": [right] * SECONDS}
        for name, (all_, in_time, right) in came.items()
    }
    return {**begun, "plan_from_step": 0, "expected": expected, **fields}, records.window_finished(0, **counts)


def log_of(*events: Json, names: tuple[str, ...] = ("a",)) -> ReadLog:
    up = [change(0, -5.0, [started(name, -5.0, "7g.80gb@0", name) for name in names])]
    up += [ready(0, name, -1.0, tenant=name) for name in names]
    begun, *rest = events
    return records.log_of(records.header(SECONDS, *names), begun, *up, *rest)


def of_one(promise: Promise, came: Came, *more: Json, **fields: Any) -> tuple[Surprise, ...]:
    """What is told of a tenant whose one instance serves 70 requests a second."""
    begun, finished = window({"a": promise}, {"a": came}, **fields)
    return surprises(log_of(begun, *more, finished))


def test_what_comes_out_as_promised_is_no_surprise() -> None:
    assert of_one((6000, 6000, 5000), (60, 60, 45)) == ()  # 83 % promised, 75 % achieved


@pytest.mark.parametrize(("right", "told"), [(40, 0), (39, 1), (60, 0), (61, 1)])
def test_more_than_ten_points_are_told_in_both_directions(right: int, told: int) -> None:
    assert len(of_one((10000, 10000, 5000), (100, 100, right))) == told


def test_requests_beyond_forecast_and_capability_are_the_forecast_s() -> None:
    (found,) = of_one((6000, 6000, 6000), (100, 70, 70))
    assert (found.expected_goodput_pct, found.achieved_goodput_pct) == (100.0, 70.0)
    assert (found.cause, found.cause_points) == ("more requests than the forecast said", 30.0)


def test_wrong_answers_beyond_those_promised_are_told_as_such() -> None:
    (found,) = of_one((6000, 6000, 5400), (60, 60, 30))
    assert found.cause == "more wrong answers than the plan expected"
    assert found.cause_points == pytest.approx(40.0)


def test_misses_while_instances_could_have_served_are_bursts() -> None:
    (found,) = of_one((6000, 6000, 6000), (60, 40, 40))
    assert found.cause == "bursts and waits for a batch"


def test_misses_while_instances_start_are_theirs() -> None:
    begun, finished = window({"a": (6000, 6000, 6000)}, {"a": (60, 0, 0)})
    late = [change(0, 0.0, [started("late", 0.0, "7g.80gb@0")]), ready(0, "late", 90.0)]
    (found,) = surprises(records.log_of(records.header(SECONDS, "a"), begun, *late, finished))
    assert found.cause == "instances that started or stopped"
    assert found.cause_points == pytest.approx(90.0)


def test_what_no_instance_served_though_planned_is_laid_to_workers() -> None:
    begun, finished = window({"a": (6000, 6000, 6000)}, {"a": (60, 0, 0)})
    (found,) = surprises(records.log_of(records.header(SECONDS, "a"), begun, finished))
    assert found.cause.startswith("instances that served less than planned")


def test_fewer_requests_than_forecast_explain_a_better_share() -> None:
    (found,) = of_one((14000, 7000, 7000), (70, 70, 70))
    assert (found.points, found.cause) == (50.0, "fewer requests than the forecast said")


def test_fewer_wrong_answers_explain_a_better_share() -> None:
    (found,) = of_one((6000, 6000, 3000), (60, 60, 60))
    assert found.cause == "fewer wrong answers than the plan expected"


def test_instances_that_served_before_they_were_promised_explain_a_better_share() -> None:
    (found,) = of_one((6000, 3000, 3000), (60, 60, 60))
    assert found.cause == "instances that served more than the cautious plan says"


def test_seconds_before_the_plan_is_there_are_not_laid_to_the_plan() -> None:
    begun, finished = window({"a": (3000, 3000, 3000)}, {"a": (60, 60, 60)}, plan_from_step=50)
    finished["tenants"]["a"]["correct"][:50] = [0] * 50
    assert [found.cause for found in surprises(log_of(begun, finished))] == ["its plan was there 50 s after it began"]


def test_a_tenant_is_told_whose_own_goodput_is_far_off_though_that_of_all_is_not() -> None:
    begun, finished = window(
        {"a": (60000, 60000, 60000), "b": (1000, 1000, 1000)}, {"a": (600, 600, 600), "b": (10, 5, 5)}
    )
    (found,) = surprises(log_of(begun, finished, names=("a", "b")))
    assert (found.tenant, found.points) == ("b", -50.0)


def test_few_requests_differ_by_luck() -> None:
    begun, finished = window({"a": (100, 100, 50)}, {"a": (1, 1, 0)})
    finished["tenants"]["a"]["correct"][:36] = [1] * 36  # 14 points less, but one standard deviation is 5 points
    assert surprises(log_of(begun, finished)) == ()


@pytest.mark.parametrize("fields", [{"expected": None}, {}])
def test_a_window_without_a_promise_surprises_nobody(fields: dict[str, Any]) -> None:
    begun, finished = window({"a": (6000, None, None)}, {"a": (60, 0, 0)}, **fields)
    assert surprises(log_of(begun, finished)) == ()


def test_a_window_that_was_planned_again_has_no_single_promise() -> None:
    revised = records.rest_of("plan_revised", 0)
    assert of_one((6000, 6000, 6000), (60, 0, 0), revised) == ()


def test_a_surprise_is_told_in_one_line() -> None:
    told = str(Surprise(2, "a", 66.82, 50.1, "bursts and waits for a batch", 12.34))
    assert told == (
        "window 2: goodput of a 50.1 %, expected 66.8 %: 16.7 points less; "
        "largest cause: bursts and waits for a batch (12.3)"
    )


def late_plan(before: int, after: int) -> tuple[Surprise, ...]:
    """A window whose plan is there after 70 of 100 s; right answers of 100 a second before that, and after it."""
    begun, finished = window({"a": (3000, 3000, 1800)}, {"a": (100, 100, 0)}, plan_from_step=70)
    finished["tenants"]["a"]["correct"] = [before] * 70 + [after] * 30
    return surprises(log_of(begun, finished))


def test_a_window_that_was_spoilt_by_its_late_plan_is_told() -> None:
    (found,) = late_plan(before=20, after=60)
    assert (found.tenant, found.expected_goodput_pct) == (None, 60.0)
    assert found.achieved_goodput_pct == pytest.approx(0.7 * 20 + 0.3 * 60)
    assert found.cause == "its plan was there 70 s after it began"


def test_a_late_plan_that_made_no_difference_is_not_told() -> None:
    assert late_plan(before=60, after=60) == ()
