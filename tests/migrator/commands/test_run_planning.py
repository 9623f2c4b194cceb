"""``migrator run``: what planning is charged, and what a limit on its seconds does to a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.log import records as recorded
from migrator.log.runlog import read_log
from migrator.log.slow_plans import slow_plans
from planner.budget import Budget
from planner.plan import MigPlan
from planner.problem import Problem
from planner.solve import solve
from tests.migrator.log import records

SHORT = {"window_s": 30, "tenants.0.retraining.samples": 300, "planner.max_schedules": 2}
RUN = Path("runs/small")


@pytest.fixture
def solves_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has every plan say that it took so many seconds."""

    def set_to(seconds: float) -> None:
        def slow(problem: Problem, *options: Any, **named: Any) -> MigPlan:
            return replace(solve(problem, *options, **named), solve_s=seconds)

        monkeypatch.setattr("planner.policies.ours.solve", slow)

    return set_to


def test_what_planning_takes_stands_in_the_log_and_windows_after_the_first_are_planned_so_long_before(
    call, write_config
) -> None:
    assert call("run", write_config({**SHORT, "planner.planning_s": None, "windows": 3}))[0] == 0
    log = read_log(RUN)
    assert log.header.planning_s == 1.0
    begun = [(event.plan_from_step, event.asked_s) for event in log.of(recorded.WindowStarted)]
    assert begun == [(0, None), (0, 29), (0, 59)]


@pytest.mark.parametrize(("at_s", "warns"), [(30.4, False), (31.0, True)])
def test_plans_of_a_live_run_that_are_there_late_are_warned_of(at_s: float, warns: bool) -> None:
    begun = {**records.window_started(1, 30.0), "asked_s": 28.0, "at_s": at_s}
    found = slow_plans(records.log_of(records.header(30.0, planning_s=2.0, simulated=False), begun))
    told = "1 plan was there later than estimates.delay_s and planner.planning_s say, up to 1.0 s in window 1"
    assert (found or "").startswith(told) is warns


@pytest.mark.parametrize(("seconds", "warns"), [(2.0, False), (2.5, True)])
def test_plans_that_took_longer_than_charged_are_warned_of(call, write_config, solves_in, seconds, warns) -> None:
    solves_in(seconds)
    code, out, _ = call("run", write_config({**SHORT, "planner.planning_s": 2, "sharing.pools": "off"}))
    told = "! 1 plan took up to 2.5 s, 2 s were charged: set planner.planning_s: 3"
    assert (code, told in " ".join(out.split())) == (0, warns)


def test_where_planning_is_to_take_no_time_nothing_is_said_of_plans_that_do(call, write_config, solves_in) -> None:
    solves_in(2.5)
    assert "were charged" not in call("run", write_config({**SHORT, "planner.planning_s": 0}))[1]


def test_the_first_plan_is_made_before_the_run_and_charged_nothing(call, write_config, solves_in) -> None:
    solves_in(1000.0)
    assert "charged" not in call("run", write_config({**SHORT, "planner.planning_s": 2, "windows": 1}))[1]


def test_the_plan_at_which_a_run_is_joined_is_charged_nothing_either() -> None:
    def took(window: int, solve_s: float) -> records.Json:
        return {**records.window_started(window, 30.0), "wall": {"solve_s": solve_s}}

    begun = (records.header(30.0, planning_s=2.0, backend="nvml"), took(0, 9.0), took(1, 2.5))
    found = slow_plans(records.log_of(*begun, {"kind": "resumed", "window": 3, "void": [2]}, took(3, 8.0)))
    assert found == "1 plan took up to 2.5 s, 2 s were charged: set planner.planning_s: 3"


def test_a_time_limit_is_the_planner_s_and_marks_the_log(call, write_config, monkeypatch) -> None:
    budgets: list[Budget] = []

    def seen(problem: Problem, engine: str, budget: Budget, *more: Any, **named: Any) -> MigPlan:
        budgets.append(budget)
        return solve(problem, engine, budget, *more, **named)

    monkeypatch.setattr("planner.policies.ours.solve", seen)
    code, out, _ = call("run", write_config(SHORT), "--time-limit", 5)
    assert code == 0
    assert {budget.time_limit_s for budget in budgets} == {5.0}
    header = read_log(RUN).header
    assert (header.repeatable, header.time_limit_s) == (False, 5.0)
    assert "not repeatable: each plan is the best found within 5 s" in out


def test_a_report_says_of_a_log_that_it_is_not_repeatable(call, write_config) -> None:
    call("run", write_config(SHORT), "--time-limit", 5)
    assert "not repeatable" in call("report", RUN)[1]
    assert json.loads(call("report", RUN, "--json")[1])["run"]["repeatable"] is False


def test_without_a_time_limit_nothing_is_said_of_it(call, write_config) -> None:
    assert "not repeatable" not in call("run", write_config(SHORT))[1]
    assert read_log(RUN).header.repeatable


@pytest.mark.parametrize(
    ("limit", "policy"), [("nan", "migrator"), ("inf", "migrator"), ("-1", "migrator"), ("5", "ekya")]
)
def test_a_time_limit_that_means_nothing_is_refused(call, write_config, limit: str, policy: str) -> None:
    code, out, err = call("run", write_config(SHORT), "--time-limit", limit, "--policy", policy)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--time-limit" in err
    assert not RUN.exists()


def test_a_run_that_comes_out_far_from_its_plan_says_so(call, write_config) -> None:
    changes = {**SHORT, "tenants.0.arrivals.rate_rps": 900, "estimates": {"accuracy_bias": 0.4}}
    changes |= {"tenants.0.accuracy": {"before": 0.2, "after": 0.3}, "window_s": 60}
    code, out, _ = call("run", write_config(changes))
    assert code == 0
    assert "far from its plan: window" in out
    assert "more wrong answers than the plan expected" in " ".join(out.split())
    surprises = json.loads(call("report", RUN, "--json")[1])["surprises"]
    assert all(abs(item["points"]) > 10 for item in surprises)
    assert surprises
