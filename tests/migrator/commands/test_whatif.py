"""``migrator whatif`` through the command line."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from executor.extras import install

SHORT = {"window_s": 30}
GRID = ["--vary", "load=x2,x1", "--vary", "slo_ms=x1,0.1"]


def without_times(results: dict[str, Any]) -> dict[str, Any]:
    for result in results["results"]:
        del result["solve_s"]
    return results


def test_rows_stand_in_the_grids_order_however_many_processes_planned_them(call, write_config, tmp_path: Path) -> None:
    config, out = write_config(SHORT), tmp_path / "results.json"
    code, printed, err = call("whatif", config, *GRID, "--jobs", 2, "--json", "--out", out)
    assert code == 0
    assert err.startswith("planning 4 points in 2 processes\nvision: poisson 60/s; ")
    two = json.loads(printed)
    assert two == json.loads(out.read_text())
    assert [tuple(result["values"].values()) for result in two["results"]] == [
        ("x2", "x1"),
        ("x2", 0.1),
        ("x1", "x1"),
        ("x1", 0.1),
    ]
    assert [result["status"] == "infeasible" for result in two["results"]] == [False, True, False, True]
    one = json.loads(call("whatif", config, *GRID, "--jobs", 1, "--json")[1])
    assert without_times(one) == without_times(two)


@pytest.mark.usefixtures("in_this_process")
def test_a_table_a_csv_and_a_plot_are_made_of_the_same_results(call, write_config, tmp_path: Path) -> None:
    files = ["--out", tmp_path / "grid.csv", "--plot", tmp_path / "grid.html"]
    code, printed, _ = call("whatif", write_config(SHORT), "--vary", "engine=greedy", *files, "--known-arrivals")
    assert code == 0
    (row,) = csv.DictReader(io.StringIO((tmp_path / "grid.csv").read_text()))
    assert f"{float(row['goodput_pct']):.2f}" in printed
    assert "known (hindsight)" in printed
    assert "nothing was run" in printed
    page = (tmp_path / "grid.html").read_text()
    assert "known (hindsight)" in page
    assert f"{float(row['goodput_pct']):.2f} %" in page


@pytest.mark.usefixtures("in_this_process")
def test_a_grid_without_any_plan_is_shown_and_ends_with_3(call, write_config) -> None:
    code, printed, err = call("whatif", write_config(SHORT), "--vary", "slo_ms=0.1,0.2")
    assert code == 3
    assert printed.count("infeasible") == 4  # two rows, two reasons
    assert "no point of the grid has a plan; at slo_ms=0.1: " in err


POOLED = ["--set", "sharing.pools=[[vision, language]]"]

BAD = [
    ([], "--vary KEY=V1,V2 is missing"),
    (["--vary", "load=fast"], "--vary load=fast: a load > 0"),
    (["--vary", "tenants=7"], "1 to 2 are allowed"),
    (["--vary", "step_s=7"], "with step_s=7: window_s is 30"),
    (["--vary", "gpu=a100-80gb,h100-80gb"], "config.yaml with gpu=h100-80gb: tenants.vision: "),
    (["--vary", "load=x1", "--out", "results.txt"], "--out results.txt: a name that ends in .json or .csv"),
    (["--vary", "load=x1", "--plot", "nosuch/grid.html"], "there is no folder nosuch"),
    (["--vary", "load=x1", "--plot", "."], "--plot .: is a folder"),
    (["--vary", "load=x1", "--out", "a.json", "--plot", "a.json"], "--plot a.json: is the same file as a.json"),
    (["--vary", "load=x1", "--jobs", "0"], "--jobs"),
    (
        ["--vary", "model=physical,paper", *POOLED],
        "with model=paper: sharing.pools lists pools, and the paper",
    ),
    (
        ["--vary", "engine=physical,paper-ilp", *POOLED],
        "with engine=paper-ilp: sharing.pools lists pools, and",
    ),
]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_what_is_wrong_is_one_line_before_anything_is_planned(
    call, write_config, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call("whatif", write_config(SHORT), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert "planning" not in err


def test_without_plotly_a_plot_is_refused_naming_the_extra(call, write_config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, out, err = call("whatif", write_config(SHORT), "--vary", "load=x1", "--plot", "grid.html")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert install("plot") in err


def test_help_names_every_key_with_an_example(call) -> None:
    from migrator.whatif.grid import _KEYS

    code, out, _ = call("whatif", "--help")
    assert code == 0
    assert "Example" in out
    words = {word.strip("│:,.;") for word in out.split()}
    assert set(_KEYS) <= words


LOADED = {
    **SHORT,
    "load": 0.3,
    "planner.max_schedules": 2000,
    "tenants.0.arrivals": {"trace": "azure-conv", "offset_s": 100},
    "tenants.1.arrivals": {"trace": "azure-conv", "offset_s": 700},
}


@pytest.mark.usefixtures("in_this_process")
def test_a_search_prints_both_ends_and_what_they_stand_on(call, write_config) -> None:
    asked = ["--find", "max:load=0.2..2.4", "--keep", "goodput>=0.6", "--plans-only"]
    code, out, err = call("whatif", write_config(LOADED), *asked, "--jobs", 1)
    assert (code, err.splitlines()[0]) == (0, "planning 18 points in one process")
    assert "simulated:" not in err
    told = " ".join(out.split())
    assert "Plans promise goodput>=0.6 up to load " in told
    assert "the smallest where they do not: " in told
    assert "planned, nothing was simulated" in told
    assert "holds: a plan was found that promises it." in told


@pytest.mark.usefixtures("in_this_process")
def test_a_search_as_json_has_a_verdict_for_every_value(call, write_config) -> None:
    asked = ["--find", "max:load=0.2..2.4", "--keep", "goodput>=0.6", "--keep", "slo_attainment:vision>=10%"]
    found = json.loads(call("whatif", write_config(LOADED), *asked, "--plans-only", "--jobs", 1, "--json")[1])
    assert (found["basis"], found["find"]["simulated"]) == ("planned", None)
    assert found["find"]["keep"] == ["goodput>=0.6", "slo_attainment:vision>=0.1"]
    verdicts = {result["values"]["load"]: result["verdict"] for result in found["results"]}
    assert verdicts[found["find"]["holds"]] == "holds"
    assert verdicts[found["find"]["breaks"]] in ("fails", "not shown")
    first = found["results"][0]["conditions"]
    assert {name: one["verdict"] for name, one in first.items()} == dict.fromkeys(found["find"]["keep"], "holds")
    assert first["goodput>=0.6"]["value"] == pytest.approx(found["results"][0]["goodput_pct"] / 100)


@pytest.mark.usefixtures("in_this_process")
def test_the_smallest_gpu_is_one_of_those_with_profiles(call, write_config) -> None:
    asked = ["--find", "min:gpu", "--keep", "goodput>=0.2", "--jobs", 1]
    code, out, _ = call("whatif", write_config(SHORT), *asked)
    told = " ".join(out.split())
    assert code == 0
    assert "The smallest GPU that keeps goodput>=0.2, simulated: a100-80gb" in told
    assert "Plans promise goodput>=0.2 on the smallest GPU: a100-80gb" in told
    assert "nothing is said of a30-24gb, " in told
    assert "they cannot be planned, see above" in told
    assert "gpu=a30-24gb and 6 more: unmeasured: tenants.vision: the shipped table has no service profiles" in told


@pytest.mark.usefixtures("in_this_process")
def test_a_search_that_finds_nothing_ends_with_3(call, write_config) -> None:
    asked = ["--find", "min:gpu", "--keep", "goodput>=0.999", "--jobs", 1]
    code, out, err = call("whatif", write_config(SHORT), *asked, "--plans-only")
    assert (code, "none of those measured" in out) == (3, True)
    assert "plans promise goodput>=0.999 at none up to the first that does not hold" in err
    code, out, err = call("whatif", write_config(SHORT), *asked)
    assert (code, "No GPU keeps goodput>=0.999, simulated: not even the easiest does" in out) == (3, True)
    assert "none keeps goodput>=0.999, not even gpu=a100-80gb, simulated" in err


GOAL = ["--find", "max:load=0.2..2.4", "--keep", "goodput>=0.6", "--jobs", 1]


@pytest.mark.usefixtures("in_this_process")
def test_an_answer_is_kept_by_runs_of_all_windows_and_what_is_beyond_it_is_not(call, write_config) -> None:
    path = write_config(LOADED)
    code, out, err = call("whatif", path, *GOAL, "--out", "found.json")
    found = json.loads(Path("found.json").read_text())["find"]
    simulated = found["simulated"]
    assert (code, simulated["seeds"]) == (0, [3, 4, 5])
    low, high = simulated["holds"], simulated["breaks"]
    assert low < high < 1.1 * low
    by_value = {one["value"]: one for one in simulated["values"]}
    for value, verdict in ((low, "holds"), (high, "fails")):
        assert (by_value[value]["seeds"], by_value[value]["verdict"]) == ([3, 4, 5], verdict)
        call("run", path, "--set", f"load={value}", "--seed", 9, "--out", f"at-{value}")
        fresh = json.loads(call("report", f"at-{value}", "--json")[1])["total"]["goodput_pct"]
        assert (fresh >= 60) == (verdict == "holds")
    assert err.count("simulated: load=") >= 3
    told = " ".join(out.split())
    kept = f"The largest load that keeps goodput>=0.6, simulated: {low:g}; the limit lies between {low:g} and {high:g}"
    assert told.index(kept) < told.index(f"Plans promise goodput>=0.6 up to load {found['holds']:g}")
    assert "nothing was" not in told


@pytest.mark.usefixtures("in_this_process")
def test_tenants_are_counted_as_far_as_they_are_held_together(call, write_config) -> None:
    asked = ["--find", "max:tenants", "--keep", "slo_attainment>=0.9", "--set", "sharing.pools=auto", "--jobs", 1]
    code, out, _ = call("whatif", write_config(SHORT), *asked, "--json")
    found = json.loads(out)["find"]
    assert (code, found["key"], found["simulated"]["holds"]) == (0, "tenants", 2)
    crowd = write_config({**SHORT, "tenants.1.arrivals": {"rate_rps": 3000}})
    found = json.loads(call("whatif", crowd, *asked, "--json")[1])["find"]["simulated"]
    assert (found["holds"], found["breaks"]) == (1, 2)


BAD_SEARCHES = [
    (["--find", "max:load"], "--find needs at least one --keep"),
    (["--keep", "goodput>=0.5"], "--find is missing"),
    (["--vary", "load=x2", "--plans-only"], "--plans-only is for --find"),
    (["--find", "max:load", "--keep", "goodput>=0.5", "--vary", "engine=greedy"], "give --plans-only"),
    (["--find", "max:tenants", "--keep", "goodput:vision>=0.5"], "--keep goodput:vision>=0.5: max:tenants leaves"),
    (["--find", "max:tenants=1..2", "--keep", "goodput>=0.5"], "can be found"),
    (["--find", "max:sharing", "--keep", "goodput>=0.5"], "--find max:sharing: max:load, min:slo_ms"),
    (["--find", "max:load", "--keep", "goodput>0.5"], "--keep goodput>0.5: METRIC>=SHARE"),
    (
        ["--find", "max:load", "--keep", "goodput>=0.5", "--vary", "window=0,1"],
        "another key, with one value, is needed",
    ),
    (["--find", "max:load", "--keep", "goodput>=0.5", "--vary", "load=x2"], "another key, with one value, is needed"),
    (["--vary", "load=" + ",".join(f"x{n}" for n in range(1, 12_001))], "12,000 values are given; at most 1,000 are"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_SEARCHES, ids=[message for _, message in BAD_SEARCHES])
def test_what_is_wrong_with_a_search_is_one_line(call, write_config, arguments: list[str], message: str) -> None:
    code, out, err = call("whatif", write_config(SHORT), *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert len(err) < 300


@pytest.mark.parametrize(
    ("number", "code", "to_all"),
    [
        pytest.param(signal.SIGINT, 130, True, marks=pytest.mark.long),
        (signal.SIGTERM, 143, False),
        pytest.param(signal.SIGHUP, 129, True, marks=pytest.mark.long),
    ],
)
def test_an_interrupt_ends_it_with_its_code_and_leaves_no_process(
    write_config, number: signal.Signals, code: int, to_all: bool
) -> None:
    config = write_config({"windows": 50})
    command = [sys.executable, "-m", "migrator", "whatif", str(config), "--vary", "window=46,47,48,49", "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "planning 4 points in 2 processes\n"
    (os.killpg if to_all else os.kill)(process.pid, number)
    # The pipes are closed when the last process that holds them has ended.
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert "want of memory" not in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("in_this_process")
def test_gaps_of_a_trace_stand_in_the_notes(call, write_config, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("second,count\n" + "".join(f"{n},5\n" for n in range(200) if n != 99))
    config = write_config(
        {**SHORT, "tenants.1.arrivals": {"trace": "mine.csv", "offset_s": 60, "gaps": "zero"}, "windows": 1}
    )
    printed = call("whatif", config, "--vary", "load=x1", "--jobs", 1, "--json")[1]
    (note,) = json.loads(printed)["notes"]
    assert note.startswith("tenants.language: mine.csv: 1 of 200 s have no data")


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--vary", "load=1,4"],
        pytest.param(["--find", "max:load=0.5..4", "--keep", "goodput>=0.5", "--plans-only"], marks=pytest.mark.long),
    ],
)
def test_a_load_above_three_is_warned_of_and_whom_it_does_not_move(call, write_config, arguments: list[str]) -> None:
    path = write_config({"load": 0.7, "windows": 1, "planner.max_schedules": 2})
    err = call("whatif", path, *arguments, "--jobs", 1)[2]
    assert err.count("warning: load is 4: at 1 the tenants") == 1
    assert err.count(" does not move language of ") == 1


def test_a_load_in_percent_is_refused(call, write_config) -> None:
    path = write_config({"load": 0.7, "tenants.1.arrivals.scale": {}})
    for arguments in (["--vary", "load=70"], ["--find", "max:load=7..70"], ["--vary", "load=1", "--set", "load=70"]):
        code, _, err = call("whatif", path, *arguments)
        assert (code, "percent? 70 % are 0.7" in err, err.count("\n")) == (2, True, 1)
