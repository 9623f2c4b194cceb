"""What a live run's log says of its models."""

from __future__ import annotations

import pytest

from migrator.log.figures import RunFigures
from migrator.log.live import known_of, live_facts, model_ages, rejection
from migrator.log.records import Finished, RolledBack, WindowStarted
from migrator.log.report import worth_in_time
from tests.migrator.log import records


def test_what_was_measured_goes_before_what_the_plan_was_told() -> None:
    models = {"a": {"accuracy_before": 0.7}}
    begun = [records.window_started(window, 30.0) for window in (0, 1)]
    log = records.log_of(
        records.header(30.0, simulated=False),
        *begun,
        {"kind": "measured", "window": 1, "measured_s": 38.0, "tenants": models},
    )
    known = known_of(log)
    assert known[1]["a"].accuracy_before == 0.7
    assert known[0]["a"].accuracy_before == begun[0]["forecast"]["tenants"]["a"]["accuracy_before"]


def test_older_weights_make_a_model_as_old_as_what_they_learned_and_their_accuracy_is_in_force() -> None:
    begun = [records.window_started(window, 3.0) for window in range(4)]
    counts = records.counts([4, 2, 3], [0, 1, 0], [3, 2, 0])
    log = records.log_of(
        records.header(3.0, simulated=False),
        begun[0],
        records.finished(0, None, 1.5),
        begun[1],
        records.finished(1, None, 4.5),
        begun[2],
        records.rolled_back(7.5),
        begun[3],
        *(records.window_finished(window, a=counts) for window in (0, 1, 2)),
    )
    assert [model_ages(log, started)["a"] for started in log.of(WindowStarted)] == [1, 1, 1, 3]
    before = begun[2]["forecast"]["tenants"]["a"]["accuracy_before"]
    worth = worth_in_time(log.settled[2].tenants["a"], 6.0, before, log.of(RolledBack))
    assert worth == pytest.approx(6 * before + 3 * 0.5)


def test_a_retraining_whose_weights_were_rejected_leaves_the_model_as_old_as_it_was_and_is_told() -> None:
    up = [records.started("1g.10gb@0#1", 0.0, "1g.10gb@0", task="retraining")]
    counts = records.counts([4, 2, 0], [0, 1, 9], [3, 2, 0])
    log = records.log_of(
        records.header(3.0, simulated=False),
        records.window_started(0, 3.0),
        records.change(0, 0.0, up),
        records.finished(0, "1g.10gb@0#1", 1.5) | {"accuracy": 0.7, "accuracy_before": 0.72, "rejected": 0.61},
        records.window_started(1, 3.0),
        *(records.window_finished(window, a=counts) for window in (0, 1)),
    )
    ages = [model_ages(log, started) for started in log.of(WindowStarted)]
    assert ages == [{"a": 1}, {"a": 2}]
    facts = live_facts(log)
    assert facts is not None
    first, second = facts.learned
    assert (first.finish_s, first.tested_pct, second.failure) == (None, None, "")
    assert first.failure == "its weights answer 61.0% of the held-out samples right, those in service 72.0%"
    figures = RunFigures()
    for entry in log.entries:
        figures.take(entry)
    assert figures.tenants["a"].retrainings == {"finished": 0, "failed": 0, "rejected": 1}


def test_weights_are_kept_aside_where_others_are_pinned_and_that_is_told() -> None:
    (ended,) = records.log_of(
        records.header(60.0, "a"), records.finished(0, "1g.10gb@0#1", 1.5) | {"rejected": 0.61, "pinned": "first"}
    ).of(Finished)
    assert rejection(ended) == "its weights answer 61.0% of the held-out samples right, and first is pinned"
