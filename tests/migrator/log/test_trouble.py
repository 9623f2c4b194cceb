"""What went wrong with a GPU, from its log alone, and what goodput of the windows concerned was promised and came."""

from __future__ import annotations

from typing import Any

from migrator.log.trouble import Achieved, Trouble, trouble_of
from tests.migrator.log import records
from tests.migrator.log.records import Json

SECONDS = 10


def window(number: int, promised: float | None, right: int, **fields: Any) -> tuple[Json, Json]:
    """A window of ten requests a second, of which so many are right; the plan expects as many requests."""
    begun = records.window_started(number, SECONDS, "a")
    expected = {"a": {"arrivals": 100.0, "in_time": 100.0, "goodput": promised}}
    counts = {"arrivals": [10] * SECONDS, "in_time": [10] * SECONDS, "correct": [right] * SECONDS}
    return {**begun, "plan_from_step": 0, "expected": expected, **fields}, records.window_finished(number, a=counts)


def refused(number: int) -> Json:
    return records.outcome(number, 0, 1.0, 1.0, "In use by another client")


def trouble(*events: Json) -> Trouble | None:
    return trouble_of(records.log_of(records.header(SECONDS, "a"), *events))


def test_a_run_in_which_nothing_was_refused_tells_nothing() -> None:
    assert trouble(*window(0, 80.0, 5)) is None


def test_windows_with_refusals_are_held_against_their_plans_apart_from_the_others() -> None:
    (begun, finished), (other, other_finished) = window(0, 80.0, 5), window(1, 60.0, 7)
    found = trouble(begun, refused(0), other, finished, other_finished)
    assert found is not None
    assert (found.calls, found.refused) == (1, 1)
    assert found.troubled == Achieved(1, 80.0, 50.0)
    assert found.quiet == Achieved(1, 60.0, 70.0)


def test_only_the_seconds_that_a_plan_covers_count() -> None:
    begun, finished = window(0, 80.0, 5, plan_from_step=4)
    finished["tenants"]["a"]["correct"] = [0] * 4 + [9] * 6
    found = trouble(begun, refused(0), finished)
    assert found is not None
    assert found.troubled == Achieved(1, 80.0, 90.0)


def test_a_window_without_a_promise_has_no_loss() -> None:
    begun, finished = window(0, None, 5)
    found = trouble(begun, refused(0), finished)
    assert found is not None
    assert (found.troubled, found.quiet) == (None, None)


def test_what_stayed_undone_and_what_was_planned_anew_is_counted() -> None:
    begun, finished = window(0, 80.0, 5)
    undone = {**records.change(0, 2.0, []), "undone": ["1g.10gb@0: no", "1g.10gb@1: no"]}
    again = [records.rest_of("plan_revised", 0), records.rest_of("not_revised", 0, rejected_plan=None)]
    others = {"kind": "others", "window": 0, "gone": [], "came": [], "left": [], "taken": []}
    found = trouble(begun, undone, *again, others, finished)
    assert found is not None
    assert (found.undone, found.revised, found.not_revised, found.others) == (2, 1, 1, 1)


def test_lost_points_say_which_way() -> None:
    assert str(Achieved(2, 80.0, 75.0)) == "goodput 75.0 %, by their first plans 80.0 %: 5.0 points less"
    assert str(Achieved(2, 75.0, 80.0)).endswith("5.0 points more")
