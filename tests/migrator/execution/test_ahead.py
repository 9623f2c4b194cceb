"""Windows planned before they begin: from what, when not, and what becomes of it as they begin."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec import structs

from migrator.config.reading import validate_config
from migrator.config.sections import LearningConfig
from migrator.execution.ahead import expected_opening, plan_through
from migrator.execution.foresight import Foresight, observe
from migrator.execution.instances import Instances
from migrator.execution.models import Lessons
from migrator.execution.posing import estimates_of
from migrator.execution.reposing import RunCheck
from migrator.inputs.assembly import assemble
from migrator.log.accuracies import AccuracyHistory
from migrator.log.records import Cause, Measured, PlanKept, PlanRevised, WindowStarted
from migrator.log.runlog import EVENTS_FILE, ReadLog
from planner.errors import EngineError
from planner.plan import MigPlan
from planner.policies.policy import Window
from planner.policies.reactive import Reactive
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.asking import ask, once_after
from tests.migrator.execution.resuming import begun, same, taken_up
from tests.migrator.execution.test_seams import changed_after, logged
from tests.migrator.log import records
from workloads.training import FOLDER

AHEAD: dict[str, Any] = {
    "windows": 3,
    "planner": {"max_schedules": 8, "planning_s": 6, "replanning_s": 1, "replan_every_s": 10, "replan_schedules": 4},
    "tenants.0.arrivals.rate_rps": 900,
    "tenants.1.arrivals.scale.factor": 20.0,
    "tenants.0.accuracy": [{"before": 0.6, "after": 0.9}, {"before": 0.5, "after": 0.8}, {"before": 0.5, "after": 0.7}],
}
"""Each window's plan is begun six seconds before it: at second 54, and at 114."""


def run_with(folder: Path, changes: dict[str, Any], policy: str = "migrator") -> ReadLog:
    setting, traffic = assemble(validate_config(changed(SMALL, AHEAD | changes), "small"), "small")
    return logged(folder, setting, traffic, policy_of(policy))


@cache
def _ahead(changes: str) -> ReadLog:
    with TemporaryDirectory() as folder:
        return run_with(Path(folder) / "run", json.loads(changes))


def ahead(changes: dict[str, Any] | None = None) -> ReadLog:
    """The log of a run whose windows are planned ahead; the same run is made once."""
    return _ahead(json.dumps(changes or {}))


def objections(log: ReadLog, changes: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with the log's plans, posed anew."""
    setting, traffic = assemble(validate_config(changed(SMALL, AHEAD | (changes or {})), "small"), "small")
    found = list(RunCheck(log, setting, traffic).plans())
    assert found
    wrong = [item.reason for item in found if item.verification is None]
    return wrong + [str(one) for item in found if item.verification is not None for one in item.verification.violations]


def test_a_plan_is_there_as_its_window_begins_and_its_rest_is_planned_anew_with_what_is_measured_then() -> None:
    log = ahead()
    first, *others = log.of(WindowStarted)
    assert (first.asked_s, first.plan_from_step) == (None, 0)
    assert [(one.asked_s, one.plan_from_step, one.plan.n_steps) for one in others] == [(54, 0, 60), (114, 0, 60)]
    assert [(one.window, one.measured_s) for one in log.of(Measured)] == [(1, 60), (2, 120)]
    causes = [one.cause for one in (*log.of(PlanRevised), *log.of(PlanKept)) if one.asked_s in (60, 120)]
    assert causes == [Cause.MEASURED] * 2
    assert objections(log) == []


def test_models_are_expected_to_be_what_they_are_to_be_retrained_to_less_the_usual_drift() -> None:
    _, second, third = ahead().of(WindowStarted)
    expected = [started.forecast.tenants["vision"] for started in (second, third)]
    # Window 0 had shown it to begin with 0.6 of 0.9; window 1 began with 0.5 of that 0.9.
    assert [one.accuracy_before for one in expected] == pytest.approx([0.6, 0.8 * 0.5 / 0.9], abs=1e-5)
    assert [one.estimate.accuracy_after for one in expected if one.estimate is not None] == [0.9, 0.8]
    measured = [one.tenants["vision"].accuracy_before for one in ahead().of(Measured)]
    assert measured == [0.5, 0.5]


@pytest.mark.parametrize("moment_s", [54.0, 55.2, 59.9])
def test_a_plan_made_ahead_knows_nothing_of_what_comes(tmp_path: Path, moment_s: float) -> None:
    changes = AHEAD | {"windows": 2, "planner.replan_every_s": "never"}
    otherwise = [{"before": 0.6, "after": 0.9}, {"before": 0.2, "after": 0.4}]
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    other, _ = assemble(validate_config(changed(SMALL, changes | {"tenants.0.accuracy": otherwise}), "small"), "small")
    later = changed_after(setting, traffic, moment_s, variant=1)
    one = logged(tmp_path / "one", setting, traffic).of(WindowStarted)[1]
    two = logged(tmp_path / "two", other, later).of(WindowStarted)[1]
    assert (one.asked_s, two.asked_s) == (54, 54)
    assert (one.plan, one.initial, one.warm_up, one.outlook) == (two.plan, two.initial, two.warm_up, two.outlook)
    told, told_otherwise = (
        [structs.replace(own, accuracy_after=None) for own in each.forecast.tenants.values()] for each in (one, two)
    )
    assert told == told_otherwise
    assert traffic.requests(0, 120)[0].arrival_s.tolist() != later.requests(0, 120)[0].arrival_s.tolist()


def test_no_plan_that_there_may_be_is_asked_for_while_the_next_window_is_planned() -> None:
    log = ahead()
    moments_s = sorted(one.asked_s for one in (*log.of(PlanRevised), *log.of(PlanKept)))
    assert moments_s
    assert not [at_s for at_s in moments_s if any(begun_s - 2 < at_s < begun_s + 6 for begun_s in (54, 114))]


@pytest.mark.parametrize("to_s", [55, 59])
def test_a_window_that_does_not_begin_as_promised_is_planned_as_it_begins(tmp_path: Path, to_s: float) -> None:
    changes = {"simulation.others": [{"placement": place, "to_s": to_s} for place in ("1g.10gb@6", "2g.20gb@4")]}
    log = run_with(tmp_path / "run", changes)
    _, second, _ = log.of(WindowStarted)
    assert (second.asked_s, second.plan_from_step) == (None, 6)
    assert objections(log, changes) == []


def test_a_window_is_planned_ahead_from_what_a_plan_that_there_must_be_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, once_after(50.0))  # its plan begins with second 57
    log = run_with(tmp_path / "run", {})
    (must,) = [one for one in log.of(PlanRevised) if one.cause is None]
    assert (must.window, must.from_step) == (0, 57)
    assert [one.asked_s for one in log.of(WindowStarted)] == [None, 54, 114]
    assert objections(log) == []


def test_estimates_that_come_later_are_waited_for_with_another_plan() -> None:
    log = ahead({"estimates.delay_s": 5})
    assert [(one.asked_s, one.plan_from_step) for one in log.of(WindowStarted)] == [(None, 0), (54, 0), (114, 0)]
    assert [one.measured_s for one in log.of(Measured)] == [65, 125]
    moments_s = [one.asked_s for one in (*log.of(PlanRevised), *log.of(PlanKept)) if one.window]
    assert {65, 125} <= set(moments_s)
    assert not [at_s for at_s in moments_s if 60 <= at_s < 65 or 120 <= at_s < 125]
    assert {one.what for one in log.header.assumed} >= {"planned ahead"}
    assert "planned ahead" not in {one.what for one in ahead().header.assumed}
    assert objections(log, {"estimates.delay_s": 5}) == []


def test_a_policy_that_plans_each_window_once_is_told_what_is_measured_and_asks_for_nothing() -> None:
    log = ahead({"planner.replan_every_s": "never"})
    assert [one.asked_s for one in log.of(WindowStarted)] == [None, 54, 114]
    assert len(log.of(Measured)) == 2
    assert not (*log.of(PlanRevised), *log.of(PlanKept))


def test_a_plan_through_windows_is_the_one_of_a_run_that_keeps_its_promises() -> None:
    log = ahead({"planner.replan_every_s": "never"})
    setting, traffic = assemble(
        validate_config(changed(SMALL, AHEAD | {"planner.replan_every_s": "never"}), "small"), "small"
    )
    first, second = plan_through(setting, traffic, 1)
    told = log.of(WindowStarted)
    assert first.plan.objective == told[0].plan.objective
    assert [one.accuracy_before for one in second.problem.tenants] == [
        told[1].forecast.tenants[tenant.name].accuracy_before for tenant in setting.tenants
    ]
    assert second.plan_from_step == told[1].plan_from_step == 0


def test_a_plan_that_fails_ends_the_run_as_its_window_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_ahead = Instances.plan_ahead

    def failing(sharing: Instances, opening: Any, forecast: Any) -> Any:
        monkeypatch.setattr("migrator.execution.instances.plan_window", refuses)
        return plan_ahead(sharing, opening, forecast)

    def refuses(*_: Any, **__: Any) -> None:
        raise EngineError("no engine today")

    monkeypatch.setattr(Instances, "plan_ahead", failing)
    with pytest.raises(EngineError, match="no engine today"):
        run_with(tmp_path / "run", {})


def test_a_run_cut_anywhere_while_a_plan_is_made_ahead_and_resumed_is_the_run_that_was_never_cut(
    tmp_path: Path,
) -> None:
    policy = policy_of("migrator")
    whole = begun(tmp_path / "run", policy, changes=AHEAD | {"windows": 2})
    # Between second 54 and the window's start, the log ends with what was written before.
    begins = whole.index(b'"kind":"window_started"', whole.index(b'"kind":"window_started"') + 1)
    before, after = whole.rindex(b"\n", 0, begins) + 1, whole.index(b"\n", begins) + 1
    for end in (before - 1, before, before + 50, after, whole.index(b"\n", after) + 1):
        (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[:end])
        assert same(taken_up(tmp_path / "run", policy)) == same(whole)


@pytest.mark.parametrize(
    ("kind", "change", "part"),
    [
        ("window_started", lambda one: one.update(asked_s=one.get("asked_s") and 50), "was begun at second 50"),
        (
            "window_started",
            lambda one: one["forecast"]["tenants"]["vision"].update(accuracy_before=0.99),
            "by the retrainings in it",
        ),
        ("measured", lambda one: one["tenants"]["vision"].update(accuracy_before=0.99), "by the retrainings in it"),
        ("measured", lambda one: one["tenants"].pop("vision"), "does not say what the models of all tenants"),
    ],
)
def test_what_a_log_says_of_a_plan_made_ahead_is_checked(
    kind: str, change: Callable[[dict[str, Any]], object], part: str
) -> None:
    told = records.as_json(ahead())
    for record in told:
        if record["kind"] == kind and record["window"]:
            change(record)
    assert any(part in reason for reason in objections(records.log_of(*told)))


@dataclass(frozen=True)
class Asked(Reactive):
    """``reactive``, with what it was asked."""

    windows: list[Window] = field(default_factory=list)

    def plan(self, window: Window) -> MigPlan:
        self.windows.append(window)
        return super().plan(window)


def test_a_policy_that_knows_the_past_of_each_decision_knows_that_of_the_first_one(tmp_path: Path) -> None:
    setting, traffic = assemble(validate_config(changed(SMALL, AHEAD), "small"), "small")
    policy = Asked()
    begun_s = [one.asked_s for one in logged(tmp_path / "run", setting, traffic, policy).of(WindowStarted)]
    assert begun_s == [None, 54, 114]
    for window, begin_s in zip(policy.windows, (0, 60, 120), strict=True):
        assert window.past_rps.tolist() == traffic.rates_before(begin_s, 1.0, setting.config.n_history_steps).tolist()


def test_a_forecast_of_a_window_that_has_not_begun_is_of_the_whole_window() -> None:
    config = validate_config(changed(SMALL, AHEAD | {"forecast.method": "known"}), "small")
    setting, traffic = assemble(config, "small")
    foresight = Foresight(setting, traffic)
    early = observe(setting, traffic, 1, (0.6, 0.5), ahead_steps=6)
    in_time = observe(setting, traffic, 1, (0.6, 0.5))
    assert foresight.forecast(early).mean_rps.tolist() == foresight.forecast(in_time).mean_rps.tolist()
    assert early.past_rps[:-6].tolist() != in_time.past_rps[:-6].tolist()
    assert early.past_rps[6:].tolist() == in_time.past_rps[:-6].tolist()


def test_of_what_others_write_to_learn_from_nothing_is_expected_of_the_next_window() -> None:
    setting, traffic = assemble(validate_config(changed(SMALL, AHEAD), "small"), "small")
    learning = LearningConfig(benchmark=FOLDER)
    first = setting.config.tenants[0].model_copy(update={"learning": learning})
    config = setting.config.model_copy(update={"tenants": [first, setting.config.tenants[1]]})
    opening = observe(setting, traffic, 0, [tenant.accuracy_in(0).before for tenant in setting.tenants])
    accuracies = {tenant.name: AccuracyHistory() for tenant in setting.tenants}
    for history in accuracies.values():
        history.note(0.0, 0.5)
    shares = dict.fromkeys(accuracies, 1.0)
    ahead = expected_opening(replace(setting, config=config), traffic, opening, {}, accuracies, Lessons(), shares)
    assert ahead.estimates is not None
    assert [bool(one.retraining_s) for one in ahead.estimates] == [
        bool(one.retraining_s) and not entry.reads
        for one, entry in zip(estimates_of(setting, opening), config.tenants, strict=True)
    ]
    assert ahead.estimates[0].retraining_s == {}
