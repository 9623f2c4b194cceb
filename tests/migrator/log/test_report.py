from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.errors import LogError
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog

HEADER: dict[str, Any] = {
    "kind": "run_started",
    "schema": 1,
    "window_s": 10.0,
    "step_s": 1.0,
    "compute_slices": 7,
    "tenants": [{"name": "a"}],
}


def window_started(window: int, mean_rps: list[float]) -> dict[str, Any]:
    return {
        "kind": "window_started",
        "window": window,
        "start_s": 10.0 * window,
        "plan": {"status": "optimal", "objective": 5.0, "gap": 0.0},
        "forecast": {"tenants": {"a": {"mean_rps": mean_rps}}},
    }


def window_finished(window: int, in_time: int = 6) -> dict[str, Any]:
    counts = {
        "arrivals": [1] * 10,
        "in_time": [1] * in_time + [0] * (10 - in_time),
        "late": [0] * 8 + [1, 0],
        "dropped": [0] * in_time + [1] * (8 - in_time) + [0, 1],
        "correct": [1] * 3 + [0] * 7,
        "correct_late": [0] * 8 + [1, 0],
        "latency_ms": [[20, in_time], [500, 1]],
    }
    return {"kind": "window_finished", "window": window, "tenants": {"a": counts}}


def change(window: int, begin_s: float, started=(), stopped=()) -> dict[str, Any]:
    return {"kind": "change", "window": window, "begin_s": begin_s, "started": list(started), "stopped": list(stopped)}


def started(instance: str, begin_s: float, ready_s: float, task: str = "inference", late_s: float = 0.0):
    return {
        "instance": instance,
        "compute_slices": 7,
        "tenant": "a",
        "task": task,
        "begin_s": begin_s,
        "ready_s": ready_s,
        "late_ready_s": late_s,
    }


def stopped(instance: str, end_s: float, gone_s: float) -> dict[str, Any]:
    return {
        "instance": instance,
        "compute_slices": 7,
        "tenant": "a",
        "task": "inference",
        "end_s": end_s,
        "gone_s": gone_s,
    }


BRING_UP = change(0, -9.0, [started("x", -9.0, -5.0)])


def report(*events: dict[str, Any]):
    return report_of(ReadLog(Path("run"), (HEADER, *events), torn=False))


def test_percentages_are_of_what_they_say() -> None:
    figures = report(window_started(0, [1.0] * 10), BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert figures.requests.goodput_pct == 30.0
    assert figures.requests.slo_attainment_pct == 60.0
    assert figures.requests.accuracy_pct == pytest.approx(100 * 4 / 7)
    assert (figures.p50_ms, figures.p99_ms) == (20, 500)


def test_forecast_error_compares_second_by_second() -> None:
    figures = report(window_started(0, [2.0] * 5 + [1.0] * 5), BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert figures.forecast_error_pct == 50.0


@pytest.mark.parametrize("step_s", [0.5, 2.0])
def test_forecast_error_does_not_depend_on_the_step(step_s: float) -> None:
    header = {**HEADER, "step_s": step_s}
    events = (header, window_started(0, [3.0] * int(10 / step_s)), BRING_UP, window_finished(0))
    figures = report_of(ReadLog(Path("run"), events, torn=False)).windows[0].tenants["a"]
    assert figures.forecast_error_pct == pytest.approx(200.0)


def test_bring_up_is_no_reconfiguration() -> None:
    figures = report(window_started(0, [1.0] * 10), BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert (figures.reconfigurations, figures.outage_s, figures.capacity_lost_s) == (0, 0.0, 0.0)


def test_outage_lasts_from_a_stop_until_the_next_instance_is_ready() -> None:
    moved = change(0, 4.0, [started("y", 4.4, 7.5)], [stopped("x", 4.0, 4.4)])
    figures = report(window_started(0, [1.0] * 10), BRING_UP, moved, window_finished(0)).windows[0].tenants["a"]
    assert figures.outage_s == pytest.approx(3.5)
    assert figures.capacity_lost_s == pytest.approx(0.4 + 3.1)
    assert figures.reconfigurations == 1


def test_an_outage_is_split_between_its_windows() -> None:
    moved = change(0, 8.0, [started("y", 8.5, 13.0)], [stopped("x", 8.0, 8.5)])
    both = report(
        window_started(0, [1.0] * 10),
        BRING_UP,
        moved,
        window_started(1, [1.0] * 10),
        window_finished(0),
        window_finished(1),
    )
    assert [window.tenants["a"].outage_s for window in both.windows] == [2.0, 3.0]


def test_an_instance_that_never_became_ready_covers_nothing() -> None:
    warm = change(0, 1.0, [started("y", 1.0, 9.0)])
    drop = change(0, 2.0, [started("z", 2.5, 6.0)], [stopped("x", 2.0, 2.2), stopped("y", 2.0, 2.4)])
    figures = report(window_started(0, [1.0] * 10), BRING_UP, warm, drop, window_finished(0)).windows[0].tenants["a"]
    assert figures.outage_s == pytest.approx(4.0)
    assert figures.capacity_lost_s == pytest.approx(1.0 + 0.4 + 0.2 + 3.5)


def test_retrainings_and_lateness_are_counted() -> None:
    training = change(0, 1.0, [started("r", 1.0, 4.0, "retraining", late_s=0.5)])
    figures = report(window_started(0, [1.0] * 10), BRING_UP, training, window_finished(0)).windows[0].tenants["a"]
    assert (figures.retrainings, figures.late_ready_s, figures.reconfigurations) == (1, 0.5, 0)


def test_a_window_that_was_not_settled_is_void_and_in_no_total() -> None:
    torn = report(window_started(0, [1.0] * 10), BRING_UP, window_started(1, [1.0] * 10), window_finished(0))
    assert [window.is_void for window in torn.windows] == [False, True]
    assert torn.total is not None
    assert torn.total.requests.arrivals == 10
    assert torn.ending == "torn"


def test_a_run_without_a_settled_window_has_no_total() -> None:
    assert report(window_started(0, [1.0] * 10)).total is None


@pytest.mark.parametrize("missing", ["plan", "forecast", "start_s"])
def test_an_altered_event_is_told(missing: str) -> None:
    event = window_started(0, [1.0] * 10)
    del event[missing]
    with pytest.raises(LogError, match="altered"):
        report(event, BRING_UP, window_finished(0))


@pytest.mark.parametrize("kind", ["finished", "interrupted"])
def test_the_ending_is_told(kind: str) -> None:
    event = {"kind": "run_finished"} if kind == "finished" else {"kind": "interrupted"}
    assert report(event).ending == kind
