from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from executor.catalogue import gpu_model, gpu_model_names
from tests.migrator.conftest import PAPER_PROBLEM
from tests.seeds import daily

CONFIG = "the small config"


def write_problem(folder: Path, **changes: object) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps({**PAPER_PROBLEM, **changes}))
    return path


def only_tenant(**changes: object) -> list[dict[str, object]]:
    return [{**PAPER_PROBLEM["tenants"][0], **changes}]


def test_importing_the_command_line_brings_in_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'pulp', 'plotly', 'torch', 'highspy', 'pandas'}"
    code = f"import sys, migrator.cli; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version_is_printed(call) -> None:
    code, out, _ = call("--version")
    assert (code, out.split()[0]) == (0, "migrator")


@pytest.mark.parametrize(
    "command", [[], ["run"], ["report"], ["plan"], ["verify"], ["gpu"], ["gpu", "models"], ["gpu", "layouts"]]
)
def test_every_command_has_help_with_an_example(call, command: list[str]) -> None:
    code, out, _ = call(*command, "--help")
    assert code == 0
    assert "migrator" in out.split("Usage:")[1].split("Usage:")[-1]
    if command != ["gpu"]:
        assert "Example" in out or "Start with" in out


@pytest.mark.parametrize("command", [[], ["gpu"], ["-h"], ["gpu", "-h"], ["run", "-h"]])
def test_help_is_no_error(call, command: list[str]) -> None:
    code, out, err = call(*command)
    assert (code, err) == (0, "")
    assert "Usage" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["run"],
        ["run", "x.yaml", "--windows", "0"],
        ["run", "x.yaml", "--bogus"],
        ["plan"],
        ["gpu", "layouts"],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_models_are_listed_with_unknowns_marked(call) -> None:
    _, out, _ = call("gpu", "models")
    assert "b200-180gb" in out
    assert "?" in out


def test_models_can_be_named_in_any_case(call) -> None:
    _, out, _ = call("gpu", "models", "A100-80GB", "a30-24gb", "--json")
    assert [model["name"] for model in json.loads(out)["models"]] == ["a100-80gb", "a30-24gb"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_profile_names_are_never_cut(call, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("migrator.commands.gpu.catalogue.output", lambda: Console(file=sys.stdout, width=width))
    _, out, _ = call("gpu", "models")
    assert "…" not in out
    assert {name for model in gpu_model_names() for name in gpu_model(model).profile_names} <= set(out.split())


def test_models_as_json_hold_null_for_unknown(call) -> None:
    _, out, _ = call("gpu", "models", "--json")
    models = {model["name"]: model for model in json.loads(out)["models"]}
    assert models["b200-180gb"]["sm_total"] is None
    assert models["a100-80gb"]["profiles"][0]["starts"] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "n_layouts", "n_multisets"),
    [(["a100-40gb"], 19, 14), (["a30-24gb"], 5, 4), (["a100-40gb", "--all"], 298, 0)],
)
def test_layouts_are_counted(call, arguments: list[str], n_layouts: int, n_multisets: int) -> None:
    _, out, _ = call("gpu", "layouts", *arguments, "--json")
    answer = json.loads(out)
    assert len(answer["layouts"]) == n_layouts
    assert n_multisets in (0, answer["n_multisets"])


def test_layouts_table_names_every_placement(call) -> None:
    _, out, _ = call("gpu", "layouts", "a30-24gb")
    assert "1g.6gb@0 1g.6gb@1 2g.12gb@2" in out


@pytest.mark.parametrize(
    "engine",
    [
        "exact",
        "paper-ilp",
        pytest.param("paper-ilp --solver cbc --configs paper12", marks=pytest.mark.long),
        "greedy",
        "static",
    ],
)
def test_a_planned_problem_passes_verify(call, tmp_path: Path, engine: str) -> None:
    problem, plan_file = write_problem(tmp_path), tmp_path / "plan.json"
    code, out, _ = call("plan", "--problem", problem, "--engine", *engine.split(), "--json", "--out", plan_file)
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "plan.json").read_text())
    assert call("verify", tmp_path / "plan.json", problem)[0] == 0


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("paper-ilp --solver cplex", "unknown solver 'cplex'; known: highs, cbc, gurobi"),
        ("paper-ilp --configs paper14", "unknown configs 'paper14'; known: paper12, all"),
        ("greedy --solver cbc", "engine 'greedy' does not take solver"),
    ],
)
def test_an_engine_that_cannot_do_what_is_asked_is_told_in_one_line(call, tmp_path, engine: str, message: str) -> None:
    code, out, err = call("plan", "--problem", write_problem(tmp_path), "--engine", *engine.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_plan_is_shown_as_a_table(call, tmp_path: Path) -> None:
    code, out, _ = call("plan", "--problem", write_problem(tmp_path))
    assert code == 0
    assert "optimal" in out
    assert "retraining" in out
    assert "valid" in out


def test_an_altered_plan_fails_verify_naming_the_rule(call, tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    call("plan", "--problem", problem, "--json", "--out", tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["objective"] += 1
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, out, err = call("verify", tmp_path / "plan.json", problem)
    assert code == 2
    assert "rule 5" in out
    assert err.count("\n") == 1


def test_verify_as_json_lists_violations(call, tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    call("plan", "--problem", problem, "--json", "--out", tmp_path / "plan.json")
    _, out, _ = call("verify", tmp_path / "plan.json", problem, "--json")
    assert json.loads(out)["violations"] == []


def test_an_infeasible_problem_prints_its_json_and_ends_with_3(call, tmp_path: Path) -> None:
    path = write_problem(tmp_path, tenants=only_tenant(retraining_s={"1g.5gb": 60.0}))
    code, out, err = call("plan", "--problem", path, "--json")
    assert code == 3
    assert json.loads(out)["status"] == "infeasible"
    assert "resnet50" in err
    assert "rule 3" in err


@pytest.mark.parametrize("policy", ["migrator", "static"])
def test_a_run_whose_window_has_no_plan_ends_with_3_naming_it(call, write_config, policy: str) -> None:
    path = write_config({"window_s": 10, "tenants.0.retraining.samples": 10_000})
    code, _, err = call("run", path, "--policy", policy)
    assert (code, "error: window 0: tenant vision: its retraining takes " in err, "(rule 3)" in err) == (3, True, True)


def test_three_tenants_that_do_not_fit_end_with_3_naming_the_rule(call, tmp_path: Path) -> None:
    big = {"capability_rps": {"3g.20gb": 100}, "min_profile": "3g.20gb", "retraining_s": {}}
    tenants = [{**only_tenant(**big)[0], "name": name} for name in "abc"]
    code, _, err = call("plan", "--problem", write_problem(tmp_path, tenants=tenants))
    assert code == 3
    assert "rule 4" in err or "rule 1" in err


BAD_PROBLEMS = [
    ({"tenants": only_tenant(arrivals_rps=[1, 2])}, "n_steps is 6"),
    ({"tenants": only_tenant(arrivals_rps=[1, 2, 3, 4, 5, -6])}, "arrivals_rps"),
    ({"tenants": only_tenant(arrivals_rps=[1, 2, 3, 4, 5, float("nan")])}, "arrivals_rps"),
    ({"tenants": only_tenant(capability_rps={"9g.5gb": 4})}, "9g.5gb"),
    ({"tenants": only_tenant(capability_rps={"1g.5gb": 0})}, "capability_rps"),
    ({"tenants": only_tenant() * 2}, "resnet50"),
    ({"tenants": [{**only_tenant()[0], "name": str(number)} for number in range(7)]}, "7"),
    ({"gpu": "a100"}, "a100-40gb"),
    ({"n_stepps": 3}, "n_steps"),
    ({"step_s": 0}, "step_s"),
    ({"schema": 2}, "schema"),
    ({"reconfiguration": "magic"}, "paper"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_PROBLEMS, ids=[str(n) for n in range(len(BAD_PROBLEMS))])
def test_bad_problems_are_one_line_and_exit_code_2(call, tmp_path: Path, changes, message: str) -> None:
    path = write_problem(tmp_path, **changes)
    code, out, err = call("plan", "--problem", path, "--json", "--out", tmp_path / "plan.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert "problem.json" in err
    assert not (tmp_path / "plan.json").exists()


BAD_RUNS = [
    ({"unknown": 1}, "unknown key 'unknown'"),
    ({"tenants.0.model": "resnet5"}, "did you mean resnet50?"),
    ({"gpu.model": "h100-80gb"}, "no service profiles for the GPU model 'h100-80gb'"),
    ({"tenants.0.min_profile": "9g.90gb"}, "9g.90gb"),
    ({"tenants.0.slo_ms": 1}, "SLO of 1 ms"),
    ({"tenants.0.batch": 3}, "fits no instance"),
    ({"tenants.0.arrivals.rate_rps": -3}, "tenants.vision.arrivals.rate_rps"),
    ({"tenants.0.arrivals.rate_rps": float("nan")}, "tenants.vision.arrivals.rate_rps"),
    ({"tenants.1.arrivals.trace": "nosuch.csv"}, "nosuch.csv"),
    ({"tenants.1.arrivals.trace": "azure-con"}, "azure-con"),
    ({"tenants.1.arrivals.offset_s": 3490}, "3502 s"),
    ({"tenants.1.arrivals.offset_s": 10}, "forecast.history_s"),
    ({"tenants.1.arrivals.scale.method": "thin"}, "thin needs"),
    ({"tenants.1.name": "vision"}, "two tenants are called 'vision'"),
    ({"profiles": "nosuch.csv"}, "nosuch.csv"),
    ({"forecast.history_s": 1}, "forecast.history_s"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_RUNS, ids=[message for _, message in BAD_RUNS])
def test_bad_runs_are_one_line_exit_code_2_and_write_nothing(call, write_config, changes, message: str) -> None:
    code, out, err = call("run", write_config(changes))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [("second,count\n0,five\n", "five"), ("second,count\n0,-1\n", "-1"), ("second,count\n0,5\n", "need a trace of")],
)
def test_bad_traces_are_told(call, write_config, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "trace.csv").write_text(content)
    code, _, err = call("run", write_config({"tenants.1.arrivals.trace": "trace.csv"}))
    assert (code, err.count("\n")) == (2, 1)
    assert "trace.csv" in err
    assert message in err
    assert list(Path.cwd().iterdir()) == []


def test_an_existing_folder_is_refused(call, write_config, tmp_path: Path) -> None:
    code, _, err = call("run", write_config(), "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "exists already" in err


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "€" * 100], ids=["ascii", "two bytes each", "three"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("run", CONFIG, "--out", "{}"),
        ("run", CONFIG, "--out", "new/{}"),
        ("run", CONFIG, "--gpu", "nvml", "--state", "new/{}"),
        ("run", CONFIG, "--policy", "{}.py"),
        ("run", "--resume", "{}"),
        ("plan", CONFIG, "--no-floors", "--out", "{}"),
        ("compare", CONFIG, "--plot", "{}"),
        ("init", "quickstart", "new/{}"),
        ("gpu", "apply", "--state", "new/{}", "1g.10gb"),
        ("forecast", "fit", "nhits", "azure-conv", "--out", "new/{}"),
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_refused_and_nothing_is_written(
    call, write_config, name: str, arguments: tuple[str, ...]
) -> None:
    config = str(write_config())
    code, out, err = call(*(config if one == CONFIG else one.format(name) for one in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "255" in err
    assert list(Path.cwd().iterdir()) == []


def test_a_name_as_long_as_a_file_s_may_be_is_a_run_s(call, write_config) -> None:
    assert call("run", write_config({"windows": 1}), "--out", "é" * 127 + "x")[0] == 0


def test_a_folder_that_is_no_run_is_refused_by_report(call, tmp_path: Path) -> None:
    code, out, err = call("report", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_window_that_the_config_lacks_is_refused(call, write_config) -> None:
    code, _, err = call("plan", write_config(), "--window", 2)
    assert code == 2
    assert "windows 0 to 1" in err


def test_a_window_of_a_problem_file_is_refused(call, tmp_path: Path) -> None:
    code, _, err = call("plan", "--problem", write_problem(tmp_path), "--window", 3)
    assert code == 2
    assert "--window" in err


def test_no_profiles_are_refused(call) -> None:
    assert call("gpu", "layouts", "a100-40gb", "--profiles", "")[0] == 2


@pytest.mark.parametrize(
    "command", daily(["gpu layouts a100-40gb --all", "gpu models --json", "--help"], ["gpu models --json"])
)
@pytest.mark.parametrize("reader", ["| true", "| head -1", ">&-"])
def test_a_reader_that_leaves_is_no_error(command: str, reader: str) -> None:
    command = f"{sys.executable} -m migrator {command} {reader}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_interrupt_is_told(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("migrator.commands.gpu.catalogue.gpu_model_names", interrupted)
    assert call("gpu", "models") == (130, "", "error: interrupted\n")


def test_an_interrupted_run_says_where_its_log_is(call, write_config, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("migrator.views.progress.RunView.settled", interrupted)
    code, out, err = call("run", write_config())
    assert (code, out) == (130, "")
    assert "warning: the log up to here is in runs/small; " in err
    assert "The run was interrupted" in call("report", "runs/small")[1]


def test_names_are_matched_without_case(call, write_config) -> None:
    changes = {
        "gpu.model": "A100-80GB",
        "tenants.0.model": "ResNet50",
        "tenants.0.min_profile": "1G.10GB",
        "windows": 1,
    }
    assert call("run", write_config(changes), "--policy", "Equal", "--out", "loud")[0] == 0
    changes = {"tenants.0.min_profile": "1g.10gb", "windows": 1}
    assert call("run", write_config(changes), "--policy", "equal", "--out", "quiet")[0] == 0
    assert call("report", "loud", "--json")[1] == call("report", "quiet", "--json")[1]


def test_a_run_s_files_name_no_folder_of_this_machine(call, write_config, tmp_path: Path) -> None:
    rows = "\n".join(f"{second},20" for second in range(400))
    (tmp_path / "my.csv").write_text(f"second,count\n{rows}\n")
    changes = {"windows": 1, "tenants.1.arrivals": {"trace": "my.csv", "scale": {"factor": 1.0}}}
    assert call("run", write_config(changes))[0] == 0
    folder = tmp_path / "cwd" / "runs" / "small"
    assert not [file.name for file in folder.iterdir() if str(tmp_path) in file.read_text()]
    assert "../../../my.csv" in (folder / "config.yaml").read_text()
    assert call("plan", folder / "config.yaml", "--no-floors")[0] == 0


def test_a_missing_file_is_bad_input(call) -> None:
    assert call("plan", "--problem", "nosuch.json")[0] == 2
    assert call("run", "nosuch.yaml")[0] == 2
    assert call("verify", "nosuch.json", "nosuch.json")[0] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize("command", ["gpu models", "gpu models --json", "--help"])
def test_a_full_disk_behind_standard_output_is_told_and_ends_with_1(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        command_line = [sys.executable, "-m", "migrator", *command.split()]
        ended = subprocess.run(command_line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "error: standard output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_behind_standard_error_keeps_the_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([sys.executable, "-m", "migrator", "run", "nosuch.yaml"], stderr=full, check=False)
    assert ended.returncode == 2


@pytest.mark.parametrize("option", ["--out"])
def test_a_full_disk_behind_an_output_file_ends_with_1_and_its_name(call, tmp_path: Path, option: str) -> None:
    code, out, err = call("plan", "--problem", write_problem(tmp_path), option, "/dev/full")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == f"error: {option} /dev/full: cannot be written: No space left on device"


def test_ascii_terminals_get_like_characters(tmp_path: Path) -> None:
    plan = ["plan", "--problem", str(write_problem(tmp_path, tenants=only_tenant(name="Müller–1")))]
    ended = subprocess.run(
        [sys.executable, "-m", "migrator", *plan],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert ended.returncode == 0
    assert "Muller-1" in ended.stdout.decode("ascii")


def test_signals_are_as_before_when_the_command_line_has_ended(call) -> None:
    before = signal.getsignal(signal.SIGTERM)
    call("gpu", "models")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("command", ["run", "plan", "whatif", "compare"])
def test_a_doubtful_service_profile_is_warned_of(call, write_config, command: str) -> None:
    path = write_config({"windows": 1, "profiles": "mine.csv"})
    models, names = ("resnet50", "bert-large"), ("1g.10gb", "2g.20gb", "7g.80gb")
    rows = [f"me,a100-80gb,{model},{name},1,1,10,105" for model in models for name in names]
    header = "source,gpu,model,profile,batch,processes,latency_ms,throughput_rps"
    (path.parent / "mine.csv").write_text("\n".join([header, *rows]))
    more = {"whatif": ("--vary", "slo_ms=x1"), "compare": ("--policies", "equal")}.get(command, ())
    code, _, told = call(command, path, *more)
    assert code == 0
    assert "warning: " in told
    assert "mine.csv line 2: throughput_rps is 105, 1.05 times the 100 a second" in told
