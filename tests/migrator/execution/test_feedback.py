"""Answers that clients call wrong ask for a retraining, at a window's start and inside one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.config.reading import validate_config
from migrator.execution.accounts import QueueAccounts
from migrator.execution.feedback import LEAST_LABELS, Feedback
from migrator.execution.loop import Loop, log_of
from migrator.execution.models import TabledModels
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records
from migrator.log.records import Cause
from migrator.log.runlog import ReadLog
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_reposing import checked
from tests.migrator.log.records import as_json
from tests.migrator.log.records import log_of as log_of_records
from tests.seeds import examples

GOOD: dict[str, Any] = {
    "windows": 3,
    "planner.replan_every_s": 10,
    "planner.max_schedules": 100,
    "retraining": {"required": False, "drift": "as_given"},
    "tenants.0.accuracy": {"before": 0.8, "after": 0.9},
    "tenants.0.retraining": {"samples": 1000, "below": 0.7},
}
"""The first tenant's measured accuracy never asks for a retraining."""


class Judging(QueueAccounts):
    """Simulated requests whose clients say at some seconds which answers were right."""

    says: Mapping[float, tuple[int, int]]

    def serve(self, *args: Any, **named: Any) -> None:
        super().serve(*args, **named)
        for at_s in [at_s for at_s in self.says if at_s <= self.now_s]:
            self.feedback.add("vision", *self.says[at_s])
            self.says = {other_s: said for other_s, said in self.says.items() if other_s != at_s}


def ran(says: Mapping[float, tuple[int, int]], changes: Mapping[str, Any] | None = None) -> ReadLog:
    setting, traffic = assemble(validate_config(changed(SMALL, {**GOOD, **(changes or {})}), "small"), "small")
    parts = simulated_parts(setting, traffic, policy_of("migrator"))
    parts.accounts.__class__, parts.accounts.says = Judging, says
    return log_of(Loop(setting, parts), setting.config)


def test_what_was_measured_asks_for_no_retraining() -> None:
    log = ran({})
    assert (log.of(records.Finished), log.of(records.Judged)) == ((), ())


def test_answers_that_clients_call_wrong_inside_a_window_ask_for_another_plan_with_a_retraining() -> None:
    log = ran({70.0: (150, 60), 75.0: (50, 20)})
    (judged,), (ended,) = log.of(records.Judged), log.of(records.Finished)
    assert (judged.window, judged.tenant, judged.labels, judged.right) == (1, "vision", 200, 80)
    assert 75 <= judged.judged_s <= 76
    revised = [one for one in log.of(records.PlanRevised) if one.cause is Cause.FEEDBACK]
    assert [one.reason for one in revised] == ["clients call 40.0% of vision's answers right"]
    assert (ended.tenant, ended.window, ended.accuracy) == ("vision", 1, 0.9)
    assert 75 < ended.finish_s <= 120
    assert [one.reason or one.verification.violations for one in checked(log, GOOD)] == [()] * len(checked(log, GOOD))


def test_a_window_that_begins_with_such_answers_offers_a_retraining() -> None:
    log = ran({119.5: (300, 100)})
    assert log.of(records.Judged) == ()
    (ended,) = log.of(records.Finished)
    assert (ended.window, ended.finish_s > 120) == (2, True)
    told = [one.forecast.tenants["vision"].by_feedback for one in log.of(records.WindowStarted)]
    assert told == [None, None, pytest.approx(1 / 3, abs=1e-6)]
    assert {one.reason or one.verification.violations for one in checked(log, GOOD)} == {()}


@pytest.mark.parametrize("says", [{70.0: (199, 0)}, {70.0: (200, 140)}, {70.0: (500, 0), 71.0: (200, 150)}])
def test_few_labels_and_good_ones_ask_for_nothing(says: Mapping[float, tuple[int, int]]) -> None:
    changes = {"planner.replan_every_s": "never"} if len(says) > 1 else {}
    assert ran(says, changes).of(records.Finished) == ()


def test_a_model_that_was_retrained_is_judged_anew() -> None:
    log = ran({70.0: (200, 0), 119.0: (199, 0)})
    assert [one.window for one in log.of(records.Finished)] == [1]


def test_labels_of_other_weights_than_those_in_service_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TabledModels, "version", lambda *_: "window-0")
    older: Any = {70.0: (300, 0, "first"), 71.0: (199, 0, "window-0")}
    assert ran(older).of(records.Finished) == ()
    (judged,) = ran({**older, 72.0: (1, 0, "window-0")}).of(records.Judged)
    assert (judged.labels, judged.right) == (200, 0)


def test_a_log_whose_labels_ask_for_nothing_is_refused() -> None:
    altered = as_json(ran({75.0: (200, 80)}))
    (judged,) = (one for one in altered if one["kind"] == "judged")
    judged["right"] = 190
    said = "the log says that clients call 190 of 200 answers of vision right; that asks for no retraining"
    assert said in {one.reason for one in checked(log_of_records(*altered), GOOD)}


def test_a_retraining_that_is_planned_by_what_was_expected_is_left_out_where_what_was_measured_is_good() -> None:
    changes = {"planner.planning_s": 3, "estimates.delay_s": 4}
    log = ran({}, changes)
    expected = [one.forecast.tenants["vision"].accuracy_before for one in log.of(records.WindowStarted)]
    assert min(expected) < 0.7
    assert [one.tenants["vision"].accuracy_before for one in log.of(records.Measured)] == [0.8, 0.8]
    found = checked(log, {**GOOD, **changes})
    assert [one.reason or one.verification.broken_rules for one in found] == [()] * len(found)


SAID = st.dictionaries(
    st.integers(1, 170).map(float), st.tuples(st.integers(1, 400), st.floats(0, 1)), min_size=1, max_size=5
)


@settings(max_examples=examples(20), deadline=None)
@given(said=SAID, planning_s=st.sampled_from([0, 3]), pin=st.sampled_from([None, {"retraining": False}]))
def test_whatever_clients_say_a_run_s_plans_are_worth_what_they_say(
    said: Mapping[float, tuple[int, float]], planning_s: int, pin: Mapping[str, Any] | None
) -> None:
    changes = {"planner.planning_s": planning_s, **({} if pin is None else {"pin": pin})}
    log = ran({at_s: (n, round(n * share)) for at_s, (n, share) in said.items()}, changes)
    found = checked(log, {**GOOD, **changes})
    assert [one.reason or one.verification.broken_rules for one in found] == [()] * len(found)
    if pin is not None:
        assert log.of(records.Finished) == log.of(records.Judged) == ()
    assert len({(one.tenant, one.window) for one in log.of(records.Finished)}) == len(log.of(records.Finished))


@given(pieces=st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1)), max_size=20))
def test_the_newest_labels_count_as_many_as_are_needed(pieces: list[tuple[int, float]]) -> None:
    said, own = [(n, round(n * share)) for n, share in pieces], Feedback()
    for piece in said:
        own.add("a", *piece)
    n = next((n for n in range(len(said) + 1) if sum(one for one, _ in said[len(said) - n :]) >= LEAST_LABELS), None)
    if n is None:
        assert own.share("a") is None
    else:
        newest = said[len(said) - n :]
        n_labels, n_right = sum(one for one, _ in newest), sum(right for _, right in newest)
        assert own.newest("a") == (n_labels, n_right)
        assert own.share("a") == pytest.approx(n_right / n_labels, abs=1e-6)
    own.forget("a")
    assert own.share("a") is None
