"""A run that was cut off and is carried out again: nobody can tell, and nothing is solved twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import config_yaml, validate_config
from migrator.errors import LogError
from migrator.execution.loop import Loop
from migrator.execution.replay import Replayed
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import EVENTS_FILE, RunLog, log_in
from planner.plan import MigPlan
from planner.policies.policy import AnyPolicy, Knows, Policy, Window
from planner.policies.registry import POLICIES, policy_of
from planner.solve import solve
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.asking import ask
from tests.migrator.execution.resuming import SHORT, begun, cuts, same, taken_up
from tests.seeds import daily


@dataclass(frozen=True)
class Counting(Policy):
    """Greedy plans; keeps which windows it was asked for."""

    name: str = "counting"
    knows: Knows = Knows.FORECAST
    asked: list[int] = field(default_factory=list)

    def plan(self, window: Window) -> MigPlan:
        self.asked.append(window.number)
        return solve(window.problem, "greedy")


@dataclass(frozen=True)
class Remembering(Counting):
    """Its plans depend on what it was asked before."""

    def plan(self, window: Window) -> MigPlan:
        self.asked.append(window.number)
        return solve(window.problem, ("greedy", "static")[len(self.asked) % 2])


@dataclass(frozen=True)
class Breaking(Counting):
    """Its plan of window 1 breaks a rule."""

    def plan(self, window: Window) -> MigPlan:
        plan = super().plan(window)
        return replace(plan, lifetimes=plan.lifetimes[:1]) if window.number == 1 else plan


CUT = [Counting(), policy_of("ekya"), policy_of("whole")]


@pytest.mark.parametrize("policy", daily(CUT, CUT[:1]), ids=lambda policy: policy.name)
def test_a_run_cut_anywhere_and_resumed_is_the_run_that_was_never_cut(policy: AnyPolicy, tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", policy, changes={"window_s": 20, "windows": 2})
    for cut in cuts(whole):
        (tmp_path / "run" / EVENTS_FILE).write_bytes(cut)
        assert same(taken_up(tmp_path / "run", policy)) == same(whole)


@pytest.mark.parametrize("policy", daily(POLICIES, [*POLICIES][::3]))
def test_the_run_of_every_policy_can_be_resumed(policy: str, tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", policy_of(policy))
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[: len(whole) * 3 // 5])
    assert same(taken_up(tmp_path / "run", policy_of(policy))) == same(whole)


CONFIGS: dict[str, dict[str, Any]] = {
    "floors": {"tenants.0.min_slo_attainment": 0.9},
    "estimates": {"estimates": {"accuracy_bias": 0.1, "delay_s": 2}},
    "late retrainings": {"tenants.0.retraining.samples": 1500, "estimates": {"time_bias": -0.5}},
    "charged planning": {"planner.planning_s": 3},
    "a trace of rates": {"tenants.1.arrivals": {"trace": "alibaba-servegen"}, "load": 0.5, "load_windows": 9},
    "one window": {"windows": 1},
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_whatever_the_config_asks_for_a_run_can_be_resumed(changes: dict[str, Any], tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", policy_of("equal"), changes=changes)
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[: len(whole) // 2])
    assert same(taken_up(tmp_path / "run", policy_of("equal"))) == same(whole)


def test_what_the_log_has_a_plan_of_is_not_solved_again(tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", Counting())
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[: whole.index(b'"kind":"window_started","at_s":60')])
    policy = Counting()
    assert same(taken_up(tmp_path / "run", policy)) == same(whole)
    assert policy.asked == [2]


def test_a_policy_that_remembers_is_asked_again_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", Remembering())
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[: whole.index(b'"kind":"window_started","at_s":60')])
    policy = Remembering()
    assert same(taken_up(tmp_path / "run", policy, is_own=True)) == same(whole)
    assert policy.asked == [0, 1, 2]


def test_a_policy_of_one_s_own_that_has_changed_is_found_out(tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", Counting())
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[:-9])
    with pytest.raises(LogError, match=r"record 1, window_started: plan\.\w+ is"):
        taken_up(tmp_path / "run", Remembering(), is_own=True)


@pytest.mark.parametrize("is_own", [False, True])
def test_under_a_limit_of_seconds_the_log_s_plans_count_whatever_another_solve_would_find(
    tmp_path: Path, is_own: bool
) -> None:
    whole = begun(tmp_path / "run", Counting(), limit_s=5.0)
    (tmp_path / "run" / EVENTS_FILE).write_bytes(cut := whole[: whole.index(b'"kind":"window_started","at_s":60') - 8])
    after = taken_up(tmp_path / "run", Remembering(), is_own=is_own)
    engines = [record.plan.engine for record in log_in(after, tmp_path).of(recorded.WindowStarted)]
    assert after.startswith(cut)
    assert engines == ["greedy", "greedy", "static"]


def test_a_plan_that_broke_a_rule_is_refused_again(tmp_path: Path) -> None:
    whole = begun(tmp_path / "run", Breaking())
    assert log_in(whole, tmp_path).of(recorded.WindowStarted)[1].rejected_plan is not None
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[:-9])
    policy = Breaking()
    assert same(taken_up(tmp_path / "run", policy)) == same(whole)
    assert policy.asked == []


def every_ten_seconds() -> Callable[[float], str | None]:
    """Asks for a new plan once in each 10 s."""
    done: set[int] = set()

    def reason(now_s: float) -> str | None:
        tenth = int(now_s // 10)
        is_new = tenth not in done
        done.add(tenth)
        return "ten seconds have passed" if is_new else None

    return reason


def test_plans_of_a_window_s_rest_are_not_solved_again_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, traffic = assemble(validate_config(changed(SMALL, SHORT), "small"), "small")
    ask(monkeypatch, every_ten_seconds())
    with RunLog(tmp_path / "run", config_yaml(setting.config)) as log:
        Loop(setting, simulated_parts(setting, traffic, Counting())).carry_out(log)
    whole = (tmp_path / "run" / EVENTS_FILE).read_bytes()
    assert len(log_in(whole, tmp_path).of(recorded.PlanRevised)) > 3
    (tmp_path / "run" / EVENTS_FILE).write_bytes(whole[:-9])
    policy = Counting()
    monkeypatch.undo()
    ask(monkeypatch, every_ten_seconds())
    with ResumedLog(tmp_path / "run") as again:
        Loop(setting, simulated_parts(setting, traffic, Replayed.of(policy, again.stands))).carry_out(again)
    assert same((tmp_path / "run" / EVENTS_FILE).read_bytes()) == same(whole)
    assert policy.asked == []
