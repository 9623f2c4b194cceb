"""Who held what, and how each tenant fared by the second: against the records that the log has."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from migrator.log.changes import INFERENCE, changes_in
from migrator.log.records import Finished, WindowFinished, WindowStarted
from migrator.log.runlog import ReadLog, read_log
from migrator.log.timeline import HeldSpan, courses, held, n_seconds, new_models
from tests.migrator.log import records


@pytest.fixture
def run(call, write_config) -> ReadLog:
    """A small run in which models are retrained."""
    assert call("run", write_config(), "--out", "run")[0] == 0
    return read_log(Path("run"))


def together(one: HeldSpan, other: HeldSpan) -> bool:
    in_rows = one.first_row < other.end_row and other.first_row < one.end_row
    return in_rows and one.begin_s < other.end_s - 1e-6 and other.begin_s < one.end_s - 1e-6


def test_nobody_holds_what_somebody_else_has_and_all_lies_within_the_run(run: ReadLog) -> None:
    spans = held(run)
    assert [(one, other) for one, other in combinations(spans, 2) if together(one, other)] == []
    assert min(span.begin_s for span in spans) == 0
    assert max(span.end_s for span in spans) == n_seconds(run) == 120
    assert {span.phase for span in spans} >= {"creating", "starting", "serving", "retraining"}


def test_an_instance_serves_in_the_timeline_when_its_worker_was_ready(run: ReadLog) -> None:
    instances = [item for change in changes_in(run) for item in change.started if item.task == INFERENCE]
    served_s = dict.fromkeys(("vision", "language"), 0.0)
    for item in instances:
        for begin_s, end_s in item.served:
            served_s[item.tenant] += max(0.0, min(end_s, 120.0) - max(begin_s, 0.0))
    for name, seconds in served_s.items():
        own = [span for span in held(run) if (span.tenant, span.phase) == (name, "serving")]
        assert sum(span.end_s - span.begin_s for span in own) == pytest.approx(seconds)


def test_a_tenant_s_course_has_the_log_s_counts_forecasts_and_accuracies(run: ReadLog) -> None:
    for name, course in courses(run).items():
        for closing in run.of(WindowFinished):
            seconds = slice(60 * closing.window, 60 * (closing.window + 1))
            for key in ("arrivals", "in_time", "correct"):
                assert getattr(course, key)[seconds].tolist() == getattr(closing.tenants[name], key)
        for started in run.of(WindowStarted):
            seconds = slice(60 * started.window, 60 * (started.window + 1))
            forecast = started.forecast.tenants[name]
            for of_course, of_log in (("low", "low_rps"), ("mean", "mean_rps"), ("high", "high_rps")):
                assert getattr(course, of_course)[seconds] == pytest.approx(getattr(forecast, of_log))
            assert course.accuracy[60 * started.window] == forecast.accuracy_before


def test_every_retraining_that_ended_made_a_new_model(run: ReadLog) -> None:
    ended = sorted((one.finish_s, one.tenant, one.accuracy) for one in run.of(Finished))
    assert [(one.at_s, one.tenant, one.after) for one in new_models(run)] == ended
    assert all(one.at_s <= other.at_s for one, other in pairwise(new_models(run)))


def test_a_worker_that_failed_starts_again_and_one_that_trains_ends() -> None:
    log = records.log_of(*records.timed(records.tiny()))
    of_b = [(span.phase, span.begin_s, span.end_s) for span in held(log) if span.tenant == "b"]
    assert of_b == [("serving", 0.0, 0.5), ("starting", 0.5, 2.0), ("serving", 2.0, 6.0)]
    assert [span.phase for span in held(log) if span.what == "1g.10gb@0"] == ["serving", "ending"]


def test_who_shares_an_instance_has_its_part_of_the_rows() -> None:
    up = records.started("7g.80gb@0#1", 0.0) | {"tenant": ["a", "b"]}
    passed = records.change(0, 2.0) | {"passed": [records.started("7g.80gb@0#1", 2.0) | {"tenant": "b"}], "at_s": 2.0}
    lines = [records.header(3.0, "a", "b"), records.window_started(0, 3.0, "a", "b"), records.change(0, 0.0, [up])]
    lines += [{**records.ready(0, "7g.80gb@0#1", 0.5, tenant=name), "at_s": 0.5} for name in ("a", "b")]
    counted = records.counts([1, 1, 1], [0, 0, 0], [1, 1, 1])
    lines += [passed, {**records.window_finished(0, a=counted, b=counted), "at_s": 3.0}]
    found = held(records.log_of(*records.timed(lines)))
    assert [(one.tenant, one.phase, one.first_row, one.end_row, one.begin_s, one.end_s) for one in found] == [
        ("a", "starting", 0.0, 4.0, 0.0, 0.5),
        ("a", "serving", 0.0, 4.0, 0.5, 2.0),
        ("b", "starting", 4.0, 8.0, 0.0, 0.5),
        ("b", "serving", 4.0, 8.0, 0.5, 2.0),
        ("b", "serving", 0.0, 8.0, 2.0, 3.0),
    ]


def test_what_others_came_with_is_theirs_until_they_left() -> None:
    def others(**what: list[str]) -> records.Json:
        return {"kind": "others", "window": 0, "gone": [], "came": [], "left": [], "taken": [], **what}

    lines = records.timed(records.tiny())
    lines[-2:-2] = [
        {**others(came=["1g.10gb@1", "1g.10gb@6"]), "at_s": 4.5},
        {**others(left=["1g.10gb@1"]), "at_s": 5.0},
    ]
    found = {span.what: span.end_s for span in held(records.log_of(*lines)) if span.phase == "others"}
    assert found == {"1g.10gb@1": 5.0, "1g.10gb@6": 6.0}


def test_others_are_known_up_to_where_a_run_was_cut_off_and_again_from_where_it_was_joined() -> None:
    def others(at_s: float, **what: list[str]) -> records.Json:
        nothing = {"gone": [], "came": [], "left": [], "taken": []}
        return {"kind": "others", "window": 0, **nothing, **what, "at_s": at_s}

    placed = {"came": ["1g.10gb@1"]}
    joined = {"kind": "resumed", "window": 1, "void": [], "at_s": 6.0}
    lines = [records.header(9.0, "a"), others(1.0, **placed), others(3.0), joined, others(7.0, **placed), others(8.0)]
    spans = [(span.begin_s, span.end_s) for span in held(records.log_of(*records.timed(lines)))]
    assert spans == [(1.0, 3.0), (7.0, 8.0)]


def test_what_has_failed_for_good_starts_no_more() -> None:
    up = [records.started("7g.80gb@0#1", 0.0)]
    ready = {**records.ready(0, "7g.80gb@0#1", 1.0), "at_s": 1.0}
    failed = {**records.failed(0, "7g.80gb@0#1", 2.0), "at_s": 2.0}
    begun = [records.header(3.0, "a"), records.window_started(0, 3.0, "a"), {**records.change(0, 0.0, up), "at_s": 0.0}]
    counted = records.window_finished(0, a=records.counts([1, 1, 1], [0, 0, 0], [1, 1, 1]))
    lines = [*begun, ready, failed, {**counted, "at_s": 3.0}]
    phases = [(span.phase, span.begin_s, span.end_s) for span in held(records.log_of(*records.timed(lines)))]
    assert phases == [("starting", 0.0, 1.0), ("serving", 1.0, 2.0), ("ending", 2.0, 3.0)]
    never = [*begun, {**records.failed(0, "7g.80gb@0#1", 2.0), "at_s": 2.0}, {**counted, "at_s": 3.0}]
    assert [span.phase for span in held(records.log_of(*records.timed(never)))] == ["starting", "ending"]


def test_a_forecast_of_parts_of_a_second_is_that_of_the_whole_second() -> None:
    begun = {**records.header(2.0, "a"), "step_s": 0.5}
    counted = records.window_finished(0, a=records.counts([5, 5], [0, 0], [5, 5]))
    lines = [begun, records.window_started(0, 2.0, "a", mean_rps=[0.0, 10.0, 4.0, 6.0]), counted]
    assert courses(records.log_of(*records.timed(lines)))["a"].mean == pytest.approx([5.0, 5.0])


def test_shares_are_stacked_and_turns_hold_nothing(call, write_config) -> None:
    for policy in ("ekya", "time-sharing"):
        assert call("run", write_config({"windows": 1}), "--policy", policy, "--out", policy)[0] == 0
    spans = held(read_log(Path("ekya")))
    assert {span.what.rpartition(" of ")[2] for span in spans} <= {"the processors", "the time"}
    for second in range(60):
        rows = sorted((span.first_row, span.end_row) for span in spans if span.begin_s <= second < span.end_s)
        assert all(one[1] == other[0] for one, other in pairwise(rows))
        assert rows[-1][1] <= 20
    assert held(read_log(Path("time-sharing"))) == []


def test_seconds_of_which_nothing_is_known_are_no_numbers() -> None:
    lines = records.timed(records.tiny())
    (closing,) = (line for line in lines if line["kind"] == "window_finished" and line["window"] == 1)
    closing["blind"] = [[4, 5]]
    found = courses(records.log_of(*lines))["a"]
    for series in (found.arrivals, found.could, found.accuracy):
        assert np.isnan(series).tolist() == [False] * 4 + [True, False]
    assert np.isnan(courses(records.log_of(*lines[:-2]))["a"].arrivals).tolist() == [False] * 3 + [True]
