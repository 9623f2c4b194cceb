"""A run's report in a screen: what is on it, at which width, and what its marks are of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from migrator.log.report import report_of
from migrator.views.summary import MOST_NOTES
from migrator.whatif.goals import conditions_of, judged
from tests.migrator.log import records
from tests.migrator.views.reports import GOLDEN, LOGS, WIDTHS, names, printed, run_of, unlabelled


@pytest.mark.parametrize("name", LOGS)
def test_a_report_is_what_it_was(name: str) -> None:
    assert LOGS[name]() == (GOLDEN / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n_tenants", [1, 2, 20])
def test_nothing_but_a_command_is_wider_than_the_terminal_and_no_word_is_divided(n_tenants: int, width: int) -> None:
    lines = [line.rstrip() for line in printed(records.log_of(*run_of(n_tenants)), width).splitlines()]
    assert [line for line in lines if len(line) > width and "migrator whatif" not in line] == []
    assert [line for line in lines if line.endswith("-")] == []


@pytest.mark.parametrize(("n_tenants", "most"), [(1, 20), (2, 20), (20, 40)])
def test_a_report_is_a_screen(n_tenants: int, most: int) -> None:
    assert all(len(printed(records.log_of(*run_of(n_tenants)), width).splitlines()) <= most for width in (80, 100, 200))


def test_only_the_mark_of_what_fails_is_red() -> None:
    text = printed(records.log_of(*run_of(20)), 100, colour=True)
    assert re.findall(r"\x1b\[[\d;]*\b31m(.)", text) == ["✗"] * 7


def test_a_name_that_fits_nowhere_is_whole_and_each_figure_has_a_line() -> None:
    name = "x" * 50
    renamed = json.loads(json.dumps(run_of(2)).replace("language", name))
    lines = [line.rstrip() for line in printed(records.log_of(*renamed), 80).splitlines()]
    assert f"  ✗ {name}" in lines
    assert {"    SLO: 210 ms", "    in time ≥ 99 %: 51.7 % ▄▄▄▄", "    goodput: 37.5 %"} <= set(lines)


def test_forecasts_are_a_cause_where_a_rival_knew_the_arrivals() -> None:
    rival = run_of(2, policy="oracle")
    for one in rival:
        if one["kind"] == "window_finished":
            own = one["tenants"]["language"]
            own |= {"in_time": own["arrivals"], "dropped": [0] * 20, "latency_ms": [[20, sum(own["arrivals"])]]}
    text = printed(records.log_of(*run_of(2)), 100, rival=records.log_of(*rival))
    assert " in time and right · arrivals known 54.0 %" in text
    assert re.search(r"✗ language .* queues \d+ k · forecast \d+ k", text)


def test_waits_for_others_of_a_pool_are_no_queues_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"vision": np.zeros(80), "language": np.full(80, 100.0)}
    monkeypatch.setattr("migrator.views.summary.waits_for_others", lambda *_: waits)
    text = printed(records.log_of(*run_of(2)), 100)
    assert re.search(r"✗ language .* capacity 13 k · queues 12 k", text)
    waits["language"] += 130
    text = printed(records.log_of(*run_of(2)), 100)
    assert re.search(r"✗ language .* turns 18 k · capacity 13 k", text)
    assert "to help   language: waits for turns of those that share its instances: less load or a larger GPU" in text


def test_a_rival_with_other_requests_is_not_told() -> None:
    rival = records.log_of(*run_of(2, policy="static")[:-2])
    assert "best fixed layout" not in printed(records.log_of(*run_of(2)), 100, rival=rival)


def test_a_share_that_fails_by_little_is_not_rounded_to_what_was_asked() -> None:
    asked = "slo_attainment:vision>=0.99835"
    assert re.search(r"✗ vision .* 99\.83\d* % ", printed(records.log_of(*run_of(2)), 100, asked))


def test_what_is_alarming_is_told_and_much_of_it_in_few_lines() -> None:
    log = run_of(2, simulated_faults=None, service_spread=0.2)
    log[-1] = {"kind": "interrupted", "reason": "[red]the disk is full", "at_s": 80.0}
    for tenant in log[0]["tenants"]:
        tenant["notes"] = ["a silence far from usual", "sorted"]
    text = printed(records.log_of(*log), 200)
    assert "! The run ended: [red]the disk is full." in text
    assert "! trace of vision: a silence far from usual (and 3 more like this: --full)" in text
    assert "each model's latency on each profile is planned with as 0.8 to 1.2 times itself" in text
    assert 0 < text.count("\n  ! ") <= MOST_NOTES


def test_a_void_run_says_so_first_and_marks_nobody() -> None:
    log = run_of(2, simulated=False)
    log[-1] |= {"sent_late_s": [0.0, 0.0, 0.0], "others_share": 0.5}
    text = printed(records.log_of(*log), 100)
    assert text.startswith("✗ void: others took 50.0% of this machine's CPU time")
    assert text.count("✗") == 1
    assert "✓" not in text


@pytest.mark.parametrize(
    ("keep", "by", "kept"),
    [
        ([], "usual", {"vision": True, "language": False}),
        (["slo_attainment>=0.5"], "keep", {"vision": True, "language": True}),
        (["slo_attainment>=0.6"], "keep", {"vision": True, "language": False}),
        (["goodput<=0.5"], "keep", {"vision": False, "language": True}),
        (["goodput:language>=0.3"], "keep", {"language": True}),
        (["goodput:language>=0.3", "slo_attainment:language>=0.9"], "keep", {"language": False}),
        (["slo_attainment>=0.9", "slo_attainment:language>=0.5"], "keep", {"vision": True, "language": True}),
    ],
)
def test_a_tenant_is_judged_by_what_was_asked_of_it(keep: list[str], by: str, kept: dict[str, bool]) -> None:
    found = judged(report_of(records.log_of(*run_of(2))), conditions_of(keep, names(2)))
    assert {name: one.is_kept for name, one in found.items()} == kept
    assert {one.by for one in found.values()} == {by}


@pytest.mark.parametrize(("share", "is_kept"), [(0.5, True), (0.51, False)])
def test_a_floor_is_kept_if_each_window_keeps_it(share: float, is_kept: bool) -> None:
    log = run_of(2)
    log[0]["tenants"][1]["min_slo_attainment"] = {"share": share, "per": "window"}
    one = judged(report_of(records.log_of(*log)), ())["language"]
    assert (one.by, one.is_kept) == ("floor", is_kept)
    assert f"in time ≥ {100 * share:g} % a window" in printed(records.log_of(*log), 200)


def test_requests_of_clients_are_expected_to_be_right_and_refused_ones_have_their_place() -> None:
    text = (GOLDEN / "clients.txt").read_text("utf-8")
    assert "134,000 offered · 3,280 refused" in text
    assert not re.search(r"\bright +goodput|missed", text)


def test_what_clients_said_of_answers_stands_beside_what_was_expected_of_them() -> None:
    log = json.loads(json.dumps(run_of(2, unlabelled, simulated=False)))
    for one in log:
        if one["kind"] == "window_finished":
            one["tenants"]["language"]["judged"] = [10, 7]
    found = records.log_of(*log)
    own = [window.tenants["language"] for window in report_of(found).windows]
    expected = sum(one.expected_goodput / one.requests.in_time for one in own) / len(own)
    said = rf"labels +language: 70\.0% right of {10 * len(own)} answers; expected {expected:.1%}, now in force \d+\.\d%"
    assert re.search(said, printed(found, 100))


def test_a_run_that_no_client_asked_anything_has_a_report() -> None:
    def none(*_: list[int]) -> dict[str, Any]:
        return unlabelled([0] * 20, [0] * 20, [0] * 20)

    assert "vision" in printed(records.log_of(*run_of(2, none, simulated=False)), 100)


def test_a_run_prints_what_its_report_prints_with_the_rival_that_it_simulated(call, write_config) -> None:
    code, out, _ = call("run", write_config({"windows": 1}), "--out", "run", "--against", "static")
    assert (code, "· best fixed layout " in out) == (0, True)
    assert call("report", "run")[1] == out
    assert "Won against static" in (full := call("report", "run", "--full")[1]) or "Lost against static" in full
    assert "The layout over time" in full


@pytest.fixture
def run(tmp_path: Path) -> Path:
    records.write(tmp_path / "run", *run_of(2))
    return tmp_path / "run"


@pytest.mark.parametrize("given", ["--full --json", "--by-window --json", "--full --assumed", "--by-window --assumed"])
def test_one_way_to_tell_a_run_is_asked_for_at_a_time(run: Path, call: Any, given: str) -> None:
    code, out, err = call("report", run, *given.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: Invalid value: {given.replace(' ', ' and ')}: give one of them")


def test_a_table_of_windows_and_what_was_assumed_can_be_had_alone(run: Path, call: Any) -> None:
    code, windows, _ = call("report", run, "--by-window")
    assert (code, len(re.findall(r"^ *\d? *(?:vision|language) ", windows, re.MULTILINE))) == (0, 8)
    assert call("report", run, "--assumed")[:2] == (
        *(0, "retraining time: vision 12 s; MIGRator\nswitch_s: 1.08 s; driver times\n"),
    )
    code, out, _ = call("report", run, "--by-window", "--keep", "goodput>=0.9")
    assert (code, out.startswith("✗ goodput>=0.9 missed: 54.0 %")) == (5, True)
