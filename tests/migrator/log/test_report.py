from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from migrator.log.report import PHASES, Percentile, Phase, Report, report_of
from migrator.log.runlog import ReadLog, counted_until
from migrator.views.as_json import report_to_json
from migrator.views.report import alarms
from tests.migrator.log import records
from tests.migrator.log.records import Json, failed, ready, started, stopped
from workloads.serving.tally import Totals

HEADER = records.header(10.0)


def window_started(window: int, mean_rps: list[float]) -> dict[str, Any]:
    return records.window_started(window, 10.0, mean_rps=mean_rps)


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
    return records.window_finished(window, a=counts)


def change(window: int, begin_s: float, new: dict[str, tuple[float, float]], gone: list[Any] = ()) -> list[Json]:
    """A change that starts instances, each ``begin_s, ready_s``, and their becoming ready."""
    begun = [started(name, own_s) for name, (own_s, _) in new.items()]
    return [records.change(window, begin_s, begun, gone), *(ready(window, name, at) for name, (_, at) in new.items())]


BRING_UP = change(0, -9.0, {"x": (-9.0, -5.0)})


def report(*events: Json) -> Report:
    return report_of(records.log_of(HEADER, *events))


def test_percentages_are_of_what_they_say() -> None:
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert figures.requests.goodput_pct == 30.0
    assert figures.requests.slo_attainment_pct == 60.0
    assert figures.requests.accuracy_pct == pytest.approx(100 * 4 / 7)


def test_percentiles_are_of_all_requests_and_over_the_slo_where_they_were_not_in_time() -> None:
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, window_finished(0)).windows[0].tenants["a"]
    requests = figures.requests
    assert (requests.arrivals, requests.in_time, requests.late, requests.dropped) == (10, 6, 1, 3)
    assert figures.p50 == Percentile(ms=20, is_over_slo=False, answered_ms=20)
    assert figures.p99 == Percentile(ms=None, is_over_slo=True, answered_ms=500)


@pytest.mark.parametrize(
    ("fraction", "found"),
    [(0.6, Percentile(20, False, 20)), (0.7, Percentile(500, True, 20)), (0.71, Percentile(None, True, 20))],
)
def test_a_late_answer_has_its_latency_and_one_that_never_came_has_none(fraction: float, found: Percentile) -> None:
    requests = Totals(arrivals=100, in_time=60, late=10, dropped=30)
    assert Percentile.of(requests, {20: 60, 500: 10}, fraction) == found


def test_without_arrivals_there_is_no_percentile() -> None:
    assert Percentile.of(Totals(), {}, 0.5) == Percentile(None, False, None)


def test_forecast_error_compares_second_by_second() -> None:
    figures = report(window_started(0, [2.0] * 5 + [1.0] * 5), *BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert figures.forecast_error_pct == 50.0


@pytest.mark.parametrize("step_s", [0.5, 2.0])
def test_forecast_error_does_not_depend_on_the_step(step_s: float) -> None:
    header = {**HEADER, "step_s": step_s}
    events = (header, window_started(0, [3.0] * int(10 / step_s)), *BRING_UP, window_finished(0))
    figures = report_of(records.log_of(*events)).windows[0].tenants["a"]
    assert figures.forecast_error_pct == pytest.approx(200.0)


def test_bring_up_is_no_reconfiguration() -> None:
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, window_finished(0)).windows[0].tenants["a"]
    assert (figures.reconfigurations, figures.outage_s, figures.capacity_lost_s) == (0, 0.0, 0.0)


def test_outage_lasts_from_a_stop_until_the_next_instance_is_ready() -> None:
    moved = change(0, 4.0, {"y": (4.4, 7.5)}, [stopped("x", 4.0, 4.4)])
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, *moved, window_finished(0)).windows[0].tenants["a"]
    assert figures.outage_s == pytest.approx(3.5)
    assert figures.capacity_lost_s == pytest.approx(0.4 + 3.1)
    assert figures.reconfigurations == 1


def test_what_an_instance_of_a_pool_loses_is_split_among_its_members() -> None:
    shared = {"tenant": ["a", "b"]}
    counted = records.counts([1] * 10, [0] * 10, [1] * 10)
    found = report_of(
        records.log_of(
            records.header(10.0, "a", "b"),
            records.window_started(0, 10.0, "a", "b"),
            records.change(0, -9.0, [started("x", -9.0) | shared]),
            *(ready(0, "x", -5.0, tenant=name) for name in ("a", "b")),
            records.change(0, 4.0, [started("y", 4.5) | shared], [stopped("x", 4.0, 4.5) | shared]),
            ready(0, "y", 6.5, late_s=0.5, tenant="a"),
            ready(0, "y", 8.5, late_s=2.5, tenant="b"),
            records.window_finished(0, a=counted, b=counted),
        )
    )
    # The whole GPU: 0.5 s until it was gone, then 2 s without both members and 2 s without one of them.
    assert {name: own.capacity_lost_s for name, own in found.tenants.items()} == {"a": 1.25, "b": 2.25}
    assert found.total is not None
    assert found.total.capacity_lost_s == 0.5 + 2.0 + 2.0 / 2
    assert found.total.late_ready_s == (0.5 + 2.5) / 2


def test_an_outage_is_split_between_its_windows() -> None:
    moved = change(0, 8.0, {"y": (8.5, 13.0)}, [stopped("x", 8.0, 8.5)])
    both = report(
        window_started(0, [1.0] * 10),
        *BRING_UP,
        *moved,
        window_started(1, [1.0] * 10),
        window_finished(0),
        window_finished(1),
    )
    assert [window.tenants["a"].outage_s for window in both.windows] == [2.0, 3.0]


def test_an_instance_that_never_became_ready_covers_nothing() -> None:
    warm = [records.change(0, 1.0, [started("y", 1.0)])]
    drop = change(0, 2.0, {"z": (2.5, 6.0)}, [stopped("x", 2.0, 2.2), stopped("y", 2.0, 2.4)])
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, *warm, *drop, window_finished(0)).windows[0].tenants["a"]
    assert figures.outage_s == pytest.approx(4.0)
    assert figures.capacity_lost_s == pytest.approx(1.0 + 0.4 + 0.2 + 3.5)


def test_retrainings_and_lateness_are_counted() -> None:
    training = [records.change(0, 1.0, [started("r", 1.0, task="retraining")]), ready(0, "r", 4.0, 0.5)]
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, *training, window_finished(0)).windows[0].tenants["a"]
    assert (figures.retrainings, figures.late_ready_s, figures.reconfigurations) == (1, 0.5, 0)


def test_what_the_driver_made_and_destroyed_is_counted_by_window_without_the_bring_up() -> None:
    begun = [window_started(0, [1.0] * 10), *calls(2, ("create", -9.0)), *BRING_UP, window_finished(0)]
    n, drop = len(begun) + 1, records.change(1, 12.0, [started("y", 13.0)], [stopped("x", 12.0, 12.5)])
    made = calls(n + 1, ("destroy", 12.0), ("create", 12.5, "refused"), ("create", 13.0), ("repair", 13.2))
    own = report(*begun, window_started(1, [1.0] * 10), *made, drop, ready(1, "y", 14.0), window_finished(1))
    assert ([window.driver_changes for window in own.windows], own.driver_changes) == ([0, 2], 2)


def calls(first: int, *asked: tuple[Any, ...]) -> list[Json]:
    """Driver calls, each with its second and its error, if any, from this record on."""
    return [
        one
        for place, (call, at_s, *error) in enumerate(asked)
        for one in (
            records.intent(int(at_s >= 10), call, "1g.10gb@0"),
            records.outcome(int(at_s >= 10), first + 2 * place, at_s, at_s + 0.1, *error),
        )
    ]


def test_a_window_that_was_not_settled_is_void_and_in_no_total() -> None:
    torn = report(window_started(0, [1.0] * 10), *BRING_UP, window_started(1, [1.0] * 10), window_finished(0))
    assert [window.is_void for window in torn.windows] == [False, True]
    assert torn.total is not None
    assert torn.total.requests.arrivals == 10
    assert torn.ending == "torn"


def test_a_run_without_a_settled_window_has_no_total() -> None:
    assert report(window_started(0, [1.0] * 10)).total is None


@pytest.mark.parametrize("kind", ["finished", "interrupted"])
def test_the_ending_is_told(kind: str) -> None:
    event = {"kind": "run_finished", "windows": 2} if kind == "finished" else {"kind": "interrupted"}
    assert report(event).ending == kind


def test_a_service_that_was_stopped_may_go_on_and_only_what_it_left_out_is_void() -> None:
    served = window_started(0, [1.0] * 10), *BRING_UP, window_finished(0), {"kind": "service_stopped", "at_s": 7.0}
    service = {**HEADER, "service": True, "backend": "cpu", "index": 0}
    stopped_ = report_of(records.log_of(service, *served))
    assert (stopped_.ending, [window.is_void for window in stopped_.windows]) == ("stopped", [False])
    again = {"kind": "resumed", "window": 2, "void": [1], "at_s": 12.0}
    later = {**window_started(2, [1.0] * 10), "at_s": 20.0}
    goes_on = report_of(records.log_of(service, *served, again, later, {**window_finished(2), "at_s": 30.0}))
    assert (goes_on.ending, [window.is_void for window in goes_on.windows]) == ("torn", [False, True, False])


def outside(window: int, at_s: float, arrivals: int, in_time: int, **own: Any) -> Json:
    counts = {"late": 0, "refused": 0, "failed": 0, **own}
    counts |= {"arrivals": arrivals, "in_time": in_time, "dropped": arrivals - in_time - counts["late"]}
    return {"kind": "outside", "window": window, "tenants": {"a": counts}, "at_s": at_s}


def started_again() -> ReadLog:
    """A service that was killed in window 1, started, killed before its first window, and started once more."""
    service = {**HEADER, "service": True, "backend": "cpu", "index": 0, "simulated": False}
    first = {"kind": "resumed", "window": 3, "void": [1, 2], "unknown": {"a": 12}, "at_s": 24.0}
    again = {"kind": "resumed", "window": 4, "void": [3], "unknown": {"a": 5}, "at_s": 33.0}
    counts = records.counts([1] * 10, [0] * 10, [], refused=[0] * 10, correct_late=[])
    settled = [records.window_finished(window, a=counts) for window in (0, 4)]
    return records.log_of(
        service,
        window_started(0, [1.0] * 10),
        {**settled[0], "at_s": 11.0},
        first,
        again,
        {**window_started(4, [1.0] * 10), "at_s": 40.0},
        outside(4, 41.5, 9, 6, late=1, refused=1),
        {**settled[1], "at_s": 51.0},
    )


def test_what_a_service_answers_before_its_first_window_is_told_apart_and_so_is_what_nobody_knows() -> None:
    found = report_of(started_again())
    assert found.total is not None
    assert found.total.requests.arrivals == 20
    assert found.outside == {"a": Totals(9, 6, 1, 2, unlabelled=9, refused=1)}
    assert found.unknown == {"a": 17}
    told = dict.fromkeys(("late", "refused"), 1) | {"arrivals": 9, "in_time": 6, "dropped": 2, "failed": 0}
    assert report_to_json(found)["outside"] == {"a": {**told, "unknown": 17}}
    said = [*alarms(found)]
    assert "Before the first window after a start, and in none: 9 offered, 6 in time, 1 late, 2 dropped." in said
    assert "Offered before a kill, and in no window: 17; their outcome is unknown." in said


def test_from_a_later_window_on_a_log_tells_what_came_before_that_one_alone() -> None:
    log = started_again()
    assert report_of(log.since(4)).outside == report_of(log).outside
    assert (report_of(log.since(4)).unknown, counted_until(log)) == ({}, 50.0)
    assert counted_until(replace(log, entries=log.entries[:-1])) == 40.0
    assert counted_until(replace(log, entries=log.entries[:-3])) == 33.0


def test_a_failed_worker_is_an_outage_until_it_is_ready_again() -> None:
    died = (failed(0, "x", 2.0), ready(0, "x", 4.5))
    figures = report(window_started(0, [1.0] * 10), *BRING_UP, *died, window_finished(0)).windows[0].tenants["a"]
    assert (figures.outage_s, figures.reconfigurations, figures.capacity_lost_s) == (2.5, 0, 0.0)


def test_an_instance_that_is_not_ready_when_the_log_ends_was_idle_until_then() -> None:
    warm = records.change(0, 1.0, [started("y", 1.0)])
    events = (window_started(0, [1.0] * 10), *BRING_UP, warm, {**window_finished(0), "at_s": 11.0})
    assert report(*events).windows[0].tenants["a"].capacity_lost_s == 10.0


def without_instances(sharing: str, *events: Json) -> Report:
    closing = window_finished(0)
    closing["tenants"]["a"] |= {"could_serve": [0.0] * 2 + [5.0] * 8, "changing": [0.0] * 10}
    started_ = {**window_started(0, [1.0] * 10), "plan": None}
    return report_of(records.log_of({**HEADER, "sharing": sharing}, started_, *events, closing))


def test_without_instances_there_is_no_plan_and_outages_are_seconds_in_which_nothing_could_serve() -> None:
    window = without_instances("turns").windows[0]
    assert (window.plan_status, window.expected_goodput, window.gap) == (None, None, None)
    assert window.tenants["a"].outage_s == 2.0


def test_a_share_that_changes_is_a_reconfiguration() -> None:
    given = [[10, 0], [10, 10], [12, 8]]
    events = [shares(2.0 * at, own, other) for at, (own, other) in enumerate(given)]
    figures = without_instances("shares", *events, records.finished(0, None, 5.0)).tenants["a"]
    assert (figures.reconfigurations, figures.retrainings) == (1, 1)


def test_the_same_share_of_the_time_is_another() -> None:
    events = [shares(0.0, 10, 10), {**shares(2.0, 10, 10), "in_turns": True}, {**shares(4.0, 10, 0), "in_turns": True}]
    assert without_instances("shares", *events).tenants["a"].reconfigurations == 1


def shares(at_s: float, own: int, other: int) -> Json:
    held = [["a", "inference", own], ["a", "retraining", other]]
    return {"kind": "shares", "at_s": at_s, "window": 0, "shares": held}


def moved(begin_s: float = 10.0) -> list[Json]:
    """Tenant a loses a 2g and gets a 1g on its slices; tenant b starts in an instance that was there."""
    there = [started("2g.20gb@0#1", -9.0, "2g.20gb@0"), started("3g.40gb@4#2", -9.0, "3g.40gb@4")]
    new = [started("1g.10gb@0#3", 10.25, "1g.10gb@0"), started("3g.40gb@4#4", 10.0, "3g.40gb@4", "b")]
    return [
        records.change(0, -9.0, there),
        {**records.intent(0, "destroy", "2g.20gb@0"), "n": 20},
        records.outcome(0, 20, 10.0, 10.25),
        {**records.intent(0, "create", "1g.10gb@0"), "n": 21},
        records.outcome(0, 21, 10.25, 10.5),
        records.change(0, begin_s, new, [stopped("2g.20gb@0#1", 10.0, 10.25), stopped("3g.40gb@4#2", 10.0, 10.0)]),
        ready(0, "3g.40gb@4#4", 14.25),
        ready(0, "1g.10gb@0#3", 12.5),
    ]


def test_every_phase_of_a_start_up_is_told_apart() -> None:
    found = report(*moved()).start_ups["a"]
    assert found == dict(zip(PHASES, (Phase(1, 0.25), Phase(1, 0.25), Phase(1, 0.5), Phase(1, 1.5)), strict=True))


def test_a_tenant_in_an_instance_that_was_there_has_no_driver_call() -> None:
    found = report(*moved()).start_ups["b"]
    assert [found[phase].count for phase in PHASES] == [0, 0, 1, 1]
    assert found["destruction"].mean_s is None


def test_a_driver_call_for_a_pool_s_instance_is_counted_once_under_all_its_members() -> None:
    shared = [records.change(0, 30.0, [started("x", 30.25, "2g.20gb@0") | {"tenant": ["a", "b"]}])]
    calls = [{**records.intent(0, "create", "2g.20gb@0"), "n": 30}, records.outcome(0, 30, 30.0, 30.25)]
    found = report(*moved(), *calls, *shared, *(ready(0, "x", 33.0, tenant=name) for name in ("a", "b"))).start_ups
    assert found["a+b"] == dict(zip(PHASES, (Phase(), Phase(1, 0.25), Phase(), Phase()), strict=True))
    assert [found[name]["initialisation"].count for name in ("a", "b")] == [1, 0]
    assert [found[name]["model_load"].count for name in ("a", "b")] == [2, 2]


def test_the_bring_up_is_no_start_up() -> None:
    assert report(*moved(begin_s=-3.0)).start_ups == {}


def test_a_worker_that_is_started_again_is_no_start_up() -> None:
    again = (failed(0, "1g.10gb@0#3", 20.0), ready(0, "1g.10gb@0#3", 25.0))
    assert report(*moved(), *again).start_ups == report(*moved()).start_ups


def test_a_call_that_the_driver_refused_is_no_start_up() -> None:
    *before, last = moved()[:4]
    refused = records.outcome(0, 21, 10.25, 10.5, "busy")
    assert report(*before, last, refused, *moved()[5:]).start_ups["a"]["initialisation"].count == 0


def test_the_mean_is_that_of_one() -> None:
    assert Phase(4, 2.0).mean_s == pytest.approx(0.5)


def calls_of_a_report(n_windows: int) -> int:
    """How many Python functions a report of so many windows calls; in each window a tenant gets another instance."""
    written = [records.header(2.0, "a", "b", windows=n_windows)]
    for window in range(n_windows):
        begin_s, place = 2.0 * window, f"1g.10gb@{window % 2}"
        ended = (
            [records.stopped(f"1g.10gb@{1 - window % 2}#{window - 1}", begin_s + 1, begin_s + 1.5)] if window else []
        )
        begun = records.started(f"{place}#{window}", begin_s, place)
        counts = records.counts([1, 1], [0, 1], [1, 0])
        written += [
            records.window_started(window, 2.0, "a", "b"),
            records.change(window, begin_s, [begun], ended),
            records.ready(window, f"{place}#{window}", begin_s + 1),
            records.window_finished(window, a=counts, b=counts),
        ]
    log, n_calls = records.log_of(*written), 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    sys.setprofile(count)
    try:
        report_of(log)
    finally:
        sys.setprofile(None)
    return n_calls


def test_a_report_of_four_times_as_many_windows_takes_four_times_the_work() -> None:
    calls_of_a_report(1)  # what is done once
    assert calls_of_a_report(200) < 4.4 * calls_of_a_report(50)


def test_a_call_in_which_a_run_was_cut_off_before_it_was_joined_is_not_the_one_in_which_it_ended() -> None:
    call = records.intent(0, "create", "1g.10gb@0")
    joined = {"kind": "resumed", "window": 1, "void": [0]}
    assert report(window_started(0, [1.0] * 10), call).open_call == "create 1g.10gb@0"
    assert report(window_started(0, [1.0] * 10), call, joined).open_call is None
