"""Windows of a run posed anew from its folder: the plans in the log are worth what they say, or it is told why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from executor.catalogue import gpu_model
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.loop import Loop
from migrator.execution.posing import shifted
from migrator.execution.replay import Replayed
from migrator.execution.reposing import CheckedPlan, RunCheck, seen_in
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.runlog import ReadLog, RunLog, read_log
from migrator.views.as_json import checked_plan_to_json
from planner.errors import PlanFileError
from planner.policies.registry import policy_of
from planner.problem import HeldInstance, PhysicalState, RunningRetraining
from planner.verify import Rule
from tests.migrator.conftest import SMALL, changed
from tests.migrator.log import records

Change = Mapping[str, Any]

FREE: Change = {"retraining": {"required": False, "drift": "compound"}, "tenants.0.retraining.samples": 9000}
"""The model may be left as it is, and plans count what it is worth later."""


def run_in(folder: Path, changes: Change, policy: str = "migrator") -> Path:
    """The folder of a run of the small config with these keys changed."""
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    run = Loop(setting, simulated_parts(setting, traffic, policy_of(policy)))
    with RunLog(folder, config_yaml(setting.config)) as log:
        run.carry_out(log)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_in(tmp_path_factory.mktemp("reposing") / "run", {})


def checked(log: ReadLog, changes: Change | None = None) -> list[CheckedPlan]:
    setting, traffic = assemble(validate_config(changed(SMALL, changes or {}), "small"), "small")
    return list(RunCheck(log, setting, traffic).plans())


def altered(log: ReadLog, change: Callable[[dict[str, Any]], object]) -> ReadLog:
    """The log with every ``window_started`` changed."""
    altered = records.as_json(log)
    for record in altered:
        if record["kind"] == "window_started":
            change(record)
    return records.log_of(*altered)


def test_a_log_has_to_tell_which_floors_its_plans_miss(tmp_path: Path) -> None:
    change = {"tenants.0.arrivals.rate_rps": 4000, "tenants.0.min_slo_attainment": 1.0, "windows": 1}
    log = read_log(run_in(tmp_path / "run", change))
    silent = altered(log, lambda record: record.update(violations=[]))
    another = altered(log, lambda record: record.update(violations=["min_slo_attainment: visions: 1 %"]))
    told = [[checked_plan_to_json(item) for item in checked(one, change)] for one in (log, silent, another)]
    assert [[(item["valid"], item["floors_told"]) for item in own] for own in told] == [
        [(False, True)],
        [(False, False)],
        [(False, False)],
    ]


def test_every_window_of_a_run_is_worth_what_its_log_says(run: Path) -> None:
    log = read_log(run)
    claimed = [record.plan.objective for record in log.of(recorded.WindowStarted)]
    found = [item.verification for item in checked(log)]
    assert [item.violations for item in found] == [(), ()]
    assert [item.objective for item in found] == pytest.approx(claimed, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({}, "oracle"),
        ({"planner.planning_s": 5}, "migrator"),
        ({"estimates.accuracy_sigma": 0.2}, "window"),
        ({"estimates.service_spread": 0.3}, "migrator"),
        (FREE, "migrator"),
        ({**FREE, "tenants.0.retraining.windows": 1}, "migrator"),
        ({**FREE, "retraining.max_skipped": 0, "tenants.1.retraining": {"samples": 100}}, "static"),
    ],
)
def test_windows_are_posed_as_their_policy_and_config_posed_them(tmp_path: Path, changes: Change, policy: str) -> None:
    found = checked(read_log(run_in(tmp_path / "run", changes, policy)), changes)
    assert [item.verification and item.verification.violations for item in found] == [(), ()]


REPLANNING: Change = {
    "planner.replan_every_s": 10,
    "planner.max_schedules": 800,
    "planner.prove": "windows",
    "tenants.0.arrivals.rate_rps": 900,
    "tenants.1.arrivals.scale.factor": 20.0,
    "tenants.0.retraining.samples": 12000,
}


@pytest.fixture(scope="module")
def replanned(tmp_path_factory: pytest.TempPathFactory) -> ReadLog:
    """A run with plans of windows' rests."""
    log = read_log(run_in(tmp_path_factory.mktemp("replanned") / "run", REPLANNING))
    assert len(log.of(recorded.PlanRevised)) > 1
    return log


def test_every_plan_of_a_run_has_a_proven_gap(replanned: ReadLog) -> None:
    found = [(item.name, item.verification) for item in checked(replanned, REPLANNING)]
    assert [(name, one.violations) for name, one in found if one.violations] == []
    assert [name for name, one in found if one.gap is None] == []


def test_what_was_planned_without_proofs_is_proven_afterwards(tmp_path: Path) -> None:
    changes = {**REPLANNING, "planner.prove": "never"}
    log = read_log(run_in(tmp_path / "run", changes))
    plans = [record.plan for kind in (recorded.WindowStarted, recorded.PlanRevised) for record in log.of(kind)]
    assert [(plan.bound, plan.gap, plan.certificate) for plan in plans] == [(None, None, None)] * len(plans)
    found = [item.verification for item in checked(log, changes)]
    assert [one.violations for one in found] == [()] * len(plans)
    assert 0 <= max(one.gap for one in found) < 0.05


def test_a_log_has_the_prices_of_a_window_once(replanned: ReadLog) -> None:
    of_windows = [record.plan.certificate for record in replanned.of(recorded.WindowStarted)]
    of_rests = [record.plan.certificate for record in replanned.of(recorded.PlanRevised)]
    assert ["prices" in own for own in of_windows] == [True] * len(of_windows)
    assert ["prices" in own for own in of_rests] == [False] * len(of_rests)


def test_prices_told_once_are_there_again_when_the_run_is_taken_up(replanned: ReadLog) -> None:
    told = Replayed.of(policy_of("migrator"), replanned).answers
    plans = [plan for answers in told.values() for plan in answers if plan is not None]
    assert len(plans) == len(replanned.of(recorded.WindowStarted)) + len(replanned.of(recorded.PlanRevised))
    assert [len(plan.certificate["prices"]) for plan in plans] == [plan.n_steps for plan in plans]


@pytest.mark.parametrize("certificate", [None, {"profiles": ["1g.5gb"]}, {"profiles": ["1g.5gb"], "prices": "none"}])
def test_prices_that_were_never_told_are_told(replanned: ReadLog, certificate: Any) -> None:
    log = altered(replanned, lambda record: record["plan"].update(certificate=certificate))
    with pytest.raises(PlanFileError, match="certificate"):
        checked(log, REPLANNING)


def test_windows_ahead_are_those_of_the_config(tmp_path: Path) -> None:
    log = read_log(run_in(tmp_path / "run", FREE))
    told = [record.outlook for record in log.of(recorded.WindowStarted)]
    assert [list(own) for own in told] == [["vision"]] * 2
    assert [own["vision"].ahead for own in told] == [(True, True, True)] * 2
    other = altered(log, lambda record: record["outlook"]["vision"].update(ahead=[True, False, False]))
    said = "the log says that vision has in its outlook ahead (True, False, False)"
    assert [item.reason.startswith(said) for item in checked(other, FREE)] == [True, True]
    for one in (log, other):
        setting, _ = assemble(validate_config(changed(SMALL, {**FREE, "tenants.0.retraining.windows": 2}), "x"), "x")
        outlooks = [
            seen_in(record, setting.config, setting.tenants).outlooks for record in one.of(recorded.WindowStarted)
        ]
        assert [own and own[0].ahead for own in outlooks] == [(True, False, False), (False, False, False)]


@pytest.mark.parametrize(
    ("kind", "key", "part"),
    [
        ("window_started", "forecast.tenants.vision.accuracy_before", "vision begins with an accuracy of"),
        ("window_started", "model_age.vision", "vision has an age of"),
        ("window_started", "outlook.vision.drift", "vision has in its outlook drift"),
        ("window_started", "outlook.vision.stays", "vision has in its outlook stays"),
        ("finished", "accuracy", "vision is retrained to"),
        ("checkpoint", "accuracy", "vision is retrained to"),
    ],
)
def test_what_a_log_says_of_models_has_to_follow_from_its_retrainings(
    tmp_path: Path, kind: str, key: str, part: str
) -> None:
    changes = {**FREE, "retraining.max_skipped": 1, "windows": 3, "retraining.checkpoints": [0.5]}
    changes["retraining.curve"] = "square-root"
    log = read_log(run_in(tmp_path / "run", changes))
    assert [item.reason for item in checked(log, changes)] == ["", "", ""]
    found = records.as_json(log)
    *path, last = key.split(".")
    own = [record for record in found if record["kind"] == kind and record.get("tenant") in (None, "vision")][-1]
    for name in path:
        own = own[name]
    own[last] = own[last] + 1 if isinstance(own[last], int) else own[last] * 0.9
    reasons = {item.reason for item in checked(records.log_of(*found), changes)} - {""}
    assert len(reasons) == 1
    assert part in reasons.pop()


def test_a_retraining_that_ended_just_before_a_window_may_be_told_at_its_start(tmp_path: Path) -> None:
    log = read_log(run_in(tmp_path / "run", FREE))
    found = records.as_json(log)
    next(one for one in found if one["kind"] == "finished" and one["tenant"] == "vision")["finish_s"] = 60.0
    assert [item.reason for item in checked(records.log_of(*found), FREE)] == ["", ""]


def test_a_plan_that_says_too_much_is_found_out(run: Path) -> None:
    log = altered(read_log(run), lambda record: record["plan"].update(objective=9e9, bound=9e9, gap=None))
    assert {item.rule for item in checked(log)[0].verification.violations} == {Rule.OBJECTIVE}


@pytest.mark.parametrize(
    "change", [lambda record: record.pop("warm_up"), lambda record: record["model_age"].pop("vision")]
)
def test_a_log_without_what_windows_began_with_cannot_be_posed_anew(
    run: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    log = altered(read_log(run), change)
    assert all("does not say what the window began with" in item.reason for item in checked(log))


def test_a_forecast_that_comes_out_otherwise_is_told(run: Path) -> None:
    log = altered(read_log(run), lambda record: record["forecast"]["tenants"]["vision"]["mean_rps"].insert(0, 1.0))
    assert "the forecast of vision made anew is not the log's" in checked(log)[1].reason


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"seed": 4}, "config.yaml has seed 4; the run was made with 3"),
        ({"estimates.service_spread": 0.3}, "config.yaml has service_spread 0.3; the run was made with 0.0"),
        ({"windows": 3}, "config.yaml has windows 3; the run was made with 2"),
        ({"tenants.0.name": "sight"}, "config.yaml has other tenants"),
        ({"tenants.0.slo_ms": 60}, "the service profiles of vision are not those"),
    ],
)
def test_a_config_that_is_not_the_runs_is_told(run: Path, changes: Change, part: str) -> None:
    assert part in checked(read_log(run), changes)[0].reason


def test_a_window_that_kept_its_layout_has_no_plan_to_check(run: Path) -> None:
    log = altered(read_log(run), lambda record: record["plan"].update(objective=None, status="timeout"))
    assert {(item.is_planned, item.reason) for item in checked(log)} == {
        (False, "no plan (timeout); the layout was kept")
    }


def test_a_state_some_steps_later_is_the_one_it_was_made_from() -> None:
    place = gpu_model("a100-80gb").placement
    held = (HeldInstance(place("2g.20gb@0"), "a", 0), HeldInstance(place("1g.10gb@2"), "b", 3))
    state = PhysicalState(held, (RunningRetraining(place("1g.10gb@3"), "b", 9),), 3)
    assert shifted(shifted(state, -4), 4) == state


# ---- the command ----


def test_verify_checks_a_run(call: Callable[..., Any], run: Path) -> None:
    code, out, _ = call("verify", run)
    assert (code, out.count("is valid: goodput")) == (0, 2)


def test_verify_checks_one_window_of_a_run(call: Callable[..., Any], run: Path) -> None:
    answer = json.loads(call("verify", run, "--window", 1, "--json")[1])
    assert [(item["window"], item["valid"]) for item in answer["windows"]] == [(1, True)]


def test_a_gap_that_is_too_large_fails_a_run(call: Callable[..., Any], tmp_path: Path) -> None:
    busy = {"windows": 1, "tenants.0.arrivals.rate_rps": 900, "tenants.1.arrivals.scale.factor": 20.0}
    code, _, err = call("verify", run_in(tmp_path / "busy", busy), "--max-gap", 0)
    assert (code, "--max-gap allows 0 %" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--window", 2), "--window is 2; the log of"),
        (("problem.json",), "a RUN's folder alone"),
    ],
)
def test_a_wrong_way_to_check_a_run_is_told(call: Callable[..., Any], run: Path, arguments: Any, part: str) -> None:
    code, _, err = call("verify", run, *arguments)
    assert (code, part in err) == (2, True)


def test_a_run_without_plans_has_nothing_to_check(call: Callable[..., Any], tmp_path: Path) -> None:
    code, out, err = call("verify", run_in(tmp_path / "run", {}, "ekya"))
    assert (code, "was not checked" in out, "holds no plan to check" in err) == (2, True, True)


def test_a_run_whose_config_is_not_its_own_fails(call: Callable[..., Any], tmp_path: Path) -> None:
    folder = run_in(tmp_path / "run", {})
    config = folder / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("seed: 3", "seed: 4"), "utf-8")
    code, _, err = call("verify", folder)
    assert (code, "config.yaml has seed 4" in err) == (2, True)
