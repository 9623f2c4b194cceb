"""The rest of a window planned anew while its plan is followed: when, from what, and what comes of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from forecaster.forecast import Forecast
from migrator.config.reading import config_yaml, validate_config
from migrator.errors import ConfigError
from migrator.execution import instances
from migrator.execution.foresight import Foresight
from migrator.execution.happenings import Trained
from migrator.execution.instances import Instances
from migrator.execution.loop import Loop, log_of
from migrator.execution.planning import plan_rest
from migrator.execution.reposing import CheckedPlan, RunCheck
from migrator.execution.rolling import Rolling
from migrator.execution.simulated import simulated_parts
from migrator.execution.windows import Opening, Replan
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.records import Cause, Kept
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, ReadLog, RunLog, log_in, read_log
from migrator.views.as_json import report_to_json
from migrator.views.report import print_report
from planner.errors import EngineError
from planner.policies.registry import policy_of
from planner.problem import Owner, RunningRetraining, Task
from planner.verify import Rule
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import begun, cuts, same, taken_up
from tests.migrator.execution.test_seams import changed_after, dies_while_serving, drawing, faulty, until
from tests.migrator.log import records
from tests.seeds import daily

ROLLING: dict[str, Any] = {
    "planner.replan_every_s": 10,
    "planner.replan_schedules": 4,
    "tenants.0.arrivals.rate_rps": 900,
    "tenants.1.arrivals.scale.factor": 20.0,
    "tenants.0.retraining.samples": 12000,
}


@cache
def _rolled(changes: str, policy: str, fails: bool) -> ReadLog:
    config = validate_config(changed(SMALL, ROLLING | json.loads(changes)), "small")
    setting, traffic = assemble(config, "small")
    backend = faulty(setting, dies_while_serving) if fails else None
    with TemporaryDirectory() as folder:
        with RunLog(Path(folder) / "run", config_yaml(setting.config)) as log:
            Loop(setting, simulated_parts(setting, traffic, policy_of(policy), backend=backend)).carry_out(log)
        return read_log(Path(folder) / "run")


def rolled(changes: dict[str, Any] | None = None, policy: str = "migrator", *, fails: bool = False) -> ReadLog:
    """The log of a run that plans the rest of its windows anew; the same run is made once."""
    return _rolled(json.dumps(changes or {}), policy, fails)


def asked(log: ReadLog) -> list[tuple[str, float]]:
    """Why and when another plan was asked for, in that order."""
    found = [*log.of(recorded.PlanRevised), *log.of(recorded.PlanKept)]
    return sorted(((str(record.cause), record.asked_s) for record in found), key=lambda pair: pair[1])


def test_another_plan_is_asked_for_at_the_pace() -> None:
    times_s = [moment_s for cause, moment_s in asked(rolled()) if cause == Cause.PACE]
    assert times_s
    assert all(moment_s == math.floor(moment_s) for moment_s in times_s)
    every = sorted([0.0, 60.0] + [moment_s for _, moment_s in asked(rolled())])
    assert max(np.diff(every)) <= 10


def test_without_a_pace_each_window_is_planned_once() -> None:
    log = rolled({"planner.replan_every_s": "never"})
    assert not asked(log)
    assert report_of(log).replans is None


@pytest.mark.parametrize("policy", ["window", "equal", "reactive", "static", "migrator-paper"])
def test_other_policies_plan_each_window_once_as_their_sources_do(policy: str) -> None:
    log = rolled(policy=policy)
    assert not asked(log)
    assert log.header.replan_every_s is None


def test_a_plan_is_taken_only_if_it_is_worth_more_than_the_running_one() -> None:
    changes = rolled().of(recorded.PlanRevised)
    assert changes
    assert all(record.gain is None or record.gain > 0 for record in changes)


def test_a_plan_is_carried_out_from_the_step_for_which_it_was_made() -> None:
    for entry in rolled().entries_of(recorded.PlanRevised):
        record = entry.record
        from_s = 60 * record.window + record.from_step
        assert entry.at_s >= from_s > record.asked_s
        assert record.violations == ()


def test_planning_is_charged_and_the_running_plan_goes_on_meanwhile() -> None:
    log = rolled({"planner.planning_s": 3})
    changes = log.of(recorded.PlanRevised)
    assert changes
    assert all(60 * item.window + item.from_step - math.floor(item.asked_s) >= 4 for item in changes)
    assert report_of(log).ending == "finished"


def test_arrivals_that_leave_what_was_expected_ask_for_a_plan_at_once() -> None:
    log = rolled({"planner.replan_every_s": 60, "tenants.1.arrivals.trace": "azure-code"})
    causes = Counter(cause for cause, _ in asked(log))
    assert causes[Cause.BAND] > 0
    assert causes[Cause.PACE] == 0


@pytest.mark.parametrize(("step_s", "fails"), [(0.5, False), (2.5, False), (1.0, True)])
def test_with_arrivals_known_nothing_leaves_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, step_s: float, fails: bool
) -> None:
    steps: list[int] = []

    def seen(own: Foresight, opening: Opening, from_step: int = 0) -> Forecast:
        start_s = opening.window * 60 + (from_step - opening.ahead_steps) * step_s
        np.testing.assert_array_equal(opening.past_rps, traffic.rates_before(start_s, step_s, round(60 / step_s)))
        steps.append(from_step)
        return forecast(own, opening, from_step)

    forecast = Foresight.forecast
    monkeypatch.setattr(Foresight, "forecast", seen)
    changes = ROLLING | {"forecast.method": "known", "step_s": step_s}
    if fails:
        changes |= {
            "planner.planning_s": 5,
            "simulation.driver": {"error_share": 0.2, "in_use_share": 0.9, "in_use_s": 60},
            "simulation.others": [{"placement": "2g.20gb@4", "to_s": 70}],
        }
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    log = log_of(Loop(setting, simulated_parts(setting, traffic, policy_of("migrator"))), setting.config)
    assert Cause.BAND not in {cause for cause, _ in asked(log)}
    assert max(steps) * step_s > 30  # of windows' rests, too
    if fails:
        assert any(record.cause is None for record in log.of(recorded.PlanRevised))


@pytest.mark.parametrize("bias", daily([-0.4, 0.4], [0.4]))
def test_a_retraining_that_ends_early_or_late_asks_for_a_plan_at_once(bias: float) -> None:
    log = rolled({"planner.replan_every_s": 60, "estimates.time_bias": bias})
    finished_s = [record.finish_s for record in log.of(recorded.Finished)]
    told = [moment_s for cause, moment_s in asked(log) if cause == Cause.TRAINED]
    assert told
    assert set(told) <= set(finished_s)


def test_a_retraining_of_the_last_window_is_not_taken_for_the_running_ones() -> None:
    setting, traffic = assemble(validate_config(changed(SMALL, ROLLING), "small"), "small")
    rolling = Rolling(setting.config, traffic, 60.0)
    due = SimpleNamespace(owner=Owner("vision", Task.RETRAINING), end_step=20, is_inference=False)
    plan: Any = SimpleNamespace(window=1, plan_from_step=0, plan=SimpleNamespace(lifetimes=[due]))
    rolling.follow(plan)
    rolling.begun(60.0)
    rolling.trained(Trained(62.2, "vision", window=0))
    asked = rolling.asks(63.0)
    assert asked is not None
    assert (asked.reason, asked.cause) == ("vision's retraining of the last window ended in this one", Cause.TRAINED)
    rolling.begun(63.0)
    rolling.trained(Trained(85.0, "vision", window=1))
    asked = rolling.asks(85.0)
    assert asked is not None
    assert asked.reason == "vision's retraining ended 5.0 s later than planned"


def test_a_worker_that_fails_asks_for_a_plan_at_once() -> None:
    log = rolled({"planner.replan_every_s": 60}, fails=True)
    failed_s = {record.failed_s for record in log.of(recorded.Failed)}
    told = [moment_s for cause, moment_s in asked(log) if cause == Cause.FAILED]
    assert told
    assert set(told) <= failed_s
    assert report_of(log).ending == "finished"


def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any) -> ReadLog:
    """The log of a run whose plans of windows' rests come to this."""

    def submitted(*_: object) -> Future[Any]:
        future: Future[Any] = Future()
        if answer is not None:
            future.set_result(answer)
        return future

    monkeypatch.setattr(Instances, "_submitted", submitted)
    setting, traffic = assemble(validate_config(changed(SMALL, ROLLING), "small"), "small")
    with RunLog(tmp_path / "run", config_yaml(setting.config)) as log:
        Loop(setting, simulated_parts(setting, traffic)).carry_out(log)
    return read_log(tmp_path / "run")


def test_where_a_plan_is_not_there_in_time_the_running_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = answered(tmp_path, monkeypatch, None)
    kept, replans = log.of(recorded.PlanKept), report_of(log).replans
    assert [record.why for record in kept] == [Kept.LATE]  # and no other is begun while this one is being made
    assert replans is not None
    assert replans.late == 1
    assert not log.of(recorded.PlanRevised)
    assert report_of(log).ending == "finished"


def test_where_planning_fails_the_running_plan_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = answered(tmp_path, monkeypatch, EngineError("the solver is gone"))
    kept = log.of(recorded.PlanKept)
    assert {(record.why, record.error) for record in kept} == {(Kept.ALONE, "the solver is gone")}
    assert report_of(log).ending == "finished"


DRAWN = {"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 4}


@pytest.mark.parametrize("moment_s", daily([3.2, 11.7, 24.1, 38.9, 52.5], [11.7, 38.9]))
def test_a_run_that_plans_anew_does_not_know_what_comes(tmp_path: Path, moment_s: float) -> None:
    data = changed(SMALL, DRAWN | {"planner.replan_every_s": 4, "planner.replan_schedules": 1})
    setting, traffic = assemble(validate_config(data, "small"), "small")
    other = changed_after(setting, traffic, moment_s, variant=1)
    for name, requests, variant in (("one", traffic, 0), ("two", other, 1)):
        with RunLog(tmp_path / name, config_yaml(setting.config)) as log:
            parts = simulated_parts(setting, requests, backend=drawing(setting, moment_s, variant))
            Loop(setting, parts).carry_out(log)
    assert read_log(tmp_path / "one").of(recorded.PlanKept)
    assert until(tmp_path / "one", moment_s) == until(tmp_path / "two", moment_s)
    assert until(tmp_path / "one", 1e9) != until(tmp_path / "two", 1e9)


def test_no_retraining_is_lost_or_made_twice_by_planning_anew() -> None:
    for log in (rolled(), rolled({"estimates.time_bias": -0.4}), rolled({"planner.planning_s": 3})):
        begun_by = Counter(
            (record.window, item.tenant)
            for record in log.of(recorded.Change)
            for item in record.started
            if item.task == "retraining"
        )
        assert max(begun_by.values()) == 1


def test_a_plan_for_a_retraining_that_has_ended_since_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    n_asked = 0

    def late(*given: Any, **how: Any) -> Replan:
        """Once vision's retraining is over, a better plan that takes it to be under way."""
        nonlocal n_asked
        found = plan_rest(*given, **how)
        problem, state = found.planned.problem, found.planned.problem.physical_initial
        assert state is not None
        if problem.tenants[0].options:
            return replace(found, is_better=False)
        n_asked += 1
        state = replace(state, retrainings=(RunningRetraining(problem.gpu.placement("1g.10gb@6"), "vision", 1),))
        planned = replace(found.planned, problem=SimpleNamespace(physical_initial=state))  # type: ignore[arg-type]
        return replace(found, planned=planned, is_better=True)

    monkeypatch.setattr(instances, "plan_rest", late)
    log = _rolled.__wrapped__("{}", "migrator", False)
    assert n_asked > 0
    assert sum(record.why == Kept.OVERTAKEN for record in log.of(recorded.PlanKept)) == n_asked
    assert not log.of(recorded.PlanRevised)


def test_the_report_counts_plans_by_cause() -> None:
    replans = report_of(rolled()).replans
    assert replans is not None
    assert replans.total == len(asked(rolled()))
    assert replans.changed == Counter(record.cause for record in rolled().of(recorded.PlanRevised))


def test_the_report_is_shown_as_table_and_as_json() -> None:
    report = report_of(rolled())
    console = Console(width=160, record=True, file=StringIO())
    print_report(report, console)
    assert report.replans is not None
    told = json.loads(json.dumps(report_to_json(report)))["replans"]
    assert (told["every_s"], told["changed"]) == (10, report.replans.changed)
    assert f"planned anew every 10 s and when something happened: {report.replans.total} times" in console.export_text()


@pytest.mark.long
def test_a_run_that_plans_anew_cut_anywhere_and_resumed_is_the_run_that_was_never_cut(tmp_path: Path) -> None:
    changes = ROLLING | {"windows": 2, "window_s": 60, "tenants.1.arrivals.trace": "azure-code"}
    policy = policy_of("migrator")
    whole = begun(tmp_path / "run", policy, changes=changes)
    kinds = Counter(entry.record.kind for entry in log_in(whole, tmp_path).entries)
    assert min(kinds["plan_revised"], kinds["plan_kept"]) > 0
    for cut in list(cuts(whole))[::62]:
        (tmp_path / "run" / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(tmp_path / "run", policy)) == same(whole)


def test_a_layout_that_stays_for_bursts_may_go_on_and_be_resumed(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for name, half in (("vision", 0), ("language", 1)):
        rates = [2200 if second // 60 % 2 == half else 20 for second in range(1200)]
        counts = (f"{second},{count}\n" for second, count in enumerate(rng.poisson(rates)))
        (tmp_path / f"{name}.csv").write_text("second,count\n" + "".join(counts))
    changes = {
        "window_s": 120,
        "windows": 1,
        "forecast": {"method": "seasonal-naive", "season_s": 120, "history_s": 300, "n_paths": 8},
        "planner": {
            "max_schedules": 30,
            "burst_floor": True,
            "replan_every_s": 10,
            "replan_schedules": 8,
            "planning_s": 0,
            "replanning_s": 0,
            "switch_s": 1,
        },
        "retraining": {"required": False},
        "tenants.0.arrivals": {"trace": str(tmp_path / "vision.csv"), "offset_s": 600},
        "tenants.1": changed(SMALL, {"tenants.0.name": "language", "tenants.0.accuracy.before": 0.7})["tenants"][0],
        "tenants.1.arrivals": {"trace": str(tmp_path / "language.csv"), "offset_s": 600},
    }
    policy = policy_of("migrator")
    whole = begun(tmp_path / "run", policy, changes=changes)
    told = [one.record for one in log_in(whole, tmp_path).entries]
    stays = [index for index, one in enumerate(told) if getattr(getattr(one, "plan", None), "burst_loss", None)]
    assert any(isinstance(one, recorded.PlanKept) for one in told[stays[0] :])
    (tmp_path / "run" / EVENTS_FILE).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert same(taken_up(tmp_path / "run", policy)) == same(whole)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"estimates.time_bias": -0.4},
        {"estimates.service_spread": 0.3},
        {"planner.planning_s": 3},
        {"tenants.0.min_slo_attainment": 0.5},
    ],
)
def test_plans_of_windows_and_of_their_rests_are_posed_anew_and_valid(changes: dict[str, Any]) -> None:
    found = checked(rolled(changes), changes)
    assert [item.verification and item.verification.violations for item in found] == [()] * len(found)
    revised = [(record.window, record.from_step) for record in rolled(changes).of(recorded.PlanRevised)]
    assert revised
    assert [(item.window, item.anew_from_step) for item in found if item.anew_from_step is not None] == revised


def checked(log: ReadLog, changes: dict[str, Any]) -> list[CheckedPlan]:
    setting, traffic = assemble(validate_config(changed(SMALL, ROLLING | changes), "small"), "small")
    return list(RunCheck(log, setting, traffic).plans())


def altered(change: Callable[[dict[str, Any]], object]) -> list[CheckedPlan]:
    """The plans of windows' rests, checked in a log of which every one is changed."""
    altered = records.as_json(rolled())
    for record in altered:
        if record["kind"] == "plan_revised":
            change(record)
    found = checked(records.log_of(*altered), {})
    return [item for item in found if item.anew_from_step is not None]


def test_a_plan_of_a_rest_that_says_too_much_is_found_out() -> None:
    said = {"objective": 9e9, "bound": 9e9, "claimed_bound": 9e9, "gap": None, "claimed_gap": None}
    for item in altered(lambda record: record["plan"].update(said)):
        assert item.verification is not None
        assert Rule.OBJECTIVE in {one.rule for one in item.verification.violations}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: record["rest"].pop("vision"), "does not say what was left of its window"),
        (lambda record: record.update(initial=None), "does not say what was left of its window"),
        (lambda record: record["rest"]["vision"].update(mean_rps=1.0), "the forecast of vision made anew is not the"),
        (lambda record: record["rest"]["vision"].update(options=["half"]), "the retrainings of vision that were left"),
    ],
)
def test_a_rest_that_cannot_be_posed_anew_is_told(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    for item in altered(change):
        assert (item.verification, reason in item.reason) == (None, True)


@pytest.mark.parametrize("seed", daily([1, 3], [3]))
def test_plans_made_because_the_running_one_could_not_be_followed_are_posed_anew(seed: int) -> None:
    pace = "never" if seed == 3 else 10
    changes = TROUBLED | {"seed": seed, "planner.replan_every_s": pace}
    found = checked(log := rolled(changes), changes)
    assert any(record.cause is None for record in log.of(recorded.PlanRevised))
    plans = [item for item in found if not item.reason.startswith("no plan")]  # beside others there may be none
    assert sum(item.anew_from_step is not None for item in plans) == len(log.of(recorded.PlanRevised))
    assert [item.verification and item.verification.violations for item in plans] == [()] * len(plans)


def test_the_command_says_how_many_plans_of_rests_were_posed_anew(call: Any, write_config: Any) -> None:
    config = write_config(ROLLING)
    assert call("run", config, "--out", "run")[0] == 0
    n = len(rolled().of(recorded.PlanRevised))
    code, out, _ = call("verify", "run")
    assert (code, f"of {n} plans of windows' rests, {n} posed anew and checked" in out) == (0, True)
    told = json.loads(call("verify", "run", "--json")[1])["replans"]
    assert (told["in_log"], told["posed_anew"], {item["valid"] for item in told["plans"]}) == (n, n, {True})


def test_a_pace_below_a_step_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"planner\.replan_every_s is 0\.5; at least step_s \(1\), or 'never'"):
        validate_config(changed(SMALL, {"planner.replan_every_s": 0.5}), "small")


@pytest.mark.parametrize("value", ["often", 0, -3, True])
def test_what_is_no_pace_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"planner\.replan_every_s: a number of seconds above 0, or 'never'"):
        validate_config(changed(SMALL, {"planner.replan_every_s": value}), "small")


TROUBLED: dict[str, Any] = {
    "windows": 4,
    "simulation.driver": {"error_share": 0.5, "in_use_share": 0.5, "in_use_s": 60.0},
    "simulation.others": [{"placement": "2g.20gb@4", "to_s": 130}],
    "simulation.start_jitter": 0.3,
}


@pytest.mark.parametrize("seed", daily(range(1, 5), range(1, 2)))
def test_a_run_that_plans_anew_among_refusals_ends_and_keeps_every_rule(seed: int) -> None:
    changes = TROUBLED | {"seed": seed, "planner.replan_every_s": 10}
    read = rolled(changes)
    _, traffic = assemble(validate_config(changed(SMALL, ROLLING | changes), "small"), "small")
    plans = [one.record for one in read.entries if hasattr(one.record, "violations")]
    assert [record.violations for record in plans] == [()] * len(plans)
    assert asked(read)
    report = report_of(read)
    assert report.ending == "finished"
    assert report.total is not None
    assert report.total.requests.arrivals == sum(map(len, traffic.hindsight.arrival_s))
