"""What ``--keep`` says of a run and of a comparison: kept, missed, or missed because the run does not show it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from migrator.errors import ExitCode, MissedGoalError, exit_code_of
from migrator.log.report import Report, report_of
from migrator.views.sentences import print_goals
from migrator.whatif.goals import Goal, conditions_of, goals_of_run, require_kept
from migrator.whatif.search import Condition
from tests.migrator.conftest import WriteConfig
from tests.migrator.log import records

Call = Callable[..., tuple[int, str, str]]

LATER = {"windows": 1, "window_s": 20, "tenants.1.arrivals": {"rate_rps": 9}}
"""Keys of a config with a run that takes a moment."""


def report() -> Report:
    """Of the small run of two tenants."""
    return report_of(records.log_of(*records.timed(records.tiny())))


def said(goals: tuple[Goal, ...]) -> str:
    text = io.StringIO()
    print_goals(goals, Console(file=text, width=40))
    return text.getvalue().removesuffix("\n")


def goals(of: Report, *keep: str) -> tuple[Goal, ...]:
    return goals_of_run(of, conditions_of(keep, list(of.tenants)))


def counted(tenant: str | None) -> tuple[int, int, int]:
    """Arrivals, in time, and right of a tenant of that run, or of both."""
    parts = [one["tenants"] for one in records.tiny() if one["kind"] == "window_finished"]
    of_all = [own for part in parts for name, own in part.items() if tenant in (None, name)]
    arrivals, in_time, correct = (sum(sum(own[key]) for own in of_all) for key in ("arrivals", "in_time", "correct"))
    return arrivals, in_time, correct


@pytest.mark.parametrize("tenant", [None, "a", "b"])
@pytest.mark.parametrize("metric", ["goodput", "slo_attainment"])
def test_a_share_is_that_of_the_report_and_what_it_is_exactly_is_kept(metric: str, tenant: str | None) -> None:
    arrivals, in_time, correct = counted(tenant)
    share = (correct if metric == "goodput" else in_time) / arrivals
    conditions = [Condition(metric, tenant, sign, share + off) for sign in (">=", "<=") for off in (-0.01, 0.0, 0.01)]
    found = goals_of_run(report(), conditions)
    assert {(goal.share, goal.requests) for goal in found} == {(share, arrivals)}
    assert [goal.is_kept for goal in found] == [True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [([], "the run has not ended"), ([{"kind": "interrupted"}], "the run was interrupted")],
)
def test_a_run_that_is_not_whole_keeps_nothing(ending: list[dict[str, Any]], reason: str) -> None:
    found = goals(report_of(records.log_of(*records.timed([*records.tiny()[:-1], *ending]))), "goodput>=0")
    assert [goal.is_kept for goal in found] == [False]
    assert said(found) == f"✗ goodput>=0 missed: {reason}"


def test_a_void_window_keeps_nothing() -> None:
    whole = report()
    first, second = whole.windows
    found = goals(replace(whole, windows=(first, replace(second, total=None))), "goodput>=0")
    assert said(found) == "✗ goodput>=0 missed: void: window 1"


def test_without_requests_nothing_is_kept() -> None:
    log = [
        one
        if one["kind"] != "window_finished"
        else records.window_finished(one["window"], a=NOTHING, b=one["tenants"]["b"])
        for one in records.tiny()
    ]
    found = goals(report_of(records.log_of(*records.timed(log))), "goodput:a>=0", "goodput:b>=0")
    assert said(found).splitlines()[0] == "✗ goodput:a>=0 missed: no requests of a arrived"
    assert [goal.is_kept for goal in found] == [False, True]


NOTHING = records.counts([0, 0, 0], [0, 0, 0], [0, 0, 0])


@pytest.mark.parametrize(
    ("share", "asked", "text"),
    [
        (0.512443, 0.9, "✗ goodput>=0.9 missed: 51.2 % of 272,590 requests, simulated"),
        (0.8999, 0.9, "✗ goodput>=0.9 missed: 89.99 % of 272,590 requests, simulated"),
        (0.9, 0.9, "✓ goodput>=0.9 kept: 90.0 % of 272,590 requests, simulated"),
        (0.90001, 0.9, "✓ goodput>=0.9 kept: 90.001 % of 272,590 requests, simulated"),
    ],
)
def test_a_share_has_as_many_digits_as_tell_it_from_what_was_asked(share: float, asked: float, text: str) -> None:
    goal = Goal(Condition("goodput", None, ">=", asked), 272_590, share, None, is_simulated=True)
    assert said((goal,)) == text


def test_a_missed_goal_has_an_exit_code_of_its_own() -> None:
    require_kept(goals(report(), "goodput>=0"))
    with pytest.raises(MissedGoalError, match=r"^not kept: goodput:a>=1, slo_attainment>=1$") as missed:
        require_kept(goals(report(), "goodput:a>=1", "goodput>=0", "slo_attainment>=1"))
    assert exit_code_of(missed.value) is ExitCode.GOAL_MISSED == 5


def test_a_run_says_first_what_it_kept_and_ends_when_all_is_written(call: Call, write_config: WriteConfig) -> None:
    keep = ("--keep", "slo_attainment:vision>=0.1", "--keep", "goodput>=1")
    code, out, err = call("run", write_config(LATER), "--out", "out", "--policy", "whole", *keep)
    assert (code, err.splitlines()[-1]) == (5, "error: not kept: goodput>=1")
    assert [line.split(":")[0][:9] for line in out.splitlines()[:2]] == ["✓ slo_att", "✗ goodput"]
    assert "migrator report out --full" in out
    again = call("report", "out", *keep)
    assert (again[0], again[1].splitlines()[:2]) == (5, out.splitlines()[:2])
    assert call("run", "--resume", "out", *keep)[:2] == again[:2]
    found = json.loads(call("report", "out", *keep, "--json")[1])["goals"]
    assert [(one["keep"], one["kept"]) for one in found] == [
        ("slo_attainment:vision>=0.1", True),
        ("goodput>=1", False),
    ]
    assert call("report", "out", "--keep", "goodput>=0.1")[0] == 0


@pytest.mark.usefixtures("in_this_process")
def test_a_comparison_says_what_its_first_policy_kept(call: Call, write_config: WriteConfig) -> None:
    arguments = (write_config(LATER), "--policies", "whole,ekya", "--jobs", 1)
    document = json.loads(call("compare", *arguments, "--keep", "goodput>=1", "--json")[1])
    own = document["scores"][0]["windows"][0]
    assert document["goals"] == [
        {
            "keep": "goodput>=1",
            "kept": False,
            "share": own["correct"] / own["arrivals"],
            "requests": own["arrivals"],
            "reason": None,
        }
    ]
    code, out, _ = call("compare", *arguments, "--keep", "goodput:vision>=1")
    assert (code, out.splitlines()[0][:27]) == (5, "✗ goodput:vision>=1 missed:")
    assert call("compare", *arguments, "--keep", "goodput:vision>=0.1")[0] == 0


@pytest.mark.parametrize(("keep", "told"), [("goodput:who>=1", "who is no tenant"), ("p99<=1", "p99 is no metric")])
def test_what_cannot_be_kept_is_refused_before_anything_is_done(
    call: Call, write_config: WriteConfig, keep: str, told: str
) -> None:
    for verb in ("run", "compare"):
        code, out, err = call(verb, write_config(LATER), "--keep", keep)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert told in err
    assert not Path("runs").exists()
    code, _, err = call("run", write_config(LATER), "--keep", "goodput>=0", "--dry-run")
    assert (code, "carries none out" in err) == (2, True)
