"""``migrator plan``: every option reaches what it is for, and what cannot be is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.plan import MigPlan, Status
from planner.problem import Problem
from planner.solve import solve
from tests.migrator.conftest import PAPER_PROBLEM as PAPER
from tests.migrator.log import records

Call = Callable[..., tuple[int, str, str]]

PHYSICAL = {**PAPER, "reconfiguration": "physical", "switch_s": 0.0}


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return written(tmp_path / "problem.json", PAPER)


def floored(folder: Path, model: dict[str, Any], floor: object) -> Path:
    tenant = {**model["tenants"][0], "min_slo_attainment": floor}
    return written(folder / "floored.json", {**model, "tenants": [tenant]})


@pytest.mark.parametrize("model", [PAPER, PHYSICAL], ids=["paper", "physical"])
def test_a_floor_per_step_out_of_reach_ends_with_3_and_names_tenant_step_and_share(
    tmp_path: Path, call: Call, model: dict[str, Any]
) -> None:
    many = {**model, "tenants": [{**model["tenants"][0], "arrivals_rps": [200, 200, 630, 200, 200, 200]}]}
    code, _, err = call("plan", "--problem", floored(tmp_path, many, {"share": 0.9, "per": "step"}))
    assert code == 3
    # Seven 1g serve 315 of 630.
    assert "tenant resnet50: " in err
    assert "90 % of its requests in time in step 2; its best reachable share is 50 %" in err


def test_a_floor_per_window_out_of_reach_ends_with_3_and_names_tenant_and_share(tmp_path: Path, call: Call) -> None:
    many = {**PHYSICAL, "tenants": [{**PHYSICAL["tenants"][0], "arrivals_rps": [630] * 6, "retraining_s": {}}]}
    code, _, err = call("plan", "--problem", floored(tmp_path, many, 0.9))
    assert code == 3
    assert "tenant resnet50: no plan answers 90 % of its requests in time over the window; its best reachable" in err
    assert "share is 50 %" in err


def test_a_floor_that_was_not_met_but_not_disproven_says_so(tmp_path: Path, call: Call) -> None:
    # paper-ilp knows no floors; its plan serves what is worth most.
    slow = {**PAPER, "tenants": [{**PAPER["tenants"][0], "overhead_s": 5.0}]}
    path = floored(tmp_path, slow, {"share": 1.0, "per": "step"})
    code, out, err = call("plan", "--problem", path, "--engine", "paper-ilp", "--json")
    assert (code, json.loads(out)["status"]) == (3, "timeout")
    assert "which does not prove that there is none; the nearest: resnet50: " in err


def test_a_floor_out_of_reach_may_be_missed_as_in_a_run(tmp_path: Path, call: Call) -> None:
    many = {**PHYSICAL, "tenants": [{**PHYSICAL["tenants"][0], "arrivals_rps": [630] * 6, "retraining_s": {}}]}
    path, plan = floored(tmp_path, many, 0.9), tmp_path / "plan.json"
    code, out, _ = call("plan", "--problem", path, "--may-miss-floors", "--out", plan)
    told = " ".join(out.split())
    assert code == 0
    assert "misses resnet50: 50 % in time of 90 % asked for; pays 0.00 points of goodput for floors, and no" in told
    assert "breaks" not in told
    written_plan = json.loads(plan.read_text("utf-8"))
    assert (written_plan["missed"], written_plan["floor_costs"]) == (["resnet50: 50 % in time of 90 % asked for"], 0.0)
    assert call("verify", plan, path)[0] == 2


def test_a_config_s_window_may_miss_floors_as_in_a_run(call: Call, write_config) -> None:
    config = write_config({"tenants.0.arrivals.rate_rps": 30_000, "tenants.0.min_slo_attainment": 0.9, "windows": 1})
    assert call("plan", config, "--no-floors", "--json")[0] == 3
    code, out, _ = call("plan", config, "--no-floors", "--json", "--may-miss-floors")
    assert (code, bool(json.loads(out)["missed"])) == (0, True)


def test_json_tells_promised_shares(tmp_path: Path, call: Call) -> None:
    _, out, _ = call("plan", "--problem", floored(tmp_path, PHYSICAL, 0.9), "--json")
    found = json.loads(out)["in_time"]["resnet50"]
    assert found["floor"] == {"share": 0.9, "per": "window"}
    assert 0.9 <= found["promised"] <= 1


def test_a_plan_without_floors_has_no_promised_shares(problem: Path, call: Call) -> None:
    assert "in_time" not in json.loads(call("plan", "--problem", problem, "--json")[1])


def test_a_plan_under_a_floor_can_be_verified_as_printed(tmp_path: Path, call: Call) -> None:
    path = floored(tmp_path, PHYSICAL, 0.95)
    plan = tmp_path / "plan.json"
    plan.write_text(call("plan", "--problem", path, "--json")[1], "utf-8")
    assert call("verify", plan, path)[0] == 0


def test_an_explanation_says_that_other_layouts_may_miss_a_floor(tmp_path: Path, call: Call) -> None:
    _, out, _ = call("plan", "--problem", floored(tmp_path, PHYSICAL, 0.9), "--explain", 1)
    assert "may miss a floor of in-time answers" in out


def test_verify_refuses_a_plan_that_misses_a_floor(tmp_path: Path, call: Call) -> None:
    busy = {**PAPER, "tenants": [{**PAPER["tenants"][0], "arrivals_rps": [630] * 6}]}
    plain, plan = written(tmp_path / "plain.json", busy), tmp_path / "plan.json"
    assert call("plan", "--problem", plain, "--out", plan)[0] == 0
    code, out, _ = call("verify", plan, floored(tmp_path, busy, 0.9))
    assert code == 2
    assert "min_slo_attainment: resnet50: " in out


@pytest.fixture
def physical(tmp_path: Path) -> Path:
    return written(tmp_path / "physical.json", PHYSICAL)


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("engine", ["static", "greedy"])
def test_both_models_have_the_floors_as_engines(call: Call, problem: Path, physical: Path, engine: str) -> None:
    for path in (problem, physical):
        code, out, _ = call("plan", "--problem", path, "--engine", engine, "--json")
        assert (code, json.loads(out)["engine"]) == (0, engine)


def test_the_plan_is_measured_against_the_floors(call: Call, problem: Path) -> None:
    out = call("plan", "--problem", problem)[1]
    assert "static" in out
    assert "greedy" in out
    assert "greedy" not in call("plan", "--problem", problem, "--no-floors")[1]


def test_a_floor_is_not_measured_against_itself(call: Call, problem: Path) -> None:
    assert "static" not in call("plan", "--problem", problem, "--engine", "static")[1].split("\n", 1)[1]


def test_the_chart_tells_slices_only_where_there_are_placements(call: Call, problem: Path, physical: Path) -> None:
    assert "slice 0" in call("plan", "--problem", physical)[1]
    assert "slice 0" not in call("plan", "--problem", problem)[1]


@pytest.mark.parametrize("model", ["paper", "physical"])
def test_a_step_is_explained_in_words_and_in_json(call: Call, tmp_path: Path, model: str) -> None:
    path = written(tmp_path / "p.json", {**PHYSICAL, "reconfiguration": model})
    assert "Step 3" in call("plan", "--problem", path, "--explain", 3)[1]
    explained = json.loads(call("plan", "--problem", path, "--explain", 3, "--json")[1])["explain"]
    assert explained["step"] == 3
    assert explained["reason"].startswith("The plan")


def test_verify_reads_json_with_an_explanation(call: Call, tmp_path: Path, problem: Path) -> None:
    (tmp_path / "plan.json").write_text(call("plan", "--problem", problem, "--explain", 3, "--json")[1])
    assert call("verify", tmp_path / "plan.json", problem)[0] == 0


def test_an_explanation_is_no_part_of_the_file_written(call: Call, tmp_path: Path, problem: Path) -> None:
    call("plan", "--problem", problem, "--explain", 3, "--out", tmp_path / "plan.json")
    assert "explain" not in json.loads((tmp_path / "plan.json").read_text())


@pytest.mark.parametrize(
    ("out", "message"),
    [("", "is a folder"), ("none/plan.json", "there is no folder"), ("problem.json", "is the same file as")],
)
def test_a_file_that_cannot_be_written_is_refused_before_solving(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Path, out: str, message: str
) -> None:
    monkeypatch.setattr("migrator.commands.plan.solve", None)
    code, _, err = call("plan", "--problem", problem, "--out", tmp_path / out)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: --out {tmp_path / out}: {message}")
    assert json.loads(problem.read_text()) == PAPER


def test_an_engine_that_finds_nothing_is_named(call: Call, monkeypatch: pytest.MonkeyPatch, problem: Path) -> None:
    def nothing(problem: Problem, *_: object, **__: object) -> MigPlan:
        return replace(solve(problem, "static"), status=Status.TIMEOUT, objective=None, schedules=())

    monkeypatch.setattr("migrator.commands.plan.solve", nothing)
    code, out, err = call("plan", "--problem", problem, "--engine", "static")
    assert (code, out.split()[0]) == (3, "timeout")
    assert err == f"error: {problem}: engine static found no plan; that does not prove that there is none\n"


def test_options_reach_the_engine(call: Call, problem: Path) -> None:
    arguments = ["--problem", problem, "--engine", "paper-ilp", "--solver", "cbc", "--json"]
    code, out, err = call("plan", *arguments)
    assert (code, json.loads(out)["status"]) == (0, "optimal")
    assert "binaries of who holds which instance here; a minute proves plans up to about 1,000" in err


def test_a_plan_file_is_a_start(call: Call, tmp_path: Path, physical: Path) -> None:
    plan = tmp_path / "plan.json"
    best = json.loads(call("plan", "--problem", physical, "--json", "--out", plan)[1])["objective"]
    again = ["--problem", physical, "--warm-start", plan, "--time-limit", "0", "--json"]
    assert json.loads(call("plan", *again)[1])["objective"] == pytest.approx(best)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The log of a run with one change: after it resnet50's new instance was ready in 3 s."""
    started = records.started("one", 11.0, "1g.10gb@0", "resnet50")
    change = records.change(0, 10.0, [started])
    records.write(
        tmp_path / "run", records.header(60.0, "resnet50"), change, records.ready(0, "one", 13.0, tenant="resnet50")
    )
    return tmp_path / "run"


def test_overheads_come_from_a_run_and_say_so(call: Call, problem: Path, run_folder: Path) -> None:
    arguments = ["--problem", problem, "--engine", "greedy", "--overhead-from", run_folder]
    assert f"resnet50 3.00 s, measured in {run_folder} (simulated)" in call("plan", *arguments)[1]
    source = json.loads(call("plan", *arguments, "--json")[1])["overhead_from"]
    assert source == {"run": str(run_folder), "simulated": True, "overhead_s": {"resnet50": 3.0}}


def test_measured_overheads_are_planned_with(call: Call, problem: Path, tmp_path: Path, run_folder: Path) -> None:
    slow = written(tmp_path / "slow.json", {**PAPER, "tenants": [{**PAPER["tenants"][0], "overhead_s": 3.0}]})
    with_run = call("plan", "--problem", problem, "--overhead-from", run_folder, "--json")[1]
    assert json.loads(with_run)["objective"] == json.loads(call("plan", "--problem", slow, "--json")[1])["objective"]


def test_measured_overheads_of_a_physical_problem_are_refused(call: Call, physical: Path, run_folder: Path) -> None:
    code, _, err = call("plan", "--problem", physical, "--overhead-from", run_folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "for paper problems" in err


BAD = [
    (["--explain", "6"], "steps 0 to 5"),
    (["--engine", "physical"], "this one is paper"),
    (["--engine", "nosuch"], "unknown engine 'nosuch'"),
    (["--engine", "greedy", "--solver", "cbc"], "does not take solver"),
    (["--engine", "exact", "--configs", "all"], "does not take configs"),
    (["--engine", "paper-ilp", "--solver", "nosuch"], "nosuch"),
    (["--engine", ""], "unknown engine ''"),
    (["--engine", "paper-ilp", "--solver", ""], "unknown solver ''; known: highs"),
    (["--engine", "paper-ilp", "--configs", ""], "unknown configs ''; known: paper12"),
    (["--engine", "paper-ilp", "--configs", "nosuch"], "nosuch"),
    (["--warm-start", "nosuch.json"], "nosuch.json"),
    (["--overhead-from", "nosuch"], "nosuch"),
    (["--window", "0"], "--window"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_wrong_input_is_one_line_and_exit_code_2(call: Call, problem: Path, arguments: list[str], message: str) -> None:
    code, out, err = call("plan", "--problem", problem, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_plan_of_the_other_model_is_no_start(call: Call, tmp_path: Path, problem: Path, physical: Path) -> None:
    call("plan", "--problem", physical, "--out", tmp_path / "plan.json")
    code, _, err = call("plan", "--problem", problem, "--warm-start", tmp_path / "plan.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "reconfiguration" in err


OTHER_TIMES = {"retraining_s": {"1g.5gb": 3.5}}


@pytest.mark.parametrize("model", ["paper", "physical"])
def test_a_start_that_cannot_be_used_is_told(call: Call, tmp_path: Path, model: str) -> None:
    one = {**PHYSICAL, "reconfiguration": model}
    first, plan = written(tmp_path / "first.json", one), tmp_path / "plan.json"
    other = written(tmp_path / "other.json", {**one, "tenants": [{**PAPER["tenants"][0], **OTHER_TIMES}]})
    call("plan", "--problem", first, "--out", plan)
    assert call("plan", "--problem", first, "--warm-start", plan, "--json")[2].count("warning") == 0
    code, out, err = call("plan", "--problem", other, "--warm-start", plan, "--json")
    assert (code, json.loads(out)["status"], err.count("warning:")) == (0, "optimal", 1)
    assert f"warning: --warm-start {plan} is not used: " in err


def test_an_infeasible_problem_has_nothing_to_explain(call: Call, tmp_path: Path) -> None:
    tenants = [{**PAPER["tenants"][0], "retraining_s": {"1g.5gb": 60.0}}]
    path = written(tmp_path / "p.json", {**PAPER, "tenants": tenants})
    code, out, _ = call("plan", "--problem", path, "--explain", 3, "--json")
    assert code == 3
    assert "explain" not in json.loads(out)


def test_a_configs_window_is_solved_by_the_engine_asked_for(call: Call, write_config: Callable[..., Path]) -> None:
    code, out, _ = call("plan", write_config(), "--window", 1, "--engine", "static", "--json")
    assert (code, json.loads(out)["engine"]) == (0, "static")


BAD_WITH_CONFIG = [
    (["--engine", "exact"], "this one is physical"),
    (["--explain", "60"], "steps 0 to 59"),
    (["--warm-start", "plan.json"], "--warm-start"),
    (["--overhead-from", "runs/one"], "--overhead-from"),
    (["--problem", "x.json"], "either"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_WITH_CONFIG, ids=[message for _, message in BAD_WITH_CONFIG])
def test_wrong_input_with_a_config_is_told_too(call: Call, write_config, arguments: list[str], message: str) -> None:
    code, out, err = call("plan", write_config(), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_an_interrupt_ends_with_130(call: Call, problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("migrator.commands.plan.solve", interrupted)
    code, out, _ = call("plan", "--problem", problem)
    assert (code, out) == (130, "")


def test_the_engines_of_each_model_are_named_by_help(call: Call) -> None:
    out = " ".join(call("plan", "--help")[1].split())
    assert "physical: physical" in out.replace("│ │ ", "")


def test_a_name_that_a_terminal_would_act_on_is_refused(call: Call, tmp_path: Path) -> None:
    path = written(tmp_path / "p.json", {**PAPER, "tenants": [{**PAPER["tenants"][0], "name": "a\x1b[31m"}]})
    assert call("plan", "--problem", path) == (
        2,
        "",
        f"error: {path}: tenants[0].name is 'a\\x1b[31m'; printable text is needed\n",
    )


def test_verify_reads_json_with_what_was_assumed(call: Call, tmp_path: Path, physical: Path) -> None:
    document = json.loads(physical.read_text())
    physical.write_text(json.dumps({key: value for key, value in document.items() if key != "switch_s"}))
    out = call("plan", "--problem", physical, "--json")[1]
    assert [item["what"] for item in json.loads(out)["assumed"]] == ["switch_s"]
    (tmp_path / "plan.json").write_text(out)
    assert call("verify", tmp_path / "plan.json", physical)[0] == 0


@pytest.mark.parametrize(("window", "step"), [(0, 0), (1, 4)])
def test_a_plan_says_when_in_its_window_it_begins(call: Call, write_config, window: int, step: int) -> None:
    config = write_config({"estimates.delay_s": 4, "window_s": 30, "tenants.0.retraining.samples": 300})
    asked = ("plan", config, "--window", window, "--no-floors")
    assert ("4 s into the window; steps count from there" in call(*asked)[1]) is (step > 0)
    assert json.loads(call(*asked, "--json")[1])["plan_from_step"] == step


def test_the_problem_of_a_configs_window_can_be_written_and_verified(call: Call, tmp_path: Path, write_config) -> None:
    plan, problem = tmp_path / "plan.json", tmp_path / "problem.json"
    asked = ("--window", 1, "--out", plan, "--problem-out", problem)
    assert call("plan", write_config(), *asked)[0] == 0
    assert call("verify", plan, problem)[0] == 0


def test_a_written_problem_has_the_same_plan(call: Call, tmp_path: Path, write_config) -> None:
    plan, problem = tmp_path / "plan.json", tmp_path / "problem.json"
    call("plan", write_config(), "--engine", "greedy", "--out", plan, "--problem-out", problem)
    again = json.loads(call("plan", "--problem", problem, "--engine", "greedy", "--json")[1])
    assert again["lifetimes"] == json.loads(plan.read_text())["lifetimes"]


def test_plan_and_problem_are_not_written_to_one_file(call: Call, tmp_path: Path, problem: Path) -> None:
    path = tmp_path / "both.json"
    code, _, err = call("plan", "--problem", problem, "--out", path, "--problem-out", path)
    assert (code, "--problem-out" in err, path.exists()) == (2, True, False)


def test_a_problems_plan_is_emitted_in_the_reports_place(tmp_path: Path, call: Call) -> None:
    path = written(tmp_path / "problem.json", PHYSICAL)
    code, out, _ = call("plan", "--problem", path, "--emit", "nvidia-smi", "--out", "plan.json")
    assert (code, Path("plan.json").exists()) == (0, True)
    assert out.startswith("#!/bin/sh\n# problem.json: its layouts on NVIDIA A100 40GB, by seconds of the window.\n")


def test_a_windows_plan_is_emitted_by_its_seconds(write_config, call: Call) -> None:
    config = write_config({"estimates.delay_s": 6})  # estimates are waited for where planning takes no time
    code, out, _ = call("plan", config, "--window", 1, "--emit", "mig-parted")
    assert code == 0
    assert out.startswith("# config.yaml, window 1: a configuration for each layout")
    assert next(iter(yaml.safe_load(out)["mig-configs"])) == "second-6"


@pytest.mark.parametrize("form", ["nvidia-smi", "mig-parted"])
def test_a_paper_plan_cannot_be_emitted(problem: Path, call: Call, form: str) -> None:
    code, out, err = call("plan", "--problem", problem, "--emit", form)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "problem.json is a paper problem, whose plans have no placements" in err


def test_without_a_plan_nothing_is_emitted(tmp_path: Path, call: Call) -> None:
    many = {**PHYSICAL, "tenants": [{**PHYSICAL["tenants"][0], "arrivals_rps": [630] * 6, "retraining_s": {}}]}
    code, out, _ = call("plan", "--problem", floored(tmp_path, many, 0.9), "--emit", "nvidia-smi")
    assert (code, out) == (3, "")


@pytest.mark.parametrize("other", [("--json",), ("--explain", "1")])
def test_what_is_emitted_takes_the_reports_place(problem: Path, call: Call, other: tuple[str, ...]) -> None:
    code, out, err = call("plan", "--problem", problem, "--emit", "nvidia-smi", *other)
    assert (code, out, err.count("\n")) == (2, "", 1)
